/* SPDX-License-Identifier: MIT */
/*
 * POST /files. The body goes through up to two stages (gunzip, multipart) straight into the file that
 * is open; nothing of a size that the client chooses is kept. While a file is being opened nothing is
 * read, so the client is held back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/multipart.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/net/gz.h"
#include "daemon/local/agent/envd.h"
#include "daemon/local/agent/files.h"
#include "daemon/local/engine/fs.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/local.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define UP_MAGIC	  0x0b0b0b0bu
#define UP_FILES_MAX	  1000u	/* in one request; 400 above it */
#define META_PREFIX	  "x-metadata-"
#define META_MAX	  64u	/* entries */
#define META_KEY_MAX	  246u
#define META_ENTRY_BYTES  9u	/* counted per entry beside key and value */

struct up {
	uint32_t magic;
	struct local *l;
	struct sandbox *s;
	struct http_stream *x;
	struct container_user user;
	bool gzip, is_multipart;
	struct gz gz;
	struct buf plain;		/* unpacked, not used yet */
	struct multipart parts;
	char *target;			/* of the query; resolved; may be NULL */
	char *path;			/* of the file that is open or being opened */
	struct fs_op *op;
	int fd;
	bool ended;			/* multipart: its last line was seen */
	struct fs_meta meta[META_MAX];
	size_t n_meta;
	json_t *done;			/* the answer */
	struct traffic traffic;
	struct defer again;
	struct grave grave;
};

static void up_pump(struct up *u);

static struct up *up_from(void *p)
{
	struct up *u = p;

	must(u && u->magic == UP_MAGIC);
	return u;
}

/* --- the end --- */

static void up_free(void *p)
{
	struct up *u = up_from(p);

	u->magic = 0;
	gz_fini(&u->gz);
	buf_fini(&u->plain);
	multipart_fini(&u->parts);
	fd_close(u->fd);
	for (size_t i = 0; i < u->n_meta; i++) {
		free((char *)u->meta[i].key);
		free((char *)u->meta[i].value);
	}
	json_decref(u->done);
	free(u->target);
	free(u->path);
	free(u);
}

/* Returns the exchange, which is the caller's. */
static struct http_stream *up_leave(struct up *u)
{
	if (u->op)
		fs_cancel(give(u->op));
	defer_cancel(&u->again);
	list_del(&u->traffic.node);
	loop_bury(u->l->loop, &u->grave, up_free, u);
	return give(u->x);
}

static void files_post_on_cut(struct traffic *t)
{
	struct up *u = container_of(t, struct up, traffic);
	char id[ROUTE_ID_MAX + 1];

	str_copy(id, sizeof(id), u->s->id);
	edge_reply_not_found(up_leave(u), id);
}

static void up_answer(struct up *u)
{
	char *text = json_dumps(u->done, JSON_COMPACT);
	struct http_stream *x = up_leave(u);

	if (text)
		reply_send(x, 200, "application/json", NULL, text, strlen(text));
	else
		reply_abort(x);
	free(text);
}

/* --- files --- */

/* The open file is complete. */
static int file_done(struct up *u)
{
	const char *name = strrchr(u->path, '/') ? strrchr(u->path, '/') + 1 : u->path;
	json_t *o = json_pack("{s:o, s:o, s:s}", "path", envd_name_json(u->path), "name",
			      envd_name_json(name), "type", "file");
	json_t *meta = u->n_meta ? json_object() : NULL;

	for (size_t i = 0; i < u->n_meta; i++)
		(void)json_object_set_new(meta, u->meta[i].key, json_string(u->meta[i].value));
	if (meta)
		(void)json_object_set_new(o, "metadata", meta);
	if (json_array_append_new(u->done, o) < 0)
		return -ENOMEM;
	journal_add(u->l->journal, "write",
		    json_pack("{s:s, s:o}", "sandbox", u->s->id, "path", envd_name_json(u->path)));
	u->fd = fd_close(u->fd);
	free(give(u->path));
	return 0;
}

