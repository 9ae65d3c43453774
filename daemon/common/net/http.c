/* SPDX-License-Identifier: MIT */
/*
 * Connections, and the public face of exchanges. A connection is an ordered list of stages, run by
 * the read callback (read, deliver) and by the pump at the end of a pass (write, deliver, end), so
 * that a pass costs one read and one write; nothing here is ever run from inside an owner's call.
 */
#include "daemon/common/net/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/net/http_impl.h"
#include "daemon/common/net/tls.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define READ_TURN_BYTES (2 * XPORT_READ_BYTES)	/* of one connection before the others' turn */
#define READ_FULL_BYTES (XPORT_READ_BYTES / 2)
#define ROUNDS_PER_PASS 4u	/* write, tell, write what was told … */

static const struct {
	const char *name;
	unsigned next;
} states[] = {
	[CONN_TLS] = { "tls", BIT(CONN_SNIFF) | BIT(CONN_OPEN) | BIT(CONN_CLOSED) },
	[CONN_SNIFF] = { "sniff", BIT(CONN_OPEN) | BIT(CONN_CLOSED) },
	[CONN_OPEN] = { "open", BIT(CONN_FLUSH) | BIT(CONN_CLOSED) },
	[CONN_FLUSH] = { "flush", BIT(CONN_LINGER) | BIT(CONN_CLOSED) },
	[CONN_LINGER] = { "linger", BIT(CONN_CLOSED) },
	[CONN_CLOSED] = { "closed", BIT(CONN_GONE) },
	[CONN_GONE] = { "gone", 0 },
};

static void conn_set_state(struct http_conn *c, enum conn_state to)
{
	must(states[c->state].next & BIT(to));
	c->state = to;
	if (to >= CONN_FLUSH)
		log_debug("http_conn", "peer=%s state=%s why=%s", c->peer, states[to].name,
			  log_q(c->why));
}

static struct http_conn *conn_from(void *p)
{
	struct http_conn *c = p;

	must(c && c->magic == HTTP_CONN_MAGIC);
	return c;
}

/* --- ends --- */

/* What it takes before it says anything; its engine counts for itself. */
static size_t conn_bytes(const struct http_conn *c)
{
	return sizeof(*c) + (c->tls ? HTTP_TLS_BYTES : 0);
}

static void conn_free(void *p)
{
	struct http_conn *c = conn_from(p);

	xport_close(&c->xp);
	timer_clear(&c->tick);
	defer_cancel(&c->pump);
	defer_cancel(&c->again);
	if (c->ops)
		c->ops->free(c);
	quota_give(c->quota, conn_bytes(c));
	quota_unref(c->quota);
	guest_unref(c->guest);
	c->magic = 0;
	free(c);
}

static void bury_if_unused(struct http_conn *c)
{
	if (c->state != CONN_GONE || c->n_x || c->buried)
		return;
	c->buried = true;
	loop_bury(c->loop, &c->grave, conn_free, c);
}

static void close_fd(struct http_conn *c, const char *why)
{
	if (!c->why[0])
		str_copy(c->why, sizeof(c->why), why);
	conn_set_state(c, CONN_CLOSED);
	c->stalled_since_ms = 0;
	xport_close(&c->xp);
	timer_clear(&c->tick);
	if (c->ops)
		c->ops->lost(c);
}

static void unlink_from_server(struct http_conn *c)
{
	if (c->server)
		server_conn_gone(c->server, c);
	c->server = NULL;
}

void conn_fail(struct http_conn *c, const char *why)
{
	if (c->state >= CONN_CLOSED)
		return;
	close_fd(c, why);
	conn_touch(c);
}

void conn_finish(struct http_conn *c, const char *why)
{
	if (c->state >= CONN_FLUSH)
		return;
	if (c->state != CONN_OPEN) {
		conn_fail(c, why);
		return;
	}
	if (!c->why[0])
		str_copy(c->why, sizeof(c->why), why);
	conn_set_state(c, CONN_FLUSH);
	c->xp.read_paused = false;
	conn_touch(c);
}

