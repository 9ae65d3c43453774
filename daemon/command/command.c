/* SPDX-License-Identifier: MIT */
/*
 * One command as an object: its states, its end, what others see of it. What it does is in other
 * files: start.c (the start), stream.c (upstream stream → spool), reader.c (spool → clients),
 * kill_call.c, input.c, terminal.c, saved.c (its row), request.c (its request id).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define REACH_WAIT_MS 5000u

static const struct {
	const char *name;
	unsigned next;
} states[] = {
	[CMD_STARTING] = { "starting", BIT(CMD_FINDING) | BIT(CMD_RUNNING) | BIT(CMD_ENDING) |
				       BIT(CMD_ENDED) | BIT(CMD_ASKING) /* of an earlier run */ },
	[CMD_FINDING] = { "finding", BIT(CMD_ATTACHING) | BIT(CMD_ASKING) | BIT(CMD_ENDING) |
				     BIT(CMD_ENDED) },
	[CMD_RUNNING] = { "running", BIT(CMD_ATTACHING) | BIT(CMD_ASKING) | BIT(CMD_ENDING) |
				     BIT(CMD_ENDED) },
	[CMD_ATTACHING] = { "attaching", BIT(CMD_RUNNING) | BIT(CMD_ASKING) | BIT(CMD_ENDING) |
					 BIT(CMD_ENDED) },
	[CMD_ASKING] = { "asking", BIT(CMD_FINDING) | BIT(CMD_ATTACHING) | BIT(CMD_ENDING) |
				   BIT(CMD_ENDED) },
	[CMD_ENDING] = { "ending", BIT(CMD_ENDED) },
	[CMD_ENDED] = { "ended", 0 },
};

/* Each answers from the loop, and leaves the list then. */
static void end_reach_ops(struct command *c)
{
	timer_clear(&c->reach);
	list_for_each(n, &c->reach_ops)
		cmd_op_post(list_entry(n, struct command_op, node));
}

static void on_not_reached(struct timer *t, void *user)
{
	end_reach_ops(command_from(user));
}

void command_set_state(struct command *c, enum command_state to)
{
	must(states[c->state].next & BIT(to));
	log_debug("command_state", "command=%s sandbox=%s from=%s to=%s", c->id, c->at.id,
		  states[c->state].name, states[to].name);
	c->state = to;
	if (to == CMD_RUNNING || to >= CMD_ENDING)
		end_reach_ops(c);
}

bool command_can_begin(const struct command *c)
{
	return c->at.cloud && c->pid && (!c->verify || c->state == CMD_RUNNING);
}

bool command_is_reached(const struct command *c)
{
	return c->state >= CMD_ENDING || command_can_begin(c);
}

int command_reach(struct command *c, command_done_fn *done, void *user, struct command_op **ret)
{
	struct command_op *op;

	if (!timer_is_set(&c->reach) && timer_set(&c->reach, loop_now_ms(c->cs->o.loop) + REACH_WAIT_MS) < 0)
		return -ENOMEM;
	op = cmd_op_new(c->cs, OP_FIND, c, user);
	if (!op)
		return -ENOMEM;
	op->done = done;
	list_del(&op->node);
	list_add_tail(&c->reach_ops, &op->node);
	*ret = op;
	return 0;
}

/* --- making and freeing it --- */

struct command *command_ref(struct command *c)
{
	c->refs++;
	return c;
}

void command_destroy(struct command *c)
{
	must(list_is_empty(&c->readers) && list_is_empty(&c->start_ops) && list_is_empty(&c->reach_ops));
	list_del(&c->node);
	must(!c->listed);
	sandbox_untie(&c->tie);
	timer_clear(&c->reach);
	timer_clear(&c->deadline);
	timer_clear(&c->orphan);
	timer_clear(&c->retry);
	timer_clear(&c->exit_watch.due);
	defer_cancel(&c->pump);
	defer_cancel(&c->tell);
	envd_stream_free(c->stream);
	command_probe_drop(c);
	envd_call_cancel(c->look);
	sandbox_cancel(c->inquiry);
	kill_call_free(c->kill_call);
	terminal_fini(c);
	if (c->cs->closing && c->has_row)
		spool_close(c->spool);
	else
		spool_free(c->spool);
	agent_address_fini(&c->at);
	free(c->shell);
	free(c->user);
	free(c->cwd);
	free(c->own_tag);
	for (size_t i = 0; i < c->n_args; i++)
		free(c->args[i]);
	free(c->args);
	for (size_t i = 0; i < c->n_envs; i++) {
		free((char *)c->envs[i].key);
		free((char *)c->envs[i].value);
	}
	free(c->envs);
	command_let_go(c);
	c->magic = 0;
	free(c);
}

