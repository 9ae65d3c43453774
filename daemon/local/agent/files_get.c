/* SPDX-License-Identifier: MIT */
/*
 * GET /files. The file is read in slices as the exchange has room, so a slow reader costs one slice
 * and no time. A file that shrinks meanwhile ends the exchange as broken, never as complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/httpval.h"
#include "daemon/common/http/mime.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/net/gz.h"
#include "daemon/local/agent/envd.h"
#include "daemon/local/agent/files.h"
#include "daemon/local/engine/fs.h"
#include "daemon/local/state/local.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define DOWN_MAGIC 0xd0d0f11eu

struct down {
	uint32_t magic;
	struct local *l;
	struct sandbox *s;
	struct http_stream *x;
	char *path;
	struct fs_op *op;
	int fd;
	uint64_t at, left;
	bool gzip;
	struct gz gz;
	struct traffic traffic;
	struct defer again;
	struct grave grave;
};

static struct down *down_from(void *p)
{
	struct down *d = p;

	must(d && d->magic == DOWN_MAGIC);
	return d;
}

static void down_free(void *p)
{
	struct down *d = down_from(p);

	d->magic = 0;
	gz_fini(&d->gz);
	fd_close(d->fd);
	free(d->path);
	free(d);
}

/* Returns the exchange, which is the caller's. */
static struct http_stream *down_leave(struct down *d)
{
	if (d->op)
		fs_cancel(give(d->op));
	defer_cancel(&d->again);
	list_del(&d->traffic.node);
	loop_bury(d->l->loop, &d->grave, down_free, d);
	return give(d->x);
}

static void files_get_on_cut(struct traffic *t)
{
	struct down *d = container_of(t, struct down, traffic);
	bool begun = d->fd >= 0;
	char id[ROUTE_ID_MAX + 1];
	struct http_stream *x;

	str_copy(id, sizeof(id), d->s->id);
	x = down_leave(d);
	if (begun)
		reply_abort(x);
	else
		edge_reply_not_found(x, id);
}

/* The next slice. >0: written; 0: all is; -errno. */
static int send_slice(struct down *d, size_t room)
{
	scoped(buf_fini) struct buf out = BUF_NULL;
	size_t want = (size_t)MIN((uint64_t)MIN(room, (size_t)FILES_SLICE_BYTES), d->left);
	uint8_t *space = buf_space(&out, want + 1);
	scoped(buf_fini) struct buf packed = BUF_NULL;
	ssize_t n = 0;
	int r;

	if (!space)
		return -ENOMEM;
	if (want)
		n = pread(d->fd, space, want, (off_t)d->at);
	if (n < 0)
		return -errno;
	if (want && !n)
		return -EPIPE;	/* it became shorter */
	d->at += (uint64_t)n;
	d->left -= (uint64_t)n;
	buf_added(&out, (size_t)n);
	if (!d->gzip) {
		r = n ? http_stream_write(d->x, buf_data(&out), buf_len(&out)) : 0;
	} else {
		r = gz_deflate(&d->gz, buf_data(&out), (size_t)n, !d->left, &packed);
		if (!r && buf_len(&packed))
			r = http_stream_write(d->x, buf_data(&packed), buf_len(&packed));
	}
	return r < 0 ? r : d->left > 0;
}

static void down_pump(struct down *d)
{
	size_t room = http_stream_room(d->x);
	struct http_stream *x;
	int r;

	if (!room)
		return;
	r = send_slice(d, room);
	if (r > 0) {
		/* The rest after the others; without room on_ready will be called. */
		if (http_stream_room(d->x))
			defer_post(&d->again);
		return;
	}
	x = down_leave(d);
	if (!r)
		r = http_stream_finish(x, NULL);
	if (r < 0)
		reply_abort(x);
	else
		http_stream_detach(x);
}

static void files_get_on_ready(struct http_stream *x, void *user)
{
	struct down *d = down_from(user);

	if (http_stream_closed(x, NULL) != HTTP_OPEN) {
		http_stream_release(down_leave(d));
		return;
	}
	if (d->fd >= 0)
		down_pump(d);
}

