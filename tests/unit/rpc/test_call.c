/* SPDX-License-Identifier: MIT */
/*
 * Calls over an exchange that the test plays itself (the http_* functions below take the place of
 * daemon/common/net). Rows G-19, G-21, G-22, G-23, G-25, G-26, G-29, M-01 to M-03.
 */
#include "tests/lib/test.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/auth/principal.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/net/gz.h"
#include "daemon/common/net/http.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/ended.h"
#include "daemon/rpc/limits.h"
#include "daemon/rpc/server.h"
#include "proto/base/buf.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/grpc_health.pb-c.h"
#include "proto/gen/grpc_reflection.pb-c.h"
#include "proto/wire/frame.h"
#include "proto/wire/grpc.h"

/* --- the played exchange ------------------------------------------------------------------------ */

struct http_conn {
	int fd;
	struct quota *quota;
	void *user;
	bool closed;
	uint64_t stalled_ms;
};

struct http_stream {
	struct http_conn *conn;
	http_ready_fn *on_ready;
	void *user;
	struct fields head, response, trailers;
	struct buf in, out;
	bool in_ended, responded, finished, reset, released, head_cut, head_dropped;
	size_t room, consumed;
	enum http_close closed;
	struct defer poke;
};

static struct http_server_options server_options;
static bool drained;

int http_server_new(const struct http_server_options *o, struct http_server **ret)
{
	server_options = *o;
	fd_close(o->listen_fd);
	*ret = (struct http_server *)&server_options;
	return 0;
}

void http_server_set_limits(struct http_server *s, uint32_t max_conns, uint32_t max_streams, uint64_t conn_max)
{
	server_options.conn_max = conn_max;
}

void http_server_stop_accepting(struct http_server *s)
{
}

void http_server_drain(struct http_server *s)
{
	drained = true;
}

void http_server_drain_end(struct http_server *s)
{
}

struct http_server *http_server_free(struct http_server *s)
{
	return NULL;
}

int http_conn_fd(const struct http_conn *c)
{
	return c->fd;
}

void *http_conn_user(const struct http_conn *c)
{
	return c->user;
}

void http_conn_close(struct http_conn *c, const char *reason)
{
	c->closed = true;
}

bool http_conn_may_end(struct http_conn *c)
{
	return true;
}

struct quota *http_conn_quota(const struct http_conn *c)
{
	return c->quota;
}

uint64_t http_conn_stalled_ms(const struct http_conn *c)
{
	return c->stalled_ms;
}

bool http_stream_head_is_cut(const struct http_stream *x)
{
	return x->head_cut;
}

void http_stream_drop_head(struct http_stream *x)
{
	fields_fini(&x->head);
	x->head_dropped = true;
}

void http_stream_set_owner(struct http_stream *x, http_ready_fn *on_ready, void *user)
{
	x->on_ready = on_ready;
	x->user = user;
}

struct http_conn *http_stream_conn(const struct http_stream *x)
{
	return x->conn;
}

const struct fields *http_stream_head(const struct http_stream *x)
{
	return x->head_dropped ? NULL : &x->head;
}

size_t http_stream_peek(const struct http_stream *x, const uint8_t **ret)
{
	*ret = buf_data(&x->in);
	return buf_len(&x->in);
}

void http_stream_consume(struct http_stream *x, size_t n)
{
	buf_drop(&x->in, n);
	x->consumed += n;
}

bool http_stream_at_end(const struct http_stream *x)
{
	return x->in_ended && !buf_len(&x->in);
}

static void copy_fields(struct fields *to, const struct fields *from)
{
	for (uint32_t i = 0; from && i < from->n; i++)
		CHECK(fields_put(to, fields_name(from, i), fields_value(from, i)) == 0);
}

int http_stream_respond(struct http_stream *x, const struct fields *head, bool end)
{
	CHECK(!x->responded);
	if (x->closed)
		return -EPIPE;
	x->responded = true;
	copy_fields(&x->response, head);
	if (end) {
		x->finished = true;
		copy_fields(&x->trailers, head);
	}
	return 0;
}

size_t http_stream_room(const struct http_stream *x)
{
	return x->room;
}

size_t http_stream_unsent(const struct http_stream *x)
{
	return x->room ? 0 : 1;
}

int http_stream_write(struct http_stream *x, const void *p, size_t n)
{
	CHECK(x->responded && !x->finished);
	return x->closed ? -EPIPE : buf_put(&x->out, p, n);
}

uint8_t *http_stream_space(struct http_stream *x, size_t n)
{
	CHECK(x->responded && !x->finished);
	return x->closed ? NULL : buf_space(&x->out, n);
}

int http_stream_added(struct http_stream *x, size_t n)
{
	buf_added(&x->out, n);
	return 0;
}

int http_stream_finish(struct http_stream *x, const struct fields *trailers)
{
	CHECK(x->responded && !x->finished);
	if (x->closed)
		return -EPIPE;
	x->finished = true;
	copy_fields(&x->trailers, trailers);
	return 0;
}

void http_stream_reset(struct http_stream *x, uint32_t code)
{
	x->reset = true;
	if (!x->closed)
		x->closed = HTTP_CLOSE_LOCAL;
	defer_post(&x->poke);
}

void http_stream_release(struct http_stream *x)
{
	CHECK(!x->released);
	x->released = true;
	x->on_ready = NULL;
}

enum http_close http_stream_closed(const struct http_stream *x, uint32_t *ret_code)
{
	return x->closed;
}

/* --- handlers that keep a diary ----------------------------------------------------------------- */

