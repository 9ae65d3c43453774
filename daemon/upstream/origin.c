/* SPDX-License-Identifier: MIT */
/*
 * One origin: which connection a request gets, when to dial, and how long to leave a peer in peace
 * that cannot be reached or complains. All decisions fall in origin_pump(), once a pass.
 */
#include "daemon/upstream/origin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/net/tls.h"
#include "daemon/common/obs/log.h"
#include "daemon/upstream/backoff.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define DIAL_BASE_MS	   200u
#define DIAL_MAX_MS	   10000u	/* the mean of dials is then one in 7.5 s, never two in 5 s */
#define BARREN_MAX_MS	   2000u	/* as DIAL_MAX_MS, for connections that come about and answer nothing */
#define DIAL_PATIENCE	   3u		/* failed dials in a row, then requests wait for one dial only … */
#define HOLD_PATIENCE_MS   2000u	/* … and for none that is farther away than this */
#define DIAL_PARALLEL_H1   16u
#define NO_STREAMS_MAX	   2u		/* connections on which the peer allows none: no further one */
#define CALM_HOLD_MS	   5000u	/* after a second complaint, doubled up to … */
#define CALM_HOLD_MAX_MS   60000u
#define CALM_FORGET_MS	   (10u * 60 * 1000)
#define PING_AFTER_MAX_MS  60000u
#define KEY_NUMBERS_BYTES  40u		/* of a key: what its numbers take at most */

static void origin_pump(struct defer *d, void *user);
static void origin_on_timer(struct timer *t, void *user);

/* Of the whole number, low digit first: only a key is made of it. */
static char *put_number(char *at, uint64_t n)
{
	do
		*at++ = "0123456789abcdef"[n & 15];
	while (n >>= 4);
	*at++ = '|';
	return at;
}

static char *put_word(char *at, const char *s)
{
	while (s && *s)
		*at++ = *s++;
	*at++ = '|';
	return at;
}

/* Made for each request, and so not printed. */
static char *make_key(const struct pool_target *t)
{
	const char *words[] = { t->scheme, t->host, t->proxy, t->group };
	size_t n = KEY_NUMBERS_BYTES;
	char *key, *at;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		n += (words[i] ? strlen(words[i]) : 0) + 1;
	key = at = malloc(n);
	if (!key)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		at = put_word(at, words[i]);
	at = put_number(at, t->port | (t->plain_http2 ? BIT(16) : 0) | (t->http1 ? BIT(17) : 0));
	at = put_number(at, (uintptr_t)t->tls);
	*at = '\0';
	return key;
}

static char *make_authority(const struct pool_target *t)
{
	bool v6 = strchr(t->host, ':') != NULL;

	if (t->port == (str_eq(t->scheme, "https") ? 443 : 80))
		return str_printf(v6 ? "[%s]" : "%s", t->host);
	return str_printf(v6 ? "[%s]:%u" : "%s:%u", t->host, t->port);
}

static void bury(void *p)
{
	struct origin *o = p;

	tls_client_unref(o->tls);
	free(o->key);
	free(o->scheme);
	free(o->host);
	free(o->authority);
	free(o->group);
	str_free_secret(o->proxy);
	quota_unref(o->quota);
	free(o);
}

struct origin *origin_get(struct pool *p, const struct pool_target *t)
{
	char *key = make_key(t);
	struct origin *o = key ? map_get_str(&p->origins, key) : NULL;

	if (o || !key) {
		free(key);
		return o;
	}
	o = calloc(1, sizeof(*o));
	if (!o) {
		free(key);
		return NULL;
	}
	o->pool = p;
	o->key = key;
	o->scheme = str_dup(t->scheme);
	o->host = str_dup(t->host);
	o->authority = make_authority(t);
	o->group = str_dup(t->group ? t->group : "");
	o->proxy = str_dup(t->proxy);
	o->port = t->port;
	o->tls = t->tls ? tls_client_ref(t->tls) : NULL;
	o->plain_http2 = t->plain_http2 && !t->http1;
	o->http1 = t->http1;
	o->peer_streams = -1;
	o->quota = quota_ref(t->quota ? t->quota : p->quota);
	o->ping_after_ms = p->o.ping_after_ms;
	list_init(&o->conns);
	list_init(&o->queue[POOL_SHORT]);
	list_init(&o->queue[POOL_LONG]);
	if (!o->scheme || !o->host || !o->authority || !o->group || (t->proxy && !o->proxy) ||
	    map_put_str(&p->origins, o->key, o) < 0) {
		bury(o);
		return NULL;
	}
	defer_init(&o->pump, p->loop, origin_pump, o);
	timer_init(&o->timer, p->loop, origin_on_timer, o);
	list_add_tail(&p->origin_list, &o->node);
	return o;
}

