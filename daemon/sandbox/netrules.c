/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/netrules.h"

#include <arpa/inet.h>
#include <string.h>

#include "proto/base/str.h"

#define ALL_TRAFFIC	"0.0.0.0/0"
#define DOMAIN_MAX	128u
#define HEADER_NAME_MAX 64u
#define VALUE_MAX	2048u
#define CREDENTIAL_MAX	255u
#define SECRETS_MAX	32u
#define IDENTITY_PREFIX "${e2b.identity.tokens."
#define SECRET_PREFIX	"${e2b.secrets."

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

/* An address or a range in CIDR. */
static enum address address_of(const char *s)
{
	const char *slash = strchr(s, '/');
	size_t n = slash ? (size_t)(slash - s) : strlen(s);
	uint8_t raw[16];
	char text[INET6_ADDRSTRLEN];
	uint64_t bits;
	bool v4;

	if (n >= sizeof(text))
		return ADDRESS_NONE;
	memcpy(text, s, n);
	text[n] = 0;
	v4 = inet_pton(AF_INET, text, raw) == 1;
	if (!v4 && inet_pton(AF_INET6, text, raw) != 1)
		return ADDRESS_NONE;
	if (slash && str_u64(slash + 1, strlen(slash + 1), v4 ? 32 : 128, &bits) < 0)
		return ADDRESS_NONE;
	if (is_zero(raw, v4 ? 4 : 16) && !str_eq(s, ALL_TRAFFIC))
		return ADDRESS_UNSPECIFIED;
	return ADDRESS_OK;
}

/* Labels of letters, digits, '-' and '_', with dots between. */
static bool is_domain(const char *s)
{
	size_t n = strlen(s), label = 0;

	if (!n || n > DOMAIN_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool alnum = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
			     (s[i] >= '0' && s[i] <= '9') || s[i] == '_';

		if (s[i] == '.') {
			if (!label || s[i - 1] == '-')
				return false;
			label = 0;
		} else if (!alnum && (s[i] != '-' || !label)) {
			return false;
		} else if (++label > 63) {
			return false;
		}
	}
	return label && s[n - 1] != '-';
}

static bool is_pattern(const char *s)
{
	return str_eq(s, "*") || is_domain(str_starts(s, "*.") ? s + 2 : s);
}

static bool check_egress(const struct cloud_network *n, const struct netrules_with *with, struct status *st)
{
	bool names = false;

	for (size_t i = 0; i < n->deny_out.n; i++)
		if (address_of(n->deny_out.v[i]) != ADDRESS_OK) {
			status_field(st, "network.deny_out",
				     "\"%s\" is no address or range; host names can only be allowed, and all "
				     "traffic is " ALL_TRAFFIC, n->deny_out.v[i]);
			return false;
		}
	for (size_t i = 0; i < n->allow_out.n; i++) {
		enum address a = address_of(n->allow_out.v[i]);

		if (a == ADDRESS_UNSPECIFIED || (a == ADDRESS_NONE && !is_pattern(n->allow_out.v[i]))) {
			status_field(st, "network.allow_out",
				     "\"%s\" is no address, range, host name, *.name or *",
				     n->allow_out.v[i]);
			return false;
		}
		names |= a == ADDRESS_NONE;
	}
	/* Without internet access all else is denied already. */
	if (names && with->allow_internet_access != TRI_FALSE && !cloud_strs_has(&n->deny_out, ALL_TRAFFIC)) {
		status_field(st, "network.allow_out",
			     "host names need " ALL_TRAFFIC " in deny_out: they are exceptions from it");
		return false;
	}
	return true;
}

/* --- the proxy --- */

static bool in_range(const uint8_t *a, const char *base, unsigned bits)
{
	uint8_t b[4];

	if (inet_pton(AF_INET, base, b) != 1)
		return false;
	for (unsigned i = 0; i < bits; i++)
		if ((a[i / 8] ^ b[i / 8]) & (0x80u >> i % 8))
			return false;
	return true;
}

static bool is_private(const char *host)
{
	static const struct {
		const char *base;
		unsigned bits;
	} ranges[] = {
		{ "0.0.0.0", 8 },	 { "10.0.0.0", 8 },    { "100.64.0.0", 10 }, { "127.0.0.0", 8 },
		{ "169.254.0.0", 16 }, { "172.16.0.0", 12 }, { "192.168.0.0", 16 },
	};
	uint8_t a[16];

	if (inet_pton(AF_INET, host, a) == 1) {
		for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
			if (in_range(a, ranges[i].base, ranges[i].bits))
				return true;
		return false;
	}
	if (inet_pton(AF_INET6, host, a) != 1)
		return strcasecmp(host, "localhost") == 0;
	return (is_zero(a, 15) && a[15] <= 1) || (a[0] & 0xfe) == 0xfc ||
	       (a[0] == 0xfe && (a[1] & 0xc0) == 0x80);
}

