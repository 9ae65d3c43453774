/* SPDX-License-Identifier: MIT */
/*
 * What has ended is forgotten when its time is over, and before that where a uid has more of it than is kept:
 * then the ones that ended, or were used, longest ago go first.
 */
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/turn.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define SLICE 500u	/* rows at once: no long transaction */

static void forget_sandbox(struct sandbox_core *core, struct sandbox *b)
{
	struct name_slot *n = b->name[0] ? core_find_name(core, b->uid, b->name) : NULL;

	if (n && !n->id[0] && !n->creation && !index_name_has_other(b))
		core_forget_name(core, n);
	core_forget(core, b);
}

static bool has_ended(const struct sandbox *b)
{
	return b->state == SANDBOX_GONE && !b->fetch && !b->killing && turn_is_free(b) && list_is_empty(&b->untold);
}

static const struct sandbox *object_of(struct sandbox_core *core, const struct request *q)
{
	return core_find(core, q->account, q->object);
}

/* A repeat of it could only be told what became of a sandbox that is no more. */
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
	void *what;
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

static size_t ended_requests(struct sandbox_core *core, struct ended *ret)
{
	size_t n = 0;

	list_for_each(i, &core->requests) {
		struct request *q = list_entry(i, struct request, node);

		if (is_over(core, q))
			ret[n++] = (struct ended){ q->uid, q->used_at_ms, q };
	}
	return n;
}

/* Of the sorted ones, those beyond the first `max` of their uid: how many. */
static unsigned forget_beyond(struct sandbox_core *core, struct ended *v, size_t n, size_t max, bool requests,
			      unsigned *left)
{
	unsigned before = *left;
	size_t rank = 0;

	qsort(v, n, sizeof(*v), by_uid_then_latest);
	for (size_t i = 0; i < n && *left; i++) {
		rank = i && v[i].uid == v[i - 1].uid ? rank + 1 : 0;
		if (rank < max)
			continue;
		if (requests)
			core_forget_request(core, v[i].what);
		else
			forget_sandbox(core, v[i].what);
		--*left;
	}
	return before - *left;
}

static void by_number(struct sandbox_core *core, unsigned *left)
{
	size_t n_sandboxes = map_size(&core->sandbox_map), n_requests = map_size(&core->request_map);
	struct ended *v;
	unsigned n;

	if (n_sandboxes <= FORGET_SANDBOXES_PER_UID && n_requests <= FORGET_REQUESTS_PER_UID)
		return;
	v = calloc(MAX(n_sandboxes, n_requests), sizeof(*v));
	if (!v)
		return; /* the next look forgets it */
	(void)forget_beyond(core, v, ended_sandboxes(core, v), FORGET_SANDBOXES_PER_UID, false, left);
	n = forget_beyond(core, v, ended_requests(core, v), FORGET_REQUESTS_PER_UID, true, left);
	if (n)
		log_warn("request_ids", "forgotten=%u kept_of_a_uid=%u", n, FORGET_REQUESTS_PER_UID);
	free(v);
}

bool forget_ended(struct sandbox_core *core, int64_t now_wall_ms)
{
	unsigned left = SLICE;

	by_time(core, now_wall_ms, &left);
	by_number(core, &left);
	return !left;
}
