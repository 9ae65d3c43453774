/* SPDX-License-Identifier: MIT */
/*
 * A Start or a Connect of the agent's Process service whose command is the daemon's (daemon/command). The client gets what the agent
 * would send, but for what docs/internals/gateway.md names.
 *
 *   request   client → relay.c, which reads it whole (at most DURABLE_BODY_MAX, charged to the connection) → here, decoded
 *   command   owned by daemon/command: row, upstream stream, spool; it lives on when this stream, the client or the daemon goes
 *   output    upstream → spool → this stream's reader → one envelope at a time into the client's exchange, while that has room.
 *             Nothing waits here; a client that does not read holds its reader back, and so the command, as at the agent
 *   end       what the agent said; a gap, or an end that nobody knows, is `unavailable`; where the sandbox is gone the exchange is cut.
 *             A Connect that has not begun gets the edge's and the agent's words for a sandbox and a process that are not there
 *
 * The client's end ends the reader and nothing else.
 */
#include "daemon/gateway/durable.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/reply.h"
#include "daemon/gateway/access.h"
#include "daemon/gateway/impl.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "proto/gen/envd_process.pb-c.h"
#include "proto/wire/h2.h"
#include "proto/wire/trace.h"

#define DURABLE_MAGIC  0x64757261u
#define PIECES_PER_PASS 64u	/* then others have their turn */
#define JOIN_MS		60000u	/* a Connect waits so long for the daemon's own stream, as a relayed request for a sandbox */
#define LOST_MS		5000u	/* to find out whether the sandbox is gone, once that stream is lost */

#define LOST_TEXT "the connection to the sandbox was lost, and output of the command may be missing"

struct gateway_durable {
	uint32_t magic;
	struct list node;		/* in gateway.durables */
	struct gateway *g;
	struct http_stream *x;		/* the client's */
	struct durable_ask ask;
	struct who_peer peer;
	struct token *token;		/* a reference; NULL = none was shown */
	struct principal who;		/* the sandbox's owner, whose command it is */
	char *sandbox;
	struct command *c;		/* a reference: of Connect, until there is a reader */
	struct command_op *op;		/* a start under way */
	struct command_reader *reader;
	struct timer deadline, keepalive;
	struct timer unattached;	/* the command has no stream: of the daemon's patience */
	struct defer again;		/* there is more to read, in the next pass */
	struct buf out;			/* one envelope, or the first ones */
	bool over, head_sent;
	bool has_begun;			/* its first event was sent */
	bool was_paused;		/* of a Connect that has not begun: its sandbox was, when it was looked at last */
	struct quota *quota;
	size_t charged;
	struct grave grave;
};

static void send_start(struct gateway_durable *d);

static struct gateway_durable *durable_from(void *p)
{
	struct gateway_durable *d = p;

	must(d && d->magic == DURABLE_MAGIC);
	return d;
}

/* --- the end --- */

static void bury(void *p)
{
	struct gateway_durable *d = durable_from(p);

	d->magic = 0;
	buf_fini(&d->out);
	durable_ask_fini(&d->ask);
	command_unref(d->c);
	quota_give(d->quota, d->charged);
	quota_unref(d->quota);
	token_unref(d->token);
	free(d->sandbox);
	free(d);
}

/* The client's exchange is the caller's now. The command goes on. */
static struct http_stream *end(struct gateway_durable *d)
{
	must(!d->over);
	d->over = true;
	list_del(&d->node);
	d->g->counts.relays--;
	timer_clear(&d->deadline);
	timer_clear(&d->keepalive);
	timer_clear(&d->unattached);
	defer_cancel(&d->again);
	command_op_cancel(give(d->op), false);
	d->reader = command_reader_free(d->reader, false);
	loop_bury(d->g->loop, &d->grave, bury, d);
	return give(d->x);
}

static void cut(struct gateway_durable *d)
{
	struct http_stream *x = end(d);

	http_stream_reset(x, H2_CANCEL);
	http_stream_detach(x);
}

static int send_head(struct gateway_durable *d)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	int r;

	if (d->head_sent)
		return 0;
	r = fields_put(&head, ":status", "200");
	if (!r)
		r = fields_put(&head, "content-type", d->ask.is_json ? "application/connect+json" : "application/connect+proto");
	if (!r)
		r = fields_put(&head, "connect-accept-encoding", "gzip");
	if (!r)
		r = reply_add_cors(d->x, &head);
	if (!r)
		r = http_stream_respond(d->x, &head, false);
	d->head_sent = r == 0;
	return r;
}

