/* SPDX-License-Identifier: MIT */
/* Our HTTP/1.1 server against bytes by hand, our HTTP/1.1 client against answers by hand. */
#include <errno.h>
#include <fcntl.h>

#include "daemon/common/net/http.h"
#include "proto/wire/h2.h"
#include "tests/unit/net/rig.h"

struct raw {
	int fd;
	char got[262144];
	size_t n;
	bool eof;
};

static struct raw raw;

static bool raw_read(void)
{
	while (raw.n < sizeof(raw.got) - 1) {
		ssize_t n = recv(raw.fd, raw.got + raw.n, sizeof(raw.got) - 1 - raw.n, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			raw.eof = true;
			break;
		}
		raw.n += (size_t)n;
	}
	raw.got[raw.n] = 0;
	return true;
}

static void raw_open(struct rig *r)
{
	raw.fd = rig_connect(r->port);
	raw.n = 0;
	raw.eof = false;
}

static void raw_send(const char *s)
{
	CHECK_INT(send(raw.fd, s, strlen(s), MSG_NOSIGNAL), strlen(s));
}

static void raw_close(void)
{
	close(raw.fd);
}

#define RAW_WAIT(r, text)  WAIT((r)->loop, raw_read() && strstr(raw.got, text))
#define RAW_WAIT_EOF(r)	   WAIT((r)->loop, raw_read() && raw.eof)

static unsigned count(const char *s, const char *what)
{
	unsigned n = 0;

	for (const char *at = s; (at = strstr(at, what)); at++)
		n++;
	return n;
}

TEST(refusals)
{
	static char long_target[10000], many[131072];
	static const struct {
		const char *in, *out;
	} t[] = {
		{ "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 " },
		{ "GET / HTTP/1.1\nHost: a\n\n", "HTTP/1.1 400 " },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n", "HTTP/1.1 400 " },
		{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 " },
		{ "GET / HTTP/3.0\r\nHost: a\r\n\r\n", "HTTP/1.1 505 " },
		{ "\x16\x03\x01\x02", "HTTP/1.1 400 " },
		{ "PRI-less nonsense\r\n\r\n", "HTTP/1.1 400 " },
		{ "POST /hold HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		  "HTTP/1.1 400 " },
		{ long_target, "HTTP/1.1 414 " },
		{ many, "HTTP/1.1 431 " },
	};
	struct rig *r = rig_new((struct http_server_options){ 0 });

	memset(long_target, 'a', sizeof(long_target) - 1);
	memcpy(long_target, "GET /", 5);
	memset(many, 'a', sizeof(many) - 1);
	memcpy(many, "GET / HTTP/1.1\r\nhost: a\r\nx: ", 28);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		raw_open(r);
		raw_send(t[i].in);
		RAW_WAIT_EOF(r);
		if (!str_starts(raw.got, t[i].out))
			fprintf(stderr, "case %zu: %s\n", i, raw.got);
		CHECK(str_starts(raw.got, t[i].out));
		CHECK(strstr(raw.got, "connection: close\r\n"));
		raw_close();
		WAIT(r->loop, r->conns_gone == i + 1);
	}
	CHECK_INT(r->closed, r->requests);
	rig_free(r);
}

TEST(pipelined)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });

	raw_open(r);
	raw_send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none"
		 "HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n"
		 "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"
		 "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		 "5\r\nthree\r\n0\r\n\r\n"
		 "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n");
	RAW_WAIT_EOF(r);
	CHECK_INT(r->requests, 5);
	CHECK_INT(count(raw.got, "HTTP/1.1 200 OK\r\n"), 4);
	CHECK_INT(count(raw.got, "HTTP/1.1 204 No Content\r\n"), 1);
	CHECK(strstr(raw.got, "\r\n\r\n3\r\none\r\n0\r\n\r\nHTTP/1.1 200"));
	CHECK(strstr(raw.got, "5\r\nthree\r\n0\r\n\r\nHTTP/1.1 200"));
	CHECK_INT(count(raw.got, "connection: close"), 1);
	raw_close();
	WAIT(r->loop, r->closed == 5 && r->conns_gone == 1);
	rig_free(r);
}

