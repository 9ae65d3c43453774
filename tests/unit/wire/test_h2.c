/* SPDX-License-Identifier: MIT */
/* Both roles of the engine against each other through arrays, and against raw hostile frames. */
#include "proto/wire/h2.h"

#include <errno.h>

#include "proto/base/buf.h"
#include "proto/base/quota.h"
#include "proto/base/rng.h"
#include "tests/lib/test.h"

static uint64_t now_ms = 1000;

struct link {
	struct h2 *client, *server;
	size_t slice;		/* bytes moved at once */
};

static void move(struct h2 *from, struct h2 *to, size_t slice)
{
	const uint8_t *p;
	size_t n;

	while (h2_output(from, &p, &n) == 0 && n) {
		size_t k = slice && slice < n ? slice : n;

		if (!h2_is_dead(to))
			(void)!h2_feed(to, p, k, now_ms);
		h2_sent(from, k);
	}
}

static void run(struct link *l)
{
	for (int i = 0; i < 4; i++) {
		move(l->client, l->server, l->slice);
		move(l->server, l->client, l->slice);
	}
}

static void link_up(struct link *l, struct h2_options server, size_t slice)
{
	struct h2_options client = { .stream_window = server.stream_window };

	server.server = true;
	l->slice = slice;
	CHECK_INT(h2_new(&client, 1000, &l->client), 0);
	CHECK_INT(h2_new(&server, 1000, &l->server), 0);
	run(l);
	CHECK(h2_settings_received(l->client) && h2_settings_received(l->server));
}

static void link_down(struct link *l)
{
	h2_free(l->client);
	h2_free(l->server);
}

static struct h2_stream *ask(struct link *l, bool end)
{
	struct fields f = FIELDS_NULL;
	struct h2_stream *s;

	CHECK_INT(fields_put(&f, ":method", "POST"), 0);
	CHECK_INT(fields_put(&f, ":scheme", "http"), 0);
	CHECK_INT(fields_put(&f, ":authority", "localhost"), 0);
	CHECK_INT(fields_put(&f, ":path", "/x"), 0);
	CHECK_INT(fields_put_secret(&f, "x-key", "k"), 0);
	CHECK_INT(h2_request(l->client, &f, end, NULL, &s), 0);
	fields_fini(&f);
	return s;
}

static void answer(struct h2_stream *s, bool end)
{
	struct fields f = FIELDS_NULL;

	CHECK_INT(fields_put(&f, ":status", "200"), 0);
	CHECK_INT(h2_respond(s, &f, end), 0);
	fields_fini(&f);
}

static struct h2_stream *accept_one(struct link *l)
{
	struct h2_stream *s;

	run(l);
	s = h2_next_ready(l->server);
	CHECK(s);
	CHECK(h2_stream_take_ready(s) & H2_READY_HEAD);
	return s;
}

/* The server says n bytes on each of its streams, as far as it may; what the client has of it by then. */
static size_t say_much(struct link *l, struct h2_stream *const *cs, struct h2_stream *const *ss, size_t n)
{
	static const uint8_t block[4096];
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		for (unsigned k = 0; k < 64; k++)
			CHECK_INT(h2_stream_write(ss[i], block, sizeof(block)), 0);
	for (int i = 0; i < 8; i++)
		run(l);
	for (size_t i = 0; i < n; i++)
		sum += h2_stream_buffered(cs[i]);
	return sum;
}

static struct quota *quota_of(uint64_t max, bool soft, struct quota *parent)
{
	struct quota *q = quota_new(&(struct quota_options){ .name = "t", .max = max, .soft = soft, .parent = parent });

	CHECK(q);
	return q;
}

TEST(a_quota_for_what_nobody_reads)
{
	enum { N = 40 };
	struct quota *all = quota_of(4 << 20, false, NULL);
	struct h2_options client = { .stream_window = 1 << 20, .quota = quota_of(0, true, all) };
	struct h2_options server = { .server = true, .send_max = 1 << 20 };
	struct h2_stream *cs[N], *ss[N];
	struct link l = { 0 };
	uint64_t idle, before;
	const uint8_t *p;
	size_t n, taken = 0;

	CHECK_INT(h2_new(&client, 1000, &l.client), 0);
	CHECK_INT(h2_new(&server, 1000, &l.server), 0);
	run(&l);
	idle = quota_used(all);
	CHECK(idle > 16384 && idle < 65536);	/* nghttp2's own */
	for (int i = 0; i < N; i++) {
		cs[i] = ask(&l, true);
		ss[i] = accept_one(&l);
		answer(ss[i], false);
	}
	run(&l);
	before = quota_used(all);
	CHECK_INT(say_much(&l, cs, ss, N), N * H2_FIRST_WINDOW);	/* and not a byte more */
	CHECK(quota_used(all) >= before + N * H2_FIRST_WINDOW);
	CHECK_INT(quota_promised(all), 0);

	for (int i = 0; i < 200 && taken < 256 * 1024; i++) {	/* one who reads gets all there is, and more room */
		n = h2_stream_peek(cs[0], &p);
		taken += n;
		h2_stream_consume(cs[0], n);
		run(&l);
	}
	CHECK_INT(taken, 256 * 1024);
	CHECK_INT(quota_promised(all), 3 * H2_FIRST_WINDOW);	/* one step: the next would leave too little for others */

	for (int i = 1; i < N; i++)	/* all the others read as well: it stays below its bound */
		for (int k = 0; k < 64; k++) {
			h2_stream_consume(cs[i], h2_stream_buffered(cs[i]));
			run(&l);
		}
	CHECK(quota_promised(all) > 3 * H2_FIRST_WINDOW && quota_promised(all) + quota_used(all) <= 4 << 20);
	for (int i = 1; i < N; i++)
		h2_stream_release(cs[i]);
	h2_stream_release(ss[1]);
	run(&l);
	CHECK_INT(quota_promised(all), 3 * H2_FIRST_WINDOW);
	link_down(&l);
	CHECK(quota_used(all) == 0 && quota_promised(all) == 0);
	quota_unref(client.quota);
	quota_unref(all);
}

