/* SPDX-License-Identifier: MIT */
/*
 * Accounts: one cloud each, with its key, CA and proxy. A key comes from a file, from systemd's
 * credentials, from a command (key_command.c), or from the environment, where it is overwritten (app_takes_environment()).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app_flavour.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/key_command.h"
#include "proto/base/str.h"

#define KEY_COMMAND_PAUSE_MS 5000u	/* after a run that brought nothing new */

static const char *of(const struct account *c, const struct conf *conf, const char *key)
{
	return conf_get(conf, "account", c->name, key);
}

static const char *or_null(const char *s)
{
	return str_is_empty(s) ? NULL : s;
}

/* --- keys --- */

/* A key that came later than the start. False: it is another one's; the old one stays. */
static bool may_take(const struct account *c, const struct secret *key)
{
	char why[APP_FOREIGN_MAX];

	if (!app_key_is_foreign(c->app->conf, c->name, secret_text(key), why))
		return true;
	log_error("key_refused", "account=%s error=%s action=\"the key before it stays\"", c->name, log_q(why));
	return false;
}

static void on_key_printed(void *user, struct secret *key, const char *why)
{
	struct account *c = user;

	c->key_run = NULL;
	c->key_run_at_ms = loop_now_ms(c->app->loop) + KEY_COMMAND_PAUSE_MS;
	if (!key) {
		log_error("key_command", "account=%s error=%s", c->name, log_q(why));
	} else if ((c->key && str_eq(secret_text(key), secret_text(c->key))) || !may_take(c, key)) {
		secret_free(key);
	} else {
		log_info("key_command", "account=%s", c->name);
		secret_free(c->key);
		c->key = key;
		c->key_run_at_ms = 0;
		if (c->cloud)
			cloud_set_key(c->cloud, secret_text(key));
	}
	if (c->cloud)
		cloud_key_settled(c->cloud);
}

/* True: it runs. */
static bool run_key_command(struct account *c)
{
	int r;

	if (c->key_run)
		return true;
	if (!c->key_command || loop_now_ms(c->app->loop) < c->key_run_at_ms)
		return false;
	r = key_command_start(c->app->children, c->key_command, KEY_COMMAND_LIMIT_MS, on_key_printed, c, &c->key_run);
	if (r < 0)
		log_error("key_command", "account=%s error=%s", c->name, log_q(strerror(-r)));
	return r == 0;
}

static int invalid(const struct account *c, struct status *why, const char *what)
{
	status_set(why, R_FIELD_INVALID, "[account %s] %s", c->name, what);
	return -EINVAL;
}

/* Where the file says that the key comes from. */
static int find_key(struct account *c, const struct conf *conf, struct status *why)
{
	const char *file = of(c, conf, "api_key_file"), *credential = of(c, conf, "api_key_credential");
	const char *folder = getenv("CREDENTIALS_DIRECTORY"), *command = of(c, conf, "api_key_command");
	char **to = &c->key_path;

	if (!str_is_empty(command)) {
		to = &c->key_command;
		*to = strdup(command);
	} else if (!str_is_empty(file)) {
		*to = strdup(file);
	} else if (!str_is_empty(credential)) {
		if (str_is_empty(folder))
			return invalid(c, why, "api_key_credential: $CREDENTIALS_DIRECTORY is not set; use LoadCredential= in the unit, or "
					       "api_key_file");
		*to = str_printf("%s/%s", folder, credential);
	} else {
		return 0; /* calls that need it answer KEY_MISSING */
	}
	return *to ? 0 : -ENOMEM;
}

static int check_key(const struct account *c, const struct conf *conf, struct status *why)
{
	char text[APP_FOREIGN_MAX];

	return app_key_is_foreign(conf, c->name, secret_text(c->key), text) ? invalid(c, why, text) : 0;
}

