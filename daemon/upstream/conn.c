/* SPDX-License-Identifier: MIT */
/*
 * One connection of the pool, from dialling to its end, and its health: PING while streams are open
 * and nothing arrives, retirement by age and idleness. Ends always have a reason.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/upstream/origin.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define BARREN_MS 10000u	/* an end within so long is the peer's word on new connections */

static const struct {
	const char *name;
	unsigned next;
} states[] = {
	[UCONN_DIALING] = { "dialing", BIT(UCONN_READY) | BIT(UCONN_CLOSED) },
	[UCONN_READY] = { "ready", BIT(UCONN_PROBING) | BIT(UCONN_LEAVING) | BIT(UCONN_CLOSED) },
	[UCONN_PROBING] = { "probing", BIT(UCONN_READY) | BIT(UCONN_LEAVING) | BIT(UCONN_CLOSED) },
	[UCONN_LEAVING] = { "leaving", BIT(UCONN_CLOSED) },
	[UCONN_CLOSED] = { "closed", 0 },
};

const char *uconn_state_name(const struct uconn *c)
{
	return states[c->state].name;
}

void uconn_set_state(struct uconn *c, enum uconn_state to)
{
	must(states[c->state].next & BIT(to));
	if (c->origin) {
		log_debug("upstream_conn", "origin=%s from=%s to=%s", c->origin->host,
			  states[c->state].name, states[to].name);
		if (c->state == UCONN_DIALING)
			c->origin->n_dialing--;
	}
	c->state = to;
}

/* --- beginning and end --- */

static void uconn_unlink(struct uconn *c)
{
	if (c->origin) {
		list_del(&c->node);
		c->origin->n_conns--;
		origin_kick(c->origin);
	}
	c->origin = NULL;
}

static void on_dialled(struct http_conn *hc, const struct status *failure, void *user)
{
	struct uconn *c = user;
	struct origin *o = c->origin;
	struct loop *loop = o->pool->loop;

	c->dial = NULL;
	if (!hc) {
		uconn_set_state(c, UCONN_CLOSED);
		uconn_unlink(c);
		origin_dial_failed(o, failure);
		share_dialled(o, false);
		loop_bury(loop, &c->grave, free, c);
		return;
	}
	c->c = hc;
	c->opened_at_ms = c->idle_at_ms = loop_now_ms(loop);
	uconn_set_state(c, UCONN_READY);
	o->version = http_conn_version(hc);
	if (o->version != HTTP_VERSION_2)
		o->peer_streams = -1;
	if (o->failures)
		log_info("upstream_reached", "origin=%s port=%u after_failures=%u", o->host, o->port, o->failures);
	o->failures = 0;
	if (!o->enhance_calm_count)
		o->hold_until_ms = 0;
	list_for_each_safe(n, &o->conns) {
		struct uconn *old = list_entry(n, struct uconn, node);

		if (old->expired && old->state == UCONN_READY)
			uconn_leave(old, "age");
	}
	share_dialled(o, true);
	log_info("upstream_connected", "origin=%s peer=%s http=%s conns=%u", o->host, http_conn_peer(hc),
		 o->version == HTTP_VERSION_2 ? "2" : "1.1", o->n_conns);
	origin_kick(o);
}

/* Only this connection is retired: new requests get another, open ones go on to their end. */
static void note_goaway(struct uconn *c, struct http_conn *hc)
{
	struct origin *o = c->origin;
	uint32_t code = 0;

	if (c->goaway || !http_conn_goaway(hc, &code))
		return;
	c->goaway = true;
	o->stats.goaways++;
	log_info("upstream_goaway", "origin=%s code=%u open=%u", o->host, code, c->n_reqs);
	uconn_was_barren(c);
	if (code == POOL_H2_CALM)
		origin_calmed(o);
	uconn_leave(c, "GOAWAY");
}

