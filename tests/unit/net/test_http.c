/* SPDX-License-Identifier: MIT */
/* Our client against our server, over real sockets. */
#include "daemon/common/net/http.h"

#include <errno.h>

#include <sys/resource.h>

#include "daemon/common/net/http_impl.h"
#include "proto/base/quota.h"
#include "proto/wire/h2.h"
#include "tests/unit/net/rig.h"

static void echo_once(struct rig *r, struct rig_client *k, const char *text, size_t times)
{
	struct rig_ask a = { .x = NULL };
	size_t n = strlen(text) * times;

	CHECK(!rig_ask_fields(k, &a, "POST", "/echo", false));
	CHECK(!a.closed_ready);
	for (size_t i = 0; i < times; i++)
		CHECK(!http_stream_write(a.x, text, strlen(text)));
	CHECK(!http_stream_finish(a.x, NULL));
	WAIT(r->loop, a.how);
	CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
	CHECK_INT(a.closed_ready, 1);
	CHECK_INT(a.status, 200);
	CHECK(a.ended && http_stream_at_end(a.x) && http_stream_was_sent(a.x));
	CHECK_INT(buf_len(&a.got), n);
	CHECK(!memcmp(buf_data(&a.got), text, strlen(text)));
	rig_ask_end(&a);
}

TEST(echo_both_versions)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_client k;

		rig_dial(r, &k, h2, NULL);
		CHECK(k.c);
		CHECK_INT(http_conn_version(k.c), h2 ? HTTP_VERSION_2 : HTTP_VERSION_1_1);
		for (int i = 0; i < 3; i++) /* one connection, again and again */
			echo_once(r, &k, "hello", 1 + (size_t)i * 1000);
		WAIT(r->loop, r->closed == 3);
		CHECK_INT(r->last_how, HTTP_CLOSE_CLEAN);
		CHECK_INT(r->conns, 1);
		http_conn_close(k.c, "test is over");
		WAIT(r->loop, k.closed && r->conns_gone == 1);
		CHECK_STR(k.why, "test is over");
		rig_free(r);
	}
}

TEST(no_body)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_client k;
		static const struct {
			const char *method, *path;
			unsigned status;
		} t[] = { { "GET", "/none", 204 }, { "HEAD", "/echo", 200 }, { "POST", "/echo", 200 } };

		rig_dial(r, &k, h2, NULL);
		for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
			struct rig_ask a = { .x = NULL };

			CHECK(!rig_ask_fields(&k, &a, t[i].method, t[i].path, true));
			if (!h2) {
				struct rig_ask b = { .x = NULL };

				CHECK_INT(http_conn_free_streams(k.c), 0);
				CHECK_INT(rig_ask_fields(&k, &b, "GET", "/", true), -EAGAIN);
			}
			WAIT(r->loop, a.how);
			CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
			CHECK_INT(a.status, t[i].status);
			CHECK_INT(a.total, 0);
			rig_ask_end(&a);
		}
		http_conn_close(k.c, "");
		WAIT(r->loop, r->conns_gone == 1);
		rig_free(r);
	}
}

TEST(many_streams)
{
	struct rig *r = rig_new((struct http_server_options){ .max_streams = 500 });
	struct rig_client k;
	static struct rig_ask a[400];

	rig_dial(r, &k, true, NULL);
	WAIT(r->loop, http_conn_free_streams(k.c) == 500);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		a[i] = (struct rig_ask){ .x = NULL };
		CHECK(!rig_ask_fields(&k, &a[i], "POST", "/echo", false));
		CHECK(!http_stream_write(a[i].x, &i, sizeof(i)));
		CHECK(!http_stream_finish(a[i].x, NULL));
	}
	CHECK_INT(http_conn_open_count(k.c), 400);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		WAIT(r->loop, a[i].how);
		CHECK_INT(a[i].how, HTTP_CLOSE_CLEAN);
		CHECK(!memcmp(buf_data(&a[i].got), &i, sizeof(i)));
		rig_ask_end(&a[i]);
	}
	CHECK_INT(http_conn_open_count(k.c), 0);
	http_conn_close(k.c, "");
	WAIT(r->loop, r->conns_gone == 1);
	rig_free(r);
}

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

