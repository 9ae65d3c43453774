/* SPDX-License-Identifier: MIT */
/* WatchDir of the agent's Filesystem service: a stream of changes, taken at the owner's pace. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/cloud/connect.h"
#include "daemon/cloud/message.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define WATCH_MAGIC 0x77617463u

struct envd_watch {
	uint32_t magic;
	struct loop *loop;
	struct connect_stream c;	/* unless refused */
	bool refused;
	struct status why;
	struct defer tell;
	envd_watch_ready_fn *on_ready;
	void *user;
	struct envd_result held;	/* the entry of the last change that was given out */
	char *name;			/* the name of that change */
	bool closed;			/* the CLOSED event was given */
	struct grave grave;
};

static void watch_on_ready(struct pool_req *r, void *user)
{
	struct envd_watch *w = user;

	must(w->magic == WATCH_MAGIC);
	if (!w->closed)
		w->on_ready(w, w->user);
}

static void on_tell(struct defer *d, void *user)
{
	struct envd_watch *w = user;

	w->on_ready(w, w->user);
}

/* What the sandbox's agent is too old for. */
static bool is_too_old(const struct envd_target *t, const struct envd_watch_options *o,
		       struct status *why)
{
	const char *what = o->recursive && !agent_has(t, "0.1.4") ? "watch what is below (0.1.4 can)" :
			   o->entries && !agent_has(t, "0.6.3") ? "report entries (0.6.3 can)" :
			   o->network && !agent_has(t, "0.6.4") ? "watch network mounts (0.6.4 can)" :
								  NULL;

	if (what)
		status_set(why, R_UNSUPPORTED, "the sandbox's agent %s cannot %s", t->at.version, what);
	return what;
}

static int watch_begin(struct envd_watch *w, const struct envd_target *t,
		       const struct envd_watch_options *o)
{
	Filesystem__WatchDirRequest m = FILESYSTEM__WATCH_DIR_REQUEST__INIT;
	uint8_t *msg = NULL;
	size_t n = 0;
	int r;

	m.path = (char *)o->path;
	m.recursive = o->recursive;
	m.include_entry = o->entries;
	m.allow_network_mounts = o->network;
	r = message_pack(&m.base, &msg, &n);
	if (r == 0)
		r = connect_stream_init(&w->c, t, "/filesystem.Filesystem/WatchDir", FAULT_DIR, true, true,
					0, msg, n, watch_on_ready, w);
	free(msg);
	return r;
}

struct envd_watch *envd_watch(const struct envd_target *t, const struct envd_watch_options *o,
			      envd_watch_ready_fn *on_ready, void *user)
{
	struct envd_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->magic = WATCH_MAGIC;
	w->loop = t->at.cloud->loop;
	w->on_ready = on_ready;
	w->user = user;
	defer_init(&w->tell, w->loop, on_tell, w);
	w->refused = is_too_old(t, o, &w->why);
	if (w->refused) {
		defer_post(&w->tell);
	} else if (watch_begin(w, t, o) < 0) {
		free(w);
		return NULL;
	}
	return w;
}

static void held_free(struct envd_watch *w)
{
	message_result_fini(&w->held);
	free(give(w->name));
}

static enum envd_watch_event_type closed(struct envd_watch *w, struct envd_watch_event *ret,
					 enum envd_class cls, const struct status *why)
{
	*ret = (struct envd_watch_event){ .type = ENVD_WATCH_CLOSED, .cls = cls, .failure = *why };
	w->closed = true;
	return ret->type;
}

enum envd_watch_event_type envd_watch_next(struct envd_watch *w, struct envd_watch_event *ret)
{
	struct status why = STATUS_OK;
	enum envd_class cls = ENVD_OK;
	enum connect_result r;
	const uint8_t *p;
	size_t n;

	must(w->magic == WATCH_MAGIC);
	held_free(w);
	if (w->closed) {
		*ret = (struct envd_watch_event){ 0 };
		return ENVD_WATCH_NONE;
	}
	if (w->refused)
		return closed(w, ret, ENVD_ANSWERED, &w->why);
	while ((r = connect_stream_next(&w->c, &p, &n, &cls, &why)) == CONNECT_MESSAGE) {
		w->held.names_are_text = agent_names_are_text(pool_req_x(w->c.req));
		if (message_watch(p, n, ret, &w->held, &w->name) < 0) {
			status_set(&why, R_BAD_CLOUD_REPLY, "%s: an event cannot be read", w->c.path);
			w->c.over = true;
			return closed(w, ret, ENVD_LOST, &why);
		}
		if (ret->type != ENVD_WATCH_NONE)
			return ret->type;
		held_free(w);
	}
	*ret = (struct envd_watch_event){ 0 };
	return r == CONNECT_MORE ? ENVD_WATCH_NONE : closed(w, ret, cls, &why);
}

static void watch_bury(void *p)
{
	struct envd_watch *w = p;

	w->magic = 0;
	free(w);
}

struct envd_watch *envd_watch_free(struct envd_watch *w)
{
	if (!w)
		return NULL;
	must(w->magic == WATCH_MAGIC);
	held_free(w);
	defer_cancel(&w->tell);
	if (!w->refused)
		connect_stream_fini(&w->c);
	w->closed = true;
	loop_bury(w->loop, &w->grave, watch_bury, w);
	return NULL;
}
