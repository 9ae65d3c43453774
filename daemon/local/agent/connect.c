/* SPDX-License-Identifier: MIT */
#include "daemon/local/agent/connect.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/net/gz.h"
#include "daemon/local/agent/envd.h"
#include "daemon/common/pbjson/pbjson.h"
#include "daemon/local/state/local.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"
#include "proto/gen/scan.h"
#include "proto/wire/connect_code.h"
#include "proto/wire/h2.h"

#define CALL_MAGIC	    0xca11ca11u
#define KEEPALIVE_DEFAULT_S 90u

static struct call *call_from(void *p)
{
	struct call *c = p;

	must(c && c->magic == CALL_MAGIC);
	return c;
}

/* --- the end of a call --- */

static void call_free(void *p)
{
	struct call *c = call_from(p);

	c->magic = 0;
	if (c->req)
		protobuf_c_message_free_unpacked(c->req, NULL);
	frame_reader_fini(&c->reader);
	buf_fini(&c->body);
	buf_fini(&c->out);
	free(c);
}

/* From here on nobody hears of the call; returns the exchange. */
static struct http_stream *call_leave(struct call *c)
{
	must(!c->over);
	c->over = true;
	timer_clear(&c->deadline);
	list_del(&c->traffic.node);
	loop_bury(c->l->loop, &c->grave, call_free, c);
	return give(c->x);
}

static void call_tell_gone(struct call *c)
{
	call_fn *gone = give(c->gone);

	if (gone)
		gone(c);
}

/* --- writing --- */

static int encode(const struct call *c, const ProtobufCMessage *m, struct buf *out)
{
	size_t n;
	uint8_t *p;

	if (c->json)
		return pbjson_write(out, m);
	n = protobuf_c_message_get_packed_size(m);
	p = buf_space(out, n + 1);
	if (!p)
		return -ENOMEM;
	buf_added(out, protobuf_c_message_pack(m, p));
	return 0;
}

/* Replaces the content from `from` on by its gzip form. */
static int compress_tail(struct buf *b, size_t from)
{
	scoped(buf_fini) struct buf packed = BUF_NULL;
	int r = gz_pack(buf_data(b) + from, buf_len(b) - from, &packed);

	if (r < 0)
		return r;
	if (from) {
		scoped(buf_fini) struct buf head = BUF_NULL;

		r = buf_put(&head, buf_data(b), from);
		if (!r)
			r = buf_put(&head, buf_data(&packed), buf_len(&packed));
		if (r < 0)
			return r;
		buf_fini(b);
		*b = head;
		head = (struct buf)BUF_NULL;
		return 0;
	}
	buf_fini(b);
	*b = packed;
	packed = (struct buf)BUF_NULL;
	return 0;
}

static bool has_names(const struct call *c)
{
	return str_starts(c->method->path, "/filesystem.");
}

static void stream_head(struct call *c)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	int r;

	if (c->head_sent)
		return;
	c->head_sent = true;
	r = fields_put(&head, ":status", "200");
	if (!r)
		r = fields_put(&head, "content-type",
			       c->json ? "application/connect+json" : "application/connect+proto");
	if (!r)
		r = fields_put(&head, "connect-accept-encoding", "gzip");
	if (!r && c->gzip_out)
		r = fields_put(&head, "connect-content-encoding", "gzip");
	if (!r && has_names(c))
		r = fields_put(&head, NAME_FORM_FIELD, NAME_FORM_TEXT);
	if (!r)
		r = reply_add_cors(c->x, &head);
	if (!r)
		r = http_stream_respond(c->x, &head, false);
	if (r < 0)
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
}