static size_t rss_bytes(void)
{
#ifdef __SANITIZE_ADDRESS__
	return 0; /* it keeps what was freed */
#endif
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long size, rss;

	CHECK(f && fscanf(f, "%lu %lu", &size, &rss) == 2);
	fclose(f);
	return rss * 4096;
}

/* 64 MiB offered to a reader that does not read: what is held stays small, and then all arrives. */
TEST(slow_reader)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_ask a = { .dont_read = true };
		struct rig_client k;
		size_t before;

		rig_dial(r, &k, h2, NULL);
		before = rss_bytes();
		CHECK(!rig_ask_fields(&k, &a, "GET", "/big", true));
		WAIT(r->loop, http_stream_buffered(a.x) >= 200000);
		for (int i = 0; i < 200; i++)
			CHECK(!loop_once(r->loop, 0));
		CHECK(http_stream_buffered(a.x) < 1u << 20);
		CHECK(rss_bytes() < before + (16u << 20));
		a.dont_read = false;
		rig_answer(a.x, &a);
		WAIT(r->loop, a.how);
		CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
		CHECK_INT(a.total, 64u << 20);
		CHECK(rss_bytes() < before + (16u << 20));
		rig_ask_end(&a);
		http_conn_close(k.c, "");
		WAIT(r->loop, r->conns_gone == 1);
		rig_free(r);
	}
}

/* A server that does not read holds the client's writer back. */
TEST(slow_server)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_ask a = { .x = NULL };
		struct rig_client k;
		static char zeros[65536];
		size_t sent = 0, idle = 0;

		rig_dial(r, &k, h2, NULL);
		CHECK(!rig_ask_fields(&k, &a, "POST", "/hold", false));
		while (idle < 50) {
			size_t n = MIN(http_stream_room(a.x), sizeof(zeros));

			if (n)
				CHECK(!http_stream_write(a.x, zeros, n));
			sent += n;
			idle = n ? 0 : idle + 1;
			CHECK(!loop_once(r->loop, 0));
		}
		CHECK(sent < 24u << 20); /* buffers of the kernel and ours, not all we have */
		CHECK_INT(r->n_held, 1);
		r->held[0]->hold = false;
		CHECK(!http_stream_respond(r->held[0]->x, rig_head("200"), false));
		rig_ready(r->held[0]->x, r->held[0]);
		CHECK(!http_stream_finish(a.x, NULL));
		WAIT(r->loop, a.how);
		CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
		CHECK_INT(a.total, sent);
		rig_ask_end(&a);
		http_conn_close(k.c, "");
		WAIT(r->loop, r->conns_gone == 1);
		rig_free(r);
	}
}

/* The connection dies with exchanges open: each hears of it once, what was received stays. */
TEST(connection_death)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		size_t n = h2 ? 50 : 1;
		struct rig_ask a[50];
		struct rig_client k;
		const uint8_t *p;

		rig_dial(r, &k, h2, NULL);
		for (size_t i = 0; i < n; i++) {
			a[i] = (struct rig_ask){ .dont_read = true };
			CHECK(!rig_ask_fields(&k, &a[i], "POST", "/hold", false));
		}
		WAIT(r->loop, r->n_held == n);
		for (size_t i = 0; i < n; i++) {
			CHECK(!http_stream_respond(r->held[i]->x, rig_head("200"), false));
			CHECK(!http_stream_write(r->held[i]->x, "part", 4));
		}
		for (size_t i = 0; i < n; i++)
			WAIT(r->loop, http_stream_peek(a[i].x, &p) == 4);
		http_conn_close(http_stream_conn(r->held[0]->x), "cut by the test");
		CHECK_INT(r->closed, 0); /* never from inside */
		WAIT(r->loop, k.closed && r->conns_gone == 1);
		CHECK_INT(r->closed, n);
		CHECK_STR(r->gone_why, "cut by the test");
		CHECK_INT(r->last_how, HTTP_CLOSE_LOST);
		for (size_t i = 0; i < n; i++) {
			CHECK_INT(a[i].closed_ready, 1);
			CHECK_INT(a[i].how, HTTP_CLOSE_LOST);
			CHECK(!http_stream_conn(a[i].x));
			CHECK_INT(http_stream_peek(a[i].x, &p), 4);
			CHECK(!memcmp(p, "part", 4));
			CHECK_INT(http_stream_write(a[i].x, "x", 1), -EPIPE);
			rig_ask_end(&a[i]);
		}
		rig_free(r);
	}
}

