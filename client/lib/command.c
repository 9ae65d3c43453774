/* SPDX-License-Identifier: MIT */
/* CommandService: requests, and the two streams: events out of a command, input into one. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "proto/gen/agentbox_command.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/error.h"
#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "client/lib/obj.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define PATH(name)	 "/agentbox.v1.CommandService/" name
#define INPUT_DATA_FIELD 3u	/* `data` of SendInputRequest */

static int on_ack(struct ab_call *call, ProtobufCMessage *m)
{
	const Agentbox__V1__SendInputAck *ack = (Agentbox__V1__SendInputAck *)m;

	call->accepted = MAX(call->accepted, ack->accepted);
	protobuf_c_message_free_unpacked(m, NULL);
	return 0;
}

/* --- starting --- */

struct start_request {
	Agentbox__V1__StartCommandRequest req;
	Agentbox__V1__Argv argv;
	Agentbox__V1__TerminalSize pty;
	Google__Protobuf__Duration timeout, grace;
};

static int start_fill(struct start_request *s, const struct ab_command_options *o)
{
	Agentbox__V1__StartCommandRequest *req = &s->req;

	req->sandbox = (char *)o->sandbox;
	if (o->argv) {
		agentbox__v1__argv__init(&s->argv);
		s->argv.args = (char **)o->argv;
		while (o->argv[s->argv.n_args])
			s->argv.n_args++;
		req->what_case = AGENTBOX__V1__START_COMMAND_REQUEST__WHAT_ARGV;
		req->argv = &s->argv;
	} else if (o->shell) {
		req->what_case = AGENTBOX__V1__START_COMMAND_REQUEST__WHAT_SHELL;
		req->shell = (char *)o->shell;
	}
	req->cwd = (char *)o->cwd;
	req->user = (char *)o->user;
	req->command_timeout = msg_duration(&s->timeout, o->command_timeout_ms);
	req->kill_grace = msg_duration(&s->grace, o->kill_grace_ms);
	req->stdin = o->stdin_open;
	if (o->pty_cols || o->pty_rows) {
		agentbox__v1__terminal_size__init(&s->pty);
		s->pty.cols = o->pty_cols;
		s->pty.rows = o->pty_rows;
		req->pty = &s->pty;
	}
	req->detach = o->detach;
	req->spool_limit = o->spool_limit;
	req->overflow = (Agentbox__V1__Overflow)o->overflow;
	return msg_pairs(o->envs, o->n_envs,
			 &agentbox__v1__start_command_request__envs_entry__descriptor, &req->envs,
			 &req->n_envs);
}

static int command_begin(struct ab_client *c, const struct call_method *m,
			 const struct ab_command_options *o, const struct ab_call_options *how,
			 struct ab_call **ret)
{
	struct start_request s = { .req = AGENTBOX__V1__START_COMMAND_REQUEST__INIT };
	struct ab_call *call;
	int r;

	if (!o || str_is_empty(o->sandbox) || (o->shell && o->argv))
		return -EINVAL;
	r = str_is_empty(o->request_id) ? call_new(c, m, how, &call)
					: call_new_once(c, m, how, o->request_id, &s.req.request_id, &call);
	if (r < 0)
		return r;
	r = start_fill(&s, o);
	if (r == 0)
		r = call_submit(call, &s.req.base, ret);
	else
		call_destroy(call);
	free(s.req.envs);
	return r;
}

int ab_command_spawn_start(struct ab_client *c, const struct ab_command_options *o,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Start"),
		.reply = &agentbox__v1__command__descriptor,
		.make = msg_command,
	};

	return command_begin(c, &m, o, how, ret);
}

int ab_command_spawn(struct ab_client *c, const struct ab_command_options *o,
		     const struct ab_call_options *how, struct ab_command **ret)
{
	return wait_object(c, ab_command_spawn_start(c, o, how, &c->started), (void **)ret);
}

