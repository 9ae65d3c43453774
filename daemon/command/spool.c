/* SPDX-License-Identifier: MIT */
#include "daemon/command/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"

#define RECORD_MERGE_BYTES (256u * 1024) /* neighbours of one stream are one record up to this */
#define PUNCH_BYTES	   (256u * 1024) /* dropped bytes are given back to the disk in such steps */

struct record {
	uint64_t offset;	/* in the stream */
	uint64_t at;		/* in the file; a gap: where its bytes would be */
	uint64_t size;		/* a gap's too, if known */
	const char *reason;	/* gap */
	uint8_t stream;
	bool gap, size_known;
};

struct spool {
	int dir_fd, fd;
	char name[64];
	uint64_t limit;
	struct spool_quota *uid, *total;
	struct record *v;	/* ring of cap slots; record number i sits at i % cap */
	size_t cap;
	uint64_t first, next;	/* record numbers: oldest held, one past the newest */
	uint64_t used;		/* data bytes held */
	uint64_t file_end, punched;
	uint64_t end[SPOOL_STREAMS];
	bool lost;		/* a byte was never stored, or may never have come */
	bool failed;		/* the last append could not store; said once */
};

int spool_new(int dir_fd, const char *name, uint64_t limit, struct spool_quota *uid,
	      struct spool_quota *total, struct spool **ret)
{
	struct spool *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	must(strlen(name) < sizeof(s->name));
	memcpy(s->name, name, strlen(name) + 1);
	s->dir_fd = dir_fd;
	s->fd = -1;
	s->limit = limit;
	s->uid = uid;
	s->total = total;
	*ret = s;
	return 0;
}

struct spool *spool_free(struct spool *s)
{
	if (!s)
		return NULL;
	s->uid->used -= s->used;
	s->total->used -= s->used;
	if (s->fd >= 0) {
		(void)unlinkat(s->dir_fd, s->name, 0);
		fd_close(s->fd);
	}
	free(s->v);
	free(s);
	return NULL;
}

void spool_set_limit(struct spool *s, uint64_t limit)
{
	s->limit = limit;
}

static struct record *record_at(const struct spool *s, uint64_t number)
{
	return &s->v[number % s->cap];
}

static uint64_t quota_left(const struct spool_quota *q)
{
	return q->used >= q->max ? 0 : q->max - q->used;
}

uint64_t spool_room(const struct spool *s)
{
	uint64_t own = s->used >= s->limit ? 0 : s->limit - s->used;

	return MIN(own, MIN(quota_left(s->uid), quota_left(s->total)));
}

uint64_t spool_used(const struct spool *s)
{
	return s->used;
}

uint64_t spool_end(const struct spool *s, enum spool_stream stream)
{
	return s->end[stream];
}

bool spool_has(const struct spool *s, enum spool_stream stream)
{
	if (s->end[stream])
		return true;
	for (uint64_t i = s->first; i < s->next; i++)
		if (record_at(s, i)->stream == stream)
			return true;
	return false;
}

uint64_t spool_first(const struct spool *s, enum spool_stream stream)
{
	for (uint64_t i = s->first; i < s->next; i++) {
		const struct record *r = record_at(s, i);

		if (r->stream == stream && !r->gap)
			return r->offset;
	}
	return s->end[stream];
}

bool spool_is_whole(const struct spool *s)
{
	return !s->lost;
}

