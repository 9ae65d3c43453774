/* SPDX-License-Identifier: MIT */
#include "daemon/command/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "daemon/command/spool_file.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"

#define MERGE_BYTES (256u * 1024)	/* neighbours of one stream are one record up to this … */
#define MERGE_MS    1000		/* … and for so long, so that its time stays true */
#define HELD_BYTES  (128u * 1024)	/* kept in memory while the disk takes nothing */
#define PUNCH_BYTES (256u * 1024)	/* dropped bytes are given back to the disk in such steps */

struct record {
	struct spool_record r;
	uint64_t at;		/* of its bytes in the file; 0: they are in mem, or a gap could not be written */
	uint8_t *mem;
	uint64_t before;	/* bytes of all records before it, in all streams */
};

struct spool {
	int dir_fd, fd;
	char name[SPOOL_NAME_MAX + 1];
	uint64_t limit;
	struct spool_quota *uid, *total;
	struct record *v;	/* ring of cap slots; record number i sits at i % cap */
	size_t cap;
	uint64_t first, next;	/* record numbers: oldest held, one past the newest */
	uint64_t used;		/* bytes held, and what their records cost */
	uint64_t bytes;		/* that were ever put into records */
	uint64_t file_end;	/* one past the last byte of the last record */
	struct spool_head head;
	struct spool_input input;
	uint64_t dropped_at;	/* like head.first_at and .start, but true now */
	uint64_t dropped[SPOOL_STREAMS];
	uint64_t end[SPOOL_STREAMS];
	int64_t last_ms;
	uint64_t held;		/* bytes in memory */
	bool failed;		/* the last append could not store on the disk */
	bool said;		/* and could not hold it either; said once */
};

const char *spool_reason_name(enum spool_reason r)
{
	static const char *const names[] = { "", "overflow", "no_space", "reattached", "unreadable",
					     "power_loss" };

	must((unsigned)r < ARRAY_SIZE(names));
	return names[r];
}

int spool_new(int dir_fd, const char *name, uint64_t limit, struct spool_quota *uid,
	      struct spool_quota *total, struct spool **ret)
{
	struct spool *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	must(strlen(name) <= SPOOL_NAME_MAX);
	memcpy(s->name, name, strlen(name) + 1);
	s->dir_fd = dir_fd;
	s->fd = -1;
	s->limit = limit;
	s->uid = uid;
	s->total = total;
	s->head.first_at = s->dropped_at = s->file_end = SPOOL_FIRST_AT;
	*ret = s;
	return 0;
}

static void charge(struct spool *s, uint64_t n)
{
	s->used += n;
	s->uid->used += n;
	s->total->used += n;
}

static void discharge(struct spool *s, uint64_t n)
{
	s->used -= n;
	s->uid->used -= n;
	s->total->used -= n;
}

struct spool *spool_close(struct spool *s)
{
	if (!s)
		return NULL;
	discharge(s, s->used);
	for (uint64_t i = s->first; i < s->next; i++)
		free(s->v[i % s->cap].mem);
	fd_close(s->fd);
	free(s->v);
	free(s);
	return NULL;
}

struct spool *spool_free(struct spool *s)
{
	if (s && s->fd >= 0)
		(void)unlinkat(s->dir_fd, s->name, 0);
	return spool_close(s);
}

void spool_set_limit(struct spool *s, uint64_t limit)
{
	s->limit = limit;
}

static struct record *record_at(const struct spool *s, uint64_t number)
{
	return &s->v[number % s->cap];
}

static struct record *last_record(const struct spool *s)
{
	return s->next > s->first ? record_at(s, s->next - 1) : NULL;
}

static uint64_t quota_left(const struct spool_quota *q)
{
	return q->used >= q->max ? 0 : q->max - q->used;
}

static uint64_t left(const struct spool *s)
{
	uint64_t own = s->used >= s->limit ? 0 : s->limit - s->used;

	return MIN(own, MIN(quota_left(s->uid), quota_left(s->total)));
}

uint64_t spool_room(const struct spool *s)
{
	uint64_t n = left(s);

	n = n > SPOOL_RECORD_COST ? n - SPOOL_RECORD_COST : 0;
	return s->failed ? MIN(n, HELD_BYTES - s->held) : n;
}

uint64_t spool_used(const struct spool *s)
{
	return s->used;
}

uint64_t spool_end(const struct spool *s, enum spool_stream stream)
{
	return s->end[stream];
}

int64_t spool_last_ms(const struct spool *s)
{
	return s->last_ms;
}