/* An exchange's own on_ready comes before this or not at all: whoever is left is told here. */
static void on_closed(struct http_conn *hc, const char *reason, void *user)
{
	struct uconn *c = user;
	struct origin *o = c->origin;

	c->c = NULL;
	if (!o) {
		free(c);
		return;
	}
	note_goaway(c, hc);	/* an idle one ends without having changed before */
	http_conn_bytes(hc, &o->stats.bytes_in, &o->stats.bytes_out);
	uconn_was_barren(c);
	log_info("upstream_closed", "origin=%s reason=%s open=%u", o->host, log_q(reason), c->n_reqs);
	list_for_each_safe(n, &c->reqs) {
		struct pool_req *r = list_entry(n, struct pool_req, node);
		uint32_t code = 0;
		enum http_close how = r->x ? http_stream_closed(r->x, &code) : HTTP_CLOSE_LOST;

		if (how == HTTP_CLOSE_CLEAN)
			continue;	/* its on_ready will be called and complete it */
		pool_req_attempt_ended(r, how == HTTP_OPEN ? HTTP_CLOSE_LOST : how, code);
	}
	list_for_each_safe(n, &c->reqs)
		uconn_detach(list_entry(n, struct pool_req, node));
	uconn_set_state(c, UCONN_CLOSED);
	uconn_unlink(c);
	loop_bury(o->pool->loop, &c->grave, free, c);
}

static void on_changed(struct http_conn *hc, void *user)
{
	struct uconn *c = user;
	struct origin *o = c->origin;

	if (!o)
		return;
	note_goaway(c, hc);
	if (c->ping_at_ms && http_conn_pings_acked(hc) != c->pings_acked) {
		o->stats.rtt_ms = (uint32_t)(loop_now_ms(o->pool->loop) - c->ping_at_ms);
		c->pings_acked = http_conn_pings_acked(hc);
		c->ping_at_ms = 0;
		if (c->state == UCONN_PROBING)
			uconn_set_state(c, UCONN_READY);
	}
	origin_kick(o);
}

int uconn_dial(struct origin *o)
{
	struct uconn *c = calloc(1, sizeof(*c));
	uint64_t now = loop_now_ms(o->pool->loop);
	struct http_dial_options d = {
		.loop = o->pool->loop,
		.host = o->host,
		.port = o->port,
		.resolver = o->pool->o.resolver,
		.tls = o->tls,
		.plain_http2 = o->plain_http2,
		.http1_only = o->http1,
		.proxy = o->proxy,
		.deadline_ms = now + o->pool->o.dial_ms,
		.stream_window = o->pool->o.stream_window,
		.send_max = o->pool->o.send_max,
		.quota = o->quota,
		.done = on_dialled,
		.closed = on_closed,
		.changed = on_changed,
		.user = c,
	};
	int r;

	if (!c)
		return -ENOMEM;
	list_init(&c->node);
	list_init(&c->reqs);
	c->state = UCONN_DIALING;
	r = http_dial(&d, &c->dial);
	if (r < 0) {
		free(c);
		return r;
	}
	c->origin = o;
	list_add_tail(&o->conns, &c->node);
	o->n_conns++;
	o->n_dialing++;
	o->stats.dials++;
	return 0;
}

void uconn_close(struct uconn *c, const char *reason)
{
	if (c->c)
		http_conn_close(c->c, reason);
}

/* A client's GOAWAY goes out only when nothing is open: there are servers that answer none of the
 * open streams after it. */
static void end_if_left(struct uconn *c)
{
	if (c->state == UCONN_LEAVING && !c->n_reqs && c->c)
		http_conn_drain(c->c);
}

void uconn_leave(struct uconn *c, const char *reason)
{
	if (c->state != UCONN_READY && c->state != UCONN_PROBING)
		return;
	uconn_set_state(c, UCONN_LEAVING);
	log_debug("upstream_leave", "origin=%s reason=%s open=%u", c->origin->host, log_q(reason),
		  c->n_reqs);
	end_if_left(c);
}

