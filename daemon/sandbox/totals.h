/* SPDX-License-Identifier: MIT */
/* What happened to sandboxes since the start, counted for metrics. */
#ifndef AB_DAEMON_SANDBOX_TOTALS_H
#define AB_DAEMON_SANDBOX_TOTALS_H

#include <sys/types.h>

#include "daemon/common/obs/histogram.h"
#include "daemon/common/obs/tally.h"
#include "proto/base/cc.h"

struct sandbox_core;

#define TOTALS_EVENTS 24u
#define TOTALS_NAMES  24u

/* Counts by name. */
struct totals_by_name {
	struct {
		const char *name;	/* a constant of the code; NULL: this and all that follow are unused */
		uint64_t n;
	} v[TOTALS_NAMES];
};

struct sandbox_totals {
	uint64_t events[TOTALS_EVENTS];		/* by type, as numbered in agentbox.v1.SandboxEvent */
	struct tally gone;			/* by the reason of the end */
	struct tally creates, forks, snapshots;	/* by their outcome */
	struct totals_by_name pauses, kills;	/* by policies, per rule */
	struct totals_by_name leases_ended;	/* by lease_end()'s `why` */
	uint64_t leases_taken;
	struct tally renewals;			/* by what the cloud answered */
	struct histogram renewal_delay;		/* us from when an extension was due until it was sent */
};

/* `name` must be a constant. The last of TOTALS_NAMES entries is "other", for all names that find no entry. */
void totals_count(struct totals_by_name *t, const char *name);

/* The uids with an event log, which have a sandbox or had one not long ago. Puts at most `max` into `ret`; returns how many there are. */
size_t sandbox_core_uids(const struct sandbox_core *core, uid_t *ret, size_t max);

const struct sandbox_totals *sandbox_core_totals(const struct sandbox_core *core);

#endif
