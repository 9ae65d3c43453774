/* SPDX-License-Identifier: MIT */
/*
 * Sandboxes that have ended, and request ids, are forgotten when their time is over, and earlier where a uid has more
 * than the maximum: those that ended, or were used, longest ago go first. Request ids of sandboxes that have ended leave
 * memory at once; their rows are read when a call has such an id (op.c).
 */
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/turn.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define SLICE	       500u	/* how many are forgotten at once: no long transaction */
#define PRUNE_FROM     1000u	/* rows are pruned, which reads them all, when so many ids have left memory, or after FORGET_PRUNE_EVERY_MS */

static void forget_sandbox(struct sandbox_core *core, struct sandbox *b)
{
	struct name_slot *n = b->name[0] ? core_find_name(core, b->uid, b->name) : NULL;

	if (n && !n->id[0] && !n->creation && !index_name_has_other(b))
		core_forget_name(core, n);
	core_forget(core, b);
}

static bool has_ended(const struct sandbox *b)
{
	return b->state == SANDBOX_GONE && !b->fetch && !b->killing && !b->claim && turn_is_free(b) && list_is_empty(&b->untold);
}

static const struct sandbox *object_of(struct sandbox_core *core, const struct request *q)
{
	return core_find(core, q->account, q->object);
}

/* Its outcome is known, and is a sandbox that has ended. */
static bool is_over(struct sandbox_core *core, const struct request *q)
{
	const struct sandbox *b = object_of(core, q);

	return !q->attempt && q->step == ROW_REQUEST_DONE && (!b || b->state == SANDBOX_GONE);
}

static bool is_old(struct sandbox_core *core, const struct request *q, int64_t now_ms)
{
	const struct sandbox *b = object_of(core, q);

	if (q->attempt)
		return false;
	if (q->step == ROW_REQUEST_OPEN && clock_boot_ms() >= q->refused_until_ms)
		return true;
	return rules_request_is_old(q->used_at_ms, b && b->state != SANDBOX_GONE, b ? b->gone_at_ms : 0, now_ms,
				    (int64_t)core->history_ms);
}

static void by_time(struct sandbox_core *core, int64_t now_ms, unsigned *left)
{
	list_for_each_safe(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (*left && has_ended(b) && now_ms >= b->gone_at_ms + (int64_t)core->history_ms) {
			forget_sandbox(core, b);
			--*left;
		}
	}
	list_for_each_safe(i, &core->requests) {
		struct request *q = list_entry(i, struct request, node);

		if (*left && is_old(core, q, now_ms)) {
			core_forget_request(core, q);
			--*left;
		}
	}
}

/* --- by number --- */

struct ended {
	uid_t uid;
	int64_t at_ms;
	struct sandbox *b;
};

static int by_uid_then_latest(const void *a, const void *b)
{
	const struct ended *x = a, *y = b;

	if (x->uid != y->uid)
		return x->uid < y->uid ? -1 : 1;
	return x->at_ms == y->at_ms ? 0 : x->at_ms > y->at_ms ? -1 : 1;
}

static size_t ended_sandboxes(struct sandbox_core *core, struct ended *ret)
{
	size_t n = 0;

	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (has_ended(b))
			ret[n++] = (struct ended){ b->uid, b->gone_at_ms, b };
	}
	return n;
}

static void by_number(struct sandbox_core *core, unsigned *left)
{
	size_t n = map_size(&core->sandbox_map), rank = 0;
	struct ended *v;

	if (n <= FORGET_SANDBOXES_PER_UID)
		return;
	v = calloc(n, sizeof(*v));
	if (!v)
		return; /* the next call does it */
	n = ended_sandboxes(core, v);
	qsort(v, n, sizeof(*v), by_uid_then_latest);
	for (size_t i = 0; i < n && *left; i++) {
		rank = i && v[i].uid == v[i - 1].uid ? rank + 1 : 0;
		if (rank < FORGET_SANDBOXES_PER_UID)
			continue;
		forget_sandbox(core, v[i].b);
		--*left;
	}
	free(v);
}

/* --- request ids --- */

/* BOOTTIME of the oldest call with a request id. A call may have read the store before a younger request id got its row,
 * and relies on finding that one in memory. */
static uint64_t oldest_question_ms(const struct sandbox_core *core)
{
	uint64_t oldest = UINT64_MAX;

	list_for_each(i, &core->ops) {
		const struct sandbox_op *op = list_entry(i, struct sandbox_op, node);

		if (op->kind->request)
			oldest = MIN(oldest, op->began_ms);
	}
	return oldest;
}

static void let_go_requests(struct sandbox_core *core)
{
	uint64_t before = MIN(oldest_question_ms(core), clock_boot_ms());

	if (core->resave)
		return;	/* a row may be older than what memory has */
	list_for_each_safe(i, &core->requests) {
		struct request *q = list_entry(i, struct request, node);

		if (q->known_since_ms >= before || !is_over(core, q))
			continue;
		core_let_go_request(core, q);
		core->requests_let_go++;
	}
}

static void prune_requests(struct sandbox_core *core, int64_t now_ms)
{
	uint64_t now = clock_boot_ms();
	struct store_prune p = { .gone = SANDBOX_GONE, .keep = FORGET_REQUESTS_PER_UID,
				 .used_before_ms = now_ms - RULES_REQUEST_KEPT_MS,
				 .gone_before_ms = now_ms - (int64_t)core->history_ms };
	struct store_tx *t;

	if (core->requests_pruned_ms && core->requests_let_go < PRUNE_FROM && now < core->requests_pruned_ms + FORGET_PRUNE_EVERY_MS)
		return;
	if (store_tx_new(core->store, &t) < 0)
		return; /* the next call does it, too */
	store_tx_prune_requests(t, &p);
	core_commit(core, t, false);
	core->requests_let_go = 0;
	core->requests_pruned_ms = MAX(now, (uint64_t)1);
}

bool forget_ended(struct sandbox_core *core, int64_t now_wall_ms)
{
	unsigned left = SLICE;

	by_time(core, now_wall_ms, &left);
	by_number(core, &left);
	let_go_requests(core);
	prune_requests(core, now_wall_ms);
	return !left;
}
