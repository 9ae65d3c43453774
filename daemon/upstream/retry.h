/* SPDX-License-Identifier: MIT */
/*
 * May a failed request be sent again, and when? [pure] By how far it got and by what it does. The rule that
 * matters: what may have been processed and is not idempotent is never sent twice. What may be repeated is
 * repeated until its deadline, with waits that grow, unless the peer's own doing makes another try pointless.
 */
#ifndef AB_DAEMON_UPSTREAM_RETRY_H
#define AB_DAEMON_UPSTREAM_RETRY_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define RETRY_POSTS_MAX	   3u	/* how often what is not idempotent is written where GOAWAY refuses it, and
				 * everything where 421 does */
#define RETRY_RESETS_MAX   3u	/* repeats of one that the peer resets, or breaks the protocol at */
#define RETRY_RECYCLES_MAX 100u	/* a wide burst meets the end of many connections, each of which took some */
#define RETRY_BLIND_MAX	   3u	/* repeats of one that has no deadline */

enum retry_end {		/* how the attempt ended, without a complete answer */
	RETRY_END_REFUSED,	/* the peer's GOAWAY proves that it did not process it */
	RETRY_END_BUSY,		/* the peer refused the stream: not now */
	RETRY_END_MISDIRECTED,	/* 421: not on this connection */
	RETRY_END_RESET,	/* the peer reset it, or broke the protocol */
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
	bool full;		/* BUSY: the peer told a limit meanwhile that the connection has reached */
	bool timed;		/* it has a deadline */
	unsigned posts;		/* attempts that were written, this one too */
	unsigned replays;	/* repeats so far, those of recycled connections aside */
	unsigned recycles;	/* repeats because a connection was recycled */
};

enum retry_verdict {
	RETRY_AGAIN,
	RETRY_FAIL_UNSENT,	/* give up; proven unprocessed */
	RETRY_FAIL_BROKEN,	/* give up; maybe processed */
};

enum retry_verdict retry_decide(const struct retry_facts *f);
/* What it fails as, whatever may be repeated. */
enum retry_verdict retry_give_up(const struct retry_facts *f);

#define RETRY_NEVER UINT32_MAX
/* The wait before it is sent again: none at first, unless the peer is busy for no reason, then doubled from 100 ms up to 2 s, and
 * never more than half of what is left (left_ms; 0 = no deadline). RETRY_NEVER: no time for another try. */
uint32_t retry_wait_ms(const struct retry_facts *f, uint64_t left_ms, uint64_t rnd);

#endif
