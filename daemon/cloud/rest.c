/* SPDX-License-Identifier: MIT */
/*
 * Calls of the control plane. A call's steps: limiter → pool → answer → (again, or done). It is in
 * one state at a time; `done` is called from its own deferred step and is the last thing that
 * happens to it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/account.h"
#include "daemon/cloud/rest.h"
#include "daemon/cloud/pass.h"
#include "daemon/common/obs/log.h"
#include "daemon/common/obs/redact.h"
#include "daemon/upstream/backoff.h"
#include "proto/base/buf.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/json.h"
#include "proto/wire/trace.h"

#define CALL_MAGIC	   0x636c6463u
#define CALL_DEFAULT_MS	   75000u	/* the API's own budget is 70 s, its write limit 75 s */
#define OUTAGE_FAILURES	      3u
#define CALL_ATTEMPTS_MAX  5u
#define CALL_BACKOFF_MS	   200u
#define CALL_BACKOFF_MAX_MS 5000u
#define PAGE_MAX	   1000u	/* rows of one page */
#define TEMPLATES_MAX	   10000u	/* rows of one answer: an older cloud's is one page */
#define CHILDREN_MAX	   1000u
#define METRICS_MAX	   100000u	/* points of one series */
#define LIST_PAGES_MAX	   1000u	/* × 100 sandboxes; a longer list fails, it is not cut */
#define LIST_TOKENS_MAX_BYTES (1024u * 1024)
#define ELEMENT_BYTES	   1024u	/* memory of an element of a list, without its strings */
#define PAIR_BYTES	   96u		/* memory of a pair of an element's metadata, or of a name, without its strings */
#define JSON_FACTOR	   10u		/* memory of a parsed answer in multiples of its text: see json.c */

_Static_assert(CLOUD_LIMITER_PASSED < LIMITER_ROUTES, "a route of the limiter for every call, and one for what is passed on");

static void rest_on_ready(struct pool_req *r, void *user);
static void call_enter(struct cloud_call *c);

/* --- life --- */

static void call_bury(void *p)
{
	struct cloud_call *c = p;

	free(c->path);
	free(c->route);
	free(c->query);
	map_fini(&c->tokens);
	repeats_fini(&c->ids);
	if (c->body)
		explicit_bzero(c->body, c->n_body);	/* a create's envs */
	free(c->body);
	for (size_t i = 0; i < c->secrets.n; i++)
		c->secrets.v[i] = str_free_secret(c->secrets.v[i]);
	cloud_strs_fini(&c->secrets);
	buf_fini(&c->answer);
	charge_fini(&c->held);
	cloud_list_free(c->list);
	cloud_snapshots_free(c->snapshots);
	cloud_templates_free(c->templates);
	cloud_sandbox_free(c->result.sandbox);
	cloud_list_free(c->result.list);
	cloud_children_free(c->result.children);
	cloud_metrics_free(c->result.metrics);
	cloud_snapshot_free(c->result.snapshot);
	cloud_snapshots_free(c->result.snapshots);
	cloud_templates_free(c->result.templates);
	c->magic = 0;
	free(c);
}

static void call_set_state(struct cloud_call *c, enum call_state to)
{
	must(c->state != CALL_OVER);
	c->state = to;
}

/* Lets go of the pool and of the limiter; `answered`: the cloud spoke, and not of limits. */
static void call_release(struct cloud_call *c, bool answered)
{
	c->req = pool_req_free(c->req);
	limiter_leave(&c->cloud->limiter, &c->ticket, answered);
	timer_clear(&c->timer);
	defer_post(&c->cloud->pump);
}

void call_free(struct cloud_call *c)
{
	call_release(c, false);
	defer_cancel(&c->over);
	list_del(&c->node);
	loop_bury(c->cloud->loop, &c->grave, call_bury, c);
}

static void on_over(struct defer *d, void *user)
{
	struct cloud_call *c = user;

	must(c->magic == CALL_MAGIC);
	list_del(&c->node);
	if (c->result.date_ms && c->cloud->on_date)
		c->cloud->on_date(c->cloud->date_user, c->result.date_ms);
	c->ask.done(&c->result, c->ask.user);
	loop_bury(c->cloud->loop, &c->grave, call_bury, c);
}

/* An outage is two lines: one when a third call in a row has failed, and one at its end with how many there were. */
static void note_outage(struct cloud *cloud, const struct status *why, uint64_t now)
{
	if (!cloud->out_failed++)
		cloud->out_since_ms = now;
	if (cloud->out_failed == OUTAGE_FAILURES)
		log_warn("cloud_outage", "account=%s reason=%s error=%s", cloud->account, status_reason_name(why->reason),
			 log_q(why->text));
}

