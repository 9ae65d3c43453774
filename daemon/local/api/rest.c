/* SPDX-License-Identifier: MIT */
/*
 * The control plane's front: route, key, body, in this order, as the cloud does; then the handler.
 * A call whose client is gone goes on if its handler had begun.
 */
#include "daemon/local/api/rest.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/local/egress/netrule.h"
#include "daemon/local/http/reply.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/teams.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define REST_MAGIC 0x4e575e57u
#define ROUNDS_MAX 4u	/* transitions that one call waits for */

static const struct rest_route routes[] = {
	{ "GET", { "health" }, .fn = rest_health },
	{ "POST", { "sandboxes" }, rest_create_v1, .changes = true, .body_required = true },
	{ "POST", { "v2", "sandboxes" }, rest_create_v2, .changes = true, .body_required = true },
	{ "GET", { "sandboxes" }, rest_list_v1 },
	{ "GET", { "v2", "sandboxes" }, rest_list_v2 },
	{ "GET", { "sandboxes", "metrics" }, rest_metrics_of },
	{ "GET", { "sandboxes", "{id}" }, rest_get },
	{ "DELETE", { "sandboxes", "{id}" }, rest_delete, .changes = true },
	{ "POST", { "sandboxes", "{id}", "timeout" }, rest_timeout, .changes = true,
	  .body_required = true },
	{ "POST", { "sandboxes", "{id}", "refreshes" }, rest_refreshes, .changes = true },
	{ "POST", { "sandboxes", "{id}", "connect" }, rest_connect_v1, .changes = true,
	  .body_required = true },
	{ "POST", { "v2", "sandboxes", "{id}", "connect" }, rest_connect_v2, .changes = true },
	{ "POST", { "sandboxes", "{id}", "resume" }, rest_resume, .changes = true },
	{ "POST", { "sandboxes", "{id}", "pause" }, rest_pause, .changes = true },
	{ "POST", { "sandboxes", "{id}", "fork" }, rest_fork, .changes = true },
	{ "POST", { "sandboxes", "{id}", "snapshots" }, rest_snapshot, .changes = true,
	  .body_required = true },
	{ "PUT", { "sandboxes", "{id}", "network" }, rest_set_network, .changes = true,
	  .body_required = true },
	{ "GET", { "sandboxes", "{id}", "metrics" }, rest_metrics },
	{ "GET", { "sandboxes", "{id}", "logs" }, rest_logs_v1 },
	{ "GET", { "v2", "sandboxes", "{id}", "logs" }, rest_logs_v2 },
	{ "GET", { "snapshots" }, rest_snapshots },
	{ "DELETE", { "templates", "*" }, rest_delete_template, .changes = true },
	/* "team/name" that was not encoded */
	{ "DELETE", { "templates", "*", "*" }, rest_delete_template, .changes = true },
};

static struct rest *rest_from(void *p)
{
	struct rest *r = p;

	must(r && r->magic == REST_MAGIC);
	return r;
}

/* --- the end of a call --- */

static void rest_free(void *p)
{
	struct rest *r = rest_from(p);

	r->magic = 0;
	json_decref(r->in);
	query_fini(&r->query);
	buf_fini(&r->body);
	fields_fini(&r->extra);
	free(r);
}

static void rest_bury(struct rest *r)
{
	loop_bury(r->l->loop, &r->grave, rest_free, r);
}

/* Every text below `v` becomes a dot. */
static void hide(json_t *v)
{
	const char *key;
	json_t *value;
	size_t i;

	if (json_is_string(v))
		(void)json_string_set(v, "…");
	json_object_foreach(v, key, value)
		hide(value);
	json_array_foreach(v, i, value)
		hide(value);
}

/* What was asked for, without what may hold secrets. */
static json_t *asked(const struct rest *r)
{
	static const char *const secret[] = { "envVars", "mcp", "iam", "egressProxy", "rules" };
	json_t *copy = r->in ? json_deep_copy(r->in) : json_null();
	json_t *network = json_object_get(copy, "network");

	for (size_t i = 0; i < ARRAY_SIZE(secret); i++) {
		hide(json_object_get(copy, secret[i]));
		hide(json_object_get(network, secret[i]));
	}
	return copy;
}