/* c->out holds five bytes for the prefix and the payload; sends and empties it. */
static void stream_write(struct call *c, uint8_t flags)
{
	uint8_t prefix[FRAME_PREFIX_BYTES];
	int r = 0;

	stream_head(c);
	if (c->gzip_out && buf_len(&c->out) > FRAME_PREFIX_BYTES) {
		r = compress_tail(&c->out, FRAME_PREFIX_BYTES);
		flags |= FRAME_FLAG_COMPRESSED;
	}
	if (!r) {
		frame_prefix(prefix, flags, (uint32_t)(buf_len(&c->out) - FRAME_PREFIX_BYTES));
		memcpy((uint8_t *)buf_data(&c->out), prefix, sizeof(prefix));
		r = http_stream_write(c->x, buf_data(&c->out), buf_len(&c->out));
	}
	/* -EPIPE: the news of its end is on the way. */
	if (r < 0 && r != -EPIPE)
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
	buf_drop(&c->out, buf_len(&c->out));
}

static bool stream_begin(struct call *c)
{
	static const uint8_t none[FRAME_PREFIX_BYTES];

	return buf_put(&c->out, none, sizeof(none)) == 0;
}

void call_send(struct call *c, const ProtobufCMessage *m)
{
	if (stream_begin(c) && !encode(c, m, &c->out)) {
		stream_write(c, 0);
		return;
	}
	buf_drop(&c->out, buf_len(&c->out));
	http_stream_reset(c->x, H2_INTERNAL_ERROR);
}

/* `text` is the JSON of the end-of-stream message. */
static void stream_finish(struct call *c, const char *text)
{
	struct http_stream *x;

	if (stream_begin(c) && !buf_put_str(&c->out, text))
		stream_write(c, FRAME_FLAG_END_STREAM);
	else
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
	x = call_leave(c);
	/* -EPIPE: it is closed already. */
	(void)!http_stream_finish(x, NULL);
	http_stream_detach(x);
}

void call_end(struct call *c)
{
	c->gone = NULL;
	stream_finish(c, "{}");
}

static void unary_finish(struct call *c, unsigned status, const char *type, const struct buf *body)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	struct http_stream *x = call_leave(c);
	bool names = has_names(c);
	int r = fields_put(&extra, "accept-encoding", "gzip");

	if (!r && status == 200 && c->gzip_out)
		r = fields_put(&extra, "content-encoding", "gzip");
	if (!r && names)
		r = fields_put(&extra, NAME_FORM_FIELD, NAME_FORM_TEXT);
	if (r < 0)
		reply_abort(x);
	else
		reply_send(x, status, type, &extra, buf_data(body), buf_len(body));
}

void call_reply(struct call *c, const ProtobufCMessage *m)
{
	int r;

	c->gone = NULL;
	if (c->streaming) {
		call_send(c, m);
		call_end(c);
		return;
	}
	r = encode(c, m, &c->out);
	if (!r && c->gzip_out)
		r = compress_tail(&c->out, 0);
	if (r < 0)
		reply_abort(call_leave(c));
	else
		unary_finish(c, 200, c->json ? "application/json" : "application/proto", &c->out);
}

void call_fail(struct call *c, enum ab_code code, const char *fmt, ...)
{
	scoped(buf_fini) struct buf body = BUF_NULL;
	char text[400];
	va_list ap;
	int r;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	c->gone = NULL;
	r = buf_printf(&body, "%s{\"code\":\"%s\",\"message\":", c->streaming ? "{\"error\":" : "",
		       connect_code_name(code));
	if (!r)
		r = buf_put_json(&body, text);
	if (!r)
		r = buf_put(&body, c->streaming ? "}}" : "}", c->streaming ? 3 : 1);
	if (r < 0) {
		reply_abort(call_leave(c));
	} else if (c->streaming) {
		stream_finish(c, (const char *)buf_data(&body));
	} else {
		unary_finish(c, connect_code_http(code), "application/json", &body);
	}
}

bool call_has_room(const struct call *c)
{
	return http_stream_room(c->x) > 0;
}

/* --- ends that come from outside --- */