static const struct ab_error *on_events_end(struct ab_call *call)
{
	if (call->end_seen)
		return NULL;
	return error_local(AB_DATA_LOSS, R_TRUNCATED,
			   "the daemon ended the stream without saying how the command ended");
}

static int skip_event(struct ab_call *call)
{
	struct ab_command_event ev;

	return ab_command_next(call, &ev);
}

int ab_command_run_start(struct ab_client *c, const struct ab_command_options *o,
			 const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Run"),
		.reply = &agentbox__v1__command_event__descriptor,
		.skip = skip_event,
		.on_end = on_events_end,
		.no_deadline = true,
	};

	return command_begin(c, &m, o, how, ret);
}

int ab_command_attach_start(struct ab_client *c, const struct ab_command_ref *ref,
			    const struct ab_attach_options *o, const struct ab_call_options *how,
			    struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Attach"),
		.reply = &agentbox__v1__command_event__descriptor,
		.skip = skip_event,
		.on_end = on_events_end,
		.no_deadline = true,
	};
	static const struct ab_attach_options none;
	Agentbox__V1__AttachCommandRequest req = AGENTBOX__V1__ATTACH_COMMAND_REQUEST__INIT;
	Agentbox__V1__CommandRef command;
	Google__Protobuf__Timestamp since;
	int r = msg_ref(&command, ref);

	if (r < 0)
		return r;
	o = o ? o : &none;
	req.command = &command;
	req.stdout_offset = o->stdout_offset;
	req.stderr_offset = o->stderr_offset;
	req.pty_offset = o->pty_offset;
	req.from_end = o->from_end;
	req.since = msg_moment(&since, o->since_ms);
	if (o->no_follow) {
		req._follow_case = AGENTBOX__V1__ATTACH_COMMAND_REQUEST___FOLLOW_FOLLOW;
		req.follow = false;
	}
	r = call_start(c, &m, &req.base, how, ret);
	if (r == 0)
		(*ret)->end_seen = o->no_follow;	/* it may well end while the command runs */
	return r;
}

int ab_command_next(struct ab_call *call, struct ab_command_event *ret)
{
	struct ab_command_event ev;
	ProtobufCMessage *m;

	must(call->method->on_end == on_events_end);
	while (call_next_message(call, &m)) {
		obj_free(give(call->event));
		if (msg_event(m, &call->event, &ev) < 0)
			return call_fail(call, -ENOMEM);
		if (!ev.type)
			continue;
		if (ev.type == AB_EVENT_EXITED)
			call->end_seen = true;
		*ret = ev;
		return 1;
	}
	return 0;
}

/* --- about one --- */

int ab_command_wait_start(struct ab_client *c, const struct ab_command_ref *ref,
			  const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Wait"),
		.reply = &agentbox__v1__command_result__descriptor,
		.make = msg_result,
		.repeatable = true,
		.no_deadline = true,
	};
	Agentbox__V1__WaitCommandRequest req = AGENTBOX__V1__WAIT_COMMAND_REQUEST__INIT;
	Agentbox__V1__CommandRef command;
	int r = msg_ref(&command, ref);

	req.command = &command;
	return r < 0 ? r : call_start(c, &m, &req.base, how, ret);
}

int ab_command_wait(struct ab_client *c, const struct ab_command_ref *ref,
		    const struct ab_call_options *how, struct ab_command_result **ret)
{
	return wait_object(c, ab_command_wait_start(c, ref, how, &c->started), (void **)ret);
}

int ab_command_list_start(struct ab_client *c, const char *sandbox,
			  const struct ab_command_list_options *o, const struct ab_call_options *how,
			  struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("List"),
		.reply = &agentbox__v1__list_commands_response__descriptor,
		.make = msg_command_list,
		.repeatable = true,
	};
	Agentbox__V1__ListCommandsRequest req = AGENTBOX__V1__LIST_COMMANDS_REQUEST__INIT;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	if (o) {
		req.ended = o->ended;
		req.page_size = o->page_size;
		req.page_token = (char *)o->page_token;
	}
	return call_start(c, &m, &req.base, how, ret);
}

