/* SPDX-License-Identifier: MIT */
/* Loading the spool of an earlier run: walks the heads until one is not valid, and cuts the file off there. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/command/spool_impl.h"

/* If the record's offset is beyond the stream's end, a gap between them could not be written then: adds it now. */
static int load_hole(struct spool *s, const struct spool_record *next)
{
	struct record r = { .r = { .offset = s->came.end[next->stream], .time_ms = next->time_ms,
				   .size = next->offset - s->came.end[next->stream], .stream = next->stream,
				   .reason = SPOOL_NO_SPACE, .size_known = true },
			    .before = s->came.bytes };

	if (!r.r.size)
		return 0;
	s->head.lost = true;
	return spool_push(s, &r);
}

/* Loads the record at `at`. 1, or 0: there is no valid one. size: of the file. */
static int load_record(struct spool *s, uint64_t at, uint64_t size)
{
	struct record r = { .at = at + SPOOL_HEAD_BYTES };
	uint8_t head[SPOOL_HEAD_BYTES];
	uint64_t there;
	int e;

	if (at + SPOOL_HEAD_BYTES > size || spool_read_at(s, at, head, sizeof(head)) < 0 ||
	    !spool_record_get(head, s->head.nonce, &r.r) || r.r.offset < s->came.end[r.r.stream])
		return 0;
	there = MIN(r.r.size, size - r.at);
	if (!r.r.reason && !there)
		return 0;
	e = load_hole(s, &r.r);
	if (e < 0)
		return e;
	r.before = s->came.bytes;
	if (!r.r.reason) {
		if (there < r.r.size) { /* torn: it gets the size that is there */
			r.r.size = there;
			(void)!spool_write_record(s, &r.r, r.at);
		}
		spool_charge(s, r.r.size);
		s->came.bytes += r.r.size;
	} else {
		s->head.lost = true;
	}
	s->came.last_ms = MAX(s->came.last_ms, r.r.time_ms);
	s->came.end[r.r.stream] = r.r.offset + r.r.size;
	s->file_end = r.at + spool_data_size(&r);
	e = spool_push(s, &r);
	spool_show(s);		/* a full index drops only what is shown */
	return e < 0 ? e : 1;
}

static int load_records(struct spool *s, uint64_t size)
{
	int r;

	s->dropped_at = s->file_end = s->head.first_at;
	for (unsigned i = 0; i < SPOOL_STREAMS; i++)
		s->dropped[i] = s->came.end[i] = s->head.start[i];
	do
		r = load_record(s, spool_align(s->file_end), size);
	while (r > 0);
	if (r < 0)
		return r;
	if (ftruncate(s->fd, (off_t)s->file_end) < 0)
		return -errno;
	spool_show(s);
	s->told = s->shown;
	while (s->used > s->limit)
		spool_drop_oldest(s);
	return 0;
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
	if (!st.st_size) { /* killed before its head was written */
		spool_rest(s);
		s->made = false;
		return unlinkat(s->dir->fd, s->name, 0) < 0 ? -errno : 0;
	}
	r = spool_read_at(s, 0, head, sizeof(head));
	if (r == -ENODATA || (!r && !spool_head_get(head, &s->head)))
		return -EBADMSG;
	if (r < 0)
		return r;
	if (spool_read_at(s, SPOOL_INPUT_AT, head, sizeof(head)) < 0 ||
	    !spool_input_get(head, s->head.nonce, &s->input))
		s->input = (struct spool_input){ 0 };
	return load_records(s, (uint64_t)st.st_size);
}

int spool_open(struct spool_dir *dir, const char *name, uint64_t limit, struct spool_quota *uid,
	       struct spool_quota *total, struct spool **ret)
{
	struct spool *s;
	int r = spool_new(dir, name, limit, uid, total, &s);

	if (r < 0)
		return r;
	s->made = true;
	r = spool_want_file(s);
	if (r == -ENOENT) {
		s->made = false;
		r = 0;
	} else if (r == -ELOOP) {
		r = -EBADMSG;
	} else if (!r) {
		r = load(s);
	}
	if (r < 0) {
		spool_close(s);
		return r;
	}
	*ret = s;
	return 0;
}
