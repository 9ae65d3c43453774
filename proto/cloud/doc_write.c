/* SPDX-License-Identifier: MIT */
/* Structs → JSON, as text at once. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/cloud/doc.h"
#include "proto/cloud/model.h"

struct doc_writer {
	struct buf *out;
	const struct flavour *flavour;
	int r;			/* the first failure */
};

static void put(struct doc_writer *w, const char *s)
{
	if (!w->r)
		w->r = buf_put_str(w->out, s);
}

static void put_text(struct doc_writer *w, const char *s)
{
	if (!w->r)
		w->r = str_is_utf8(s, strlen(s)) ? buf_put_json(w->out, s) : -EINVAL;
}

static void put_number(struct doc_writer *w, int64_t v)
{
	if (!w->r)
		w->r = buf_printf(w->out, "%" PRId64, v);
}

static void put_real(struct doc_writer *w, double v)
{
	if (!w->r)
		w->r = buf_printf(w->out, "%.17g", isfinite(v) ? v : 0.0);
}

static void put_moment(struct doc_writer *w, int64_t ms)
{
	char text[40];

	str_rfc3339(ms * 1000, 6, text);
	put_text(w, text);
}

/* "name": of one more member. */
static void put_key(struct doc_writer *w, const char *name, bool *first)
{
	put(w, *first ? "" : ",");
	*first = false;
	put_text(w, name);
	put(w, ":");
}

static void put_kvs(struct doc_writer *w, const struct cloud_kvs *l)
{
	bool first = true;

	put(w, "{");
	for (size_t i = 0; i < l->n; i++) {
		put_key(w, l->v[i].key, &first);
		put_text(w, l->v[i].value);
	}
	put(w, "}");
}

static void put_strs(struct doc_writer *w, const struct cloud_strs *l)
{
	put(w, "[");
	for (size_t i = 0; i < l->n; i++) {
		put(w, i ? "," : "");
		put_text(w, l->v[i]);
	}
	put(w, "]");
}

static void put_fields(struct doc_writer *w, const struct doc *d, const void *v, unsigned part, bool *first);

static void put_object(struct doc_writer *w, const struct doc *d, const void *v, unsigned part)
{
	bool first = true;

	put(w, "{");
	put_fields(w, d, v, part, &first);
	put(w, "}");
}

static void put_vector(struct doc_writer *w, const struct doc_field *f, const char *v, size_t n)
{
	bool first = true, is_list = f->kind == DOC_LIST;

	put(w, is_list ? "[" : "{");
	for (size_t i = 0; i < n; i++, v += f->of->size) {
		if (is_list) {
			put(w, i ? "," : "");
		} else {
			put_key(w, *(char *const *)(const void *)v, &first);
			put(w, f->kind == DOC_RULES ? "[" : "");
		}
		put_object(w, f->of, v, f->part);
		put(w, f->kind == DOC_RULES ? "]" : "");
	}
	put(w, is_list ? "]" : "}");
}

/* Nothing in it would be written. */
static bool is_empty(const struct doc_field *f, const void *v, unsigned part)
{
	const void *m = (const char *)v + f->at;
	const struct doc_vector *l = m;
	bool empty = true;

	switch (f->kind) {
	case DOC_TEXT:
	case DOC_NEW:
		return !*(void *const *)m;
	case DOC_TRI:
	case DOC_PAUSE:
		return *(const enum tri *)m == TRI_UNSET;
	case DOC_WORD:
		return !*(const int *)m;
	case DOC_KVS:
	case DOC_STRS:
	case DOC_LIST:
	case DOC_MAP:
	case DOC_RULES:
		return !l->n && !(f->flags & DOC_KEEP);
	case DOC_MOMENT:	/* where null may stand, none has been */
		return f->flags & DOC_NULL && !*(const int64_t *)m;
	case DOC_ASKED:
	case DOC_KEY:
		return true;
	case DOC_SAME:
		for (size_t i = 0; empty && i < f->of->n; i++)
			empty = (f->of->fields[i].in && !(f->of->fields[i].in & part)) ||
				is_empty(&f->of->fields[i], v, part);
		return empty;
	default:
		return false;
	}
}

static void put_value(struct doc_writer *w, const struct doc_field *f, const void *v, unsigned part)
{
	const void *m = (const char *)v + f->at;
	const struct doc_vector *l = m;

	switch (f->kind) {
	case DOC_TEXT:
		put_text(w, *(char *const *)m);
		break;
	case DOC_U32:
		put_number(w, *(const uint32_t *)m);
		break;
	case DOC_I64:
		put_number(w, *(const int64_t *)m);
		break;
	case DOC_REAL:
		put_real(w, *(const double *)m);
		break;
	case DOC_BOOL:
		put(w, *(const bool *)m ? "true" : "false");
		break;
	case DOC_TRI:
		put(w, *(const enum tri *)m == TRI_TRUE ? "true" : "false");
		break;
	case DOC_MOMENT:
		put_moment(w, *(const int64_t *)m);
		break;
	case DOC_SECONDS:
		put_number(w, *(const int64_t *)m / 1000);
		break;
	case DOC_PAUSE:
		put_text(w, *(const enum tri *)m == TRI_TRUE ? "pause" : "kill");
		break;
	case DOC_WORD:
		put_text(w, f->words[*(const int *)m - 1]);
		break;
	case DOC_CONST:
		put(w, f->words[0]);
		break;
	case DOC_KVS:
		put_kvs(w, m);
		break;
	case DOC_STRS:
		put_strs(w, m);
		break;
	case DOC_SAME:
		put_object(w, f->of, v, f->part ? f->part : part);
		break;
	case DOC_NEW:
		put_object(w, f->of, *(void *const *)m, f->part);
		break;
	case DOC_LIST:
	case DOC_MAP:
	case DOC_RULES:
		put_vector(w, f, l->v, l->n);
		break;
	case DOC_ASKED:
	case DOC_KEY:
	case DOC_INLINE:
		break;
	}
}

static void put_fields(struct doc_writer *w, const struct doc *d, const void *v, unsigned part, bool *first)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct doc_field *f = &d->fields[i];
		bool empty;

		if ((f->in && !(f->in & part)) || (f->flags & DOC_EXTRA && !w->flavour->answers_extra))
			continue;
		if (f->kind == DOC_INLINE) {
			put_fields(w, f->of, v, f->part, first);
			continue;
		}
		empty = is_empty(f, v, part);
		if (empty && !(f->flags & DOC_NULL))
			continue;
		put_key(w, f->name, first);
		if (empty)
			put(w, "null");
		else
			put_value(w, f, v, part);
	}
}

int doc_write(const struct doc *d, const void *v, const struct flavour *f, unsigned part, struct buf *out)
{
	struct doc_writer w = { .out = out, .flavour = f };

	put_object(&w, d, v, part);
	return w.r;
}
