/* SPDX-License-Identifier: MIT */
/*
 * Watching directories: as a stream (WatchDir), or kept until somebody asks (CreateWatcher and its
 * two companions). A stream that is not read holds its watch; a watcher that is not asked keeps at
 * most WATCHER_MAX_BYTES and is broken then, as it is when the kernel lost events.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/agent/envd_fs.h"
#include "daemon/local/engine/watch.h"
#include "daemon/local/state/local.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define WATCHER_MAGIC	  0x3a7c4e55u
#define WATCHERS_MAX	  64u			/* of a sandbox; RESOURCE_EXHAUSTED above it */
#define WATCHER_MAX_BYTES (16u * 1024 * 1024)	/* of events nobody asked for; broken above it */
#define WATCHER_ASKS_MAX  16u			/* at once for one of them; RESOURCE_EXHAUSTED above it */
#define WATCHER_ID_CHARS  20u

/* A GetWatcherEvents that waits for its mark, behind the events of before. */
struct asking {
	struct list node;		/* of the watcher, oldest first */
	struct call *c;			/* NULL: it is over */
};

struct watcher {
	uint32_t magic;
	struct list node;		/* of the sandbox */
	struct loop *loop;
	struct call *c;			/* the stream, or the CreateWatcher that waits; may be NULL */
	struct container_watch *bw;		/* NULL: broken */
	char *path;
	bool is_stream, started;
	const char *broken;
	struct timer keepalive;
	struct buf events;		/* u32 length and a FilesystemEvent, n_events times */
	size_t n_events;
	struct list asks;
	size_t n_asks;
	char id[1 + WATCHER_ID_CHARS + 1];
	struct grave grave;
};

static struct watcher *watcher_from(void *p)
{
	struct watcher *w = p;

	must(w && w->magic == WATCHER_MAGIC);
	return w;
}

static void watcher_destroy(void *p)
{
	struct watcher *w = watcher_from(p);

	w->magic = 0;
	buf_fini(&w->events);
	free(w->path);
	free(w);
}

/* The oldest one's call, which is the caller's to end; NULL: it is over. */
static struct call *take_asking(struct watcher *w)
{
	struct asking *a = list_entry(w->asks.next, struct asking, node);
	struct call *c = a->c;

	if (c) {
		c->gone = NULL;
		c->priv = NULL;
	}
	list_del(&a->node);
	w->n_asks--;
	free(a);
	return c;
}

static void fail_asks(struct watcher *w, enum ab_code code, const char *why)
{
	while (!list_is_empty(&w->asks)) {
		struct call *c = take_asking(w);

		if (c)
			call_fail(c, code, "watcher error: %s", why);
	}
}

/* Lets go of it; returns its call, which is the caller's to end. */
static struct call *watcher_leave(struct watcher *w)
{
	struct call *c = give(w->c);

	if (c) {
		c->gone = NULL;
		c->room = NULL;
		c->priv = NULL;
	}
	fail_asks(w, CODE_NOT_FOUND, "it was removed");
	w->bw = container_watch_free(w->bw);
	timer_clear(&w->keepalive);
	list_del(&w->node);
	loop_bury(w->loop, &w->grave, watcher_destroy, w);
	return c;
}

void envd_watch_stop(struct sandbox *s)
{
	list_for_each_safe(n, &s->watchers)
		(void)watcher_leave(list_entry(n, struct watcher, node));
}

static void on_call_gone(struct call *c)
{
	(void)watcher_leave(watcher_from(c->priv));
}

/* --- what is sent --- */

struct event {
	Filesystem__FilesystemEvent m;
	struct entry_message entry;
	char *name;			/* the text of one that is not its own */
};

static void event_fini(struct event *ev)
{
	fs_entry_fini(&ev->entry);
	free(ev->name);
}

static int event_init(struct event *ev, const struct container_watch_event *e)
{
	int r;

	*ev = (struct event){ .m = FILESYSTEM__FILESYSTEM_EVENT__INIT };
	ev->m.name = fs_name_text(e->name, &ev->name);
	if (!ev->m.name)
		return -ENOMEM;
	ev->m.type = (Filesystem__EventType)e->op;
	if (!e->entry)
		return 0;
	r = fs_entry_init(&ev->entry, e->entry);
	if (r == 0) {
		ev->m._entry_case = FILESYSTEM__FILESYSTEM_EVENT___ENTRY_ENTRY;
		ev->m.entry = &ev->entry.info;
	}
	return r;
}

static void keepalive_again(struct watcher *w)
{
	/* Without memory there is one keepalive less. */
	(void)!timer_set(&w->keepalive, loop_now_ms(w->loop) + w->c->keepalive_ms);
}

static void stream_send(struct watcher *w, Filesystem__WatchDirResponse *m)
{
	call_send(w->c, &m->base);
	keepalive_again(w);
	if (w->bw)
		container_watch_hold(w->bw, !call_has_room(w->c));
}

static void on_room(struct call *c)
{
	struct watcher *w = watcher_from(c->priv);

	if (w->bw && call_has_room(c))
		container_watch_hold(w->bw, false);
}

