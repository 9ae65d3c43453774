/* SPDX-License-Identifier: MIT */
/*
 * CommandService. Each call has a small context (struct cmd_call) that owns what works for it; it
 * ends with the call: by an answer, or by on_gone. Streams pull from a reader while the call has
 * room, so a client that does not read leaves its output in the spool.
 */
#include "daemon/rpc/svc_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/rpc/call.h"
#include "daemon/rpc/check.h"
#include "daemon/rpc/command_call.h"
#include "daemon/rpc/command_msg.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/pending.h"
#include "daemon/rpc/server.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/gen/agentbox_command.pb-c.h"

#define PIECE_BYTES (64u * 1024) /* of output per message … */
#define PIECE_LEAST 2048u	 /* … and where there is little room for it */

struct cmd_call *cmd_call_new(struct rpc_call *call)
{
	struct cmd_call *x = rpc_call_new_user(call, sizeof(*x));

	if (!x)
		return NULL;
	x->call = call;
	x->commands = rpc_call_service(call);
	return x;
}

void cmd_call_free(struct cmd_call *x, bool end_it)
{
	command_op_cancel(x->op, end_it && x->run && !x->detach);
	command_reader_free(x->reader, end_it && x->run);
	if (x->input_open)
		command_input_close(x->command);
	command_unref(x->command);
	free(x);
}

void cmd_call_fail(struct cmd_call *x, const struct status *st)
{
	struct rpc_call *call = x->call;

	cmd_call_free(x, false);
	rpc_call_fail(call, st);
}

void cmd_call_fail_errno(struct cmd_call *x, int err)
{
	struct status st;

	status_errno(&st, err, "command call");
	cmd_call_fail(x, &st);
}

void cmd_call_reply(struct cmd_call *x, const ProtobufCMessage *m)
{
	struct rpc_call *call = x->call;

	rpc_call_reply(call, m);
	cmd_call_free(x, false);
}

/* Nobody listens any more. A deadline, or our own end, is not a cancel. */
void cmd_call_on_gone(struct rpc_call *call, enum rpc_gone why)
{
	struct cmd_call *x = rpc_call_user(call);

	if (x)
		cmd_call_free(x, why == RPC_GONE_CANCELLED || why == RPC_GONE_LOST);
}

/* --- streams of events: Run, Attach --- */

static void send_event(struct cmd_call *x, Agentbox__V1__CommandEvent__EventCase which, void *m)
{
	Agentbox__V1__CommandEvent e = AGENTBOX__V1__COMMAND_EVENT__INIT;

	e.event_case = which;
	e.started = m; /* a union of pointers */
	rpc_call_send(x->call, &e.base);
}

static void send_gap(struct cmd_call *x, const struct spool_piece *p)
{
	Agentbox__V1__Gap gap = AGENTBOX__V1__GAP__INIT;

	gap.stream = (Agentbox__V1__Output__Stream)p->stream;
	gap.offset = p->offset;
	gap.size = p->size;
	gap.size_known = p->size_known;
	gap.reason = (char *)p->reason;
	send_event(x, AGENTBOX__V1__COMMAND_EVENT__EVENT_GAP, &gap);
}

/* The bytes go from where they lie to where they are sent from. */
static void send_output(struct cmd_call *x, const struct spool_piece *p)
{
	uint8_t head[COMMAND_MSG_HEAD_MAX];

	rpc_call_send_encoded(x->call, head, command_msg_output_head(p, head), p->data, p->size);
}

static void send_exit(struct cmd_call *x)
{
	struct rpc_call *call = x->call;
	struct command_view v;
	struct result_message r;

	command_look(command_reader_command(x->reader), &v);
	send_event(x, AGENTBOX__V1__COMMAND_EVENT__EVENT_EXITED, command_msg_result(&r, &v));
	cmd_call_free(x, false);
	rpc_call_finish(call);
}

static void feed(struct cmd_call *x)
{
	static uint8_t bytes[PIECE_BYTES];
	struct spool_piece p;
	size_t room;

	while ((room = rpc_call_room(x->call))) {
		room = MIN(MAX(room, (size_t)PIECE_LEAST), sizeof(bytes));
		switch (command_reader_next(x->reader, x->follow, bytes, room, &p)) {
		case COMMAND_READ_PIECE:
			if (p.gap)
				send_gap(x, &p);
			else
				send_output(x, &p);
			break;
		case COMMAND_READ_NOTHING:
			return;
		case COMMAND_READ_ENDED:
			send_exit(x);
			return;
		case COMMAND_READ_CAUGHT_UP: {
			struct rpc_call *call = x->call;

			cmd_call_free(x, false);
			rpc_call_finish(call);
			return;
		}
		}
	}
}