static void note_answer(struct cloud *cloud, uint64_t now)
{
	if (cloud->out_failed >= OUTAGE_FAILURES)
		log_info("cloud_over", "account=%s failed=%llu seconds=%llu", cloud->account, (unsigned long long)cloud->out_failed,
			 (unsigned long long)(now - cloud->out_since_ms) / 1000);
	cloud->out_failed = 0;
}

/* A call that we refused ourselves, unsent, is no sign of an outage of the cloud. */
static bool is_outage(const struct cloud_call *c)
{
	const struct cloud_result *r = &c->result;

	switch (r->status.reason) {
	case R_UNREACHABLE:
	case R_TLS_UNTRUSTED:
	case R_PROXY_FAILED:
	case R_PROXY_AUTH:
		return true;
	case R_DEADLINE_REQUEST:
		return c->first_sent_ms != 0;
	default:
		return r->http_status >= 500;
	}
}

static void count_end(struct cloud_call *c, uint64_t now)
{
	struct cloud *cloud = c->cloud;

	tally_add(&cloud->totals.ends, &c->result.status);
	cloud->totals.repeats += c->attempts > 1 ? c->attempts - 1 : 0;
	if (c->first_sent_ms)
		histogram_add(&cloud->totals.took, (now - c->first_sent_ms) * 1000);
	if (is_outage(c))
		note_outage(cloud, &c->result.status, now);
	else if (c->result.http_status)
		note_answer(cloud, now);
}

void call_over(struct cloud_call *c)
{
	struct cloud *cloud = c->cloud;
	uint64_t now = loop_now_ms(cloud->loop);
	struct cloud_result *r = &c->result;

	redact_status(&r->status);
	redact_status_of(&r->status, (const char *const *)c->secrets.v, c->secrets.n);
	if (c->first_sent_ms)
		r->took_ms = now - c->first_sent_ms;
	if (c->req)
		r->posts = pool_req_posts(c->req);
	if (r->http_status && r->status.reason != R_KEY_REJECTED) {
		cloud->last_ok_at_ms = now;	/* it is there, whatever it said */
	} else if (!status_ok(&r->status) && r->status.code != CODE_CANCELLED) {	/* that one was withdrawn */
		cloud->last_failure_at_ms = now;
		cloud->last_failure = r->status;
	}
	count_end(c, now);
	call_release(c, r->http_status && r->http_status != 429);
	call_set_state(c, CALL_OVER);
	defer_post(&c->over);
}

static void call_fail(struct cloud_call *c, enum cloud_outcome outcome, enum ab_reason reason,
		      const char *text)
{
	c->result.outcome = outcome;
	status_set(&c->result.status, reason, "%s", text);
	if (c->route)
		status_evidence(&c->result.status, "route", "%s", c->route);
	call_over(c);
}

void cloud_call_cancel(struct cloud_call *c)
{
	if (c) {
		must(c->magic == CALL_MAGIC);
		call_free(c);
	}
}

bool cloud_call_was_sent(const struct cloud_call *c)
{
	return c->sent || (c->req && pool_req_was_sent(c->req));
}

void cloud_call_abandon(struct cloud_call *c)
{
	must(c->magic == CALL_MAGIC);
	if (c->state == CALL_OVER || cloud_call_was_sent(c))
		return;
	c->result.outcome = CLOUD_UNSENT;
	status_set_code(&c->result.status, CODE_CANCELLED, "the caller went away before it was sent");
	call_over(c);
}

/* --- sending --- */

static int put_fields(struct cloud_call *c, struct fields *f)
{
	int r = fields_put_secret(f, "x-api-key", c->cloud->key);

	redact_note(c->cloud->key);
	if (r == 0)
		r = fields_put(f, "user-agent", CLOUD_USER_AGENT);
	if (r == 0)
		r = fields_put(f, CLOUD_HOP, "1");
	if (r == 0)
		r = trace_put(f, &c->ask.trace);
	if (r == 0)
		r = fields_put(f, "accept", "application/json");
	if (r == 0)
		r = fields_put(f, "accept-encoding", "identity");
	if (r == 0 && c->body)
		r = fields_put(f, "content-type", "application/json");
	if (r == 0 && c->body)
		r = fields_printf(f, "content-length", "%zu", c->n_body);
	return r;
}

/* The call waits in this state until its deadline, outside of pool and limiter. Its result is filled already, with what
 * the caller is told if the wait is in vain. False without memory. */
static bool call_hold(struct cloud_call *c, enum call_state in)
{
	c->req = pool_req_free(c->req);
	limiter_leave(&c->cloud->limiter, &c->ticket, false);
	if (timer_set(&c->timer, c->deadline_ms) < 0)
		return false;
	call_set_state(c, in);
	return true;
}

