/* SPDX-License-Identifier: MIT */
/*
 * The exit watch: sees that a command's own process has ended although its stream goes on. The agent reads standard output
 * and error to their end before it reports the end, so a command that leaves a child behind (`server &`) would not end as long
 * as the child holds them. A command ends when its own process does: then its result says pipes_held.
 *
 * A look is a short script in the sandbox, as root, for all commands there at once: which of them is a zombie, and with what
 * status. It is sent half a second after the start and then ever more rarely, down to once a minute, and only while a stream
 * is open, so that it resumes no sandbox. The end counts when two looks in a row saw it, and the process's output has come.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"

#define FIRST_MS   500u
#define MAX_MS	   60000u
#define CONFIRM_MS 250u		/* between the first and the second look that sees a dead process: its end may be under way */
#define QUIET_MS   200u		/* after so long without output all that the process wrote has come */
#define LOUD_MS	   2000u	/* the longest wait for that, while other processes go on writing */
#define CHECK_MS   50u
#define GIVE_UP_MS 10000u
#define PIDS_MAX   1024u	/* in one look; others come with the next one */
#define OUT_MAX_BYTES 32768u

/* $@: pids. Prints "PID STATUS" of each that is a zombie and a child of the agent, as the script itself is, so that the pid
 * still means the command's process. To a reader without the right the kernel shows status 0, and hides ns/user: these are left out. */
static const char script[] =
	"is_dead() { [ \"$1\" = Z ] && [ \"$2\" = \"$PPID\" ] && [ -e \"/proc/$p/ns/user\" ] && shift 49 && echo \"$p $1\"; }\n"
	"for p; do { IFS= read -r s <\"/proc/$p/stat\"; } 2>/dev/null && is_dead ${s##*\") \"}; done\n"
	"exit 0\n";

struct exit_watch_call {
	struct list node;		/* cs->looks */
	struct commands *cs;
	struct agent_address at;
	struct envd_stream *stream;
	struct timer give_up;
	struct buf out;
	uint32_t pids[PIDS_MAX];
	size_t n;
};

static bool same_sandbox(const struct agent_address *a, const struct agent_address *b)
{
	return str_eq(a->id, b->id) && str_eq(a->account, b->account) && a->generation == b->generation;
}

static bool is_watched(const struct command *c)
{
	return c->state == CMD_RUNNING && !c->foreign && !c->plain && c->pid;
}

static void look_free(struct exit_watch_call *k)
{
	list_del(&k->node);
	timer_clear(&k->give_up);
	envd_stream_free(k->stream);
	agent_address_fini(&k->at);
	buf_fini(&k->out);
	free(k);
}

void exit_watches_fini(struct commands *cs)
{
	while (!list_is_empty(&cs->looks))
		look_free(list_entry(cs->looks.next, struct exit_watch_call, node));
}

static void look_again(struct command *c, uint64_t in_ms)
{
	/* Without memory only the agent reports its end. */
	(void)!timer_set(&c->exit_watch.due, loop_now_ms(c->cs->o.loop) + in_ms);
}

void exit_watch_watch(struct command *c)
{
	c->exit_watch.wait_ms = FIRST_MS;
	c->exit_watch.seen = 0;
	if (is_watched(c))
		look_again(c, FIRST_MS);
}

void exit_watch_heard(struct command *c)
{
	c->exit_watch.heard_at_ms = loop_now_ms(c->cs->o.loop);
}

/* --- its process is dead --- */

static void end(struct command *c, bool quiet)
{
	uint32_t status = c->exit_watch.status;

	if (!(status & 0x7f)) {
		c->result.outcome = COMMAND_EXITED;
		c->result.exit_code = (status >> 8) & 0xff;
	} else {
		const char *name = sigabbrev_np((int)(status & 0x7f));

		c->result.outcome = COMMAND_SIGNALED;
		str_copy(c->result.signal, sizeof(c->result.signal), name ? name : "");
	}
	c->result.pipes_held = true;
	c->truncated |= !quiet;
	log_info("command_pipes_held", "command=%s sandbox=%s pid=%u quiet=%d", c->id, c->at.id, c->pid, quiet);
	command_finish(c);
}

/* The process's own output has come when nothing came for QUIET_MS although there was room for it. */
static void end_when_quiet(struct command *c)
{
	uint64_t now = loop_now_ms(c->cs->o.loop);
	const uint32_t *survivors;
	size_t n;

	if (!command_may_take(c) ||
	    (c->kill_call && !kill_call_survivors(c->kill_call, &survivors, &n)))
		c->exit_watch.heard_at_ms = c->exit_watch.free_at_ms = now;
	if (now >= c->exit_watch.heard_at_ms + QUIET_MS)
		end(c, true);
	else if (now >= c->exit_watch.free_at_ms + LOUD_MS)
		end(c, false);
	else
		look_again(c, CHECK_MS);
}

static void is_dead(struct command *c, uint32_t status)
{
	c->exit_watch.status = status;
	c->exit_watch.told = true;
	if (++c->exit_watch.seen == 1)
		look_again(c, CONFIRM_MS);
	if (c->exit_watch.seen != 2)
		return;
	c->exit_watch.free_at_ms = loop_now_ms(c->cs->o.loop);
	look_again(c, CHECK_MS);
}

