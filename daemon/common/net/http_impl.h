/* SPDX-License-Identifier: MIT */
/*
 * Inside of net: what http.c (connections and the public calls), h2conn.c, h1conn.c, listen.c and
 * dial.c share.
 *
 * One connection = one xport + one engine (h2 or h1). Engines never call the owner from where bytes
 * are fed; they note, and conn_deliver() calls. It runs from the read callback and from the pump,
 * never inside a call of the owner.
 *
 * A connection that ended stays as memory until its last exchange was released, because exchanges
 * may still be read.
 */
#ifndef AB_DAEMON_COMMON_NET_HTTP_IMPL_H
#define AB_DAEMON_COMMON_NET_HTTP_IMPL_H

#include "daemon/common/ev/loop.h"
#include "daemon/common/net/guest.h"
#include "daemon/common/net/http.h"
#include "daemon/common/net/xport.h"
#include "proto/base/list.h"
#include "proto/base/quota.h"

#define HTTP_CONN_MAGIC 0x68636f6eu
#define HTTP_STREAM_MAGIC	0x68786368u

#define HTTP_STALL_MS	  30000u	/* output waits and the socket takes nothing */
#define HTTP_LINGER_MS	  2000u		/* after our last byte, for the peer's */
#define HTTP_HANDSHAKE_MS 10000u
#define HTTP_DRAIN_ACK_MS 1000u		/* for a peer to learn of the first GOAWAY */
#define HTTP_TLS_BYTES	  (96u * 1024)	/* about what OpenSSL and its buffers take for a connection */

enum conn_state {
	CONN_TLS,	/* handshake */
	CONN_SNIFF,	/* which version? */
	CONN_OPEN,
	CONN_FLUSH,	/* nothing new; what is queued goes out, then our side is shut */
	CONN_LINGER,	/* our side is shut; waiting for the peer's end, so that it reads ours */
	CONN_CLOSED,	/* the descriptor is gone; the owners do not know yet */
	CONN_GONE,	/* they do */
};

struct http_ops {
	int version;
	/* connection */
	void (*feed)(struct http_conn *c, const uint8_t *p, size_t n, uint64_t now_ms);
	void (*eof)(struct http_conn *c, bool orderly);
	int (*output)(struct http_conn *c);	/* until blocked or empty; -errno = the socket failed */
	bool (*has_output)(const struct http_conn *c);
	bool (*is_bare)(const struct http_conn *c);	/* NULL: never */
	bool (*deliver)(struct http_conn *c);	/* false: the rest waits for the next pass */
	void (*lost)(struct http_conn *c);	/* closes all exchanges */
	void (*after)(struct http_conn *c);	/* end of a pump: drain and the like */
	/* NULL: never. When the peer must have done something that the engine watches, 0 = nothing. */
	uint64_t (*due)(const struct http_conn *c);
	void (*expire)(struct http_conn *c, uint64_t now_ms);	/* that moment may have passed */
	void (*drain)(struct http_conn *c);
	void (*free)(struct http_conn *c);
	uint32_t (*open_count)(const struct http_conn *c);
	uint32_t (*free_streams)(const struct http_conn *c);
	int64_t (*peer_streams)(const struct http_conn *c);	/* may be NULL */
	int (*request)(struct http_conn *c, const struct fields *head, bool end,
		       struct http_stream **ret);
	/* exchange */
	const struct fields *(*head)(const struct http_stream *x);
	bool (*head_is_cut)(const struct http_stream *x);	/* NULL: never */
	void (*drop_head)(struct http_stream *x);		/* NULL: it stays */
	const struct fields *(*trailers)(const struct http_stream *x);
	size_t (*peek)(struct http_stream *x, const uint8_t **ret);
	size_t (*buffered)(const struct http_stream *x);
	int (*pull)(struct http_stream *x, size_t n);		/* NULL: it is always one piece */
	void (*consume)(struct http_stream *x, size_t n);
	bool (*ended)(const struct http_stream *x);
	bool (*at_end)(const struct http_stream *x);
	int (*respond)(struct http_stream *x, const struct fields *head, bool end);
	bool (*next_interim)(struct http_stream *x, struct fields *ret);
	bool (*awaits_continue)(const struct http_stream *x);
	bool (*can_upgrade)(const struct http_stream *x);	/* NULL: never */
	size_t (*room)(const struct http_stream *x);
	size_t (*unsent)(const struct http_stream *x);
	int (*write)(struct http_stream *x, const void *p, size_t n);
	uint8_t *(*space)(struct http_stream *x, size_t n);	/* NULL: never; what it gives is followed by … */
	int (*added)(struct http_stream *x, size_t n);
	int (*finish)(struct http_stream *x, const struct fields *trailers);
	void (*reset)(struct http_stream *x, uint32_t code);
	void (*release)(struct http_stream *x);
	enum http_close (*closed)(const struct http_stream *x, uint32_t *ret_code);
	bool (*was_sent)(const struct http_stream *x);
};

