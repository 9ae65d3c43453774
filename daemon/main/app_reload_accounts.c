/* SPDX-License-Identifier: MIT */
/*
 * Accounts at a reload. The worker reads the files of what is new: of an account that was not there before all, of another one its CA,
 * client certificate and proxy, if what the file says of them differs. The loop makes the clouds of the new ones, takes over the rest, and
 * retires those that are in the file no more. What an account is, its addresses and its flavour, is not changed: for that the daemon
 * starts again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"
#include "proto/base/str.h"

struct app_accounts_change {
	struct account of[APP_ACCOUNTS_MAX];	/* what was read for the one of this index */
	bool gone[APP_ACCOUNTS_MAX];		/* the file does not have the one of this index */
	bool waits[APP_ACCOUNTS_MAX];		/* for a restart, since something in its section does */
	const char *names[APP_ACCOUNTS_MAX];	/* of the new ones, in the fresh configuration's order: of[n_accounts], … */
	size_t n_fresh, n_begun;		/* …; of them the app and the core have so many */
};

static bool differs(const struct conf *a, const struct conf *b, const char *name, const char *key)
{
	return !str_eq(conf_get(a, "account", name, key), conf_get(b, "account", name, key));
}

/* Another CA or key would be shown to the address before, and the one before be kept from the new one. A key may come from another file,
 * but for another kind of source, or none, the daemon is started again. */
static bool needs_restart(const struct conf *a, const struct conf *b, const char *name)
{
	for (unsigned i = 0; i < conf_n_keys; i++)
		if (str_eq(conf_keys[i].section, "account") && !conf_keys[i].reloadable && differs(a, b, name, conf_keys[i].key))
			return true;
	return conf_is_set(a, "account", name, "api_key_file") != conf_is_set(b, "account", name, "api_key_file");
}

/* -1: none has this name. */
static int index_of(const struct app *a, const char *name)
{
	for (size_t i = 0; i < a->n_accounts; i++)
		if (str_eq(a->accounts[i].name, name))
			return (int)i;
	return -1;
}

/*
 * Whether this account may begin now. Not where the first one of the file is another: it is that of all who are told none. Nor with rows
 * that the start left alone.
 */
static bool may_begin(const struct app *a, const struct conf *fresh, const char *name)
{
	return !app_has_account(a, name) && str_eq(conf_instance(fresh, "account", 0), a->accounts[0].name) &&
	       !sandbox_core_left_rows(a->core, name);
}

static bool is_new(const struct app_accounts_change *x, const char *name)
{
	for (size_t i = 0; x && i < x->n_fresh; i++)
		if (str_eq(x->names[i], name))
			return true;
	return false;
}

bool app_accounts_will_have(const struct app *a, const struct app_accounts_change *x, const char *name)
{
	int i = index_of(a, name);

	return is_new(x, name) || (i >= 0 && !(x && x->gone[i]));
}

bool app_accounts_may_take(const struct app *a, const struct app_accounts_change *x, const struct conf *fresh, const struct conf_key *key,
			   const char *name)
{
	int i = index_of(a, name);

	if (is_new(x, name))
		return true;
	return i >= 0 && x && key->reloadable && conf_has_instance(fresh, "account", name) && (!x->waits[i] || str_eq(key->key, "max_sandboxes"));
}

bool app_accounts_may_take_key(const struct app_accounts_change *x, size_t i)
{
	return x && !x->waits[i] && !x->gone[i];
}

/* --- on the worker --- */

static int read_into(struct account *c, struct app *a, const char *name, unsigned what, struct conf *fresh)
{
	struct status why = STATUS_OK;
	int r;

	*c = (struct account){ .app = a, .name = strdup(name) };
	r = c->name ? app_account_read(c, fresh, what, &why) : -ENOMEM;
	if (r == -ENOMEM || !r)
		return r;
	conf_problem(fresh, "%s", why.text);
	return 0;
}

static int read_changes(struct app_accounts_change *x, struct app *a, struct conf *fresh)
{
	int r = 0;

	for (size_t i = 0; !r && i < a->n_accounts; i++) {
		const char *name = a->accounts[i].name;
		unsigned what = 0;

		x->waits[i] = conf_has_instance(fresh, "account", name) && needs_restart(a->conf, fresh, name);
		/* The first one stays that of all who are told none until another is it, after a restart. */
		x->gone[i] = i && (!conf_has_instance(fresh, "account", name) || (a->accounts[i].retired && x->waits[i]));
		if (!conf_has_instance(fresh, "account", name) || x->waits[i])
			continue;
		if (differs(a->conf, fresh, name, "ca_file") || differs(a->conf, fresh, name, "client_cert") ||
		    differs(a->conf, fresh, name, "client_key"))
			what |= APP_ACCOUNT_TLS;
		if (differs(a->conf, fresh, name, "proxy") || differs(a->conf, fresh, name, "no_proxy"))
			what |= APP_ACCOUNT_PROXY;
		r = what ? read_into(&x->of[i], a, name, what, fresh) : 0;
	}
	return r;
}

