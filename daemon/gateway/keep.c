/* SPDX-License-Identifier: MIT */
/*
 * Connections over a restart: what a stop hands over to the next daemon, by whoever keeps descriptors for it, and what that one takes.
 * Nothing of a connection goes with it but the descriptor: whose it is, is asked of the kernel again, and a descriptor that is not what it
 * should be is closed.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "daemon/gateway/impl.h"
#include "proto/base/fd.h"
#include "proto/base/map.h"

/* --- handing over --- */

struct batch {
	gateway_store_fn *store;
	void *user;
	struct gateway_conn *conns[GATEWAY_HANDED_AT_ONCE];
	int fds[GATEWAY_HANDED_AT_ONCE];
	size_t n, handed;
};

/* Our descriptor goes, and the connection lives on in its duplicate. False: nobody keeps any more of them. */
static bool hand_batch(struct batch *b)
{
	if (b->n && b->store(b->user, b->fds, b->n) < 0)
		return false;
	for (size_t i = 0; i < b->n; i++)
		http_conn_close(b->conns[i]->http, "handed over to the next daemon");
	b->handed += b->n;
	b->n = 0;
	return true;
}

/* The next daemon knows nothing of a forwarded one's port and token. */
static bool can_hand_over(const struct gateway_conn *c)
{
	return !c->token && http_conn_is_bare(c->http);
}

size_t gateway_hand_over(struct gateway *g, gateway_store_fn *store, void *user)
{
	struct batch b = { .store = store, .user = user };

	list_for_each(n, &g->doors) {
		struct http_server *s = list_entry(n, struct gateway_door, node)->server;

		http_server_stop_accepting(s);
		http_server_serve_waiting(s);
	}
	list_for_each(n, &g->conns) {
		struct gateway_conn *c = list_entry(n, struct gateway_conn, node);

		if (!can_hand_over(c))
			continue;
		b.conns[b.n] = c;
		b.fds[b.n++] = http_conn_fd(c->http);
		if (b.n == GATEWAY_HANDED_AT_ONCE && !hand_batch(&b))
			return b.handed;
		if (b.handed + b.n == GATEWAY_HANDED_MAX)
			break;
	}
	(void)hand_batch(&b);
	return b.handed;
}

/* --- taking over --- */

static int option(int fd, int name)
{
	socklen_t n = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &n) < 0 ? -errno : value;
}

static bool has_peer(int fd)
{
	struct sockaddr_storage at;
	socklen_t n = sizeof(at);
	struct pollfd p = { .fd = fd };

	return getpeername(fd, (struct sockaddr *)&at, &n) == 0 && poll(&p, 1, 0) >= 0 && !(p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* NULL: it is a connection that did not come before. */
static const char *judge_socket(int fd, struct map *seen)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode))
		return "it is no socket";
	if (option(fd, SO_TYPE) != SOCK_STREAM)
		return "it is no stream";
	if (option(fd, SO_ACCEPTCONN))
		return "it is a listener";
	if (map_get_u64(seen, st.st_ino))
		return "it came twice";
	if (map_put_u64(seen, st.st_ino, seen) < 0 || fd_set_nonblock(fd, true) < 0)
		return "there is no memory for it";
	return has_peer(fd) ? NULL : "its peer is gone";
}

/* The plain listener that accepted it, as far as the addresses say; NULL: there is none of that address now. One that listens on all
 * addresses of the machine is never plain. */
static struct gateway_door *door_of(const struct gateway *g, int fd)
{
	struct sockaddr_storage at = { 0 };
	socklen_t n = sizeof(at);

	if (getsockname(fd, (struct sockaddr *)&at, &n) < 0)
		return NULL;
	list_for_each(i, &g->doors) {
		struct gateway_door *d = list_entry(i, struct gateway_door, node);

		if (!d->is_tls && d->at_len == n && !memcmp(&d->at, &at, n))
			return d;
	}
	return NULL;
}

static const char *serve_again(struct gateway *g, int fd, struct map *seen)
{
	const char *why = judge_socket(fd, seen);
	struct gateway_door *d = why ? NULL : door_of(g, fd);

	if (!d) {
		fd_close(fd);
		return why ? why : "nothing listens at its address without TLS";
	}
	switch (http_server_adopt(d->server, fd)) {
	case 0:
		return NULL;
	case -ENOTCONN:
		return "its peer is gone";
	case -ENOMEM:
	case -ENOBUFS:
		return "there is no memory for it";
	default:
		return "there are too many connections";
	}
}

void gateway_take_over(struct gateway *g, const int *fds, size_t n, struct gateway_taken *ret)
{
	struct map seen = MAP_NULL;

	*ret = (struct gateway_taken){ .why = "" };
	for (size_t i = 0; i < n; i++) {
		const char *why = serve_again(g, fds[i], &seen);

		if (why) {
			ret->closed++;
			ret->why = why;
		} else {
			ret->taken++;
		}
	}
	map_fini(&seen);
}
