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
		{ "a POST the peer refused by GOAWAY",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .posts = 1 }, RETRY_AGAIN },
		{ "… for the third time",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .timed = true, .posts = 3,
		    .replays = 2 }, RETRY_FAIL_UNSENT },
		{ "… by one that recycles its connections",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .recycled = true,
		    .replays = 3, .recycles = 99, .posts = 102 }, RETRY_AGAIN },
		{ "… without end",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .recycled = true,
		    .recycles = 100 }, RETRY_FAIL_UNSENT },
		{ "a GET the peer refuses by GOAWAY, for ever",
		  { .end = RETRY_END_REFUSED, .sent = true, .body_kept = true, .idempotent = true, .timed = true,
		    .posts = 50, .replays = 49 }, RETRY_AGAIN },
		{ "a POST that the peer has no stream for, for ever",
		  { .end = RETRY_END_BUSY, .sent = true, .body_kept = true, .timed = true, .posts = 50,
		    .replays = 49 }, RETRY_AGAIN },
		{ "… without a deadline",
		  { .end = RETRY_END_BUSY, .sent = true, .body_kept = true, .posts = 4, .replays = 3 },
		  RETRY_FAIL_UNSENT },
		{ "a GET that met the wrong server",
		  { .end = RETRY_END_MISDIRECTED, .sent = true, .body_kept = true, .idempotent = true,
		    .timed = true, .posts = 2, .replays = 1 }, RETRY_AGAIN },
		{ "… three times",
		  { .end = RETRY_END_MISDIRECTED, .sent = true, .body_kept = true, .idempotent = true,
		    .timed = true, .posts = 3, .replays = 2 }, RETRY_FAIL_UNSENT },
		{ "a GET whose connections die, for ever (B-2)",
		  { .end = RETRY_END_LOST, .sent = true, .idempotent = true, .body_kept = true, .timed = true,
		    .sent_before = true, .posts = 50, .replays = 49 }, RETRY_AGAIN },
		{ "… without a deadline",
		  { .end = RETRY_END_LOST, .sent = true, .idempotent = true, .body_kept = true,
		    .sent_before = true, .posts = 4, .replays = 3 }, RETRY_FAIL_BROKEN },
		{ "a GET that is reset again and again",
		  { .end = RETRY_END_RESET, .sent = true, .idempotent = true, .body_kept = true, .timed = true,
		    .sent_before = true, .posts = 4, .replays = 3 }, RETRY_FAIL_BROKEN },
		{ "a POST that never leaves",
		  { .end = RETRY_END_LOST, .body_kept = true, .timed = true, .replays = 50 }, RETRY_AGAIN },
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

TEST(waits)
{
	static const struct {
		const char *what;
		struct retry_facts f;
		uint64_t left_ms;
		uint32_t lo, hi;
	} t[] = {
		{ "the first repeat", { .end = RETRY_END_LOST, .timed = true }, 8000, 0, 0 },
		{ "… where the peer is busy", { .end = RETRY_END_BUSY, .timed = true }, 8000, 50, 100 },
		{ "… because it has no more streams",
		  { .end = RETRY_END_BUSY, .full = true, .timed = true }, 8000, 0, 0 },
		{ "… again", { .end = RETRY_END_BUSY, .full = true, .timed = true, .replays = 1 }, 8000, 50, 100 },
		{ "the second", { .end = RETRY_END_LOST, .timed = true, .replays = 1 }, 8000, 50, 100 },
		{ "the third", { .end = RETRY_END_LOST, .timed = true, .replays = 2 }, 8000, 100, 200 },
		{ "a later one", { .end = RETRY_END_LOST, .timed = true, .replays = 40 }, 80000, 1000, 2000 },
		{ "near the deadline", { .end = RETRY_END_LOST, .timed = true, .replays = 40 }, 600, 300, 300 },
		{ "too near", { .end = RETRY_END_LOST, .timed = true, .replays = 40 }, 49, RETRY_NEVER, RETRY_NEVER },
		{ "without one", { .end = RETRY_END_LOST, .replays = 2 }, 0, 100, 200 },
		{ "a recycled connection",
		  { .end = RETRY_END_REFUSED, .recycled = true, .timed = true, .replays = 9 }, 8000, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		for (uint64_t rnd = 0; rnd < 3000; rnd += 7) {
			uint32_t got = retry_wait_ms(&t[i].f, t[i].left_ms, rnd);

			if (got < t[i].lo || got > t[i].hi)
				fprintf(stderr, "%s: %u\n", t[i].what, got);
			CHECK(got >= t[i].lo && got <= t[i].hi);
		}
}

TEST_MAIN()