static void on_keepalive(struct timer *t, void *user)
{
	Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
	Filesystem__WatchDirResponse__KeepAlive keepalive =
		FILESYSTEM__WATCH_DIR_RESPONSE__KEEP_ALIVE__INIT;

	m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_KEEPALIVE;
	m.keepalive = &keepalive;
	stream_send(watcher_from(user), &m);
}

/* --- what happens --- */

static void envd_watch_fail(struct call *c, int r, const char *path)
{
	switch (-r) {
	case ENOENT:
		call_fail(c, CODE_NOT_FOUND, "path %.300s not found", path);
		break;
	case ENOTDIR:
		call_fail(c, CODE_INVALID_ARGUMENT, "path is not a directory: %.300s", path);
		break;
	case EREMOTE:
		call_fail(c, CODE_INVALID_ARGUMENT,
			  "cannot watch path on network filesystem: %.300s", path);
		break;
	case ENAMETOOLONG:
		call_fail(c, CODE_INVALID_ARGUMENT, "%.300s: %s", path, strerror(-r));
		break;
	case EPIPE:
		call_fail(c, CODE_UNAVAILABLE, "%.300s: the sandbox is gone", path);
		break;
	default:
		call_fail(c, CODE_INTERNAL, "error watching %.300s: %s", path, strerror(-r));
		break;
	}
}

static void on_ready(struct watcher *w)
{
	Filesystem__CreateWatcherResponse made = FILESYSTEM__CREATE_WATCHER_RESPONSE__INIT;
	Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
	Filesystem__WatchDirResponse__StartEvent start =
		FILESYSTEM__WATCH_DIR_RESPONSE__START_EVENT__INIT;
	struct call *c = w->c;

	w->started = true;
	if (w->is_stream) {
		m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START;
		m.start = &start;
		stream_send(w, &m);
		return;
	}
	w->c = NULL;
	c->gone = NULL;
	c->priv = NULL;
	made.watcher_id = w->id;
	call_reply(c, &made.base);
}

static void break_watcher(struct watcher *w, const char *why)
{
	w->broken = why;
	w->bw = container_watch_free(w->bw);
	buf_fini(&w->events);
	w->n_events = 0;
	fail_asks(w, CODE_INTERNAL, why);
}

static void keep(struct watcher *w, const Filesystem__FilesystemEvent *m)
{
	uint32_t n = (uint32_t)filesystem__filesystem_event__get_packed_size(m);
	uint8_t *p;

	if (buf_len(&w->events) + n + sizeof(n) > WATCHER_MAX_BYTES) {
		break_watcher(w, "too many events that nobody asked for");
		return;
	}
	p = buf_space(&w->events, sizeof(n) + n);
	if (!p) {
		break_watcher(w, "out of memory");
		return;
	}
	memcpy(p, &n, sizeof(n));
	(void)filesystem__filesystem_event__pack(m, p + sizeof(n));
	buf_added(&w->events, sizeof(n) + n);
	w->n_events++;
}

static void on_change(struct watcher *w, const struct container_watch_event *e)
{
	Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
	struct event ev;

	if (event_init(&ev, e) < 0) {
		if (w->is_stream)
			call_fail(watcher_leave(w), CODE_RESOURCE_EXHAUSTED, "out of memory");
		else
			break_watcher(w, "out of memory");
	} else if (w->is_stream) {
		m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_FILESYSTEM;
		m.filesystem = &ev.m;
		stream_send(w, &m);
	} else {
		keep(w, &ev.m);
	}
	event_fini(&ev);
}

static void on_end(struct watcher *w, const struct container_watch_event *e)
{
	char path[300];

	if (!w->c) {	/* whoever asks next is told */
		break_watcher(w, e->kind == CONTAINER_WATCH_OVERFLOW ? "queue or buffer overflow"
							       : "the watch has ended");
		return;
	}
	str_copy(path, sizeof(path), w->path);
	if (e->kind == CONTAINER_WATCH_OVERFLOW)
		call_fail(watcher_leave(w), CODE_INTERNAL,
			  "watcher error: queue or buffer overflow");
	else
		envd_watch_fail(watcher_leave(w), e->r, path);
}

static void reply_events(struct watcher *w, struct call *c, Filesystem__FilesystemEvent **v)
{
	Filesystem__GetWatcherEventsResponse out = FILESYSTEM__GET_WATCHER_EVENTS_RESPONSE__INIT;
	const uint8_t *p = buf_data(&w->events);
	uint32_t n;

	out.events = v;
	for (size_t i = 0; i < w->n_events; i++, p += n) {
		memcpy(&n, p, sizeof(n));
		p += sizeof(n);
		v[i] = filesystem__filesystem_event__unpack(NULL, n, p);
		if (!v[i])
			break;
		out.n_events++;
	}
	if (out.n_events < w->n_events) {	/* they stay */
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		buf_fini(&w->events);
		w->n_events = 0;
		call_reply(c, &out.base);
	}
	for (size_t i = 0; i < out.n_events; i++)
		filesystem__filesystem_event__free_unpacked(v[i], NULL);
}

