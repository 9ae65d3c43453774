/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/obs/redact.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/connect_code.h"

#define TYPE_UNARY  "application/proto"
#define TYPE_STREAM "application/connect+proto"

static bool type_is(const struct http_stream *x, const char *type)
{
	const char *got = fields_get(http_stream_head(x), "content-type");
	size_t n = strlen(type);

	return got && !strncasecmp(got, type, n) && (!got[n] || got[n] == ';' || got[n] == ' ');
}

static enum connect_result fail_lost(const struct pool_req *r, enum envd_class *ret_cls,
				     struct status *ret)
{
	*ret_cls = agent_failure(r, ret);
	return CONNECT_FAILED;
}

static enum connect_result fail_bad(const char *path, const char *why, enum envd_class *ret_cls,
				    struct status *ret)
{
	status_set(ret, R_BAD_CLOUD_REPLY, "%s: %s", path, why);
	*ret_cls = ENVD_LOST;
	return CONNECT_FAILED;
}

static enum connect_result poll_error(struct http_stream *x, struct buf *b, const char *path,
				      enum fault_subject subject, enum envd_class *ret_cls,
				      struct status *ret)
{
	return agent_refused(x, b, path, subject, ret_cls, ret) ? CONNECT_FAILED : CONNECT_MORE;
}

/* --- unary --- */

bool connect_is_unary(const struct http_stream *x)
{
	return type_is(x, TYPE_UNARY);
}

/* One message. `streamed`: only the answer's beginning has a deadline, its end comes as it is read. */
static struct pool_req *ask_unary(const struct agent_ask *a, bool streamed)
{
	uint64_t by = agent_deadline_ms(a->t), now = loop_now_ms(a->t->at.cloud->loop);
	char timeout[16];
	struct cloud_kv headers[] = {
		{ (char *)"connect-protocol-version", (char *)"1" },
		{ (char *)"connect-timeout-ms", timeout },
	};
	struct agent_ask all = *a;

	/* Never 0, which the agent takes for a deadline already passed. */
	snprintf(timeout, sizeof(timeout), "%u", (unsigned)MIN(by > now ? by - now : 1, 999999999u));
	all.method = "POST";
	all.content_type = TYPE_UNARY;
	all.headers = headers;
	all.n_headers = ARRAY_SIZE(headers);
	all.body_mode = POOL_BODY_WHOLE;
	all.cls = streamed ? POOL_LONG : POOL_SHORT;
	all.head_by_ms = streamed ? by : 0;
	all.deadline_ms = streamed ? 0 : by;
	return agent_request(&all);
}

int connect_call_init(struct connect_call *c, const struct envd_target *t, const char *path,
		      enum fault_subject subject, bool basic_user, bool idempotent, const void *msg,
		      size_t n, void (*on_ready)(struct pool_req *r, void *user), void *user)
{
	*c = (struct connect_call){ .path = path, .subject = subject };
	buf_init(&c->answer, 0);
	buf_set_quota(&c->answer, t->at.cloud->quota);
	c->req = ask_unary(&(struct agent_ask){
		.t = t, .path = path, .body = msg, .n_body = n, .basic_user = basic_user, .idempotent = idempotent,
		.on_ready = on_ready, .user = user,
	}, false);
	return c->req ? 0 : -ENOMEM;
}

struct pool_req *connect_ask_streamed(const struct envd_target *t, const char *path, const void *msg, size_t n,
				      void (*on_ready)(struct pool_req *r, void *user), void *user)
{
	return ask_unary(&(struct agent_ask){
		.t = t, .path = path, .body = msg, .n_body = n, .basic_user = true, .idempotent = true,
		.on_ready = on_ready, .user = user,
	}, true);
}

enum connect_result connect_call_poll(struct connect_call *c, const uint8_t **ret, size_t *ret_n,
				      unsigned *ret_http, enum envd_class *ret_cls,
				      struct status *ret_status)
{
	struct http_stream *x = pool_req_x(c->req);
	int r;

