/* SPDX-License-Identifier: MIT */
/*
 * Stopping a sandbox and keeping its files. A freeze by cgroup is asked for and then looked at until
 * it is complete: the kernel stops tasks at their next way out of it. The supervisor does the copying.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/engine/container_int.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define FREEZE_WAIT_MS 5000u
#define FREEZE_POLL_MS 1u

/* --- freezing --- */

static void freeze_end(struct container *b, int r, const char *why)
{
	container_done_fn *done = b->freeze.done;

	timer_clear(&b->freeze.poll);
	b->freeze.done = NULL;
	if (r == 0)
		b->frozen = b->freeze.on;
	if (done)
		done(b->freeze.user, r, why);
}

static void poll_again(struct container *b)
{
	if (timer_set(&b->freeze.poll, loop_now_ms(b->engine->loop) + FREEZE_POLL_MS) < 0)
		freeze_end(b, -ENOMEM, "no memory for a timer");
}

static void on_poll(struct timer *t, void *user)
{
	struct container *b = user;
	const struct cg_roots *cg = &b->engine->facts.cg;

	if (b->freeze.over || cg_is_frozen(cg, b->cg_name)) {
		freeze_end(b, 0, "");
	} else if (loop_now_ms(b->engine->loop) < b->freeze.by_ms) {
		poll_again(b);
	} else {
		(void)!cg_freeze(cg, b->cg_name, false);
		freeze_end(b, -ETIMEDOUT, "not all of its processes could be stopped");
	}
}

void pause_on_stopped(struct container *b, const struct init_msg *m)
{
	if (b->freeze.done && b->freeze.on == (m->a != 0))
		freeze_end(b, m->r, m->r < 0 ? "not all of its processes could be stopped" : "");
}

void pause_init(struct container *b)
{
	timer_init(&b->freeze.poll, b->engine->loop, on_poll, b);
}

void pause_end(struct container *b, bool quiet)
{
	if (quiet)
		b->freeze.done = NULL;
	freeze_end(b, -ECANCELED, "the sandbox is gone");
}

int container_freeze(struct container *b, bool on, container_done_fn *done, void *user)
{
	const struct cg_roots *cg = &b->engine->facts.cg;
	const struct init_msg stop = { .op = INIT_STOP, .a = on };
	int r;

	if (b->state != CONTAINER_RUNNING || b->sock < 0 || b->destroying)
		return -EPIPE;
	must(!b->freeze.done);
	if (cg_has_freezer(cg))
		r = cg_freeze(cg, b->cg_name, on);
	else
		r = pkt_send(b->sock, &stop, sizeof(stop), NULL, 0);
	if (r < 0)
		return r;
	b->freeze.done = done;
	b->freeze.user = user;
	b->freeze.on = on;
	b->freeze.over = !on;
	b->freeze.by_ms = loop_now_ms(b->engine->loop) + FREEZE_WAIT_MS;
	if (!cg_has_freezer(cg))
		return 0;
	r = timer_set(&b->freeze.poll, loop_now_ms(b->engine->loop));
	if (r < 0) {
		b->freeze.done = NULL;
		(void)!cg_freeze(cg, b->cg_name, false);
	}
	return r;
}

/* --- layers --- */

struct container_task {
	uint64_t token;
	container_done_fn *done;
	void *user;
};

static void task_end(struct container_task *t, int r)
{
	if (t->done)
		t->done(t->user, r, r < 0 ? strerror(-r) : "");
	else if (r < 0)
		log_warn("layer_remains", "error=%d", -r);
	free(t);
}

void pause_on_task(struct engine *bs, const struct supervisor_rep *rep)
{
	struct container_task *t = map_del_u64(&bs->tasks, rep->token);

	if (t)
		task_end(t, rep->r);
}

void pause_end_tasks(struct engine *bs, bool quiet)
{
	struct container_task *t;
	size_t pos = 0;

	while ((t = map_next(&bs->tasks, &pos))) {
		(void)map_del_u64(&bs->tasks, t->token);
		if (quiet)
			free(t);
		else
			task_end(t, -EPIPE);
		pos = 0;
	}
	map_fini(&bs->tasks);
	bs->tasks = (struct map)MAP_NULL;
}

static int task_start(struct engine *bs, struct supervisor_req *q, const char *id,
		      container_done_fn *done, void *user)
{
	struct container_task *t;
	int r;

	if (!engine_id_ok(id))
		return -EINVAL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	*t = (struct container_task){ bs->next_token++, done, user };
	q->token = t->token;
	str_copy(q->layer, sizeof(q->layer), id);
	r = map_put_u64(&bs->tasks, t->token, t);
	if (r == 0)
		r = engine_ask(bs, q, -1);
	if (r < 0) {
		(void)map_del_u64(&bs->tasks, t->token);
		free(t);
	}
	return r;
}

int container_save(struct container *b, const char *id, container_done_fn *done, void *user)
{
	struct supervisor_req q = b->req;

	if (b->state != CONTAINER_RUNNING || b->destroying)
		return -EPIPE;
	q.op = SUPERVISOR_SAVE;
	q.container_token = b->token;
	return task_start(b->engine, &q, id, done, user);
}

void container_stash(struct container *b, const char *id, container_done_fn *done, void *user)
{
	must(engine_id_ok(id));
	str_copy(b->stash, sizeof(b->stash), id);
	container_destroy(b, done, user);
}

int engine_drop_layer(struct engine *bs, const char *id, container_done_fn *done, void *user)
{
	struct supervisor_req q = { .op = SUPERVISOR_DROP };

	return task_start(bs, &q, id, done, user);
}

bool engine_has_layer(const struct engine *bs, const char *id)
{
	char path[PATH_MAX];

	return engine_id_ok(id) &&
	       snprintf(path, sizeof(path), "%s/layers/%s", bs->state_dir, id) < PATH_MAX &&
	       access(path, F_OK) == 0;
}

void engine_each_layer(const struct engine *bs, void (*fn)(void *user, const char *id), void *user)
{
	char path[PATH_MAX];
	struct dirent *e;
	DIR *d;

	if (snprintf(path, sizeof(path), "%s/layers", bs->state_dir) >= PATH_MAX)
		return;
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (engine_id_ok(e->d_name))
			fn(user, e->d_name);
	if (d)
		closedir(d);
}
