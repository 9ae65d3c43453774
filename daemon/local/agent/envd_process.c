/* SPDX-License-Identifier: MIT */
/* The Process service: requests in, commands (proc.h) moved. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/agent/envd.h"
#include "daemon/local/agent/proc.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/local.h"
#include "proto/base/str.h"

#define ENVD_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

void envd_process_stop(struct sandbox *s)
{
	list_for_each_safe(n, &s->procs)
		proc_drop(list_entry(n, struct proc, node));
}

void envd_process_thaw(struct sandbox *s, uint64_t stood_ms)
{
	list_for_each(n, &s->procs)
		proc_delay(list_entry(n, struct proc, node), stood_ms);
}

/* --- Start --- */

static int put_env(json_t *o, const char *key, const char *value)
{
	/* Text of the request is UTF-8 already; anything else would not have come this far. */
	return json_object_set_new(o, key, json_string(value));
}

/* An object, so that later names win. */
static json_t *merge_env(const struct container_user *u, const json_t *globals, Process__ProcessConfig__EnvsEntry *const *given,
			 size_t n_given)
{
	json_t *o = json_object();
	int r = o ? 0 : -1;

	if (!r)
		r = put_env(o, "PATH", ENVD_PATH) | put_env(o, "HOME", u->home) |
		    put_env(o, "USER", u->name) | put_env(o, "LOGNAME", u->name) |
		    json_object_update(o, (json_t *)globals);
	for (size_t i = 0; i < n_given && !r; i++)
		r = put_env(o, given[i]->key, given[i]->value);
	if (!r)
		return o;
	json_decref(o);
	return NULL;
}

void envd_environment_free(char **v, size_t n)
{
	for (size_t i = 0; v && i < n; i++)
		free(v[i]);
	free(v);
}

char **envd_environment(const struct container_user *u, const json_t *globals, Process__ProcessConfig__EnvsEntry *const *given,
			size_t n_given, size_t *ret_n)
{
	json_auto_t *o = globals ? merge_env(u, globals, given, n_given) : NULL;
	char **v = o ? calloc(json_object_size(o) + 1, sizeof(*v)) : NULL;
	const char *key;
	json_t *value;
	size_t n = 0;

	if (!v)
		return NULL;
	json_object_foreach(o, key, value) {
		v[n] = str_printf("%s=%s", key, json_string_value(value));
		if (!v[n++]) {
			envd_environment_free(v, n);
			return NULL;
		}
	}
	*ret_n = n;
	return v;
}

/* One that names no command is started all the same, and ends with 127. */
static Process__ProcessConfig *process_of(Process__StartRequest *in)
{
	if (!in->process) {
		in->process = calloc(1, sizeof(*in->process));
		if (in->process)
			process__process_config__init(in->process);
	}
	return in->process;
}

