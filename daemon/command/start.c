/* SPDX-License-Identifier: MIT */
/*
 * The start of a command, at most once: the row (intent), then one request with the command's tag, then its
 * pid. Nothing is sent before the row is in the store. If the answer is lost, this run or the next one finds the process by
 * its tag, or the outcome is UNKNOWN. A repeat of the request id waits for the same start.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

/* --- its callers --- */

void command_start_answer(struct command *c, const struct status *st)
{
	while (!list_is_empty(&c->start_ops)) {
		struct command_op *op = list_entry(c->start_ops.next, struct command_op, node);

		list_del(&op->node);
		list_add_tail(&op->cs->ops, &op->node);
		op->joined = false;
		op->st = *st;
		cmd_op_post(op);
	}
}

/* Answers the callers; the request id may be used again, unless it has a refusal. */
void command_start_failed(struct command *c, const struct status *st)
{
	command_start_answer(c, st);
	c->stream = envd_stream_free(c->stream);
	if (c->request)
		request_drop(c->request);
	command_forget(c);
}

/* A caller leaves; when it was the last one, the start is given up, or with end_it ended. */
void command_start_cancel(struct command_op *op, bool end_it)
{
	struct command *c = op->c;

	op->joined = false;
	list_del(&op->node);
	if (!list_is_empty(&c->start_ops) || c->state >= CMD_ENDING)
		return;
	if (!c->starter) {
		c->block = false;	/* its reader will not come */
		defer_post(&c->pump);	/* which may have waited for it */
	}
	if (c->foreign) {
		if (list_is_empty(&c->readers))
			command_forget(c);
	} else if (c->state == CMD_STARTING && c->launch == LAUNCH_RESOLVING) {
		if (c->request)
			request_drop(c->request);
		command_forget(c); /* nothing was sent */
	} else if (end_it && !(c->state == CMD_STARTING && c->launch == LAUNCH_WRITING)) {
		c->end_when_started = true;
		if (c->state == CMD_RUNNING)
			command_end_now(c);
	}
}

/* Also after a failed write, since the command runs. */
static void on_start_written(struct command *c, const struct status *st)
{
	static const struct status ok = STATUS_OK;

	c->started = true;
	command_start_answer(c, &ok);
}

/* The row with the pid is written before the answer: a caller that got it finds the command again after a crash of the daemon. */
void command_is_started(struct command *c)
{
	if (c->foreign || command_write_row(c, on_start_written) < 0)
		on_start_written(c, NULL);
}

/*
 * Runs the program in a session of its own, so that a kill reaches all of it; without one where the image has no setsid.
 * A program that cannot be run is reported in a shell's words, not in setsid's. The variables begin with __ab_, as
 * names that are in the environment already would be changed for the program.
 */
static const char wrapper[] =
	"__ab_fail() { printf 'sh: %s: %s\\n' \"$1\" \"$2\" >&2; exit \"$3\"; }\n"
	"__ab_file=\n"
	"case $1 in\n"
	"*/*) __ab_file=$1;;\n"
	"*) IFS=:; set -f\n"
	" for __ab_dir in $PATH; do\n"
	"  [ -f \"${__ab_dir:-.}/$1\" ] || continue\n"
	"  __ab_file=${__ab_dir:-.}/$1\n"
	"  [ -x \"$__ab_file\" ] && break\n"
	" done;;\n"
	"esac\n"
	"[ -e \"$__ab_file\" ] || __ab_fail \"$1\" 'not found' 127\n"
	"[ -d \"$__ab_file\" ] && __ab_fail \"$1\" 'Is a directory' 126\n"
	"[ -x \"$__ab_file\" ] || __ab_fail \"$1\" 'Permission denied' 126\n"
	"for __ab_file in /usr/bin/setsid /bin/setsid; do\n"
	" [ -x \"$__ab_file\" ] && exec \"$__ab_file\" -- \"$@\"\n"
	"done\n"
	"exec \"$@\"";