bool spool_has(const struct spool *s, enum spool_stream stream)
{
	if (s->end[stream])
		return true;
	for (uint64_t i = s->first; i < s->next; i++)
		if (record_at(s, i)->r.stream == stream)
			return true;
	return false;
}

uint64_t spool_first(const struct spool *s, enum spool_stream stream)
{
	for (uint64_t i = s->first; i < s->next; i++) {
		const struct record *r = record_at(s, i);

		if (r->r.stream == stream && !r->r.reason)
			return r->r.offset;
	}
	return s->end[stream];
}

bool spool_is_held(const struct spool *s)
{
	return s->failed;
}

bool spool_is_whole(const struct spool *s)
{
	return !s->head.lost;
}

/* --- the file --- */

static int write_at(struct spool *s, struct iovec *v, int n, uint64_t at)
{
	while (n) {
		ssize_t w = pwritev(s->fd, v, n, (off_t)at);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		at += (uint64_t)w;
		for (; n && (size_t)w >= v->iov_len; v++, n--)
			w -= (ssize_t)v->iov_len;
		if (n) {
			v->iov_base = (char *)v->iov_base + w;
			v->iov_len -= (size_t)w;
		}
	}
	return 0;
}

static int write_head(struct spool *s)
{
	uint8_t head[SPOOL_HEAD_BYTES];
	struct iovec v = { head, sizeof(head) };

	spool_head_put(&s->head, head);
	return write_at(s, &v, 1, 0);
}

static int want_file(struct spool *s)
{
	int r;

	if (s->fd >= 0)
		return 0;
	s->fd = openat(s->dir_fd, s->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->fd < 0)
		return -errno;
	rng_system(&s->head.nonce, sizeof(s->head.nonce));
	r = write_head(s);
	if (r < 0) {
		(void)unlinkat(s->dir_fd, s->name, 0);
		s->fd = fd_close(s->fd);
	}
	return r;
}

int spool_set_input(struct spool *s, const struct spool_input *i)
{
	uint8_t block[SPOOL_HEAD_BYTES];
	struct iovec v = { block, sizeof(block) };
	int r = want_file(s);

	s->input = *i;
	if (r < 0)
		return r;
	spool_input_put(i, s->head.nonce, block);
	return write_at(s, &v, 1, SPOOL_INPUT_AT);
}

void spool_get_input(const struct spool *s, struct spool_input *ret)
{
	*ret = s->input;
}

/* The record's head in its place, then `n` bytes behind `skip` that are there already. */
static int write_record(struct spool *s, const struct spool_record *r, uint64_t at, const void *p, size_t n)
{
	uint8_t head[SPOOL_HEAD_BYTES];
	struct iovec v[] = { { head, sizeof(head) }, { (void *)p, n } };
	int e = want_file(s);

	if (e < 0)
		return e;
	spool_record_put(r, s->head.nonce, head);
	return write_at(s, v, n ? 2 : 1, at - SPOOL_HEAD_BYTES);
}

/* What a write that failed left behind the end must not be taken for something later. */
static int undo(struct spool *s, int why)
{
	if (s->fd >= 0)
		(void)!ftruncate(s->fd, (off_t)s->file_end);
	return why;
}

static void note_lost_byte(struct spool *s)
{
	if (s->head.lost)
		return;
	s->head.lost = true;
	if (s->fd >= 0)
		(void)write_head(s); /* in place; if even that fails, the row of the command says it */
}

/* --- the index --- */

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
	charge(s, SPOOL_RECORD_COST);
	return 0;
}

static uint64_t data_size(const struct record *r)
{
	return r->r.reason ? 0 : r->r.size;
}

/* Gives what was dropped back to the disk. Where the file system has no holes, it keeps the bytes
 * until the file goes; the counts stay right. The head moves first: what it points to is there. */
static void punch(struct spool *s)
{
	uint64_t from = s->head.first_at;

	s->head.first_at = s->dropped_at;
	memcpy(s->head.start, s->dropped, sizeof(s->head.start));
	if (s->fd < 0 || write_head(s) < 0)
		return;
	(void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			(off_t)(s->dropped_at - from));
}

static void drop_oldest(struct spool *s)
{
	struct record *r = record_at(s, s->first++);

	if (r->mem) {
		s->held -= r->r.size;
		free(r->mem);
		r->mem = NULL;
	}
	discharge(s, data_size(r) + SPOOL_RECORD_COST);
	s->dropped[r->r.stream] = MAX(s->dropped[r->r.stream], r->r.offset + r->r.size);
	if (r->at)
		s->dropped_at = spool_align(r->at + data_size(r));
	if (s->dropped_at - s->head.first_at >= PUNCH_BYTES)
		punch(s);
}

