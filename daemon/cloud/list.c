/* SPDX-License-Identifier: MIT */
/* ListDir of the agent's Filesystem service: its entries as they come, taken at the owner's pace. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/cloud/connect.h"
#include "daemon/cloud/entries.h"
#include "daemon/cloud/message.h"
#include "daemon/cloud/rawfs.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define LIST_MAGIC 0x6c697374u
#define LIST_PATH  "/filesystem.Filesystem/ListDir"

struct envd_list {
	uint32_t magic;
	struct loop *loop;
	struct pool_req *req;
	struct rawfs *raw;		/* instead of it */
	bool names_are_text;
	enum envd_xfer state;
	enum fault_subject subject;
	struct entries entries;
	struct buf error;
	enum envd_class cls;
	struct status failure;
	envd_list_ready_fn *on_ready;
	void *user;
	struct grave grave;
};

static bool list_is_over(const struct envd_list *l)
{
	return l->state == ENVD_XFER_DONE || l->state == ENVD_XFER_FAILED;
}

static void list_fail(struct envd_list *l, enum envd_class cls)
{
	must(!list_is_over(l));
	l->cls = cls;
	l->state = ENVD_XFER_FAILED;
}

static void list_bad(struct envd_list *l, const char *why)
{
	status_set(&l->failure, R_BAD_CLOUD_REPLY, LIST_PATH ": %s", why);
	list_fail(l, ENVD_LOST);
}

static void list_head(struct envd_list *l, struct http_stream *x)
{
	if (http_stream_status(x) != 200) {
		if (agent_refused(x, &l->error, LIST_PATH, l->subject, &l->cls, &l->failure))
			list_fail(l, l->cls);
	} else if (!connect_is_unary(x)) {
		list_bad(l, "the answer is not of the type asked for");
	} else {
		l->names_are_text = agent_names_are_text(x);
		l->state = ENVD_XFER_OPEN;
	}
}

/* Everything that came was taken. */
static void list_end(struct envd_list *l, const struct http_stream *x, const struct status *lost)
{
	if (x && http_stream_at_end(x) && entries_may_end(&l->entries)) {
		l->state = ENVD_XFER_DONE;
	} else if (lost) {
		l->cls = agent_failure(l->req, &l->failure);
		list_fail(l, l->cls);
	} else if (x && http_stream_at_end(x)) {
		list_bad(l, "the answer ends in the middle of an entry");
	}
}

static void list_look(struct envd_list *l)
{
	struct http_stream *x = pool_req_x(l->req);
	const struct status *lost = pool_req_failure(l->req);
	const uint8_t *p;

	if (l->state == ENVD_XFER_OPENING && x && http_stream_head(x))
		list_head(l, x);
	if (!list_is_over(l) && (!x || !http_stream_peek(x, &p)))
		list_end(l, x, lost);
}

static void on_list_ready(struct pool_req *req, void *user)
{
	struct envd_list *l = user;

	must(l->magic == LIST_MAGIC);
	if (list_is_over(l))
		return;
	list_look(l);
	l->on_ready(l, l->user);
}

static bool take_entry(struct envd_list *l, const uint8_t *p, size_t n, struct envd_entry *ret)
{
	int r = message_entry(p, n, l->names_are_text, ret);

	if (r == -ENOMEM) {
		status_errno(&l->failure, ENOMEM, "listing a directory");
		list_fail(l, ENVD_LOST);
	} else if (r < 0) {
		list_bad(l, "an entry cannot be read");
	}
	return r == 0;
}

static void raw_look(struct envd_list *l)
{
	const struct status *why = rawfs_failure(l->raw, &l->cls);

	if (why)
		l->failure = *why;
	l->state = rawfs_state(l->raw);
}

static void on_list_raw(struct rawfs *f, void *user)
{
	struct envd_list *l = user;

	raw_look(l);
	l->on_ready(l, l->user);
}

bool envd_list_next(struct envd_list *l, struct envd_entry *ret)
{
	struct http_stream *x = l->raw ? NULL : pool_req_x(l->req);
	const uint8_t *p, *entry;
	size_t n, n_entry, used;
	enum entries_result r = ENTRIES_MORE;
	bool got = false;

	if (l->raw) {
		got = rawfs_next(l->raw, ret);
		raw_look(l);
		return got;
	}
	while (l->state == ENVD_XFER_OPEN && r == ENTRIES_MORE && x && (n = http_stream_peek(x, &p)) > 0) {
		r = entries_feed(&l->entries, p, n, &used, &entry, &n_entry);
		if (r == ENTRIES_GOT)
			got = take_entry(l, entry, n_entry, ret);
		else if (r != ENTRIES_MORE)
			list_bad(l, r == ENTRIES_TOO_LARGE ? "an entry is too large" :
				    r == ENTRIES_BAD	   ? "the answer cannot be read" :
							     agent_no_room(-ENOBUFS));
		http_stream_consume(x, used);
	}
	if (l->state == ENVD_XFER_OPEN)
		list_look(l);
	return got;
}

static void list_bury(void *p)
{
	struct envd_list *l = p;

	entries_fini(&l->entries);
	buf_fini(&l->error);
	l->magic = 0;
	free(l);
}

static int list_begin(struct envd_list *l, const struct envd_target *t, const char *path, uint32_t depth)
{
	Filesystem__ListDirRequest m = FILESYSTEM__LIST_DIR_REQUEST__INIT;
	uint8_t *msg = NULL;
	size_t n = 0;
	int r;

	m.path = (char *)path;
	m.depth = depth;
	r = message_pack(&m.base, &msg, &n);
	if (r == 0)
		l->req = connect_ask_streamed(t, LIST_PATH, msg, n, on_list_ready, l);
	free(msg);
	return l->req ? 0 : -ENOMEM;
}

struct envd_list *envd_list(const struct envd_target *t, const char *path, uint32_t depth, envd_list_ready_fn *on_ready,
			    void *user)
{
	struct envd_list *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->magic = LIST_MAGIC;
	l->loop = t->at.cloud->loop;
	l->subject = agent_is_foreign_home(path) ? FAULT_PATH : FAULT_DIR;
	l->on_ready = on_ready;
	l->user = user;
	entries_init(&l->entries);
	buf_set_quota(&l->entries.entry, t->at.cloud->quota);
	buf_init(&l->error, 0);
	buf_set_quota(&l->error, t->at.cloud->quota);
	if (t->by_script || !envd_can_name(path))
		l->raw = rawfs_new(t, &(struct rawfs_ask){ .op = RAWFS_LIST, .path = path, .depth = depth }, on_list_raw, l);
	else if (list_begin(l, t, path, depth) < 0)
		l->req = NULL;
	if (l->raw || l->req)
		return l;
	list_bury(l);
	return NULL;
}

enum envd_xfer envd_list_state(const struct envd_list *l)
{
	return l->state;
}

const struct status *envd_list_failure(const struct envd_list *l, enum envd_class *ret_cls)
{
	if (ret_cls)
		*ret_cls = l->cls;
	return l->state == ENVD_XFER_FAILED ? &l->failure : NULL;
}

struct envd_list *envd_list_free(struct envd_list *l)
{
	if (!l)
		return NULL;
	must(l->magic == LIST_MAGIC);
	l->req = pool_req_free(l->req);
	l->raw = rawfs_free(l->raw);
	loop_bury(l->loop, &l->grave, list_bury, l);
	return NULL;
}