/* --- a look --- */

static struct command *exit_watch_find(const struct exit_watch_call *k, uint64_t pid)
{
	struct sandbox_commands *s = sandbox_commands_of(k->cs, k->at.id);

	if (!s)
		return NULL;
	list_for_each(n, &s->running) {
		struct command *c = list_entry(n, struct command, sandbox_node);

		if (c->pid == pid && is_watched(c) && same_sandbox(&c->at, &k->at))
			return c;
	}
	return NULL;
}

static void take_answer(struct exit_watch_call *k)
{
	char *text = buf_take_str(&k->out), *save = NULL;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		const char *space = strchr(line, ' ');
		uint64_t pid, status;
		struct command *c;

		if (!space || str_u64(line, (size_t)(space - line), UINT32_MAX, &pid) < 0 ||
		    str_u64(space + 1, strlen(space + 1), UINT16_MAX, &status) < 0)
			continue;
		c = exit_watch_find(k, pid);
		if (c)
			is_dead(c, (uint32_t)status);
	}
	free(text);
}

static void exit_watch_finish(struct exit_watch_call *k, bool answered)
{
	if (answered)
		take_answer(k);
	for (size_t i = 0; i < k->n; i++) {
		struct command *c = exit_watch_find(k, k->pids[i]);

		if (!c || c->exit_watch.told) {
			if (c)
				c->exit_watch.told = false;
			continue;
		}
		c->exit_watch.seen = 0;
		c->exit_watch.wait_ms = MIN(2 * c->exit_watch.wait_ms + FIRST_MS, MAX_MS);
		look_again(c, c->exit_watch.wait_ms);
	}
	look_free(k);
}

static void exit_watch_on_ready(struct envd_stream *s, void *user)
{
	struct exit_watch_call *k = user;
	struct envd_event e;

	for (;;) {
		switch (envd_stream_next(k->stream, &e)) {
		case ENVD_EVENT_NONE:
			return;
		case ENVD_EVENT_DATA:
			if (e.stream == ENVD_STDOUT)
				(void)!buf_put(&k->out, e.data, e.n); /* a line cut short is no line */
			break;
		case ENVD_EVENT_END:
			exit_watch_finish(k, e.exit_code == 0);
			return;
		case ENVD_EVENT_CLOSED:
			exit_watch_finish(k, false);
			return;
		default:
			break;
		}
	}
}

static void on_give_up(struct timer *t, void *user)
{
	exit_watch_finish(user, false);
}

static int send(struct exit_watch_call *k)
{
	uint64_t now = loop_now_ms(k->cs->o.loop);
	struct envd_target target = agent_target(&k->at, "root", now + GIVE_UP_MS);
	char(*texts)[12] = calloc(k->n, sizeof(*texts));
	const char **args = calloc(k->n + 3, sizeof(*args));
	struct envd_start start = { .cmd = "/bin/sh", .cwd = "/", .tag = COMMAND_HELPER, .args = args,
				    .n_args = k->n + 3 };

	if (args && texts) {
		args[0] = "-c";
		args[1] = script;
		args[2] = "sh";
		for (size_t i = 0; i < k->n; i++) {
			snprintf(texts[i], sizeof(texts[i]), "%u", k->pids[i]);
			args[3 + i] = texts[i];
		}
		k->stream = envd_start(&target, &start, exit_watch_on_ready, k);
	}
	free(args);
	free(texts);
	return k->stream ? timer_set(&k->give_up, now + GIVE_UP_MS) : -ENOMEM;
}

/* 0, or -ENOMEM. */
static int exit_watch_look(struct command *for_c)
{
	struct commands *cs = for_c->cs;
	struct exit_watch_call *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	k->cs = cs;
	buf_init(&k->out, OUT_MAX_BYTES);
	timer_init(&k->give_up, cs->o.loop, on_give_up, k);
	list_add_tail(&cs->looks, &k->node);
	k->pids[k->n++] = for_c->pid;
	list_for_each(n, &for_c->sandbox->running) {
		struct command *c = list_entry(n, struct command, sandbox_node);

		if (c == for_c || k->n == PIDS_MAX || !is_watched(c) || c->exit_watch.seen > 1 ||
		    !same_sandbox(&c->at, &for_c->at))
			continue;
		timer_clear(&c->exit_watch.due);
		k->pids[k->n++] = c->pid;
	}
	r = agent_address_set(&k->at, &for_c->at);
	if (!r)
		r = send(k);
	if (r < 0)
		look_free(k);
	return r;
}

void exit_watch_on_due(struct timer *t, void *user)
{
	struct command *c = command_from(user);

	if (!is_watched(c))
		return;		/* exit_watch_watch() begins again with the next stream */
	if (c->exit_watch.seen > 1) {
		end_when_quiet(c);
		return;
	}
	list_for_each(n, &c->cs->looks) {
		if (same_sandbox(&list_entry(n, struct exit_watch_call, node)->at, &c->at)) {
			look_again(c, CONFIRM_MS);
			return;
		}
	}
	if (exit_watch_look(c) < 0)
		look_again(c, MAX_MS);
}
