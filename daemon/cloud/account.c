/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/account.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/common/obs/redact.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

#define MAX_IN_FLIGHT	  64u

/* --- addresses --- */

void url_fini(struct url *u)
{
	free(u->scheme);
	free(u->host);
	free(u->prefix);
	*u = (struct url){ 0 };
}

int url_parse(const char *s, struct url *ret)
{
	struct url u = { 0 };
	bool tls = str_starts(s, "https://");
	const char *authority, *path;
	struct host_port hp;
	size_t n;
	int r;

	if (!tls && !str_starts(s, "http://"))
		return -EINVAL;
	if (!str_is_printable(s, strlen(s)) || strpbrk(s, "@?# \\"))
		return -EINVAL;
	authority = strstr(s, "//") + 2;
	path = authority + strcspn(authority, "/");
	n = strlen(path);
	while (n && path[n - 1] == '/')
		n--;
	r = host_port_parse(authority, (size_t)(path - authority), &hp);
	if (r == 0 && hp.has_port && !hp.port)
		r = -EINVAL;
	if (r == 0) {
		u.has_port = hp.has_port;
		u.port = hp.has_port ? hp.port : tls ? 443 : 80;
		u.host = str_dup(hp.host);
		u.scheme = str_dup(tls ? "https" : "http");
		u.prefix = strndup(path, n);
		r = u.host && u.scheme && u.prefix ? 0 : -ENOMEM;
	}
	if (r < 0)
		url_fini(&u);
	else
		*ret = u;
	return r;
}

bool url_is_private(const struct url *u)
{
	return str_eq(u->scheme, "https") || host_is_loopback(u->host);
}

/* Is the host in the comma list? An entry covers itself and what is below it; "*" is all. */
static bool list_covers(const char *list, const char *host)
{
	size_t n_host = strlen(host);

	while (list && *list) {
		size_t n = strcspn(list, ",");
		const char *e = list;

		list += n + (list[n] == ',');
		while (n && *e == ' ')
			e++, n--;
		while (n && e[n - 1] == ' ')
			n--;
		if (n == 1 && *e == '*')
			return true;
		if (n && *e == '.')
			e++, n--;
		if (!n || n > n_host || strncasecmp(host + n_host - n, e, n))
			continue;
		if (n == n_host || host[n_host - n - 1] == '.')
			return true;
	}
	return false;
}

void cloud_target(const struct cloud *c, const struct url *u, struct pool_target *ret)
{
	bool tls = str_eq(u->scheme, "https");

	*ret = (struct pool_target){
		.scheme = u->scheme,
		.host = u->host,
		.port = u->port,
		.group = c->account,
		/* This machine is reached by no proxy. */
		.proxy = c->proxy && !host_is_loopback(u->host) && !list_covers(c->no_proxy, u->host) ?
				 c->proxy : NULL,
		.tls = tls ? c->tls : NULL,
		.plain_http2 = c->plain_http2,
		.quota = c->quota,
	};
}

/* --- the account --- */

/* The key has pages of its own: not in swap if the limits allow it, not in a core dump. */
static char *key_copy(const char *key)
{
	size_t n = strlen(key) + 1;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)mlock(p, n);
	(void)madvise(p, n, MADV_DONTDUMP);
	memcpy(p, key, n);
	return p;
}

static void key_wipe(char **key)
{
	size_t n = *key ? strlen(*key) + 1 : 0;

	if (n) {
		explicit_bzero(*key, n);
		munmap(*key, n);
	}
	*key = NULL;
}

void cloud_set_tls(struct cloud *c, struct tls_client *tls)
{
	c->tls = tls;
}

void cloud_set_key(struct cloud *c, const char *api_key)
{
	char *key, *group;

	if (!str_is_empty(api_key) && c->key && str_eq(api_key, c->key))
		return;
	key = str_is_empty(api_key) ? NULL : key_copy(api_key);
	group = str_printf("%s#%u", c->account, c->key_generation + 1);
	if (!group || (!key && !str_is_empty(api_key))) {	/* without memory the old one stays */
		key_wipe(&key);
		free(group);
		return;
	}
	redact_note(key);
	key_wipe(&c->key);
	c->key = key;
	c->key_generation++;
	c->key_rejected = false;
	if (c->key_group)
		pool_retire_group(c->pool, c->key_group);
	free(c->key_group);
	c->key_group = group;
	if (!c->key || !c->on_key_changed)
		return;
	c->trust = CLOUD_KEY_ASKED;
	c->on_key_changed(c->key_user);
}

