/* SPDX-License-Identifier: MIT */
/*
 * Templates that serve. In the cloud the start command of a template runs when the template is built, and each sandbox is a copy of
 * its memory; there are no copies of memory here, so it runs when a sandbox is made. Both commands are run as the cloud runs
 * them: by a login shell of the template's user in its working directory, with the image's variables and without those
 * of the creation. The ready command is repeated until it ends with 0; the creation is answered then. A start command that fails
 * before that makes the creation fail.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/agent/envd.h"
#include "daemon/local/agent/proc.h"
#include "daemon/local/engine/fs.h"
#include "daemon/local/state/local.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define PAUSE_FIRST_MS 100u
#define PAUSE_MAX_MS   2000u	/* between two of the ready command, as in the cloud */
#define READY_MAX_MS   60000u
#define TAIL_BYTES     200u
#define WHY_SIZE       (TAIL_BYTES + 400u)
#define PATH_APPENDED  ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct kept_output {
	char text[TAIL_BYTES];	/* its last bytes */
	size_t n;
};

struct served {
	struct envd_serve *v;
	struct proc_watcher watcher;
	struct proc *proc;	/* NULL: it does not run */
	struct kept_output tail;
};

struct envd_serve {
	struct local *l;
	struct sandbox *s;
	struct container_user user;
	struct fs_op *probe;		/* looks for a shell */
	const char *shell;
	struct served start, ready;
	struct timer next, limit;
	uint32_t pause_ms;
	struct grave grave;
	char why[WHY_SIZE];
};

/* --- the end of it --- */

static void served_drop(struct served *d)
{
	if (d->proc)
		d->proc->watcher = NULL;
	d->proc = NULL;
}

/* The commands live on; nothing is called any more. */
static void serve_free(struct envd_serve *v)
{
	v->s->serve = NULL;
	if (v->probe)
		fs_cancel(give(v->probe));
	served_drop(&v->start);
	served_drop(&v->ready);
	timer_clear(&v->next);
	timer_clear(&v->limit);
	loop_bury(v->l->loop, &v->grave, free, v);
}

void envd_serve_stop(struct sandbox *s)
{
	if (s->serve)
		serve_free(s->serve);
}

static void serve_end(struct envd_serve *v, int r)
{
	struct sandbox *s = v->s;

	serve_free(v);
	sandbox_served(s, r, v->why);	/* it is there until the loop goes on */
}

static void fail(struct envd_serve *v, const char *what, const char *how, const struct kept_output *tail)
{
	snprintf(v->why, sizeof(v->why), "the %s command of template \"%s\" %s%s%.*s", what, v->s->root, how, tail->n ? ": " : "",
		 (int)tail->n, tail->text);
	serve_end(v, -EIO);
}

/* --- running one --- */

/* Keeps the end; what is no plain text shows as '?'. */
static void on_output(struct proc_watcher *w, const uint8_t *p, size_t n)
{
	struct kept_output *t = &container_of(w, struct served, watcher)->tail;
	size_t keep;

	if (n > TAIL_BYTES) {
		p += n - TAIL_BYTES;
		n = TAIL_BYTES;
	}
	keep = MIN(t->n, TAIL_BYTES - n);
	memmove(t->text, t->text + t->n - keep, keep);
	for (size_t i = 0; i < n; i++)
		t->text[keep + i] = p[i] == '\n' || p[i] == '\t' ? ' ' : p[i] >= ' ' && p[i] < 0x7f ? (char)p[i] : '?';
	t->n = keep + n;
}

/* The cloud's own additions to the image's variables. */
static char *value_of(const char *variable, size_t n_name)
{
	bool is_path = n_name == 4 && !memcmp(variable, "PATH", 4);

	return str_printf("%s%s", variable + n_name + 1, is_path ? PATH_APPENDED : "");
}

static void entries_free(Process__ProcessConfig__EnvsEntry **v, size_t n)
{
	for (size_t i = 0; v && i < n; i++)
		if (v[i]) {
			free(v[i]->key);
			free(v[i]->value);
			free(v[i]);
		}
	free(v);
}

static int add_entry(const char *variable, Process__ProcessConfig__EnvsEntry **ret)
{
	const char *eq = strchr(variable, '=');
	Process__ProcessConfig__EnvsEntry *e = calloc(1, sizeof(*e));

	must(eq);
	*ret = e;
	if (!e)
		return -ENOMEM;
	process__process_config__envs_entry__init(e);
	e->key = strndup(variable, (size_t)(eq - variable));
	e->value = value_of(variable, (size_t)(eq - variable));
	return e->key && e->value ? 0 : -ENOMEM;
}

/* On the heap as a request that was received, which is what a command owns. */
static Process__StartRequest *copy_request(const Process__StartRequest *req)
{
	size_t n = process__start_request__get_packed_size(req);
	uint8_t *packed = malloc(n + 1);
	Process__StartRequest *copy = NULL;

	if (packed)
		copy = process__start_request__unpack(NULL, process__start_request__pack(req, packed), packed);
	free(packed);
	return copy;
}

static Process__StartRequest *make_request(const struct envd_serve *v, const char *command)
{
	Process__StartRequest req = PROCESS__START_REQUEST__INIT;
	Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;
	char *args[] = { "-l", "-c", (char *)command };
	const char *const *env = v->s->run->env;
	Process__StartRequest *copy = NULL;
	size_t n = 0;
	int r = 0;

	while (env && env[n])
		n++;
	config.envs = calloc(n + 1, sizeof(*config.envs));
	if (!config.envs)
		return NULL;
	for (; config.n_envs < n && r == 0; config.n_envs++)
		r = add_entry(env[config.n_envs], &config.envs[config.n_envs]);
	config.cmd = (char *)v->shell;
	config.args = args;
	config.n_args = ARRAY_SIZE(args);
	req.process = &config;
	if (r == 0)
		copy = copy_request(&req);
	entries_free(config.envs, config.n_envs);
	return copy;
}

