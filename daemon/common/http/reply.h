/* SPDX-License-Identifier: MIT */
/*
 * Answers of a known length. Every call takes the exchange over: what is left of the request is read
 * and dropped, and the exchange is released when it is closed. The caller gets no on_ready any more.
 */
#ifndef AB_DAEMON_COMMON_HTTP_REPLY_H
#define AB_DAEMON_COMMON_HTTP_REPLY_H

#include "daemon/common/net/http.h"
#include "proto/cloud/flavour.h"

#define REPLY_JSON "application/json; charset=utf-8"
#define REPLY_TEXT "text/plain; charset=utf-8"

/* `extra` and `type` may be NULL. A 204 or 304 has no body. */
void reply_send(struct http_stream *x, unsigned status, const char *type,
		const struct fields *extra, const void *body, size_t n);
void reply_text(struct http_stream *x, unsigned status, const char *text);
/* The agent's plain error: {"code":…,"message":…} and a line feed. */
void reply_envd_error(struct http_stream *x, unsigned status, const char *fmt, ...) printf_like(3, 4);
/* For an answer that cannot be made. */
void reply_abort(struct http_stream *x);

/* Access-Control-* for a request that names its origin. 0 or -errno of fields_put(). */
must_check int reply_add_cors(const struct http_stream *x, struct fields *head);
/* OPTIONS of a browser: answered and taken over. False if it is none. */
bool reply_preflight(struct http_stream *x);

/* A header of the request; NULL if absent. */
const char *reply_request(const struct http_stream *x, const char *name);
/* The same in the spelling of any flavour; the default's goes first. */
const char *reply_request_any(const struct http_stream *x, enum flavour_header which);
/* It has that header with that secret as its value; constant time in the content. */
bool reply_request_has(const struct http_stream *x, const char *name, const char *secret);
bool reply_is_secret(const char *value, const char *secret);	/* the same of a value, which may be NULL */

#endif
