/* SPDX-License-Identifier: MIT */
/*
 * The life of a call: route, scope of the token, body, in this order; then the handler. Who asks is known before any of it.
 */
#include "daemon/auth/owner.h"
#include "daemon/auth/templates.h"
#include "daemon/gateway/audit.h"
#include "daemon/gateway/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/token.h"
#include "daemon/auth/uid_quota.h"
#include "daemon/common/http/reply.h"
#include "daemon/gateway/refusal.h"
#include "daemon/gateway/words.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"
#include "proto/wire/trace.h"

#define CONTROL_MAGIC 0x474f4e54u

/* What the core answers; the rest of the contract's table is passed on, or refused by its name. */
static control_handler *const handlers[CLOUD_ROUTES] = {
	[CLOUD_ROUTE_HEALTH] = control_health,
	[CLOUD_ROUTE_CREATE] = control_create_v1,
	[CLOUD_ROUTE_CREATE_V2] = control_create_v2,
	[CLOUD_ROUTE_LIST_V1] = control_list_v1,
	[CLOUD_ROUTE_LIST] = control_list_v2,
	[CLOUD_ROUTE_METRICS_OF] = control_metrics_of,
	[CLOUD_ROUTE_GET] = control_get,
	[CLOUD_ROUTE_DELETE] = control_delete,
	[CLOUD_ROUTE_TIMEOUT] = control_timeout,
	[CLOUD_ROUTE_REFRESH] = control_refresh,
	[CLOUD_ROUTE_CONNECT] = control_connect_v1,
	[CLOUD_ROUTE_CONNECT_V2] = control_connect_v2,
	[CLOUD_ROUTE_RESUME] = control_resume,
	[CLOUD_ROUTE_PAUSE] = control_pause,
	[CLOUD_ROUTE_FORK] = control_fork,
	[CLOUD_ROUTE_SNAPSHOT] = control_snapshot,
	[CLOUD_ROUTE_NETWORK] = control_network,
	[CLOUD_ROUTE_METRICS] = control_metrics,
	[CLOUD_ROUTE_LOGS_V1] = control_logs,
	[CLOUD_ROUTE_LOGS] = control_logs,
	[CLOUD_ROUTE_SNAPSHOTS] = control_snapshots,
	[CLOUD_ROUTE_TEMPLATE_DELETE] = control_template_delete,
	[CLOUD_ROUTE_TEMPLATE_DELETE_RAW] = control_template_delete,
};

static struct gateway_control *control_from(void *p)
{
	struct gateway_control *c = p;

	must(c && c->magic == CONTROL_MAGIC);
	return c;
}

/* --- the end of a call --- */

static void control_free(void *p)
{
	struct gateway_control *c = control_from(p);

	c->magic = 0;
	if (c->free_state)
		c->free_state(c->state);
	token_unref(c->token);
	json_decref(c->in);
	query_fini(&c->query);
	buf_fini(&c->body);
	fields_fini(&c->extra);
	if (c->quota)
		quota_give(c->quota, c->parsed);
	quota_unref(c->quota);
	free(c);
}

static void control_end(struct gateway_control *c)
{
	sandbox_cancel(give(c->op));
	list_del(&c->node);
	c->g->counts.controls--;
	loop_bury(c->g->loop, &c->grave, control_free, c);
}

void control_reply(struct gateway_control *c, unsigned status, char *json)
{
	char result[16];

	snprintf(result, sizeof(result), "%u", status);
	gateway_audit_control(c, result);
	if (!json && status != 204)
		reply_abort(give(c->x));
	else
		reply_send(give(c->x), status, REPLY_JSON, &c->extra, json, json ? strlen(json) : 0);
	free(json);
	control_end(c);
}

void control_reply_doc(struct gateway_control *c, unsigned status, enum cloud_doc_id doc, const void *v, unsigned part)
{
	int e;
	char *text = cloud_json_text(doc, v, c->flavour, part, &e);

	if (text)
		control_reply(c, status, text);
	else if (e == -EINVAL)
		control_refuse(c, 500, "the cloud said something of the sandbox that is not UTF-8");
	else
		control_no_memory(c);
}

void control_reply_list(struct gateway_control *c, unsigned status, struct doc_list *l)
{
	char *text = doc_list_take(l);

	if (text)
		control_reply(c, status, text);
	else
		control_no_memory(c);
}

static void printf_like(5, 0) refuse_as(struct gateway_control *c, unsigned status, const char *error_code,
					const char *prefix, const char *fmt, va_list ap)
{
	c->g->counts.refused++;
	control_reply(c, status, answer_error(status, error_code, c->flavour, prefix, fmt, ap));
}

