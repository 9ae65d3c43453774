/* SPDX-License-Identifier: MIT */
/* Between the engine of control-plane calls (rest.c) and the calls themselves (rest_calls.c). */
#ifndef AB_DAEMON_CLOUD_REST_H
#define AB_DAEMON_CLOUD_REST_H

#include "daemon/cloud/account.h"
#include "daemon/cloud/repeats.h"
#include "proto/base/buf.h"
#include "proto/base/map.h"
#include "proto/cloud/route.h"

enum call_state {
	CALL_QUEUED,	/* in the limiter */
	CALL_OPEN,	/* a request of the pool */
	CALL_PAUSED,	/* waits to be sent again */
	CALL_KEYLESS,	/* waits for a key; its result says why, should none come */
	CALL_GATED,	/* waits for the gate; as KEYLESS */
	CALL_OVER,	/* only done() is left */
};

struct cloud_call {
	uint32_t magic;
	struct cloud *cloud;
	struct list node;
	enum fault_op op;
	enum call_state state;
	struct cloud_ask ask;
	uint64_t deadline_ms;
	enum cloud_route to;
	char *path, *route, *body;
	struct cloud_strs secrets;	/* in the body, that no answer may show */
	char id[CLOUD_SANDBOX_ID_MAX + 1];	/* of the sandbox that is asked for; "" = none */
	size_t n_body;
	struct limiter_ticket ticket;
	struct pool_req *req;
	struct buf answer;
	struct charge held;		/* memory of the parsed answers */
	size_t pages_held;		/* bytes of `held` that are for the pages of a list read so far */
	bool sent;			/* of any attempt */
	bool doubtful;			/* an attempt that was given up may have been processed */
	unsigned attempts, key_generation;
	uint64_t queued_at_ms;		/* when it entered the limiter */
	uint64_t first_sent_ms;
	struct timer timer;
	struct defer over;
	struct cloud_result result;

	/* lists */
	bool all_pages;
	char *query;			/* path without the token */
	struct cloud_list *list;	/* a list of sandboxes: what was read so far */
	struct cloud_snapshots *snapshots;	/* a list of snapshots: what was read so far */
	struct cloud_templates *templates;	/* a list of templates: what was read so far */
	struct map tokens;		/* page tokens seen, to end a loop of pages */
	struct repeats ids;		/* of the sandboxes in `list` */
	size_t token_bytes;
	struct grave grave;
};

/* Takes `path` and `body`, also on failure. NULL without memory. */
struct cloud_call *call_new(struct cloud *cloud, enum fault_op op, enum cloud_route to, char *path, char *body,
			    const struct cloud_ask *ask);
/* Sends it, or refuses it where that can be said without asking. `id`: the sandbox, NULL = none. c may
 * be NULL. Returns c. */
struct cloud_call *call_begin(struct cloud_call *c, const char *id);
/* The result is filled: only `done` is left. */
void call_over(struct cloud_call *c);
void call_free(struct cloud_call *c);
/* The next page of c->query. -ENOMEM. */
must_check int call_set_page(struct cloud_call *c, const char *token);

#endif
