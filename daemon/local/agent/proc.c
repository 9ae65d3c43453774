/* SPDX-License-Identifier: MIT */
/* Life, output and listeners of a command; its input is in proc_input.c. */
#include "daemon/local/agent/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/agent/proc_input.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/local.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define PROC_MAGIC	  0x9c0c9c0cu
#define PIPE_CHUNK_BYTES  32768u	/* largest data event of a pipe */
#define PTY_CHUNK_BYTES	  16384u	/* … of a terminal */
#define CHUNKS_PER_PASS	  8		/* then others have their turn */
#define START_FAULT_SIZE  240u

struct listener {
	struct list node;
	struct call *c;
	struct proc *p;
	bool is_starter;
	struct timer keepalive;
};

static void proc_finish_if_done(struct proc *p);

static struct proc *proc_from(void *v)
{
	struct proc *p = v;

	must(p && p->magic == PROC_MAGIC);
	return p;
}

static void proc_set_state(struct proc *p, enum proc_state to)
{
	must(to > p->state);
	p->state = to;
}

/* --- listeners --- */

static void send_event(struct call *c, Process__ProcessEvent *event)
{
	/* ConnectResponse is the same message. */
	Process__StartResponse out = PROCESS__START_RESPONSE__INIT;

	out.event = event;
	call_send(c, &out.base);
}

static void send_start(struct call *c, uint32_t pid)
{
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__StartEvent start = PROCESS__PROCESS_EVENT__START_EVENT__INIT;

	start.pid = pid;
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_START;
	event.start = &start;
	send_event(c, &event);
}

static void send_keepalive(struct call *c)
{
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__KeepAlive keepalive = PROCESS__PROCESS_EVENT__KEEP_ALIVE__INIT;

	event.event_case = PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE;
	event.keepalive = &keepalive;
	send_event(c, &event);
}

static void send_data(struct call *c, enum container_stream stream, const uint8_t *p, size_t n)
{
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__DataEvent data;
	ProtobufCBinaryData bytes = { n, (uint8_t *)p };

	process__process_event__data_event__init(&data);
	if (stream == CONTAINER_PTY) {
		data.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_PTY;
		data.pty = bytes;
	} else if (stream == CONTAINER_STDERR) {
		data.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR;
		data.stderr = bytes;
	} else {
		data.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT;
		data.stdout = bytes;
	}
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_DATA;
	event.data = &data;
	send_event(c, &event);
}

void proc_exit_text(const struct container_exit *x, char ret[64])
{
	static const char *const names[] = {
		[1] = "hangup",		[2] = "interrupt",
		[3] = "quit",		[4] = "illegal instruction",
		[5] = "trace/breakpoint trap", [6] = "aborted",
		[7] = "bus error",	[8] = "floating point exception",
		[9] = "killed",		[10] = "user defined signal 1",
		[11] = "segmentation fault", [12] = "user defined signal 2",
		[13] = "broken pipe",	[14] = "alarm clock",
		[15] = "terminated",
	};
	const char *core = x->core ? " (core dumped)" : "";

	if (x->exited)
		snprintf(ret, 64, "exit status %u", x->code);
	else if (x->sig < ARRAY_SIZE(names) && names[x->sig])
		snprintf(ret, 64, "signal: %s%s", names[x->sig], core);
	else
		snprintf(ret, 64, "signal: signal %u%s", x->sig, core);
}

static void send_end(struct call *c, const struct container_exit *x)
{
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__EndEvent end = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
	char text[64];

	proc_exit_text(x, text);
	end.exited = x->exited;
	end.exit_code = x->exited ? x->code : -1;
	end.status = text;
	if (!x->exited || x->code) {
		end._error_case = PROCESS__PROCESS_EVENT__END_EVENT___ERROR_ERROR;
		end.error = text;
	}
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
	event.end = &end;
	send_event(c, &event);
	call_end(c);
}

static void listener_rearm(struct listener *s)
{
	/* Without memory there is one keepalive less. */
	(void)!timer_set(&s->keepalive, loop_now_ms(s->p->loop) + s->c->keepalive_ms);
}

