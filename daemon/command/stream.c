/* SPDX-License-Identifier: MIT */
/*
 * The upstream side of a command: stream → spool, and what happens when the stream is lost.
 *
 * The stream is read only as fast as the spool, and with BLOCK the starter's reader, can take it;
 * what is not read stays in the HTTP stream's window and slows the program.
 *
 * A stream that ends without an end event says nothing about the program. The first time it is
 * attached to again at once, unless that could resume a paused sandbox; if that fails
 * too, the sandbox module says what became of the sandbox (ASKING), and where that is not enough, the
 * sandbox's process list is searched for the command's tag (FINDING). This is repeated, ever more
 * rarely, until there is progress: a byte, a keep-alive, or a stream that is open for COMMAND_STOOD_MS.
 * After COMMAND_REATTACH_MS without progress the outcome is UNKNOWN; time in which the sandbox is out of
 * reach or paused does not count.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define BACKOFF_MS    50u
#define PAUSED_ASK_MS 15000ull /* the longest wait between two questions whether a paused sandbox was resumed */

static void attach(struct command *c);
static void on_lost(struct command *c, const struct envd_event *e);

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

	str_copy_ends(c->result.said, sizeof(c->result.said), e->status);
	str_copy_ends(c->result.said_error, sizeof(c->result.said_error), e->error ? e->error : "");
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

/* --- a sandbox that cannot be asked now --- */

enum sandbox_evidence command_evidence(enum envd_class cls)
{
	return cls == ENVD_NOT_RUNNING ? SANDBOX_SAW_ABSENT
	       : cls == ENVD_TOKEN     ? SANDBOX_SAW_REFUSED
				       : SANDBOX_SAW_LOST;
}

static void again(struct command *c, uint64_t delay_ms, bool asks)
{
	struct status st;

	c->retry_asks = asks;
	if (timer_set(&c->retry, loop_now_ms(c->cs->o.loop) + delay_ms) == 0)
		return;
	status_set_code(&st, CODE_RESOURCE_EXHAUSTED, "out of memory");
	command_end_with(c, COMMAND_UNKNOWN, &st);
}

/* The connection to the program works. */
static void note_progress(struct command *c)
{
	c->cuts = c->asks = 0;
	c->cut_at_ms = 0;
}

static uint64_t backoff(const struct command *c)
{
	return c->asks <= 1 ? 0 : MIN((uint64_t)BACKOFF_MS << MIN(c->asks, 10u), COMMAND_ASK_MAX_MS);
}

/* command_timeout does not run while the sandbox is paused. */
static void stop_clock(struct command *c)
{
	uint64_t now = loop_now_ms(c->cs->o.loop);

	if (!c->was_paused)
		command_wake(c);
	c->was_paused = true;
	c->verify = true;
	c->cut_at_ms = 0;
	if (!timer_is_set(&c->deadline))
		return;
	c->time_left_ms = c->deadline.at_ms > now ? c->deadline.at_ms - now : 1;
	c->deadline_at_ms = 0;
	timer_clear(&c->deadline);
	command_save(c);
}

bool command_is_cut(const struct command *c)
{
	return c->state > CMD_STARTING && c->state < CMD_ENDING && c->state != CMD_RUNNING;
}

bool command_is_paused(const struct command *c)
{
	return c->was_paused && c->state == CMD_ASKING;
}

static void start_clock(struct command *c)
{
	uint64_t left = c->time_left_ms ? c->time_left_ms : c->timeout_ms;

	if (!c->timeout_ms || timer_is_set(&c->deadline))
		return;
	c->time_left_ms = 0;
	c->deadline_at_ms = clock_wall_ms() + (int64_t)left;
	if (timer_set(&c->deadline, loop_now_ms(c->cs->o.loop) + left) < 0)
		log_warn("command_timeout", "command=%s error=\"out of memory, it has no timeout\"", c->id);
}

