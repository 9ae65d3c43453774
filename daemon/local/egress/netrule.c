/* SPDX-License-Identifier: MIT */
/* See the header. */
#include "daemon/local/egress/netrule.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/egress/egrule.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"

#define DOMAINS_MAX	 10u
#define DOMAIN_MAX	 128u
#define HEADERS_MAX	 20u
#define HEADER_NAME_MAX	 64u
#define HEADER_VALUE_MAX 2048u
#define SECRETS_MAX	 32u
#define CREDENTIAL_MAX	 255u
#define PROXY_MAX	 260u

static bool fault(struct netrule_fault *f, unsigned status, bool schema, const char *fmt, ...)
	printf_like(4, 5);

static bool fault(struct netrule_fault *f, unsigned status, bool schema, const char *fmt, ...)
{
	va_list ap;

	f->status = status;
	f->schema = schema;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	return false;
}

static bool is_absent(const json_t *v)
{
	return !v || json_is_null(v);
}

/* --- addresses and names --- */

enum address { NOT_AN_ADDRESS, UNSPECIFIED, ALL_V4, SOME_ADDRESS };

static enum address address_of(const char *s)
{
	const char *slash = strchr(s, '/');
	char host[64];
	uint8_t raw[16];
	uint64_t bits, max;
	size_t n = slash ? (size_t)(slash - s) : strlen(s);
	bool zero = true;
	int family;

	if (!n || n >= sizeof(host))
		return NOT_AN_ADDRESS;
	memcpy(host, s, n);
	host[n] = '\0';
	family = strchr(host, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(family, host, raw) != 1)
		return NOT_AN_ADDRESS;
	max = family == AF_INET ? 32 : 128;
	if (slash && str_u64(slash + 1, strlen(slash + 1), max, &bits) < 0)
		return NOT_AN_ADDRESS;
	if (str_eq(s, "0.0.0.0/0"))
		return ALL_V4;
	for (size_t i = 0; i < max / 8; i++)
		zero = zero && !raw[i];
	return zero ? UNSPECIFIED : SOME_ADDRESS;
}

static bool is_label_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
	       c == '_';
}

static bool is_domain(const char *s)
{
	size_t n = strlen(s), label = 0;

	if (!n || n > DOMAIN_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '.') {
			if (!label || s[i - 1] == '-')
				return false;
			label = 0;
		} else if (!is_label_char(s[i]) || (s[i] == '-' && !label) || ++label > 63) {
			return false;
		}
	}
	return label && s[n - 1] != '-';
}

static bool is_allowed_name(const char *s)
{
	return str_eq(s, "*") || is_domain(str_starts(s, "*.") ? s + 2 : s);
}

/* --- lists --- */

static bool is_string_list(const json_t *v)
{
	json_t *e;
	size_t i;

	if (!json_is_array(v))
		return false;
	json_array_foreach(v, i, e)
		if (!json_is_string(e))
			return false;
	return true;
}

static bool deny_ok(const json_t *list, struct netrule_fault *f, bool *ret_all)
{
	json_t *e;
	size_t i;

	*ret_all = false;
	if (is_absent(list))
		return true;
	if (!is_string_list(list))
		return fault(f, 400, true, "denyOut must be a list of strings");
	if (json_array_size(list) > EGRULE_LIST_MAX)
		return fault(f, 400, false, "denyOut: at most %u entries", EGRULE_LIST_MAX);
	json_array_foreach(list, i, e) {
		const char *s = json_string_value(e);
		enum address a = address_of(s);

		*ret_all = *ret_all || a == ALL_V4;
		if (a == NOT_AN_ADDRESS)
			return fault(f, 400, false, "denyOut: \"%.80s\" is no IP address or CIDR", s);
		if (a == UNSPECIFIED)
			return fault(f, 400, false, "denyOut: \"%.80s\" is unspecified", s);
	}
	return true;
}

static bool allow_ok(const json_t *list, bool denies_all, struct netrule_fault *f)
{
	bool names = false;
	json_t *e;
	size_t i;

	if (is_absent(list))
		return true;
	if (!is_string_list(list))
		return fault(f, 400, true, "allowOut must be a list of strings");
	if (json_array_size(list) > EGRULE_LIST_MAX)
		return fault(f, 400, false, "allowOut: at most %u entries", EGRULE_LIST_MAX);
	json_array_foreach(list, i, e) {
		const char *s = json_string_value(e);
		enum address a = address_of(s);

		if (a == UNSPECIFIED)
			return fault(f, 400, false, "allowOut: \"%.80s\" is unspecified", s);
		if (a == NOT_AN_ADDRESS && !is_allowed_name(s))
			return fault(f, 400, false, "allowOut: \"%.80s\" is no address and no domain", s);
		names = names || a == NOT_AN_ADDRESS;
	}
	if (names && !denies_all)
		return fault(f, 400, false, "allowOut has domains: denyOut must contain 0.0.0.0/0");
	return true;
}

