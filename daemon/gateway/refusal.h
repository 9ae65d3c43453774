/* SPDX-License-Identifier: MIT */
/*
 * A failure of the core in the cloud's words: the reverse of daemon/cloud/fault.h, which is what a daemon makes of them. [pure]
 * What the cloud itself refused keeps its status and error_code.
 */
#ifndef AB_DAEMON_GATEWAY_REFUSAL_H
#define AB_DAEMON_GATEWAY_REFUSAL_H

#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/cloud/route.h"

struct refusal {
	unsigned http;
	const char *error_code;		/* NULL = none; of the status it was made from, or static */
	uint32_t retry_after_s;		/* 0 = not said */
};

void refusal_of(const struct status *st, enum cloud_route to, struct refusal *ret);

#endif
