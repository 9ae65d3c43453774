/* SPDX-License-Identifier: MIT */
/* DaemonService's answers as objects. */
#include <errno.h>

#include "proto/gen/agentbox_daemon.pb-c.h"

#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "client/lib/obj.h"

static const char *name_of(const char *const *names, size_t n, unsigned i)
{
	return i < n ? names[i] : "";
}

static int degraded_fill(struct ab_daemon_status *s, const Agentbox__V1__StatusResponse *m)
{
	struct ab_degradation *v = obj_alloc(s, m->n_degraded + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_degraded; i++) {
		const Agentbox__V1__Degradation *d = m->degraded[i];

		v[i] = (struct ab_degradation){
			.what = d->what,
			.reason = msg_reason((int)d->reason),
			.message = d->message,
			.account = d->account,
			.since_at_ms = msg_at_ms(d->since),
		};
	}
	s->degraded = v;
	s->n_degraded = m->n_degraded;
	return 0;
}

static int limits_fill(struct ab_daemon_status *s, const Agentbox__V1__LimiterStatus *m, struct ab_cloud_status *to)
{
	struct ab_limited_route *v;

	if (!m)
		return 0;
	v = obj_alloc(s, m->n_routes + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_routes; i++) {
		const Agentbox__V1__LimitedRoute *r = m->routes[i];

		v[i] = (struct ab_limited_route){
			.route = r->route,
			.next_at_ms = msg_at_ms(r->next_at),
			.in_flight = r->in_flight,
			.window = r->window,
			.burst = r->burst,
			.per_second = r->per_second,
		};
	}
	to->in_flight = m->in_flight;
	to->max_in_flight = m->max_in_flight;
	to->queued = m->queued;
	to->limits = v;
	to->n_limits = m->n_routes;
	return 0;
}

static int clouds_fill(struct ab_daemon_status *s, const Agentbox__V1__StatusResponse *m)
{
	static const char *const keys[] = { "", "present", "missing", "rejected" };
	struct ab_cloud_status *v = obj_alloc(s, m->n_clouds + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_clouds; i++) {
		const Agentbox__V1__CloudStatus *c = m->clouds[i];

		v[i] = (struct ab_cloud_status){
			.account = c->account,
			.api_url = c->api_url,
			.domain = c->domain,
			.proxy = c->proxy,
			.key = name_of(keys, ARRAY_SIZE(keys), (unsigned)c->key),
			.reachable = c->reachable,
			.last_answer_at_ms = msg_at_ms(c->last_answer_at),
			.last_failure_at_ms = msg_at_ms(c->last_failure_at),
			.last_failure = msg_reason((int)c->last_failure),
			.last_failure_message = c->last_failure_message,
			.limited_until_ms = msg_at_ms(c->limited_until),
		};
		if (limits_fill(s, c->limiter, &v[i]) < 0)
			return -ENOMEM;
	}
	s->clouds = v;
	s->n_clouds = m->n_clouds;
	return 0;
}

static int conns_fill(struct ab_daemon_status *s, const Agentbox__V1__OriginStatus *m, struct ab_origin_status *to)
{
	struct ab_connection_status *v = obj_alloc(s, m->n_conns + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_conns; i++) {
		const Agentbox__V1__ConnectionStatus *c = m->conns[i];
		uint64_t rtt = msg_span_us(c->rtt);

		v[i] = (struct ab_connection_status){
			.state = c->state,
			.peer = c->peer,
			.protocol = c->protocol,
			.streams = c->streams,
			.max_streams = c->max_streams,
			.rtt_us = rtt < UINT32_MAX ? (uint32_t)rtt : UINT32_MAX,
			.age_ms = msg_span_us(c->age) / 1000,
			.silent_ms = msg_span_us(c->silent) / 1000,
		};
	}
	to->conns = v;
	to->n_conns = m->n_conns;
	return 0;
}

