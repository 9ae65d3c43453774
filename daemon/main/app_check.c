/* SPDX-License-Identifier: MIT */
/* Checks of the configuration across keys, and of the files it names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cloud/account.h"
#include "daemon/common/net/proxy.h"
#include "daemon/conf/secret.h"
#include "daemon/conf/trust.h"
#include "daemon/gateway/pass_right.h"
#include "daemon/main/app.h"
#include "daemon/main/app_flavour.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/gateway_address.h"
#include "daemon/main/metrics.h"
#include "daemon/sandbox/rules/policy.h"
#include "proto/base/host.h"
#include "proto/base/str.h"
#include "proto/cloud/flavour.h"

static void check_file(struct conf *c, const char *account, const char *key)
{
	const char *path = conf_get(c, "account", account, key);
	char at[512];

	if (!str_is_empty(path) && access(path, R_OK) < 0)
		conf_problem(c, "%s: %s: %s", conf_place(c, "account", account, key, at), path,
			     strerrordesc_np(errno));
}

static void check_key_file(struct conf *c, const char *account)
{
	const char *path = conf_get(c, "account", account, "api_key_file");
	char at[512], why[APP_FOREIGN_MAX];
	struct secret *key;
	int r;

	if (str_is_empty(path))
		return;
	r = secret_read(path, getenv("CREDENTIALS_DIRECTORY"), &key);
	conf_place(c, "account", account, "api_key_file", at);
	if (r == -ENOENT)
		return;		/* it may come later: calls that need it say so */
	if (r < 0) {
		conf_problem(c, "%s: %s: %s", at, path, secret_error(r));
		return;
	}
	if (app_key_is_foreign(c, account, secret_text(key), why))
		conf_problem(c, "%s: %s: %s", at, path, why);
	secret_free(key);
}

static void check_one_key(struct conf *c, const char *account)
{
	static const char *const ways[] = { "api_key_file", "api_key_credential", "api_key_command" };
	const char *first = NULL;
	char at[512];

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		if (!conf_is_set(c, "account", account, ways[i]))
			continue;
		if (first)
			conf_problem(c, "%s: there is %s already; one of them", conf_place(c, "account", account, ways[i], at),
				     first);
		else
			first = ways[i];
	}
}

static void check_url(struct conf *c, const char *account, const char *key)
{
	const char *text = conf_get(c, "account", account, key);
	struct url url;
	char at[512];

	if (str_is_empty(text))
		return;
	conf_place(c, "account", account, key, at);
	if (url_parse(text, &url) < 0) {
		conf_problem(c, "%s: \"%.100s\" is not SCHEME://HOST[:PORT][/PREFIX]", at, text);
		return;
	}
	if (!url_is_private(&url) && !conf_get_bool(c, "account", account, "allow_plain_http"))
		conf_problem(c, "%s: \"%.100s\" would send keys in clear: write https://, or allow_plain_http = yes "
				"if everybody on the way may read them", at, text);
	url_fini(&url);
}

static void check_cloud(struct conf *c, const char *account)
{
	const char *cloud = conf_get(c, "account", account, "cloud"), *domain = conf_get(c, "account", account, "domain");
	char at[512];

	if (!str_is_empty(cloud) && !flavour_named(cloud))
		conf_problem(c, "%s: \"%.100s\" is neither agentbox nor e2b", conf_place(c, "account", account, "cloud", at),
			     cloud);
	if (!str_is_empty(domain) && !host_port_is_valid(domain))
		conf_problem(c, "%s: \"%.100s\" is no host name", conf_place(c, "account", account, "domain", at), domain);
}

static void check_proxy(struct conf *c, const char *account)
{
	const char *proxy = conf_get(c, "account", account, "proxy");
	struct proxy *parsed;
	char at[512];

	if (str_is_empty(proxy) || str_eq(proxy, "none") || str_eq(proxy, "env"))
		return;
	if (proxy_parse(proxy, &parsed) == 0)
		proxy_free(parsed);
	else
		conf_problem(c, "%s: is neither none, env nor http://[USER:PASSWORD@]HOST:PORT",
			     conf_place(c, "account", account, "proxy", at));
}

static void check_account(struct conf *c, const char *account)
{
	bool cert = conf_is_set(c, "account", account, "client_cert");
	bool key = conf_is_set(c, "account", account, "client_key");
	char at[512];

	check_cloud(c, account);
	check_key_file(c, account);
	check_one_key(c, account);
	check_file(c, account, "ca_file");
	check_file(c, account, "client_cert");
	check_file(c, account, "client_key");
	check_url(c, account, "api_url");
	check_url(c, account, "sandbox_url");
	check_proxy(c, account);
	if (cert != key)
		conf_problem(c, "%s: client_cert and client_key belong together",
			     conf_place(c, "account", account, cert ? "client_cert" : "client_key", at));
}

static void check_uid(struct conf *c, const char *uid, bool local)
{
	const char *account = conf_get(c, "uid", uid, "account");
	char at[512];

	if (str_is_empty(account) || (local && str_eq(account, "local")) || conf_has_instance(c, "account", account))
		return;
	conf_problem(c, "%s: there is no [account %s]", conf_place(c, "uid", uid, "account", at), account);
}

static void check_relay(struct conf *c, const char *uid)
{
	const char *text = conf_get(c, "uid", uid, "relay");
	char at[512];

	if (pass_level_find(text) == PASS_LEVELS)
		conf_problem(c, "%s: \"%s\" is not none, read, templates or all", conf_place(c, "uid", uid, "relay", at), text);
}

