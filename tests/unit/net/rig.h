/* SPDX-License-Identifier: MIT */
/* A loop, a server of ours on a loopback port and clients of ours, for the tests of net. */
#ifndef AB_TESTS_UNIT_NET_RIG_H
#define AB_TESTS_UNIT_NET_RIG_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "daemon/common/net/tls.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define RIG_LIMIT_MS 20000u	/* a test that waits longer for an event has failed */

/* Turns the loop until cond holds. */
#define WAIT(l, cond)                                                                              \
	do {                                                                                       \
		uint64_t wait_end_ = clock_boot_ms() + RIG_LIMIT_MS;                               \
		while (!(cond)) {                                                                  \
			CHECK(loop_once(l, 100) == 0);                                             \
			if (clock_boot_ms() > wait_end_)                                           \
				fprintf(stderr, "waited in vain for: %s\n", #cond);                \
			CHECK(clock_boot_ms() <= wait_end_);                                       \
		}                                                                                  \
	} while (0)

static inline int rig_listen(uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 128));
	CHECK(!getsockname(fd, (struct sockaddr *)&a, &n));
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static inline int rig_connect(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof(a)));
	CHECK(!fd_set_nonblock(fd, true));
	return fd;
}

/* One exchange of a server: echoes, or as its path says. */
struct rig_call {
	struct http_stream *x;
	struct rig *rig;
	bool hold, closed;
	size_t to_send;
	enum http_close how;
};

struct rig {
	struct loop *loop;
	struct http_server *server;
	uint16_t port;
	unsigned requests, conns, conns_gone, closed;
	enum http_close last_how;
	bool hold;		/* nobody reads or answers */
	struct rig_call *held[2048];
	unsigned n_held;
	struct http_conn *last_conn;
	char gone_why[160];
};

static inline struct fields *rig_head(const char *status)
{
	static struct fields f;

	fields_clear(&f);
	CHECK(!fields_put(&f, ":status", status) && !fields_put(&f, "content-type", "text/plain"));
	return &f;
}

static inline void rig_drop_head(void)
{
	fields_fini(rig_head("200"));
}

static inline void rig_end(struct rig_call *c)
{
	c->rig->closed++;
	c->rig->last_how = http_stream_closed(c->x, NULL);
	http_stream_release(c->x);
	free(c);
}

/* "/big": to_send bytes; else what comes goes back. */
static inline void rig_ready(struct http_stream *x, void *user)
{
	struct rig_call *c = user;
	static char zeros[16384];
	const uint8_t *p;
	size_t n;

	if (http_stream_closed(x, NULL)) {
		rig_end(c);
		return;
	}
	if (c->hold)
		return;
	while (c->to_send && (n = http_stream_room(x))) {
		n = MIN(n, MIN(c->to_send, sizeof(zeros)));
		CHECK(!http_stream_write(x, zeros, n));
		c->to_send -= n;
		if (!c->to_send)
			CHECK(!http_stream_finish(x, NULL));
	}
	if (c->to_send)
		return;
	while ((n = MIN(http_stream_peek(x, &p), http_stream_room(x))) > 0) {
		CHECK(!http_stream_write(x, p, n));
		http_stream_consume(x, n);
	}
	if (http_stream_at_end(x) && http_stream_room(x))
		CHECK(!http_stream_finish(x, NULL));
}

static inline void rig_request(struct http_stream *x, void *user)
{
	struct rig *r = user;
	struct rig_call *c = calloc(1, sizeof(*c));
	const char *path = fields_get(http_stream_head(x), ":path");

	r->requests++;
	c->x = x;
	c->rig = r;
	c->hold = r->hold || str_eq(path, "/hold");
	http_stream_set_owner(x, rig_ready, c);
	if (c->hold) {
		CHECK(r->n_held < ARRAY_SIZE(r->held));
		r->held[r->n_held++] = c;
		return;
	}
	if (str_eq(path, "/none")) {
		CHECK(!http_stream_respond(x, rig_head("204"), true));
		return;
	}
	if (str_starts(path, "/big"))
		c->to_send = 64u << 20;
	CHECK(!http_stream_respond(x, rig_head("200"), false));
}

static inline int rig_conn(struct http_conn *c, void *user, void **ret_user)
{
	struct rig *r = user;

	r->conns++;
	r->last_conn = c;
	*ret_user = r;
	return 0;
}