static void files_get_on_again(struct defer *f, void *user)
{
	down_pump(down_from(user));
}

/* If-Modified-Since and its relatives: 304, 412, or 0 to go on. */
static unsigned condition(const struct http_stream *x, int64_t mtime_s)
{
	const char *match = reply_request(x, "if-match");
	const char *none = reply_request(x, "if-none-match");
	const char *since = reply_request(x, "if-modified-since");
	const char *until = reply_request(x, "if-unmodified-since");
	int64_t t;

	/* There are no entity tags, so only the wildcard can be one's. */
	if (match ? !str_eq(match, "*")
		  : until && !httpval_parse_date(until, &t) && mtime_s > t)
		return 412;
	if (none ? str_eq(none, "*") : since && !httpval_parse_date(since, &t) && mtime_s <= t)
		return 304;
	return 0;
}

struct answer {
	unsigned status;
	uint64_t first, n;
	enum coding coding;
};

/* What to send of a file of that size and age. */
static struct answer decide(const struct http_stream *x, uint64_t size, int64_t mtime_s)
{
	const char *range = reply_request(x, "range"), *if_range = reply_request(x, "if-range");
	bool plain = range || reply_request(x, "if-modified-since") ||
		     reply_request(x, "if-none-match") || reply_request(x, "if-match") ||
		     reply_request(x, "if-unmodified-since") || if_range;
	struct answer a = { .status = 200, .n = size };
	int64_t t;

	a.coding = httpval_coding(reply_request(x, "accept-encoding"), plain);
	if (a.coding != CODING_IDENTITY)
		return a;
	a.status = condition(x, mtime_s);
	if (a.status)
		return a;
	a.status = 200;
	if (if_range && (httpval_parse_date(if_range, &t) < 0 || t != mtime_s))
		range = NULL;
	switch (httpval_range(range, size, &a.first, &a.n)) {
	case RANGE_WHOLE:
		break;
	case RANGE_PART:
		a.status = 206;
		break;
	case RANGE_BAD:
		a.status = 416;
		break;
	}
	return a;
}

static const char *name_of(const struct down *d)
{
	const char *slash = strrchr(d->path, '/');

	return slash ? slash + 1 : d->path;
}

/* The agent looks into files that it can go back in; one of /proc, of which there is a copy in memory, is not one. */
static const char *type_of(const struct down *d)
{
	static const uint8_t nothing_known[] = { 0 };
	uint8_t head[MIME_SNIFF_BYTES];
	ssize_t n = pread(d->fd, head, sizeof(head), 0);

	if (n > 0 && d->gzip && fcntl(d->fd, F_GET_SEALS) >= 0)
		return mime_type(name_of(d), nothing_known, sizeof(nothing_known));
	return mime_type(name_of(d), head, n > 0 ? (size_t)n : 0);
}

static int put_disposition(const struct down *d, struct fields *h)
{
	char *disposition = httpval_disposition(name_of(d));
	int r = disposition ? fields_put(h, "content-disposition", disposition) : -ENOMEM;

	free(disposition);
	return r;
}

static int head_fill(const struct down *d, struct fields *h, const struct answer *a, uint64_t size,
		     int64_t mtime_s)
{
	char date[40];
	int r = fields_printf(h, ":status", "%u", a->status);

	httpval_date(mtime_s, date);
	if (!r)
		r = fields_put(h, "content-type", type_of(d));
	if (!r)
		r = put_disposition(d, h);
	if (!r)
		r = fields_put(h, "vary", "Accept-Encoding");
	if (!r)
		r = reply_add_cors(d->x, h);
	if (!r && a->coding == CODING_GZIP)
		return fields_put(h, "content-encoding", "gzip");
	if (!r)
		r = fields_put(h, "last-modified", date);
	if (!r)
		r = fields_put(h, "accept-ranges", "bytes");
	if (!r && a->status == 206)
		r = fields_printf(h, "content-range", "bytes %llu-%llu/%llu",
				  (unsigned long long)a->first,
				  (unsigned long long)(a->first + a->n - 1),
				  (unsigned long long)size);
	if (!r)
		r = fields_printf(h, "content-length", "%llu", (unsigned long long)a->n);
	return r;
}

