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
#include "proto/cloud/error.h"

#define FORK_TIMEOUT_S 15

struct fork;

struct child {
	struct fork *f;
	char *text;		/* its part of the answer; NULL without memory */
};

struct fork {
	struct rest *r;
	struct sandbox_params p;		/* what it points to is our own */
	struct cloud_network *network;
	char root[CONTAINER_ID_MAX + 1], layer[CONTAINER_ID_MAX + 1];
	size_t n, n_open;
	struct child children[];
};

static void fork_free(struct fork *f)
{
	template_unuse(state_templates(f->r->l->state), f->p.template);
	cloud_kvs_fini(&f->p.metadata);
	cloud_kvs_fini(&f->p.env_vars);
	cloud_network_free(f->network);
	for (size_t i = 0; i < f->n; i++)
		free(f->children[i].text);
	free(f);
}

static void rest_fork_finish(struct fork *f)
{
	struct rest *r = f->r;
	struct buf all = BUF_NULL;
	char *text = NULL;
	int e = 0;

	for (size_t i = 0; i < f->n && !e; i++)
		e = f->children[i].text ? buf_printf(&all, "%s%s", i ? "," : "[", f->children[i].text) : -ENOMEM;
	if (!e)
		e = buf_put_str(&all, "]");
	if (!e)
		text = buf_take_str(&all);
	buf_fini(&all);
	state_drop_layer(r->l->state, f->layer);
	rest_limits(r, f->p.network, true);
	fork_free(f);
	if (text)
		rest_reply_text(r, 201, text);
	else
		rest_fail(r, 500, "out of memory");
}

static char *result_text(const struct rest *r, const struct cloud_fork_result *v)
{
	int e;

	return cloud_json_text(CLOUD_DOC_FORK_RESULT, v, r->flavour, 0, &e);
}

static char *error_text(const struct rest *r, unsigned status, const char *error_code, const char *message)
{
	struct cloud_error e = { .code = status, .error_code = (char *)error_code, .message = (char *)message };

	return result_text(r, &(struct cloud_fork_result){ .error = &e });
}

static char *child_text(const struct rest *r, const struct sandbox *s)
{
	struct cloud_sandbox view;

	rest_view(r, s, &view);
	return result_text(r, &(struct cloud_fork_result){ .sandbox = &view });
}

static void on_child(void *user, struct sandbox *s, int e, const char *why)
{
	struct child *c = user;
	struct fork *f = c->f;

	journal_add(f->r->l->journal, "fork-child",
		    json_pack("{s:s, s:s, s:s?, s:i}", "sandbox", f->r->id, "team", f->p.team, "child",
			      s ? s->id : NULL, "error", e));
	c->text = !e ? child_text(f->r, s) :
		       error_text(f->r, 500, CLOUD_ERROR_CREATE_FAILED, why ? why : strerror(-e));
	if (!--f->n_open)
		rest_fork_finish(f);
}

static void make_child(struct fork *f, struct child *c)
{
	const struct rest *r = f->r;
	int e = sandbox_create(r->l->state, &f->p, on_child, c);

	if (!e)
		return;
	if (e == STATE_FULL)
		c->text = error_text(r, 429, NULL, "you have reached the maximum number of concurrent sandboxes");
	else if (e == -EAGAIN)
		c->text = error_text(r, 503, CLOUD_ERROR_CAPACITY,
				     "Failed to place sandbox: this machine has no room for another one");
	else
		c->text = error_text(r, 500, CLOUD_ERROR_CREATE_FAILED, strerror(-e));
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

static int copy_settings(struct fork *f, const struct sandbox *s)
{
	int e = cloud_kvs_add_all(&f->p.metadata, &s->metadata);

	if (e == 0)
		e = cloud_kvs_add_all(&f->p.env_vars, &s->env_vars);
	f->network = s->network ? cloud_network_dup(s->network) : NULL;
	f->p.network = f->network;
	return e == 0 && s->network && !f->network ? -ENOMEM : e;
}

static struct fork *fork_new(struct rest *r, struct sandbox *s, const struct cloud_fork *body)
{
	size_t n = body->count;
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
		.timeout_s = body->timeout_s,
		.policy = s->policy,
	};
	template_use(s->template);
	if (copy_settings(f, s) == 0)
		return f;
	fork_free(f);
	return NULL;
}

void rest_fork(struct rest *r)
{
	uint32_t max = state_opts(r->l->state)->max_sandboxes;
	struct cloud_fork body = { .timeout_s = FORK_TIMEOUT_S, .count = 1 };
	struct sandbox *s;
	struct fork *f;
	int e;

	if (!rest_take(r, CLOUD_DOC_FORK, &body) || !rest_timeout_ok(r, body.timeout_s))
		return;
	if (!body.count) {
		rest_invalid(r, "count must be at least 1");
		return;
	}
	if (body.count >= max) {
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
	f = fork_new(r, s, &body);
	e = f ? sandbox_save(s, f->layer, on_saved, f) : -ENOMEM;
	if (!e)
		return;
	if (f)
		fork_free(f);
	rest_fail(r, 500, "Failed to fork sandbox: %s", strerror(-e));
}
