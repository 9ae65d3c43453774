/* SPDX-License-Identifier: MIT */
/*
 * One command from its start to its end: upstream stream → spool → readers. The stream is read only
 * as fast as the spool, and with BLOCK the starter's reader, can take it; what is not read stays in
 * the HTTP stream's window and slows the program.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define REATTACH_FIRST_MS 100u

static const struct {
	const char *name;
	unsigned next;
} states[] = {
	[CMD_STARTING] = { "starting", BIT(CMD_RUNNING) | BIT(CMD_ENDING) | BIT(CMD_ENDED) },
	[CMD_RUNNING] = { "running", BIT(CMD_ATTACHING) | BIT(CMD_ASKING) | BIT(CMD_ENDING) |
				     BIT(CMD_ENDED) },
	[CMD_ATTACHING] = { "attaching", BIT(CMD_RUNNING) | BIT(CMD_ASKING) | BIT(CMD_ENDING) |
					 BIT(CMD_ENDED) },
	[CMD_ASKING] = { "asking", BIT(CMD_ATTACHING) | BIT(CMD_ENDING) | BIT(CMD_ENDED) },
	[CMD_ENDING] = { "ending", BIT(CMD_ENDED) },
	[CMD_ENDED] = { "ended", 0 },
};

static struct command *command_from(void *p)
{
	struct command *c = p;

	must(c && c->magic == COMMAND_MAGIC);
	return c;
}

void command_set_state(struct command *c, enum command_state to)
{
	must(states[c->state].next & BIT(to));
	log_debug("command_state", "command=%s sandbox=%s from=%s to=%s", c->id, c->at.id,
		  states[c->state].name, states[to].name);
	c->state = to;
}

/* --- life and death of the object --- */

struct command *command_ref(struct command *c)
{
	c->refs++;
	return c;
}

void command_destroy(struct command *c)
{
	must(list_is_empty(&c->readers));
	list_del(&c->node);
	timer_clear(&c->deadline);
	timer_clear(&c->retry);
	defer_cancel(&c->pump);
	defer_cancel(&c->tell);
	envd_stream_free(c->stream);
	envd_call_cancel(c->probe);
	life_cancel(c->inquiry);
	killer_free(c->killer);
	terminal_fini(c);
	spool_free(c->spool);
	where_fini(&c->at);
	free(c->shell);
	free(c->user);
	free(c->cwd);
	for (size_t i = 0; i < c->n_args; i++)
		free(c->args[i]);
	free(c->args);
	for (size_t i = 0; i < c->n_envs; i++) {
		free((char *)c->envs[i].key);
		free((char *)c->envs[i].value);
	}
	free(c->envs);
	c->magic = 0;
	free(c);
}

struct command *command_unref(struct command *c)
{
	if (!c)
		return NULL;
	must(c->refs);
	if (--c->refs == 0) { /* its own callback may be on the stack */
		list_add_tail(&c->cs->dying, &c->node);
		defer_post(&c->cs->sweep);
	}
	return NULL;
}

/* From when it is known where it runs until its end: a sandbox with a command of ours is in use. */
void command_use(struct command *c)
{
	if (!c->counts)
		life_use_begin(c->cs->o.life, c->at.account, c->at.id);
	c->counts = true;
}

static void command_unuse(struct command *c)
{
	if (c->counts)
		life_use_end(c->cs->o.life, c->at.account, c->at.id);
	c->counts = false;
}

void command_forget(struct command *c)
{
	list_del(&c->node);
	c->cs->n_running--;
	command_unuse(c);
	map_del_str(&c->cs->by_id, c->id);
	command_unref(c);
}

static struct uid_share *share_of(struct commands *cs, uid_t uid)
{
	struct uid_share *s = map_get_u64(&cs->shares, uid);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->uid = uid;
	s->quota.max = cs->o.spool_per_uid;
	if (map_put_u64(&cs->shares, uid, s) < 0) {
		free(s);
		return NULL;
	}
	return s;
}

