/* SPDX-License-Identifier: MIT */
/*
 * Servers: accepting, admission, and the list of connections. When descriptors run out, a reserve
 * one is given up to accept and close the waiting client, and accepting pauses for a moment, so that
 * a full table costs neither the CPU nor the clients that are already here.
 *
 * The kernel's queue is one for all, so it is emptied at once, which is cheap; what costs is to serve. Sockets that
 * were accepted wait by guest, and in each pass a few are served, one of each guest in turn. So a guest that
 * connects all the time delays itself. Whoever has hung up meanwhile is not served.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/net/http_impl.h"
#include "daemon/common/net/tls.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"

#define SERVER_MAGIC	 0x73727672u
#define ACCEPTS_PER_PASS 256u
#define SERVES_PER_PASS	 32u
#define PAUSE_MS	 100u
#define LOG_EVERY_MS	 10000u
#define CONNS_DEFAULT	 4096u

struct http_server {
	uint32_t magic;
	struct http_server_options o;	/* defaults filled in */
	struct watch watch;
	struct timer resume;
	struct grave grave;
	struct defer serve;		/* stage 4 of this pass */
	struct defer again;		/* … of the next one */
	struct guests guests;
	struct list conns;
	uint32_t n_conns;
	int reserve_fd;
	uint64_t logged_ms;
};

static struct http_server *server_from(void *p)
{
	struct http_server *s = p;

	must(s && s->magic == SERVER_MAGIC);
	return s;
}

const struct http_server_options *server_options(const struct http_server *s)
{
	return &s->o;
}

void server_conn_gone(struct http_server *s, struct http_conn *c)
{
	list_del(&c->node);
	s->n_conns--;
}

static void complain(struct http_server *s, const char *what)
{
	uint64_t now = clock_boot_ms();

	if (s->logged_ms && now - s->logged_ms < LOG_EVERY_MS)
		return;
	s->logged_ms = now;
	log_warn("http_accept", "error=%s conns=%u", log_q(what), s->n_conns);
}