/* The key of the first account, of which the file does not say one. */
static int take_environment(struct account *c, struct status *why)
{
	char name[APP_ENV_MAX], *env = app_take_key(c->app->conf, c->name, name);
	int r;

	if (!env)
		return 0;
	r = secret_take(env, &c->key);
	free(env);
	if (r < 0) {
		status_set(why, R_FIELD_INVALID, "%s: does not hold a key", name);
		return -EINVAL;
	}
	log_warn("key_from_environment", "name=%s account=%s advice=\"a file is safer: api_key_file\"", name, c->name);
	return check_key(c, c->app->conf, why);
}

static int read_key(struct account *c, const struct conf *conf, struct status *why)
{
	int r = find_key(c, conf, why);

	if (!r && c->key_path)
		r = secret_read(c->key_path, getenv("CREDENTIALS_DIRECTORY"), &c->key);
	if (r == -ENOENT)
		r = 0;
	if (r < 0) {
		if (status_ok(why))
			status_set(why, R_FIELD_INVALID, "[account %s] key file %s: %s", c->name, c->key_path, secret_error(r));
		return r;
	}
	return check_key(c, conf, why);
}

/* 1: the file holds another key now, which is in force. 0: the same. -errno: it cannot be read, or is not
 * a key (being written, maybe): the old one stays. */
static int reread_key(struct account *c)
{
	struct secret *fresh;
	int r;

	if (stat(c->key_path, &c->key_stat) < 0)
		c->key_stat = (struct stat){ 0 };
	r = secret_read(c->key_path, getenv("CREDENTIALS_DIRECTORY"), &fresh);
	if (r < 0)
		return r;
	if (c->key && str_eq(secret_text(fresh), secret_text(c->key))) {
		secret_free(fresh);
		return 0;
	}
	if (!may_take(c, fresh)) {
		secret_free(fresh);
		return -EKEYREJECTED;
	}
	log_info("key_reread", "account=%s file=%s", c->name, log_q(c->key_path));
	secret_free(c->key);
	c->key = fresh;
	cloud_set_key(c->cloud, secret_text(fresh));
	return 1;
}

void app_account_set_key_path(struct account *c, char *path)
{
	free(c->key_path);
	c->key_path = path;
	c->key_stat = (struct stat){ 0 };
	c->looked_in_pass = 0;
}

/* The cloud said 401: the file may hold a newer key by now, the command print one. */
static bool on_key_rejected(struct cloud *cloud, void *user)
{
	struct account *c = user;
	int r;

	if (run_key_command(c))
		return true;
	r = c->key_path ? reread_key(c) : 0;
	if (r <= 0)
		log_error("key_rejected", "account=%s file=%s error=%s", c->name,
			  log_q(c->key_path ? c->key_path : ""), log_q(r < 0 ? secret_error(r) : ""));
	return false;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* --- TLS --- */

/* Did one of the files change since the last time? */
static bool tls_files_changed(struct account *c, const struct conf *conf)
{
	const char *const files[] = { c->ca_file, or_null(of(c, conf, "client_cert")), or_null(of(c, conf, "client_key")) };
	bool changed = false;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct stat now = { 0 };

		if (!files[i] || (stat(files[i], &now) == 0 && is_same_file(&now, &c->tls_stat[i])))
			continue;
		changed |= now.st_ino != 0;	/* while it is missing nothing can be read */
		c->tls_stat[i] = now;
	}
	return changed;
}

static int make_tls_client(const struct account *c, const struct conf *conf, struct tls_client **ret, struct status *why)
{
	struct tls_client_options o = { .ca_file = c->ca_file,
					.cert_file = or_null(of(c, conf, "client_cert")),
					.key_file = or_null(of(c, conf, "client_key")) };

	return tls_client_new(&o, ret, why);
}

static void use_tls(struct account *c, struct tls_client *fresh)
{
	if (c->tls)
		pool_retire_tls(c->app->pool, c->tls);
	cloud_set_tls(c->cloud, fresh);
	tls_client_unref(c->tls);
	c->tls = fresh;
}

