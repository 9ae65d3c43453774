/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/str.h"

#define JSON_STR_MAX (64u * 1024)	/* of any one text we keep */

static void json_putp(json_t **j)
{
	json_decref(*j);
}

/* jansson recurses; its own bound is 2048. Counts brackets outside of strings. */
static bool depth_ok(const char *s, size_t n)
{
	size_t depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < n; i++) {
		char c = s[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > JSON_DEPTH_MAX)
				return false;
		} else if (c == '}' || c == ']') {
			if (depth)
				depth--;
		}
	}
	return true;
}

static int load(const void *p, size_t n, json_t **ret, const char **ret_why)
{
	json_error_t err;

	if (n > JSON_BODY_MAX) {
		*ret_why = "the answer is too large";
		return -EBADMSG;
	}
	if (!depth_ok(p, n)) {
		*ret_why = "the answer is nested too deeply";
		return -EBADMSG;
	}
	*ret = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);
	if (*ret)
		return 0;
	if (json_error_code(&err) == json_error_out_of_memory)
		return -ENOMEM;
	*ret_why = json_error_code(&err) == json_error_duplicate_key ?
			   "a key occurs twice in the answer" :
			   "the answer is not JSON";
	return -EBADMSG;
}

/* --- members --- */

/* A reader that remembers its first failure: members are read in a row and checked once. */
struct reader {
	int r;
	const char *why;
};

static void bad(struct reader *rd, const char *why)
{
	if (!rd->r) {
		rd->r = -EBADMSG;
		rd->why = why;
	}
}

static const char *clean_text(const json_t *v)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);

	return n <= JSON_STR_MAX && !memchr(s, 0, n) ? s : NULL;
}

static char *get_str(struct reader *rd, const json_t *o, const char *key, bool required,
		     const char *why)
{
	const json_t *v = json_object_get(o, key);
	const char *s;
	char *copy;

	if (!v || json_is_null(v)) {
		if (required)
			bad(rd, why);
		return NULL;
	}
	s = json_is_string(v) ? clean_text(v) : NULL;
	if (!s || (required && !*s)) {
		bad(rd, why);
		return NULL;
	}
	copy = str_dup(s);
	if (!copy && !rd->r)
		rd->r = -ENOMEM;
	return copy;
}

static int64_t get_int(struct reader *rd, const json_t *o, const char *key, int64_t max, const char *why)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max) {
		bad(rd, why);
		return 0;
	}
	return json_integer_value(v);
}

static enum tri get_tri(struct reader *rd, const json_t *o, const char *key, const char *why)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return TRI_UNSET;
	if (!json_is_boolean(v))
		bad(rd, why);
	return tri_of(json_is_true(v));
}

static int64_t get_time(struct reader *rd, const json_t *o, const char *key, const char *why)
{
	const json_t *v = json_object_get(o, key);
	int64_t ms = 0;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_string(v) || str_rfc3339_ms(json_string_value(v), &ms) < 0)
		bad(rd, why);
	return ms;
}

static const json_t *get_object(struct reader *rd, const json_t *o, const char *key, const char *why)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return NULL;
	if (!json_is_object(v)) {
		bad(rd, why);
		return NULL;
	}
	return v;
}

/* A map of strings. A value no C string can hold is left out, not an error: anybody of the team may
 * have put it there. */
static void get_kvs(struct reader *rd, const json_t *o, struct cloud_kvs *ret, const char *why)
{
	json_t *map = (json_t *)o;
	const char *key;
	json_t *v;

	if (json_object_size(o) > JSON_METADATA_MAX) {
		bad(rd, why);
		return;
	}
	json_object_foreach(map, key, v) {
		const char *s;

		if (!json_is_string(v)) {
			bad(rd, why);
			return;
		}
		s = clean_text(v);
		if (s && cloud_kvs_add(ret, key, s) < 0 && !rd->r)
			rd->r = -ENOMEM;
	}
}