TEST(resets)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_ask a = { .x = NULL };
		struct rig_client k;

		rig_dial(r, &k, h2, NULL);
		CHECK(!rig_ask_fields(&k, &a, "POST", "/hold", false));
		WAIT(r->loop, r->n_held == 1);
		http_stream_reset(r->held[0]->x, H2_ENHANCE_YOUR_CALM);
		CHECK_INT(r->closed, 0);
		WAIT(r->loop, a.how && r->closed == 1);
		CHECK_INT(r->last_how, HTTP_CLOSE_LOCAL);
		CHECK_INT(a.how, h2 ? HTTP_CLOSE_RESET : HTTP_CLOSE_LOST);
		if (h2)
			CHECK_INT(a.code, H2_ENHANCE_YOUR_CALM);
		rig_ask_end(&a);
		if (!h2)
			WAIT(r->loop, k.closed);
		/* a client that gives up */
		if (!k.c)
			rig_dial(r, &k, h2, NULL);
		CHECK(!rig_ask_fields(&k, &a, "POST", "/hold", false));
		WAIT(r->loop, r->n_held == 2);
		http_stream_release(a.x);
		WAIT(r->loop, r->closed == 2);
		CHECK_INT(r->last_how, h2 ? HTTP_CLOSE_RESET : HTTP_CLOSE_LOST);
		if (k.c)
			http_conn_close(k.c, "");
		WAIT(r->loop, k.closed && r->conns_gone == r->conns);
		rig_free(r);
	}
}

TEST(drain)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_ask a = { .x = NULL }, b = { .x = NULL };
		struct rig_client k, idle;

		rig_dial(r, &k, h2, NULL);
		rig_dial(r, &idle, true, NULL);
		CHECK(!rig_ask_fields(&k, &a, "POST", "/hold", false));
		WAIT(r->loop, r->n_held == 1 && r->conns == 2);
		WAIT(r->loop, http_conn_free_streams(idle.c) == 100);
		http_server_drain(r->server);
		WAIT(r->loop, idle.closed);
		if (h2) {
			uint32_t code = 99;

			WAIT(r->loop, http_conn_goaway(k.c, &code));
			CHECK_INT(code, 0);
			CHECK_INT(http_conn_free_streams(k.c), 0);
			CHECK(k.changes > 0);
			CHECK_INT(rig_ask_fields(&k, &b, "GET", "/", true), -EAGAIN);
		}
		CHECK(!k.closed && !a.how);
		r->held[0]->hold = false;
		CHECK(!http_stream_respond(r->held[0]->x, rig_head("200"), false));
		CHECK(!http_stream_write(a.x, "still here", 10) && !http_stream_finish(a.x, NULL));
		WAIT(r->loop, a.how);
		CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
		CHECK_INT(buf_len(&a.got), 10);
		WAIT(r->loop, k.closed && http_server_conns(r->server) == 0);
		CHECK_INT(r->conns_gone, 2);
		rig_ask_end(&a);
		rig_free(r);
	}
}

TEST(ping)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	struct rig_client k, old;
	uint64_t read_ms;

	rig_dial(r, &k, true, NULL);
	rig_dial(r, &old, false, NULL);
	CHECK(!http_conn_ping(k.c));
	CHECK_INT(http_conn_ping(old.c), -EOPNOTSUPP);
	WAIT(r->loop, http_conn_pings_acked(k.c) == 1);
	read_ms = http_conn_last_read_ms(k.c);
	CHECK(read_ms && read_ms <= clock_boot_ms());
	WAIT(r->loop, k.changes > 0);
	http_conn_close(k.c, "");
	http_conn_close(old.c, "");
	WAIT(r->loop, r->conns_gone == r->conns && k.closed && old.closed);
	rig_free(r);
}

