/* SPDX-License-Identifier: MIT */
/* Unary calls of the agent: health, processes, file system. */
#include "daemon/cloud/envd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/connect.h"
#include "daemon/cloud/message.h"
#include "daemon/cloud/rawfs.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

#define CALL_MAGIC     0x656e7664u
#define INPUT_MAX      (1024u * 1024)

typedef int decode_fn(const uint8_t *p, size_t n, struct envd_result *ret);

struct envd_call {
	uint32_t magic;
	struct loop *loop;
	struct connect_call c;
	struct rawfs *raw;		/* instead of it */
	bool is_health;
	decode_fn *decode;		/* NULL: the answer is empty */
	envd_done_fn *done;
	void *user;
	struct envd_result result;
	struct defer over;
	struct grave grave;
};

static void call_bury(void *p)
{
	struct envd_call *c = p;

	message_result_fini(&c->result);
	buf_fini(&c->c.answer);
	c->magic = 0;
	free(c);
}

static void on_over(struct defer *d, void *user)
{
	struct envd_call *c = user;

	must(c->magic == CALL_MAGIC);
	c->done(&c->result, c->user);
	loop_bury(c->loop, &c->grave, call_bury, c);
}

static void call_over(struct envd_call *c)
{
	c->c.req = pool_req_free(c->c.req);
	c->raw = rawfs_free(c->raw);
	defer_post(&c->over);
}

void envd_call_cancel(struct envd_call *c)
{
	if (!c)
		return;
	must(c->magic == CALL_MAGIC);
	c->c.req = pool_req_free(c->c.req);
	c->raw = rawfs_free(c->raw);
	defer_cancel(&c->over);
	loop_bury(c->loop, &c->grave, call_bury, c);
}

/* 2xx: it runs; 502 without a port: it does not, says the edge; anything else is a failure. */
static void health_over(struct envd_call *c)
{
	struct envd_result *r = &c->result;

	r->running = r->http_status >= 200 && r->http_status < 300;
	if (r->running || r->cls == ENVD_NOT_RUNNING) {
		r->cls = ENVD_OK;
		r->status = (struct status)STATUS_OK;
	}
	call_over(c);
}

static void envd_on_ready(struct pool_req *req, void *user)
{
	struct envd_call *c = user;
	struct envd_result *r = &c->result;
	const uint8_t *p = NULL;
	size_t n = 0;

	must(c->magic == CALL_MAGIC && c->c.req == req);
	switch (connect_call_poll(&c->c, &p, &n, &r->http_status, &r->cls, &r->status)) {
	case CONNECT_MORE:
		return;
	case CONNECT_MESSAGE:
		r->names_are_text = agent_names_are_text(pool_req_x(req));
		if (c->decode && c->decode(p, n, r) < 0) {
			r->cls = ENVD_LOST;
			status_set(&r->status, R_BAD_CLOUD_REPLY, "%s: the answer cannot be read",
				   c->c.path);
		}
		break;
	case CONNECT_END:
	case CONNECT_FAILED:
		break;
	}
	if (c->is_health)
		health_over(c);
	else
		call_over(c);
}

static struct envd_call *call_new(const struct envd_target *t, decode_fn *decode, envd_done_fn *done,
				  void *user)
{
	struct envd_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->magic = CALL_MAGIC;
	c->loop = t->at.cloud->loop;
	c->decode = decode;
	c->done = done;
	c->user = user;
	defer_init(&c->over, c->loop, on_over, c);
	return c;
}

struct call_kind {
	const char *path;
	enum fault_subject subject;
	bool basic_user, idempotent;
	decode_fn *decode;
};

static struct envd_call *call_begin(const struct envd_target *t, const struct call_kind *k,
				    const ProtobufCMessage *m, envd_done_fn *done, void *user)
{
	struct envd_call *c = call_new(t, k->decode, done, user);
	uint8_t *msg = NULL;
	size_t n = 0;
	int r = c ? message_pack(m, &msg, &n) : -ENOMEM;

	if (r == 0)
		r = connect_call_init(&c->c, t, k->path, k->subject, k->basic_user, k->idempotent, msg, n,
				      envd_on_ready, c);
	free(msg);
	if (r < 0 && c) {
		call_bury(c);
		return NULL;
	}
	return c;
}

