/* SPDX-License-Identifier: MIT */
/*
 * The requests: queued, sent, replayed, failed, answered. A request fails or ends once; its owner
 * hears of everything by on_ready, which is never called from inside a call of the owner's.
 */
#include "daemon/upstream/pool.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/net/tls.h"
#include "daemon/upstream/origin.h"
#include "daemon/upstream/retry.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define REST_MAX_MS    2000u
#define REST_MAX_BYTES (64u * 1024)

#define DEFAULT(field, value) ((field) ? (field) : (value))
#define QUOTA_DEFAULT	      (64u << 20)

int pool_new(const struct pool_options *o, struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p));
	uint64_t seed = o->seed;

	if (!p)
		return -ENOMEM;
	p->quota = o->quota ? quota_ref(o->quota) :
			      quota_new(&(struct quota_options){ .name = "the cloud", .max = QUOTA_DEFAULT });
	if (!p->quota) {
		free(p);
		return -ENOMEM;
	}
	p->loop = o->loop;
	p->o = *o;
	p->o.max_conns_h1 = DEFAULT(o->max_conns_h1, 256);
	p->o.max_queue = DEFAULT(o->max_queue, 4096);
	p->o.stream_window = DEFAULT(o->stream_window, 4096 * 1024);
	p->o.send_max = DEFAULT(o->send_max, 512 * 1024);
	p->o.dial_ms = DEFAULT(o->dial_ms, 10 * 1000);
	p->o.ping_after_ms = DEFAULT(o->ping_after_ms, 10 * 1000);
	p->o.ping_answer_ms = DEFAULT(o->ping_answer_ms, 5 * 1000);
	p->o.fresh_ms = DEFAULT(o->fresh_ms, 30000);
	p->o.warm_ms = DEFAULT(o->warm_ms, 570 * 1000);
	p->o.age_ms = DEFAULT(o->age_ms, 30 * 60 * 1000);
	if (!seed)
		rng_system(&seed, sizeof(seed));
	rng_seed(&p->rng, seed);
	list_init(&p->origin_list);
	list_init(&p->left);
	pool_set_limits(p, o->max_conns_h2, o->idle_ms);
	*ret = p;
	return 0;
}

void pool_set_limits(struct pool *p, uint32_t max_conns_h2, uint32_t idle_ms)
{
	p->o.max_conns_h2 = DEFAULT(max_conns_h2, 48);
	p->o.idle_ms = DEFAULT(idle_ms, 5 * 60 * 1000);
	list_for_each(n, &p->origin_list)	/* one may dial now, or is idle for long enough */
		origin_kick(list_entry(n, struct origin, node));
}

struct pool *pool_free(struct pool *p)
{
	if (!p)
		return NULL;
	list_for_each_safe(n, &p->left)
		pool_req_free(list_entry(n, struct pool_req, left));
	must(!p->n_reqs);
	list_for_each_safe(n, &p->origin_list)
		origin_free(list_entry(n, struct origin, node));
	map_fini(&p->origins);
	quota_unref(p->quota);
	free(p);
	return NULL;
}

struct quota *pool_quota(const struct pool *p)
{
	return p->quota;
}

/* --- a request --- */

static void on_tell(struct defer *d, void *user)
{
	struct pool_req *r = user;

	r->on_ready(r, r->user);
}

static uint64_t next_limit(const struct pool_req *r)
{
	uint64_t at = r->deadline_ms;

	if (r->head_by_ms && !r->head_seen)
		at = at ? MIN(at, r->head_by_ms) : r->head_by_ms;
	return at;
}

static void arm(struct pool_req *r)
{
	uint64_t at = r->fate == POOL_PENDING ? next_limit(r) : 0;

	if (!at)
		timer_clear(&r->timer);
	else if (timer_set(&r->timer, at) < 0)
		pool_req_fail(r, r->x ? POOL_BROKEN : POOL_UNSENT,
			      &(struct status){ .code = CODE_RESOURCE_EXHAUSTED, .text = "out of memory" });
}