/* The table takes any word: which ones there are, and what is built, is lifecycle's. */
static void check_policy(struct conf *c, const char *instance)
{
	for (unsigned f = 0; f < POLICY_FIELDS; f++) {
		const char *key = policy_field_name((enum policy_field)f), *text = conf_get(c, "policy", instance, key);
		struct policy_change change = { 0 };
		struct status st;
		char at[512];

		if (!conf_is_set(c, "policy", instance, key))
			continue;
		conf_place(c, "policy", *instance ? instance : NULL, key, at);
		if (policy_change_text(&change, (enum policy_field)f, text) < 0)
			conf_problem(c, "%s: \"%.100s\" cannot be", at, text);
		else if (!policy_check(&change, &st))
			conf_problem(c, "%s: %s", at, st.text);
	}
}

static void check_gateway(struct conf *c)
{
	const char *listen = conf_get(c, "gateway", NULL, "listen");
	bool cert = conf_is_set(c, "gateway", NULL, "tls_cert"), key = conf_is_set(c, "gateway", NULL, "tls_key");
	bool remote = conf_get_bool(c, "gateway", NULL, "allow_remote");
	struct host_port v[GATEWAY_ADDRESSES_MAX];
	struct status why = STATUS_OK;
	char at[512];
	size_t n = 0;

	conf_place(c, "gateway", NULL, "listen", at);
	if (!str_eq(listen, "none") && gateway_addresses_parse(listen, v, &n, &why) < 0)
		conf_problem(c, "%s: %s", at, why.text);
	for (size_t i = 0; status_ok(&why) && i < n; i++) {
		if (host_is_loopback(v[i].host))
			continue;
		if (!remote)
			conf_problem(c, "%s: \"%s\" is not this machine alone; set allow_remote = yes if others may reach it", at,
				     v[i].host);
		else if (!cert)
			conf_problem(c, "%s: \"%s\" would show tokens to everybody on the way; set tls_cert and tls_key", at, v[i].host);
	}
	if (cert != key)
		conf_problem(c, "%s: tls_cert and tls_key belong together",
			     conf_place(c, "gateway", NULL, cert ? "tls_cert" : "tls_key", at));
}

static void check_metrics(struct conf *c)
{
	const char *listen = conf_get(c, "daemon", NULL, "metrics_listen");
	struct host_port at_port;
	char at[512];

	if (!str_is_empty(listen) && metrics_address(listen, &at_port) < 0)
		conf_problem(c, "%s: \"%s\" is no loopback address with a port; write 127.0.0.1:9470, or [::1]:9470. Anybody on this "
			     "machine can read it there; for others use a proxy", conf_place(c, "daemon", NULL, "metrics_listen", at),
			     listen);
}

static void check_order(struct conf *c, const char *smaller, const char *larger)
{
	char at[512];

	if (conf_get_number(c, "spool", NULL, smaller) > conf_get_number(c, "spool", NULL, larger))
		conf_problem(c, "%s: is more than %s", conf_place(c, "spool", NULL, smaller, at), larger);
}

static bool check_trusted_row(struct conf *c, const struct conf_row *row)
{
	static const char *const keys[] = { "ca_file", "client_cert", "client_key" };
	char why[TRUST_WHY_BYTES], at[512];
	bool names_file = false;

	for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
		names_file |= str_eq(row->key->key, keys[k]);
	if (!names_file || row->value[0] != '/' || trust_check(row->value, why) != -EPERM)
		return true;
	conf_problem(c, "%s: %s", conf_place(c, row->key->section, row->instance, row->key->key, at), why);
	return false;
}

/* A user's daemon reads the file that it was given, but what lies beside it, in /tmp maybe, must not be another's. */
static bool check_trusted_files(struct conf *c, const struct conf_files *files, bool user_mode)
{
	char why[TRUST_WHY_BYTES];
	bool ok = true;

	for (size_t i = user_mode; i < files->n; i++) {
		if (trust_check(files->v[i].name, why) != -EPERM)
			continue;
		conf_problem(c, "%s: not read%s: %s", files->v[i].name, user_mode ? "" : " by a daemon that serves many users", why);
		ok = false;
	}
	return ok;
}

bool app_check_trust(struct conf *c, const struct conf_files *files, bool user_mode)
{
	struct conf_row row;
	bool ok = check_trusted_files(c, files, user_mode);

	if (!ok || user_mode)
		return ok;
	for (size_t i = 0; conf_row(c, i, &row); i++)
		ok &= check_trusted_row(c, &row);
	return ok;
}

bool app_check_conf(struct conf *c, bool local)
{
	const char *name;
	size_t n_away;

	for (size_t i = 0; (name = conf_instance(c, "account", i)); i++) {
		check_account(c, name);
		if (local)
			conf_problem(c, "[account %s]: --local has its own account; drop this section", name);
	}
	for (size_t i = 0; (name = conf_instance(c, "uid", i)); i++) {
		check_relay(c, name);
		check_uid(c, name, local);
	}
	for (size_t i = 0; (name = conf_instance(c, "policy", i)); i++)
		check_policy(c, name);
	check_gateway(c);
	check_metrics(c);
	check_order(c, "per_command", "per_uid");
	check_order(c, "per_uid", "total");
	n_away = app_check_names(c);
	return n_away && n_away == conf_n_problems(c);
}