static void on_reader_ready(struct command_reader *r, void *user)
{
	feed(user);
}

static void on_room(struct rpc_call *call)
{
	struct cmd_call *x = rpc_call_user(call);

	if (x && x->reader)
		feed(x);
}

static void svc_command_on_silence(struct rpc_call *call)
{
	struct cmd_call *x = rpc_call_user(call);
	Agentbox__V1__Heartbeat beat = AGENTBOX__V1__HEARTBEAT__INIT;

	if (x)
		send_event(x, AGENTBOX__V1__COMMAND_EVENT__EVENT_HEARTBEAT, &beat);
}

static void begin_stream(struct cmd_call *x, struct command *c)
{
	struct command_message m;
	struct command_view v;
	int r = command_reader_new(c, &x->from, on_reader_ready, x, &x->reader);

	if (!r) {
		command_look(c, &v);
		r = command_msg_fill(&m, &v);
	}
	if (r < 0) {
		cmd_call_fail_errno(x, r);
		return;
	}
	send_event(x, AGENTBOX__V1__COMMAND_EVENT__EVENT_STARTED, &m.m);
	command_msg_fini(&m);
	feed(x);
}

/* --- starting --- */

static void on_started(void *user, const struct status *st, struct command *c)
{
	struct cmd_call *x = user;
	struct command_message m;
	struct command_view v;

	x->op = NULL;
	if (!status_ok(st)) {
		cmd_call_fail(x, st);
		return;
	}
	if (x->run) {
		x->from = (struct command_read_from){ .run = true };
		begin_stream(x, c);
		return;
	}
	command_look(c, &v);
	if (command_msg_fill(&m, &v) < 0) {
		cmd_call_fail_errno(x, ENOMEM);
		return;
	}
	cmd_call_reply(x, &m.m.base);
	command_msg_fini(&m);
}

static bool check_program(const Agentbox__V1__StartCommandRequest *q, struct command_start *s,
			  struct status *st)
{
	switch (q->what_case) {
	case AGENTBOX__V1__START_COMMAND_REQUEST__WHAT_SHELL:
		s->shell = q->shell;
		return check_required(q->shell, "shell", st);
	case AGENTBOX__V1__START_COMMAND_REQUEST__WHAT_ARGV:
		if (!q->argv->n_args || !q->argv->args[0][0]) {
			status_field(st, "argv", "is empty; its first element is the program");
			return false;
		}
		s->args = (const char *const *)q->argv->args;
		s->n_args = q->argv->n_args;
		return true;
	default:
		if (s->pty)
			return true; /* its user's shell */
		status_field(st, "shell", "give a shell command line, or argv");
		return false;
	}
}

static bool check_size(const Agentbox__V1__TerminalSize *size, const char *field, uint32_t *ret_cols,
		       uint32_t *ret_rows, struct status *st)
{
	if (!size || size->cols < 1 || size->cols > UINT16_MAX || size->rows < 1 ||
	    size->rows > UINT16_MAX) {
		status_field(st, field, "cols and rows are 1 to %u, both", UINT16_MAX);
		return false;
	}
	*ret_cols = size->cols;
	*ret_rows = size->rows;
	return true;
}

static bool check_request_id(const char *id, struct status *st)
{
	if (str_is_empty(id) || rules_request_id_is_valid(id))
		return true;
	status_field(st, "request_id", "is not 1 to %u printable bytes", RULES_REQUEST_ID_MAX);
	return false;
}

static bool check_start(const Agentbox__V1__StartCommandRequest *q, struct command_start *s,
			struct status *st)
{
	uint64_t grace = 0;