static void tell_readers(struct defer *d, void *user)
{
	struct command *c = command_ref(command_from(user));

	list_for_each_safe(n, &c->readers) {
		struct command_reader *r = list_entry(n, struct command_reader, node);

		r->news(r, r->user);
	}
	command_unref(c);
}

void command_wake(struct command *c)
{
	defer_post(&c->tell);
}

static void pump(struct defer *d, void *user);
static void on_deadline(struct timer *t, void *user);
static void on_retry(struct timer *t, void *user);

struct command *command_new(struct commands *cs, const struct where *w, uid_t uid)
{
	struct uid_share *share = share_of(cs, uid);
	struct command *c = share ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return NULL;
	c->magic = COMMAND_MAGIC;
	c->refs = 1; /* the table's */
	c->cs = cs;
	c->share = share;
	c->state = CMD_STARTING;
	list_init(&c->node);
	list_init(&c->readers);
	c->id[0] = 'c';
	rng_id(c->id + 1, COMMAND_ID_CHARS);
	snprintf(c->tag, sizeof(c->tag), "agentbox-%s", c->id);
	timer_init(&c->deadline, cs->o.loop, on_deadline, c);
	timer_init(&c->retry, cs->o.loop, on_retry, c);
	defer_init(&c->pump, cs->o.loop, pump, c);
	defer_init(&c->tell, cs->o.loop, tell_readers, c);
	terminal_init(c);
	c->kill_grace_ms = cs->o.kill_grace_ms;
	c->spool_limit = cs->o.spool_per_command;
	c->result.output_complete = true;
	c->at = (struct where){ .cloud = w->cloud, .generation = w->generation, .owner = w->owner,
				.account = str_dup(w->account), .id = str_dup(w->id),
				.domain = str_dup(w->domain), .token = str_dup(w->token),
				.version = str_dup(w->version) };
	if (!c->at.account || !c->at.id || !c->at.domain || !c->at.token || !c->at.version ||
	    spool_new(cs->spool_fd, c->id, c->spool_limit, &share->quota, &cs->total, &c->spool) < 0 ||
	    map_put_str(&cs->by_id, c->id, c) < 0) {
		command_destroy(c);
		return NULL;
	}
	list_add_tail(&cs->all, &c->node);
	cs->n_running++;
	commands_forget_surplus(cs);
	return c;
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

void command_look(const struct command *c, struct command_view *ret)
{
	*ret = (struct command_view){
		.id = c->id, .sandbox = c->at.id, .shell = or_empty(c->shell), .user = or_empty(c->user),
		.cwd = or_empty(c->cwd), .tag = c->foreign ? "" : c->tag,
		.args = (const char *const *)c->args, .n_args = c->n_args, .envs = c->envs,
		.n_envs = c->n_envs, .pid = c->pid, .generation = c->at.generation,
		.started_at_ms = c->started_at_ms, .last_output_at_ms = c->last_output_at_ms,
		.result = command_result(c), .group = c->group, .foreign = c->foreign,
		.stdin_open = c->pty || (c->stdin_open && !c->input_ended), .pty = c->pty,
	};
	if (c->state == CMD_ENDED)
		ret->expires_at_ms = c->result.exited_at_ms + (int64_t)c->cs->o.history_ms;
	for (unsigned s = SPOOL_STDOUT; s < SPOOL_STREAMS; s++) {
		ret->has[s] = spool_has(c->spool, s);
		ret->first[s] = spool_first(c->spool, s);
		ret->end[s] = spool_end(c->spool, s);
	}
}

const struct command_result *command_result(const struct command *c)
{
	return c->state == CMD_ENDED ? &c->result : NULL;
}

/* --- the end --- */

/* An end that has no reader left to say it: once, with its evidence. */
static void answer_start(struct command *c, const struct status *st)
{
	struct command_op *op = c->start_op;

	if (!op)
		return;
	c->start_op = NULL;
	op->st = *st;
	cmd_op_post(op);
}

void command_finish(struct command *c)
{
	const uint32_t *survivors;
	size_t n;

	c->stream = envd_stream_free(c->stream);
	if (c->killer && !killer_survivors(c->killer, &survivors, &n)) {
		if (c->state != CMD_ENDING)
			command_set_state(c, CMD_ENDING);
		return; /* it calls again when it has counted */
	}
	if (c->killer) {
		c->result.n_survivors = (uint32_t)MIN(n, (size_t)COMMAND_SURVIVORS_MAX);
		memcpy(c->result.survivors, survivors, c->result.n_survivors * sizeof(*survivors));
	}
	timer_clear(&c->deadline);
	timer_clear(&c->retry);
	command_set_state(c, CMD_ENDED);
	terminal_fini(c);
	if (c->truncated || !spool_is_whole(c->spool))
		c->result.output_complete = false;
	if (!c->result.exited_at_ms)
		c->result.exited_at_ms = clock_wall_ms();
	list_del(&c->node);
	list_add_tail(&c->cs->ended, &c->node);
	c->cs->n_running--;
	command_unuse(c);
	c->cs->n_ended++;
	c->share->n_ended++;
	if (c->result.outcome == COMMAND_LOST || c->result.outcome == COMMAND_UNKNOWN)
		log_warn("command_lost", "command=%s sandbox=%s pid=%u reason=%s error=%s", c->id, c->at.id,
			 c->pid, status_reason_name(c->result.reason), log_q(c->result.message));
	command_wake(c);
	commands_forget_surplus(c->cs);
}

static void end_with(struct command *c, enum command_outcome outcome, const struct status *why)
{
	c->result.outcome = outcome;
	c->result.reason = why->reason;
	str_copy(c->result.message, sizeof(c->result.message), why->text);
	if (outcome != COMMAND_NOT_STARTED)
		c->truncated = true;
	command_finish(c);
}

/* A start that failed leaves nothing behind: its caller has the status. */
static void start_failed(struct command *c, const struct status *st)
{
	answer_start(c, st);
	c->stream = envd_stream_free(c->stream);
	command_forget(c);
}

static void note_end(struct command *c, const struct envd_event *e)
{
	static const struct {
		const char *text, *name;
	} signals[] = { { "killed", "KILL" },	    { "terminated", "TERM" }, { "interrupt", "INT" },
			{ "hangup", "HUP" },	    { "aborted", "ABRT" },    { "quit", "QUIT" },
			{ "segmentation fault", "SEGV" }, { "broken pipe", "PIPE" },
			{ "bus error", "BUS" },	    { "floating point exception", "FPE" },
			{ "illegal instruction", "ILL" }, { "user defined signal 1", "USR1" },
			{ "user defined signal 2", "USR2" }, { "alarm clock", "ALRM" } };
	const char *text = str_starts(e->status, "signal: ") ? e->status + 8 : "";

	if (e->exited || e->exit_code >= 0) {
		c->result.outcome = COMMAND_EXITED;
		c->result.exit_code = e->exit_code;
		return;
	}
	c->result.outcome = COMMAND_SIGNALED;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (str_starts(text, signals[i].text))
			str_copy(c->result.signal, sizeof(c->result.signal), signals[i].name);
}

/* --- the inquiry: a stream that ended without an end event --- */

static void on_inquiry(void *user, const struct status *st, const struct life_target *t)
{
	struct command *c = command_from(user);
	struct status unknown;
	struct where w;

	c->inquiry = NULL;
	if (!status_ok(st) && st->code == CODE_NOT_FOUND) {
		end_with(c, COMMAND_LOST, st);
		return;
	}
	if (!status_ok(st) && st->reason == R_SANDBOX_PAUSED) {
		end_with(c, COMMAND_LOST, st);
		return;
	}
	if (status_ok(st) && where_copy(&w, t) == 0) { /* with a fresh token */
		where_fini(&c->at);
		c->at = w;
	}
	if (!c->pid || c->attempts >= COMMAND_REATTACH_MAX) {
		status_set(&unknown, R_OUTCOME_UNKNOWN,
			   "the stream of the command was lost and could not be taken up again: %s",
			   status_ok(st) ? "the sandbox runs" : st->text);
		end_with(c, COMMAND_UNKNOWN, &unknown);
		return;
	}
	if (timer_set(&c->retry, loop_now_ms(c->cs->o.loop) + (REATTACH_FIRST_MS << c->attempts)) < 0)
		on_retry(&c->retry, c);
}

static void inquire(struct command *c, enum envd_class cls, const struct status *failure)
{
	enum life_evidence what = cls == ENVD_NOT_RUNNING ? LIFE_SAW_ABSENT
				  : cls == ENVD_TOKEN	  ? LIFE_SAW_REFUSED
							  : LIFE_SAW_LOST;
	uint64_t deadline = loop_now_ms(c->cs->o.loop) + 60000;

	c->stream = envd_stream_free(c->stream);
	log_info("command_stream_lost", "command=%s sandbox=%s attempt=%u error=%s", c->id, c->at.id,
		 c->attempts, log_q(failure->text));
	command_set_state(c, CMD_ASKING);
	c->attempts++;
	if (life_note_evidence(c->cs->o.life, c->at.account, c->at.id, what, deadline, on_inquiry, c,
			       &c->inquiry) < 0)
		end_with(c, COMMAND_UNKNOWN, failure);
}

/* --- upstream --- */

static void on_stream_news(struct envd_stream *s, void *user)
{
	struct command *c = command_from(user);

	defer_post(&c->pump);
}

static void on_retry(struct timer *t, void *user)
{
	struct command *c = command_from(user);
	struct envd_target target = where_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 30000);
	struct status st;

