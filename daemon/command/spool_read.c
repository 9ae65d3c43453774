/* SPDX-License-Identifier: MIT */
/* Readers of a spool: positions in the sequence of records, none beyond `shown`. */
#include <errno.h>
#include <string.h>

#include "daemon/command/spool_impl.h"

void spool_seek(const struct spool *s, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret)
{
	*ret = (struct spool_pos){ .record = s->first };
	memcpy(ret->seen, from, sizeof(ret->seen));
}

void spool_seek_end(const struct spool *s, struct spool_pos *ret)
{
	uint64_t last = s->shown.next - 1;

	*ret = (struct spool_pos){ .record = s->shown.next };
	memcpy(ret->seen, s->shown.end, sizeof(ret->seen));
	if (s->shown.next > s->first && !spool_record_at(s, last)->r.reason) { /* it may still grow */
		ret->record = last;
		ret->within = s->shown.last_size;
	}
}

void spool_seek_since(const struct spool *s, int64_t wall_ms, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret)
{
	uint64_t i = s->shown.next;

	spool_seek_end(s, ret);
	for (; i > s->first; i--) {
		const struct spool_record *r = &spool_record_at(s, i - 1)->r;

		if (r->time_ms < wall_ms - SPOOL_MERGE_MS)
			break;
		ret->seen[r->stream] = r->offset;
		ret->record = i - 1;
		ret->within = 0;
	}
	if (i == s->first)
		memset(ret->seen, 0, sizeof(ret->seen));
	for (unsigned k = 0; k < SPOOL_STREAMS; k++)
		ret->seen[k] = MAX(ret->seen[k], from[k]);
}

uint64_t spool_ahead(const struct spool *s, const struct spool_pos *pos)
{
	uint64_t number = MAX(pos->record, s->first);

	if (number >= s->came.next)
		return 0;
	return s->came.bytes - spool_record_at(s, number)->before - (number == pos->record ? pos->within : 0);
}

uint64_t spool_room_behind(const struct spool *s, const struct spool_pos *pos)
{
	uint64_t number = MAX(pos->record, s->first), kept;

	if (s->failed) { /* only memory takes more: what this reader did not get yet stays in it */
		uint64_t held = 0;

		for (uint64_t i = number; i < s->came.next; i++)
			held += spool_record_at(s, i)->mem ? spool_record_at(s, i)->r.size : 0;
		return SPOOL_MEMORY_BYTES - held;
	}
	if (number >= s->came.next)
		return spool_room(s) + s->used;
	kept = s->came.bytes - spool_record_at(s, number)->before + (s->came.next - number) * SPOOL_RECORD_COST;
	return spool_room(s) + s->used - kept;
}

static void next_record(struct spool_pos *pos)
{
	pos->record++;
	pos->within = 0;
}

/* 1: *ret is a gap that this reader did not get yet. *ret_wait: it is the last record and may still grow. */
static int read_gap(const struct spool *s, const struct spool_record *r, struct spool_pos *pos,
		    struct spool_piece *ret, bool *ret_wait)
{
	uint64_t *seen = &pos->seen[r->stream], end = r->offset + r->size;
	bool last = pos->record + 1 == s->shown.next;
	bool news = !r->size_known ? *seen <= r->offset : end > *seen;

	*ret = (struct spool_piece){ .stream = r->stream, .gap = true, .size_known = r->size_known,
				     .offset = *seen, .size = news ? end - *seen : 0,
				     .reason = spool_reason_name(r->reason) };
	*ret_wait = r->size_known && last && !news;
	if (!last || !r->size_known)
		next_record(pos);
	if (news)
		*seen = MAX(*seen, end);
	return news;
}

/* The bytes at a file offset, if the batch in memory has them; NULL: they are in the file alone. */
static const uint8_t *in_memory(const struct spool *s, uint64_t at)
{
	const struct spool_batch *b = &s->batch;

	return b->written && at >= b->at && at < b->at + b->len ? b->image + (at - b->at) : NULL;
}

static int read_data(struct spool *s, struct spool_pos *pos, void *buf, size_t max, struct spool_piece *ret)
{
	const struct record *r = spool_record_at(s, pos->record);
	size_t n = (size_t)MIN((uint64_t)max, spool_shown_size(s, pos->record) - pos->within);
	const uint8_t *p = r->mem ? r->mem + pos->within : in_memory(s, r->at + pos->within);

	if (!p) {
		int e = spool_read_at(s, r->at + pos->within, buf, n);

		if (e < 0)
			return e == -ENODATA ? -EIO : e;
		p = buf;
	}
	*ret = (struct spool_piece){ .stream = r->r.stream, .offset = r->r.offset + pos->within, .size = n, .data = p };
	pos->within += n;
	pos->seen[r->r.stream] += n;
	return 1;
}

/* A gap at the end of a stream: its last bytes were dropped, and none came after them. */
static int read_dropped(const struct spool *s, struct spool_pos *pos, struct spool_piece *ret)
{
	for (unsigned i = SPOOL_STDOUT; i < SPOOL_STREAMS; i++) {
		if (pos->seen[i] >= s->shown.end[i])
			continue;
		*ret = (struct spool_piece){ .stream = (enum spool_stream)i, .gap = true, .size_known = true,
					     .offset = pos->seen[i], .size = s->shown.end[i] - pos->seen[i],
					     .reason = spool_reason_name(SPOOL_OVERFLOW) };
		pos->seen[i] = s->shown.end[i];
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
	while (pos->record < s->shown.next) {
		const struct record *r = spool_record_at(s, pos->record);
		uint64_t *seen = &pos->seen[r->r.stream], offset = r->r.offset + pos->within;
		uint64_t size = spool_shown_size(s, pos->record);
		bool wait;

		if (r->r.reason) {
			if (read_gap(s, &r->r, pos, ret, &wait))
				return 1;
			if (wait)
				break;
		} else if (pos->within == size) {
			if (pos->record + 1 == s->shown.next)
				break; /* it may still grow */
			next_record(pos);
		} else if (offset > *seen) { /* dropped since */
			*ret = (struct spool_piece){ .stream = r->r.stream, .gap = true,
						     .size_known = true, .offset = *seen,
						     .size = offset - *seen,
						     .reason = spool_reason_name(SPOOL_OVERFLOW) };
			*seen = offset;
			return 1;
		} else if (offset < *seen) { /* below the offset that this reader wants */
			pos->within += MIN(*seen - offset, size - pos->within);
		} else {
			return read_data(s, pos, buf, max, ret);
		}
	}
	return read_dropped(s, pos, ret);
}