TEST(pipelined_behind_a_slow_one)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });

	raw_open(r);
	raw_send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\n");
	WAIT(r->loop, r->n_held == 1);
	for (int i = 0; i < 5; i++)
		CHECK(!loop_once(r->loop, 0));
	CHECK_INT(r->requests, 1);
	CHECK(!http_stream_respond(r->held[0]->x, rig_head("200"), true));
	RAW_WAIT(r, "204");
	CHECK(str_starts(raw.got, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n"
				  "\r\nHTTP/1.1 204"));
	raw_close();
	WAIT(r->loop, r->conns_gone == 1);
	rig_free(r);
}

TEST(expect_continue)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });

	/* the owner wants the body */
	raw_open(r);
	raw_send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
	RAW_WAIT(r, "\r\n\r\n");
	/* (the echo answers at once, so that nothing can be asked for any more) */
	CHECK(str_starts(raw.got, "HTTP/1.1 200 OK\r\n"));
	raw_close();
	WAIT(r->loop, r->conns_gone == 1);

	raw_open(r);
	raw_send("POST /hold HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
	WAIT(r->loop, r->n_held == 1);
	{
		const uint8_t *p;

		CHECK_INT(http_stream_peek(r->held[0]->x, &p), 0);
		RAW_WAIT(r, "\r\n\r\n");
		CHECK_STR(raw.got, "HTTP/1.1 100 Continue\r\n\r\n");
		raw_send("body");
		WAIT(r->loop, http_stream_peek(r->held[0]->x, &p) == 4);
		CHECK(!http_stream_respond(r->held[0]->x, rig_head("200"), true));
		RAW_WAIT(r, "HTTP/1.1 200");
		CHECK(!strstr(raw.got, "close"));
	}
	raw_close();
	WAIT(r->loop, r->conns_gone == 2);

	/* the owner refuses without looking: no 100, and an end */
	raw_open(r);
	raw_send("POST /hold HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
	WAIT(r->loop, r->n_held == 2);
	CHECK(!http_stream_respond(r->held[1]->x, rig_head("413"), true));
	RAW_WAIT_EOF(r);
	CHECK(str_starts(raw.got, "HTTP/1.1 413 ") && strstr(raw.got, "connection: close"));
	raw_close();
	WAIT(r->loop, r->conns_gone == 3 && r->closed == 3);
	rig_free(r);
}

TEST(old_clients)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });

	raw_open(r);
	raw_send("POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc");
	RAW_WAIT_EOF(r);
	CHECK(str_starts(raw.got, "HTTP/1.1 200 OK\r\n") && !strstr(raw.got, "chunked"));
	CHECK(strstr(raw.got, "\r\n\r\nabc"));
	raw_close();
	WAIT(r->loop, r->conns_gone == 1);
	raw_open(r);
	raw_send("GET /none HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	RAW_WAIT(r, "connection: keep-alive\r\n\r\n");
	raw_send("GET /none HTTP/1.0\r\n\r\n");
	RAW_WAIT_EOF(r);
	CHECK_INT(count(raw.got, "HTTP/1.1 204"), 2);
	raw_close();
	WAIT(r->loop, r->conns_gone == 2);
	rig_free(r);
}

/* Refused while the client still sends: it gets to read why. */
TEST(early_answer)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	static char zeros[65536];
	size_t sent = 0;

	raw_open(r);
	raw_send("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
	WAIT(r->loop, r->n_held == 1);
	CHECK(!http_stream_respond(r->held[0]->x, rig_head("413"), true));
	http_stream_release(r->held[0]->x);
	free(r->held[0]);
	while (!raw.eof && sent < 4u << 20) {
		ssize_t n = send(raw.fd, zeros, sizeof(zeros), MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0)
			sent += (size_t)n;
		CHECK(!loop_once(r->loop, 0));
		raw_read();
	}
	RAW_WAIT_EOF(r);
	CHECK(str_starts(raw.got, "HTTP/1.1 413 "));
	raw_close();
	WAIT(r->loop, r->conns_gone == 1);
	CHECK_INT(r->closed, 0);
	rig_free(r);
}