void spool_clear(struct spool *s)
{
	while (s->first < s->next)
		drop_oldest(s);
	if (s->dropped_at > s->head.first_at)
		punch(s);
}

/* Bytes that came and are not here: counted, and one gap record that grows. */
static int note_lost(struct spool *s, enum spool_stream stream, uint64_t n, int64_t now_ms)
{
	struct record *last = last_record(s);
	struct record r = { .r = { .offset = s->end[stream], .size = n, .time_ms = now_ms,
				   .stream = (uint8_t)stream, .reason = SPOOL_NO_SPACE, .size_known = true },
			    .before = s->bytes };
	uint64_t at = spool_align(s->file_end) + SPOOL_HEAD_BYTES;

	note_lost_byte(s);
	s->end[stream] += n;
	if (last && last->r.reason == SPOOL_NO_SPACE && last->r.stream == stream) {
		last->r.size += n;
		if (last->at)
			(void)!write_record(s, &last->r, last->at, NULL, 0);
		return 0;
	}
	/* Without a place on the disk the next record's offset will tell of the hole. */
	if (write_record(s, &r.r, at, NULL, 0) == 0)
		r.at = s->file_end = at;
	else
		(void)undo(s, 0);
	return push(s, &r);
}

/* The last record, if these bytes can be part of it. */
static struct record *growing(const struct spool *s, enum spool_stream stream, size_t n, int64_t now_ms)
{
	struct record *last = last_record(s);

	if (!last || last->mem || last->r.reason || last->r.stream != stream || last->r.size + n > MERGE_BYTES ||
	    now_ms < last->r.time_ms || now_ms - last->r.time_ms > MERGE_MS)
		return NULL;
	return last;
}

static int spool_grow(struct spool *s, struct record *last, const void *p, size_t n)
{
	struct iovec v = { (void *)p, n };
	struct spool_record r = last->r;
	int e = write_at(s, &v, 1, s->file_end);

	r.size += n;
	if (!e)
		e = write_record(s, &r, last->at, NULL, 0);
	if (e < 0)
		return undo(s, e);
	last->r.size = r.size;
	s->file_end += n;
	return 0;
}

static int spool_add(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	struct record r = { .r = { .offset = s->end[stream], .size = n, .time_ms = now_ms,
				   .stream = (uint8_t)stream },
			    .at = spool_align(s->file_end) + SPOOL_HEAD_BYTES, .before = s->bytes };
	int e = push(s, &r);

	if (e < 0)
		return e;
	e = write_record(s, &r.r, r.at, p, n);
	if (e < 0) {
		s->next--;
		discharge(s, SPOOL_RECORD_COST);
		return undo(s, e);
	}
	s->file_end = r.at + n;
	return 0;
}

/* The disk took nothing: a reader that keeps up shall not lose bytes for that. */
static int hold(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	struct record r = { .r = { .offset = s->end[stream], .size = n, .time_ms = now_ms,
				   .stream = (uint8_t)stream }, .before = s->bytes };
	int e;

	s->failed = true;
	while (spool_room(s) < n && s->first < s->next)
		drop_oldest(s);
	if (spool_room(s) < n)
		return -ENOSPC;
	r.mem = malloc(n);
	if (!r.mem)
		return -ENOMEM;
	memcpy(r.mem, p, n);
	e = push(s, &r);
	if (e < 0)
		free(r.mem);
	else
		s->held += n;
	return e;
}

int spool_append(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	struct record *last;
	int e;

	if (!n)
		return 0;
	while (spool_room(s) < n && s->first < s->next)
		drop_oldest(s);
	last = growing(s, stream, n, now_ms);
	e = left(s) < n + SPOOL_RECORD_COST ? -ENOSPC
	    : last			    ? spool_grow(s, last, p, n)
					    : spool_add(s, stream, p, n, now_ms);
	if (!e)
		s->failed = false;
	else if (left(s) >= n + SPOOL_RECORD_COST)
		e = hold(s, stream, p, n, now_ms);
	if (e < 0) {
		int push_error = note_lost(s, stream, n, now_ms);
		bool said = s->said;

		s->said = true;
		return push_error < 0 ? push_error : said ? 0 : e;
	}
	s->said = false;
	s->last_ms = now_ms;
	s->end[stream] += n;
	s->bytes += n;
	charge(s, n);
	return 0;
}

int spool_gap(struct spool *s, enum spool_stream stream, enum spool_reason reason, int64_t now_ms)
{
	struct record r = { .r = { .offset = s->end[stream], .time_ms = now_ms, .stream = (uint8_t)stream,
				   .reason = (uint8_t)reason },
			    .at = spool_align(s->file_end) + SPOOL_HEAD_BYTES, .before = s->bytes };

	note_lost_byte(s);
	if (write_record(s, &r.r, r.at, NULL, 0) == 0) {
		s->file_end = r.at;
	} else {
		(void)undo(s, 0);
		r.at = 0;
	}
	return push(s, &r);
}

