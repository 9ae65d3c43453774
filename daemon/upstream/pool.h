/* SPDX-License-Identifier: MIT */
/*
 * Requests in, connections out. The pool owns every connection to the cloud; a caller sees only its
 * request. Connections are kept per origin = (scheme, host, port, proxy, TLS settings, group), where
 * the group keeps accounts apart: no stream ever carries another account's header.
 *
 * Readiness. The request's `on_ready` comes on the loop, never from inside a call into here; the owner looks
 * at pool_req_x() (an exchange, or NULL while queued), pool_req_failure() and pool_req_fate().
 * The owner uses http_stream_head/peek/consume/write/… on the exchange, but never releases or resets it:
 * that is pool_req_free().
 *
 * Sharing. Hosts under one certificate at one address share connections; a 421 ends that
 * for the host, unseen by the owner.
 *
 * Replay. What is proven unprocessed (never sent, REFUSED_STREAM, above GOAWAY's last id) is sent
 * again elsewhere, unseen by the owner, as long as the pool still has the whole body; what may have
 * been processed only if the request is idempotent and no answer was seen. Both until the request's deadline,
 * with waits between; retry.h says where it ends before.
 */
#ifndef AB_DAEMON_UPSTREAM_POOL_H
#define AB_DAEMON_UPSTREAM_POOL_H

#include <stdbool.h>

#include "daemon/common/net/http.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct histogram;
struct loop;
struct pool;
struct pool_req;
struct quota;
struct resolver;
struct tls_client;

struct pool_options {
	struct loop *loop;
	struct resolver *resolver;	/* daemon/common/net/resolve.h; NULL = addresses and localhost only */
	uint64_t seed;			/* of the jitter; 0 = from the system */
	uint32_t max_conns_h2;		/* per origin; 0 = 48 */
	uint32_t max_conns_h1;		/* per origin; 0 = 256 */
	uint32_t max_queue;		/* requests waiting per origin; 0 = 4096 */
	uint32_t stream_window;		/* at most, of those that read fast; 0 = 4 MiB: 100 MB/s where an answer takes 20 ms */
	struct quota *quota;		/* of all that is held for the cloud's answers, and 16 KiB a stream besides; a
					 * reference is taken; NULL = one of 64 MiB */
	uint32_t send_max;		/* unsent bytes per request; 0 = 512 KiB */
	uint32_t dial_ms;		/* one attempt; 0 = 10 s */
	uint32_t ping_after_ms;		/* streams open and nothing read; 0 = 10 s */
	uint32_t ping_answer_ms;	/* 0 = 5 s */
	uint32_t fresh_ms;		/* silent for longer, it is tried before what must not run twice; 0 = 30 s */
	uint32_t idle_ms;		/* surplus connection; 0 = 5 min */
	uint32_t warm_ms;		/* the last connection of an origin; 0 = 9.5 min */
	uint32_t age_ms;		/* 0 = 30 min */
};

must_check int pool_new(const struct pool_options *o, struct pool **ret);
struct quota *pool_quota(const struct pool *p);	/* borrowed */
/* Other bounds from now on, each as in the options: connections above them are not closed, and none is made while there are more. */
void pool_set_limits(struct pool *p, uint32_t max_conns_h2, uint32_t idle_ms);
/* Every request must be freed before. Closes all connections. NULL is fine; returns NULL. */
struct pool *pool_free(struct pool *p);

struct pool_target {
	const char *scheme;		/* "https" or "http" */
	const char *host;		/* what is dialled and verified */
	uint16_t port;
	const char *group;		/* account and key generation */
	const char *proxy;		/* NULL = direct */
	struct tls_client *tls;		/* https; a reference is taken */
	bool plain_http2;		/* http: HTTP/2 with prior knowledge instead of 1.1 */
	bool http1;			/* HTTP/1.1 in any case, on connections of their own: upgrades need it */
	struct quota *quota;		/* of the group: its connections and requests; a reference is taken; NULL =
					 * the pool's */
};

enum pool_body {
	POOL_BODY_NONE,
	POOL_BODY_WHOLE,	/* given with the request; kept for a replay */
	POOL_BODY_STREAM,	/* the owner writes on the exchange; not replayed once it has one */
};

enum pool_class {
	POOL_SHORT,	/* a call: may use a connection's head-room */
	POOL_LONG,	/* a stream or a transfer */
};