TEST(slow_heads)
{
	static const char *const in[] = { "", "P", "GET / HTTP/1.1\r\nHo",
					  "GET /none HTTP/1.1\r\nHost: a\r\n\r\nGET /", "PRI * HT" };
	struct rig *r = rig_new((struct http_server_options){ .handshake_ms = 40 });

	for (size_t i = 0; i < ARRAY_SIZE(in); i++) {
		raw_open(r);
		raw_send(in[i]);
		RAW_WAIT_EOF(r);
		WAIT(r->loop, r->conns_gone == i + 1);
		CHECK(strstr(r->gone_why, "too slow"));
		raw_close();
	}
	/* between requests a kept connection may wait */
	raw_open(r);
	raw_send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
	RAW_WAIT(r, "204");
	{
		uint64_t end = clock_boot_ms() + 100;

		WAIT(r->loop, clock_boot_ms() > end);
	}
	raw_send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
	WAIT(r->loop, raw_read() && count(raw.got, "204") == 2);
	raw_close();
	WAIT(r->loop, r->conns_gone == r->conns);
	rig_free(r);
}

static int take_descriptor(struct rig *r)
{
	int fd = fcntl(http_conn_fd(r->last_conn), F_DUPFD_CLOEXEC, 3);

	CHECK(fd >= 0);
	http_conn_close(r->last_conn, "handed over");
	WAIT(r->loop, r->conns_gone == r->conns);
	return fd;
}

/* Between two requests, and before the first, a connection is its descriptor and nothing else: another server goes on with it, and it
 * may be idle there. */
TEST(another_server_goes_on)
{
	struct rig *r = rig_new((struct http_server_options){ .http1 = true, .handshake_ms = 1000, .max_conns = 1 });
	uint64_t end;
	int fd;

	raw_open(r);
	WAIT(r->loop, r->conns == 1);
	CHECK(http_conn_is_bare(r->last_conn));
	raw_send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
	WAIT(r->loop, r->n_held == 1);
	CHECK(!http_conn_is_bare(r->last_conn));
	CHECK(!http_stream_respond(r->held[0]->x, rig_head("204"), true));
	RAW_WAIT(r, "204");
	WAIT(r->loop, http_conn_is_bare(r->last_conn));
	fd = take_descriptor(r);
	raw_send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
	CHECK_INT(http_server_adopt(r->server, fd), 0);
	WAIT(r->loop, raw_read() && count(raw.got, "204") == 2);
	CHECK(!raw.eof);
	WAIT(r->loop, http_conn_is_bare(r->last_conn));
	fd = take_descriptor(r);
	CHECK_INT(http_server_adopt(r->server, fcntl(fd, F_DUPFD_CLOEXEC, 3)), 0);
	CHECK_INT(http_server_adopt(r->server, fd), -EUSERS);
	end = clock_boot_ms() + 1200;
	WAIT(r->loop, clock_boot_ms() > end);
	raw_send("GET /none HTTP/1.1\r\nHo");
	WAIT(r->loop, !http_conn_is_bare(r->last_conn));
	fd = take_descriptor(r);
	raw_close();
	while (recv(fd, raw.got, sizeof(raw.got), 0) > 0)
		;
	CHECK_INT(http_server_adopt(r->server, fd), -ENOTCONN);
	CHECK_INT(http_server_conns(r->server), 0);
	rig_free(r);
}

TEST(client_goes)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });

	raw_open(r);
	raw_send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
	WAIT(r->loop, r->n_held == 1);
	raw_close();
	WAIT(r->loop, r->closed == 1 && r->conns_gone == 1);
	CHECK_INT(r->last_how, HTTP_CLOSE_LOST);
	/* half closed, and everything known: it is answered */
	raw_open(r);
	raw_send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
	CHECK(!shutdown(raw.fd, SHUT_WR));
	RAW_WAIT_EOF(r);
	CHECK(str_starts(raw.got, "HTTP/1.1 204"));
	raw_close();
	rig_free(r);
}

