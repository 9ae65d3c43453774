/* SPDX-License-Identifier: MIT */
/* The two listings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/api/rest.h"
#include "proto/base/str.h"
#include "proto/cloud/list.h"

#define PAGE_MAX 100u

struct listing {
	bool running, paused, ascending;
	bool none;			/* nothing can match */
	struct cloud_kvs metadata;	/* none match everything */
	const struct template *template;
	int64_t after_us;
	bool has_cursor;
	struct cursor cursor;
	uint64_t limit;
};

static int take_states(struct rest *r, struct listing *l)
{
	const char *s = query_get(&r->query, "state");
	size_t n;

	l->running = l->paused = !s;
	for (; s; s = s[n] ? s + n + 1 : NULL) {
		n = strcspn(s, ",");
		if (n == 7 && !memcmp(s, "running", 7)) {
			l->running = true;
		} else if (n == 6 && !memcmp(s, "paused", 6)) {
			l->paused = true;
		} else {
			rest_invalid(r, "state must be a comma list of running and paused");
			return -EINVAL;
		}
	}
	return 0;
}

static int take_order(struct rest *r, struct listing *l)
{
	const char *s = query_get(&r->query, "order");

	l->ascending = s && str_eq(s, "asc");
	if (!s || l->ascending || str_eq(s, "desc"))
		return 0;
	rest_invalid(r, "order must be asc or desc");
	return -EINVAL;
}

static int take_metadata(struct rest *r, struct listing *l)
{
	const char *s = query_get(&r->query, "metadata");
	int e;

	if (!s)
		return 0;
	e = meta_filter_parse(s, &l->metadata);
	if (e < 0)
		rest_fail(r, 400, "Error parsing metadata filter");
	return e;
}

static int take_template(struct rest *r, struct listing *l)
{
	const char *s = query_get(&r->query, "template");
	struct template_build *build;
	struct template *t = NULL;
	struct template_ref ref;

	if (!s)
		return 0;
	if (template_ref_parse(s, &ref) < 0 || ref.tag[0]) {
		rest_fail(r, 400, "template must be an id, an alias or namespace/alias");
		return -EINVAL;
	}
	l->none = templates_find(state_templates(r->l->state), r->team, &ref, &t, &build) !=
		  TEMPLATE_FOUND;
	l->template = t;
	return 0;
}

/* --- pages --- */

bool rest_page_limit(struct rest *r, uint64_t *ret)
{
	const char *limit = query_get(&r->query, "limit");

	*ret = PAGE_MAX;
	if (!limit || (str_u64(limit, strlen(limit), PAGE_MAX, ret) == 0 && *ret))
		return true;
	rest_invalid(r, "limit must be from 1 to %u", PAGE_MAX);
	return false;
}

int rest_next_token(struct rest *r, int64_t at_us, const char *id, bool ascending)
{
	struct cursor c = { .at_us = at_us, .ascending = ascending };
	char *text;
	int e;

	str_copy(c.id, sizeof(c.id), id);
	text = cursor_encode(&c);
	e = text ? fields_put(&r->extra, "x-next-token", text) : -ENOMEM;
	free(text);
	return e;
}

static int take_page(struct rest *r, struct listing *l)
{
	const char *token = query_get(&r->query, "nextToken");
	const char *after = query_get(&r->query, "startedAfter");

	l->after_us = INT64_MIN;
	if (!rest_page_limit(r, &l->limit))
		return -EINVAL;
	if (after && list_time_us(after, &l->after_us) < 0) {
		rest_invalid(r, "startedAfter must be a date-time");
		return -EINVAL;
	}
	if (token && *token) {
		l->has_cursor = true;
		if (cursor_decode(token, &l->cursor) < 0 || l->cursor.ascending != l->ascending) {
			rest_fail(r, 400, "Invalid next token");
			return -EINVAL;
		}
	}
	return 0;
}

static int compare_desc(const void *a, const void *b)
{
	const struct sandbox *x = *(const struct sandbox *const *)a,
			     *y = *(const struct sandbox *const *)b;

	return cursor_compare(x->started_us, x->id, y->started_us, y->id, false);
}

static int compare_asc(const void *a, const void *b)
{
	return -compare_desc(a, b);
}

static bool is_listed(const struct rest *r, const struct listing *l, const struct sandbox *s)
{
	enum cloud_state state = rest_state(s);

	return state && s->team == r->team && (state == CLOUD_STATE_RUNNING ? l->running : l->paused) &&
	       (!l->template || s->template == l->template) && s->started_us >= l->after_us &&
	       meta_filter_match(&l->metadata, &s->metadata);
}

/* All rows that match, in order; heap. */
static int collect(const struct rest *r, const struct listing *l, struct sandbox ***ret, size_t *ret_n)
{
	struct sandbox **v = calloc(state_count(r->l->state) + 1, sizeof(struct sandbox *));
	struct sandbox *s;
	size_t pos = 0, n = 0;

	if (!v)
		return -ENOMEM;
	while (!l->none && (s = state_next(r->l->state, &pos)))
		if (is_listed(r, l, s))
			v[n++] = s;
	qsort(v, n, sizeof(struct sandbox *), l->ascending ? compare_asc : compare_desc);
	*ret = v;
	*ret_n = n;
	return 0;
}

static void rest_list_answer(struct rest *r, const struct listing *l, struct sandbox *const *v, size_t n)
{
	struct rest_list rows;
	size_t at = 0, n_running = 0;

	rest_list_begin(&rows, NULL);
	for (size_t i = 0; i < n; i++)
		n_running += v[i]->state == SANDBOX_RUNNING;
	while (l->has_cursor && at < n &&
	       cursor_compare(v[at]->started_us, v[at]->id, l->cursor.at_us, l->cursor.id,
			      l->ascending) <= 0)
		at++;
	for (size_t end = MIN(n, at + l->limit); at < end; at++) {
		struct cloud_sandbox view;

		rest_view(r, v[at], &view);
		rest_list_add(r, &rows, NULL, CLOUD_DOC_SANDBOX, &view, rest_listed_part(v[at]));
	}
	if (!rows.e && l->running)
		rows.e = fields_printf(&r->extra, "x-total-running", "%zu", n_running);
	if (!rows.e && at < n && at)
		rows.e = rest_next_token(r, v[at - 1]->started_us, v[at - 1]->id, l->ascending);
	rest_list_reply(r, 200, &rows);
}

void rest_list_v2(struct rest *r)
{
	struct listing l = { 0 };
	struct sandbox **v = NULL;
	size_t n = 0;

	if (take_states(r, &l) < 0 || take_order(r, &l) < 0 || take_page(r, &l) < 0 ||
	    take_metadata(r, &l) < 0)
		return;
	if (!take_template(r, &l)) {
		if (collect(r, &l, &v, &n) < 0)
			rest_fail(r, 500, "out of memory");
		else
			rest_list_answer(r, &l, v, n);
	}
	free(v);
	cloud_kvs_fini(&l.metadata);
}

void rest_list_v1(struct rest *r)
{
	struct listing l = { .running = true, .limit = SIZE_MAX / 2, .after_us = INT64_MIN };
	struct sandbox **v = NULL;
	size_t n = 0;

	if (take_metadata(r, &l) < 0)
		return;
	if (collect(r, &l, &v, &n) < 0)
		rest_fail(r, 500, "out of memory");
	else
		rest_list_answer(r, &l, v, n);
	free(v);
	cloud_kvs_fini(&l.metadata);
}
