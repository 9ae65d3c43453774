/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/pairs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cloud/model.h"
#include "daemon/sandbox/rules/types.h"
#include "proto/base/str.h"

void pairs_fini(struct pairs *p)
{
	free(p->blob);
	free(p->v);
	*p = (struct pairs){ 0 };
}

static int by_key(const void *a, const void *b)
{
	const struct sandbox_pair *x = a, *y = b;

	return strcmp(x->key, y->key);
}

/* Sorts `v` in place and copies it into *ret. */
static int pack(struct pairs *ret, struct sandbox_pair *v, size_t n)
{
	struct pairs p = { .n = n };
	char *at;

	if (n)
		qsort(v, n, sizeof(*v), by_key);
	for (size_t i = 0; i < n; i++)
		p.len += strlen(v[i].key) + strlen(v[i].value) + 2;
	p.blob = malloc(p.len ? p.len : 1);
	p.v = calloc(n ? n : 1, sizeof(*p.v));
	if (!p.blob || !p.v) {
		pairs_fini(&p);
		return -ENOMEM;
	}
	at = p.blob;
	for (size_t i = 0; i < n; i++) {
		p.v[i].key = memcpy(at, v[i].key, strlen(v[i].key) + 1);
		at += strlen(at) + 1;
		p.v[i].value = memcpy(at, v[i].value, strlen(v[i].value) + 1);
		at += strlen(at) + 1;
	}
	*ret = p;
	return 0;
}

int pairs_from_cloud(struct pairs *ret, const struct cloud_kvs *kvs)
{
	struct sandbox_pair *v = calloc(kvs->n ? kvs->n : 1, sizeof(*v));
	size_t n = 0;
	int r;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < kvs->n; i++)
		if (!str_starts(kvs->v[i].key, PAIRS_TAG_PREFIX))
			v[n++] = (struct sandbox_pair){ kvs->v[i].key, kvs->v[i].value };
	r = pack(ret, v, n);
	free(v);
	return r;
}

int pairs_from(struct pairs *ret, const struct sandbox_pair *v, size_t n)
{
	struct sandbox_pair *copy = calloc(n ? n : 1, sizeof(*copy));
	int r;

	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, v, n * sizeof(*v));
	r = pack(ret, copy, n);
	free(copy);
	return r;
}

int pairs_from_blob(struct pairs *ret, const char *blob, size_t len)
{
	struct sandbox_pair *v;
	const char *at = blob;
	size_t n = 0;
	int r;

	if (len && blob[len - 1])
		return -EBADMSG;
	for (size_t i = 0; i < len; i++)
		n += !blob[i];
	if (n % 2)
		return -EBADMSG;
	n /= 2;
	v = calloc(n ? n : 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		v[i].key = at;
		at += strlen(at) + 1;
		v[i].value = at;
		at += strlen(at) + 1;
	}
	r = pack(ret, v, n);
	free(v);
	return r;
}

bool pairs_equal(const struct pairs *a, const struct pairs *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->blob, b->blob, a->len));
}

bool pairs_have(const struct pairs *p, const struct sandbox_pair *want, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct sandbox_pair *hit;

		hit = p->n ? bsearch(&want[i], p->v, p->n, sizeof(*p->v), by_key) : NULL;
		if (!hit || !str_eq(hit->value, want[i].value))
			return false;
	}
	return true;
}
