/* SPDX-License-Identifier: MIT */
/*
 * Who of an account may ask the cloud now [pure]: a cap on calls in flight, shared fairly between
 * uids, and patience where the cloud answered 429 with Retry-After. A route that was limited starts
 * again with one call at a time and doubles with each success, so that all who waited do not meet
 * the limit again in step. Where the cloud tells what is left of a route's budget (RateLimit-*), its
 * token bucket is kept here too, and calls wait for a token instead of meeting 429.
 * Never allocates: a ticket is embedded in its call.
 */
#ifndef AB_DAEMON_UPSTREAM_LIMITER_H
#define AB_DAEMON_UPSTREAM_LIMITER_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/list.h"

#define LIMITER_ROUTES	  16u
#define LIMITER_WAIT_MAX_MS (300u * 1000)	/* what the cloud says of waiting counts no longer than this */
#define LIMITER_QUEUE_MAX 4096u		/* tickets waiting per account; the next one is turned away */

enum limiter_ticket_state {
	LIMITER_IDLE = 0,
	LIMITER_QUEUED,
	LIMITER_RUNNING,
};

struct limiter_ticket {
	struct list node;
	uid_t uid;
	unsigned route;		/* < LIMITER_ROUTES */
	bool background;	/* after all others */
	enum limiter_ticket_state state;
	uint64_t round;		/* of its uid: the lower goes first */
};

struct limiter {
	struct list queue;
	uint32_t max_in_flight;
	uint32_t n_queued, in_flight;
	uint64_t round;		/* of the last one that went */
	struct limiter_route {
		uint64_t blocked_until_ms;
		uint32_t in_flight, window;
		uint32_t burst;			/* the bucket's size; 0 = the cloud told of none */
		uint32_t per_s_milli;		/* tokens a second, in thousandths: at least that many */
		int64_t tokens_milli;		/* at filled_ms */
		uint64_t filled_ms;
		/* What a cloud that tells no budget lets pass, by its refusals; 0 = not known. */
		uint32_t passed, passed_per_s_milli;
		uint64_t passed_since_ms;	/* the last refusal's end; 0 = none yet */
	} route[LIMITER_ROUTES];
};

void limiter_init(struct limiter *l, uint32_t max_in_flight);

enum limiter_result {
	LIMITER_OK = 0,		/* queued: limiter_next() will give it */
	LIMITER_FULL,		/* too many wait */
	LIMITER_LATE,		/* the route's next call may only begin after the deadline; *ret_wait_ms */
};

/* deadline_ms 0 = none. Fill uid, route and background before. */
must_check enum limiter_result limiter_enter(struct limiter *l, struct limiter_ticket *t,
					     uint64_t deadline_ms, uint64_t now_ms,
					     uint32_t *ret_wait_ms);
/* The next that may go now, marked as running; NULL: none. */
struct limiter_ticket *limiter_next(struct limiter *l, uint64_t now_ms);
/* When to ask limiter_next() again by the clock alone; UINT64_MAX: only after a leave. */
uint64_t limiter_wake_ms(const struct limiter *l, uint64_t now_ms);
/* The call is over or was withdrawn, in whatever state. `ok`: the cloud answered without limiting. */
void limiter_leave(struct limiter *l, struct limiter_ticket *t, bool ok);
/* The cloud said wait. */
void limiter_block(struct limiter *l, unsigned route, uint32_t for_ms, uint64_t now_ms);
/* The cloud told what is left of a route's budget, in the answer to a call that has not left yet:
 * `remaining` of `burst`, full again in at most reset_s. */
void limiter_budget(struct limiter *l, unsigned route, uint32_t burst, uint32_t remaining, uint32_t reset_s,
		    uint64_t now_ms);
/* When the next call of this route may begin, as far as is known now; <= now_ms: at once. */
uint64_t limiter_route_at_ms(const struct limiter *l, unsigned route, uint64_t now_ms);
/* What the cloud gives to a route, as it told or as its refusals show; false: nothing is known.
 * *ret_tokens: so many calls may begin at once. */
bool limiter_rate(const struct limiter *l, unsigned route, uint64_t now_ms, uint32_t *ret_per_s_milli,
		  uint32_t *ret_tokens);
/* Latest moment any route has to wait for; 0 = none. */
uint64_t limiter_blocked_until_ms(const struct limiter *l, uint64_t now_ms);

#endif
