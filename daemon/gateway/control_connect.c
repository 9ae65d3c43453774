/* SPDX-License-Identifier: MIT */
/* Connect and resume, of both generations. */
#include "daemon/gateway/control.h"

#define CONNECT_V2_S 300u
#define RESUME_S     15u

static void control_on_connected(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);

	if (status_ok(st))
		control_reply_created(c, v->resumed || c->to == CLOUD_ROUTE_RESUME ? 201 : 200, v);
	else
		control_fail(c, st);
}

static void connect_for(struct gateway_control *c, uint32_t timeout_s)
{
	/* 0 changes nothing of a running one, and is the default for the core: the shortest there is. */
	const struct sandbox_connect args = { .timeout_ms = timeout_s ? (uint64_t)timeout_s * 1000 : 1 };
	struct sandbox_call call = control_call(c, c->id);

	control_started(c, sandbox_connect(c->g->o.core, &call, &args, control_on_connected, &c->op));
}

/* False after the call ended. */
static bool take_connect(struct gateway_control *c, struct cloud_connect *body)
{
	if (!control_take(c, CLOUD_DOC_CONNECT, body))
		return false;
	if (body->timeout_s == UINT32_MAX)
		control_invalid(c, "request body has an error: timeout is missing");
	else if (body->memory == TRI_FALSE)
		control_refuse(c, 400, "memory: agentboxd resumes with the memory that was kept; false is not supported");
	else
		return true;
	return false;
}

void control_connect_v1(struct gateway_control *c)
{
	struct cloud_connect body = { .timeout_s = UINT32_MAX };

	if (take_connect(c, &body))
		connect_for(c, body.timeout_s);
}

void control_connect_v2(struct gateway_control *c)
{
	struct cloud_connect body = { .timeout_s = CONNECT_V2_S };

	if (take_connect(c, &body))
		connect_for(c, body.timeout_s);
}

/* --- resume --- */

static void on_looked_at(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);
	struct cloud_connect body = { .timeout_s = RESUME_S };

	if (!status_ok(st))
		control_fail(c, st);
	else if (control_state(v->state) == CLOUD_STATE_RUNNING)
		control_refuse(c, 409, "Sandbox %s is already running", c->id);
	else if (control_take(c, CLOUD_DOC_CONNECT, &body))
		connect_for(c, body.timeout_s);
}

/* The core resumes what is paused and extends what runs; here the second is a conflict. */
void control_resume(struct gateway_control *c)
{
	struct cloud_connect body = { .timeout_s = RESUME_S };
	struct sandbox_call call = control_call(c, c->id);

	if (!take_connect(c, &body))
		return;
	if (!body.timeout_s)
		control_refuse(c, 400, "Timeout must be at least 1 second");
	else if (body.auto_pause)
		control_refuse(c, 400, "autoPause: agentboxd resumes with what the sandbox was made with; leave it out");
	else
		control_started(c, sandbox_get(c->g->o.core, &call, 0, on_looked_at, &c->op));
}
