/* SPDX-License-Identifier: MIT */
/* Appending to a spool: the index of records, the batch that is written at once, full disks. */
#include "daemon/command/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/command/spool_impl.h"
#include "proto/base/must.h"

#define MERGE_BYTES (256u * 1024)	/* a record grows up to this size */
#define PUNCH_BYTES (256u * 1024)	/* space of dropped records is given back to the disk in such steps */
#define IMAGE_BYTES 4096u		/* the first size of a batch's memory */
#define INDEX_FIRST 16u			/* the first size of the index, in records */
#define INDEX_DOUBLES 4096u		/* the index doubles up to this size, then grows by a quarter */

const char *spool_reason_name(enum spool_reason r)
{
	static const char *const names[] = { "", "overflow", "no_space", "reattached", "unreadable",
					     "power_loss" };

	must((unsigned)r < ARRAY_SIZE(names));
	return names[r];
}

int spool_new(struct spool_dir *dir, const char *name, uint64_t limit, struct spool_quota *uid,
	      struct spool_quota *total, struct spool **ret)
{
	struct spool *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	must(strlen(name) <= SPOOL_NAME_MAX);
	memcpy(s->name, name, strlen(name) + 1);
	s->dir = dir;
	list_init(&s->node);
	s->fd = -1;
	s->limit = limit;
	s->uid = uid;
	s->memory.quota = uid->memory;
	s->total = total;
	s->head.first_at = s->dropped_at = s->file_end = SPOOL_FIRST_AT;
	*ret = s;
	return 0;
}

void spool_charge(struct spool *s, uint64_t n)
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

static struct record *newest(const struct spool *s)
{
	return s->came.next > s->first ? spool_record_at(s, s->came.next - 1) : NULL;
}

/* The last record before `shown`, if the batch has more bytes of it. */
static struct record *grown(const struct spool *s)
{
	struct record *r;

	if (!spool_is_staged(s) || s->shown.next == s->first)
		return NULL;
	r = spool_record_at(s, s->shown.next - 1);
	return r->r.size > s->shown.last_size ? r : NULL;
}

/* Takes the batch out of the index again. */
static void unstage(struct spool *s)
{
	struct record *last = grown(s);

	for (uint64_t i = s->shown.next; i < s->came.next; i++)
		discharge(s, spool_record_at(s, i)->r.size + SPOOL_RECORD_COST);
	if (last) {
		discharge(s, last->r.size - s->shown.last_size);
		last->r.size = s->shown.last_size;
	}
	s->came = s->shown;
}

static void drop_batch(struct spool *s)
{
	free(s->batch.image);
	s->batch = (struct spool_batch){ 0 };
}

static void destroy(struct spool *s)
{
	discharge(s, s->used);
	for (uint64_t i = s->first; i < s->came.next; i++)
		free(spool_record_at(s, i)->mem);
	spool_rest(s);
	drop_batch(s);
	free(s->v);
	charge_fini(&s->memory);
	free(s);
}

struct spool *spool_close(struct spool *s)
{
	if (!s)
		return NULL;
	(void)!spool_flush(s); /* if it fails, no reader has got these bytes */
	destroy(s);
	return NULL;
}

struct spool *spool_free(struct spool *s)
{
	if (!s)
		return NULL;
	if (s->made)
		(void)unlinkat(s->dir->fd, s->name, 0);
	destroy(s);
	return NULL;
}

