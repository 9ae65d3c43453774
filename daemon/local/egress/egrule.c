/* SPDX-License-Identifier: MIT */
#include "daemon/local/egress/egrule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/engine/nsnet.h"
#include "proto/base/host.h"
#include "proto/base/str.h"
#include "proto/cloud/model.h"

struct nets {
	struct egrule_net *v;
	size_t n;
};

struct domain {
	char *name;		/* lower case */
	struct egrule_header *v;
	size_t n;
};

struct egrule {
	struct nets allow, deny;
	struct domain *domains;		/* with headers */
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
static int take(struct egrule *r, const struct cloud_strs *list, struct nets *to, bool with_names)
{
	to->v = calloc(list->n + 1, sizeof(*to->v));
	if (with_names)
		r->names = calloc(list->n + 1, sizeof(*r->names));
	if (!to->v || (with_names && !r->names))
		return -ENOMEM;
	for (size_t i = 0; i < list->n; i++) {
		const char *s = list->v[i];
		char *name;

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

static int copy_text(const char *s, char **ret)
{
	if (str_is_empty(s))
		return 0;
	*ret = str_dup(s);
	return *ret ? 0 : -ENOMEM;
}

static int take_proxy(struct egrule *r, const struct cloud_network *n)
{
	const char *address = n->egress_address;
	struct host_port hp;
	int e;

	if (!address)
		return 0;
	if (host_port_parse(address, strlen(address), &hp) < 0 || !hp.port)
		return -EINVAL;
	r->has_proxy = true;
	r->proxy.port = hp.port;
	e = copy_text(hp.host, &r->proxy.host);
	if (e == 0)
		e = copy_text(n->egress_username, &r->proxy.user);
	return e < 0 ? e : copy_text(n->egress_password, &r->proxy.password);
}

static int take_domain(struct egrule *r, const char *name, const struct cloud_kvs *headers)
{
	struct domain *d = &r->domains[r->n_domains];

	if (!headers->n)
		return 0;
	r->n_domains++;
	d->name = lower(name);
	d->v = calloc(headers->n, sizeof(*d->v));
	if (!d->name || !d->v)
		return -ENOMEM;
	for (size_t i = 0; i < headers->n; i++) {
		struct egrule_header *h = &d->v[d->n++];

		h->name = lower(headers->v[i].key);
		h->value = str_dup(headers->v[i].value);
		if (!h->name || !h->value)
			return -ENOMEM;
	}
	return 0;
}

static int take_domains(struct egrule *r, const struct cloud_network *n)
{
	int e = 0;

	r->domains = calloc(n->n_rules + 1, sizeof(*r->domains));
	if (!r->domains)
		return -ENOMEM;
	for (size_t i = 0; i < n->n_rules && e == 0; i++)
		e = take_domain(r, n->rules[i].domain, &n->rules[i].headers);
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
		free(d->name);
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

int egrule_new(const struct cloud_network *network, bool block, struct egrule **ret)
{
	static const struct cloud_network none;
	const struct cloud_network *n = network ? network : &none;
	struct egrule *r = calloc(1, sizeof(*r));
	int e = r ? 0 : -ENOMEM;

	if (!e) {
		r->block = block;
		e = take(r, &n->allow_out, &r->allow, true);
	}
	if (!e)
		e = take(r, &n->deny_out, &r->deny, false);
	if (!e)
		e = take_proxy(r, n);
	if (!e)
		e = take_domains(r, n);
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
		if (str_eq(r->domains[i].name, host)) {
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
