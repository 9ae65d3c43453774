/* SPDX-License-Identifier: MIT */
/*
 * SIGHUP. The configuration is read and checked by a worker, all of it, before anything changes: one wrong line, and nothing does. What
 * is taken up then is moved into the configuration in force, which cannot fail; what cannot be taken up is named. One reload at a time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/ev/worker.h"
#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"
#include "proto/base/str.h"

struct reload {
	struct job job;
	struct app *app;
	struct conf *fresh;
	int r;			/* -errno: the file could not be read */
};

static void reload_free(struct reload *x)
{
	conf_free(x->fresh);
	free(x);
}

/* On the worker: nobody changes the configuration in force meanwhile. */
static void prepare(struct job *j)
{
	struct reload *x = container_of(j, struct reload, job);

	x->r = conf_new(&x->fresh);
	if (!x->r)
		x->r = conf_keep_given(x->fresh, x->app->conf);
	if (!x->r)
		x->r = conf_read_file(x->fresh, x->app->conf_file);
	if (!x->r)
		app_check_conf(x->fresh, x->app->local_mode);
}

static void tell_problems(struct app *a, const char *problems)
{
	while (*problems) {
		size_t n = strcspn(problems, "\n");
		char *line = strndup(problems, n);

		log_error("reload_problem", "text=%s", log_q(line ? line : "out of memory"));
		free(line);
		problems += n + (problems[n] == '\n');
	}
	log_error("reload_failed", "file=%s action=\"nothing was changed\"", log_q(a->conf_file));
	(void)notify_status(a->notify, "the reload failed, see the log; what was in force still is");
	a->said[0] = '\0';
}

struct changes {
	struct app *app;
	struct conf *fresh;
	unsigned taken, left;
};

static void on_change(const struct conf_key *key, const char *instance, void *user)
{
	struct changes *c = user;
	char at[512];

	conf_place(c->fresh, key->section, instance, key->key, at);
	if (!key->reloadable) {
		log_warn("reload_needs_restart", "key=%s", log_q(at));
		c->left++;
		return;
	}
	conf_take(c->app->conf, c->fresh, key);
	log_info("reload_taken", "key=%s value=%s", log_q(at), log_q(conf_get(c->app->conf, key->section, NULL, key->key)));
	c->taken++;
}

static void commit(struct app *a, struct conf *fresh)
{
	struct changes c = { .app = a, .fresh = fresh };

	conf_compare(a->conf, fresh, on_change, &c);
	log_setup((enum log_level)conf_get_number(a->conf, "daemon", NULL, "log_level"));
	log_info("reloaded", "taken=%u need_restart=%u", c.taken, c.left);
}

static void on_prepared(struct job *j)
{
	struct reload *x = container_of(j, struct reload, job);
	struct app *a = x->app;
	char text[256];

	a->reload = NULL;
	if (!a->server || a->drain_until_ms) {
		reload_free(x);
		return;
	}
	snprintf(text, sizeof(text), "%s: %s", a->conf_file, strerrordesc_np(-x->r));
	if (x->r < 0 || conf_errors(x->fresh)[0])
		tell_problems(a, x->r < 0 ? text : conf_errors(x->fresh));
	else
		commit(a, x->fresh);
	reload_free(x);
	(void)notify_send(a->notify, "READY=1");
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

void app_reload(struct app *a)
{
	int r;

	if (str_is_empty(a->conf_file)) {
		log_warn("reload_failed", "error=\"the daemon was started without a configuration file\"");
		return;
	}
	a->reload_again = a->reload != NULL;
	if (a->reload)
		return;
	r = start(a);
	if (r < 0)
		log_error("reload_failed", "error=%s", log_q(strerror(-r)));
}

void app_reload_free(struct app *a)
{
	a->reload_worker = worker_free(a->reload_worker);
}
