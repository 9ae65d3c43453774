/* SPDX-License-Identifier: MIT */
#include "proto/cloud/flavour.h"

#include <strings.h>

#include "proto/base/cc.h"
#include "proto/base/str.h"

#define HEX_DIGITS  "0123456789abcdef"
#define KEY_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

static const struct flavour table[FLAVOURS] = {
	[FLAVOUR_AGENTBOX] = {
		.id = FLAVOUR_AGENTBOX,
		.name = "agentbox",
		.title = "AgentBox",
		.domain = "agentbox-runtime.ru",
		.shared = { "agentbox-runtime.ru" },
		.key_prefix = "ab_",
		.environment = "AGENTBOX_",
		.headers = { "agentbox-sandbox-id", "agentbox-sandbox-port", "agentbox-traffic-access-token" },
		.traffic_token_to_agent = true,
		.sandbox_url_has_hosts = true,
		.identity = "${agentbox.identity.tokens.",
	},
	[FLAVOUR_E2B] = {
		.id = FLAVOUR_E2B,
		.name = "e2b",
		.title = "E2B",
		.domain = "e2b.app",
		.shared = { "e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev" },
		.key_prefix = "e2b_",
		.key_is_hex = true,
		.environment = "E2B_",
		.headers = { "e2b-sandbox-id", "e2b-sandbox-port", "e2b-traffic-access-token" },
		.identity = "${e2b.identity.tokens.",
		.secret = "${e2b.secrets.",
		.answers_extra = true,
	},
};

const struct flavour *flavour_get(enum flavour_id id)
{
	return &table[id];
}

const struct flavour *flavour_named(const char *name)
{
	for (size_t i = 0; i < FLAVOURS; i++)
		if (str_eq(table[i].name, name))
			return &table[i];
	return NULL;
}

const struct flavour *flavour_of_key(const char *key)
{
	for (size_t i = 0; i < FLAVOURS; i++)
		if (str_starts(key, table[i].key_prefix))
			return &table[i];
	return NULL;
}

static bool is_below(const char *host, const char *domain)
{
	size_t n = strlen(host), m = strlen(domain);

	while (n && host[n - 1] == '.')
		n--;
	if (n < m || strncasecmp(host + n - m, domain, m) != 0)
		return false;
	return n == m || host[n - m - 1] == '.';
}

const struct flavour *flavour_of_host(const char *host)
{
	for (size_t i = 0; i < FLAVOURS; i++)
		for (size_t k = 0; k < FLAVOUR_SHARED_MAX && table[i].shared[k]; k++)
			if (is_below(host, table[i].shared[k]))
				return &table[i];
	return NULL;
}

bool flavour_has_shared_host(const struct flavour *f, const char *domain)
{
	for (size_t i = 0; i < FLAVOUR_SHARED_MAX && f->shared[i]; i++)
		if (str_eq(f->shared[i], domain))
			return true;
	return false;
}

/* Something behind the prefix, all of it in the alphabet. */
static bool rest_ok(const struct flavour *f, const char *key)
{
	const char *rest = key + strlen(f->key_prefix);

	return *rest && !rest[strspn(rest, f->key_is_hex ? HEX_DIGITS : KEY_LETTERS)];
}

bool flavour_key_ok(const struct flavour *f, const char *key)
{
	return !f->key_is_hex || (str_starts(key, f->key_prefix) && rest_ok(f, key));
}

bool flavour_key_known(const char *key)
{
	const struct flavour *f = flavour_of_key(key);

	return f && rest_ok(f, key);
}