void control_refuse(struct gateway_control *c, unsigned status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	refuse_as(c, status, NULL, "", fmt, ap);
	va_end(ap);
}

void control_invalid(struct gateway_control *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	refuse_as(c, 400, NULL, "validation error: ", fmt, ap);
	va_end(ap);
}

void control_no_memory(struct gateway_control *c)
{
	control_refuse(c, 503, "out of memory");
}

printf_like(4, 5) static void refuse_for(struct gateway_control *c, const struct status *st, enum cloud_route to,
					 const char *fmt, ...)
{
	struct refusal r;
	va_list ap;

	refusal_of(st, to, &r);
	/* Without memory for it the answer is one header short. */
	if (r.retry_after_s)
		(void)!fields_printf(&c->extra, "retry-after", "%u", r.retry_after_s);
	va_start(ap, fmt);
	refuse_as(c, r.http, r.error_code, "", fmt, ap);
	va_end(ap);
}

void control_fail(struct gateway_control *c, const struct status *st)
{
	/* In these very words for all that is not there, whoever's it is. */
	if (st->reason == R_SANDBOX_NOT_FOUND && c->id[0])
		refuse_for(c, st, c->to, "sandbox \"%s\" doesn't exist or you don't have access to it", c->id);
	else
		refuse_for(c, st, c->to, "%s", st->text);
}

/* --- what handlers need --- */

bool control_take(struct gateway_control *c, enum cloud_doc_id doc, void *ret)
{
	struct cloud_json_error why;
	int e = cloud_json_take(doc, c->in, ret, &why);

	if (e == -ENOMEM)
		control_no_memory(c);
	else if (e < 0)
		control_invalid(c, "request body has an error: %s", why.text);
	return e == 0;
}

struct sandbox_call control_call(struct gateway_control *c, const char *sandbox)
{
	return (struct sandbox_call){ .who = &c->who, .sandbox = sandbox, .deadline_ms = c->deadline_ms, .trace = &c->trace, .user = c };
}

void control_started(struct gateway_control *c, int r)
{
	struct status st;

	if (!r)
		return;
	c->op = NULL;
	status_errno(&st, r, "asking");
	control_fail(c, &st);
}

struct gateway_control *control_done(void *user)
{
	struct gateway_control *c = control_from(user);

	c->op = NULL;
	return c;
}

bool control_is_run(const struct gateway_control *c)
{
	return c->token->run.pid;
}

bool control_token_policy(struct gateway_control *c, struct policy_change *ret)
{
	if (words_read_token(c->token->policy, ret))
		return true;
	control_refuse(c, 500, "the policy of your token cannot be read: make another one (agentboxctl token create)");
	return false;
}

int control_put_age(struct gateway_control *c, enum sandbox_source source, int64_t as_of_ms)
{
	static const char *const names[] = {
		[SANDBOX_FROM_CLOUD] = "cloud", [SANDBOX_FROM_CACHE] = "cache",
		[SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE] = "cache-cloud-unreachable",
	};
	int64_t age_s = as_of_ms ? (clock_wall_ms() - as_of_ms) / 1000 : 0;
	int r = fields_printf(&c->extra, "age", "%lld", (long long)MAX(age_s, (int64_t)0));

	return r < 0 ? r : fields_put(&c->extra, "agentboxd-source", names[source]);
}

const char *control_header(const struct gateway_control *c, const char *name)
{
	return reply_request(c->x, name);
}

/* --- the beginning of a call --- */

/* --- what the core does not answer --- */

static void read_uid(const struct gateway_control *c, struct gateway_uid *ret)
{
	*ret = (struct gateway_uid){ .passes = PASS_NONE, .account = "" };
	if (c->g->o.read_uid)
		c->g->o.read_uid(c->g->o.user, owner_uid(c->who.uid), ret);
}

/* "" = the first one; NULL: it is not configured. */
static const struct gateway_account *account_of(const struct gateway *g, const char *name)
{
	for (size_t i = 0; i < g->o.n_accounts; i++)
		if (str_is_empty(name) || str_eq(name, g->accounts[i].name))
			return &g->accounts[i];
	return NULL;
}

static bool makes_template(const struct gateway_control *c)
{
	return c->to == CLOUD_ROUTE_TEMPLATE_MAKE || c->to == CLOUD_ROUTE_TEMPLATE_MAKE_V1 || c->to == CLOUD_ROUTE_TEMPLATE_MAKE_V2;
}