static void get_strs(struct reader *rd, const json_t *o, const char *key, struct cloud_strs *ret,
		     const char *why)
{
	const json_t *a = json_object_get(o, key);

	if (!a || json_is_null(a))
		return;
	if (!json_is_array(a) || json_array_size(a) > JSON_METADATA_MAX) {
		bad(rd, why);
		return;
	}
	for (size_t i = 0; i < json_array_size(a); i++) {
		const json_t *v = json_array_get(a, i);
		const char *s = json_is_string(v) ? clean_text(v) : NULL;

		if (!s)
			bad(rd, why);
		else if (cloud_strs_add(ret, s) < 0 && !rd->r)
			rd->r = -ENOMEM;
	}
}

/* --- the network object --- */

static void get_rule(struct reader *rd, const char *domain, const json_t *list, struct cloud_rule *ret)
{
	ret->domain = str_dup(domain);
	if (!ret->domain && !rd->r)
		rd->r = -ENOMEM;
	if (!json_is_array(list)) {
		bad(rd, "network.rules has a wrong type");
		return;
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *t = get_object(rd, json_array_get(list, i), "transform",
					     "network.rules.transform has a wrong type");
		const json_t *h = t ? get_object(rd, t, "headers", "transform.headers has a wrong type") :
				      NULL;

		if (h)
			get_kvs(rd, h, &ret->headers, "transform.headers has a wrong type");
	}
}

static void get_rules(struct reader *rd, const json_t *o, struct cloud_network *n)
{
	json_t *rules = (json_t *)get_object(rd, o, "rules", "network.rules has a wrong type");
	const char *domain;
	json_t *list;

	if (!rules || !json_object_size(rules))
		return;
	if (json_object_size(rules) > JSON_METADATA_MAX) {
		bad(rd, "network.rules has too many domains");
		return;
	}
	n->rules = calloc(json_object_size(rules), sizeof(*n->rules));
	if (!n->rules) {
		rd->r = rd->r ? rd->r : -ENOMEM;
		return;
	}
	json_object_foreach(rules, domain, list)
		get_rule(rd, domain, list, &n->rules[n->n_rules++]);
}

static struct cloud_network *get_network(struct reader *rd, const json_t *o)
{
	static const char why[] = "network has a wrong type";
	const json_t *net = get_object(rd, o, "network", why), *proxy;
	struct cloud_network *n;

	if (!net)
		return NULL;
	n = calloc(1, sizeof(*n));
	if (!n) {
		rd->r = rd->r ? rd->r : -ENOMEM;
		return NULL;
	}
	get_strs(rd, net, "allowOut", &n->allow_out, why);
	get_strs(rd, net, "denyOut", &n->deny_out, why);
	n->allow_public_traffic = get_tri(rd, net, "allowPublicTraffic", why);
	n->mask_request_host = get_str(rd, net, "maskRequestHost", false, why);
	proxy = get_object(rd, net, "egressProxy", why);
	if (proxy) {
		n->egress_address = get_str(rd, proxy, "address", false, why);
		n->egress_username = get_str(rd, proxy, "username", false, why);
	}
	get_rules(rd, net, n);
	return n;
}

/* --- sandboxes --- */

static void get_lifecycle(struct reader *rd, const json_t *o, struct cloud_sandbox *s)
{
	static const char why[] = "lifecycle has a wrong type";
	const json_t *l = get_object(rd, o, "lifecycle", why);
	const json_t *t = l ? json_object_get(l, "onTimeout") : NULL;

	if (!l)
		return;
	s->has_lifecycle = true;
	s->auto_resume = get_tri(rd, l, "autoResume", why) == TRI_TRUE;
	s->on_timeout_pause = t && json_is_string(t) && str_eq(json_string_value(t), "pause");
}

static enum cloud_state get_state(struct reader *rd, const json_t *o)
{
	const json_t *v = json_object_get(o, "state");

	if (!v || json_is_null(v))
		return CLOUD_STATE_UNKNOWN;
	if (!json_is_string(v)) {
		bad(rd, "state has a wrong type");
		return CLOUD_STATE_UNKNOWN;
	}
	return str_eq(json_string_value(v), "running") ? CLOUD_STATE_RUNNING :
	       str_eq(json_string_value(v), "paused")  ? CLOUD_STATE_PAUSED :
							 CLOUD_STATE_UNKNOWN;
}

