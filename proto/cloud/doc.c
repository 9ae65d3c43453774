/* SPDX-License-Identifier: MIT */
/* Freeing, copying and comparing by the table. */
#include "proto/cloud/doc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/cloud/model.h"

/* The layout of every list by value: DOC_LIST, DOC_MAP and DOC_RULES. */
struct doc_vector {
	char *v;
	size_t n;
};

static bool is_vector(const struct doc_field *f)
{
	return f->kind == DOC_LIST || f->kind == DOC_MAP || f->kind == DOC_RULES;
}

/* Its rows are about the same struct. */
static bool is_same(const struct doc_field *f)
{
	return f->kind == DOC_SAME || f->kind == DOC_INLINE;
}

static void *member(const void *v, const struct doc_field *f)
{
	return (char *)v + f->at;
}

static void fini_text(char *s, bool secret)
{
	if (s && secret)
		explicit_bzero(s, strlen(s));
	free(s);
}

static void fini_field(const struct doc_field *f, void *v)
{
	void *m = member(v, f);
	struct doc_vector *l = m;

	if (f->kind == DOC_TEXT || f->kind == DOC_KEY) {
		fini_text(*(char **)m, f->flags & DOC_SECRET);
	} else if (f->kind == DOC_KVS) {
		cloud_kvs_fini(m);
	} else if (f->kind == DOC_STRS) {
		cloud_strs_fini(m);
	} else if (is_same(f)) {
		for (size_t i = 0; i < f->of->n; i++)
			fini_field(&f->of->fields[i], v);
	} else if (f->kind == DOC_NEW && *(void **)m) {
		doc_fini(f->of, *(void **)m);
		free(*(void **)m);
	} else if (is_vector(f)) {
		for (size_t i = 0; i < l->n; i++)
			doc_fini(f->of, l->v + i * f->of->size);
		free(l->v);
	}
}

void doc_fini(const struct doc *d, void *v)
{
	for (size_t i = 0; i < d->n; i++)
		fini_field(&d->fields[i], v);
	memset(v, 0, d->size);
}

static int copy_text(char **to, const char *from)
{
	*to = str_dup(from);
	return *to || !from ? 0 : -ENOMEM;
}

static int copy_vector(const struct doc_field *f, struct doc_vector *to, const struct doc_vector *from)
{
	int r = 0;

	to->v = from->n ? calloc(from->n, f->of->size) : NULL;
	to->n = 0;
	if (from->n && !to->v)
		return -ENOMEM;
	for (; to->n < from->n && !r; to->n++)
		r = doc_copy(f->of, to->v + to->n * f->of->size, from->v + to->n * f->of->size);
	return r;
}

/* Whatever holds memory; the rest is in place already. */
static int copy_field(const struct doc_field *f, void *to, const void *from)
{
	const void *src = member(from, f);
	void *dst = member(to, f);
	int r = 0;

	if (f->kind == DOC_TEXT || f->kind == DOC_KEY)
		return copy_text(dst, *(char *const *)src);
	if (f->kind == DOC_KVS)
		return cloud_kvs_add_all(dst, src);
	if (f->kind == DOC_STRS)
		return cloud_strs_add_all(dst, src);
	if (is_vector(f))
		return copy_vector(f, dst, src);
	if (f->kind == DOC_NEW && *(void *const *)src) {
		*(void **)dst = calloc(1, f->of->size);
		return *(void **)dst ? doc_copy(f->of, *(void **)dst, *(void *const *)src) : -ENOMEM;
	}
	for (size_t i = 0; is_same(f) && i < f->of->n && !r; i++)
		r = copy_field(&f->of->fields[i], to, from);
	return r;
}

/* A pointer that was copied as such would be freed twice. */
static void clear_field(const struct doc_field *f, void *v)
{
	size_t n = is_vector(f) || f->kind == DOC_KVS || f->kind == DOC_STRS ? sizeof(struct doc_vector) :
		   f->kind == DOC_TEXT || f->kind == DOC_KEY || f->kind == DOC_NEW ? sizeof(void *) : 0;

	memset(member(v, f), 0, n);
	for (size_t i = 0; is_same(f) && i < f->of->n; i++)
		clear_field(&f->of->fields[i], v);
}

int doc_copy(const struct doc *d, void *to, const void *from)
{
	int r = 0;

	memcpy(to, from, d->size);
	for (size_t i = 0; i < d->n; i++)
		clear_field(&d->fields[i], to);
	for (size_t i = 0; i < d->n && !r; i++)
		r = copy_field(&d->fields[i], to, from);
	return r;
}

static bool equal_text(const char *a, const char *b)
{
	return str_eq(a ? a : "", b ? b : "");
}

static bool equal_vector(const struct doc_field *f, const struct doc_vector *a, const struct doc_vector *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = doc_equal(f->of, a->v + i * f->of->size, b->v + i * f->of->size, f->part);
	return same;
}

static bool equal_new(const struct doc_field *f, const void *a, const void *b)
{
	return a && b ? doc_equal(f->of, a, b, f->part) : a == b;
}

static bool equal_fields(const struct doc *d, const void *a, const void *b, unsigned part);

static bool equal_field(const struct doc_field *f, const void *a, const void *b, unsigned part)
{
	const void *x = member(a, f), *y = member(b, f);

	switch (f->kind) {
	case DOC_TEXT:
	case DOC_KEY:
		return equal_text(*(char *const *)x, *(char *const *)y);
	case DOC_U32:
		return *(const uint32_t *)x == *(const uint32_t *)y;
	case DOC_I64:
	case DOC_MOMENT:
	case DOC_SECONDS:
		return *(const int64_t *)x == *(const int64_t *)y;
	case DOC_REAL:
		return !memcmp(x, y, sizeof(double));
	case DOC_BOOL:
	case DOC_PAUSE:
	case DOC_ASKED:
		return *(const bool *)x == *(const bool *)y;
	case DOC_TRI:
	case DOC_WORD:
		return !memcmp(x, y, sizeof(int));
	case DOC_CONST:
		return true;
	case DOC_KVS:
		return cloud_kvs_equal(x, y);
	case DOC_STRS:
		return cloud_strs_equal(x, y);
	case DOC_SAME:
	case DOC_INLINE:
		return equal_fields(f->of, a, b, part);
	case DOC_NEW:
		return equal_new(f, *(void *const *)x, *(void *const *)y);
	case DOC_LIST:
	case DOC_MAP:
	case DOC_RULES:
		return equal_vector(f, x, y);
	}
	return false;
}

static bool equal_fields(const struct doc *d, const void *a, const void *b, unsigned part)
{
	bool same = true;

	for (size_t i = 0; same && i < d->n; i++)
		if (!d->fields[i].in || d->fields[i].in & part)
			same = equal_field(&d->fields[i], a, b, part);
	return same;
}

bool doc_equal(const struct doc *d, const void *a, const void *b, unsigned part)
{
	return equal_fields(d, a, b, part);
}