void command_hide_wrapper(struct status *st)
{
	static const char begin[] = "/bin/sh -c __ab_fail()", end[] = "exec \"$@\" sh ";
	char *from = strstr(st->text, begin), *to;

	if (!from)
		return;
	to = strstr(from, end);
	to = to ? to + strlen(end) : strstr(from, STR_CUT);
	if (to)
		memmove(from, to, strlen(to) + 1);
}

#define SETSID_YES   ((void *)1)
#define SETSID_NO    ((void *)2)
#define SETSID_ASKED ((void *)3)	/* one command asks for all of its sandbox */

static void setsid_key(const struct command *c, char ret[256])
{
	snprintf(ret, 256, "%s/%s/%u", c->at.account, c->at.id, c->at.generation);
}

static void know_group(struct command *c, bool group)
{
	c->group = group;
	c->group_known = true;
	if (c->state != CMD_STARTING && c->pid)
		command_is_started(c);
}

static bool waits_for(const struct command *c, const struct command *of)
{
	return c->probe_waits && str_eq(c->at.id, of->at.id) && str_eq(c->at.account, of->at.account) &&
	       c->at.generation == of->at.generation;
}

/* Ended ones included: their callers still wait for the answer that they started. */
static void tell_waiting(const struct command *of, bool group)
{
	struct sandbox_commands *s = sandbox_commands_of(of->cs, of->at.id);
	struct list *const lists[] = { s ? &s->running : NULL, s ? &s->ended : NULL };

	for (size_t i = 0; s && i < ARRAY_SIZE(lists); i++) {
		list_for_each_safe(n, lists[i]) {
			struct command *c = list_entry(n, struct command, sandbox_node);

			if (!waits_for(c, of))
				continue;
			c->probe_waits = false;
			know_group(c, group);
		}
	}
}

static struct command *first_waiting(const struct command *of)
{
	struct sandbox_commands *s = sandbox_commands_of(of->cs, of->at.id);
	struct list *const lists[] = { s ? &s->running : NULL, s ? &s->ended : NULL };

	for (size_t i = 0; s && i < ARRAY_SIZE(lists); i++) {
		list_for_each(n, lists[i]) {
			struct command *c = list_entry(n, struct command, sandbox_node);

			if (waits_for(c, of))
				return c;
		}
	}
	return NULL;
}

static void on_probe(struct envd_result *r, void *user)
{
	struct command *c = command_from(user);
	bool yes = r->cls == ENVD_OK;
	char key[256];

	c->probe = NULL;
	setsid_key(c, key);
	(void)map_del_str(&c->cs->setsid, key);
	if (map_size(&c->cs->setsid) >= COMMAND_SETSID_MAX)
		map_fini(&c->cs->setsid);
	/* Only a clear answer is remembered; without memory the next start asks again. */
	if (yes || (r->cls == ENVD_ANSWERED && r->status.reason == R_FILE_NOT_FOUND))
		(void)!map_put_str(&c->cs->setsid, key, yes ? SETSID_YES : SETSID_NO);
	know_group(c, yes);
	tell_waiting(c, yes);
}

static void probe_setsid(struct command *c);

/* Ends this command's part in the probe; if it was the one that asked, another one that waits asks instead. */
void command_probe_drop(struct command *c)
{
	struct command *w;
	char key[256];

	c->probe_waits = false;
	if (!c->probe)
		return;
	envd_call_cancel(give(c->probe));
	setsid_key(c, key);
	(void)map_del_str(&c->cs->setsid, key);
	w = c->cs->closing ? NULL : first_waiting(c);
	if (!w)
		return;
	w->probe_waits = false;
	probe_setsid(w);
}

