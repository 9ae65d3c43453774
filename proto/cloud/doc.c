/* SPDX-License-Identifier: MIT */
/* Freeing by the table. */
#include "proto/cloud/doc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/cloud/model.h"

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
	if (secret)
		str_free_secret(s);
	else
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