/* Does it delete a template that its caller made here? By its id alone: a name may have become another's. */
static bool deletes_own(const struct gateway_control *c, const char *account)
{
	const struct gateway_account *a = account_of(c->g, account);
	uid_t uid;

	return c->to == CLOUD_ROUTE_TEMPLATE_DELETE && c->g->o.templates && a &&
	       templates_owner(c->g->o.templates, a->name, c->query.segments[1], &uid) && uid == c->who.uid;
}

void control_pass_on(struct gateway_control *c, const char *account)
{
	struct gateway_pass_ask ask = { .flavour = c->flavour, .account = account_of(c->g, account), .uid = c->who.uid,
					.makes = makes_template(c) };
	struct gateway *g = c->g;
	struct http_stream *x;

	gateway_audit_control(c, "passed-on");
	x = give(c->x);
	if (deletes_own(c, account))
		ask.deletes = c->query.segments[1];	/* there until this pass of the loop ends */
	control_end(c);
	gateway_pass_request(g, x, &ask);
}

/* Never: in no spelling of the path. */
static void refuse_never(struct gateway_control *c, const char *method)
{
	if (c->to == CLOUD_ROUTE_UNKNOWN)
		control_refuse(c, 404, "validation error: no matching operation was found");
	else
		control_refuse(c, 403, "agentboxd never passes %s %s on: a token of its gateway is no key of the account", method,
			       cloud_route_info(c->to)->path);
}

static void pass_or_refuse(struct gateway_control *c, const char *method)
{
	enum pass_level need = pass_needs(method, &c->query);
	struct gateway_uid u;

	read_uid(c, &u);
	if (need == PASS_ALL && deletes_own(c, u.account))
		need = PASS_TEMPLATES;
	if (need == PASS_NEVER)
		refuse_never(c, method);
	else if (c->token->n_sandboxes)
		control_refuse(c, 403, "this token is for %zu of your sandboxes and nothing else", c->token->n_sandboxes);
	else if (u.passes < need)
		control_refuse(c, 403, "agentboxd does not pass %s %s on: it would with relay = %s in [uid %u] of its configuration", method,
			       c->to < CLOUD_ROUTES ? cloud_route_info(c->to)->path : c->query.path, pass_level_name(need), owner_uid(c->who.uid));
	else
		control_pass_on(c, u.account);
}

/* The core knows which snapshots are its caller's; where all templates may be deleted the cloud does, as where this one may. */
static bool is_answered(const struct gateway_control *c)
{
	struct gateway_uid u;

	if (c->to >= CLOUD_ROUTES || !handlers[c->to])
		return false;
	if (handlers[c->to] != control_template_delete || c->token->n_sandboxes)
		return true;
	read_uid(c, &u);
	return u.passes < PASS_TEMPLATES || (u.passes == PASS_TEMPLATES && !deletes_own(c, u.account));
}

static bool control_match(struct gateway_control *c)
{
	const char *method = reply_request(c->x, ":method");

	method = method ? method : "";
	c->to = cloud_route_find(method, c->query.segments, c->query.n_segments);
	if (is_answered(c))
		return true;
	if (c->to == CLOUD_ROUTE_METHOD)
		control_invalid(c, "method not allowed");
	else
		pass_or_refuse(c, method);
	return false;
}

static bool control_take_id(struct gateway_control *c)
{
	size_t at = cloud_route_parameter(c->to, "{id}");

	if (at >= c->query.n_segments || cloud_id_parse(c->query.segments[at], c->id) == 0)
		return true;
	c->id[0] = '\0';
	control_refuse(c, 400, "Invalid sandbox ID");
	return false;
}

/* --- the scope of a token --- */

static void on_outside(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);

	if (status_ok(st))
		control_refuse(c, 403, "this token is not for sandbox %s", c->id);
	else
		control_fail(c, st);
}

/* Whether it is there is told to its owner alone: what is not the owner's is answered as by any other token. */
static void refuse_outside(struct gateway_control *c)
{
	struct sandbox_call call = control_call(c, c->id);

	control_started(c, sandbox_get(c->g->o.core, &call, SANDBOX_STALENESS_DEFAULT, on_outside, &c->op));
}

static bool is_for_any_token(enum cloud_route to)
{
	return to == CLOUD_ROUTE_HEALTH || to == CLOUD_ROUTE_LIST || to == CLOUD_ROUTE_LIST_V1 ||
	       to == CLOUD_ROUTE_METRICS_OF;
}

/* What a token for some sandboxes may not: make others, or change what all share. */
static bool leads_outside(const struct gateway_control *c)
{
	return c->token->n_sandboxes && (c->to == CLOUD_ROUTE_FORK || c->to == CLOUD_ROUTE_SNAPSHOT ||
			      (!c->id[0] && !is_for_any_token(c->to)));
}

