/* SPDX-License-Identifier: MIT */
/*
 * POST /sandboxes/{id}/fork: the files are copied once while the source stands still, then each child
 * is made from that copy, which is removed at the end. The children have no memory of the source.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/api/rest.h"
#include "daemon/local/state/journal.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define FORK_TIMEOUT_S 15
#define FORK_MAX       100

struct fork;

struct child {
	struct fork *f;
	json_t *result;
};

struct fork {
	struct rest *r;
	struct sandbox_params p;		/* references of our own */
	char root[CONTAINER_ID_MAX + 1], layer[CONTAINER_ID_MAX + 1];
	size_t n, n_open;
	struct child children[];
};

static void fork_free(struct fork *f)
{
	template_unuse(state_templates(f->r->l->state), f->p.template);
	json_decref(f->p.metadata);
	json_decref(f->p.env_vars);
	json_decref(f->p.network);
	for (size_t i = 0; i < f->n; i++)
		json_decref(f->children[i].result);
	free(f);
}

static void rest_fork_finish(struct fork *f)
{
	json_t *all = json_array();
	struct rest *r = f->r;
	int e = all ? 0 : -ENOMEM;

	for (size_t i = 0; i < f->n && !e; i++)
		e = json_array_append(all, f->children[i].result) < 0 ? -ENOMEM : 0;
	state_drop_layer(r->l->state, f->layer);
	rest_limits(r, f->p.network, true);
	fork_free(f);
	if (!e) {
		rest_reply(r, 201, all);
		return;
	}
	json_decref(all);
	rest_fail(r, 500, "out of memory");
}

static json_t *error_json(unsigned status, const char *error_code, const char *message)
{
	json_t *e = json_pack("{s:i, s:s}", "code", (int)status, "message", message);

	if (e && error_code)
		(void)json_object_set_new(e, "error_code", json_string(error_code));
	return json_pack("{s:o}", "error", e);
}

static void on_child(void *user, struct sandbox *s, int e, const char *why)
{
	struct child *c = user;
	struct fork *f = c->f;

	journal_add(f->r->l->journal, "fork-child",
		    json_pack("{s:s, s:s, s:s?, s:i}", "sandbox", f->r->id, "team", f->p.team, "child",
			      s ? s->id : NULL, "error", e));
	c->result = !e ? json_pack("{s:o}", "sandbox", rest_sandbox_json(f->r, s))
		       : error_json(500, "sandbox_create_failed", why ? why : strerror(-e));
	if (!--f->n_open)
		rest_fork_finish(f);
}

static void make_child(struct fork *f, struct child *c)
{
	int e = sandbox_create(f->r->l->state, &f->p, on_child, c);

	if (!e)
		return;
	if (e == STATE_FULL)
		c->result = error_json(429, NULL, "you have reached the maximum number of concurrent "
						  "sandboxes");
	else if (e == -EAGAIN)
		c->result = error_json(503, "sandbox_capacity_unavailable",
				       "Failed to place sandbox: this machine has no room for another one");
	else
		c->result = error_json(500, "sandbox_create_failed", strerror(-e));
	f->n_open--;
}

static void on_saved(void *user, int e, const char *why)
{
	struct fork *f = user;
	struct rest *r = f->r;

	if (e < 0) {
		fork_free(f);
		rest_fail(r, 500, "Failed to fork sandbox: %s", why);
		return;
	}
	f->n_open = f->n + 1;
	for (size_t i = 0; i < f->n; i++)
		make_child(f, &f->children[i]);
	if (!--f->n_open)
		rest_fork_finish(f);
}

static struct fork *fork_new(struct rest *r, struct sandbox *s, size_t n, int64_t timeout_s)
{
	struct fork *f = calloc(1, sizeof(*f) + n * sizeof(f->children[0]));

	if (!f)
		return NULL;
	f->r = r;
	f->n = n;
	for (size_t i = 0; i < n; i++)
		f->children[i].f = f;
	f->layer[0] = 'f';
	rng_id(f->layer + 1, 20);
	str_copy(f->root, sizeof(f->root), s->root);
	f->p = (struct sandbox_params){
		.team = s->team,
		.template = s->template,
		.root = f->root,
		.layer = f->layer,
		.timeout_s = (uint32_t)timeout_s,
		.policy = s->policy,
		.metadata = json_incref(s->metadata),
		.env_vars = json_incref(s->env_vars),
		.network = json_incref(s->network),
	};
	template_use(s->template);
	return f;
}

void rest_fork(struct rest *r)
{
	uint32_t max = state_opts(r->l->state)->max_sandboxes;
	int64_t timeout_s = FORK_TIMEOUT_S, count = 1;
	struct sandbox *s;
	struct fork *f;
	int e;

	if (rest_timeout_s(r, &timeout_s) < 0 || rest_int(r, "count", 1, FORK_MAX, &count) < 0)
		return;
	if (count >= max) {
		rest_fail(r, 400, "count must be less than the %u sandboxes you may have", max);
		return;
	}
	s = rest_sandbox(r);
	if (!s)
		return;
	if (s->state != SANDBOX_RUNNING) {
		rest_fail(r, 409, "sandbox \"%s\" is not running", r->id);
		return;
	}
	f = fork_new(r, s, (size_t)count, timeout_s);
	e = f ? sandbox_save(s, f->layer, on_saved, f) : -ENOMEM;
	if (!e)
		return;
	if (f)
		fork_free(f);
	rest_fail(r, 500, "Failed to fork sandbox: %s", strerror(-e));
}