static char diary[512];
static struct rpc_call *open_call;
static int answer_with;		/* what on_message does: 0 nothing, 'r' reply, 'f' fail, 'n' next, 'e' end */

static void note(const char *word)
{
	strncat(diary, word, sizeof(diary) - strlen(diary) - 1);
}

static void on_message(struct rpc_call *c, const ProtobufCMessage *m)
{
	const Agentbox__V1__IsRunningRequest *q = (const void *)m;
	Agentbox__V1__IsRunningResponse a = AGENTBOX__V1__IS_RUNNING_RESPONSE__INIT;
	struct status st;

	note(" message:");
	note(q->sandbox);
	open_call = c;
	a.running = true;
	switch (answer_with) {
	case 'r':
		rpc_call_reply(c, &a.base);
		break;
	case 'f':
		status_set(&st, R_SANDBOX_NOT_FOUND, "no sandbox \"%s\"", q->sandbox);
		rpc_call_fail(c, &st);
		break;
	case 'n':
		rpc_call_next(c);
		break;
	case 'e':
		rpc_call_finish(c);
		break;
	}
}

static void on_end(struct rpc_call *c)
{
	note(" end");
	rpc_call_finish(c);
}

static void on_room(struct rpc_call *c)
{
	note(" room");
}

static void on_gone(struct rpc_call *c, enum rpc_gone why)
{
	static const char *const words[] = { " cancelled", " deadline", " lost", " server" };

	note(words[why]);
	open_call = NULL;
}

/* Takes what names the sandbox "b". */
static bool on_encoded(struct rpc_call *c, const uint8_t *p, size_t n)
{
	if (n != 3 || p[2] != 'b')
		return false;
	note(" encoded");
	if (answer_with == 'n')
		rpc_call_next(c);
	else if (answer_with == 'e')
		rpc_call_finish(c);
	return true;
}

static const struct rpc_handler encoded_handler = {
	.on_message = on_message, .on_encoded = on_encoded, .on_end = on_end, .on_room = on_room, .on_gone = on_gone,
};

static const struct rpc_handler handler = {
	.on_message = on_message, .on_end = on_end, .on_room = on_room, .on_gone = on_gone,
};
#define REQUEST (&agentbox__v1__is_running_request__descriptor)
static const struct rpc_method methods[] = {
	{ "/t.T/Unary", RPC_UNARY, false, REQUEST, &handler },
	{ "/t.T/Wait", RPC_UNARY, true, REQUEST, &handler },
	{ "/t.T/Down", RPC_SERVER_STREAM, false, REQUEST, &handler },
	{ "/t.T/Up", RPC_CLIENT_STREAM, false, REQUEST, &handler, RPC_STOP_WAIT },
	{ "/t.T/Once", RPC_UNARY, false, REQUEST, &handler, RPC_STOP_ONCE },
	{ "/t.T/Both", RPC_BIDI, false, REQUEST, &handler },
	{ "/t.T/Encoded", RPC_BIDI, false, REQUEST, &encoded_handler },
	{ "/t.T/Create", RPC_UNARY, false, &agentbox__v1__create_sandbox_request__descriptor, &handler },
	{ "/t.T/Begin", RPC_UNARY, false, &agentbox__v1__create_sandbox_request__descriptor, &handler, .effect = RPC_BEGINS },
	{ "/t.T/BeginDown", RPC_SERVER_STREAM, false, REQUEST, &handler, .effect = RPC_BEGINS },
};

/* --- the stage ---------------------------------------------------------------------------------- */

static struct loop *loop;
static struct rpc_server *server;
static struct http_conn conn;
static int pair[2];
static struct http_stream *xs[16];
static unsigned n_xs;

