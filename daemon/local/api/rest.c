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

#include "daemon/common/http/reply.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/teams.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"

#define REST_MAGIC 0x4e575e57u
#define ROUNDS_MAX 4u	/* transitions that one call waits for */

/* What is built; the rest of the table is refused by its name. */
static rest_handler *const handlers[CLOUD_ROUTES] = {
	[CLOUD_ROUTE_HEALTH] = rest_health,
	[CLOUD_ROUTE_CREATE] = rest_create_v1,
	[CLOUD_ROUTE_CREATE_V2] = rest_create_v2,
	[CLOUD_ROUTE_LIST_V1] = rest_list_v1,
	[CLOUD_ROUTE_LIST] = rest_list_v2,
	[CLOUD_ROUTE_METRICS_OF] = rest_metrics_of,
	[CLOUD_ROUTE_GET] = rest_get,
	[CLOUD_ROUTE_DELETE] = rest_delete,
	[CLOUD_ROUTE_TIMEOUT] = rest_timeout,
	[CLOUD_ROUTE_REFRESH] = rest_refreshes,
	[CLOUD_ROUTE_CONNECT] = rest_connect_v1,
	[CLOUD_ROUTE_CONNECT_V2] = rest_connect_v2,
	[CLOUD_ROUTE_RESUME] = rest_resume,
	[CLOUD_ROUTE_PAUSE] = rest_pause,
	[CLOUD_ROUTE_FORK] = rest_fork,
	[CLOUD_ROUTE_SNAPSHOT] = rest_snapshot,
	[CLOUD_ROUTE_NETWORK] = rest_set_network,
	[CLOUD_ROUTE_METRICS] = rest_metrics,
	[CLOUD_ROUTE_LOGS_V1] = rest_logs_v1,
	[CLOUD_ROUTE_LOGS] = rest_logs_v2,
	[CLOUD_ROUTE_SNAPSHOTS] = rest_snapshots,
	[CLOUD_ROUTE_TEMPLATE_DELETE] = rest_delete_template,
	[CLOUD_ROUTE_TEMPLATE_DELETE_RAW] = rest_delete_template,
	[CLOUD_ROUTE_TEMPLATE_ALIAS] = rest_template_alias,
	[CLOUD_ROUTE_TEMPLATE_ALIAS_RAW] = rest_template_alias,
	[CLOUD_ROUTE_TEMPLATE_TAGS] = rest_template_tags,
	[CLOUD_ROUTE_TEMPLATE_TAGS_RAW] = rest_template_tags,
	[CLOUD_ROUTE_TEMPLATE_TAGS_ADD] = rest_tags_assign,
	[CLOUD_ROUTE_TEMPLATE_TAGS_DELETE] = rest_tags_delete,
	[CLOUD_ROUTE_TEMPLATES_V1] = rest_templates_v1,
	[CLOUD_ROUTE_TEMPLATES] = rest_templates_v2,
	[CLOUD_ROUTE_TEMPLATE] = rest_template,
};

bool rest_is_built(enum cloud_route to)
{
	return handlers[to];
}

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

static bool has_flag(const struct rest *r, unsigned flag)
{
	return r->to < CLOUD_ROUTES && cloud_route_info(r->to)->flags & flag;
}

static void rest_journal(const struct rest *r, unsigned status, const char *message)
{
	const char *path, *word;
	char op[64];

	if (!has_flag(r, ROUTE_CHANGES))
		return;
	path = cloud_route_info(r->to)->path;
	word = strrchr(path, '/') + 1;
	snprintf(op, sizeof(op), "%s %s", cloud_route_info(r->to)->method, *word == '{' ? "sandboxes" : word);
	journal_add(r->l->journal, op,
		    json_pack("{s:s?, s:s?, s:i, s:s?, s:o}", "team", r->team, "sandbox",
			      r->id[0] ? r->id : NULL, "status", (int)status, "message", message,
			      "asked", asked(r)));
}

/* Takes `text`. Only a 204 has none: elsewhere it was lost to lack of memory. */
static void answer(struct rest *r, unsigned status, char *text, const char *message)
{
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
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

	json_decref(body);
	answer(r, status, text, NULL);
}

void rest_reply_text(struct rest *r, unsigned status, char *json)
{
	answer(r, status, json, NULL);
}

void rest_reply_doc(struct rest *r, unsigned status, enum cloud_doc_id doc, const void *v, unsigned part)
{
	int e;

	answer(r, status, cloud_json_text(doc, v, r->flavour, part, &e), NULL);
}

void rest_list_reply(struct rest *r, unsigned status, struct doc_list *l)
{
	char *text = doc_list_take(l);

	if (text)
		answer(r, status, text, NULL);
	else
		rest_fail(r, 500, "out of memory");
}