extern const struct http_ops h2_ops, h1_ops;

struct http_stream {
	uint32_t magic;
	bool released;
	const struct http_ops *ops;
	struct http_conn *c;
	http_ready_fn *on_ready;
	void *user;
	struct list detached;		/* of its connection, once nobody owns it */
	struct grave grave;
};

struct http_conn {
	uint32_t magic;
	enum conn_state state;	/* one writer: conn_set_state() */
	const struct http_ops *ops;	/* NULL until the version is known */
	void *engine;			/* struct h2 or struct h1 */
	struct loop *loop;
	struct xport xp;
	struct timer tick;
	struct defer pump;		/* stage 4 of this pass */
	struct defer again;		/* … of the next one */
	struct grave grave;
	struct list node;		/* of its server */
	uint32_t n_x;			/* exchanges in memory */
	struct list detached;		/* those that end with the connection: nobody else releases them */
	struct http_server *server;	/* NULL: client, or a server's that was freed */
	struct guest *guest;		/* of a server's; a reference */
	bool server_role, tls, draining, buried;
	bool title_names;		/* HTTP/1.1 */
	bool broke_rules;		/* the peer did, which ends it */
	bool untold;			/* owners have not heard of everything yet */
	uint64_t calls_pass;		/* the pass in which … */
	unsigned calls_left;		/* … so many of them may still be called */
	void *user;
	uint32_t stream_window, send_max;
	struct quota *quota;		/* its own; NULL = none */
	/* client */
	void (*ready)(struct http_conn *c, const struct status *failure, void *user);
	void (*closed)(struct http_conn *c, const char *reason, void *user);
	void (*changed)(struct http_conn *c, void *user);
	void *owner;
	bool plain_http2;
	uint32_t seen_acks, seen_free;
	int64_t seen_limit;
	bool seen_goaway;
	/* moments (BOOTTIME, 0 = none) at which something must have happened */
	uint64_t handshake_by_ms, drain_by_ms, linger_by_ms, stalled_since_ms, idle_since_ms;
	uint64_t last_read_ms;
	uint64_t progress_seen;
	uint8_t pre[4], n_pre;		/* what came while sniffing */
	uint8_t drain_step;
	uint32_t drain_acks;
	char peer[64];
	char why[128];
};

/* --- http.c --- */

struct http_conn_options {
	struct loop *loop;
	int fd;				/* taken over, also on failure */
	struct tls_conn *tls;		/* the same */
	struct http_server *server;	/* NULL = client */
	struct guest *guest;		/* a server's; a reference is taken */
	uint32_t stream_window, send_max;
	struct quota *quota;		/* its own is below it; NULL = none */
	uint64_t quota_max;
	uint64_t handshake_by_ms;
};
must_check int conn_new(const struct http_conn_options *o, struct http_conn **ret);
/* Reading begins; a client's ready() comes from the loop. */
void conn_start(struct http_conn *c);
/* Ends it without a word to anybody; exchanges stay readable. */
void conn_discard(struct http_conn *c);
/* Abrupt: exchanges are lost, the descriptor is closed, owners hear of it from the pump. */
void conn_fail(struct http_conn *c, const char *why);
/* Orderly: flush, shut, linger. Exchanges must be closed already. */
void conn_finish(struct http_conn *c, const char *why);
/* Something may have to be written, told or ended. */
static inline void conn_touch(struct http_conn *c)
{
	if (c->state != CONN_GONE)
		defer_post(&c->pump);
}
/* Re-arms the timer for the moments above. */
void conn_arm(struct http_conn *c);
void http_stream_init(struct http_stream *x, struct http_conn *c, const struct http_ops *ops);
void http_stream_ready(struct http_stream *x);
/* The engine is done with it: frees the memory at the end of the pass. */
void http_stream_bury(struct http_stream *x, void (*free_fn)(void *));

/* --- listen.c --- */

const struct http_server_options *server_options(const struct http_server *s);
void server_conn_gone(struct http_server *s, struct http_conn *c);

/* --- engines --- */

must_check int h2conn_start(struct http_conn *c, uint64_t now_ms);
must_check int h1conn_start(struct http_conn *c);

#endif
