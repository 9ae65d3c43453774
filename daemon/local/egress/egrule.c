/* SPDX-License-Identifier: MIT */
/* See the header. */
#include "daemon/local/egress/egrule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/engine/nsnet.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

struct nets {
	struct egrule_net *v;
	size_t n;
};

struct domain {
	char *pattern;
	struct egrule_header *v;
	size_t n;
};

struct egrule {
	struct nets allow, deny;
	struct domain *domains;		/* with headers, exact names first */
	size_t n_domains;
	char **names;
	size_t n_names;
	bool block, has_proxy;
	struct egrule_proxy proxy;
};

bool egrule_net_parse(const char *s, struct egrule_net *ret)
{
	const char *slash = strchr(s, '/');
	size_t n = slash ? (size_t)(slash - s) : strlen(s);
	char host[INET_ADDRSTRLEN];
	struct in_addr a;
	uint64_t bits = 32;

	if (n >= sizeof(host))
		return false;
	memcpy(host, s, n);
	host[n] = '\0';
	if (inet_pton(AF_INET, host, &a) != 1 ||
	    (slash && str_u64(slash + 1, strlen(slash + 1), 32, &bits) < 0))
		return false;
	ret->mask = bits ? UINT32_MAX << (32 - bits) : 0;
	ret->first = ntohl(a.s_addr) & ret->mask;
	return true;
}

static char *lower(const char *s)
{
	char *out = str_dup(s);

	for (char *c = out; c && *c; c++)
		*c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
	return out;
}

/* Addresses to `to`; the rest, if it cannot be an IPv6 address, to r->names. */
static int take(struct egrule *r, const json_t *list, struct nets *to, bool with_names)
{
	size_t n = json_array_size(list), i;
	json_t *e;

	to->v = calloc(n + 1, sizeof(*to->v));
	if (with_names)
		r->names = calloc(n + 1, sizeof(*r->names));
	if (!to->v || (with_names && !r->names))
		return -ENOMEM;
	json_array_foreach(list, i, e) {
		const char *s = json_string_value(e);
		char *name;

		if (!s)
			continue;
		if (egrule_net_parse(s, &to->v[to->n])) {
			to->n++;
			continue;
		}
		if (!with_names || strchr(s, ':'))
			continue;
		name = lower(s);
		if (!name)
			return -ENOMEM;
		r->names[r->n_names++] = name;
	}
	return 0;
}

bool egrule_proxy_address(const char *s, char **ret_host, uint16_t *ret_port)
{
	struct host_port hp;

	if (host_port_parse(s, strlen(s), &hp) < 0 || !hp.port)
		return false;
	*ret_host = str_dup(hp.host);
	*ret_port = hp.port;
	return *ret_host;
}

static int text_of(const json_t *o, const char *key, char **ret)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s || !*s)
		return 0;
	*ret = str_dup(s);
	return *ret ? 0 : -ENOMEM;
}

static int take_proxy(struct egrule *r, const json_t *o)
{
	const char *address = json_string_value(json_object_get(o, "address"));
	int e;

	if (!address)
		return 0;
	if (!egrule_proxy_address(address, &r->proxy.host, &r->proxy.port))
		return -EINVAL;
	r->has_proxy = true;
	e = text_of(o, "username", &r->proxy.user);
	return e < 0 ? e : text_of(o, "password", &r->proxy.password);
}

static int take_domain(struct egrule *r, const char *pattern, json_t *headers)
{
	struct domain *d = &r->domains[r->n_domains];
	const char *name;
	json_t *value;

	if (!json_object_size(headers))
		return 0;
	r->n_domains++;
	d->pattern = lower(pattern);
	d->v = calloc(json_object_size(headers), sizeof(*d->v));
	if (!d->pattern || !d->v)
		return -ENOMEM;
	json_object_foreach(headers, name, value) {
		struct egrule_header *h = &d->v[d->n++];

		h->name = lower(name);
		h->value = str_dup(json_string_value(value) ? json_string_value(value) : "");
		if (!h->name || !h->value)
			return -ENOMEM;
	}
	return 0;
}