/* Everything is freed while in use: the owners' ends still work. */
TEST(server_freed_under_exchanges)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_ask a = { .x = NULL };
		struct rig_client k;

		rig_dial(r, &k, h2, NULL);
		CHECK(!rig_ask_fields(&k, &a, "POST", "/hold", false));
		WAIT(r->loop, r->n_held == 1);
		r->server = http_server_free(r->server);
		CHECK_INT(http_stream_closed(r->held[0]->x, NULL), HTTP_CLOSE_LOST);
		CHECK_INT(http_stream_respond(r->held[0]->x, rig_head("200"), true), -EPIPE);
		http_stream_release(r->held[0]->x);
		free(r->held[0]);
		WAIT(r->loop, k.closed && a.how);
		CHECK_INT(r->conns_gone, 0);
		rig_ask_end(&a);
		rig_free(r);
	}
}

/* An answer before the request's end, and an owner that left it to the connection: a server that is freed then keeps nothing. */
TEST(server_freed_after_an_early_answer)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct quota *q = quota_new(&(struct quota_options){ .name = "a server" });
		struct rig *r = rig_new((struct http_server_options){ .quota = q });
		struct rig_ask a = { .x = NULL };
		struct rig_client k;

		rig_dial(r, &k, h2, NULL);
		CHECK(!rig_ask_fields(&k, &a, "POST", "/hold", false));
		WAIT(r->loop, r->n_held == 1);
		CHECK(!http_stream_respond(r->held[0]->x, rig_head("400"), true));
		http_stream_detach(r->held[0]->x);
		free(r->held[0]);
		WAIT(r->loop, a.ended);
		r->server = http_server_free(r->server);
		WAIT(r->loop, k.closed && a.how);
		WAIT(r->loop, quota_is_idle(q));
		rig_ask_end(&a);
		rig_free(r);
		quota_unref(q);
	}
}

TEST(max_conns)
{
	struct rig *r = rig_new((struct http_server_options){ .max_conns = 2 });
	struct rig_client k[3];

	for (size_t i = 0; i < 2; i++) {
		rig_dial(r, &k[i], true, NULL);
		WAIT(r->loop, r->conns == i + 1);
	}
	rig_dial(r, &k[2], true, NULL);
	WAIT(r->loop, k[2].closed);
	CHECK_INT(r->conns, 2);
	http_conn_close(k[0].c, "");
	http_conn_close(k[1].c, "");
	WAIT(r->loop, r->conns_gone == 2 && k[0].closed && k[1].closed);
	rig_free(r);
}

TEST(idle_connections_end)
{
	struct rig *r = rig_new((struct http_server_options){ .idle_ms = 30 });
	struct rig_client k, old;

	rig_dial(r, &k, true, NULL);
	rig_dial(r, &old, false, NULL);
	echo_once(r, &old, "x", 1);
	WAIT(r->loop, k.closed && old.closed && r->conns_gone == 2);
	rig_free(r);
}

/* A peer that takes nothing for long is given up. */
TEST(write_stall)
{
	struct rig *r = rig_new((struct http_server_options){ .http1 = true });
	struct http_conn *c;
	int fd = rig_connect(r->port);

	r->hold = true;
	CHECK_INT(send(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, 0), 27);
	WAIT(r->loop, r->n_held == 1);
	c = http_stream_conn(r->held[0]->x);
	r->held[0]->hold = false;
	r->held[0]->to_send = 256u << 20;
	CHECK(!http_stream_respond(r->held[0]->x, rig_head("200"), false));
	rig_ready(r->held[0]->x, r->held[0]);
	WAIT(r->loop, c->stalled_since_ms);
	c->stalled_since_ms -= HTTP_STALL_MS; /* as if that long had passed */
	conn_arm(c);
	WAIT(r->loop, r->conns_gone == 1);
	CHECK_STR(r->gone_why, "the peer reads nothing");
	CHECK_INT(r->closed, 1);
	close(fd);
	rig_free(r);
}