static void call_gated(struct cloud_call *c)
{
	struct cloud *cloud = c->cloud;

	c->result.outcome = c->sent ? CLOUD_UNKNOWN : CLOUD_UNSENT;
	c->result.status = cloud->gate_why;
	status_evidence(&c->result.status, "route", "%s", c->route);
	if (cloud->gate == CLOUD_SHUT || !call_hold(c, CALL_GATED))
		call_over(c);
}

/* True: the key is not trusted, and the call waits or is over. */
static bool is_held_back(struct cloud_call *c)
{
	struct cloud *cloud = c->cloud;

	if (cloud->trust == CLOUD_KEY_TRUSTED || c->ask.proves_key)
		return false;
	c->result = (struct cloud_result){ .outcome = c->sent ? CLOUD_UNKNOWN : CLOUD_REFUSED,
					   .status = cloud->trust_why };
	if (cloud->trust != CLOUD_KEY_ASKED || !call_hold(c, CALL_KEYLESS))
		call_over(c);
	return true;
}

static int rest_sending(void *call)
{
	struct cloud_call *c = call;

	return c->ask.sending(c->ask.user);
}

static void call_send(struct cloud_call *c)
{
	struct cloud *cloud = c->cloud;
	struct fields f = FIELDS_NULL;
	struct pool_target target;
	char *path;

	if (cloud->gate != CLOUD_OPEN) {
		call_gated(c);
		return;
	}
	if (is_held_back(c))
		return;
	path = str_printf("%s%s", cloud->api.prefix, c->path);
	call_set_state(c, CALL_OPEN);
	c->attempts++;
	c->key_generation = cloud->key_generation;
	buf_fini(&c->answer);
	buf_init(&c->answer, CLOUD_JSON_ANSWER_MAX);
	buf_set_quota(&c->answer, cloud->quota);
	cloud_target(cloud, &cloud->api, &target);
	target.group = cloud->key_group;
	if (path && put_fields(c, &f) == 0)
		c->req = pool_request(cloud->pool, &(struct pool_ask){
			.target = &target,
			.method = cloud_route_info(c->to)->method,
			.path = path,
			.fields = &f,
			.body_mode = c->body ? POOL_BODY_WHOLE : POOL_BODY_NONE,
			.body = c->body,
			.n_body = c->n_body,
			.idempotent = !fault_makes_one(c->op),
			.deadline_ms = c->deadline_ms,
			.sending = c->ask.sending ? rest_sending : NULL,
			.on_ready = rest_on_ready,
			.user = c,
		});
	fields_fini(&f);
	free(path);
	if (!c->req) {
		status_errno(&c->result.status, -ENOMEM, "asking the cloud");
		c->result.outcome = c->sent ? CLOUD_UNKNOWN : CLOUD_UNSENT;
		call_over(c);
	}
}

static void cloud_pump(struct defer *d, void *user)
{
	struct cloud *cloud = user;
	uint64_t now = loop_now_ms(cloud->loop), at;
	struct limiter_ticket *t;

	while ((t = limiter_next(&cloud->limiter, now))) {
		struct cloud_call *c = container_of(t, struct cloud_call, ticket);

		if (t->route == CLOUD_LIMITER_PASSED) {
			cloud_pass_send(t);
			continue;
		}
		histogram_add(&cloud->totals.waited, (now - c->queued_at_ms) * 1000);
		call_send(c);
	}
	at = limiter_wake_ms(&cloud->limiter, now);
	if (at == UINT64_MAX)
		timer_clear(&cloud->wake);
	else if (timer_set(&cloud->wake, at) < 0)
		log_error("cloud_timer", "account=%s why=\"out of memory\"", cloud->account);
}

static void on_wake(struct timer *t, void *user)
{
	struct cloud *cloud = user;

	defer_post(&cloud->pump);
}

void cloud_start(struct cloud *c)
{
	defer_init(&c->pump, c->loop, cloud_pump, c);
	timer_init(&c->wake, c->loop, on_wake, c);
}

void cloud_stop(struct cloud *c)
{
	list_for_each_safe(n, &c->calls)
		call_free(list_entry(n, struct cloud_call, node));
	defer_cancel(&c->pump);
	timer_clear(&c->wake);
}

