/* SPDX-License-Identifier: MIT */
#include "daemon/main/app_flavour.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/auth/token.h"
#include "daemon/cloud/account.h"
#include "daemon/common/obs/log.h"
#include "proto/base/str.h"

static const struct {
	const char *variable, *key;
	bool names_cloud;	/* whose it is tells which cloud is meant */
} variables[] = {
	{ "API_URL", "api_url", true },
	{ "DOMAIN", "domain", true },
	{ "SANDBOX_URL", "sandbox_url", true },
	{ "VALIDATE_API_KEY", "check_key_format", false },
};

static const char *variable(const struct flavour *f, const char *name, char ret[APP_ENV_MAX])
{
	const char *v;

	snprintf(ret, APP_ENV_MAX, "%s%s", f->environment, name);
	v = getenv(ret);
	return str_is_empty(v) ? NULL : v;
}

static bool in_file(const struct conf *c, const char *account, const char *key)
{
	return conf_origin(c, "account", account, key) >= CONF_FILE;
}

static bool has_key(const struct conf *c, const char *account)
{
	return in_file(c, account, "api_key_file") || in_file(c, account, "api_key_credential") ||
	       in_file(c, account, "api_key_command");
}

/* Some variable of that flavour says what the configuration file does not. */
static bool is_meant(const struct conf *c, const char *account, const struct flavour *f)
{
	char name[APP_ENV_MAX];

	if (variable(f, "API_KEY", name) && !has_key(c, account))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		if (variables[i].names_cloud && variable(f, variables[i].variable, name) &&
		    !in_file(c, account, variables[i].key))
			return true;
	return false;
}

/* NULL = none of the two. */
static const struct flavour *environment_of(const struct conf *c, const char *account)
{
	const struct flavour *f = flavour_named(conf_get(c, "account", account, "cloud"));

	if (f)
		return f;
	for (unsigned i = 0; i < FLAVOURS; i++)
		if (is_meant(c, account, flavour_get((enum flavour_id)i)))
			return flavour_get((enum flavour_id)i);
	return NULL;
}

bool app_takes_environment(bool user_mode, const char *conf_file)
{
	return user_mode || str_is_empty(conf_file);
}

int app_read_environment(struct conf *c)
{
	const char *account = conf_instance(c, "account", 0), *v;
	const struct flavour *f;
	char name[APP_ENV_MAX];
	int r = 0;

	account = account ? account : "default";
	f = environment_of(c, account);
	if (!f)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(variables) && !r; i++) {
		v = variable(f, variables[i].variable, name);
		if (v)
			r = conf_set(c, CONF_ENVIRONMENT, "account", account, variables[i].key, v);
	}
	if (!r && f->id != FLAVOUR_AGENTBOX)
		r = conf_set(c, CONF_ENVIRONMENT, "account", account, "cloud", f->name);
	return r;
}

static void wipe(const char *name, char *value)
{
	explicit_bzero(value, strlen(value));
	unsetenv(name);
}

char *app_take_key(const struct conf *c, const char *account, char ret_name[APP_ENV_MAX])
{
	const struct flavour *f = environment_of(c, account);
	char *key = NULL;

	for (unsigned i = 0; i < FLAVOURS; i++) {
		char name[APP_ENV_MAX], *v = (char *)variable(flavour_get((enum flavour_id)i), "API_KEY", name);

		if (!v)
			continue;
		if (f && f->id == i) {
			key = strdup(v);
			str_copy(ret_name, APP_ENV_MAX, name);
		}
		wipe(name, v);
	}
	return key;
}

void app_ignore_key(void)
{
	for (unsigned i = 0; i < FLAVOURS; i++) {
		char name[APP_ENV_MAX], *v = (char *)variable(flavour_get((enum flavour_id)i), "API_KEY", name);

		if (!v)
			continue;
		log_warn("environment_ignored", "name=%s action=\"a daemon of many users that has a configuration takes its key from "
						"api_key_file, api_key_credential or api_key_command\"", name);
		wipe(name, v);
	}
}

const struct flavour *app_flavour(const struct conf *c, const char *account, const char *key)
{
	const struct flavour *f = flavour_named(conf_get(c, "account", account, "cloud"));

	/* Only E2B's form of a key is its own; any other may be AgentBox's. */
	if (!f && key)
		f = flavour_of_key(key);
	return f ? f : flavour_get(FLAVOUR_AGENTBOX);
}

/* Where an address of the configuration leads to; NULL = to neither flavour's own hosts. */
static const struct flavour *leads_to(const struct conf *c, const char *account, const char *key)
{
	const char *text = conf_get(c, "account", account, key);
	const struct flavour *f;
	struct url url;

	if (str_is_empty(text) || url_parse(text, &url) < 0)
		return NULL;
	f = flavour_of_host(url.host);
	url_fini(&url);
	return f;
}

bool app_key_is_foreign(const struct conf *c, const char *account, const char *key, char ret_why[APP_FOREIGN_MAX])
{
	const char *domain = conf_get(c, "account", account, "domain"), *what = "domain";
	const struct flavour *of = key ? flavour_of_key(key) : NULL, *there;

	if (!of)
		return false;
	if (token_is_ours(key)) {
		snprintf(ret_why, APP_FOREIGN_MAX, "this is a token of agentboxd's gateway (agentboxctl env prints one), not the key of "
			 "an account; give the cloud's key, or start the daemon without what agentboxctl env sets");
		return true;
	}
	if (str_is_empty(domain))
		domain = app_flavour(c, account, key)->domain;
	there = flavour_of_host(domain);
	/* Without a request to the domain's hosts it is the addresses alone that matter. */
	if (conf_is_set(c, "account", account, "api_url") &&
	    (!there || there == of || conf_is_set(c, "account", account, "sandbox_url"))) {
		there = leads_to(c, account, "api_url");
		what = "api_url";
	}
	if (!there || there == of)
		return false;
	snprintf(ret_why, APP_FOREIGN_MAX,
		 "the key begins with %s, so it is %s's, and %s is %s's (%s); set cloud = %s, or another key, or %s",
		 of->key_prefix, of->title, what, there->title, there->domain, of->name, what);
	return true;
}