static struct envd_call *call_refuse(const struct envd_target *t, const struct status *why,
				     envd_done_fn *done, void *user)
{
	struct envd_call *c = call_new(t, NULL, done, user);

	if (c) {
		c->result.cls = ENVD_ANSWERED;
		c->result.status = *why;
		defer_post(&c->over);
	}
	return c;
}

/* --- by a script --- */

bool envd_can_name(const char *path)
{
	return name_is_text(path);
}

bool envd_needs_script(const struct status *st)
{
	return rawfs_explains(st);
}

/* The one entry that there is, if any. */
static void on_raw_ready(struct rawfs *f, void *user)
{
	struct envd_call *c = user;
	struct envd_result *r = &c->result;
	struct envd_entry e;
	const struct status *why;

	while (rawfs_next(f, &e)) {
		if (!r->entries && (r->entries = calloc(1, sizeof(*r->entries)))) {
			r->entries[r->n_entries++] = e;
			e = (struct envd_entry){ .name = NULL };
		}
		envd_entry_fini(&e);
	}
	if (rawfs_state(f) != ENVD_XFER_DONE && rawfs_state(f) != ENVD_XFER_FAILED)
		return;
	why = rawfs_failure(f, &r->cls);
	if (why)
		r->status = *why;
	call_over(c);
}

static struct envd_call *raw_begin(const struct envd_target *t, enum rawfs_op op, const char *path, const char *other,
				   envd_done_fn *done, void *user)
{
	struct envd_call *c = call_new(t, NULL, done, user);

	if (c)
		c->raw = rawfs_new(t, &(struct rawfs_ask){ .op = op, .path = path, .other = other }, on_raw_ready, c);
	if (c && !c->raw) {
		call_bury(c);
		return NULL;
	}
	return c;
}

/* --- the calls --- */

struct envd_call *envd_health(const struct envd_target *t, envd_done_fn *done, void *user)
{
	struct envd_call *c = call_new(t, NULL, done, user);

	if (!c)
		return NULL;
	c->is_health = true;
	c->c.path = "GET /health";
	c->c.subject = FAULT_AGENT;
	buf_init(&c->c.answer, 0);
	c->c.req = agent_request(&(struct agent_ask){
		.t = t,
		.method = "GET",
		.path = "/health",
		.idempotent = true,
		.deadline_ms = agent_deadline_ms(t),
		.on_ready = envd_on_ready,
		.user = c,
	});
	if (!c->c.req) {
		call_bury(c);
		return NULL;
	}
	return c;
}

