/* SPDX-License-Identifier: MIT */
/*
 * Pausing, resuming and saving a sandbox. With its memory it is frozen where it is; without, its
 * processes are ended and its files put away as a layer, from which a later resumption starts anew.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/egress/egress.h"
#include "daemon/local/state/saved_state.h"
#include "daemon/local/state/state.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

static void note(struct sandbox *s, const char *message)
{
	event_log_add(&s->event_log, clock_wall_ms() * 1000, EVENT_LOG_INFO, message, NULL);
}

static void new_layer_name(char ret[CONTAINER_ID_MAX + 1])
{
	ret[0] = 'p';
	rng_id(ret + 1, 20);
}

/* --- pausing --- */

static void pause_failed(struct sandbox *s, int r, const char *why)
{
	log_warn("sandbox_not_paused", "id=%s error=%d why=%s", s->id, -r, log_q(why ? why : ""));
	sandbox_kill(s, "pause failed", NULL);
}

/* It stands still, again or for the first time. */
static void rest(struct sandbox *s)
{
	sandbox_set_state(s, SANDBOX_PAUSED);
	if (!s->container)
		saved_state_write(s->st);
	if (!s->container && state_is_stopping(s->st))
		sandbox_forget(s);
	else
		sandbox_transition_done(s);
}

static void is_paused(struct sandbox *s)
{
	s->end_us = clock_wall_ms() * 1000;
	rest(s);
}

static void on_frozen(void *user, int r, const char *why)
{
	struct sandbox *s = user;

	if (s->state != SANDBOX_PAUSING)	/* it died */
		return;
	if (r < 0)
		pause_failed(s, r, why);
	else
		is_paused(s);
}

static void on_stashed(void *user, int r, const char *why)
{
	struct sandbox *s = user;

	if (r < 0) {
		s->layer[0] = '\0';	/* nothing of it is left */
		pause_failed(s, r, why);
		return;
	}
	note(s, "paused, files only");
	is_paused(s);
}

void sandbox_pause(struct sandbox *s, bool memory)
{
	int r;

	sandbox_set_state(s, SANDBOX_PAUSING);
	timer_clear(&s->expiry);
	timer_clear(&s->sample);
	sandbox_cut_traffic(s);
	s->paused_ms = loop_now_ms(state_opts(s->st)->loop);
	if (memory) {
		egress_cut(s->egress);
		note(s, "pausing");
		r = container_freeze(s->container, true, on_frozen, s);
		if (r < 0)
			pause_failed(s, r, strerror(-r));
		return;
	}
	sandbox_close_egress(s);
	state_opts(s->st)->on_stop(s);
	new_layer_name(s->layer);
	container_stash(give(s->container), s->layer, on_stashed, s);
}

/* --- resuming --- */

static void is_resumed(struct sandbox *s)
{
	s->resume_r = 0;
	sandbox_begin(s, s->resume_for_s);
	sandbox_transition_done(s);
}

static void not_resumed(struct sandbox *s, int r, const char *why)
{
	log_warn("sandbox_not_resumed", "id=%s error=%d why=%s", s->id, -r, log_q(why ? why : ""));
	s->resume_r = r;
	rest(s);
}

static void on_thawed(void *user, int r, const char *why)
{
	struct sandbox *s = user;

	if (s->state != SANDBOX_RESUMING)
		return;
	if (r < 0) {
		not_resumed(s, r, why);
		return;
	}
	note(s, "resumed");
	state_opts(s->st)->on_thaw(s, loop_now_ms(state_opts(s->st)->loop) - s->paused_ms);
	is_resumed(s);
}

/* Its files are where they were, if there was room for them at all. */
static void on_put_back(void *user, int r, const char *why)
{
	struct sandbox *s = user;

	if (s->state != SANDBOX_RESUMING)
		return;
	if (engine_has_layer(state_opts(s->st)->engine, s->layer))
		not_resumed(s, s->resume_r, "its files stay");
	else
		pause_failed(s, r, why);
}

static void on_remade(void *user, int r, const char *why)
{
	struct sandbox *s = user;

	if (s->state != SANDBOX_RESUMING)
		return;
	if (r < 0) {
		log_warn("sandbox_not_remade", "id=%s error=%d why=%s", s->id, -r,
			 log_q(why ? why : ""));
		s->resume_r = r;
		container_stash(give(s->container), s->layer, on_put_back, s);
		return;
	}
	s->layer[0] = '\0';
	/* What the creation gave its processes is memory, and gone with it. */
	cloud_kvs_fini(&s->env_vars);
	note(s, "envd started");
	saved_state_write(s->st);
	is_resumed(s);
}

