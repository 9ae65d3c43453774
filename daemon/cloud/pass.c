/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/pass.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/cloud/account.h"
#include "daemon/cloud/fault.h"
#include "daemon/common/obs/log.h"
#include "daemon/common/obs/redact.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

struct cloud_pass {
	struct cloud *cloud;
	struct limiter_ticket ticket;
	struct timer turn;		/* the last moment for its turn */
	struct fields fields;
	char *method, *path;
	struct pool_req *req;		/* NULL: it waits */
	struct status failure;		/* of one that got no turn */
	bool has_body, idempotent;
	void (*on_ready)(struct cloud_pass *p, void *user);
	void *user;
	struct grave grave;
};

static int put_pass_fields(struct fields *f, const struct cloud_pass_ask *a)
{
	int r = fields_put_secret(f, "x-api-key", a->cloud->key);

	redact_note(a->cloud->key);
	if (r == 0)
		r = fields_put(f, CLOUD_HOP, "1");
	for (uint32_t i = 0; r == 0 && i < a->head->n; i++) {
		const char *name = fields_name(a->head, i);

		if (name[0] != ':' && !str_eq(name, "cookie"))
			r = fields_add(f, name, a->head->v[i].name_len, fields_value(a->head, i), a->head->v[i].value_len,
				       a->head->v[i].secret);
	}
	return r;
}

/* --- the limiter --- */

static void limiter_done(struct cloud_pass *p, bool ok)
{
	if (p->ticket.state == LIMITER_IDLE)
		return;
	limiter_leave(&p->cloud->limiter, &p->ticket, ok);
	defer_post(&p->cloud->pump);
}

/* The answer has begun: what follows is bytes, which may take as long as they want. */
static void look_at_head(struct cloud_pass *p)
{
	struct http_stream *y = pool_req_x(p->req);
	const struct fields *head = y ? http_stream_head(y) : NULL;
	bool limited = head && http_stream_status(y) == 429;
	uint32_t for_ms;

	if (p->ticket.state == LIMITER_IDLE || (!head && !pool_req_failure(p->req)))
		return;
	if (limited) {
		for_ms = fault_retry_after_ms(fields_get(head, "retry-after"), clock_wall_ms());
		log_warn("cloud_limited", "account=%s route=passed for_ms=%u queued=%u", p->cloud->account, for_ms,
			 p->cloud->limiter.n_queued);
		limiter_block(&p->cloud->limiter, CLOUD_LIMITER_PASSED, for_ms, loop_now_ms(p->cloud->loop));
	}
	limiter_done(p, head && !limited);
}

static void pass_on_ready(struct pool_req *r, void *user)
{
	struct cloud_pass *p = user;

	look_at_head(p);
	p->on_ready(p, p->user);
}

static void pass_no_turn(struct timer *t, void *user)
{
	struct cloud_pass *p = user;

	if (p->req || !status_ok(&p->failure))
		return;
	limiter_done(p, false);
	status_set(&p->failure, R_DEADLINE_REQUEST, "the account's turn did not come in time: too much is asked of its cloud");
	p->on_ready(p, p->user);
}

void cloud_pass_send(struct limiter_ticket *t)
{
	struct cloud_pass *p = container_of(t, struct cloud_pass, ticket);
	struct cloud *c = p->cloud;
	struct pool_target target;

	timer_clear(&p->turn);
	cloud_target(c, &c->api, &target);
	target.group = c->key_group;
	p->req = pool_request(c->pool, &(struct pool_ask){
		.target = &target,
		.method = p->method,
		.path = p->path,
		.fields = &p->fields,
		.body_mode = p->has_body ? POOL_BODY_STREAM : POOL_BODY_NONE,
		.cls = POOL_LONG,
		.idempotent = p->idempotent,
		.on_ready = pass_on_ready,
		.user = p,
	});
	fields_fini(&p->fields);
	if (p->req)
		return;
	limiter_done(p, false);
	status_errno(&p->failure, -ENOMEM, "asking the cloud");
	p->on_ready(p, p->user);
}

/* --- one of them --- */

static void pass_bury(void *user)
{
	struct cloud_pass *p = user;

	fields_fini(&p->fields);
	free(p->method);
	free(p->path);
	free(p);
}

struct cloud_pass *cloud_pass_free(struct cloud_pass *p)
{
	if (!p)
		return NULL;
	p->req = pool_req_free(p->req);
	timer_clear(&p->turn);
	limiter_done(p, false);
	loop_bury(p->cloud->loop, &p->grave, pass_bury, p);
	return NULL;
}

static struct cloud_pass *pass_make(const struct cloud_pass_ask *a)
{
	struct cloud_pass *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct cloud_pass){ .cloud = a->cloud, .failure = STATUS_OK, .has_body = a->has_body, .idempotent = a->idempotent,
				  .on_ready = a->on_ready, .user = a->user,
				  .ticket = { .uid = a->uid, .route = CLOUD_LIMITER_PASSED } };
	list_init(&p->ticket.node);
	timer_init(&p->turn, a->cloud->loop, pass_no_turn, p);
	p->method = str_dup(fields_get(a->head, ":method"));
	p->path = str_printf("%s%s", a->cloud->api.prefix, fields_get(a->head, ":path"));
	if (p->method && p->path && put_pass_fields(&p->fields, a) == 0 && timer_set(&p->turn, a->turn_by_ms) == 0)
		return p;
	return cloud_pass_free(p);
}

int cloud_pass(const struct cloud_pass_ask *a, struct cloud_pass **ret, struct status *ret_why)
{
	struct cloud *c = a->cloud;
	struct cloud_pass *p;
	uint32_t wait_ms = 0;
	enum limiter_result r;

	if (cloud_key_is_unfit(c, ret_why))
		return -EACCES;
	p = pass_make(a);
	if (!p)
		return -ENOMEM;
	r = limiter_enter(&c->limiter, &p->ticket, a->turn_by_ms, loop_now_ms(c->loop), &wait_ms);
	if (r == LIMITER_OK) {
		defer_post(&c->pump);
		*ret = p;
		return 0;
	}
	cloud_pass_free(p);
	status_set(ret_why, r == LIMITER_FULL ? R_TOO_MANY_STREAMS : R_RATE_LIMITED, "%s",
		   r == LIMITER_FULL ? "too many calls of this account wait" : "the cloud's rate limit lasts longer than this call may wait");
	ret_why->retry_after_ms = wait_ms;
	return -EBUSY;
}

struct http_stream *cloud_pass_stream(const struct cloud_pass *p)
{
	return p->req ? pool_req_x(p->req) : NULL;
}

const struct status *cloud_pass_failure(const struct cloud_pass *p)
{
	if (p->req)
		return pool_req_failure(p->req);
	return status_ok(&p->failure) ? NULL : &p->failure;
}