static void rest_journal(const struct rest *r, unsigned status, const char *message)
{
	char op[64];

	if (!r->route || !r->route->changes)
		return;
	snprintf(op, sizeof(op), "%s %s", r->route->method,
		 r->route->path[3]   ? r->route->path[3]
		 : r->route->path[2] ? r->route->path[2]
				     : "sandboxes");
	journal_add(r->l->journal, op,
		    json_pack("{s:s?, s:s?, s:i, s:s?, s:o}", "team", r->team, "sandbox",
			      r->id[0] ? r->id : NULL, "status", (int)status, "message", message,
			      "asked", asked(r)));
}

/* Steals body. Only a 204 has none: elsewhere it was lost to lack of memory. */
static void rest_answer(struct rest *r, unsigned status, json_t *body, const char *message)
{
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

	json_decref(body);
	rest_journal(r, status, message);
	if (r->x && !text && status != 204)
		reply_abort(give(r->x));
	else if (r->x)
		reply_send(give(r->x), status, REPLY_JSON, &r->extra, text,
			   text ? strlen(text) : 0);
	free(text);
	rest_bury(r);
}

void rest_reply(struct rest *r, unsigned status, json_t *body)
{
	rest_answer(r, status, body, NULL);
}

static void rest_fail_with(struct rest *r, unsigned status, const char *error_code, const char *message)
{
	json_t *body = json_pack("{s:i, s:s}", "code", (int)status, "message", message);

	if (error_code && body)
		(void)json_object_set_new(body, "error_code", json_string(error_code));
	rest_answer(r, status, body, message);
}

static void printf_like(5, 0) failv(struct rest *r, unsigned status, const char *error_code,
				    const char *prefix, const char *fmt, va_list ap)
{
	char text[400];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s", prefix);

	vsnprintf(text + n, sizeof(text) - n, fmt, ap);
	/* A cut may have gone through a character. */
	for (n = strlen(text); n && !str_is_utf8(text, n); n--)
		text[n - 1] = 0;
	rest_fail_with(r, status, error_code, text);
}

void rest_fail(struct rest *r, unsigned status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	failv(r, status, NULL, "", fmt, ap);
	va_end(ap);
}

void rest_fail_code(struct rest *r, unsigned status, const char *error_code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	failv(r, status, error_code, "", fmt, ap);
	va_end(ap);
}

void rest_invalid(struct rest *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	failv(r, 400, NULL, "validation error: ", fmt, ap);
	va_end(ap);
}

void rest_unsupported(struct rest *r, const char *what)
{
	rest_fail(r, 400, "agentbox-local does not support %s", what);
}

/* --- what handlers need --- */

struct sandbox *rest_find(struct rest *r)
{
	struct sandbox *s = state_find(r->l->state, r->id);

	return s && s->team == r->team && s->state != SANDBOX_CREATING ? s : NULL;
}

void rest_no_sandbox(struct rest *r)
{
	rest_fail(r, 404, "sandbox \"%s\" doesn't exist or you don't have access to it", r->id);
}

struct sandbox *rest_sandbox(struct rest *r)
{
	struct sandbox *s = rest_find(r);

	if (s && s->state != SANDBOX_KILLING)
		return s;
	rest_no_sandbox(r);
	return NULL;
}

struct sandbox *rest_running(struct rest *r)
{
	struct sandbox *s = rest_find(r);

	if (s && s->state == SANDBOX_RUNNING)
		return s;
	if (!s || s->state == SANDBOX_PAUSED)
		rest_no_sandbox(r);
	else
		rest_fail(r, 409, "sandbox \"%s\" is changing its state", r->id);
	return NULL;
}

