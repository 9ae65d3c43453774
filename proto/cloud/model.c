/* SPDX-License-Identifier: MIT */
#include "proto/cloud/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/cloud/json.h"

/* Room for one more element; lists grow by doubling at powers of two. */
static int model_grow(void **v, size_t n, size_t size)
{
	void *p;

	if (n & (n - 1))		/* not a power of two: there is room */
		return 0;
	p = reallocarray(*v, n ? n * 2 : 1, size);
	if (!p)
		return -ENOMEM;
	*v = p;
	return 0;
}

int cloud_kvs_add(struct cloud_kvs *l, const char *key, const char *value)
{
	struct cloud_kv kv = { str_dup(key), str_dup(value) };
	void *v = l->v;

	if (!kv.key || !kv.value || model_grow(&v, l->n, sizeof(*l->v)) < 0) {
		free(kv.key);
		free(kv.value);
		return -ENOMEM;
	}
	l->v = v;
	l->v[l->n++] = kv;
	return 0;
}

int cloud_kvs_add_all(struct cloud_kvs *to, const struct cloud_kvs *from)
{
	int r = 0;

	for (size_t i = 0; i < from->n && !r; i++)
		r = cloud_kvs_add(to, from->v[i].key, from->v[i].value);
	return r;
}

const char *cloud_kvs_get(const struct cloud_kvs *l, const char *key)
{
	for (size_t i = 0; i < l->n; i++)
		if (str_eq(l->v[i].key, key))
			return l->v[i].value;
	return NULL;
}

void cloud_kvs_fini(struct cloud_kvs *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].key);
		free(l->v[i].value);
	}
	free(l->v);
	*l = (struct cloud_kvs){ 0 };
}

int cloud_strs_add(struct cloud_strs *l, const char *s)
{
	char *copy = str_dup(s);
	void *v = l->v;

	if (!copy || model_grow(&v, l->n, sizeof(*l->v)) < 0) {
		free(copy);
		return -ENOMEM;
	}
	l->v = v;
	l->v[l->n++] = copy;
	return 0;
}

bool cloud_strs_has(const struct cloud_strs *l, const char *s)
{
	for (size_t i = 0; i < l->n; i++)
		if (str_eq(l->v[i], s))
			return true;
	return false;
}

bool cloud_strs_equal(const struct cloud_strs *a, const struct cloud_strs *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = str_eq(a->v[i], b->v[i]);
	return same;
}

void cloud_strs_fini(struct cloud_strs *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct cloud_strs){ 0 };
}

/* Frees a struct on the heap that a document describes. */
static void *free_doc(enum cloud_doc_id doc, void *v)
{
	if (v)
		cloud_doc_fini(doc, v);
	free(v);
	return NULL;
}

struct cloud_network *cloud_network_free(struct cloud_network *n)
{
	return free_doc(CLOUD_DOC_NETWORK, n);
}

void cloud_network_freep(struct cloud_network **n)
{
	*n = cloud_network_free(*n);
}

int cloud_network_add_rule(struct cloud_network *n, const char *domain, struct cloud_rule **ret)
{
	void *v = n->rules;
	char *copy = str_dup(domain);

	if (!copy || model_grow(&v, n->n_rules, sizeof(*n->rules)) < 0) {
		free(copy);
		return -ENOMEM;
	}
	n->rules = v;
	n->rules[n->n_rules] = (struct cloud_rule){ .domain = copy };
	*ret = &n->rules[n->n_rules++];
	return 0;
}

struct cloud_sandbox *cloud_sandbox_free(struct cloud_sandbox *s)
{
	return free_doc(CLOUD_DOC_SANDBOX, s);
}

void cloud_sandbox_freep(struct cloud_sandbox **s)
{
	*s = cloud_sandbox_free(*s);
}

void cloud_list_shorten(struct cloud_list *l, size_t n)
{
	while (l->n > n)
		cloud_sandbox_free(l->v[--l->n]);
}

