/* SPDX-License-Identifier: MIT */
/*
 * Routes of the control plane that the core does not answer: what a uid's `relay` must be for one of them to go on to the cloud with the
 * account's key. [pure]
 */
#ifndef AB_DAEMON_GATEWAY_PASS_RIGHT_H
#define AB_DAEMON_GATEWAY_PASS_RIGHT_H

#include "proto/base/cc.h"

struct query;

enum pass_level {		/* [uid U] relay; each has what those before it have */
	PASS_NONE,
	PASS_READ,		/* what changes nothing, and tells nothing of other uids' sandboxes */
	PASS_TEMPLATES,		/* templates are made and changed; only the caller's own are deleted */
	PASS_ALL,
	PASS_LEVELS,
	PASS_NEVER = PASS_LEVELS,
};

/* PASS_LEVELS: there is none of this name. */
enum pass_level pass_level_find(const char *name);
const char *pass_level_name(enum pass_level l);

/* The least level that lets it pass. NEVER: sandboxes, snapshots, teams, keys and tokens of the account, in any spelling of the path, and
 * paths that another server may read otherwise than we do. */
enum pass_level pass_needs(const char *method, const struct query *q);

#endif