/* Who reads slowly needs no more room than the least. */
TEST(windows_do_not_grow_for_slow_readers)
{
	struct h2_options client = { .stream_window = 1 << 20, .quota = quota_of(64 << 20, true, NULL) };
	struct h2_options server = { .server = true, .send_max = 1 << 20 };
	struct h2_stream *c, *s;
	struct link l = { 0 };

	CHECK_INT(h2_new(&client, 1000, &l.client), 0);
	CHECK_INT(h2_new(&server, 1000, &l.server), 0);
	run(&l);
	c = ask(&l, true);
	s = accept_one(&l);
	answer(s, false);
	(void)say_much(&l, &c, &s, 1);
	for (int i = 0; i < 20; i++) {
		now_ms += 2000;
		CHECK_INT(h2_ping(l.server), 0);
		run(&l);
		h2_stream_consume(c, MIN(h2_stream_buffered(c), (size_t)8192));
		run(&l);
	}
	now_ms = 1000;
	CHECK_INT(quota_promised(client.quota), 0);
	link_down(&l);
	quota_unref(client.quota);
}

/* The server says n bytes on one stream, which the peer's window may hold back. */
static void fill(struct link *l, struct h2_stream *s, size_t n)
{
	static const uint8_t block[65536];

	for (size_t at = 0; at < n; at += sizeof(block))
		CHECK_INT(h2_stream_write(s, block, sizeof(block)), 0);
	for (int i = 0; i < 32; i++)
		run(l);
}

/* A peer that is 20 ms away hears of a quarter of a megabyte, not only of half of a large window. */
TEST(credit_goes_back_in_pieces)
{
	struct h2_options client = { .stream_window = 4 << 20 };
	struct h2_options server = { .server = true, .send_max = 8 << 20 };
	struct h2_stream *c, *s;
	struct link l = { 0 };

	CHECK_INT(h2_new(&client, 1000, &l.client), 0);
	CHECK_INT(h2_new(&server, 1000, &l.server), 0);
	run(&l);
	c = ask(&l, true);
	s = accept_one(&l);
	answer(s, false);
	fill(&l, s, 6 << 20);
	CHECK_INT(h2_stream_buffered(c), 4 << 20);
	h2_stream_consume(c, (256 << 10) - 1);
	fill(&l, s, 0);
	CHECK_INT(h2_stream_buffered(c), (4 << 20) - (256 << 10) + 1);
	h2_stream_consume(c, 1);
	fill(&l, s, 0);
	CHECK_INT(h2_stream_buffered(c), 4 << 20);
	link_down(&l);
}

/* Four times the window at once would be more than a part of what is spare; a megabyte is not. */
TEST(a_large_window_grows_by_a_megabyte)
{
	struct h2_options client = { .stream_window = 4 << 20, .quota = quota_of(64 << 20, true, NULL) };
	struct h2_options server = { .server = true, .send_max = 8 << 20 };
	struct h2_stream *c, *s;
	struct link l = { 0 };

	CHECK_INT(h2_new(&client, 1000, &l.client), 0);
	CHECK_INT(h2_new(&server, 1000, &l.server), 0);
	run(&l);
	c = ask(&l, true);
	s = accept_one(&l);
	answer(s, false);
	fill(&l, s, 8 << 20);
	for (int i = 0; i < 400; i++) {
		h2_stream_consume(c, h2_stream_buffered(c));
		run(&l);
	}
	CHECK_INT(quota_promised(client.quota), (4 << 20) - H2_FIRST_WINDOW);
	link_down(&l);
	quota_unref(client.quota);
}

/* What a client sends before it has seen our SETTINGS goes by another window than ours, which both count from later. */
TEST(an_upload_that_begins_before_the_settings)
{
	struct h2_options server = { .server = true, .stream_window = 1 << 20, .quota = quota_of(64 << 20, false, NULL) };
	struct h2_options client = { .send_max = 2 << 20 };
	struct h2_stream *c, *s;
	struct link l = { 0 };
	size_t n, sum = 0;
	const uint8_t *p;

	CHECK_INT(h2_new(&client, 1000, &l.client), 0);
	CHECK_INT(h2_new(&server, 1000, &l.server), 0);
	c = ask(&l, false);
	for (int i = 0; i < 16; i++) {
		static const uint8_t block[65536];

		CHECK_INT(h2_stream_write(c, block, sizeof(block)), 0);
	}
	move(l.client, l.server, 0);
	s = h2_next_ready(l.server);
	CHECK(s);
	for (int i = 0; i < 400 && sum < 1 << 20; i++, sum += n) {
		n = h2_stream_peek(s, &p);
		h2_stream_consume(s, n);
		run(&l);
	}
	CHECK_INT(sum, 1 << 20);
	link_down(&l);
	quota_unref(server.quota);
}