/* New connections believe, and show, what the files hold now; while they cannot be used, what they held. */
static void collect_tls(struct account *c)
{
	struct status why = STATUS_OK;
	struct tls_client *fresh;

	if (!tls_files_changed(c, c->app->conf))
		return;
	if (make_tls_client(c, c->app->conf, &fresh, &why) < 0) {
		log_warn("ca_unreadable", "account=%s error=%s action=\"what was read before stays\"", c->name,
			 log_q(status_ok(&why) ? "out of memory" : why.text));
		return;
	}
	log_info("ca_reread", "account=%s file=%s", c->name, log_q(c->ca_file ? c->ca_file : ""));
	use_tls(c, fresh);
}

/* The files are looked at before each call, so that a new key is in use before the old one is refused; once for all calls of a pass. */
static bool on_key_use(struct cloud *cloud, void *user)
{
	struct account *c = user;
	uint64_t pass = loop_pass(c->app->loop) + 1;
	bool looks = pass != c->looked_in_pass;
	struct stat now;
	int r;

	c->looked_in_pass = pass;
	if (looks)
		collect_tls(c);
	if (!c->key && !c->key_path)
		return run_key_command(c);
	if (!looks || !c->key_path || stat(c->key_path, &now) < 0 || is_same_file(&now, &c->key_stat))
		return false;
	r = reread_key(c);
	if (r < 0)
		log_warn("key_unreadable", "account=%s file=%s error=%s", c->name, log_q(c->key_path),
			 log_q(secret_error(r)));
	return false;
}

/* --- proxy --- */

static const char *env_of(const char *lower, const char *upper)
{
	const char *v = getenv(lower);

	return str_is_empty(v) ? getenv(upper) : v;
}

static int choose_proxy(struct account *c, const struct conf *conf, struct status *why)
{
	const char *set = of(c, conf, "proxy"), *proxy = NULL, *no_proxy = or_null(of(c, conf, "no_proxy"));
	bool is_set = !str_is_empty(set), https = !str_starts(of(c, conf, "api_url"), "http://");
	bool from_env = is_set ? str_eq(set, "env") : c->app->user_mode && !c->app->local_mode;

	c->proxy_origin = is_set ? "file" : "default";
	if (from_env) {
		proxy = https ? env_of("https_proxy", "HTTPS_PROXY") : env_of("http_proxy", "HTTP_PROXY");
		if (!no_proxy)
			no_proxy = env_of("no_proxy", "NO_PROXY");
		if (!str_is_empty(proxy))
			c->proxy_origin = "environment";
	} else if (is_set && !str_eq(set, "none")) {
		proxy = set;
	}
	if (str_is_empty(proxy))
		return 0;
	if (!str_starts(proxy, "http://")) {
		status_set(why, R_FIELD_INVALID, "[account %s] proxy: what the %s says does not begin with http://", c->name, c->proxy_origin);
		return -EINVAL;
	}
	c->proxy = strdup(proxy);
	c->no_proxy = str_dup(no_proxy);
	return c->proxy && (c->no_proxy || !no_proxy) ? 0 : -ENOMEM;
}

/* --- one account --- */

static int read_tls(struct account *c, const struct conf *conf, struct status *why)
{
	const char *ca_file = or_null(of(c, conf, "ca_file"));
	struct status said = STATUS_OK;
	int r;

	c->ca_file = str_dup(ca_file);
	if (ca_file && !c->ca_file)
		return -ENOMEM;
	(void)tls_files_changed(c, conf);
	r = make_tls_client(c, conf, &c->tls, &said);
	return r < 0 && !status_ok(&said) ? invalid(c, why, said.text) : r;
}