static void drop_exchange(struct pool_req *r)
{
	if (r->conn)
		uconn_detach(r);
	if (!r->x)
		return;
	r->posts += http_stream_was_sent(r->x);
	http_stream_release(r->x);
	r->x = NULL;
}

static void unqueue(struct pool_req *r)
{
	if (!r->queued)
		return;
	list_del(&r->node);
	r->queued = false;
	r->origin->n_queued--;
	r->origin->n_repeats -= r->again_at_ms != 0;
}

/* Before whom? The queue's head where nobody in it is younger. */
static struct list *place_in(struct list *queue, const struct pool_req *r)
{
	struct list *n = queue;

	if (list_is_empty(queue) || list_entry(queue->prev, struct pool_req, node)->serial < r->serial)
		return queue;
	/* One that was refused: it is among the first. */
	do
		n = n->next;
	while (list_entry(n, struct pool_req, node)->serial < r->serial);
	return n;
}

void pool_req_enqueue(struct pool_req *r)
{
	struct origin *o = r->origin;

	must(!r->queued && !r->conn);
	list_add_tail(place_in(&o->queue[r->cls], r), &r->node);
	r->queued = true;
	r->queued_at_ms = loop_now_ms(r->pool->loop);
	o->n_queued++;
	o->n_repeats += r->again_at_ms != 0;
	origin_kick(o);
}

void pool_req_fail(struct pool_req *r, enum pool_fate fate, const struct status *why)
{
	if (r->fate != POOL_PENDING)
		return;
	unqueue(r);
	if (r->x && r->head_seen) {	/* what came before the failure stays readable */
		if (http_stream_closed(r->x, NULL) == HTTP_OPEN)
			http_stream_reset(r->x, POOL_H2_CANCEL);
		if (r->conn)
			uconn_detach(r);
	} else {
		drop_exchange(r);
	}
	r->fate = fate;
	r->failure = *why;
	timer_clear(&r->timer);
	defer_post(&r->tell);
}

static void close_status(enum http_close how, uint32_t code, struct status *ret)
{
	if (how == HTTP_CLOSE_RESET)
		status_set(ret, R_UNREACHABLE, "the cloud reset the request, or its answer breaks HTTP/2 (error %u)", code);
	else if (how == HTTP_CLOSE_REFUSED)
		status_set(ret, R_UNREACHABLE, "the cloud refused the request again and again");
	else
		status_set(ret, R_UNREACHABLE, "the connection was lost before the answer was complete");
}

static struct retry_facts facts_of(const struct pool_req *r, enum retry_end end)
{
	return (struct retry_facts){
		.end = end,
		.sent = r->x && http_stream_was_sent(r->x),
		.sent_before = r->sent_before,
		.head_seen = r->head_seen,
		.idempotent = r->idempotent,
		.body_kept = r->body_mode != POOL_BODY_STREAM,
		.recycled = r->conn && r->conn->c && http_conn_recycled(r->conn->c),
		.full = r->conn && r->conn->c && !uconn_room(r->conn, r->cls),
		.timed = next_limit(r),
		.posts = pool_req_posts(r),
		.replays = r->replays,
		.recycles = r->recycles,
	};
}

/* After a while. False: there is no time for that. */
static bool send_again(struct pool_req *r, const struct retry_facts *f)
{
	uint64_t now = loop_now_ms(r->pool->loop), by = next_limit(r);
	uint32_t wait = retry_wait_ms(f, by > now ? by - now : 0, rng_u64(&r->pool->rng));

	if (wait == RETRY_NEVER)
		return false;
	drop_exchange(r);
	if (f->end == RETRY_END_REFUSED && f->recycled)
		r->recycles++;
	else
		r->replays++;
	r->origin->stats.replays++;
	r->again_at_ms = now + wait;
	pool_req_enqueue(r);
	return true;
}