void conn_discard(struct http_conn *c)
{
	if (c->state == CONN_GONE)
		return;
	if (c->state < CONN_CLOSED)
		close_fd(c, "given up");
	list_for_each_safe(n, &c->detached)
		http_stream_release(list_entry(n, struct http_stream, detached));
	conn_set_state(c, CONN_GONE);
	defer_cancel(&c->pump);
	defer_cancel(&c->again);
	unlink_from_server(c);
	bury_if_unused(c);
}

static void tell_ready(struct http_conn *c, const struct status *failure)
{
	void (*ready)(struct http_conn *, const struct status *, void *) = c->ready;

	c->ready = NULL;
	if (failure)
		conn_discard(c);
	ready(failure ? NULL : c, failure, c->owner);
}

/* All exchanges have heard of it: now the connection's owner. */
static void tell_gone(struct http_conn *c)
{
	struct http_server *s = c->server;

	if (c->ready) {
		struct status st;

		status_set(&st, R_UNREACHABLE, "%s: %s", c->peer, c->why);
		tell_ready(c, &st);
		return;
	}
	conn_set_state(c, CONN_GONE);
	if (s) {
		const struct http_server_options *o = server_options(s);

		unlink_from_server(c);
		if (o->on_conn_closed)
			o->on_conn_closed(c, c->user, c->why, o->user);
	} else if (c->closed) {
		c->closed(c, c->why, c->owner);
	}
	bury_if_unused(c);
}

/* --- time --- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return !a ? b : !b ? a : MIN(a, b);
}

static uint64_t idle_ms(const struct http_conn *c)
{
	return c->server ? server_options(c->server)->idle_ms : 0;
}

static uint64_t next_moment(const struct http_conn *c)
{
	uint64_t at = sooner(c->handshake_by_ms, sooner(c->drain_by_ms, c->linger_by_ms));

	if (c->ops && c->ops->due && c->state == CONN_OPEN)
		at = sooner(at, c->ops->due(c));
	if (c->stalled_since_ms)
		at = sooner(at, c->stalled_since_ms + HTTP_STALL_MS);
	if (c->idle_since_ms)
		at = sooner(at, c->idle_since_ms + idle_ms(c));
	return at;
}

void conn_arm(struct http_conn *c)
{
	uint64_t at;

	if (c->state >= CONN_CLOSED)
		return;
	at = next_moment(c);
	/* A timer that fires too early looks again, so it is only ever moved forward. */
	if (at && (!timer_is_set(&c->tick) || c->tick.at_ms > at) && timer_set(&c->tick, at) < 0)
		conn_fail(c, "out of memory");
}

static void on_tick(struct timer *t, void *user)
{
	struct http_conn *c = conn_from(user);
	uint64_t now = loop_now_ms(c->loop);

	if (c->linger_by_ms && now >= c->linger_by_ms)
		conn_fail(c, c->why);
	else if (c->handshake_by_ms && now >= c->handshake_by_ms)
		conn_fail(c, c->state == CONN_TLS ? "the TLS handshake took too long"
						  : "the peer was too slow to say what it wants");
	else if (c->stalled_since_ms && now >= c->stalled_since_ms + HTTP_STALL_MS)
		conn_fail(c, "the peer reads nothing");
	else if (c->idle_since_ms && now >= c->idle_since_ms + idle_ms(c))
		http_conn_drain(c);
	if (c->state == CONN_OPEN && c->ops->expire)
		c->ops->expire(c, now);
	conn_touch(c); /* a drain step may be due; arms the timer again */
}

static void look_at_time(struct http_conn *c)
{
	uint64_t now = loop_now_ms(c->loop);

	if (!c->xp.blocked)
		c->stalled_since_ms = 0;
	else if (!c->stalled_since_ms || c->progress_seen != c->xp.progress_bytes)
		c->stalled_since_ms = now;
	c->progress_seen = c->xp.progress_bytes;
	if (!idle_ms(c) || c->state != CONN_OPEN || c->draining || c->ops->open_count(c))
		c->idle_since_ms = 0;
	else if (!c->idle_since_ms)
		c->idle_since_ms = now;
	conn_arm(c);
}

/* --- stages --- */