struct cloud_list *cloud_list_free(struct cloud_list *l)
{
	if (!l)
		return NULL;
	cloud_list_shorten(l, 0);
	free(l->v);
	free(l->next_token);
	free(l);
	return NULL;
}

int cloud_list_add(struct cloud_list *l, struct cloud_sandbox *s)
{
	void *v = l->v;

	if (model_grow(&v, l->n, sizeof(l->v[0])) < 0)
		return -ENOMEM;
	l->v = v;
	l->v[l->n++] = s;
	return 0;
}

void cloud_list_freep(struct cloud_list **l)
{
	*l = cloud_list_free(*l);
}

struct cloud_children *cloud_children_free(struct cloud_children *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < c->n; i++)
		cloud_sandbox_free(c->v[i].sandbox);
	free(c->v);
	free(c);
	return NULL;
}

struct cloud_metrics *cloud_metrics_free(struct cloud_metrics *m)
{
	if (m)
		free(m->v);
	free(m);
	return NULL;
}

struct cloud_snapshot *cloud_snapshot_free(struct cloud_snapshot *s)
{
	return free_doc(CLOUD_DOC_SNAPSHOT, s);
}

void cloud_create_fini(struct cloud_create *c)
{
	cloud_doc_fini(CLOUD_DOC_CREATE, c);
}

struct cloud_snapshots *cloud_snapshots_free(struct cloud_snapshots *l)
{
	if (!l)
		return NULL;
	for (size_t i = 0; i < l->n; i++)
		cloud_snapshot_free(l->v[i]);
	free(l->v);
	free(l->next_token);
	free(l);
	return NULL;
}

int cloud_snapshots_add(struct cloud_snapshots *l, struct cloud_snapshot *s)
{
	void *v = l->v;

	if (model_grow(&v, l->n, sizeof(l->v[0])) < 0)
		return -ENOMEM;
	l->v = v;
	l->v[l->n++] = s;
	return 0;
}

struct cloud_template *cloud_template_free(struct cloud_template *t)
{
	return free_doc(CLOUD_DOC_TEMPLATE, t);
}

struct cloud_templates *cloud_templates_free(struct cloud_templates *l)
{
	if (!l)
		return NULL;
	for (size_t i = 0; i < l->n; i++)
		cloud_template_free(l->v[i]);
	free(l->v);
	free(l->next_token);
	free(l);
	return NULL;
}

int cloud_templates_add(struct cloud_templates *l, struct cloud_template *t)
{
	void *v = l->v;

	if (model_grow(&v, l->n, sizeof(l->v[0])) < 0)
		return -ENOMEM;
	l->v = v;
	l->v[l->n++] = t;
	return 0;
}

static unsigned version_part(const char **s)
{
	unsigned n = 0;

	while (**s >= '0' && **s <= '9') {
		n = MIN(n * 10 + (unsigned)(**s - '0'), 1000000u);
		(*s)++;
	}
	if (**s == '.')
		(*s)++;
	else
		*s += strlen(*s);	/* "-rc1" and the like do not count */
	return n;
}

int cloud_version_cmp(const char *a, const char *b)
{
	a += *a == 'v';
	b += *b == 'v';
	for (int i = 0; i < 3; i++) {
		unsigned x = version_part(&a), y = version_part(&b);

		if (x != y)
			return x < y ? -1 : 1;
	}
	return 0;
}

bool cloud_is_sandbox_id(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");

	return n > 0 && n <= CLOUD_SANDBOX_ID_MAX && !s[n];
}

int cloud_id_parse(const char *s, char ret[CLOUD_SANDBOX_ID_MAX + 1])
{
	const char *dash = strchr(s, '-');
	size_t n = dash ? (size_t)(dash - s) : strlen(s);

	if ((dash && (!dash[1] || strchr(dash + 1, '-'))) || n > CLOUD_SANDBOX_ID_MAX)
		return -EINVAL;
	memcpy(ret, s, n);
	ret[n] = 0;
	return cloud_is_sandbox_id(ret) ? 0 : -EINVAL;
}