static void on_settled(struct sandbox_wait *w)
{
	struct rest *r = container_of(w, struct rest, wait);

	r->route->fn(r);
}

void rest_wait(struct rest *r, struct sandbox *s)
{
	if (++r->rounds > ROUNDS_MAX) {
		rest_fail(r, 409, "sandbox \"%s\" keeps changing its state", r->id);
		return;
	}
	r->wait.done = on_settled;
	sandbox_wait(s, &r->wait);
}

void rest_limit(struct rest *r, const char *what)
{
	/* Without memory for it the answer is one header short. */
	(void)!fields_put(&r->extra, "x-agentbox-local-limits", what);
}

void rest_limits(struct rest *r, const json_t *network, bool no_memory)
{
	bool internet = engine_have_egress(state_opts(r->l->state)->engine);
	bool headers = netrule_has_headers(network);
	const char *const words[] = { internet ? NULL : "no-internet", no_memory ? "no-memory" : NULL,
				      headers ? "no-tls-rules" : NULL };
	char text[64] = "";

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(text);

		if (words[i])
			snprintf(text + n, sizeof(text) - n, "%s%s", n ? ", " : "", words[i]);
	}
	if (text[0])
		rest_limit(r, text);
}

int rest_timeout_s(struct rest *r, int64_t *ret)
{
	uint32_t max_s = state_opts(r->l->state)->max_length_s;

	if (rest_int(r, "timeout", 0, INT32_MAX, ret) < 0)
		return -EINVAL;
	if (*ret && *ret <= max_s)
		return 0;
	rest_fail(r, 400, *ret ? "Timeout cannot be greater than %u seconds"
			       : "Timeout must be between 1 and %u seconds",
		  max_s);
	return -EINVAL;
}

int rest_int(struct rest *r, const char *key, int64_t min, int64_t max, int64_t *ret)
{
	json_t *v = json_object_get(r->in, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
		rest_invalid(r, "%s must be a whole number from %lld to %lld", key, (long long)min,
			     (long long)max);
		return -EINVAL;
	}
	*ret = json_integer_value(v);
	return 1;
}

int rest_bool(struct rest *r, const char *key, bool *ret)
{
	json_t *v = json_object_get(r->in, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_boolean(v)) {
		rest_invalid(r, "%s must be true or false", key);
		return -EINVAL;
	}
	*ret = json_is_true(v);
	return 1;
}

int rest_string_map(struct rest *r, const char *key, json_t **ret)
{
	json_t *v = json_object_get(r->in, key), *value;
	const char *name;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_object(v)) {
		rest_invalid(r, "%s must be an object of strings", key);
		return -EINVAL;
	}
	json_object_foreach(v, name, value) {
		if (json_is_string(value))
			continue;
		rest_invalid(r, "%s: every value must be a string", key);
		return -EINVAL;
	}
	*ret = v;
	return 1;
}

/* --- the beginning of a call --- */

static bool path_matches(const struct rest_route *route, const struct query *q)
{
	for (size_t i = 0; i < ARRAY_SIZE(route->path); i++) {
		const char *want = route->path[i];

		if (!want || i >= q->n_segments)
			return !want && i >= q->n_segments;
		if (str_eq(want, "{id}") || str_eq(want, "*")) {
			if (!*q->segments[i])
				return false;
		} else if (!str_eq(want, q->segments[i])) {
			return false;
		}
	}
	return q->n_segments <= ARRAY_SIZE(route->path);
}

/* Sets the route, or answers. */
static bool rest_match(struct rest *r)
{
	const char *method = reply_request(r->x, ":method");
	bool known = false;

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!path_matches(&routes[i], &r->query))
			continue;
		known = true;
		if (method && str_eq(method, routes[i].method)) {
			r->route = &routes[i];
			return true;
		}
	}
	if (known)
		rest_invalid(r, "method not allowed");
	else
		rest_fail(r, 404, "validation error: no matching operation was found");
	return false;
}