	command_set_state(c, CMD_ATTACHING);
	c->stream = envd_attach(&target, c->pid, on_stream_news, c);
	if (c->stream)
		return;
	status_set_code(&st, CODE_RESOURCE_EXHAUSTED, "out of memory");
	end_with(c, COMMAND_UNKNOWN, &st);
}

static void on_started(struct command *c, uint32_t pid)
{
	static const struct status ok = STATUS_OK;
	uint64_t now = loop_now_ms(c->cs->o.loop);

	c->pid = pid;
	c->started_at_ms = clock_wall_ms();
	if (c->state == CMD_ATTACHING) { /* what was said meanwhile is gone: the agent keeps nothing */
		if (spool_gap(c->spool, SPOOL_STDOUT, SPOOL_REATTACHED, clock_wall_ms()) < 0 ||
		    spool_gap(c->spool, SPOOL_STDERR, SPOOL_REATTACHED, clock_wall_ms()) < 0)
			c->truncated = true;
		command_wake(c);
	}
	command_set_state(c, CMD_RUNNING);
	if (c->timeout_ms && !timer_is_set(&c->deadline) && timer_set(&c->deadline, now + c->timeout_ms) < 0)
		log_warn("command_timeout", "command=%s error=\"out of memory, it has no timeout\"", c->id);
	if (c->start_op && (c->foreign || c->group_known))
		answer_start(c, &ok);
	if (c->end_when_started)
		command_end_now(c);
}