static void on_open(void *user, int r, int fd, const struct fs_entry *e)
{
	struct up *u = up_from(user);
	char path[512];

	u->op = NULL;
	if (r < 0) {
		str_copy(path, sizeof(path), u->path);
		files_fail(up_leave(u), r, path);
		return;
	}
	u->fd = fd;
	up_pump(u);
}

static bool is_duplicate(const struct up *u, const char *path)
{
	size_t i;
	json_t *o;

	json_array_foreach(u->done, i, o)
		if (str_eq(json_string_value(json_object_get(o, "path")), path))
			return true;
	return false;
}

/* Takes path. False after the answer. */
static bool file_open(struct up *u, char *path)
{
	int r;

	u->path = path;
	if (is_duplicate(u, path)) {
		reply_envd_error(up_leave(u), 400, "you cannot upload multiple files to the same "
						   "path '%.300s' in one upload request", path);
		return false;
	}
	if (json_array_size(u->done) == UP_FILES_MAX) {
		reply_envd_error(up_leave(u), 400, "too many files in one request");
		return false;
	}
	r = fs_open_write(u->s->container, path, &u->user, u->meta, u->n_meta, on_open, u, &u->op);
	if (!r)
		return true;
	u->op = NULL;
	files_fail(up_leave(u), r, path);
	return false;
}

