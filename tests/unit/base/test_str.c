/* SPDX-License-Identifier: MIT */
#include "proto/base/str.h"

#include <errno.h>

#include "tests/lib/test.h"

TEST(durations)
{
	static const struct {
		const char *s;
		int r;
		uint64_t ms;
	} t[] = {
		{ "90s", 0, 90000 },	   { "5m", 0, 300000 },	   { "1h30m", 0, 5400000 },
		{ "250ms", 0, 250 },	   { "2d", 0, 172800000 }, { "1s500ms", 0, 1500 },
		{ "0s", 0, 0 },		   { "90", -EINVAL, 0 },   { "", -EINVAL, 0 },
		{ "s", -EINVAL, 0 },	   { "1m1h", -EINVAL, 0 }, { "1h1h", -EINVAL, 0 },
		{ "-1s", -EINVAL, 0 },	   { "1.5s", -EINVAL, 0 }, { "99999999d", -ERANGE, 0 },
		{ "184467440737095517s", -ERANGE, 0 }, { "5 m", -EINVAL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t ms = 0;

		CHECK_INT(str_duration_ms(t[i].s, &ms), t[i].r);
		CHECK_INT(ms, t[i].ms);
	}
}

/* B-8: the reason is at the end. */
TEST(a_long_text_keeps_its_ends)
{
	char dst[20], small[40];

	str_copy_ends(dst, sizeof(dst), "nineteen characters");
	CHECK_STR(dst, "nineteen characters");
	str_copy_ends(dst, sizeof(dst), "starting 'a long line': denied");
	CHECK_STR(dst, "startin ...  denied");
	str_copy_ends(dst, sizeof(dst), "\303\244\303\266\303\274" "\303\244\303\266\303\274" "\303\244\303\266\303\274" "\303\244\303\266\303\274..");
	CHECK_STR(dst, "\303\244\303\266\303\274 ... \303\266\303\274..");
	for (size_t n = 1; n < 3 * sizeof(small); n++) {
		char src[6 * sizeof(small) + 3];

		for (size_t i = 0; i < n; i++)
			memcpy(src + 2 * i, "\303\266", 3);
		for (size_t cap = sizeof(STR_CUT) + 1; cap <= sizeof(small); cap++) {
			str_copy_ends(small, cap, src);
			CHECK(strlen(small) < cap && (2 * n < cap || str_is_utf8(small, strlen(small))));
		}
	}
}

TEST(numbers)
{
	uint64_t v = 0;

	CHECK_INT(str_u64("18446744073709551615", 20, UINT64_MAX, &v), 0);
	CHECK(v == UINT64_MAX);
	CHECK_INT(str_u64("18446744073709551616", 20, UINT64_MAX, &v), -ERANGE);
	CHECK_INT(str_u64("65536", 5, 65535, &v), -ERANGE);
	CHECK_INT(str_u64("+3", 2, 9, &v), -EINVAL);
	CHECK_INT(str_u64("", 0, 9, &v), -EINVAL);
	CHECK_INT(str_bytes("64k", &v), 0);
	CHECK_INT(v, 65536);
	CHECK_INT(str_bytes("64kb", &v), -EINVAL);
}

TEST(utf8)
{
	static const struct {
		const char *s;
		size_t n;
		bool ok;
	} t[] = {
		{ "plain", 5, true },	     { "caf\xc3\xa9", 5, true },
		{ "\xf0\x9f\x8e\x89", 4, true }, { "\xf0\x9f\x8e", 3, false },
		{ "\xc0\x80", 2, false },    { "\xed\xa0\x80", 3, false },
		{ "\xf4\x90\x80\x80", 4, false }, { "a\0b", 3, false },
		{ "\xff", 1, false },	     { "\xe0\x80\x80", 3, false },
	};

	/* Between so many other bytes, since eight of them are looked at together. */
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		for (size_t before = 0; before < 18; before++) {
			for (size_t after = 0; after < 18; after++) {
				char s[40];

				memset(s, 'x', sizeof(s));
				memcpy(s + before, t[i].s, t[i].n);
				CHECK(str_is_utf8(s, before + t[i].n + after) == t[i].ok);
			}
		}
	}
}

TEST(percent)
{
	char s[] = "a%20b%2Fc+d", bad[] = "a%2", *e;

	CHECK_INT(str_percent_decode(s, strlen(s), false), 7);
	CHECK(!memcmp(s, "a b/c+d", 7));
	CHECK_INT(str_percent_decode(bad, 3, false), -EINVAL);
	e = str_percent_encode("k&=\xc3\xa9+1", 7);
	CHECK_STR(e, "k%26%3D%C3%A9%2B1");
	free(e);
}

TEST(base64)
{
	static const struct {
		const char *plain, *coded;
	} t[] = { { "", "" }, { "h", "aA==" }, { "hi", "aGk=" }, { "hi\n", "aGkK" }, { "hi\n!", "aGkKIQ==" } };
	uint8_t out[16];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *c = str_base64_encode(t[i].plain, strlen(t[i].plain), true);

		CHECK_STR(c, t[i].coded);
		CHECK_INT(str_base64_decode(c, strlen(c), out), strlen(t[i].plain));
		CHECK(!memcmp(out, t[i].plain, strlen(t[i].plain)));
		free(c);
	}
	CHECK_INT(str_base64_decode("aA", 2, out), 1);
	CHECK_INT(str_base64_decode("aA=", 3, out), -EINVAL);
	CHECK_INT(str_base64_decode("a", 1, out), -EINVAL);
	CHECK_INT(str_base64_decode("a*==", 4, out), -EINVAL);
}

TEST(rfc3339)
{
	static const struct {
		const char *s;
		int r;
		int64_t ms;
	} t[] = {
		{ "1970-01-01T00:00:00Z", 0, 0 },
		{ "2026-08-21T10:00:00.123456Z", 0, 1787306400123 },
		{ "2026-08-21T10:00:00.123456789+00:00", 0, 1787306400123 },
		{ "2026-08-21T12:30:00+02:30", 0, 1787306400000 },
		{ "2026-08-21T10:00:00.5Z", 0, 1787306400500 },
		{ "2026-13-01T00:00:00Z", -EINVAL, 0 },
		{ "2026-08-21T10:00:00", -EINVAL, 0 },
		{ "2026-08-21T10:00:00.Z", -EINVAL, 0 },
		{ "2026-08-21T10:00:00Zx", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
	};
	char out[40];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		int64_t ms = 0;

		CHECK_INT(str_rfc3339_ms(t[i].s, &ms), t[i].r);
		CHECK_INT(ms, t[i].ms);
	}
	str_rfc3339(1787306400123456, 6, out);
	CHECK_STR(out, "2026-08-21T10:00:00.123456Z");
	/* G-8: four digits of the year */
	str_rfc3339(-62135596800000000, 6, out);
	CHECK_STR(out, "0001-01-01T00:00:00.000000Z");
	str_rfc3339(-30610224000000001, 3, out);
	CHECK_STR(out, "0999-12-31T23:59:59.999Z");
	str_rfc3339(253402300800000000, 0, out);
	CHECK_STR(out, "10000-01-01T00:00:00Z");
	str_rfc3339(-1, 6, out);
	CHECK_STR(out, "1969-12-31T23:59:59.999999Z");
}

TEST_MAIN()