int app_account_read(struct account *c, const struct conf *conf, unsigned what, struct status *why)
{
	int r = what & APP_ACCOUNT_KEY ? read_key(c, conf, why) : 0;

	if (!r && what & APP_ACCOUNT_PROXY)
		r = choose_proxy(c, conf, why);
	return !r && what & APP_ACCOUNT_TLS ? read_tls(c, conf, why) : r;
}

/* What it was read for is the cloud's now. */
static void forget_proxy(struct account *c)
{
	c->proxy = str_free_secret(c->proxy);
	free(c->no_proxy);
	c->no_proxy = NULL;
}

static int make_cloud(struct account *c, const struct conf *conf, const char *fixed_url, struct status *why)
{
	const char *domain = fixed_url ? NULL : or_null(of(c, conf, "domain"));
	struct app *a = c->app;
	struct cloud_options o = {
		.loop = a->loop, .pool = a->pool, .tls = c->tls, .account = c->name,
		.flavour = app_flavour(conf, c->name, secret_text(c->key)),
		.allow_plain_http = conf_get_bool(conf, "account", c->name, "allow_plain_http"),
		.ports_by_domain = a->local_mode,
		.api_url = fixed_url ? fixed_url : or_null(of(c, conf, "api_url")), .domain = domain,
		.sandbox_url = fixed_url ? fixed_url : or_null(of(c, conf, "sandbox_url")),
		.api_key = secret_text(c->key),
		.check_key_format = conf_get_bool(conf, "account", c->name, "check_key_format"),
		.header_sandbox_id = of(c, conf, "header_sandbox_id"),
		.header_sandbox_port = of(c, conf, "header_sandbox_port"),
		.header_traffic_token = of(c, conf, "header_traffic_token"),
		.default_user = of(c, conf, "default_user"),
		.proxy = c->proxy, .no_proxy = c->no_proxy,
		.on_key_rejected = on_key_rejected, .on_key_use = on_key_use, .user = c,
	};
	struct status said = STATUS_OK;
	int r;

	c->domain = strdup(domain ? domain : o.flavour->domain);
	r = c->domain ? cloud_new(&o, &c->cloud, &said) : -ENOMEM;
	forget_proxy(c);
	return r < 0 && !status_ok(&said) ? invalid(c, why, said.text) : r;
}

int app_account_begin(struct account *c, const struct conf *conf, struct status *why)
{
	int r = make_cloud(c, conf, NULL, why);

	if (r < 0)
		return r;
	(void)run_key_command(c);	/* nobody waits here; calls that need the key do */
	if (c->key_path && !c->key)
		log_warn("key_missing", "account=%s file=%s advice=\"write the API key into this file, readable by the daemon "
			 "only; no restart is needed\"", c->name, log_q(c->key_path));
	return 0;
}

void app_account_take(struct account *c, struct account *from)
{
	if (from->tls) {
		free(c->ca_file);
		c->ca_file = give(from->ca_file);
		memcpy(c->tls_stat, from->tls_stat, sizeof(c->tls_stat));
		use_tls(c, give(from->tls));
	}
	if (from->proxy_origin) {
		c->proxy_origin = from->proxy_origin;
		cloud_set_proxy(c->cloud, give(from->proxy), give(from->no_proxy));
	}
}

/* Address, CA and key are set by app_account_point() when agentbox-local is up. */
static int make_local_account(struct account *c, struct status *why)
{
	int r;

	c->proxy_origin = "default";
	r = make_cloud(c, c->app->conf, "https://localhost", why);
	if (!r)
		app_local_open(c);
	return r;
}

