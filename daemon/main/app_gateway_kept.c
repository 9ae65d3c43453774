/* SPDX-License-Identifier: MIT */
/*
 * The gateway over a restart, by the service manager's store of descriptors. The store has its listeners from the start on, so that nobody
 * else can take their ports, whatever ends the daemon; and from a stop on its idle connections, until the next daemon takes them.
 *
 * What comes back is not believed: a listener has to listen where the configuration says, gateway_take_over() looks at each connection, and
 * a name says of what kind a descriptor is and nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/gateway_address.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define HAND_OVER_MS 200u	/* of a stop, with a manager that is busy; and one message more */

static_assert(GATEWAY_HANDED_AT_ONCE <= NOTIFY_FDS_MAX, "a batch is one message");

/* --- listeners --- */

static void remember(struct app *a, int fd, bool is_new)
{
	if (a->n_kept_ports < ARRAY_SIZE(a->kept_ports))
		a->kept_ports[a->n_kept_ports++] = (struct kept_port){ .fd = fd, .is_new = is_new, .is_used = is_new };
}

void app_gateway_kept_read(struct app *a)
{
	int fd;

	while ((fd = listen_fds_take_one(&a->passed, APP_FD_KEPT_PORT)) >= 0) {
		if (a->n_kept_ports < APP_KEPT_PORTS_MAX) {
			remember(a, fd, false);
			continue;
		}
		fd_close(fd);
		a->n_kept_closed++;
	}
}

int app_gateway_kept_take(struct app *a, const char *address, uint16_t port)
{
	for (size_t i = 0; i < a->n_kept_ports; i++) {
		struct kept_port *k = &a->kept_ports[i];

		if (k->is_used || !gateway_is_bound(k->fd, address, port) || fd_set_nonblock(k->fd, true) < 0)
			continue;
		k->is_used = true;
		return k->fd;
	}
	return -1;
}

void app_gateway_kept_add(struct app *a, int fd)
{
	for (size_t i = 0; i < a->n_kept_ports; i++)
		if (a->kept_ports[i].fd == fd)
			return;
	remember(a, fd, true);
}

static void close_unused(struct app *a)
{
	size_t n = 0;

	for (size_t i = 0; i < a->n_kept_ports; i++) {
		if (a->kept_ports[i].is_used) {
			a->kept_ports[n++] = a->kept_ports[i];
			continue;
		}
		fd_close(a->kept_ports[i].fd);
		a->n_kept_closed++;
	}
	a->n_kept_ports = n;
}

/* The store removes by name, so the good ones go with the others, and are put back. */
static void store_ports(struct app *a, bool all)
{
	int fds[ARRAY_SIZE(a->kept_ports)], r;
	size_t n = 0;

	if (all)
		(void)!notify_drop_fds(a->notify, APP_FD_KEPT_PORT);	/* what stays is found again at the next start */
	for (size_t i = 0; i < a->n_kept_ports; i++)
		if (all || a->kept_ports[i].is_new)
			fds[n++] = a->kept_ports[i].fd;
	if (!n || !notify_is_open(a->notify))
		return;
	r = notify_store_fds(a->notify, fds, n, APP_FD_KEPT_PORT);
	if (r < 0)
		log_warn("gateway", "error=%s effect=\"its port is free for others while the daemon is restarted\"",
			 log_q(strerrordesc_np(-r)));
}

/* --- connections --- */

static size_t take_idle(struct app *a, int *fds)
{
	size_t n = 0;

	for (size_t i = 0; i < a->passed.n; i++) {
		struct listen_fd *l = &a->passed.v[i];

		if (l->fd < 0 || !str_eq(l->name, APP_FD_KEPT_IDLE))
			continue;
		fds[n++] = l->fd;
		l->fd = -1;
	}
	return n;
}

/* The store's duplicates go first: while they are there, a connection that ends here would not end for its peer. */
static void take_over_idle(struct app *a)
{
	int *fds = calloc(a->passed.n + 1, sizeof(*fds));
	struct gateway_taken got;
	size_t n;

	if (!fds)
		return;		/* they are closed with the unknown ones */
	n = take_idle(a, fds);
	if (n) {
		(void)!notify_drop_fds(a->notify, APP_FD_KEPT_IDLE);
		gateway_take_over(a->gateway, fds, n, &got);
		log_info("gateway_taken_over", "connections=%u closed=%u why=%s", got.taken, got.closed, log_q(got.why));
	}
	free(fds);
}

void app_gateway_kept_end(struct app *a)
{
	close_unused(a);
	if (a->n_kept_closed)
		log_warn("kept_port_stale", "name=" APP_FD_KEPT_PORT " descriptors=%zu action=closed", a->n_kept_closed);
	store_ports(a, a->n_kept_closed);
	take_over_idle(a);
}

/* --- a stop --- */

static int store_idle(void *user, const int *fds, size_t n)
{
	const struct app *a = user;

	if (clock_boot_ms() >= a->hand_over_until_ms)
		return -ETIME;
	return notify_store_fds(a->notify, fds, n, APP_FD_KEPT_IDLE);
}

void app_gateway_hand_over(struct app *a)
{
	size_t n;

	if (!notify_is_open(a->notify))
		return;
	a->hand_over_until_ms = clock_boot_ms() + HAND_OVER_MS;
	n = gateway_hand_over(a->gateway, store_idle, a);
	if (n)
		log_info("gateway_handed_over", "connections=%zu", n);
}
