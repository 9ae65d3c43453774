/* SPDX-License-Identifier: MIT */
/*
 * FileService, the calls with one answer and List. Every call: resolve the sandbox, ask its agent,
 * answer; when the agent cannot be asked, daemon/sandbox says what is true of the sandbox, and the call
 * is made once more if that helps. Read and Write stream: svc_file_stream.c.
 */
#include "daemon/rpc/svc_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/rpc/check.h"
#include "daemon/rpc/file_call.h"
#include "daemon/rpc/server.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

#define AGENT_CALL_MS 60000u	/* a call without a deadline of its own */
#define DEPTH_MAX     100u

/* What it waits for would never come: the agent is gone, and its connection may not say so. */
static void on_sandbox(void *user, enum sandbox_tie_event event, const struct status *st)
{
	if (event == SANDBOX_TIE_GONE)
		file_call_fail(user, st);
}

struct file_call *file_call_new(struct rpc_call *call)
{
	struct file_call *x = rpc_call_new_user(call, sizeof(*x));

	if (!x)
		return NULL;
	x->call = call;
	x->core = rpc_call_service(call);
	sandbox_tie_init(&x->tie, on_sandbox, x);
	return x;
}

static void file_result_free(struct file_result *k)
{
	if (k->has_entry)
		file_info_fini(&k->info);
	envd_entry_fini(&k->entry);
	free(k->asked_path);
	free(k);
}

void file_call_free(struct file_call *x)
{
	sandbox_untie(&x->tie);
	sandbox_cancel(x->op);
	envd_call_cancel(x->agent);
	envd_list_free(x->list);
	envd_read_free(x->read);
	envd_write_free(x->write);
	envd_watch_free(x->watch);
	timer_clear(&x->retry);
	agent_address_fini(&x->at);
	for (size_t i = 0; i < x->n_results; i++)
		file_result_free(x->results[i]);
	free(x->results);
	file_header_free(x->current);
	file_header_free(x->next);
	free(x->sandbox);
	free(x->path);
	free(x->other);
	free(x->link);
	free(x->user);
	free(x);
}

void file_call_fail(struct file_call *x, const struct status *st)
{
	struct rpc_call *call = x->call;

	file_call_free(x);
	rpc_call_fail(call, st);
}

void file_call_fail_errno(struct file_call *x, int err)
{
	struct status st;

	status_errno(&st, err, "file call");
	file_call_fail(x, &st);
}

void file_call_on_gone(struct rpc_call *call, enum rpc_gone why)
{
	struct file_call *x = rpc_call_user(call);

	if (x)
		file_call_free(x);
}

struct envd_target file_call_target(const struct file_call *x)
{
	return (struct envd_target){ .at = x->at, .user = x->user, .by_script = x->by_script, .trace = rpc_call_trace(x->call),
				     .deadline_ms = rpc_call_deadline_ms(x->call) };
}

static void on_target(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct file_call *x = user;

	x->op = NULL;
	if (!status_ok(st))
		file_call_fail(x, st);
	else if (agent_address_set(&x->at, &t->at) < 0)
		file_call_fail_errno(x, ENOMEM);
	else {
		sandbox_tie(x->core, x->at.account, x->at.id, &x->tie);
		x->go(x);
	}
}

static struct sandbox_call call_about(struct file_call *x, const char *sandbox)
{
	return (struct sandbox_call){ .who = rpc_call_who(x->call), .sandbox = sandbox, .trace = rpc_call_trace(x->call),
				      .deadline_ms = rpc_call_deadline_ms(x->call), .user = x };
}

void file_call_resolve(struct file_call *x)
{
	struct sandbox_call call = call_about(x, x->sandbox);
	int r = sandbox_resolve(x->core, &call, on_target, &x->op);

	if (r < 0)
		file_call_fail_errno(x, r);
}

bool file_call_ask_life(struct file_call *x, enum envd_class cls)
{
	struct sandbox_call call = call_about(x, x->at.id);
	enum sandbox_evidence what = cls == ENVD_TOKEN	    ? SANDBOX_SAW_REFUSED
				  : cls == ENVD_NOT_RUNNING ? SANDBOX_SAW_ABSENT
							    : SANDBOX_SAW_LOST;

	if (x->asked_life || (cls != ENVD_TOKEN && cls != ENVD_NOT_RUNNING))
		return false;
	x->asked_life = true;
	return sandbox_note_evidence(x->core, &call, x->at.account, what, on_target, &x->op) == 0;
}

