/* SPDX-License-Identifier: MIT */
#include "proto/cloud/netrules.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/host.h"
#include "proto/base/str.h"

#define DOMAIN_MAX	128u
#define LABEL_MAX	63u
#define HEADER_NAME_MAX 64u
#define VALUE_MAX	2048u
#define CREDENTIAL_MAX	255u
#define MASK_MAX	255u
#define SECRETS_MAX	32u
#define SECRET_NAME_MAX 128u
#define SECRET_ID	"sec_"		/* begins the ids of secrets, which no name may */

static bool fault(struct netrules_fault *f, enum netrules_field field, const char *fmt, ...) printf_like(3, 4);

static bool fault(struct netrules_fault *f, enum netrules_field field, const char *fmt, ...)
{
	va_list ap;

	f->field = field;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	str_clean_line(f->text);
	return false;
}

/* --- addresses --- */

enum address {
	ADDRESS_NONE,
	ADDRESS_UNSPECIFIED,	/* 0.0.0.0, ::, or a range of them that is not all traffic */
	ADDRESS_OK,
};

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static bool is_v4_mapped_zero(const uint8_t *p)
{
	return is_zero(p, 10) && p[10] == 0xff && p[11] == 0xff && is_zero(p + 12, 4);
}

/* An address or a range in CIDR. */
static enum address address_of(const char *s)
{
	const char *slash = strchr(s, '/');
	size_t n = slash ? (size_t)(slash - s) : strlen(s);
	char text[INET6_ADDRSTRLEN];
	uint8_t raw[16];
	uint64_t bits;
	bool v4, zero;

	if (n >= sizeof(text))
		return ADDRESS_NONE;
	memcpy(text, s, n);
	text[n] = 0;
	v4 = inet_pton(AF_INET, text, raw) == 1;
	if (!v4 && inet_pton(AF_INET6, text, raw) != 1)
		return ADDRESS_NONE;
	if (slash && str_u64(slash + 1, strlen(slash + 1), v4 ? 32 : 128, &bits) < 0)
		return ADDRESS_NONE;
	zero = is_zero(raw, v4 ? 4 : 16) || (!v4 && is_v4_mapped_zero(raw));
	return zero && !str_eq(s, NETRULES_ALL_TRAFFIC) ? ADDRESS_UNSPECIFIED : ADDRESS_OK;
}

bool netrules_is_name(const char *allowed)
{
	return address_of(allowed) == ADDRESS_NONE;
}

static bool deny_ok(const struct cloud_network *n, struct netrules_fault *f)
{
	for (size_t i = 0; i < n->deny_out.n; i++) {
		const char *s = n->deny_out.v[i];
		enum address a = address_of(s);

		if (a == ADDRESS_NONE)
			return fault(f, NETRULES_DENY_OUT, "\"%.80s\" is no address or range; names can only be allowed, "
				     "and all traffic is " NETRULES_ALL_TRAFFIC, s);
		if (a == ADDRESS_UNSPECIFIED)
			return fault(f, NETRULES_DENY_OUT, "\"%.80s\" is unspecified; all traffic is "
				     NETRULES_ALL_TRAFFIC, s);
	}
	return true;
}

/* Whatever is no address counts as a name; one that cannot be any never matches. */
static bool allow_ok(const struct cloud_network *n, struct netrules_fault *f)
{
	bool names = false;

	for (size_t i = 0; i < n->allow_out.n; i++) {
		enum address a = address_of(n->allow_out.v[i]);

		if (a == ADDRESS_UNSPECIFIED)
			return fault(f, NETRULES_ALLOW_OUT, "\"%.80s\" is unspecified", n->allow_out.v[i]);
		names |= a == ADDRESS_NONE;
	}
	if (names && !cloud_strs_has(&n->deny_out, NETRULES_ALL_TRAFFIC))
		return fault(f, NETRULES_ALLOW_OUT, "names are exceptions from what is denied: that must contain "
			     NETRULES_ALL_TRAFFIC);
	return true;
}

int netrules_complete(struct cloud_network *n, enum tri allow_internet_access)
{
	bool names = false;

	for (size_t i = 0; i < n->allow_out.n; i++)
		names |= netrules_is_name(n->allow_out.v[i]);
	if (!names || allow_internet_access != TRI_FALSE || cloud_strs_has(&n->deny_out, NETRULES_ALL_TRAFFIC))
		return 0;
	return cloud_strs_add(&n->deny_out, NETRULES_ALL_TRAFFIC);
}