static void on_start_inquiry(void *user, const struct status *st, const struct life_target *t)
{
	struct command *c = command_from(user);
	struct status oom;
	struct where w;

	c->inquiry = NULL;
	if (!status_ok(st)) {
		start_failed(c, st);
		return;
	}
	if (where_copy(&w, t) == 0) {
		where_fini(&c->at);
		c->at = w;
		envd_call_cancel(give(c->probe));
		if (!command_launch(c))
			return;
	}
	status_errno(&oom, ENOMEM, "starting a command");
	start_failed(c, &oom);
}

/* A start that was refused by the edge or for its token: lifecycle knows what is true of the sandbox;
 * with a fresh token it is tried once more. */
static void on_start_lost(struct command *c, enum envd_class cls, struct status *st)
{
	bool ask = cls == ENVD_NOT_RUNNING || cls == ENVD_TOKEN;

	if (ask && !c->attempts++) {
		c->stream = envd_stream_free(c->stream);
		if (life_note_evidence(c->cs->o.life, c->at.account, c->at.id,
				       cls == ENVD_TOKEN ? LIFE_SAW_REFUSED : LIFE_SAW_ABSENT,
				       loop_now_ms(c->cs->o.loop) + 30000, on_start_inquiry, c,
				       &c->inquiry) == 0)
			return;
	}
	if (cls == ENVD_LOST && !c->foreign && envd_stream_was_sent(c->stream)) {
		char text[STATUS_TEXT_MAX];

		str_copy(text, sizeof(text), st->text);
		status_set(st, R_OUTCOME_UNKNOWN, "whether the command started is not known: %.200s", text);
		st->code = CODE_UNKNOWN;
	}
	start_failed(c, st);
}