static void on_inquiry(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct command *c = command_from(user);

	c->inquiry = NULL;
	if (!status_ok(st) && st->reason == R_SANDBOX_PAUSED) {
		stop_clock(c);
		command_start_answer(c, st); /* whether it was started is known when somebody resumes it */
		again(c, MIN(500ull << MIN(c->asks, 5u), PAUSED_ASK_MS), true);
	} else if (!status_ok(st) && st->code == CODE_NOT_FOUND) {
		command_end_with(c, COMMAND_LOST, st);
	} else if (!status_ok(st)) {
		again(c, MAX(backoff(c), 2 * (uint64_t)BACKOFF_MS), true);
	} else if (agent_address_set(&c->at, &t->at) < 0) { /* with a fresh token */
		again(c, COMMAND_ASK_MAX_MS, true);
	} else {
		kill_call_go(c);
		if (c->state != CMD_ASKING)
			return; /* kill_call_go() ended the command, for want of memory */
		if (backoff(c))
			again(c, backoff(c), false);
		else
			command_on_retry(&c->retry, c);
	}
}

void command_ask(struct command *c, enum sandbox_evidence what)
{
	const struct sandbox_call call = {
		.sandbox = c->at.id, .deadline_ms = loop_now_ms(c->cs->o.loop) + 60000, .user = c};

	if (c->state != CMD_ASKING)
		command_set_state(c, CMD_ASKING);
	c->asks++;
	if (sandbox_note_evidence(c->cs->core, &call, c->at.account, what, on_inquiry, &c->inquiry) < 0)
		again(c, COMMAND_ASK_MAX_MS, true);
}

void command_await_start(struct command *c)
{
	/* Without memory it is waited for as long as its connection lives. */
	(void)!timer_set(&c->retry, loop_now_ms(c->cs->o.loop) + COMMAND_BEGIN_MS);
}

static void on_no_start(struct command *c)
{
	struct envd_event e = { .cls = ENVD_LOST };

	status_set(&e.failure, R_UNREACHABLE, "the agent answered, and did not say within %u s that the command runs",
		   COMMAND_BEGIN_MS / 1000);
	on_lost(c, &e);
}

void command_on_retry(struct timer *t, void *user)
{
	struct command *c = command_from(user);

	if (c->stream)	/* in any other state this timer is set without one */
		on_no_start(c);
	else if (c->state == CMD_STARTING)
		command_start_again(c);
	else if (c->state == CMD_FINDING || (!c->retry_asks && (!c->pid || c->verify)))
		command_find(c);
	else if (c->retry_asks)
		command_ask(c, SANDBOX_SAW_LOST);
	else
		attach(c);
}

/* A command that waits for the end of a pause asks at once. */
void command_hurry(struct command *c)
{
	if (c->state == CMD_ASKING && c->was_paused && !c->inquiry)
		again(c, 0, true);
}

/* Drops the stream before a pause, in which nothing would come; after the pause the command is attached to again. */
static void on_pausing(struct command *c)
{
	if (c->state != CMD_RUNNING && c->state != CMD_ATTACHING)
		return;
	c->stream = envd_stream_free(c->stream);
	command_set_state(c, CMD_ASKING);
	stop_clock(c);
	again(c, PAUSED_ASK_MS, true);
}

void command_on_sandbox(void *user, enum sandbox_tie_event event, const struct status *st)
{
	struct command *c = command_from(user);

	switch (event) {
	case SANDBOX_TIE_PAUSING:
		on_pausing(c);
		break;
	case SANDBOX_TIE_RUNNING:
		command_hurry(c);
		break;
	case SANDBOX_TIE_GONE:
		command_sandbox_gone(c, st);
		break;
	}
}

/* --- the process --- */

static void ended_unseen(struct command *c)
{
	struct status st;

	c->result.was_absent = true;
	if (c->was_paused)
		status_set(&st, R_SANDBOX_PAUSED, "its sandbox was paused, and resumed without it");
	else
		status_set(&st, R_OUTCOME_UNKNOWN,
			   "the command ended while nobody was attached to it; its exit code was not told");
	command_end_with(c, c->was_paused ? COMMAND_LOST : COMMAND_UNKNOWN, &st);
}

static void never_seen(struct command *c)
{
	struct status st;

	status_set(&st, R_OUTCOME_UNKNOWN,
		   "the answer to the start was lost, and no process of the command is there: it did not start, "
		   "or it has ended");
	if (!c->request)
		st.code = CODE_UNKNOWN;
	command_end_with(c, COMMAND_UNKNOWN, &st);
}