static void on_keepalive(struct timer *t, void *user)
{
	struct listener *s = user;

	if (call_has_room(s->c))
		send_keepalive(s->c);
	listener_rearm(s);
}

/* Reads while every listener has room. */
static void proc_set_interest(struct proc *p)
{
	bool room = true;

	list_for_each(n, &p->listeners)
		room = room && call_has_room(list_entry(n, struct listener, node)->c);
	for (size_t i = 0; i < ARRAY_SIZE(p->out); i++)
		if (p->out[i].fd >= 0 && watch_set(&p->out[i].w, room ? WATCH_READ : 0) < 0)
			log_warn("command_output_unwatched", "pid=%u", p->pid);
}

static void listener_free(struct listener *s)
{
	timer_clear(&s->keepalive);
	list_del(&s->node);
	free(s);
}

static void on_listener_gone(struct call *c)
{
	struct listener *s = give(c->priv);
	struct proc *p = s->p;

	c->room = NULL;
	listener_free(s);
	proc_set_interest(p);
}

static void on_room(struct call *c)
{
	struct listener *s = c->priv;

	proc_set_interest(s->p);
}

/* Takes the listener off; its call is the caller's to end. */
static struct call *listener_leave(struct listener *s)
{
	struct call *c = s->c;

	c->priv = NULL;
	c->gone = c->room = NULL;
	listener_free(s);
	return c;
}

