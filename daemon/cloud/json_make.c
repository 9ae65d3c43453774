/* SPDX-License-Identifier: MIT */
/* Bodies of requests. Text that is not UTF-8 fails the whole, so nothing is sent in part. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cloud/json.h"
#include "proto/base/str.h"

/* Steals v. Remembers the first failure like a reader does. */
static void set(int *r, json_t *o, const char *key, json_t *v)
{
	if (!v)
		*r = *r ? *r : -EINVAL;		/* not UTF-8, or no memory */
	else if (json_object_set_new(o, key, v) < 0)
		*r = *r ? *r : -EINVAL;
}

static void set_tri(int *r, json_t *o, const char *key, enum tri t)
{
	if (t != TRI_UNSET)
		set(r, o, key, json_boolean(t == TRI_TRUE));
}

static void set_str(int *r, json_t *o, const char *key, const char *s)
{
	if (s)
		set(r, o, key, json_string(s));
}

static json_t *make_map(int *r, const struct cloud_kv *v, size_t n)
{
	json_t *o = json_object();

	for (size_t i = 0; o && i < n; i++)
		set(r, o, v[i].key, json_string(v[i].value));
	return o;
}

static json_t *make_strs(int *r, const struct cloud_strs *l)
{
	json_t *a = json_array();

	for (size_t i = 0; a && i < l->n; i++) {
		json_t *s = json_string(l->v[i]);

		if (!s || json_array_append_new(a, s) < 0)
			*r = *r ? *r : -EINVAL;
	}
	return a;
}

static json_t *make_rules(int *r, const struct cloud_network *n)
{
	json_t *rules = json_object();

	for (size_t i = 0; rules && i < n->n_rules; i++) {
		json_t *transform = json_object(), *rule = json_object(), *list = json_array();

		set(r, transform, "headers",
		    make_map(r, n->rules[i].headers.v, n->rules[i].headers.n));
		set(r, rule, "transform", transform);
		if (!list || json_array_append_new(list, rule) < 0)
			*r = *r ? *r : -EINVAL;
		set(r, rules, n->rules[i].domain, list);
	}
	return rules;
}

#define MAKE_EGRESS  1u
#define MAKE_INGRESS 2u
#define MAKE_SECRETS 4u

static json_t *make_network(int *r, const struct cloud_network *n, unsigned what)
{
	json_t *o = json_object();

	if (n->allow_out.n)
		set(r, o, "allowOut", make_strs(r, &n->allow_out));
	if (n->deny_out.n)
		set(r, o, "denyOut", make_strs(r, &n->deny_out));
	if (what & MAKE_INGRESS) {
		set_tri(r, o, "allowPublicTraffic", n->allow_public_traffic);
		set_str(r, o, "maskRequestHost", n->mask_request_host);
	}
	if (n->egress_address) {
		json_t *proxy = json_object();

		set_str(r, proxy, "address", n->egress_address);
		set_str(r, proxy, "username", n->egress_username);
		if (what & MAKE_SECRETS)
			set_str(r, proxy, "password", n->egress_password);
		set(r, o, "egressProxy", proxy);
	}
	if (n->n_rules)
		set(r, o, "rules", make_rules(r, n));
	return o;
}

static json_t *make_iam(int *r, const struct cloud_create *c)
{
	json_t *iam = json_object(), *tokens = json_object();

	for (size_t i = 0; i < c->n_iam_tokens; i++) {
		json_t *t = json_object();

		set_str(r, t, "audience", c->iam_tokens[i].audience);
		set_str(r, t, "tokenType", c->iam_tokens[i].token_type);
		set(r, tokens, c->iam_tokens[i].name, t);
	}
	set(r, iam, "tokens", tokens);
	return iam;
}

static int dump(json_t *o, char **ret, size_t *ret_n)
{
	char *s = json_dumps(o, JSON_COMPACT);

	if (!s)
		return -ENOMEM;
	*ret = s;
	*ret_n = strlen(s);
	return 0;
}

int json_create(const struct cloud_create *c, char **ret, size_t *ret_n)
{
	json_auto_t *o = json_object();
	int r = 0;

	set_str(&r, o, "templateID", c->template_id);
	set(&r, o, "timeout", json_integer(c->timeout_s));
	set(&r, o, "secure", json_boolean(c->secure != TRI_FALSE));
	set(&r, o, "allow_internet_access", json_boolean(c->allow_internet_access != TRI_FALSE));
	set_tri(&r, o, "autoPause", c->auto_pause);
	set_tri(&r, o, "autoPauseMemory", c->auto_pause_memory);
	if (c->auto_resume != TRI_UNSET) {
		json_t *a = json_object();

		set_tri(&r, a, "enabled", c->auto_resume);
		set(&r, o, "autoResume", a);
	}
	set(&r, o, "metadata", make_map(&r, c->metadata, c->n_metadata));
	set(&r, o, "envVars", make_map(&r, c->envs, c->n_envs));
	if (c->network)
		set(&r, o, "network", make_network(&r, c->network, MAKE_EGRESS | MAKE_INGRESS | MAKE_SECRETS));
	if (c->n_iam_tokens)
		set(&r, o, "iam", make_iam(&r, c));
	return r < 0 ? r : dump(o, ret, ret_n);
}

int json_number(const char *key, uint32_t value, char **ret, size_t *ret_n)
{
	json_auto_t *o = json_object();
	int r = 0;

	set(&r, o, key, json_integer(value));
	return r < 0 ? r : dump(o, ret, ret_n);
}

int json_pause(bool memory, char **ret, size_t *ret_n)
{
	json_auto_t *o = json_object();
	int r = 0;

	set(&r, o, "memory", json_boolean(memory));
	return r < 0 ? r : dump(o, ret, ret_n);
}

int json_fork(uint32_t count, uint32_t timeout_s, char **ret, size_t *ret_n)
{
	json_auto_t *o = json_object();
	int r = 0;

	set(&r, o, "timeout", json_integer(timeout_s));
	set(&r, o, "count", json_integer(count));
	return r < 0 ? r : dump(o, ret, ret_n);
}

int json_snapshot_name(const char *name, char **ret, size_t *ret_n)
{
	json_auto_t *o = json_object();
	int r = 0;

	set_str(&r, o, "name", str_is_empty(name) ? NULL : name);
	return r < 0 ? r : dump(o, ret, ret_n);
}

int json_network(const struct cloud_network *n, enum tri allow_internet_access, char **ret, size_t *ret_n)
{
	json_auto_t *o = NULL;
	int r = 0;

	o = make_network(&r, n, MAKE_EGRESS | MAKE_SECRETS);
	set_tri(&r, o, "allow_internet_access", allow_internet_access);
	return r < 0 ? r : dump(o, ret, ret_n);
}

char *cloud_network_format(const struct cloud_network *n)
{
	json_auto_t *o = NULL;
	char *text = NULL;
	size_t len;
	int r = 0;

	o = make_network(&r, n, MAKE_EGRESS | MAKE_INGRESS);
	if (r < 0 || dump(o, &text, &len) < 0)
		return NULL;
	return text;
}
