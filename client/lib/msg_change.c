/* SPDX-License-Identifier: MIT */
/* Messages of forks, metrics, snapshots and networks. The same invariant as msg.c's. */
#include <errno.h>
#include <stdlib.h>

#include "proto/gen/agentbox_snapshot.pb-c.h"

#include "client/lib/error.h"
#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "client/lib/obj.h"
#include "proto/base/str.h"

/* --- forks --- */

static int fork_in(void *object, const Agentbox__V1__ForkResult *m, struct ab_fork_result *ret)
{
	const struct ab_error *e;
	struct ab_sandbox *s;

	*ret = (struct ab_fork_result){ .reason = "", .message = "" };
	if (m->result_case == AGENTBOX__V1__FORK_RESULT__RESULT_SANDBOX) {
		s = obj_alloc(object, 1, sizeof(*s));
		ret->sandbox = s;
		return s ? msg_sandbox_fill(object, m->sandbox, s) : -ENOMEM;
	}
	ret->status = AB_UNKNOWN;
	if (m->result_case != AGENTBOX__V1__FORK_RESULT__RESULT_ERROR)
		return 0;
	e = error_from_status(m->error->code, m->error->message, m->error);
	ret->status = e->status;
	ret->message = m->error->message;
	ret->reason = obj_strdup(object, e->reason);
	error_free(e);
	return ret->reason ? 0 : -ENOMEM;
}

int msg_forks(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ForkSandboxResponse *m = (Agentbox__V1__ForkSandboxResponse *)message;
	scoped(obj_freep) struct ab_fork_list *l = obj_new(sizeof(*l), message);
	struct ab_fork_result *v = l ? obj_alloc(l, m->n_results + 1, sizeof(*v)) : NULL;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_results; i++) {
		int r = fork_in(l, m->results[i], &v[i]);

		if (r < 0)
			return r;
	}
	l->items = v;
	l->n = m->n_results;
	*ret = give(l);
	return 0;
}

/* --- metrics --- */

int msg_metrics(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__GetMetricsResponse *m = (Agentbox__V1__GetMetricsResponse *)message;
	scoped(obj_freep) struct ab_metric_list *l = obj_new(sizeof(*l), message);
	struct ab_metric *v = l ? obj_alloc(l, m->n_metrics + 1, sizeof(*v)) : NULL;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_metrics; i++) {
		const Agentbox__V1__SandboxMetric *x = m->metrics[i];

		v[i] = (struct ab_metric){
			.at_ms = msg_at_ms(x->at),
			.cpu_count = x->cpu_count,
			.cpu_used_pct = x->cpu_used_pct,
			.mem_used = x->mem_used,
			.mem_total = x->mem_total,
			.mem_cache = x->mem_cache,
			.disk_used = x->disk_used,
			.disk_total = x->disk_total,
		};
	}
	l->items = v;
	l->n = m->n_metrics;
	l->source = m->freshness ? (enum ab_source)m->freshness->source : AB_SOURCE_UNKNOWN;
	l->as_of_ms = m->freshness ? msg_at_ms(m->freshness->as_of) : 0;
	*ret = give(l);
	return 0;
}

/* --- snapshots --- */

static int snapshot_in(void *object, const Agentbox__V1__Snapshot *m, struct ab_snapshot *ret)
{
	*ret = (struct ab_snapshot){
		.id = m->id,
		.n_names = m->n_names,
		.source_sandbox = m->source_sandbox,
		.created_at_ms = msg_at_ms(m->created_at),
		.source = m->freshness ? (enum ab_source)m->freshness->source : AB_SOURCE_UNKNOWN,
		.as_of_ms = m->freshness ? msg_at_ms(m->freshness->as_of) : 0,
	};
	return msg_words(object, m->n_names, m->names, &ret->names);
}

int msg_snapshot(ProtobufCMessage *m, void **ret)
{
	scoped(obj_freep) struct ab_snapshot *s = obj_new(sizeof(*s), m);
	int r = s ? snapshot_in(s, (Agentbox__V1__Snapshot *)m, s) : -ENOMEM;

	if (r < 0)
		return r;
	*ret = give(s);
	return 0;
}

int msg_snapshot_list(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ListSnapshotsResponse *m = (Agentbox__V1__ListSnapshotsResponse *)message;
	scoped(obj_freep) struct ab_snapshot_list *l = obj_new(sizeof(*l), message);
	struct ab_snapshot *v = l ? obj_alloc(l, m->n_snapshots + 1, sizeof(*v)) : NULL;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_snapshots; i++) {
		int r = snapshot_in(l, m->snapshots[i], &v[i]);

		if (r < 0)
			return r;
	}
	l->items = v;
	l->n = m->n_snapshots;
	l->next_page_token = m->next_page_token;
	*ret = give(l);
	return 0;
}

/* --- networks, inwards --- */

static int rule_in(void *object, const Agentbox__V1__NetworkConfig__RulesEntry *m,
		   struct ab_network_rule *ret)
{
	const Agentbox__V1__NetworkRule *rule =
		m->value && m->value->n_rules ? m->value->rules[0] : NULL;