static void on_lost(struct command *c, const struct envd_event *e)
{
	struct status st = e->failure;

	if (status_ok(&st))
		status_set(&st, R_TRUNCATED, "the stream ended without saying how the command ended");
	if (c->state == CMD_STARTING) {
		on_start_lost(c, e->cls, &st);
		return;
	}
	if (c->state == CMD_ATTACHING && e->cls == ENVD_ANSWERED && st.reason == R_PROCESS_NOT_FOUND) {
		status_set(&st, R_OUTCOME_UNKNOWN,
			   "the command ended while its stream was lost; its exit code was not told");
		end_with(c, COMMAND_UNKNOWN, &st);
		return;
	}
	inquire(c, e->cls, &st);
}

/* True if one more chunk may be taken from upstream. */
static bool may_take(const struct command *c)
{
	uint64_t ahead;

	if (!c->block)
		return true;
	if (!c->starter)
		return spool_room(c->spool) >= COMMAND_PIPE_BYTES;
	ahead = spool_ahead(c->spool, &c->starter->pos);
	if (!ahead)
		return true;
	return ahead + COMMAND_PIPE_BYTES <= c->spool_limit &&
	       spool_room_behind(c->spool, &c->starter->pos) >= COMMAND_PIPE_BYTES;
}

static void on_data(struct command *c, const struct envd_event *e)
{
	int r = spool_append(c->spool, (enum spool_stream)e->stream, e->data, e->n,
			     clock_wall_ms());

	if (e->stream == ENVD_PTY)
		c->pty = true; /* of a foreign one, known now */
	c->attempts = 0;
	c->last_output_at_ms = clock_wall_ms();
	if (r < 0) {
		c->truncated = true;
		log_warn("command_spool", "command=%s error=%s", c->id, log_q(strerrordesc_np(-r)));
	}
	command_wake(c);
}

static void pump(struct defer *d, void *user)
{
	struct command *c = command_from(user);
	struct envd_event e;

	for (unsigned i = 0; i < COMMAND_PUMP_EVENTS; i++) {
		if (!c->stream || (c->state == CMD_RUNNING && !may_take(c)))
			return;
		switch (envd_stream_next(c->stream, &e)) {
		case ENVD_EVENT_NONE:
			return;
		case ENVD_EVENT_START:
			on_started(c, e.pid);
			break;
		case ENVD_EVENT_DATA:
			on_data(c, &e);
			break;
		case ENVD_EVENT_KEEPALIVE:
			c->attempts = 0;
			break;
		case ENVD_EVENT_END:
			note_end(c, &e);
			command_finish(c);
			return;
		case ENVD_EVENT_CLOSED:
			on_lost(c, &e);
			return;
		}
	}
	defer_post(&c->pump);
}

