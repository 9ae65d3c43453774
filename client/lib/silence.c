/* SPDX-License-Identifier: MIT */
/*
 * A daemon that accepts and does not answer: stopped, stuck, or a socket whose service does not start. Silence means nothing by
 * itself, as a command may print nothing for hours; so a connection with open calls is asked by a PING. Invariant: what was
 * waited for in vain began while this process ran, so that a suspended machine, or a caller that was busy, is no silence.
 */
#include "client/lib/client.h"
#include "client/lib/error.h"

#include <stdio.h>

#define LATE_MS 1000u	/* behind the moment to look: we were not there */

/* Of an open connection, counted from the last bytes: the user is told, calls end, the connection does. */
static const uint32_t steps_ms[] = { MUTE_MS, CALL_MUTE_MS, CONN_MUTE_MS };

/* A daemon that never said anything: the user is told, then it was not reached. */
static uint64_t greeting_due_ms(const struct conn *conn)
{
	uint64_t wait_ms = MIN(MAX(conn->client->wait_ms, (uint64_t)MUTE_MS), (uint64_t)INT32_MAX);

	return conn->heard_ms + (conn->silence ? wait_ms : MUTE_MS);
}

uint64_t conn_silence_due_ms(const struct conn *conn)
{
	if (conn->fd < 0)
		return NO_TIME;
	if (!conn->greeted)
		return greeting_due_ms(conn);
	if (!conn->n_calls)
		return NO_TIME;
	return conn->ping_ms ? conn->ping_ms - PING_AFTER_MS + steps_ms[conn->silence] : conn->heard_ms + conn->ping_after_ms;
}

static void tell(struct conn *conn, const char *what)
{
	struct ab_client *c = conn->client;
	char text[320];

	if (!c->notice)
		return;
	(void)snprintf(text, sizeof(text), "the daemon at %s %s for %u s: it is starting, stopped or stuck (see its log); waiting",
		       c->dial.path, what, MUTE_MS / 1000);
	c->notice(text, c->notice_user);
}

static bool check_greeting(struct conn *conn, uint64_t now_ms)
{
	struct ab_client *c = conn->client;

	if (!conn->silence++ && now_ms < greeting_due_ms(conn)) {
		tell(conn, "accepts connections and has not said anything");
		return false;
	}
	c->dial_why = "accepts connections and does not answer: it is starting, stopped or stuck; see its log, or restart it";
	c->dial_until_ms = now_ms;
	conn_die(conn);
	return true;
}

/* A call with a deadline does not wait for it where nobody answers. */
static void end_calls(struct conn *conn)
{
	list_for_each_safe(n, &conn->client->calls) {
		struct ab_call *call = list_entry(n, struct ab_call, link);
		enum ab_reason reason = call->method->repeatable ? R_UNREACHABLE : R_OUTCOME_UNKNOWN;

		if (call->conn == conn && call->state == CALL_OPEN && call->deadline_at_ms != NO_TIME)
			call_finish(call, error_local(AB_UNAVAILABLE, reason, "the daemon at %s does not answer any more: it is "
						      "stopped or stuck; see its log, or restart it", conn->client->dial.path));
	}
}

static void ping(struct conn *conn, uint64_t now_ms)
{
	if (h2_ping(conn->h2) < 0)
		return;
	conn->ping_ms = now_ms;
	conn->ping_after_ms = MIN(conn->ping_after_ms * 2, PING_AFTER_MAX_MS);
}

bool conn_check_silence(struct conn *conn, uint64_t now_ms)
{
	uint64_t due_ms = conn_silence_due_ms(conn);

	if (now_ms < due_ms)
		return false;
	if (now_ms - due_ms > LATE_MS && !conn->greeted)
		conn->heard_ms = now_ms;
	else if (now_ms - due_ms > LATE_MS && conn->ping_ms)
		conn->ping_ms = now_ms;
	else if (!conn->greeted)
		return check_greeting(conn, now_ms);
	else if (!conn->ping_ms)
		ping(conn, now_ms);
	else if (conn->silence == ARRAY_SIZE(steps_ms) - 1)
		conn_die(conn);
	else if (conn->silence++)
		end_calls(conn);
	else
		tell(conn, "has not answered");
	return true;
}