static int pool_fill(struct ab_daemon_status *s, const Agentbox__V1__StatusResponse *m)
{
	struct ab_origin_status *v = obj_alloc(s, m->n_pool + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_pool; i++) {
		const Agentbox__V1__OriginStatus *o = m->pool[i];

		v[i] = (struct ab_origin_status){
			.origin = o->origin,
			.account = o->account,
			.protocol = o->protocol,
			.connections = o->connections,
			.connecting = o->connecting,
			.streams = o->streams,
			.queued = o->queued,
			.calls = o->calls,
			.failures = o->failures,
			.dials = o->dials,
			.goaways = o->goaways,
			.complaints = o->complaints,
			.replays = o->replays,
			.pings_lost = o->pings_lost,
			.stream_target = o->stream_target,
			.held_down_until_ms = msg_at_ms(o->held_down_until),
			.last_error = o->last_error,
			.last_error_at_ms = msg_at_ms(o->last_error_at),
		};
		if (conns_fill(s, o, &v[i]) < 0)
			return -ENOMEM;
	}
	s->pool = v;
	s->n_pool = m->n_pool;
	return 0;
}

static void status_fill(struct ab_daemon_status *s, const Agentbox__V1__StatusResponse *m)
{
	static const char *const identities[] = { "", "pidfd_inode", "start_time", "connection" };

	s->version = m->version;
	s->n_features = m->n_features;
	s->started_at_ms = msg_at_ms(m->started_at);
	s->uptime_ms = msg_span_us(m->uptime) / 1000;
	s->pid = m->pid;
	s->system = m->mode == AGENTBOX__V1__STATUS_RESPONSE__MODE__SYSTEM;
	s->socket = m->socket;
	s->state_dir = m->state_dir;
	s->host_id = m->host_id;
	s->draining = m->draining;
	s->process_identity =
		name_of(identities, ARRAY_SIZE(identities), (unsigned)m->process_identity);
	s->store_path = m->store ? m->store->path : "";
	s->local_ca_file = "";
	if (m->store) {
		s->store_bytes = m->store->bytes;
		s->store_writable = m->store->writable;
		s->open_intents = m->store->open_intents;
	}
	if (m->local) {
		s->local_address = m->local->address;
		s->local_pid = m->local->pid;
		s->local_ca_file = m->local->ca_file;
	}
}

static void counts_fill(struct ab_daemon_status *s, const Agentbox__V1__Counts *c)
{
	s->sandboxes_running = c->sandboxes_running;
	s->sandboxes_paused = c->sandboxes_paused;
	s->sandboxes_changing = c->sandboxes_changing;
	s->leases = c->leases;
	s->commands_running = c->commands_running;
	s->spool_bytes = c->spool_bytes;
	s->connections = c->connections;
	s->calls = c->calls;
	s->streams = c->streams;
	s->max_streams = c->max_streams;
}

static void memory_fill(struct ab_daemon_status *s, const Agentbox__V1__MemoryStatus *m)
{
	s->uid_bytes = m->uid_bytes;
	s->max_uid_bytes = m->max_uid_bytes;
	s->client_bytes = m->client_bytes;
	s->max_client_bytes = m->max_client_bytes;
	s->cloud_bytes = m->cloud_bytes;
	s->max_cloud_bytes = m->max_cloud_bytes;
	s->refused_calls = m->refused_calls;
	s->closed_connections = m->closed_connections;
}

static void gateway_fill(struct ab_daemon_status *s, const Agentbox__V1__GatewayStatus *m)
{
	s->gateway_url = m->url;
	s->gateway_socket = m->socket;
	s->gateway_connections = m->connections;
	s->gateway_calls = m->calls;
	s->gateway_relays = m->relays;
	s->gateway_requests = m->requests;
	s->gateway_refused = m->refused;
}

static void access_fill(struct ab_daemon_status *s, const Agentbox__V1__AccessStatus *m)
{
	s->uid = m->uid;
	s->user = m->user;
	s->access_right = m->right;
	s->access_rule = m->rule;
	s->account = m->account;
	s->uid_sandboxes = m->sandboxes;
	s->max_sandboxes = m->max_sandboxes;
	s->creates_per_minute = m->creates_per_minute;
	s->creates_left = m->creates_left;
}

