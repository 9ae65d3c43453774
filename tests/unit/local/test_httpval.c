/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "daemon/common/http/httpval.h"
#include "daemon/common/http/mime.h"
#include "daemon/common/net/gz.h"
#include "daemon/local/main/cfg.h"
#include "tests/lib/test.h"

TEST(codings)
{
	static const struct {
		const char *accept;
		bool identity_only;
		enum coding want;
	} t[] = {
		{ NULL, false, CODING_IDENTITY },
		{ "", false, CODING_IDENTITY },
		{ "gzip", false, CODING_GZIP },
		{ "gzip, deflate, br", false, CODING_GZIP },
		{ "GZIP;q=0.5", false, CODING_GZIP },
		{ "gzip;q=0", false, CODING_IDENTITY },
		{ "identity", false, CODING_IDENTITY },
		{ "gzip;q=0.5, identity", false, CODING_IDENTITY },
		{ "*", false, CODING_IDENTITY },
		{ "br", false, CODING_IDENTITY },
		{ "identity;q=0, br", false, CODING_NONE },
		{ "*;q=0", false, CODING_NONE },
		{ "identity;q=0, *", false, CODING_GZIP },
		{ "gzip, identity;q=0", false, CODING_GZIP },
		{ "gzip", true, CODING_IDENTITY },
		{ "gzip, identity;q=0", true, CODING_NONE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(httpval_coding(t[i].accept, t[i].identity_only), t[i].want);
}

TEST(ranges)
{
	static const struct {
		const char *range;
		uint64_t size;
		enum range want;
		uint64_t first, n;
	} t[] = {
		{ NULL, 10, RANGE_WHOLE, 0, 0 },
		{ "bytes=0-3", 10, RANGE_PART, 0, 4 },
		{ "bytes=5-", 10, RANGE_PART, 5, 5 },
		{ "bytes=-3", 10, RANGE_PART, 7, 3 },
		{ "bytes=-30", 10, RANGE_PART, 0, 10 },
		{ "bytes=8-99", 10, RANGE_PART, 8, 2 },
		{ "bytes=10-", 10, RANGE_BAD, 0, 0 },
		{ "bytes=3-2", 10, RANGE_BAD, 0, 0 },
		{ "bytes=-0", 10, RANGE_BAD, 0, 0 },
		{ "bytes=x", 10, RANGE_BAD, 0, 0 },
		{ "bytes=0-0", 0, RANGE_BAD, 0, 0 },
		{ "bytes=0-1,3-4", 10, RANGE_WHOLE, 0, 0 },
		{ "lines=0-1", 10, RANGE_WHOLE, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t first = 0, n = 0;

		CHECK_INT(httpval_range(t[i].range, t[i].size, &first, &n), t[i].want);
		if (t[i].want == RANGE_PART) {
			CHECK_INT(first, t[i].first);
			CHECK_INT(n, t[i].n);
		}
	}
}

TEST(dates)
{
	char text[40];
	int64_t s;

	httpval_date(784111777, text);
	CHECK_STR(text, "Sun, 06 Nov 1994 08:49:37 GMT");
	CHECK(!httpval_parse_date(text, &s));
	CHECK_INT(s, 784111777);
	CHECK(httpval_parse_date("", &s) < 0);
	CHECK(httpval_parse_date("Sun, 06 Nov 1994 08:49:37 UTC", &s) < 0);
	CHECK(httpval_parse_date("Sun, xx Nov 1994 08:49:37 GMT", &s) < 0);
	CHECK(httpval_parse_date("Sun, 06 Foo 1994 08:49:37 GMT", &s) < 0);
}

TEST(dispositions)
{
	static const struct {
		const char *name, *want;
	} t[] = { { "a.txt", "inline; filename=a.txt" },
		  { "a b.txt", "inline; filename=\"a b.txt\"" },
		  { "\xc3\xbc", "inline; filename*=utf-8''%C3%BC" },
		  { "a\"b", "inline; filename*=utf-8''a%22b" },
		  { "a\nb", "inline; filename*=utf-8''a%0Ab" } };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *got = httpval_disposition(t[i].name);

		CHECK_STR(got, t[i].want);
		free(got);
	}
}

TEST(types)
{
	CHECK_STR(mime_type("x.JSON", NULL, 0), "application/json");
	CHECK_STR(mime_type("x", (const uint8_t *)"\x89PNG\r\n\x1a\n", 8), "image/png");
	CHECK_STR(mime_type("x", (const uint8_t *)"hello\n", 6), "text/plain; charset=utf-8");
	CHECK_STR(mime_type("x", (const uint8_t *)"a\0b", 3), "application/octet-stream");
	CHECK_STR(mime_type("x", NULL, 0), "text/plain; charset=utf-8");
}

TEST(gzip)
{
	struct buf packed = BUF_NULL, twice = BUF_NULL, plain = BUF_NULL;
	char text[100000];

	memset(text, 'x', sizeof(text));
	CHECK(!gz_pack(text, sizeof(text), &packed));
	CHECK(buf_len(&packed) < 1000);
	CHECK(!gz_unpack(buf_data(&packed), buf_len(&packed), sizeof(text), &plain));
	CHECK_INT(buf_len(&plain), sizeof(text));
	buf_fini(&plain);
	CHECK_INT(gz_unpack(buf_data(&packed), buf_len(&packed), 1000, &plain), -EFBIG);
	buf_fini(&plain);
	CHECK_INT(gz_unpack(buf_data(&packed), buf_len(&packed) - 1, sizeof(text), &plain), -EBADMSG);
	buf_fini(&plain);
	CHECK_INT(gz_unpack("junk", 4, 1000, &plain), -EBADMSG);
	buf_fini(&plain);

	/* Two members are one text. */
	CHECK(!buf_put(&twice, buf_data(&packed), buf_len(&packed)));
	CHECK(!buf_put(&twice, buf_data(&packed), buf_len(&packed)));
	CHECK(!gz_unpack(buf_data(&twice), buf_len(&twice), 2 * sizeof(text), &plain));
	CHECK_INT(buf_len(&plain), 2 * sizeof(text));
	buf_fini(&plain);
	buf_fini(&twice);
	buf_fini(&packed);
}

TEST(addresses)
{
	static const char *const bad[] = { "", ":1", "127.0.0.1", "host:1", "127.0.0.1:65536",
					   "[::1]", "127.0.0.1:x" };
	struct cfg_addr a;

	CHECK(!cfg_parse_addr("127.0.0.1:0", &a) && a.sa.ss_family == AF_INET);
	CHECK(!cfg_parse_addr("localhost:80", &a) && a.sa.ss_family == AF_INET);
	CHECK(!cfg_parse_addr("[::1]:80", &a) && a.sa.ss_family == AF_INET6);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(cfg_parse_addr(bad[i], &a) < 0);
}

TEST_MAIN()