static void tell_changes(struct http_conn *c)
{
	uint32_t acks, n_free;
	int64_t limit;
	bool goaway;

	if (!c->changed || c->state > CONN_OPEN || c->ready)
		return;
	acks = http_conn_pings_acked(c);
	n_free = http_conn_free_streams(c);
	goaway = http_conn_goaway(c, NULL);
	limit = http_conn_peer_streams(c);
	if (acks != c->seen_acks || goaway != c->seen_goaway || limit != c->seen_limit || (n_free && !c->seen_free)) {
		c->seen_acks = acks;
		c->seen_goaway = goaway;
		c->seen_limit = limit;
		c->seen_free = n_free;
		c->changed(c, c->owner);
		return;
	}
	c->seen_free = n_free;
}

static void conn_deliver(struct http_conn *c)
{
	c->untold = c->ops && c->state != CONN_GONE && !c->ops->deliver(c);
	if (c->untold)
		defer_post(&c->again);
	tell_changes(c);
	if (c->state == CONN_CLOSED && !c->untold)
		tell_gone(c);
}

static bool start_engine(struct http_conn *c, int version)
{
	int r = version == HTTP_VERSION_2 ? h2conn_start(c, clock_boot_ms()) : h1conn_start(c);

	if (r < 0) {
		conn_fail(c, "out of memory");
		return false;
	}
	conn_set_state(c, CONN_OPEN);
	if (c->draining)
		c->ops->drain(c);
	return true;
}

static void sniff(struct http_conn *c, const uint8_t *p, size_t n, uint64_t now)
{
	static const uint8_t preface[sizeof(c->pre)] = "PRI ";

	while (n && c->n_pre < sizeof(preface) && preface[c->n_pre] == *p) {
		c->pre[c->n_pre++] = *p++;
		n--;
	}
	if (c->n_pre < sizeof(preface) && !n)
		return;
	if (!start_engine(c, c->n_pre == sizeof(preface) ? HTTP_VERSION_2 : HTTP_VERSION_1_1))
		return;
	if (c->n_pre)
		c->ops->feed(c, c->pre, c->n_pre, now);
	if (n && c->state == CONN_OPEN)
		c->ops->feed(c, p, n, now);
}

static void input_end(struct http_conn *c, ssize_t n)
{
	if (c->state == CONN_OPEN && !http_conn_may_end(c))
		return;			/* the end of the input does not run away */
	if (c->state == CONN_FLUSH && n == 0) {
		c->xp.read_paused = true; /* it may still be reading what we flush */
		return;
	}
	if (c->state == CONN_OPEN && (n == 0 || n == -ECONNRESET)) {
		c->ops->eof(c, n == 0);
		return;
	}
	conn_fail(c, n == 0 ? "the peer closed the connection" : strerror((int)-n));
}

static void conn_read(struct http_conn *c)
{
	scratch_ uint8_t in[XPORT_READ_BYTES];
	size_t turn = c->guest ? guest_read_bytes(c->guest, loop_pass(c->loop)) : READ_TURN_BYTES;
	size_t reads = MAX(turn / sizeof(in), (size_t)1);
	ssize_t n;

	do {
		n = xport_read(&c->xp, in, c->xp.tls ? sizeof(in) : MIN(turn, sizeof(in)));
		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			input_end(c, n);
			return;
		}
		c->last_read_ms = clock_boot_ms();
		if (c->state == CONN_OPEN)
			c->ops->feed(c, in, (size_t)n, c->last_read_ms);
		else if (c->state == CONN_SNIFF)
			sniff(c, in, (size_t)n, c->last_read_ms);
	} while (c->state < CONN_CLOSED && !c->xp.read_paused &&
		 (xport_has_more(&c->xp) || (n >= (ssize_t)READ_FULL_BYTES && --reads)));
}