/* The start of a plain command was sent, and its pid is not known: no process can be told to be its. */
static void never_known(struct command *c)
{
	struct status st;

	status_set(&st, R_OUTCOME_UNKNOWN, "the answer to the start was lost: the command runs, or has run, or never started");
	command_end_with(c, COMMAND_UNKNOWN, &st);
}

/* A start that is delayed in the network may still become a process. */
static void find_again(struct command *c)
{
	uint64_t now = loop_now_ms(c->cs->o.loop);

	if (!c->find_by_ms)
		c->find_by_ms = now + COMMAND_FIND_MS;
	if (now >= c->find_by_ms) {
		never_seen(c);
		return;
	}
	again(c, MIN((uint64_t)BACKOFF_MS * 4 << MIN(c->finds, 6u), c->find_by_ms - now), false);
	c->finds++;
}

/* A plain command has no tag of ours: its pid, with the command line that it was started with. */
static bool is_process_of(const struct command *c, const struct envd_process *p)
{
	if (!c->plain)
		return p->tag && str_eq(p->tag, c->tag);
	if (p->pid != c->pid || p->args.n + 1 != c->n_args || !str_eq(p->cmd ? p->cmd : "", c->args[0]))
		return false;
	for (size_t i = 0; i < p->args.n; i++)
		if (!str_eq(p->args.v[i], c->args[i + 1]))
			return false;
	return true;
}

static void on_look(struct envd_result *r, void *user)
{
	struct command *c = command_from(user);
	bool taken = false;

	c->look = NULL;
	if (r->cls != ENVD_OK) {
		command_ask(c, command_evidence(r->cls));
		return;
	}
	for (size_t i = 0; i < r->n_processes; i++) {
		if (is_process_of(c, &r->processes[i])) {
			c->pid = r->processes[i].pid;
			attach(c);
			return;
		}
		taken |= r->processes[i].pid == c->pid;
	}
	if (c->pid && !taken) /* the agent still reports the end of a process that ended just now */
		attach(c);
	else if (c->pid)
		ended_unseen(c);
	else
		find_again(c);
}

void command_find(struct command *c)
{
	struct envd_target target =
		agent_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 10000);

	if (c->plain && !c->pid) {
		never_known(c);
		return;
	}
	if (c->state != CMD_FINDING)
		command_set_state(c, CMD_FINDING);
	c->look = envd_process_list(&target, on_look, c);
	if (!c->look)
		again(c, COMMAND_ASK_MAX_MS, false);
}

static void attach(struct command *c)
{
	struct envd_target target =
		agent_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 30000);

	command_set_state(c, CMD_ATTACHING);
	c->stream = envd_attach(&target, c->pid, command_on_ready, c);
	if (c->stream) {
		command_await_start(c);
		return;
	}
	command_set_state(c, CMD_ASKING);
	again(c, COMMAND_ASK_MAX_MS, true);
}

/* --- the stream --- */

void command_on_ready(struct envd_stream *s, void *user)
{
	struct command *c = command_from(user);

	defer_post(&c->pump);
}

/* The output of the time without a stream is lost: the agent keeps none. */
static void note_gap(struct command *c)
{
	enum spool_reason why = c->restarted ? SPOOL_POWER_LOSS : SPOOL_REATTACHED;
	int64_t now = clock_wall_ms();
	int r;

	c->truncated = true;
	r = spool_gap(c->spool, c->pty ? SPOOL_PTY : SPOOL_STDOUT, why, now);
	if (!r && !c->pty)
		r = spool_gap(c->spool, SPOOL_STDERR, why, now);
	if (r < 0)
		command_note_spool(c, r);
	command_wake(c);
}