/* --- the start --- */

/* Its own session, so that a kill reaches all of it; where the image has no setsid, without. */
static const char wrapper[] = "for s in /usr/bin/setsid /bin/setsid; do "
			      "[ -x \"$s\" ] && exec \"$s\" -- \"$@\"; done; exec \"$@\"";

#define SETSID_YES ((void *)1)
#define SETSID_NO  ((void *)2)

static void setsid_key(const struct command *c, char ret[256])
{
	snprintf(ret, 256, "%s/%s/%u", c->at.account, c->at.id, c->at.generation);
}

static void know_group(struct command *c, bool group)
{
	static const struct status ok = STATUS_OK;

	c->group = group;
	c->group_known = true;
	if (c->start_op && c->state != CMD_STARTING)
		answer_start(c, &ok);
}

static void on_probe(struct envd_result *r, void *user)
{
	struct command *c = command_from(user);
	bool yes = r->cls == ENVD_OK;
	char key[256];

	c->probe = NULL;
	setsid_key(c, key);
	/* Only a clear answer is remembered; without memory the next start asks again. */
	if (yes || (r->cls == ENVD_ANSWERED && r->status.reason == R_FILE_NOT_FOUND))
		(void)!map_put_str(&c->cs->setsid, key, yes ? SETSID_YES : SETSID_NO);
	know_group(c, yes);
}

static void probe_setsid(struct command *c)
{
	struct envd_target target;
	char key[256];
	void *known;

	setsid_key(c, key);
	known = map_get_str(&c->cs->setsid, key);
	if (known) {
		know_group(c, known == SETSID_YES);
		return;
	}
	target = where_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 10000);
	c->probe = envd_stat(&target, "/usr/bin/setsid", on_probe, c);
	if (!c->probe)
		know_group(c, false);
}

/* What runs, into args (room for n_args + 7): the shell line, the arguments, or a login shell. */
static size_t put_program(const struct command *c, const char **args)
{
	size_t n = 0;

	if (c->shell || !c->n_args) {
		args[n++] = "/bin/bash";
		args[n++] = c->shell ? "-l" : "-i";
		args[n++] = c->shell ? "-c" : "-l";
		if (c->shell)
			args[n++] = c->shell;
		return n;
	}
	for (size_t i = 0; i < c->n_args; i++)
		args[n++] = c->args[i];
	return n;
}

static bool has_env(const struct command *c, const char *key)
{
	for (size_t i = 0; i < c->n_envs; i++)
		if (str_eq(c->envs[i].key, key))
			return true;
	return false;
}

/* Into envs (room for n_envs + 4). A terminal gets the defaults that the SDKs give it. */
static size_t put_envs(const struct command *c, struct cloud_kv *envs)
{
	static const struct cloud_kv defaults[] = { { (char *)"TERM", (char *)"xterm-256color" },
						    { (char *)"LANG", (char *)"C.UTF-8" },
						    { (char *)"LC_ALL", (char *)"C.UTF-8" } };
	size_t n = 0;

	for (size_t i = 0; c->pty && i < ARRAY_SIZE(defaults); i++)
		if (!has_env(c, defaults[i].key))
			envs[n++] = defaults[i];
	for (size_t i = 0; i < c->n_envs; i++)
		envs[n++] = (struct cloud_kv){ (char *)c->envs[i].key, (char *)c->envs[i].value };
	envs[n++] = (struct cloud_kv){ (char *)COMMAND_ENV, (char *)c->id };
	return n;
}