	s->pty = q->pty != NULL;
	if (!check_request_id(q->request_id, st) || !check_required(q->sandbox, "sandbox", st) ||
	    (q->pty && !check_size(q->pty, "pty", &s->cols, &s->rows, st)) ||
	    !check_program(q, s, st) ||
	    !msg_read_duration(q->command_timeout, "command_timeout", false, &s->timeout_ms, st) ||
	    !msg_read_duration(q->kill_grace, "kill_grace", true, &grace, st))
		return false;
	if (q->overflow != AGENTBOX__V1__OVERFLOW__OVERFLOW_UNSPECIFIED &&
	    q->overflow != AGENTBOX__V1__OVERFLOW__BLOCK &&
	    q->overflow != AGENTBOX__V1__OVERFLOW__DROP_OLDEST) {
		status_field(st, "overflow", "is %d; give BLOCK or DROP_OLDEST", (int)q->overflow);
		return false;
	}
	for (size_t i = 0; i < q->n_envs; i++)
		if (str_is_empty(q->envs[i]->key) || strchr(q->envs[i]->key, '=')) {
			status_field(st, "envs", "a name is empty or holds '='");
			return false;
		}
	s->kill_grace_ms = q->kill_grace ? (int64_t)grace : -1;
	s->overflow = (enum command_overflow)q->overflow;
	s->request_id = q->request_id;
	s->sandbox = q->sandbox;
	s->cwd = q->cwd;
	s->user = q->user;
	s->stdin_open = q->stdin;
	s->detach = q->detach;
	s->spool_limit = q->spool_limit;
	return true;
}

