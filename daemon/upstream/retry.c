/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/retry.h"

#include "daemon/upstream/backoff.h"

#define WAIT_BASE_MS 100u
#define WAIT_MAX_MS  2000u
#define WAIT_LEAST_MS 50u	/* no try begins with less time left */

static bool is_unprocessed(const struct retry_facts *f)
{
	return !f->sent || f->end == RETRY_END_REFUSED || f->end == RETRY_END_BUSY || f->end == RETRY_END_MISDIRECTED;
}

static bool may_repeat(const struct retry_facts *f)
{
	if (!f->timed && f->replays >= RETRY_BLIND_MAX)
		return false;
	if (!f->sent)
		return true;
	switch (f->end) {
	case RETRY_END_BUSY:
		return true;
	case RETRY_END_REFUSED:
		return f->idempotent || f->posts < RETRY_POSTS_MAX;
	case RETRY_END_MISDIRECTED:
		return f->posts < RETRY_POSTS_MAX;
	case RETRY_END_RESET:
		return f->idempotent && f->replays < RETRY_RESETS_MAX;
	case RETRY_END_LOST:
		return f->idempotent;
	case RETRY_END_DEADLINE:
		break;
	}
	return false;
}

enum retry_verdict retry_give_up(const struct retry_facts *f)
{
	return is_unprocessed(f) && !f->sent_before && !f->head_seen ? RETRY_FAIL_UNSENT : RETRY_FAIL_BROKEN;
}

enum retry_verdict retry_decide(const struct retry_facts *f)
{
	bool again = f->end == RETRY_END_REFUSED && f->recycled ? f->recycles < RETRY_RECYCLES_MAX : may_repeat(f);

	if (f->end == RETRY_END_DEADLINE || f->head_seen || !f->body_kept || !again)
		return retry_give_up(f);
	return RETRY_AGAIN;
}

uint32_t retry_wait_ms(const struct retry_facts *f, uint64_t left_ms, uint64_t rnd)
{
	unsigned n = f->replays + (f->end == RETRY_END_BUSY && !f->full);
	uint32_t wait = n ? backoff_ms(n, WAIT_BASE_MS, WAIT_MAX_MS, rnd) : 0;

	if (f->end == RETRY_END_REFUSED && f->recycled)
		return 0;
	if (!f->timed)
		return wait;
	return left_ms < WAIT_LEAST_MS ? RETRY_NEVER : (uint32_t)MIN(wait, left_ms / 2);
}