static int start_program(struct command *c)
{
	struct envd_target target = where_target(&c->at, c->user, 0);
	const char **args = calloc(c->n_args + 7, sizeof(*args));
	struct cloud_kv *envs = calloc(c->n_envs + 4, sizeof(*envs));
	struct envd_start start = { .cmd = "/bin/sh", .args = args, .envs = envs, .tag = c->tag,
				    .cwd = str_is_empty(c->cwd) ? NULL : c->cwd,
				    .stdin_open = c->stdin_open, .pty = c->pty,
				    .cols = c->term.cols, .rows = c->term.rows };

	if (args && envs && c->pty) { /* the agent gives a terminal its own session */
		start.n_args = put_program(c, args) - 1;
		start.cmd = args[0];
		start.args = args + 1;
	} else if (args && envs) {
		args[0] = "-c";
		args[1] = wrapper;
		args[2] = "sh";
		start.n_args = 3 + put_program(c, args + 3);
	}
	if (args && envs) {
		start.n_envs = put_envs(c, envs);
		c->stream = envd_start(&target, &start, on_stream_news, c);
	}
	free(args);
	free(envs);
	return c->stream ? 0 : -ENOMEM;
}

int command_launch(struct command *c)
{
	struct envd_target target;

	if (!c->foreign) {
		int r = start_program(c);

		if (!r && c->pty)
			know_group(c, true);
		else if (!r)
			probe_setsid(c);
		return r;
	}
	target = where_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 30000);
	c->stream = envd_attach(&target, c->pid, on_stream_news, c);
	return c->stream ? 0 : -ENOMEM;
}

/* Input that could not be ended is refused before anything runs, not when the program hangs on it. */
static bool check_agent(const struct command *c, const char *version, struct status *st)
{
	const char *least = c->pty ? NULL : c->stdin_open ? "0.5.2" : "0.3.0";

	if (!least || str_is_empty(version) || cloud_version_cmp(version, least) >= 0)
		return true;
	status_set(st, R_TEMPLATE_TOO_OLD,
		   "stdin: the sandbox's agent %s cannot %s; %s can: build the template anew", version,
		   c->stdin_open ? "end a program's input" : "start a program without input", least);
	return false;
}

static void on_resolved(void *user, const struct status *st, const struct life_target *t)
{
	struct command_op *op = user;
	struct command *c = op->c;
	struct where w;

	op->life = NULL;
	op->st = *st;
	if (status_ok(st) && check_agent(c, t->envd_version, &op->st) && where_copy(&w, t) == 0) {
		where_fini(&c->at);
		c->at = w;
		command_use(c);
		if (!command_launch(c))
			return;
	}
	if (status_ok(&op->st))
		status_errno(&op->st, ENOMEM, "starting a command");
	start_failed(c, &op->st);
}

static int copy_start(struct command *c, const struct command_start *s)
{
	if (s->shell && !(c->shell = strdup(s->shell)))
		return -ENOMEM;
	c->user = str_dup(s->user);
	c->cwd = str_dup(s->cwd);
	c->args = calloc(s->n_args + 1, sizeof(char *));
	c->envs = calloc(s->n_envs + 1, sizeof(*c->envs));
	if (!c->args || !c->envs || (s->user && !c->user) || (s->cwd && !c->cwd))
		return -ENOMEM;
	for (size_t i = 0; i < s->n_args; i++, c->n_args++)
		if (!(c->args[i] = strdup(s->args[i])))
			return -ENOMEM;
	for (size_t i = 0; i < s->n_envs; i++) {
		c->envs[i].key = strdup(s->envs[i].key);
		c->envs[i].value = strdup(s->envs[i].value);
		c->n_envs++;
		if (!c->envs[i].key || !c->envs[i].value)
			return -ENOMEM;
	}
	c->timeout_ms = s->timeout_ms;
	c->pty = s->pty;
	c->term.cols = s->cols;
	c->term.rows = s->rows;
	if (s->kill_grace_ms >= 0)
		c->kill_grace_ms = (uint64_t)s->kill_grace_ms;
	c->stdin_open = s->stdin_open;
	c->detach = s->detach;
	c->block = s->overflow == COMMAND_BLOCK ||
		   (s->overflow == COMMAND_OVERFLOW_UNSET && s->blocking_reader && !s->detach);
	return 0;
}