/* G-05, G-13: what the engine waits for has an end. */
TEST(what_the_peer_owes)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
	static const char ack[] = "\0\0\0\4\1\0\0\0\0", block[] = "\0\0\1\1\1\0\0\0\1\x83";

	for (int i = 0; i < 2; i++) {
		struct rig *r = rig_new((struct http_server_options){ .http2 = true });
		int fd = rig_connect(r->port);
		struct http_conn *c;

		CHECK_INT(send(fd, preface, 33, 0), 33);
		CHECK_INT(send(fd, ack, i ? 9 : 0, 0), i ? 9 : 0);
		CHECK_INT(send(fd, block, i ? 10 : 0, 0), i ? 10 : 0);
		WAIT(r->loop, r->last_conn && r->last_conn->ops &&
			      h2_due_ms(r->last_conn->engine) && !r->last_conn->handshake_by_ms);
		c = r->last_conn;
		if (i)
			WAIT(r->loop, h2_due_ms(c->engine) < clock_boot_ms() + H2_BLOCK_MS + 1);
		c->ops->expire(c, clock_boot_ms() + H2_SETTINGS_ACK_MS);
		conn_touch(c);
		WAIT(r->loop, r->conns_gone == 1);
		CHECK(strstr(r->gone_why, i ? "header block" : "SETTINGS"));
		close(fd);
		rig_free(r);
	}
}

static int refuse_conn(struct http_conn *c, void *user, void **ret_user)
{
	CHECK(http_conn_fd(c) >= 0 && str_starts(http_conn_peer(c), "127.0.0.1:"));
	CHECK_INT(http_conn_version(c), 0);
	(*(unsigned *)user)++;
	return -EACCES;
}

TEST(refused_by_owner)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	unsigned refused = 0;
	struct http_server_options o = { .loop = r->loop, .http1 = true, .http2 = true,
					 .on_conn = refuse_conn, .user = &refused };
	uint16_t port;
	struct http_server *s;
	char b[16];
	int fd;

	o.listen_fd = rig_listen(&port);
	CHECK(!http_server_new(&o, &s));
	fd = rig_connect(port);
	WAIT(r->loop, refused == 1);
	CHECK_INT(http_server_conns(s), 0);
	CHECK_INT(recv(fd, b, sizeof(b), 0), 0);
	close(fd);
	http_server_free(s);
	rig_free(r);
}

/* Out of descriptors: one client is turned away, the rest wait, and then are served. */
TEST(out_of_descriptors)
{
	struct rig *r = rig_new((struct http_server_options){ .http1 = true });
	struct rlimit was, now;
	int fd[4];
	char b[512];

	for (size_t i = 0; i < ARRAY_SIZE(fd); i++) {
		fd[i] = rig_connect(r->port);
		CHECK_INT(send(fd[i], "GET /none HTTP/1.1\r\nHost: a\r\n\r\n", 31, 0), 31);
	}
	CHECK(!getrlimit(RLIMIT_NOFILE, &was));
	now = was;
	now.rlim_cur = (rlim_t)fd[3] + 2; /* one more */
	CHECK(!setrlimit(RLIMIT_NOFILE, &now));
	WAIT(r->loop, r->requests == 1);
	CHECK(!loop_once(r->loop, 0));
	CHECK_INT(r->conns, 1);
	CHECK(!setrlimit(RLIMIT_NOFILE, &was));
	WAIT(r->loop, r->requests == 3); /* the second was the one turned away */
	CHECK(recv(fd[1], b, sizeof(b), 0) < 0 && errno == ECONNRESET); /* it had said something */
	CHECK(recv(fd[3], b, sizeof(b), 0) > 0);
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		close(fd[i]);
	WAIT(r->loop, r->conns_gone == 3);
	rig_free(r);
}

TEST(head_and_204_have_no_body)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		static const char *const status[] = { "200", "204", "304" };
		struct rig_client k;

		rig_dial(r, &k, h2, NULL);
		for (unsigned i = 0; i < ARRAY_SIZE(status); i++) {
			struct rig_ask a = { .x = NULL };
			struct http_stream *x;

			CHECK(!rig_ask_fields(&k, &a, i ? "GET" : "HEAD", "/hold", true));
			WAIT(r->loop, r->n_held == i + 1);
			x = r->held[i]->x;
			CHECK(!http_stream_respond(x, rig_head(status[i]), false));
			CHECK(http_stream_room(x));
			CHECK(!http_stream_write(x, "nothing", 7));
			CHECK(!http_stream_finish(x, NULL));
			CHECK_INT(http_stream_finish(x, NULL), -EPIPE);
			WAIT(r->loop, a.how);
			CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
			CHECK_INT(a.total, 0);
			rig_ask_end(&a);
			WAIT(r->loop, r->closed == i + 1);
		}
		http_conn_close(k.c, "");
		WAIT(r->loop, r->conns_gone == 1);
		rig_free(r);
	}
}

TEST_MAIN()