	if (x && http_stream_head(x))
		*ret_http = http_stream_status(x);
	if (pool_req_failure(c->req) && pool_req_repeat(c->req)) {
		buf_drop(&c->answer, buf_len(&c->answer));
		return CONNECT_MORE;
	}
	if (pool_req_failure(c->req))
		return fail_lost(c->req, ret_cls, ret_status);
	if (!x || !http_stream_head(x))
		return CONNECT_MORE;
	if (http_stream_status(x) != 200)
		return poll_error(x, &c->answer, c->path, c->subject, ret_cls, ret_status);
	if (!type_is(x, TYPE_UNARY))
		return fail_bad(c->path, "the answer is not of the type asked for", ret_cls, ret_status);
	r = agent_collect(x, &c->answer, CONNECT_MESSAGE_MAX);
	if (r < 0)
		return fail_bad(c->path, r == -EMSGSIZE ? "the answer is too large" : agent_no_room(r),
				ret_cls, ret_status);
	if (!http_stream_at_end(x))
		return CONNECT_MORE;
	*ret = buf_data(&c->answer);
	*ret_n = buf_len(&c->answer);
	return CONNECT_MESSAGE;
}

/* --- server stream --- */

int connect_stream_init(struct connect_stream *s, const struct envd_target *t, const char *path,
			enum fault_subject subject, bool basic_user, bool idempotent,
			uint32_t timeout_ms, const void *msg, size_t n,
			void (*on_ready)(struct pool_req *r, void *user), void *user)
{
	struct buf body = BUF_NULL;
	uint8_t prefix[FRAME_PREFIX_BYTES];
	char timeout[16];
	struct cloud_kv headers[] = {
		{ (char *)"connect-protocol-version", (char *)"1" },
		{ (char *)"keepalive-ping-interval", (char *)"50" },
		{ (char *)"connect-timeout-ms", timeout },
	};
	int r;

	snprintf(timeout, sizeof(timeout), "%u", timeout_ms);
	*s = (struct connect_stream){ .path = path, .subject = subject };
	frame_reader_init(&s->reader, CONNECT_MESSAGE_MAX);
	frame_reader_set_quota(&s->reader, t->at.cloud->quota);
	buf_init(&s->error, 0);
	buf_set_quota(&s->error, t->at.cloud->quota);
	frame_prefix(prefix, 0, (uint32_t)n);
	r = buf_put(&body, prefix, sizeof(prefix));
	if (r == 0 && n)
		r = buf_put(&body, msg, n);
	if (r == 0)
		s->req = agent_request(&(struct agent_ask){
			.t = t,
			.method = "POST",
			.path = path,
			.content_type = TYPE_STREAM,
			.headers = headers,
			.n_headers = ARRAY_SIZE(headers) - !timeout_ms,
			.basic_user = basic_user,
			.body_mode = POOL_BODY_WHOLE,
			.body = buf_data(&body),
			.n_body = buf_len(&body),
			.is_stream = true,
			.cls = POOL_LONG,
			.idempotent = idempotent,
			.head_by_ms = agent_deadline_ms(t),
			.on_ready = on_ready,
			.user = user,
		});
	buf_fini(&body);
	return s->req ? 0 : -ENOMEM;
}

void connect_stream_fini(struct connect_stream *s)
{
	s->req = s->ending ? pool_req_leave(s->req) : pool_req_free(s->req);
	frame_reader_fini(&s->reader);
	buf_fini(&s->error);
}

/* The last message's bytes go back as credit. */
static void stream_advance(struct connect_stream *s, struct http_stream *x)
{
	if (s->borrowed && x)
		http_stream_consume(x, s->borrowed);
	s->borrowed = 0;
	if (s->message_out)
		frame_reader_next(&s->reader);
	s->message_out = false;
}

static enum connect_result stream_end(struct connect_stream *s, const uint8_t *p, size_t n,
				      enum envd_class *ret_cls, struct status *ret)
{
	struct cloud_error_body e;
	bool is_error = false;