static void svc_command_start(struct rpc_call *call, const ProtobufCMessage *message, bool run)
{
	/* The call owns the message; hashing puts it back as it was. */
	Agentbox__V1__StartCommandRequest *q = (Agentbox__V1__StartCommandRequest *)message;
	struct cmd_call *x = cmd_call_new(call);
	struct command_start s = { .who = rpc_call_who(call), .trace = rpc_call_trace(call), .blocking_reader = run };
	struct sandbox_pair *envs;
	struct status st;
	int r = 0;

	if (!x)
		return;
	if (!check_start(q, &s, &st)) {
		cmd_call_fail(x, &st);
		return;
	}
	x->run = run;
	x->follow = true;
	x->detach = q->detach;
	s.deadline_ms = rpc_call_deadline_ms(call);
	if (!str_is_empty(q->request_id))
		r = pending_hash(message, &q->request_id, s.params_hash);
	envs = msg_read_pairs((ProtobufCMessage **)q->envs, q->n_envs);
	s.envs = envs;
	s.n_envs = q->n_envs;
	if (q->n_envs && !envs)
		r = -ENOMEM;
	if (!r)
		r = commands_start(x->commands, &s, on_started, x, &x->op);
	free(envs);
	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void on_start(struct rpc_call *call, const ProtobufCMessage *message)
{
	svc_command_start(call, message, false);
}

static void on_run(struct rpc_call *call, const ProtobufCMessage *message)
{
	svc_command_start(call, message, true);
}

/* --- references --- */

static void on_found(void *user, const struct status *st, struct command *c)
{
	struct cmd_call *x = user;

	x->op = NULL;
	if (status_ok(st))
		x->with(x, c);
	else
		cmd_call_fail(x, st);
}

struct command *cmd_call_find_id(struct cmd_call *x, const char *id)
{
	struct command *c = commands_find(x->commands, rpc_call_who(x->call), id);
	struct status st;

	if (c)
		return c;
	status_set(&st, R_PROCESS_NOT_FOUND, "there is no command %.64s of yours", id);
	cmd_call_fail(x, &st);
	return NULL;
}

void cmd_call_find(struct cmd_call *x, const Agentbox__V1__CommandRef *ref)
{
	const struct principal *who = rpc_call_who(x->call);
	struct command *c = NULL;
	struct status st;
	int r = 0;

	if (!ref || ref->ref_case == AGENTBOX__V1__COMMAND_REF__REF__NOT_SET) {
		status_field(&st, "command", "is required: a command_id, or sandbox and pid");
		cmd_call_fail(x, &st);
		return;
	}
	if (ref->ref_case == AGENTBOX__V1__COMMAND_REF__REF_COMMAND_ID) {
		c = cmd_call_find_id(x, ref->command_id);
		if (c && x->acts && !command_is_reached(c))
			r = command_reach(c, on_found, x, &x->op);
		else if (c)
			x->with(x, c);
		if (r < 0)
			cmd_call_fail_errno(x, r);
		return;
	}
	if (!check_required(ref->sandbox, "command.sandbox", &st)) {
		cmd_call_fail(x, &st);
		return;
	}
	if (!ref->pid) {
		status_field(&st, "command.pid", "is 0");
		cmd_call_fail(x, &st);
		return;
	}
	r = commands_find_pid(x->commands,
			      &(struct sandbox_call){.who = who,
						     .sandbox = ref->sandbox,
						     .deadline_ms = rpc_call_deadline_ms(x->call),
						     .user = x},
			      ref->pid, on_found, &x->op);
	if (r < 0)
		cmd_call_fail_errno(x, r);
}

/* Set, or ended meanwhile: its output is to be had. */
static void on_sized_for_attach(void *user, const struct status *st)
{
	struct cmd_call *x = user;

	x->op = NULL;
	if (status_ok(st) || st->reason == R_PROCESS_NOT_FOUND)
		begin_stream(x, x->command);
	else
		cmd_call_fail(x, st);
}

static void set_size(struct cmd_call *x, struct command *c)
{
	int r;

	x->command = command_ref(c);
	r = command_resize(c, x->cols, x->rows, on_sized_for_attach, x, &x->op);
	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void attach(struct cmd_call *x, struct command *c)
{
	static const char *const names[] = { NULL, "stdout_offset", "stderr_offset", "pty_offset" };
	struct command_view v;
	struct status st;

	command_look(c, &v);
	for (unsigned s = SPOOL_STDOUT; s < SPOOL_STREAMS; s++) {
		if (x->from.offset[s] <= v.end[s])
			continue;
		status_field(&st, names[s], "is %llu, beyond the %llu bytes that came so far",
			     (unsigned long long)x->from.offset[s], (unsigned long long)v.end[s]);
		cmd_call_fail(x, &st);
		return;
	}
	if (x->cols && !v.result)
		set_size(x, c);
	else
		begin_stream(x, c);
}

static bool check_where_to_begin(const Agentbox__V1__AttachCommandRequest *q, int64_t *ret_since_ms, struct status *st)
{
	if (q->from_end && (q->stdout_offset || q->stderr_offset || q->pty_offset))
		status_field(st, "from_end", "is set together with an offset; give one of them");
	else if (q->from_end && q->since)
		status_field(st, "from_end", "is set together with since; give one of them");
	else
		return msg_read_time(q->since, "since", ret_since_ms, st);
	return false;
}

static void on_attach(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__AttachCommandRequest *q = (const void *)message;
	struct cmd_call *x = cmd_call_new(call);
	struct status st;

	if (!x)
		return;
	x->follow = q->_follow_case == AGENTBOX__V1__ATTACH_COMMAND_REQUEST___FOLLOW__NOT_SET || q->follow;
	x->from.offset[SPOOL_STDOUT] = q->stdout_offset;
	x->from.offset[SPOOL_STDERR] = q->stderr_offset;
	x->from.offset[SPOOL_PTY] = q->pty_offset;
	x->from.from_end = q->from_end;
	x->from.timed = q->since != NULL;
	x->with = attach;
	if (q->resize && !check_size(q->resize, "resize", &x->cols, &x->rows, &st)) {
		cmd_call_fail(x, &st);
		return;
	}
	x->acts = x->cols != 0;
	if (check_where_to_begin(q, &x->from.since_ms, &st))
		cmd_call_find(x, q->command);
	else
		cmd_call_fail(x, &st);
}

/* --- Resize --- */

static void on_resized(void *user, const struct status *st)
{
	struct cmd_call *x = user;
	Agentbox__V1__ResizeResponse m = AGENTBOX__V1__RESIZE_RESPONSE__INIT;

	x->op = NULL;
	if (status_ok(st))
		cmd_call_reply(x, &m.base);
	else
		cmd_call_fail(x, st);
}

static void resize(struct cmd_call *x, struct command *c)
{
	int r = command_resize(c, x->cols, x->rows, on_resized, x, &x->op);

	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void on_resize(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__ResizeRequest *q = (const void *)message;
	struct cmd_call *x = cmd_call_new(call);
	struct status st;

	if (!x)
		return;
	x->with = resize;
	x->acts = true;
	if (check_size(q->size, "size", &x->cols, &x->rows, &st))
		cmd_call_find(x, q->command);
	else
		cmd_call_fail(x, &st);
}

/* --- Wait --- */

static void on_wait_ready(struct command_reader *r, void *user)
{
	struct cmd_call *x = user;
	struct command *c = command_reader_command(r);
	struct result_message m;
	struct command_view v;

	if (!command_result(c))
		return;
	command_look(c, &v);
	cmd_call_reply(x, &command_msg_result(&m, &v)->base);
}

static void wait_for(struct cmd_call *x, struct command *c)
{
	struct command_read_from from = { .from_end = true };
	int r = command_reader_new(c, &from, on_wait_ready, x, &x->reader);

	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void on_wait(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__WaitCommandRequest *q = (const void *)message;
	struct cmd_call *x = cmd_call_new(call);

	if (!x)
		return;
	x->with = wait_for;
	cmd_call_find(x, q->command);
}

/* --- Signal, Kill --- */

static void on_killed(void *user, const struct status *st, bool found, const uint32_t *survivors, size_t n)
{
	struct cmd_call *x = user;
	Agentbox__V1__KillCommandResponse m = AGENTBOX__V1__KILL_COMMAND_RESPONSE__INIT;

	x->op = NULL;
	if (!status_ok(st)) {
		cmd_call_fail(x, st);
		return;
	}
	m.found = found;
	m.survivors = (uint32_t *)survivors;
	m.n_survivors = n;
	cmd_call_reply(x, &m.base);
}

static void on_signalled(void *user, const struct status *st, bool found, const uint32_t *survivors,
			 size_t n)
{
	struct cmd_call *x = user;
	Agentbox__V1__SignalCommandResponse m = AGENTBOX__V1__SIGNAL_COMMAND_RESPONSE__INIT;

	x->op = NULL;
	if (!status_ok(st)) {
		cmd_call_fail(x, st);
		return;
	}
	m.found = found;
	cmd_call_reply(x, &m.base);
}

static void signal_it(struct cmd_call *x, struct command *c)
{
	int r = command_signal(c, x->signo, rpc_call_deadline_ms(x->call), on_signalled, x, &x->op);

	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void kill_it(struct cmd_call *x, struct command *c)
{
	int r = command_kill(c, on_killed, x, &x->op);

	if (r < 0)
		cmd_call_fail_errno(x, r);
}

static void on_signal(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__SignalCommandRequest *q = (const void *)message;
	struct cmd_call *x = cmd_call_new(call);
	struct status st;

	if (!x)
		return;
	x->signo = (int)q->signal;
	x->with = signal_it;
	x->acts = true;
	if (x->signo != 9 && x->signo != 15) {
		status_field(&st, "signal", "is %d; give KILL or TERM", x->signo);
		cmd_call_fail(x, &st);
		return;
	}
	cmd_call_find(x, q->command);
}

static void on_kill(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__KillCommandRequest *q = (const void *)message;
	struct cmd_call *x = cmd_call_new(call);

	if (!x)
		return;
	x->with = kill_it;
	cmd_call_find(x, q->command);
}

/* --- List --- */

#define PLACE_OF_PID "pid:"

/* A command that has ended, or is forgotten, before the next page is asked for leaves its place behind. */
static char *token_behind(const struct command_view *v, uint64_t question)
{
	struct page_place place = { .started_at_ms = v->started_at_ms };

	if (v->id[0])
		(void)str_copy(place.id, sizeof(place.id), v->id);
	else
		snprintf(place.id, sizeof(place.id), PLACE_OF_PID "%u", v->pid);
	return page_token(&place, question);
}

static bool is_behind(const struct command_view *v, const struct page_place *last)
{
	struct command_view at = { .id = last->id, .started_at_ms = last->started_at_ms };
	uint64_t pid = 0;

	if (str_starts(last->id, PLACE_OF_PID)) {
		at.id = "";
		if (str_u64(last->id + strlen(PLACE_OF_PID), strlen(last->id) - strlen(PLACE_OF_PID), UINT32_MAX, &pid) < 0)
			return false;
		at.pid = (uint32_t)pid;
	}
	return command_view_cmp(v, &at) > 0;
}

static void send_page(struct cmd_call *x, const struct command_view *v, size_t n, bool more)
{
	Agentbox__V1__ListCommandsResponse m = AGENTBOX__V1__LIST_COMMANDS_RESPONSE__INIT;
	struct command_message *c = calloc(n + 1, sizeof(*c));
	char *token = NULL;
	size_t filled = 0, bytes = 0, fit = 0;

	m.commands = calloc(n + 1, sizeof(*m.commands));
	while (c && m.commands && filled < n && fit == filled && command_msg_fill(&c[filled], &v[filled]) == 0) {
		m.commands[filled] = &c[filled].m;
		fit += check_page_room(&bytes, &c[filled].m.base);
		filled++;
	}
	more |= fit < n;
	if (!c || !m.commands || (filled < n && fit == filled) || (more && !(token = token_behind(&v[fit - 1], x->question)))) {
		cmd_call_fail_errno(x, ENOMEM);
	} else {
		m.n_commands = fit;
		m.next_page_token = token ? token : (char *)"";
		cmd_call_reply(x, &m.base);
	}
	free(token);
	while (filled)
		command_msg_fini(&c[--filled]);
	free(c);
	free(m.commands);
}

static void svc_command_on_listed(void *user, const struct status *st, const struct command_view *v,
				  size_t n)
{
	struct cmd_call *x = user;
	size_t from = 0, k;

	x->op = NULL;
	if (!status_ok(st)) {
		cmd_call_fail(x, st);
		return;
	}
	while (x->behind && from < n && !is_behind(&v[from], &x->last))
		from++;
	k = MIN(n - from, x->page_size);
	send_page(x, v + from, k, from + k < n);
}

static void svc_command_on_list(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__ListCommandsRequest *q = (const void *)message;
	struct cmd_call *x = cmd_call_new(call);
	struct status st;
	int r;

	if (!x)
		return;
	if (!check_required(q->sandbox, "sandbox", &st) ||
	    !check_page_size(q->page_size, &x->page_size, &st)) {
		cmd_call_fail(x, &st);
		return;
	}
	x->question = page_hash(page_hash(PAGE_HASH, q->ended ? "ended" : "running"), q->sandbox);
	x->behind = !str_is_empty(q->page_token);
	if (x->behind && page_token_parse(q->page_token, x->question, &x->last) < 0) {
		status_field(&st, "page_token", "is not one that this list gave out");
		cmd_call_fail(x, &st);
		return;
	}
	r = commands_list(x->commands,
				  &(struct sandbox_call){.who = rpc_call_who(call),
							 .sandbox = q->sandbox,
							 .deadline_ms = rpc_call_deadline_ms(call),
							 .user = x},
				  q->ended, svc_command_on_listed, &x->op);
	if (r < 0)
		cmd_call_fail_errno(x, r);
}

/* --- the table --- */

#define UNARY(id, fn)                                                                              \
	static const struct rpc_handler id = { .on_message = fn, .on_gone = cmd_call_on_gone }

UNARY(h_start, on_start);
UNARY(h_wait, on_wait);
UNARY(h_list, svc_command_on_list);
UNARY(h_signal, on_signal);
UNARY(h_kill, on_kill);
UNARY(h_resize, on_resize);
static const struct rpc_handler h_run = {.on_message = on_run,
					 .on_room = on_room,
					 .on_silence = svc_command_on_silence,
					 .on_gone = cmd_call_on_gone};
static const struct rpc_handler h_attach = {.on_message = on_attach,
					    .on_room = on_room,
					    .on_silence = svc_command_on_silence,
					    .on_gone = cmd_call_on_gone};

#define PATH(name) "/agentbox.v1.CommandService/" name
static const struct rpc_method svc_command_methods[] = {
	{ PATH("Start"), RPC_UNARY, false, &agentbox__v1__start_command_request__descriptor, &h_start,
	  .effect = RPC_BEGINS },
	{ PATH("Run"), RPC_SERVER_STREAM, false, &agentbox__v1__start_command_request__descriptor, &h_run,
	  .effect = RPC_BEGINS },
	{ PATH("Attach"), RPC_SERVER_STREAM, false, &agentbox__v1__attach_command_request__descriptor,
	  &h_attach, .effect = RPC_READS },
	{ PATH("Wait"), RPC_UNARY, true, &agentbox__v1__wait_command_request__descriptor, &h_wait, .effect = RPC_READS },
	{ PATH("List"), RPC_UNARY, false, &agentbox__v1__list_commands_request__descriptor, &h_list, .effect = RPC_READS },
	{ PATH("SendInput"), RPC_BIDI, false, &agentbox__v1__send_input_request__descriptor,
	  &command_input_handler },
	{ PATH("CloseInput"), RPC_UNARY, false, &agentbox__v1__close_input_request__descriptor,
	  &command_close_input_handler },
	{ PATH("Signal"), RPC_UNARY, false, &agentbox__v1__signal_command_request__descriptor, &h_signal,
	  RPC_STOP_ONCE },
	{ PATH("Kill"), RPC_UNARY, true, &agentbox__v1__kill_command_request__descriptor, &h_kill },
	{ PATH("Resize"), RPC_UNARY, false, &agentbox__v1__resize_request__descriptor, &h_resize, .effect = RPC_KEEPS },
};

int svc_command_add(struct rpc_server *s, struct commands *commands)
{
	return rpc_server_add(s, svc_command_methods, ARRAY_SIZE(svc_command_methods), commands);
}