/* The pool ends: the connection closes, and whatever net still calls finds nobody. */
void uconn_forget_origin(struct uconn *c)
{
	struct http_conn *hc = c->c;

	must(list_is_empty(&c->reqs));
	if (c->dial) {
		http_dial_cancel(c->dial);
		c->dial = NULL;
		uconn_set_state(c, UCONN_CLOSED);
		list_del(&c->node);
		c->origin->n_conns--;
		free(c);
		return;
	}
	list_del(&c->node);
	c->origin->n_conns--;
	c->origin = NULL;
	if (hc)
		http_conn_close(hc, "the pool ends");	/* on_closed() frees c */
}

/* --- its requests --- */

void uconn_attach(struct uconn *c, struct pool_req *r)
{
	list_add_tail(&c->reqs, &r->node);
	r->conn = c;
	if (!c->n_reqs++)
		c->busy_at_ms = loop_now_ms(c->origin->pool->loop);
}

void uconn_detach(struct pool_req *r)
{
	struct uconn *c = r->conn;

	list_del(&r->node);
	r->conn = NULL;
	must(c->n_reqs);
	c->n_reqs--;
	if (!c->origin)
		return;
	if (!c->n_reqs)
		c->idle_at_ms = loop_now_ms(c->origin->pool->loop);
	end_if_left(c);
	origin_kick(c->origin);
	if (r->origin != c->origin)
		origin_kick(r->origin);
}

void uconn_answered(struct uconn *c, bool good)
{
	c->starved_requests = 0;
	if (!good || !c->origin)
		return;
	c->answered = true;
	c->origin->barren = 0;
	c->origin->dial_at_ms = 0;
}

/* One that was there for a while and was not needed says nothing about the peer. */
void uconn_was_barren(struct uconn *c)
{
	if (c->answered || c->barren || !c->opened_at_ms ||
	    loop_now_ms(c->origin->pool->loop) >= c->opened_at_ms + BARREN_MS)
		return;
	c->barren = true;
	origin_barren(c->origin, c->opened_at_ms);
}

bool uconn_has_no_streams(const struct uconn *c)
{
	int64_t told = http_conn_peer_streams(c->c);

	return !(told < 0 ? c->origin->peer_streams : told);
}

bool uconn_awaits_settings(const struct uconn *c)
{
	return http_conn_peer_streams(c->c) < 0 && uconn_has_no_streams(c);
}

uint32_t uconn_room(const struct uconn *c, enum pool_class cls)
{
	uint32_t free_now = http_conn_free_streams(c->c);
	uint32_t open = MAX(c->n_reqs, http_conn_open_count(c->c));
	uint32_t limit = free_now + http_conn_open_count(c->c);
	int64_t told = http_conn_peer_streams(c->c);

	if (told >= 0)
		c->origin->peer_streams = told;
	if (!free_now)
		return 0;
	/* A new one is not trusted with more than the last one was. */
	if (told < 0 && c->origin->peer_streams >= 0)
		limit = (uint32_t)MIN((int64_t)limit, c->origin->peer_streams);
	if (c->origin->stream_target)
		limit = MIN(limit, c->origin->stream_target);
	if (cls == POOL_LONG)
		limit = MAX(limit / 5 * 4 + limit % 5 * 4 / 5, 1u);
	return limit > open ? MIN(limit - open, free_now) : 0;
}

bool uconn_is_fresh(const struct uconn *c, uint64_t now_ms)
{
	uint64_t last = MAX(http_conn_last_read_ms(c->c), c->opened_at_ms);

	return c->n_reqs || now_ms < last + c->origin->pool->o.fresh_ms;
}

/* False: there is no PING in HTTP/1.1, or no memory. */
static bool send_ping(struct uconn *c, uint64_t now)
{
	if (http_conn_ping(c->c) < 0)
		return false;
	c->pings_acked = http_conn_pings_acked(c->c);
	c->ping_at_ms = now;
	return true;
}

void uconn_probe(struct uconn *c)
{
	if (send_ping(c, loop_now_ms(c->origin->pool->loop)))
		uconn_set_state(c, UCONN_PROBING);
	else
		uconn_leave(c, "idle for too long to be trusted");
}