/* Waiting in the limiter ends at the deadline too; in the pool the pool sees to it. */
static void rest_on_timer(struct timer *t, void *user)
{
	struct cloud_call *c = user;

	if (c->state == CALL_PAUSED) {
		call_enter(c);
	} else if (c->state == CALL_KEYLESS || c->state == CALL_GATED) {
		call_over(c);
	} else if (c->state == CALL_QUEUED) {
		uint64_t now = loop_now_ms(c->cloud->loop);
		bool limited = limiter_route_at_ms(&c->cloud->limiter, c->op, now) > now;

		call_fail(c, c->sent ? CLOUD_UNKNOWN : CLOUD_UNSENT,
			  limited ? R_RATE_LIMITED : R_DEADLINE_REQUEST,
			  "the deadline passed before the account's turn came");
	}
}

static void call_enter(struct cloud_call *c)
{
	uint64_t now = loop_now_ms(c->cloud->loop);
	uint32_t wait_ms = 0;

	if (c->cloud->gate != CLOUD_OPEN) {
		call_gated(c);
		return;
	}
	limiter_leave(&c->cloud->limiter, &c->ticket, false);
	c->queued_at_ms = now;
	call_set_state(c, CALL_QUEUED);
	switch (limiter_enter(&c->cloud->limiter, &c->ticket, c->deadline_ms, now, &wait_ms)) {
	case LIMITER_OK:
		if (timer_set(&c->timer, c->deadline_ms) < 0) {
			status_errno(&c->result.status, -ENOMEM, "asking the cloud");
			c->result.outcome = c->sent ? CLOUD_UNKNOWN : CLOUD_UNSENT;
			call_over(c);
			return;
		}
		defer_post(&c->cloud->pump);
		return;
	case LIMITER_FULL:
		call_fail(c, CLOUD_UNSENT, R_TOO_MANY_STREAMS, "too many calls of this account wait");
		return;
	case LIMITER_LATE:
		c->result.retry_later = true;
		call_fail(c, CLOUD_UNSENT, R_RATE_LIMITED,
			  "the cloud's rate limit ends after the call's deadline");
		c->result.status.retry_after_ms = wait_ms;
		return;
	}
}

/* --- the answer --- */

static void bad_reply(struct cloud_call *c, const char *why)
{
	c->result.outcome = CLOUD_UNKNOWN;
	status_set(&c->result.status, R_BAD_CLOUD_REPLY, "%s: %s", c->route, why ? why : "out of memory");
	status_evidence(&c->result.status, "upstream_status", "%u", c->result.http_status);
	call_over(c);
}

static void call_done(struct cloud_call *c)
{
	c->result.outcome = CLOUD_DONE;
	c->result.status = (struct status)STATUS_OK;
	call_over(c);
}

/* -EBADMSG, -ENOMEM: the call is over. */
static int read_answer(struct cloud_call *c, enum cloud_doc_id doc, void *ret)
{
	struct cloud_json_error why;
	int r = cloud_json_read(doc, buf_data(&c->answer), buf_len(&c->answer), 0, ret, &why);

	if (r < 0)
		bad_reply(c, r == -EBADMSG ? why.text : NULL);
	return r;
}

static int read_list(struct cloud_call *c, enum cloud_doc_id doc, size_t max, int (*add)(void *element, void *user),
		     void *user)
{
	struct cloud_json_error why;
	int r = cloud_json_read_list(doc, buf_data(&c->answer), buf_len(&c->answer), max, add, user, &why);

	if (r < 0)
		bad_reply(c, r == -EBADMSG ? why.text : NULL);
	return r;
}

static void take_sandbox(struct cloud_call *c)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = calloc(1, sizeof(*s));

	if (!s) {
		bad_reply(c, NULL);
		return;
	}
	if (read_answer(c, CLOUD_DOC_SANDBOX, s) < 0)
		return;
	if (c->id[0] && !str_eq(c->id, s->id)) {
		bad_reply(c, "the answer is about another sandbox");
		return;
	}
	if (c->op != FAULT_GET) {
		s->state = CLOUD_STATE_RUNNING;
		s->resumed = c->op == FAULT_CONNECT && c->result.http_status == 201;
	}
	s->is_detail = c->op == FAULT_GET;
	c->result.sandbox = give(s);
	call_done(c);
}

/* An id that moved between two pages may come twice: the first is kept. n_before: so many were there before the last page. */
static int drop_repeats(struct cloud_call *c, size_t n_before)
{
	struct cloud_list *l = c->list;
	size_t n = n_before;
	int r = 0;

	for (size_t i = n_before; i < l->n; i++) {
		bool came_before = false;

		if (r == 0)
			r = repeats_note(&c->ids, l->v[i]->id, &came_before);
		if (came_before)
			cloud_sandbox_free(l->v[i]);
		else
			l->v[n++] = l->v[i];
	}
	l->n = n;
	return r;
}

