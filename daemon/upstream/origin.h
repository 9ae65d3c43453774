/* SPDX-License-Identifier: MIT */
/*
 * Inside of the pool: one origin with its connections and its queue. pool.c has the requests and
 * their lives, origin.c decides who gets which connection and when to dial, conn.c is one
 * connection's life and health.
 *
 * A request is on exactly one list: its origin's queue (POOL_PENDING, no exchange), its
 * connection's list (an open exchange), or none (over). One whose owner has left is also in the pool's list of those.
 */
#ifndef AB_DAEMON_UPSTREAM_ORIGIN_H
#define AB_DAEMON_UPSTREAM_ORIGIN_H

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/histogram.h"
#include "daemon/upstream/pool.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/quota.h"
#include "proto/base/rng.h"

#define POOL_H2_REFUSED 7u		/* error codes of HTTP/2 that the pool has to do with */
#define POOL_H2_CANCEL	8u
#define POOL_H2_CALM	11u

struct resolve_answer;
struct resolve_query;

struct pool {
	struct loop *loop;
	struct pool_options o;
	struct quota *quota;		/* of all that is held for it */
	struct rng rng;
	struct map origins;		/* by key */
	struct list origin_list;
	struct list left;		/* requests that only their end is awaited of */
	struct pool_stats gone;		/* counters of origins that were freed */
	uint32_t n_reqs;
	uint64_t last_serial;		/* of its requests */
	struct histogram queue_time;
};

enum uconn_state {
	UCONN_DIALING,
	UCONN_READY,
	UCONN_PROBING,		/* idle for long: a PING is out before it is trusted again */
	UCONN_LEAVING,		/* takes no new requests: GOAWAY, age, retired */
	UCONN_CLOSED,
};

struct uconn {
	struct list node;	/* of its origin */
	struct origin *origin;	/* NULL: the pool is gone, only the end is waited for */
	struct http_dial *dial;
	struct http_conn *c;
	enum uconn_state state;
	struct list reqs;
	uint32_t n_reqs;
	uint64_t opened_at_ms;
	uint64_t busy_at_ms, idle_at_ms;	/* since when it has, or has not, requests */
	uint64_t ping_at_ms;			/* when the PING out was sent; 0 = none is out */
	uint32_t pings_acked;
	unsigned starved_requests;			/* requests that starved on it in a row */
	uint64_t suspect_ms;			/* another one to its peer was found dead then; 0 = no */
	bool answered;				/* a request on it; 421 is no answer */
	bool barren;				/* … none, and its origin counted that */
	bool goaway;				/* the peer's was noted */
	bool expired;				/* too old: leaves when its successor is there */
	struct grave grave;
};

struct origin {
	struct pool *pool;
	struct list node;
	char *key, *scheme, *host, *group, *proxy;
	char *authority;		/* as requests name it, where they have no other */
	uint16_t port;
	struct tls_client *tls;
	bool plain_http2, http1;
	struct quota *quota;

	struct list conns;
	uint32_t n_conns, n_dialing;
	struct list queue[2];		/* by enum pool_class */
	uint32_t n_queued, n_reqs;
	uint32_t n_repeats;		/* queued, and sent before */
	int version;			/* of the last connection; 0 = not known yet */
	uint64_t unused_at_ms;		/* since then it has no requests and no connections; 0 = it has */

	unsigned failures;		/* dials in a row */
	uint64_t hold_until_ms;
	unsigned barren;		/* connections in a row that were made and answered nothing */
	uint64_t barren_at_ms;		/* when the last of them was found to be so */
	uint64_t dial_at_ms;		/* no dial before, because of them; requests wait meanwhile */
	struct status last_failure;
	uint64_t last_failure_at_ms;

	unsigned enhance_calm_count;			/* complaints not yet forgotten */
	uint64_t calm_at_ms;
	int64_t peer_streams;		/* its limit, as a connection was told last; -1 = not yet */
	uint32_t stream_target;		/* our own cap per connection; 0 = the peer's alone */
	uint32_t ping_after_ms;

	/* share.c: whose connections it may use */
	struct resolve_query *lookup;	/* under way */
	uint64_t looked_up_at_ms;	/* 0 = never */
	struct resolve_answer *answer;	/* NULL = none */
	bool waited;			/* for another's dial, which failed */
	bool never_share;		/* a shared connection answered 421 */

