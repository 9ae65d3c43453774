/* SPDX-License-Identifier: MIT */
/*
 * Pause, resume, connect. A call that finds a transition waits for it and looks again; the one that
 * began it (r->began) answers for how it went.
 */
#include <string.h>

#include "daemon/local/api/rest.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"

#define CONNECT_V2_S 300
#define RESUME_S     15

/* --- pause --- */

static void pause_over(struct rest *r, const struct sandbox *s, bool memory)
{
	if (s && s->state == SANDBOX_PAUSED) {
		if (memory && s->container)
			rest_limit(r, "lost-at-restart");
		rest_reply(r, 204, NULL);
	} else if (s && s->state == SANDBOX_KILLING && s->why && !str_eq(s->why, "pause failed")) {
		rest_no_sandbox(r);
	} else {
		rest_fail(r, 500, "sandbox \"%s\" could not be paused and is gone", r->id);
	}
}

void rest_pause(struct rest *r)
{
	struct sandbox *s = rest_find(r);
	struct cloud_pause body = { .memory = TRI_TRUE };
	bool memory;

	if (!rest_take(r, CLOUD_DOC_PAUSE, &body))
		return;
	memory = body.memory == TRI_TRUE;
	if (r->began && (!s || s->state == SANDBOX_PAUSED || s->state == SANDBOX_KILLING)) {
		pause_over(r, s, memory);
		return;
	}
	if (!s || s->state == SANDBOX_KILLING) {
		rest_no_sandbox(r);
		return;
	}
	switch (s->state) {
	case SANDBOX_PAUSED:
		rest_fail(r, 409, "sandbox \"%s\" is already paused", r->id);
		break;
	case SANDBOX_RUNNING:
		r->began = true;
		rest_wait(r, s);
		sandbox_pause(s, memory);
		break;
	case SANDBOX_PAUSING:
		r->began = true;	/* joins */
		rest_wait(r, s);
		break;
	default:
		rest_wait(r, s);
		break;
	}
}

/* --- resume --- */

static void reply_with(struct rest *r, unsigned status, const struct sandbox *s)
{
	struct cloud_sandbox view;

	rest_view(r, s, &view);
	rest_reply_doc(r, status, CLOUD_DOC_SANDBOX, &view, CLOUD_CREATED);
}

/* Of a paused one; the answer comes when it is over. */
static void resume(struct rest *r, struct sandbox *s, uint32_t timeout_s, bool memory)
{
	uint32_t max = state_opts(r->l->state)->max_sandboxes;
	int e;

	rest_limits(r, s->network, sandbox_is_cold(s) || !memory);
	e = sandbox_resume(s, timeout_s, memory);
	if (e == STATE_FULL) {
		rest_fail(r, 429, "you have reached the maximum number of concurrent sandboxes (%u)",
			  max);
	} else if (e < 0) {
		rest_fail(r, 500, "Failed to resume sandbox: %s", strerror(-e));
	} else {
		r->began = true;
		rest_wait(r, s);
	}
}

/* What this call began is over. */
static void resumed(struct rest *r, struct sandbox *s)
{
	if (s && s->state == SANDBOX_RUNNING)
		reply_with(r, 201, s);
	else if (s && s->state == SANDBOX_PAUSED)
		rest_fail_code(r, 500, CLOUD_ERROR_CREATE_FAILED, "Failed to resume sandbox: %s",
			       strerror(-s->resume_r));
	else
		rest_no_sandbox(r);
}

static void connect_for(struct rest *r, uint32_t timeout_s, bool memory)
{
	uint32_t max_s = state_opts(r->l->state)->max_length_s;
	struct sandbox *s = rest_find(r);

	if (timeout_s > max_s) {
		rest_fail(r, 400, "Timeout cannot be greater than %u seconds", max_s);
		return;
	}
	if (r->began) {
		resumed(r, s);
		return;
	}
	if (!s) {
		rest_no_sandbox(r);
		return;
	}
	switch (s->state) {
	case SANDBOX_RUNNING:
		sandbox_extend(s, (uint64_t)timeout_s * 1000);
		reply_with(r, 200, s);
		break;
	case SANDBOX_PAUSED:
		resume(r, s, timeout_s, memory);
		break;
	case SANDBOX_KILLING:
		rest_fail(r, 409, "sandbox \"%s\" is being killed", r->id);
		break;
	default:
		rest_wait(r, s);
		break;
	}
}

void rest_connect_v1(struct rest *r)
{
	struct cloud_connect body = { .timeout_s = UINT32_MAX };

	if (!rest_take(r, CLOUD_DOC_CONNECT, &body))
		return;
	if (body.timeout_s == UINT32_MAX)
		rest_invalid(r, "request body has an error: timeout is missing");
	else
		connect_for(r, body.timeout_s, body.memory != TRI_FALSE);
}

void rest_connect_v2(struct rest *r)
{
	struct cloud_connect body = { .timeout_s = CONNECT_V2_S };

	if (rest_take(r, CLOUD_DOC_CONNECT, &body))
		connect_for(r, body.timeout_s, body.memory != TRI_FALSE);
}

void rest_resume(struct rest *r)
{
	struct cloud_connect body = { .timeout_s = RESUME_S };
	struct sandbox *s = rest_find(r);

	if (!rest_take(r, CLOUD_DOC_CONNECT, &body) || !rest_timeout_ok(r, body.timeout_s))
		return;
	if (r->began) {
		resumed(r, s);
	} else if (!s || s->state == SANDBOX_KILLING) {
		rest_no_sandbox(r);
	} else if (s->state == SANDBOX_RUNNING || s->state == SANDBOX_SNAPSHOTTING) {
		rest_fail(r, 409, "Sandbox %s is already running", s->id);
	} else if (s->state == SANDBOX_PAUSED) {
		if (body.auto_pause)
			s->policy.auto_pause = body.auto_pause == TRI_TRUE;
		resume(r, s, body.timeout_s, body.memory != TRI_FALSE);
	} else {
		rest_wait(r, s);
	}
}
