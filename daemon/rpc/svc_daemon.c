/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/svc_daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/status_rows.h"
#include "proto/base/str.h"
#include "proto/gen/agentbox_daemon.pb-c.h"

#define REASON_MAX 200u	/* bytes of why new sandboxes are refused */

static void fill_store(Agentbox__V1__StoreStatus *m, const struct daemon_store *s, msg_timestamp *backup)
{
	agentbox__v1__store_status__init(m);
	m->path = (char *)s->path;
	m->schema = s->schema;
	m->bytes = s->bytes;
	m->free_bytes = s->free_bytes;
	m->writable = s->writable;
	m->open_intents = s->open_intents;
	m->backup_at = msg_time(backup, s->backup_at_ms);
}

static void fill_counts(Agentbox__V1__Counts *m, struct rpc_call *c, const struct daemon_facts *f)
{
	const struct svc_daemon_options *o = rpc_call_service(c);
	const struct principal *who = rpc_call_who(c);
	struct rpc_counts n, own;

	rpc_server_count(o->server, who->admin || who->observer ? (uid_t)-1 : who->uid, &n);
	rpc_server_count(o->server, who->uid, &own);
	agentbox__v1__counts__init(m);
	m->sandboxes_running = f->running;
	m->sandboxes_paused = f->paused;
	m->sandboxes_changing = f->changing;
	m->leases = f->leases;
	m->commands_running = f->commands;
	m->spool_bytes = f->spool_bytes;
	m->connections = n.connections;
	m->calls = n.calls;
	m->streams = n.streams;
	m->max_streams = own.max_streams;
}

static void fill_memory(Agentbox__V1__MemoryStatus *m, const struct daemon_memory *f)
{
	agentbox__v1__memory_status__init(m);
	m->client_bytes = f->client_bytes;
	m->max_client_bytes = f->max_client_bytes;
	m->uid_bytes = f->uid_bytes;
	m->max_uid_bytes = f->max_uid_bytes;
	m->cloud_bytes = f->cloud_bytes;
	m->max_cloud_bytes = f->max_cloud_bytes;
	m->refused_calls = f->refused_calls;
	m->closed_connections = f->closed_connections;
}

static void fill_gateway(Agentbox__V1__GatewayStatus *m, const struct daemon_gateway *f)
{
	agentbox__v1__gateway_status__init(m);
	m->url = (char *)f->url;
	m->socket = (char *)f->socket;
	m->connections = f->connections;
	m->calls = f->calls;
	m->relays = f->relays;
	m->requests = f->requests;
	m->refused = f->refused;
	m->bytes_up = f->bytes_up;
	m->bytes_down = f->bytes_down;
}

static void fill_access(Agentbox__V1__AccessStatus *m, struct rpc_call *c, const struct daemon_access *f, char rule[ACCESS_TEXT_BYTES])
{
	const struct principal *who = rpc_call_who(c);

	agentbox__v1__access_status__init(m);
	rpc_call_rule(c, rule);
	m->uid = owner_uid(who->uid);
	m->user = (char *)who->user;
	m->right = (char *)(who->admin ? "admin" : who->looks_only ? "observer" : "user");
	m->rule = rule;
	m->account = (char *)(f->account ? f->account : "");
	m->sandboxes = f->sandboxes;
	m->max_sandboxes = f->max_sandboxes;
	m->creates_per_minute = f->creates_per_minute;
	m->creates_left = f->creates_left;
}

static void reply_status(struct rpc_call *c, const struct daemon_facts *f, struct status_rows *rows)
{
	Agentbox__V1__StatusResponse m = AGENTBOX__V1__STATUS_RESPONSE__INIT;
	Agentbox__V1__StoreStatus store;
	Agentbox__V1__LocalStatus local = AGENTBOX__V1__LOCAL_STATUS__INIT;
	Agentbox__V1__Counts counts;
	Agentbox__V1__MemoryStatus memory;
	Agentbox__V1__GatewayStatus gateway;
	Agentbox__V1__AccessStatus access;
	char rule[ACCESS_TEXT_BYTES];
	msg_timestamp started, backup;
	msg_duration uptime;

	m.version = (char *)AB_VERSION;
	m.features = (char **)f->features;
	m.n_features = f->n_features;
	m.started_at = msg_time(&started, f->started_at_ms);
	m.uptime = msg_span(&uptime, f->uptime_ms);
	m.pid = getpid();
	m.mode = f->user_mode ? AGENTBOX__V1__STATUS_RESPONSE__MODE__USER :
				AGENTBOX__V1__STATUS_RESPONSE__MODE__SYSTEM;
	m.socket = (char *)f->socket;
	m.state_dir = (char *)f->state_dir;
	m.host_id = (char *)f->host_id;
	m.draining = f->draining;
	m.process_identity = (Agentbox__V1__StatusResponse__ProcessIdentity)f->identity;
	status_rows_fill(rows, f, &m);
	fill_store(&store, &f->store, &backup);
	m.store = &store;
	fill_counts(&counts, c, f);
	m.counts = &counts;
	fill_memory(&memory, &f->memory);
	m.memory = &memory;
	fill_gateway(&gateway, &f->gateway);
	m.gateway = &gateway;
	fill_access(&access, c, &f->access, rule);
	m.access = &access;
	if (f->is_local) {
		local.address = (char *)f->local_address;
		local.pid = f->local_pid;
		local.ca_file = (char *)f->local_ca_file;
		m.local = &local;
	}
	rpc_call_reply(c, &m.base);
}

