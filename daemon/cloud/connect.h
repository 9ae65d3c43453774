/* SPDX-License-Identifier: MIT */
/*
 * The Connect protocol as a client: one unary call, or a server stream. Messages are bytes here.
 * A stream that ends without its end-of-stream record has failed.
 */
#ifndef AB_DAEMON_CLOUD_CONNECT_H
#define AB_DAEMON_CLOUD_CONNECT_H

#include "daemon/cloud/account.h"
#include "proto/base/buf.h"
#include "proto/wire/frame.h"

#define CONNECT_MESSAGE_MAX (4u * 1024 * 1024)	/* of the peer; above it the call fails */

/* --- unary --- */

struct connect_call {
	struct pool_req *req;
	struct buf answer;
	const char *path;
	enum fault_subject subject;
};

/* `path` is "/pkg.Service/Method", static. 0, -ENOMEM. On on_ready the caller calls connect_call_poll(). */
must_check int connect_call_init(struct connect_call *c, const struct envd_target *t, const char *path,
				 enum fault_subject subject, bool basic_user, bool idempotent,
				 const void *msg, size_t n,
				 void (*on_ready)(struct pool_req *r, void *user), void *user);

/* An idempotent call on behalf of the target's user whose answer is too large to be held: the caller reads it off the exchange.
 * NULL only without memory. */
struct pool_req *connect_ask_streamed(const struct envd_target *t, const char *path, const void *msg, size_t n,
				      void (*on_ready)(struct pool_req *r, void *user), void *user);
/* Does the answer's head announce one message? */
bool connect_is_unary(const struct http_stream *x);

enum connect_result {
	CONNECT_MORE = 0,	/* not over */
	CONNECT_MESSAGE,	/* the message is in *ret (unary: the answer; stream: the next one) */
	CONNECT_END,		/* stream: its end-of-stream record said success */
	CONNECT_FAILED,		/* *ret_cls and *ret_status say why */
};

enum connect_result connect_call_poll(struct connect_call *c, const uint8_t **ret, size_t *ret_n,
				      unsigned *ret_http, enum envd_class *ret_cls,
				      struct status *ret_status);

/* --- server stream --- */

struct connect_stream {
	struct pool_req *req;
	struct frame_reader reader;
	struct buf error;
	const char *path;
	enum fault_subject subject;
	size_t borrowed;	/* bytes of the exchange that the last message lies in; 0 = in none */
	bool message_out;	/* the last message lies in `reader` */
	bool head_ok, over;
	enum ab_code said;	/* by an end-of-stream record with an error: its code … */
	char said_text[STATUS_TEXT_MAX];	/* … and message, as the peer wrote it, without secrets */
	bool ending;		/* no message can come any more: set by the owner after a last message, or with the
				 * end-of-stream record */
};

must_check int connect_stream_init(struct connect_stream *s, const struct envd_target *t,
				   const char *path, enum fault_subject subject, bool basic_user,
				   bool idempotent, uint32_t timeout_ms, const void *msg, size_t n,
				   void (*on_ready)(struct pool_req *r, void *user), void *user);
/* Reads one that is ending to its end, resets any other. */
void connect_stream_fini(struct connect_stream *s);
/* The next message; it is valid, and its credit held back, until the next call. After END or FAILED
 * only MORE. */
enum connect_result connect_stream_next(struct connect_stream *s, const uint8_t **ret, size_t *ret_n,
					enum envd_class *ret_cls, struct status *ret_status);

#endif
