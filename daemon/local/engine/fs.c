/* SPDX-License-Identifier: MIT */
/*
 * File calls: the engine's side of the workers. A worker has at most one request; the others wait in
 * the container's queue. What a worker says is checked as if the sandbox had said it.
 */
#include "daemon/local/engine/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/local/engine/container_int.h"
#include "daemon/local/engine/fs_wire.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

struct fs_op {
	struct list node;
	struct buf request;
	bool cancelled;
	fs_entry_fn *on_entry;	/* one of these four */
	fs_list_fn *on_list;
	fs_done_fn *on_done;
	fs_open_fn *on_open;
	void *user;
};

struct answer {
	int r, fd;
	struct fsw_entries entries;
	uint8_t *text;		/* what the entries point into, if it came in a memfd */
};

static void next(struct container *b);

/* --- ends --- */

static void op_free(struct fs_op *op)
{
	buf_fini(&op->request);
	free(op);
}

static void deliver(struct fs_op *op, struct answer *a)
{
	const struct fs_entry *e = a->entries.n ? &a->entries.e[0] : NULL;
	int r = a->r;

	if (r == 0 && !e && (op->on_entry || op->on_open))
		r = -EIO;
	if (r == 0 && op->on_open && a->fd < 0)
		r = -EIO;
	if (op->cancelled)
		;
	else if (op->on_entry)
		op->on_entry(op->user, r, r < 0 ? NULL : e);
	else if (op->on_list)
		op->on_list(op->user, r, a->entries.e, r < 0 ? 0 : a->entries.n);
	else if (op->on_open)
		op->on_open(op->user, r, r < 0 ? -1 : pkt_take_fd(&a->fd), r < 0 ? NULL : e);
	else
		op->on_done(op->user, r);
	fd_close(a->fd);
	fsw_entries_fini(&a->entries);
	free(a->text);
	op_free(op);
}

static void fs_fail(struct fs_op *op, int r)
{
	struct answer a = { .r = r, .fd = -1 };

	deliver(op, &a);
}

/* --- replies --- */

static int read_memfd(int fd, size_t n, uint8_t **ret)
{
	uint8_t *text = malloc(n ? n : 1);
	size_t done = 0;

	if (!text)
		return -ENOMEM;
	while (done < n) {
		ssize_t k = pread(fd, text + done, n - done, (off_t)done);

		if (k <= 0) {
			free(text);
			return -EIO;
		}
		done += (size_t)k;
	}
	*ret = text;
	return 0;
}

static int fs_parse(const uint8_t *msg, size_t n, int fds[PKT_FDS_MAX], struct answer *a)
{
	const uint8_t *text = msg + sizeof(struct fsw_reply);
	struct fsw_reply h;
	struct stat st;
	int r;

	if (n < sizeof(h))
		return -EIO;
	memcpy(&h, msg, sizeof(h));
	if (h.r < 0)
		return h.r;
	if (fds[0] >= 0 && (fstat(fds[0], &st) < 0 || !S_ISREG(st.st_mode)))
		return -EIO;
	if (h.in_memfd) {
		if (fds[0] < 0 || h.bytes > FSW_REPLY_MAX)
			return -EIO;
		r = read_memfd(fds[0], h.bytes, &a->text);
		if (r < 0)
			return r;
		text = a->text;
	} else {
		if (h.bytes != n - sizeof(h))
			return -EIO;
		a->fd = pkt_take_fd(&fds[0]);
	}
	r = fsw_entries_decode(text, h.bytes, h.n_entries, &a->entries);
	return r == -EBADMSG ? -EIO : r;
}

static void worker_close(struct fs_worker *w)
{
	watch_fini(&w->watch);
	w->sock = fd_close(w->sock);
	w->op = NULL;
}

