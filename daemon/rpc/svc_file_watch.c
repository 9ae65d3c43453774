/* SPDX-License-Identifier: MIT */
/*
 * FileService Watch. Changes are taken from the agent only as the client reads them, so a slow client
 * costs nothing here: what it does not read waits with the agent, whose queue overflows in the end.
 *
 * A stream that the agent, the edge or the network ends is begun again, and `overflowed` says that
 * changes may be missing. It ends for good when the sandbox does, when the directory is not there any
 * more, or when it could not be watched for WATCH_RETRY_MS.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/check.h"
#include "daemon/rpc/file_call.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/rng.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

#define WATCH_RETRY_MS	      60000u
#define WATCH_BACKOFF_MS      100u
#define WATCH_BACKOFF_MAX_MS  5000u

static void send_event(struct file_call *x, Agentbox__V1__FileEvent__EventCase kind, void *part)
{
	Agentbox__V1__FileEvent m = AGENTBOX__V1__FILE_EVENT__INIT;

	m.event_case = kind;
	m.ready = part;		/* one union */
	rpc_call_send(x->call, &m.base);
}

static void on_start(struct file_call *x)
{
	Agentbox__V1__FileEvent__Ready ready = AGENTBOX__V1__FILE_EVENT__READY__INIT;
	Agentbox__V1__FileEvent__Overflowed missed = AGENTBOX__V1__FILE_EVENT__OVERFLOWED__INIT;

	x->failures = 0;
	x->asked_life = false;
	if (!x->ready)
		send_event(x, AGENTBOX__V1__FILE_EVENT__EVENT_READY, &ready);
	else if (x->missed)
		send_event(x, AGENTBOX__V1__FILE_EVENT__EVENT_OVERFLOWED, &missed);
	x->ready = true;
	x->missed = false;
}

/* False after the call failed. */
static bool on_change(struct file_call *x, const struct envd_watch_event *e)
{
	Agentbox__V1__FileEvent__Change m = AGENTBOX__V1__FILE_EVENT__CHANGE__INIT;
	struct file_info_message f = { .entries = NULL };
	struct envd_entry entry = e->entry ? *e->entry : (struct envd_entry){ .name = NULL };
	char *name, *path = e->entry && x->link ? str_printf("%s/%s", x->path, e->name) : NULL;
	bool ok;

	m.name = file_name_text((char *)e->name, &name);
	m.type = (Agentbox__V1__FileEvent__Change__Type)e->change;
	if (path)
		entry.path = path;	/* not the link's */
	ok = m.name && (!e->entry || ((path || !x->link) && file_info_fill(&f, &entry) == 0));
	if (ok) {
		m.entry = e->entry ? &f.m : NULL;
		send_event(x, AGENTBOX__V1__FILE_EVENT__EVENT_CHANGE, &m);
	}
	file_info_fini(&f);
	free(name);
	free(path);
	if (!ok)
		file_call_fail_errno(x, ENOMEM);
	return ok;
}

static void on_retry(struct timer *t, void *user)
{
	file_call_resolve(user);
}

/* Is it worth another try, or is what the agent said the answer? */
static bool may_retry(const struct file_call *x, const struct envd_watch_event *e)
{
	if (e->cls == ENVD_ANSWERED)	/* `internal` of a watch that ran: its queue overflowed */
		return x->ready && !x->failures && e->failure.reason == R_CLOUD_REFUSED;
	return x->ready || e->cls == ENVD_UNSENT || e->cls == ENVD_LOST;
}