static void connect_on_cut(struct traffic *t)
{
	struct call *c = container_of(t, struct call, traffic);
	char id[ROUTE_ID_MAX + 1];
	bool answered = c->head_sent;
	struct http_stream *x;

	str_copy(id, sizeof(id), c->s->id);
	call_tell_gone(c);
	x = call_leave(c);
	if (answered)
		reply_abort(x);
	else
		edge_reply_not_found(x, id);
}

static void on_deadline(struct timer *t, void *user)
{
	struct call *c = call_from(user);

	call_tell_gone(c);
	call_fail(c, CODE_DEADLINE_EXCEEDED, "the deadline of the call has passed");
}

/* --- reading --- */

/* The message in `b` → c->req. False after the call failed. */
static bool decode(struct call *c, const struct buf *b, bool packed)
{
	static const struct scan_limits limits = { .max_elements = 65536,
						   .max_memory_bytes = 64u * 1024 * 1024 };
	scoped(buf_fini) struct buf plain = BUF_NULL;
	char why[PBJSON_WHY_MAX] = "out of memory";
	struct scan_error where = { 0 };
	enum scan_result scan;
	int r;

	if (packed && buf_len(b)) {
		r = gz_unpack(buf_data(b), buf_len(b), CALL_MESSAGE_MAX_BYTES, &plain);
		if (r < 0) {
			call_fail(c, r == -EFBIG ? CODE_RESOURCE_EXHAUSTED : CODE_INVALID_ARGUMENT,
				  r == -EFBIG ? "the message is too large" : "decompress: not gzip");
			return false;
		}
		b = &plain;
	}
	if (c->req)
		protobuf_c_message_free_unpacked(give(c->req), NULL);
	if (c->json) {
		if (!buf_len(b))
			str_copy(why, sizeof(why), "zero-length payload is not a JSON object");
		else if (!pbjson_read((const char *)buf_data(b), buf_len(b), c->method->in, why,
				      &c->req))
			return true;
		call_fail(c, CODE_INVALID_ARGUMENT, "unmarshal message: %s", why);
		return false;
	}
	scan = scan_message(c->method->in, buf_data(b), buf_len(b), &limits, &where);
	if (scan != SCAN_OK) {
		call_fail(c, CODE_INVALID_ARGUMENT, "unmarshal message: %s %s", where.path,
			  scan_result_text(scan));
		return false;
	}
	c->req = protobuf_c_message_unpack(c->method->in, NULL, buf_len(b), buf_data(b));
	if (!c->req)
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "unmarshal message: out of memory");
	return c->req;
}

static void call_run(struct call *c)
{
	c->running = true;
	c->method->start(c);
}

static void read_unary(struct call *c)
{
	if (http_stream_take(c->x, &c->body) < 0) {
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "the message is larger than %u bytes",
			  CALL_MESSAGE_MAX_BYTES);
		return;
	}
	if (http_stream_at_end(c->x) && decode(c, &c->body, c->gzip_in)) {
		buf_fini(&c->body);
		call_run(c);
	}
}

/* One whole envelope is in the reader. False when the call ended. */
static bool take_envelope(struct call *c, uint8_t flags)
{
	bool packed = flags & FRAME_FLAG_COMPRESSED;

	if (flags & ~FRAME_FLAG_COMPRESSED || (packed && !c->gzip_in)) {
		call_fail(c, packed ? CODE_INTERNAL : CODE_INVALID_ARGUMENT,
			  "protocol error: invalid envelope flags %u", flags);
		return false;
	}
	if (c->has_message && !c->method->stream_in) {
		call_fail(c, CODE_UNIMPLEMENTED, "unary request has multiple messages");
		return false;
	}
	c->has_message = true;
	if (!decode(c, &c->reader.body, packed))
		return false;
	frame_reader_next(&c->reader);
	if (!c->method->stream_in)
		return true;
	call_run(c);
	return !c->over;
}