static void on_worker(struct watch *watch, unsigned ready, void *user)
{
	static uint8_t msg[FSW_MESSAGE_MAX];	/* decoded before anything else can read one */
	struct fs_worker *w = user;
	struct answer a = { .fd = -1 };
	struct fs_op *op = w->op;
	struct container *b = w->container;
	int fds[PKT_FDS_MAX];
	ssize_t n = pkt_recv_any(w->sock, msg, sizeof(msg), fds);

	(void)watch;
	(void)ready;
	if (n == -EAGAIN)
		return;
	w->op = NULL;
	if (n <= 0 || !op) {
		worker_close(w);
		a.r = b->state == CONTAINER_RUNNING ? -EIO : -EPIPE;
	} else {
		a.r = fs_parse(msg, (size_t)n, fds, &a);
	}
	if (n > 0)
		pkt_close_fds(fds);
	if (op)
		deliver(op, &a);
	next(b);
}

/* --- workers --- */

static int worker_start(struct fs_worker *w)
{
	struct init_msg m = { .op = INIT_WORKER };
	struct container *b = w->container;
	int pair[2], r = pkt_pair(pair);

	if (r < 0)
		return r;
	r = pkt_send(b->sock, &m, sizeof(m), &pair[1], 1);
	fd_close(pair[1]);
	if (r == 0)
		r = watch_init(&w->watch, b->engine->loop, pair[0], on_worker, w);
	if (r < 0) {
		fd_close(pair[0]);
		return r;
	}
	w->sock = pair[0];
	r = watch_set(&w->watch, WATCH_READ);
	if (r < 0)
		worker_close(w);
	return r;
}

static struct fs_worker *worker_idle(struct container *b)
{
	for (size_t i = 0; i < FS_WORKERS_MAX; i++)
		if (b->workers[i].sock >= 0 && !b->workers[i].op)
			return &b->workers[i];
	for (size_t i = 0; i < FS_WORKERS_MAX; i++)
		if (b->workers[i].sock < 0 && worker_start(&b->workers[i]) == 0)
			return &b->workers[i];
	return NULL;
}

/* Gives waiting requests to free workers. */
static void next(struct container *b)
{
	while (b->state == CONTAINER_RUNNING && b->sock >= 0 && !list_is_empty(&b->fs_queue)) {
		struct fs_op *op = list_first(&b->fs_queue, struct fs_op, node);
		struct fs_worker *w = worker_idle(b);

		if (!w)
			return;
		if (pkt_send(w->sock, buf_data(&op->request), buf_len(&op->request), NULL, 0) < 0) {
			worker_close(w);	/* died while idle: another one */
			continue;
		}
		list_del(&op->node);
		w->op = op;
	}
}

static bool any_worker(const struct container *b)
{
	for (size_t i = 0; i < FS_WORKERS_MAX; i++)
		if (b->workers[i].sock >= 0)
			return true;
	return false;
}

static int submit(struct container *b, const struct fsw_request *q, struct fs_op *kind,
		  struct fs_op **ret_op)
{
	struct fs_op *op;
	int r;

	if (b->state != CONTAINER_RUNNING || b->sock < 0 || b->destroying)
		return -EPIPE;
	if (strlen(q->path) > FS_PATH_MAX || (q->to && strlen(q->to) > FS_PATH_MAX))
		return -ENAMETOOLONG;
	op = calloc(1, sizeof(*op));
	if (!op)
		return -ENOMEM;
	*op = *kind;
	list_init(&op->node);
	buf_init(&op->request, FSW_MESSAGE_MAX);
	r = fsw_request_encode(q, &op->request);
	if (r < 0) {
		op_free(op);
		return r == -ENOBUFS ? -E2BIG : r;
	}
	list_add_tail(&b->fs_queue, &op->node);
	next(b);
	if (!list_is_empty(&b->fs_queue) && !any_worker(b)) {
		list_del(&op->node);
		op_free(op);
		return -EAGAIN;		/* not one worker can be had */
	}
	if (ret_op)
		*ret_op = op;
	return 0;
}

