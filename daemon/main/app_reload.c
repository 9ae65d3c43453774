/* SPDX-License-Identifier: MIT */
/*
 * SIGHUP and DaemonService.Reload. The configuration is read and checked by a worker, all of it, before anything changes: one wrong
 * line, and nothing does. What is taken up then is moved into the configuration in force, which cannot fail; what cannot be taken up
 * is named. One reload at a time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/ev/worker.h"
#include "daemon/common/obs/log.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app_impl.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

struct keys {
	struct daemon_changed_key *v;	/* section: heap */
	size_t n;
};

struct reload {
	struct job job;
	struct app *app;
	struct conf *fresh;
	struct conf_files files;
	struct app_warm warm;	/* of it */
	char *problems;		/* lines, cut at their ends for … */
	const char **lines;	/* … these */
	size_t n_lines;
	struct keys taken, left;
	struct access_rules access;
	struct app_uid_limits limits;
	struct app_accounts_change *accounts;	/* NULL = none, or with --local */
	char *key_paths[APP_ACCOUNTS_MAX];	/* other ones than before; NULL = the same */
	int r;			/* -errno: the file could not be read */
};

/* A call that waits for the result. */
struct waiter {
	struct list node;
	bool next;		/* of the reload after the one that goes on, which may have read the file before the call came */
	daemon_reloaded_fn *done;
	void *user;
};

static void keys_free(struct keys *k)
{
	for (size_t i = 0; i < k->n; i++)
		free((char *)k->v[i].section);
	free(k->v);
}

static void reload_free(struct reload *x)
{
	app_warm_free(&x->warm);
	conf_free(x->fresh);
	conf_files_fini(&x->files);
	free(x->problems);
	free(x->lines);
	keys_free(&x->taken);
	keys_free(&x->left);
	access_rules_fini(&x->access);
	app_uid_limits_free(&x->limits);
	app_accounts_change_free(x->accounts);
	for (size_t i = 0; i < APP_ACCOUNTS_MAX; i++)
		free(x->key_paths[i]);
	free(x);
}

/* --- on the worker: nobody changes the configuration in force meanwhile --- */

static bool is_takeable(const struct reload *x, const struct conf_key *key, const char *instance)
{
	const char *account;

	if (str_eq(key->section, "account"))
		return app_accounts_may_take(x->app, x->accounts, x->fresh, key, instance);
	if (!str_eq(key->section, "uid") || !str_eq(key->key, "account"))
		return key->reloadable;
	account = conf_get(x->fresh, "uid", instance, "account");
	return str_is_empty(account) || app_accounts_will_have(x->app, x->accounts, account);
}

static void note_change(const struct conf_key *key, const char *instance, void *user)
{
	struct reload *x = user;
	struct keys *k = is_takeable(x, key, instance) ? &x->taken : &x->left;
	struct daemon_changed_key *v = reallocarray(k->v, k->n + 1, sizeof(*v));
	char *section = instance ? str_printf("%s %s", key->section, instance) : strdup(key->section);

	if (v)
		k->v = v;
	if (v && section) {
		v[k->n++] = (struct daemon_changed_key){ .section = section, .key = key->key,
							 .file = conf_file(x->fresh, key->section, instance, key->key),
							 .line = conf_line(x->fresh, key->section, instance, key->key) };
		return;
	}
	free(section);
	x->r = -ENOMEM;
}

/* No key of its own says which account is the first. */
static void note_first(struct reload *x)
{
	const char *first = app_accounts_other_first(x->app, x->fresh);
	struct keys *k = &x->left;
	struct daemon_changed_key *v = first ? reallocarray(k->v, k->n + 1, sizeof(*v)) : NULL;
	char *section = v ? str_printf("account %s", first) : NULL;

	if (v)
		k->v = v;
	if (section)
		v[k->n++] = (struct daemon_changed_key){ .section = section, .key = "(the first one)", .file = x->app->conf_file };
	else if (first)
		x->r = -ENOMEM;
}

static int read_conf(struct reload *x, char why[CONF_FILES_WHY_BYTES])
{
	int r = conf_new(&x->fresh);

	if (!r)
		r = conf_files_read(x->app->conf_file, &x->files, why);
	if (!r)
		r = conf_read_files(x->fresh, &x->files);
	return r ? r : conf_keep_given(x->fresh, x->app->conf);	/* behind the sections of the file, whose first one has a meaning */
}

/* One line for each problem, whose text this takes. */
static int split_problems(struct reload *x, char *text)
{
	char *rest = text;

	x->problems = text;
	x->lines = text ? calloc(strlen(text) + 1, sizeof(*x->lines)) : NULL;
	if (!x->lines)
		return -ENOMEM;
	for (char *line; (line = strsep(&rest, "\n"));)
		if (*line)
			x->lines[x->n_lines++] = line;
	return 0;
}

