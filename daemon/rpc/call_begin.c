/* SPDX-License-Identifier: MIT */
/* The beginning of a call: the checks of its head, whether its client may make it, and what is charged for it. */
#include "daemon/rpc/call_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/rpc/limits.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"
#include "proto/wire/grpc.h"
#include "proto/wire/h2.h"

/* Fields of which there is one at most. */
enum single { SINGLE_TYPE, SINGLE_TIMEOUT, SINGLE_ENCODING, SINGLE_TE, SINGLES };

static enum single single_of(const char *name, size_t n)
{
	static const struct {
		size_t n;
		const char *name;
	} known[] = {
		[SINGLE_TYPE] = { 12, "content-type" },
		[SINGLE_TIMEOUT] = { 12, "grpc-timeout" },
		[SINGLE_ENCODING] = { 13, "grpc-encoding" },
		[SINGLE_TE] = { 2, "te" },
	};
	unsigned i = 0;

	while (i < SINGLES && (known[i].n != n || memcmp(known[i].name, name, n)))
		i++;
	return (enum single)i;
}

static bool is_binary(const char *name, size_t n)
{
	return n >= 4 && !memcmp(name + n - 4, "-bin", 4);
}

/* Several values may be joined by commas. */
static bool check_binary(const char *name, const char *value, struct status *st)
{
	scratch_ uint8_t bytes[RPC_HEAD_MAX_BYTES];

	while (*value) {
		size_t len = strcspn(value, ",");

		if (len > RPC_HEAD_MAX_BYTES || str_base64_decode(value, len, bytes) < 0) {
			status_field(st, "metadata", "%.64s is not base64", name);
			return false;
		}
		value += len + (value[len] == ',');
	}
	return true;
}

/* One look at each field. ret: the values of those that there may be one of, NULL where there is none. */
static bool look_at_fields(const struct fields *head, const char *ret[SINGLES], struct status *st)
{
	for (uint32_t i = 0; i < head->n; i++) {
		const char *name = fields_name(head, i);
		size_t n = head->v[i].name_len;
		enum single s = single_of(name, n);

		if (s == SINGLES) {
			if (is_binary(name, n) && !check_binary(name, fields_value(head, i), st))
				return false;
			continue;
		}
		if (ret[s]) {
			status_field(st, "metadata", "%s is there twice", name);
			return false;
		}
		ret[s] = fields_value(head, i);
	}
	return true;
}

static bool check_head(struct rpc_call *c, const struct fields *head, struct status *st)
{
	const char *values[SINGLES] = { NULL }, *timeout, *encoding;

	if (!look_at_fields(head, values, st))
		return false;
	timeout = values[SINGLE_TIMEOUT];
	encoding = values[SINGLE_ENCODING];
	c->gzip = encoding && str_eq(encoding, "gzip");
	if (encoding && !c->gzip && !str_eq(encoding, "identity")) {
		status_set_code(st, CODE_UNIMPLEMENTED, "messages may be compressed by gzip or not at all");
		return false;
	}
	if (timeout) {
		if (grpc_timeout_parse(timeout, &c->timeout_ms) < 0) {
			status_field(st, "grpc-timeout", "not 1 to 8 digits and one of H M S m u n");
			return false;
		}
		c->deadline_ms = loop_now_ms(c->server->loop) + c->timeout_ms;
	}
	trace_of(head, &c->trace);
	return true;
}

static bool find_method(struct rpc_call *c, const char *path, struct status *st)
{
	struct rpc_entry *e = map_get_str(&c->server->methods, path);

	if (!e) {
		status_set_code(st, CODE_UNIMPLEMENTED, "no method %.128s here", path);
		return false;
	}
	c->method = e->method;
	c->service = e->service;
	c->stats = &e->stats;
	return true;
}

static bool admit(struct rpc_call *c, struct status *st)
{
	struct rpc_server *s = c->server;
	enum admit_what what = call_charged_as(c->method);
	uid_t uid = owner_uid(c->conn->who.uid);
	int r = admit_take(&s->admit, uid, what, &c->charge);

	if (r == ADMIT_OK)
		return true;
	if (r < 0) {
		status_errno(st, r, "admitting the call");
		return false;
	}
	status_set(st, R_TOO_MANY_STREAMS, r == ADMIT_UID_FULL ?
		   "uid %u has %u open %s and may have no more" :
		   "uid %u has %u open %s, and all users together have all there are",
		   uid, admit_held(&s->admit, uid, what), what == ADMIT_CALL ? "calls" : "streams");
	if (what == ADMIT_STREAM)
		status_evidence(st, "max", "%u", admit_max_streams(&s->admit, uid));
	return false;
}

