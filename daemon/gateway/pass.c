/* SPDX-License-Identifier: MIT */
/*
 * A call of the control plane that goes on to the cloud as it is, with the account's key in the place of the caller's token: its bytes move
 * as those of a relayed request do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/templates.h"
#include "daemon/cloud/pass.h"
#include "daemon/common/http/join.h"
#include "daemon/common/http/relay_head.h"
#include "daemon/common/http/reply.h"
#include "daemon/gateway/impl.h"
#include "daemon/gateway/pass_made.h"
#include "proto/base/buf.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"
#include "proto/wire/h2.h"

#define PASS_MAGIC  0x67775053u
#define HEAD_COPIES 2u		/* of the request's head, on its way up */
#define PASS_TURN_MS 30000u	/* for which it waits for its turn, as a create does */

struct gateway_pass {
	uint32_t magic;
	struct list node;		/* in gateway.passes */
	struct gateway *g;
	struct http_stream *x;		/* the client's */
	struct cloud_pass *up;
	struct http_join join;
	bool over;
	const struct flavour *flavour;
	const struct gateway_account *account;
	struct pass_made *made;		/* NULL = it makes none */
	char *deletes;			/* a template; NULL = it does not */
	unsigned status;		/* of the answer, once that has begun to pass */
	struct quota *quota;		/* of the connection, which may end before it */
	size_t charged;
	struct grave grave;
};

static struct gateway_pass *pass_from(void *p)
{
	struct gateway_pass *s = p;

	must(s && s->magic == PASS_MAGIC);
	return s;
}

/* --- the end --- */

static void pass_free(void *p)
{
	struct gateway_pass *s = pass_from(p);

	s->magic = 0;
	free(s->deletes);
	quota_give(s->quota, s->charged);
	quota_unref(s->quota);
	free(s);
}

/* 404: it was gone. */
static void forget_deleted(struct gateway_pass *s)
{
	if (s->deletes && (s->status == 200 || s->status == 204 || s->status == 404))
		templates_forget(s->g->o.templates, s->account->name, s->deletes);
}

/* The client's exchange is the caller's now. */
static struct http_stream *pass_end(struct gateway_pass *s)
{
	must(!s->over);
	s->over = true;
	list_del(&s->node);
	s->g->counts.controls--;
	s->g->counts.relayed_up += s->join.up;
	s->g->counts.relayed_down += s->join.down;
	forget_deleted(s);
	s->made = pass_made_free(s->made);
	s->up = cloud_pass_free(s->up);
	loop_bury(s->g->loop, &s->grave, pass_free, s);
	return give(s->x);
}

static void pass_cut(struct gateway_pass *s)
{
	struct http_stream *x = pass_end(s);

	http_stream_reset(x, H2_CANCEL);
	http_stream_detach(x);
}

static void pass_fail(struct gateway_pass *s, unsigned http, const char *text)
{
	struct gateway *g = s->g;
	const struct flavour *f = s->flavour;

	gateway_refuse(g, pass_end(s), f, http, "%s", text);
}

/* --- bytes --- */

static enum http_join_state pass_join(struct gateway_pass *s, struct http_stream *y)
{
	enum http_join_state state = http_join_pump(&s->join, s->x, y);

	if (s->join.answered && !s->status)
		s->status = http_stream_status(y);
	return state;
}

static void pass_pump(struct gateway_pass *s)
{
	struct http_stream *y = cloud_pass_stream(s->up);
	const struct status *failure = cloud_pass_failure(s->up);

	if (http_stream_closed(s->x, NULL) != HTTP_OPEN) {
		http_stream_release(pass_end(s));
		return;
	}
	s->join.holds = s->made && y && !pass_made_look(s->made, y);
	switch (y ? pass_join(s, y) : failure ? HTTP_JOIN_LOST : HTTP_JOIN_OPEN) {
	case HTTP_JOIN_OPEN:
		break;
	case HTTP_JOIN_DONE:
		http_stream_detach(pass_end(s));
		break;
	case HTTP_JOIN_LEFT:
		http_stream_release(pass_end(s));
		break;
	case HTTP_JOIN_LOST:
		if (s->join.answered)
			pass_cut(s);
		else if (failure)
			pass_fail(s, 503, failure->text);
		/* Else the pool decides whether it is sent again. */
		break;
	}
}

static void pass_on_up(struct cloud_pass *p, void *user)
{
	struct gateway_pass *s = pass_from(user);

	if (!s->over)
		pass_pump(s);
}

static void pass_on_made(void *user)
{
	struct gateway_pass *s = pass_from(user);

	if (!s->over)
		pass_pump(s);
}