static enum retry_end retry_end(const struct pool_req *r, enum http_close how, uint32_t h2_code)
{
	const struct http_conn *hc = r->conn ? r->conn->c : NULL;

	if (how == HTTP_CLOSE_REFUSED)
		return h2_code == POOL_H2_REFUSED && hc && !http_conn_goaway(hc, NULL) ? RETRY_END_BUSY : RETRY_END_REFUSED;
	return how == HTTP_CLOSE_RESET || (hc && http_conn_broke_rules(hc)) ? RETRY_END_RESET : RETRY_END_LOST;
}

void pool_req_attempt_ended(struct pool_req *r, enum http_close how, uint32_t h2_code)
{
	struct retry_facts f = facts_of(r, retry_end(r, how, h2_code));
	struct status why = STATUS_OK;
	enum retry_verdict v = retry_decide(&f);

	close_status(how, h2_code, &why);
	r->cut = f.end == RETRY_END_LOST;
	if (v == RETRY_AGAIN) {
		r->failure = why;
		r->sent_before |= f.sent && how != HTTP_CLOSE_REFUSED;
		if (send_again(r, &f))
			return;
		v = retry_give_up(&f);
	}
	pool_req_fail(r, v == RETRY_FAIL_UNSENT ? POOL_UNSENT : POOL_BROKEN, &why);
}

bool pool_req_repeat(struct pool_req *r)
{
	struct retry_facts f;

	if (r->fate != POOL_BROKEN || !r->cut || !r->head_seen || !r->idempotent || r->cls != POOL_SHORT)
		return false;
	r->head_seen = false;
	f = facts_of(r, RETRY_END_LOST);
	if (retry_decide(&f) != RETRY_AGAIN || !send_again(r, &f))
		return false;
	r->sent_before = true;
	r->fate = POOL_PENDING;
	arm(r);
	return true;
}

static void on_limit(struct timer *t, void *user)
{
	struct pool_req *r = user;
	struct origin *o = r->origin;
	struct retry_facts f = facts_of(r, RETRY_END_DEADLINE);
	struct status why = STATUS_OK;

	if (r->queued && r->replays) {
		why = r->failure;	/* of the last attempt */
	} else if (r->queued && o->failures) {
		why = o->last_failure;
	} else if (r->queued && o->enhance_calm_count &&
		   o->hold_until_ms > loop_now_ms(r->pool->loop)) {
		status_set(&why, R_UNREACHABLE, "%s asked to slow down", o->host);
		why.retry_after_ms = (uint32_t)(o->hold_until_ms - loop_now_ms(r->pool->loop));
	} else if (r->queued && o->n_dialing == o->n_conns) {
		status_set(&why, R_UNREACHABLE, "no connection to %s before the deadline", o->host);
	} else if (r->queued) {
		status_set(&why, R_DEADLINE_REQUEST, "the deadline passed in the queue for %s", o->host);
	} else {
		status_set(&why, R_DEADLINE_REQUEST, "%s did not answer before the deadline", o->host);
	}
	if (r->conn && !r->head_seen && ++r->conn->starved_requests >= 3)
		uconn_leave(r->conn, "requests starve on it");
	pool_req_fail(r, retry_decide(&f) == RETRY_FAIL_UNSENT ? POOL_UNSENT : POOL_BROKEN, &why);
}

/* The answer is whole: the connection is free for others, the exchange is kept for its bytes. */
static void completed(struct pool_req *r)
{
	r->fate = POOL_CLEAN;
	timer_clear(&r->timer);
	if (r->conn)
		uconn_detach(r);
}

/* The edge says that this connection is not for that host (RFC 9110 §15.5.20): again on another one; on one of its own
 * if this one was another host's. */
