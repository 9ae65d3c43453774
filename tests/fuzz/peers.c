/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/net/xport.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/fuzz/model.h"
#include "tests/sim/sim.h"

#define FRAME_HEAD  9u
#define FRAMES_MAX  64u
#define SOCKET_SIZE (1 << 20)

struct peer {
	struct list node;
	int fd;
	struct watch watch;
	struct timer rest;		/* when the next piece goes out */
	struct h2 *h2;
	struct list asks;
	struct buf held;		/* not sent yet */
	bool silent, dying;		/* dying: ends when nothing of it is looked at */
};

static struct list peers;
static enum peer_fault faults;
static bool calm, changed;

/* --- an end --- */

static void ask_free(struct ask *a)
{
	ask_gone(a);
	timer_clear(&a->timer);
	list_del(&a->node);
	h2_stream_release(a->s);
	buf_fini(&a->body);
	free(a->method);
	free(a->path);
	free(a->sandbox);
	free(a);
}

static void peer_free(struct peer *p)
{
	while (!list_is_empty(&p->asks))
		ask_free(list_entry(p->asks.next, struct ask, node));
	timer_clear(&p->rest);
	watch_fini(&p->watch);
	close(p->fd);
	h2_free(p->h2);
	buf_fini(&p->held);
	list_del(&p->node);
	free(p);
}

/* Not from inside of what may still look at it. */
static void on_dead(struct timer *t, void *user)
{
	peer_free(user);
}

void peer_cut(struct peer *p)
{
	if (p->dying)
		return;
	p->dying = true;
	timer_clear(&p->rest);
	timer_init(&p->rest, W->loop, on_dead, p);
	must(!timer_set(&p->rest, clock_boot_ms()) && !watch_set(&p->watch, 0));
	shutdown(p->fd, SHUT_RDWR);
}

/* --- what is sent --- */

static size_t frame_at(const struct buf *b, size_t at)
{
	const uint8_t *p = buf_data(b) + at;
	size_t left = buf_len(b) - at;

	if (left < FRAME_HEAD)
		return left;
	return MIN(left, FRAME_HEAD + ((size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2]));
}

static unsigned find_frames(const struct buf *b, size_t at[FRAMES_MAX], size_t len[FRAMES_MAX])
{
	unsigned n = 0;

	for (size_t i = 0; i < buf_len(b) && n < FRAMES_MAX; i += len[n - 1]) {
		at[n] = i;
		len[n++] = frame_at(b, i);
	}
	return n;
}

/* A frame of some type about some stream. */
static void put_odd_frame(struct buf *b)
{
	static const uint32_t words[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 16384, 65535 };
	uint8_t f[FRAME_HEAD + 12] = { 0 };
	static const uint8_t sizes[] = { 0, 1, 3, 4, 5, 6, 8, 12 };
	unsigned n = sizes[choose(ARRAY_SIZE(sizes))];

	f[2] = (uint8_t)n;
	f[3] = (uint8_t)choose(12);
	f[4] = (uint8_t)(choose(2) ? choose(256) : 0);
	f[8] = (uint8_t)choose(16);
	for (unsigned i = 0; i < 3; i++) {
		uint32_t w = words[choose(ARRAY_SIZE(words))];

		for (unsigned k = 0; k < 4; k++)
			f[FRAME_HEAD + 4 * i + k] = (uint8_t)(w >> (24 - 8 * k));
	}
	if (f[3] == 4 && n >= 6) {	/* SETTINGS have names of two bytes */
		f[FRAME_HEAD] = 0;
		f[FRAME_HEAD + 1] = (uint8_t)choose(8);
	}
	must(!buf_put(b, f, FRAME_HEAD + n));
}

static void change_frames(struct buf *b)
{
	size_t at[FRAMES_MAX], len[FRAMES_MAX];
	unsigned n = find_frames(b, at, len), which = n ? choose(n) : 0, other = n ? choose(n) : 0, how = choose(7);
	struct buf out = BUF_NULL;

	changed = true;
	if (how == 0) {
		flip_bytes(b);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		unsigned k = how != 1 ? i : i == which ? other : i == other ? which : i;
		const uint8_t *p = buf_data(b) + at[k];

		if (how == 2 && i == which)
			continue;
		if (how == 3 && i == which)
			must(!buf_put(&out, p, len[k]));
		if (how == 4 && i == which)
			put_odd_frame(&out);
		must(!buf_put(&out, p, how == 5 && i == which ? choose(256) * len[k] / 256 : len[k]));
	}
	if (how == 6 && buf_len(&out) > at[which]) {
		uint8_t head[1] = { (uint8_t)choose(256) };
		struct buf twice = BUF_NULL;
		size_t where = MIN(at[which] + choose(FRAME_HEAD), buf_len(&out) - 1);

		must(!buf_put(&twice, buf_data(&out), where) && !buf_put(&twice, head, 1) &&
		     !buf_put(&twice, buf_data(&out) + where + 1, buf_len(&out) - where - 1));
		buf_fini(&out);
		out = twice;
	}
	buf_fini(b);
	*b = out;
}