static void on_status(struct rpc_call *c, const ProtobufCMessage *message)
{
	const struct svc_daemon_options *o = rpc_call_service(c);
	struct status_rows *rows;
	struct daemon_facts facts = { .features = NULL };

	o->look(o->user, rpc_call_who(c), &facts);
	rows = status_rows_new(&facts);
	if (rows)
		reply_status(c, &facts, rows);
	else
		rpc_call_fail_errno(c, -ENOMEM, "answering");
	status_rows_free(rows);
}

static void fill_value(Agentbox__V1__ConfigValue *m, const struct daemon_config_value *v, bool admin)
{
	agentbox__v1__config_value__init(m);
	m->section = (char *)v->section;
	m->key = (char *)v->key;
	m->default_value = (char *)v->default_value;
	m->origin = (Agentbox__V1__ConfigValue__Origin)v->origin;
	m->reloadable = v->reloadable;
	m->file = (char *)v->file;
	m->line = v->line;
	m->secret = v->secret || (v->for_admins && !admin);
	if (!m->secret) {
		m->value = (char **)v->values;
		m->n_value = v->n_values;
	}
}

static void on_config(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__ConfigRequest *q = (const void *)message;
	const struct svc_daemon_options *o = rpc_call_service(c);
	Agentbox__V1__ConfigResponse m = AGENTBOX__V1__CONFIG_RESPONSE__INIT;
	struct daemon_config config = { .values = NULL };
	Agentbox__V1__ConfigValue *rows, **list;
	struct status st = STATUS_OK;
	msg_timestamp loaded;

	o->config(o->user, &config);
	rows = calloc(config.n_values + 1, sizeof(*rows));
	list = calloc(config.n_values + 1, sizeof(*list));
	for (size_t i = 0; rows && list && i < config.n_values; i++) {
		if (!str_is_empty(q->section) && !str_eq(q->section, config.values[i].section))
			continue;
		fill_value(&rows[m.n_values], &config.values[i], rpc_call_who(c)->admin);
		list[m.n_values] = &rows[m.n_values];
		m.n_values++;
	}
	m.values = list;
	m.file = (char *)config.file;
	m.file_changed = config.file_changed;
	m.loaded_at = msg_time(&loaded, config.loaded_at_ms);
	if (!rows || !list)
		status_errno(&st, -ENOMEM, "answering");
	else if (!m.n_values && !str_is_empty(q->section))
		status_field(&st, "section", "there is no section \"%s\"", q->section);
	rpc_call_answer(c, &st, &m.base);
	free(rows);
	free(list);
}

static Agentbox__V1__ReloadedValue **fill_keys(const struct daemon_changed_key *keys, size_t n)
{
	Agentbox__V1__ReloadedValue **list = calloc(n + 1, sizeof(*list) + sizeof(**list));
	Agentbox__V1__ReloadedValue *rows = (void *)(list + n + 1);

	for (size_t i = 0; list && i < n; i++) {
		agentbox__v1__reloaded_value__init(&rows[i]);
		rows[i].section = (char *)keys[i].section;
		rows[i].key = (char *)keys[i].key;
		rows[i].file = (char *)keys[i].file;
		rows[i].line = keys[i].line;
		list[i] = &rows[i];
	}
	return list;
}

static void reply_reloaded(struct rpc_call *c, const struct daemon_reloaded *f)
{
	Agentbox__V1__ReloadResponse m = AGENTBOX__V1__RELOAD_RESPONSE__INIT;
	struct status st = STATUS_OK;

	m.file = (char *)f->file;
	m.problems = (char **)f->problems;
	m.n_problems = f->n_problems;
	m.taken = fill_keys(f->taken, f->n_taken);
	m.n_taken = f->n_taken;
	m.need_restart = fill_keys(f->need_restart, f->n_need_restart);
	m.n_need_restart = f->n_need_restart;
	if (!m.taken || !m.need_restart)
		status_errno(&st, -ENOMEM, "answering");
	rpc_call_answer(c, &st, &m.base);
	free(m.taken);
	free(m.need_restart);
}