	*ret = (struct ab_network_rule){ .host = m->key };
	return rule ? msg_pairs_in(object, rule->n_transform_headers, rule->transform_headers, &ret->headers,
				   &ret->n_headers)
		    : 0;
}

int msg_network_in(void *object, const Agentbox__V1__NetworkConfig *m, const struct ab_network **ret)
{
	struct ab_network_rule *rules;
	struct ab_network *n;
	int r;

	if (!m)
		return 0;
	n = obj_alloc(object, 1, sizeof(*n));
	rules = obj_alloc(object, m->n_rules + 1, sizeof(*rules));
	if (!n || !rules)
		return -ENOMEM;
	*n = (struct ab_network){
		.n_allow_out = m->n_allow_out,
		.n_deny_out = m->n_deny_out,
		.rules = rules,
		.n_rules = m->n_rules,
		.proxy_address = m->egress_proxy ? m->egress_proxy->address : "",
		.proxy_username = m->egress_proxy ? m->egress_proxy->username : "",
		.proxy_password = "",
		.allow_public_traffic = msg_choice(m->_allow_public_traffic_case, m->allow_public_traffic),
		.mask_request_host = m->mask_request_host,
	};
	r = msg_words(object, m->n_allow_out, m->allow_out, &n->allow_out);
	if (r == 0)
		r = msg_words(object, m->n_deny_out, m->deny_out, &n->deny_out);
	for (size_t i = 0; i < m->n_rules && r == 0; i++)
		r = rule_in(object, m->rules[i], &rules[i]);
	*ret = n;
	return r;
}

/* --- networks, outwards --- */

struct msg_rule {
	Agentbox__V1__NetworkConfig__RulesEntry entry;
	Agentbox__V1__NetworkRules rules;
	Agentbox__V1__NetworkRule rule, *list[1];
};

struct msg_network {
	Agentbox__V1__NetworkConfig m;
	Agentbox__V1__EgressProxy proxy;
	Agentbox__V1__NetworkConfig__RulesEntry **list;
	size_t n;
	struct msg_rule rules[];
};

Agentbox__V1__NetworkConfig *msg_network_message(struct msg_network *m)
{
	return m ? &m->m : NULL;
}

void msg_network_free(struct msg_network *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++)
		free(m->rules[i].rule.transform_headers);
	free(m->list);
	free(m);
}

static int rule_out(struct msg_rule *r, const struct ab_network_rule *from)
{
	agentbox__v1__network_config__rules_entry__init(&r->entry);
	agentbox__v1__network_rules__init(&r->rules);
	agentbox__v1__network_rule__init(&r->rule);
	r->list[0] = &r->rule;
	r->rules.rules = r->list;
	r->rules.n_rules = 1;
	r->entry.key = (char *)(from->host ? from->host : "");
	r->entry.value = &r->rules;
	return msg_pairs(from->headers, from->n_headers,
			 &agentbox__v1__network_rule__transform_headers_entry__descriptor,
			 &r->rule.transform_headers, &r->rule.n_transform_headers);
}

static void plain_out(struct msg_network *m, const struct ab_network *n)
{
	agentbox__v1__network_config__init(&m->m);
	m->m.allow_out = (char **)n->allow_out;
	m->m.n_allow_out = n->n_allow_out;
	m->m.deny_out = (char **)n->deny_out;
	m->m.n_deny_out = n->n_deny_out;
	if (n->mask_request_host)
		m->m.mask_request_host = (char *)n->mask_request_host;
	MSG_SET_CHOICE(&m->m, allow_public_traffic,
		       AGENTBOX__V1__NETWORK_CONFIG___ALLOW_PUBLIC_TRAFFIC_ALLOW_PUBLIC_TRAFFIC, n->allow_public_traffic);
	if (str_is_empty(n->proxy_address) && str_is_empty(n->proxy_username) && str_is_empty(n->proxy_password))
		return;
	agentbox__v1__egress_proxy__init(&m->proxy);
	m->proxy.address = (char *)(n->proxy_address ? n->proxy_address : "");
	m->proxy.username = (char *)(n->proxy_username ? n->proxy_username : "");
	m->proxy.password = (char *)(n->proxy_password ? n->proxy_password : "");
	m->m.egress_proxy = &m->proxy;
}

int msg_network_out(const struct ab_network *n, struct msg_network **ret)
{
	struct msg_network *m;
	int r = 0;

	*ret = NULL;
	if (!n)
		return 0;
	if ((n->n_allow_out && !n->allow_out) || (n->n_deny_out && !n->deny_out) || (n->n_rules && !n->rules))
		return -EINVAL;
	m = calloc(1, sizeof(*m) + n->n_rules * sizeof(m->rules[0]));
	if (!m)
		return -ENOMEM;
	plain_out(m, n);
	m->list = calloc(n->n_rules + 1, sizeof(*m->list));
	if (!m->list)
		r = -ENOMEM;
	for (size_t i = 0; i < n->n_rules && r == 0; i++) {
		r = rule_out(&m->rules[i], &n->rules[i]);
		m->n++;
		m->list[i] = &m->rules[i].entry;
	}
	if (r < 0) {
		msg_network_free(m);
		return r;
	}
	m->m.rules = m->list;
	m->m.n_rules = n->n_rules;
	*ret = m;
	return 0;
}