void cloud_on_key_changed(struct cloud *c, void (*fn)(void *user), void *user)
{
	c->on_key_changed = fn;
	c->key_user = user;
}

void cloud_on_date(struct cloud *c, void (*fn)(void *user, int64_t date_ms), void *user)
{
	c->on_date = fn;
	c->date_user = user;
}

bool cloud_key_hash(const struct cloud *c, void (*sha256)(const void *p, size_t n, uint8_t ret[32]), uint8_t ret[32])
{
	if (c->key)
		sha256(c->key, strlen(c->key), ret);
	return c->key != NULL;
}

static int bad_option(struct status *why, const char *name, const char *value, const char *what)
{
	if (why)
		status_field(why, name, "\"%s\" %s", value, what);
	return -EINVAL;
}

/* What is sent there is a key or a token, in clear where the address is http://. */
static int take_url(const struct cloud *c, const char *name, const char *text, struct url *ret, struct status *why)
{
	int r = url_parse(text, ret);

	if (r == -EINVAL)
		return bad_option(why, name, text, "is no address; write https://host[:port]");
	if (r == 0 && !url_is_private(ret) && !c->allow_plain_http)
		return bad_option(why, name, text, "would send keys in clear; write https://, or allow_plain_http = yes");
	return r;
}

/* Of a header: the configured name, or the flavour's; as field names are on the wire. */
static char *header_name(const char *set, const char *usual)
{
	char *name = str_dup(str_is_empty(set) ? usual : set);

	if (name)
		str_lower(name);
	return name;
}

struct address {
	char *api_url, *domain;
	struct url api, sandbox;
};

static void address_fini(struct address *a)
{
	free(a->api_url);
	free(a->domain);
	url_fini(&a->api);
	url_fini(&a->sandbox);
}

static int read_address(const struct cloud *c, const char *api_url, const char *domain, const char *sandbox_url, struct address *ret,
			struct status *why)
{
	const char *name = str_is_empty(domain) ? c->flavour->domain : domain;
	int r;

	ret->domain = str_dup(name);
	ret->api_url = str_is_empty(api_url) ? str_printf("https://api.%s", name) : str_dup(api_url);
	if (!ret->domain || !ret->api_url)
		return -ENOMEM;
	if (!host_port_is_valid(name))
		return bad_option(why, "domain", name, "is no host name");
	r = take_url(c, "api_url", ret->api_url, &ret->api, why);
	return r < 0 || str_is_empty(sandbox_url) ? r : take_url(c, "sandbox_url", sandbox_url, &ret->sandbox, why);
}

static int set_address(struct cloud *c, const char *api_url, const char *domain, const char *sandbox_url,
		       struct status *why)
{
	struct address a = { 0 }, old = { c->api_url, c->domain, c->api, c->sandbox };
	int r = read_address(c, api_url, domain, sandbox_url, &a, why);

	if (r < 0) {
		address_fini(&a);
		return r;
	}
	c->api_url = a.api_url;
	c->domain = a.domain;
	c->api = a.api;
	c->sandbox = a.sandbox;
	address_fini(&old);
	return 0;
}

int cloud_set_address(struct cloud *c, const char *api_url, const char *domain, const char *sandbox_url)
{
	return set_address(c, api_url, domain, sandbox_url, NULL);
}

/* The proxy's password, as it is written, as it is meant, and as it is sent. */
int cloud_learn_proxy(const char *proxy)
{
	const char *from = proxy ? strstr(proxy, "://") : NULL, *at = from ? strrchr(from, '@') : NULL, *colon;
	char *text, *basic;
	ssize_t n;

	if (!at)
		return 0;
	text = strndup(from + 3, (size_t)(at - from - 3));
	if (!text)
		return -ENOMEM;
	colon = strchr(text, ':');
	redact_keep(colon ? colon + 1 : NULL);
	n = str_percent_decode(text, strlen(text), false);
	basic = n < 0 ? NULL : str_base64_encode(text, (size_t)n, true);
	colon = n < 0 ? NULL : strchr(text, ':');
	redact_keep(colon ? colon + 1 : NULL);
	redact_keep(basic);
	(void)str_free_secret(basic);
	(void)str_free_secret(text);
	return 0;
}

