/* SPDX-License-Identifier: MIT */
#include "daemon/common/net/guest.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"

#define WAITING_MAX 4096u		/* sockets of one guest that wait: after a restart, what was in the queue of the listener */
#define READ_BYTES  (128u * 1024)	/* of a guest in a pass, and of each of its connections … */
#define READ_MIN    1024u		/* … no less */
#define CALLS	    64u 		/* of owners, in the same way */
#define CALLS_MIN   4u
#define ENDS	    512u		/* streams that end with their connections in a pass */

struct waiting {
	struct list node;
	int fd;
};

/* How many connections of the guest had a part: in this pass so far, and in the last one in which any had. */
struct ration {
	uint64_t pass;
	unsigned now, last;
};

struct guest {
	unsigned refs;		/* connections, and sockets that wait */
	struct quota *quota;
	struct list node;	/* of all; alone once the set is gone */
	struct list queue;	/* of those that wait */
	struct list sockets;
	uint32_t n_sockets;
	struct ration reads, calls;
	uint64_t ends_pass;
	unsigned ends;
};

void guests_init(struct guests *gs)
{
	list_init(&gs->all);
	list_init(&gs->waiting);
	gs->n_waiting = 0;
}

struct guest *guest_ref(struct guest *g)
{
	g->refs++;
	return g;
}

struct guest *guest_unref(struct guest *g)
{
	if (!g || --g->refs)
		return NULL;
	must(!g->n_sockets);
	list_del(&g->node);
	list_del(&g->queue);
	quota_unref(g->quota);
	free(g);
	return NULL;
}

struct quota *guest_quota(const struct guest *g)
{
	return g->quota;
}

bool guests_take(struct guests *gs, struct guest **ret, int *ret_fd)
{
	struct guest *g = list_first(&gs->waiting, struct guest, queue);
	struct waiting *w;

	if (!g)
		return false;
	w = list_first(&g->sockets, struct waiting, node);
	*ret = g;
	*ret_fd = w->fd;
	list_del(&w->node);
	free(w);
	g->n_sockets--;
	gs->n_waiting--;
	list_del(&g->queue);
	if (g->n_sockets)	/* behind the others */
		list_add_tail(&gs->waiting, &g->queue);
	return true;
}

void guests_fini(struct guests *gs)
{
	struct guest *g;
	int fd;

	while (guests_take(gs, &g, &fd)) {
		fd_close(fd);
		guest_unref(g);
	}
	list_for_each_safe(n, &gs->all)
		list_del(n);
}

static struct guest *find_or_make(struct guests *gs, struct quota *q)
{
	struct guest *g;

	list_for_each(n, &gs->all) {
		g = list_entry(n, struct guest, node);
		if (g->quota == q)
			return guest_ref(g);
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->refs = 1;
	g->quota = quota_ref(q);
	list_init(&g->queue);
	list_init(&g->sockets);
	list_add_tail(&gs->all, &g->node);
	return g;
}

static int put_socket(struct guests *gs, struct guest *g, int fd)
{
	struct waiting *w;

	if (g->n_sockets >= WAITING_MAX)
		return -EUSERS;
	w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->fd = fd;
	list_add_tail(&g->sockets, &w->node);
	if (!g->n_sockets++)
		list_add_tail(&gs->waiting, &g->queue);
	gs->n_waiting++;
	return 0;
}

struct guest *guests_find(struct guests *gs, struct quota *q)
{
	struct guest *g = find_or_make(gs, q);

	quota_unref(q);
	return g;
}

int guests_put(struct guests *gs, struct quota *q, int fd)
{
	struct guest *g = guests_find(gs, q);
	int r = g ? put_socket(gs, g, fd) : -ENOMEM;

	if (r < 0) {
		fd_close(fd);
		guest_unref(g);
	}
	return r;
}

static unsigned take_part(struct ration *r, uint64_t pass)
{
	if (r->pass != pass)
		*r = (struct ration){ .pass = pass, .last = r->now };
	r->now++;
	return MAX(r->now, r->last);
}

size_t guest_read_bytes(struct guest *g, uint64_t pass)
{
	unsigned parts = take_part(&g->reads, pass);

	return MAX(READ_BYTES / parts, READ_MIN);
}

unsigned guest_calls(struct guest *g, uint64_t pass)
{
	unsigned parts = take_part(&g->calls, pass);

	return MAX(CALLS / parts, CALLS_MIN);
}

bool guest_may_end(struct guest *g, uint64_t pass, unsigned n_streams)
{
	if (g->ends_pass != pass) {
		g->ends_pass = pass;
		g->ends = 0;
	}
	if (g->ends && g->ends + n_streams > ENDS)
		return false;
	g->ends += n_streams + 1;
	return true;
}