static struct cloud_sandbox *get_sandbox(struct reader *rd, const json_t *o)
{
	struct cloud_sandbox *s;
	const json_t *meta;

	if (!json_is_object(o)) {
		bad(rd, "a sandbox is not an object");
		return NULL;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		rd->r = rd->r ? rd->r : -ENOMEM;
		return NULL;
	}
	s->id = get_str(rd, o, "sandboxID", true, "sandboxID is missing or has a wrong type");
	if (s->id) {
		s->id[strcspn(s->id, "-")] = 0;		/* a legacy "-clientID" */
		if (!cloud_is_sandbox_id(s->id))
			bad(rd, "sandboxID is not an id");
	}
	s->template_id = get_str(rd, o, "templateID", true, "templateID is missing or has a wrong type");
	s->envd_version = get_str(rd, o, "envdVersion", false, "envdVersion has a wrong type");
	if (!s->envd_version || !*s->envd_version) {
		free(s->envd_version);
		s->envd_version = str_dup("v1.0.0");
		if (!s->envd_version && !rd->r)
			rd->r = -ENOMEM;
	}
	s->alias = get_str(rd, o, "alias", false, "alias has a wrong type");
	s->domain = get_str(rd, o, "domain", false, "domain has a wrong type");
	s->envd_access_token = get_str(rd, o, "envdAccessToken", false, "envdAccessToken has a wrong type");
	s->traffic_access_token =
		get_str(rd, o, "trafficAccessToken", false, "trafficAccessToken has a wrong type");
	s->state = get_state(rd, o);
	s->started_at_ms = get_time(rd, o, "startedAt", "startedAt is no moment");
	s->end_at_ms = get_time(rd, o, "endAt", "endAt is no moment");
	s->cpu_count = (uint32_t)get_int(rd, o, "cpuCount", 1000000, "cpuCount has a wrong type");
	s->memory_mb = (uint32_t)get_int(rd, o, "memoryMB", INT32_MAX, "memoryMB has a wrong type");
	s->disk_size_mb = (uint32_t)get_int(rd, o, "diskSizeMB", INT32_MAX, "diskSizeMB has a wrong type");
	meta = get_object(rd, o, "metadata", "metadata has a wrong type");
	if (meta)
		get_kvs(rd, meta, &s->metadata, "metadata has a wrong type or too many pairs");
	s->allow_internet_access = get_tri(rd, o, "allowInternetAccess", "allowInternetAccess has a wrong type");
	s->network = get_network(rd, o);
	get_lifecycle(rd, o, s);
	return s;
}

int json_sandbox(const void *p, size_t n, struct cloud_sandbox **ret, const char **ret_why)
{
	scoped(json_putp) json_t *j = NULL;
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;
	struct reader rd = { 0 };
	int r;

	r = load(p, n, &j, ret_why);
	if (r < 0)
		return r;
	s = get_sandbox(&rd, j);
	if (rd.r) {
		*ret_why = rd.why;
		return rd.r;
	}
	*ret = give(s);
	return 0;
}

static int list_add(struct cloud_list *list, struct cloud_sandbox *s)
{
	struct cloud_sandbox **v = list->v;

	if (!(list->n & (list->n - 1))) {
		v = reallocarray(v, list->n ? list->n * 2 : 1, sizeof(*v));
		if (!v)
			return -ENOMEM;
		list->v = v;
	}
	v[list->n++] = s;
	return 0;
}

int json_list(const void *p, size_t n, struct cloud_list *list, const char **ret_why)
{
	scoped(json_putp) json_t *j = NULL;
	struct reader rd = { 0 };
	int r;

	r = load(p, n, &j, ret_why);
	if (r < 0)
		return r;
	if (!json_is_array(j) || json_array_size(j) > JSON_LIST_MAX) {
		*ret_why = "the list is no array or too long";
		return -EBADMSG;
	}
	for (size_t i = 0; i < json_array_size(j); i++) {
		scoped(cloud_sandbox_freep) struct cloud_sandbox *s = get_sandbox(&rd, json_array_get(j, i));

		if (rd.r) {
			*ret_why = rd.why;
			return rd.r;
		}
		r = list_add(list, s);
		if (r < 0)
			return r;
		(void)give(s);
	}
	return 0;
}