static void on_reloaded(void *user, const struct status *st, const struct daemon_reloaded *result)
{
	if (status_ok(st))
		reply_reloaded(user, result);
	else
		rpc_call_fail(user, st);
}

static void on_reload(struct rpc_call *c, const ProtobufCMessage *message)
{
	const struct svc_daemon_options *o = rpc_call_service(c);
	struct status st = STATUS_OK;
	void *op = NULL;

	if (grant_daemon(rpc_call_who(c)) != GRANT_OK)
		grant_refuse(&st, "reload the configuration");
	else
		op = o->reload(o->user, on_reloaded, c, &st);
	if (op)
		rpc_call_set_user(c, op);
	else
		rpc_call_fail(c, &st);
}

static void on_reload_gone(struct rpc_call *c, enum rpc_gone why)
{
	const struct svc_daemon_options *o = rpc_call_service(c);

	if (rpc_call_user(c))
		o->reload_cancel(o->user, rpc_call_user(c));
}

static void on_quiesce(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__QuiesceRequest *q = (const void *)message;
	const struct svc_daemon_options *o = rpc_call_service(c);
	Agentbox__V1__QuiesceResponse m = AGENTBOX__V1__QUIESCE_RESPONSE__INIT;
	struct daemon_quiesced now = { .since_ms = 0 };
	struct status st = STATUS_OK;
	msg_timestamp since;

	if (grant_daemon(rpc_call_who(c)) != GRANT_OK)
		grant_refuse(&st, "have it make no new sandboxes");
	else if (strlen(q->reason) > REASON_MAX)
		status_field(&st, "reason", "it is longer than %u bytes", REASON_MAX);
	else
		o->quiesce(o->user, rpc_call_who(c), q->off, q->reason, &now);
	m.quiesced = now.since_ms != 0;
	m.since = msg_time(&since, now.since_ms);
	m.changing = now.changing;
	rpc_call_answer(c, &st, &m.base);
}

static void on_stopped(void *user, const struct status *st, uint32_t killed, bool was_running)
{
	Agentbox__V1__StopLocalResponse m = AGENTBOX__V1__STOP_LOCAL_RESPONSE__INIT;

	m.killed = killed;
	m.was_running = was_running;
	rpc_call_answer(user, st, &m.base);
}

static void on_stop_local(struct rpc_call *c, const ProtobufCMessage *message)
{
	const struct svc_daemon_options *o = rpc_call_service(c);
	struct status st = STATUS_OK;
	void *op;

	if (grant_daemon(rpc_call_who(c)) != GRANT_OK)
		grant_refuse(&st, "stop agentbox-local");
	else if (!o->stop_local)
		status_set(&st, R_UNSUPPORTED, "this agentboxd does not run with --local");
	if (!status_ok(&st)) {
		rpc_call_fail(c, &st);
		return;
	}
	op = o->stop_local(o->user, rpc_call_deadline_ms(c), on_stopped, c);
	if (op)
		rpc_call_set_user(c, op);
	else
		rpc_call_fail_errno(c, -ENOMEM, "starting the operation");
}

static void on_gone(struct rpc_call *c, enum rpc_gone why)
{
	const struct svc_daemon_options *o = rpc_call_service(c);

	if (rpc_call_user(c))
		o->stop_local_cancel(o->user, rpc_call_user(c));
}

static const struct rpc_method svc_daemon_methods[] = {
	RPC_UNARY_METHOD("DaemonService", "Status", status, on_status, on_gone, RPC_OBSERVES),
	RPC_UNARY_METHOD("DaemonService", "Config", config, on_config, on_gone, RPC_READS),
	RPC_UNARY_METHOD("DaemonService", "Reload", reload, on_reload, on_reload_gone, RPC_CHANGES),
	RPC_UNARY_METHOD("DaemonService", "Quiesce", quiesce, on_quiesce, on_gone, RPC_CHANGES),
	RPC_UNARY_METHOD("DaemonService", "StopLocal", stop_local, on_stop_local, on_gone, RPC_CHANGES),
};

int svc_daemon_add(struct rpc_server *s, struct svc_daemon_options *o)
{
	o->server = s;
	return rpc_server_add(s, svc_daemon_methods, ARRAY_SIZE(svc_daemon_methods), o);
}