/* --- the proxy --- */

/* Loopback, private, link-local or shared. */
static bool is_inner_v4(uint32_t a)
{
	static const struct {
		uint32_t net;
		unsigned bits;
	} inner[] = {
		{ 0x00000000, 8 },  { 0x0a000000, 8 },	{ 0x64400000, 10 }, { 0x7f000000, 8 },
		{ 0xa9fe0000, 16 }, { 0xac100000, 12 }, { 0xc0a80000, 16 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(inner); i++)
		if ((a ^ inner[i].net) >> (32 - inner[i].bits) == 0)
			return true;
	return false;
}

static bool is_inner(const char *host)
{
	struct in_addr a;
	struct in6_addr b;
	uint32_t mapped;

	if (inet_pton(AF_INET, host, &a) == 1)
		return is_inner_v4(ntohl(a.s_addr));
	if (inet_pton(AF_INET6, host, &b) != 1)
		return host_is_loopback(host);
	if (IN6_IS_ADDR_V4MAPPED(&b)) {
		memcpy(&mapped, b.s6_addr + 12, sizeof(mapped));
		return is_inner_v4(ntohl(mapped));
	}
	return IN6_IS_ADDR_LOOPBACK(&b) || IN6_IS_ADDR_UNSPECIFIED(&b) || IN6_IS_ADDR_LINKLOCAL(&b) ||
	       (b.s6_addr[0] & 0xfe) == 0xfc;
}

static bool proxy_ok(const struct cloud_network *n, struct netrules_fault *f)
{
	struct host_port hp;

	if (!n->egress_address)
		return (!n->egress_username && !n->egress_password) ||
		       fault(f, NETRULES_PROXY_ADDRESS, "is missing");
	if (host_port_parse(n->egress_address, strlen(n->egress_address), &hp) < 0 || !hp.port ||
	    (!host_is_address(hp.host) && !host_is_name(hp.host, HOST_MAX)))
		return fault(f, NETRULES_PROXY_ADDRESS, "\"%.80s\" is not HOST:PORT with a port of 1 to 65535",
			     n->egress_address);
	if (is_inner(hp.host))
		return fault(f, NETRULES_PROXY_ADDRESS, "\"%.80s\" is a private address: the cloud reaches public ones only",
			     n->egress_address);
	if (!str_is_empty(n->egress_password) && str_is_empty(n->egress_username))
		return fault(f, NETRULES_PROXY_USERNAME, "is missing, and there is a password");
	if ((n->egress_username && strlen(n->egress_username) > CREDENTIAL_MAX) ||
	    (n->egress_password && strlen(n->egress_password) > CREDENTIAL_MAX))
		return fault(f, NETRULES_PROXY, "user name and password have at most %u bytes", CREDENTIAL_MAX);
	return true;
}

/* --- header rules --- */

static bool is_label_char(char c, bool underscore)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (underscore && c == '_');
}

static bool are_labels(const char *s, size_t n)
{
	size_t label = 0;

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '.' && label)
			label = 0;
		else if ((!is_label_char(s[i], true) && (s[i] != '-' || !label)) || ++label > LABEL_MAX)
			return false;
	}
	return label;
}

/* A name of the DNS as the validator has it: labels that may end in '-', one '.' or '_' more behind the last one, no
 * address, no "*". */
static bool is_rule_domain(const char *s)
{
	size_t n = strlen(s);

	if (!n || n > DOMAIN_MAX || host_is_address(s))
		return false;
	return are_labels(s, n) || ((s[n - 1] == '.' || s[n - 1] == '_') && are_labels(s, n - 1));
}

static bool is_header_name(const char *s)
{
	static const char other[] = "!#$%&'*+-.^_`|~";
	size_t n = strlen(s);

	if (!n || n > HEADER_NAME_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_label_char(s[i], false) && !strchr(other, s[i]))
			return false;
	return true;
}

static bool is_header_value(const char *s)
{
	if (strlen(s) > VALUE_MAX)
		return false;
	for (; *s; s++)
		if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7f)
			return false;
	return true;
}

struct placeholder {
	bool secret;
	const char *name;
	size_t n;
};