static void listen_as(struct proc *p, struct call *c, bool is_starter)
{
	struct listener *s = calloc(1, sizeof(*s));

	if (!s) {
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	*s = (struct listener){ .c = c, .p = p, .is_starter = is_starter };
	list_add_tail(&p->listeners, &s->node);
	timer_init(&s->keepalive, p->loop, on_keepalive, s);
	c->priv = s;
	c->gone = on_listener_gone;
	c->room = on_room;
	send_start(c, p->pid);
	listener_rearm(s);
	proc_set_interest(p);
}

void proc_listen(struct proc *p, struct call *c)
{
	if (p->state == PROC_OVER) {
		send_start(c, p->pid);
		send_end(c, &p->exit);
		return;
	}
	listen_as(p, c, false);
}

/* --- output --- */

static void pipe_close(struct proc_pipe *pipe)
{
	if (pipe->fd < 0)
		return;
	watch_fini(&pipe->w);
	pipe->fd = fd_close(pipe->fd);
}

/* False when every listener's room is used up. */
static bool deliver(struct proc *p, enum container_stream stream, const uint8_t *data, size_t n)
{
	bool room = true;

	if (p->mute)
		return true;
	if (p->watcher && p->watcher->output)
		p->watcher->output(p->watcher, data, n);
	list_for_each(node, &p->listeners) {
		struct listener *s = list_entry(node, struct listener, node);

		send_data(s->c, stream, data, n);
		listener_rearm(s);
		room = room && call_has_room(s->c);
	}
	return room;
}

static void on_readable(struct watch *w, unsigned ready, void *user)
{
	struct proc_pipe *pipe = user;
	struct proc *p = proc_from(pipe->p);
	size_t cap = pipe->stream == CONTAINER_PTY ? PTY_CHUNK_BYTES : PIPE_CHUNK_BYTES;
	uint8_t chunk[PIPE_CHUNK_BYTES];

	for (int i = 0; i < CHUNKS_PER_PASS; i++) {
		ssize_t n = read(pipe->fd, chunk, cap);

		if (n > 0) {
			if (deliver(p, pipe->stream, chunk, (size_t)n))
				continue;
			proc_set_interest(p);
			return;
		}
		if (n < 0 && errno == EINTR)
			continue;
		/* EIO: nobody has the terminal open any more. */
		if (n == 0 || errno != EAGAIN) {
			pipe_close(pipe);
			proc_finish_if_done(p);
		}
		return;
	}
}

/* --- the end --- */

static void proc_free(void *v)
{
	struct proc *p = proc_from(v);

	p->magic = 0;
	if (p->req)
		protobuf_c_message_free_unpacked(&p->req->base, NULL);
	free(p);
}

static void proc_close(struct proc *p)
{
	pipe_close(&p->out[0]);
	pipe_close(&p->out[1]);
	proc_input_close(p);
	timer_clear(&p->deadline);
	container_proc_free(give(p->bp));
}

void proc_drop(struct proc *p)
{
	/* Calls were cut before; what is left belongs to nobody. */
	must(list_is_empty(&p->listeners) && !p->watcher);
	list_del(&p->node);
	if (p->state == PROC_STARTING) {
		p->s = NULL;
		p->starter = NULL;
		return;
	}
	timer_clear(&p->retain);
	proc_close(p);
	loop_bury(p->loop, &p->grave, proc_free, p);
}

void proc_delay(struct proc *p, uint64_t by_ms)
{
	if (!p->deadline_ms || p->state == PROC_OVER)
		return;
	p->deadline_ms += by_ms;
	if (p->state == PROC_RUNNING && timer_set(&p->deadline, p->deadline_ms) < 0)
		log_warn("command_without_deadline", "pid=%u", p->pid);
}

static void on_forget(struct timer *t, void *user)
{
	proc_drop(proc_from(user));
}

static void note_end(const struct proc *p)
{
	bool well = p->exit.exited && !p->exit.code;
	char text[64];

	proc_exit_text(&p->exit, text);
	event_log_add(&p->s->event_log, clock_wall_ms() * 1000,
		      well ? EVENT_LOG_INFO : EVENT_LOG_WARN, "process exited",
		      json_pack("{s:o, s:s}", "pid", json_sprintf("%u", p->pid), "status", text));
}

static void tell_watcher(struct proc *p, const struct container_exit *x, const char *why)
{
	struct proc_watcher *w = give(p->watcher);

	w->over(w, x, why);
}

static void proc_finish_if_done(struct proc *p)
{
	bool open = p->out[0].fd >= 0 || p->out[1].fd >= 0;
	struct list listeners;

	if (p->state != PROC_RUNNING || !p->ended || (open && !p->mute))
		return;
	proc_set_state(p, PROC_OVER);
	if (!p->is_quiet)
		note_end(p);
	proc_close(p);
	if (timer_set(&p->retain, loop_now_ms(p->loop) + PROC_RETAIN_MS) < 0)
		log_warn("command_kept", "pid=%u", p->pid);
	list_take(&listeners, &p->listeners);
	list_for_each_safe(n, &listeners)
		send_end(listener_leave(list_entry(n, struct listener, node)), &p->exit);
	if (p->watcher)
		tell_watcher(p, &p->exit, NULL);
}

static void on_ended(void *user, struct container_proc *bp, const struct container_exit *x)
{
	struct proc *p = proc_from(user);

	p->ended = true;
	p->exit = *x;
	proc_finish_if_done(p);
}

int proc_signal(struct proc *p, int sig)
{
	int r = p->ended ? 0 : container_proc_signal(p->bp, sig);

	if (r < 0)
		return r;
	p->mute = true;
	proc_finish_if_done(p);
	return 0;
}

static void on_deadline(struct timer *t, void *user)
{
	struct proc *p = proc_from(user);

	if (p->s->state == SANDBOX_PAUSING || p->s->state == SANDBOX_PAUSED ||
	    p->s->state == SANDBOX_RESUMING)
		return;		/* moved away when it goes on */
	list_for_each_safe(n, &p->listeners) {
		struct listener *s = list_entry(n, struct listener, node);

		if (s->is_starter)
			call_fail(listener_leave(s), CODE_DEADLINE_EXCEEDED,
				  "the command was killed at its deadline");
	}
	if (proc_signal(p, SIGKILL) < 0)
		log_debug("command_gone_at_deadline", "pid=%u", p->pid);
	if (p->state == PROC_RUNNING)
		proc_set_interest(p);
}

/* --- the beginning --- */

static int pipe_open(struct proc *p, struct proc_pipe *pipe, enum container_stream stream)
{
	int r;

	pipe->p = p;
	pipe->stream = stream;
	pipe->fd = container_proc_take_fd(p->bp, stream);
	if (pipe->fd < 0)
		return 0;
	r = watch_init(&pipe->w, p->loop, pipe->fd, on_readable, pipe);
	if (r < 0)
		pipe->fd = fd_close(pipe->fd);
	return r;
}

static int open_streams(struct proc *p)
{
	int r;

	if (p->is_pty) {
		r = pipe_open(p, &p->out[0], CONTAINER_PTY);
		return r ? r : proc_input_open(p, p->out[0].fd, true);
	}
	r = pipe_open(p, &p->out[0], CONTAINER_STDOUT);
	if (!r)
		r = pipe_open(p, &p->out[1], CONTAINER_STDERR);
	return r ? r : proc_input_open(p, container_proc_take_fd(p->bp, CONTAINER_STDIN), false);
}

static enum ab_code start_fault(enum container_spawn_error e, int err, const char *cmd, char ret[START_FAULT_SIZE])
{
	switch (e) {
	case CONTAINER_SPAWN_CWD:
		snprintf(ret, START_FAULT_SIZE, "the working directory cannot be used: %s", strerror(err));
		return CODE_INVALID_ARGUMENT;
	case CONTAINER_SPAWN_DEAD:
		snprintf(ret, START_FAULT_SIZE, "the sandbox has died");
		return CODE_UNAVAILABLE;
	default:
		snprintf(ret, START_FAULT_SIZE, "error starting '%.100s': %s", cmd, strerror(err));
		return e == CONTAINER_SPAWN_EXEC ? CODE_INVALID_ARGUMENT :
		       e == CONTAINER_SPAWN_RESOURCES ? CODE_RESOURCE_EXHAUSTED : CODE_INTERNAL;
	}
}

static void not_started(struct proc *p, enum container_spawn_error e, int err)
{
	char why[START_FAULT_SIZE];
	enum ab_code code = start_fault(e, err, p->req->process->cmd, why);

	if (p->starter) {
		p->starter->gone = NULL;
		call_fail(p->starter, code, "%s", why);
	}
	list_del(&p->node);
	if (p->watcher)
		tell_watcher(p, NULL, why);
	loop_bury(p->loop, &p->grave, proc_free, p);
}

static void note_start(const struct proc *p)
{
	const char *tag = p->req->_tag_case ? p->req->tag : NULL;

	event_log_add(&p->s->event_log, clock_wall_ms() * 1000, EVENT_LOG_INFO, "process started",
		      json_pack("{s:o, s:s, s:s*}", "pid", json_sprintf("%u", p->pid), "cmd",
				p->req->process->cmd, "tag", tag));
	journal_add(p->journal, "Start",
		    json_pack("{s:s, s:i, s:s?, s:s?}", "sandbox", p->s->id, "pid", (int)p->pid,
			      "tag", tag, "cmd", p->req->process->cmd));
}

static void start_starter(struct proc *p)
{
	struct call *c = give(p->starter);

	if (!c)
		return;
	c->priv = NULL;
	c->gone = NULL;
	listen_as(p, c, true);
}

static void on_started(void *user, struct container_proc *bp, enum container_spawn_error e, int err)
{
	struct proc *p = proc_from(user);
	struct proc *old;

	if (e != CONTAINER_SPAWN_OK || !p->s) {
		if (e == CONTAINER_SPAWN_OK)
			container_proc_free(bp);
		not_started(p, e, err);
		return;
	}
	/* One that is over had the same number. */
	old = proc_by_pid(p->s, container_proc_pid(bp), true);
	if (old && old->state == PROC_OVER)
		proc_drop(old);
	p->pid = container_proc_pid(bp);
	proc_set_state(p, PROC_RUNNING);
	if (!p->is_quiet)
		note_start(p);
	if (open_streams(p) < 0) {
		log_warn("command_streams_lost", "pid=%u", p->pid);
		(void)!container_proc_signal(p->bp, SIGKILL);
		p->mute = true;
	}
	if (p->deadline_ms && timer_set(&p->deadline, p->deadline_ms) < 0)
		log_warn("command_without_deadline", "pid=%u", p->pid);
	start_starter(p);
	proc_set_interest(p);
	if (p->watcher && p->watcher->started)
		p->watcher->started(p->watcher);
}

static void on_starter_gone(struct call *c)
{
	struct proc *p = proc_from(c->priv);

	c->priv = NULL;
	p->starter = NULL;
}

static struct proc *proc_new(struct local *l, struct sandbox *s, Process__StartRequest *req)
{
	struct proc *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->magic = PROC_MAGIC;
	p->s = s;
	p->loop = l->loop;
	p->journal = l->journal;
	p->req = req;
	p->is_pty = p->req->_pty_case && p->req->pty;
	p->out[0].fd = p->out[1].fd = p->in.fd = -1;
	list_init(&p->listeners);
	list_init(&p->inputs);
	timer_init(&p->deadline, p->loop, on_deadline, p);
	timer_init(&p->retain, p->loop, on_forget, p);
	list_add_tail(&s->procs, &p->node);
	return p;
}

/* On failure the command is gone. */
static int proc_launch(struct proc *p, const struct container_user *u, const char *cwd, const char *const *envs, size_t n_envs)
{
	static const struct container_proc_events events = { on_started, on_ended };
	const Process__StartRequest *req = p->req;
	struct container_proc_options o = {
		.cmd = req->process->cmd,
		.args = (const char *const *)req->process->args,
		.n_args = req->process->n_args,
		.envs = envs,
		.n_envs = n_envs,
		.cwd = cwd,
		.user = u,
		.stdin_pipe = !req->_stdin_case || req->stdin,
		.pty = p->is_pty,
	};
	int r;

	if (p->is_pty && req->pty->size) {
		o.cols = (uint16_t)MIN(req->pty->size->cols, UINT16_MAX);
		o.rows = (uint16_t)MIN(req->pty->size->rows, UINT16_MAX);
	}
	r = container_proc_start(p->s->container, &o, &events, p, &p->bp);
	if (r < 0) {
		list_del(&p->node);
		loop_bury(p->loop, &p->grave, proc_free, p);
	}
	return r;
}

void proc_start(struct call *c, const struct container_user *u, const char *cwd,
		const char *const *envs, size_t n_envs)
{
	struct proc *p = proc_new(c->l, c->s, (Process__StartRequest *)(void *)c->req);
	int r;

	if (!p) {
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	c->req = NULL;
	p->starter = c;
	if (c->has_timeout)
		p->deadline_ms = c->arrived_ms + c->timeout_ms;
	c->priv = p;
	c->gone = on_starter_gone;
	r = proc_launch(p, u, cwd, envs, n_envs);
	if (!r)
		return;
	c->gone = NULL;
	c->priv = NULL;
	if (r == -E2BIG)
		call_fail(c, CODE_INVALID_ARGUMENT, "arguments and environment are too long");
	else if (r == -EPIPE)
		call_fail(c, CODE_UNAVAILABLE, "the sandbox is not running");
	else
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "the command cannot be started: %s",
			  strerror(-r));
}

int proc_start_own(struct local *l, struct sandbox *s, Process__StartRequest *req, const struct container_user *u,
		   const char *cwd, const char *const *envs, size_t n_envs, struct proc_watcher *watcher, struct proc **ret)
{
	struct proc *p = proc_new(l, s, req);
	int r;

	if (!p) {
		protobuf_c_message_free_unpacked(&req->base, NULL);
		return -ENOMEM;
	}
	r = proc_launch(p, u, cwd, envs, n_envs);
	if (r < 0)
		return r;
	p->watcher = watcher;
	*ret = p;
	return 0;
}

/* --- the table --- */

struct proc *proc_by_pid(const struct sandbox *s, uint32_t pid, bool also_over)
{
	struct proc *over = NULL;

	list_for_each(n, &s->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		if (p->pid != pid || p->state == PROC_STARTING)
			continue;
		if (p->state == PROC_RUNNING)
			return p;
		over = p;
	}
	return also_over ? over : NULL;
}

struct proc *proc_by_tag(const struct sandbox *s, const char *tag, bool also_over)
{
	struct proc *over = NULL;

	list_for_each(n, &s->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		if (p->state == PROC_STARTING || !p->req->_tag_case || !str_eq(p->req->tag, tag))
			continue;
		if (p->state == PROC_RUNNING)
			return p;
		over = p;
	}
	return also_over ? over : NULL;
}
