/* SPDX-License-Identifier: MIT */
#include "tests/unit/command/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/message.h"
#include "proto/base/list.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/unit/command/world.h"

struct agent *agent;

struct agent_event {
	struct list node;
	struct envd_event e;
	uint8_t bytes[];
};

struct envd_stream {
	struct agent_ask *ask;
	envd_stream_ready_fn *on_ready;
	void *user;
	struct list events;
	struct agent_event *out;	/* what the daemon looks at */
	enum ab_code said;		/* agent_refuses() */
	const char *said_text;
	struct defer tell;
	struct grave grave;
};

struct envd_call {
	struct agent_ask *ask;
	envd_done_fn *done;
	void *user;
	struct envd_result result;
	struct defer answer;
	struct grave grave;
};

void agent_begin(void)
{
	must(!agent);
	agent = calloc(1, sizeof(*agent));
	must(agent);
}

void agent_end(void)
{
	for (unsigned i = 0; i < agent->n_asks; i++) {
		must(!agent->asks[i].stream && !agent->asks[i].call);
		free(agent->asks[i].words);
	}
	free(agent);
	agent = NULL;
}

unsigned agent_count(enum agent_what what)
{
	unsigned n = 0;

	for (unsigned i = 0; i < agent->n_asks; i++)
		n += agent->asks[i].what == what;
	return n;
}

struct agent_ask *agent_ask(enum agent_what what, int n)
{
	if (n < 0)
		n = (int)agent_count(what) - 1;
	for (unsigned i = 0; i < agent->n_asks; i++)
		if (agent->asks[i].what == what && !n--)
			return &agent->asks[i];
	must(false); /* it was not asked so often */
	return NULL;
}

static struct agent_ask *note(const struct envd_target *t, enum agent_what what)
{
	struct agent_ask *a = &agent->asks[agent->n_asks++];

	must(agent->n_asks < AGENT_ASKS);
	a->what = what;
	a->at_ms = loop_now_ms(world_loop);
	a->deadline_ms = t->deadline_ms;
	(void)str_copy(a->sandbox, sizeof(a->sandbox), t->at.id);
	(void)str_copy(a->token, sizeof(a->token), t->at.token);
	return a;
}

static void note_words(struct agent_ask *a, const struct envd_start *s)
{
	size_t n = strlen(s->cmd) + 1;
	char *at;

	for (size_t i = 0; i < s->n_args; i++)
		n += strlen(s->args[i]) + 1;
	a->words = malloc(n);
	must(a->words);
	at = stpcpy(a->words, s->cmd);
	for (size_t i = 0; i < s->n_args; i++) {
		*at++ = ' ';
		at = stpcpy(at, s->args[i]);
	}
	a->n_words = n - 1;
}

/* --- streams --- */

static void tell(struct defer *d, void *user)
{
	struct envd_stream *s = user;

	s->on_ready(s, s->user);
}

static struct envd_stream *stream_new(struct agent_ask *a, envd_stream_ready_fn *on_ready, void *user)
{
	struct envd_stream *s = calloc(1, sizeof(*s));

	must(s);
	a->stream = s;
	s->ask = a;
	s->on_ready = on_ready;
	s->user = user;
	list_init(&s->events);
	defer_init(&s->tell, world_loop, tell, s);
	return s;
}

struct envd_stream *envd_start(const struct envd_target *t, const struct envd_start *what,
			       envd_stream_ready_fn *on_ready, void *user)
{
	bool helper = what->tag && str_eq(what->tag, "agentbox-helper");
	struct agent_ask *a = note(t, helper ? AGENT_HELPER : AGENT_START);

	(void)str_copy(a->tag, sizeof(a->tag), what->tag ? what->tag : "");
	(void)str_copy(a->cwd, sizeof(a->cwd), what->cwd ? what->cwd : "");
	a->stdin_open = what->stdin_open;
	a->pty = what->pty;
	a->cols = what->cols;
	a->rows = what->rows;
	note_words(a, what);
	if (helper && strstr(a->words, "is_dead()"))
		a->what = AGENT_LOOK;
	return stream_new(a, on_ready, user);
}

struct envd_stream *envd_attach(const struct envd_target *t, uint32_t pid, envd_stream_ready_fn *on_ready,
				void *user)
{
	struct agent_ask *a = note(t, AGENT_ATTACH);

	a->pid = pid;
	return stream_new(a, on_ready, user);
}

enum envd_event_type envd_stream_next(struct envd_stream *s, struct envd_event *ret)
{
	free(s->out);
	s->out = list_first(&s->events, struct agent_event, node);
	*ret = (struct envd_event){ 0 };
	if (!s->out)
		return ENVD_EVENT_NONE;
	list_del(&s->out->node);
	*ret = s->out->e;
	return ret->type;
}

const char *envd_stream_said(const struct envd_stream *s, enum ab_code *ret_code)
{
	if (s->said == CODE_OK)
		return NULL;
	*ret_code = s->said;
	return s->said_text;
}

bool envd_stream_was_sent(const struct envd_stream *s)
{
	return true;
}

static void stream_bury(void *p)
{
	struct envd_stream *s = p;

	free(s->out);
	while (!list_is_empty(&s->events)) {
		struct agent_event *e = list_entry(s->events.next, struct agent_event, node);

		list_del(&e->node);
		free(e);
	}
	free(s);
}

struct envd_stream *envd_stream_free(struct envd_stream *s)
{
	if (!s)
		return NULL;
	s->ask->over = true;
	s->ask->stream = NULL;
	defer_cancel(&s->tell);
	loop_bury(world_loop, &s->grave, stream_bury, s);
	return NULL;
}