int call_set_page(struct cloud_call *c, const char *token)
{
	char *coded = str_percent_encode(token, strlen(token));
	char *path = coded ? str_printf("%s&nextToken=%s", c->query, coded) : NULL;

	free(coded);
	if (!path)
		return -ENOMEM;
	free(c->path);
	c->path = path;
	return 0;
}

static int add_child(void *element, void *user)
{
	struct cloud_fork_result *f = element;
	struct cloud_children *l = user;
	struct cloud_child *c = &l->v[l->n++];
	struct cloud_error_body body = { .code = -1 };

	c->sandbox = give(f->sandbox);
	if (c->sandbox)
		c->sandbox->state = CLOUD_STATE_RUNNING;
	if (f->error)
		cloud_error_take(f->error, &body);
	if (!c->sandbox)
		fault_child(&body, &c->error);
	redact_status(&c->error);
	cloud_doc_fini(CLOUD_DOC_FORK_RESULT, f);
	free(f);
	return 0;
}

static void take_children(struct cloud_call *c)
{
	struct cloud_children *l = calloc(1, sizeof(*l));

	if (l)
		l->v = calloc(CHILDREN_MAX, sizeof(*l->v));
	if (!l || !l->v) {
		cloud_children_free(l);
		bad_reply(c, NULL);
	} else if (read_list(c, CLOUD_DOC_FORK_RESULT, CHILDREN_MAX, add_child, l) < 0) {
		cloud_children_free(l);
	} else {
		c->result.children = l;
		call_done(c);
	}
}

static int add_metric(void *element, void *user)
{
	struct cloud_metrics *l = user;
	struct cloud_metric *v = reallocarray(l->v, l->n + 1, sizeof(*v));

	if (v) {
		l->v = v;
		v[l->n++] = *(struct cloud_metric *)element;
	}
	free(element);
	return v ? 0 : -ENOMEM;
}

static int by_time(const void *a, const void *b)
{
	const struct cloud_metric *x = a, *y = b;

	return x->at_ms < y->at_ms ? -1 : x->at_ms > y->at_ms;
}

static void take_metrics(struct cloud_call *c)
{
	struct cloud_metrics *l = calloc(1, sizeof(*l));

	if (!l) {
		bad_reply(c, NULL);
	} else if (read_list(c, CLOUD_DOC_METRIC, METRICS_MAX, add_metric, l) < 0) {
		cloud_metrics_free(l);
	} else {
		if (l->n)
			qsort(l->v, l->n, sizeof(*l->v), by_time);
		c->result.metrics = l;
		call_done(c);
	}
}

static void take_snapshot(struct cloud_call *c)
{
	struct cloud_snapshot *s = calloc(1, sizeof(*s));

	if (!s) {
		bad_reply(c, NULL);
	} else if (read_answer(c, CLOUD_DOC_SNAPSHOT, s) < 0) {
		free(s);
	} else {
		c->result.snapshot = s;
		call_done(c);
	}
}

static void end_list(struct cloud_call *c)
{
	if (c->snapshots) {
		c->result.snapshots = give(c->snapshots);
	} else if (c->templates) {
		c->result.templates = give(c->templates);
	} else {
		c->result.list = give(c->list);
	}
	call_done(c);
}

static size_t n_listed(const struct cloud_call *c)
{
	return c->snapshots ? c->snapshots->n : c->templates ? c->templates->n : c->list->n;
}

/* Pairs of a row, or its names. */
static size_t n_pairs(const struct cloud_call *c, size_t row)
{
	if (c->templates)
		return c->templates->v[row]->names.n + c->templates->v[row]->aliases.n;
	return c->snapshots ? c->snapshots->v[row]->names.n : c->list->v[row]->metadata.n;
}

/* About the memory of the page that was read last. No string is longer than in the answer. */
static size_t page_bytes(const struct cloud_call *c, size_t n_before)
{
	size_t sum = 2 * buf_len(&c->answer);

	for (size_t i = n_before; i < n_listed(c); i++)
		sum += ELEMENT_BYTES + PAIR_BYTES * n_pairs(c, i);
	return sum;
}

/* Charges the quota for an answer before it is parsed. False: above the quota; the call is over. */
static bool hold_answer(struct cloud_call *c)
{
	if (charge_set(&c->held, c->pages_held + JSON_FACTOR * buf_len(&c->answer)) == 0)
		return true;
	bad_reply(c, agent_no_room(-ENOBUFS));
	return false;
}

static int add_listed(void *element, void *user)
{
	int r = cloud_list_add(user, element);

	if (r < 0)
		cloud_sandbox_free(element);
	return r;
}

static int add_snapshot(void *element, void *user)
{
	int r = cloud_snapshots_add(user, element);

	if (r < 0)
		cloud_snapshot_free(element);
	return r;
}

