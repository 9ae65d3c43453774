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
	redact_note("short");
	redact_note("ab_0123456789abcdef");
	CHECK_STR(after(""), "");
	CHECK_STR(after("short ab_0123"), "short ab_0123");
	CHECK_STR(after("ab_9123456789abcdef"), "ab_9123456789abcdef");
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