static void on_reason(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct file_call *x = user;
	struct status own = x->own;

	x->op = NULL;
	file_call_fail(x, st->code == CODE_NOT_FOUND || st->reason == R_SANDBOX_PAUSED ? st : &own);
}

void file_call_fail_because(struct file_call *x, enum envd_class cls, const struct status *own)
{
	bool may_be = cls == ENVD_NOT_RUNNING || cls == ENVD_TOKEN || cls == ENVD_LOST;
	struct sandbox_call call = call_about(x, x->at.id);

	x->own = *own;
	if (!may_be || sandbox_note_evidence(x->core, &call, x->at.account, SANDBOX_SAW_LOST,
					     on_reason, &x->op) < 0)
		file_call_fail(x, own);
}

bool file_call_by_script(struct file_call *x, const struct status *st)
{
	if (x->by_script || !envd_needs_script(st))
		return false;
	x->by_script = true;
	return true;
}

/* --- entries --- */

char *file_name_text(char *name, char **ret_held)
{
	*ret_held = NULL;
	if (!name || name_is_text(name))
		return name ? name : (char *)"";
	*ret_held = name_to_text(name);
	return *ret_held;
}

int file_info_fill(struct file_info_message *f, const struct envd_entry *e)
{
	agentbox__v1__file_info__init(&f->m);
	f->entries = NULL;
	memset(f->held, 0, sizeof(f->held));
	f->m.name = file_name_text(e->name, &f->held[0]);
	f->m.path = file_name_text(e->path, &f->held[1]);
	f->m.type = (Agentbox__V1__FileType)e->type;
	f->m.size = e->size;
	f->m.mode = e->mode;
	f->m.permissions = e->permissions ? e->permissions : (char *)"";
	f->m.owner = e->owner ? e->owner : (char *)"";
	f->m.group = e->group ? e->group : (char *)"";
	if (e->modified_s || e->modified_ns) {
		google__protobuf__timestamp__init(&f->modified);
		f->modified.seconds = e->modified_s;
		f->modified.nanos = e->modified_ns;
		f->m.modified_at = &f->modified;
	}
	if (e->symlink_target) {
		f->m._symlink_target_case = AGENTBOX__V1__FILE_INFO___SYMLINK_TARGET_SYMLINK_TARGET;
		f->m.symlink_target = file_name_text(e->symlink_target, &f->held[2]);
	}
	if (!f->m.name || !f->m.path || (e->symlink_target && !f->m.symlink_target)) {
		file_info_fini(f);
		return -ENOMEM;
	}
	if (!e->metadata.n)
		return 0;
	f->entries = calloc(e->metadata.n, sizeof(*f->entries));
	f->m.metadata = calloc(e->metadata.n, sizeof(*f->m.metadata));
	if (!f->entries || !f->m.metadata) {
		file_info_fini(f);
		return -ENOMEM;
	}
	for (size_t i = 0; i < e->metadata.n; i++) {
		agentbox__v1__file_info__metadata_entry__init(&f->entries[i]);
		f->entries[i].key = e->metadata.v[i].key;
		f->entries[i].value = e->metadata.v[i].value;
		f->m.metadata[i] = &f->entries[i];
	}
	f->m.n_metadata = e->metadata.n;
	return 0;
}

void file_info_fini(struct file_info_message *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(f->held); i++)
		free(give(f->held[i]));
	free(f->entries);
	free(f->m.metadata);
	f->entries = NULL;
	f->m.metadata = NULL;
}

static void reply(struct file_call *x, const ProtobufCMessage *m)
{
	struct rpc_call *call = x->call;

	rpc_call_reply(call, m);
	file_call_free(x);
}