/* What is in d->out. -EPIPE is no failure: the news of its end is on the way. */
static int flush(struct gateway_durable *d)
{
	int r = send_head(d);

	if (!r)
		r = http_stream_write(d->x, buf_data(&d->out), buf_len(&d->out));
	if (!r)
		d->g->counts.relayed_down += buf_len(&d->out);
	buf_drop(&d->out, buf_len(&d->out));
	return r == -EPIPE ? 0 : r;
}

static void close_with(struct gateway_durable *d, enum ab_code code, const char *text)
{
	int r = durable_event_close(&d->out, code, text);
	struct http_stream *x;

	if (!r)
		r = flush(d);
	if (r < 0) {
		cut(d);
		return;
	}
	x = end(d);
	(void)!http_stream_finish(x, NULL); /* -EPIPE: it is closed already */
	http_stream_detach(x);
}

/* --- events --- */

static void rearm(struct gateway_durable *d)
{
	/* Without memory there is one keepalive less. */
	(void)!timer_set(&d->keepalive, loop_now_ms(d->g->loop) + d->ask.keepalive_ms);
}

static void on_keepalive(struct timer *t, void *user)
{
	struct gateway_durable *d = durable_from(user);

	if (http_stream_room(d->x) && (durable_event_keepalive(&d->out, d->ask.is_json) < 0 || flush(d) < 0))
		cut(d);
	else
		rearm(d);
}

static void on_timeout(struct timer *t, void *user)
{
	struct gateway_durable *d = durable_from(user);

	close_with(d, CODE_DEADLINE_EXCEEDED,
		   d->ask.kind == DURABLE_START ? "the command was killed at its deadline" : "the deadline of the call has passed");
}

static void on_unattached(struct timer *t, void *user)
{
	struct gateway_durable *d = durable_from(user);

	close_with(d, CODE_UNAVAILABLE, d->has_begun ? LOST_TEXT : "the daemon has no stream of the process now; connect again");
}

static void send_piece(struct gateway_durable *d, const struct spool_piece *p)
{
	if (p->gap)
		close_with(d, CODE_UNAVAILABLE, LOST_TEXT);
	else if (durable_event_data(&d->out, d->ask.is_json, p) < 0 || flush(d) < 0)
		cut(d);
	else
		rearm(d);
}

static void send_end(struct gateway_durable *d)
{
	const struct command_result *r = command_result(command_reader_command(d->reader));

	if (r->timed_out && d->ask.kind == DURABLE_START)
		close_with(d, CODE_DEADLINE_EXCEEDED, "the command was killed at its deadline");
	else if (r->outcome == COMMAND_LOST)
		cut(d);
	else if (r->outcome != COMMAND_EXITED && r->outcome != COMMAND_SIGNALED)
		close_with(d, CODE_UNAVAILABLE, r->message);
	else if (durable_event_end(&d->out, d->ask.is_json, r) < 0)
		cut(d);
	else
		close_with(d, CODE_OK, NULL);
}

/* All that came was sent. A client of the agent's would lose its stream with the pause, and not wait for who resumes it. */
static void note_pause(struct gateway_durable *d)
{
	if (command_is_paused(command_reader_command(d->reader)))
		close_with(d, CODE_UNAVAILABLE, "the sandbox was paused under the command");
}

/* Whether the sandbox is gone, which cuts the stream, is found out soon; else what comes after the cut comes behind a gap. */
static void note_cut(struct gateway_durable *d)
{
	if (!command_is_cut(command_reader_command(d->reader)) || timer_is_set(&d->unattached))
		return;
	if (timer_set(&d->unattached, loop_now_ms(d->g->loop) + LOST_MS) < 0)
		cut(d);
}

/* True: there may be more to read. */
static bool step(struct gateway_durable *d)
{
	uint8_t chunk[DURABLE_CHUNK_MAX];
	struct spool_piece p;

	switch (command_reader_next(d->reader, true, chunk, sizeof(chunk), &p)) {
	case COMMAND_READ_PIECE:
		send_piece(d, &p);
		return !d->over;
	case COMMAND_READ_ENDED:
		send_end(d);
		return false;
	default:
		note_pause(d);
		if (!d->over)
			note_cut(d);
		return false;
	}
}

static void pour(struct gateway_durable *d)
{
	for (unsigned i = 0; i < PIECES_PER_PASS; i++)
		if (!http_stream_room(d->x) || !step(d))
			return;
	defer_post(&d->again);
}

static void on_again(struct defer *f, void *user)
{
	pour(durable_from(user));
}

