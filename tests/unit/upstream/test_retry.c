/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/retry.h"
#include "tests/lib/test.h"

TEST(table)
{
	static const struct {
		const char *what;
		struct retry_facts f;
		enum retry_verdict want;
	} t[] = {
		{ "a POST the peer refused",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true }, RETRY_AGAIN },
		{ "… again and again",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .replays = 3 },
		  RETRY_FAIL_UNSENT },
		{ "… by one that recycles its connections",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .recycled = true,
		    .replays = 3, .recycles = 99 }, RETRY_AGAIN },
		{ "… without end",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .recycled = true,
		    .recycles = 100 }, RETRY_FAIL_UNSENT },
		{ "a POST lost on a connection that was being recycled",
		  { .end = RETRY_END_LOST, .sent = true, .body_kept = true, .recycled = true },
		  RETRY_FAIL_BROKEN },
		{ "… whose body is gone",
		  { .end = RETRY_END_REFUSED, .sent = true }, RETRY_FAIL_UNSENT },
		{ "a POST on a connection that died",
		  { .end = RETRY_END_LOST, .sent = true, .body_kept = true }, RETRY_FAIL_BROKEN },
		{ "… before a byte was written",
		  { .end = RETRY_END_LOST, .body_kept = true }, RETRY_AGAIN },
		{ "a GET on a connection that died",
		  { .end = RETRY_END_LOST, .sent = true, .idempotent = true, .body_kept = true },
		  RETRY_AGAIN },
		{ "… after its head was seen",
		  { .end = RETRY_END_LOST, .sent = true, .idempotent = true, .body_kept = true,
		    .head_seen = true }, RETRY_FAIL_BROKEN },
		{ "… by a peer that refuses it after its head",
		  { .end = RETRY_END_REFUSED, .sent = true, .idempotent = true, .body_kept = true,
		    .head_seen = true }, RETRY_FAIL_BROKEN },
		{ "a GET that was reset",
		  { .end = RETRY_END_RESET, .sent = true, .idempotent = true, .body_kept = true },
		  RETRY_AGAIN },
		{ "a POST that was reset",
		  { .end = RETRY_END_RESET, .sent = true, .body_kept = true }, RETRY_FAIL_BROKEN },
		{ "a GET replayed after a loss, then no connection until its deadline",
		  { .end = RETRY_END_DEADLINE, .body_kept = true, .sent_before = true },
		  RETRY_FAIL_BROKEN },
		{ "a POST in the queue at its deadline",
		  { .end = RETRY_END_DEADLINE, .body_kept = true }, RETRY_FAIL_UNSENT },
		{ "a POST on the wire at its deadline",
		  { .end = RETRY_END_DEADLINE, .sent = true, .body_kept = true }, RETRY_FAIL_BROKEN },
		{ "a GET on the wire at its deadline is not sent again",
		  { .end = RETRY_END_DEADLINE, .sent = true, .idempotent = true, .body_kept = true },
		  RETRY_FAIL_BROKEN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		if (retry_decide(&t[i].f) != t[i].want)
			fprintf(stderr, "%s\n", t[i].what);
		CHECK_INT(retry_decide(&t[i].f), t[i].want);
	}
}

TEST_MAIN()