static bool will_have(const void *user, const char *name)
{
	const struct reload *x = user;

	return app_accounts_will_have(x->app, x->accounts, name);
}

static void prepare(struct job *j)
{
	struct reload *x = container_of(j, struct reload, job);
	const struct app_known_accounts known = { .has = will_have, .user = x };
	char why[CONF_FILES_WHY_BYTES];

	x->r = read_conf(x, why);
	if (x->r == -ENOMEM)
		return;
	if (x->r < 0) {
		x->r = split_problems(x, strdup(why));
		return;
	}
	if (app_check_trust(x->fresh, &x->files, x->app->user_mode))
		(void)app_check_conf(x->fresh, x->app->local_mode);
	if (!conf_errors(x->fresh)[0])
		x->r = app_accounts_read(x->app, x->fresh, &x->accounts);
	if (!x->r && !conf_errors(x->fresh)[0])
		x->r = app_warm_read(x->fresh, &known, x->app->user_mode, &x->warm);
	if (x->r < 0)
		return;
	if (conf_errors(x->fresh)[0]) {
		x->r = split_problems(x, strdup(conf_errors(x->fresh)));
		return;
	}
	conf_compare(x->app->conf, x->fresh, note_change, x);
	if (!x->r)
		note_first(x);
	if (!x->r)
		x->r = app_access_read(x->fresh, &x->access);
	if (!x->r)
		x->r = app_uid_limits_read(x->fresh, &x->limits);
}

/* --- on the loop --- */

static void tell_failure(struct app *a, const struct reload *x, const struct status *st)
{
	for (size_t i = 0; i < x->n_lines; i++)
		log_error("reload_problem", "text=%s", log_q(x->lines[i]));
	if (x->r < 0)
		log_error("reload_problem", "text=%s", log_q(st->text));
	log_error("reload_failed", "file=%s action=\"nothing was changed\"", log_q(a->conf_file));
	(void)notify_status(a->notify, "the reload failed, see the log; what was in force still is");
	a->said[0] = '\0';
}

static void on_change(const struct conf_key *key, const char *instance, void *user)
{
	struct reload *x = user;
	struct app *a = x->app;
	char at[512];

	conf_place(x->fresh, key->section, instance, key->key, at);
	if (!is_takeable(x, key, instance)) {
		log_warn("reload_needs_restart", "key=%s", log_q(at));
		return;
	}
	conf_take(a->conf, x->fresh, key, instance);
	log_info("reload_taken", "key=%s value=%s", log_q(at),
		 log_q(app_may_hold_secret(key) ? "(not shown)" : conf_get(a->conf, key->section, instance, key->key)));
}

static uint64_t number(const struct app *a, const char *key)
{
	return conf_get_number(a->conf, "daemon", NULL, key);
}

static int copy_key_paths(const struct app *a, struct reload *x)
{
	for (size_t i = 0; i < a->n_accounts; i++) {
		const char *path = conf_get(x->fresh, "account", a->accounts[i].name, "api_key_file");

		if (!app_accounts_may_take_key(x->accounts, i) || str_is_empty(path) || str_is_empty(conf_get(a->conf, "account", a->accounts[i].name, "api_key_file")) ||
		    str_eq(path, a->accounts[i].key_path))
			continue;
		x->key_paths[i] = strdup(path);
		if (!x->key_paths[i])
			return -ENOMEM;
	}
	return 0;
}

static void use_key_paths(struct app *a, struct reload *x)
{
	for (size_t i = 0; i < a->n_accounts; i++) {
		if (x->key_paths[i])
			app_account_set_key_path(&a->accounts[i], x->key_paths[i]);
		x->key_paths[i] = NULL;
	}
}

/* The last steps that may fail: what was in force still is then. */
static int reserve(struct app *a, struct reload *x, struct status *why)
{
	const struct app_known_accounts known = { .has = will_have, .user = x };
	int r = app_status_reserve(a, conf_n_rows(a->conf) + conf_n_rows(x->fresh));

	if (!r)
		r = copy_key_paths(a, x);
	if (!r)
		r = app_uid_limits_reserve(a, &x->limits);
	if (!r)
		r = app_accounts_reserve(a, x->accounts, x->fresh, why);
	if (r < 0)
		return r;
	r = app_rules_take(a, x->fresh, &known, &x->warm);
	if (r < 0)
		app_accounts_undo(a, x->accounts);
	return r;
}

/* Names are looked up anew as well: somebody may be in other groups now. */
static void use_access(struct app *a, struct reload *x)
{
	struct access_rules old = a->access;

	x->access.admin_gid = old.admin_gid;	/* of a key that needs a restart */
	a->access = x->access;
	x->access = (struct access_rules)ACCESS_RULES_NULL;
	rpc_server_set_rules(a->server, &a->access);
	gateway_set_rules(a->gateway, &a->access);
	access_rules_fini(&old);
	users_refresh(a->users);
}

