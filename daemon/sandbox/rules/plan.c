/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cloud/model.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/map.h"

void plan_fini(struct plan *p)
{
	free(p->v);
	*p = (struct plan){ 0 };
}

struct index {
	struct map rows;	/* id → row + 1 */
	bool *listed;		/* by row */
};

static void index_fini(struct index *x)
{
	map_fini(&x->rows);
	free(x->listed);
}

static int index_rows(struct index *x, const struct plan_row *rows, size_t n)
{
	x->listed = calloc(n ? n : 1, sizeof(bool));
	if (!x->listed)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int r = map_put_str(&x->rows, rows[i].id, (void *)(i + 1));

		if (r < 0)
			return r;
	}
	return 0;
}

static void plan_add(struct plan *p, enum plan_kind kind, size_t row, size_t item)
{
	p->v[p->n++] = (struct plan_action){ kind, row, item };
}

static void judge_listed(struct plan *p, const struct plan_row *row, size_t r, size_t i,
			 uint64_t began_at_ms)
{
	if (row->busy || row->fresh_at_ms >= began_at_ms)
		return;
	if (!row->gone)
		plan_add(p, PLAN_UPDATE, r, i);
	else if (!row->killed)
		plan_add(p, PLAN_REVIVE, r, i);
}

static void judge_missing(struct plan *p, const struct plan_row *rows, size_t n_rows,
			  const bool *listed, uint64_t began_at_ms)
{
	size_t expected = 0, missing = 0;

	for (size_t r = 0; r < n_rows; r++) {
		if (rows[r].gone || rows[r].busy || rows[r].fresh_at_ms >= began_at_ms)
			continue;
		expected++;
		if (listed[r])
			continue;
		missing++;
		plan_add(p, PLAN_ASK, r, 0);
	}
	p->suspicious = missing >= PLAN_SUSPICIOUS_MIN &&
			missing * 100 >= expected * PLAN_SUSPICIOUS_PCT;
}

static int by_start(const void *a, const void *b, void *user)
{
	const struct cloud_list *list = user;
	const struct plan_action *x = a, *y = b;
	const struct cloud_sandbox *s, *t;

	if ((x->kind == PLAN_ADOPT) != (y->kind == PLAN_ADOPT))
		return x->kind == PLAN_ADOPT ? 1 : -1;
	if (x->kind != PLAN_ADOPT)
		return x->row < y->row ? -1 : x->row > y->row;
	s = list->v[x->item];	/* of adoptions only: the list may be empty, and other items are not valid */
	t = list->v[y->item];
	if (s->started_at_ms != t->started_at_ms)
		return s->started_at_ms < t->started_at_ms ? -1 : 1;
	return strcmp(s->id, t->id);
}

int plan_make(const struct plan_row *rows, size_t n_rows, const struct cloud_list *list,
	      const char *host, uint64_t began_at_ms, struct plan *ret)
{
	scoped(index_fini) struct index x = { 0 };
	struct plan p = { 0 };
	int r = index_rows(&x, rows, n_rows);

	if (r < 0)
		return r;
	p.v = calloc(n_rows + list->n + 1, sizeof(*p.v));
	if (!p.v)
		return -ENOMEM;
	for (size_t i = 0; i < list->n; i++) {
		size_t row = (size_t)map_get_str(&x.rows, list->v[i]->id);
		struct tags t;

		tags_read(&list->v[i]->metadata, &t);
		if (tags_are_of(&t, host))
			p.max_seq = MAX(p.max_seq, t.seq);
		if (row) {
			x.listed[row - 1] = true;
			judge_listed(&p, &rows[row - 1], row - 1, i, began_at_ms);
		} else if (tags_are_of(&t, host)) {
			plan_add(&p, PLAN_ADOPT, 0, i);
		}
	}
	judge_missing(&p, rows, n_rows, x.listed, began_at_ms);
	qsort_r(p.v, p.n, sizeof(*p.v), by_start, (void *)list);
	*ret = p;
	return 0;
}