struct command *command_unref(struct command *c)
{
	if (!c)
		return NULL;
	must(c->refs);
	if (--c->refs == 0) { /* its own callback may be on the stack */
		defer_cancel(&c->tell); /* nobody reads any more; it would take a reference */
		defer_cancel(&c->pump);
		list_add_tail(&c->cs->dying, &c->node);
		defer_post(&c->cs->sweep);
	}
	return NULL;
}

void command_use(struct command *c, bool on)
{
	if (on == c->in_use)
		return;
	c->in_use = on;
	if (on) {
		sandbox_use_begin(c->cs->core, c->at.account, c->at.id);
		sandbox_tie(c->cs->core, c->at.account, c->at.id, &c->tie);
	} else {
		sandbox_untie(&c->tie);
		sandbox_use_end(c->cs->core, c->at.account, c->at.id);
	}
}

/* Calls that work on it may keep it in memory, and nothing is learned of it any more. */
void command_forget(struct command *c)
{
	command_unlist(c);
	command_use(c, false);
	map_del_str(&c->cs->by_id, c->id);
	c->stream = envd_stream_free(c->stream);
	envd_call_cancel(give(c->look));
	timer_clear(&c->deadline);
	timer_clear(&c->orphan);
	timer_clear(&c->retry);
	timer_clear(&c->exit_watch.due);
	sandbox_cancel(give(c->inquiry));
	end_reach_ops(c);
	request_gone(c);
	command_unsave(c);
	command_unref(c);
}

void command_note_spool(struct command *c, int err)
{
	c->truncated = true;
	log_warn("command_spool", "command=%s error=%s", c->id, log_q(strerrordesc_np(-err)));
}

void command_flush(struct command *c)
{
	int r = spool_flush(c->spool);

	if (r < 0)
		command_note_spool(c, r);
	if (spool_is_held(c->spool) == c->spool_held)
		return;
	c->spool_held = !c->spool_held;
	log_warn(c->spool_held ? "spool_in_memory" : "spool_on_disk", "command=%s sandbox=%s", c->id, c->at.id);
}

/* In the last stage of a pass: the output of the pass is written at once, then readers are told, and those
 * at the end take it from the memory that was written. */
static void tell_readers(struct defer *d, void *user)
{
	struct command *c = command_ref(command_from(user));

	command_flush(c);
	list_for_each_safe(n, &c->readers) {
		struct command_reader *r = list_entry(n, struct command_reader, node);

		r->on_ready(r, r->user);
	}
	spool_settle(c->spool);
	if (c->pump_waits)
		defer_post(&c->pump);
	c->pump_waits = false;
	command_unref(c);
}

void command_wake(struct command *c)
{
	defer_post(&c->tell);
}

static void on_deadline(struct timer *t, void *user)
{
	struct command *c = command_from(user);

	c->result.timed_out = true;
	command_end_now(c);
}

static void on_orphaned(struct timer *t, void *user)
{
	struct command *c = command_from(user);

	log_info("command_orphan", "command=%s sandbox=%s ended=1", c->id, c->at.id);
	command_end_now(c);
}

