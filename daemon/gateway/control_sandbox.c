/* SPDX-License-Identifier: MIT */
/* Calls on one sandbox that do not resume it. */
#include <errno.h>

#include "daemon/gateway/control.h"

#define REFRESH_MIN_S 15u

/* The cloud's 204 for what was done. */
static void reply_204(void *user, const struct status *st, bool yes)
{
	struct gateway_control *c = control_done(user);

	if (status_ok(st))
		control_reply(c, 204, NULL);
	else
		control_fail(c, st);
}

static void not_found(struct gateway_control *c)
{
	struct status st;

	status_set(&st, R_SANDBOX_NOT_FOUND, "not found");
	control_fail(c, &st);
}

void control_health(struct gateway_control *c)
{
	control_reply(c, 204, NULL);
}

/* --- get --- */

static void reply_detail(struct gateway_control *c, const struct sandbox_view *v)
{
	unsigned part = CLOUD_LISTED | CLOUD_DETAIL | (control_state(v->state) == CLOUD_STATE_PAUSED ? 0 : CLOUD_LIVE);
	struct cloud_sandbox s;

	if (control_put_age(c, v->source, v->as_of_ms) < 0 || control_put_warm(c, v) < 0 || control_view(c, v, &s) < 0) {
		control_no_memory(c);
		return;
	}
	control_reply_doc(c, 200, CLOUD_DOC_SANDBOX, &s, part);
	control_view_fini(&s);
}

static void get_with(struct gateway_control *c, uint64_t staleness_ms, sandbox_view_fn *done)
{
	struct sandbox_call call = control_call(c, c->id);

	control_started(c, sandbox_get(c->g->o.core, &call, staleness_ms, done, &c->op));
}

static void on_asked(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);

	if (!status_ok(st))
		control_fail(c, st);
	else if (control_state(v->state))
		reply_detail(c, v);
	else
		not_found(c);
}

/* What is known of it is not always all of it: a list does not say everything. */
static void on_known(void *user, const struct status *st, const struct sandbox_view *v)
{
	if (status_ok(st) && !v->is_detail && v->source == SANDBOX_FROM_CACHE && control_state(v->state))
		get_with(control_done(user), 0, on_asked);
	else
		on_asked(user, st, v);
}

void control_get(struct gateway_control *c)
{
	get_with(c, SANDBOX_STALENESS_DEFAULT, on_known);
}

/* --- delete --- */

static void control_on_killed(void *user, const struct status *st, bool found)
{
	struct gateway_control *c = control_done(user);

	if (!status_ok(st))
		control_fail(c, st);
	else if (found)
		control_reply(c, 204, NULL);
	else
		not_found(c);
}

void control_delete(struct gateway_control *c)
{
	struct sandbox_call call = control_call(c, c->id);

	control_started(c, sandbox_kill(c->g->o.core, &call, control_on_killed, &c->op));
}

/* --- its end --- */

static void on_end_set(void *user, const struct status *st, const struct sandbox_view *v)
{
	reply_204(user, st, true);
}

void control_timeout(struct gateway_control *c)
{
	struct cloud_connect body = { .timeout_s = UINT32_MAX };
	struct sandbox_call call = control_call(c, c->id);
	uint64_t ms;

	if (!control_take(c, CLOUD_DOC_CONNECT, &body))
		return;
	if (body.timeout_s == UINT32_MAX) {
		control_invalid(c, "request body has an error: timeout is missing");
		return;
	}
	ms = body.timeout_s ? (uint64_t)body.timeout_s * 1000 : SANDBOX_TIMEOUT_NOW;
	control_started(c, sandbox_set_timeout(c->g->o.core, &call, ms, on_end_set, &c->op));
}

void control_refresh(struct gateway_control *c)
{
	struct cloud_refresh body = { .duration_s = REFRESH_MIN_S };
	struct sandbox_call call = control_call(c, c->id);
	uint64_t ms;

	if (!control_take(c, CLOUD_DOC_REFRESH, &body))
		return;
	ms = (uint64_t)MAX(body.duration_s, REFRESH_MIN_S) * 1000;
	control_started(c, sandbox_refresh(c->g->o.core, &call, ms, reply_204, &c->op));
}

/* --- pause --- */

static void control_on_paused(void *user, const struct status *st, bool yes)
{
	struct gateway_control *c = control_done(user);

	if (!status_ok(st))
		control_fail(c, st);
	else if (yes)
		control_reply(c, 204, NULL);
	else
		control_refuse(c, 409, "sandbox \"%s\" is already paused", c->id);
}

void control_pause(struct gateway_control *c)
{
	struct cloud_pause body = { .memory = TRI_TRUE };
	struct sandbox_call call = control_call(c, c->id);

	if (control_take(c, CLOUD_DOC_PAUSE, &body))
		control_started(c, sandbox_pause(c->g->o.core, &call, body.memory == TRI_TRUE, control_on_paused, &c->op));
}

/* --- network --- */

void control_network(struct gateway_control *c)
{
	struct cloud_egress e = { 0 };
	struct sandbox_call call = control_call(c, c->id);
	struct cloud_network *network;

	if (!control_take(c, CLOUD_DOC_EGRESS, &e))
		return;
	network = cloud_network_dup(&e.network);
	if (network)
		control_started(c, sandbox_update_network(c->g->o.core, &call, network, e.allow_internet_access, reply_204, &c->op));
	else
		control_no_memory(c);
	cloud_doc_fini(CLOUD_DOC_EGRESS, &e);
}

/* --- logs --- */

/* The cloud's own, of a sandbox that is the caller's: the path has no other reading than its id. */
static void on_logs_visible(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);

	if (status_ok(st))
		control_pass_on(c, v->account);
	else
		control_fail(c, st);
}

void control_logs(struct gateway_control *c)
{
	get_with(c, SANDBOX_STALENESS_DEFAULT, on_logs_visible);
}