static int add_template(void *element, void *user)
{
	int r = cloud_templates_add(user, element);

	if (r < 0)
		cloud_template_free(element);
	return r;
}

static int read_page(struct cloud_call *c)
{
	if (c->templates)
		return read_list(c, CLOUD_DOC_TEMPLATE, TEMPLATES_MAX, add_template, c->templates);
	return c->snapshots ? read_list(c, CLOUD_DOC_SNAPSHOT, PAGE_MAX, add_snapshot, c->snapshots) :
			      read_list(c, CLOUD_DOC_SANDBOX, PAGE_MAX, add_listed, c->list);
}

static char **next_token(struct cloud_call *c)
{
	if (c->templates)
		return &c->templates->next_token;
	return c->snapshots ? &c->snapshots->next_token : &c->list->next_token;
}

/* False: the token came before, or there are too many: *ret_why says which, NULL = out of memory. */
static bool note_token(struct cloud_call *c, const char *token, const char **ret_why)
{
	*ret_why = NULL;
	c->token_bytes += strlen(token);
	if (map_get_str(&c->tokens, token))
		*ret_why = "the list gives the same pages for ever";
	else if (map_size(&c->tokens) + 2 > LIST_PAGES_MAX || c->token_bytes > LIST_TOKENS_MAX_BYTES)
		*ret_why = "the list does not end";
	else
		return map_put_str(&c->tokens, token, c) == 0;
	return false;
}

static void take_page(struct cloud_call *c, const struct fields *head)
{
	const char *token = fields_get(head, "x-next-token"), *total = fields_get(head, "x-total-running");
	char **last = next_token(c);
	size_t n_before = n_listed(c);
	const char *why;
	uint64_t n;
	int r = read_page(c);

	if (r < 0)
		return;
	c->pages_held += page_bytes(c, n_before) + (token ? PAIR_BYTES + strlen(token) : 0);
	if (charge_set(&c->held, c->pages_held) < 0) {
		bad_reply(c, agent_no_room(-ENOBUFS));
		return;
	}
	if (c->list && total && str_u64(total, strlen(total), INT32_MAX, &n) == 0)
		c->list->total_running = (int64_t)n;
	token = str_is_empty(token) ? NULL : token;
	if (token && c->all_pages && !note_token(c, token, &why)) {
		bad_reply(c, why);
		return;
	}
	free(*last);
	*last = str_dup(token);
	if ((c->list && drop_repeats(c, n_before) < 0) || (token && !*last) || (token && c->all_pages && call_set_page(c, token) < 0)) {
		bad_reply(c, NULL);
		return;
	}
	if (token && c->all_pages) {
		c->req = pool_req_free(c->req);
		c->attempts = 0;
		call_enter(c);
		return;
	}
	end_list(c);
}

/* Sends it again after wait_ms or a backoff, if that is before its deadline; without a wait from the cloud (wait_ms 0) at most
 * CALL_ATTEMPTS_MAX times. */
static bool call_again(struct cloud_call *c, uint32_t wait_ms)
{
	uint64_t at = loop_now_ms(c->cloud->loop) +
		      MAX(wait_ms, backoff_ms(c->attempts, CALL_BACKOFF_MS, CALL_BACKOFF_MAX_MS,
					      rng_u64(&c->cloud->rng)));

	if ((!wait_ms && c->attempts >= CALL_ATTEMPTS_MAX) || at >= c->deadline_ms)
		return false;
	if (timer_set(&c->timer, at) < 0)
		return false;
	c->req = pool_req_free(c->req);
	limiter_leave(&c->cloud->limiter, &c->ticket, false);
	defer_post(&c->cloud->pump);
	call_set_state(c, CALL_PAUSED);
	return true;
}

void cloud_key_settled(struct cloud *cloud)
{
	list_for_each_safe(n, &cloud->calls) {
		struct cloud_call *c = list_entry(n, struct cloud_call, node);

		if (c->state != CALL_KEYLESS)
			continue;
		if (!cloud->key || (c->attempts && c->key_generation == cloud->key_generation)) {
			call_over(c);
			continue;
		}
		c->result = (struct cloud_result){ 0 };
		call_enter(c);
	}
}

void cloud_key_trust(struct cloud *cloud, enum cloud_trust trust, const struct status *why)
{
	cloud->trust = trust;
	if (why)
		cloud->trust_why = *why;
	if (trust == CLOUD_KEY_ASKED)
		return;
	list_for_each_safe(n, &cloud->calls) {
		struct cloud_call *c = list_entry(n, struct cloud_call, node);

		if (c->state != CALL_KEYLESS || !cloud->key)
			continue;
		c->result = (struct cloud_result){ 0 };
		call_enter(c);
	}
}

