/* SPDX-License-Identifier: MIT */
#include "proto/wire/interims.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/quota.h"

void interims_fini(struct interims *i)
{
	struct quota *q = i->cap ? i->v[0].quota : NULL;

	for (uint32_t k = 0; k < i->n; k++)
		fields_fini(&i->v[k]);
	quota_give(q, i->cap * sizeof(*i->v));
	free(i->v);
	*i = (struct interims)INTERIMS_NULL;
}

/* All of them at once: who sends one may send more. */
static bool reserve_all(struct interims *i, struct quota *q)
{
	size_t n = INTERIMS_MAX_N * sizeof(*i->v);

	if (i->cap)
		return true;
	if (quota_take(q, n) < 0)
		return false;
	i->v = calloc(INTERIMS_MAX_N, sizeof(*i->v));
	if (!i->v) {
		quota_give(q, n);
		return false;
	}
	i->cap = INTERIMS_MAX_N;
	i->v[0].quota = q;
	return true;
}

void interims_put(struct interims *i, struct fields *head)
{
	if (head->bytes > INTERIMS_MAX_BYTES - i->bytes || i->n == INTERIMS_MAX_N || !reserve_all(i, head->quota)) {
		fields_clear(head);
		return;
	}
	i->bytes += head->bytes;
	i->v[i->n++] = *head;
	*head = (struct fields){ .max_n = head->max_n, .max_bytes = head->max_bytes, .quota = head->quota };
}

bool interims_next(struct interims *i, struct fields *ret)
{
	struct fields first;

	if (!i->n)
		return false;
	first = i->v[0];
	memmove(i->v, i->v + 1, --i->n * sizeof(*i->v));
	i->v[0].quota = first.quota;
	*ret = first;
	if (!i->n)
		interims_fini(i);
	return true;
}