TEST(wrong_version_on_h2_only)
{
	struct rig *r = rig_new((struct http_server_options){ .http2 = true });

	raw_open(r);
	raw_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	RAW_WAIT_EOF(r);
	raw_close();
	WAIT(r->loop, r->conns_gone == 1);
	CHECK_INT(r->requests, 0);
	rig_free(r);
}

/* --- upgrades --- */

struct switcher {
	struct http_stream *x;
	struct loop *loop;
	bool refuse, agreed, could, ended;
	enum http_close how;
};

/* Echoes in capitals; ends its direction when the peer has ended the other. */
static void on_switched(struct http_stream *x, void *user)
{
	struct switcher *s = user;
	const uint8_t *p;
	size_t n = http_stream_peek(x, &p);
	char out[256];

	s->how = http_stream_closed(x, NULL);
	if (s->how) {
		http_stream_release(give(s->x));
		return;
	}
	if (!s->agreed)
		return;
	CHECK(n < sizeof(out));
	for (size_t i = 0; i < n; i++)
		out[i] = p[i] >= 'a' && p[i] <= 'z' ? (char)(p[i] - 32) : (char)p[i];
	if (n)
		CHECK(!http_stream_write(x, out, n));
	http_stream_consume(x, n);
	if (http_stream_at_end(x) && !s->ended) {
		s->ended = true;
		CHECK(!http_stream_write(x, "bye", 3) && !http_stream_finish(x, NULL));
	}
}

static void on_switch(struct http_stream *x, void *user)
{
	struct switcher *s = user;
	struct fields f = FIELDS_NULL;

	s->x = x;
	s->ended = false;
	http_stream_set_owner(x, on_switched, s);
	s->could = http_stream_can_upgrade(x);
	CHECK(!fields_put(&f, ":status", s->could && !s->refuse ? "101" : "200"));
	if (s->could)
		CHECK(!fields_put(&f, "upgrade", "capitals") && !fields_put(&f, "x-a", "b"));
	s->agreed = s->could && !s->refuse;
	CHECK(!http_stream_respond(x, &f, !s->agreed));
	if (!s->agreed && !s->could) {
		/* What nobody asked for cannot be agreed to. */
		fields_clear(&f);
		CHECK(!http_stream_can_upgrade(x));
	}
	fields_fini(&f);
}

static struct http_server *switch_server(struct switcher *s, uint16_t *ret_port)
{
	struct http_server_options o = { .http1 = true, .http2 = true, .on_request = on_switch, .user = s };
	struct http_server *server;

	CHECK(!loop_new(&s->loop));
	o.loop = s->loop;
	o.listen_fd = rig_listen(ret_port);
	CHECK(!http_server_new(&o, &server));
	return server;
}

#define ASK_UPGRADE "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: capitals\r\nConnection: keep-alive, Upgrade\r\n\r\n"

TEST(upgrade_of_a_server)
{
	struct switcher s = { 0 };
	struct rig r = { 0 };
	struct http_server *server = switch_server(&s, &r.port);

	r.loop = s.loop;
	raw_open(&r);
	raw_send(ASK_UPGRADE "early");	/* bytes that came with the request belong to the tunnel */
	RAW_WAIT(&r, "EARLY");
	CHECK(strstr(raw.got, "HTTP/1.1 101 Switching Protocols\r\n") == raw.got);
	CHECK(strstr(raw.got, "connection: Upgrade\r\nupgrade: capitals\r\n\r\n"));
	CHECK(strstr(raw.got, "x-a: b\r\n") && !strstr(raw.got, "chunked"));
	raw_send("GET / HTTP/1.1\r\n");
	RAW_WAIT(&r, "GET / HTTP/1.1");
	CHECK(!shutdown(raw.fd, SHUT_WR));
	RAW_WAIT_EOF(&r);
	CHECK(strstr(raw.got, "bye"));
	WAIT(s.loop, s.how);
	CHECK_INT(s.how, HTTP_CLOSE_CLEAN);
	raw_close();

	/* Cut instead of ended. */
	s.how = HTTP_OPEN;
	raw_open(&r);
	raw_send(ASK_UPGRADE);
	RAW_WAIT(&r, "\r\n\r\n");
	CHECK(!setsockopt(raw.fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger)));
	raw_close();
	WAIT(s.loop, s.how);
	CHECK_INT(s.how, HTTP_CLOSE_LOST);
	http_server_free(server);
	loop_free(s.loop);
}

