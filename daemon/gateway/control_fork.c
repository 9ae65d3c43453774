/* SPDX-License-Identifier: MIT */
/* POST /sandboxes/{id}/fork. Children of a run are leased to it, one after the other, before they are told. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/gateway/control.h"
#include "daemon/gateway/refusal.h"
#include "proto/base/str.h"

#define FORK_TIMEOUT_S 15u
#define FORK_MAX       100u

struct forked {
	char *text;		/* of the answer */
	struct cloud_strs ids;	/* to be leased */
	size_t n_leased;
};

static void forked_free(void *p)
{
	struct forked *f = p;

	free(f->text);
	cloud_strs_fini(&f->ids);
	free(f);
}

static void add_failed(struct gateway_control *c, struct doc_list *l, const struct status *st)
{
	struct refusal r;
	struct cloud_error e = { .message = (char *)st->text };

	refusal_of(st, c->to, &r);
	e.code = r.http;
	e.error_code = (char *)r.error_code;
	doc_list_add(l, NULL, CLOUD_DOC_FORK_RESULT, &(struct cloud_fork_result){ .error = &e }, 0);
}

static void add_child(struct gateway_control *c, struct doc_list *l, const struct sandbox_view *v)
{
	struct forked *f = c->state;
	struct cloud_sandbox s;

	if (!l->e)
		l->e = control_view(c, v, &s);
	if (l->e)
		return;
	doc_list_add(l, NULL, CLOUD_DOC_FORK_RESULT, &(struct cloud_fork_result){ .sandbox = &s }, 0);
	if (!l->e)
		l->e = cloud_strs_add(&f->ids, v->id);
	control_view_fini(&s);
}

static void lease_next(struct gateway_control *c);

/* One that cannot be leased is told all the same: it ends by the cloud's clock. */
static void on_child_leased(void *user, const struct status *st, const struct sandbox_lease *lease)
{
	lease_next(control_done(user));
}

static void lease_next(struct gateway_control *c)
{
	const struct sandbox_acquire a = { .label = "run", .kind = SANDBOX_LEASE_PROCESS };
	struct forked *f = c->state;
	struct sandbox_call call;

	if (!control_is_run(c) || f->n_leased == f->ids.n) {
		control_reply(c, 201, give(f->text));
		return;
	}
	call = control_call(c, f->ids.v[f->n_leased++]);
	control_started(c, sandbox_acquire(c->g->o.core, &call, &a, on_child_leased, &c->op));
}

static void on_forked(void *user, const struct status *st, const struct sandbox_child *children, size_t n)
{
	struct gateway_control *c = control_done(user);
	struct forked *f = calloc(1, sizeof(*f));
	struct doc_list l;

	if (!status_ok(st) || !f) {
		free(f);
		if (status_ok(st))
			control_no_memory(c);
		else
			control_fail(c, st);
		return;
	}
	c->state = f;
	c->free_state = forked_free;
	doc_list_begin(&l, c->flavour, NULL);
	for (size_t i = 0; i < n; i++) {
		if (children[i].sandbox)
			add_child(c, &l, children[i].sandbox);
		else
			add_failed(c, &l, children[i].st);
	}
	f->text = doc_list_take(&l);
	if (f->text)
		lease_next(c);
	else
		control_no_memory(c);
}

void control_fork(struct gateway_control *c)
{
	struct cloud_fork body = { .timeout_s = FORK_TIMEOUT_S, .count = 1 };
	struct sandbox_call call = control_call(c, c->id);
	scoped(sandbox_create_fini) struct sandbox_create children = { 0 };
	struct policy_change of_token;

	if (!control_take(c, CLOUD_DOC_FORK, &body))
		return;
	if (!body.timeout_s || !body.count || body.count > FORK_MAX) {
		control_invalid(c, body.timeout_s ? "count must be from 1 to 100" : "timeout must be at least 1");
		return;
	}
	if (!control_token_policy(c, &of_token))
		return;
	children.timeout_ms = (uint64_t)body.timeout_s * 1000;
	/* The rest is its parent's. */
	children.policy.set = BIT(POLICY_F_KEEP_ALIVE) | (control_is_run(c) ? BIT(POLICY_F_ON_RELEASE) : 0);
	children.policy.to.keep_alive = of_token.to.keep_alive;
	children.policy.to.on_release = (enum policy_action)c->token->on_release;
	control_started(c, sandbox_fork(c->g->o.core, &call, &children, body.count, on_forked, &c->op));
}