static void setup_with(uint32_t max_streams, struct quota *q)
{
	struct rpc_server_options o = { .limits = { .max_streams = max_streams } };

	diary[0] = '\0';
	answer_with = 0;
	open_call = NULL;
	drained = false;
	n_xs = 0;
	CHECK(loop_new(&loop) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	o.loop = loop;
	o.listen_fd = -1;
	CHECK(rpc_server_new(&o, &server) == 0);
	CHECK(rpc_server_add(server, methods, ARRAY_SIZE(methods), NULL) == 0);
	conn = (struct http_conn){ .fd = pair[0], .quota = q };
	CHECK(server_options.on_conn(&conn, server, &conn.user) == 0);
}

static void setup(uint32_t max_streams)
{
	setup_with(max_streams, NULL);
}

static void turn(void)
{
	CHECK(loop_once(loop, 0) == 0);
}

static void teardown(void)
{
	rpc_server_drain_end(server);
	for (unsigned i = 0; i < n_xs; i++)
		if (!xs[i]->closed) {
			xs[i]->closed = HTTP_CLOSE_LOST;
			defer_post(&xs[i]->poke);
		}
	turn();
	server_options.on_conn_closed(&conn, conn.user, "test", server);
	turn();
	rpc_server_free(server);
	for (unsigned i = 0; i < n_xs; i++) {
		CHECK(xs[i]->released);
		fields_fini(&xs[i]->head);
		fields_fini(&xs[i]->response);
		fields_fini(&xs[i]->trailers);
		buf_fini(&xs[i]->in);
		buf_fini(&xs[i]->out);
		defer_cancel(&xs[i]->poke);
		free(xs[i]);
	}
	loop_free(loop);
	fd_close(pair[0]);
	fd_close(pair[1]);
}

static void on_poke(struct defer *d, void *user)
{
	struct http_stream *x = user;

	if (x->on_ready)
		x->on_ready(x, x->user);
}

static struct http_stream *call_with(const char *path, const char *name, const char *value)
{
	struct http_stream *x = calloc(1, sizeof(*x));

	CHECK(x && n_xs < ARRAY_SIZE(xs));
	xs[n_xs++] = x;
	x->conn = &conn;
	x->room = 65536;
	defer_init(&x->poke, loop, on_poke, x);
	CHECK(grpc_request_head(&x->head, path, "localhost", 0, "test") == 0);
	if (name)
		CHECK(fields_put(&x->head, name, value) == 0);
	server_options.on_request(x, server);
	return x;
}

static struct http_stream *call(const char *path)
{
	return call_with(path, NULL, NULL);
}

static void feed(struct http_stream *x, const void *p, size_t n, bool end)
{
	CHECK(buf_put(&x->in, p, n) == 0);
	x->in_ended = end;
	defer_post(&x->poke);
	turn();
}

static void send_message(struct http_stream *x, const void *p, size_t n, bool end)
{
	uint8_t prefix[FRAME_PREFIX_BYTES];

	frame_prefix(prefix, 0, (uint32_t)n);
	CHECK(buf_put(&x->in, prefix, sizeof(prefix)) == 0);
	feed(x, p, n, end);
}

#define MESSAGE "\x0a\x01" "a"
#define send_a(x, end) send_message(x, MESSAGE, 3, end)

static const char *trailer(const struct http_stream *x, const char *name)
{
	const char *v = fields_get(&x->trailers, name);

	return v ? v : "";
}

static void check_status(const struct http_stream *x, int code, const char *text)
{
	char number[8];

	snprintf(number, sizeof(number), "%d", code);
	CHECK(x->finished);
	CHECK_STR(trailer(x, "grpc-status"), number);
	if (!strstr(trailer(x, "grpc-message"), text))
		fprintf(stderr, "message: %s\n", trailer(x, "grpc-message"));
	CHECK(strstr(trailer(x, "grpc-message"), text));
}

static void close_x(struct http_stream *x, enum http_close how)
{
	x->closed = how;
	defer_post(&x->poke);
	turn();
}

/* --- tests -------------------------------------------------------------------------------------- */

TEST(unary)
{
	struct http_stream *x;

	setup(0);
	answer_with = 'r';
	x = call("/t.T/Unary");
	for (size_t i = 0; i < 8; i++)		/* byte by byte */
		feed(x, &"\0\0\0\0\3\x0a\x01" "a"[i], 1, false);
	CHECK_STR(diary, "");			/* not before the end of the request */
	feed(x, "", 0, true);
	CHECK_STR(diary, " message:a");
	check_status(x, 0, "");
	CHECK_INT(buf_len(&x->out), 7);
	CHECK(!memcmp(buf_data(&x->out), "\0\0\0\0\2\x08\x01", 7));
	CHECK_STR(fields_get(&x->response, "content-type"), "application/grpc");
	close_x(x, HTTP_CLOSE_CLEAN);
	CHECK(x->released);
	CHECK_STR(diary, " message:a");
	teardown();
}

static struct quota *quota_of(uint64_t max)
{
	struct quota *q = quota_new(&(struct quota_options){ .name = "this connection", .max = max });

	CHECK(q);
	return q;
}

/* JUDGED G-3: a call is charged before it is held; without memory it is refused by name, and nothing is left of it. */
TEST(calls_are_refused_when_memory_is_short)
{
	struct quota *q = quota_of(1 << 20);
	struct http_stream *x;
	uint64_t idle;

	setup_with(0, q);
	idle = quota_used(q);
	x = call("/t.T/Wait");
	CHECK(quota_used(q) >= idle + RPC_CALL_BYTES);
	CHECK(x->head_dropped);
	quota_add(q, 900 * 1024);
	x = call("/t.T/Wait");
	check_status(x, CODE_RESOURCE_EXHAUSTED, "this connection");
	turn();
	CHECK(quota_used(q) < idle + RPC_CALL_BYTES + 900 * 1024 + 4096);
	quota_add(q, 150 * 1024);	/* not even for saying no */
	CHECK(call("/t.T/Wait")->reset);
	quota_give(q, 1050 * 1024);
	teardown();
	CHECK(quota_is_idle(q));
	quota_unref(q);
}

/* A message is charged whole when its length is known, waits while there is no room, and is forgotten with its call's
 * end. */
TEST(messages_wait_for_memory)
{
	struct quota *q = quota_of(1 << 20);
	struct http_stream *x, *y;
	uint8_t prefix[FRAME_PREFIX_BYTES];
	char *text = malloc(200000);

	CHECK(text);
	memset(text, 'a', 200000);
	setup_with(0, q);
	x = call("/t.T/Up");
	y = call("/t.T/Up");
	quota_add(q, 780 * 1024);
	frame_prefix(prefix, 0, 200000);
	CHECK(buf_put(&x->in, prefix, sizeof(prefix)) == 0);
	feed(x, text, 1000, false);		/* with its head: between two passes the time for the last eighth may come */
	CHECK_INT(buf_len(&x->in), 1000);	/* no room: it stays with the exchange */
	for (int i = 0; i < 50; i++) {
		turn();
		usleep(1000);
	}
	CHECK_INT(buf_len(&x->in), 0);		/* one of each connection may use the last eighth … */
	CHECK(quota_used(q) >= 780 * 1024 + 200000);
	feed(y, prefix, sizeof(prefix), false);
	feed(y, text, 1000, false);
	for (int i = 0; i < 10; i++) {
		turn();
		usleep(1000);
	}
	CHECK_INT(buf_len(&y->in), 1000);	/* … the next one waits until that is done */
	close_x(x, HTTP_CLOSE_RESET);
	for (int i = 0; i < 50 && buf_len(&y->in); i++) {
		turn();
		usleep(1000);
	}
	CHECK_INT(buf_len(&y->in), 0);
	quota_give(q, 780 * 1024);
	close_x(y, HTTP_CLOSE_RESET);
	free(text);
	teardown();
	CHECK(quota_is_idle(q));
	quota_unref(q);
}

/* What a request becomes is charged, too, and given back when the call has ended, though its client does not read the
 * answer. */
TEST(a_request_is_held_as_long_as_its_call)
{
	struct quota *q = quota_of(1 << 20);
	struct http_stream *x;
	uint64_t idle;
	char request[6000] = "\x0a\xec\x2e";	/* 1: 5996 bytes */

	memset(request + 3, 'a', 5996);
	setup_with(0, q);
	idle = quota_used(q);
	x = call("/t.T/Wait");
	send_message(x, request, 5999, true);
	CHECK(open_call && quota_used(q) > idle + RPC_CALL_BYTES + 3 * 5996);
	rpc_call_fail(open_call, &(struct status){ .code = CODE_ABORTED, .text = "x" });
	turn();
	CHECK(quota_used(q) < idle + RPC_CALL_BYTES);
	teardown();
	CHECK(quota_is_idle(q));
	quota_unref(q);
}

/* What a handler holds is charged to its client, and its end gives it back. */
TEST(handlers_charge_what_they_hold)
{
	struct quota *q = quota_of(1 << 20);
	struct status st = STATUS_OK;
	struct http_stream *x;

	setup_with(0, q);
	x = call("/t.T/Down");
	send_a(x, true);
	CHECK(rpc_call_quota(open_call) == q);
	CHECK(rpc_call_hold(open_call, 500000, &st));
	CHECK(!rpc_call_hold(open_call, 500000, &st));
	CHECK(st.code == CODE_RESOURCE_EXHAUSTED && st.reason == R_TOO_MANY_STREAMS);
	CHECK(quota_used(q) > 500000);
	close_x(x, HTTP_CLOSE_RESET);
	CHECK(quota_used(q) < 20000);
	teardown();
	CHECK(quota_is_idle(q));
	quota_unref(q);
}

/* JUDGED D-2: a stream's head goes out when the handler says that it is served, once. */
TEST(a_stream_is_accepted_before_its_first_message)
{
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Down");
	send_a(x, true);
	CHECK(!x->responded);
	rpc_call_accept(open_call);
	CHECK(x->responded && !x->finished && !buf_len(&x->out));
	CHECK_STR(fields_get(&x->response, "grpc-accept-encoding"), "identity,gzip");
	rpc_call_accept(open_call);
	rpc_call_fail(open_call, &(struct status){ .code = CODE_ABORTED, .text = "later" });
	check_status(x, CODE_ABORTED, "later");
	teardown();
}

/* JUDGED D-2: what is too long is said as gRPC says it. */
TEST(a_head_that_was_cut)
{
	struct http_stream *x = calloc(1, sizeof(*x));

	setup(0);
	CHECK(x);
	xs[n_xs++] = x;
	x->conn = &conn;
	x->head_cut = true;
	defer_init(&x->poke, loop, on_poke, x);
	CHECK(fields_put(&x->head, ":method", "POST") == 0);
	server_options.on_request(x, server);
	check_status(x, CODE_RESOURCE_EXHAUSTED, "metadata");
	CHECK(x->head_dropped);
	teardown();
}

static void put_gzip(struct http_stream *x, const void *p, size_t n, bool end)
{
	struct buf b = BUF_NULL;
	uint8_t prefix[FRAME_PREFIX_BYTES];

	CHECK(gz_pack(p, n, &b) == 0);
	frame_prefix(prefix, FRAME_FLAG_COMPRESSED, (uint32_t)buf_len(&b));
	CHECK(buf_put(&x->in, prefix, sizeof(prefix)) == 0);
	CHECK(buf_put(&x->in, buf_data(&b), buf_len(&b)) == 0);
	buf_fini(&b);
	x->in_ended = end;
	defer_post(&x->poke);
}

static void send_gzip(struct http_stream *x, const void *p, size_t n, bool end)
{
	put_gzip(x, p, n, end);
	turn();
}

/* JUDGED D-2: messages may be compressed by gzip; what they become is bounded, and so is the work of one pass. */
TEST(compressed_messages)
{
	static char zeros[RPC_UNARY_MAX_BYTES + 10];
	struct http_stream *x, *y;

	setup(0);
	answer_with = 'r';
	x = call_with("/t.T/Unary", "grpc-encoding", "gzip");
	send_gzip(x, MESSAGE, 3, true);
	check_status(x, 0, "");
	x = call_with("/t.T/Unary", "grpc-encoding", "gzip");
	send_a(x, true);			/* each message says whether it is */
	check_status(x, 0, "");
	CHECK_STR(diary, " message:a message:a");
	x = call_with("/t.T/Unary", "grpc-encoding", "gzip");
	feed(x, "\1\0\0\0\3abc", 8, true);
	check_status(x, CODE_INTERNAL, "gzip");
	x = call_with("/t.T/Unary", "grpc-encoding", "gzip");
	send_gzip(x, zeros, sizeof(zeros), true);	/* a bomb */
	check_status(x, CODE_INVALID_ARGUMENT, "at most 1048576 bytes");
	usleep(1000);
	turn();
	x = call_with("/t.T/Unary", "grpc-encoding", "gzip");
	y = call_with("/t.T/Unary", "grpc-encoding", "gzip");
	put_gzip(x, zeros, 1000000, true);
	put_gzip(y, zeros, 1000000, true);
	turn();
	CHECK(x->finished && !y->finished);	/* one is enough for a pass */
	for (int i = 0; i < 20 && !y->finished; i++) {
		usleep(1000);
		turn();
	}
	check_status(x, CODE_INVALID_ARGUMENT, "protobuf");
	check_status(y, CODE_INVALID_ARGUMENT, "protobuf");
	check_status(call_with("/t.T/Unary", "grpc-encoding", "snappy"), CODE_UNIMPLEMENTED, "compressed");
	teardown();
}

/* G-09: what a client leaves unread is bounded; answers that fit into little room still come. */
TEST(a_client_that_does_not_read_gets_short_answers_only)
{
	struct quota *q = quota_of(1 << 20);
	struct http_stream *x;

	setup_with(0, q);
	answer_with = 'r';
	quota_add(q, 3 << 18);		/* three quarters of it: answers that wait */
	for (unsigned i = 0; i < 3; i++) {
		x = call("/t.T/Unary");
		x->room = i ? 4 : 16384;
		send_a(x, true);
		check_status(x, i ? CODE_RESOURCE_EXHAUSTED : 0, i ? "until others are read" : "");
	}
	quota_give(q, 3 << 18);		/* it read */
	x = call("/t.T/Unary");
	x->room = 4;
	send_a(x, true);
	check_status(x, 0, "");
	teardown();
	CHECK(quota_is_idle(q));
	quota_unref(q);
}

TEST(a_failure_has_status_and_details)
{
	struct http_stream *x;

	setup(0);
	answer_with = 'f';
	x = call("/t.T/Unary");
	send_a(x, true);
	check_status(x, CODE_NOT_FOUND, "no sandbox");
	CHECK(strlen(trailer(x, "grpc-status-details-bin")) > 20);
	CHECK(x->response.n == x->trailers.n);	/* trailers only */
	teardown();
}

TEST(cardinality)
{
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Unary");
	feed(x, "", 0, true);
	check_status(x, CODE_UNIMPLEMENTED, "no message");
	x = call("/t.T/Down");
	send_a(x, false);
	send_a(x, true);
	check_status(x, CODE_UNIMPLEMENTED, "two messages");
	CHECK_STR(diary, "");
	teardown();
}

TEST(refused_from_the_prefix)
{
	const uint32_t sizes[] = { 0xffffffff, 0x80000000, RPC_UNARY_MAX_BYTES + 1 };

	setup(0);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct http_stream *x = call("/t.T/Unary");
		uint8_t prefix[FRAME_PREFIX_BYTES];

		frame_prefix(prefix, 0, sizes[i]);
		feed(x, prefix, sizeof(prefix), false);
		check_status(x, CODE_INVALID_ARGUMENT, "at most 1048576 bytes");
		feed(x, "more of it", 10, false);	/* is dropped, not kept */
		CHECK_INT(buf_len(&x->in), 0);
	}
	CHECK_STR(diary, "");
	teardown();
}