/* 0 or -errno; all of it. */
static int file_write(struct up *u, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t k = write(u->fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

/* --- the body --- */

static char *path_of_part(struct up *u)
{
	if (u->target)
		return str_dup(u->target);
	return u->parts.filename ? envd_path_of_text(u->s, &u->user, u->parts.filename) : NULL;
}

/* A part begins. False after the answer. */
static bool part_begin(struct up *u)
{
	char *path;

	if (!u->parts.name || !str_eq(u->parts.name, "file"))
		return true;	/* its data goes nowhere */
	path = path_of_part(u);
	if (path)
		return file_open(u, path);
	reply_envd_error(up_leave(u), 400, "a file part needs a valid file name, or the request a path");
	return false;
}

/* Uses what it can of the window. False after the answer. */
static bool use_multipart(struct up *u, const uint8_t *p, size_t n, size_t *used)
{
	while (!u->op && !u->ended) {
		const uint8_t *data = NULL;
		size_t len = 0, k = 0;
		enum multipart_event e;
		int r = 0;

		e = multipart_next(&u->parts, p + *used, n - *used, &k, &data, &len);
		*used += k;
		switch (e) {
		case MULTIPART_MORE:
			return true;
		case MULTIPART_PART:
			if (!part_begin(u))
				return false;
			break;
		case MULTIPART_DATA:
			r = u->fd >= 0 ? file_write(u, data, len) : 0;
			break;
		case MULTIPART_PART_END:
			r = u->fd >= 0 ? file_done(u) : 0;
			break;
		case MULTIPART_END:
			u->ended = true;
			*used = n;
			break;
		case MULTIPART_BAD:
			reply_envd_error(up_leave(u), 500, "malformed multipart body");
			return false;
		}
		if (r < 0) {
			files_fail(up_leave(u), r, "");
			return false;
		}
	}
	if (u->ended)
		*used = n;
	return true;
}

static bool use(struct up *u, const uint8_t *p, size_t n, size_t *used)
{
	int r;

	*used = 0;
	if (u->op)
		return true;
	if (u->is_multipart)
		return use_multipart(u, p, n, used);
	if (u->fd < 0)
		return true;	/* packed, and nothing came out of it yet */
	r = file_write(u, p, n);
	*used = n;
	if (!r)
		return true;
	files_fail(up_leave(u), r, u->path ? u->path : "");
	return false;
}

/* One octet stream is one file. False after the answer. */
static bool single_open(struct up *u)
{
	char *path = str_dup(u->target);

	if (path)
		return file_open(u, path);
	reply_abort(up_leave(u));
	return false;
}

/* What is not packed at all must not empty the file that is there: it is opened at the first proof. */
static bool unpacked_open(struct up *u)
{
	bool proven = buf_len(&u->plain) > 0 || u->gz.at_member_end;

	return u->is_multipart || u->path || u->op || !proven || single_open(u);
}

/* Unpacks a slice into `plain`. Sets *ret_used; false after the answer. */
static bool unpack(struct up *u, const uint8_t *p, size_t n, size_t *ret_used)
{
	uint8_t *space = buf_space(&u->plain, FILES_SLICE_BYTES);
	size_t got = 0;
	int r = space ? gz_inflate(&u->gz, p, n, ret_used, space, FILES_SLICE_BYTES, &got)
		      : -ENOMEM;

	if (r < 0) {
		reply_envd_error(up_leave(u), r == -EBADMSG && !u->path ? 400 : 500,
				 "the body is not what its content-encoding says");
		return false;
	}
	buf_added(&u->plain, got);
	return true;
}

/* The whole body was used. */
static void body_ended(struct up *u)
{
	bool whole = u->is_multipart ? u->ended : true;
	int r;

	if (!whole || (u->gzip && !u->gz.at_member_end)) {
		reply_envd_error(up_leave(u), u->is_multipart || u->path ? 500 : 400, "the body ends too early");
		return;
	}
	r = u->is_multipart ? 0 : file_done(u);
	if (r < 0)
		reply_abort(up_leave(u));
	else
		up_answer(u);
}

/* A part's head or a boundary may lie in two pieces of what came. >0: look again; 0: all was seen; <0: the request was answered. */
static int join_pieces(struct up *u, size_t seen)
{
	size_t all = http_stream_buffered(u->x);

	if (!u->is_multipart || u->op || u->ended || seen >= all)
		return 0;
	if (http_stream_pull(u->x, MIN(all, seen + MULTIPART_HEADER_MAX_BYTES)) == 0)
		return 1;
	reply_abort(up_leave(u));
	return -1;
}

/* One slice. >0: did something; 0: waits for more; <0: the request was answered. */
static int up_slice(struct up *u)
{
	const uint8_t *p;
	size_t n = http_stream_peek(u->x, &p), used = 0, from_wire = 0;

	n = MIN(n, (size_t)FILES_SLICE_BYTES);
	if (!u->gzip) {
		if (!use(u, p, n, &used))
			return -1;
		http_stream_consume(u->x, used);
		return used > 0 ? 1 : join_pieces(u, n);
	}
	if (buf_len(&u->plain) < FILES_SLICE_BYTES) {
		if (!unpack(u, p, n, &from_wire))
			return -1;
		http_stream_consume(u->x, from_wire);
		if (!unpacked_open(u))
			return -1;
	}
	if (!use(u, buf_data(&u->plain), buf_len(&u->plain), &used))
		return -1;
	buf_drop(&u->plain, used);
	return used > 0 || from_wire > 0;
}

static void up_pump(struct up *u)
{
	int r;

	if (u->op)
		return;
	r = up_slice(u);
	if (r < 0 || u->op)
		return;
	if (r > 0)
		defer_post(&u->again);
	else if (http_stream_at_end(u->x) || (http_stream_ended(u->x) && !u->gzip))
		body_ended(u);
}

static void files_post_on_again(struct defer *f, void *user)
{
	up_pump(up_from(user));
}

static void files_post_on_ready(struct http_stream *x, void *user)
{
	struct up *u = up_from(user);

	if (http_stream_closed(x, NULL) != HTTP_OPEN)
		http_stream_release(up_leave(u));
	else
		up_pump(u);
}

/* --- the beginning --- */

static bool meta_has(const struct up *u, const char *key)
{
	for (size_t i = 0; i < u->n_meta; i++)
		if (str_eq(u->meta[i].key, key))
			return true;
	return false;
}

/* X-Metadata-*. 0, -EINVAL, -ENOMEM. */
static int take_meta(struct up *u)
{
	const struct fields *head = http_stream_head(u->x);
	size_t total = 0;

	for (uint32_t i = 0; i < head->n; i++) {
		const char *key = fields_name(head, i), *value = fields_value(head, i);
		struct fs_meta *m = &u->meta[u->n_meta];

		if (!str_starts(key, META_PREFIX))
			continue;
		key += strlen(META_PREFIX);
		if (meta_has(u, key))
			continue;
		total += META_ENTRY_BYTES + strlen(key) + strlen(value);
		if (u->n_meta == META_MAX || !*key || strlen(key) > META_KEY_MAX ||
		    total > FS_META_MAX_BYTES || !str_is_printable(key, strlen(key)) ||
		    !str_is_printable(value, strlen(value)))
			return -EINVAL;
		m->key = str_dup(key);
		m->value = str_dup(value);
		u->n_meta++;
		if (!m->key || !m->value)
			return -ENOMEM;
	}
	return 0;
}

/* What kind of body it is. False after the answer. */
static bool take_form(struct up *u)
{
	const char *type = reply_request(u->x, "content-type");
	const char *coding = reply_request(u->x, "content-encoding");
	int r = 0;

	if (coding && *coding && strcasecmp(coding, "identity") != 0) {
		if (strcasecmp(coding, "gzip") != 0) {
			reply_envd_error(up_leave(u), 400, "unsupported Content-Encoding: %.40s",
					 coding);
			return false;
		}
		u->gzip = true;
		r = gz_init(&u->gz, true);
	}
	if (!r && type && !strncasecmp(type, "multipart/", 10)) {
		u->is_multipart = true;
		r = multipart_init(&u->parts, type);
	} else if (!r && (!type || strncasecmp(type, "application/octet-stream", 24) != 0)) {
		reply_envd_error(up_leave(u), 400, "unsupported Content-Type: use multipart/form-data "
						   "or application/octet-stream");
		return false;
	}
	if (r < 0) {
		reply_envd_error(up_leave(u), 500, "no valid multipart boundary");
		return false;
	}
	return true;
}

static bool take_target(struct up *u, const struct query *q)
{
	const char *path = query_get(q, "path");

	if (!path || !*path) {
		if (u->is_multipart)
			return true;
		reply_envd_error(up_leave(u), 400, "path query parameter is required for "
						   "application/octet-stream");
		return false;
	}
	u->target = envd_path_of_request(u->s, &u->user, u->x, path);
	if (u->target)
		return true;
	reply_envd_error(up_leave(u), errno == EINVAL ? 400 : 500, "error resolving path '%.300s'",
			 path);
	return false;
}

static void up_start(struct up *u, const struct query *q)
{
	if (!take_form(u) || !take_target(u, q))
		return;
	if (take_meta(u) < 0) {
		reply_envd_error(up_leave(u), 400, "invalid X-Metadata-* header");
		return;
	}
	if (u->is_multipart || u->gzip)
		up_pump(u);
	else
		(void)single_open(u);
}

void files_post(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q)
{
	struct container_user user;
	struct up *u;

	if (!files_authorize(s, x, q, true, &user))
		return;
	u = calloc(1, sizeof(*u));
	if (!u) {
		reply_abort(x);
		return;
	}
	u->magic = UP_MAGIC;
	u->l = l;
	u->s = s;
	u->x = x;
	u->user = user;
	u->fd = -1;
	defer_init(&u->again, l->loop, files_post_on_again, u);
	sandbox_traffic_add(s, &u->traffic, files_post_on_cut);
	http_stream_set_owner(x, files_post_on_ready, u);
	u->done = json_array();
	if (!u->done)
		reply_abort(up_leave(u));
	else
		up_start(u, q);
}