static void start_start(struct call *c)
{
	Process__StartRequest *in = (void *)c->req;
	const Process__ProcessConfig *config = process_of(in);
	const struct container_user *u = call_user(c);
	json_auto_t *globals = NULL;
	char *cwd, **envs;
	size_t n_envs = 0;

	if (!u)
		return;
	if (!config) {
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	cwd = envd_path_of_text(c->s, u, config->_cwd_case ? config->cwd : "");
	if (!cwd && errno == EINVAL) {
		call_fail(c, CODE_INVALID_ARGUMENT, "cwd: cannot expand the user in \"%s\"",
			  config->cwd);
		return;
	}
	globals = envd_globals(c->s, true);
	envs = cwd ? envd_environment(u, globals, config->envs, config->n_envs, &n_envs) : NULL;
	if (envs)
		proc_start(c, u, cwd, (const char *const *)envs, n_envs);
	else
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
	envd_environment_free(envs, n_envs);
	free(cwd);
}

/* --- selection --- */

/* NULL after the call failed. */
static struct proc *selected(struct call *c, const Process__ProcessSelector *by, bool also_over)
{
	struct proc *p = NULL;

	switch (by ? by->selector_case : PROCESS__PROCESS_SELECTOR__SELECTOR__NOT_SET) {
	case PROCESS__PROCESS_SELECTOR__SELECTOR_PID:
		p = proc_by_pid(c->s, by->pid, also_over);
		if (!p)
			call_fail(c, CODE_NOT_FOUND, "process with pid %u not found", by->pid);
		break;
	case PROCESS__PROCESS_SELECTOR__SELECTOR_TAG:
		p = proc_by_tag(c->s, by->tag, also_over);
		if (!p)
			call_fail(c, CODE_NOT_FOUND, "process with tag %.100s not found", by->tag);
		break;
	default:
		call_fail(c, CODE_UNIMPLEMENTED, "invalid process selector");
		break;
	}
	return p;
}

static void connect_start(struct call *c)
{
	const Process__ConnectRequest *in = (const void *)c->req;
	struct proc *p = selected(c, in->process, true);

	if (p)
		proc_listen(p, c);
}

static size_t count_running(const struct sandbox *s)
{
	size_t count = 0;

	list_for_each(n, &s->procs)
		count += list_entry(n, struct proc, node)->state == PROC_RUNNING;
	return count;
}

static void list_start(struct call *c)
{
	Process__ListResponse out = PROCESS__LIST_RESPONSE__INIT;
	size_t max = count_running(c->s), i = 0;
	Process__ProcessInfo *info = calloc(max + 1, sizeof(*info));
	Process__ProcessInfo **ptr = calloc(max + 1, sizeof(Process__ProcessInfo *));

	if (!info || !ptr) {
		free(info);
		free(ptr);
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	list_for_each(n, &c->s->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		if (p->state != PROC_RUNNING)
			continue;
		process__process_info__init(&info[i]);
		info[i].config = p->req->process;
		info[i].pid = p->pid;
		if (p->req->_tag_case) {
			info[i]._tag_case = PROCESS__PROCESS_INFO___TAG_TAG;
			info[i].tag = p->req->tag;
		}
		ptr[i] = &info[i];
		i++;
	}
	out.processes = ptr;
	out.n_processes = i;
	call_reply(c, &out.base);
	free(info);
	free(ptr);
}

static void signal_start(struct call *c)
{
	Process__SendSignalResponse out = PROCESS__SEND_SIGNAL_RESPONSE__INIT;
	const Process__SendSignalRequest *in = (const void *)c->req;
	struct proc *p = selected(c, in->process, false);
	int r;

	if (!p)
		return;
	if (in->signal != PROCESS__SIGNAL__SIGNAL_SIGKILL &&
	    in->signal != PROCESS__SIGNAL__SIGNAL_SIGTERM) {
		call_fail(c, CODE_UNIMPLEMENTED, "invalid signal: %d", (int)in->signal);
		return;
	}
	journal_add(c->l->journal, "SendSignal",
		    json_pack("{s:s, s:i, s:i}", "sandbox", c->s->id, "pid", (int)p->pid, "signal",
			      (int)in->signal));
	r = proc_signal(p, in->signal == PROCESS__SIGNAL__SIGNAL_SIGKILL ? SIGKILL : SIGTERM);
	if (!r)
		call_reply(c, &out.base);
	else
		call_fail(c, r == -ESRCH ? CODE_NOT_FOUND : CODE_INTERNAL,
			  "error sending signal: %s", strerror(-r));
}

static void update_start(struct call *c)
{
	Process__UpdateResponse out = PROCESS__UPDATE_RESPONSE__INIT;
	const Process__UpdateRequest *in = (const void *)c->req;
	struct proc *p = selected(c, in->process, false);
	const Process__PTY__Size *size = in->_pty_case && in->pty ? in->pty->size : NULL;
	int r;

	if (!p)
		return;
	if (!in->_pty_case) {
		call_reply(c, &out.base);
		return;
	}
	r = proc_resize(p, (uint16_t)MIN(size ? size->cols : 0, UINT16_MAX),
			(uint16_t)MIN(size ? size->rows : 0, UINT16_MAX));
	if (!r)
		call_reply(c, &out.base);
	else
		call_fail(c, CODE_INTERNAL, "error resizing tty: %s",
			  r == -EOPNOTSUPP ? "tty not assigned to process" : strerror(-r));
}

/* --- input --- */

static void on_input_gone(struct call *c)
{
	proc_input_forget(give(c->priv));
}

/* Puts the input on its way; the call waits for `written`. False after it failed. */
static bool queue_input(struct call *c, struct proc *p, Process__ProcessInput *input,
			proc_written_fn *written)
{
	ProtobufCBinaryData *bytes;
	struct proc_input *in;
	bool to_pty;
	uint8_t *data;
	int r;

	if (!input || !input->input_case) {
		call_fail(c, CODE_UNIMPLEMENTED, "invalid input type");
		return false;
	}
	to_pty = input->input_case == PROCESS__PROCESS_INPUT__INPUT_PTY;
	if (to_pty != p->is_pty) {
		call_fail(c, CODE_INTERNAL, "error writing to %s: the process has %s",
			  to_pty ? "tty" : "stdin", p->is_pty ? "a tty" : "no tty");
		return false;
	}
	bytes = to_pty ? &input->pty : &input->stdin;
	data = bytes->data ? bytes->data : malloc(1);
	r = data ? proc_write(p, data, bytes->len, written, c, &in) : -ENOMEM;
	if (!r) {
		*bytes = (ProtobufCBinaryData){ 0 };	/* taken */
		c->priv = in;
		c->gone = on_input_gone;
		return true;
	}
	if (data != bytes->data)
		free(data);
	call_fail(c, r == -EPIPE ? CODE_INTERNAL : CODE_RESOURCE_EXHAUSTED,
		  "error writing to stdin: %s",
		  r == -EPIPE ? "stdin not enabled or closed" : strerror(-r));
	return false;
}

static void input_failed(struct call *c)
{
	call_fail(c, CODE_INTERNAL, "error writing to stdin: broken pipe");
}

static void on_sent(void *user, int r)
{
	Process__SendInputResponse out = PROCESS__SEND_INPUT_RESPONSE__INIT;
	struct call *c = user;

	c->priv = NULL;
	c->gone = NULL;
	if (r < 0)
		input_failed(c);
	else
		call_reply(c, &out.base);
}

static void send_input_start(struct call *c)
{
	const Process__SendInputRequest *in = (const void *)c->req;
	struct proc *p = selected(c, in->process, false);

	if (p)
		(void)queue_input(c, p, in->input, on_sent);
}

static void on_closed(void *user, int r)
{
	Process__CloseStdinResponse out = PROCESS__CLOSE_STDIN_RESPONSE__INIT;
	struct call *c = user;

	c->priv = NULL;
	c->gone = NULL;
	call_reply(c, &out.base);
}

static void close_stdin_start(struct call *c)
{
	const Process__CloseStdinRequest *in = (const void *)c->req;
	struct proc *p = selected(c, in->process, false);
	struct proc_input *end;

	if (!p)
		return;
	if (p->is_pty) {
		call_fail(c, CODE_UNKNOWN, "cannot close stdin of a process with a tty");
	} else if (proc_write(p, NULL, 0, on_closed, c, &end) < 0) {
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		c->priv = end;
		c->gone = on_input_gone;
	}
}

/* StreamInput: the pid is kept in the call between messages, the process may go meanwhile. */
static void on_streamed(void *user, int r)
{
	struct call *c = user;

	c->priv = NULL;
	c->gone = NULL;
	if (r < 0)
		input_failed(c);
	else
		call_next(c);
}

static void stream_input_start(struct call *c)
{
	const Process__StreamInputRequest *in = (const void *)c->req;
	struct proc *p;

	switch (in->event_case) {
	case PROCESS__STREAM_INPUT_REQUEST__EVENT_START:
		p = selected(c, in->start->process, false);
		if (p)
			c->selected_pid = p->pid;
		break;
	case PROCESS__STREAM_INPUT_REQUEST__EVENT_DATA:
		p = c->selected_pid ? proc_by_pid(c->s, c->selected_pid, false) : NULL;
		if (!c->selected_pid)
			call_fail(c, CODE_INTERNAL, "data came before start");
		else if (!p)
			call_fail(c, CODE_NOT_FOUND, "process with pid %u not found",
				  c->selected_pid);
		else if (queue_input(c, p, in->data->input, on_streamed))
			call_hold(c);
		break;
	default:
		break;
	}
}

static void stream_input_ended(struct call *c)
{
	Process__StreamInputResponse out = PROCESS__STREAM_INPUT_RESPONSE__INIT;

	call_reply(c, &out.base);
}

const struct rpc_method envd_process_methods[] = {
	{ "/process.Process/List", &process__list_request__descriptor, .start = list_start },
	{ "/process.Process/Start", &process__start_request__descriptor, .stream_out = true,
	  .own_deadline = true, .start = start_start },
	{ "/process.Process/Connect", &process__connect_request__descriptor, .stream_out = true,
	  .start = connect_start },
	{ "/process.Process/Update", &process__update_request__descriptor, .start = update_start },
	{ "/process.Process/SendInput", &process__send_input_request__descriptor,
	  .start = send_input_start },
	{ "/process.Process/StreamInput", &process__stream_input_request__descriptor,
	  .stream_in = true, .start = stream_input_start, .input_ended = stream_input_ended },
	{ "/process.Process/SendSignal", &process__send_signal_request__descriptor,
	  .start = signal_start },
	{ "/process.Process/CloseStdin", &process__close_stdin_request__descriptor,
	  .start = close_stdin_start },
	{ 0 },
};