void cloud_set_proxy(struct cloud *c, char *proxy, char *no_proxy)
{
	(void)str_free_secret(c->proxy);
	free(c->no_proxy);
	c->proxy = proxy;
	c->no_proxy = no_proxy;
}

const char *cloud_proxy(const struct cloud *c)
{
	return c->proxy;
}

static int copy_options(struct cloud *c, const struct cloud_options *o, struct status *why)
{
	c->account = str_dup(o->account ? o->account : "default");
	c->header_sandbox_id = header_name(o->header_sandbox_id, c->flavour->headers[FLAVOUR_SANDBOX_ID]);
	c->header_sandbox_port = header_name(o->header_sandbox_port, c->flavour->headers[FLAVOUR_SANDBOX_PORT]);
	c->header_traffic_token = header_name(o->header_traffic_token, c->flavour->headers[FLAVOUR_TRAFFIC_TOKEN]);
	c->default_user = str_dup(o->default_user ? o->default_user : "user");
	c->proxy = str_dup(o->proxy);
	c->no_proxy = str_dup(o->no_proxy);
	if (!c->account || !c->header_sandbox_id || !c->header_sandbox_port || !c->header_traffic_token ||
	    !c->default_user || (o->proxy && !c->proxy) || (o->no_proxy && !c->no_proxy))
		return -ENOMEM;
	if (cloud_learn_proxy(c->proxy) < 0)
		return -ENOMEM;
	return set_address(c, o->api_url, o->domain, o->sandbox_url, why);
}

/* One account never leaves less than this part of the pool's memory to each of the others. */
#define QUOTA_KEPT 8u

void cloud_size_memory(struct cloud *c)
{
	quota_set_max(c->quota, 0, quota_max(pool_quota(c->pool)) / QUOTA_KEPT);
}

static int open_quota(struct cloud *c)
{
	struct quota_options o = { .parent = pool_quota(c->pool), .name = c->account };

	c->quota = quota_new(&o);
	if (!c->quota)
		return -ENOMEM;
	cloud_size_memory(c);
	return 0;
}

int cloud_new(const struct cloud_options *o, struct cloud **ret, struct status *ret_why)
{
	struct cloud *c = calloc(1, sizeof(*c));
	uint64_t seed;
	int r;

	if (!c)
		return -ENOMEM;
	c->loop = o->loop;
	c->pool = o->pool;
	c->tls = o->tls;
	c->flavour = o->flavour ? o->flavour : flavour_get(FLAVOUR_AGENTBOX);
	c->ports_by_domain = o->ports_by_domain;
	c->allow_plain_http = o->allow_plain_http;
	c->plain_http2 = o->plain_http2;
	c->check_key_format = o->check_key_format;
	c->on_key_rejected = o->on_key_rejected;
	c->on_key_use = o->on_key_use;
	c->user = o->user;
	list_init(&c->calls);
	limiter_init(&c->limiter, o->max_in_flight ? o->max_in_flight : MAX_IN_FLIGHT);
	rng_system(&seed, sizeof(seed));
	rng_seed(&c->rng, seed);
	cloud_start(c);
	r = copy_options(c, o, ret_why);
	if (r == 0)
		r = open_quota(c);
	if (r < 0) {
		cloud_free(c);
		return r;
	}
	cloud_set_key(c, o->api_key);
	if (!c->key_group) {
		c->key_group = str_printf("%s#0", c->account);
		if (!c->key_group) {
			cloud_free(c);
			return -ENOMEM;
		}
	}
	*ret = c;
	return 0;
}