struct envd_call *envd_process_list(const struct envd_target *t, envd_done_fn *done, void *user)
{
	static const struct call_kind k = { "/process.Process/List", FAULT_PROCESS, false, true,
					    message_processes };
	Process__ListRequest m = PROCESS__LIST_REQUEST__INIT;

	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_send_input(const struct envd_target *t, uint32_t pid, bool pty, const void *p,
				  size_t n, envd_done_fn *done, void *user)
{
	static const struct call_kind k = { "/process.Process/SendInput", FAULT_INPUT, false, false, NULL };
	Process__SendInputRequest m = PROCESS__SEND_INPUT_REQUEST__INIT;
	Process__ProcessSelector sel = PROCESS__PROCESS_SELECTOR__INIT;
	Process__ProcessInput in;
	struct status why = STATUS_OK;

	if (n > INPUT_MAX) {
		status_set(&why, R_TOO_LARGE, "input of %zu bytes; at most %u at once", n, INPUT_MAX);
		return call_refuse(t, &why, done, user);
	}
	message_select(&sel, pid);
	process__process_input__init(&in);
	in.input_case = pty ? PROCESS__PROCESS_INPUT__INPUT_PTY : PROCESS__PROCESS_INPUT__INPUT_STDIN;
	in.pty.data = (uint8_t *)p;	/* the same union member; packing only reads it */
	in.pty.len = n;
	m.process = &sel;
	m.input = &in;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_close_stdin(const struct envd_target *t, uint32_t pid, envd_done_fn *done,
				   void *user)
{
	static const struct call_kind k = { "/process.Process/CloseStdin", FAULT_INPUT, false, true, NULL };
	Process__CloseStdinRequest m = PROCESS__CLOSE_STDIN_REQUEST__INIT;
	Process__ProcessSelector sel = PROCESS__PROCESS_SELECTOR__INIT;
	struct status why = STATUS_OK;

	if (!agent_has(t, "0.5.2")) {
		status_set(&why, R_UNSUPPORTED, "the sandbox's agent %s cannot close an input; 0.5.2 can",
			   t->at.version);
		return call_refuse(t, &why, done, user);
	}
	message_select(&sel, pid);
	m.process = &sel;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_send_signal(const struct envd_target *t, uint32_t pid, int signo,
				   envd_done_fn *done, void *user)
{
	static const struct call_kind k = { "/process.Process/SendSignal", FAULT_PROCESS, false, false, NULL };
	Process__SendSignalRequest m = PROCESS__SEND_SIGNAL_REQUEST__INIT;
	Process__ProcessSelector sel = PROCESS__PROCESS_SELECTOR__INIT;

	must(signo == 9 || signo == 15);
	message_select(&sel, pid);
	m.process = &sel;
	m.signal = signo == 9 ? PROCESS__SIGNAL__SIGNAL_SIGKILL : PROCESS__SIGNAL__SIGNAL_SIGTERM;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_resize(const struct envd_target *t, uint32_t pid, uint32_t cols, uint32_t rows,
			      envd_done_fn *done, void *user)
{
	static const struct call_kind k = { "/process.Process/Update", FAULT_PROCESS, false, true, NULL };
	Process__UpdateRequest m = PROCESS__UPDATE_REQUEST__INIT;
	Process__ProcessSelector sel = PROCESS__PROCESS_SELECTOR__INIT;
	Process__PTY__Size size = PROCESS__PTY__SIZE__INIT;
	Process__PTY pty = PROCESS__PTY__INIT;

	message_select(&sel, pid);
	size.cols = cols;
	size.rows = rows;
	pty.size = &size;
	m.process = &sel;
	m._pty_case = PROCESS__UPDATE_REQUEST___PTY_PTY;
	m.pty = &pty;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_stat(const struct envd_target *t, const char *path, envd_done_fn *done,
			    void *user)
{
	static const struct call_kind k = { "/filesystem.Filesystem/Stat", FAULT_PATH, true, true,
					    message_stat };
	Filesystem__StatRequest m = FILESYSTEM__STAT_REQUEST__INIT;

	if (t->by_script || !envd_can_name(path))
		return raw_begin(t, RAWFS_STAT, path, NULL, done, user);
	m.path = (char *)path;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_make_dir(const struct envd_target *t, const char *path, envd_done_fn *done,
				void *user)
{
	struct call_kind k = { "/filesystem.Filesystem/MakeDir", FAULT_DIR, true, false, message_make_dir };
	Filesystem__MakeDirRequest m = FILESYSTEM__MAKE_DIR_REQUEST__INIT;

	if (t->by_script || !envd_can_name(path))
		return raw_begin(t, RAWFS_MAKE_DIR, path, NULL, done, user);
	if (agent_is_foreign_home(path))
		k.subject = FAULT_PATH;
	m.path = (char *)path;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_move(const struct envd_target *t, const char *from, const char *to,
			    envd_done_fn *done, void *user)
{
	static const struct call_kind k = { "/filesystem.Filesystem/Move", FAULT_PATH, true, false,
					    message_move };
	Filesystem__MoveRequest m = FILESYSTEM__MOVE_REQUEST__INIT;

	if (t->by_script || !envd_can_name(from) || !envd_can_name(to))
		return raw_begin(t, RAWFS_MOVE, from, to, done, user);
	m.source = (char *)from;
	m.destination = (char *)to;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_remove(const struct envd_target *t, const char *path, envd_done_fn *done,
			      void *user)
{
	static const struct call_kind k = { "/filesystem.Filesystem/Remove", FAULT_PATH, true, true, NULL };
	Filesystem__RemoveRequest m = FILESYSTEM__REMOVE_REQUEST__INIT;

	if (t->by_script || !envd_can_name(path))
		return raw_begin(t, RAWFS_REMOVE, path, NULL, done, user);
	m.path = (char *)path;
	return call_begin(t, &k, &m.base, done, user);
}

struct envd_call *envd_link(const struct envd_target *t, const char *path, envd_done_fn *done, void *user)
{
	return raw_begin(t, RAWFS_LINK, path, NULL, done, user);
}