/* 304, 412 and 416: what is said of the file without it. */
static int fill_bare(const struct down *d, unsigned status, uint64_t size, int64_t mtime_s, struct fields *h)
{
	char date[40];
	int r = fields_put(h, "vary", "Accept-Encoding");

	httpval_date(mtime_s, date);
	if (!r)
		r = put_disposition(d, h);
	if (!r && status != 416)
		return fields_put(h, "last-modified", date);
	if (!r)
		r = fields_put(h, "x-content-type-options", "nosniff");
	return r ? r : fields_printf(h, "content-range", "bytes */%llu", (unsigned long long)size);
}

static void answer_bare(struct down *d, unsigned status, uint64_t size, int64_t mtime_s)
{
	static const char words[] = "invalid range: failed to overlap\n";
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	int r = fill_bare(d, status, size, mtime_s, &extra);
	struct http_stream *x = down_leave(d);

	if (r < 0)
		reply_abort(x);
	else if (status == 416)
		reply_send(x, status, REPLY_TEXT, &extra, words, strlen(words));
	else
		reply_send(x, status, NULL, &extra, NULL, 0);
}

static void down_begin(struct down *d, uint64_t size, int64_t mtime_s)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	struct answer a = decide(d->x, size, mtime_s);
	int r;

	if (a.coding == CODING_NONE) {
		reply_envd_error(down_leave(d), 406, "no acceptable encoding");
		return;
	}
	if (a.status != 200 && a.status != 206) {
		answer_bare(d, a.status, size, mtime_s);
		return;
	}
	d->at = a.first;
	d->left = a.n;
	d->gzip = a.coding == CODING_GZIP;
	r = d->gzip ? gz_init(&d->gz, false) : 0;
	if (!r)
		r = head_fill(d, &head, &a, size, mtime_s);
	if (!r)
		r = http_stream_respond(d->x, &head, !d->gzip && !a.n);
	if (r < 0)
		reply_abort(down_leave(d));
	else if (!d->gzip && !a.n)
		http_stream_detach(down_leave(d));
	else
		down_pump(d);
}

static void on_open(void *user, int r, int fd, const struct fs_entry *e)
{
	struct down *d = down_from(user);
	struct stat st;
	char path[512];

	d->op = NULL;
	if (!r && fstat(fd, &st) < 0) {
		r = -errno;
		fd_close(fd);
	}
	if (r < 0) {
		str_copy(path, sizeof(path), d->path);
		files_fail(down_leave(d), r, path);
		return;
	}
	d->fd = fd;
	down_begin(d, (uint64_t)st.st_size, st.st_mtim.tv_sec);
}

void files_get(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q)
{
	const char *path = query_get(q, "path");
	struct container_user u;
	struct down *d;
	int r;

	if (!files_authorize(s, x, q, false, &u))
		return;
	d = calloc(1, sizeof(*d));
	if (!d) {
		reply_abort(x);
		return;
	}
	d->magic = DOWN_MAGIC;
	d->l = l;
	d->s = s;
	d->x = x;
	d->fd = -1;
	defer_init(&d->again, l->loop, files_get_on_again, d);
	sandbox_traffic_add(s, &d->traffic, files_get_on_cut);
	http_stream_set_owner(x, files_get_on_ready, d);
	d->path = envd_path_of_request(s, &u, x, path ? path : "");
	if (!d->path) {
		reply_envd_error(down_leave(d), errno == EINVAL ? 400 : 500,
				 "error resolving path '%.300s'", path ? path : "");
		return;
	}
	r = fs_open_read(s->container, d->path, on_open, d, &d->op);
	if (r < 0) {
		d->op = NULL;
		files_fail(down_leave(d), r, path ? path : "");
	}
}
