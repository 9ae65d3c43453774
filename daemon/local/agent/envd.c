/* SPDX-License-Identifier: MIT */
#include "daemon/local/agent/envd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/local/agent/envd_fs.h"
#include "daemon/local/state/local.h"
#include "proto/base/clock.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

#define MIB (1024 * 1024)

const char *envd_default_user(const struct sandbox *s)
{
	return s->run->user ? s->run->user : CALL_DEFAULT_USER;
}

static char *resolve(const struct sandbox *s, const struct container_user *u, const char *path)
{
	char *out;

	if (!*path && s->run->workdir)
		path = s->run->workdir;

	errno = ENOMEM;
	if (path[0] == '/')
		return str_dup(path);
	if (path[0] == '~') {
		if (path[1] && path[1] != '/') {
			errno = EINVAL;
			return NULL;
		}
		path++;
	}
	if (!path[strspn(path, "/")])
		return str_dup(u->home);
	out = str_printf("%s/%s", u->home, path);
	if (out)
		str_clean_path(out);
	return out;
}

char *envd_path_of_text(const struct sandbox *s, const struct container_user *u, const char *text)
{
	char *path = name_from_text(text), *out;

	errno = ENOMEM;
	out = path ? resolve(s, u, path) : NULL;
	free(path);
	return out;
}

char *envd_path_of_request(const struct sandbox *s, const struct container_user *u, const struct http_stream *x,
			   const char *path)
{
	const char *form = reply_request(x, NAME_FORM_FIELD);

	return form && str_eq(form, NAME_FORM_RAW) ? resolve(s, u, path) : envd_path_of_text(s, u, path);
}

json_t *envd_name_json(const char *name)
{
	char *text = name_to_text(name);
	json_t *o = text ? json_string(text) : NULL;

	free(text);
	return o;
}

void envd_stop(struct sandbox *s)
{
	envd_serve_stop(s);
	envd_inside_stop(s);
	envd_watch_stop(s);
	envd_process_stop(s);
}

json_t *envd_globals(const struct sandbox *s, bool with_creations)
{
	json_t *o = json_object();
	int r = o ? 0 : -1;

	for (size_t i = 0; with_creations && r == 0 && i < s->env_vars.n; i++)
		r = json_object_set_new(o, s->env_vars.v[i].key, json_string(s->env_vars.v[i].value));
	if (r < 0 || json_object_set_new(o, "E2B_SANDBOX", json_string("true")) < 0 ||
	    json_object_set_new(o, "E2B_SANDBOX_ID", json_string(s->id)) < 0 ||
	    json_object_set_new(o, "E2B_TEMPLATE_ID", json_string(s->template->id)) < 0 ||
	    json_object_set_new(o, "E2B_EVENTS_ADDRESS", json_string("http://192.0.2.1")) < 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* --- plain HTTP calls --- */

static void health(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;

	if (fields_put(&extra, "cache-control", "no-store") < 0)
		reply_abort(x);
	else
		reply_send(x, 204, NULL, &extra, NULL, 0);
}

/* Share of all processors since the last time somebody asked. */
static double cpu_used_pct(struct sandbox *s, const struct container_usage *u)
{
	uint64_t now_us = clock_boot_us();
	uint64_t from_us = s->cpu_asked_us ? s->cpu_asked_us : s->started_ms * 1000;
	double pct = meter_cpu_pct(u, s->cpu_us, from_us, now_us);

	s->cpu_us = u->cpu_us;
	s->cpu_asked_us = now_us;
	return pct;
}

static void metrics(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q)
{
	scoped(buf_fini) struct buf out = BUF_NULL;
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	struct container_usage u = { 0 };
	int r = fields_put(&extra, "cache-control", "no-store");

	container_usage(s->container, &u);
	if (!r)
		r = buf_printf(&out,
			       "{\"ts\":%lld,\"cpu_count\":%u,\"cpu_used_pct\":%.2f,\"mem_total\":%llu,"
			       "\"mem_used\":%llu,\"mem_cache\":%llu,\"disk_used\":%llu,\"disk_total\":%llu,"
			       "\"mem_total_mib\":%llu,\"mem_used_mib\":%llu}",
			       (long long)(clock_wall_ms() / 1000), u.n_cpus, cpu_used_pct(s, &u),
			       (unsigned long long)u.mem_limit_bytes, (unsigned long long)u.mem_bytes,
			       (unsigned long long)u.mem_cache_bytes, (unsigned long long)u.disk_used_bytes,
			       (unsigned long long)u.disk_total_bytes,
			       (unsigned long long)(u.mem_limit_bytes / MIB),
			       (unsigned long long)(u.mem_bytes / MIB));
	if (r < 0)
		reply_abort(x);
	else
		reply_send(x, 200, REPLY_JSON, &extra, buf_data(&out), buf_len(&out));
}

static void envs(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	json_auto_t *o = envd_globals(s, true);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	if (!text || fields_put(&extra, "cache-control", "no-store") < 0)
		reply_abort(x);
	else
		reply_send(x, 200, REPLY_JSON, &extra, text, strlen(text));
	free(text);
}

static const struct endpoint {
	const char *method, *path;
	bool open;		/* checks the token itself, or needs none */
	void (*fn)(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q);
} endpoints[] = {
	{ "GET", "/health", true, health },
	{ "GET", "/metrics", false, metrics },
	{ "GET", "/envs", false, envs },
	{ "GET", "/files", true, files_get },
	{ "POST", "/files", true, files_post },
	{ "POST", "/files/compose", false, files_compose },
};

static const struct rpc_method *find_rpc(const char *path)
{
	for (const struct rpc_method *m = envd_process_methods; m->path; m++)
		if (str_eq(m->path, path))
			return m;
	for (const struct rpc_method *m = envd_fs_methods; m->path; m++)
		if (str_eq(m->path, path))
			return m;
	return NULL;
}

/* NULL if there is none; *ret_known: the path exists with another method. */
static const struct endpoint *find_endpoint(const char *method, const char *path, bool *ret_known)
{
	const struct endpoint *e = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(endpoints); i++) {
		if (!str_eq(endpoints[i].path, path))
			continue;
		*ret_known = true;
		if (str_eq(endpoints[i].method, method))
			e = &endpoints[i];
	}
	return e;
}

/* With the methods that the path has, a line for each. */
static void refuse_method(struct http_stream *x, const char *path)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(endpoints) && !r; i++)
		if (str_eq(endpoints[i].path, path))
			r = fields_put(&extra, "allow", endpoints[i].method);
	if (r < 0)
		reply_abort(x);
	else
		reply_send(x, 405, NULL, &extra, NULL, 0);
}

void envd_request(struct local *l, struct sandbox *s, struct http_stream *x)
{
	const char *method = reply_request(x, ":method");
	const struct endpoint *e;
	const struct rpc_method *rpc;
	struct query q = QUERY_NULL;
	bool known = false;

	if (!method || query_parse(reply_request(x, ":path"), &q) < 0) {
		reply_envd_error(x, 400, "malformed path or query");
		return;
	}
	e = find_endpoint(method, q.path, &known);
	rpc = find_rpc(q.path);
	if (!(e && e->open) && s->policy.secure &&
	    !reply_request_has(x, "x-access-token", s->token))
		reply_envd_error(x, 401, "unauthorized access, please provide a valid access token "
					 "or method signing if supported");
	else if (rpc)
		call_request(l, s, x, rpc);
	else if (e)
		e->fn(l, s, x, &q);
	else if (known)
		refuse_method(x, q.path);
	else
		reply_text(x, 404, "404 page not found");
	query_fini(&q);
}