static void on_mark(struct watcher *w)
{
	struct call *c = list_is_empty(&w->asks) ? NULL : take_asking(w);
	Filesystem__FilesystemEvent **v;

	if (!c)
		return;
	v = calloc(w->n_events + 1, sizeof(Filesystem__FilesystemEvent *));
	if (v)
		reply_events(w, c, v);
	else
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
	free(v);
}

static void on_watch(void *user, const struct container_watch_event *e)
{
	struct watcher *w = watcher_from(user);

	switch (e->kind) {
	case CONTAINER_WATCH_READY:
		on_ready(w);
		break;
	case CONTAINER_WATCH_CHANGE:
		on_change(w, e);
		break;
	case CONTAINER_WATCH_MARK:
		on_mark(w);
		break;
	case CONTAINER_WATCH_OVERFLOW:
	case CONTAINER_WATCH_FAILED:
		on_end(w, e);
		break;
	}
}

/* --- the calls --- */

static size_t count(const struct sandbox *s)
{
	size_t n = 0;

	list_for_each(node, &s->watchers)
		n++;
	return n;
}

/* NULL after the call failed. */
static struct watcher *watcher_new(struct call *c, char *path, bool is_stream)
{
	struct watcher *w = calloc(1, sizeof(*w));

	if (!w) {
		free(path);
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
		return NULL;
	}
	*w = (struct watcher){ .magic = WATCHER_MAGIC, .loop = c->l->loop, .c = c, .path = path,
			       .is_stream = is_stream };
	list_init(&w->asks);
	timer_init(&w->keepalive, w->loop, on_keepalive, w);
	w->id[0] = 'w';
	rng_id(w->id + 1, WATCHER_ID_CHARS);
	list_add_tail(&c->s->watchers, &w->node);
	c->priv = w;
	c->gone = on_call_gone;
	if (is_stream)
		c->room = on_room;
	return w;
}

static void begin(struct call *c, struct container_watch_options *o, bool is_stream)
{
	const struct container_user *u = call_user(c);
	char *path = u ? fs_resolve(c, u, o->path) : NULL;
	struct watcher *w;
	int r;

	if (!path)
		return;
	if (count(c->s) >= WATCHERS_MAX) {
		free(path);
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "this sandbox has %u watches already",
			  WATCHERS_MAX);
		return;
	}
	w = watcher_new(c, path, is_stream);
	if (!w)
		return;
	o->path = path;
	r = container_watch_new(c->s->container, o, on_watch, w, &w->bw);
	if (r < 0) {
		struct container_watch_event e = { .kind = CONTAINER_WATCH_FAILED, .r = r };

		on_end(w, &e);
	}
}

void watch_dir_start(struct call *c)
{
	const Filesystem__WatchDirRequest *in = (const void *)c->req;
	struct container_watch_options o = { .path = in->path, .recursive = in->recursive,
				       .entries = in->include_entry,
				       .network = in->allow_network_mounts };

	begin(c, &o, true);
}

void create_watcher_start(struct call *c)
{
	const Filesystem__CreateWatcherRequest *in = (const void *)c->req;
	struct container_watch_options o = { .path = in->path, .recursive = in->recursive,
				       .entries = in->include_entry,
				       .network = in->allow_network_mounts };

	begin(c, &o, false);
}

/* NULL after the call failed. */
static struct watcher *find(struct call *c, const char *id)
{
	list_for_each(n, &c->s->watchers) {
		struct watcher *w = list_entry(n, struct watcher, node);

		if (!w->is_stream && w->started && str_eq(w->id, id))
			return w;
	}
	call_fail(c, CODE_NOT_FOUND, "watcher with id %.64s not found", id);
	return NULL;
}

static void on_asking_gone(struct call *c)
{
	struct asking *a = c->priv;

	a->c = NULL;
}

/* What a caller did before it asked is among the events, however late the watching process gets to see it. */
void watcher_events_start(struct call *c)
{
	const Filesystem__GetWatcherEventsRequest *in = (const void *)c->req;
	struct watcher *w = find(c, in->watcher_id);
	struct asking *a;

	if (!w)
		return;
	if (w->broken) {
		call_fail(c, CODE_INTERNAL, "watcher error: %s", w->broken);
		return;
	}
	a = w->n_asks < WATCHER_ASKS_MAX ? calloc(1, sizeof(*a)) : NULL;
	if (!a || container_watch_mark(w->bw) < 0) {
		free(a);
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "watcher %s is asked too often at once", w->id);
		return;
	}
	a->c = c;
	c->priv = a;
	c->gone = on_asking_gone;
	list_add_tail(&w->asks, &a->node);
	w->n_asks++;
}

void remove_watcher_start(struct call *c)
{
	const Filesystem__RemoveWatcherRequest *in = (const void *)c->req;
	Filesystem__RemoveWatcherResponse out = FILESYSTEM__REMOVE_WATCHER_RESPONSE__INIT;
	struct watcher *w = find(c, in->watcher_id);

	if (!w)
		return;
	(void)watcher_leave(w);
	call_reply(c, &out.base);
}