static void refuse_for_memory(struct gateway_control *c)
{
	(void)!fields_put(&c->extra, "retry-after", "1");
	control_refuse(c, 429, "uid %u has too many bytes of requests under way", owner_uid(c->who.uid));
}

static bool charge_parsed(struct gateway_control *c)
{
	size_t n = CONTROL_PARSED * buf_len(&c->body);

	if (c->quota && quota_take(c->quota, n) < 0)
		return false;
	c->parsed = n;
	return true;
}

static void control_run(struct gateway_control *c)
{
	char why[ANSWER_WHY_MAX];

	if (c->id[0] && !token_covers(c->token, c->id))
		refuse_outside(c);
	else if (leads_outside(c))
		control_refuse(c, 403, "this token is for %zu of your sandboxes and can neither make nor delete anything else",
			       c->token->n_sandboxes);
	else if (!charge_parsed(c))
		refuse_for_memory(c);
	else if (answer_read_body(c->to, reply_request(c->x, "content-type"), buf_data(&c->body), buf_len(&c->body), &c->in,
				  why) < 0)
		control_refuse(c, 400, "%s", why);
	else
		handlers[c->to](c);
}

/* --- the body --- */

/* Takes what came. False when the call ended. */
static bool control_read(struct gateway_control *c)
{
	int e = http_stream_take(c->x, &c->body);

	if (e == -ENOBUFS)
		refuse_for_memory(c);
	else if (e == -EMSGSIZE)
		control_refuse(c, 413, "the request body is larger than %u bytes", ANSWER_BODY_MAX);
	else if (e < 0)
		control_no_memory(c);
	return !e;
}

static void control_gone(struct gateway_control *c)
{
	gateway_audit_control(c, "CANCELLED");
	http_stream_release(give(c->x));
	control_end(c);
}

static void on_waiting(struct http_stream *x, void *user)
{
	if (http_stream_closed(x, NULL) != HTTP_OPEN)
		control_gone(control_from(user));
}

static void on_reading(struct http_stream *x, void *user)
{
	struct gateway_control *c = control_from(user);

	if (http_stream_closed(x, NULL) != HTTP_OPEN) {
		control_gone(c);
		return;
	}
	if (!control_read(c) || !http_stream_at_end(x))
		return;
	http_stream_set_owner(x, on_waiting, c);
	control_run(c);
}

static bool length_is_bad(const struct gateway_control *c)
{
	const char *length = reply_request(c->x, "content-length");
	uint64_t n;

	return length && str_u64(length, strlen(length), ANSWER_BODY_MAX, &n) < 0;
}

static struct gateway_control *control_new(struct gateway *g, struct http_stream *x, const struct gateway_caller *by)
{
	struct gateway_control *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->magic = CONTROL_MAGIC;
	c->g = g;
	c->x = x;
	c->to = CLOUD_ROUTE_UNKNOWN;
	trace_of(http_stream_head(x), &c->trace);
	c->deadline_ms = clock_boot_ms() + CONTROL_DEADLINE_MS;
	buf_init(&c->body, ANSWER_BODY_MAX);
	c->quota = g->o.quotas ? uid_quota(g->o.quotas, by->who.uid) : NULL;
	buf_set_quota(&c->body, c->quota);
	c->who = by->who;
	c->token = token_ref(by->token);
	c->flavour = by->flavour;
	list_add_tail(&g->controls, &c->node);
	g->counts.controls++;
	return c;
}

void gateway_control_request(struct gateway *g, struct http_stream *x, const struct gateway_caller *by)
{
	struct gateway_control *c = control_new(g, x, by);
	const char *path = reply_request(x, ":path");
	int e;

	if (!c) {
		reply_abort(x);
		return;
	}
	http_stream_set_owner(x, on_reading, c);
	e = query_parse(path ? path : "", &c->query);
	if (e == -ENOMEM)
		control_no_memory(c);
	else if (e < 0)
		control_invalid(c, "malformed path or query");
	else if (!control_match(c) || !control_take_id(c))
		return;
	else if (length_is_bad(c))
		control_refuse(c, 413, "the request body is larger than %u bytes", ANSWER_BODY_MAX);
	else
		on_reading(x, c);
}

void gateway_control_end_all(struct gateway *g)
{
	struct status st;

	status_set(&st, R_DRAINING, "the daemon is stopping");
	list_for_each_safe(n, &g->controls)
		control_fail(list_entry(n, struct gateway_control, node), &st);
}
