/* SPDX-License-Identifier: MIT */
/*
 * The inside of a spool, for spool*.c only: spool.c (what comes and where it goes), spool_disk.c (its file, and which
 * files are open), spool_load.c (what an earlier process left), spool_read.c (readers).
 *
 * Marks run over the records: `came` is behind everything that was appended, `shown` behind everything that
 * is in the file, `told` behind everything that readers were told of. Readers and counts stop at `shown`.
 * Between `came` and `shown` lies the batch.
 */
#ifndef AB_DAEMON_COMMAND_SPOOL_IMPL_H
#define AB_DAEMON_COMMAND_SPOOL_IMPL_H

#include <sys/uio.h>

#include "daemon/command/spool_file.h"
#include "proto/base/quota.h"

#define SPOOL_MEMORY_BYTES (128u * 1024)	/* kept in memory while the disk takes nothing; also the most that
						 * waits for one write, or a disk that fills would lose some of it */

struct record {
	struct spool_record r;
	uint64_t at;		/* of its bytes in the file; 0: they are in mem, or a gap could not be written */
	uint8_t *mem;
	uint64_t before;	/* bytes of all records before it, in all streams */
};

struct spool_mark {
	uint64_t next;			/* record number: one past the newest */
	uint64_t last_size;		/* of the newest one; kept in `shown` alone, its record may have grown since */
	uint64_t bytes;			/* that were ever put into records */
	uint64_t end[SPOOL_STREAMS];	/* one past the last byte of each stream */
	int64_t last_ms;		/* about when the last byte came */
};

/* Bytes and heads as they lie, or will lie, in the file from `at` on. */
struct spool_batch {
	uint8_t *image;
	size_t len, cap;
	uint64_t at;
	bool written;		/* they are in the file; else they wait */
};

struct spool {
	struct spool_dir *dir;
	struct list node;	/* dir->open, with a descriptor */
	int fd;			/* -1 = none now */
	bool made;		/* there is a file */
	char name[SPOOL_NAME_MAX + 1];
	uint64_t limit;
	struct spool_quota *uid, *total;
	struct record *v;	/* ring of cap slots; record number i sits at i % cap */
	size_t cap;
	struct charge memory;	/* for v, and for `held` */
	uint64_t first;		/* record number: the oldest one held */
	struct spool_mark came, shown;
	struct spool_mark told;		/* `shown` at the last spool_settle() */
	struct spool_batch batch;
	uint64_t used;		/* bytes held, and what their records cost */
	uint64_t file_end;	/* one past the last byte of the last shown record */
	struct spool_head head;
	struct spool_input input;
	uint64_t dropped_at;	/* like head.first_at and .start, but true now */
	uint64_t dropped[SPOOL_STREAMS];
	uint64_t held;		/* bytes in memory because of the disk */
	bool failed;		/* the last write could not store on the disk */
	bool said;		/* and memory could not hold it either; said once */
};

static inline struct record *spool_record_at(const struct spool *s, uint64_t number)
{
	return &s->v[number % s->cap];
}

static inline uint64_t spool_data_size(const struct record *r)
{
	return r->r.reason ? 0 : r->r.size;
}

/* As a reader may know it. */
static inline uint64_t spool_shown_size(const struct spool *s, uint64_t number)
{
	return number + 1 == s->shown.next ? s->shown.last_size : spool_record_at(s, number)->r.size;
}

/* Is anything waiting to be written? */
static inline bool spool_is_staged(const struct spool *s)
{
	return s->batch.len && !s->batch.written;
}

/* spool.c: the index; both for records that need no write */
must_check int spool_push(struct spool *s, const struct record *r);	/* behind `came` */
void spool_charge(struct spool *s, uint64_t n);
void spool_show(struct spool *s);		/* all that came */
void spool_drop_oldest(struct spool *s);

/* spool_disk.c: 0 or -errno */
must_check int spool_want_file(struct spool *s);	/* there is one, with a head, and it is open */
must_check int spool_write_at(struct spool *s, struct iovec *v, int n, uint64_t at);
must_check int spool_read_at(struct spool *s, uint64_t at, void *buf, size_t n);	/* -ENODATA: it is shorter */
must_check int spool_write_head(struct spool *s);
must_check int spool_write_record(struct spool *s, const struct spool_record *r, uint64_t at);	/* its head */
void spool_truncate(struct spool *s);		/* behind the last shown record */

#endif
