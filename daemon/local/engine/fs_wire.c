/* SPDX-License-Identifier: MIT */
/* Coding between engine and file workers. A fixed head, then NUL-terminated strings. Pure. */
#include "daemon/local/engine/fs_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct request_head {
	uint32_t op, depth, uid, gid, n_meta;
};

struct entry_head {
	int64_t size, mtime_s;
	int32_t mtime_ns;
	uint32_t type, mode, uid, gid, n_meta;
	uint32_t has_target;
	char permissions[16];
};

struct reader {
	const char *p, *end;
};

/* The next string, NULL at a missing NUL. */
static const char *take_str(struct reader *r)
{
	const char *s = r->p;
	const char *nul = s < r->end ? memchr(s, 0, (size_t)(r->end - s)) : NULL;

	if (!nul)
		return NULL;
	r->p = nul + 1;
	return s;
}

static bool take_head(struct reader *r, void *ret, size_t n)
{
	if ((size_t)(r->end - r->p) < n)
		return false;
	memcpy(ret, r->p, n);
	r->p += n;
	return true;
}

static int put_str(struct buf *b, const char *s)
{
	return buf_put(b, s, strlen(s) + 1);
}

/* The end of the path without the slashes behind it; "/" is its own name. */
static int put_name(struct buf *b, const char *path)
{
	size_t end = strlen(path), begin;
	int r;

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
		;
	if (begin == end)
		begin = 0;
	r = buf_put(b, path + begin, end - begin);
	return r < 0 ? r : buf_put(b, "", 1);
}

static int put_meta(struct buf *b, const struct fs_meta *m, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		r = put_str(b, m[i].key);
		if (r == 0)
			r = put_str(b, m[i].value);
	}
	return r;
}

static bool take_meta(struct reader *r, struct fs_meta *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		m[i].key = take_str(r);
		m[i].value = m[i].key ? take_str(r) : NULL;
		if (!m[i].value)
			return false;
	}
	return true;
}

int fsw_request_encode(const struct fsw_request *q, struct buf *out)
{
	struct request_head h = { .op = q->op, .depth = q->depth, .uid = q->uid, .gid = q->gid,
				  .n_meta = (uint32_t)q->n_meta };
	int r = buf_put(out, &h, sizeof(h));

	if (r == 0)
		r = put_str(out, q->path);
	if (r == 0)
		r = put_str(out, q->to ? q->to : "");
	if (r == 0)
		r = put_meta(out, q->meta, q->n_meta);
	return r;
}

int fsw_request_decode(const void *p, size_t n, struct fsw_request *ret, struct fs_meta **ret_meta)
{
	struct reader r = { p, (const char *)p + n };
	struct fs_meta *meta = NULL;
	struct request_head h;
	struct fsw_request q;

	if (!take_head(&r, &h, sizeof(h)) || h.op > FSW_COMPOSE || h.n_meta > FS_META_MAX_BYTES)
		return -EBADMSG;
	q = (struct fsw_request){ .op = h.op, .depth = h.depth, .uid = h.uid, .gid = h.gid,
				  .n_meta = h.n_meta };
	q.path = take_str(&r);
	q.to = q.path ? take_str(&r) : NULL;
	if (!q.to)
		return -EBADMSG;
	if (h.n_meta) {
		meta = calloc(h.n_meta, sizeof(*meta));
		if (!meta)
			return -ENOMEM;
		if (!take_meta(&r, meta, h.n_meta)) {
			free(meta);
			return -EBADMSG;
		}
	}
	q.meta = meta;
	*ret = q;
	*ret_meta = meta;
	return 0;
}

int fsw_entry_encode(const struct fs_entry *e, struct buf *out)
{
	struct entry_head h = { .size = e->size, .mtime_s = e->mtime_s, .mtime_ns = e->mtime_ns,
				.type = e->type, .mode = e->mode, .uid = e->uid, .gid = e->gid,
				.n_meta = (uint32_t)e->n_meta, .has_target = e->symlink_target != NULL };
	int r;

	memcpy(h.permissions, e->permissions, sizeof(h.permissions));
	r = buf_put(out, &h, sizeof(h));
	if (r == 0)
		r = put_str(out, e->path);
	if (r == 0)
		r = put_name(out, e->path);
	if (r == 0)
		r = put_str(out, e->owner);
	if (r == 0)
		r = put_str(out, e->group);
	if (r == 0)
		r = put_str(out, e->symlink_target ? e->symlink_target : "");
	return r < 0 ? r : put_meta(out, e->meta, e->n_meta);
}

static bool take_entry(struct reader *r, struct fs_entry *e, struct fsw_entries *all, size_t *n_meta)
{
	struct entry_head h;

	if (!take_head(r, &h, sizeof(h)) || h.type > FS_SYMLINK || h.n_meta > FS_META_MAX_BYTES)
		return false;
	*e = (struct fs_entry){ .size = h.size, .mtime_s = h.mtime_s, .mtime_ns = h.mtime_ns,
				   .type = h.type, .mode = h.mode, .uid = h.uid, .gid = h.gid,
				   .n_meta = h.n_meta };
	memcpy(e->permissions, h.permissions, sizeof(e->permissions));
	e->permissions[sizeof(e->permissions) - 1] = '\0';
	e->path = take_str(r);
	e->name = e->path ? take_str(r) : NULL;
	e->owner = e->name ? take_str(r) : NULL;
	e->group = e->owner ? take_str(r) : NULL;
	e->symlink_target = e->group ? take_str(r) : NULL;
	if (!e->symlink_target)
		return false;
	if (!h.has_target)
		e->symlink_target = NULL;
	if (h.n_meta) {
		struct fs_meta *more = reallocarray(all->meta, *n_meta + h.n_meta, sizeof(*more));

		if (!more)
			return false;
		all->meta = more;
		if (!take_meta(r, more + *n_meta, h.n_meta))
			return false;
		*n_meta += h.n_meta;
	}
	return true;
}

int fsw_entries_decode(const void *p, size_t n, uint32_t n_entries, struct fsw_entries *ret)
{
	struct reader r = { p, (const char *)p + n };
	struct fsw_entries all = { 0 };
	size_t n_meta = 0;

	if (n_entries > FS_LIST_MAX || n_entries > n / sizeof(struct entry_head))
		return -EBADMSG;
	if (n_entries) {
		all.e = calloc(n_entries, sizeof(*all.e));
		if (!all.e)
			return -ENOMEM;
	}
	for (; all.n < n_entries; all.n++)
		if (!take_entry(&r, &all.e[all.n], &all, &n_meta)) {
			fsw_entries_fini(&all);
			return -EBADMSG;
		}
	n_meta = 0;	/* the array has its final place now */
	for (size_t i = 0; i < all.n; i++) {
		all.e[i].meta = all.e[i].n_meta ? all.meta + n_meta : NULL;
		n_meta += all.e[i].n_meta;
	}
	*ret = all;
	return 0;
}

void fsw_entries_fini(struct fsw_entries *e)
{
	free(e->e);
	free(e->meta);
	*e = (struct fsw_entries){ 0 };
}