static void commit(struct app *a, struct reload *x)
{
	conf_compare(a->conf, x->fresh, on_change, x);
	conf_take_instances(a->conf, x->fresh);
	use_key_paths(a, x);
	app_accounts_take(a, x->accounts);
	use_access(a, x);
	log_setup((enum log_level)number(a, "log_level"));
	app_limits_take(a, &x->limits);
	sandbox_core_set_graces(a->core, number(a, "unclaimed_grace"), number(a, "restart_grace"));
	conf_files_fini(&a->conf_files);
	a->conf_files = x->files;
	x->files = (struct conf_files){ 0 };
	a->conf_needs_restart = x->left.n > 0;
	a->conf_loaded_at_ms = clock_wall_ms();
	log_info("reloaded", "taken=%zu need_restart=%zu", x->taken.n, x->left.n);
}

/* Everybody who waits for the reload that is over; `x` NULL: it did not even begin. */
static void answer(struct app *a, const struct status *st, const struct reload *x)
{
	struct daemon_reloaded result = { .file = a->conf_file };
	struct list *n = a->reload_waiters.next;

	if (x)
		result = (struct daemon_reloaded){ .file = a->conf_file, .problems = x->lines, .n_problems = x->n_lines,
						   .taken = x->taken.v, .n_taken = x->taken.n,
						   .need_restart = x->left.v, .n_need_restart = x->left.n };
	while (n != &a->reload_waiters) {
		struct waiter *w = list_entry(n, struct waiter, node);

		n = n->next;
		if (w->next)
			continue;
		list_del(&w->node);
		w->done(w->user, st, &result);
		free(w);
	}
}

static void on_prepared(struct job *j)
{
	struct reload *x = container_of(j, struct reload, job);
	struct app *a = x->app;
	struct status st = STATUS_OK;

	a->reload = NULL;
	if (!a->server || a->drain_until_ms) {	/* the stop ends the calls that wait */
		reload_free(x);
		return;
	}
	if (!x->r && !x->n_lines)
		x->r = reserve(a, x, &st);
	if (x->r < 0 && status_ok(&st))
		status_errno(&st, x->r, "reading the configuration");
	if (x->r < 0 || x->n_lines)
		tell_failure(a, x, &st);
	else
		commit(a, x);
	(void)notify_send(a->notify, "READY=1");
	answer(a, &st, x);
	reload_free(x);
	if (a->reload_again)
		app_reload(a);
}

static int start(struct app *a)
{
	const struct worker_options o = { .loop = a->loop, .name = "reload" };
	struct reload *x = calloc(1, sizeof(*x));
	int r = x ? 0 : -ENOMEM;

	if (!r && !a->reload_worker)
		r = worker_new(&o, &a->reload_worker);
	if (r < 0) {
		free(x);
		return r;
	}
	x->job = (struct job){ .run = prepare, .done = on_prepared };
	x->app = a;
	a->reload = x;
	(void)notify_reloading(a->notify);
	worker_submit(a->reload_worker, &x->job);
	return 0;
}

/* All who wait now wait for this one. */
static int start_for_waiters(struct app *a)
{
	a->reload_again = false;
	list_for_each(n, &a->reload_waiters)
		list_entry(n, struct waiter, node)->next = false;
	return start(a);
}

void app_reload(struct app *a)
{
	struct status st;
	int r;

	if (str_is_empty(a->conf_file)) {
		log_warn("reload_failed", "error=\"the daemon was started without a configuration file\"");
		return;
	}
	if (a->reload) {
		a->reload_again = true;
		return;
	}
	r = start_for_waiters(a);
	if (r == 0)
		return;
	log_error("reload_failed", "error=%s", log_q(strerror(-r)));
	status_errno(&st, r, "reloading");
	answer(a, &st, NULL);
}

void *app_reload_wait(void *user, daemon_reloaded_fn *done, void *done_user, struct status *ret)
{
	struct app *a = user;
	struct waiter *w;
	int r = 0;

	if (str_is_empty(a->conf_file)) {
		status_set(ret, R_UNSUPPORTED, "the daemon was started without a configuration file: write one and restart it");
		return NULL;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		status_errno(ret, -ENOMEM, "reloading");
		return NULL;
	}
	*w = (struct waiter){ .done = done, .user = done_user, .next = a->reload != NULL };
	if (a->reload)
		a->reload_again = true;
	else
		r = start_for_waiters(a);
	if (r < 0) {
		status_errno(ret, r, "reloading");
		free(w);
		return NULL;
	}
	list_add_tail(&a->reload_waiters, &w->node);
	return w;
}

void app_reload_cancel(void *user, void *op)
{
	struct waiter *w = op;

	list_del(&w->node);
	free(w);
}

/* No reload follows the one that ends here. */
void app_reload_free(struct app *a)
{
	a->reload_again = false;
	a->reload_worker = worker_free(a->reload_worker);
}
