/* SPDX-License-Identifier: MIT */
/* Rows of messages are built in one block per kind, and the lists of pointers to them in one more. */
#include "daemon/rpc/status_rows.h"

#include <stdlib.h>

#include "daemon/rpc/msg.h"

struct degraded_row {
	Agentbox__V1__Degradation m;
	msg_timestamp since;
};

struct limit_row {
	Agentbox__V1__LimitedRoute m;
	msg_timestamp next;
};

struct cloud_row {
	Agentbox__V1__CloudStatus m;
	Agentbox__V1__LimiterStatus limiter;
	Agentbox__V1__ExtensionStatus extensions;
	msg_duration span;
	msg_timestamp answer, failure, limited, reconciled;
};

struct conn_row {
	Agentbox__V1__ConnectionStatus m;
	msg_duration rtt, age, silent;
};

struct origin_row {
	Agentbox__V1__OriginStatus m;
	msg_timestamp held_down, last_error;
};

struct status_rows {
	struct degraded_row *degraded;
	struct cloud_row *clouds;
	struct limit_row *limits;	/* of all clouds, one after the other */
	struct origin_row *pool;
	struct conn_row *conns;		/* of all origins */
	void **list, **at;		/* pointers to all of them; the next free one */
	struct limit_row *limit_at;
	struct conn_row *conn_at;
};

struct status_rows *status_rows_new(const struct daemon_facts *f)
{
	struct status_rows *r = calloc(1, sizeof(*r));
	size_t n_limits = 0, n_conns = 0;

	if (!r)
		return NULL;
	for (size_t i = 0; i < f->n_clouds; i++)
		n_limits += f->clouds[i].n_limits;
	for (size_t i = 0; i < f->n_pool; i++)
		n_conns += f->pool[i].n_conns;
	r->degraded = calloc(f->n_degraded + 1, sizeof(*r->degraded));
	r->clouds = calloc(f->n_clouds + 1, sizeof(*r->clouds));
	r->limits = calloc(n_limits + 1, sizeof(*r->limits));
	r->pool = calloc(f->n_pool + 1, sizeof(*r->pool));
	r->conns = calloc(n_conns + 1, sizeof(*r->conns));
	r->list = calloc(f->n_degraded + f->n_clouds + n_limits + f->n_pool + n_conns + 1, sizeof(*r->list));
	if (!r->degraded || !r->clouds || !r->limits || !r->pool || !r->conns || !r->list)
		return status_rows_free(r);
	r->at = r->list;
	r->limit_at = r->limits;
	r->conn_at = r->conns;
	return r;
}

struct status_rows *status_rows_free(struct status_rows *r)
{
	if (!r)
		return NULL;
	free(r->degraded);
	free(r->clouds);
	free(r->limits);
	free(r->pool);
	free(r->conns);
	free(r->list);
	free(r);
	return NULL;
}

/* The list of the n rows that are added next. */
static void *list_of(struct status_rows *r, size_t n)
{
	void **list = r->at;

	r->at += n;
	return list;
}

static void fill_degraded(struct degraded_row *row, const struct daemon_degradation *d)
{
	agentbox__v1__degradation__init(&row->m);
	row->m.what = (char *)d->what;
	row->m.reason = (Agentbox__V1__Reason)d->reason;
	row->m.message = (char *)d->message;
	row->m.account = (char *)d->account;
	row->m.since = msg_time(&row->since, d->since_ms);
}

static Agentbox__V1__LimitedRoute *fill_limit(struct limit_row *row, const struct daemon_limit *l)
{
	agentbox__v1__limited_route__init(&row->m);
	row->m.route = (char *)l->route;
	row->m.next_at = msg_time(&row->next, l->next_at_ms);
	row->m.in_flight = l->in_flight;
	row->m.window = l->window;
	row->m.burst = l->burst;
	row->m.per_second = l->per_s_milli / 1000.0;
	return &row->m;
}

static void fill_limiter(struct status_rows *r, Agentbox__V1__LimiterStatus *m, const struct daemon_cloud *c)
{
	agentbox__v1__limiter_status__init(m);
	m->in_flight = c->in_flight;
	m->max_in_flight = c->max_in_flight;
	m->queued = c->queued;
	m->n_routes = c->n_limits;
	m->routes = list_of(r, c->n_limits);
	for (size_t i = 0; i < c->n_limits; i++)
		m->routes[i] = fill_limit(r->limit_at++, &c->limits[i]);
}