static void on_output(struct command_reader *r, void *user)
{
	struct gateway_durable *d = durable_from(user);

	if (d->reader && !d->has_begun)
		send_start(d);
	else if (d->reader)
		pour(d);
}

/* --- the beginning --- */

/* The process of a Connect that has not begun is over, and the agent would not know it: true, and it was answered. */
static bool refuse_absent(struct gateway_durable *d)
{
	const struct command *c = command_reader_command(d->reader);
	const struct command_result *r = command_result(c);
	struct command_view v;
	char text[64];

	if (!r || (r->outcome != COMMAND_LOST && !r->was_absent))
		return false;
	if (!r->was_absent) {
		edge_reply_not_found(end(d), d->sandbox); /* which lives until the end of the pass */
		return true;
	}
	command_look(c, &v);
	snprintf(text, sizeof(text), "process with pid %u not found", v.pid);
	close_with(d, CODE_NOT_FOUND, text);
	return true;
}

/* A Connect begins when the daemon is attached itself: what was lost before is not this client's. True: it begins now. */
static bool may_begin(struct gateway_durable *d)
{
	bool was_paused = d->was_paused;

	if (refuse_absent(d))
		return false;
	if (command_reader_join(d->reader))
		return true;
	d->was_paused = command_is_paused(command_reader_command(d->reader));
	if (!was_paused) /* paused since it came: who resumes it may be long in coming */
		note_pause(d);
	return false;
}

static void send_start(struct gateway_durable *d)
{
	struct command_view v;

	if (d->ask.kind == DURABLE_CONNECT && !may_begin(d))
		return;
	timer_clear(&d->unattached);
	d->has_begun = true;
	command_look(command_reader_command(d->reader), &v);
	if (durable_event_start(&d->out, d->ask.is_json, v.pid) < 0 || flush(d) < 0) {
		cut(d);
		return;
	}
	rearm(d);
	pour(d);
}

static void read_from(struct gateway_durable *d, struct command *c)
{
	const struct command_read_from from = { .from_end = d->ask.kind == DURABLE_CONNECT, .holds = true };

	if (command_reader_new(c, &from, on_output, d, &d->reader) < 0 || timer_set(&d->unattached, loop_now_ms(d->g->loop) + JOIN_MS) < 0) {
		cut(d);
		return;
	}
	d->was_paused = command_is_paused(c);
	d->c = command_unref(d->c);
	send_start(d);
}

static void refuse_start(struct gateway_durable *d, const struct status *st)
{
	bool is_absent = st->reason == R_SANDBOX_PAUSED || st->reason == R_SANDBOX_GONE || st->reason == R_SANDBOX_KILLED ||
			 st->reason == R_SANDBOX_EXPIRED || st->reason == R_SANDBOX_NOT_FOUND;

	if (is_absent)
		edge_reply_not_found(end(d), d->sandbox); /* which lives until the end of the pass */
	else
		close_with(d, st->reason == R_OUTCOME_UNKNOWN ? CODE_UNAVAILABLE : st->code, st->text);
}

static void on_started(void *user, const struct status *st, struct command *c)
{
	struct gateway_durable *d = durable_from(user);

	d->op = NULL;
	if (status_ok(st))
		read_from(d, c);
	else
		refuse_start(d, st);
}

/* args[0] is the program. Both lists are the caller's to free. */
static int list_program(const Process__ProcessConfig *p, const char ***ret_args, struct sandbox_pair **ret_envs)
{
	const char **args = calloc(p->n_args + 1, sizeof(*args));
	struct sandbox_pair *envs = calloc(p->n_envs + 1, sizeof(*envs));

	if (!args || !envs) {
		free(args);
		free(envs);
		return -ENOMEM;
	}
	args[0] = p->cmd;
	for (size_t i = 0; i < p->n_args; i++)
		args[i + 1] = p->args[i];
	for (size_t i = 0; i < p->n_envs; i++)
		envs[i] = (struct sandbox_pair){ .key = p->envs[i]->key, .value = p->envs[i]->value };
	*ret_args = args;
	*ret_envs = envs;
	return 0;
}

