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
static int grow(void **v, size_t n, size_t size)
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

	if (!kv.key || !kv.value || grow(&v, l->n, sizeof(*l->v)) < 0) {
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

	if (!copy || grow(&v, l->n, sizeof(*l->v)) < 0) {
		free(copy);
		return -ENOMEM;
	}
	l->v = v;
	l->v[l->n++] = copy;
	return 0;
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

void cloud_list_freep(struct cloud_list **l)
{
	*l = cloud_list_free(*l);
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

	return n > 0 && n <= 64 && !s[n];
}