static void on_switch_back(struct http_stream *x, void *user)
{
	struct switcher *s = user;
	struct fields f = FIELDS_NULL;

	s->could = http_stream_can_upgrade(x);
	CHECK(!fields_put(&f, ":status", s->could ? "101" : "200"));
	CHECK(!fields_put(&f, "x-path", fields_get(http_stream_head(x), ":path")));
	if (s->could)
		CHECK(!fields_put(&f, "upgrade", "capitals"));
	CHECK(!http_stream_respond(x, &f, true));
	http_stream_release(x);
	fields_fini(&f);
}

/* To HTTP/1.1 itself: requests follow, also those that came with the first one. */
TEST(upgrade_of_a_connection)
{
	struct switcher s = { 0 };
	struct http_server_options o = { .http1 = true, .on_request = on_switch_back, .user = &s };
	struct rig r = { 0 };
	struct http_server *server;

	CHECK(!loop_new(&r.loop));
	o.loop = r.loop;
	o.listen_fd = rig_listen(&r.port);
	CHECK(!http_server_new(&o, &server));
	raw_open(&r);
	raw_send(ASK_UPGRADE "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
	RAW_WAIT(&r, "x-path: /1\r\n");
	CHECK(strstr(raw.got, "HTTP/1.1 101 Switching Protocols\r\n") == raw.got);
	CHECK(strstr(raw.got, "x-path: /ws\r\n") && strstr(raw.got, "connection: Upgrade\r\nupgrade: capitals\r\n"));
	raw_send("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
	RAW_WAIT(&r, "x-path: /2\r\n");
	CHECK(!s.could);
	raw_close();
	http_server_free(server);
	loop_free(r.loop);
}

TEST(upgrade_that_is_none)
{
	static const char *const t[] = {
		"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: capitals\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgraded\r\nUpgrade: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\nx",
	};
	struct switcher s = { 0 };
	struct rig r = { 0 };
	struct http_server *server = switch_server(&s, &r.port);

	r.loop = s.loop;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		raw_open(&r);
		raw_send(t[i]);
		RAW_WAIT(&r, "HTTP/1.1 200 OK\r\n");
		CHECK(!s.could);
		raw_close();
		s.how = HTTP_OPEN;
		WAIT(s.loop, !s.x);
	}
	/* One that could be, and is not agreed to, is an answer like any other: the next one follows. */
	s.refuse = true;
	raw_open(&r);
	raw_send(ASK_UPGRADE ASK_UPGRADE);
	WAIT(r.loop, raw_read() && count(raw.got, "HTTP/1.1 200 OK\r\n") == 2);
	CHECK(s.could && !strstr(raw.got, "pgrade:"));
	raw_close();
	WAIT(s.loop, !s.x);
	http_server_free(server);
	loop_free(s.loop);
}

/* --- the client --- */

static struct rig *fake_server(int *ret_fd)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });

	*ret_fd = rig_listen(&r->port); /* the rig's own server is not asked */
	return r;
}

static void fake_accept(struct rig *r, int fd)
{
	raw.n = 0;
	raw.eof = false;
	raw.fd = -1;
	WAIT(r->loop, fd_accept(fd, &raw.fd) == 0);
}

