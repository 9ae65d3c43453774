/* SPDX-License-Identifier: MIT */
/*
 * Waiting: every call that waits is its asynchronous form plus this. Invariant: the client's error is
 * that of the last function that waited, and nothing if it went well.
 */
#include <errno.h>
#include <poll.h>

#include "client/lib/client.h"
#include "client/lib/error.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/base/str.h"

#define REPEAT_GAP_MS 100

int client_wait(struct ab_client *c, int timeout_ms)
{
	int due_ms;

	if (c->in_callback)
		return -EDEADLK;
	due_ms = ab_timeout(c);
	if (timeout_ms >= 0 && (due_ms < 0 || timeout_ms < due_ms))
		due_ms = timeout_ms;
	if (due_ms) {
		struct pollfd p = { .fd = ab_fd(c), .events = POLLIN };

		/* a signal is no reason to give up: the caller waits for an answer */
		(void)poll(&p, 1, due_ms);
	}
	return ab_process(c);
}

void wait_once(struct ab_call *call, int timeout_ms)
{
	int r = client_wait(call->client, timeout_ms);

	if (r < 0 && r != -ENOMEM)
		(void)call_fail(call, r);
}

static bool call_has_ready(struct ab_call *call)
{
	const uint8_t *p;

	if (call->state == CALL_DONE || call->progressed)
		return true;
	if (!call->stream)
		return false;
	return (!call_takes_replies(call) && h2_stream_peek(call->stream, &p)) ||
	       (call->method->puts && call_room(call) > 0);
}

int ab_call_poll(struct ab_call *call, int timeout_ms)
{
	struct ab_client *c = call_enter(call);
	uint64_t until_ms = timeout_ms < 0 ? NO_TIME : clock_boot_ms() + (uint64_t)timeout_ms;

	if (c->in_callback)
		return -EDEADLK;
	while (!call_has_ready(call)) {
		uint64_t now_ms = clock_boot_ms();

		if (now_ms >= until_ms && timeout_ms > 0)
			return 0;
		wait_once(call, timeout_ms < 0 ? -1 : (int)(until_ms - MIN(now_ms, until_ms)));
		if (timeout_ms == 0)
			break;
	}
	if (!call_has_ready(call))
		return 0;
	call->progressed = false;
	return 1;
}

int ab_call_wait(struct ab_call *call)
{
	struct ab_client *c = call_enter(call);

	if (c->in_callback)
		return AB_FAILED_PRECONDITION;
	while (call->state != CALL_DONE) {
		if (call->method->skip && call->method->skip(call))
			continue;
		if (call->state != CALL_DONE)
			wait_once(call, -1);
	}
	return (int)ab_call_status(call);
}

bool wait_put(struct ab_call *call, const uint8_t *p, size_t n,
	      ptrdiff_t (*put)(struct ab_call *call, const void *data, size_t n))
{
	size_t taken = 0;

	while (taken < n) {
		ptrdiff_t k = put(call, p + taken, n - taken);

		if (k < 0)
			return false;
		taken += (size_t)k;
		if (taken < n)
			(void)ab_call_poll(call, -1);
	}
	return true;
}

void repeat_init(struct repeat *p, struct ab_client *c, const struct ab_call_options *how)
{
	*p = (struct repeat){ .c = c };
	if (how)
		p->how = *how;
	if (p->how.deadline_ms && p->how.deadline_ms != AB_NEVER)
		p->deadline_at_ms = clock_boot_ms() + p->how.deadline_ms;
}

void repeat_heard(struct repeat *p)
{
	p->until_ms = 0;
}

static bool has_reason(const struct ab_error *e, enum ab_reason reason)
{
	return str_eq(e->reason, status_reason_name(reason));
}

/* A stream was cut, or is ended for a stop. Where no daemon was reached the dialing has waited already. */
static bool was_cut(const struct ab_error *e)
{
	return e->status == AB_UNAVAILABLE && (has_reason(e, R_DRAINING) || (e->local && has_reason(e, R_OUTCOME_UNKNOWN)));
}

bool repeat_may(struct repeat *p, const struct ab_error *e)
{
	uint64_t now_ms = clock_boot_ms();
	bool is_first = !p->until_ms;

	if (!e || !(was_cut(e) || (p->is_input && (has_reason(e, R_STATE_CHANGING) || (!is_first && has_reason(e, R_INPUT_BUSY))))))
		return false;
	if (is_first)
		p->until_ms = now_ms + MIN(p->c->wait_ms, (uint64_t)INT32_MAX);
	else if (now_ms >= p->until_ms)
		return false;
	else
		(void)client_wait(p->c, REPEAT_GAP_MS);
	if (!p->deadline_at_ms)
		return true;
	now_ms = clock_boot_ms();
	p->how.deadline_ms = p->deadline_at_ms - MIN(now_ms, p->deadline_at_ms);
	return p->how.deadline_ms > 0;
}

int wait_end(struct ab_client *c, struct ab_call *call)
{
	client_set_error(c, give(call->error));
	ab_call_free(call);
	return c->error ? (int)c->error->status : AB_OK;
}

/* Waits for the one that was started. NULL: there was nothing to wait for; the call is gone, the client has the error. */
static struct ab_call *wait_done(struct ab_client *c, int r)
{
	struct ab_call *call = r < 0 ? NULL : give(c->started);

	if (call && c->in_callback) {
		ab_call_free(give(call));
		r = -EDEADLK;
	}
	if (call)
		(void)ab_call_wait(call);
	else
		client_set_error(c, error_errno(r));
	return call;
}

int wait_object(struct ab_client *c, int r, void **ret)
{
	struct ab_call *call = wait_done(c, r);

	if (!call)
		return (int)c->error->status;
	if (!call->error && ret)
		*ret = ab_call_take(call);
	return wait_end(c, call);
}

int wait_answer(struct ab_client *c, int r, bool *ret)
{
	struct ab_call *call = wait_done(c, r);

	if (!call)
		return (int)c->error->status;
	if (!call->error && ret)
		*ret = ab_call_answer(call);
	return wait_end(c, call);
}