static void handshake(struct http_conn *c)
{
	int r = xport_handshake(&c->xp), version = HTTP_VERSION_1_1;
	struct status st = STATUS_OK;

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		if (r == -EPROTO)
			tls_conn_failure(c->xp.tls, &st);
		else
			status_set(&st, R_UNREACHABLE, "%s closed the connection in the TLS handshake: %s",
				   c->peer, strerror(-r));
		if (c->server)
			conn_fail(c, st.text);
		else
			tell_ready(c, &st);
		return;
	}
	if (tls_conn_has_h2(c->xp.tls))
		version = HTTP_VERSION_2;
	else if (c->server && !server_options(c->server)->http1)
		version = 0; /* it never asked for h2 */
	if (!version)
		conn_fail(c, "the client did not ask for h2 by ALPN");
	else if (start_engine(c, version) && !c->server)
		tell_ready(c, NULL);
}

/* Where memory is tight, what is read may be what ends the connection. */
static bool may_feed(struct http_conn *c)
{
	return !quota_tight(c->quota, 0) || http_conn_may_end(c);
}

static void on_fd_ready(struct watch *w, unsigned ready, void *user)
{
	struct http_conn *c = conn_from(user);

	if (ready & WATCH_WRITE)
		c->xp.blocked = false;
	if (c->state == CONN_TLS)
		handshake(c);
	else if ((ready & WATCH_READ) && !c->untold && may_feed(c))
		conn_read(c);
	conn_deliver(c);
	conn_touch(c);
}

static void conn_write(struct http_conn *c)
{
	int r;

	if (c->state > CONN_FLUSH)
		return;
	r = xport_flush(&c->xp);
	if (!r && c->ops)
		r = c->ops->output(c);
	if (r < 0 && r != -EAGAIN && c->state == CONN_OPEN && !http_conn_may_end(c))
		defer_post(&c->again);	/* it fails again in the next pass */
	else if (r < 0 && r != -EAGAIN)
		conn_fail(c, r == -EPIPE || r == -ECONNRESET ? "the peer closed the connection"
							     : strerror(-r));
}

static bool may_write(const struct http_conn *c)
{
	return c->state <= CONN_FLUSH && !c->xp.blocked &&
	       (xport_unsent(&c->xp) || (c->ops && c->ops->has_output(c)));
}

/* Everything is out: a server waits for the client's end, so that the client gets to read ours. */
static void shut(struct http_conn *c)
{
	xport_shutdown(&c->xp);
	if (!c->server_role || c->xp.read_paused) {
		conn_fail(c, c->why);
		return;
	}
	c->handshake_by_ms = c->drain_by_ms = 0;
	c->linger_by_ms = loop_now_ms(c->loop) + HTTP_LINGER_MS;
	conn_set_state(c, CONN_LINGER);
}

static void on_pump(struct defer *d, void *user)
{
	struct http_conn *c = conn_from(user);
	unsigned rounds = 0;

	if (c->state == CONN_OPEN && c->ready)
		tell_ready(c, NULL);
	if (c->state > CONN_TLS && c->state < CONN_CLOSED && !c->xp.read_paused &&
	    xport_has_more(&c->xp))
		conn_read(c);
	do {
		conn_write(c);
		conn_deliver(c);
		if (c->state == CONN_OPEN)
			c->ops->after(c);
	} while (may_write(c) && ++rounds < ROUNDS_PER_PASS);
	/* What was told may have posted this again, which would run before the others' turn. */
	defer_cancel(&c->pump);
	if (may_write(c))
		defer_post(&c->again);
	else if (c->state == CONN_FLUSH && !c->xp.blocked)
		shut(c);
	if (c->state < CONN_CLOSED && xport_want(&c->xp) < 0)
		conn_fail(c, "out of memory");
	if (c->state < CONN_CLOSED)
		look_at_time(c);
	if (c->state == CONN_CLOSED)
		conn_deliver(c);
}

static void http_on_again(struct defer *d, void *user)
{
	conn_touch(conn_from(user));
}

/* --- beginnings --- */

/* A connection's quota: a server's ends the connection, a client's only counts. */
static int open_quota(struct http_conn *c, const struct http_conn_options *o)
{
	struct quota_options q = { .parent = o->quota, .name = "this connection", .max = o->quota_max,
				   .soft = !o->server };

	if (!o->quota)
		return 0;
	c->quota = quota_new(&q);
	if (!c->quota)
		return -ENOMEM;
	if (quota_take(c->quota, conn_bytes(c)) == 0)
		return 0;
	c->quota = quota_unref(c->quota);
	return -ENOBUFS;
}