static void probe_setsid(struct command *c)
{
	struct envd_target target;
	char key[256];
	void *known;

	setsid_key(c, key);
	known = map_get_str(&c->cs->setsid, key);
	if (known == SETSID_ASKED) {
		c->probe_waits = true;
		return;
	}
	if (known) {
		know_group(c, known == SETSID_YES);
		return;
	}
	target = agent_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 10000);
	c->probe = envd_stat(&target, "/usr/bin/setsid", on_probe, c);
	if (c->probe)
		(void)!map_put_str(&c->cs->setsid, key, SETSID_ASKED); /* or each asks for itself */
	else
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

	for (size_t i = 0; c->pty && !c->plain && i < ARRAY_SIZE(defaults); i++)
		if (!has_env(c, defaults[i].key))
			envs[n++] = defaults[i];
	for (size_t i = 0; i < c->n_envs; i++)
		envs[n++] = (struct cloud_kv){ (char *)c->envs[i].key, (char *)c->envs[i].value };
	if (!c->plain)
		envs[n++] = (struct cloud_kv){ (char *)COMMAND_ENV, (char *)c->id };
	return n;
}

static int start_program(struct command *c)
{
	struct envd_target target = agent_target(&c->at, c->user, 0);
	const char **args = calloc(c->n_args + 7, sizeof(*args));
	struct cloud_kv *envs = calloc(c->n_envs + 4, sizeof(*envs));
	struct envd_start start = { .cmd = "/bin/sh", .args = args, .envs = envs, .tag = c->plain ? c->own_tag : c->tag,
				    .cwd = str_is_empty(c->cwd) ? NULL : c->cwd,
				    .stdin_open = c->stdin_open, .pty = c->pty,
				    .cols = c->term.cols, .rows = c->term.rows,
				    .timeout_ms = c->agent_timeout_ms };

	target.trace = &c->trace;
	if (args && envs && (c->pty || c->plain)) { /* the agent gives a terminal its own session */
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
		c->stream = envd_start(&target, &start, command_on_ready, c);
	}
	free(args);
	free(envs);
	return c->stream ? 0 : -ENOMEM;
}

int command_launch(struct command *c)
{
	struct envd_target target;

	c->launch = LAUNCH_SENT;
	if (!c->foreign) {
		int r = start_program(c);

		FAILPOINT("command.sent");
		if (!r)
			command_await_start(c);
		if (!r && (c->pty || c->plain))
			know_group(c, c->pty);
		else if (!r)
			probe_setsid(c);
		return r;
	}
	target = agent_target(&c->at, NULL, loop_now_ms(c->cs->o.loop) + 30000);
	c->stream = envd_attach(&target, c->pid, command_on_ready, c);
	if (!c->stream)
		return -ENOMEM;
	command_await_start(c);
	return 0;
}

void command_start_again(struct command *c)
{
	struct status oom;

	if (command_launch(c) == 0)
		return;
	status_errno(&oom, ENOMEM, "starting a command");
	command_start_failed(c, &oom);
}

/* --- row, then request --- */

static void on_row_written(struct command *c, const struct status *st)
{
	struct status failed = *st;

	if (list_is_empty(&c->start_ops)) { /* its callers left, and nothing was sent */
		status_set_code(&failed, CODE_CANCELLED, "cancelled");
		command_start_failed(c, &failed);
		return;
	}
	if (!status_ok(st) && !c->request) { /* started all the same; a restart of the daemon will not know it */
		log_warn("command_row", "command=%s error=%s ignoring=1", c->id, log_q(st->text));
		c->has_row = false;
		failed = (struct status)STATUS_OK;
	}
	FAILPOINT("command.intent_committed");
	if (status_ok(&failed) && command_launch(c) < 0)
		status_errno(&failed, ENOMEM, "starting a command");
	if (!status_ok(&failed))
		command_start_failed(c, &failed);
}

