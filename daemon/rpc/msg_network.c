/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/msg_network.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/msg.h"
#include "proto/base/str.h"

#define TOKEN_TYPE_DEFAULT "JWT-SVID"

/* --- in --- */

static int read_strs(struct cloud_strs *to, char *const *v, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && !r; i++)
		r = cloud_strs_add(to, v[i]);
	return r;
}

static int read_rule(struct cloud_network *n, const char *host, const Agentbox__V1__NetworkRule *m)
{
	struct cloud_rule *rule;
	int r = cloud_network_add_rule(n, host, &rule);

	for (size_t i = 0; m && i < m->n_transform_headers && !r; i++)
		r = cloud_kvs_add(&rule->headers, m->transform_headers[i]->key,
				  m->transform_headers[i]->value);
	return r;
}

static int read_rules(struct cloud_network *n, const Agentbox__V1__NetworkConfig *m, struct status *st)
{
	int r = 0;

	for (size_t i = 0; i < m->n_rules && !r; i++) {
		const Agentbox__V1__NetworkRules *v = m->rules[i]->value;

		if (v && v->n_rules > 1) {
			status_field(st, "network.rules", "%s: at most one rule", m->rules[i]->key);
			return -EINVAL;
		}
		r = read_rule(n, m->rules[i]->key, v && v->n_rules ? v->rules[0] : NULL);
	}
	return r;
}

static int read_all(struct cloud_network *n, const Agentbox__V1__NetworkConfig *m, struct status *st)
{
	int r = read_strs(&n->allow_out, m->allow_out, m->n_allow_out);

	if (m->_allow_public_traffic_case)
		n->allow_public_traffic = tri_of(m->allow_public_traffic);
	if (!r)
		r = read_strs(&n->deny_out, m->deny_out, m->n_deny_out);
	if (!r)
		r = msg_read_text(&n->mask_request_host, m->mask_request_host);
	if (!r && m->egress_proxy) {
		r = msg_read_text(&n->egress_address, m->egress_proxy->address);
		if (!r)
			r = msg_read_text(&n->egress_username, m->egress_proxy->username);
		if (!r)
			r = msg_read_text(&n->egress_password, m->egress_proxy->password);
		if (!r && !n->egress_address) {
			status_field(st, "network.egress_proxy.address", "is missing");
			return -EINVAL;
		}
	}
	return r ? r : read_rules(n, m, st);
}

bool msg_read_network(const Agentbox__V1__NetworkConfig *m, struct cloud_network **ret, struct status *st)
{
	scoped(cloud_network_freep) struct cloud_network *n = NULL;
	int r;

	if (!m) {
		*ret = NULL;
		return true;
	}
	n = calloc(1, sizeof(*n));
	r = n ? read_all(n, m, st) : -ENOMEM;
	if (r == -ENOMEM)
		status_errno(st, r, "reading the request");
	if (r < 0)
		return false;
	*ret = give(n);
	return true;
}

int msg_read_tokens(Agentbox__V1__CreateSandboxRequest__IamTokensEntry *const *entries, size_t n,
		    struct cloud_create *ret)
{
	int r = 0;

	ret->iam_tokens = calloc(n + 1, sizeof(*ret->iam_tokens));
	if (!ret->iam_tokens)
		return -ENOMEM;
	for (; ret->n_iam_tokens < n && !r; ret->n_iam_tokens++) {
		const Agentbox__V1__CreateSandboxRequest__IamTokensEntry *from =
			entries[ret->n_iam_tokens];
		struct cloud_iam_token *t = &ret->iam_tokens[ret->n_iam_tokens];
		const char *type = from->value ? from->value->token_type : NULL;

		t->name = str_dup(from->key);
		t->audience = str_dup(from->value ? from->value->audience : "");
		t->token_type = str_dup(str_is_empty(type) ? TOKEN_TYPE_DEFAULT : type);
		r = t->name && t->audience && t->token_type ? 0 : -ENOMEM;
	}
	return r;
}