static int take_domains(struct egrule *r, const json_t *rules)
{
	const char *pattern;
	json_t *list;
	int e = 0;

	r->domains = calloc(json_object_size(rules) + 1, sizeof(*r->domains));
	if (!r->domains)
		return -ENOMEM;
	for (int wild = 0; wild < 2; wild++) {
		json_object_foreach((json_t *)rules, pattern, list) {
			json_t *rule = json_array_get(list, 0);

			if (e == 0 && str_starts(pattern, "*") == (wild == 1))
				e = take_domain(r, pattern, json_object_get(json_object_get(rule, "transform"),
									    "headers"));
		}
	}
	return e;
}

static void drop_domains(struct egrule *r)
{
	for (size_t i = 0; i < r->n_domains; i++) {
		struct domain *d = &r->domains[i];

		for (size_t k = 0; k < d->n; k++) {
			free(d->v[k].name);
			if (d->v[k].value)
				explicit_bzero(d->v[k].value, strlen(d->v[k].value));
			free(d->v[k].value);
		}
		free(d->v);
		free(d->pattern);
	}
	free(r->domains);
}

const struct egrule_proxy *egrule_proxy(const struct egrule *r)
{
	return r->has_proxy ? &r->proxy : NULL;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? str_eq(a, b) : a == b;
}

bool egrule_has_same_proxy(const struct egrule *a, const struct egrule *b)
{
	return a->has_proxy == b->has_proxy && a->proxy.port == b->proxy.port &&
	       same_text(a->proxy.host, b->proxy.host) && same_text(a->proxy.user, b->proxy.user) &&
	       same_text(a->proxy.password, b->proxy.password);
}

int egrule_new(const json_t *network, bool block, struct egrule **ret)
{
	struct egrule *r = calloc(1, sizeof(*r));
	int e = r ? 0 : -ENOMEM;

	if (!e) {
		r->block = block;
		e = take(r, json_object_get(network, "allowOut"), &r->allow, true);
	}
	if (!e)
		e = take(r, json_object_get(network, "denyOut"), &r->deny, false);
	if (!e)
		e = take_proxy(r, json_object_get(network, "egressProxy"));
	if (!e)
		e = take_domains(r, json_object_get(network, "rules"));
	if (e < 0) {
		egrule_free(r);
		return e;
	}
	*ret = r;
	return 0;
}

struct egrule *egrule_free(struct egrule *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < r->n_names; i++)
		free(r->names[i]);
	free(r->names);
	drop_domains(r);
	free(r->proxy.host);
	free(r->proxy.user);
	if (r->proxy.password)
		explicit_bzero(r->proxy.password, strlen(r->proxy.password));
	free(r->proxy.password);
	free(r->allow.v);
	free(r->deny.v);
	free(r);
	return NULL;
}

static bool has(const struct nets *list, uint32_t address)
{
	for (size_t i = 0; i < list->n; i++)
		if (egrule_net_has(&list->v[i], address))
			return true;
	return false;
}

enum egrule_verdict egrule_address(const struct egrule *r, uint32_t address)
{
	if (has(&r->allow, address))
		return EGRULE_ALLOW;
	if (!r->block && !has(&r->deny, address))
		return EGRULE_ALLOW;
	return r->n_names ? EGRULE_BY_NAME : EGRULE_DENY;
}

static bool matches(const char *pattern, const char *name)
{
	size_t n = strlen(name), k;

	if (str_eq(pattern, "*"))
		return true;
	if (!str_starts(pattern, "*."))
		return str_eq(pattern, name);
	k = strlen(pattern + 1);	/* with its dot */
	return n > k && str_eq(name + n - k, pattern + 1);
}

bool egrule_name(const struct egrule *r, const char *name)
{
	for (size_t i = 0; i < r->n_names; i++)
		if (matches(r->names[i], name))
			return true;
	return false;
}

size_t egrule_headers(const struct egrule *r, const char *host, const struct egrule_header **ret)
{
	for (size_t i = 0; i < r->n_domains; i++)
		if (matches(r->domains[i].pattern, host)) {
			*ret = r->domains[i].v;
			return r->domains[i].n;
		}
	return 0;
}

bool egrule_has_headers(const struct egrule *r)
{
	return r->n_domains > 0;
}

bool egrule_is_closed(const struct egrule *r)
{
	bool all = r->block;

	for (size_t i = 0; i < r->deny.n; i++)
		all = all || !r->deny.v[i].mask;
	return all && !r->allow.n && !r->n_names;
}

bool egrule_dns(const struct egrule *r)
{
	return r->n_names || egrule_address(r, NSNET_DNS) == EGRULE_ALLOW;
}