/* 401: sends the call once more if the key was changed meanwhile, or if on_key_rejected has a newer one. */
static bool key_again(struct cloud_call *c)
{
	struct cloud *cloud = c->cloud;
	bool coming = false;

	if (c->key_generation == cloud->key_generation) {
		if (!cloud->key_rejected)
			log_warn("cloud_key_rejected", "account=%s", cloud->account);
		cloud->key_rejected = true;
		if (cloud->on_key_rejected)
			coming = cloud->on_key_rejected(cloud, cloud->user);
	}
	if (coming && c->attempts < 2)
		return call_hold(c, CALL_KEYLESS);
	if (c->key_generation == cloud->key_generation || !cloud->key || c->attempts >= 2)
		return false;
	c->req = pool_req_free(c->req);
	call_enter(c);
	return true;
}

/* Blocks calls of this kind for the time that the cloud asked for. One log line for each beginning. */
static void hold_route(const struct cloud_call *c, uint32_t for_ms)
{
	struct cloud *cloud = c->cloud;
	uint64_t now = loop_now_ms(cloud->loop);

	if (cloud->limiter.route[c->op].blocked_until_ms <= now)
		log_warn("cloud_limited", "account=%s route=%s for_ms=%u queued=%u", cloud->account,
			 fault_op_name(c->op), for_ms, cloud->limiter.n_queued);
	limiter_block(&cloud->limiter, c->op, for_ms, now);
}

/* RateLimit-Limit, -Remaining and -Reset, where the cloud sends all of them. */
static void take_budget(const struct cloud_call *c, const struct fields *head)
{
	static const char *const names[] = { "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset" };
	uint32_t v[ARRAY_SIZE(names)];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *text = fields_get(head, names[i]);
		uint64_t n;

		if (str_is_empty(text) || str_u64(text, strlen(text), UINT32_MAX, &n) < 0)
			return;
		v[i] = (uint32_t)n;
	}
	limiter_budget(&c->cloud->limiter, c->op, v[0], v[1], v[2], loop_now_ms(c->cloud->loop));
	defer_post(&c->cloud->pump);
}

static void take_failure(struct cloud_call *c, struct http_stream *x)
{
	struct cloud_result *r = &c->result;
	struct fault_answer a;
	bool again;

	agent_answer(x, &c->answer, c->route, &a);
	fault_rest(c->op, &a, r);
	if (a.http_status == 401 && key_again(c))
		return;
	c->cloud->totals.limited += a.http_status == 429;
	if (a.http_status == 429 && r->status.retry_after_ms)
		hold_route(c, r->status.retry_after_ms);
	/* A definite "not now" may be followed by another POST; a doubtful one only by what is idempotent. */
	again = r->retry_later && (!fault_makes_one(c->op) || r->outcome != CLOUD_UNKNOWN);
	if (again && r->outcome != CLOUD_UNKNOWN)
		c->sent = false;	/* the cloud said that it did nothing */
	else if (again)
		c->doubtful = true;
	if (again && call_again(c, r->status.retry_after_ms))
		return;
	call_over(c);
}

static void take_answer(struct cloud_call *c, struct http_stream *x)
{
	const struct fields *head = http_stream_head(x);
	unsigned status = http_stream_status(x);

	must(!c->result.sandbox);
	c->doubtful |= pool_req_was_repeated(c->req);
	c->result = (struct cloud_result){ .http_status = status, .repeated = c->doubtful,
					   .date_ms = fault_http_date_ms(fields_get(head, "date")) };
	take_budget(c, head);
	if (!cloud_route_is_success(c->to, status)) {
		take_failure(c, x);
		return;
	}
	c->cloud->key_rejected = false;
	if (!hold_answer(c))
		return;
	switch (c->op) {
	case FAULT_CREATE:
	case FAULT_CONNECT:
	case FAULT_GET:
		take_sandbox(c);
		break;
	case FAULT_LIST:
	case FAULT_SNAPSHOTS:
	case FAULT_TEMPLATES:
		take_page(c, head);
		break;
	case FAULT_FORK:
		take_children(c);
		break;
	case FAULT_METRICS:
		take_metrics(c);
		break;
	case FAULT_SNAPSHOT:
		take_snapshot(c);
		break;
	default:
		call_done(c);
	}
}

static void take_loss(struct cloud_call *c)
{
	bool unsent = pool_req_fate(c->req) == POOL_UNSENT && !c->sent;

	if (pool_req_repeat(c->req)) {
		buf_drop(&c->answer, buf_len(&c->answer));
		return;
	}
	c->result = (struct cloud_result){ .outcome = unsent ? CLOUD_UNSENT : CLOUD_UNKNOWN,
					   .status = *pool_req_failure(c->req) };
	c->result.retry_later = true;
	status_evidence(&c->result.status, "route", "%s", c->route);
	call_over(c);
}

