/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/retry.h"

enum retry_verdict retry_decide(const struct retry_facts *f)
{
	bool unprocessed = f->end == RETRY_END_REFUSED || !f->sent;
	enum retry_verdict fail = unprocessed && !f->sent_before && !f->head_seen ?
					  RETRY_FAIL_UNSENT :
					  RETRY_FAIL_BROKEN;

	if (f->end == RETRY_END_DEADLINE)
		return fail;
	if (f->head_seen || !f->body_kept)
		return fail;
	if (f->end == RETRY_END_REFUSED && f->recycled)
		return f->recycles < RETRY_RECYCLES_MAX ? RETRY_AGAIN : fail;
	if (f->replays >= RETRY_REPLAYS_MAX)
		return fail;
	if (unprocessed || f->idempotent)
		return RETRY_AGAIN;
	return fail;
}
