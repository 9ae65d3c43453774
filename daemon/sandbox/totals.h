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

/* By names that are constants of the code. */
struct totals_by_name {
	struct {
		const char *name;	/* NULL: no more of them */
		uint64_t n;
	} v[TOTALS_NAMES];
};

struct sandbox_totals {
	uint64_t events[TOTALS_EVENTS];		/* by type, as numbered in agentbox.v1.SandboxEvent */
	struct tally gone;			/* by the reason of the end */
	struct tally creates, forks, snapshots;	/* by their outcome */
	struct totals_by_name pauses, kills;	/* by policies, per rule */
	struct totals_by_name leases_ended;	/* why */
	uint64_t leases_taken;
	struct tally renewals;			/* by what the cloud answered */
	struct histogram renewal_delay;		/* from when one was due until it was sent */
};

/* `name` lives as long as the program. Above TOTALS_NAMES of them the last one stands for all. */
void totals_count(struct totals_by_name *t, const char *name);

/* Who has, or had not long ago, a sandbox: at most `max` of them into `ret`; returns how many there are. */
size_t sandbox_core_uids(const struct sandbox_core *core, uid_t *ret, size_t max);

const struct sandbox_totals *sandbox_core_totals(const struct sandbox_core *core);

#endif