int ab_command_list(struct ab_client *c, const char *sandbox, const struct ab_command_list_options *o,
		    const struct ab_call_options *how, struct ab_command_list **ret)
{
	return wait_object(c, ab_command_list_start(c, sandbox, o, how, &c->started), (void **)ret);
}

int ab_command_close_input_start(struct ab_client *c, const struct ab_command_ref *ref,
				 const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("CloseInput"),
		.reply = &agentbox__v1__close_input_response__descriptor,
		.repeatable = true,
	};
	Agentbox__V1__CloseInputRequest req = AGENTBOX__V1__CLOSE_INPUT_REQUEST__INIT;
	Agentbox__V1__CommandRef command;
	int r = msg_ref(&command, ref);

	req.command = &command;
	return r < 0 ? r : call_start(c, &m, &req.base, how, ret);
}

int ab_command_close_input(struct ab_client *c, const struct ab_command_ref *ref,
			   const struct ab_call_options *how)
{
	return wait_object(c, ab_command_close_input_start(c, ref, how, &c->started), NULL);
}

int ab_command_signal_start(struct ab_client *c, const struct ab_command_ref *ref, int signal,
			    const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Signal"),
		.reply = &agentbox__v1__signal_command_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__SignalCommandResponse, found),
	};
	Agentbox__V1__SignalCommandRequest req = AGENTBOX__V1__SIGNAL_COMMAND_REQUEST__INIT;
	Agentbox__V1__CommandRef command;
	int r = msg_ref(&command, ref);

	if (r == 0 && signal != SIGTERM && signal != SIGKILL)
		r = -EINVAL;
	req.command = &command;
	req.signal = (Agentbox__V1__SignalCommandRequest__Signal)signal;
	return r < 0 ? r : call_start(c, &m, &req.base, how, ret);
}

int ab_command_signal(struct ab_client *c, const struct ab_command_ref *ref, int signal,
		      const struct ab_call_options *how, bool *ret_found)
{
	return wait_answer(c, ab_command_signal_start(c, ref, signal, how, &c->started), ret_found);
}

int ab_command_kill_start(struct ab_client *c, const struct ab_command_ref *ref,
			  const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Kill"),
		.reply = &agentbox__v1__kill_command_response__descriptor,
		.make = msg_kill_result,
	};
	Agentbox__V1__KillCommandRequest req = AGENTBOX__V1__KILL_COMMAND_REQUEST__INIT;
	Agentbox__V1__CommandRef command;
	int r = msg_ref(&command, ref);

	req.command = &command;
	return r < 0 ? r : call_start(c, &m, &req.base, how, ret);
}

int ab_command_kill(struct ab_client *c, const struct ab_command_ref *ref,
		    const struct ab_call_options *how, struct ab_kill_result **ret)
{
	return wait_object(c, ab_command_kill_start(c, ref, how, &c->started), (void **)ret);
}

int ab_command_resize_start(struct ab_client *c, const struct ab_command_ref *ref, uint32_t cols, uint32_t rows,
			    const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Resize"),
		.reply = &agentbox__v1__resize_response__descriptor,
		.repeatable = true,
	};
	Agentbox__V1__ResizeRequest req = AGENTBOX__V1__RESIZE_REQUEST__INIT;
	Agentbox__V1__TerminalSize size = AGENTBOX__V1__TERMINAL_SIZE__INIT;
	Agentbox__V1__CommandRef command;
	int r = msg_ref(&command, ref);

	size.cols = cols;
	size.rows = rows;
	req.command = &command;
	req.size = &size;
	return r < 0 ? r : call_start(c, &m, &req.base, how, ret);
}