static void rest_on_ready(struct pool_req *r, void *user)
{
	struct cloud_call *c = user;
	struct http_stream *x = pool_req_x(r);
	int k = 0;

	must(c->magic == CALL_MAGIC && c->req == r && c->state == CALL_OPEN);
	if (pool_req_was_sent(r) && !c->sent) {
		c->sent = true;
		c->first_sent_ms = pool_req_sent_at_ms(r);
	}
	if (pool_req_failure(r)) {
		take_loss(c);
		return;
	}
	if (!x || !http_stream_head(x))
		return;
	k = agent_collect(x, &c->answer, CLOUD_JSON_ANSWER_MAX);
	if (k < 0) {
		c->result.http_status = http_stream_status(x);
		bad_reply(c, k == -EMSGSIZE ? "the answer is too large" : agent_no_room(k));
	} else if (http_stream_at_end(x)) {
		take_answer(c, x);
	}
}

/* --- a new call --- */

/* What can be said without asking the cloud. */
static bool call_refused(struct cloud_call *c, const char *id)
{
	struct cloud *cloud = c->cloud;
	bool coming = cloud->on_key_use && cloud->on_key_use(cloud, cloud->user);

	if (id && !cloud_is_sandbox_id(id)) {
		c->result.outcome = CLOUD_REFUSED;
		status_field(&c->result.status, "sandbox", "\"%s\" is no sandbox id", id);
		call_over(c);
	} else if (cloud->gate != CLOUD_OPEN) {
		call_gated(c);
	} else if (!cloud->key) {
		c->result.outcome = CLOUD_REFUSED;
		cloud_key_missing(&c->result.status);
		status_evidence(&c->result.status, "route", "%s", c->route);
		if (!coming || !call_hold(c, CALL_KEYLESS))
			call_over(c);
	} else if (cloud_key_is_bad(cloud, &c->result.status)) {
		c->result.outcome = CLOUD_REFUSED;
		status_evidence(&c->result.status, "route", "%s", c->route);
		call_over(c);
	} else if (c->deadline_ms <= loop_now_ms(cloud->loop)) {
		call_fail(c, CLOUD_UNSENT, R_DEADLINE_REQUEST, "the deadline has passed already");
	} else {
		return false;
	}
	return true;
}

struct cloud_call *call_new(struct cloud *cloud, enum fault_op op, enum cloud_route to, char *path, char *body,
			    const struct cloud_ask *ask)
{
	struct cloud_call *c = calloc(1, sizeof(*c));

	if (!c || !path) {
		free(c);
		free(path);
		free(body);
		return NULL;
	}
	c->magic = CALL_MAGIC;
	c->cloud = cloud;
	c->op = op;
	c->ask = *ask;
	c->deadline_ms = ask->deadline_ms ? ask->deadline_ms : loop_now_ms(cloud->loop) + CALL_DEFAULT_MS;
	c->path = path;
	c->body = body;
	c->n_body = body ? strlen(body) : 0;
	c->to = to;
	c->route = str_printf("%s %s", cloud_route_info(to)->method, cloud_route_info(to)->path);
	c->held.quota = cloud->quota;
	c->ticket = (struct limiter_ticket){ .uid = ask->uid, .route = op, .background = ask->background };
	list_init(&c->ticket.node);
	list_init(&c->node);
	timer_init(&c->timer, cloud->loop, rest_on_timer, c);
	defer_init(&c->over, cloud->loop, on_over, c);
	if (!c->route) {
		call_bury(c);
		return NULL;
	}
	list_add_tail(&cloud->calls, &c->node);
	return c;
}

void cloud_set_gate(struct cloud *cloud, enum cloud_gate to, const struct status *why)
{
	cloud->gate = to;
	if (to == CLOUD_OPEN)
		cloud->gate_why = (struct status)STATUS_OK;
	else
		cloud->gate_why = *why;
	list_for_each_safe(n, &cloud->calls) {
		struct cloud_call *c = list_entry(n, struct cloud_call, node);

		if (c->state != CALL_GATED)
			continue;
		c->result = (struct cloud_result){ 0 };
		if (!call_refused(c, NULL))
			call_enter(c);
	}
}

struct cloud_call *call_begin(struct cloud_call *c, const char *id)
{
	if (c && id)
		str_copy(c->id, sizeof(c->id), id);
	if (c && !call_refused(c, id))
		call_enter(c);
	return c;
}