static void read_ended(struct call *c)
{
	c->input_over = true;
	if (!frame_reader_is_idle(&c->reader))
		call_fail(c, CODE_INVALID_ARGUMENT, "protocol error: incomplete envelope");
	else if (c->method->stream_in)
		c->method->input_ended(c);
	else if (!c->has_message)
		call_fail(c, CODE_UNIMPLEMENTED, "unary request has zero messages");
	else
		call_run(c);
}

static void read_stream(struct call *c)
{
	const uint8_t *p;
	size_t n, used;
	uint8_t flags;
	int r;

	while (!c->holding && (n = http_stream_peek(c->x, &p)) > 0) {
		r = frame_reader_feed(&c->reader, p, n, &used, &flags);
		http_stream_consume(c->x, used);
		if (r == FRAME_TOO_LARGE || r < 0) {
			call_fail(c, CODE_RESOURCE_EXHAUSTED,
				  "the message is larger than %u bytes", CALL_MESSAGE_MAX_BYTES);
			return;
		}
		if (r == FRAME_MESSAGE && !take_envelope(c, flags))
			return;
	}
	if (!c->holding && http_stream_at_end(c->x))
		read_ended(c);
}

void call_hold(struct call *c)
{
	c->holding = true;
}

void call_next(struct call *c)
{
	c->holding = false;
	if (!c->input_over)
		read_stream(c);
}

static void connect_on_ready(struct http_stream *x, void *user)
{
	struct call *c = call_from(user);

	if (http_stream_closed(x, NULL) != HTTP_OPEN) {
		call_tell_gone(c);
		http_stream_release(call_leave(c));
		return;
	}
	if (c->streaming && !c->input_over) {
		read_stream(c);
	} else if (!c->running) {
		read_unary(c);
	} else if (c->room) {
		c->room(c);
	}
}

/* --- headers --- */

static const struct {
	const char *type;
	bool streaming, json;
} types[] = {
	{ "application/json", false, true },
	{ "application/json; charset=utf-8", false, true },
	{ "application/json;charset=utf-8", false, true },
	{ "application/proto", false, false },
	{ "application/connect+json", true, true },
	{ "application/connect+proto", true, false },
};

static void refuse_type(struct http_stream *x, bool streaming)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;

	if (fields_put(&extra, "accept-post",
		       streaming ? "application/connect+json, application/connect+proto"
				 : "application/json, application/proto") < 0)
		reply_abort(x);
	else
		reply_send(x, 415, NULL, &extra, NULL, 0);
}

static void refuse_method(struct http_stream *x)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;

	if (fields_put(&extra, "allow", "POST") < 0)
		reply_abort(x);
	else
		reply_send(x, 405, NULL, &extra, NULL, 0);
}

/* The first encoding of the list that we know. */
static bool offers_gzip(const char *list)
{
	for (size_t n; list; list = list[n] ? list + n + 1 : NULL) {
		const char *p = list + strspn(list, " \t");
		size_t k = strcspn(p, " \t,;");

		n = strcspn(list, ",");
		if (k == 4 && !strncasecmp(p, "gzip", 4))
			return true;
		if (k == 8 && !strncasecmp(p, "identity", 8))
			return false;
	}
	return false;
}

static bool take_encodings(struct call *c)
{
	const char *in = reply_request(c->x, c->streaming ? "connect-content-encoding"
							  : "content-encoding");
	const char *out = reply_request(c->x, c->streaming ? "connect-accept-encoding" : "accept-encoding");

	c->gzip_in = in && str_eq(in, "gzip");
	/* Who does not say what is taken takes what is sent. */
	c->gzip_out = out && *out ? offers_gzip(out) : c->gzip_in;
	if (!in || !*in || c->gzip_in || str_eq(in, "identity"))
		return true;
	call_fail(c, CODE_UNIMPLEMENTED, "unknown compression \"%.40s\": supported is gzip", in);
	return false;
}

