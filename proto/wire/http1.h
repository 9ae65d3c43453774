/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.1 on the wire (RFC 9112), strict, without I/O, both roles, incremental: how the input is
 * cut into pieces never changes a result.
 *
 * Input. Readers take whole lines (heads, trailers) or runs of bytes (bodies) and say how much they
 * used; what they did not use must be given again, with more behind it.
 *
 * Refused because two readers of the same bytes could disagree (request smuggling): two
 * Content-Lengths (equal ones too), Content-Length with Transfer-Encoding, any coding but exactly
 * "chunked", chunked in HTTP/1.0, lines that end in a bare LF, folded lines, space before the colon,
 * control bytes, lengths that are not plain digits, a missing or second Host in HTTP/1.1.
 *
 * Heads become struct fields with lower-case names: ":method", ":scheme", ":authority" (from an
 * absolute target, else from Host; absent in HTTP/1.0 without Host), ":path", or ":status", then the
 * rest as received; hop-by-hop fields too, since whoever relays must see what Connection names.
 */
#ifndef AB_PROTO_WIRE_HTTP1_H
#define AB_PROTO_WIRE_HTTP1_H

#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/wire/fields.h"

#define HTTP1_HEAD_MAX_BYTES	65536u	/* start line and fields with their line ends */
#define HTTP1_FIELDS_MAX	128u
#define HTTP1_TARGET_MAX_BYTES	8192u
#define HTTP1_TRAILERS_MAX	32u
#define HTTP1_TRAILER_MAX_BYTES 8192u
#define HTTP1_CHUNK_EXT_MAX	16384u	/* extension bytes of one body */

enum http1_result {
	HTTP1_DONE = 0,		/* the head, or the body with its trailers, is complete */
	HTTP1_MORE,		/* more input is needed */
	HTTP1_BAD,		/* not HTTP/1.1: answer 400 */
	HTTP1_TARGET_TOO_LONG,	/* 414 */
	HTTP1_TOO_LARGE,	/* head or trailers: 431 */
	HTTP1_NOT_SUPPORTED,	/* a transfer coding or method we do not speak: 501 */
	HTTP1_VERSION,		/* 505 */
	HTTP1_NO_MEMORY,
};

/* The status a server answers a refused head with; 0 for DONE and MORE. */
unsigned http1_result_status(enum http1_result r);
const char *http1_reason(unsigned status);	/* "Not Found"; "" if unknown */

enum http1_framing {
	HTTP1_BODY_NONE,
	HTTP1_BODY_LENGTH,
	HTTP1_BODY_CHUNKED,
	HTTP1_BODY_UNTIL_CLOSE,	/* responses only */
};

/* --- heads --- */

struct http1_head {
	/* what is read, set by init */
	struct fields *out;
	bool response;
	bool tls;		/* request: ":scheme" is https for a target without scheme */
	bool no_body;		/* response: to HEAD, so the framing fields promise nothing */
	bool tunnel;		/* response: to CONNECT, so a 2xx has no body */

	/* the message, valid after DONE */
	enum http1_framing framing;
	uint64_t length;	/* with HTTP1_BODY_LENGTH */
	unsigned status;
	bool http10;
	bool keep_alive;
	bool expect_continue;
	bool interim;		/* 1xx: another head follows */

	/* progress */
	uint32_t scanned;	/* bytes of the current line already searched for its end */
	uint32_t bytes, n_fields;
	bool begun, blank_skipped, has_host, has_length, has_te, absolute;
	bool conn_close, conn_keep_alive;
};

void http1_head_init_request(struct http1_head *h, bool tls, struct fields *out);
void http1_head_init_response(struct http1_head *h, bool to_head, bool to_connect,
			      struct fields *out);
/* Takes whole lines. DONE, MORE or an error; *ret_used is always set. One empty line before a
 * request is skipped. After DONE or an error: init again. */
must_check enum http1_result http1_head_feed(struct http1_head *h, const uint8_t *p, size_t n,
					     size_t *ret_used);

/* --- bodies --- */

struct http1_body {
	enum http1_framing framing;
	uint64_t left;		/* of the body, or of the chunk */
	uint32_t ext_bytes, trailer_bytes, scanned, n_trailers;
	unsigned digits;
	uint8_t state;
	struct fields trailers;	/* owned; empty if there were none */
};

void http1_body_init(struct http1_body *b, enum http1_framing framing, uint64_t length);
void http1_body_fini(struct http1_body *b);
/* Takes framing and at most one run of content, which is at *ret_data (inside p; *ret_n may be 0).
 * MORE: call again with what follows *ret_used; if *ret_used is 0 only with more input. DONE: the
 * body ended, *ret_data may still hold its last run. */
must_check enum http1_result http1_body_feed(struct http1_body *b, const uint8_t *p, size_t n,
					     size_t *ret_used, const uint8_t **ret_data,
					     size_t *ret_n);

/* --- writers --- */

struct http1_write {
	enum http1_framing framing;	/* CHUNKED adds the field; LENGTH: it is in the head, or */
	bool add_length;		/* … "content-length: length" is added */
	uint64_t length;
	bool close;			/* adds "connection: close" */
	bool keep_alive;		/* adds "connection: keep-alive": answers to HTTP/1.0 */
	bool title_names;		/* Content-Length, not content-length: for programs that look at it */
	const char *upgrade;		/* a field value of the head: adds "connection: Upgrade" and it */
};

/* Appends a head. Pseudo fields become the start line and Host; connection, keep-alive,
 * proxy-connection, te, transfer-encoding and upgrade are left out: they are this layer's. -EINVAL if
 * a pseudo field is missing or a name or value could break a line; then nothing was appended. */
must_check int http1_write_request(struct buf *out, const struct fields *head,
				   const struct http1_write *w);
must_check int http1_write_response(struct buf *out, const struct fields *head,
				    const struct http1_write *w);

#define HTTP1_CHUNK_HEAD_MAX 20u
/* Writes "1a2b\r\n"; returns its length. After the n bytes comes "\r\n". n > 0. */
size_t http1_chunk_head(char ret[HTTP1_CHUNK_HEAD_MAX], size_t n);
/* "0\r\n", trailers (may be NULL), "\r\n". */
must_check int http1_write_last_chunk(struct buf *out, const struct fields *trailers, bool title_names);

#endif