static bool goes_elsewhere(struct pool_req *r)
{
	struct retry_facts f = facts_of(r, RETRY_END_MISDIRECTED);

	if (http_stream_status(r->x) != 421 || !r->conn)
		return false;
	r->origin->stats.misdirected++;
	if (r->conn->origin != r->origin) {
		r->origin->never_share = true;
	} else {
		uconn_was_barren(r->conn);
		uconn_leave(r->conn, "it answered 421");
	}
	status_set(&r->failure, R_UNREACHABLE, "the request met the wrong server (421)");
	return retry_decide(&f) == RETRY_AGAIN && send_again(r, &f);
}

/* Where it is never sent again; a stream may be open for days. */
static void forget_request(struct pool_req *r)
{
	fields_fini(&r->head);
	charge_fini(&r->held);
	free(r->body);
	r->body = NULL;
}

static void on_x_ready(struct http_stream *x, void *user)
{
	struct pool_req *r = user;
	uint32_t code = 0;
	enum http_close how = http_stream_closed(x, &code);

	must(r->x == x);
	if (!r->head_seen && http_stream_head(x)) {
		if (goes_elsewhere(r))
			return;
		r->head_seen = true;
		if (!r->idempotent || r->cls == POOL_LONG)
			forget_request(r);
		if (r->conn)
			uconn_answered(r->conn, http_stream_status(r->x) != 421);
		arm(r);
	}
	/* A peer may answer in full and stop an upload it does not want: that is an answer. */
	if (r->fate == POOL_PENDING && how != HTTP_OPEN) {
		if (how == HTTP_CLOSE_CLEAN || (http_stream_ended(x) && http_stream_head(x))) {
			completed(r);
		} else {
			pool_req_attempt_ended(r, how, code);
			return;
		}
	}
	if (r->fate == POOL_PENDING || r->fate == POOL_CLEAN)
		r->on_ready(r, r->user);
}

int pool_req_send(struct pool_req *r, struct uconn *c)
{
	bool end = r->body_mode == POOL_BODY_NONE || (r->body_mode == POOL_BODY_WHOLE && !r->n_body);
	int k;

	must(r->queued && !r->x);
	k = r->sending ? r->sending(r->user) : 0;
	if (k == 0)
		k = http_conn_request(c->c, &r->head, end, on_x_ready, r, &r->x);
	if (k < 0)
		return k;
	unqueue(r);
	uconn_attach(c, r);
	r->sent_at_ms = loop_now_ms(r->pool->loop);
	histogram_add(&r->pool->queue_time, (r->sent_at_ms - r->queued_at_ms) * 1000);
	if (r->body_mode == POOL_BODY_WHOLE && r->n_body) {
		k = http_stream_write(r->x, r->body, r->n_body);
		if (k == 0)
			k = http_stream_finish(r->x, NULL);
		if (k < 0)		/* -EPIPE: on_ready will tell why */
			http_stream_reset(r->x, POOL_H2_CANCEL);
	}
	if (r->body_mode == POOL_BODY_STREAM)
		defer_post(&r->tell);	/* there is something to write on now */
	return 0;
}

/* --- the face --- */

static int put_head(struct pool_req *r, const struct pool_ask *a)
{
	int k = fields_put(&r->head, ":method", a->method);

	if (k == 0)
		k = fields_put(&r->head, ":scheme", a->target->scheme);
	if (k == 0)
		k = fields_put(&r->head, ":authority", a->authority ? a->authority : r->origin->authority);
	if (k == 0)
		k = fields_put(&r->head, ":path", a->path);
	return k == 0 && a->fields ? fields_append(&r->head, a->fields, 0) : k;
}

static void req_bury(void *p)
{
	struct pool_req *r = p;

	forget_request(r);
	free(r);
}

struct pool_req *pool_request(struct pool *p, const struct pool_ask *a)
{
	struct pool_req *r = calloc(1, sizeof(*r));
	scratch_ struct status why;

