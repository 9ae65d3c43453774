/* SPDX-License-Identifier: MIT */
/* For which host a connection is. */
#include "daemon/local/egress/sniff.h"

#include <string.h>

#include "proto/base/cc.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

static enum sniff sniff(const void *p, size_t n, const char *want)
{
	char name[SNIFF_NAME_MAX + 1] = "";
	enum sniff r = sniff_name(p, n, name);

	if (r == SNIFF_TLS || r == SNIFF_HTTP)
		CHECK_STR(name, want);
	return r;
}

TEST(http)
{
	static const struct {
		const char *text;
		enum sniff want;
		const char *name;
	} t[] = {
		{ "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", SNIFF_HTTP, "a.test" },
		{ "GET / HTTP/1.0\r\nhOsT:A.Test.:8080 \t\r\nX: y\r\n\r\nbody", SNIFF_HTTP, "a.test" },
		{ "POST /x HTTP/1.1\r\nX-Host: b.test\r\nHost: a_b.test\r\n\r\n", SNIFF_HTTP, "a_b.test" },
		{ "GET / HTTP/1.1\r\nHost: a.test\r\nHostage: b\r\n\r\n", SNIFF_HTTP, "a.test" },
		{ "", SNIFF_MORE, NULL },
		{ "G", SNIFF_MORE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test\r\n", SNIFF_MORE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test\r\n\r", SNIFF_MORE, NULL },
		{ "GET / HTTP/1.1\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test\r\nhost:b.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost : a.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\n Host: a.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test\r\n b.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\nHost: a.test\n\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test\rx\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a..test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a..\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: .\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test:80x\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test b.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: user@a.test\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", SNIFF_NONE, NULL },
		{ "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", SNIFF_NONE, NULL },
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SNIFF_NONE, NULL },
		{ "SSH-2.0-x\r\n", SNIFF_NONE, NULL },
		{ "GET /\r\n\r\n", SNIFF_NONE, NULL },
		{ "\r\n", SNIFF_NONE, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(sniff(t[i].text, strlen(t[i].text), t[i].name), t[i].want);
	CHECK_INT(sniff("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 30, NULL), SNIFF_NONE);
}

TEST(http_at_every_length)
{
	static const char text[] = "GET / HTTP/1.1\r\nAccept: *\r\nHost: a.test\r\n\r\n";

	for (size_t n = 0; n < sizeof(text) - 1; n++)
		CHECK_INT(sniff(text, n, NULL), SNIFF_MORE);
	CHECK_INT(sniff(text, sizeof(text) - 1, "a.test"), SNIFF_HTTP);
}

TEST(http_too_long)
{
	static char text[SNIFF_MAX_BYTES + 64] = "GET / HTTP/1.1\r\nX: ";

	memset(text + strlen(text), 'x', SNIFF_MAX_BYTES);
	CHECK_INT(sniff(text, SNIFF_MAX_BYTES - 1, NULL), SNIFF_MORE);
	CHECK_INT(sniff(text, SNIFF_MAX_BYTES, NULL), SNIFF_NONE);
}

/* --- TLS --- */

struct hello {
	uint8_t b[2048];
	size_t n;
};

static void put(struct hello *h, const void *p, size_t n)
{
	memcpy(h->b + h->n, p, n);
	h->n += n;
}

static void put_number(struct hello *h, size_t v, unsigned bytes)
{
	while (bytes--)
		h->b[h->n++] = (uint8_t)(v >> (8 * bytes));
}

/* A handshake message without its record; `names` of them are in the list. */
static void hello_make(struct hello *h, const char *name, unsigned names, unsigned extensions)
{
	static const uint8_t head[2 + 32] = { 3, 3 };
	size_t n = strlen(name), list = names * (3 + n), e = 2 + list;
	size_t all = (4 + 1) + extensions * (4 + e);

	*h = (struct hello){ .n = 0 };
	put_number(h, 1, 1);
	put_number(h, sizeof(head) + 1 + 4 + 2 + 2 + all, 3);
	put(h, head, sizeof(head));
	put_number(h, 0, 1);		/* session */
	put_number(h, 2, 2);		/* one suite */
	put_number(h, 0x1301, 2);
	put_number(h, 1, 1);		/* compression */
	put_number(h, 0, 1);
	put_number(h, all, 2);
	put_number(h, 23, 2);		/* another extension */
	put_number(h, 1, 2);
	put_number(h, 0, 1);
	for (unsigned i = 0; i < extensions; i++) {
		put_number(h, 0, 2);
		put_number(h, e, 2);
		put_number(h, list, 2);
		for (unsigned k = 0; k < names; k++) {
			put_number(h, 0, 1);
			put_number(h, n, 2);
			put(h, name, n);
		}
	}
}

/* In records of at most `size` bytes. */
static void record(const struct hello *h, size_t size, struct hello *ret)
{
	*ret = (struct hello){ .n = 0 };
	for (size_t at = 0; at < h->n; at += size) {
		size_t n = MIN(size, h->n - at);

		put_number(ret, 0x160301, 3);
		put_number(ret, n, 2);
		put(ret, h->b + at, n);
	}
}

TEST(tls)
{
	static const size_t sizes[] = { 2048, 64, 7, 1 };
	struct hello h, r;

	hello_make(&h, "Some.Name.test", 1, 1);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		record(&h, sizes[i], &r);
		for (size_t n = 0; n < r.n; n++)
			CHECK_INT(sniff(r.b, n, NULL), SNIFF_MORE);
		CHECK_INT(sniff(r.b, r.n, "some.name.test"), SNIFF_TLS);
		CHECK_INT(sniff(r.b, r.n + 5, "some.name.test"), SNIFF_TLS);	/* what follows is not looked at */
	}
}

TEST(tls_without_a_name)
{
	static const struct {
		const char *name;
		unsigned names, extensions;
	} t[] = { { "a.test", 1, 0 }, { "a.test", 2, 1 },   { "a.test", 1, 2 }, { "a.test", 0, 1 },
		  { "", 1, 1 },	      { "127.0.0.1", 1, 1 }, { "a b", 1, 1 },	 { "a..b", 1, 1 } };
	struct hello h, r;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		hello_make(&h, t[i].name, t[i].names, t[i].extensions);
		record(&h, 2048, &r);
		CHECK_INT(sniff(r.b, r.n, NULL), SNIFF_NONE);
	}
}

TEST(tls_broken)
{
	struct hello h, r;

	hello_make(&h, "a.test", 1, 1);
	for (size_t i = 0; i < h.n; i++) {	/* any one byte: no crash, and no other name */
		struct hello bad = h;
		char name[SNIFF_NAME_MAX + 1] = "a.test";

		bad.b[i] ^= 0xff;
		record(&bad, 2048, &r);
		if (sniff_name(r.b, r.n, name) == SNIFF_TLS && i < h.n - 6)
			CHECK_STR(name, "a.test");
	}
	record(&h, 2048, &r);
	r.b[1] = 2;
	CHECK_INT(sniff(r.b, r.n, NULL), SNIFF_NONE);
	record(&h, 2048, &r);
	r.b[5] = 2;		/* a ServerHello */
	CHECK_INT(sniff(r.b, r.n, NULL), SNIFF_NONE);
	record(&h, 2048, &r);
	r.b[6] = 1;		/* a hello of 64 KiB */
	CHECK_INT(sniff(r.b, r.n, NULL), SNIFF_NONE);
	r.b[3] = r.b[4] = 0;	/* an empty record */
	CHECK_INT(sniff(r.b, r.n, NULL), SNIFF_NONE);
}

TEST_MAIN()
