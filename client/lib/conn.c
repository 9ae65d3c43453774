/* SPDX-License-Identifier: MIT */
/*
 * One connection: a socket and the HTTP/2 engine. A pass writes, reads and tells calls what is new.
 * Invariant: a connection with calls is never freed; one that died stays until they have taken
 * what it holds for them.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "client/lib/client.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"

int conn_new(struct ab_client *c, int fd, uint64_t now_ms, struct conn **ret)
{
	const struct h2_options o = { .stream_window = STREAM_WINDOW_BYTES };
	struct epoll_event ev = { .events = EPOLLIN };
	struct conn *conn = calloc(1, sizeof(*conn));
	int r;

	if (!conn)
		return -ENOMEM;
	r = h2_new(&o, now_ms, &conn->h2);
	if (r == 0 && epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		r = -errno;
	if (r < 0) {
		h2_free(conn->h2);
		free(conn);
		return r;
	}
	conn->client = c;
	conn->fd = fd;
	conn->heard_ms = now_ms;
	conn->ping_after_ms = PING_AFTER_MS;
	list_init(&conn->link);
	list_add_tail(&c->conns, &conn->link);
	*ret = conn;
	return 0;
}

void conn_free(struct conn *conn)
{
	must(conn->n_calls == 0);
	list_del(&conn->link);
	h2_free(conn->h2);
	fd_close(conn->fd);
	free(conn);
}

void conn_die(struct conn *conn)
{
	conn->retiring = true;
	h2_lost(conn->h2);
	conn->fd = fd_close(conn->fd);
}

static void conn_watch_output(struct conn *conn, bool on)
{
	struct epoll_event ev = { .events = EPOLLIN | (on ? (uint32_t)EPOLLOUT : 0) };

	if (conn->blocked == on)
		return;
	/* failing here means that the descriptor is gone, and then reading says so */
	(void)epoll_ctl(conn->client->epoll_fd, EPOLL_CTL_MOD, conn->fd, &ev);
	conn->blocked = on;
}

static bool conn_write(struct conn *conn)
{
	bool worked = false;

	while (conn->fd >= 0 && !conn->send_broken) {
		const uint8_t *p;
		size_t n;
		ssize_t sent;

		if (h2_output(conn->h2, &p, &n) < 0 || n == 0)
			break;
		sent = send(conn->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
				conn_watch_output(conn, true);
				return worked;
			}
			conn->send_broken = true;
			break;
		}
		h2_sent(conn->h2, (size_t)sent);
		worked = true;
	}
	if (conn->fd >= 0)
		conn_watch_output(conn, false);
	return worked;
}

void conn_flush(struct conn *conn)
{
	(void)conn_write(conn);
}

static bool conn_read(struct conn *conn, uint64_t now_ms)
{
	struct ab_client *c = conn->client;
	bool worked = false;

	for (unsigned i = 0; conn->fd >= 0 && i < READS_PER_PASS; i++) {
		ssize_t n = recv(conn->fd, c->rx, READ_BYTES, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		worked = true;
		if (n <= 0) {
			conn_die(conn);
			break;
		}
		conn->heard_ms = now_ms;
		conn->ping_ms = 0;
		conn->silence = 0;
		if (h2_feed(conn->h2, c->rx, (size_t)n, now_ms) < 0) {
			(void)conn_write(conn);		/* the GOAWAY that says what was wrong */
			conn_die(conn);
			break;
		}
		if ((size_t)n < READ_BYTES)
			break;
	}
	return worked;
}

static bool conn_deliver(struct conn *conn)
{
	struct h2_stream *s;
	bool worked = false;

	while ((s = h2_next_ready(conn->h2))) {
		struct ab_call *call = h2_stream_user(s);
		unsigned flags = h2_stream_take_ready(s);

		worked = true;
		if (call)
			call_on_ready(call, flags);
	}
	if (h2_goaway_seen(conn->h2, &(uint32_t){ 0 }) || h2_is_dead(conn->h2))
		conn->retiring = true;
	return worked;
}

bool conn_pass(struct conn *conn, uint64_t now_ms)
{
	bool worked = conn_write(conn);

	worked = conn_read(conn, now_ms) || worked;
	return conn_deliver(conn) || worked;
}

void conn_reap(struct conn *conn)
{
	if (!conn->retiring || conn->n_calls)
		return;
	conn_flush(conn);
	conn_free(conn);
}