void fs_init(struct container *b)
{
	list_init(&b->fs_queue);
	for (size_t i = 0; i < FS_WORKERS_MAX; i++)
		b->workers[i] = (struct fs_worker){ .container = b, .sock = -1 };
}

void fs_end_all(struct container *b, bool quiet)
{
	struct list ops;

	list_take(&ops, &b->fs_queue);
	for (size_t i = 0; i < FS_WORKERS_MAX; i++) {
		struct fs_op *op = b->workers[i].op;

		worker_close(&b->workers[i]);
		if (op)
			list_add_head(&ops, &op->node);
	}
	while (!list_is_empty(&ops)) {
		struct fs_op *op = list_first(&ops, struct fs_op, node);

		list_del(&op->node);
		op->cancelled |= quiet;
		fs_fail(op, -EPIPE);
	}
}

void fs_cancel(struct fs_op *op)
{
	op->cancelled = true;
}

/* --- the calls --- */

int fs_stat(struct container *b, const char *path, fs_entry_fn *done, void *user, struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_STAT, .path = path };

	return submit(b, &q, &(struct fs_op){ .on_entry = done, .user = user }, ret_op);
}

int fs_list(struct container *b, const char *path, uint32_t depth, fs_list_fn *done, void *user,
	    struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_LIST, .path = path, .depth = depth };

	return submit(b, &q, &(struct fs_op){ .on_list = done, .user = user }, ret_op);
}

int fs_mkdir(struct container *b, const char *path, const struct container_user *owner,
	     fs_entry_fn *done, void *user, struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_MKDIR, .path = path, .uid = owner->uid, .gid = owner->gid };

	return submit(b, &q, &(struct fs_op){ .on_entry = done, .user = user }, ret_op);
}

int fs_move(struct container *b, const char *from, const char *to,
	    const struct container_user *owner, fs_entry_fn *done, void *user,
	    struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_MOVE, .path = from, .to = to, .uid = owner->uid,
				 .gid = owner->gid };

	return submit(b, &q, &(struct fs_op){ .on_entry = done, .user = user }, ret_op);
}

int fs_remove(struct container *b, const char *path, fs_done_fn *done, void *user,
	      struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_REMOVE, .path = path };

	return submit(b, &q, &(struct fs_op){ .on_done = done, .user = user }, ret_op);
}

int fs_open_read(struct container *b, const char *path, fs_open_fn *done, void *user,
		 struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_OPEN_READ, .path = path };

	return submit(b, &q, &(struct fs_op){ .on_open = done, .user = user }, ret_op);
}

int fs_compose(struct container *b, const char *const *sources, size_t n_sources,
	       const char *destination, const struct container_user *owner, fs_entry_fn *done,
	       void *user, struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_COMPOSE, .path = destination, .uid = owner->uid,
				 .gid = owner->gid, .n_meta = n_sources };
	struct fs_meta *list = calloc(n_sources + 1, sizeof(*list));
	int r;

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < n_sources; i++)
		list[i] = (struct fs_meta){ sources[i], "" };
	q.meta = list;
	r = submit(b, &q, &(struct fs_op){ .on_entry = done, .user = user }, ret_op);
	free(list);
	return r;
}

int fs_open_write(struct container *b, const char *path, const struct container_user *owner,
		  const struct fs_meta *meta, size_t n_meta, fs_open_fn *done, void *user,
		  struct fs_op **ret_op)
{
	struct fsw_request q = { .op = FSW_OPEN_WRITE, .path = path, .uid = owner->uid,
				 .gid = owner->gid, .meta = meta, .n_meta = n_meta };
	size_t bytes = 0;

	for (size_t i = 0; i < n_meta; i++)
		bytes += 9 + strlen(meta[i].key) + strlen(meta[i].value);
	if (bytes > FS_META_MAX_BYTES)
		return -E2BIG;
	return submit(b, &q, &(struct fs_op){ .on_open = done, .user = user }, ret_op);
}