static int launch(struct envd_serve *v, struct served *d, Process__StartRequest *req)
{
	json_auto_t *globals = envd_globals(v->s, false);
	char *cwd = envd_path_of_text(v->s, &v->user, ""), **envs;
	size_t n = 0;
	int r = -ENOMEM;

	envs = envd_environment(&v->user, globals, req->process->envs, req->process->n_envs, &n);
	if (envs && cwd)
		r = proc_start_own(v->l, v->s, req, &v->user, cwd, (const char *const *)envs, n, &d->watcher, &d->proc);
	else
		protobuf_c_message_free_unpacked(&req->base, NULL);
	envd_environment_free(envs, n);
	free(cwd);
	return r;
}

static void run(struct envd_serve *v, struct served *d, const char *what, const char *command)
{
	Process__StartRequest *req = make_request(v, command);
	int r = req ? launch(v, d, req) : -ENOMEM;

	if (r < 0)
		fail(v, what, strerror(-r), &(struct kept_output){ .n = 0 });
}

static bool is_well(const struct container_exit *x)
{
	return x->exited && !x->code;
}

static void how_it_ended(const struct container_exit *x, const char *why, char ret[WHY_SIZE])
{
	char text[64];

	if (x)
		proc_exit_text(x, text);
	snprintf(ret, WHY_SIZE, "%s: %s", x ? "ended before the template was ready" : "could not be started", x ? text : why);
}

/* --- the two commands --- */

/* One that ends well may have started others, and is nothing to wait for. */
static void on_start_over(struct proc_watcher *w, const struct container_exit *x, const char *why)
{
	struct served *d = container_of(w, struct served, watcher);
	char how[WHY_SIZE];

	d->proc = NULL;
	if (x && is_well(x))
		return;
	how_it_ended(x, why, how);
	fail(d->v, "start", how, &d->tail);
}

static void on_ready_over(struct proc_watcher *w, const struct container_exit *x, const char *why)
{
	struct served *d = container_of(w, struct served, watcher);
	struct envd_serve *v = d->v;
	char how[WHY_SIZE];

	d->proc = NULL;
	if (!x) {
		how_it_ended(x, why, how);
		fail(v, "ready", how, &d->tail);
	} else if (is_well(x)) {
		serve_end(v, 0);
	} else if (timer_set(&v->next, loop_now_ms(v->l->loop) + v->pause_ms) < 0) {
		fail(v, "ready", "cannot be repeated", &d->tail);
	} else {
		v->pause_ms = MIN(2 * v->pause_ms, PAUSE_MAX_MS);
	}
}

static void on_next(struct timer *t, void *user)
{
	struct envd_serve *v = user;

	v->ready.tail.n = 0;
	run(v, &v->ready, "ready", v->s->run->ready);
	if (v->s->serve == v && v->ready.proc)
		v->ready.proc->is_quiet = true;
}

static void on_too_late(struct timer *t, void *user)
{
	struct envd_serve *v = user;

	fail(v, "ready", "did not succeed in time", &v->ready.tail);
}

static void begin_ready(struct envd_serve *v)
{
	if (!v->s->run->ready) {
		serve_end(v, 0);
		return;
	}
	if (timer_set(&v->limit, loop_now_ms(v->l->loop) + READY_MAX_MS) < 0)
		fail(v, "ready", "has no clock", &v->ready.tail);
	else
		on_next(NULL, v);
}

static void on_started(struct proc_watcher *w)
{
	begin_ready(container_of(w, struct served, watcher)->v);
}

/* --- the beginning --- */

static void begin_start(struct envd_serve *v)
{
	int r = container_user_lookup(v->s->container, envd_default_user(v->s), &v->user);

	if (r < 0) {
		snprintf(v->why, sizeof(v->why), "template \"%s\": its user \"%.64s\" cannot be looked up: %s", v->s->root,
			 envd_default_user(v->s), strerror(-r));
		serve_end(v, r);
	} else if (v->s->run->start) {
		run(v, &v->start, "start", v->s->run->start);
	} else {
		begin_ready(v);
	}
}

static void on_shell(void *user, int r, const struct fs_entry *e)
{
	struct envd_serve *v = user;

	v->probe = NULL;
	v->shell = r < 0 ? "/bin/sh" : "/bin/bash";
	begin_start(v);
}

static struct envd_serve *serve_new(struct local *l, struct sandbox *s)
{
	struct envd_serve *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->l = l;
	v->s = s;
	v->pause_ms = PAUSE_FIRST_MS;
	v->start.v = v->ready.v = v;
	v->start.watcher = (struct proc_watcher){ on_started, on_output, on_start_over };
	v->ready.watcher = (struct proc_watcher){ NULL, on_output, on_ready_over };
	timer_init(&v->next, l->loop, on_next, v);
	timer_init(&v->limit, l->loop, on_too_late, v);
	return v;
}

int envd_serve(struct local *l, struct sandbox *s)
{
	struct envd_serve *v = serve_new(l, s);
	int r = v ? fs_stat(s->container, "/bin/bash", on_shell, v, &v->probe) : -ENOMEM;

	if (r < 0)
		free(v);
	else
		s->serve = v;
	return r;
}
