/* SPDX-License-Identifier: MIT */
/*
 * The kill call: ends a command and all that it started, by a fixed script that runs in the sandbox as root.
 * It signals every process of the command's session, its descendants and every process with its id in
 * the environment: TERM, grace, KILL; and prints the pids that are left. The agent's own SendSignal
 * stops the collection of output and reaches one process, so it is only the fallback.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/buf.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define OUTPUT_MAX_BYTES 4096u
#define STEP_MS		 50u	/* one step of the script's grace */
#define SLACK_MS	 15000u	/* how long after the grace the script is given up */
#define AGAIN_MS	 100u	/* before a script is sent again whose answer was lost, doubled each time */

/* $1 pid, $2 the command's id ("" = none), $3 steps of grace, $4 signals beside TERM, which an interactive shell
 * ignores. Signals go to single pids, never to groups. */
static const char script[] =
	"pid=$1 tag=$2 n=$3 also=$4 self=$$\n"
	"members() {\n"
	" found= all=\n"
	" for d in /proc/[0-9]*; do\n"
	"  p=${d#/proc/}\n"
	"  [ \"$p\" = \"$self\" ] && continue\n"
	"  { IFS= read -r s <\"$d/stat\"; } 2>/dev/null || continue\n"
	"  set -- ${s##*\") \"}\n"
	"  case $1 in Z|X) continue;; esac\n"
	"  all=\"$all $p:$2\"\n"
	"  if [ \"$p\" = \"$pid\" ] || [ \"$4\" = \"$pid\" ]; then found=\"$found $p \"\n"
	"  elif [ -n \"$tag\" ] && grep -aq -e \"" COMMAND_ENV "=$tag\" \"$d/environ\" 2>/dev/null; then "
	"found=\"$found $p \"; fi\n"
	" done\n"
	" more=1\n"
	" while [ -n \"$more\" ]; do\n"
	"  more=\n"
	"  for e in $all; do\n"
	"   case \"$found\" in *\" ${e%:*} \"*) continue;; esac\n"
	"   case \"$found\" in *\" ${e#*:} \"*) found=\"$found ${e%:*} \"; more=1;; esac\n"
	"  done\n"
	" done\n"
	"}\n"
	"members; i=0\n"
	"if [ $n -gt 0 ] && [ -n \"$found\" ]; then\n"
	" for s in TERM $also; do kill -$s $found 2>/dev/null; done\n"
	"fi\n"
	"while members; [ -n \"$found\" ] && [ $i -lt $n ]; do\n"
	" if [ $i -lt 3 ]; then sleep 0.01; else sleep 0.05 || sleep 1; fi; i=$((i+1))\n"
	"done\n"
	"i=0\n"
	"while [ -n \"$found\" ] && [ $i -lt 20 ]; do\n"
	" kill -KILL $found 2>/dev/null; sleep 0.01; members; i=$((i+1))\n"
	" [ -n \"$found\" ] && [ $i -gt 3 ] && sleep 0.1\n"
	"done\n"
	"for p in $found; do echo $p; done\n";

struct kill_call {
	struct command *c;	/* its owner */
	struct envd_stream *stream;
	struct envd_call *fallback;
	struct sandbox_op *inquiry;
	struct timer give_up, again;
	uint64_t grace_until_ms;
	unsigned tries;
	struct buf out;
	struct list waiters;	/* struct command_op */
	bool begun, done;
	uint32_t survivors[COMMAND_SURVIVORS_MAX];
	size_t n_survivors;
	struct status st;
};

bool kill_call_survivors(const struct kill_call *k, const uint32_t **ret, size_t *ret_n)
{
	*ret = k->survivors;
	*ret_n = k->n_survivors;
	return k->done;
}

void kill_call_free(struct kill_call *k)
{
	if (!k)
		return;
	timer_clear(&k->give_up);
	timer_clear(&k->again);
	sandbox_cancel(k->inquiry);
	envd_stream_free(k->stream);
	envd_call_cancel(k->fallback);
	while (!list_is_empty(&k->waiters))
		cmd_op_free(list_entry(k->waiters.next, struct command_op, node));
	buf_fini(&k->out);
	free(k);
}

static void parse_survivors(struct kill_call *k)
{
	char *text = buf_take_str(&k->out), *save = NULL;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		uint64_t pid;

		if (k->n_survivors < COMMAND_SURVIVORS_MAX &&
		    str_u64(line, strlen(line), UINT32_MAX, &pid) == 0)
			k->survivors[k->n_survivors++] = (uint32_t)pid;
	}
	free(text);
}

static void kill_call_finish(struct kill_call *k)
{
	struct command *c = command_ref(k->c);

	k->done = true;
	if (c->state >= CMD_ENDING) /* it has ended, whatever the script's outcome was */
		k->st = (struct status)STATUS_OK;
	timer_clear(&k->give_up);
	timer_clear(&k->again);
	sandbox_cancel(give(k->inquiry));
	k->stream = envd_stream_free(k->stream);
	if (c->state == CMD_ENDING)
		command_finish(c);
	while (!list_is_empty(&k->waiters)) {
		struct command_op *op = list_entry(k->waiters.next, struct command_op, node);

		list_del(&op->node);
		op->killed(op->user, &k->st, true, k->survivors, k->n_survivors);
		cmd_op_free(op);
	}
	command_unref(c);
}