static void reply_entry(struct file_call *x, const struct envd_result *r)
{
	struct file_info_message f;

	if (!r->n_entries) {
		struct status st;

		status_set(&st, R_BAD_CLOUD_REPLY, "the agent answered without an entry");
		file_call_fail(x, &st);
	} else if (file_info_fill(&f, &r->entries[0]) < 0) {
		file_call_fail_errno(x, ENOMEM);
	} else {
		reply(x, &f.m.base);
		file_info_fini(&f);
	}
}

/* --- calls with one answer --- */

/* Common end of an agent's answer: false if the call is over, or goes on elsewhere. */
static bool answered(struct file_call *x, struct envd_result *r)
{
	x->agent = NULL;
	if (r->cls == ENVD_OK)
		return true;
	if (file_call_by_script(x, &r->status))
		x->go(x);
	else if (!file_call_ask_life(x, r->cls))
		file_call_fail_because(x, r->cls, &r->status);
	return false;
}

static void asked(struct file_call *x)
{
	if (!x->agent)
		file_call_fail_errno(x, ENOMEM);
}

static void on_stat(struct envd_result *r, void *user)
{
	if (answered(user, r))
		reply_entry(user, r);
}

static void go_stat(struct file_call *x)
{
	struct envd_target t = file_call_target(x);

	x->agent = envd_stat(&t, x->path, on_stat, x);
	asked(x);
}

static void on_exists(struct envd_result *r, void *user)
{
	Agentbox__V1__ExistsResponse m = AGENTBOX__V1__EXISTS_RESPONSE__INIT;
	struct file_call *x = user;

	m.exists = r->cls == ENVD_OK;
	if (r->status.reason == R_FILE_NOT_FOUND || answered(x, r)) {
		x->agent = NULL;
		reply(x, &m.base);
	}
}

static void go_exists(struct file_call *x)
{
	struct envd_target t = file_call_target(x);

	x->agent = envd_stat(&t, x->path, on_exists, x);
	asked(x);
}

static void on_made(struct envd_result *r, void *user)
{
	Agentbox__V1__MakeDirResponse m = AGENTBOX__V1__MAKE_DIR_RESPONSE__INIT;
	struct file_info_message f;
	struct file_call *x = user;
	bool existed = r->cls == ENVD_ANSWERED && r->status.code == CODE_ALREADY_EXISTS;

	if (!existed && !answered(x, r))
		return;
	x->agent = NULL;
	m.created = !existed;
	if (!r->n_entries) {
		reply(x, &m.base);
	} else if (file_info_fill(&f, &r->entries[0]) < 0) {
		file_call_fail_errno(x, ENOMEM);
	} else {
		m.entry = &f.m;
		reply(x, &m.base);
		file_info_fini(&f);
	}
}

static void go_make_dir(struct file_call *x)
{
	struct envd_target t = file_call_target(x);

	x->agent = envd_make_dir(&t, x->path, on_made, x);
	asked(x);
}

static void go_move(struct file_call *x)
{
	struct envd_target t = file_call_target(x);

	/* By a script: it was moved, and its answer could not be told. */
	x->agent = x->by_script ? envd_stat(&t, x->other, on_stat, x) : envd_move(&t, x->path, x->other, on_stat, x);
	asked(x);
}

static void on_removed(struct envd_result *r, void *user)
{
	Agentbox__V1__RemoveResponse m = AGENTBOX__V1__REMOVE_RESPONSE__INIT;

	if (answered(user, r))
		reply(user, &m.base);
}

static void go_remove(struct file_call *x)
{
	struct envd_target t = file_call_target(x);

	x->agent = envd_remove(&t, x->path, on_removed, x);
	asked(x);
}

/* --- List: each entry goes from the agent's answer to the client's stream as there is room --- */

static void list_failed(struct file_call *x)
{
	enum envd_class cls;
	struct status st = *envd_list_failure(x->list, &cls);

	x->list = envd_list_free(x->list);
	if (!x->sent && file_call_by_script(x, &st))
		x->go(x);
	else if (x->sent || !file_call_ask_life(x, cls))
		file_call_fail_because(x, cls, &st);
}

/* False without memory: the call has failed. */
static bool send_entry(struct file_call *x, struct envd_entry *e)
{
	struct file_info_message f;
	int r = file_info_fill(&f, e);

	if (r == 0) {
		rpc_call_send(x->call, &f.m.base);
		file_info_fini(&f);
		x->sent++;
	}
	envd_entry_fini(e);
	if (r < 0)
		file_call_fail_errno(x, ENOMEM);
	return r == 0;
}