static void send_held(struct peer *p)
{
	size_t n = buf_len(&p->held);
	ssize_t k;

	if (!n || p->silent || p->dying)
		return;
	if (!calm && faults >= PEER_CUTS && choose(8) == 0)
		n = choose(256) * n / 256;
	k = n ? send(p->fd, buf_data(&p->held), n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
	if (k < 0 && errno != EAGAIN) {
		peer_cut(p);
		return;
	}
	buf_drop(&p->held, k > 0 ? (size_t)k : 0);
	if (buf_len(&p->held))
		must(!timer_set(&p->rest, clock_boot_ms() + 1 + (calm ? 0 : choose(200))));
}

static void on_rest(struct timer *t, void *user)
{
	send_held(user);
}

void peer_flush(struct peer *p)
{
	struct buf fresh = BUF_NULL;
	const uint8_t *bytes;
	size_t n;

	while (!h2_output(p->h2, &bytes, &n) && n) {
		must(!buf_put(&fresh, bytes, n));
		h2_sent(p->h2, n);
	}
	if (!calm && faults >= PEER_FRAMES && buf_len(&fresh) && choose(12) == 0)
		change_frames(&fresh);
	if (buf_len(&fresh))
		must(!buf_put(&p->held, buf_data(&fresh), buf_len(&fresh)));
	buf_fini(&fresh);
	if (!calm && faults >= PEER_CUTS && choose(256) == 0)
		p->silent = true;
	send_held(p);
	if ((h2_is_dead(p->h2) && !buf_len(&p->held)) || (!calm && faults >= PEER_CUTS && choose(128) == 0))
		peer_cut(p);
}

void peer_leave(struct peer *p)
{
	h2_goaway(p->h2, H2_NO_ERROR);
	peer_flush(p);
}

/* --- what comes --- */

static void on_ask_due(struct timer *t, void *user)
{
	struct ask *a = user;

	if (!a->peer->dying)
		ask_due(a);
}

void ask_later(struct ask *a, unsigned ms)
{
	must(!timer_set(&a->timer, clock_boot_ms() + ms));
}

static struct ask *ask_new(struct peer *p, struct h2_stream *s)
{
	const struct fields *h = h2_stream_head(s);
	const char *sandbox = fields_get(h, "agentbox-sandbox-id");
	struct ask *a = calloc(1, sizeof(*a));

	must(a);
	a->peer = p;
	a->s = s;
	a->method = str_dup(fields_get(h, ":method"));
	a->path = str_dup(fields_get(h, ":path"));
	a->sandbox = str_dup(sandbox ? sandbox : "");
	must(a->method && a->path && a->sandbox);
	timer_init(&a->timer, W->loop, on_ask_due, a);
	list_add_tail(&p->asks, &a->node);
	h2_stream_set_user(s, a);
	return a;
}

static void serve(struct peer *p)
{
	struct h2_stream *s;

	while (!p->dying && (s = h2_next_ready(p->h2))) {
		unsigned what = h2_stream_take_ready(s);
		struct ask *a = h2_stream_user(s);
		const uint8_t *bytes;
		size_t n;

		if (!a && (what & H2_READY_HEAD))
			a = ask_new(p, s);
		while ((n = h2_stream_peek(s, &bytes)) > 0) {
			if (a)
				must(!buf_put(&a->body, bytes, n));
			h2_stream_consume(s, n);
		}
		if (a && (what & H2_READY_END))
			ask_came(a);
		if (what & H2_READY_CLOSED) {
			if (a)
				ask_free(a);
			else
				h2_stream_release(s);
		}
	}
}

static void on_bytes(struct watch *w, unsigned ready, void *user)
{
	struct peer *p = user;
	uint8_t in[65536];
	ssize_t n = read(p->fd, in, sizeof(in));

	if (n <= 0) {
		peer_cut(p);
		return;
	}
	if (p->silent)
		return;
	(void)!h2_feed(p->h2, in, (size_t)n, clock_boot_ms());
	serve(p);
	if (!p->dying)
		peer_flush(p);
}

/* --- its way there --- */

int __wrap_sock_connect(const struct sockaddr *addr, unsigned len, int *ret_fd);
int __wrap_sock_connect(const struct sockaddr *addr, unsigned len, int *ret_fd)
{
	struct peer *p;
	int two[2], large = SOCKET_SIZE;

	if (!calm && faults >= PEER_CUTS && choose(16) == 0)
		return -ECONNREFUSED;
	p = calloc(1, sizeof(*p));
	must(p && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, two));
	(void)setsockopt(two[1], SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
	p->fd = two[1];
	list_init(&p->asks);
	timer_init(&p->rest, W->loop, on_rest, p);
	must(!watch_init(&p->watch, W->loop, p->fd, on_bytes, p) && !watch_set(&p->watch, WATCH_READ));
	must(!h2_new(&(struct h2_options){ .server = true }, clock_boot_ms(), &p->h2));
	list_add_tail(&peers, &p->node);
	*ret_fd = two[0];
	return 0;
}

void __wrap_sock_peer_text(int fd, char *ret, size_t cap);
void __wrap_sock_peer_text(int fd, char *ret, size_t cap)
{
	snprintf(ret, cap, "192.0.2.1:80");
}

/* --- a sequence --- */

void peers_begin(enum peer_fault f)
{
	list_init(&peers);
	faults = f;
	calm = changed = false;
}

void peers_calm(void)
{
	calm = true;
	list_for_each(n, &peers) {
		struct peer *p = list_entry(n, struct peer, node);

		/* What frames that were left out had said will never be said. */
		if (p->silent || changed)
			peer_cut(p);
	}
}

bool peers_are_calm(void)
{
	return calm;
}

bool frames_were_changed(void)
{
	return changed;
}

void peers_end(void)
{
	while (!list_is_empty(&peers))
		peer_free(list_entry(peers.next, struct peer, node));
}