static void put(struct agent_ask *a, const struct envd_event *e)
{
	struct agent_event *x = malloc(sizeof(*x) + e->n);

	must(x && a->stream);
	list_init(&x->node);
	x->e = *e;
	x->e.data = x->bytes;
	if (e->n)
		memcpy(x->bytes, e->data, e->n);
	list_add_tail(&a->stream->events, &x->node);
	defer_post(&a->stream->tell);
}

void agent_started(struct agent_ask *a, uint32_t pid)
{
	put(a, &(struct envd_event){ .type = ENVD_EVENT_START, .pid = pid });
}

void agent_says_bytes(struct agent_ask *a, enum envd_data_stream stream, const void *p, size_t n)
{
	put(a, &(struct envd_event){ .type = ENVD_EVENT_DATA, .stream = stream, .data = p, .n = n });
}

void agent_says(struct agent_ask *a, enum envd_data_stream stream, const char *text)
{
	agent_says_bytes(a, stream, text, strlen(text));
}

void agent_keepalive(struct agent_ask *a)
{
	put(a, &(struct envd_event){ .type = ENVD_EVENT_KEEPALIVE });
}

void agent_exits(struct agent_ask *a, int code)
{
	put(a, &(struct envd_event){ .type = ENVD_EVENT_END, .exited = true, .exit_code = code, .status = "" });
}

void agent_killed(struct agent_ask *a)
{
	put(a, &(struct envd_event){ .type = ENVD_EVENT_END, .exit_code = -1, .status = "signal: killed" });
}

size_t agent_unread(const struct agent_ask *a)
{
	size_t n = 0;

	list_for_each(x, &a->stream->events)
		n += list_entry(x, struct agent_event, node)->e.n;
	return n;
}

/* --- calls --- */

static void answer(struct defer *d, void *user)
{
	struct envd_call *c = user;

	c->ask->call = NULL;
	c->done(&c->result, c->user);
	loop_bury(world_loop, &c->grave, free, c);
}

static struct envd_call *call_new(struct agent_ask *a, envd_done_fn *done, void *user)
{
	struct envd_call *c = calloc(1, sizeof(*c));

	must(c);
	a->call = c;
	c->ask = a;
	c->done = done;
	c->user = user;
	defer_init(&c->answer, world_loop, answer, c);
	return c;
}

void envd_call_cancel(struct envd_call *c)
{
	if (!c)
		return;
	c->ask->over = true;
	c->ask->call = NULL;
	defer_cancel(&c->answer);
	loop_bury(world_loop, &c->grave, free, c);
}

void agent_answers(struct agent_ask *a)
{
	struct envd_call *c = a->call;

	must(c && !a->over);
	a->over = true;
	c->result = (struct envd_result){ .cls = ENVD_OK, .status = STATUS_OK };
	if (a->what == AGENT_LIST) {
		c->result.processes = agent->processes;
		c->result.n_processes = agent->n_processes;
	}
	defer_post(&c->answer);
}

void agent_fails(struct agent_ask *a, enum envd_class cls, enum ab_reason reason, const char *text)
{
	struct envd_event e = { .type = ENVD_EVENT_CLOSED, .cls = cls, .failure = STATUS_OK };

	if (cls != ENVD_OK)
		status_set(&e.failure, reason, "%s", text);
	if (a->stream) {
		put(a, &e);
		return;
	}
	must(a->call && !a->over);
	a->over = true;
	a->call->result = (struct envd_result){ .cls = cls, .status = e.failure };
	defer_post(&a->call->answer);
}

void agent_refuses(struct agent_ask *a, enum ab_code code, const char *text)
{
	a->stream->said = code;
	a->stream->said_text = text;
	agent_fails(a, ENVD_ANSWERED, R_CLOUD_REFUSED, "in words of ours");
}

struct envd_call *envd_process_list(const struct envd_target *t, envd_done_fn *done, void *user)
{
	return call_new(note(t, AGENT_LIST), done, user);
}

struct envd_call *envd_send_input(const struct envd_target *t, uint32_t pid, bool pty, const void *p, size_t n,
				  envd_done_fn *done, void *user)
{
	struct agent_ask *a = note(t, AGENT_INPUT);

	a->pid = pid;
	a->pty = pty;
	a->n_words = n;
	a->words = strndup(p, n);
	return call_new(a, done, user);
}

struct envd_call *envd_close_stdin(const struct envd_target *t, uint32_t pid, envd_done_fn *done, void *user)
{
	struct agent_ask *a = note(t, AGENT_CLOSE);

	a->pid = pid;
	return call_new(a, done, user);
}

struct envd_call *envd_send_signal(const struct envd_target *t, uint32_t pid, int signo, envd_done_fn *done,
				   void *user)
{
	struct agent_ask *a = note(t, AGENT_SIGNAL);

	a->pid = pid;
	a->signo = signo;
	return call_new(a, done, user);
}

struct envd_call *envd_resize(const struct envd_target *t, uint32_t pid, uint32_t cols, uint32_t rows,
			      envd_done_fn *done, void *user)
{
	struct agent_ask *a = note(t, AGENT_RESIZE);

	a->pid = pid;
	a->cols = cols;
	a->rows = rows;
	return call_new(a, done, user);
}

struct envd_call *envd_stat(const struct envd_target *t, const char *path, envd_done_fn *done, void *user)
{
	struct agent_ask *a = note(t, AGENT_STAT);
	struct envd_call *c = call_new(a, done, user);

	if (!agent->hold_stat)
		agent_answers(a);
	return c;
}