void origin_free(struct origin *o)
{
	must(!o->n_reqs);
	list_for_each_safe(n, &o->conns)
		uconn_forget_origin(list_entry(n, struct uconn, node));
	share_fini(o);
	defer_cancel(&o->pump);
	timer_clear(&o->timer);
	pool_add_counters(&o->pool->gone, &o->stats);
	list_del(&o->node);
	map_del_str(&o->pool->origins, o->key);
	loop_bury(o->pool->loop, &o->grave, bury, o);
}

void origin_kick(struct origin *o)
{
	defer_post(&o->pump);
}

/* --- failures --- */

static bool is_hopeless(const struct status *why)
{
	return why->reason == R_TLS_UNTRUSTED || why->reason == R_PROXY_AUTH;
}

static void fail_queued(struct origin *o, const struct status *why)
{
	struct status s = *why;
	uint64_t now = loop_now_ms(o->pool->loop);

	if (o->hold_until_ms > now)
		s.retry_after_ms = (uint32_t)(o->hold_until_ms - now);
	for (int i = 0; i < 2; i++)
		list_for_each_safe(n, &o->queue[i]) {
			struct pool_req *r = list_entry(n, struct pool_req, node);

			pool_req_fail(r, r->sent_before ? POOL_BROKEN : POOL_UNSENT, &s);
		}
}

void origin_dial_failed(struct origin *o, const struct status *why)
{
	uint64_t now = loop_now_ms(o->pool->loop);
	bool is_news = !o->failures || o->last_failure.reason != why->reason;
	uint32_t wait;

	o->failures++;
	o->stats.dial_failures++;
	o->last_failure = *why;
	o->last_failure_at_ms = now;
	wait = backoff_ms(o->failures, DIAL_BASE_MS, DIAL_MAX_MS, rng_u64(&o->pool->rng));
	o->hold_until_ms = MAX(o->hold_until_ms, now + wait);
	/* an outage is this line and upstream_reached with the count, however often it is tried between them */
	log_event(is_news ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "upstream_dial_failed", "origin=%s port=%u failures=%u wait_ms=%u reason=%s why=%s",
		 o->host, o->port, o->failures, wait, status_reason_name(why->reason), log_q(why->text));
	if (is_hopeless(why) || o->failures >= DIAL_PATIENCE)
		fail_queued(o, why);
	origin_kick(o);
}

/* Those that were made before the last one was found out are the same event. */
void origin_barren(struct origin *o, uint64_t opened_at_ms)
{
	uint64_t now = loop_now_ms(o->pool->loop);

	if (opened_at_ms < o->barren_at_ms)
		return;
	o->barren_at_ms = now;
	if (++o->barren > 1)
		o->dial_at_ms = now + backoff_ms(o->barren - 1, DIAL_BASE_MS, BARREN_MAX_MS, rng_u64(&o->pool->rng));
}

void origin_calmed(struct origin *o)
{
	uint64_t now = loop_now_ms(o->pool->loop);
	uint32_t hold = CALM_HOLD_MS;

	if (o->enhance_calm_count && now - o->calm_at_ms > CALM_FORGET_MS)
		o->enhance_calm_count = 0;
	o->enhance_calm_count++;
	o->stats.enhance_calm_count++;
	o->calm_at_ms = now;
	o->ping_after_ms = MIN(o->ping_after_ms * 2, MAX(PING_AFTER_MAX_MS, o->pool->o.ping_after_ms));
	o->stream_target = o->stream_target ? MAX(o->stream_target / 2, 1u) : 50;
	if (o->enhance_calm_count == 1)		/* a single one may have met others' traffic: go on at once */
		return;
	for (unsigned i = 2; i < o->enhance_calm_count && hold < CALM_HOLD_MAX_MS; i++)
		hold *= 2;
	o->hold_until_ms = MAX(o->hold_until_ms, now + MIN(hold, CALM_HOLD_MAX_MS));
}