static int start(struct gateway_durable *d)
{
	const Process__StartRequest *m = (const void *)d->ask.msg;
	const Process__ProcessConfig *p = m->process;
	const Process__PTY__Size *size = m->_pty_case && m->pty ? m->pty->size : NULL;
	struct sandbox_pair *envs;
	const char **args;
	struct trace trace;
	struct command_start s = {
		.who = &d->who, .sandbox = d->sandbox, .trace = &trace, .cwd = p->_cwd_case ? p->cwd : NULL, .user = d->ask.user,
		.kill_grace_ms = -1, .stdin_open = !m->_stdin_case || m->stdin, .detach = true, .blocking_reader = true,
		.overflow = COMMAND_BLOCK, .pty = m->_pty_case, .cols = size ? size->cols : 0, .rows = size ? size->rows : 0,
		.plain = true, .tag = m->_tag_case ? m->tag : NULL, .agent_timeout_ms = (uint32_t)d->ask.timeout_ms,
	};
	int r = list_program(p, &args, &envs);

	if (r < 0)
		return r;
	trace_of(http_stream_head(d->x), &trace);
	s.args = args;
	s.n_args = p->n_args + 1;
	s.envs = envs;
	s.n_envs = p->n_envs;
	r = commands_start(d->g->o.commands, &s, on_started, d, &d->op);
	free(args);
	free(envs);
	return r;
}

static void on_ready(struct http_stream *x, void *user)
{
	struct gateway_durable *d = durable_from(user);

	if (http_stream_closed(x, NULL) != HTTP_OPEN)
		http_stream_release(end(d));
	else if (d->has_begun)
		pour(d);
}

static int find_process(struct gateway_durable *d, const struct agent_address *at)
{
	const Process__ConnectRequest *m = (const void *)d->ask.msg;
	bool by_pid = m->process->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_PID;
	struct command *c = commands_find_process(d->g->o.commands, &d->who, at, by_pid ? m->process->pid : 0,
						  by_pid ? NULL : m->process->tag);

	d->c = c ? command_ref(c) : NULL;
	return c ? 0 : -ENOENT;
}

int gateway_durable_new(struct gateway *g, const struct durable_open *o, struct gateway_durable **ret)
{
	const struct agent_address *at = &o->target->at;
	size_t n = sizeof(struct gateway_durable) + strlen(at->id) + 1;
	struct gateway_durable *d = calloc(1, sizeof(*d));
	char *sandbox = str_dup(at->id);
	int r;

	if (!d || !sandbox || quota_take(o->quota, n) < 0) {
		free(d);
		free(sandbox);
		return -ENOMEM;
	}
	*d = (struct gateway_durable){ .magic = DURABLE_MAGIC, .g = g, .ask = *o->ask, .peer = o->peer, .sandbox = sandbox,
				       .who = { .uid = o->target->owner_uid, .gid = (gid_t)-1, .pidfd = -1 },
				       .token = o->token ? token_ref(o->token) : NULL, .quota = quota_ref(o->quota), .charged = n };
	r = d->ask.kind == DURABLE_CONNECT ? find_process(d, at) : 0;
	if (r < 0) {
		d->ask.msg = NULL; /* the caller's still */
		bury(d);
		return r;
	}
	*o->ask = (struct durable_ask){ 0 };
	*ret = d;
	return 0;
}

void gateway_durable_begin(struct gateway_durable *d, struct http_stream *x)
{
	struct gateway *g = d->g;
	struct status oom;
	int r = 0;

	d->x = x;
	timer_init(&d->deadline, g->loop, on_timeout, d);
	timer_init(&d->keepalive, g->loop, on_keepalive, d);
	timer_init(&d->unattached, g->loop, on_unattached, d);
	defer_init(&d->again, g->loop, on_again, d);
	list_add_tail(&g->durables, &d->node);
	g->counts.relays++;
	http_stream_set_owner(x, on_ready, d);
	if (d->ask.timeout_ms)
		r = timer_set(&d->deadline, loop_now_ms(g->loop) + d->ask.timeout_ms);
	if (!r && d->ask.kind == DURABLE_START)
		r = start(d);
	if (d->ask.msg)
		protobuf_c_message_free_unpacked(give(d->ask.msg), NULL);
	if (r < 0) {
		status_errno(&oom, r, "starting a command");
		refuse_start(d, &oom);
	} else if (d->ask.kind == DURABLE_CONNECT) {
		read_from(d, d->c);
	}
}

void gateway_durable_end_all(struct gateway *g)
{
	list_for_each_safe(n, &g->durables)
		cut(list_entry(n, struct gateway_durable, node));
}

void gateway_durable_check_all(struct gateway *g)
{
	char why[GATEWAY_WHY_BYTES];

	list_for_each_safe(n, &g->durables) {
		struct gateway_durable *d = list_entry(n, struct gateway_durable, node);

		if (gateway_may(g, &d->peer, d->token, why) == GATEWAY_MAY_NOT)
			cut(d);
	}
}