static void move_entries(struct file_call *x)
{
	struct rpc_call *call = x->call;
	struct envd_entry e;

	while (rpc_call_room(call) && envd_list_next(x->list, &e))
		if (!send_entry(x, &e))
			return;
	switch (envd_list_state(x->list)) {
	case ENVD_XFER_DONE:
		file_call_free(x);
		rpc_call_finish(call);
		break;
	case ENVD_XFER_FAILED:
		list_failed(x);
		break;
	default:
		break;
	}
}

static void on_list_ready(struct envd_list *l, void *user)
{
	move_entries(user);
}

static void on_list_room(struct rpc_call *call)
{
	struct file_call *x = rpc_call_user(call);

	if (x && x->list)
		move_entries(x);
}

static void go_list(struct file_call *x)
{
	struct envd_target t = file_call_target(x);

	x->list = envd_list(&t, x->path, x->depth, on_list_ready, x);
	if (!x->list)
		file_call_fail_errno(x, ENOMEM);
}

struct file_result *file_result_add(struct file_call *x)
{
	struct file_result *k = calloc(1, sizeof(*k)), **more = x->results;

	if (!(x->n_results & (x->n_results + 1))) /* 0, 1, 3, 7, …: full */
		more = realloc(x->results, (2 * x->n_results + 1) * sizeof(*more));
	if (!k || !more) {
		free(k);
		return NULL;
	}
	x->results = more;
	x->results[x->n_results++] = k;
	return k;
}

int file_result_take(struct file_result *k, struct envd_entry *e)
{
	k->entry = *e;
	*e = (struct envd_entry){ .name = NULL };
	k->has_entry = file_info_fill(&k->info, &k->entry) == 0;
	return k->has_entry ? 0 : -ENOMEM;
}

/* --- requests --- */

static bool is_possible(const char *name, const char *field, struct status *st)
{
	if (strlen(name) > FILE_PATH_MAX) {
		status_field(st, field, "is longer than %u bytes", FILE_PATH_MAX);
		return false;
	}
	/* The agent says 500 of such a name, which explains nothing. */
	for (size_t n; *name; name += n + (name[n] == '/')) {
		n = strcspn(name, "/");
		if (n > FILE_NAME_MAX) {
			status_field(st, field, "has a name of more than %u bytes", FILE_NAME_MAX);
			return false;
		}
	}
	return true;
}

bool file_check_path(const char *path, const char *field, struct status *st)
{
	char *name = name_from_text(path);
	bool ok = name && is_possible(name, field, st);

	if (!name)
		status_errno(st, ENOMEM, "reading a path");
	free(name);
	return ok;
}

bool file_call_take(struct file_call *x, const char *sandbox, const char *path, const char *field, const char *user)
{
	scratch_ struct status st;

	if (!check_required(sandbox, "sandbox", &st) || !check_required(path, field, &st) || !file_check_path(path, field, &st)) {
		file_call_fail(x, &st);
		return false;
	}
	x->sandbox = strdup(sandbox);
	x->path = name_from_text(path);
	x->user = strdup(user);
	if (x->sandbox && x->path && x->user)
		return true;
	file_call_fail_errno(x, ENOMEM);
	return false;
}

static void svc_file_begin(struct rpc_call *call, const char *sandbox, const char *path,
			   const char *user, const char *other, uint32_t depth,
			   void (*go)(struct file_call *x))
{
	struct file_call *x = file_call_new(call);
	scratch_ struct status st;

	if (!x || !file_call_take(x, sandbox, path, other ? "source" : "path", user))
		return;
	if (other && (!check_required(other, "destination", &st) || !file_check_path(other, "destination", &st))) {
		file_call_fail(x, &st);
		return;
	}
	if (depth > DEPTH_MAX) {
		status_field(&st, "depth", "is %u; at most %u", depth, DEPTH_MAX);
		file_call_fail(x, &st);
		return;
	}
	x->other = name_from_text(other);
	x->depth = depth ? depth : 1;
	x->go = go;
	if (other && !x->other)
		file_call_fail_errno(x, ENOMEM);
	else
		file_call_resolve(x);
}