TEST(answers)
{
	static const struct {
		const char *method, *in;
		bool close;
		enum http_close how;
		unsigned status;
		const char *body;
		bool stays;
	} t[] = {
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, HTTP_CLOSE_CLEAN, 200,
		  "ok", true },
		{ "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false, HTTP_CLOSE_CLEAN, 200,
		  "", true },
		{ "GET", "HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		  false, HTTP_CLOSE_CLEAN, 404, "abc", true },
		{ "GET", "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\n\r\nHTTP/1.1 204 N\r\n\r\n", false,
		  HTTP_CLOSE_CLEAN, 204, "", true },
		{ "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", false,
		  HTTP_CLOSE_CLEAN, 200, "x", false },
		{ "GET", "HTTP/1.0 200 OK\r\n\r\nall of it", true, HTTP_CLOSE_CLEAN, 200, "all of it",
		  false },
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", true, HTTP_CLOSE_LOST, 200,
		  "ok", false },
		{ "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", true,
		  HTTP_CLOSE_LOST, 200, "ab", false },
		{ "GET", "", true, HTTP_CLOSE_LOST, 0, "", false },
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Le", true, HTTP_CLOSE_LOST, 0, "", false },
		{ "GET", "HTTP/1.1 101 Up\r\n\r\n", false, HTTP_CLOSE_RESET, 0, "", false },
		{ "GET", "SSH-2.0-OpenSSH_9\r\n", false, HTTP_CLOSE_RESET, 0, "", false },
		{ "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz", false,
		  HTTP_CLOSE_RESET, 200, "", false },
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n", false,
		  HTTP_CLOSE_CLEAN, 200, "x", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		int fd;
		struct rig *r = fake_server(&fd);
		struct rig_ask a = { .x = NULL };
		struct rig_client k;

		rig_dial(r, &k, false, NULL);
		fake_accept(r, fd);
		CHECK(!rig_ask_fields(&k, &a, t[i].method, "/p", true));
		RAW_WAIT(r, "\r\n\r\n");
		CHECK(strstr(raw.got, " /p HTTP/1.1\r\nhost: localhost\r\n\r\n"));
		raw_send(t[i].in);
		if (t[i].close)
			CHECK(!shutdown(raw.fd, SHUT_WR));
		WAIT(r->loop, a.how);
		CHECK_INT(a.how, t[i].how);
		CHECK_INT(a.status, t[i].status);
		CHECK_INT(a.total, strlen(t[i].body));
		CHECK(!a.total || !memcmp(buf_data(&a.got), t[i].body, a.total));
		rig_ask_end(&a);
		if (t[i].stays) {
			CHECK_INT(http_conn_free_streams(k.c), 1);
			raw_send("what?");
		}
		WAIT(r->loop, k.closed);
		raw_close();
		close(fd);
		rig_free(r);
	}
}

static void release_at_end(struct http_stream *x, void *user)
{
	bool *ended = user;

	if (!http_stream_ended(x))
		return;
	*ended = true;
	http_stream_release(x);
}

/* An owner that lets go as soon as it has seen the whole answer does not cost the connection. */
TEST(released_at_its_end)
{
	struct fields f = FIELDS_NULL;
	struct rig_client k;
	int fd;
	struct rig *r = fake_server(&fd);

	rig_dial(r, &k, false, NULL);
	fake_accept(r, fd);
	CHECK(!fields_put(&f, ":method", "GET") && !fields_put(&f, ":scheme", "http") &&
	      !fields_put(&f, ":authority", "localhost") && !fields_put(&f, ":path", "/p"));
	for (int i = 0; i < 3; i++) {
		bool ended = false;
		struct http_stream *x;

		CHECK(!http_conn_request(k.c, &f, true, release_at_end, &ended, &x));
		RAW_WAIT(r, "\r\n\r\n");
		raw.n = 0;
		raw_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
		WAIT(r->loop, ended);
		CHECK(!k.closed);
		CHECK_INT(http_conn_free_streams(k.c), 1);
	}
	fields_fini(&f);
	raw_close();
	WAIT(r->loop, k.closed);
	close(fd);
	rig_free(r);
}

/* Asks for an upgrade on a connection that somebody else made. */
static void ask_upgrade(struct rig *r, int fd, struct rig_client *k, struct rig_ask *a)
{
	struct http_adopt_options o = { .loop = r->loop, .fd = rig_connect(r->port),
					.closed = rig_client_closed, .user = k };
	struct fields f = FIELDS_NULL;

	*k = (struct rig_client){ 0 };
	CHECK(!http_conn_adopt(&o, &k->c));
	fake_accept(r, fd);
	CHECK(!fields_put(&f, ":method", "GET") && !fields_put(&f, ":scheme", "http") &&
	      !fields_put(&f, ":authority", "localhost") && !fields_put(&f, ":path", "/p") &&
	      !fields_put(&f, "upgrade", "capitals"));
	CHECK(!http_conn_request(k->c, &f, true, rig_answer, a, &a->x));
	fields_fini(&f);
	RAW_WAIT(r, "\r\n\r\n");
	CHECK(strstr(raw.got, "connection: Upgrade\r\nupgrade: capitals\r\n\r\n"));
}

