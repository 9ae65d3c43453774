/* SPDX-License-Identifier: MIT */
/* G-5: no text shows a secret, whole, cut or in the middle of a word; and nothing else is hidden. */
#include <string.h>

#include "daemon/common/obs/redact.h"
#include "tests/lib/test.h"

static const char *after(const char *text)
{
	static char buf[400];

	(void)snprintf(buf, sizeof(buf), "%s", text);
	redact_text(buf);
	return buf;
}

TEST(secrets_are_hidden)
{
	redact_note("ab_0123456789abcdef");
	CHECK_STR(after("bad key ab_0123456789abcdef, says the cloud"), "bad key *******************, says the cloud");
	CHECK_STR(after("ab_0123456789abcdef"), "*******************");
	CHECK_STR(after("cut: ab_0123456"), "cut: **********");
	CHECK_STR(after("Bearer:ab_0123456789abcdef"), "Bearer:*******************");
	CHECK_STR(after("xab_0123456789abcdef"), "x*******************");
	CHECK_STR(after("twice ab_0123456789abcdef \"ab_0123456789abcdef\""), "twice ******************* \"*******************\"");
}

TEST(other_text_stays)
{
	redact_note("");
	redact_note(NULL);
	redact_note("abc");
	redact_note("ab_0123456789abcdef");
	CHECK_STR(after(""), "");
	CHECK_STR(after("abc ab_0123"), "abc ab_0123");
	CHECK_STR(after("ab_9123456789abcdef"), "ab_9123456789abcdef");
}

/* G-5: a short one is hidden where it stands by itself: as a part of words it tells nothing, and they are needed. */
TEST(short_secrets)
{
	redact_keep("hunter2");
	redact_note("p@ss");
	CHECK_STR(after("407 for user:hunter2"), "407 for user:*******");
	CHECK_STR(after("hunter2"), "*******");
	CHECK_STR(after("hunter22 and xhunter2, \"hunter2\""), "hunter22 and xhunter2, \"*******\"");
	CHECK_STR(after("with p@ss, p@ss"), "with ****, ****");
	for (unsigned i = 0; i < 200; i++) {
		char text[8];

		(void)snprintf(text, sizeof(text), "s%05u", i);
		redact_note(text);
	}
	CHECK_STR(after("hunter2 p@ss s00199 s00136 s00135"), "******* p@ss ****** ****** s00135");
}

/* G-5: none of its words is long enough, but it is. */
TEST(a_secret_of_short_words)
{
	redact_keep("a1b2c3!d4e5f6!g7h8");
	CHECK_STR(after("407 for user:a1b2c3!d4e5f6!g7h8, said it"), "407 for user:******************, said it");
	CHECK_STR(after("cut a1b2c3!d"), "cut ********");
}

/* G-5: secrets of a call are hidden in its own answer, and nobody else's text. */
TEST(secrets_of_a_call)
{
	static const char *const own[] = { "Bearer sk-0123456789", "tiny", "", "x" };
	struct status st;

	status_set(&st, R_FIELD_INVALID, "bad value Bearer sk-0123456789 or sk-01234567, tiny tinyx x");
	status_evidence(&st, "upstream_request_id", "%s", "tiny");
	redact_status_of(&st, own, 4);
	CHECK_STR(st.text, "bad value ******************** or ***********, **** tinyx x");
	CHECK_STR(status_evidence_get(&st, "upstream_request_id"), "****");
	CHECK_STR(after("Bearer sk-0123456789 tiny"), "Bearer sk-0123456789 tiny");
}

TEST(words_of_a_header)
{
	redact_note("Basic dXNlcjpwYXNzd29yZA==");
	CHECK_STR(after("got Basic dXNlcjpwYXNzd29yZA=="), "got Basic ********************");
}

TEST(status_and_evidence)
{
	struct status st;

	redact_keep("proxy-password");
	status_set(&st, R_PROXY_AUTH, "407 for user:proxy-password");
	status_evidence(&st, "upstream_request_id", "%s", "proxy-password");
	redact_status(&st);
	CHECK_STR(st.text, "407 for user:**************");
	CHECK_STR(status_evidence_get(&st, "upstream_request_id"), "**************");
}

/* The oldest is forgotten, and only that; what is kept stays. */
TEST(the_oldest_goes)
{
	char text[32];

	redact_keep("kept-for-ever");
	redact_note("oldest00-token");
	for (unsigned i = 0; i < 3 * 8192; i++) {
		(void)snprintf(text, sizeof(text), "%08x-token", i);
		redact_note(text);
	}
	CHECK_STR(after("oldest00-token"), "oldest00-token");
	CHECK_STR(after("kept-for-ever"), "*************");
	for (unsigned i = 2 * 8192; i < 3 * 8192; i++) {
		(void)snprintf(text, sizeof(text), "%08x-token", i);
		CHECK_STR(after(text), "**************");
	}
	CHECK_STR(after("00000000-token"), "00000000-token");
}

TEST_MAIN()