TEST(bad_frames)
{
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Unary");
	feed(x, "\1\0\0\0\0", 5, true);
	check_status(x, CODE_INTERNAL, "compressed");
	x = call("/t.T/Unary");
	feed(x, "\2\0\0\0\0", 5, true);
	check_status(x, CODE_INTERNAL, "flags");
	x = call("/t.T/Up");
	feed(x, "\0\0\0\0\3ab", 7, true);
	check_status(x, CODE_INTERNAL, "within a message");
	CHECK_STR(diary, "");
	teardown();
}

TEST(bad_heads)
{
	struct http_stream *x;

	setup(0);
	check_status(call_with("/t.T/Unary", "grpc-encoding", "br"), CODE_UNIMPLEMENTED, "compressed");
	CHECK_STR(trailer(xs[0], "grpc-accept-encoding"), "identity,gzip");
	check_status(call_with("/t.T/Unary", "grpc-timeout", "soon"), CODE_INVALID_ARGUMENT, "grpc-timeout");
	check_status(call_with("/t.T/Unary", "x-bin", "=!="), CODE_INVALID_ARGUMENT, "x-bin");
	check_status(call_with("/t.T/Unary", "te", "trailers"), CODE_INVALID_ARGUMENT, "twice");
	check_status(call("/t.T/Nothing"), CODE_UNIMPLEMENTED, "/t.T/Nothing");
	x = call("");
	CHECK_STR(fields_get(&x->response, ":status"), "400");
	x = call_with("/t.T/Unary", "x-bin", "AAEC,AA");
	CHECK(!x->finished);
	teardown();
}

