/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/host.h"
#include "proto/base/str.h"

#define CONTAINER_BYTES 256u		/* what jansson takes for an object or array, about … */
#define VALUE_BYTES	96u		/* … and for a member or an element */
#define SMALL_BYTES	(256u * 1024)	/* any shape may take this much */
#define JSON_STR_MAX (64u * 1024)	/* of any one text we keep */

/* What may be built of it: NULL, or why not. jansson recurses, with a bound of 2048 of its own. Memory is bounded by a multiple of its size, which honest answers, with
 * their long names, stay far below. */
static const char *shape_error(const char *s, size_t n)
{
	size_t depth = 0, containers = 0, commas = 0;
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
			containers++;
			if (++depth > JSON_DEPTH_MAX)
				return "the answer is nested too deeply";
		} else if (c == '}' || c == ']') {
			if (depth)
				depth--;
		} else if (c == ',') {
			commas++;
		}
	}
	return containers * CONTAINER_BYTES + commas * VALUE_BYTES > SMALL_BYTES + n * 10 ?
		       "the answer is made of too many small values" : NULL;
}

static int load(const void *p, size_t n, json_t **ret, const char **ret_why)
{
	json_error_t err;

	if (n > JSON_BODY_MAX) {
		*ret_why = "the answer is too large";
		return -EBADMSG;
	}
	*ret_why = shape_error(p, n);
	if (*ret_why)
		return -EBADMSG;
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

static int load_list(const void *p, size_t n, size_t max, json_t **ret, const char **ret_why)
{
	int r = load(p, n, ret, ret_why);

	if (r < 0 || (json_is_array(*ret) && json_array_size(*ret) <= max))
		return r;
	*ret_why = "the answer is no array or too long";
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

/* A text that is nothing in parts: cut off, it would be another one. */
static char *get_whole(struct reader *rd, const json_t *o, const char *key, bool required, size_t max, const char *why)
{
	char *s = get_str(rd, o, key, required, why);

	if (s && strlen(s) > max)
		bad(rd, why);
	return s;
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
	/* Before 1970 (the zero value of some languages is year 1) it says nothing. */
	return MAX(ms, (int64_t)0);
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

static void get_rule(struct reader *rd, const json_t *list, struct cloud_rule *ret)
{
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
	json_object_foreach(rules, domain, list) {
		struct cloud_rule *rule;

		if (cloud_network_add_rule(n, domain, &rule) < 0) {
			rd->r = rd->r ? rd->r : -ENOMEM;
			return;
		}
		get_rule(rd, list, rule);
	}
}

static struct cloud_network *get_network(struct reader *rd, const json_t *net)
{
	static const char why[] = "network has a wrong type";
	struct cloud_network *n;
	const json_t *proxy;

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

int cloud_network_parse(const char *text, struct cloud_network **ret)
{
	json_auto_t *j = NULL;
	scoped(cloud_network_freep) struct cloud_network *n = NULL;
	struct reader rd = { 0 };
	const char *why;
	int r = load(text, strlen(text), &j, &why);

	if (r < 0)
		return r;
	if (!json_is_object(j))
		return -EBADMSG;
	n = get_network(&rd, j);
	if (rd.r)
		return rd.r;
	*ret = give(n);
	return 0;
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
		s->envd_version = str_dup(CLOUD_VERSION_UNKNOWN);
		if (!s->envd_version && !rd->r)
			rd->r = -ENOMEM;
	}
	s->alias = get_str(rd, o, "alias", false, "alias has a wrong type");
	s->domain = get_str(rd, o, "domain", false, "domain has a wrong type");
	if (!str_is_empty(s->domain) && !host_port_is_valid(s->domain))
		bad(rd, "domain is no host name");
	s->envd_access_token = get_whole(rd, o, "envdAccessToken", false, CLOUD_TOKEN_MAX,
					  "envdAccessToken is no text or too long");
	s->traffic_access_token =
		get_whole(rd, o, "trafficAccessToken", false, CLOUD_TOKEN_MAX, "trafficAccessToken is no text or too long");
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
	s->network = get_network(rd, get_object(rd, o, "network", "network has a wrong type"));
	get_lifecycle(rd, o, s);
	return s;
}

int json_sandbox(const void *p, size_t n, struct cloud_sandbox **ret, const char **ret_why)
{
	json_auto_t *j = NULL;
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

int json_list(const void *p, size_t n, struct cloud_list *list, const char **ret_why)
{
	json_auto_t *j = NULL;
	struct reader rd = { 0 };
	int r;

	r = load_list(p, n, JSON_LIST_MAX, &j, ret_why);
	if (r < 0)
		return r;
	for (size_t i = 0; i < json_array_size(j); i++) {
		scoped(cloud_sandbox_freep) struct cloud_sandbox *s = get_sandbox(&rd, json_array_get(j, i));

		if (rd.r) {
			*ret_why = rd.why;
			return rd.r;
		}
		r = cloud_list_add(list, s);
		if (r < 0)
			return r;
		(void)give(s);
	}
	return 0;
}

/* --- forks --- */

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

static void get_child(struct reader *rd, const json_t *o, struct cloud_child *ret)
{
	const json_t *s = get_object(rd, o, "sandbox", "sandbox has a wrong type");
	const json_t *e = get_object(rd, o, "error", "error has a wrong type");
	struct fault_body body = { .code = -1 };

	if (s) {
		ret->sandbox = get_sandbox(rd, s);
		return;
	}
	if (e)
		error_members(e, &body);
	fault_child(&body, &ret->error);
}

int json_children(const void *p, size_t n, struct cloud_children **ret, const char **ret_why)
{
	json_auto_t *j = NULL;
	struct cloud_children *c = NULL;
	struct reader rd = { 0 };
	int r;

	r = load_list(p, n, JSON_LIST_MAX, &j, ret_why);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (c)
		c->v = calloc(json_array_size(j) + 1, sizeof(*c->v));
	if (!c || !c->v) {
		cloud_children_free(c);
		return -ENOMEM;
	}
	for (size_t i = 0; i < json_array_size(j) && !rd.r; i++) {
		const json_t *o = json_array_get(j, i);

		if (json_is_object(o))
			get_child(&rd, o, &c->v[c->n++]);
		else
			bad(&rd, "a child is not an object");
	}
	if (rd.r) {
		*ret_why = rd.why;
		cloud_children_free(c);
		return rd.r;
	}
	*ret = c;
	return 0;
}

/* --- metrics --- */

static double get_real(struct reader *rd, const json_t *o, const char *key, const char *why)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_number(v))
		bad(rd, why);
	return json_number_value(v);
}

static void get_metric(struct reader *rd, const json_t *o, struct cloud_metric *ret)
{
	static const char why[] = "a metric has a wrong type";

	if (!json_is_object(o)) {
		bad(rd, why);
		return;
	}
	ret->at_ms = get_int(rd, o, "timestampUnix", INT64_MAX / 1000, why) * 1000;
	if (!ret->at_ms)
		ret->at_ms = get_time(rd, o, "timestamp", why);
	ret->cpu_count = (uint32_t)get_int(rd, o, "cpuCount", 1000000, why);
	ret->cpu_used_pct = get_real(rd, o, "cpuUsedPct", why);
	ret->mem_used = get_int(rd, o, "memUsed", INT64_MAX, why);
	ret->mem_total = get_int(rd, o, "memTotal", INT64_MAX, why);
	ret->mem_cache = get_int(rd, o, "memCache", INT64_MAX, why);
	ret->disk_used = get_int(rd, o, "diskUsed", INT64_MAX, why);
	ret->disk_total = get_int(rd, o, "diskTotal", INT64_MAX, why);
}

static int by_time(const void *a, const void *b)
{
	const struct cloud_metric *x = a, *y = b;

	return x->at_ms < y->at_ms ? -1 : x->at_ms > y->at_ms;
}

int json_metrics(const void *p, size_t n, struct cloud_metrics **ret, const char **ret_why)
{
	json_auto_t *j = NULL;
	struct cloud_metrics *m;
	struct reader rd = { 0 };
	int r;

	r = load_list(p, n, JSON_METRICS_MAX, &j, ret_why);
	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (m)
		m->v = calloc(json_array_size(j) + 1, sizeof(*m->v));
	if (!m || !m->v) {
		cloud_metrics_free(m);
		return -ENOMEM;
	}
	for (size_t i = 0; i < json_array_size(j) && !rd.r; i++)
		get_metric(&rd, json_array_get(j, i), &m->v[m->n++]);
	if (rd.r) {
		*ret_why = rd.why;
		cloud_metrics_free(m);
		return rd.r;
	}
	qsort(m->v, m->n, sizeof(*m->v), by_time);
	*ret = m;
	return 0;
}

/* --- snapshots --- */

static struct cloud_snapshot *get_snapshot(struct reader *rd, const json_t *o)
{
	struct cloud_snapshot *s;

	if (!json_is_object(o)) {
		bad(rd, "a snapshot is not an object");
		return NULL;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		rd->r = rd->r ? rd->r : -ENOMEM;
		return NULL;
	}
	s->id = get_whole(rd, o, "snapshotID", true, CLOUD_ID_MAX, "snapshotID is missing, no text or too long");
	get_strs(rd, o, "names", &s->names, "names has a wrong type");
	return s;
}

int json_snapshot(const void *p, size_t n, struct cloud_snapshot **ret, const char **ret_why)
{
	json_auto_t *j = NULL;
	struct cloud_snapshot *s;
	struct reader rd = { 0 };
	int r;

	r = load(p, n, &j, ret_why);
	if (r < 0)
		return r;
	s = get_snapshot(&rd, j);
	if (rd.r) {
		*ret_why = rd.why;
		cloud_snapshot_free(s);
		return rd.r;
	}
	*ret = s;
	return 0;
}

int json_snapshots(const void *p, size_t n, struct cloud_snapshots *list, const char **ret_why)
{
	json_auto_t *j = NULL;
	struct reader rd = { 0 };
	int r;

	r = load_list(p, n, JSON_LIST_MAX, &j, ret_why);
	if (r < 0)
		return r;
	for (size_t i = 0; i < json_array_size(j); i++) {
		struct cloud_snapshot *s = get_snapshot(&rd, json_array_get(j, i));

		if (!rd.r && cloud_snapshots_add(list, s) < 0)
			rd.r = -ENOMEM;
		if (rd.r) {
			*ret_why = rd.why;
			cloud_snapshot_free(s);
			return rd.r;
		}
	}
	return 0;
}

/* --- errors --- */

void json_error(const void *p, size_t n, struct fault_body *ret)
{
	json_auto_t *j = NULL;
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
	json_auto_t *j = NULL;
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
	json_auto_t *j = NULL;
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