static void on_started(struct command *c, uint32_t pid)
{
	if (c->state != CMD_STARTING && c->state != CMD_ATTACHING)
		return;	/* said twice: the first one counts */
	FAILPOINT("command.started");
	timer_clear(&c->retry);
	c->pid = pid;
	if (!c->started_at_ms)
		c->started_at_ms = clock_wall_ms();
	if (c->state == CMD_ATTACHING)
		note_gap(c);
	command_set_state(c, CMD_RUNNING);
	c->verify = c->was_paused = c->restarted = false;
	c->stood_at_ms = loop_now_ms(c->cs->o.loop);
	start_clock(c);
	exit_watch_watch(c);
	kill_call_go(c);
	if (c->foreign || c->group_known)
		command_is_started(c);
	else
		command_save(c);
	if (c->end_when_started)
		command_end_now(c);
}

static void on_start_inquiry(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct command *c = command_from(user);
	struct status oom;

	c->inquiry = NULL;
	if (status_ok(st))
		command_probe_drop(c);
	if (!status_ok(st)) {
		command_start_failed(c, st);
	} else if (agent_address_set(&c->at, &t->at) < 0) {
		status_errno(&oom, ENOMEM, "starting a command");
		command_start_failed(c, &oom);
	} else {
		again(c, backoff(c), false);
	}
}

/* Was the start not processed, and is there time to send it again? After a refused token only once, with a fresh one:
 * another refusal would not pass by itself. */
static bool may_start_again(struct command *c, enum envd_class cls)
{
	bool first = !c->token_refused;

	if (cls == ENVD_TOKEN)
		c->token_refused = true;
	return loop_now_ms(c->cs->o.loop) < c->start_by_ms &&
	       (cls == ENVD_NOT_RUNNING || cls == ENVD_UNSENT || (cls == ENVD_TOKEN && first));
}

/* A start that was not processed is sent again if the sandbox module says that the sandbox runs. After a lost answer the
 * process is looked for. */
static void on_start_lost(struct command *c, enum envd_class cls, const struct status *st)
{
	const struct sandbox_call call = {
		.sandbox = c->at.id, .deadline_ms = c->start_by_ms, .user = c};
	bool sent = envd_stream_was_sent(c->stream);

	c->stream = envd_stream_free(c->stream);
	if (may_start_again(c, cls) &&
	    sandbox_note_evidence(c->cs->core, &call, c->at.account, command_evidence(cls),
				  on_start_inquiry, &c->inquiry) == 0) {
		c->launch = LAUNCH_RESOLVING;
		c->asks++;
		return;
	}
	if (cls == ENVD_LOST && sent && !c->foreign) {
		log_info("command_start_lost", "command=%s sandbox=%s error=%s", c->id, c->at.id,
			 log_q(st->text));
		c->asks = 0;
		command_find(c);
		return;
	}
	if (c->request && cls == ENVD_ANSWERED)
		request_refuse(c->request, st);
	command_start_failed(c, st);
}

/* Counts a cut of the stream. True: for COMMAND_REATTACH_MS there were only cuts. */
static bool is_given_up(struct command *c, enum envd_class cls)
{
	uint64_t now = loop_now_ms(c->cs->o.loop);

	if (c->stood_at_ms && now - c->stood_at_ms >= COMMAND_STOOD_MS)
		note_progress(c);
	c->stood_at_ms = 0;
	if (cls != ENVD_OK && cls != ENVD_LOST && cls != ENVD_ANSWERED) { /* the sandbox was not reached */
		c->cut_at_ms = 0;
		return false;
	}
	c->cuts++;
	if (!c->cut_at_ms)
		c->cut_at_ms = now;
	return now - c->cut_at_ms >= COMMAND_REATTACH_MS;
}

static void on_stream_lost(struct command *c, enum envd_class cls, const struct status *why)
{
	bool given_up = is_given_up(c, cls);
	struct status st;

	c->stream = envd_stream_free(c->stream);
	command_wake(c);
	log_info("command_stream_lost", "command=%s sandbox=%s cuts=%u error=%s", c->id, c->at.id, c->cuts,
		 log_q(why->text));
	if (given_up) {
		status_set(&st, R_OUTCOME_UNKNOWN,
			   "the stream of the command was cut %u times in %u s with nothing between: %.200s",
			   c->cuts, COMMAND_REATTACH_MS / 1000, why->text);
		command_end_with(c, COMMAND_UNKNOWN, &st);
	} else if (c->cut_at_ms && c->cuts == 1 && c->state == CMD_RUNNING && !c->at.wakes) {
		attach(c);
	} else {
		command_ask(c, command_evidence(cls));
	}
}