void spool_set_limit(struct spool *s, uint64_t limit)
{
	s->limit = limit;
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

static size_t wider(size_t cap)
{
	return cap < INDEX_DOUBLES ? MAX(2 * cap, (size_t)INDEX_FIRST) : cap + cap / 4;
}

/* Is there, or could there be, a slot in the index for one more record? */
static bool has_slot(const struct spool *s)
{
	return !s->cap || s->came.next - s->first < s->cap ||
	       quota_fits(s->memory.quota, (wider(s->cap) - s->cap) * sizeof(*s->v));
}

uint64_t spool_room(const struct spool *s)
{
	uint64_t n = has_slot(s) ? left(s) : 0;

	n = n > SPOOL_RECORD_COST ? n - SPOOL_RECORD_COST : 0;
	return s->failed ? MIN(n, SPOOL_MEMORY_BYTES - s->held) : n;
}

uint64_t spool_used(const struct spool *s)
{
	return s->used;
}

uint64_t spool_end(const struct spool *s, enum spool_stream stream)
{
	return s->shown.end[stream];
}

int64_t spool_last_ms(const struct spool *s)
{
	return s->shown.last_ms;
}

bool spool_has(const struct spool *s, enum spool_stream stream)
{
	if (s->shown.end[stream])
		return true;
	for (uint64_t i = s->first; i < s->shown.next; i++)
		if (spool_record_at(s, i)->r.stream == stream)
			return true;
	return false;
}

uint64_t spool_first(const struct spool *s, enum spool_stream stream)
{
	for (uint64_t i = s->first; i < s->shown.next; i++) {
		const struct record *r = spool_record_at(s, i);

		if (r->r.stream == stream && !r->r.reason)
			return r->r.offset;
	}
	return s->shown.end[stream];
}

bool spool_is_held(const struct spool *s)
{
	return s->failed;
}

bool spool_is_whole(const struct spool *s)
{
	return !s->head.lost;
}

static void note_lost_byte(struct spool *s)
{
	if (s->head.lost)
		return;
	s->head.lost = true;
	if (s->made)
		(void)!spool_write_head(s); /* if that fails, the command's row says it, too */
}

/* --- the index --- */

/* The first slots of a spool are charged above the limit, too. */
static int charge_index(struct spool *s, size_t n)
{
	if (s->cap)
		return charge_set(&s->memory, s->memory.n + n);
	quota_add(s->memory.quota, n);
	s->memory.n += n;
	return 0;
}

/* Grows the index. -ENOBUFS: the uid's memory is full; -ENOMEM. */
static int widen(struct spool *s)
{
	size_t cap = wider(s->cap), more = (cap - s->cap) * sizeof(*s->v);
	struct record *v;
	int e = charge_index(s, more);

	if (e < 0)
		return e;
	v = calloc(cap, sizeof(*v));
	if (!v) {
		(void)!charge_set(&s->memory, s->memory.n - more);
		return -ENOMEM;
	}
	for (uint64_t i = s->first; i < s->came.next; i++)
		v[i % cap] = *spool_record_at(s, i);
	free(s->v);
	s->v = v;
	s->cap = cap;
	return 0;
}

/* The index must be empty. */
static void free_index(struct spool *s)
{
	(void)!charge_set(&s->memory, s->memory.n - s->cap * sizeof(*s->v));
	free(s->v);
	s->v = NULL;
	s->cap = 0;
}

/* May the oldest record be dropped? Not while the batch has bytes of it. */
static bool can_drop(const struct spool *s)
{
	return s->first < s->shown.next && !(s->first + 1 == s->shown.next && grown(s));
}

int spool_push(struct spool *s, const struct record *r)
{
	int e = s->came.next - s->first == s->cap ? widen(s) : 0;

	if (e == -ENOBUFS && can_drop(s)) {
		spool_drop_oldest(s);
		e = 0;
	}
	if (e < 0)
		return e;
	*spool_record_at(s, s->came.next++) = *r;
	if (r->r.reason && !r->r.size_known)
		s->gap[r->r.stream] = s->came.next;
	spool_charge(s, SPOOL_RECORD_COST);
	return 0;
}

static void note_came(struct spool *s, enum spool_stream stream, size_t n, int64_t now_ms)
{
	s->came.last_ms = now_ms;
	s->came.end[stream] += n;
	s->came.bytes += n;
	spool_charge(s, n);
}

void spool_show(struct spool *s)
{
	const struct record *last = newest(s);

	s->shown = s->came;
	s->shown.last_size = last ? last->r.size : 0;
}

/* Gives the space of dropped records back to the disk. A file system without holes keeps it until the file
 * is removed. The head is written first, so that it never points into the hole. */
static void punch(struct spool *s)
{
	uint64_t from = s->head.first_at;

	s->head.first_at = s->dropped_at;
	memcpy(s->head.start, s->dropped, sizeof(s->head.start));
	if (!s->made || spool_write_head(s) < 0)
		return;
	(void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			(off_t)(s->dropped_at - from));
}

void spool_drop_oldest(struct spool *s)
{
	struct record *r = spool_record_at(s, s->first++);

	if (r->mem) {
		s->held -= r->r.size;
		(void)!charge_set(&s->memory, s->memory.n - r->r.size);
		free(r->mem);
		r->mem = NULL;
	}
	discharge(s, spool_data_size(r) + SPOOL_RECORD_COST);
	s->dropped[r->r.stream] = MAX(s->dropped[r->r.stream], r->r.offset + r->r.size);
	if (r->at)
		s->dropped_at = spool_align(r->at + spool_data_size(r));
	if (s->dropped_at - s->head.first_at >= PUNCH_BYTES)
		punch(s);
}

void spool_clear(struct spool *s)
{
	(void)!spool_flush(s);
	while (s->first < s->shown.next)
		spool_drop_oldest(s);
	if (s->dropped_at > s->head.first_at)
		punch(s);
	if (s->first == s->came.next)
		free_index(s);
}

/* Drops the oldest records until n bytes fit. False: they do not fit, or not before the batch is written. */
static bool make_room(struct spool *s, size_t n)
{
	while (spool_room(s) < n) {
		if (!can_drop(s))
			return false;
		spool_drop_oldest(s);
	}
	return true;
}

/* --- the batch --- */

static int reserve(struct spool_batch *b, size_t n)
{
	size_t cap = b->cap ? b->cap : IMAGE_BYTES;
	uint8_t *image;

	while (cap < b->len + n)
		cap *= 2;
	if (cap == b->cap)
		return 0;
	image = realloc(b->image, cap);
	if (!image)
		return -ENOMEM;
	b->image = image;
	b->cap = cap;
	return 0;
}

/* The newest record, if these bytes can be added to it; else NULL. */
static struct record *growing(const struct spool *s, enum spool_stream stream, size_t n, int64_t now_ms)
{
	struct record *last = newest(s);

	if (!last || last->mem || last->r.reason || last->r.stream != stream || last->r.size + n > MERGE_BYTES ||
	    now_ms < last->r.time_ms || now_ms - last->r.time_ms > SPOOL_MERGE_MS)
		return NULL;
	return last;
}

/* Begins a record at the end of the batch, behind which its bytes are to be put. Its head is filled in by write_batch(). */
static int begin_record(struct spool *s, enum spool_stream stream, size_t n, int64_t now_ms)
{
	struct spool_batch *b = &s->batch;
	struct record r = { .r = { .offset = s->came.end[stream], .size = n, .time_ms = now_ms,
				   .stream = (uint8_t)stream },
			    .at = spool_align(b->at + b->len) + SPOOL_HEAD_BYTES, .before = s->came.bytes };
	size_t gap = (size_t)(r.at - b->at) - b->len;
	int e = reserve(b, gap + n);

	if (!e)
		e = spool_push(s, &r);
	if (e < 0)
		return e;
	memset(b->image + b->len, 0, gap);
	b->len += gap;
	return 0;
}

static int stage(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	struct spool_batch *b = &s->batch;
	struct record *last = growing(s, stream, n, now_ms);
	int e;

	if (!spool_is_staged(s)) {
		b->len = 0;
		b->at = s->file_end;
		b->written = false;
	}
	e = last ? reserve(b, n) : begin_record(s, stream, n, now_ms);
	if (e < 0)
		return e;
	if (last)
		last->r.size += n;
	memcpy(b->image + b->len, p, n);
	b->len += n;
	note_came(s, stream, n, now_ms);
	return 0;
}

/* Writes the batch at once; then, where the record before it has grown, that record's head. A kill between the two
 * leaves the old head, with the smaller size. */
static int write_batch(struct spool *s)
{
	struct spool_batch *b = &s->batch;
	struct iovec v = { b->image, b->len };
	const struct record *last = grown(s);
	int e = spool_want_file(s);

	for (uint64_t i = s->shown.next; i < s->came.next; i++) {
		const struct record *r = spool_record_at(s, i);

		spool_record_put(&r->r, s->head.nonce, b->image + (r->at - SPOOL_HEAD_BYTES - b->at));
	}
	if (!e)
		e = spool_write_at(s, &v, 1, b->at);
	if (!e && last)
		e = spool_write_record(s, &last->r, last->at);
	if (e < 0) {
		spool_truncate(s); /* else a later load could take the part that was written for records */
		return e;
	}
	b->written = true;
	s->file_end = b->at + b->len;
	spool_show(s);
	s->failed = s->said = false;
	return 0;
}

/* --- a disk that takes nothing --- */

/* Keeps bytes in memory, so that readers that keep up lose none. */
static int hold(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	struct record r = { .r = { .offset = s->came.end[stream], .size = n, .time_ms = now_ms,
				   .stream = (uint8_t)stream }, .before = s->came.bytes };
	int e;

	s->failed = true;
	if (!make_room(s, n))
		return -ENOSPC;
	while (charge_set(&s->memory, s->memory.n + n) < 0) {
		if (!can_drop(s))
			return -ENOSPC;
		spool_drop_oldest(s);
	}
	r.mem = malloc(n);
	if (r.mem)
		memcpy(r.mem, p, n);
	e = r.mem ? spool_push(s, &r) : -ENOMEM;
	if (e < 0) {
		(void)!charge_set(&s->memory, s->memory.n - n);
		free(r.mem);
		return e;
	}
	s->held += n;
	note_came(s, stream, n, now_ms);
	spool_show(s);
	s->said = false;
	return 0;
}

/* Adds a gap record, in the file if that can be written. */
static int push_gap(struct spool *s, struct record *r)
{
	int e;

	r->at = spool_align(s->file_end) + SPOOL_HEAD_BYTES;
	r->before = s->came.bytes;
	if (spool_write_record(s, &r->r, r->at) == 0) {
		s->file_end = r->at;
	} else { /* after a restart load_hole() sees the gap by the next record's offset */
		spool_truncate(s);
		r->at = 0;
	}
	s->came.end[r->r.stream] += r->r.size;
	e = spool_push(s, r);
	spool_show(s);
	return e;
}

/* Bytes that could be stored nowhere: counts them in a gap record, which grows with each call. */
static int note_lost(struct spool *s, enum spool_stream stream, uint64_t n, int64_t now_ms)
{
	struct record *last = newest(s);
	struct record r = { .r = { .offset = s->came.end[stream], .size = n, .time_ms = now_ms,
				   .stream = (uint8_t)stream, .reason = SPOOL_NO_SPACE, .size_known = true } };

	note_lost_byte(s);
	if (!last || last->r.reason != SPOOL_NO_SPACE || last->r.stream != stream)
		return push_gap(s, &r);
	last->r.size += n;
	s->came.end[stream] += n;
	if (last->at)
		(void)!spool_write_record(s, &last->r, last->at);
	spool_show(s);
	return 0;
}

static int lose(struct spool *s, enum spool_stream stream, size_t n, int64_t now_ms, int why)
{
	bool said = s->said;
	int e = note_lost(s, stream, n, now_ms);

	s->said = true;
	return e < 0 ? e : said ? 0 : why;
}

/* Without a batch: stores bytes on the disk, else in memory, else counts them as lost. */
static int store(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	int e;

	if (!make_room(s, n) && left(s) < n + SPOOL_RECORD_COST)
		return lose(s, stream, n, now_ms, -ENOSPC);
	e = stage(s, stream, p, n, now_ms);
	if (!e) {
		e = write_batch(s);
		if (e < 0)
			unstage(s);
	}
	if (e < 0) {
		s->batch.len = 0;
		e = hold(s, stream, p, n, now_ms);
	}
	return e < 0 ? lose(s, stream, n, now_ms, e) : 0;
}

/* The batch could not be written: stores each of its pieces by itself. The heads in the image say where they are. */
static int store_each(struct spool *s)
{
	const struct record *last = grown(s);
	struct spool_record open = last ? last->r : (struct spool_record){ 0 };
	uint64_t n = last ? last->r.size - s->shown.last_size : 0, nonce = s->head.nonce;
	struct spool_batch b = s->batch;
	struct spool_record r;
	int e = 0, said = 0;

	unstage(s);
	s->batch = (struct spool_batch){ 0 };
	if (n)
		said = store(s, (enum spool_stream)open.stream, b.image, n, open.time_ms);
	for (uint64_t at = spool_align(b.at + n) - b.at;
	     at + SPOOL_HEAD_BYTES < b.len && spool_record_get(b.image + at, nonce, &r);
	     at = spool_align(b.at + at + SPOOL_HEAD_BYTES + r.size) - b.at) {
		e = store(s, (enum spool_stream)r.stream, b.image + at + SPOOL_HEAD_BYTES, r.size, r.time_ms);
		said = said ? said : e;
	}
	free(b.image);
	return said;
}

int spool_flush(struct spool *s)
{
	if (!spool_is_staged(s) || !write_batch(s))
		return 0;
	return store_each(s);
}

bool spool_would_skip(const struct spool *s, size_t n)
{
	uint64_t room = spool_room(s);

	if (room >= n || s->told.bytes == s->came.bytes)
		return false;
	for (uint64_t i = s->first; room < n; i++) {
		const struct record *r = spool_record_at(s, i);

		if (s->failed || i >= s->told.next || (i + 1 == s->told.next && r->r.size != s->told.last_size))
			return true;
		room += spool_data_size(r) + SPOOL_RECORD_COST;
	}
	return false;
}

void spool_settle(struct spool *s)
{
	s->told = s->shown;
	if (s->batch.written)
		drop_batch(s);
}

int spool_append(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	int said = 0, e = 0;

	if (!n)
		return 0;
	if ((spool_is_staged(s) && s->batch.len + n > SPOOL_MEMORY_BYTES) || !make_room(s, n))
		said = spool_flush(s);
	if (!s->failed && make_room(s, n) && !stage(s, stream, p, n, now_ms))
		return said;
	e = spool_flush(s);
	said = said ? said : e;
	e = store(s, stream, p, n, now_ms);
	return said ? said : e;
}

/* Is there a gap of unknown size at its end? More that is lost there is lost at the same place. */
static bool ends_in_gap(const struct spool *s, enum spool_stream stream)
{
	uint64_t number = s->gap[stream];

	return number > s->first && spool_record_at(s, number - 1)->r.offset == s->came.end[stream];
}

int spool_gap(struct spool *s, enum spool_stream stream, enum spool_reason reason, int64_t now_ms)
{
	struct record r = { .r = { .offset = s->came.end[stream], .time_ms = now_ms, .stream = (uint8_t)stream,
				   .reason = (uint8_t)reason } };
	int said = spool_flush(s), e;

	note_lost_byte(s);
	if (ends_in_gap(s, stream))
		return said;
	r.r.offset = s->came.end[stream];
	e = push_gap(s, &r);
	return e < 0 ? e : said;
}