TEST(what_the_scan_refuses)
{
	struct http_stream *x;
	char entries[2 * 65];

	setup(0);
	x = call("/t.T/Unary");
	send_message(x, "\x0a\x03" "a\0b", 5, true);
	check_status(x, CODE_INVALID_ARGUMENT, "sandbox: is not UTF-8 without NUL");
	x = call("/t.T/Create");
	for (size_t i = 0; i < sizeof(entries); i += 2)
		memcpy(entries + i, "\x22\x00", 2);
	send_message(x, entries, sizeof(entries), true);
	check_status(x, CODE_INVALID_ARGUMENT, "metadata: has too many");
	x = call("/t.T/Unary");
	send_message(x, "\x0a\x05" "a", 3, true);
	check_status(x, CODE_INVALID_ARGUMENT, "protobuf");
	CHECK_STR(diary, "");
	teardown();
}

TEST(a_deadline_ends_it_for_both)
{
	struct http_stream *x;

	setup(0);
	x = call_with("/t.T/Unary", "grpc-timeout", "30m");
	send_a(x, true);
	CHECK(rpc_call_deadline_ms(open_call) > 0);
	for (int i = 0; i < 100 && !x->finished; i++)
		CHECK(loop_once(loop, 100) == 0);
	CHECK_STR(diary, " message:a deadline");
	check_status(x, CODE_DEADLINE_EXCEEDED, "deadline");
	teardown();
}