/* --- the proxy --- */

/* Loopback, private, link-local or shared addresses. */
static bool is_inner(const char *host)
{
	static const struct {
		uint32_t net;
		unsigned bits;
	} inner[] = {
		{ 0x00000000, 8 },  { 0x0a000000, 8 },	{ 0x64400000, 10 }, { 0x7f000000, 8 },
		{ 0xa9fe0000, 16 }, { 0xac100000, 12 }, { 0xc0a80000, 16 },
	};
	struct in_addr a;
	struct in6_addr b;

	if (str_eq(host, "localhost"))
		return true;
	if (inet_pton(AF_INET, host, &a) == 1) {
		for (size_t i = 0; i < ARRAY_SIZE(inner); i++)
			if ((ntohl(a.s_addr) ^ inner[i].net) >> (32 - inner[i].bits) == 0)
				return true;
		return false;
	}
	return inet_pton(AF_INET6, host, &b) == 1 &&
	       (IN6_IS_ADDR_LOOPBACK(&b) || IN6_IS_ADDR_LINKLOCAL(&b) || (b.s6_addr[0] & 0xfe) == 0xfc);
}

static bool credential_ok(const json_t *v)
{
	return is_absent(v) || (json_is_string(v) && json_string_length(v) <= CREDENTIAL_MAX);
}

static bool proxy_ok(const json_t *p, struct netrule_fault *f)
{
	const char *address = json_string_value(json_object_get(p, "address"));
	const json_t *user = json_object_get(p, "username"), *password = json_object_get(p, "password");
	uint16_t port;
	char *host;
	bool inner;

	if (is_absent(p))
		return true;
	if (!json_is_object(p) || !address)
		return fault(f, 400, true, "egressProxy must be an object with an address");
	if (strlen(address) > PROXY_MAX || !egrule_proxy_address(address, &host, &port))
		return fault(f, 400, false, "egressProxy.address must be host:port");
	inner = is_inner(host);
	free(host);
	if (inner)
		return fault(f, 400, false, "egressProxy.address must not be an inner address");
	if (!credential_ok(user) || !credential_ok(password))
		return fault(f, 400, false, "egressProxy: a name or password is a string of at most %u bytes",
			     CREDENTIAL_MAX);
	if (json_string_length(password) && !json_string_length(user))
		return fault(f, 400, false, "egressProxy: a password needs a username");
	return true;
}

/* --- rules --- */

/* Placeholders of a value; *n_secrets grows by those of secrets. */
static bool placeholders_ok(const char *s, unsigned *n_secrets)
{
	static const char *const kinds[] = { "${e2b.identity.tokens.", "${e2b.secrets." };

	while (*s) {
		for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
			const char *name = s + strlen(kinds[i]), *end;

			if (!str_starts(s, kinds[i]))
				continue;
			end = strchr(name, '}');
			if (!end || end == name)
				return false;
			for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
				const char *again = strstr(name, kinds[k]);

				if (again && again < end)
					return false;
			}
			*n_secrets += i == 1;
		}
		s++;
	}
	return true;
}

static bool header_ok(const char *name, const json_t *value, unsigned *n_secrets, struct netrule_fault *f)
{
	const char *v = json_string_value(value);
	size_t n = strlen(name);

	if (!n || n > HEADER_NAME_MAX || strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
						      "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != n)
		return fault(f, 400, false, "rules: \"%.70s\" is no header name", name);
	if (!v)
		return fault(f, 400, true, "rules: header values must be strings");
	for (const char *c = v; *c; c++)
		if ((unsigned char)*c < 0x20 ? *c != '\t' : *c == 0x7f)
			return fault(f, 400, false, "rules: the value of \"%.70s\" is none", name);
	if (strlen(v) > HEADER_VALUE_MAX)
		return fault(f, 400, false, "rules: the value of \"%.70s\" is too long", name);
	if (!placeholders_ok(v, n_secrets))
		return fault(f, 400, false, "rules: \"%.70s\" has a malformed placeholder", name);
	return true;
}

static bool rule_ok(const json_t *rule, struct netrule_fault *f)
{
	json_t *headers = json_object_get(json_object_get(rule, "transform"), "headers"), *value;
	unsigned n_secrets = 0;
	const char *name;

	if (!json_is_object(rule) || (!is_absent(headers) && !json_is_object(headers)))
		return fault(f, 400, true, "rules must be {\"domain\": [{\"transform\": {\"headers\": {…}}}]}");
	if (json_object_size(headers) > HEADERS_MAX)
		return fault(f, 400, false, "rules: at most %u headers", HEADERS_MAX);
	json_object_foreach(headers, name, value)
		if (!header_ok(name, value, &n_secrets, f))
			return false;
	if (n_secrets > SECRETS_MAX)
		return fault(f, 400, false, "rules: at most %u secrets for a domain", SECRETS_MAX);
	return true;
}

static bool rules_ok(const json_t *rules, struct netrule_fault *f)
{
	const char *domain;
	json_t *list;

	if (is_absent(rules))
		return true;
	if (!json_is_object(rules))
		return fault(f, 400, true, "rules must be an object");
	if (json_object_size(rules) > DOMAINS_MAX)
		return fault(f, 400, false, "rules: at most %u domains", DOMAINS_MAX);
	json_object_foreach((json_t *)rules, domain, list) {
		if (!is_domain(str_starts(domain, "*.") ? domain + 2 : domain))
			return fault(f, 400, false, "rules: \"%.130s\" is no domain", domain);
		if (!json_is_array(list))
			return fault(f, 400, true, "rules: every domain has a list");
		if (json_array_size(list) > 1)
			return fault(f, 400, false, "rules: at most one rule for a domain");
		if (json_array_size(list) && !rule_ok(json_array_get(list, 0), f))
			return false;
	}
	return true;
}

/* --- all of it --- */

bool netrule_egress_ok(const json_t *o, struct netrule_fault *f)
{
	bool denies_all;

	return deny_ok(json_object_get(o, "denyOut"), f, &denies_all) &&
	       allow_ok(json_object_get(o, "allowOut"), denies_all, f) &&
	       rules_ok(json_object_get(o, "rules"), f) &&
	       proxy_ok(json_object_get(o, "egressProxy"), f);
}

/* host[:port], where ${PORT} may stand for any part. */
static bool mask_ok(const char *s)
{
	size_t n = strlen(s);

	if (!n || n > 255)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (str_starts(s + i, "${PORT}"))
			i += 6;
		else if (!is_label_char(s[i]) && !strchr(".:[]", s[i]))
			return false;
	}
	return true;
}