/* --- who goes where --- */

/* The least loaded connection that may take it. *ret_probing: one is being tried out meanwhile. */
static struct uconn *pick(struct origin *o, const struct pool_req *r, uint64_t now, bool *ret_probing)
{
	struct uconn *best = NULL;

	list_for_each_safe(n, &o->conns) {
		struct uconn *c = list_entry(n, struct uconn, node);

		if (c->c && uconn_is_suspect(c))
			continue;
		if (c->state == UCONN_PROBING && r->idempotent && uconn_room(c, r->cls)) {
			best = best ? best : c;
			continue;
		}
		*ret_probing |= c->state == UCONN_PROBING || (c->state == UCONN_READY && uconn_awaits_settings(c));
		if (c->state != UCONN_READY || !uconn_room(c, r->cls))
			continue;
		if (!r->idempotent && !uconn_is_fresh(c, now)) {
			uconn_probe(c);
			*ret_probing |= c->state == UCONN_PROBING;
			continue;
		}
		if (!best || best->state == UCONN_PROBING || best->expired > c->expired ||
		    (best->expired == c->expired && c->n_reqs < best->n_reqs))
			best = c;
	}
	return best ? best : share_find(o, r, now);
}

/* Sends what can be sent. Returns how many are left that only a new connection helps. */
static uint32_t assign(struct origin *o, enum pool_class cls, uint64_t now)
{
	uint32_t left = 0;

	list_for_each_safe(n, &o->queue[cls]) {
		struct pool_req *r = list_entry(n, struct pool_req, node);
		bool probing = false;
		scratch_ struct status why;
		struct uconn *c;
		int k;

		if (r->again_at_ms > now)
			continue;
		c = pick(o, r, now, &probing);
		k = c ? pool_req_send(r, c) : -EAGAIN;

		if (k == -EAGAIN || k == -EPIPE) {
			left += !probing;
			if (left > 2 * DIAL_PARALLEL_H1)
				break;	/* enough is known; the rest would meet the same */
		} else if (k < 0) {
			status_errno(&why, k, "sending a request");
			pool_req_fail(r, POOL_UNSENT, &why);
		}
	}
	return left;
}

/* All that are in use are nearly full: the next one should be there before it is needed. */
static bool is_crowded(const struct origin *o)
{
	bool any = false;

	list_for_each(n, &o->conns) {
		const struct uconn *c = list_entry(n, struct uconn, node);

		if (c->state != UCONN_READY && c->state != UCONN_PROBING)
			continue;
		if (c->expired)
			continue;
		any = true;
		if (uconn_room(c, POOL_LONG))
			return false;
	}
	return any && o->version == HTTP_VERSION_2 && o->n_reqs > 0;
}

static bool has_expired(const struct origin *o)
{
	bool expired = false;

	list_for_each(n, &o->conns) {
		const struct uconn *c = list_entry(n, struct uconn, node);

		if (c->state == UCONN_READY && !c->expired)
			return false;
		expired |= c->state == UCONN_READY && c->n_reqs;
	}
	return expired;
}

/* What allows no stream may change its mind; another connection only costs it one more. */
static bool may_dial(const struct origin *o, uint64_t now)
{
	unsigned none = 0;

	list_for_each(n, &o->conns) {
		const struct uconn *c = list_entry(n, struct uconn, node);

		none += (c->state == UCONN_READY || c->state == UCONN_PROBING) && uconn_has_no_streams(c);
	}
	return none < NO_STREAMS_MAX && o->hold_until_ms <= now && o->dial_at_ms <= now;
}