/* "host:port" or "[v6]:port". */
static bool split_host_port(const char *s, char *host, size_t cap)
{
	const char *colon = strrchr(s, ':');
	size_t n;
	uint64_t port;

	if (!colon || str_u64(colon + 1, strlen(colon + 1), 65535, &port) < 0 || !port)
		return false;
	n = (size_t)(colon - s);
	if (n >= 2 && s[0] == '[' && s[n - 1] == ']') {
		s++;
		n -= 2;
	} else if (memchr(s, ':', n)) {
		return false;
	}
	if (!n || n >= cap)
		return false;
	memcpy(host, s, n);
	host[n] = 0;
	return true;
}

static bool check_proxy(const struct cloud_network *n, struct status *st)
{
	char host[256];

	if (!n->egress_address) {
		if (n->egress_username || n->egress_password)
			status_field(st, "network.egress_proxy.address", "is missing");
		return !n->egress_username && !n->egress_password;
	}
	if (!split_host_port(n->egress_address, host, sizeof(host)) ||
	    (address_of(host) == ADDRESS_NONE && !is_domain(host))) {
		status_field(st, "network.egress_proxy.address", "\"%s\" is not HOST:PORT with a port of 1 to "
								 "65535", n->egress_address);
		return false;
	}
	if (is_private(host)) {
		status_field(st, "network.egress_proxy.address",
			     "\"%s\" is a private address: the cloud reaches public ones only",
			     n->egress_address);
		return false;
	}
	if (!str_is_empty(n->egress_password) && str_is_empty(n->egress_username)) {
		status_field(st, "network.egress_proxy.username", "is missing, and there is a password");
		return false;
	}
	if ((n->egress_username && strlen(n->egress_username) > CREDENTIAL_MAX) ||
	    (n->egress_password && strlen(n->egress_password) > CREDENTIAL_MAX)) {
		status_field(st, "network.egress_proxy", "user name and password have at most %u bytes",
			     CREDENTIAL_MAX);
		return false;
	}
	return true;
}

/* --- header rules --- */

static bool is_header_name(const char *s)
{
	static const char other[] = "!#$%&'*+-.^_`|~";
	size_t n = strlen(s);

	if (!n || n > HEADER_NAME_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= '0' && s[i] <= '9') || strchr(other, s[i])))
			return false;
	return true;
}