static void exchange_in_slices(size_t slice)
{
	struct link l;
	struct h2_stream *c, *s;
	struct fields t = FIELDS_NULL;
	const uint8_t *p;
	uint32_t code;

	link_up(&l, (struct h2_options){ 0 }, slice);
	c = ask(&l, false);
	CHECK_INT(h2_stream_write(c, "hello", 5), 0);
	CHECK_INT(h2_stream_finish(c, NULL), 0);
	s = accept_one(&l);
	CHECK_STR(fields_get(h2_stream_head(s), "x-key"), "k");
	CHECK_INT(h2_stream_peek(s, &p), 5);
	CHECK(!memcmp(p, "hello", 5));
	h2_stream_consume(s, 5);
	CHECK(h2_stream_at_end(s));
	answer(s, false);
	CHECK_INT(h2_stream_write(s, "bye", 3), 0);
	CHECK_INT(fields_put(&t, "grpc-status", "0"), 0);
	CHECK_INT(h2_stream_finish(s, &t), 0);
	run(&l);
	CHECK(h2_next_ready(l.client) == c);
	CHECK((h2_stream_take_ready(c) &
	       (H2_READY_HEAD | H2_READY_DATA | H2_READY_END | H2_READY_CLOSED)) ==
	      (H2_READY_HEAD | H2_READY_DATA | H2_READY_END | H2_READY_CLOSED));
	CHECK_STR(fields_get(h2_stream_trailers(c), "grpc-status"), "0");
	CHECK_INT(h2_stream_peek(c, &p), 3);
	CHECK_INT(h2_stream_closed(c, &code), H2_CLOSE_CLEAN);
	CHECK_INT(h2_stream_closed(s, &code), H2_CLOSE_CLEAN);
	h2_stream_release(c);
	h2_stream_release(s);
	CHECK_INT(h2_open_streams(l.client), 0);
	fields_fini(&t);
	link_down(&l);
}

TEST(an_exchange_with_trailers_however_it_is_cut)
{
	exchange_in_slices(0);
	exchange_in_slices(1);
	exchange_in_slices(7);
}

TEST(a_reader_that_stalls_bounds_memory_and_does_not_starve_others)
{
	struct link l;
	struct h2_stream *slow, *fast, *s_slow, *s_fast;
	static uint8_t block[65536];
	const uint8_t *p;
	size_t got = 0, sent = 0;

	link_up(&l, (struct h2_options){ .stream_window = 128 * 1024 }, 0);
	slow = ask(&l, false);
	s_slow = accept_one(&l);
	while (sent < 4u << 20 && h2_stream_room(slow)) {
		CHECK_INT(h2_stream_write(slow, block, sizeof(block)), 0);
		sent += sizeof(block);
		run(&l);
	}
	CHECK(sent < 1u << 20); /* window + send_max */
	CHECK(h2_stream_buffered(s_slow) <= 128 * 1024);
	fast = ask(&l, false);
	run(&l);
	do {
		s_fast = h2_next_ready(l.server);
		CHECK(s_fast);
	} while (!(h2_stream_take_ready(s_fast) & H2_READY_HEAD));
	for (int i = 0; i < 200; i++) {
		CHECK(h2_stream_room(fast));
		CHECK_INT(h2_stream_write(fast, block, sizeof(block)), 0);
		for (int k = 0; k < 4; k++) {
			size_t n = (run(&l), h2_stream_peek(s_fast, &p));

			h2_stream_consume(s_fast, n);
			got += n;
		}
	}
	CHECK_INT(got, 200u * sizeof(block));
	/* The slow one goes on where it stopped. */
	h2_stream_consume(s_slow, h2_stream_buffered(s_slow));
	run(&l);
	CHECK(h2_stream_buffered(s_slow) > 0);
	while (h2_next_ready(l.client) != slow)
		;
	CHECK(h2_stream_take_ready(slow) & H2_READY_ROOM);
	h2_stream_release(slow);
	h2_stream_release(fast);
	run(&l);
	CHECK_INT(h2_stream_closed(s_slow, NULL), H2_CLOSE_RESET);
	h2_stream_release(s_slow);
	h2_stream_release(s_fast);
	link_down(&l);
}

TEST(goaway_tells_what_was_not_processed)
{
	struct link l;
	struct h2_stream *first, *s, *late;
	uint32_t code;

	link_up(&l, (struct h2_options){ 0 }, 0);
	first = ask(&l, true);
	s = accept_one(&l);
	h2_goaway(l.server, H2_NO_ERROR);
	h2_goaway(l.server, H2_NO_ERROR);
	late = ask(&l, true);		/* crosses the GOAWAY on the wire */
	run(&l);
	CHECK(h2_goaway_seen(l.client, &code));
	CHECK_INT(h2_free_streams(l.client), 0);
	CHECK_INT(h2_stream_closed(late, NULL), H2_CLOSE_REFUSED);
	CHECK_INT(h2_stream_closed(first, NULL), H2_OPEN);
	answer(s, true);
	run(&l);
	CHECK_INT(h2_stream_closed(first, NULL), H2_CLOSE_CLEAN);
	CHECK(h2_is_dead(l.client));
	h2_stream_release(first);
	h2_stream_release(late);
	h2_stream_release(s);
	link_down(&l);
}