static bool take_timeout(struct call *c)
{
	const char *s = reply_request(c->x, "connect-timeout-ms");

	if (!s)
		return true;
	if (strlen(s) > 10 || str_u64(s, strlen(s), UINT64_MAX, &c->timeout_ms) < 0) {
		call_fail(c, CODE_INVALID_ARGUMENT,
			  "protocol error: Connect-Timeout-Ms must be 1 to 10 digits");
		return false;
	}
	c->has_timeout = true;
	if (c->timeout_ms && c->method->own_deadline)
		return true;
	if (c->timeout_ms && !timer_set(&c->deadline, c->arrived_ms + c->timeout_ms))
		return true;
	call_fail(c, CODE_DEADLINE_EXCEEDED, "the deadline of the call has passed");
	return false;
}

static void take_keepalive(struct call *c)
{
	const char *s = reply_request(c->x, "keepalive-ping-interval");
	uint64_t seconds;

	if (!s || str_u64(s, strlen(s), 86400, &seconds) < 0 || !seconds)
		seconds = KEEPALIVE_DEFAULT_S;
	c->keepalive_ms = seconds * 1000;
}

/* The user of "Basic base64(user:)". */
static bool take_user(struct call *c)
{
	const char *s = reply_request(c->x, "authorization");
	char text[192];
	ssize_t n;

	if (!s || strncasecmp(s, "basic ", 6) != 0 || strlen(s) > 200)
		return true;
	n = str_base64_decode(s + 6, strlen(s + 6), (uint8_t *)text);
	if (n < 0 || memchr(text, 0, (size_t)n))
		return true;
	text[n] = 0;
	if (!strchr(text, ':'))
		return true;
	*strchr(text, ':') = 0;
	if (!container_user_lookup(c->s->container, text, &c->user))
		return true;
	call_fail(c, CODE_UNAUTHENTICATED, "invalid username: '%s'", text);
	return false;
}

const struct container_user *call_user(struct call *c)
{
	if (c->user.name[0])
		return &c->user;
	if (!container_user_lookup(c->s->container, envd_default_user(c->s), &c->user))
		return &c->user;
	call_fail(c, CODE_UNAUTHENTICATED, "no user specified, and there is no \"%s\"",
		  envd_default_user(c->s));
	return NULL;
}

static bool take_version(struct call *c)
{
	const char *s = reply_request(c->x, "connect-protocol-version");

	if (!s || str_eq(s, "1"))
		return true;
	call_fail(c, CODE_INVALID_ARGUMENT, "connect-protocol-version must be \"1\": got \"%.20s\"",
		  s);
	return false;
}

void call_request(struct local *l, struct sandbox *s, struct http_stream *x,
		  const struct rpc_method *method)
{
	const char *http_method = reply_request(x, ":method");
	const char *type = reply_request(x, "content-type");
	bool streaming = method->stream_in || method->stream_out;
	struct call *c;
	size_t i = 0;

	if (!http_method || !str_eq(http_method, "POST")) {
		refuse_method(x);
		return;
	}
	while (i < ARRAY_SIZE(types) && (types[i].streaming != streaming || !type ||
					 strcasecmp(types[i].type, type) != 0))
		i++;
	if (i == ARRAY_SIZE(types)) {
		refuse_type(x, streaming);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		reply_abort(x);
		return;
	}
	c->magic = CALL_MAGIC;
	c->l = l;
	c->s = s;
	c->x = x;
	c->method = method;
	c->streaming = streaming;
	c->json = types[i].json;
	c->arrived_ms = loop_now_ms(l->loop);
	frame_reader_init(&c->reader, CALL_MESSAGE_MAX_BYTES);
	buf_init(&c->body, CALL_MESSAGE_MAX_BYTES);
	timer_init(&c->deadline, l->loop, on_deadline, c);
	sandbox_traffic_add(s, &c->traffic, connect_on_cut);
	http_stream_set_owner(x, connect_on_ready, c);
	take_keepalive(c);
	if (take_version(c) && take_encodings(c) && take_user(c) && take_timeout(c))
		connect_on_ready(x, c);
}