/* --- fallback: SendSignal --- */

static void on_signalled(struct envd_result *r, void *user)
{
	struct kill_call *k = user;

	k->fallback = NULL;
	if (r->cls != ENVD_OK && r->status.reason != R_PROCESS_NOT_FOUND)
		k->st = r->status;
	kill_call_finish(k);
}

static void fall_back(struct kill_call *k, const struct status *why)
{
	struct command *c = k->c;
	struct envd_target target =
		agent_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 10000);

	log_info("command_kill_fallback", "command=%s sandbox=%s error=%s", c->id, c->at.id,
		 log_q(why->text));
	c->truncated = true; /* the agent stops reading the program's output at that moment */
	timer_clear(&k->give_up);
	timer_clear(&k->again);
	sandbox_cancel(give(k->inquiry));
	k->stream = envd_stream_free(k->stream);
	k->fallback = envd_send_signal(&target, c->pid, 9, on_signalled, k);
	if (k->fallback)
		return;
	status_set_code(&k->st, CODE_RESOURCE_EXHAUSTED, "out of memory");
	kill_call_finish(k);
}

/* --- the script --- */

static void on_kill_inquiry(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct kill_call *k = user;
	struct command *c = k->c;
	uint64_t wait = (uint64_t)AGAIN_MS << MIN(k->tries, 8u);

	k->inquiry = NULL;
	k->tries++;
	if (!status_ok(st) && st->code == CODE_NOT_FOUND)
		command_sandbox_gone(c, st);
	else if ((status_ok(st) && agent_address_set(&c->at, &t->at) < 0) ||
		 timer_set(&k->again, loop_now_ms(c->cs->o.loop) + wait) < 0)
		fall_back(k, st);
}

/* The script's answer was lost. The cloud is asked about the sandbox, then the script is sent again until the kill is
 * given up: signalling twice does no harm. An error that the agent itself answered is not tried again. */
static void script_lost(struct kill_call *k, const struct envd_event *e)
{
	struct command *c = k->c;
	const struct sandbox_call call = {
		.sandbox = c->at.id, .deadline_ms = k->give_up.at_ms, .user = k};
	struct status why = e->failure;

	k->stream = envd_stream_free(k->stream);
	buf_drop(&k->out, buf_len(&k->out));
	if (e->cls == ENVD_ANSWERED ||
	    sandbox_note_evidence(c->cs->core, &call, c->at.account, command_evidence(e->cls),
				  on_kill_inquiry, &k->inquiry) < 0)
		fall_back(k, &why);
}

static void kill_call_on_ready(struct envd_stream *s, void *user)
{
	struct kill_call *k = user;
	struct envd_event e;

	for (;;) {
		switch (envd_stream_next(k->stream, &e)) {
		case ENVD_EVENT_NONE:
			return;
		case ENVD_EVENT_DATA:
			if (e.stream == ENVD_STDOUT && buf_len(&k->out) + e.n <= OUTPUT_MAX_BYTES)
				(void)!buf_put(&k->out, e.data, e.n); /* a shorter list has only true pids */
			break;
		case ENVD_EVENT_END:
			parse_survivors(k);
			kill_call_finish(k);
			return;
		case ENVD_EVENT_CLOSED:
			script_lost(k, &e);
			return;
		default:
			break;
		}
	}
}

static void on_give_up(struct timer *t, void *user)
{
	struct kill_call *k = user;
	struct status why;

	status_set(&why, R_DEADLINE_REQUEST, "the kill script did not end");
	fall_back(k, &why);
}

/* Sends the script with the rest of the grace. */
static int send_script(struct kill_call *k)
{
	struct command *c = k->c;
	uint64_t now = loop_now_ms(c->cs->o.loop), grace = k->grace_until_ms > now ? k->grace_until_ms - now : 0;
	struct envd_target target = agent_target(&c->at, "root", now + 20000);
	char pid[16], steps[16];
	const char *args[] = { "-c", script, "sh", pid, c->foreign ? "" : c->id, steps,
			       c->pty ? "HUP CONT" : "" };
	struct envd_start start = { .cmd = "/bin/sh", .cwd = "/", .tag = COMMAND_HELPER, .args = args,
				    .n_args = ARRAY_SIZE(args) };

	snprintf(pid, sizeof(pid), "%u", c->pid);
	snprintf(steps, sizeof(steps), "%llu",
		 (unsigned long long)((MIN(grace, 86400000u) + STEP_MS - 1) / STEP_MS));
	k->stream = envd_start(&target, &start, kill_call_on_ready, k);
	return k->stream ? 0 : -ENOMEM;
}