TEST(upgrade_of_a_client)
{
	struct rig_ask a = { .x = NULL };
	struct rig_client k;
	int fd;
	struct rig *r = fake_server(&fd);

	ask_upgrade(r, fd, &k, &a);
	raw_send("HTTP/1.1 101 Up\r\nConnection: upgrade\r\nUpgrade: capitals\r\n\r\nfirst");
	WAIT(r->loop, a.status == 101 && a.total == 5);
	CHECK(!a.ended && !a.how);
	CHECK(!http_stream_write(a.x, "out", 3));
	RAW_WAIT(r, "\r\n\r\nout");
	CHECK(!http_stream_finish(a.x, NULL));
	RAW_WAIT_EOF(r);
	CHECK(!a.how);
	raw_send("last");
	CHECK(!shutdown(raw.fd, SHUT_WR));
	WAIT(r->loop, a.how);
	CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
	CHECK_INT(a.total, 9);
	rig_ask_end(&a);
	WAIT(r->loop, k.closed);
	raw_close();

	/* Not agreed to. */
	ask_upgrade(r, fd, &k, &a);
	raw_send("HTTP/1.1 426 No\r\nContent-Length: 2\r\n\r\nno");
	WAIT(r->loop, a.how);
	CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
	CHECK_INT(a.status, 426);
	rig_ask_end(&a);
	http_conn_close(k.c, "test");
	WAIT(r->loop, k.closed);
	raw_close();

	/* Let go of in the middle. */
	ask_upgrade(r, fd, &k, &a);
	raw_send("HTTP/1.1 101 Up\r\nConnection: upgrade\r\nUpgrade: capitals\r\n\r\n");
	WAIT(r->loop, a.status == 101);
	rig_ask_end(&a);
	WAIT(r->loop, k.closed);
	RAW_WAIT_EOF(r);
	raw_close();
	close(fd);
	rig_free(r);
}

/* The server has enough before we are done. */
TEST(answered_early)
{
	int fd;
	struct rig *r = fake_server(&fd);
	struct rig_ask a = { .x = NULL };
	struct rig_client k;

	rig_dial(r, &k, false, NULL);
	fake_accept(r, fd);
	CHECK(!rig_ask_fields(&k, &a, "POST", "/p", false));
	CHECK(!http_stream_write(a.x, "part", 4));
	RAW_WAIT(r, "part");
	raw_send("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n");
	WAIT(r->loop, a.how);
	CHECK_INT(a.how, HTTP_CLOSE_RESET);
	CHECK_INT(a.code, H2_NO_ERROR);
	CHECK_INT(a.status, 413);
	CHECK(a.ended);
	WAIT(r->loop, k.closed);
	rig_ask_end(&a);
	raw_close();
	close(fd);
	rig_free(r);
}

/* More or less than the promised length is never sent as if it were right. */
TEST(promised_length)
{
	for (int more = 0; more < 2; more++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct fields f = FIELDS_NULL;

		raw_open(r);
		raw_send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
		WAIT(r->loop, r->n_held == 1);
		CHECK(!fields_put(&f, ":status", "200") && !fields_put(&f, "content-length", "4"));
		CHECK(!http_stream_respond(r->held[0]->x, &f, false));
		CHECK(!http_stream_write(r->held[0]->x, "abc", 3));
		if (more)
			CHECK_INT(http_stream_write(r->held[0]->x, "de", 2), -EPIPE);
		else
			CHECK_INT(http_stream_finish(r->held[0]->x, NULL), -EPIPE);
		RAW_WAIT_EOF(r);
		CHECK(!strstr(raw.got, "abcd"));
		raw_close();
		WAIT(r->loop, r->closed == 1 && r->conns_gone == 1);
		fields_fini(&f);
		rig_free(r);
	}
}

TEST_MAIN()
