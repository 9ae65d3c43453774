/* SPDX-License-Identifier: MIT */
/* The two listings. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/http/listing.h"
#include "daemon/local/api/rest.h"

/* None: nothing can match. */
static bool listed_template(const struct rest *r, const struct listing *l, const struct template **ret)
{
	struct template_build *build;
	struct template *t = NULL;
	bool found = !l->has_template ||
		     templates_find(state_templates(r->l->state), r->team, &l->template, &t, &build) == TEMPLATE_FOUND;

	*ret = t;
	return found;
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

static bool is_listed(const struct rest *r, const struct listing *l, const struct template *t, const struct sandbox *s)
{
	enum cloud_state state = rest_state(s);

	return state && s->team == r->team && (state == CLOUD_STATE_RUNNING ? l->running : l->paused) &&
	       (!t || s->template == t) && s->started_us >= l->after_us &&
	       meta_filter_match(&l->metadata, &s->metadata);
}

/* All rows that match, in order; heap. */
static int collect(const struct rest *r, const struct listing *l, struct sandbox ***ret, size_t *ret_n)
{
	struct sandbox **v = calloc(state_count(r->l->state) + 1, sizeof(struct sandbox *));
	const struct template *t;
	struct sandbox *s;
	size_t pos = 0, n = 0;

	if (!v)
		return -ENOMEM;
	if (listed_template(r, l, &t))
		while ((s = state_next(r->l->state, &pos)))
			if (is_listed(r, l, t, s))
				v[n++] = s;
	qsort(v, n, sizeof(struct sandbox *), l->ascending ? compare_asc : compare_desc);
	*ret = v;
	*ret_n = n;
	return 0;
}

static void rest_list_answer(struct rest *r, const struct listing *l, struct sandbox *const *v, size_t n)
{
	struct doc_list rows;
	size_t at = 0, n_running = 0;

	doc_list_begin(&rows, r->flavour, NULL);
	for (size_t i = 0; i < n; i++)
		n_running += v[i]->state == SANDBOX_RUNNING;
	while (l->has_cursor && at < n &&
	       cursor_compare(v[at]->started_us, v[at]->id, l->cursor.at_us, l->cursor.id,
			      l->ascending) <= 0)
		at++;
	for (size_t end = MIN(n, at + l->limit); at < end; at++) {
		struct cloud_sandbox view;

		rest_view(r, v[at], &view);
		doc_list_add(&rows, NULL, CLOUD_DOC_SANDBOX, &view, rest_listed_part(v[at]));
	}
	if (!rows.e && l->running)
		rows.e = fields_printf(&r->extra, "x-total-running", "%zu", n_running);
	if (!rows.e && at < n && at)
		rows.e = listing_put_next(&r->extra, v[at - 1]->started_us, v[at - 1]->id, l->ascending);
	rest_list_reply(r, 200, &rows);
}

static void list_as(struct rest *r, int (*parse)(const struct query *q, struct listing *ret, const char **ret_why))
{
	struct sandbox **v = NULL;
	struct listing l;
	const char *why;
	size_t n = 0;
	int e = parse(&r->query, &l, &why);

	if (e == -EINVAL) {
		rest_fail(r, 400, "%s", why);
		return;
	}
	if (!e)
		e = collect(r, &l, &v, &n);
	if (e < 0)
		rest_fail(r, 500, "out of memory");
	else
		rest_list_answer(r, &l, v, n);
	free(v);
	listing_fini(&l);
}

void rest_list_v2(struct rest *r)
{
	list_as(r, listing_parse);
}

void rest_list_v1(struct rest *r)
{
	list_as(r, listing_parse_v1);
}