	struct pool_stats stats;	/* the counters only */
	struct defer pump;
	struct timer timer;
	struct grave grave;
};

struct pool_req {
	struct list node;
	struct list left;		/* in the pool's, once the owner is gone */
	size_t rest_bytes;		/* dropped since */
	struct pool *pool;
	struct origin *origin;
	struct uconn *conn;		/* with an open exchange */
	struct http_stream *x;
	struct fields head;
	uint8_t *body;
	size_t n_body;
	struct charge held;		/* the body */
	enum pool_body body_mode;
	enum pool_class cls;
	uint64_t serial;		/* a queue is in the order of these, also after replays */
	bool idempotent, head_seen, sent_before;
	bool cut;			/* the last attempt ended because the connection died */
	bool queued;
	unsigned posts;			/* attempts that were written, but for the one of x */
	unsigned replays, recycles;	/* repeats, which retry.c bounds */
	uint64_t again_at_ms;		/* stays in the queue until then */
	uint64_t queued_at_ms, sent_at_ms;
	uint64_t head_by_ms, deadline_ms;
	enum pool_fate fate;
	struct status failure;		/* while pending: of the last attempt */
	int (*sending)(void *user);
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
	struct timer timer;
	struct defer tell;
	struct grave grave;
};

/* pool.c */
void pool_add_counters(struct pool_stats *to, const struct pool_stats *s);
void pool_req_enqueue(struct pool_req *r);
void pool_req_fail(struct pool_req *r, enum pool_fate fate, const struct status *why);
/* Its attempt ended without an answer: sends it again or fails it. */
void pool_req_attempt_ended(struct pool_req *r, enum http_close how, uint32_t h2_code);
/* On this connection. 0, -EAGAIN: no stream free, else -errno. */
must_check int pool_req_send(struct pool_req *r, struct uconn *c);

/* origin.c */
struct origin *origin_get(struct pool *p, const struct pool_target *t);	/* NULL without memory */
void origin_kick(struct origin *o);		/* looks at queue and connections later in this pass */
void origin_free(struct origin *o);
void origin_dial_failed(struct origin *o, const struct status *why);
void origin_calmed(struct origin *o);		/* the peer said ENHANCE_YOUR_CALM */
void origin_barren(struct origin *o, uint64_t opened_at_ms);	/* a connection made then answered nothing */
void origin_rearm(struct origin *o);

/* share.c */
/* A connection of another origin that may carry this request now; NULL: none. */
struct uconn *share_find(struct origin *o, const struct pool_req *r, uint64_t now_ms);
/* Could there be one, once the addresses of this origin are known? Then they are being looked up,
 * and a dial waits for that. */
bool share_wait(struct origin *o, uint64_t now_ms);
/* A dial of this origin ended: those that waited for it look again. */
void share_dialled(struct origin *o, bool ok);
void share_fini(struct origin *o);

/* conn.c */
must_check int uconn_dial(struct origin *o);
void uconn_set_state(struct uconn *c, enum uconn_state to);
void uconn_attach(struct uconn *c, struct pool_req *r);
void uconn_detach(struct pool_req *r);
void uconn_leave(struct uconn *c, const char *reason);	/* no new requests; closes when empty */
void uconn_close(struct uconn *c, const char *reason);
/* Streams it may carry for this class now, by the peer's limit and our target; 0 = none. */
uint32_t uconn_room(const struct uconn *c, enum pool_class cls);
/* The peer allows no stream on it, or may not: its last word to another connection was none, and it has not said its
 * word to this one. */
bool uconn_has_no_streams(const struct uconn *c);
bool uconn_awaits_settings(const struct uconn *c);
/* The head of an answer came; `good`: it was meant for the request. */
void uconn_answered(struct uconn *c, bool good);
/* It is of no use, and was none: unless it answered something, the next dial waits. */
void uconn_was_barren(struct uconn *c);
bool uconn_is_fresh(const struct uconn *c, uint64_t now_ms);	/* may be trusted with what runs once */
void uconn_probe(struct uconn *c);
/* A PING to the same peer was lost and nothing was heard on this one since: nothing new goes on it. */
bool uconn_is_suspect(const struct uconn *c);
const char *uconn_state_name(const struct uconn *c);
/* Health at `now`; returns when to look again. */
uint64_t uconn_check(struct uconn *c, uint64_t now_ms);
void uconn_forget_origin(struct uconn *c);

#endif