struct pool_ask {
	const struct pool_target *target;	/* copied */
	const char *authority;			/* what the request calls its host; NULL = the target's */
	const char *method, *path;
	const struct fields *fields;		/* the head without pseudo fields; copied; NULL = none */
	enum pool_body body_mode;
	const void *body;			/* WHOLE: copied */
	size_t n_body;
	enum pool_class cls;
	bool idempotent;		/* may be sent again although it may have been processed */
	const struct status *refused;	/* not NULL: it fails with this, unsent; copied */
	uint64_t head_by_ms;		/* BOOTTIME: the answer's head must be there; 0 = no limit */
	uint64_t deadline_ms;		/* the whole exchange must be over; 0 = no limit */
	/* Called before each attempt, when it goes to a connection; -errno: it fails, unsent. NULL = none. Frees no request. */
	int (*sending)(void *user);
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
};

/* NULL only without memory. Failures are told by on_ready. */
struct pool_req *pool_request(struct pool *p, const struct pool_ask *a);
/* Ends it: a queued one is withdrawn, an open one is reset (CANCEL). No on_ready after it. NULL is fine;
 * returns NULL. */
struct pool_req *pool_req_free(struct pool_req *r);

/* As pool_req_free(), of one whose owner has all that it wants and whose end is about to come: an answer is read to that end and
 * dropped, since front ends count resets. What does not end within 2 s, or 64 KiB, is reset all the same. */
struct pool_req *pool_req_leave(struct pool_req *r);

/* BROKEN in the middle of an answer, because the connection died, and idempotent: for an owner that needs whole answers and
 * forgets what came of this one. It is POOL_PENDING again, and sent again after a while, inside its deadline. False: no (more) of
 * that. Short requests only. */
bool pool_req_repeat(struct pool_req *r);

/* The exchange; NULL while queued and after a failure that left none. It can be another one at each
 * on_ready, until its head was seen. */
struct http_stream *pool_req_x(const struct pool_req *r);

enum pool_fate {
	POOL_PENDING,	/* queued or open */
	POOL_CLEAN,	/* the answer is complete (maybe not consumed yet) */
	POOL_UNSENT,	/* failed, proven unprocessed */
	POOL_BROKEN,	/* failed, and maybe processed */
};
enum pool_fate pool_req_fate(const struct pool_req *r);
/* UNSENT, BROKEN: why (UNREACHABLE, TLS_UNTRUSTED, PROXY_*, DEADLINE_REQUEST, …); NULL else. */
const struct status *pool_req_failure(const struct pool_req *r);
/* Of any attempt: bytes may have reached the wire. */
bool pool_req_was_sent(const struct pool_req *r);
/* An attempt before the one that was answered may have been processed, too. */
bool pool_req_was_repeated(const struct pool_req *r);
/* How many attempts of it may have reached the wire. */
unsigned pool_req_posts(const struct pool_req *r);
uint64_t pool_req_sent_at_ms(const struct pool_req *r);	/* BOOTTIME of the last attempt; 0 */

/* Connections with these TLS settings, or of this group, take no new requests. */
void pool_retire_tls(struct pool *p, const struct tls_client *tls);
void pool_retire_group(struct pool *p, const char *group);

struct origin;
struct pool_stats {		/* one origin */
	const char *scheme, *host, *group;
	uint16_t port;
	uint32_t conns, dialing, streams, queued, version;
	uint64_t requests, dials, dial_failures, goaways, enhance_calm_count, replays, pings_lost;
	uint64_t misdirected;		/* answers of 421 */
	uint64_t bytes_in, bytes_out;	/* on the wire, of connections that were made */
	uint32_t rtt_ms;		/* last PING; 0 = none yet */
	uint32_t stream_target;		/* our own cap on a connection's streams, after a complaint; 0 = none */
	uint64_t hold_until_ms;		/* no dial before; 0 = none */
	const char *last_error;		/* "" = none */
	uint64_t last_error_at_ms;
};
/* The next origin, in a stable order; *at begins with NULL. False at the end. Pointers are valid until the pool is used again. */
bool pool_stats(const struct pool *p, const struct origin **at, struct pool_stats *ret);

/* The counters of all origins, those that were forgotten too. */
void pool_totals(const struct pool *p, struct pool_stats *ret);
/* How long requests waited for a connection, in whole milliseconds; lives as long as the pool. */
const struct histogram *pool_queue_time(const struct pool *p);

struct pool_conn_stats {	/* one connection, dialled */
	const char *state;		/* "ready", "probing", "leaving", "closed" */
	const char *peer;		/* "192.0.2.1:443" */
	uint32_t version;		/* HTTP_VERSION_… */
	uint32_t streams, limit;	/* open; at once, by the peer */
	uint32_t rtt_us;		/* the kernel's estimate, through a proxy as far as that; 0 = none */
	uint64_t opened_at_ms, last_read_ms;	/* BOOTTIME */
};
/* Connection number i of an origin, or false. Pointers as above. */
bool pool_conn_stats(const struct origin *o, size_t i, struct pool_conn_stats *ret);

#endif