static bool head_fits(const struct rpc_call *c, struct status *st)
{
	if (!http_stream_head_is_cut(c->x))
		return true;
	status_set(st, R_TOO_LARGE, "the metadata of a call has at most %u fields and %u bytes, 32 for each field included",
		   RPC_HEAD_MAX_N, RPC_HEAD_MAX_BYTES);
	st->code = CODE_RESOURCE_EXHAUSTED;
	return false;
}

static bool has_memory(struct rpc_call *c, struct status *st)
{
	if (charge_reserve(&c->held, RPC_CALL_BYTES) == 0)
		return true;
	c->server->refused_total++;
	call_no_memory(c, RPC_CALL_BYTES, st);
	return false;
}

/* Where it is not known yet who asks, the call waits (is_cleared()). */
static bool may_call(struct rpc_call *c, struct status *st)
{
	if (c->conn->is_asked)
		return true;
	c->is_cleared = rpc_right_check(c->conn, c->method, st);
	return c->is_cleared;
}

static bool call_first_step(struct rpc_call *c, struct status *st)
{
	const struct fields *head = http_stream_head(c->x);
	uint64_t due = loop_now_ms(c->server->loop) + RPC_REQUEST_MS;

	if (!head_fits(c, st) || !find_method(c, fields_get(head, ":path"), st) || !check_head(c, head, st) ||
	    !may_call(c, st) || !has_memory(c, st) || !admit(c, st))
		return false;
	if (call_takes_one_request(c)) {
		frame_reader_init(&c->reader, RPC_UNARY_MAX_BYTES);
		frame_reader_set_quota(&c->reader, c->conn->quota);
		if (c->deadline_ms)
			due = MIN(due, c->deadline_ms);
		if (timer_set(&c->timer, due) < 0) {
			status_errno(st, -ENOMEM, "waiting for the request");
			return false;
		}
	} else {
		frame_reader_init(&c->reader, RPC_STREAM_MAX_BYTES);
		frame_reader_set_quota(&c->reader, c->conn->quota);
		c->wanted = 1;
		call_open(c);
	}
	return true;
}

/* Not gRPC at all: an HTTP answer. */
static void refuse_http(struct rpc_call *c, int http_status)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;

	call_set_state(c, CALL_ENDED);
	if (fields_printf(&f, ":status", "%d", http_status) < 0 ||
	    http_stream_respond(c->x, &f, true) < 0)
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
	call_expect_flush(c);
}

static struct rpc_call *call_make(struct quota *q)
{
	struct charge held = { .quota = q };
	struct rpc_call *c;

	if (charge_set(&held, sizeof(*c)) < 0)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c) {
		charge_fini(&held);
		return NULL;
	}
	c->held = held;
	c->state = CALL_READING;
	return c;
}

void rpc_call_begin(struct rpc_server *s, struct rpc_conn *conn, struct http_stream *x)
{
	struct rpc_call *c = call_make(conn->quota);
	scratch_ struct status st;
	int http_status;

	if (!c) {
		http_stream_reset(x, H2_REFUSED_STREAM);
		http_stream_release(x);
		return;
	}
	c->magic = CALL_MAGIC;
	c->began_us = clock_boot_us();
	c->server = s;
	c->conn = conn;
	conn->n_calls++;
	c->x = x;
	timer_init(&c->timer, s->loop, call_on_time, c);
	timer_init(&c->silence, s->loop, call_on_silence, c);
	defer_init(&c->again, s->loop, call_on_again, c);
	list_init(&c->hungry);
	list_add_tail(&s->calls, &c->node);
	http_stream_set_owner(x, call_on_ready, c);
	s->calls_total++;

	status_clear(&st);
	http_status = http_stream_head_is_cut(x) ? 0 : grpc_check_request(http_stream_head(x));
	if (http_status)
		refuse_http(c, http_status);
	else if (!call_first_step(c, &st))
		call_end(c, &st);
	http_stream_drop_head(x);	/* nobody looks at it any more */
	defer_post(&c->again);	/* what came with the head */
}
