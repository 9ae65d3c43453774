/* SPDX-License-Identifier: MIT */
/*
 * One HTTP exchange (request and response) independent of the version: HTTP/2 stream or HTTP/1.1
 * message pair, server or client. rpc, gateway, upstream, cloud and agentbox-local know no more
 * about HTTP than this.
 *
 * Readiness. The owner's `on_ready` function is called on the loop, never from inside a call into here, and
 * says only that something changed; the owner looks: head, bytes (peek/consume = credit), end,
 * room to write, closed. Level, not edge: looking twice is harmless.
 *
 * Backpressure. What is not consumed is not read from the peer (beyond the stream's window).
 * What http_stream_room() does not allow should not be written yet; on_ready is called when there is room again.
 *
 * End. Exactly one CLOSED per exchange, with who ended it; then the owner releases it (release
 * before that cancels it; a server's complete answer still goes out). After release on_ready is not called.
 *
 * Versions. Heads from HTTP/1.1 may hold hop-by-hop fields (connection, te, upgrade, …): a relay
 * must drop them, and those that connection names. In what is sent they are left out. What is written
 * as the body of an answer to HEAD, of a 204 or a 304 goes nowhere. `Expect: 100-continue` is
 * answered when the owner first peeks; an owner that answers without peeking refuses the body.
 *
 * Upgrade (HTTP/1.1 only). A client asks by the field "upgrade" in a head without a body; a server
 * sees http_stream_can_upgrade() and agrees by responding with status 101 and that field, which the client
 * finds as its http_stream_status(). From then on the exchange is a tunnel: bytes are read, written and
 * held back as those of a body, finish ends our direction, http_stream_ended() says that the peer ended
 * its own, and both ends close it. A server that agrees with `end` goes on with HTTP/1.1: the exchange is over, and the connection's
 * next request may follow. Whoever does not agree answers as if nothing had been asked.
 */
#ifndef AB_DAEMON_COMMON_NET_HTTP_H
#define AB_DAEMON_COMMON_NET_HTTP_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/wire/fields.h"

struct loop;
struct http_conn;	/* a connection, either role, any version */
struct http_stream;		/* an exchange on it */

typedef void http_ready_fn(struct http_stream *x, void *user);

void http_stream_set_owner(struct http_stream *x, http_ready_fn *on_ready, void *user);
struct http_conn *http_stream_conn(const struct http_stream *x);	/* NULL once the connection is gone */

/* Server: the request head: pseudo fields :method :scheme :authority :path, then the rest, lower
 * case (HTTP/1.1: Host became :authority). Client: the final response head (":status"); NULL until
 * it came, and after it was dropped. */
const struct fields *http_stream_head(const struct http_stream *x);
/* Server: the head is longer than it may be, and what fits is there. Only with `takes_cut_heads`. */
bool http_stream_head_is_cut(const struct http_stream *x);
/* Server: nobody looks at the head any more; its memory is given back. */
void http_stream_drop_head(struct http_stream *x);
const struct fields *http_stream_trailers(const struct http_stream *x);	/* NULL if none (yet) */
unsigned http_stream_status(const struct http_stream *x);			/* client; 0 until the head came */
/* Client: the next interim head (1xx, of an upgrade 101 is none), which is the caller's to free; false: there is none. Those that came
 * before it are kept within wire/interims.h's bounds. */
bool http_stream_next_interim(struct http_stream *x, struct fields *ret);
/* Server: the client holds its body back until it is asked for it, by http_stream_peek() or by responding with status 100. */
bool http_stream_awaits_continue(const struct http_stream *x);

/* Buffered body bytes, piece by piece: the next one, valid until the next call on this exchange; 0 = none. What came until something is
 * consumed is one piece, if it is no more than 64 KiB. */
size_t http_stream_peek(const struct http_stream *x, const uint8_t **ret);
size_t http_stream_buffered(const struct http_stream *x);	/* of all pieces */
/* The next n bytes, of which there are as many, become one piece: 0, -ENOBUFS, -ENOMEM. */
must_check int http_stream_pull(struct http_stream *x, size_t n);
/* Moves them to `b`: 0, -EMSGSIZE above its maximum, -ENOBUFS above its quota, -ENOMEM. */
must_check int http_stream_take(struct http_stream *x, struct buf *b);
void http_stream_consume(struct http_stream *x, size_t n);
bool http_stream_ended(const struct http_stream *x);	/* the peer finished its message */
bool http_stream_at_end(const struct http_stream *x);	/* … and all of it was consumed */

/* Server. `head` starts with ":status". Without content-length an HTTP/1.1 body goes out chunked.
 * 1xx = interim. `end`: no body. -EPIPE if closed. */
must_check int http_stream_respond(struct http_stream *x, const struct fields *head, bool end);
/* Server: would an answer with status 101 be understood? */
bool http_stream_can_upgrade(const struct http_stream *x);
size_t http_stream_room(const struct http_stream *x);
size_t http_stream_unsent(const struct http_stream *x);	/* queued and not yet given to the transport */
must_check int http_stream_write(struct http_stream *x, const void *p, size_t n);	/* 0, -EPIPE, -ENOBUFS, -ENOMEM */
/* Where n bytes may be written before http_stream_added() queues them, so that they are not copied. NULL: not here, or not now;
 * http_stream_write() does it or says why not. */
