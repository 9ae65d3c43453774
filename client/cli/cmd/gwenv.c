/* SPDX-License-Identifier: MIT */
#include "client/cli/cmd/gwenv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOPBACK "localhost,127.0.0.1,::1"
/* A gateway without TLS is HTTP/1.1, where each stream has a connection: as many as an SDK may have requests under way. */
#define RPC_CONNECTIONS "2000"
#define VALUE_MAX 8192u

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += n)
		if ((p == list || p[-1] == ',' || p[-1] == ' ') && (!p[n] || p[n] == ',' || p[n] == ' '))
			return true;
	return false;
}

/* What a program would send to a proxy of this host otherwise. */
static bool put_no_proxy(const char *name, const char *other, gwenv_fn *fn, void *user)
{
	static const char *const words[] = { "localhost", "127.0.0.1", "::1" };
	const char *now = getenv(name);
	char value[VALUE_MAX];
	size_t n;

	if (!now || !*now)
		now = getenv(other);
	if (!now || strlen(now) + sizeof(LOOPBACK) + 1 > sizeof(value))
		now = "";
	n = (size_t)snprintf(value, sizeof(value), "%s", now);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!has_word(value, words[i]))
			n += (size_t)snprintf(value + n, sizeof(value) - n, "%s%s", n ? "," : "", words[i]);
	return fn(user, name, value);
}

static bool put_flavour(const char *flavour, const char *prefix, const char *url, const char *token, bool control, gwenv_fn *fn,
			void *user)
{
	char name[64], key[128];

	snprintf(key, sizeof(key), "%s%s", prefix, token + strlen("ab_"));
	snprintf(name, sizeof(name), "%s_API_KEY", flavour);
	if (!fn(user, name, key))
		return false;
	snprintf(name, sizeof(name), "%s_API_URL", flavour);
	if (!fn(user, name, url) || control)
		return control;
	snprintf(name, sizeof(name), "%s_SANDBOX_URL", flavour);
	return fn(user, name, url);
}

int gwenv_each(const char *url, const char *token, bool control, gwenv_fn *fn, void *user)
{
	bool ok = put_flavour("AGENTBOX", "ab_", url, token, control, fn, user) &&
		  put_flavour("E2B", "e2b_", url, token, control, fn, user) &&
		  put_no_proxy("NO_PROXY", "no_proxy", fn, user) && put_no_proxy("no_proxy", "NO_PROXY", fn, user) &&
		  (control || fn(user, "E2B_ENVD_RPC_CONNECTIONS", RPC_CONNECTIONS));

	return ok ? 0 : EXIT_ERROR;
}

int gwenv_find(struct cli *cli, struct ab_gateway **ret)
{
	if (ab_gateway_find(cli->client, NULL, ret))
		return fail_client(cli);
	if (*(*ret)->url)
		return 0;
	ab_free(*ret);
	*ret = NULL;
	return fail_here(cli, "this agentboxd's gateway listens at no address; set [gateway] listen in its configuration");
}