TEST(a_cancel_near_the_deadline_is_the_deadline)
{
	struct http_stream *x;

	setup(0);
	x = call_with("/t.T/Down", "grpc-timeout", "50m");
	send_a(x, true);
	close_x(x, HTTP_CLOSE_RESET);
	CHECK_STR(diary, " message:a deadline");
	diary[0] = '\0';
	x = call_with("/t.T/Down", "grpc-timeout", "60S");
	send_a(x, true);
	close_x(x, HTTP_CLOSE_RESET);
	CHECK_STR(diary, " message:a cancelled");
	CHECK(x->released);
	teardown();
}

static struct rpc_stats stats_of(const char *path)
{
	struct rpc_method_stats m;
	size_t pos = 0;

	while (rpc_server_stats(server, &pos, &m))
		if (!strcmp(m.path, path))
			return *m.stats;
	CHECK_STR("no such method", "");
	return (struct rpc_stats){ .latency.sum_us = 0 };
}

static unsigned ends(const struct rpc_stats *s, bool failed)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TALLY_ENDS; i++)
		n += !failed || !tally_is_ok(i) ? (unsigned)s->ends.n[i] : 0;
	return n;
}

/* A stream that its client ends has not failed; a unary call has, and each call counts once. */
TEST(ends_are_counted)
{
	const struct status cancelled = { .code = CODE_CANCELLED }, late = { .code = CODE_DEADLINE_EXCEEDED, .reason = R_DEADLINE_REQUEST };
	struct rpc_stats s;
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Down");
	send_a(x, true);
	close_x(x, HTTP_CLOSE_RESET);
	s = stats_of("/t.T/Down");
	CHECK_INT(ends(&s, false), 1);
	CHECK_INT(ends(&s, true), 0);
	CHECK_INT(histogram_count(&s.latency), 0);
	x = call("/t.T/Unary");
	send_a(x, true);
	close_x(x, HTTP_CLOSE_RESET);
	x = call_with("/t.T/Unary", "grpc-timeout", "50m");
	send_a(x, true);
	close_x(x, HTTP_CLOSE_RESET);
	answer_with = 'r';
	x = call("/t.T/Unary");
	send_a(x, true);
	close_x(x, HTTP_CLOSE_RESET);
	s = stats_of("/t.T/Unary");
	CHECK_INT(ends(&s, false), 3);
	CHECK_INT(s.ends.n[tally_number(&cancelled)], 1);
	CHECK_INT(s.ends.n[tally_number(&late)], 1);
	CHECK_INT(ends(&s, true), 2);
	CHECK_INT(histogram_count(&s.latency), 3);
	CHECK_STR(tally_name(tally_number(&cancelled)), "CANCELLED");
	CHECK_STR(tally_name(tally_number(&late)), "DEADLINE_REQUEST");
	teardown();
}

TEST(a_lost_connection_is_told_once)
{
	struct http_stream *x, *y;

	setup(0);
	x = call("/t.T/Unary");
	send_a(x, true);
	y = call("/t.T/Unary");		/* its handler has not heard of it */
	turn();
	close_x(x, HTTP_CLOSE_LOST);
	close_x(y, HTTP_CLOSE_LOST);
	CHECK_STR(diary, " message:a lost");
	CHECK(!x->finished);
	teardown();
}

TEST(up_stream_reads_what_is_asked_for)
{
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Up");
	send_a(x, false);
	send_a(x, false);
	CHECK_STR(diary, " message:a");
	CHECK_INT(x->consumed, 8);		/* the second stays unread: backpressure */
	rpc_call_next(open_call);
	turn();
	CHECK_STR(diary, " message:a message:a");
	feed(x, "", 0, true);
	CHECK_STR(diary, " message:a message:a end");
	check_status(x, 0, "");
	teardown();
}

TEST(asking_from_inside)
{
	struct http_stream *x;

	setup(0);
	answer_with = 'n';
	x = call("/t.T/Both");
	for (int i = 0; i < 3; i++)
		send_a(x, i == 2);
	CHECK_STR(diary, " message:a message:a message:a end");
	check_status(x, 0, "");
	teardown();
}

/* The first message is decoded, and so is what the handler does not take as it is. */
TEST(messages_as_they_came)
{
	static const char *const texts[] = { "\x0a\x01" "b", "\x0a\x01" "b", "\x0a\x01" "a", "\x0a\x01" "b" };
	struct http_stream *x;

	setup(0);
	answer_with = 'n';
	x = call("/t.T/Encoded");
	for (int i = 0; i < 4; i++)
		send_message(x, texts[i], 3, i == 3);
	CHECK_STR(diary, " message:b encoded message:a encoded end");
	check_status(x, 0, "");
	teardown();

	setup(0);
	answer_with = 'n';
	x = call("/t.T/Encoded");
	send_a(x, false);
	answer_with = 'e';
	send_message(x, texts[0], 3, false);
	CHECK_STR(diary, " message:a encoded");
	check_status(x, 0, "");
	teardown();
}