	s->ending = true;
	if (cloud_error_read_end(p, n, &is_error, &e) < 0)
		return fail_bad(s->path, "the end-of-stream record cannot be read", ret_cls, ret);
	if (!is_error)
		return CONNECT_END;
	s->said = connect_code_by_name(e.code_name);
	str_copy_ends(s->said_text, sizeof(s->said_text), e.message);
	redact_text(s->said_text);
	*ret_cls = fault_connect(s->subject, e.code_name, e.message, ret);
	redact_status(ret);
	return CONNECT_FAILED;
}

static enum connect_result stream_frame(struct connect_stream *s, uint8_t flags, const uint8_t *p,
					size_t n, const uint8_t **ret, size_t *ret_n,
					enum envd_class *ret_cls, struct status *ret_status)
{
	if (flags == FRAME_FLAG_END_STREAM)
		return stream_end(s, p, n, ret_cls, ret_status);
	if (flags)	/* we offer no compression */
		return fail_bad(s->path, "a message has unknown flags", ret_cls, ret_status);
	*ret = p;
	*ret_n = n;
	return CONNECT_MESSAGE;
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The next frame out of what is buffered; a whole one is read where it lies. */
static enum connect_result stream_read(struct connect_stream *s, struct http_stream *x,
				       const uint8_t **ret, size_t *ret_n, enum envd_class *ret_cls,
				       struct status *ret_status)
{
	const uint8_t *p;
	size_t n, used;
	uint8_t flags;
	int r;

	while ((n = http_stream_peek(x, &p)) > 0) {
		if (frame_reader_is_idle(&s->reader) && n >= FRAME_PREFIX_BYTES) {
			uint32_t len = be32(p + 1);

			if (len <= CONNECT_MESSAGE_MAX && n - FRAME_PREFIX_BYTES >= len) {
				s->borrowed = FRAME_PREFIX_BYTES + len;
				return stream_frame(s, p[0], p + FRAME_PREFIX_BYTES, len, ret, ret_n,
						    ret_cls, ret_status);
			}
		}
		r = frame_reader_feed(&s->reader, p, n, &used, &flags);
		http_stream_consume(x, used);
		if (r == FRAME_MESSAGE) {
			s->message_out = true;
			return stream_frame(s, flags, buf_data(&s->reader.body),
					    buf_len(&s->reader.body), ret, ret_n, ret_cls, ret_status);
		}
		if (r != FRAME_MORE)
			return fail_bad(s->path, r == FRAME_TOO_LARGE ? "a message is too large" :
				       agent_no_room(r == FRAME_NO_ROOM ? -ENOBUFS : r), ret_cls, ret_status);
	}
	return CONNECT_MORE;
}

enum connect_result connect_stream_next(struct connect_stream *s, const uint8_t **ret, size_t *ret_n,
					enum envd_class *ret_cls, struct status *ret_status)
{
	struct http_stream *x = pool_req_x(s->req);
	enum connect_result r = CONNECT_MORE;

	stream_advance(s, x);
	if (s->over)
		return CONNECT_MORE;
	if (x && http_stream_head(x)) {
		if (http_stream_status(x) != 200)
			r = poll_error(x, &s->error, s->path, s->subject, ret_cls, ret_status);
		else if (!s->head_ok && !type_is(x, TYPE_STREAM))
			r = fail_bad(s->path, "the answer is not of the type asked for", ret_cls,
				     ret_status);
		else
			r = stream_read(s, x, ret, ret_n, ret_cls, ret_status);
		s->head_ok = true;
	}
	if (r == CONNECT_MORE && pool_req_failure(s->req)) {
		r = fail_lost(s->req, ret_cls, ret_status);
	} else if (r == CONNECT_MORE && x && http_stream_at_end(x)) {
		status_set(ret_status, R_UNREACHABLE, "%s: the stream ended without its end record",
			   s->path);
		*ret_cls = ENVD_LOST;
		r = CONNECT_FAILED;
	}
	s->over = r == CONNECT_END || r == CONNECT_FAILED;
	return r;
}
