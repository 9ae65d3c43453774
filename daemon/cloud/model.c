/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

static void wipe_free(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

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

int cloud_strs_add_all(struct cloud_strs *to, const struct cloud_strs *from)
{
	int r = 0;

	for (size_t i = 0; i < from->n && !r; i++)
		r = cloud_strs_add(to, from->v[i]);
	return r;
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

struct cloud_network *cloud_network_free(struct cloud_network *n)
{
	if (!n)
		return NULL;
	cloud_strs_fini(&n->allow_out);
	cloud_strs_fini(&n->deny_out);
	free(n->mask_request_host);
	free(n->egress_address);
	free(n->egress_username);
	wipe_free(n->egress_password);
	for (size_t i = 0; i < n->n_rules; i++) {
		free(n->rules[i].domain);
		cloud_kvs_fini(&n->rules[i].headers);
	}
	free(n->rules);
	free(n);
	return NULL;
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

static int copy_str(char **to, const char *s)
{
	if (!s)
		return 0;
	*to = str_dup(s);
	return *to ? 0 : -ENOMEM;
}

static int copy_rules(struct cloud_network *to, const struct cloud_network *from)
{
	struct cloud_rule *rule;
	int r = 0;

	for (size_t i = 0; i < from->n_rules && !r; i++) {
		const struct cloud_kvs *h = &from->rules[i].headers;

		r = cloud_network_add_rule(to, from->rules[i].domain, &rule);
		for (size_t k = 0; k < h->n && !r; k++)
			r = cloud_kvs_add(&rule->headers, h->v[k].key, h->v[k].value);
	}
	return r;
}

struct cloud_network *cloud_network_dup(const struct cloud_network *n)
{
	scoped(cloud_network_freep) struct cloud_network *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->allow_public_traffic = n->allow_public_traffic;
	if (cloud_strs_add_all(&d->allow_out, &n->allow_out) < 0 ||
	    cloud_strs_add_all(&d->deny_out, &n->deny_out) < 0 ||
	    copy_str(&d->mask_request_host, n->mask_request_host) < 0 ||
	    copy_str(&d->egress_address, n->egress_address) < 0 ||
	    copy_str(&d->egress_username, n->egress_username) < 0 ||
	    copy_str(&d->egress_password, n->egress_password) < 0 || copy_rules(d, n) < 0)
		return NULL;
	return give(d);
}

static bool same_str(const char *a, const char *b)
{
	return str_eq(a ? a : "", b ? b : "");
}

static bool same_rule(const struct cloud_rule *a, const struct cloud_rule *b)
{
	bool same = str_eq(a->domain, b->domain) && a->headers.n == b->headers.n;

	for (size_t i = 0; same && i < a->headers.n; i++)
		same = str_eq(a->headers.v[i].key, b->headers.v[i].key) &&
		       str_eq(a->headers.v[i].value, b->headers.v[i].value);
	return same;
}

bool cloud_network_equal(const struct cloud_network *a, const struct cloud_network *b)
{
	bool same;

	if (!a || !b)
		return a == b;
	same = cloud_strs_equal(&a->allow_out, &b->allow_out) && cloud_strs_equal(&a->deny_out, &b->deny_out) &&
	       a->allow_public_traffic == b->allow_public_traffic &&
	       same_str(a->mask_request_host, b->mask_request_host) &&
	       same_str(a->egress_address, b->egress_address) &&
	       same_str(a->egress_username, b->egress_username) && a->n_rules == b->n_rules;
	for (size_t i = 0; same && i < a->n_rules; i++)
		same = same_rule(&a->rules[i], &b->rules[i]);
	return same;
}

struct cloud_sandbox *cloud_sandbox_free(struct cloud_sandbox *s)
{
	if (!s)
		return NULL;
	free(s->id);
	free(s->template_id);
	free(s->alias);
	free(s->envd_version);
	wipe_free(s->envd_access_token);
	wipe_free(s->traffic_access_token);
	free(s->domain);
	cloud_kvs_fini(&s->metadata);
	cloud_network_free(s->network);
	free(s);
	return NULL;
}

void cloud_sandbox_freep(struct cloud_sandbox **s)
{
	*s = cloud_sandbox_free(*s);
}

struct cloud_list *cloud_list_free(struct cloud_list *l)
{
	if (!l)
		return NULL;
	for (size_t i = 0; i < l->n; i++)
		cloud_sandbox_free(l->v[i]);
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
	if (!s)
		return NULL;
	free(s->id);
	cloud_strs_fini(&s->names);
	free(s);
	return NULL;
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