/* --- health --- */

bool uconn_is_suspect(const struct uconn *c)
{
	return c->suspect_ms && http_conn_last_read_ms(c->c) < c->suspect_ms;
}

/* What swallowed one connection may have swallowed all that took the same way: each is tried at once,
 * and until it answers what is new goes on a new one. */
static void suspect_others(const struct uconn *dead, uint64_t now)
{
	list_for_each(i, &dead->origin->pool->origin_list) {
		struct origin *o = list_entry(i, struct origin, node);

		list_for_each(j, &o->conns) {
			struct uconn *c = list_entry(j, struct uconn, node);

			if (c == dead || (c->state != UCONN_READY && c->state != UCONN_LEAVING) || c->suspect_ms ||
			    http_conn_last_read_ms(c->c) > dead->ping_at_ms ||
			    !str_eq(http_conn_peer(c->c), http_conn_peer(dead->c)))
				continue;
			if (!c->ping_at_ms && !send_ping(c, now))
				continue;
			c->suspect_ms = now;
			origin_kick(o);
		}
	}
}

static uint64_t check_ping(struct uconn *c, uint64_t now)
{
	struct origin *o = c->origin;
	uint64_t quiet_since = MAX(http_conn_last_read_ms(c->c), c->busy_at_ms);

	if (c->suspect_ms && !uconn_is_suspect(c))
		c->suspect_ms = 0;
	if (c->ping_at_ms && http_conn_last_read_ms(c->c) > c->ping_at_ms && c->state != UCONN_PROBING) {
		c->ping_at_ms = 0;	/* any frame is an answer */
		c->pings_acked = http_conn_pings_acked(c->c);
	}
	if (c->ping_at_ms) {
		if (now < c->ping_at_ms + o->pool->o.ping_answer_ms)
			return c->ping_at_ms + o->pool->o.ping_answer_ms;
		o->stats.pings_lost++;
		log_warn("upstream_ping_lost", "origin=%s peer=%s open=%u", o->host,
			 http_conn_peer(c->c), c->n_reqs);
		suspect_others(c, now);
		uconn_close(c, "PING was not answered");
		return UINT64_MAX;
	}
	if (!c->n_reqs)
		return UINT64_MAX;
	if (now < quiet_since + o->ping_after_ms)
		return quiet_since + o->ping_after_ms;
	return send_ping(c, now) ? now + o->pool->o.ping_answer_ms : UINT64_MAX;
}

static bool is_last(const struct uconn *c)
{
	list_for_each(n, &c->origin->conns) {
		const struct uconn *other = list_entry(n, struct uconn, node);

		if (other != c && (other->state == UCONN_READY || other->state == UCONN_PROBING))
			return false;
	}
	return true;
}

static uint64_t check_idle(struct uconn *c, uint64_t now)
{
	const struct pool_options *po = &c->origin->pool->o;
	uint64_t until = c->idle_at_ms + (is_last(c) ? po->warm_ms : po->idle_ms);

	if (now < until)
		return until;
	uconn_leave(c, "idle");
	return UINT64_MAX;
}

static uint64_t check_age(struct uconn *c, uint64_t now)
{
	uint64_t until = c->opened_at_ms + c->origin->pool->o.age_ms;

	if (now < until)
		return until;
	if (!c->n_reqs) {
		uconn_leave(c, "age");
	} else if (!c->expired) {
		c->expired = true;	/* the pump dials its successor */
		origin_kick(c->origin);
	}
	return UINT64_MAX;
}

uint64_t uconn_check(struct uconn *c, uint64_t now_ms)
{
	uint64_t at;

	if (c->state == UCONN_DIALING || c->state == UCONN_CLOSED || !c->c)
		return UINT64_MAX;
	at = check_ping(c, now_ms);
	if (c->state != UCONN_READY)
		return at;
	if (!c->n_reqs)
		at = MIN(at, check_idle(c, now_ms));
	if (c->state == UCONN_READY)
		at = MIN(at, check_age(c, now_ms));
	return at;
}