int command_new(struct commands *cs, uid_t uid, const char *id, struct command **ret)
{
	struct uid_share *share = share_of(cs, uid);
	struct command *c = share ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return -ENOMEM;
	c->magic = COMMAND_MAGIC;
	c->refs = 1; /* the table's */
	c->cs = cs;
	c->share = share;
	c->state = CMD_STARTING;
	command_lists_init(c);
	list_init(&c->readers);
	list_init(&c->start_ops);
	list_init(&c->reach_ops);
	c->id[0] = 'c';
	if (id)
		str_copy(c->id, sizeof(c->id), id);
	else
		rng_id(c->id + 1, COMMAND_ID_CHARS);
	snprintf(c->tag, sizeof(c->tag), COMMAND_TAG "%s", c->id);
	timer_init(&c->deadline, cs->o.loop, on_deadline, c);
	timer_init(&c->orphan, cs->o.loop, on_orphaned, c);
	timer_init(&c->retry, cs->o.loop, command_on_retry, c);
	timer_init(&c->reach, cs->o.loop, on_not_reached, c);
	timer_init(&c->exit_watch.due, cs->o.loop, exit_watch_on_due, c);
	defer_init(&c->pump, cs->o.loop, command_pump, c);
	defer_init_pump(&c->tell, cs->o.loop, tell_readers, c);
	terminal_init(c);
	sandbox_tie_init(&c->tie, command_on_sandbox, c);
	c->kill_grace_ms = cs->o.limits.kill_grace_ms;
	c->spool_limit = cs->o.limits.spool_per_command;
	c->made_at_ms = clock_wall_ms();
	c->result.output_complete = true;
	c->at.account = strdup("");
	c->at.id = strdup("");
	if (!c->at.account || !c->at.id ||
	    (!id && spool_new(&cs->spools, c->id, c->spool_limit, &share->quota, &cs->total,
			      &c->spool) < 0) ||
	    map_put_str(&cs->by_id, c->id, c) < 0) {
		command_destroy(c);
		return -ENOMEM;
	}
	command_list_running(c);
	*ret = c;
	return 0;
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

void command_look(const struct command *c, struct command_view *ret)
{
	*ret = (struct command_view){
		.id = c->id, .sandbox = c->at.id, .shell = or_empty(c->shell), .user = or_empty(c->user),
		.cwd = or_empty(c->cwd), .tag = c->foreign ? "" : c->plain ? or_empty(c->own_tag) : c->tag,
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

/* Also after a failed write: the row then says that it runs, and the next start asks again. */
static void on_end_written(struct command *c, const struct status *st)
{
	static const struct status ok = STATUS_OK;

	command_set_state(c, CMD_ENDED);
	command_start_answer(c, &ok);	/* its end was told, and its beginning was not: it ran */
	command_list_ended(c);
	command_use(c, false);
	if (list_is_empty(&c->readers))
		spool_rest(c->spool);
	if (c->result.outcome == COMMAND_LOST || c->result.outcome == COMMAND_UNKNOWN)
		log_warn("command_lost", "command=%s sandbox=%s pid=%u reason=%s error=%s", c->id, c->at.id,
			 c->pid, status_reason_name(c->result.reason), log_q(c->result.message));
	command_wake(c);
	commands_trim(c->cs, c->share);
}

void command_finish(struct command *c)
{
	const uint32_t *survivors;
	size_t n;

	if (c->final || !c->listed)	/* forgotten: nobody asks how it ended */
		return;
	command_flush(c);
	c->stream = envd_stream_free(c->stream);
	if (c->kill_call)
		kill_call_skip(c->kill_call);
	if (c->kill_call && !kill_call_survivors(c->kill_call, &survivors, &n)) {
		if (c->state != CMD_ENDING)
			command_set_state(c, CMD_ENDING);
		return; /* kill_call_finish() calls this again when the survivors are counted */
	}
	if (c->kill_call) {
		c->result.n_survivors = (uint32_t)MIN(n, (size_t)COMMAND_SURVIVORS_MAX);
		memcpy(c->result.survivors, survivors, c->result.n_survivors * sizeof(*survivors));
	}
	timer_clear(&c->deadline);
	timer_clear(&c->orphan);
	timer_clear(&c->retry);
	timer_clear(&c->exit_watch.due);
	envd_call_cancel(give(c->look));
	sandbox_cancel(give(c->inquiry));
	terminal_fini(c);
	if (c->truncated || !spool_is_whole(c->spool))
		c->result.output_complete = false;
	if (!c->result.exited_at_ms)
		c->result.exited_at_ms = clock_wall_ms();
	c->final = true;
	if (c->state != CMD_ENDING)
		command_set_state(c, CMD_ENDING);
	/* Written before readers are told, so that a restart cannot take the result back. */
	if (command_write_row(c, on_end_written) < 0)
		on_end_written(c, NULL);
}

void command_end_with(struct command *c, enum command_outcome outcome, const struct status *why)
{
	c->result.outcome = outcome;
	c->result.reason = why->reason;
	str_copy(c->result.message, sizeof(c->result.message), why->text);
	c->truncated = true;
	command_start_answer(c, why);
	command_finish(c);
}

void command_sandbox_gone(struct command *c, const struct status *st)
{
	if (c->final || (c->state == CMD_STARTING && c->launch != LAUNCH_SENT))
		return;		/* nothing was sent: the start learns of the sandbox's end by itself */
	(void)command_ref(c);
	log_info("command_sandbox_gone", "command=%s sandbox=%s reason=%s", c->id, c->at.id,
		 status_reason_name(st->reason));
	command_pump(&c->pump, c);	/* the command's own end may be in the stream */
	sandbox_cancel(give(c->inquiry));
	command_probe_drop(c);
	if (c->state < CMD_ENDING)	/* else the command's own end is known and stays its result */
		command_end_with(c, COMMAND_LOST, st);
	kill_call_abandon(c);
	cmd_ops_end(c, st);
	command_unref(c);
}