static int read_new(struct app_accounts_change *x, struct app *a, struct conf *fresh)
{
	const char *name, *key;
	char place[512];
	int r = 0;

	for (size_t i = 0; !r && (name = conf_instance(fresh, "account", i)); i++) {
		size_t at = a->n_accounts + x->n_fresh;

		/* Of APP_ACCOUNTS_MAX some may be retired: then it waits for a restart. */
		if (!may_begin(a, fresh, name) || at == APP_ACCOUNTS_MAX)
			continue;
		if (app_gateway_is_account(a, fresh, name, &key))
			conf_problem(fresh, "%s: is this daemon's own gateway; name the cloud's address",
				     conf_place(fresh, "account", name, key, place));
		x->names[x->n_fresh++] = name;
		r = read_into(&x->of[at], a, name, APP_ACCOUNT_KEY | APP_ACCOUNT_PROXY | APP_ACCOUNT_TLS, fresh);
	}
	return r;
}

int app_accounts_read(struct app *a, struct conf *fresh, struct app_accounts_change **ret)
{
	struct app_accounts_change *x;
	int r;

	if (a->local_mode)
		return 0;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	*ret = x;
	if (conf_n_instances(fresh, "account") > APP_ACCOUNTS_MAX)
		conf_problem(fresh, "[account %s]: there are more than %u accounts", conf_instance(fresh, "account", APP_ACCOUNTS_MAX),
			     APP_ACCOUNTS_MAX);
	r = read_changes(x, a, fresh);
	return r ? r : read_new(x, a, fresh);
}

const char *app_accounts_other_first(const struct app *a, const struct conf *fresh)
{
	const char *first = conf_instance(fresh, "account", 0);

	return a->local_mode || !first || str_eq(first, a->accounts[0].name) ? NULL : first;
}

/* --- on the loop --- */

void app_accounts_change_free(struct app_accounts_change *x)
{
	for (size_t i = 0; x && i < APP_ACCOUNTS_MAX; i++)
		app_account_free(&x->of[i]);
	free(x);
}

static int begin_one(struct app *a, struct account *from, const struct conf *fresh, struct status *why)
{
	struct account *c = &a->accounts[a->n_accounts];
	int r;

	*c = *from;
	*from = (struct account){ 0 };
	r = app_account_begin(c, fresh, why);
	if (!r) {
		const struct sandbox_core_account o = {
			.name = c->name, .cloud = c->cloud, .default_user = conf_get(fresh, "account", c->name, "default_user"),
			.max_sandboxes = (uint32_t)conf_get_number(fresh, "account", c->name, "max_sandboxes"),
		};

		r = sandbox_core_add_account(a->core, &o);
	}
	if (r < 0)
		app_account_free(c);
	else
		a->n_accounts++;
	return r;
}

void app_accounts_undo(struct app *a, struct app_accounts_change *x)
{
	for (; x && x->n_begun; x->n_begun--) {
		sandbox_core_drop_account(a->core);
		app_account_free(&a->accounts[--a->n_accounts]);
	}
}

int app_accounts_reserve(struct app *a, struct app_accounts_change *x, const struct conf *fresh, struct status *why)
{
	size_t n = a->n_accounts;
	int r = 0;

	for (size_t i = 0; x && !r && i < n; i++)
		r = cloud_learn_proxy(x->of[i].proxy);
	for (size_t i = 0; x && !r && i < x->n_fresh; i++) {
		r = begin_one(a, &x->of[n + i], fresh, why);
		x->n_begun += !r;
	}
	if (r < 0)
		app_accounts_undo(a, x);
	return r;
}

static void retire(struct account *c, bool is_gone)
{
	if (is_gone && !c->retired)
		log_warn("account_retired", "account=%s action=\"it extends and ends what it has, and makes nothing\"", c->name);
	if (!is_gone && c->retired)
		log_info("account_back", "account=%s", c->name);
	c->retired = is_gone;
}

void app_accounts_take(struct app *a, struct app_accounts_change *x)
{
	for (size_t i = 0; x && i < a->n_accounts; i++) {
		struct account *c = &a->accounts[i];
		bool begins = i >= a->n_accounts - x->n_begun;

		if (begins)
			gateway_add_account(a->gateway, &(struct gateway_account){ .name = c->name, .cloud = c->cloud });
		else
			app_account_take(c, &x->of[i]);
		retire(c, x->gone[i]);
		sandbox_core_set_account(a->core, c->name, (uint32_t)conf_get_number(a->conf, "account", c->name, "max_sandboxes"),
					 c->retired);
		if (begins)
			log_info("account_begun", "account=%s", c->name);
	}
	if (x)
		x->n_begun = 0;
}