static int open_reserve(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void out_of_fds(struct http_server *s, int err)
{
	int fd;

	complain(s, strerror(-err));
	if (s->reserve_fd >= 0) {
		s->reserve_fd = fd_close(s->reserve_fd);
		if (fd_accept(s->o.listen_fd, &fd) == 0)
			fd_close(fd);
		s->reserve_fd = open_reserve();
	}
	if (timer_set(&s->resume, clock_boot_ms() + PAUSE_MS) == 0)
		(void)!watch_set(&s->watch, 0); /* taking interest away cannot fail */
}

static void on_resume(struct timer *t, void *user)
{
	struct http_server *s = server_from(user);

	if (s->reserve_fd < 0)
		s->reserve_fd = open_reserve();
	if (watch_set(&s->watch, WATCH_READ) < 0 &&
	    timer_set(&s->resume, loop_now_ms(s->o.loop) + PAUSE_MS) < 0)
		complain(s, "out of memory; no longer accepting");
}

/* handshake_by_ms 0: it has said who it is, and may be idle. */
static int listen_take(struct http_server *s, int fd, struct guest *g, uint64_t handshake_by_ms)
{
	struct http_conn_options o = {
		.loop = s->o.loop,
		.fd = fd,
		.server = s,
		.stream_window = s->o.stream_window,
		.send_max = s->o.send_max,
		.guest = s->o.on_accept ? g : NULL,	/* one guest has nobody to share with */
		.quota = guest_quota(g),
		.quota_max = s->o.conn_max,
		.handshake_by_ms = handshake_by_ms,
	};
	struct http_conn *c;
	int r;

	if (s->o.tls && tls_conn_server(s->o.tls, s->o.http1, s->o.http2, &o.tls) < 0) {
		fd_close(fd);
		return -ENOMEM;
	}
	r = conn_new(&o, &c);
	if (r < 0) {
		complain(s, r == -ENOBUFS ? "no memory is left for one more connection of this client" : strerror(-r));
		return r;
	}
	list_add_tail(&s->conns, &c->node);
	s->n_conns++;
	if (s->o.on_conn) {
		void *user = NULL;

		if (s->o.on_conn(c, s->o.user, &user)) {
			conn_discard(c);
			return -EACCES;
		}
		c->user = user;
	}
	conn_start(c);
	return 0;
}

/* --- serving: one of each guest in turn --- */

/* It hung up, and said nothing before. */
static bool has_left(int fd)
{
	uint8_t byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* False: nobody waits. */
static bool serve_one(struct http_server *s)
{
	struct guest *g;
	int fd;

	if (!guests_take(&s->guests, &g, &fd))
		return false;
	if (has_left(fd))
		fd_close(fd);
	else
		(void)!listen_take(s, fd, g, clock_boot_ms() + s->o.handshake_ms);	/* it is closed then */
	guest_unref(g);
	return true;
}

static void on_serve(struct defer *d, void *user)
{
	struct http_server *s = server_from(user);

	for (unsigned i = 0; i < SERVES_PER_PASS && serve_one(s); i++)
		;
	if (s->guests.n_waiting)
		defer_post(&s->again);
}

static void listen_on_again(struct defer *d, void *user)
{
	defer_post(&server_from(user)->serve);
}

static void let_wait(struct http_server *s, int fd, struct quota *q)
{
	int r = guests_put(&s->guests, q, fd);

	if (r < 0)
		complain(s, r == -EUSERS ? "one client makes connections faster than they are served" : strerror(-r));
	else
		defer_post(&s->serve);
}

static bool is_full(const struct http_server *s)
{
	return s->n_conns + s->guests.n_waiting >= s->o.max_conns;
}

static void at_the_door(struct http_server *s, int fd)
{
	struct quota *q = NULL;

	if (has_left(fd)) {
		fd_close(fd);
	} else if (is_full(s)) {
		complain(s, "too many connections");
		fd_close(fd);
	} else if (s->o.on_accept && s->o.on_accept(fd, s->o.user, &q)) {
		fd_close(fd);
	} else {
		let_wait(s, fd, s->o.on_accept ? q : quota_ref(s->o.quota));
	}
}

/* --- accepting --- */

static void on_listen(struct watch *w, unsigned ready, void *user)
{
	struct http_server *s = server_from(user);

	for (unsigned i = 0; i < ACCEPTS_PER_PASS && s->watch.want; i++) {
		int fd, r = fd_accept(s->o.listen_fd, &fd);

		switch (r) {
		case 0:
			at_the_door(s, fd);
			break;
		case -EAGAIN:
			return;
		case -EMFILE:
		case -ENFILE:
		case -ENOBUFS:
		case -ENOMEM:
			out_of_fds(s, r);
			return;
		default:	/* that client is gone already (accept(2) names ten ways) */
			break;
		}
	}
}

void http_server_set_limits(struct http_server *s, uint32_t max_conns, uint32_t max_streams, uint64_t conn_max)
{
	s->o.max_conns = max_conns ? max_conns : CONNS_DEFAULT;
	s->o.max_streams = max_streams;
	s->o.conn_max = conn_max;
}

int http_server_new(const struct http_server_options *o, struct http_server **ret)
{
	struct http_server *s = calloc(1, sizeof(*s));
	int r;

	must(o->http1 || o->http2);
	if (!s)
		return -ENOMEM;
	s->magic = SERVER_MAGIC;
	s->o = *o;
	http_server_set_limits(s, o->max_conns, o->max_streams, o->conn_max);
	if (!s->o.handshake_ms)
		s->o.handshake_ms = HTTP_HANDSHAKE_MS;
	list_init(&s->conns);
	guests_init(&s->guests);
	defer_init_pump(&s->serve, o->loop, on_serve, s);
	defer_init(&s->again, o->loop, listen_on_again, s);
	timer_init(&s->resume, o->loop, on_resume, s);
	s->reserve_fd = open_reserve();
	r = watch_init(&s->watch, o->loop, o->listen_fd, on_listen, s);
	if (!r)
		r = watch_set(&s->watch, WATCH_READ);
	if (r < 0) {
		watch_fini(&s->watch);
		fd_close(s->reserve_fd);
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void http_server_stop_accepting(struct http_server *s)
{
	watch_fini(&s->watch);
	timer_clear(&s->resume);
	s->o.listen_fd = fd_close(s->o.listen_fd);
}

void http_server_serve_waiting(struct http_server *s)
{
	while (serve_one(s))
		;
}

/* The reference to whoever pays for it; NULL: *ret says why not. */
static struct guest *admit(struct http_server *s, int fd, int *ret)
{
	struct quota *q = NULL;
	struct guest *g;

	*ret = is_full(s) ? -EUSERS : has_left(fd) ? -ENOTCONN : 0;
	if (!*ret && s->o.on_accept && s->o.on_accept(fd, s->o.user, &q))
		*ret = -EACCES;
	if (*ret)
		return NULL;
	g = guests_find(&s->guests, s->o.on_accept ? q : quota_ref(s->o.quota));
	if (!g)
		*ret = -ENOMEM;
	return g;
}

int http_server_adopt(struct http_server *s, int fd)
{
	int r;
	struct guest *g = admit(s, fd, &r);

	if (!g) {
		fd_close(fd);
		return r;
	}
	r = listen_take(s, fd, g, 0);
	guest_unref(g);
	return r;
}

void http_server_drain(struct http_server *s)
{
	http_server_stop_accepting(s);
	http_server_serve_waiting(s);
	list_for_each(n, &s->conns)
		http_conn_drain(list_entry(n, struct http_conn, node));
}

void http_server_drain_end(struct http_server *s)
{
	list_for_each_safe(n, &s->conns)
		http_conn_drain_end(list_entry(n, struct http_conn, node));
}

uint32_t http_server_conns(const struct http_server *s)
{
	return s->n_conns;
}

static void server_free(void *p)
{
	free(server_from(p));
}

struct http_server *http_server_free(struct http_server *s)
{
	if (!s)
		return NULL;
	http_server_stop_accepting(s);
	defer_cancel(&s->serve);
	defer_cancel(&s->again);
	guests_fini(&s->guests);
	while (!list_is_empty(&s->conns))
		conn_discard(list_entry(s->conns.next, struct http_conn, node));
	fd_close(s->reserve_fd);
	loop_bury(s->o.loop, &s->grave, server_free, s);
	return NULL;
}