uint8_t *http_stream_space(struct http_stream *x, size_t n);
must_check int http_stream_added(struct http_stream *x, size_t n);
must_check int http_stream_finish(struct http_stream *x, const struct fields *trailers);
/* Ends it at once: RST_STREAM(code) or closing the HTTP/1.1 connection. */
void http_stream_reset(struct http_stream *x, uint32_t h2_code);
void http_stream_release(struct http_stream *x);
/* Its owner has answered or reset it and asks nothing more: what the peer still sends is dropped, and the connection releases it at its
 * end. */
void http_stream_detach(struct http_stream *x);

enum http_close {
	HTTP_OPEN = 0,
	HTTP_CLOSE_CLEAN,	/* both messages complete */
	HTTP_CLOSE_LOCAL,	/* we reset it */
	HTTP_CLOSE_RESET,	/* the peer reset it (code), or broke the protocol on it */
	HTTP_CLOSE_REFUSED,	/* proven unprocessed; safe to send again elsewhere */
	HTTP_CLOSE_LOST,	/* the connection died before the end (truncation included) */
};
enum http_close http_stream_closed(const struct http_stream *x, uint32_t *ret_code);
bool http_stream_was_sent(const struct http_stream *x);	/* client: a byte of it may have reached the wire */

/* --- connections --- */

#define HTTP_VERSION_1_1 11
#define HTTP_VERSION_2	 20

int http_conn_version(const struct http_conn *c);
int http_conn_fd(const struct http_conn *c);		/* for getsockopt only */
void *http_conn_user(const struct http_conn *c);
const char *http_conn_peer(const struct http_conn *c);	/* "127.0.0.1:4711", "unix" */
bool http_conn_is_tls(const struct http_conn *c);
/* Server: could another process answer what comes next on it? Plain HTTP/1.1 without an exchange, with nothing read that was not answered
 * and nothing left to send. */
bool http_conn_is_bare(const struct http_conn *c);
/* Client: may it carry requests for this host too, as far as its certificate goes? */
bool http_conn_covers(const struct http_conn *c, const char *host);
uint32_t http_conn_open_count(const struct http_conn *c);
/* What is held for its peer; NULL without a quota in its options. For what the owner of an exchange holds for it. */
struct quota *http_conn_quota(const struct http_conn *c);
/* Output waits and the peer has taken none of it for so long; 0 = it has, or none waits. */
uint64_t http_conn_stalled_ms(const struct http_conn *c);
/* Server: may it end in this pass, or is it better left for the next one? The streams of connections that end are
 * work, and a client may have many end at once. */
bool http_conn_may_end(struct http_conn *c);
/* Ends it: all exchanges close as LOST, then `closed` of its owner is called. `reason` is logged. */
void http_conn_close(struct http_conn *c, const char *reason);
/* No new exchanges; closes by itself when the open ones are done. Sends GOAWAY where there is one. */
void http_conn_drain(struct http_conn *c);
/* A drain that ends now: whoever has not answered yet hears which of its requests were not looked at. */
void http_conn_drain_end(struct http_conn *c);

/* --- servers --- */

struct quota;		/* proto/base/quota.h */
struct tls_server;	/* daemon/common/net/tls.h */

struct http_server_options {
	struct loop *loop;
	int listen_fd;			/* taken over; non-blocking, listening */
	struct tls_server *tls;		/* NULL = plain; not owned */
	bool title_names;		/* HTTP/1.1: Content-Length, not content-length */
	bool http1, http2;		/* plain: told apart by HTTP/2's preface; TLS: by ALPN */
	bool any_authority;		/* see wire/h2.h */
	bool takes_cut_heads;		/* HTTP/2: on_request gets too long heads too; else they are reset */
	uint32_t max_conns;		/* above: accepted and closed at once; 0 = 4096 */
	uint32_t max_streams, stream_window, send_max, head_max_n, head_max_bytes; /* 0 = default */
	struct quota *quota;		/* each connection's is below it; outlives the server; NULL = none */
	uint64_t conn_max;		/* bytes held for one connection; 0 = as the quota allows */
	uint32_t handshake_ms;		/* TLS + HTTP/2's preface or HTTP/1.1's first head; also how
					 * long a later head may take once begun; 0 = 10 s */
	uint32_t idle_ms;		/* connection without exchanges; 0 = never */
	/* Somebody is at the door: whose turn it is and what is charged for it, as a new reference in *ret;
	 * non-zero: the door is shut. Whoever comes often waits for its turn, others do not wait with it.
	 * NULL: all come as one, for `quota`. */
	int (*on_accept)(int fd, void *user, struct quota **ret);
	/* A connection came: set *ret_user, or return non-zero to refuse it. May be NULL. */
	int (*on_conn)(struct http_conn *c, void *user, void **ret_user);
	/* Its end, once; exchanges are closed before. May be NULL. */
	void (*on_conn_closed)(struct http_conn *c, void *conn_user, const char *reason, void *user);
	/* A request head came; call http_stream_set_owner() in here. */
	void (*on_request)(struct http_stream *x, void *user);
	void *user;
};