TEST(a_dead_connection_finishes_every_stream_once)
{
	struct link l;
	struct h2_stream *c[50], *s;
	int closed = 0;

	link_up(&l, (struct h2_options){ 0 }, 0);
	for (size_t i = 0; i < ARRAY_SIZE(c); i++)
		c[i] = ask(&l, i % 2);
	run(&l);
	h2_stream_release(c[7]);
	h2_lost(l.client);
	CHECK_INT(h2_feed(l.client, "x", 1, 1), -EPROTO);
	while ((s = h2_next_ready(l.client))) {
		CHECK(h2_stream_take_ready(s) & H2_READY_CLOSED);
		CHECK_INT(h2_stream_closed(s, NULL), H2_CLOSE_LOST);
		h2_stream_release(s);
		closed++;
	}
	CHECK_INT(closed, 49);
	CHECK_INT(h2_open_streams(l.client), 0);
	link_down(&l);
}

TEST(a_request_that_never_left_may_be_sent_again)
{
	struct link l;
	struct h2_stream *c;

	link_up(&l, (struct h2_options){ 0 }, 0);
	c = ask(&l, true);
	h2_lost(l.client);
	CHECK_INT(h2_stream_closed(c, NULL), H2_CLOSE_REFUSED);
	CHECK(!h2_stream_was_sent(c));
	h2_stream_release(c);
	link_down(&l);
}

TEST(the_peers_stream_limit_is_respected)
{
	struct link l;
	struct h2_stream *c[3];
	struct fields f = FIELDS_NULL;
	struct h2_stream *more;

	link_up(&l, (struct h2_options){ .max_streams = 3 }, 0);
	CHECK_INT(h2_free_streams(l.client), 3);
	for (int i = 0; i < 3; i++)
		c[i] = ask(&l, true);
	CHECK_INT(h2_request(l.client, &f, true, NULL, &more), -EAGAIN);
	for (int i = 0; i < 3; i++)
		h2_stream_release(c[i]);
	link_down(&l);
}