static int set_text(char **to, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

static int read_key_and_ca(struct account *c, const struct local_info *at, struct secret **ret_key,
			   struct tls_client **ret_tls, struct status *why)
{
	int r = set_text(&c->key_path, at->key_file);

	if (!r)
		r = set_text(&c->ca_file, at->ca_file);
	if (r < 0)
		return r;
	r = secret_read(c->key_path, getenv("CREDENTIALS_DIRECTORY"), ret_key);
	if (r < 0) {
		status_set(why, R_KEY_MISSING, "%s: %s", c->key_path, secret_error(r));
		return r;
	}
	(void)tls_files_changed(c, c->app->conf);
	r = make_tls_client(c, c->app->conf, ret_tls, why);
	if (r < 0)
		*ret_key = secret_free(*ret_key);
	return r;
}

int app_account_point(struct account *c, const struct local_info *at, struct status *why)
{
	struct tls_client *tls = NULL;
	struct secret *key = NULL;
	int r = read_key_and_ca(c, at, &key, &tls, why);

	if (!r)
		r = set_text(&c->domain, at->domain);
	if (!r)
		r = cloud_set_address(c->cloud, at->url, at->domain, at->url);
	if (r < 0) {
		secret_free(key);
		if (tls)
			tls_client_unref(tls);
		if (status_ok(why))
			status_errno(why, r, "the account of agentbox-local");
		return r;
	}
	use_tls(c, tls);
	secret_free(c->key);
	c->key = key;
	cloud_set_key(c->cloud, secret_text(key));
	return 0;
}

static int make_account(struct account *c, struct status *why)
{
	const struct app *a = c->app;
	int r = app_account_read(c, a->conf, APP_ACCOUNT_KEY, why);

	if (!app_takes_environment(a->user_mode, a->conf_file))
		app_ignore_key();
	else if (!r && c == &a->accounts[0] && !c->key_path && !c->key_command)
		r = take_environment(c, why);
	if (!r)
		r = app_account_read(c, a->conf, APP_ACCOUNT_PROXY | APP_ACCOUNT_TLS, why);
	return r ? r : app_account_begin(c, a->conf, why);
}

bool app_has_account(const struct app *a, const char *name)
{
	for (size_t i = 0; i < a->n_accounts; i++)
		if (str_eq(a->accounts[i].name, name))
			return true;
	return false;
}

int app_accounts_new(struct app *a)
{
	size_t n = conf_n_instances(a->conf, "account");

	if (n > APP_ACCOUNTS_MAX) {
		fprintf(stderr, "agentboxd: at most %u accounts\n", APP_ACCOUNTS_MAX);
		return APP_EXIT_CONFIG;
	}
	for (size_t i = 0; i < MAX(n, (size_t)1); i++) {
		struct account *c = &a->accounts[i];
		struct status why = STATUS_OK;
		int r;

		c->app = a;
		c->name = strdup(n ? conf_instance(a->conf, "account", i) : a->local_mode ? "local" : "default");
		a->n_accounts++;
		r = !c->name ? -ENOMEM : a->local_mode ? make_local_account(c, &why) : make_account(c, &why);
		if (!r)
			continue;
		fprintf(stderr, "agentboxd: %s\n", status_ok(&why) ? "out of memory" : why.text);
		return status_ok(&why) ? APP_EXIT_UNAVAILABLE : APP_EXIT_CONFIG;
	}
	return 0;
}

static void end_account(struct account *c)
{
	key_command_cancel(c->key_run);
	c->key_run = NULL;
	cloud_free(c->cloud);
	c->cloud = NULL;
	if (c->tls && c->app->pool)
		pool_retire_tls(c->app->pool, c->tls);
}

static void free_account(struct account *c)
{
	tls_client_unref(c->tls);
	secret_free(c->key);
	forget_proxy(c);
	free(c->name);
	free(c->ca_file);
	free(c->key_path);
	free(c->key_command);
	free(c->domain);
	*c = (struct account){ 0 };
}

void app_account_free(struct account *c)
{
	if (c->app)
		end_account(c);
	free_account(c);
}

void app_accounts_free(struct app *a)
{
	for (size_t i = 0; i < a->n_accounts; i++)
		end_account(&a->accounts[i]);
	a->pool = pool_free(a->pool);
	for (size_t i = 0; i < a->n_accounts; i++)
		free_account(&a->accounts[i]);
	a->n_accounts = 0;
}