struct http_server;
must_check int http_server_new(const struct http_server_options *o, struct http_server **ret);
/* Other bounds for who comes from now on, each as in the options. */
void http_server_set_limits(struct http_server *s, uint32_t max_conns, uint32_t max_streams, uint64_t conn_max);
/* Stops accepting; the listen fd is closed. Connections go on. */
void http_server_stop_accepting(struct http_server *s);
/* Those that were accepted and wait for their turn become connections now. */
void http_server_serve_waiting(struct http_server *s);
/* A connection that was bare (http_conn_is_bare()) when a server like this one let go of it; taken over, also on failure. It may be idle
 * for as long as any. -EUSERS: there are too many; -ENOTCONN: its peer has hung up; -EACCES: on_accept or on_conn refused it; -ENOBUFS,
 * -ENOMEM. */
must_check int http_server_adopt(struct http_server *s, int fd);
void http_server_drain(struct http_server *s);	/* stop accepting, drain every connection */
void http_server_drain_end(struct http_server *s);
uint32_t http_server_conns(const struct http_server *s);
/* Closes everything; no callback comes any more. NULL is fine; returns NULL. */
struct http_server *http_server_free(struct http_server *s);

/* --- clients --- */

struct tls_client;	/* daemon/common/net/tls.h: verification, CA, client certificate, session */

struct http_dial_options {
	struct loop *loop;
	const char *host;		/* name or address; copied */
	uint16_t port;
	const char *connect_host;	/* address to connect to instead of `host`; NULL = same */
	struct resolver *resolver;	/* daemon/common/net/resolve.h; NULL = addresses and localhost only */
	struct tls_client *tls;		/* NULL = plain; a reference is taken */
	bool plain_http2;		/* plain only: HTTP/2 with prior knowledge instead of 1.1 */
	bool http1_only;		/* TLS: no h2 is offered, whatever the settings offer */
	const char *proxy;		/* "http://[user:pass@]host:port" for CONNECT; NULL = direct */
	uint64_t deadline_ms;		/* BOOTTIME, for all steps together */
	uint32_t stream_window, send_max;
	struct quota *quota;		/* what it holds is charged to it, and never refused; outlives it; NULL = none */
	/* Exactly once: a connection whose owner is the caller (HTTP/2: SETTINGS sent, requests may
	 * start), or why not: UNREACHABLE, TLS_UNTRUSTED, PROXY_FAILED, PROXY_AUTH, DEADLINE_REQUEST.
	 * Never from inside http_dial(). */
	void (*done)(struct http_conn *c, const struct status *failure, void *user);
	/* Later, once: the connection ended. No use of it after this returns. */
	void (*closed)(struct http_conn *c, const char *reason, void *user);
	/* Something about the connection changed: GOAWAY, the peer's limit, free streams, PING answer. May be NULL. */
	void (*changed)(struct http_conn *c, void *user);
	void *user;
};

struct http_dial;
must_check int http_dial(const struct http_dial_options *o, struct http_dial **ret);
void http_dial_cancel(struct http_dial *d);	/* only before done */

struct http_adopt_options {
	struct loop *loop;
	int fd;				/* connected, non-blocking; taken over, also on failure */
	uint32_t stream_window, send_max;
	bool title_names;		/* as a server's */
	/* Once: the connection ended. No use of it after this returns. */
	void (*closed)(struct http_conn *c, const char *reason, void *user);
	void *user;
};

/* A plain HTTP/1.1 client connection on a socket that somebody else connected. */
must_check int http_conn_adopt(const struct http_adopt_options *o, struct http_conn **ret);

/* Opens an exchange; the owner is called by (on_ready, user). -EAGAIN: no free stream (HTTP/1.1: busy). */
must_check int http_conn_request(struct http_conn *c, const struct fields *head, bool end,
				 http_ready_fn *on_ready, void *user, struct http_stream **ret);
uint32_t http_conn_free_streams(const struct http_conn *c);	/* now; 0 when draining */
int64_t http_conn_peer_streams(const struct http_conn *c);	/* the peer's limit; -1 = it has not told one */
/* It ended, or ends, because the peer broke the protocol. */
bool http_conn_broke_rules(const struct http_conn *c);
bool http_conn_goaway(const struct http_conn *c, uint32_t *ret_code);
bool http_conn_recycled(const struct http_conn *c);	/* see h2_recycled() */
must_check int http_conn_ping(struct http_conn *c);		/* HTTP/2; -EOPNOTSUPP else */
uint32_t http_conn_pings_acked(const struct http_conn *c);
uint64_t http_conn_last_read_ms(const struct http_conn *c);
/* Adds what came and went on the wire. */
void http_conn_bytes(const struct http_conn *c, uint64_t *in, uint64_t *out);

#endif