static void dial_more(struct origin *o, uint32_t left, uint64_t now)
{
	bool h1 = o->version == HTTP_VERSION_1_1;
	uint32_t want = h1 ? MIN(left, DIAL_PARALLEL_H1) : left || is_crowded(o) || has_expired(o);
	uint32_t max = h1 ? o->pool->o.max_conns_h1 : o->pool->o.max_conns_h2;
	scratch_ struct status why;

	while (o->n_dialing < want && o->n_conns < max && may_dial(o, now)) {
		int r = uconn_dial(o);

		if (r < 0) {
			status_errno(&why, r, "dialling");
			origin_dial_failed(o, &why);
			return;
		}
	}
}

static void origin_pump(struct defer *d, void *user)
{
	struct origin *o = user;
	uint64_t now = loop_now_ms(o->pool->loop);
	uint32_t left;

	if (o->enhance_calm_count && now - o->calm_at_ms > CALM_FORGET_MS) {
		o->enhance_calm_count = 0;
		o->stream_target = 0;
		o->ping_after_ms = o->pool->o.ping_after_ms;
	}
	left = assign(o, POOL_SHORT, now) + assign(o, POOL_LONG, now);
	/* A peer that has not been reachable for a while is not waited for: calls fail fast, and the
	 * next one past the hold dials again. */
	if (left && !o->n_dialing && o->failures >= DIAL_PATIENCE &&
	    o->hold_until_ms > now + HOLD_PATIENCE_MS)
		fail_queued(o, &o->last_failure);
	else if (!left || !share_wait(o, now))
		dial_more(o, left, now);
	origin_rearm(o);
}

/* --- time --- */

/* Of one that is not used any more: what it knows (failures, complaints) outlives its use. */
static uint64_t forgotten_at(const struct origin *o)
{
	uint64_t at = MAX(o->hold_until_ms, o->unused_at_ms + o->pool->o.idle_ms);

	return o->enhance_calm_count ? MAX(at, o->calm_at_ms + CALM_FORGET_MS + 1) : at;
}

static bool is_forgettable(const struct origin *o, uint64_t now)
{
	return !o->n_reqs && !o->n_conns && o->unused_at_ms && forgotten_at(o) <= now;
}

/* When the next one that is to be sent again has waited long enough. They are among the first. */
static uint64_t next_repeat(const struct origin *o, uint64_t now)
{
	uint32_t left = o->n_repeats;
	uint64_t at = UINT64_MAX;

	for (int i = 0; i < 2; i++)
		list_for_each(n, &o->queue[i]) {
			const struct pool_req *r = list_entry(n, struct pool_req, node);

			if (!left)
				return at;
			left -= r->again_at_ms != 0;
			if (r->again_at_ms > now)
				at = MIN(at, r->again_at_ms);
		}
	return at;
}

void origin_rearm(struct origin *o)
{
	uint64_t now = loop_now_ms(o->pool->loop), at = UINT64_MAX;

	list_for_each_safe(n, &o->conns) {
		uint64_t t = uconn_check(list_entry(n, struct uconn, node), now);

		at = MIN(at, t);
	}
	if (o->hold_until_ms > now)
		at = MIN(at, o->hold_until_ms);
	if (o->dial_at_ms > now)
		at = MIN(at, o->dial_at_ms);
	at = MIN(at, next_repeat(o, now));
	if (o->n_conns || o->n_reqs)
		o->unused_at_ms = 0;
	else if (!o->unused_at_ms)
		o->unused_at_ms = now;
	if (o->unused_at_ms)
		at = MIN(at, forgotten_at(o));
	if (at == UINT64_MAX)
		timer_clear(&o->timer);
	else if (timer_set(&o->timer, MAX(at, now + 1)) < 0)
		log_error("upstream_timer", "origin=%s why=\"out of memory\"", o->host);
}

static void origin_on_timer(struct timer *t, void *user)
{
	struct origin *o = user;
	uint64_t now = loop_now_ms(o->pool->loop);

	if (is_forgettable(o, now))
		origin_free(o);
	else
		origin_kick(o);		/* pump, which checks all and arms the timer again */
}
