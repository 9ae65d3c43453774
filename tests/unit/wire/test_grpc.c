/* SPDX-License-Identifier: MIT */
#include "proto/wire/grpc.h"

#include <errno.h>

#include "tests/lib/test.h"

TEST(timeouts)
{
	static const struct {
		const char *s;
		int r;
		uint64_t ms;
	} t[] = {
		{ "1500m", 0, 1500 }, { "1S", 0, 1000 },      { "2M", 0, 120000 }, { "1H", 0, 3600000 },
		{ "1u", 0, 1 },	      { "1n", 0, 1 },	      { "0S", 0, 0 },	   { "99999999H", 0, 359999996400000 },
		{ "", -EINVAL, 0 },   { "5", -EINVAL, 0 },    { "S", -EINVAL, 0 }, { "5x", -EINVAL, 0 },
		{ "123456789m", -EINVAL, 0 }, { "5SS", -EINVAL, 0 }, { "-5S", -EINVAL, 0 },
	};
	static const uint64_t ms[] = { 1, 1500, 99999999, 100000000, 360000000000ull };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t v = 0;

		CHECK_INT(grpc_timeout_parse(t[i].s, &v), t[i].r);
		CHECK_INT(v, t[i].ms);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ms); i++) {
		char s[16];
		uint64_t v;

		grpc_timeout_format(ms[i], s);
		CHECK_INT(grpc_timeout_parse(s, &v), 0);
		CHECK(v >= ms[i]);
	}
}

TEST(messages)
{
	char *e = grpc_message_encode("a%b\n\xc3\xa9~");
	char bad[] = "x%zz%4", cut[] = "%";

	CHECK_STR(e, "a%25b%0A%C3%A9~");
	grpc_message_decode(e);
	CHECK_STR(e, "a%b\n\xc3\xa9~");
	free(e);
	grpc_message_decode(bad);
	CHECK_STR(bad, "x%zz%4");
	grpc_message_decode(cut);
	CHECK_STR(cut, "%");
}

TEST(request_heads)
{
	static const struct {
		const char *method, *type, *path;
		int r;
	} t[] = {
		{ "POST", "application/grpc", "/a.B/C", 0 },
		{ "POST", "application/grpc+proto", "/a.B/C", 0 },
		{ "POST", "application/grpc;x=y", "/a.B/C", 0 },
		{ "POST", "application/grpc+json", "/a.B/C", 415 },
		{ "POST", "application/grpcx", "/a.B/C", 415 },
		{ "POST", "text/plain", "/a.B/C", 415 },
		{ "GET", "application/grpc", "/a.B/C", 405 },
		{ "POST", "application/grpc", "a.B/C", 400 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct fields f = FIELDS_NULL;

		CHECK_INT(fields_put(&f, ":method", t[i].method), 0);
		CHECK_INT(fields_put(&f, ":path", t[i].path), 0);
		CHECK_INT(fields_put(&f, "content-type", t[i].type), 0);
		CHECK_INT(grpc_check_request(&f), t[i].r);
		fields_fini(&f);
	}
}

TEST(a_status_goes_round)
{
	struct fields f = FIELDS_NULL;
	const char *message;
	uint8_t *details;
	size_t n;

	CHECK_INT(grpc_trailers(&f, CODE_NOT_FOUND, "no \xe2\x98\x83", "\1\2\3", 3), 0);
	CHECK_INT(grpc_status_read(&f, &message, &details, &n), CODE_NOT_FOUND);
	CHECK_STR(message, "no %E2%98%83");
	CHECK_INT(n, 3);
	CHECK(!memcmp(details, "\1\2\3", 3));
	free(details);
	fields_clear(&f);
	CHECK_INT(fields_put(&f, ":status", "503"), 0);
	CHECK_INT(grpc_status_read(&f, &message, &details, &n), CODE_UNAVAILABLE);
	fields_clear(&f);
	CHECK_INT(fields_put(&f, "grpc-status", "17"), 0);
	CHECK_INT(grpc_status_read(&f, &message, &details, &n), CODE_UNKNOWN);
	fields_fini(&f);
}

TEST_MAIN()