/* The first placeholder in `p`, its prefix cut off, or NULL. */
static const char *next_placeholder(const char *p, const struct flavour *only, bool *ret_secret)
{
	const char *first = NULL, *behind = NULL;

	for (unsigned i = 0; i < FLAVOURS; i++) {
		const struct flavour *f = flavour_get((enum flavour_id)i);
		const char *const prefix[] = { f->identity, f->secret };

		for (size_t k = 0; k < ARRAY_SIZE(prefix) && (!only || only == f); k++) {
			const char *at = prefix[k] ? strstr(p, prefix[k]) : NULL;

			if (!at || (first && at >= first))
				continue;
			first = at;
			behind = at + strlen(prefix[k]);
			*ret_secret = k == 1;
		}
	}
	return behind;
}

/* The name of a secret as its store has it: without blanks around it. False if it is none. */
static bool secret_name(struct placeholder *h)
{
	while (h->n && strchr(" \t\r\n\v\f", *h->name))
		h->name++, h->n--;
	while (h->n && strchr(" \t\r\n\v\f", h->name[h->n - 1]))
		h->n--;
	if (!h->n || h->n > SECRET_NAME_MAX || (h->n >= strlen(SECRET_ID) && !strncasecmp(h->name, SECRET_ID, strlen(SECRET_ID))))
		return false;
	for (size_t i = 0; i < h->n; i++)
		if (!is_label_char(h->name[i], true) && h->name[i] != '-')
			return false;
	return true;
}

/* *p is behind the prefix: takes the name, and what ends it. */
static bool placeholder_name(const char **p, const struct flavour *only, struct placeholder *ret)
{
	const char *end = strchr(*p, '}'), *inner;
	bool unused;

	if (!end || end == *p)
		return false;
	ret->name = *p;
	ret->n = (size_t)(end - *p);
	inner = next_placeholder(*p, only, &unused);
	if (inner && inner <= end)
		return false;
	*p = end + 1;
	return !ret->secret || secret_name(ret);
}

static bool is_token(const struct netrules_with *with, const struct placeholder *h)
{
	for (size_t i = 0; i < with->n_tokens; i++)
		if (strlen(with->tokens[i].name) == h->n && !memcmp(with->tokens[i].name, h->name, h->n))
			return true;
	return false;
}

/* The different secrets that one domain's headers name. */
struct secrets {
	struct placeholder v[SECRETS_MAX];
	size_t n;
};

static bool add_secret(struct secrets *s, const struct placeholder *h)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i].n == h->n && !strncasecmp(s->v[i].name, h->name, h->n))
			return true;
	if (s->n == SECRETS_MAX)
		return false;
	s->v[s->n++] = *h;
	return true;
}

static bool value_ok(const struct cloud_rule *r, const char *value, const struct netrules_with *with,
		     struct secrets *secrets, struct netrules_fault *f)
{
	struct placeholder h;
	const char *p = value;

	while ((p = next_placeholder(p, with->flavour, &h.secret))) {
		if (!placeholder_name(&p, with->flavour, &h))
			return fault(f, NETRULES_RULES, "a placeholder in a header's value is not closed or has no name");
		if (!h.secret && with->knows_tokens && !is_token(with, &h))
			return fault(f, NETRULES_RULES, "iam_tokens has no \"%.*s\"", (int)MIN(h.n, (size_t)80), h.name);
		if (h.secret && !add_secret(secrets, &h))
			return fault(f, NETRULES_RULES, "%.130s: at most %u secrets", r->domain, SECRETS_MAX);
	}
	return true;
}

static bool rule_ok(const struct cloud_rule *r, const struct netrules_with *with, struct netrules_fault *f)
{
	struct secrets secrets = { .n = 0 };

	if (!is_rule_domain(r->domain))
		return fault(f, NETRULES_RULES, "\"%.130s\" is no host name", r->domain);
	if (r->surplus)
		return fault(f, NETRULES_RULES, "%.130s: at most one rule for a host", r->domain);
	if (r->headers.n > NETRULES_HEADERS_MAX)
		return fault(f, NETRULES_RULES, "%.130s: at most %u headers", r->domain, NETRULES_HEADERS_MAX);
	for (size_t i = 0; i < r->headers.n; i++) {
		const char *name = r->headers.v[i].key, *value = r->headers.v[i].value;

		if (!is_header_name(name))
			return fault(f, NETRULES_RULES, "\"%.70s\" is no name of a header", name);
		if (!is_header_value(value))
			return fault(f, NETRULES_RULES, "%.70s: the value has control characters or more than %u bytes",
				     name, VALUE_MAX);
		if (!value_ok(r, value, with, &secrets, f))
			return false;
	}
	return true;
}

