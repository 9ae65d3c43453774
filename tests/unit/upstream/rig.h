/* SPDX-License-Identifier: MIT */
/*
 * A pool over scripted peers, in simulated time. Real are pool, origin, conn, share, and all below
 * them but the ends: a connection is one of a pair of Unix sockets whose other end is a peer in this
 * program, names are found in a table, and TLS is taken as agreed on. (--wrap: sock_connect and its
 * like, resolve_start and its like, tls_client_ref and its like, http_conn_is_tls, http_conn_covers.)
 *
 * A peer does with each request what `does` says at that moment; what it holds, the test ends. Raw
 * frames (peer_raw()) say what our own HTTP/2 never would. UNTIL() needs tests/lib/test.h.
 *
 *     struct rig g;
 *     struct peer *p;
 *
 *     rig_begin(&g, NULL);
 *     p = rig_peer(&g, "192.0.2.1");
 *     rig_host(&g, "a.test", "192.0.2.1");
 *     ask(&g, &a, &(struct asked){ .host = "a.test" });
 *     UNTIL(&g, a.over);
 *     CHECK_INT(a.status, 200);
 *     ask_end(&a);
 *     rig_end(&g);
 */
#ifndef AB_TESTS_UNIT_UPSTREAM_RIG_H
#define AB_TESTS_UNIT_UPSTREAM_RIG_H

#include "daemon/common/ev/loop.h"
#include "daemon/upstream/pool.h"
#include "proto/base/clock.h"
#include "proto/base/list.h"
#include "tests/lib/sim/host.h"

#define RIG_PEERS    4u
#define RIG_HOSTS    16u
#define RIG_ANSWER_MS 5u	/* from a request to its answer */

enum peer_connect {
	PEER_ACCEPTS,
	PEER_REFUSES,		/* ECONNREFUSED */
	PEER_SWALLOWS,		/* no answer to a SYN */
};

enum peer_does {
	PEER_ANSWERS,		/* with `status`, after RIG_ANSWER_MS */
	PEER_HOLDS,
	PEER_RESETS,		/* RST_STREAM, code `reset_code` */
	PEER_CUTS,		/* the connection, without a word */
	PEER_LEAVES,		/* GOAWAY that names what came before this one: it is unprocessed */
};

struct peer {
	struct rig *rig;
	char address[46];
	const char *covers;		/* its certificate: this name and those under it; NULL = every name */
	enum peer_connect connect;
	uint32_t connect_ms;		/* it takes */
	bool http1;
	uint32_t max_streams;		/* that it tells a new connection; 0 = 100 */
	bool no_streams;		/* … and right behind it: none */
	enum peer_does does;
	unsigned status;		/* 0 = 200 */
	const char *field, *value;	/* one more of its answers; NULL = none */
	uint32_t reset_code;

	struct list conns;		/* open ones, oldest first */
	unsigned dials, requests;	/* so far; dials: those that it did not refuse */
	unsigned n_conns, n_open, max_open;	/* now; streams, and the most of one connection ever */
};

struct peer_conn {
	struct list node;
	struct peer *peer;
	int fd;
	struct watch watch;
	struct timer connects;		/* not yet connected, if set */
	struct h2 *h2;			/* NULL: HTTP/1.1 */
	struct list streams;		/* not answered yet, oldest first */
	unsigned n_open;
	bool silent;			/* from now on it reads and says nothing */
	unsigned foreign_acks;		/* of raw SETTINGS: still to come, and not for h2 */
};

struct peer_stream {
	struct list node;
	struct peer_conn *conn;
	struct h2_stream *s;
	struct timer answers;
	char host[64], path[64];
	char body[64];			/* so far */
};

struct rig {
	struct sim time;
	struct loop *loop;
	struct pool *pool;
	struct peer peers[RIG_PEERS];
	unsigned n_peers;
	struct {
		char name[64];
		const char *addresses[4];
		unsigned n;
	} hosts[RIG_HOSTS];
	unsigned n_hosts, lookups;
	/* The host and path of each request, in the order that peers got them: "a.test/x ". */
	char log[4096];
};

/* options: its loop, resolver and seed are the rig's; NULL = the defaults. */
void rig_begin(struct rig *g, const struct pool_options *options);
/* Every request is ended. */
void rig_end(struct rig *g);
struct peer *rig_peer(struct rig *g, const char *address);
/* A name has another address. */
void rig_host(struct rig *g, const char *name, const char *address);
/* Lets so much time pass. */
void rig_spin(struct rig *g, uint64_t ms);

#define UNTIL(g, cond) do { \
	uint64_t until_limit = clock_boot_ms() + 60000; \
	while (!(cond)) { \
		CHECK(loop_once((g)->loop, 20) >= 0); \
		CHECK(clock_boot_ms() < until_limit); \
	} \
} while (0)

/* Number i of its open connections, of those that it has not answered on one. */
struct peer_conn *peer_conn_at(struct peer *p, unsigned i);
struct peer_stream *peer_stream_at(struct peer_conn *c, unsigned i);
void peer_answer(struct peer_stream *s, unsigned status);
void peer_reset(struct peer_stream *s, uint32_t code);
/* Takes no new ones from now on, with a code; without one, those that are open go on. */
void peer_goaway(struct peer_conn *c, uint32_t code);
void peer_close(struct peer_conn *c);
/* These bytes come next. */
void peer_raw(struct peer_conn *c, const void *p, size_t n);
/* A SETTINGS frame: the streams that may be open, 0 too. */
void peer_raw_streams(struct peer_conn *c, uint32_t n);

struct asked {
	const char *host;		/* required */
	const char *path;		/* NULL = "/" */
	const char *group;		/* NULL = "account" */
	bool plain;			/* http: shares nothing */
	bool http1;			/* asked for, whatever the peer speaks */
	const char *authority;		/* NULL = the host */
	bool once;			/* not idempotent */
	const char *body;		/* kept for a replay; NULL = none */
	enum pool_class cls;
	uint64_t deadline_ms, head_by_ms;	/* from now; 0 = none */
};

struct ask {
	struct pool_req *r;
	unsigned told;			/* on_ready came so often */
	unsigned status;		/* of the answer's head; 0 = none yet */
	bool over;
	enum pool_fate fate;
	struct status why;		/* it failed */
};

void ask(struct rig *g, struct ask *a, const struct asked *q);
void ask_end(struct ask *a);
/* The counters of the one origin with this host. */
struct pool_stats rig_stats(struct rig *g, const char *host);

#endif