static void printf_like(5, 0) failv(struct rest *r, unsigned status, const char *error_code,
				    const char *prefix, const char *fmt, va_list ap)
{
	char message[400];
	va_list again;

	va_copy(again, ap);
	vsnprintf(message, sizeof(message), fmt, again);
	va_end(again);
	answer(r, status, answer_error(status, error_code, r->flavour, prefix, fmt, ap), message);
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

	return s && s->team == r->team && s->state != SANDBOX_CREATING && !s->is_served ? s : NULL;
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

	handlers[r->to](r);
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

void rest_limits(struct rest *r, const struct cloud_network *network, bool no_memory)
{
	bool internet = engine_have_egress(state_opts(r->l->state)->engine);
	bool headers = netrules_sets_headers(network);
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

bool rest_timeout_ok(struct rest *r, uint32_t timeout_s)
{
	uint32_t max_s = state_opts(r->l->state)->max_length_s;

	if (timeout_s && timeout_s <= max_s)
		return true;
	rest_fail(r, 400, timeout_s ? "Timeout cannot be greater than %u seconds"
				    : "Timeout must be between 1 and %u seconds",
		  max_s);
	return false;
}

bool rest_take(struct rest *r, enum cloud_doc_id doc, void *ret)
{
	struct cloud_json_error why;
	int e = cloud_json_take(doc, r->in, ret, &why);

	if (e == -ENOMEM)
		rest_fail(r, 500, "out of memory");
	else if (e < 0)
		rest_invalid(r, "request body has an error: %s", why.text);
	return e == 0;
}

/* --- the beginning of a call --- */

/* Sets the route, or answers. What is known and not built has a status that no client takes for an answer. */
static bool rest_match(struct rest *r)
{
	const char *method = reply_request(r->x, ":method");

	r->to = cloud_route_find(method ? method : "", r->query.segments, r->query.n_segments);
	if (r->to < CLOUD_ROUTES && handlers[r->to])
		return true;
	if (r->to < CLOUD_ROUTES)
		rest_fail(r, 501, "agentbox-local does not support %s %s", cloud_route_info(r->to)->method,
			  cloud_route_info(r->to)->path);
	else if (r->to == CLOUD_ROUTE_METHOD)
		rest_invalid(r, "method not allowed");
	else
		rest_fail(r, 404, "validation error: no matching operation was found");
	return false;
}

static bool rest_authenticate(struct rest *r)
{
	const char *key = reply_request(r->x, "x-api-key");

	if (r->to == CLOUD_ROUTE_HEALTH)
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
	size_t at = cloud_route_parameter(r->to, "{id}");
	char why[ANSWER_WHY_MAX];

	if (at < r->query.n_segments && cloud_id_parse(r->query.segments[at], r->id) < 0) {
		rest_fail(r, 400, "Invalid sandbox ID");
		return false;
	}
	if (answer_read_body(r->to, reply_request(r->x, "content-type"), buf_data(&r->body), buf_len(&r->body),
			     &r->in, why) == 0)
		return true;
	rest_fail(r, 400, "%s", why);
	return false;
}

static void rest_run(struct rest *r)
{
	if (rest_parse(r))
		handlers[r->to](r);
}

/* Takes what came of the body. False when the call ended. */
static bool rest_read(struct rest *r)
{
	int e = http_stream_take(r->x, &r->body);

	if (!e)
		return true;
	rest_fail(r, e == -EMSGSIZE || e == -ENOBUFS ? 413 : 500, "the request body is larger than %u bytes",
		  ANSWER_BODY_MAX);
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

	return length && str_u64(length, strlen(length), ANSWER_BODY_MAX, &n) < 0;
}

/* The key tells whose client it is; without one, AgentBox's words are all that is needed to refuse it. */
static const struct flavour *flavour_asked(const struct http_stream *x)
{
	const char *key = reply_request(x, "x-api-key");
	const struct flavour *f = key ? flavour_of_key(key) : NULL;

	return f ? f : flavour_get(FLAVOUR_AGENTBOX);
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
	r->to = CLOUD_ROUTE_UNKNOWN;
	r->flavour = flavour_asked(x);
	buf_init(&r->body, ANSWER_BODY_MAX);
	http_stream_set_owner(x, on_reading, r);
	e = query_parse(reply_request(x, ":path") ? reply_request(x, ":path") : "", &r->query);
	if (e < 0)
		rest_invalid(r, "malformed path or query");
	else if (!rest_match(r) || !rest_authenticate(r))
		return;
	else if (rest_length_is_bad(r))
		rest_fail(r, 413, "the request body is larger than %u bytes", ANSWER_BODY_MAX);
	else
		on_reading(x, r);
}