int msg_daemon_status(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__StatusResponse *m = (Agentbox__V1__StatusResponse *)message;
	scoped(obj_freep) struct ab_daemon_status *s = obj_new(sizeof(*s), message);

	if (!s)
		return -ENOMEM;
	status_fill(s, m);
	if (m->counts)
		counts_fill(s, m->counts);
	if (m->memory)
		memory_fill(s, m->memory);
	if (m->gateway)
		gateway_fill(s, m->gateway);
	if (m->access)
		access_fill(s, m->access);
	if (msg_words(s, m->n_features, m->features, &s->features) < 0 || degraded_fill(s, m) < 0 ||
	    clouds_fill(s, m) < 0 || pool_fill(s, m) < 0)
		return -ENOMEM;
	*ret = give(s);
	return 0;
}

int msg_config(ProtobufCMessage *message, void **ret)
{
	static const char *const origins[] = { "", "default", "environment", "file", "command_line" };
	const Agentbox__V1__ConfigResponse *m = (Agentbox__V1__ConfigResponse *)message;
	scoped(obj_freep) struct ab_config *c = obj_new(sizeof(*c), message);
	struct ab_config_value *v = c ? obj_alloc(c, m->n_values + 1, sizeof(*v)) : NULL;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_values; i++) {
		const Agentbox__V1__ConfigValue *f = m->values[i];

		v[i] = (struct ab_config_value){
			.section = f->section,
			.key = f->key,
			.n_values = f->n_value,
			.origin = name_of(origins, ARRAY_SIZE(origins), (unsigned)f->origin),
			.default_value = f->default_value,
			.reloadable = f->reloadable,
			.secret = f->secret,
			.file = f->file,
			.line = f->line,
		};
		if (msg_words(c, f->n_value, f->value, &v[i].values) < 0)
			return -ENOMEM;
	}
	c->values = v;
	c->n = m->n_values;
	c->file = m->file;
	c->file_changed = m->file_changed;
	c->loaded_at_ms = msg_at_ms(m->loaded_at);
	*ret = give(c);
	return 0;
}

static int changed_keys(void *object, size_t n, Agentbox__V1__ReloadedValue **from, const struct ab_changed_key **ret)
{
	struct ab_changed_key *v = obj_alloc(object, n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		v[i] = (struct ab_changed_key){ .section = from[i]->section, .key = from[i]->key, .file = from[i]->file,
						 .line = from[i]->line };
	*ret = v;
	return 0;
}

int msg_reloaded(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ReloadResponse *m = (Agentbox__V1__ReloadResponse *)message;
	scoped(obj_freep) struct ab_reloaded *s = obj_new(sizeof(*s), message);

	if (!s || msg_words(s, m->n_problems, m->problems, &s->problems) < 0 ||
	    changed_keys(s, m->n_taken, m->taken, &s->taken) < 0 ||
	    changed_keys(s, m->n_need_restart, m->need_restart, &s->need_restart) < 0)
		return -ENOMEM;
	s->file = m->file;
	s->n_problems = m->n_problems;
	s->n_taken = m->n_taken;
	s->n_need_restart = m->n_need_restart;
	*ret = give(s);
	return 0;
}

int msg_quiesced(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__QuiesceResponse *m = (Agentbox__V1__QuiesceResponse *)message;
	struct ab_quiesced q = { .quiesced = m->quiesced, .since_at_ms = msg_at_ms(m->since), .changing = m->changing };

	return obj_take(message, &q, sizeof(q), ret);
}

/* Of a BackupResponse with a head. */
int msg_backup(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__BackupHead *m = ((Agentbox__V1__BackupResponse *)message)->head;
	struct ab_backup b = {
		.bytes = m->bytes, .schema = m->schema, .host_id = m->host_id, .version = m->version, .at_ms = msg_at_ms(m->at),
	};

	return obj_take(message, &b, sizeof(b), ret);
}

int msg_local_stopped(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__StopLocalResponse *m = (Agentbox__V1__StopLocalResponse *)message;
	struct ab_local_stopped l = { .was_running = m->was_running, .killed = m->killed };

	return obj_take(message, &l, sizeof(l), ret);
}