static inline void rig_conn_gone(struct http_conn *c, void *conn_user, const char *reason, void *user)
{
	struct rig *r = user;

	CHECK(conn_user == r);
	r->conns_gone++;
	str_copy(r->gone_why, sizeof(r->gone_why), reason);
}

static inline struct rig *rig_new(struct http_server_options o)
{
	struct rig *r = calloc(1, sizeof(*r));

	CHECK(!loop_new(&r->loop));
	o.loop = r->loop;
	o.listen_fd = rig_listen(&r->port);
	o.on_conn = rig_conn;
	o.on_conn_closed = rig_conn_gone;
	o.on_request = rig_request;
	o.user = r;
	if (!o.http1 && !o.http2)
		o.http1 = o.http2 = true;
	CHECK(!http_server_new(&o, &r->server));
	return r;
}

static inline void rig_free(struct rig *r)
{
	http_server_free(r->server);
	CHECK(!loop_once(r->loop, 0));
	loop_free(r->loop);
	free(r);
	rig_drop_head();
}

/* --- clients --- */

struct rig_client {
	struct http_conn *c;
	struct status failure;
	bool done, closed;
	unsigned changes;
	char why[160];
};

static inline void rig_dialled(struct http_conn *c, const struct status *failure, void *user)
{
	struct rig_client *k = user;

	CHECK(!k->done && !c == !!failure);
	k->done = true;
	k->c = c;
	if (failure)
		k->failure = *failure;
}

static inline void rig_client_closed(struct http_conn *c, const char *reason, void *user)
{
	struct rig_client *k = user;

	CHECK(!k->closed && k->c == c);
	k->closed = true;
	k->c = NULL;
	str_copy(k->why, sizeof(k->why), reason);
}

static inline void rig_client_changed(struct http_conn *c, void *user)
{
	((struct rig_client *)user)->changes++;
}

static inline struct http_dial_options rig_dial_options(struct rig *r, struct rig_client *k)
{
	return (struct http_dial_options){
		.loop = r->loop,
		.host = "127.0.0.1",
		.port = r->port,
		.deadline_ms = clock_boot_ms() + 10000,
		.done = rig_dialled,
		.closed = rig_client_closed,
		.changed = rig_client_changed,
		.user = k,
	};
}

static inline void rig_dial(struct rig *r, struct rig_client *k, bool h2, struct tls_client *tls)
{
	struct http_dial_options o = rig_dial_options(r, k);
	struct http_dial *d;

	*k = (struct rig_client){ 0 };
	o.plain_http2 = h2;
	o.tls = tls;
	CHECK(!http_dial(&o, &d));
	CHECK(!k->done);
	WAIT(r->loop, k->done);
}

struct rig_ask {
	struct http_stream *x;
	struct buf got;
	unsigned closed_ready;
	bool dont_read;
	enum http_close how;
	uint32_t code;
	unsigned status;
	bool ended;
	size_t total;
};

static inline void rig_answer(struct http_stream *x, void *user)
{
	struct rig_ask *a = user;
	const uint8_t *p;
	size_t n;

	a->status = http_stream_status(x);
	if (!a->dont_read) {
		while ((n = http_stream_peek(x, &p)) > 0) {
			a->total += n;
			if (a->total <= (1u << 20))
				CHECK(!buf_put(&a->got, p, n));
			http_stream_consume(x, n);
		}
	}
	a->ended = http_stream_ended(x);
	a->how = http_stream_closed(x, &a->code);
	if (a->how)
		a->closed_ready++;
}

static inline int rig_ask_fields(struct rig_client *k, struct rig_ask *a, const char *method,
				 const char *path, bool end)
{
	struct fields f = FIELDS_NULL;
	int r;

	CHECK(!fields_put(&f, ":method", method) && !fields_put(&f, ":scheme", "http"));
	CHECK(!fields_put(&f, ":authority", "localhost") && !fields_put(&f, ":path", path));
	r = http_conn_request(k->c, &f, end, rig_answer, a, &a->x);
	fields_fini(&f);
	return r;
}

static inline void rig_ask_end(struct rig_ask *a)
{
	http_stream_release(a->x);
	buf_fini(&a->got);
	*a = (struct rig_ask){ .x = NULL };
}

#endif
