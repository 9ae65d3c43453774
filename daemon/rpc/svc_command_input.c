/* SPDX-License-Identifier: MIT */
/* CommandService SendInput and CloseInput: the client is asked for the next message only when the one
 * before it was taken. */
#include <errno.h>

#include "daemon/rpc/check.h"
#include "daemon/rpc/command_call.h"

static void on_input_ended(void *user, const struct status *st, uint64_t accepted)
{
	struct cmd_call *x = user;
	Agentbox__V1__CloseInputResponse m = AGENTBOX__V1__CLOSE_INPUT_RESPONSE__INIT;

	x->op = NULL;
	if (status_ok(st))
		cmd_call_reply(x, &m.base);
	else
		cmd_call_fail(x, st);
}

static void close_input(struct cmd_call *x, struct command *c)
{
	int r = command_input_end(c, rpc_call_deadline_ms(x->call), on_input_ended, x, &x->op);

	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void on_close_input(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__CloseInputRequest *q = (const void *)message;
	struct cmd_call *x = cmd_call_new(call);

	if (!x)
		return;
	x->with = close_input;
	x->acts = true;
	cmd_call_find(x, q->command);
}

static void send_ack(struct cmd_call *x, uint64_t accepted, bool closed)
{
	Agentbox__V1__SendInputAck m = AGENTBOX__V1__SEND_INPUT_ACK__INIT;

	m.accepted = accepted;
	m.closed = closed;
	rpc_call_send(x->call, &m.base);
}

static void next_input(struct cmd_call *x)
{
	struct rpc_call *call = x->call;

	if (!x->ended) {
		rpc_call_next(call);
		return;
	}
	cmd_call_free(x, false);
	rpc_call_finish(call);
}

static void on_stream_closed(void *user, const struct status *st, uint64_t accepted)
{
	struct cmd_call *x = user;

	x->op = NULL;
	if (!status_ok(st)) {
		cmd_call_fail(x, st);
		return;
	}
	send_ack(x, accepted, true);
	next_input(x);
}

static void on_input_taken(void *user, const struct status *st, uint64_t accepted)
{
	struct cmd_call *x = user;
	int r;

	x->op = NULL;
	if (!status_ok(st)) {
		cmd_call_fail(x, st);
		return;
	}
	if (!x->closing) {
		send_ack(x, accepted, false);
		next_input(x);
		return;
	}
	r = command_input_end(x->command, rpc_call_deadline_ms(x->call), on_stream_closed, x, &x->op);
	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void take_input(struct cmd_call *x, uint64_t offset, const ProtobufCBinaryData *data, bool close)
{
	int r;

	x->closing = close;
	r = command_input_send(x->command, offset, data->data, data->len, rpc_call_deadline_ms(x->call),
			       on_input_taken, x, &x->op);
	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static bool open_input(struct cmd_call *x, struct command *c)
{
	struct status st;

	if (command_input_open(c) < 0) {
		status_set(&st, R_INPUT_BUSY, "another SendInput stream writes to this command");
		cmd_call_fail(x, &st);
		return false;
	}
	x->command = command_ref(c);
	x->input_open = true;
	return true;
}

/* The first message names the command, by its id alone, and may hold bytes. */
static void on_input(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__SendInputRequest *q = (const void *)message;
	struct cmd_call *x = rpc_call_user(call);
	struct command *c;
	struct status st;

	if (!x) {
		x = cmd_call_new(call);
		if (!x)
			return;
		if (!q->command || q->command->ref_case != AGENTBOX__V1__COMMAND_REF__REF_COMMAND_ID) {
			status_field(&st, "command", "the first message names it by command_id");
			cmd_call_fail(x, &st);
			return;
		}
		c = cmd_call_find_id(x, q->command->command_id);
		if (!c || !open_input(x, c))
			return;
		rpc_call_accept(call);
	}
	take_input(x, q->offset, &q->data, q->close);
}

static void on_input_end(struct rpc_call *call)
{
	struct cmd_call *x = rpc_call_user(call);

	if (x && x->op) { /* the last message is still on its way to the program */
		x->ended = true;
		return;
	}
	if (x)
		cmd_call_free(x, false);
	rpc_call_finish(call);
}

const struct rpc_handler command_input_handler = { .on_message = on_input, .on_end = on_input_end,
						   .on_gone = cmd_call_on_gone };
const struct rpc_handler command_close_input_handler = { .on_message = on_close_input,
							  .on_gone = cmd_call_on_gone };