static void on_closed(struct file_call *x, const struct envd_watch_event *e)
{
	uint64_t now = loop_now_ms(rpc_call_loop(x->call)), chance;
	struct status st = e->failure;

	x->watch = envd_watch_free(x->watch);
	if (status_ok(&st))
		status_set(&st, R_UNREACHABLE, "the agent stopped watching");
	if (file_call_ask_life(x, e->cls)) {
		x->missed = true;
		return;
	}
	if (!x->failures)
		x->lost_at_ms = now;
	if (!may_retry(x, e) || now >= x->lost_at_ms + WATCH_RETRY_MS) {
		file_call_fail(x, &st);
		return;
	}
	x->missed = true;
	rng_system(&chance, sizeof(chance));	/* watches cut together do not come back in step */
	if (timer_set(&x->retry, now + rules_backoff_ms(x->failures++, WATCH_BACKOFF_MS, WATCH_BACKOFF_MAX_MS,
							chance)) < 0)
		file_call_fail_errno(x, ENOMEM);
}

static void pump(struct file_call *x)
{
	struct envd_watch_event e;

	while (x->watch && rpc_call_room(x->call)) {
		switch (envd_watch_next(x->watch, &e)) {
		case ENVD_WATCH_NONE:
			return;
		case ENVD_WATCH_START:
			on_start(x);
			break;
		case ENVD_WATCH_CHANGE:
			if (!on_change(x, &e))
				return;
			break;
		case ENVD_WATCH_KEEPALIVE:
			break;
		case ENVD_WATCH_CLOSED:
			on_closed(x, &e);
			return;
		}
	}
}

static void svc_file_watch_on_ready(struct envd_watch *w, void *user)
{
	pump(user);
}

static void on_room(struct rpc_call *call)
{
	struct file_call *x = rpc_call_user(call);

	if (x)
		pump(x);
}

static void svc_file_watch_on_silence(struct rpc_call *call)
{
	Agentbox__V1__Heartbeat beat = AGENTBOX__V1__HEARTBEAT__INIT;
	struct file_call *x = rpc_call_user(call);

	if (x && x->ready)
		send_event(x, AGENTBOX__V1__FILE_EVENT__EVENT_HEARTBEAT, &beat);
}

static void begin_watch(struct file_call *x, const char *path)
{
	struct envd_target t = file_call_target(x);

	x->watching.path = path;
	x->watch = envd_watch(&t, &x->watching, svc_file_watch_on_ready, x);
	if (!x->watch)
		file_call_fail_errno(x, ENOMEM);
}

static void on_linked(struct envd_result *r, void *user)
{
	struct file_call *x = user;

	x->agent = NULL;
	if (r->cls == ENVD_OK && r->n_entries) {
		free(x->link);
		free(x->path);
		x->link = give(r->entries[0].path);
		x->path = give(r->entries[0].name);
		begin_watch(x, x->link);
	} else if (!file_call_ask_life(x, r->cls)) {
		file_call_fail_because(x, r->cls, &r->status);
	}
}

/* A directory that the agent cannot be told the name of is watched through a link. */
static void go_watch(struct file_call *x)
{
	struct envd_target t = file_call_target(x);
	struct status st;

	if (envd_can_name(x->path)) {
		begin_watch(x, x->path);
		return;
	}
	if (x->watching.recursive) {
		status_set(&st, R_UNSUPPORTED, "the sandbox's agent cannot watch what is below a directory whose name is not UTF-8");
		file_call_fail(x, &st);
		return;
	}
	x->agent = envd_link(&t, x->path, on_linked, x);
	if (!x->agent)
		file_call_fail_errno(x, ENOMEM);
}

static void svc_file_watch_on_request(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__WatchDirRequest *q = (const void *)message;
	struct file_call *x = file_call_new(call);

	if (!x)
		return;
	timer_init(&x->retry, rpc_call_loop(call), on_retry, x);
	if (!file_call_take(x, q->sandbox, q->path, "path", q->user))
		return;
	x->watching = (struct envd_watch_options){ .recursive = q->recursive, .entries = q->include_entry,
						   .network = q->allow_network_mounts };
	x->go = go_watch;
	file_call_resolve(x);
}

const struct rpc_handler file_watch_handler = {.on_message = svc_file_watch_on_request,
					       .on_room = on_room,
					       .on_silence = svc_file_watch_on_silence,
					       .on_gone = file_call_on_gone};