/* The agent kills a plain command at its agent_timeout_ms, and says so instead of its end. */
static bool is_killed_at_its_time(const struct command *c)
{
	enum ab_code code;

	return c->agent_timeout_ms && c->state == CMD_RUNNING && envd_stream_said(c->stream, &code) && code == CODE_DEADLINE_EXCEEDED;
}

static void end_at_its_time(struct command *c)
{
	c->result.outcome = COMMAND_SIGNALED;
	str_copy(c->result.signal, sizeof(c->result.signal), "KILL");
	c->result.timed_out = true;
	command_finish(c);
}

/* Who starts a plain command knows the agent's codes and words, and not ours. */
static void say_as_the_agent(const struct command *c, struct status *st)
{
	enum ab_code code;
	const char *text = envd_stream_said(c->stream, &code);

	if (!text)
		return;
	st->code = code;
	str_copy(st->text, sizeof(st->text), text);
}

static void on_lost(struct command *c, const struct envd_event *e)
{
	struct status st = e->failure;

	timer_clear(&c->retry);
	if (status_ok(&st))
		status_set(&st, R_TRUNCATED, "the stream ended without saying how the command ended");
	if (c->plain && e->cls == ENVD_ANSWERED && is_killed_at_its_time(c)) {
		end_at_its_time(c);
	} else if (c->state == CMD_STARTING) {
		if (c->plain)
			say_as_the_agent(c, &st);
		command_hide_wrapper(&st);
		on_start_lost(c, e->cls == ENVD_OK ? ENVD_LOST : e->cls, &st);
	} else if (c->state == CMD_ATTACHING && e->cls == ENVD_ANSWERED &&
		   st.reason == R_PROCESS_NOT_FOUND) {
		c->stream = envd_stream_free(c->stream);
		ended_unseen(c);
	} else {
		on_stream_lost(c, e->cls, &st);
	}
}

static bool has_room_behind(const struct command *c, const struct command_reader *r)
{
	uint64_t ahead = spool_ahead(c->spool, &r->pos);

	if (!ahead)
		return true;
	return ahead + COMMAND_PIPE_BYTES <= c->spool_limit &&
	       spool_room_behind(c->spool, &r->pos) >= COMMAND_PIPE_BYTES;
}

/* A plain command waits for each reader that holds it, as the agent does. */
static bool all_have_room(const struct command *c)
{
	list_for_each(n, &c->readers) {
		const struct command_reader *r = list_entry(n, struct command_reader, node);

		if (r->run && !has_room_behind(c, r))
			return false;
	}
	return true;
}

bool command_may_take(const struct command *c)
{
	if (!c->block)
		return true;
	if (!c->starter)
		return spool_room(c->spool) >= COMMAND_PIPE_BYTES;
	return c->plain ? all_have_room(c) : has_room_behind(c, c->starter);
}

static void on_data(struct command *c, const struct envd_event *e)
{
	int64_t now = clock_wall_ms();
	int r = spool_append(c->spool, (enum spool_stream)e->stream, e->data, e->n, now);

	if (e->stream == ENVD_PTY)
		c->pty = true; /* only now known of a foreign command */
	exit_watch_heard(c);
	note_progress(c);
	c->last_output_at_ms = now;
	if (r < 0)
		command_note_spool(c, r);
	command_wake(c);
}

void command_pump(struct defer *d, void *user)
{
	struct command *c = command_from(user);
	struct envd_event e;

	for (unsigned i = 0; i < COMMAND_PUMP_EVENTS; i++) {
		if (!c->stream || (c->state == CMD_RUNNING && !command_may_take(c)))
			return;
		if (!list_is_empty(&c->readers) && spool_would_skip(c->spool, COMMAND_PIPE_BYTES)) {
			c->pump_waits = true;	/* readers that keep up must get this output before it is dropped */
			return;
		}
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
			note_progress(c);
			break;
		case ENVD_EVENT_END:
			FAILPOINT("command.end_seen");
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