	if (!r)
		return NULL;
	list_init(&r->node);
	list_init(&r->left);
	r->pool = p;
	r->serial = ++p->last_serial;
	r->origin = origin_get(p, a->target);
	r->body_mode = a->body_mode;
	r->cls = a->cls;
	r->idempotent = a->idempotent;
	r->head_by_ms = a->head_by_ms;
	r->deadline_ms = a->deadline_ms;
	r->sending = a->sending;
	r->on_ready = a->on_ready;
	r->user = a->user;
	if (a->body_mode == POOL_BODY_WHOLE && a->n_body) {
		/* Never refused: its caller holds as much, and was asked before. */
		quota_add(r->origin ? r->origin->quota : NULL, a->n_body);
		r->held = (struct charge){ r->origin ? r->origin->quota : NULL, a->n_body };
		r->body = malloc(a->n_body);
		if (r->body)
			memcpy(r->body, a->body, a->n_body);
		r->n_body = a->n_body;
	}
	if (!r->origin || (r->n_body && !r->body) || put_head(r, a) < 0) {
		req_bury(r);
		return NULL;
	}
	timer_init(&r->timer, p->loop, on_limit, r);
	defer_init(&r->tell, p->loop, on_tell, r);
	p->n_reqs++;
	r->origin->n_reqs++;
	r->origin->stats.requests++;

	if (a->refused) {
		pool_req_fail(r, POOL_UNSENT, a->refused);
		return r;
	}
	if (r->origin->n_queued >= p->o.max_queue) {
		status_set(&why, R_TOO_MANY_STREAMS, "%u requests wait for %s already",
			   r->origin->n_queued, r->origin->host);
		pool_req_fail(r, POOL_UNSENT, &why);
		return r;
	}
	pool_req_enqueue(r);
	arm(r);
	return r;
}

struct pool_req *pool_req_free(struct pool_req *r)
{
	if (!r)
		return NULL;
	unqueue(r);
	drop_exchange(r);
	list_del(&r->left);
	timer_clear(&r->timer);
	defer_cancel(&r->tell);
	must(r->pool->n_reqs && r->origin->n_reqs);
	r->pool->n_reqs--;
	r->origin->n_reqs--;
	origin_kick(r->origin);
	loop_bury(r->pool->loop, &r->grave, req_bury, r);
	return NULL;
}

/* --- the rest of an answer that nobody waits for --- */

/* False: that is enough of it. */
static bool drop_rest(struct pool_req *r)
{
	const uint8_t *p;
	size_t n;

	while ((n = http_stream_peek(r->x, &p)) > 0) {
		http_stream_consume(r->x, n);
		r->rest_bytes += n;
		if (r->rest_bytes > REST_MAX_BYTES)
			return false;
	}
	return true;
}

static void on_rest(struct pool_req *r, void *user)
{
	if (r->fate != POOL_PENDING || !drop_rest(r))
		pool_req_free(r);
}

struct pool_req *pool_req_leave(struct pool_req *r)
{
	if (!r || r->fate != POOL_PENDING || !r->head_seen || !drop_rest(r))
		return pool_req_free(r);
	r->on_ready = on_rest;
	r->deadline_ms = loop_now_ms(r->pool->loop) + REST_MAX_MS;
	list_add_tail(&r->pool->left, &r->left);
	arm(r);
	return NULL;
}

struct http_stream *pool_req_x(const struct pool_req *r)
{
	return r->x;
}

enum pool_fate pool_req_fate(const struct pool_req *r)
{
	return r->fate;
}

const struct status *pool_req_failure(const struct pool_req *r)
{
	return r->fate == POOL_UNSENT || r->fate == POOL_BROKEN ? &r->failure : NULL;
}

bool pool_req_was_sent(const struct pool_req *r)
{
	if (r->fate != POOL_PENDING)
		return r->fate != POOL_UNSENT;
	return r->sent_before || (r->x && http_stream_was_sent(r->x));
}

bool pool_req_was_repeated(const struct pool_req *r)
{
	return r->sent_before;
}

unsigned pool_req_posts(const struct pool_req *r)
{
	return r->posts + (r->x && http_stream_was_sent(r->x));
}

