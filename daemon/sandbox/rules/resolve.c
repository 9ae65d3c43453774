/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/resolve.h"

#include <string.h>

#include "proto/cloud/model.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/str.h"

#define RESOLVE_CLOCK_MS 1000	/* a Date header has whole seconds */

uint64_t resolve_wait_ms(unsigned tries)
{
	return tries < 5 ? 1000ull << tries : 30000;
}

/* Three quarters of the lists that the horizon has room for: some may be missing when the loop or the cloud was slow. */
uint64_t resolve_settled_ms(uint64_t horizon_ms)
{
	return horizon_ms / 4;
}

unsigned resolve_lists_needed(uint64_t horizon_ms)
{
	unsigned n = 0, tries = 0;

	for (uint64_t at = 0; at < horizon_ms; tries++) {
		at += resolve_wait_ms(tries);
		n += at >= resolve_settled_ms(horizon_ms);
	}
	return MAX(MAX(MIN(n, 3u), n - n / 4), 1u);
}

static bool older(const struct cloud_sandbox *a, const struct cloud_sandbox *b)
{
	if (a->started_at_ms != b->started_at_ms)
		return a->started_at_ms < b->started_at_ms;
	return strcmp(a->id, b->id) < 0;
}

static enum resolve_next wait_or_close(bool complete, const struct resolve_when *w,
				       uint64_t *ret_wait_ms)
{
	if (complete && w->now_ms >= w->until_ms)
		return RESOLVE_CLOSE;
	*ret_wait_ms = resolve_wait_ms(w->tries);
	/* The list that may close it comes right after the horizon. */
	if (w->now_ms < w->until_ms && w->now_ms + *ret_wait_ms > w->until_ms)
		*ret_wait_ms = w->until_ms - w->now_ms;
	return RESOLVE_WAIT;
}

enum resolve_next resolve_plan(const struct cloud_list *list, const char *host, const char *req,
			       const struct resolve_when *w, size_t *ret_index, uint64_t *ret_wait_ms)
{
	bool found = false;
	struct tags t;
	size_t best = 0;

	for (size_t i = 0; list && i < list->n; i++) {
		tags_read(&list->v[i]->metadata, &t);
		if (!tags_are_of(&t, host) || !str_eq(t.req, req))
			continue;
		if (!found || older(list->v[i], list->v[best]))
			best = i;
		found = true;
	}
	if (found) {
		*ret_index = best;
		return RESOLVE_FOUND;
	}
	return wait_or_close(list != NULL, w, ret_wait_ms);
}

static bool is_child(const struct resolve_fork *f, const struct cloud_sandbox *s)
{
	struct tags t;

	tags_read(&s->metadata, &t);
	return tags_are_of(&t, f->host) && str_eq(t.req, f->req) && !cloud_strs_has(f->known, s->id) &&
	       s->started_at_ms + RESOLVE_CLOCK_MS >= f->made_at_ms && !f->is_tracked(s->id, f->user);
}

enum resolve_next resolve_fork(const struct cloud_list *list, const struct resolve_fork *f,
			       const struct resolve_when *w, size_t *ret_index, size_t *ret_n,
			       uint64_t *ret_wait_ms)
{
	size_t n = 0;
	enum resolve_next next;

	for (size_t i = 0; list && i < list->n; i++) {
		if (!is_child(f, list->v[i]))
			continue;
		if (n == f->count)
			return RESOLVE_AMBIGUOUS;
		ret_index[n++] = i;
	}
	*ret_n = n;
	if (n == f->count)
		return RESOLVE_FOUND;
	next = wait_or_close(list != NULL, w, ret_wait_ms);
	return next == RESOLVE_CLOSE && n ? RESOLVE_FOUND : next;
}

enum resolve_next resolve_snapshot(const struct cloud_snapshots *list,
				   const struct cloud_strs *known, const struct resolve_when *w,
				   size_t *ret_index, uint64_t *ret_wait_ms)
{
	bool found = false;

	for (size_t i = 0; list && i < list->n; i++) {
		if (cloud_strs_has(known, list->v[i]->id))
			continue;
		if (found)
			return RESOLVE_AMBIGUOUS;
		*ret_index = i;
		found = true;
	}
	if (found)
		return RESOLVE_FOUND;
	return wait_or_close(list != NULL, w, ret_wait_ms);
}