int commands_start(struct commands *cs, const struct command_start *s, command_done_fn *done,
		   void *user, struct command_op **ret)
{
	static const struct where nowhere = { .account = (char *)"", .id = (char *)"",
					      .domain = (char *)"", .token = (char *)"",
					      .version = (char *)"" };
	struct command *c = command_new(cs, &nowhere, s->who->uid);
	struct command_op *op = c ? cmd_op_new(cs, OP_START, c, user) : NULL;
	uint64_t limit = s->spool_limit ? MIN(s->spool_limit, cs->o.spool_per_command)
					: cs->o.spool_per_command;
	int r = -ENOMEM;

	if (op) {
		op->done = done;
		c->start_op = op;
		c->spool_limit = MAX(limit, 2 * (uint64_t)COMMAND_PIPE_BYTES);
		spool_set_limit(c->spool, c->spool_limit);
		r = copy_start(c, s);
		if (!r)
			r = life_resolve(cs->o.life, s->who, s->sandbox, s->deadline_ms, on_resolved, op,
					 &op->life);
	}
	if (r < 0) {
		if (c)
			c->start_op = NULL;
		cmd_op_free(op);
		if (c)
			command_forget(c);
		return r;
	}
	*ret = op;
	return 0;
}

static void on_deadline(struct timer *t, void *user)
{
	struct command *c = command_from(user);

	c->result.timed_out = true;
	command_end_now(c);
}

/* --- readers --- */

int command_reader_new(struct command *c, const struct command_read_from *from,
		       command_news_fn *news, void *user, struct command_reader **ret)
{
	struct command_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->c = command_ref(c);
	r->news = news;
	r->user = user;
	r->starter = from->starter;
	if (from->from_end)
		spool_seek_end(c->spool, &r->pos);
	else
		spool_seek(c->spool, from->offset, &r->pos);
	list_add_tail(&c->readers, &r->node);
	if (r->starter)
		c->starter = r;
	c->cs->n_readers++;
	command_wake(c);
	*ret = r;
	return 0;
}

struct command *command_reader_command(const struct command_reader *r)
{
	return r->c;
}

enum command_read command_reader_next(struct command_reader *r, bool follow, void *buf, size_t max,
				      struct spool_piece *ret)
{
	struct command *c = r->c;
	int got = spool_read(c->spool, &r->pos, buf, max, ret);

	if (got < 0) { /* the file is not readable: said once, and the reader goes on behind it */
		log_warn("command_spool", "command=%s error=%s", c->id, log_q(strerrordesc_np(-got)));
		c->truncated = true;
		*ret = (struct spool_piece){ .stream = SPOOL_STDOUT, .gap = true, .reason = "unreadable" };
		spool_seek_end(c->spool, &r->pos);
		return COMMAND_READ_PIECE;
	}
	if (got) {
		if (r->starter && c->block)
			defer_post(&c->pump);
		return COMMAND_READ_PIECE;
	}
	if (c->state == CMD_ENDED)
		return COMMAND_READ_ENDED;
	return follow ? COMMAND_READ_NOTHING : COMMAND_READ_CAUGHT_UP;
}

struct command_reader *command_reader_free(struct command_reader *r, bool end_it)
{
	struct command *c;

	if (!r)
		return NULL;
	c = r->c;
	list_del(&r->node);
	c->cs->n_readers--;
	if (r->starter) {
		c->starter = NULL;
		c->block = false;
		if (end_it && !c->detach && c->state < CMD_ENDING)
			command_end_now(c);
		defer_post(&c->pump);
	}
	/* Somebody else's command is followed only while somebody reads it. */
	if (c->foreign && list_is_empty(&c->readers) && c->state < CMD_ENDING && !c->killer)
		command_forget(c);
	command_unref(c);
	free(r);
	return NULL;
}
