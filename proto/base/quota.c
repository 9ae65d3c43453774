/* SPDX-License-Identifier: MIT */
#include "proto/base/quota.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

struct quota {
	struct quota *parent;
	unsigned refs;
	bool soft;
	uint64_t max, kept, used, promised, peak;
	char name[QUOTA_NAME_MAX];
};

struct quota *quota_new(const struct quota_options *o)
{
	struct quota *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->parent = quota_ref(o->parent);
	q->refs = 1;
	q->max = o->max ? o->max : UINT64_MAX;
	q->kept = o->kept;
	q->soft = o->soft;
	(void)str_copy(q->name, sizeof(q->name), o->name);
	return q;
}

struct quota *quota_ref(struct quota *q)
{
	if (q)
		q->refs++;
	return q;
}

static void free_unused(struct quota *q)
{
	while (q && !q->refs && !q->used && !q->promised) {
		struct quota *parent = q->parent;

		free(q);
		if (parent)
			parent->refs--;
		q = parent;
	}
}

struct quota *quota_unref(struct quota *q)
{
	if (q) {
		must(q->refs);
		q->refs--;
		free_unused(q);
	}
	return NULL;
}

void quota_set_max(struct quota *q, uint64_t max, uint64_t kept)
{
	q->max = max ? max : UINT64_MAX;
	q->kept = kept;
}

static uint64_t tight_from(const struct quota *q)
{
	return q->max - q->max / 8;
}

/* Within what is kept for it a quota does not depend on those above. */
static bool is_kept(const struct quota *q, uint64_t n)
{
	return q->kept && q->used + n <= q->kept;
}

static bool fits(const struct quota *q, size_t n, bool is_new)
{
	for (const struct quota *i = q; i && !q->soft; i = i->parent) {
		uint64_t max = is_new ? tight_from(i) - 1 : i->max;

		if (i->used > max || n > max - i->used)
			return false;
		if (is_kept(i, n))
			break;
	}
	return true;
}

static int try_take(struct quota *q, size_t n, bool is_new)
{
	if (!fits(q, n, is_new))
		return -ENOBUFS;
	quota_add(q, n);
	return 0;
}

bool quota_fits(const struct quota *q, size_t n)
{
	return fits(q, n, false);
}

int quota_take(struct quota *q, size_t n)
{
	return try_take(q, n, false);
}

int quota_reserve(struct quota *q, size_t n)
{
	return try_take(q, n, true);
}

void quota_add(struct quota *q, size_t n)
{
	for (; q; q = q->parent) {
		q->used += n;
		q->peak = MAX(q->peak, q->used);
	}
}

void quota_give(struct quota *q, size_t n)
{
	if (!n)
		return;
	for (struct quota *i = q; i; i = i->parent) {
		must(i->used >= n);
		i->used -= n;
	}
	free_unused(q);
}

static uint64_t spare(const struct quota *q, bool less_promises)
{
	uint64_t out = q->used + (less_promises ? q->promised : 0), mark = q->max - q->max / 4;
	uint64_t own = out < mark ? mark - out : 0, above;

	if (!q->parent)
		return own;
	above = spare(q->parent, less_promises);
	if (q->kept > out)
		above = MAX(above, q->kept - out);
	return MIN(own, above);
}

uint64_t quota_spare(const struct quota *q)
{
	return q ? spare(q, false) : UINT64_MAX;
}

bool quota_promise(struct quota *q, size_t n)
{
	if (q && n > spare(q, true) / QUOTA_PARTS)
		return false;
	for (; q; q = q->parent)
		q->promised += n;
	return true;
}

void quota_unpromise(struct quota *q, size_t n)
{
	for (struct quota *i = q; i; i = i->parent) {
		must(i->promised >= n);
		i->promised -= n;
	}
	free_unused(q);
}

const struct quota *quota_tight(const struct quota *q, size_t n)
{
	for (; q; q = q->parent) {
		if (q->used + n >= tight_from(q))
			return q;
		if (is_kept(q, n))
			break;
	}
	return NULL;
}

bool quota_is_idle(const struct quota *q)
{
	return q->refs == 1 && !q->used && !q->promised;
}

const char *quota_name(const struct quota *q)
{
	return q->name;
}

uint64_t quota_max(const struct quota *q)
{
	return q->max;
}

uint64_t quota_used(const struct quota *q)
{
	return q->used;
}

uint64_t quota_promised(const struct quota *q)
{
	return q->promised;
}

uint64_t quota_take_peak(struct quota *q)
{
	uint64_t peak = q->peak;

	q->peak = q->used;
	return peak;
}

int charge_set(struct charge *c, size_t n)
{
	if (n > c->n && quota_take(c->quota, n - c->n) < 0)
		return -ENOBUFS;
	if (n < c->n)
		quota_give(c->quota, c->n - n);
	c->n = n;
	return 0;
}

int charge_reserve(struct charge *c, size_t n)
{
	int r = quota_reserve(c->quota, n);

	if (!r)
		c->n += n;
	return r;
}