TEST(ending_inside_a_message_stops_reading)
{
	struct http_stream *x;

	setup(0);
	answer_with = 'e';
	x = call("/t.T/Both");
	send_a(x, false);
	send_a(x, false);
	CHECK_STR(diary, " message:a");
	check_status(x, 0, "");
	CHECK_INT(buf_len(&x->in), 0);
	teardown();
}

TEST(an_empty_up_stream_ends)
{
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Up");
	feed(x, "", 0, true);
	CHECK_STR(diary, " end");
	check_status(x, 0, "");
	teardown();
}

TEST(an_oversize_stream_message_ends_the_call)
{
	struct http_stream *x;
	uint8_t prefix[FRAME_PREFIX_BYTES];

	setup(0);
	answer_with = 'n';
	x = call("/t.T/Up");
	send_a(x, false);
	frame_prefix(prefix, 0, RPC_STREAM_MAX_BYTES + 1);
	feed(x, prefix, sizeof(prefix), false);
	CHECK_STR(diary, " message:a server");
	check_status(x, CODE_INVALID_ARGUMENT, "at most 262144");
	teardown();
}

TEST(room_is_announced)
{
	Agentbox__V1__IsRunningResponse a = AGENTBOX__V1__IS_RUNNING_RESPONSE__INIT;
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Down");
	send_a(x, true);
	rpc_call_send(open_call, &a.base);
	CHECK(rpc_call_room(open_call) > 0);
	x->room = 0;
	CHECK_INT(rpc_call_room(open_call), 0);
	feed(x, "", 0, true);
	CHECK_STR(diary, " message:a");
	x->room = 100;
	feed(x, "", 0, true);
	feed(x, "", 0, true);
	CHECK_STR(diary, " message:a room");
	rpc_call_finish(open_call);
	check_status(x, 0, "");
	CHECK_INT(buf_len(&x->out), 5);
	teardown();
}

TEST(streams_are_bounded_and_calls_are_not_theirs)
{
	struct http_stream *x[4];

	setup(2);
	x[0] = call("/t.T/Down");
	x[1] = call("/t.T/Wait");
	x[2] = call("/t.T/Both");
	check_status(x[2], CODE_RESOURCE_EXHAUSTED, "and may have no more");
	x[3] = call("/t.T/Unary");
	CHECK(!x[3]->finished);
	close_x(x[0], HTTP_CLOSE_RESET);
	x[0] = call("/t.T/Down");
	CHECK(!x[0]->finished);
	teardown();
}

TEST(the_server_can_end_all)
{
	struct http_stream *x, *y;

	setup(0);
	x = call("/t.T/Down");
	send_a(x, true);
	y = call("/t.T/Unary");
	rpc_server_drain(server);
	CHECK(drained);
	rpc_server_drain_end(server);
	CHECK_STR(diary, " message:a server");
	check_status(x, CODE_UNAVAILABLE, "agentboxd is stopping");
	check_status(y, CODE_UNAVAILABLE, "agentboxd is stopping");
	CHECK_STR(fields_get(&y->trailers, "grpc-retry-pushback-ms"), "50");
	teardown();
}

/* D-7: streams end at once, unary calls have a moment, uploads are waited for; what comes late is not looked at. */
TEST(a_stop_waits_for_uploads_only)
{
	struct http_stream *down, *up, *unary, *once, *keyless, *keyed, *late;
	struct rpc_waited waited;

	setup(0);
	down = call("/t.T/Down");
	send_a(down, true);
	up = call("/t.T/Up");
	send_a(up, false);
	unary = call("/t.T/Unary");
	send_a(unary, true);
	once = call("/t.T/Once");
	send_a(once, true);
	keyless = call("/t.T/Create");
	send_message(keyless, "", 0, true);
	keyed = call("/t.T/Create");
	send_message(keyed, "\x0a\x01k", 3, true);
	rpc_server_drain(server);
	CHECK(rpc_server_drain_calls(server, false, &waited));
	check_status(down, CODE_UNAVAILABLE, "agentboxd is stopping");
	CHECK_INT(waited.ending, 3);
	CHECK_INT(waited.uploads, 1);
	CHECK_INT(waited.others, 1);
	CHECK(!unary->finished && !up->finished && !once->finished && !keyless->finished && !keyed->finished);
	CHECK(rpc_server_drain_calls(server, true, &waited));
	check_status(unary, CODE_UNAVAILABLE, "agentboxd is stopping");
	check_status(keyed, CODE_UNAVAILABLE, "agentboxd is stopping");
	check_status(once, CODE_UNKNOWN, "what became of this call is not known");
	CHECK_INT(waited.ending, 0);
	CHECK_INT(waited.uploads, 1);
	CHECK_INT(waited.others, 1);
	CHECK(!up->finished && !keyless->finished);
	late = call("/t.T/Unary");
	CHECK_INT(late->closed, HTTP_CLOSE_LOCAL);
	close_x(up, HTTP_CLOSE_RESET);
	close_x(keyless, HTTP_CLOSE_RESET);
	CHECK(!rpc_server_drain_calls(server, true, &waited));
	teardown();
}

/* Before a stop what begins something waits unseen, with a request id and without, while reads are answered and what had begun goes on; then
 * its client sends it to the next daemon. */