static int push(struct spool *s, const struct record *r)
{
	if (s->next - s->first == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 16;
		struct record *v = calloc(cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		for (uint64_t i = s->first; i < s->next; i++)
			v[i % cap] = *record_at(s, i);
		free(s->v);
		s->v = v;
		s->cap = cap;
	}
	*record_at(s, s->next++) = *r;
	return 0;
}

static void drop_oldest(struct spool *s)
{
	struct record *r = record_at(s, s->first++);

	if (r->gap)
		return;
	s->used -= r->size;
	s->uid->used -= r->size;
	s->total->used -= r->size;
	if (r->at + r->size - s->punched < PUNCH_BYTES)
		return;
	/* A file system without holes keeps the bytes until the file goes; the count stays right. */
	(void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->punched,
			(off_t)(r->at + r->size - s->punched));
	s->punched = r->at + r->size;
}

static int store_bytes(struct spool *s, const uint8_t *p, size_t n)
{
	if (s->fd < 0) {
		s->fd = openat(s->dir_fd, s->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (s->fd < 0)
			return -errno;
	}
	for (size_t done = 0; done < n;) {
		ssize_t w = pwrite(s->fd, p + done, n - done, (off_t)(s->file_end + done));

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		done += (size_t)w;
	}
	return 0;
}

/* Bytes that came and are not here: counted, and one gap record that grows. */
static int note_lost(struct spool *s, enum spool_stream stream, uint64_t n, const char *reason)
{
	struct record *last = s->next > s->first ? record_at(s, s->next - 1) : NULL;
	struct record r = { .offset = s->end[stream], .at = s->file_end, .size = n, .reason = reason,
			    .stream = (uint8_t)stream, .gap = true, .size_known = true };

	s->lost = true;
	s->end[stream] += n;
	if (last && last->gap && last->size_known && last->stream == stream) {
		last->size += n;
		return 0;
	}
	return push(s, &r);
}

int spool_append(struct spool *s, enum spool_stream stream, const void *p, size_t n)
{
	struct record *last;
	struct record r = { .offset = s->end[stream], .at = s->file_end, .size = n,
			    .stream = (uint8_t)stream };
	int e;

	if (!n)
		return 0;
	while (spool_room(s) < n && s->first < s->next)
		drop_oldest(s);
	e = spool_room(s) < n ? -ENOSPC : store_bytes(s, p, n);
	if (e < 0) {
		int push_error = note_lost(s, stream, n, "no_space");
		bool said = s->failed;

		s->failed = true;
		return push_error < 0 ? push_error : said ? 0 : e;
	}
	s->failed = false;
	last = s->next > s->first ? record_at(s, s->next - 1) : NULL;
	if (last && !last->gap && last->stream == stream && last->size + n <= RECORD_MERGE_BYTES) {
		last->size += n;
	} else {
		e = push(s, &r);
		if (e < 0)
			return e;
	}
	s->file_end += n;
	s->end[stream] += n;
	s->used += n;
	s->uid->used += n;
	s->total->used += n;
	return 0;
}

int spool_gap(struct spool *s, enum spool_stream stream, const char *reason)
{
	struct record r = { .offset = s->end[stream], .at = s->file_end, .reason = reason,
			    .stream = (uint8_t)stream, .gap = true };

	s->lost = true;
	return push(s, &r);
}

void spool_seek(const struct spool *s, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret)
{
	*ret = (struct spool_pos){ .record = s->first };
	memcpy(ret->seen, from, sizeof(ret->seen));
}

void spool_seek_end(const struct spool *s, struct spool_pos *ret)
{
	*ret = (struct spool_pos){ .record = s->next };
	memcpy(ret->seen, s->end, sizeof(ret->seen));
	/* The newest record may still grow. */
	if (s->next > s->first && !record_at(s, s->next - 1)->gap) {
		ret->record = s->next - 1;
		ret->within = record_at(s, s->next - 1)->size;
	}
}

uint64_t spool_ahead(const struct spool *s, const struct spool_pos *pos)
{
	uint64_t number = MAX(pos->record, s->first);

	if (number >= s->next)
		return 0;
	return s->file_end - record_at(s, number)->at - (number == pos->record ? pos->within : 0);
}

static int read_bytes(struct spool *s, uint64_t at, void *buf, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = pread(s->fd, (char *)buf + done, n - done, (off_t)(at + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r < 0 ? -errno : -EIO;
		done += (size_t)r;
	}
	return 0;
}

static void next_record(struct spool_pos *pos)
{
	pos->record++;
	pos->within = 0;
}

int spool_read(struct spool *s, struct spool_pos *pos, void *buf, size_t max, struct spool_piece *ret)
{
	if (pos->record < s->first) {
		pos->record = s->first;
		pos->within = 0;
	}
	while (pos->record < s->next) {
		const struct record *r = record_at(s, pos->record);
		uint64_t *seen = &pos->seen[r->stream], offset = r->offset + pos->within, n;
		int e;

		if (r->gap) {
			uint64_t end = r->offset + r->size;
			bool news = !r->size_known ? *seen <= r->offset : end > *seen;

			*ret = (struct spool_piece){ .stream = r->stream, .gap = true,
						     .size_known = r->size_known, .offset = *seen,
						     .size = news ? end - *seen : 0, .reason = r->reason };
			if (r->size_known && pos->record + 1 == s->next && !news)
				return 0; /* it may still grow */
			if (pos->record + 1 < s->next || !r->size_known)
				next_record(pos);
			if (!news)
				continue;
			*seen = MAX(*seen, end);
			return 1;
		}
		if (pos->within == r->size) {
			if (pos->record + 1 == s->next)
				return 0; /* it may still grow */
			next_record(pos);
			continue;
		}
		if (offset > *seen) { /* dropped since */
			*ret = (struct spool_piece){ .stream = r->stream, .gap = true, .size_known = true,
						     .offset = *seen, .size = offset - *seen,
						     .reason = "overflow" };
			*seen = offset;
			return 1;
		}
		if (offset < *seen) { /* below what this reader wants */
			pos->within += MIN(*seen - offset, r->size - pos->within);
			continue;
		}
		n = MIN((uint64_t)max, r->size - pos->within);
		e = read_bytes(s, r->at + pos->within, buf, (size_t)n);
		if (e < 0)
			return e;
		*ret = (struct spool_piece){ .stream = r->stream, .offset = offset, .size = n };
		pos->within += n;
		*seen += n;
		return 1;
	}
	return 0;
}