static int conn_make(const struct http_conn_options *o, struct http_conn **ret)
{
	struct http_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->tls = o->tls;
	c->state = o->tls ? CONN_TLS : CONN_SNIFF;
	r = open_quota(c, o);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

int conn_new(const struct http_conn_options *o, struct http_conn **ret)
{
	const struct http_server_options *so = o->server ? server_options(o->server) : NULL;
	struct http_conn *c;
	int r = conn_make(o, &c);

	if (r < 0) {
		fd_close(o->fd);
		tls_conn_free(o->tls);
		return r;
	}
	c->magic = HTTP_CONN_MAGIC;
	c->loop = o->loop;
	c->server = o->server;
	c->server_role = o->server;
	c->title_names = so && so->title_names;
	c->guest = o->guest ? guest_ref(o->guest) : NULL;
	c->stream_window = o->stream_window;
	c->send_max = o->send_max;
	c->handshake_by_ms = o->handshake_by_ms;
	c->last_read_ms = loop_now_ms(o->loop);
	list_init(&c->node);
	list_init(&c->detached);
	timer_init(&c->tick, o->loop, on_tick, c);
	defer_init_pump(&c->pump, o->loop, on_pump, c);
	defer_init(&c->again, o->loop, http_on_again, c);
	sock_tune(o->fd);
	sock_peer_text(o->fd, c->peer, sizeof(c->peer));
	r = xport_init(&c->xp, o->loop, o->fd, o->tls, on_fd_ready, c);
	if (!r && so && !o->tls && !(so->http1 && so->http2) &&
	    !start_engine(c, so->http2 ? HTTP_VERSION_2 : HTTP_VERSION_1_1))
		r = -ENOMEM;
	if (r < 0) {
		conn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void conn_start(struct http_conn *c)
{
	if (c->state == CONN_TLS && !c->server_role)
		handshake(c);
	else if (c->state == CONN_SNIFF && !c->server_role)
		(void)start_engine(c, c->plain_http2 ? HTTP_VERSION_2 : HTTP_VERSION_1_1);
	conn_touch(c);
}

int http_conn_adopt(const struct http_adopt_options *o, struct http_conn **ret)
{
	const struct http_conn_options co = {
		.loop = o->loop,
		.fd = o->fd,
		.stream_window = o->stream_window,
		.send_max = o->send_max,
	};
	struct http_conn *c;
	int r = conn_new(&co, &c);

	if (r < 0)
		return r;
	if (!start_engine(c, HTTP_VERSION_1_1)) {
		conn_discard(c);
		return -ENOMEM;
	}
	c->title_names = o->title_names;
	c->closed = o->closed;
	c->owner = o->user;
	conn_touch(c);
	*ret = c;
	return 0;
}

/* --- exchanges --- */

void http_stream_init(struct http_stream *x, struct http_conn *c, const struct http_ops *ops)
{
	x->magic = HTTP_STREAM_MAGIC;
	x->c = c;
	x->ops = ops;
	list_init(&x->detached);
	c->n_x++;
}

void http_stream_ready(struct http_stream *x)
{
	if (x->on_ready && !x->released)
		x->on_ready(x, x->user);
}

void http_stream_bury(struct http_stream *x, void (*free_fn)(void *))
{
	struct http_conn *c = x->c;

	x->magic = 0;
	loop_bury(c->loop, &x->grave, free_fn, x);
	c->n_x--;
	bury_if_unused(c);
}

static const struct http_stream *http_stream_checked(const struct http_stream *x)
{
	must(x && x->magic == HTTP_STREAM_MAGIC && !x->released);
	return x;
}

void http_stream_set_owner(struct http_stream *x, http_ready_fn *on_ready, void *user)
{
	http_stream_checked(x);
	x->on_ready = on_ready;
	x->user = user;
}

struct http_conn *http_stream_conn(const struct http_stream *x)
{
	return http_stream_checked(x)->c->state == CONN_GONE ? NULL : x->c;
}

const struct fields *http_stream_head(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->head(x);
}

bool http_stream_head_is_cut(const struct http_stream *x)
{
	const struct http_ops *ops = http_stream_checked(x)->ops;

	return ops->head_is_cut && ops->head_is_cut(x);
}

void http_stream_drop_head(struct http_stream *x)
{
	const struct http_ops *ops = http_stream_checked(x)->ops;

	if (ops->drop_head)
		ops->drop_head(x);
}

const struct fields *http_stream_trailers(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->trailers(x);
}

unsigned http_stream_status(const struct http_stream *x)
{
	const struct fields *head = http_stream_head(x);
	const char *s = head ? fields_get(head, ":status") : NULL;
	uint64_t status;

	return s && str_u64(s, strlen(s), 999, &status) == 0 ? (unsigned)status : 0;
}

size_t http_stream_peek(const struct http_stream *x, const uint8_t **ret)
{
	http_stream_checked(x);
	/* Looking is what makes an HTTP/1.1 server ask for a body that waits for 100-continue. */
	return x->ops->peek((struct http_stream *)(uintptr_t)x, ret);
}

size_t http_stream_buffered(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->buffered(x);
}

int http_stream_pull(struct http_stream *x, size_t n)
{
	const struct http_ops *ops = http_stream_checked(x)->ops;

	return ops->pull ? ops->pull(x, n) : 0;
}

int http_stream_take(struct http_stream *x, struct buf *b)
{
	const uint8_t *p;
	size_t n;
	int r = 0;

	while (!r && (n = http_stream_peek(x, &p)) > 0) {
		r = n > buf_room(b) ? -EMSGSIZE : buf_put(b, p, n);
		if (!r)
			http_stream_consume(x, n);
	}
	return r;
}

void http_stream_consume(struct http_stream *x, size_t n)
{
	http_stream_checked(x)->ops->consume(x, n);
	conn_touch(x->c);
}

bool http_stream_ended(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->ended(x);
}

bool http_stream_at_end(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->at_end(x);
}

int http_stream_respond(struct http_stream *x, const struct fields *head, bool end)
{
	int r = http_stream_checked(x)->ops->respond(x, head, end);

	conn_touch(x->c);
	return r;
}

bool http_stream_next_interim(struct http_stream *x, struct fields *ret)
{
	return http_stream_checked(x)->ops->next_interim(x, ret);
}

bool http_stream_awaits_continue(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->awaits_continue(x);
}

bool http_stream_can_upgrade(const struct http_stream *x)
{
	const struct http_ops *ops = http_stream_checked((struct http_stream *)x)->ops;

	return ops->can_upgrade && ops->can_upgrade(x);
}

size_t http_stream_room(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->room(x);
}

size_t http_stream_unsent(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->unsent(x);
}

int http_stream_write(struct http_stream *x, const void *p, size_t n)
{
	int r = http_stream_checked(x)->ops->write(x, p, n);

	conn_touch(x->c);
	return r;
}

uint8_t *http_stream_space(struct http_stream *x, size_t n)
{
	const struct http_ops *ops = http_stream_checked(x)->ops;

	return ops->space ? ops->space(x, n) : NULL;
}

int http_stream_added(struct http_stream *x, size_t n)
{
	int r = http_stream_checked(x)->ops->added(x, n);

	conn_touch(x->c);
	return r;
}

int http_stream_finish(struct http_stream *x, const struct fields *trailers)
{
	int r = http_stream_checked(x)->ops->finish(x, trailers);

	conn_touch(x->c);
	return r;
}

void http_stream_reset(struct http_stream *x, uint32_t h2_code)
{
	http_stream_checked(x)->ops->reset(x, h2_code);
	conn_touch(x->c);
}

void http_stream_release(struct http_stream *x)
{
	struct http_conn *c = http_stream_checked(x)->c;

	x->released = true;
	x->on_ready = NULL;
	list_del(&x->detached);
	conn_touch(c);
	x->ops->release(x);
}

static void on_detached(struct http_stream *x, void *user)
{
	const uint8_t *p;
	size_t n;

	while ((n = http_stream_peek(x, &p)) > 0)
		http_stream_consume(x, n);
	if (http_stream_closed(x, NULL) != HTTP_OPEN)
		http_stream_release(x);
}

void http_stream_detach(struct http_stream *x)
{
	http_stream_set_owner(x, on_detached, NULL);
	list_add_tail(&x->c->detached, &x->detached);
	on_detached(x, NULL);
}

enum http_close http_stream_closed(const struct http_stream *x, uint32_t *ret_code)
{
	return http_stream_checked(x)->ops->closed(x, ret_code);
}

bool http_stream_was_sent(const struct http_stream *x)
{
	return http_stream_checked(x)->ops->was_sent(x);
}

/* --- the public face of connections --- */

int http_conn_version(const struct http_conn *c)
{
	return c->ops ? c->ops->version : 0;
}

int http_conn_fd(const struct http_conn *c)
{
	return c->xp.fd;
}

void *http_conn_user(const struct http_conn *c)
{
	return c->user;
}

const char *http_conn_peer(const struct http_conn *c)
{
	return c->peer;
}

struct quota *http_conn_quota(const struct http_conn *c)
{
	return c->quota;
}

uint64_t http_conn_stalled_ms(const struct http_conn *c)
{
	return c->stalled_since_ms ? loop_now_ms(c->loop) - c->stalled_since_ms : 0;
}

bool http_conn_is_tls(const struct http_conn *c)
{
	return c->tls;
}

bool http_conn_is_bare(const struct http_conn *c)
{
	return c->server_role && c->state == CONN_OPEN && !c->tls && !c->n_x && c->ops->is_bare && c->ops->is_bare(c);
}

bool http_conn_covers(const struct http_conn *c, const char *host)
{
	return c->state == CONN_OPEN && c->xp.tls && tls_conn_covers(c->xp.tls, host);
}

uint32_t http_conn_open_count(const struct http_conn *c)
{
	return c->ops ? c->ops->open_count(c) : 0;
}

void http_conn_close(struct http_conn *c, const char *reason)
{
	conn_fail(conn_from(c), reason);
}

bool http_conn_may_end(struct http_conn *c)
{
	return !c->guest || guest_may_end(c->guest, loop_pass(c->loop), http_conn_open_count(c));
}

void http_conn_drain(struct http_conn *c)
{
	if (conn_from(c)->draining || c->state > CONN_OPEN)
		return;
	c->draining = true;
	if (c->state == CONN_OPEN)
		c->ops->drain(c);
	else if (!c->server_role)
		conn_fail(c, "drained before it was open");
	else	/* A client has connected, and gets to hear that its calls are not seen. */
		c->handshake_by_ms = sooner(c->handshake_by_ms, loop_now_ms(c->loop) + HTTP_DRAIN_ACK_MS);
	conn_touch(c);
}

void http_conn_drain_end(struct http_conn *c)
{
	if (!conn_from(c)->draining || !c->drain_by_ms)
		return;
	c->drain_by_ms = loop_now_ms(c->loop);
	conn_touch(c);
}

int http_conn_request(struct http_conn *c, const struct fields *head, bool end,
		      http_ready_fn *on_ready, void *user, struct http_stream **ret)
{
	struct http_stream *x;
	int r;

	if (!http_conn_free_streams(conn_from(c)))
		return -EAGAIN;
	r = c->ops->request(c, head, end, &x);
	if (r < 0)
		return r;
	x->on_ready = on_ready;
	x->user = user;
	conn_touch(c);
	*ret = x;
	return 0;
}

uint32_t http_conn_free_streams(const struct http_conn *c)
{
	return c->state != CONN_OPEN || c->draining || c->server_role ? 0 : c->ops->free_streams(c);
}

int64_t http_conn_peer_streams(const struct http_conn *c)
{
	return c->ops->peer_streams ? c->ops->peer_streams(c) : -1;
}

bool http_conn_broke_rules(const struct http_conn *c)
{
	return c->broke_rules;
}

void http_conn_bytes(const struct http_conn *c, uint64_t *in, uint64_t *out)
{
	*in += c->xp.received_bytes;
	*out += c->xp.progress_bytes;
}

uint64_t http_conn_last_read_ms(const struct http_conn *c)
{
	return c->last_read_ms;
}
