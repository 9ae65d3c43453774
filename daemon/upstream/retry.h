/* SPDX-License-Identifier: MIT */
/*
 * May a failed request be sent again? [pure] By how far it got and by what it does. The rule that
 * matters: what may have been processed and is not idempotent is never sent twice.
 */
#ifndef AB_DAEMON_UPSTREAM_RETRY_H
#define AB_DAEMON_UPSTREAM_RETRY_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define RETRY_REPLAYS_MAX 3u	/* of one request; then it fails with what is known */
#define RETRY_RECYCLES_MAX 100u	/* a wide burst meets the end of many connections, each of which took some */

enum retry_end {		/* how the attempt ended, without a complete answer */
	RETRY_END_REFUSED,	/* the peer proved that it did not process it */
	RETRY_END_RESET,	/* the peer reset it */
	RETRY_END_LOST,		/* the connection died */
	RETRY_END_DEADLINE,	/* its time is over */
};

struct retry_facts {
	enum retry_end end;
	bool sent;		/* this attempt: a byte of it may have reached the wire */
	bool sent_before;	/* an earlier attempt may have been processed */
	bool head_seen;		/* the owner saw the answer's head */
	bool idempotent;
	bool body_kept;		/* the whole body is still here (or there is none) */
	bool recycled;		/* refused by a peer that ends its connections after so many requests */
	unsigned replays;	/* so far, without … */
	unsigned recycles;	/* … those */
};

enum retry_verdict {
	RETRY_AGAIN,
	RETRY_FAIL_UNSENT,	/* give up; proven unprocessed */
	RETRY_FAIL_BROKEN,	/* give up; maybe processed */
};

enum retry_verdict retry_decide(const struct retry_facts *f);

#endif