bool netrule_ingress_ok(const json_t *o, bool secure, struct netrule_fault *f)
{
	const json_t *public = json_object_get(o, "allowPublicTraffic");
	const json_t *mask = json_object_get(o, "maskRequestHost");

	if (!is_absent(public) && !json_is_boolean(public))
		return fault(f, 400, true, "allowPublicTraffic must be true or false");
	if (json_is_false(public) && !secure)
		return fault(f, 400, false, "allowPublicTraffic=false needs secure=true");
	if (!is_absent(mask) && !json_is_string(mask))
		return fault(f, 400, true, "maskRequestHost must be a string");
	if (!is_absent(mask) && !mask_ok(json_string_value(mask)))
		return fault(f, 400, false, "maskRequestHost must be host[:port] in ASCII");
	return true;
}

/* What such a value cannot be here, and what is the transport's own. */
static const char *header_unsupported(const char *name, const char *value)
{
	static const char *const own[] = { "connection", "content-length", "keep-alive", "proxy-connection", "te",
					   "trailer", "transfer-encoding", "upgrade", "expect" };

	if (strstr(value, "${e2b.identity.tokens.") || strstr(value, "${e2b.secrets."))
		return "network.rules with tokens or secrets";
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (mem_eq_ci(name, strlen(name), own[i]))
			return "network.rules for a header of the transport";
	return NULL;
}

static const char *rules_unsupported(const json_t *rules)
{
	const char *domain, *name, *what;
	json_t *list, *value;

	json_object_foreach((json_t *)rules, domain, list) {
		json_t *transform = json_object_get(json_array_get(list, 0), "transform");

		json_object_foreach(json_object_get(transform, "headers"), name, value) {
			what = header_unsupported(name, json_string_value(value));
			if (what)
				return what;
		}
	}
	return NULL;
}

bool netrule_has_headers(const json_t *o)
{
	const char *domain;
	json_t *list;

	json_object_foreach(json_object_get(o, "rules"), domain, list)
		if (json_object_size(json_object_get(json_object_get(json_array_get(list, 0), "transform"), "headers")))
			return true;
	return false;
}

const char *netrule_unsupported(const json_t *o, bool egress)
{
	if (!egress && json_array_size(json_object_get(o, "allowOut")))
		return "network.allowOut (sandboxes have no network outside)";
	if (!egress && json_object_size(json_object_get(o, "rules")))
		return "network.rules (sandboxes have no network outside)";
	if (json_array_size(json_object_get(o, "httpsPorts")))
		return "network.httpsPorts";
	return rules_unsupported(json_object_get(o, "rules"));
}

char *netrule_mask_host(const char *mask, uint64_t port)
{
	scoped(buf_fini) struct buf out = BUF_NULL;
	int r = 0;

	while (*mask && r == 0) {
		if (str_starts(mask, "${PORT}")) {
			r = buf_printf(&out, "%llu", (unsigned long long)port);
			mask += 7;
		} else {
			r = buf_put(&out, mask++, 1);
		}
	}
	if (r == 0)
		r = buf_put(&out, "", 1);
	return r < 0 ? NULL : str_dup((const char *)buf_data(&out));
}