static void on_stat_request(struct rpc_call *call, const ProtobufCMessage *m)
{
	const Agentbox__V1__StatRequest *q = (const void *)m;

	svc_file_begin(call, q->sandbox, q->path, q->user, NULL, 0, go_stat);
}

static void on_exists_request(struct rpc_call *call, const ProtobufCMessage *m)
{
	const Agentbox__V1__StatRequest *q = (const void *)m;

	svc_file_begin(call, q->sandbox, q->path, q->user, NULL, 0, go_exists);
}

static void on_list_request(struct rpc_call *call, const ProtobufCMessage *m)
{
	const Agentbox__V1__ListDirRequest *q = (const void *)m;

	svc_file_begin(call, q->sandbox, q->path, q->user, NULL, q->depth, go_list);
}

static void on_make_dir_request(struct rpc_call *call, const ProtobufCMessage *m)
{
	const Agentbox__V1__MakeDirRequest *q = (const void *)m;

	svc_file_begin(call, q->sandbox, q->path, q->user, NULL, 0, go_make_dir);
}

static void on_move_request(struct rpc_call *call, const ProtobufCMessage *m)
{
	const Agentbox__V1__MoveRequest *q = (const void *)m;

	svc_file_begin(call, q->sandbox, q->source, q->user, q->destination, 0, go_move);
}

static void on_remove_request(struct rpc_call *call, const ProtobufCMessage *m)
{
	const Agentbox__V1__RemoveRequest *q = (const void *)m;

	svc_file_begin(call, q->sandbox, q->path, q->user, NULL, 0, go_remove);
}

#define UNARY(id, fn)                                                                              \
	static const struct rpc_handler id = { .on_message = fn, .on_gone = file_call_on_gone }

UNARY(h_stat, on_stat_request);
UNARY(h_exists, on_exists_request);
UNARY(h_make_dir, on_make_dir_request);
UNARY(h_move, on_move_request);
UNARY(h_remove, on_remove_request);
static const struct rpc_handler h_list = { .on_message = on_list_request, .on_room = on_list_room,
					   .on_gone = file_call_on_gone };

#define PATH(name) "/agentbox.v1.FileService/" name
static const struct rpc_method svc_file_methods[] = {
	{ PATH("Stat"), RPC_UNARY, false, &agentbox__v1__stat_request__descriptor, &h_stat, .effect = RPC_READS },
	{ PATH("Exists"), RPC_UNARY, false, &agentbox__v1__stat_request__descriptor, &h_exists, .effect = RPC_READS },
	{ PATH("List"), RPC_SERVER_STREAM, false, &agentbox__v1__list_dir_request__descriptor, &h_list,
	  RPC_STOP_WAIT, .effect = RPC_READS },
	{ PATH("MakeDir"), RPC_UNARY, false, &agentbox__v1__make_dir_request__descriptor, &h_make_dir },
	{ PATH("Move"), RPC_UNARY, false, &agentbox__v1__move_request__descriptor, &h_move, RPC_STOP_ONCE },
	{ PATH("Remove"), RPC_UNARY, false, &agentbox__v1__remove_request__descriptor, &h_remove,
	  RPC_STOP_ONCE },
	{ PATH("Read"), RPC_SERVER_STREAM, false, &agentbox__v1__read_file_request__descriptor,
	  &file_read_handler, RPC_STOP_WAIT, .effect = RPC_READS },
	{ PATH("Watch"), RPC_SERVER_STREAM, false, &agentbox__v1__watch_dir_request__descriptor,
	  &file_watch_handler, .effect = RPC_READS },
	{ PATH("SignUrl"), RPC_UNARY, false, &agentbox__v1__sign_url_request__descriptor,
	  &file_sign_handler, .effect = RPC_READS },
	{ PATH("Write"), RPC_CLIENT_STREAM, false, &agentbox__v1__write_file_request__descriptor,
	  &file_write_handler, RPC_STOP_WAIT },
};

int svc_file_add(struct rpc_server *s, struct sandbox_core *core)
{
	return rpc_server_add(s, svc_file_methods, ARRAY_SIZE(svc_file_methods), core);
}