TEST(what_begins_is_held_before_a_stop)
{
	struct http_stream *begun, *held, *stream, *half, *read;
	struct rpc_waited waited;

	setup(0);
	begun = call("/t.T/Begin");
	send_message(begun, "\x0a\x01k", 3, true);
	rpc_server_hold(server);
	diary[0] = '\0';
	held = call("/t.T/Begin");
	send_message(held, "", 0, true);
	stream = call("/t.T/BeginDown");
	send_a(stream, true);
	half = call("/t.T/Begin");
	CHECK_STR(diary, "");
	CHECK(!held->finished && !stream->finished && !begun->finished);
	answer_with = 'r';
	read = call("/t.T/Unary");
	send_a(read, true);
	check_status(read, 0, "");
	rpc_server_drain(server);
	diary[0] = '\0';
	CHECK(rpc_server_drain_calls(server, false, &waited));
	CHECK_INT(waited.ending, 1);		/* what had begun */
	CHECK_INT(waited.others, 0);
	check_status(held, CODE_UNAVAILABLE, "agentboxd is stopping");
	check_status(stream, CODE_UNAVAILABLE, "agentboxd is stopping");
	check_status(half, CODE_UNAVAILABLE, "agentboxd is stopping");
	CHECK_STR(diary, "");
	CHECK(!begun->finished);
	CHECK(!rpc_server_drain_calls(server, true, &waited));
	teardown();
}

TEST(health)
{
	struct http_stream *x, *w;

	setup(0);
	w = call("/grpc.health.v1.Health/Watch");
	send_message(w, "", 0, true);
	CHECK(!memcmp(buf_data(&w->out), "\0\0\0\0\2\x08\x01", 7));
	x = call("/grpc.health.v1.Health/Check");
	send_message(x, "\x0a\x03t.T", 5, true);
	CHECK(!memcmp(buf_data(&x->out), "\0\0\0\0\2\x08\x01", 7));
	x = call("/grpc.health.v1.Health/Check");
	send_message(x, "\x0a\x03t.U", 5, true);
	check_status(x, CODE_NOT_FOUND, "t.U");
	buf_drop(&w->out, 7);
	rpc_server_set_serving(server, false);
	CHECK(!memcmp(buf_data(&w->out), "\0\0\0\0\2\x08\x02", 7));
	w = call("/grpc.health.v1.Health/Watch");
	send_message(w, "\x0a\x03t.U", 5, true);
	CHECK(!memcmp(buf_data(&w->out), "\0\0\0\0\2\x08\x03", 7));
	teardown();
}

static Grpc__Reflection__V1__ServerReflectionResponse *
ask(struct http_stream *x, const Grpc__Reflection__V1__ServerReflectionRequest *q)
{
	uint8_t bytes[256];
	size_t n = grpc__reflection__v1__server_reflection_request__pack(q, bytes);
	Grpc__Reflection__V1__ServerReflectionResponse *a;

	send_message(x, bytes, n, false);
	CHECK(buf_len(&x->out) > FRAME_PREFIX_BYTES);
	a = grpc__reflection__v1__server_reflection_response__unpack(
		NULL, buf_len(&x->out) - FRAME_PREFIX_BYTES, buf_data(&x->out) + FRAME_PREFIX_BYTES);
	CHECK(a);
	buf_drop(&x->out, buf_len(&x->out));
	return a;
}

#define ASKED(x)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##x
#define ANSWER(x) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##x

TEST(reflection)
{
	static const char *const paths[] = {
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	};

	setup(0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		Grpc__Reflection__V1__ServerReflectionRequest q =
			GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
		Grpc__Reflection__V1__ServerReflectionResponse *a;
		struct http_stream *x = call(paths[i]);

		q.message_request_case = ASKED(LIST_SERVICES);
		q.list_services = (char *)"";
		a = ask(x, &q);
		CHECK_INT(a->message_response_case, ANSWER(LIST_SERVICES_RESPONSE));
		CHECK_INT(a->list_services_response->n_service, 12);
		grpc__reflection__v1__server_reflection_response__free_unpacked(a, NULL);

		q.message_request_case = ASKED(FILE_CONTAINING_SYMBOL);
		q.file_containing_symbol = (char *)"agentbox.v1.SnapshotService.Delete";
		a = ask(x, &q);
		CHECK_INT(a->message_response_case, ANSWER(FILE_DESCRIPTOR_RESPONSE));
		CHECK_STR(a->original_request->file_containing_symbol, q.file_containing_symbol);
		CHECK(a->file_descriptor_response->n_file_descriptor_proto > 3);
		grpc__reflection__v1__server_reflection_response__free_unpacked(a, NULL);

		q.file_containing_symbol = (char *)"agentbox.v1.Nothing";
		a = ask(x, &q);
		CHECK_INT(a->message_response_case, ANSWER(ERROR_RESPONSE));
		CHECK_INT(a->error_response->error_code, CODE_NOT_FOUND);
		grpc__reflection__v1__server_reflection_response__free_unpacked(a, NULL);
		feed(x, "", 0, true);
		check_status(x, 0, "");
	}
	teardown();
}

TEST(whoever_asks_is_known)
{
	struct rpc_counts n;
	struct http_stream *x;

	setup(0);
	x = call("/t.T/Unary");
	send_a(x, true);
	CHECK_INT(rpc_call_who(open_call)->uid, getuid());
	CHECK_INT(rpc_call_who(open_call)->pid, getpid());
	rpc_server_count(server, getuid(), &n);
	CHECK_INT(n.connections, 1);
	CHECK_INT(n.calls, 1);
	CHECK_INT(n.streams, 0);
	CHECK_INT(n.max_streams, RPC_STREAMS_PER_UID);
	teardown();
}

TEST_MAIN()
