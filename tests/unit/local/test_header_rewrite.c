/* SPDX-License-Identifier: MIT */
/* Requests on their way out, with the headers that rules set. */
#include "daemon/local/egress/header_rewrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/egress/egrule.h"
#include "proto/base/str.h"
#include "proto/cloud/model.h"
#include "tests/lib/test.h"

static const char rules_text[] =
	"{\"rules\":{\"a.test\":[{\"transform\":{\"headers\":{\"Authorization\":\"Bearer x\",\"x-old\":\"new\"}}}],"
	"\"c.deep.test\":[{\"transform\":{\"headers\":{\"x-deep\":\"1\"}}}],"
	"\"b.deep.test\":[{\"transform\":{\"headers\":{\"Host\":\"other.test\"}}}],"
	"\"none.test\":[{}]}}";

static struct egrule *rules(void)
{
	struct cloud_network *n = NULL;
	struct egrule *r = NULL;

	CHECK_INT(cloud_network_parse(rules_text, &n), 0);
	CHECK_INT(egrule_new(n, false, &r), 0);
	cloud_network_free(n);
	return r;
}

/* All that goes out for `in`, given in pieces of `size`; "!" if it is refused. */
static char *sent(const char *host, const char *in, size_t size)
{
	struct egrule *r = rules();
	struct buf out = BUF_NULL;
	struct header_rewrite *h;
	const char *why = NULL;
	char *text;
	int e = 0;

	CHECK_INT(header_rewrite_new(host, 0, &h), 0);
	for (size_t at = 0, n = strlen(in); at < n && e == 0; at += size) {
		CHECK_INT(buf_put(header_rewrite_raw(h), in + at, MIN(size, n - at)), 0);
		e = header_rewrite_run(h, r, &out, &why);
	}
	CHECK(e == 0 || (e == -EPROTO && why));
	if (e < 0)
		CHECK_INT(buf_put(&out, "!", 1), 0);
	text = buf_len(&out) ? buf_take_str(&out) : str_dup("");
	header_rewrite_free(h);
	egrule_free(r);
	buf_fini(&out);
	return text;
}

static void check(const char *host, const char *in, const char *want)
{
	static const size_t sizes[] = { 1 << 20, 7, 1 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *got = sent(host, in, sizes[i]);

		CHECK_STR(got, want);
		free(got);
	}
}

TEST(headers_are_set)
{
	check("a.test", "GET /x?y HTTP/1.1\r\nHost: A.Test:80\r\nX-Old: 1\r\nx-old: 2\r\nAccept: *\r\n\r\n",
	      "GET /x?y HTTP/1.1\r\nHost: A.Test:80\r\nAccept: *\r\nAuthorization: Bearer x\r\nX-Old: new\r\n\r\n");
	check("c.deep.test", "GET / HTTP/1.1\r\nHost: c.deep.test\r\n\r\n",
	      "GET / HTTP/1.1\r\nHost: c.deep.test\r\nX-Deep: 1\r\n\r\n");
	check("b.deep.test", "GET / HTTP/1.1\r\nHost: b.deep.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n");
	check("none.test", "GET / HTTP/1.1\r\nHost: none.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: none.test\r\n\r\n");
}

TEST(bodies_and_more_requests)
{
	check("c.deep.test",
	      "POST / HTTP/1.1\r\nHost: c.deep.test\r\nContent-Length: 5\r\n\r\nhello"
	      "GET /2 HTTP/1.1\r\nHost: c.deep.test\r\n\r\n",
	      "POST / HTTP/1.1\r\nHost: c.deep.test\r\nContent-Length: 5\r\nX-Deep: 1\r\n\r\nhello"
	      "GET /2 HTTP/1.1\r\nHost: c.deep.test\r\nX-Deep: 1\r\n\r\n");
}

TEST(chunks)
{
	static const char in[] = "POST / HTTP/1.1\r\nHost: c.deep.test\r\nTransfer-Encoding: chunked\r\n\r\n"
				 "5;ext=1\r\nhello\r\n0\r\nX-T: 1\r\n\r\nGET /2 HTTP/1.1\r\nHost: c.deep.test\r\n\r\n";
	char *got = sent("c.deep.test", in, sizeof(in));

	CHECK(strstr(got, "Transfer-Encoding: chunked\r\n") && strstr(got, "\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\nGET /2 "));
	free(got);
}

TEST(upgrades)
{
	static const char in[] = "GET /ws HTTP/1.1\r\nHost: c.deep.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
				 "\x81\x05hello GET / HTTP/1.1\r\n\r\n";
	char *got = sent("c.deep.test", in, sizeof(in));

	CHECK(strstr(got, "X-Deep: 1\r\n") && strstr(got, "pgrade: websocket\r\n") && strstr(got, "onnection: Upgrade\r\n"));
	CHECK(strstr(got, "\r\n\r\n\x81\x05hello GET / HTTP/1.1\r\n\r\n"));
	free(got);
}

TEST(other_hosts)
{
	/* One that has no rules is nobody's business; one that has must have a connection of its own. */
	check("a.test", "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n");
	check("a.test", "GET / HTTP/1.1\r\nHost: c.deep.test\r\n\r\n", "!");
	check("plain.test", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "!");
	check("plain.test", "GET http://a.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n", "!");
}

TEST(refused)
{
	static const char *const in[] = {
		"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\nX: y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\n folded\r\n\r\n",
		"nonsense\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(in); i++) {
		char *got = sent("a.test", in[i], 1000);

		CHECK(got[0] && got[strlen(got) - 1] == '!');
		free(got);
	}
	CHECK(header_rewrite_free(NULL) == NULL);
}

TEST(no_more_ahead_than_said)
{
	static char body[200000];
	struct egrule *r = rules();
	struct buf out = BUF_NULL;
	struct header_rewrite *h;
	const char *why;
	size_t total = 0;

	CHECK_INT(header_rewrite_new("a.test", 0, &h), 0);
	CHECK_INT(
		buf_put_str(header_rewrite_raw(h),
			    "PUT / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 200000\r\n\r\n"),
		0);
	for (size_t at = 0; at < sizeof(body); at += 10000) {
		CHECK_INT(buf_put(header_rewrite_raw(h), body + at, 10000), 0);
		CHECK_INT(header_rewrite_run(h, r, &out, &why), 0);
		CHECK(buf_len(&out) < HEADER_REWRITE_AHEAD + 10000 * 21);
		if (at % 50000 == 0) {
			total += buf_len(&out);
			buf_drop(&out, buf_len(&out));
		}
	}
	while (buf_len(&out)) {
		total += buf_len(&out);
		buf_drop(&out, buf_len(&out));
		CHECK_INT(header_rewrite_run(h, r, &out, &why), 0);
	}
	CHECK(total > sizeof(body) && !buf_len(header_rewrite_raw(h)));
	header_rewrite_free(h);
	egrule_free(r);
	buf_fini(&out);
}

TEST_MAIN()