static bool is_header_value(const char *s)
{
	size_t n = strlen(s);

	if (n > VALUE_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static bool is_token(const struct netrules_with *with, const char *name, size_t n)
{
	for (size_t i = 0; i < with->n_tokens; i++)
		if (strlen(with->tokens[i].name) == n && !memcmp(with->tokens[i].name, name, n))
			return true;
	return false;
}

/* *p is behind the prefix: takes the name and what ends it. */
static bool take_name(const char **p, const char **ret_name, size_t *ret_n)
{
	const char *end = strchr(*p, '}');

	if (!end || end == *p)
		return false;
	*ret_name = *p;
	*ret_n = (size_t)(end - *p);
	if (memmem(*p, *ret_n, IDENTITY_PREFIX, strlen(IDENTITY_PREFIX)) ||
	    memmem(*p, *ret_n, SECRET_PREFIX, strlen(SECRET_PREFIX)))
		return false;
	*p = end + 1;
	return true;
}

static bool check_value(const char *value, const struct netrules_with *with, unsigned *secrets,
			struct status *st)
{
	static const char field[] = "network.rules";
	const char *p = value, *name;
	size_t n;

	while ((p = strstr(p, "${e2b."))) {
		bool identity = str_starts(p, IDENTITY_PREFIX), secret = str_starts(p, SECRET_PREFIX);

		if (!identity && !secret) {
			p++;	/* any other text is what it says */
			continue;
		}
		p += strlen(identity ? IDENTITY_PREFIX : SECRET_PREFIX);
		if (!take_name(&p, &name, &n)) {
			status_field(st, field, "a placeholder in a header's value is not closed or has no name");
			return false;
		}
		if (identity && with->creates && !is_token(with, name, n)) {
			status_field(st, field, "iam_tokens has no \"%.*s\"", (int)n, name);
			return false;
		}
		*secrets += secret;
	}
	return true;
}

static bool check_headers(const struct cloud_rule *r, const struct netrules_with *with, struct status *st)
{
	unsigned secrets = 0;

	if (r->headers.n > NETRULES_HEADERS_MAX) {
		status_field(st, "network.rules", "%s: at most %u headers", r->domain, NETRULES_HEADERS_MAX);
		return false;
	}
	for (size_t i = 0; i < r->headers.n; i++) {
		if (!is_header_name(r->headers.v[i].key)) {
			status_field(st, "network.rules", "\"%s\" is no name of a header",
				     r->headers.v[i].key);
			return false;
		}
		if (!is_header_value(r->headers.v[i].value)) {
			status_field(st, "network.rules",
				     "%s: the value has control characters or more than %u bytes",
				     r->headers.v[i].key, VALUE_MAX);
			return false;
		}
		if (!check_value(r->headers.v[i].value, with, &secrets, st))
			return false;
	}
	if (secrets > SECRETS_MAX) {
		status_field(st, "network.rules", "%s: at most %u secrets", r->domain, SECRETS_MAX);
		return false;
	}
	return true;
}

static bool check_rules(const struct cloud_network *n, const struct netrules_with *with, struct status *st)
{
	if (n->n_rules > NETRULES_DOMAINS_MAX) {
		status_field(st, "network.rules", "at most %u hosts", NETRULES_DOMAINS_MAX);
		return false;
	}
	for (size_t i = 0; i < n->n_rules; i++) {
		if (!is_domain(n->rules[i].domain)) {
			status_field(st, "network.rules", "\"%s\" is no host name", n->rules[i].domain);
			return false;
		}
		if (!check_headers(&n->rules[i], with, st))
			return false;
	}
	return true;
}

/* --- ingress --- */

static bool is_mask(const char *s)
{
	size_t n = strlen(s);

	if (!n || n > 255)
		return false;
	for (size_t i = 0; i < n; i++)
		if (s[i] <= 0x20 || s[i] >= 0x7f || strchr("/?#@\\", s[i]))
			return false;
	return true;
}

static bool check_ingress(const struct cloud_network *n, const struct netrules_with *with, struct status *st)
{
	if (!with->creates && (n->allow_public_traffic != TRI_UNSET || n->mask_request_host)) {
		status_field(st, n->mask_request_host ? "network.mask_request_host"
						      : "network.allow_public_traffic",
			     "can only be said when the sandbox is created");
		return false;
	}
	if (n->allow_public_traffic == TRI_FALSE && with->secure == TRI_FALSE) {
		status_field(st, "network.allow_public_traffic", "false needs a secure sandbox");
		return false;
	}
	if (n->mask_request_host && !is_mask(n->mask_request_host)) {
		status_field(st, "network.mask_request_host",
			     "must be HOST or HOST:PORT in ASCII; ${PORT} stands for the port");
		return false;
	}
	return true;
}

bool netrules_network(const struct cloud_network *n, const struct netrules_with *with, struct status *st)
{
	return check_ingress(n, with, st) && check_egress(n, with, st) && check_proxy(n, st) &&
	       check_rules(n, with, st);
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

bool netrules_tokens(const struct cloud_iam_token *v, size_t n, struct status *st)
{
	if (n > NETRULES_TOKENS_MAX) {
		status_field(st, "iam_tokens", "at most %u tokens", NETRULES_TOKENS_MAX);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (!is_token_name(v[i].name)) {
			status_field(st, "iam_tokens",
				     "a name must not be empty and has no braces or control characters");
			return false;
		}
		if (str_is_empty(v[i].audience)) {
			status_field(st, "iam_tokens", "%s: the audience is empty", v[i].name);
			return false;
		}
		if (!str_eq(v[i].token_type, NETRULES_TOKEN_TYPE)) {
			status_field(st, "iam_tokens", "%s: the type can only be " NETRULES_TOKEN_TYPE,
				     v[i].name);
			return false;
		}
	}
	return true;
}

/* --- the end --- */

bool netrules_lifecycle(enum sandbox_on_timeout on_timeout, int keep_memory, int auto_resume,
			struct status *st)
{
	bool pause = on_timeout == SANDBOX_ON_TIMEOUT_PAUSE;

	if ((unsigned)on_timeout > SANDBOX_ON_TIMEOUT_PAUSE) {
		status_field(st, "lifecycle.on_timeout", "%d is no action", (int)on_timeout);
		return false;
	}
	if (keep_memory >= 0 && !pause) {
		status_field(st, "lifecycle.keep_memory", "has a meaning with on_timeout PAUSE only");
		return false;
	}
	if (auto_resume == 1 && !pause) {
		status_field(st, "lifecycle.auto_resume", "needs on_timeout PAUSE");
		return false;
	}
	if (auto_resume == 1 && keep_memory == 0) {
		status_field(st, "lifecycle.auto_resume",
			     "needs the memory: without keep_memory nothing would be left to serve the traffic");
		return false;
	}
	return true;
}