struct cloud *cloud_free(struct cloud *c)
{
	if (!c)
		return NULL;
	cloud_stop(c);
	key_wipe(&c->key);
	c->proxy = str_free_secret(c->proxy);
	url_fini(&c->api);
	url_fini(&c->sandbox);
	free(c->account);
	free(c->api_url);
	free(c->domain);
	free(c->no_proxy);
	free(c->default_user);
	free(c->header_sandbox_id);
	free(c->header_sandbox_port);
	free(c->header_traffic_token);
	free(c->key_group);
	quota_unref(c->quota);
	free(c);
	return NULL;
}

bool cloud_names_ports(const struct cloud *c)
{
	return c->sandbox.host && c->flavour->sandbox_url_has_hosts && !c->ports_by_domain &&
	       !host_is_address(c->sandbox.host);
}

char *cloud_port_host(const struct cloud *c, const char *sandbox_id, uint16_t port,
		      const char *domain)
{
	/* Where ports are below our own domain, what the cloud says of it does not count. */
	const char *host = str_is_empty(domain) || c->ports_by_domain ? c->domain : domain, *fixed = c->sandbox.host;
	char number[8] = "";

	if (!cloud_names_ports(c))
		return str_printf("%u-%s.%s", port, sandbox_id, host);
	if (c->sandbox.has_port)
		snprintf(number, sizeof(number), ":%u", c->sandbox.port);
	/* The shared host of the domain stands for the domain. */
	if (!str_starts(fixed, "sandbox.") || !str_eq(fixed + strlen("sandbox."), host))
		host = fixed;
	return str_printf("%u-%s.%s%s", port, sandbox_id, host, number);
}

const char *cloud_port_scheme(const struct cloud *c)
{
	return cloud_names_ports(c) ? c->sandbox.scheme : "https";
}

const char *cloud_traffic_header(const struct cloud *c)
{
	return c->header_traffic_token;
}

const char *cloud_api_url(const struct cloud *c)
{
	return c->api_url;
}

void cloud_health(const struct cloud *c, struct cloud_health *ret)
{
	uint64_t now = loop_now_ms(c->loop);

	*ret = (struct cloud_health){
		.key_present = c->key != NULL,
		.key_rejected = c->key_rejected || c->trust == CLOUD_KEY_STRANGE,
		.last_ok_at_ms = c->last_ok_at_ms,
		.last_failure_at_ms = c->last_failure_at_ms,
		.last_failure = c->last_failure,
		.in_flight = c->limiter.in_flight,
		.max_in_flight = c->limiter.max_in_flight,
		.queued = c->limiter.n_queued,
		.limited_until_ms = limiter_blocked_until_ms(&c->limiter, now),
	};
}

const struct cloud_totals *cloud_totals(const struct cloud *c)
{
	return &c->totals;
}

bool cloud_limits(const struct cloud *c, size_t i, struct cloud_limit *ret)
{
	uint64_t now = loop_now_ms(c->loop);

	for (unsigned op = 0; op < FAULT_OPS; op++) {
		const struct limiter_route *r = &c->limiter.route[op];
		uint64_t at = limiter_route_at_ms(&c->limiter, op, now);

		if ((at <= now && !r->burst && r->window >= c->limiter.max_in_flight) || i--)
			continue;
		*ret = (struct cloud_limit){
			.route = fault_op_name((enum fault_op)op),
			.in_flight = r->in_flight,
			.window = r->window,
			.burst = r->burst,
			.per_s_milli = r->burst ? r->per_s_milli : 0,
			.at_ms = at > now ? at : 0,
		};
		return true;
	}
	return false;
}

bool cloud_extend_rate(const struct cloud *c, struct cloud_rate *ret)
{
	uint64_t now = loop_now_ms(c->loop);
	bool is_known = limiter_rate(&c->limiter, FAULT_REFRESH, now, &ret->per_s_milli, &ret->tokens);
	struct cloud_rate get;

	if (!limiter_rate(&c->limiter, FAULT_GET, now, &get.per_s_milli, &get.tokens))
		return is_known;
	if (!is_known) {
		*ret = get;
		return true;
	}
	ret->per_s_milli = MIN(ret->per_s_milli, get.per_s_milli);
	ret->tokens = MIN(ret->tokens, get.tokens);
	return true;
}