/* --- reading what is there --- */

static int read_bytes(const struct spool *s, uint64_t at, void *buf, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = pread(s->fd, (char *)buf + done, n - done, (off_t)(at + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r < 0 ? -errno : -ENODATA;
		done += (size_t)r;
	}
	return 0;
}

/* A jump of the count is a hole that could not be written down when it came. */
static int load_hole(struct spool *s, const struct spool_record *next)
{
	struct record r = { .r = { .offset = s->end[next->stream], .time_ms = next->time_ms,
				   .size = next->offset - s->end[next->stream], .stream = next->stream,
				   .reason = SPOOL_NO_SPACE, .size_known = true },
			    .before = s->bytes };

	if (!r.r.size)
		return 0;
	s->head.lost = true;
	return push(s, &r);
}

/* One record at `at`: 1, or 0 at the end of what is whole. `size` is the file's. */
static int load_record(struct spool *s, uint64_t at, uint64_t size)
{
	struct record r = { .at = at + SPOOL_HEAD_BYTES, .before = s->bytes };
	uint8_t head[SPOOL_HEAD_BYTES];
	uint64_t there;
	int e;

	if (at + SPOOL_HEAD_BYTES > size || read_bytes(s, at, head, sizeof(head)) < 0 ||
	    !spool_record_get(head, s->head.nonce, &r.r) || r.r.offset < s->end[r.r.stream])
		return 0;
	there = MIN(r.r.size, size - r.at);
	if (!r.r.reason && !there)
		return 0;
	e = load_hole(s, &r.r);
	if (e < 0)
		return e;
	if (!r.r.reason) {
		if (there < r.r.size) { /* torn: what is there is true */
			r.r.size = there;
			(void)!write_record(s, &r.r, r.at, NULL, 0);
		}
		charge(s, r.r.size);
		s->bytes += r.r.size;
	} else {
		s->head.lost = true;
	}
	s->last_ms = MAX(s->last_ms, r.r.time_ms);
	s->end[r.r.stream] = r.r.offset + r.r.size;
	s->file_end = r.at + data_size(&r);
	e = push(s, &r);
	return e < 0 ? e : 1;
}

static int load(struct spool *s)
{
	uint8_t head[SPOOL_HEAD_BYTES];
	struct stat st;
	int r;

	if (fstat(s->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	r = read_bytes(s, 0, head, sizeof(head));
	if (r == -ENODATA || (!r && !spool_head_get(head, &s->head)))
		return -EBADMSG;
	if (r < 0)
		return r;
	if (read_bytes(s, SPOOL_INPUT_AT, head, sizeof(head)) < 0 ||
	    !spool_input_get(head, s->head.nonce, &s->input))
		s->input = (struct spool_input){ 0 };
	s->dropped_at = s->file_end = s->head.first_at;
	memcpy(s->dropped, s->head.start, sizeof(s->dropped));
	memcpy(s->end, s->head.start, sizeof(s->end));
	do
		r = load_record(s, spool_align(s->file_end), (uint64_t)st.st_size);
	while (r > 0);
	if (r < 0)
		return r;
	if (ftruncate(s->fd, (off_t)s->file_end) < 0)
		return -errno;
	while (s->used > s->limit)
		drop_oldest(s);
	return 0;
}

int spool_open(int dir_fd, const char *name, uint64_t limit, struct spool_quota *uid,
	       struct spool_quota *total, struct spool **ret)
{
	struct spool *s;
	int r = spool_new(dir_fd, name, limit, uid, total, &s);

	if (r < 0)
		return r;
	s->fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	r = s->fd >= 0 ? load(s) : errno == ENOENT ? 0 : errno == ELOOP ? -EBADMSG : -errno;
	if (r < 0) {
		spool_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* --- readers --- */

void spool_seek(const struct spool *s, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret)
{
	*ret = (struct spool_pos){ .record = s->first };
	memcpy(ret->seen, from, sizeof(ret->seen));
}

void spool_seek_end(const struct spool *s, struct spool_pos *ret)
{
	const struct record *last = last_record(s);

	*ret = (struct spool_pos){ .record = s->next };
	memcpy(ret->seen, s->end, sizeof(ret->seen));
	if (last && !last->r.reason) { /* it may still grow */
		ret->record = s->next - 1;
		ret->within = last->r.size;
	}
}

uint64_t spool_ahead(const struct spool *s, const struct spool_pos *pos)
{
	uint64_t number = MAX(pos->record, s->first);

	if (number >= s->next)
		return 0;
	return s->bytes - record_at(s, number)->before - (number == pos->record ? pos->within : 0);
}

uint64_t spool_room_behind(const struct spool *s, const struct spool_pos *pos)
{
	uint64_t number = MAX(pos->record, s->first), kept;

	if (s->failed) { /* only memory counts, and only what nobody needs any more can go */
		uint64_t held = 0;

		for (uint64_t i = number; i < s->next; i++)
			held += record_at(s, i)->mem ? record_at(s, i)->r.size : 0;
		return HELD_BYTES - held;
	}
	if (number >= s->next)
		return spool_room(s) + s->used;
	kept = s->bytes - record_at(s, number)->before + (s->next - number) * SPOOL_RECORD_COST;
	return spool_room(s) + s->used - kept;
}

static void next_record(struct spool_pos *pos)
{
	pos->record++;
	pos->within = 0;
}

/* 1: *ret is a gap this reader has not seen. *ret_wait: it may still grow, there is nothing behind it. */
static int read_gap(const struct spool *s, const struct spool_record *r, struct spool_pos *pos,
		    struct spool_piece *ret, bool *ret_wait)
{
	uint64_t *seen = &pos->seen[r->stream], end = r->offset + r->size;
	bool newest = pos->record + 1 == s->next;
	bool on_ready = !r->size_known ? *seen <= r->offset : end > *seen;

	*ret = (struct spool_piece){ .stream = r->stream, .gap = true, .size_known = r->size_known,
				     .offset = *seen, .size = on_ready ? end - *seen : 0,
				     .reason = spool_reason_name(r->reason) };
	*ret_wait = r->size_known && newest && !on_ready;
	if (!newest || !r->size_known)
		next_record(pos);
	if (on_ready)
		*seen = MAX(*seen, end);
	return on_ready;
}

static int read_data(struct spool *s, const struct record *r, struct spool_pos *pos, void *buf, size_t max,
		     struct spool_piece *ret)
{
	size_t n = (size_t)MIN((uint64_t)max, r->r.size - pos->within);
	int e = 0;

	if (r->mem)
		memcpy(buf, r->mem + pos->within, n);
	else
		e = read_bytes(s, r->at + pos->within, buf, n);
	if (e < 0)
		return e == -ENODATA ? -EIO : e;
	*ret = (struct spool_piece){ .stream = r->r.stream, .offset = r->r.offset + pos->within, .size = n };
	pos->within += n;
	pos->seen[r->r.stream] += n;
	return 1;
}

/* Bytes that were dropped with nothing of their stream behind them. */
static int read_dropped(const struct spool *s, struct spool_pos *pos, struct spool_piece *ret)
{
	for (unsigned i = SPOOL_STDOUT; i < SPOOL_STREAMS; i++) {
		if (pos->seen[i] >= s->end[i])
			continue;
		*ret = (struct spool_piece){ .stream = (enum spool_stream)i, .gap = true, .size_known = true,
					     .offset = pos->seen[i], .size = s->end[i] - pos->seen[i],
					     .reason = spool_reason_name(SPOOL_OVERFLOW) };
		pos->seen[i] = s->end[i];
		return 1;
	}
	return 0;
}

int spool_read(struct spool *s, struct spool_pos *pos, void *buf, size_t max, struct spool_piece *ret)
{
	if (pos->record < s->first) {
		pos->record = s->first;
		pos->within = 0;
	}
	while (pos->record < s->next) {
		const struct record *r = record_at(s, pos->record);
		uint64_t *seen = &pos->seen[r->r.stream], offset = r->r.offset + pos->within;
		bool wait;

		if (r->r.reason) {
			if (read_gap(s, &r->r, pos, ret, &wait))
				return 1;
			if (wait)
				break;
		} else if (pos->within == r->r.size) {
			if (pos->record + 1 == s->next)
				break; /* it may still grow */
			next_record(pos);
		} else if (offset > *seen) { /* dropped since */
			*ret = (struct spool_piece){ .stream = r->r.stream, .gap = true,
						     .size_known = true, .offset = *seen,
						     .size = offset - *seen,
						     .reason = spool_reason_name(SPOOL_OVERFLOW) };
			*seen = offset;
			return 1;
		} else if (offset < *seen) { /* below what this reader wants */
			pos->within += MIN(*seen - offset, r->r.size - pos->within);
		} else {
			return read_data(s, r, pos, buf, max, ret);
		}
	}
	return read_dropped(s, pos, ret);
}