/* --- errors --- */

static void copy_str(char *dst, size_t cap, const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (v && json_is_string(v))
		(void)str_copy(dst, cap, json_string_value(v));
}

static void error_members(const json_t *j, struct fault_body *ret)
{
	const json_t *code = json_object_get(j, "code");

	ret->is_json = true;
	ret->has_port = json_object_get(j, "port") != NULL;
	if (code && json_is_integer(code))
		ret->code = json_integer_value(code);
	copy_str(ret->code_name, sizeof(ret->code_name), j, "code");
	copy_str(ret->message, sizeof(ret->message), j, "message");
	copy_str(ret->error_code, sizeof(ret->error_code), j, "error_code");
}

void json_error(const void *p, size_t n, struct fault_body *ret)
{
	scoped(json_putp) json_t *j = NULL;
	const char *why;

	*ret = (struct fault_body){ .code = -1 };
	if (load(p, n, &j, &why) == 0 && json_is_object(j)) {
		error_members(j, ret);
		return;
	}
	n = MIN(n, sizeof(ret->message) - 1);
	for (size_t i = 0; i < n; i++) {
		char c = ((const char *)p)[i];

		ret->message[i] = c >= 0x20 && c < 0x7f ? c : ' ';
	}
	while (n && ret->message[n - 1] == ' ')
		n--;
	ret->message[n] = 0;
}

int json_end_of_stream(const void *p, size_t n, bool *ret_error, struct fault_body *ret)
{
	scoped(json_putp) json_t *j = NULL;
	const json_t *e;
	const char *why;
	int r;

	*ret = (struct fault_body){ .code = -1 };
	r = load(p, n, &j, &why);
	if (r < 0)
		return r;
	if (!json_is_object(j))
		return -EBADMSG;
	e = json_object_get(j, "error");
	*ret_error = e && !json_is_null(e);
	if (*ret_error && !json_is_object(e))
		return -EBADMSG;
	if (*ret_error)
		error_members(e, ret);
	return 0;
}

int json_upload(const void *p, size_t n, char **ret_path)
{
	scoped(json_putp) json_t *j = NULL;
	struct reader rd = { 0 };
	const char *why;
	char *path;
	int r;

	r = load(p, n, &j, &why);
	if (r < 0)
		return r;
	if (!json_is_array(j) || !json_array_size(j) || !json_is_object(json_array_get(j, 0)))
		return -EBADMSG;
	path = get_str(&rd, json_array_get(j, 0), "path", true, "path is missing");
	if (rd.r) {
		free(path);
		return rd.r;
	}
	*ret_path = path;
	return 0;
}

/* --- requests --- */

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

static json_t *make_network(int *r, const struct cloud_network *n)
{
	json_t *o = json_object();

	if (n->allow_out.n)
		set(r, o, "allowOut", make_strs(r, &n->allow_out));
	if (n->deny_out.n)
		set(r, o, "denyOut", make_strs(r, &n->deny_out));
	set_tri(r, o, "allowPublicTraffic", n->allow_public_traffic);
	set_str(r, o, "maskRequestHost", n->mask_request_host);
	if (n->egress_address) {
		json_t *proxy = json_object();

		set_str(r, proxy, "address", n->egress_address);
		set_str(r, proxy, "username", n->egress_username);
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
	scoped(json_putp) json_t *o = json_object();
	int r = 0;

	set_str(&r, o, "templateID", c->template_id);
	set(&r, o, "timeout", json_integer(c->timeout_s));
	set(&r, o, "secure", json_boolean(c->secure != TRI_FALSE));
	set_tri(&r, o, "allow_internet_access", c->allow_internet_access);
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
		set(&r, o, "network", make_network(&r, c->network));
	if (c->n_iam_tokens)
		set(&r, o, "iam", make_iam(&r, c));
	return r < 0 ? r : dump(o, ret, ret_n);
}

int json_number(const char *key, uint32_t value, char **ret, size_t *ret_n)
{
	scoped(json_putp) json_t *o = json_object();
	int r = 0;

	set(&r, o, key, json_integer(value));
	return r < 0 ? r : dump(o, ret, ret_n);
}