static int remake(struct sandbox *s)
{
	const struct state_options *o = state_opts(s->st);
	const struct container_options bo = {
		.id = s->id,
		.template = s->root,
		.layer = s->layer,
		.take_layer = true,
		.memory_bytes = o->memory_bytes,
		.cpus = o->cpus,
	};

	return container_new(o->engine, &bo, on_remade, s, &s->container);
}

static void on_given_up(void *user, int r, const char *why)
{
	struct sandbox *s = user;

	if (r < 0) {
		s->layer[0] = '\0';
		pause_failed(s, r, why);
		return;
	}
	r = state_is_stopping(s->st) ? -ECANCELED : remake(s);
	if (r < 0)
		not_resumed(s, r, strerror(-r));
}

int sandbox_resume(struct sandbox *s, uint32_t for_s, bool memory)
{
	int r = 0;

	must(s->state == SANDBOX_PAUSED);
	if (state_count_team(s->st, s->team) >= state_opts(s->st)->max_sandboxes)
		return STATE_FULL;
	s->resume_for_s = for_s;
	sandbox_set_state(s, SANDBOX_RESUMING);
	if (s->container && memory) {
		r = container_freeze(s->container, false, on_thawed, s);
	} else if (s->container) {
		sandbox_close_egress(s);
		state_opts(s->st)->on_stop(s);
		new_layer_name(s->layer);
		container_stash(give(s->container), s->layer, on_given_up, s);
	} else {
		r = remake(s);
	}
	if (r < 0)
		sandbox_set_state(s, SANDBOX_PAUSED);
	return r;
}

/* --- saving --- */

struct snap_op {
	struct sandbox *s;		/* NULL: it is gone */
	struct state *st;
	char layer[CONTAINER_ID_MAX + 1];
	bool saved;
	int r;
	char why[160];
	sandbox_saved_fn *done;
	void *user;
};

static void lifecycle_fail(struct snap_op *op, int r, const char *why)
{
	if (op->r < 0)
		return;
	op->r = r;
	str_copy(op->why, sizeof(op->why), why && *why ? why : strerror(-r));
}

void sandbox_save_orphan(struct snap_op *op)
{
	op->s = NULL;
}

static bool is_alive(const struct snap_op *op)
{
	return op->s && op->s->state == SANDBOX_SNAPSHOTTING;
}

static void op_end(struct snap_op *op)
{
	struct sandbox *s = op->s;

	if (op->saved && op->r < 0)
		state_drop_layer(op->st, op->layer);
	if (is_alive(op)) {
		s->snap = NULL;
		sandbox_set_state(s, SANDBOX_RUNNING);
		/* The clock went on, and may have had its moment meanwhile. */
		if (timer_set(&s->expiry, s->end_ms) < 0)
			sandbox_kill(s, "no memory", NULL);
	}
	op->done(op->user, op->r, op->why);
	if (s && s->state == SANDBOX_RUNNING)
		sandbox_transition_done(s);
	free(op);
}

static void on_op_thawed(void *user, int r, const char *why)
{
	struct snap_op *op = user;

	if (r < 0)
		lifecycle_fail(op, r, why);
	op_end(op);
}

static void on_op_saved(void *user, int r, const char *why)
{
	struct snap_op *op = user;

	if (r < 0)
		lifecycle_fail(op, r, why);
	else
		op->saved = true;
	if (!is_alive(op)) {
		lifecycle_fail(op, -ECANCELED, "the sandbox died meanwhile");
		op_end(op);
		return;
	}
	r = container_freeze(op->s->container, false, on_op_thawed, op);
	if (r < 0)
		on_op_thawed(op, r, NULL);
}

static void on_op_frozen(void *user, int r, const char *why)
{
	struct snap_op *op = user;

	if (r == 0 && is_alive(op))
		r = container_save(op->s->container, op->layer, on_op_saved, op);
	else if (r == 0)
		r = -ECANCELED;
	if (r == 0)
		return;
	lifecycle_fail(op, r, why);
	if (!is_alive(op) || container_freeze(op->s->container, false, on_op_thawed, op) < 0)
		op_end(op);
}

int sandbox_save(struct sandbox *s, const char *layer, sandbox_saved_fn *done, void *user)
{
	struct snap_op *op = calloc(1, sizeof(*op));
	int r;

	if (!op)
		return -ENOMEM;
	*op = (struct snap_op){ .s = s, .st = s->st, .done = done, .user = user };
	str_copy(op->layer, sizeof(op->layer), layer);
	r = container_freeze(s->container, true, on_op_frozen, op);
	if (r < 0) {
		free(op);
		return r;
	}
	s->snap = op;
	sandbox_set_state(s, SANDBOX_SNAPSHOTTING);
	return 0;
}