static void fill_extensions(struct cloud_row *row, const struct daemon_cloud *c)
{
	Agentbox__V1__ExtensionStatus *m = &row->extensions;

	agentbox__v1__extension_status__init(m);
	m->kept = c->extend_kept;
	m->most = c->extend_most;
	m->per_second = c->extend_per_s_milli / 1000.0;
	m->span = msg_span(&row->span, c->extend_span_ms);
	m->waiting = c->extend_waiting;
	m->refused = c->extend_refused;
	row->m.extensions = m;
}

static void fill_cloud(struct status_rows *r, struct cloud_row *row, const struct daemon_cloud *c)
{
	Agentbox__V1__CloudStatus *m = &row->m;

	agentbox__v1__cloud_status__init(m);
	m->account = (char *)c->account;
	m->api_url = (char *)c->api_url;
	m->domain = (char *)c->domain;
	m->proxy = (char *)c->proxy;
	m->proxy_origin = (char *)c->proxy_origin;
	m->key = (Agentbox__V1__CloudStatus__Key)c->key;
	m->reachable = c->reachable;
	m->last_answer_at = msg_time(&row->answer, c->last_answer_at_ms);
	m->last_failure_at = msg_time(&row->failure, c->last_failure_at_ms);
	m->last_failure = (Agentbox__V1__Reason)c->last_failure;
	m->last_failure_message = (char *)c->last_failure_message;
	m->limited_until = msg_time(&row->limited, c->limited_until_ms);
	m->reconciled_at = msg_time(&row->reconciled, c->reconciled_at_ms);
	m->limiter = &row->limiter;
	fill_limiter(r, &row->limiter, c);
	fill_extensions(row, c);
}

static Agentbox__V1__ConnectionStatus *fill_conn(struct conn_row *row, const struct daemon_conn *c)
{
	Agentbox__V1__ConnectionStatus *m = &row->m;

	agentbox__v1__connection_status__init(m);
	m->state = (char *)c->state;
	m->peer = (char *)c->peer;
	m->protocol = (char *)c->protocol;
	m->streams = c->streams;
	m->max_streams = c->max_streams;
	if (c->rtt_us) {
		m->rtt = msg_span(&row->rtt, c->rtt_us / 1000);
		row->rtt.nanos += (int32_t)(c->rtt_us % 1000 * 1000);
	}
	m->age = msg_span(&row->age, c->age_ms);
	m->silent = msg_span(&row->silent, c->silent_ms);
	return m;
}

static void fill_origin(struct status_rows *r, struct origin_row *row, const struct daemon_origin *o)
{
	Agentbox__V1__OriginStatus *m = &row->m;

	agentbox__v1__origin_status__init(m);
	m->origin = (char *)o->origin;
	m->account = (char *)o->account;
	m->connections = o->connections;
	m->connecting = o->connecting;
	m->streams = o->streams;
	m->queued = o->queued;
	m->protocol = (char *)o->protocol;
	m->calls = o->calls;
	m->failures = o->failures;
	m->held_down_until = msg_time(&row->held_down, o->held_down_until_ms);
	m->dials = o->dials;
	m->goaways = o->goaways;
	m->complaints = o->complaints;
	m->replays = o->replays;
	m->pings_lost = o->pings_lost;
	m->stream_target = o->stream_target;
	m->last_error = (char *)o->last_error;
	m->last_error_at = msg_time(&row->last_error, o->last_error_at_ms);
	m->n_conns = o->n_conns;
	m->conns = list_of(r, o->n_conns);
	for (size_t i = 0; i < o->n_conns; i++)
		m->conns[i] = fill_conn(r->conn_at++, &o->conns[i]);
}

void status_rows_fill(struct status_rows *r, const struct daemon_facts *f, Agentbox__V1__StatusResponse *m)
{
	m->n_degraded = f->n_degraded;
	m->degraded = list_of(r, f->n_degraded);
	for (size_t i = 0; i < f->n_degraded; i++) {
		fill_degraded(&r->degraded[i], &f->degraded[i]);
		m->degraded[i] = &r->degraded[i].m;
	}
	m->n_clouds = f->n_clouds;
	m->clouds = list_of(r, f->n_clouds);
	for (size_t i = 0; i < f->n_clouds; i++) {
		fill_cloud(r, &r->clouds[i], &f->clouds[i]);
		m->clouds[i] = &r->clouds[i].m;
	}
	m->n_pool = f->n_pool;
	m->pool = list_of(r, f->n_pool);
	for (size_t i = 0; i < f->n_pool; i++) {
		fill_origin(r, &r->pool[i], &f->pool[i]);
		m->pool[i] = &r->pool[i].m;
	}
}