static bool rest_authenticate(struct rest *r)
{
	const char *key = reply_request(r->x, "x-api-key");

	if (r->route->fn == rest_health)
		return true;
	r->team = teams_of_key(r->l->teams, key);
	if (r->team)
		return true;
	rest_fail(r, 401, "%s", key ? "the API key is not valid" : "no API key was given (X-API-Key)");
	return false;
}

/* Path parameters, then the body's form. */
static bool rest_parse(struct rest *r)
{
	const char *type = reply_request(r->x, "content-type");
	json_error_t e;

	for (size_t i = 0; i < ARRAY_SIZE(r->route->path) && r->route->path[i]; i++) {
		if (!str_eq(r->route->path[i], "{id}"))
			continue;
		if (route_sandbox_id(r->query.segments[i], r->id) < 0) {
			rest_fail(r, 400, "Invalid sandbox ID");
			return false;
		}
	}
	if (!buf_len(&r->body)) {
		if (!r->route->body_required)
			return true;
		rest_invalid(r, "request body has an error: value is required but missing");
		return false;
	}
	if (str_eq(r->route->method, "GET") || str_eq(r->route->method, "DELETE"))
		return true;
	if (!type || strncasecmp(type, "application/json", 16) != 0) {
		rest_invalid(r, "header Content-Type must be application/json");
		return false;
	}
	r->in = json_loadb((const char *)buf_data(&r->body), buf_len(&r->body), 0, &e);
	if (!json_is_object(r->in)) {
		rest_invalid(r, "request body has an error: %s",
			     r->in ? "it must be an object" : e.text);
		return false;
	}
	return true;
}

static void rest_run(struct rest *r)
{
	if (rest_parse(r))
		r->route->fn(r);
}

/* Takes what came of the body. False when the call ended. */
static bool rest_read(struct rest *r)
{
	const uint8_t *p;
	size_t n = http_stream_peek(r->x, &p);
	int e = 0;

	if (n) {
		e = buf_put(&r->body, p, n);
		http_stream_consume(r->x, n);
	}
	if (!e)
		return true;
	rest_fail(r, e == -ENOBUFS ? 413 : 500, "the request body is larger than %u bytes",
		  REST_BODY_MAX_BYTES);
	return false;
}

static void on_waiting(struct http_stream *x, void *user)
{
	struct rest *r = rest_from(user);

	if (http_stream_closed(x, NULL) == HTTP_OPEN)
		return;
	http_stream_release(give(r->x));
}

static void on_reading(struct http_stream *x, void *user)
{
	struct rest *r = rest_from(user);

	if (http_stream_closed(x, NULL) != HTTP_OPEN) {
		http_stream_release(give(r->x));
		rest_bury(r);
		return;
	}
	if (!rest_read(r) || !http_stream_at_end(x))
		return;
	http_stream_set_owner(x, on_waiting, r);
	rest_run(r);
}

static bool rest_length_is_bad(const struct rest *r)
{
	const char *length = reply_request(r->x, "content-length");
	uint64_t n;

	return length && str_u64(length, strlen(length), REST_BODY_MAX_BYTES, &n) < 0;
}

void rest_request(struct local *l, struct http_stream *x)
{
	struct rest *r;
	int e;

	if (reply_preflight(x))
		return;
	r = calloc(1, sizeof(*r));
	if (!r) {
		reply_abort(x);
		return;
	}
	r->magic = REST_MAGIC;
	r->l = l;
	r->x = x;
	buf_init(&r->body, REST_BODY_MAX_BYTES);
	http_stream_set_owner(x, on_reading, r);
	e = query_parse(reply_request(x, ":path") ? reply_request(x, ":path") : "", &r->query);
	if (e < 0)
		rest_invalid(r, "malformed path or query");
	else if (!rest_match(r) || !rest_authenticate(r))
		return;
	else if (rest_length_is_bad(r))
		rest_fail(r, 413, "the request body is larger than %u bytes", REST_BODY_MAX_BYTES);
	else
		on_reading(x, r);
}
