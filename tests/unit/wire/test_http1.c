/* SPDX-License-Identifier: MIT */
#include "proto/wire/http1.h"

#include <errno.h>

#include "proto/base/str.h"
#include "tests/lib/test.h"

/* Feeds in pieces of `step` bytes, as a connection would: what was not used is given again. */
static enum http1_result feed_head(struct http1_head *h, const char *s, size_t n, size_t step,
				   size_t *ret_used)
{
	size_t at = 0, have = 0;
	enum http1_result r = HTTP1_MORE;

	while (r == HTTP1_MORE && have < n) {
		size_t used;

		have = MIN(n, have + step);
		r = http1_head_feed(h, (const uint8_t *)s + at, have - at, &used);
		at += used;
	}
	*ret_used = at;
	return r;
}

static const size_t steps[] = { 1, 2, 3, 7, 100000 };

TEST(requests)
{
	static const struct {
		const char *in;
		enum http1_result r;
		const char *authority, *path;
		enum http1_framing framing;
		uint64_t length;
		bool keep_alive;
	} t[] = {
		{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_DONE, "a", "/", 0, 0, true },
		{ "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_DONE, "a", "/", 0, 0, true },
		{ "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET /x?y=z HTTP/1.1\r\nhOsT:\t a:80 \t\r\n\r\n", HTTP1_DONE, "a:80", "/x?y=z", 0, 0,
		  true },
		{ "GET / HTTP/1.0\r\n\r\n", HTTP1_DONE, NULL, "/", 0, 0, false },
		{ "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", HTTP1_DONE, NULL, "/", 0, 0,
		  true },
		{ "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n", HTTP1_DONE, "a", "/", 0,
		  0, false },
		{ "GET http://b:1/p HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_DONE, "b:1", "/p", 0, 0, true },
		{ "GET http://b?q HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_DONE, "b", "/?q", 0, 0, true },
		{ "GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_DONE, "b", "/", 0, 0, true },
		{ "GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", HTTP1_DONE, "[::1]:80", "*", 0, 0,
		  true },
		{ "GET * HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n", HTTP1_DONE, "a", "/",
		  HTTP1_BODY_LENGTH, 12, true },
		{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", HTTP1_DONE, "a",
		  "/", HTTP1_BODY_CHUNKED, 0, true },
		/* two readers could disagree */
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		  HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		  HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n",
		  HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n",
		  HTTP1_BAD },
		{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		  HTTP1_NOT_SUPPORTED },
		{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
		  HTTP1_NOT_SUPPORTED },
		{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n",
		  HTTP1_BAD },
		{ "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost: a\n\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost : a\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\n: a\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX: a\177\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HTTP1_BAD },
		{ "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET x HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "GET /\r\n\r\n", HTTP1_BAD },
		{ "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "\x16\x03\x01", HTTP1_BAD },
		{ "GET / HTTP/2.0\r\nHost: a\r\n\r\n", HTTP1_VERSION },
		{ "GET / HTTP/1.2\r\nHost: a\r\n\r\n", HTTP1_VERSION },
		{ "GET / http/1.1\r\nHost: a\r\n\r\n", HTTP1_BAD },
		{ "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_NOT_SUPPORTED },
		{ "GET / HTTP/1.1\r\nHost: a\r\n", HTTP1_MORE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
			struct fields f = FIELDS_NULL;
			struct http1_head h;
			size_t used;

			http1_head_init_request(&h, false, &f);
			CHECK_INT(feed_head(&h, t[i].in, strlen(t[i].in), steps[k], &used), t[i].r);
			if (t[i].r == HTTP1_DONE) {
				const char *a = fields_get(&f, ":authority");

				CHECK_INT(used, strlen(t[i].in));
				CHECK(!t[i].authority == !a);
				if (a)
					CHECK_STR(a, t[i].authority);
				CHECK_STR(fields_get(&f, ":path"), t[i].path);
				CHECK_STR(fields_get(&f, ":scheme"), "http");
				CHECK(!fields_get(&f, "host"));
				CHECK_INT(h.framing, t[i].framing);
				CHECK_INT(h.length, t[i].length);
				CHECK_INT(h.keep_alive, t[i].keep_alive);
			}
			fields_fini(&f);
		}
}

TEST(fields_are_kept)
{
	static const char in[] = "PUT /f HTTP/1.1\r\nHost: h\r\nX-One:1\r\nAuthorization: Bearer "
				 "s\r\nX-Empty:\r\nExpect: 100-continue\r\n\r\nrest";
	struct fields f = FIELDS_NULL;
	struct http1_head h;
	size_t used;

	http1_head_init_request(&h, true, &f);
	CHECK_INT(http1_head_feed(&h, (const uint8_t *)in, sizeof(in) - 1, &used), HTTP1_DONE);
	CHECK_STR(in + used, "rest");
	CHECK_INT(f.n, 8);
	for (unsigned i = 0; i < 4; i++)
		CHECK(fields_name(&f, i)[0] == ':');
	CHECK_STR(fields_get(&f, ":scheme"), "https");
	CHECK_STR(fields_get(&f, "x-one"), "1");
	CHECK_STR(fields_get(&f, "x-empty"), "");
	CHECK(f.v[fields_find(&f, "authorization", 0)].secret);
	CHECK(f.has_secret);	/* so the text is wiped before it is freed */
	CHECK(!f.v[fields_find(&f, "x-one", 0)].secret);
	CHECK(h.expect_continue);
	fields_fini(&f);
}

static enum http1_result big(size_t target, size_t n_fields, size_t value, size_t step)
{
	struct buf b = BUF_NULL;
	struct fields f = FIELDS_NULL;
	struct http1_head h;
	enum http1_result r;
	char *pad = malloc(MAX(target, value) + 1);
	size_t used;

	memset(pad, 'a', MAX(target, value));
	CHECK(!buf_put_str(&b, "GET /") && !buf_put(&b, pad, target - 1));
	CHECK(!buf_put_str(&b, " HTTP/1.1\r\nHost: a\r\n"));
	for (size_t i = 1; i < n_fields; i++)
		CHECK(!buf_put_str(&b, "x: ") && !buf_put(&b, pad, value) && !buf_put_str(&b, "\r\n"));
	CHECK(!buf_put_str(&b, "\r\n"));
	http1_head_init_request(&h, false, &f);
	r = feed_head(&h, (const char *)buf_data(&b), buf_len(&b), step, &used);
	fields_fini(&f);
	buf_fini(&b);
	free(pad);
	return r;
}

TEST(limits)
{
	for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
		CHECK_INT(big(HTTP1_TARGET_MAX_BYTES, 1, 1, steps[k]), HTTP1_DONE);
		CHECK_INT(big(HTTP1_TARGET_MAX_BYTES + 1, 1, 1, steps[k]), HTTP1_TARGET_TOO_LONG);
		CHECK_INT(big(100000, 1, 1, steps[k]), HTTP1_TARGET_TOO_LONG);
		CHECK_INT(big(1, HTTP1_FIELDS_MAX, 1, steps[k]), HTTP1_DONE);
		CHECK_INT(big(1, HTTP1_FIELDS_MAX + 1, 1, steps[k]), HTTP1_TOO_LARGE);
		CHECK_INT(big(1, 2, 65000, steps[k]), HTTP1_DONE);
		CHECK_INT(big(1, 2, 65536, steps[k]), HTTP1_TOO_LARGE);
		CHECK_INT(big(1, 120, 1000, steps[k]), HTTP1_TOO_LARGE);
	}
	CHECK_INT(http1_result_status(HTTP1_TOO_LARGE), 431);
	CHECK_INT(http1_result_status(HTTP1_TARGET_TOO_LONG), 414);
}

TEST(responses)
{
	static const struct {
		const char *in;
		bool to_head;
		enum http1_result r;
		unsigned status;
		enum http1_framing framing;
		bool keep_alive;
	} t[] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, HTTP1_DONE, 200,
		  HTTP1_BODY_LENGTH, true },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, HTTP1_DONE, 200, 0, true },
		{ "HTTP/1.1 200\r\n\r\n", false, HTTP1_DONE, 200, HTTP1_BODY_UNTIL_CLOSE, false },
		{ "HTTP/1.1 204 \r\n\r\n", false, HTTP1_DONE, 204, 0, true },
		{ "HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n", false, HTTP1_DONE, 304, 0, true },
		{ "HTTP/1.1 100 Continue\r\n\r\n", false, HTTP1_DONE, 100, 0, true },
		{ "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false, HTTP1_DONE, 200, 0, false },
		{ "HTTP/1.1 199 OK\r\nContent-Length: 1\r\n\r\n", false, HTTP1_BAD },
		{ "HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", false, HTTP1_BAD },
		{ "HTTP/1.1 20 OK\r\n\r\n", false, HTTP1_BAD },
		{ "HTTP/1.1 2000 OK\r\n\r\n", false, HTTP1_BAD },
		{ "HTTP/1.1 099 OK\r\n\r\n", false, HTTP1_BAD },
		{ "HTTP/2.0 200 OK\r\n\r\n", false, HTTP1_VERSION },
		{ "HTTP/1.1 200 O\001K\r\n\r\n", false, HTTP1_BAD },
		{ "ICY 200 OK\r\n\r\n", false, HTTP1_BAD },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
			struct fields f = FIELDS_NULL;
			struct http1_head h;
			size_t used;

			http1_head_init_response(&h, t[i].to_head, false, &f);
			CHECK_INT(feed_head(&h, t[i].in, strlen(t[i].in), steps[k], &used), t[i].r);
			if (t[i].r == HTTP1_DONE) {
				CHECK_INT(h.status, t[i].status);
				CHECK_INT(h.framing, t[i].framing);
				CHECK_INT(h.keep_alive, t[i].keep_alive);
			}
			fields_fini(&f);
		}
}

static enum http1_result feed_body(struct http1_body *b, const char *s, size_t step, struct buf *out,
				   size_t *ret_used)
{
	size_t n = strlen(s), at = 0, have = 0;
	enum http1_result r = HTTP1_MORE;

	while (r == HTTP1_MORE && have < n) {
		size_t used = 1;

		have = MIN(n, have + step);
		while (r == HTTP1_MORE && used) {
			const uint8_t *data;
			size_t n_data;

			r = http1_body_feed(b, (const uint8_t *)s + at, have - at, &used, &data,
					    &n_data);
			at += used;
			CHECK(!buf_put(out, data, n_data));
		}
	}
	*ret_used = at;
	return r;
}

TEST(bodies)
{
	static const struct {
		const char *in;
		enum http1_framing framing;
		uint64_t length;
		enum http1_result r;
		const char *out, *rest;
	} t[] = {
		{ "abcdef", HTTP1_BODY_LENGTH, 4, HTTP1_DONE, "abcd", "ef" },
		{ "abc", HTTP1_BODY_LENGTH, 4, HTTP1_MORE, "abc" },
		{ "abc", HTTP1_BODY_UNTIL_CLOSE, 0, HTTP1_MORE, "abc" },
		{ "3\r\nabc\r\n0\r\n\r\nGET", HTTP1_BODY_CHUNKED, 0, HTTP1_DONE, "abc", "GET" },
		{ "3;x=\"y\"\r\nabc\r\n0A ; z\r\n0123456789\r\n00\r\n\r\n", HTTP1_BODY_CHUNKED, 0,
		  HTTP1_DONE, "abc0123456789", "" },
		{ "0\r\nA: b\r\nC:d\r\n\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_DONE, "", "" },
		{ "0\r\nContent-Length: 3\r\n\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "0\r\nA : b\r\n\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "0\r\n\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "3\nabc\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "3\r\nabcd\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "abc" },
		{ "\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "+3\r\nabc\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "0x3\r\nabc\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ " 3\r\nabc\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "3 \r\nabc\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "3;\001\r\nabc\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "8000000000000000\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
		{ "7fffffffffffffff\r\nab", HTTP1_BODY_CHUNKED, 0, HTTP1_MORE, "ab" },
		{ "00000000000000003\r\n", HTTP1_BODY_CHUNKED, 0, HTTP1_BAD, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
			struct http1_body b;
			struct buf out = BUF_NULL;
			size_t used;

			http1_body_init(&b, t[i].framing, t[i].length);
			CHECK_INT(feed_body(&b, t[i].in, steps[k], &out, &used), t[i].r);
			CHECK_INT(buf_len(&out), strlen(t[i].out));
			CHECK(!buf_len(&out) || !memcmp(buf_data(&out), t[i].out, buf_len(&out)));
			if (t[i].r == HTTP1_DONE)
				CHECK_STR(t[i].in + used, t[i].rest);
			if (strstr(t[i].in, "C:d"))
				CHECK_STR(fields_get(&b.trailers, "c"), "d");
			buf_fini(&out);
			http1_body_fini(&b);
		}
}

TEST(writers)
{
	struct fields f = FIELDS_NULL;
	struct http1_write w = { .framing = HTTP1_BODY_CHUNKED, .close = true };
	struct buf b = BUF_NULL;
	char *s, chunk[HTTP1_CHUNK_HEAD_MAX];

	CHECK(!fields_put(&f, ":method", "POST") && !fields_put(&f, ":scheme", "http"));
	CHECK(!fields_put(&f, ":authority", "h:1") && !fields_put(&f, ":path", "/p"));
	CHECK(!fields_put(&f, "x-a", "1") && !fields_put(&f, "connection", "upgrade"));
	CHECK_INT(http1_write_request(&b, &f, &w), 0);
	s = buf_take_str(&b);
	CHECK_STR(s, "POST /p HTTP/1.1\r\nhost: h:1\r\nx-a: 1\r\ntransfer-encoding: "
		     "chunked\r\nconnection: close\r\n\r\n");
	free(s);

	CHECK(!fields_put(&f, "x-b", "1\r\nx-evil: 2"));
	CHECK_INT(http1_write_request(&b, &f, &w), -EINVAL);
	fields_clear(&f);
	CHECK(!fields_put(&f, ":status", "404"));
	w = (struct http1_write){ .add_length = true };
	CHECK_INT(http1_write_response(&b, &f, &w), 0);
	CHECK_INT(http1_chunk_head(chunk, 26), 4);
	CHECK_STR(chunk, "1a\r\n");
	fields_clear(&f);
	CHECK(!fields_put(&f, "x-t", "v"));
	CHECK_INT(http1_write_last_chunk(&b, &f, false), 0);
	s = buf_take_str(&b);
	CHECK_STR(s, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n0\r\nx-t: v\r\n\r\n");
	free(s);
	fields_fini(&f);
	buf_fini(&b);
}

/* E-6: for programs that look at the case of names; values and start lines stay as they are. */
TEST(names_as_titles)
{
	scoped(buf_fini) struct buf b = BUF_NULL;
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	struct http1_write w = { .framing = HTTP1_BODY_CHUNKED, .title_names = true, .close = true };
	char *s;

	CHECK(!fields_put(&f, ":method", "GET") && !fields_put(&f, ":path", "/a-b:c-d") && !fields_put(&f, ":authority", "h-x:1"));
	CHECK(!fields_put(&f, "x-a-1b", "c-d: e-f") && !fields_put(&f, "etag", "w-1") && !fields_put(&f, "x--y_z", ""));
	CHECK_INT(http1_write_request(&b, &f, &w), 0);
	s = buf_take_str(&b);
	CHECK_STR(s, "GET /a-b:c-d HTTP/1.1\r\nHost: h-x:1\r\nX-A-1b: c-d: e-f\r\nEtag: w-1\r\nX--Y_z: \r\n"
		     "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
	free(s);
	fields_clear(&f);
	CHECK(!fields_put(&f, ":status", "101") && !fields_put(&f, "upgrade", "websocket"));
	w = (struct http1_write){ .title_names = true, .upgrade = "websocket" };
	CHECK_INT(http1_write_response(&b, &f, &w), 0);
	fields_clear(&f);
	CHECK(!fields_put(&f, "x-t", "v-w"));
	CHECK_INT(http1_write_last_chunk(&b, &f, true), 0);
	s = buf_take_str(&b);
	CHECK_STR(s, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n0\r\nX-T: v-w\r\n\r\n");
	free(s);
}

TEST_MAIN()