static void kill_call_on_again(struct timer *t, void *user)
{
	struct kill_call *k = user;
	struct status why;

	if (send_script(k) == 0)
		return;
	status_errno(&why, ENOMEM, "killing a command");
	fall_back(k, &why);
}

static int kill_call_begin(struct kill_call *k)
{
	struct command *c = k->c;

	k->begun = true;
	k->grace_until_ms = loop_now_ms(c->cs->o.loop) + c->kill_grace_ms;
	return send_script(k) < 0 ? -ENOMEM : timer_set(&k->give_up, k->grace_until_ms + SLACK_MS);
}

static struct kill_call *kill_call_start(struct command *c)
{
	struct kill_call *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->c = c;
	list_init(&k->waiters);
	buf_init(&k->out, 0);
	timer_init(&k->give_up, c->cs->o.loop, on_give_up, k);
	timer_init(&k->again, c->cs->o.loop, kill_call_on_again, k);
	if (command_can_begin(c) && kill_call_begin(k) < 0) {
		kill_call_free(k);
		return NULL;
	}
	return k;
}

void kill_call_go(struct command *c)
{
	struct kill_call *k = c->kill_call;

	if (!k || k->begun || !command_can_begin(c) || kill_call_begin(k) == 0)
		return;
	status_set_code(&k->st, CODE_RESOURCE_EXHAUSTED, "out of memory");
	kill_call_finish(k);
}

void kill_call_skip(struct kill_call *k)
{
	if (!k->begun && !k->done)
		kill_call_finish(k);
}

void kill_call_abandon(struct command *c)
{
	struct kill_call *k = c->kill_call;

	if (!k || k->done)
		return;
	envd_call_cancel(give(k->fallback));
	kill_call_finish(k);
}

/* Makes a kill call, unless one is under way; a finished one may have left survivors, and is replaced. */
static int want_kill_call(struct command *c)
{
	if (c->kill_call && !c->kill_call->done)
		return 0;
	kill_call_free(c->kill_call);
	c->kill_call = kill_call_start(c);
	c->result.killed = true;
	command_save(c);
	return c->kill_call ? 0 : -ENOMEM;
}

void command_end_now(struct command *c)
{
	if (c->state == CMD_STARTING || (!c->pid && c->state < CMD_ENDING)) {
		c->end_when_started = true;
		return;
	}
	if (c->state >= CMD_ENDING)
		return;
	if (want_kill_call(c) < 0)
		log_error("command_kill", "command=%s error=\"out of memory, it goes on\"", c->id);
}

int command_kill(struct command *c, command_killed_fn *done, void *user, struct command_op **ret)
{
	struct command_op *op = cmd_op_new(c->cs, OP_KILL, c, user);

	if (!op)
		return -ENOMEM;
	op->killed = done;
	if (c->state >= CMD_ENDING && !(c->kill_call && !c->kill_call->done)) {
		cmd_op_post(op);
	} else if (c->state < CMD_ENDING && want_kill_call(c) < 0) {
		cmd_op_free(op);
		return -ENOMEM;
	} else {
		list_del(&op->node);
		list_add_tail(&c->kill_call->waiters, &op->node);
	}
	*ret = op;
	return 0;
}

/* --- one signal to the main process --- */

static void on_signal_ready(struct envd_stream *s, void *user)
{
	struct command_op *op = user;
	struct envd_event e;

	for (;;) {
		switch (envd_stream_next(op->stream, &e)) {
		case ENVD_EVENT_NONE:
			return;
		case ENVD_EVENT_END:
			op->flag = e.exit_code == 0;
			break;
		case ENVD_EVENT_CLOSED:
			op->st = e.failure;
			break;
		default:
			continue;
		}
		cmd_op_post(op);
		return;
	}
}

int command_signal(struct command *c, int signo, uint64_t deadline_ms, command_killed_fn *done,
		   void *user, struct command_op **ret)
{
	static const char text[] = "kill -s \"$2\" \"$1\" 2>/dev/null";
	struct command_op *op = cmd_op_new(c->cs, OP_SIGNAL, c, user);
	struct envd_target target = agent_target(&c->at, "root", deadline_ms);
	char pid[16];
	const char *args[] = { "-c", text, "sh", pid, signo == 9 ? "KILL" : "TERM" };
	struct envd_start start = { .cmd = "/bin/sh", .cwd = "/", .tag = COMMAND_HELPER, .args = args,
				    .n_args = ARRAY_SIZE(args) };

	if (!op)
		return -ENOMEM;
	op->killed = done;
	snprintf(pid, sizeof(pid), "%u", c->pid);
	if (c->state >= CMD_ENDING) {
		cmd_op_post(op);
	} else if (!command_can_begin(c)) {
		cmd_taking_up(&op->st);
		cmd_op_post(op);
	} else {
		op->stream = envd_start(&target, &start, on_signal_ready, op);
		if (!op->stream) {
			cmd_op_free(op);
			return -ENOMEM;
		}
	}
	*ret = op;
	return 0;
}