static void pass_on_down(struct http_stream *x, void *user)
{
	struct gateway_pass *s = pass_from(user);

	if (s->up)
		pass_pump(s);
	else if (http_stream_closed(x, NULL) != HTTP_OPEN)
		http_stream_release(pass_end(s));
}

/* --- opening --- */

/* Who asks is the account, and nobody else: what the caller shows stays here. */
static bool pass_keeps(const void *user, const char *name)
{
	return !str_starts(name, "agentboxd-") && !str_eq(name, "x-api-key") && !str_eq(name, "authorization") &&
	       !str_eq(name, "origin") && !str_eq(name, "x-access-token");
}

/* As the cloud says it. */
static void pass_limited(struct gateway_pass *s, const struct status *why)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	scoped(buf_fini) struct buf body = BUF_NULL;
	struct gateway *g = s->g;
	const struct flavour *f = s->flavour;
	struct http_stream *x = pass_end(s);

	g->counts.refused++;
	if (cloud_error_write(429, NULL, why->text, f, &body) < 0 ||
	    fields_printf(&extra, "retry-after", "%u", MAX((why->retry_after_ms + 999) / 1000, 1u)) < 0)
		reply_abort(x);
	else
		reply_send(x, 429, REPLY_JSON, &extra, buf_data(&body), buf_len(&body));
}

static void pass_open(struct gateway_pass *s, struct cloud *cloud, uid_t uid)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	const struct fields *in = http_stream_head(s->x);
	struct cloud_pass_ask a = { .cloud = cloud, .head = &head, .uid = uid,
				    .turn_by_ms = loop_now_ms(s->g->loop) + PASS_TURN_MS, .on_ready = pass_on_up, .user = s };
	const char *method = fields_get(in, ":method");
	struct status why = STATUS_OK;
	int r = relay_request_head(in, NULL, false, pass_keeps, NULL, &head);

	a.has_body = !http_stream_at_end(s->x);	/* all of a short one may be here, with its end */
	a.idempotent = str_eq(method, "GET") || str_eq(method, "HEAD");
	s->join.up_done = !a.has_body;
	if (r == 0)
		r = cloud_pass(&a, &s->up, &why);
	if (r == -EACCES)
		pass_fail(s, why.reason == R_KEY_MISSING || why.reason == R_KEY_REJECTED ? 401 : 503, why.text);
	else if (r == -EBUSY)
		pass_limited(s, &why);
	else if (r == -EMSGSIZE)
		pass_fail(s, 431, "the request's header fields are too large");
	else if (r < 0)
		pass_fail(s, 503, "out of memory");
}

static struct gateway_pass *pass_new(struct gateway *g, struct http_stream *x, const struct gateway_pass_ask *ask)
{
	struct http_conn *c = http_stream_conn(x);
	struct quota *q = c ? http_conn_quota(c) : NULL;
	size_t n = sizeof(struct gateway_pass) + HEAD_COPIES * http_stream_head(x)->bytes;
	struct gateway_pass *s;

	if (quota_take(q, n) < 0)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (s)
		*s = (struct gateway_pass){ .magic = PASS_MAGIC, .g = g, .x = x, .flavour = ask->flavour, .account = ask->account,
					    .quota = quota_ref(q), .charged = n };
	else
		quota_give(q, n);
	return s;
}

/* Without memory for it nobody is known to have made what is made, or a row of what is gone stays; neither harms. */
static void note_templates(struct gateway_pass *s, const struct gateway_pass_ask *ask)
{
	const struct pass_made_options o = { .loop = s->g->loop, .templates = s->g->o.templates, .account = ask->account, .uid = ask->uid,
					     .done = pass_on_made, .user = s };

	if (ask->makes && o.templates)
		s->made = pass_made_new(&o);
	if (ask->deletes && o.templates)
		s->deletes = strdup(ask->deletes);
}

void gateway_pass_request(struct gateway *g, struct http_stream *x, const struct gateway_pass_ask *ask)
{
	struct gateway_pass *s = ask->account ? pass_new(g, x, ask) : NULL;

	if (!s) {
		gateway_refuse(g, x, ask->flavour, 503, ask->account ? "too much is held for this client already"
								     : "your account is not configured");
		return;
	}
	list_add_tail(&g->passes, &s->node);
	g->counts.controls++;
	http_stream_set_owner(x, pass_on_down, s);
	note_templates(s, ask);
	pass_open(s, ask->account->cloud, ask->uid);
}

void gateway_pass_end_all(struct gateway *g)
{
	list_for_each_safe(n, &g->passes)
		pass_cut(list_entry(n, struct gateway_pass, node));
}
