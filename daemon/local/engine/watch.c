/* SPDX-License-Identifier: MIT */
/* The engine's side of a watch. */
#include "daemon/local/engine/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/engine/container_int.h"
#include "daemon/local/engine/fs_wire.h"
#include "daemon/local/engine/watch_int.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define CONTAINER_WATCH_MAGIC 0xb0c5a7c4u

struct container_watch {
	uint32_t magic;
	struct loop *loop;
	int sock;
	struct watch watch;
	container_watch_fn *fn;
	void *user;
	struct grave grave;
};

/* The name and the entry behind a report's head. False: not what a watching process sends. */
static bool watch_parse(const uint8_t *msg, size_t n, struct container_watch_event *e,
			struct fsw_entries *entries)
{
	const char *name = (const char *)msg + sizeof(struct watch_report);
	struct watch_report h;

	if (n < sizeof(h))
		return false;
	memcpy(&h, msg, sizeof(h));
	if (h.kind > CONTAINER_WATCH_FAILED || (uint64_t)h.name_bytes + h.entry_bytes != n - sizeof(h))
		return false;
	e->kind = h.kind;
	e->r = h.r < 0 ? h.r : -EIO;
	if (h.kind != CONTAINER_WATCH_CHANGE)
		return true;
	if (h.op < CONTAINER_WATCH_CREATE || h.op > CONTAINER_WATCH_CHMOD || !h.name_bytes ||
	    strnlen(name, h.name_bytes) != h.name_bytes - 1)
		return false;
	e->op = h.op;
	e->name = name;
	if (!h.entry_bytes)
		return true;
	if (fsw_entries_decode(name + h.name_bytes, h.entry_bytes, 1, entries) < 0)
		return false;
	e->entry = &entries->e[0];
	return true;
}

static void on_report(struct watch *watch, unsigned ready, void *user)
{
	static uint8_t msg[WATCH_REPORT_MAX];	/* used up before anything else can read one */
	struct container_watch_event e = { .kind = CONTAINER_WATCH_FAILED, .r = -EPIPE };
	struct fsw_entries entries = { 0 };
	struct container_watch *w = user;
	int fds[PKT_FDS_MAX];
	ssize_t n;

	must(w->magic == CONTAINER_WATCH_MAGIC);
	n = pkt_recv_any(w->sock, msg, sizeof(msg), fds);
	if (n == -EAGAIN)
		return;
	if (n > 0) {
		pkt_close_fds(fds);
		if (!watch_parse(msg, (size_t)n, &e, &entries))
			e = (struct container_watch_event){ .kind = CONTAINER_WATCH_FAILED, .r = -EIO };
	}
	if (e.kind == CONTAINER_WATCH_FAILED || e.kind == CONTAINER_WATCH_OVERFLOW)
		watch_fini(&w->watch);
	w->fn(w->user, &e);
	fsw_entries_fini(&entries);
}

/* The request waits in the socket for the process. */
static int start(struct container *b, const struct container_watch_options *o, int sock, int theirs)
{
	struct watch_request q = { .recursive = o->recursive, .entries = o->entries,
				   .network = o->network };
	struct init_msg m = { .op = INIT_WATCHER };
	int r;

	(void)str_copy(q.path, sizeof(q.path), o->path);
	r = pkt_send(sock, &q, sizeof(q), NULL, 0);
	return r < 0 ? r : pkt_send(b->sock, &m, sizeof(m), &theirs, 1);
}

int container_watch_new(struct container *b, const struct container_watch_options *o,
			container_watch_fn *fn, void *user, struct container_watch **ret)
{
	struct container_watch *w;
	int pair[2], r;

	if (b->state != CONTAINER_RUNNING || b->sock < 0 || b->destroying)
		return -EPIPE;
	if (strlen(o->path) > FS_PATH_MAX)
		return -ENAMETOOLONG;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct container_watch){ .magic = CONTAINER_WATCH_MAGIC, .loop = b->engine->loop, .sock = -1,
				 .fn = fn, .user = user };
	r = pkt_pair(pair);
	if (r < 0) {
		free(w);
		return r;
	}
	w->sock = pair[0];
	r = start(b, o, pair[0], pair[1]);
	fd_close(pair[1]);
	if (r == 0)
		r = watch_init(&w->watch, w->loop, w->sock, on_report, w);
	if (r == 0)
		r = watch_set(&w->watch, WATCH_READ);
	if (r < 0) {
		container_watch_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

int container_watch_mark(struct container_watch *w)
{
	const uint8_t mark = WATCH_ASKS_MARK;

	return pkt_send(w->sock, &mark, sizeof(mark), NULL, 0);
}

void container_watch_hold(struct container_watch *w, bool hold)
{
	/* Without memory it is read on: more than asked for, but nothing is lost. */
	if (w->watch.ev)
		(void)!watch_set(&w->watch, hold ? 0 : WATCH_READ);
}

struct container_watch *container_watch_free(struct container_watch *w)
{
	if (!w)
		return NULL;
	must(w->magic == CONTAINER_WATCH_MAGIC);
	w->magic = 0;
	watch_fini(&w->watch);
	w->sock = fd_close(w->sock);
	loop_bury(w->loop, &w->grave, free, w);
	return NULL;
}
