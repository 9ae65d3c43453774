/* SPDX-License-Identifier: MIT */
/* Pause, UpdateNetwork, Fork and GetMetrics of agentbox.v1.SandboxService. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/error.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/msg_network.h"
#include "daemon/rpc/pending.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/svc_sandbox.h"


/* --- Pause --- */

static void reply_paused(void *user, const struct status *st, bool yes)
{
	Agentbox__V1__PauseSandboxResponse m = AGENTBOX__V1__PAUSE_SANDBOX_RESPONSE__INIT;

	m.paused = yes;
	rpc_call_answer(pending_take(user), st, &m.base);
}

static void on_pause(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__PauseSandboxRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);

	if (p)
		pending_started(p, sandbox_pause(p->core, &p->head,
						 !q->_keep_memory_case || q->keep_memory,
						 reply_paused, &p->op));
}

/* --- UpdateNetwork --- */

static void reply_updated(void *user, const struct status *st, bool yes)
{
	Agentbox__V1__UpdateNetworkResponse m = AGENTBOX__V1__UPDATE_NETWORK_RESPONSE__INIT;

	rpc_call_answer(pending_take(user), st, &m.base);
}

static void on_update_network(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__UpdateNetworkRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct cloud_network *network = NULL;
	struct status st;

	if (!p)
		return;
	if (msg_read_network(q->network, &network, &st))
		pending_started(p,
				sandbox_update_network(p->core, &p->head, network,
						       msg_read_tri(q->_allow_internet_access_case,
								    q->allow_internet_access),
						       reply_updated, &p->op));
	else
		pending_fail(p, &st);
}

/* --- Fork --- */

struct fork_reply {
	Agentbox__V1__ForkResult *results, **list;
	struct msg_sandbox *sandboxes;
	size_t n;
};

static void fork_reply_fini(struct fork_reply *r)
{
	for (size_t i = 0; i < r->n; i++) {
		if (r->results[i].result_case == AGENTBOX__V1__FORK_RESULT__RESULT_ERROR)
			google__rpc__status__free_unpacked(r->results[i].error, NULL);
		msg_sandbox_fini(&r->sandboxes[i]);
	}
	free(r->results);
	free(r->list);
	free(r->sandboxes);
}

static int fork_reply_add(struct fork_reply *r, const struct sandbox_child *k)
{
	Agentbox__V1__ForkResult *m = &r->results[r->n];
	size_t i = r->n++;

	agentbox__v1__fork_result__init(m);
	r->list[i] = m;
	if (!k->sandbox) {
		m->error = rpc_error_message(k->st);
		if (!m->error)
			return -ENOMEM;
		m->result_case = AGENTBOX__V1__FORK_RESULT__RESULT_ERROR;
		return 0;
	}
	if (msg_sandbox_init(&r->sandboxes[i], k->sandbox) < 0)
		return -ENOMEM;
	m->sandbox = &r->sandboxes[i].m;
	m->result_case = AGENTBOX__V1__FORK_RESULT__RESULT_SANDBOX;
	return 0;
}

static void reply_forked(void *user, const struct status *st, const struct sandbox_child *children,
			 size_t n)
{
	Agentbox__V1__ForkSandboxResponse m = AGENTBOX__V1__FORK_SANDBOX_RESPONSE__INIT;
	scoped(fork_reply_fini) struct fork_reply r = {
		.results = calloc(n + 1, sizeof(*r.results)),
		.list = calloc(n + 1, sizeof(*r.list)),
		.sandboxes = calloc(n + 1, sizeof(*r.sandboxes)),
	};
	struct rpc_call *c = pending_take(user);
	struct status out = *st;
	int e = r.results && r.list && r.sandboxes ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && !e; i++)
		e = fork_reply_add(&r, &children[i]);
	if (status_ok(&out) && e)
		status_errno(&out, e, "answering");
	m.results = r.list;
	m.n_results = r.n;
	rpc_call_answer(c, &out, &m.base);
}