/* --- out --- */

struct msg_rule {
	Agentbox__V1__NetworkConfig__RulesEntry entry;
	Agentbox__V1__NetworkRules rules;
	Agentbox__V1__NetworkRule rule, *rule_list[1];
	Agentbox__V1__NetworkRule__TransformHeadersEntry *headers, **header_list;
};

struct msg_network {
	Agentbox__V1__NetworkConfig m;
	Agentbox__V1__EgressProxy proxy;
	size_t n_rules;
	Agentbox__V1__NetworkConfig__RulesEntry **list;
	struct msg_rule rules[];
};

Agentbox__V1__NetworkConfig *msg_network_message(struct msg_network *m)
{
	return &m->m;
}

struct msg_network *msg_network_free(struct msg_network *m)
{
	if (!m)
		return NULL;
	for (size_t i = 0; i < m->n_rules; i++) {
		free(m->rules[i].headers);
		free(m->rules[i].header_list);
	}
	free(m->list);
	free(m);
	return NULL;
}

static int fill_rule(struct msg_rule *r, const struct cloud_rule *c)
{
	agentbox__v1__network_config__rules_entry__init(&r->entry);
	agentbox__v1__network_rules__init(&r->rules);
	agentbox__v1__network_rule__init(&r->rule);
	r->entry.key = c->domain;
	r->entry.value = &r->rules;
	r->rule_list[0] = &r->rule;
	r->rules.rules = r->rule_list;
	r->rules.n_rules = 1;
	r->headers = calloc(c->headers.n + 1, sizeof(*r->headers));
	r->header_list = calloc(c->headers.n + 1, sizeof(*r->header_list));
	if (!r->headers || !r->header_list)
		return -ENOMEM;
	for (size_t i = 0; i < c->headers.n; i++) {
		agentbox__v1__network_rule__transform_headers_entry__init(&r->headers[i]);
		r->headers[i].key = c->headers.v[i].key;
		r->headers[i].value = c->headers.v[i].value;
		r->header_list[i] = &r->headers[i];
	}
	r->rule.transform_headers = r->header_list;
	r->rule.n_transform_headers = c->headers.n;
	return 0;
}

static void fill_plain(struct msg_network *m, const struct cloud_network *n)
{
	agentbox__v1__network_config__init(&m->m);
	m->m.allow_out = n->allow_out.v;
	m->m.n_allow_out = n->allow_out.n;
	m->m.deny_out = n->deny_out.v;
	m->m.n_deny_out = n->deny_out.n;
	if (n->allow_public_traffic != TRI_UNSET) {
		m->m._allow_public_traffic_case =
			AGENTBOX__V1__NETWORK_CONFIG___ALLOW_PUBLIC_TRAFFIC_ALLOW_PUBLIC_TRAFFIC;
		m->m.allow_public_traffic = n->allow_public_traffic == TRI_TRUE;
	}
	if (n->mask_request_host)
		m->m.mask_request_host = n->mask_request_host;
	if (n->egress_address) {
		agentbox__v1__egress_proxy__init(&m->proxy);
		m->proxy.address = n->egress_address;
		if (n->egress_username)
			m->proxy.username = n->egress_username;
		m->m.egress_proxy = &m->proxy;
	}
}

struct msg_network *msg_network_new(const struct cloud_network *n)
{
	struct msg_network *m = calloc(1, sizeof(*m) + n->n_rules * sizeof(m->rules[0]));

	if (!m)
		return NULL;
	fill_plain(m, n);
	m->list = calloc(n->n_rules + 1, sizeof(*m->list));
	if (!m->list)
		return msg_network_free(m);
	for (size_t i = 0; i < n->n_rules; i++) {
		m->n_rules++;
		if (fill_rule(&m->rules[i], &n->rules[i]) < 0)
			return msg_network_free(m);
		m->list[i] = &m->rules[i].entry;
	}
	m->m.rules = m->list;
	m->m.n_rules = n->n_rules;
	return m;
}