/* --- raw clients --- */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static void frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t id, const void *p, size_t n)
{
	uint8_t h[9] = { (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, type, flags,
			 (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id };

	CHECK_INT(buf_put(b, h, 9), 0);
	CHECK_INT(buf_put(b, p, n), 0);
}

/* :method POST, :scheme http, :path /, then a literal :authority */
static size_t head_block(uint8_t out[128], const char *authority)
{
	size_t n = 0;

	out[n++] = 0x83;
	out[n++] = 0x86;
	out[n++] = 0x84;
	if (authority) {
		out[n++] = 0x01;
		out[n++] = (uint8_t)strlen(authority);
		memcpy(out + n, authority, strlen(authority));
		n += strlen(authority);
	}
	return n;
}

/* "x-long", with a value of 1,100 bytes. */
static size_t long_field(uint8_t *out)
{
	static const uint8_t head[] = { 0x00, 6, 'x', '-', 'l', 'o', 'n', 'g', 0x7f, 0xcd, 0x07 };

	memcpy(out, head, sizeof(head));
	memset(out + sizeof(head), 'v', 1100);
	return sizeof(head) + 1100;
}

static struct h2 *raw_server_of(bool any_authority, struct quota *q, struct buf *b)
{
	struct h2 *h;

	CHECK_INT(h2_new(&(struct h2_options){ .server = true, .any_authority = any_authority, .quota = q,
					       .max_streams = 2000, .glitch_burst = 1000 }, 1000, &h), 0);
	buf_init(b, 0);
	CHECK_INT(buf_put(b, preface, 24), 0);
	frame(b, 4, 0, 0, NULL, 0);
	return h;
}

static struct h2 *raw_server(bool any_authority, struct buf *b)
{
	return raw_server_of(any_authority, NULL, b);
}

static int feed_all(struct h2 *h, struct buf *b)
{
	int r = h2_feed(h, buf_data(b), buf_len(b), 1000);
	const uint8_t *p;
	size_t n;

	buf_drop(b, buf_len(b));
	while (h2_output(h, &p, &n) == 0 && n)
		h2_sent(h, n);
	return r;
}

TEST(any_authority_is_accepted_where_it_was_asked_for)
{
	static const char *const names[] = { NULL, "", "/run/x.sock", "localhost", "%2Frun%2Fx" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct buf b;
		struct h2 *h = raw_server(true, &b);
		struct h2_stream *s;
		uint8_t block[128];

		frame(&b, 1, 0x5, 1, block, head_block(block, names[i]));
		CHECK_INT(feed_all(h, &b), 0);
		s = h2_next_ready(h);
		CHECK(s && h2_stream_head(s));
		h2_stream_release(s);
		buf_fini(&b);
		h2_free(h);
	}
}

/* Proxies that speak HTTP/1.1 in front send Host and no :authority. */
TEST(host_instead_of_authority)
{
	static const struct { const char *authority, *host, *want; } t[] = {
		{ NULL, "a.test", "a.test" },
		{ "a.test", "a.test", "a.test" },
		{ "a.test", "A.test", "a.test" },
		{ "a.test", "b.test", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct buf b;
		struct h2 *h = raw_server(false, &b);
		struct h2_stream *s;
		uint8_t block[128];
		size_t n = head_block(block, t[i].authority);

		n += (size_t)snprintf((char *)block + n, sizeof(block) - n, "%c%c%s%c%s", 0x10, 4, "host", (int)strlen(t[i].host),
				      t[i].host);
		frame(&b, 1, 0x5, 1, block, n);
		CHECK_INT(feed_all(h, &b), 0);
		s = h2_next_ready(h);
		CHECK_INT(s != NULL, t[i].want != NULL);
		if (s) {
			CHECK_STR(fields_get(h2_stream_head(s), ":authority"), t[i].want);
			h2_stream_release(s);
		}
		buf_fini(&b);
		h2_free(h);
	}
}

TEST(wrong_heads_are_refused_and_the_connection_lives)
{
	static const struct {
		const char *what;
		uint8_t block[48];
		size_t n;
	} t[] = {
		{ "no :path", { 0x83, 0x86 }, 2 },
		{ ":method twice", { 0x83, 0x83, 0x86, 0x84 }, 4 },
		{ "pseudo after regular", { 0x83, 0x86, 0x50, 1, 'x', 0x84 }, 6 },
		{ "upper case name", { 0x83, 0x86, 0x84, 0x00, 1, 'X', 1, 'y' }, 8 },
		{ "connection", { 0x83, 0x86, 0x84, 0x00, 10, 'c', 'o', 'n', 'n', 'e', 'c', 't', 'i',
				  'o', 'n', 1, 'x' }, 17 },
		{ "te other than trailers", { 0x83, 0x86, 0x84, 0x00, 2, 't', 'e', 4, 'g', 'z', 'i',
					      'p' }, 12 },
		{ "NUL in a value", { 0x83, 0x86, 0x84, 0x00, 1, 'a', 1, 0 }, 8 },
		{ "unknown pseudo", { 0x83, 0x86, 0x84, 0x00, 2, ':', 'x', 1, 'y' }, 9 },
		{ "empty name", { 0x83, 0x86, 0x84, 0x00, 0, 1, 'y' }, 7 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct buf b;
		struct h2 *h = raw_server(true, &b);
		uint8_t good[128];

		frame(&b, 1, 0x5, 1, t[i].block, t[i].n);
		CHECK_INT(feed_all(h, &b), 0);
		CHECK(!h2_next_ready(h));
		frame(&b, 1, 0x5, 3, good, head_block(good, "x"));
		CHECK_INT(feed_all(h, &b), 0);
		CHECK(h2_next_ready(h));
		buf_fini(&b);
		h2_free(h);
	}
}

TEST(a_header_bomb_costs_one_stream)
{
	struct buf b;
	struct h2_stream *s;
	struct h2 *h = raw_server(true, &b);
	static uint8_t block[16000];
	uint8_t good[128];

	memset(block, 0x90, sizeof(block)); /* accept-encoding: gzip, deflate, 16,000 times */
	block[0] = 0x83;
	block[1] = 0x86;
	block[2] = 0x84;
	frame(&b, 1, 0x5, 1, block, sizeof(block));
	CHECK_INT(feed_all(h, &b), 0);
	s = h2_next_ready(h);		/* D-2: with what fits, so that it can be answered */
	CHECK(s && h2_stream_head_is_cut(s));
	CHECK_INT(h2_stream_head(s)->n, 64);
	h2_stream_drop_head(s);
	CHECK(!h2_stream_head(s));
	frame(&b, 1, 0x5, 3, good, head_block(good, "x"));
	CHECK_INT(feed_all(h, &b), 0);
	s = h2_next_ready(h);
	CHECK(s && !h2_stream_head_is_cut(s));
	buf_fini(&b);
	h2_free(h);
}

/* JUDGED G-3: heads without an end, nothing read: the connection ends before they take more than it may. */
TEST(heads_that_never_end_are_charged)
{
	static uint8_t block[12000];
	struct quota *q = quota_of(1 << 20, false, NULL);
	struct buf b;
	struct h2 *h = raw_server_of(true, q, &b);
	const uint8_t *out;
	size_t n, n_block = head_block(block, "x");
	int i = 0, r = 0;

	for (int k = 0; k < 10; k++)
		n_block += long_field(block + n_block);
	for (; i < 2000 && !r; i++) {
		frame(&b, 1, 0x4, 2 * i + 1, block, n_block);
		r = h2_feed(h, buf_data(&b), buf_len(&b), 1000);
		buf_drop(&b, buf_len(&b));
		CHECK(quota_used(q) <= 1 << 20);
	}
	CHECK(r == -EPROTO && i > 30 && i < 100);
	CHECK(h2_is_over_quota(h) && strstr(h2_why(h), "memory"));
	CHECK_INT(h2_output(h, &out, &n), 0);
	CHECK(n > 17 && out[n - 14] == 7 && out[n - 1] == H2_ENHANCE_YOUR_CALM);	/* GOAWAY */
	for (struct h2_stream *s; (s = h2_next_ready(h));)
		h2_stream_release(s);
	CHECK(quota_used(q) < 4096);	/* what nghttp2 held is gone, too */
	h2_free(h);
	CHECK_INT(quota_used(q), 0);
	quota_unref(q);
	buf_fini(&b);
}

/* G-05: a header block that is begun and not finished has 5 s, wherever it stops; a finished one costs nothing. */
TEST(a_header_block_must_be_finished)
{
	uint8_t block[128];
	size_t n = head_block(block, "x");

	for (unsigned cut = 0; cut < 5; cut++) {
		struct buf b;
		struct h2 *h = raw_server(true, &b);
		bool whole = cut == 4;

		frame(&b, 4, 1, 0, NULL, 0);
		CHECK_INT(feed_all(h, &b), 0);
		CHECK_INT(h2_due_ms(h), 0);
		if (cut == 0 || whole)
			frame(&b, 1, whole ? 5 : 1, 1, block, n);
		if (cut == 1)			/* in the middle of a frame that says it is the last */
			frame(&b, 1, 5, 1, block, n);
		if (cut == 2) {			/* CONTINUATION that never ends */
			frame(&b, 1, 1, 1, block, n);
			frame(&b, 9, 0, 1, "\x90", 1);
		}
		if (cut == 3) {			/* a finished one before does not help */
			frame(&b, 1, 5, 1, block, n);
			frame(&b, 1, 1, 3, block, n);
		}
		/* Debian's nghttp2 counts every piece of a CONTINUATION's head as one more of them. */
		for (size_t i = 0, len = buf_len(&b) - (cut == 1 ? 3 : 0), k; i < len; i += k) {
			k = MIN(len - i, cut == 2 ? 5u : 1u);
			CHECK_INT(h2_feed(h, buf_data(&b) + i, k, 1000 + i), 0);
		}
		if (whole) {
			CHECK_INT(h2_due_ms(h), 0);
			CHECK_INT(h2_expire(h, 100000), 0);
		} else {
			uint64_t due = h2_due_ms(h);

			CHECK(due > 1000 + H2_BLOCK_MS && due < 1200 + H2_BLOCK_MS);
			CHECK_INT(h2_expire(h, due - 1), 0);
			CHECK_INT(h2_expire(h, due), -EPROTO);
			CHECK(h2_is_dead(h) && strstr(h2_why(h), "header block"));
		}
		buf_fini(&b);
		h2_free(h);
	}
}

/* G-13: our SETTINGS are to be acknowledged. */
TEST(settings_must_be_acknowledged)
{
	struct buf b;
	struct h2 *h = raw_server(true, &b);
	const uint8_t *p;
	size_t n;

	CHECK_INT(feed_all(h, &b), 0);
	CHECK_INT(h2_due_ms(h), 1000 + H2_SETTINGS_ACK_MS);
	CHECK_INT(h2_expire(h, 1000 + H2_SETTINGS_ACK_MS), -EPROTO);
	CHECK_INT(h2_output(h, &p, &n), 0);
	CHECK(n >= 17 && p[3] == 7 && p[n - 1] == H2_SETTINGS_TIMEOUT);	/* GOAWAY */
	CHECK(strstr(h2_why(h), "SETTINGS"));
	buf_fini(&b);
	h2_free(h);
}

/* A peer that goes on sending on a stream after its reset is cut off at what may have been under way. */
TEST(sending_after_a_reset_has_an_end)
{
	struct buf b;
	struct h2 *h = raw_server(true, &b);
	struct h2_stream *s;
	static uint8_t data[16384];
	uint8_t block[128];
	int r = 0, n = 0;

	frame(&b, 1, 4, 1, block, head_block(block, "x"));
	CHECK_INT(feed_all(h, &b), 0);
	s = h2_next_ready(h);
	CHECK(s);
	data[0] = 255;
	for (int i = 0; i < 200; i++) {		/* padding alone is none of that */
		frame(&b, 0, 8, 1, data, 256);
		CHECK_INT(feed_all(h, &b), 0);
	}
	h2_stream_release(s);
	while (!r && n < 1000) {
		frame(&b, 0, 0, 1, data, sizeof(data));
		r = feed_all(h, &b);
		n++;
	}
	CHECK_INT(r, -EPROTO);
	CHECK(n > 256 / 16 && n < 30 && strstr(h2_why(h), "reset"));
	buf_fini(&b);
	h2_free(h);
}

/* G-09: the less of the quota is spare the less room each stream has, but never none. */
TEST(room_follows_what_is_spare)
{
	struct quota *q = quota_of(800 * 1024, false, NULL);
	struct link l;
	struct h2_stream *c[8], *s[8];
	static uint8_t data[65536];
	size_t room;
	int r = 0;

	link_up(&l, (struct h2_options){ .send_max = 256 * 1024, .stream_window = 65535, .quota = q }, 0);
	for (int i = 0; i < 8; i++) {
		c[i] = ask(&l, true);
		s[i] = accept_one(&l);
		answer(s[i], false);
	}
	run(&l);
	CHECK(h2_stream_room(s[0]) > 16384);
	for (int i = 0; i < 6; i++)
		CHECK_INT(h2_stream_write(s[i], data, sizeof(data)), 0);
	CHECK_INT(h2_stream_room(s[0]), 0);
	room = h2_stream_room(s[7]);
	CHECK(room < 16384 && room >= H2_LEAST_ROOM);
	for (int i = 0; i < 10 && !r; i++)
		r = h2_stream_write(s[6], data, sizeof(data));
	CHECK_INT(r, -ENOBUFS);			/* above the quota a write fails, and nothing else */
	CHECK(!h2_is_dead(l.server));
	h2_stream_reset(s[6], H2_CANCEL);
	for (int i = 0; i < 8; i++)		/* one window of each goes */
		run(&l);
	CHECK(h2_stream_room(s[7]) > room);
	CHECK(h2_stream_take_ready(s[0]) & H2_READY_ROOM);
	for (int i = 0; i < 8; i++) {
		h2_stream_release(c[i]);
		h2_stream_release(s[i]);
	}
	link_down(&l);
	CHECK_INT(quota_used(q), 0);
	quota_unref(q);
}

/* Returns how many rounds passed before the connection was ended; 0 = it never was. */
static int flood(const char *kind, int rounds)
{
	struct buf b;
	struct h2 *h = raw_server(true, &b);
	uint8_t block[128], eight[8] = { 0 }, window[4] = { 0x7f, 0xff, 0xff, 0xff };
	uint8_t priority[5] = { 0, 0, 0, 0, 7 };
	size_t n_block = head_block(block, "x");
	int ended = 0;

	frame(&b, 1, 0x4, 1, block, n_block);
	for (int i = 1; i <= rounds && !ended; i++) {
		uint32_t id = 1 + 2 * (uint32_t)i;
		struct h2_stream *s;

		if (!strcmp(kind, "ping")) {
			frame(&b, 6, 0, 0, eight, 8);
		} else if (!strcmp(kind, "settings")) {
			frame(&b, 4, 0, 0, NULL, 0);
		} else if (!strcmp(kind, "priority")) {
			frame(&b, 2, 0, id, priority, 5);
		} else if (!strcmp(kind, "empty-data")) {
			frame(&b, 0, 0, 1, NULL, 0);
		} else if (!strcmp(kind, "window-update")) {
			frame(&b, 8, 0, 1, "\0\0\0\1", 4);
		} else if (!strcmp(kind, "unknown")) {
			frame(&b, 99, 0, 0, eight, 8);
		} else if (!strcmp(kind, "rapid-reset")) {
			frame(&b, 1, 0x5, id, block, n_block);
			frame(&b, 3, 0, id, "\0\0\0\10", 4);
		} else if (!strcmp(kind, "made-you-reset")) {
			frame(&b, 1, 0x4, id, block, n_block);
			frame(&b, 8, 0, id, window, 4);
			frame(&b, 8, 0, id, window, 4);
		}
		if (feed_all(h, &b) < 0)
			ended = i;
		while ((s = h2_next_ready(h)))
			if (h2_stream_take_ready(s) & H2_READY_CLOSED)
				h2_stream_release(s);
	}
	buf_fini(&b);
	h2_free(h);
	return ended;
}

TEST(floods_that_bring_nothing_end_the_connection)
{
	static const char *const kinds[] = { "ping",	   "settings",	    "priority",	   "empty-data",
					     "window-update", "unknown", "rapid-reset", "made-you-reset" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		int ended = flood(kinds[i], 5000);

		if (!ended || ended > 1100) {
			fprintf(stderr, "%s: ended after %d\n", kinds[i], ended);
			exit(1);
		}
	}
	CHECK(flood("rapid-reset", 5000) <= 250);
	CHECK(flood("made-you-reset", 5000) <= 250);
}

/* A client of gRPC answers every small message with WINDOW_UPDATE of stream and connection and a PING. */
TEST(twenty_thousand_small_messages_are_no_flood)
{
	static const uint8_t updates[] = { 0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 10,
					   0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 };
	struct h2_stream *s;
	struct link l;

	link_up(&l, (struct h2_options){ 0 }, 0);
	(void)ask(&l, true);
	s = accept_one(&l);
	CHECK_INT(h2_stream_id(s), 1);
	answer(s, false);
	for (int i = 0; i < 20000; i++) {
		const uint8_t *p;
		size_t n;

		CHECK_INT(h2_stream_write(s, "0123456789", 10), 0);
		while (h2_output(l.server, &p, &n) == 0 && n)
			h2_sent(l.server, n);
		CHECK_INT(h2_feed(l.server, updates, sizeof(updates), now_ms), 0);
	}
	for (int i = 0; i < 1000 && !h2_is_dead(l.server); i++)	/* without our saying anything it is one */
		(void)!h2_feed(l.server, updates, sizeof(updates), now_ms);
	CHECK(h2_is_dead(l.server));
	link_down(&l);
}

TEST(ten_thousand_short_calls_are_no_flood)
{
	struct link l;

	link_up(&l, (struct h2_options){ 0 }, 0);
	for (int i = 0; i < 10000; i++) {
		struct h2_stream *c = ask(&l, true), *s = accept_one(&l);

		answer(s, true);
		run(&l);
		CHECK_INT(h2_stream_closed(c, NULL), H2_CLOSE_CLEAN);
		h2_stream_release(c);
		h2_stream_release(s);
		if (i % 10 == 0)
			CHECK_INT(h2_ping(l.client), 0);
	}
	CHECK_INT(h2_pings_acked(l.client), 1000);
	link_down(&l);
}

/* --- any sequence: nothing is charged above the quota, and nothing is left when the peer is gone (JUDGED G-3) --- */

static void random_owner(struct h2 *h, struct rng *rng, const struct fields *ok, bool server)
{
	static const uint8_t data[20000];
	struct h2_stream *s;

	while ((s = h2_next_ready(h))) {
		unsigned flags = h2_stream_take_ready(s);
		const uint8_t *p;
		size_t n = h2_stream_peek(s, &p);

		if (server && (flags & H2_READY_HEAD))
			(void)!h2_respond(s, ok, rng_below(rng, 4) == 0);
		if (flags & H2_READY_CLOSED) {
			h2_stream_release(s);
			continue;
		}
		if (rng_below(rng, 3))
			h2_stream_consume(s, (size_t)rng_below(rng, n + 1));
		if (rng_below(rng, 3) == 0)
			(void)!h2_stream_write(s, data, (size_t)rng_below(rng, sizeof(data)));
		if (server && rng_below(rng, 8) == 0 && h2_stream_head(s))
			h2_stream_drop_head(s);
		if (rng_below(rng, 6) == 0)
			(void)!h2_stream_finish(s, NULL);
		if (rng_below(rng, 12) == 0)
			h2_stream_reset(s, H2_CANCEL);
		if (rng_below(rng, 30) == 0) {
			h2_stream_release(s);
			continue;
		}
	}
}

static void random_asks(struct h2 *h, struct rng *rng)
{
	struct fields f = FIELDS_NULL;
	struct h2_stream *s;
	char value[9000];
	size_t n = (size_t)rng_below(rng, sizeof(value));

	memset(value, 'v', n);
	CHECK_INT(fields_put(&f, ":method", "POST"), 0);
	CHECK_INT(fields_put(&f, ":scheme", "http"), 0);
	CHECK_INT(fields_put(&f, ":path", "/x"), 0);
	CHECK_INT(fields_put(&f, ":authority", "x"), 0);
	CHECK_INT(fields_add(&f, "x-long", 6, value, n, false), 0);
	for (uint64_t i = rng_below(rng, 8); i; i--) {
		if (h2_request(h, &f, rng_below(rng, 2), NULL, &s) < 0)
			break;
		(void)!h2_stream_write(s, value, (size_t)rng_below(rng, n + 1));
	}
	fields_fini(&f);
}

/* The first k bytes that wait; now and then one of them is another. */
static void random_move(struct h2 *from, struct h2 *to, struct rng *rng)
{
	uint8_t piece[70000];
	const uint8_t *p;
	size_t n, k;

	if (h2_output(from, &p, &n) < 0 || !n)
		return;
	k = (size_t)rng_below(rng, MIN(n, sizeof(piece)) + 1);
	memcpy(piece, p, k);
	if (k && rng_below(rng, 400) == 0)
		piece[rng_below(rng, k)] ^= (uint8_t)rng_u64(rng);
	h2_sent(from, k);
	if (!h2_is_dead(to))
		(void)!h2_feed(to, piece, k, now_ms);
}

static void random_life(uint64_t seed)
{
	struct rng rng;
	struct quota *all, *sq, *cq;
	struct h2_options so = { .server = true, .max_streams = 200, .stream_window = 65536 };
	struct h2_options co = { .stream_window = 65536 };
	struct fields ok = FIELDS_NULL;
	struct link l = { 0 };

	CHECK_INT(fields_put(&ok, ":status", "200"), 0);
	rng_seed(&rng, seed);
	all = quota_of(1 << 20, false, NULL);
	so.quota = sq = quota_of(40000 + rng_below(&rng, 600000), false, all);
	co.quota = cq = quota_of(0, true, all);
	CHECK_INT(h2_new(&co, now_ms, &l.client), 0);
	CHECK_INT(h2_new(&so, now_ms, &l.server), 0);
	for (int i = 0; i < 300; i++) {
		now_ms += rng_below(&rng, 20);
		random_asks(l.client, &rng);
		random_move(l.client, l.server, &rng);
		random_owner(l.server, &rng, &ok, true);
		if (rng_below(&rng, 3))
			random_move(l.server, l.client, &rng);
		random_owner(l.client, &rng, &ok, false);
		CHECK(quota_used(sq) <= quota_max(sq) + 64 || h2_is_dead(l.server));	/* the heap rounds up */
	}
	h2_lost(l.server);
	h2_lost(l.client);
	link_down(&l);
	CHECK(quota_is_idle(cq) && quota_is_idle(sq));
	quota_unref(cq);
	quota_unref(sq);
	CHECK(quota_is_idle(all) && !quota_promised(all));
	quota_unref(all);
	fields_fini(&ok);
	now_ms = 1000;
}

TEST(any_sequence_gives_back_what_was_charged)
{
	for (uint64_t seed = 1; seed <= 150; seed++)
		random_life(seed);
}

TEST_MAIN()