static int write_row(struct command *c)
{
	struct row_command_request q;
	struct store_tx *t;
	int r = store_tx_new(c->cs->o.store, &t);

	if (r < 0)
		return r;
	r = command_row_put(t, c);
	if (!r && c->request) {
		request_row(c->request, &q);
		store_tx_put_command_request(t, &q);
	}
	if (r < 0) {
		store_tx_drop(t);
		return r;
	}
	FAILPOINT("command.before_intent");
	r = command_write(c, t, c->request != NULL, on_row_written);
	if (!r) {
		c->has_row = true;
		c->launch = LAUNCH_WRITING;
	}
	return r;
}

/* Can the agent end a program's input, or start one without input? Else the start is refused before a program hangs on it. */
static bool check_agent(const struct command *c, const char *version, struct status *st)
{
	const char *least = c->pty || c->plain ? NULL : c->stdin_open ? "0.5.2" : "0.3.0";

	if (!least || str_is_empty(version) || cloud_version_cmp(version, least) >= 0)
		return true;
	status_set(st, R_TEMPLATE_TOO_OLD,
		   "stdin: the sandbox's agent %s cannot %s; %s can: build the template anew", version,
		   c->stdin_open ? "end a program's input" : "start a program without input", least);
	return false;
}

/* Writes the row, unless *failed says that the start has failed. */
static void write_or_fail(struct command *c, struct status *failed)
{
	if (status_ok(failed) && write_row(c) < 0)
		status_errno(failed, ENOMEM, "starting a command");
	if (!status_ok(failed))
		command_start_failed(c, failed);
}

/* A start that reads the row of its request id. */
struct start_read {
	struct cmd_write w;		/* must be first: commands_free() frees what is on cs->writes */
	struct status resolved;		/* the outcome of looking for the sandbox */
};

static void on_request_row(void *user, const struct status *st, const struct row_command_request *row)
{
	struct start_read *s = user;
	struct command *c = s->w.c;
	struct status failed = status_ok(st) ? s->resolved : *st;

	list_del(&s->w.node);
	if (c->request) { /* else nobody waits any more */
		if (row) {
			request_refuse_repeat(c->cs, row, c->request->hash, &failed);
			request_drop(c->request);
		}
		write_or_fail(c, &failed);
	}
	command_unref(c);
	free(s);
}

/* A request id that is not in memory may have a row: then its command has run, and must not run again. */
static int read_request(struct command *c, const struct status *resolved)
{
	struct start_read *s = calloc(1, sizeof(*s));

	if (!s || store_get_command_request(c->cs->o.store, c->share->uid, c->request->method, c->request->id, on_request_row, s) < 0) {
		free(s);
		return -ENOMEM;
	}
	s->w = (struct cmd_write){ .cs = c->cs, .c = command_ref(c) };
	s->resolved = *resolved;
	list_add_tail(&c->cs->writes, &s->w.node);
	return 0;
}

static void on_resolved(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct command *c = command_from(user);
	struct status failed = *st;

	c->inquiry = NULL;
	if (status_ok(st) && check_agent(c, t->at.version, &failed)) {
		if (agent_address_set(&c->at, &t->at) == 0 && command_join_sandbox(c) == 0)
			command_use(c, true);
		else
			status_errno(&failed, ENOMEM, "starting a command");
	}
	if (c->request && request_may_have_row(c->cs, c->request)) {
		if (read_request(c, &failed) == 0)
			return;
		if (status_ok(&failed))
			status_errno(&failed, ENOMEM, "starting a command");
	}
	write_or_fail(c, &failed);
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
	c->own_tag = str_dup(s->tag);
	if (s->tag && !c->own_tag)
		return -ENOMEM;
	c->plain = s->plain;
	c->agent_timeout_ms = s->agent_timeout_ms;
	c->timeout_ms = s->timeout_ms;
	c->pty = s->pty;
	c->term.cols = s->cols;
	c->term.rows = s->rows;
	if (s->kill_grace_ms >= 0)
		c->kill_grace_ms = (uint64_t)s->kill_grace_ms;
	c->stdin_open = s->stdin_open;
	c->detach = s->detach || !s->blocking_reader; /* only a Run has a stream whose end may end the command */
	/* Without a reader of its own a full spool would block the command for ever, and its end would wait behind it. */
	c->block = s->blocking_reader &&
		   (s->overflow == COMMAND_BLOCK || (s->overflow == COMMAND_OVERFLOW_UNSET && !s->detach));
	return 0;
}

