/* SPDX-License-Identifier: MIT */
/* Start and Connect of the agent's Process service: a stream of events, taken at the owner's pace. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/cloud/connect.h"
#include "daemon/cloud/message.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define STREAM_MAGIC 0x73747265u

struct envd_stream {
	uint32_t magic;
	struct loop *loop;
	struct connect_stream c;
	envd_stream_ready_fn *on_ready;
	void *user;
	Process__StartResponse *held;
	bool closed;			/* the CLOSED event was given */
	struct grave grave;
};

static void stream_on_ready(struct pool_req *r, void *user)
{
	struct envd_stream *s = user;

	must(s->magic == STREAM_MAGIC);
	if (!s->closed)
		s->on_ready(s, s->user);
}

static struct envd_stream *stream_begin(const struct envd_target *t, const char *path,
					const ProtobufCMessage *m, bool basic_user, bool idempotent,
					uint32_t timeout_ms, envd_stream_ready_fn *on_ready, void *user)
{
	struct envd_stream *s = calloc(1, sizeof(*s));
	uint8_t *msg = NULL;
	size_t n = 0;

	if (!s)
		return NULL;
	s->magic = STREAM_MAGIC;
	s->loop = t->at.cloud->loop;
	s->on_ready = on_ready;
	s->user = user;
	if (message_pack(m, &msg, &n) < 0 ||
	    connect_stream_init(&s->c, t, path, FAULT_PROCESS, basic_user, idempotent, timeout_ms, msg, n,
				stream_on_ready, s) < 0) {
		free(msg);
		free(s);
		return NULL;
	}
	free(msg);
	return s;
}

/* Borrows the pairs; `entries` and `ptrs` have room for n. */
static void put_envs(const struct cloud_kv *v, size_t n, Process__ProcessConfig__EnvsEntry *entries,
		     Process__ProcessConfig__EnvsEntry **ptrs)
{
	for (size_t i = 0; i < n; i++) {
		process__process_config__envs_entry__init(&entries[i]);
		entries[i].key = v[i].key;
		entries[i].value = v[i].value;
		ptrs[i] = &entries[i];
	}
}

struct envd_stream *envd_start(const struct envd_target *t, const struct envd_start *what,
			       envd_stream_ready_fn *on_ready, void *user)
{
	Process__StartRequest m = PROCESS__START_REQUEST__INIT;
	Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;
	Process__PTY__Size size = PROCESS__PTY__SIZE__INIT;
	Process__PTY pty = PROCESS__PTY__INIT;
	Process__ProcessConfig__EnvsEntry *entries = calloc(what->n_envs + 1, sizeof(*entries));
	Process__ProcessConfig__EnvsEntry **ptrs = calloc(what->n_envs + 1, sizeof(Process__ProcessConfig__EnvsEntry *));
	struct envd_stream *s = NULL;

	config.cmd = (char *)what->cmd;
	config.args = (char **)what->args;
	config.n_args = what->n_args;
	if (!str_is_empty(what->cwd)) {
		config._cwd_case = PROCESS__PROCESS_CONFIG___CWD_CWD;
		config.cwd = (char *)what->cwd;
	}
	m.process = &config;
	if (what->tag) {
		m._tag_case = PROCESS__START_REQUEST___TAG_TAG;
		m.tag = (char *)what->tag;
	}
	if (what->pty) {
		size.cols = what->cols;
		size.rows = what->rows;
		pty.size = &size;
		m._pty_case = PROCESS__START_REQUEST___PTY_PTY;
		m.pty = &pty;
	} else {
		m._stdin_case = PROCESS__START_REQUEST___STDIN_STDIN;
		m.stdin = what->stdin_open;
	}
	if (entries && ptrs) {
		put_envs(what->envs, what->n_envs, entries, ptrs);
		config.envs = ptrs;
		config.n_envs = what->n_envs;
		s = stream_begin(t, "/process.Process/Start", &m.base, true, false,
				 what->timeout_ms, on_ready, user);
	}
	free(entries);
	free(ptrs);
	return s;
}

struct envd_stream *envd_attach(const struct envd_target *t, uint32_t pid,
				envd_stream_ready_fn *on_ready, void *user)
{
	Process__ConnectRequest m = PROCESS__CONNECT_REQUEST__INIT;
	Process__ProcessSelector sel = PROCESS__PROCESS_SELECTOR__INIT;

	message_select(&sel, pid);
	m.process = &sel;
	return stream_begin(t, "/process.Process/Connect", &m.base, false, true, 0, on_ready, user);
}

enum envd_event_type envd_stream_next(struct envd_stream *s, struct envd_event *ret)
{
	const uint8_t *p;
	size_t n;
	enum envd_class cls = ENVD_OK;
	struct status why = STATUS_OK;
	enum connect_result r;

	must(s->magic == STREAM_MAGIC);
	message_event_free(give(s->held));
	while ((r = connect_stream_next(&s->c, &p, &n, &cls, &why)) == CONNECT_MESSAGE) {
		int k = message_event(p, n, ret, &s->held);

		if (k < 0) {
			status_set(&why, R_BAD_CLOUD_REPLY, "%s: an event cannot be read", s->c.path);
			cls = ENVD_LOST;
			s->c.over = true;
			r = CONNECT_FAILED;
			break;
		}
		s->c.ending = ret->type == ENVD_EVENT_END;
		if (ret->type != ENVD_EVENT_NONE)
			return ret->type;
		message_event_free(give(s->held));
	}
	*ret = (struct envd_event){ 0 };
	if (r == CONNECT_MORE)
		return ENVD_EVENT_NONE;
	ret->type = ENVD_EVENT_CLOSED;
	ret->cls = cls;
	ret->failure = why;
	s->closed = true;
	return ret->type;
}

const char *envd_stream_said(const struct envd_stream *s, enum ab_code *ret_code)
{
	if (s->c.said == CODE_OK)
		return NULL;
	*ret_code = s->c.said;
	return s->c.said_text;
}

bool envd_stream_was_sent(const struct envd_stream *s)
{
	return pool_req_was_sent(s->c.req);
}

static void stream_bury(void *p)
{
	struct envd_stream *s = p;

	s->magic = 0;
	free(s);
}

struct envd_stream *envd_stream_free(struct envd_stream *s)
{
	if (!s)
		return NULL;
	must(s->magic == STREAM_MAGIC);
	message_event_free(give(s->held));
	connect_stream_fini(&s->c);
	s->closed = true;
	loop_bury(s->loop, &s->grave, stream_bury, s);
	return NULL;
}