int ab_command_resize(struct ab_client *c, const struct ab_command_ref *ref, uint32_t cols, uint32_t rows,
		      const struct ab_call_options *how)
{
	return wait_object(c, ab_command_resize_start(c, ref, cols, rows, how, &c->started), NULL);
}

/* --- input --- */

static const struct call_method input_method = {
	.path = PATH("SendInput"),
	.reply = &agentbox__v1__send_input_ack__descriptor,
	.on_reply = on_ack,
	.no_deadline = true,
	.puts = true,
	.replies_optional = true,
};

int ab_command_input_start(struct ab_client *c, const struct ab_command_ref *ref, uint64_t offset,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	Agentbox__V1__SendInputRequest req = AGENTBOX__V1__SEND_INPUT_REQUEST__INIT;
	Agentbox__V1__CommandRef command;
	int r = msg_ref(&command, ref);

	if (r < 0)
		return r;
	req.command = &command;
	req.offset = offset;
	r = call_start(c, &input_method, &req.base, how, ret);
	if (r == 0) {
		(*ret)->bytes = offset;
		(*ret)->accepted = offset;
	}
	return r;
}

static int input_message(struct ab_call *call, const void *data, size_t n, bool close)
{
	Agentbox__V1__SendInputRequest req = AGENTBOX__V1__SEND_INPUT_REQUEST__INIT;
	uint8_t head[PUT_HEAD_BYTES];

	req.offset = call->bytes;
	req.close = close;
	must(agentbox__v1__send_input_request__get_packed_size(&req) <= sizeof(head));
	call->bytes += n;
	return call_put(call, head, agentbox__v1__send_input_request__pack(&req, head), INPUT_DATA_FIELD,
			data, n);
}

static int put_input(struct ab_call *call, const void *data, size_t n)
{
	return input_message(call, data, n, false);
}

ptrdiff_t ab_input_put(struct ab_call *call, const void *data, size_t n)
{
	(void)call_enter(call);
	must(call->method == &input_method);
	return call_put_pieces(call, data, n, put_input);
}

int ab_input_finish(struct ab_call *call, bool close)
{
	int r = 0;

	(void)call_enter(call);
	must(call->method == &input_method);
	if (close && call->state != CALL_DONE && !call->finished)
		r = input_message(call, NULL, 0, true);
	return r < 0 ? r : call_put_end(call);
}

uint64_t ab_input_accepted(const struct ab_call *call)
{
	return call->accepted;
}

static int send_input(struct ab_client *c, const struct ab_command_ref *ref, uint64_t offset, const void *data, size_t n, bool close,
		      const struct ab_call_options *how, struct ab_call **ret)
{
	struct ab_call *call;
	int r = ab_command_input_start(c, ref, offset, how, &call);

	if (r < 0)
		return r;
	if (wait_put(call, data, n, ab_input_put))
		(void)ab_input_finish(call, close);
	(void)ab_call_wait(call);
	*ret = call;
	return 0;
}

int ab_command_send_input(struct ab_client *c, const struct ab_command_ref *ref, uint64_t offset,
			  const void *data, size_t n, bool close, const struct ab_call_options *how,
			  uint64_t *ret_accepted)
{
	struct ab_call *call = NULL;
	struct repeat again;
	uint64_t accepted = offset;
	int r;

	repeat_init(&again, c, how);
	again.is_input = true;
	do {	/* as a whole: the daemon drops what was accepted */
		ab_call_free(give(call));
		r = c->in_callback ? -EDEADLK : send_input(c, ref, offset, data, n, close, &again.how, &call);
		if (r < 0)
			return wait_object(c, r, NULL);
		if (call->accepted > accepted)
			repeat_heard(&again);
		accepted = MAX(accepted, call->accepted);
	} while (repeat_may(&again, call->error));
	if (ret_accepted && !call->error)
		*ret_accepted = call->accepted;
	return wait_end(c, call);
}