static int add_request(struct command *c, const struct command_start *s)
{
	struct row_command_request q = { .uid = s->who->uid, .method = s->blocking_reader ? "Run" : "Start",
					 .request_id = s->request_id, .command = c->id,
					 .used_at_ms = c->made_at_ms };
	int r;

	if (str_is_empty(s->request_id))
		return 0;
	memcpy(q.params_hash, s->params_hash, sizeof(q.params_hash));
	r = request_add(c->cs, &q, &c->request);
	if (!r)
		c->request->c = c;
	return r;
}

static int start_new(struct commands *cs, const struct command_start *s, struct command **ret)
{
	uint64_t limit = s->spool_limit ? MIN(s->spool_limit, cs->o.limits.spool_per_command)
					: cs->o.limits.spool_per_command;
	struct command *c;
	int r = command_new(cs, s->who->uid, NULL, &c);

	if (r < 0)
		return r;
	if (s->trace)
		c->trace = *s->trace;
	c->spool_limit = MAX(limit, 2 * (uint64_t)COMMAND_PIPE_BYTES);
	spool_set_limit(c->spool, c->spool_limit);
	c->start_by_ms = s->deadline_ms ? s->deadline_ms : loop_now_ms(cs->o.loop) + COMMAND_START_MS;
	r = command_hold(c, command_start_bytes(s));
	if (!r)
		r = copy_start(c, s);
	if (!r)
		r = add_request(c, s);
	if (!r)
		r = sandbox_resolve(cs->core,
				    &(struct sandbox_call){.who = s->who,
							   .sandbox = s->sandbox,
							   .deadline_ms = s->deadline_ms,
							   .trace = s->trace,
							   .user = c},
				    on_resolved, &c->inquiry);
	if (r < 0) {
		if (c->request)
			request_drop(c->request);
		command_forget(c);
		return r;
	}
	commands_trim(cs, c->share);
	*ret = c;
	return 0;
}

/* Answers a repeat of a start that has succeeded or failed. */
static void answer_repeat(struct command_op *op)
{
	struct command *c = op->c;

	if (c->final && !c->pid)
		status_set(&op->st, c->result.reason, "%s", c->result.message);
	cmd_op_post(op);
}

int commands_start(struct commands *cs, const struct command_start *s, command_done_fn *done,
		   void *user, struct command_op **ret)
{
	struct status refused = STATUS_OK;
	struct command *c = NULL;
	struct command_op *op;
	int r = -ENOENT;

	if (!str_is_empty(s->request_id))
		r = request_look(cs, s->who->uid, s->blocking_reader ? "Run" : "Start", s->request_id,
				 s->params_hash, &c, &refused);
	if (r < 0 && r != -ENOENT)
		return r;
	op = cmd_op_new(cs, OP_START, c, user);
	if (!op)
		return -ENOMEM;
	op->done = done;
	op->st = refused;
	if (r == -ENOENT) {
		r = start_new(cs, s, &c);
		if (r < 0) {
			cmd_op_free(op);
			return r;
		}
		op->c = command_ref(c);
	} else if (!c || c->state >= CMD_ENDING || c->started) {
		if (c)
			answer_repeat(op);
		else
			cmd_op_post(op);
		*ret = op;
		return 0;
	}
	list_del(&op->node);
	list_add_tail(&c->start_ops, &op->node);
	op->joined = true;
	command_hurry(c);
	*ret = op;
	return 0;
}