static void on_fork(struct rpc_call *c, const ProtobufCMessage *message)
{
	/* The call owns the message; hashing puts it back as it was. */
	Agentbox__V1__ForkSandboxRequest *q = (Agentbox__V1__ForkSandboxRequest *)message;
	struct pending *p = pending_new(c, q->sandbox);
	scoped(sandbox_create_fini) struct sandbox_create children = { 0 };
	struct status st;

	if (!p)
		return;
	if (!msg_read_policy(q->policy, &children.policy, &st) ||
	    !msg_read_duration(q->sandbox_timeout, "sandbox_timeout", false, &children.timeout_ms,
			       &st)) {
		pending_fail(p, &st);
	} else if (msg_read_text(&children.request_id, q->request_id) < 0 ||
		   pending_hash(message, &q->request_id, children.params_hash) < 0) {
		status_errno(&st, -ENOMEM, "reading the request");
		pending_fail(p, &st);
	} else {
		pending_started(p, sandbox_fork(p->core, &p->head, &children, q->count,
						reply_forked, &p->op));
	}
}

/* --- GetMetrics --- */

struct metrics_reply {
	Agentbox__V1__SandboxMetric *v, **list;
	msg_timestamp *at;
};

static void metrics_reply_fini(struct metrics_reply *r)
{
	free(r->v);
	free(r->list);
	free(r->at);
}

static void fill_metric(struct metrics_reply *r, size_t i, const struct cloud_metric *m)
{
	Agentbox__V1__SandboxMetric *v = &r->v[i];

	agentbox__v1__sandbox_metric__init(v);
	v->at = msg_time(&r->at[i], m->at_ms);
	v->cpu_count = m->cpu_count;
	v->cpu_used_pct = m->cpu_used_pct;
	v->mem_used = m->mem_used;
	v->mem_total = m->mem_total;
	v->mem_cache = m->mem_cache;
	v->disk_used = m->disk_used;
	v->disk_total = m->disk_total;
	r->list[i] = v;
}

static void reply_metrics(void *user, const struct status *st, const struct sandbox_metrics *metrics)
{
	Agentbox__V1__GetMetricsResponse m = AGENTBOX__V1__GET_METRICS_RESPONSE__INIT;
	size_t n = metrics ? metrics->metrics->n : 0;
	scoped(metrics_reply_fini) struct metrics_reply r = {
		.v = calloc(n + 1, sizeof(*r.v)),
		.list = calloc(n + 1, sizeof(*r.list)),
		.at = calloc(n + 1, sizeof(*r.at)),
	};
	struct rpc_call *c = pending_take(user);
	Agentbox__V1__Freshness freshness;
	msg_timestamp as_of;
	struct status out = *st;

	if (status_ok(&out) && (!r.v || !r.list || !r.at))
		status_errno(&out, -ENOMEM, "answering");
	for (size_t i = 0; i < n && status_ok(&out); i++)
		fill_metric(&r, i, &metrics->metrics->v[i]);
	if (status_ok(&out)) {
		m.metrics = r.list;
		m.n_metrics = n;
		m.freshness = msg_freshness(&freshness, &as_of, metrics->source, metrics->as_of_ms);
	}
	rpc_call_answer(c, &out, &m.base);
}

static bool read_moment(const msg_timestamp *t, const char *field, bool up, int64_t *ret_s, struct status *st)
{
	int64_t ms;

	if (!msg_read_time(t, field, &ms, st))
		return false;
	if (t)
		*ret_s = t->seconds + (up && t->nanos > 0);
	return true;
}

static void on_get_metrics(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__GetMetricsRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	int64_t start = 0, end = 0;
	struct status st;

	if (!p)
		return;
	if (read_moment(q->start, "start", false, &start, &st) && read_moment(q->end, "end", true, &end, &st))
		pending_started(p, sandbox_get_metrics(p->core, &p->head, start, end,
						       reply_metrics, &p->op));
	else
		pending_fail(p, &st);
}

/* ------------------------------------------------------------------------------------------------ */

static const struct rpc_method svc_change_methods[] = {
	PENDING_METHOD("SandboxService", "Pause", pause_sandbox, on_pause, RPC_CHANGES),
	PENDING_METHOD("SandboxService", "UpdateNetwork", update_network, on_update_network, RPC_CHANGES),
	PENDING_METHOD("SandboxService", "Fork", fork_sandbox, on_fork, RPC_BEGINS),
	PENDING_METHOD("SandboxService", "GetMetrics", get_metrics, on_get_metrics, RPC_READS),
};

int svc_change_add(struct rpc_server *s, struct sandbox_core *core)
{
	return rpc_server_add(s, svc_change_methods, ARRAY_SIZE(svc_change_methods), core);
}
