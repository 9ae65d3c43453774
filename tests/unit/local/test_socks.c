/* SPDX-License-Identifier: MIT */
/* The talk with a SOCKS5 proxy. */
#include "daemon/local/egress/socks.h"

#include <string.h>

#include "tests/lib/test.h"

struct talk {
	struct socks s;
	struct buf in, out;
	const char *why;
};

static void begin(struct talk *t, const char *name, const char *user, const char *password)
{
	*t = (struct talk){ .s = { .to = { name, 0x01020304, 443 }, .user = user, .password = password } };
	CHECK_INT(socks_begin(&t->s, &t->out), 0);
}

static void end(struct talk *t)
{
	buf_fini(&t->in);
	buf_fini(&t->out);
}

static enum socks_result hear(struct talk *t, const char *p, size_t n)
{
	CHECK_INT(buf_put(&t->in, p, n), 0);
	return socks_talk(&t->s, &t->in, &t->out, &t->why);
}

/* It has said exactly this, since it was asked last. */
static void said(struct talk *t, const char *p, size_t n)
{
	CHECK_INT(buf_len(&t->out), n);
	CHECK(!memcmp(buf_data(&t->out), p, n));
	buf_drop(&t->out, n);
}

#define HEAR(t, text) hear(t, text, sizeof(text) - 1)
#define SAID(t, text) said(t, text, sizeof(text) - 1)

TEST(by_address)
{
	struct talk t;

	begin(&t, NULL, NULL, NULL);
	SAID(&t, "\5\1\0");
	CHECK_INT(HEAR(&t, "\5"), SOCKS_MORE);
	CHECK_INT(HEAR(&t, "\0"), SOCKS_MORE);
	SAID(&t, "\5\1\0\1\1\2\3\4\1\273");
	CHECK_INT(HEAR(&t, "\5\0\0\1\0\0\0\0\0"), SOCKS_MORE);
	CHECK_INT(HEAR(&t, "\0hello"), SOCKS_DONE);
	CHECK_INT(buf_len(&t.in), 5);
	CHECK(!memcmp(buf_data(&t.in), "hello", 5));
	end(&t);
}

TEST(by_name_with_password)
{
	struct talk t;

	begin(&t, "a.test", "me", "pw");
	SAID(&t, "\5\2\0\2");
	CHECK_INT(HEAR(&t, "\5\2"), SOCKS_MORE);
	SAID(&t, "\1\2me\2pw");
	CHECK_INT(HEAR(&t, "\1\0\5\0\0\3\1x\0\0"), SOCKS_DONE);	/* one that does not wait */
	SAID(&t, "\5\1\0\3\6a.test\1\273");
	CHECK_INT(buf_len(&t.in), 0);
	end(&t);
	begin(&t, NULL, "me", NULL);
	SAID(&t, "\5\2\0\2");
	CHECK_INT(HEAR(&t, "\5\0"), SOCKS_MORE);		/* it does not want to know */
	SAID(&t, "\5\1\0\1\1\2\3\4\1\273");
	CHECK_INT(HEAR(&t, "\5\0\0\4" "0123456789abcdef\0\0"), SOCKS_DONE);
	end(&t);
}

TEST(refused)
{
	static const struct {
		const char *user, *hears;
		size_t n;
	} rows[] = {
		{ NULL, "\4\0", 2 },		 { NULL, "\5\377", 2 },	 { NULL, "\5\2", 2 },
		{ "u", "\5\1", 2 },		 { "u", "\5\2\1\1", 4 }, { "u", "\5\2\5\0", 4 },
		{ NULL, "\5\0\5\2", 4 },	 { NULL, "\5\0\5\377", 4 }, { NULL, "\5\0\4", 3 },
		{ NULL, "\5\0\5\0\0\2\0", 7 },	 { NULL, "HTTP/1.1 400", 12 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct talk t;

		begin(&t, NULL, rows[i].user, NULL);
		CHECK_INT(hear(&t, rows[i].hears, rows[i].n), SOCKS_REFUSED);
		CHECK(t.why && *t.why);
		end(&t);
	}
}

TEST_MAIN()
