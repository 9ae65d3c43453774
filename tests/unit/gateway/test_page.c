/* SPDX-License-Identifier: MIT */
/* The status page: what opens it, and that no text of others becomes markup. */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/html.h"
#include "daemon/gateway/page_pass.h"
#include "daemon/gateway/page_shell.h"
#include "tests/lib/test.h"

static const uint8_t key[PAGE_PASS_KEY] = { 1, 2, 3 }, other[PAGE_PASS_KEY] = { 1, 2, 4 };

TEST(a_pass_is_read_back)
{
	const struct page_pass p = { .kind = PAGE_SESSION, .sight = PAGE_MASKED, .uid = 4294967294u, .end_s = 1000, .nonce = { 0xff, 7 } };
	struct page_pass got;
	char text[PAGE_PASS_TEXT];

	page_pass_write(key, &p, text);
	CHECK(page_pass_read(key, text, PAGE_SESSION, 999, &got));
	CHECK_INT(got.uid, p.uid);
	CHECK_INT(got.sight, PAGE_MASKED);
	CHECK_INT(got.end_s, 1000);
	CHECK(!memcmp(got.nonce, p.nonce, sizeof(p.nonce)));
	CHECK(!page_pass_read(key, text, PAGE_SESSION, 1000, &got));	/* over */
	CHECK(!page_pass_read(key, text, PAGE_TICKET, 0, &got));
	CHECK(!page_pass_read(other, text, PAGE_SESSION, 0, &got));
}

TEST(every_byte_of_a_pass_counts)
{
	const struct page_pass p = { .kind = PAGE_TICKET, .sight = PAGE_OWN, .uid = 1000, .end_s = 1000 };
	struct page_pass got;
	char text[PAGE_PASS_TEXT];
	size_t n;

	page_pass_write(key, &p, text);
	n = strlen(text);
	for (size_t i = 0; i < n; i++) {
		text[i] ^= 1;
		CHECK(!page_pass_read(key, text, PAGE_TICKET, 0, &got));
		text[i] ^= 1;
	}
	text[n - 1] = '\0';
	CHECK(!page_pass_read(key, text, PAGE_TICKET, 0, &got));
	CHECK(!page_pass_read(key, "", PAGE_TICKET, 0, &got));
}

TEST(a_cookie_among_others)
{
	char got[PAGE_PASS_TEXT], longest[400];

	CHECK(page_cookie_find("a=b; agentboxd_page=s.1; c=d", got));
	CHECK_STR(got, "s.1");
	CHECK(page_cookie_find("agentboxd_page=", got));
	CHECK_STR(got, "");
	CHECK(!page_cookie_find("xagentboxd_page=1;agentboxd_pages=2; agentboxd_page", got));
	CHECK(!page_cookie_find(" ;; ", got));
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	memcpy(longest, "agentboxd_page=", 15);
	CHECK(!page_cookie_find(longest, got));
}

static char *text_of(const char *s, size_t n)
{
	struct html h = { .b = BUF_NULL };
	char *ret;

	html_text(&h, s, n);
	CHECK(!h.failed);
	ret = strndup(buf_len(&h.b) ? (const char *)buf_data(&h.b) : "", buf_len(&h.b));
	buf_fini(&h.b);
	return ret;
}

TEST(no_text_becomes_markup)
{
	static const struct { const char *text, *html; } t[] = {
		{ "plain \xc3\xbc", "plain \xc3\xbc" }, { "<b a='\"'>&", "&lt;b a=&#39;&quot;&#39;&gt;&amp;" },
		{ "a\nb\tc", "a\nb\tc" }, { "\x1b[31m\x7f\r", "\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd" }, { "\xff<\xc3", "\xef\xbf\xbd&lt;\xef\xbf\xbd" },
		{ "\xe2\x80\xae" "x\xe2\x81\xa6\xc2\x85", "\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd" }, { "", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *got = text_of(t[i].text, strlen(t[i].text));

		CHECK_STR(got, t[i].html);
		free(got);
	}
}

TEST(a_page_without_room_fails)
{
	struct html h = { .failed = false };

	buf_init(&h.b, 100);
	page_shell_say(&h, "more than that");
	CHECK(h.failed);
	html_str(&h, "and stays so");
	CHECK(h.failed);
	buf_fini(&h.b);
}

TEST(sizes_and_moments)
{
	struct html h = { .b = BUF_NULL };
	static const uint64_t sizes[] = { 0, 999, 1000, 1234567, UINT64_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		html_size(&h, sizes[i]);
		html_put(&h, " ");
	}
	html_moment(&h, 0);
	html_moment(&h, 1700000000999);
	CHECK(!buf_put(&h.b, "", 1));
	CHECK_STR((const char *)buf_data(&h.b), "0 B 999 B 1.0 kB 1.2 MB 18.4 EB –<time datetime=\"2023-11-14T22:13:20Z\">2023-11-14 22:13:20</time>");
	buf_fini(&h.b);
}

TEST_MAIN()