static bool rules_ok(const struct cloud_network *n, const struct netrules_with *with, struct netrules_fault *f)
{
	if (n->n_rules > NETRULES_DOMAINS_MAX)
		return fault(f, NETRULES_RULES, "at most %u hosts", NETRULES_DOMAINS_MAX);
	for (size_t i = 0; i < n->n_rules; i++)
		if (!rule_ok(&n->rules[i], with, f))
			return false;
	return true;
}

bool netrules_sets_headers(const struct cloud_network *n)
{
	for (size_t i = 0; n && i < n->n_rules; i++)
		if (n->rules[i].headers.n)
			return true;
	return false;
}

bool netrules_has_placeholder(const char *value)
{
	bool unused;

	return next_placeholder(value, NULL, &unused) != NULL;
}

/* --- ingress --- */

/* One label of a mask: letters, digits and inner '-', but not at its third and fourth place unless it is an encoded
 * one. */
static bool mask_label_ok(const char *s, size_t n)
{
	if (n && (s[0] == '-' || s[n - 1] == '-'))
		return false;
	if (n > 3 && s[2] == '-' && s[3] == '-' && (n < 6 || strncasecmp(s, "xn", 2) != 0))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_label_char(s[i], false) && s[i] != '-')
			return false;
	return true;
}

/* host[:port]: the host in ASCII, empty labels too; of the port, where ${PORT} stands, only that a header can hold it. */
static bool is_mask(const char *s)
{
	size_t n = strcspn(s, ":"), len;

	if (strlen(s) > MASK_MAX || (s[n] && strpbrk(s + n + 1, ":[]")))
		return false;
	for (const char *c = s + n; *c; c++)
		if (*c < 0x20 || *c == 0x7f)
			return false;
	for (const char *label = s, *end = s + n; label < end; label += len + 1) {
		len = strcspn(label, ".");
		len = MIN(len, (size_t)(end - label));
		if (!mask_label_ok(label, len))
			return false;
	}
	return true;
}

static bool ingress_ok(const struct cloud_network *n, const struct netrules_with *with, struct netrules_fault *f)
{
	if (with->replaces_egress && (n->allow_public_traffic != TRI_UNSET || n->mask_request_host))
		return fault(f, n->mask_request_host ? NETRULES_MASK : NETRULES_PUBLIC,
			     "can only be said when the sandbox is created");
	if (n->allow_public_traffic == TRI_FALSE && with->secure != TRI_TRUE)
		return fault(f, NETRULES_PUBLIC, "false needs a secure sandbox");
	if (n->mask_request_host && !is_mask(n->mask_request_host))
		return fault(f, NETRULES_MASK, "must be HOST or HOST:PORT in ASCII; ${PORT} stands for the port");
	return true;
}

bool netrules_network_ok(const struct cloud_network *n, const struct netrules_with *with, struct netrules_fault *ret)
{
	return ingress_ok(n, with, ret) && deny_ok(n, ret) && allow_ok(n, ret) && proxy_ok(n, ret) &&
	       rules_ok(n, with, ret);
}

/* --- tokens --- */

static bool is_token_name(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f || *s == '{' || *s == '}')
			return false;
	return true;
}

bool netrules_tokens_ok(const struct cloud_iam_token *v, size_t n, struct netrules_fault *f)
{
	if (n > NETRULES_TOKENS_MAX)
		return fault(f, NETRULES_TOKENS, "at most %u tokens", NETRULES_TOKENS_MAX);
	for (size_t i = 0; i < n; i++) {
		if (!is_token_name(v[i].name))
			return fault(f, NETRULES_TOKENS,
				     "a name must not be empty and has no braces or control characters");
		if (str_is_empty(v[i].audience))
			return fault(f, NETRULES_TOKENS, "%.80s: the audience is empty", v[i].name);
		if (!str_eq(v[i].token_type, NETRULES_TOKEN_TYPE))
			return fault(f, NETRULES_TOKENS, "%.80s: the type can only be " NETRULES_TOKEN_TYPE, v[i].name);
	}
	return true;
}