uint64_t pool_req_sent_at_ms(const struct pool_req *r)
{
	return r->sent_at_ms;
}

static void retire(struct origin *o, const char *why)
{
	list_for_each_safe(n, &o->conns)
		uconn_leave(list_entry(n, struct uconn, node), why);
}

void pool_retire_tls(struct pool *p, const struct tls_client *tls)
{
	list_for_each(n, &p->origin_list)
		if (list_entry(n, struct origin, node)->tls == tls)
			retire(list_entry(n, struct origin, node), "TLS settings changed");
}

void pool_retire_group(struct pool *p, const char *group)
{
	list_for_each(n, &p->origin_list)
		if (str_eq(list_entry(n, struct origin, node)->group, group))
			retire(list_entry(n, struct origin, node), "the account changed");
}

/* Of connections that are open; those of the others are counted when they end. */
static void add_open(struct pool_stats *to, const struct origin *o)
{
	list_for_each(n, &o->conns) {
		const struct uconn *c = list_entry(n, struct uconn, node);

		if (c->c)
			http_conn_bytes(c->c, &to->bytes_in, &to->bytes_out);
	}
}

bool pool_stats(const struct pool *p, const struct origin **at, struct pool_stats *ret)
{
	const struct list *n = *at ? (*at)->node.next : p->origin_list.next;
	const struct origin *o = *at = n == &p->origin_list ? NULL : list_entry((struct list *)n, struct origin, node);

	if (!o)
		return false;
	*ret = o->stats;
	add_open(ret, o);
	ret->scheme = o->scheme;
	ret->host = o->host;
	ret->group = o->group;
	ret->port = o->port;
	ret->conns = o->n_conns - o->n_dialing;
	ret->dialing = o->n_dialing;
	ret->queued = o->n_queued;
	ret->version = (uint32_t)o->version;
	ret->stream_target = o->stream_target;
	ret->hold_until_ms = o->hold_until_ms;
	ret->last_error = o->last_failure.text;
	ret->last_error_at_ms = o->last_failure_at_ms;
	list_for_each(m, &o->conns)
		ret->streams += list_entry(m, struct uconn, node)->n_reqs;
	return true;
}

void pool_add_counters(struct pool_stats *to, const struct pool_stats *s)
{
	to->requests += s->requests;
	to->dials += s->dials;
	to->dial_failures += s->dial_failures;
	to->goaways += s->goaways;
	to->enhance_calm_count += s->enhance_calm_count;
	to->replays += s->replays;
	to->pings_lost += s->pings_lost;
	to->misdirected += s->misdirected;
	to->bytes_in += s->bytes_in;
	to->bytes_out += s->bytes_out;
}

const struct histogram *pool_queue_time(const struct pool *p)
{
	return &p->queue_time;
}

void pool_totals(const struct pool *p, struct pool_stats *ret)
{
	*ret = p->gone;
	list_for_each(n, &p->origin_list) {
		pool_add_counters(ret, &list_entry(n, struct origin, node)->stats);
		add_open(ret, list_entry(n, struct origin, node));
	}
}

static uint32_t rtt_us(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0 ? 0 : info.tcpi_rtt;
}

bool pool_conn_stats(const struct origin *o, size_t i, struct pool_conn_stats *ret)
{
	list_for_each(n, &o->conns) {
		const struct uconn *c = list_entry(n, struct uconn, node);

		if (!c->c || i--)
			continue;
		*ret = (struct pool_conn_stats){
			.state = uconn_state_name(c),
			.peer = http_conn_peer(c->c),
			.version = (uint32_t)http_conn_version(c->c),
			.streams = http_conn_open_count(c->c),
			.limit = http_conn_open_count(c->c) + http_conn_free_streams(c->c),
			.rtt_us = rtt_us(http_conn_fd(c->c)),
			.opened_at_ms = c->opened_at_ms,
			.last_read_ms = http_conn_last_read_ms(c->c),
		};
		return true;
	}
	return false;
}
