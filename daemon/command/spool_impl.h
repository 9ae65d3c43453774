/* SPDX-License-Identifier: MIT */
/*
 * The inside of a spool, for spool*.c only: spool.c (appending: index, batch, full disks), spool_disk.c (its file, and which
 * files are open), spool_load.c (the file of an earlier run), spool_read.c (readers).
 *
 * Three marks in the sequence of records: `came` is behind all that was appended, `shown` behind all that
 * is in the file, `told` behind all that readers were called for. Readers and counts stop at `shown`.
 * The batch is what lies between `shown` and `came`.
 */
#ifndef AB_DAEMON_COMMAND_SPOOL_IMPL_H
#define AB_DAEMON_COMMAND_SPOOL_IMPL_H

#include <sys/uio.h>

#include "daemon/command/spool_file.h"
#include "proto/base/quota.h"

#define SPOOL_MEMORY_BYTES (128u * 1024)	/* what may be held in memory while the disk takes nothing; also the largest
						 * batch, since one that cannot be written has to fit into that memory */

struct record {
	struct spool_record r;
	uint64_t at;		/* file offset of its bytes; 0: they are in mem, or it is a gap that could not be written */
	uint8_t *mem;		/* owned: its bytes while the disk takes nothing; else NULL */
	uint64_t before;	/* sum of the bytes of all records before it */
};

struct spool_mark {
	uint64_t next;			/* record number: one past the newest */
	uint64_t last_size;		/* size of the newest record at this mark; not set in `came` */
	uint64_t bytes;			/* sum of the bytes of all records ever */
	uint64_t end[SPOOL_STREAMS];	/* one past the last byte of each stream */
	int64_t last_ms;		/* wall: about when the last byte came */
};

/* Bytes and heads as they are, or will be, in the file. */
struct spool_batch {
	uint8_t *image;		/* owned */
	size_t len, cap;
	uint64_t at;		/* file offset of image[0] */
	bool written;		/* it is in the file */
};

struct spool {
	struct spool_dir *dir;
	struct list node;	/* dir->open, with a descriptor */
	int fd;			/* -1 = none now */
	bool made;		/* the file exists */
	char name[SPOOL_NAME_MAX + 1];
	uint64_t limit;
	struct spool_quota *uid, *total;
	struct record *v;	/* ring of cap slots; record number i sits at i % cap */
	size_t cap;
	struct charge memory;	/* for v, and for `held` */
	uint64_t first;		/* number of the oldest record that was not dropped */
	struct spool_mark came, shown;
	struct spool_mark told;		/* `shown` at the last spool_settle() */
	struct spool_batch batch;
	uint64_t used;		/* bytes charged: those of records from `first` on, and SPOOL_RECORD_COST for each */
	uint64_t file_end;	/* one past the last byte of the last shown record */
	struct spool_head head;	/* as it is in the file */
	struct spool_input input;
	uint64_t dropped_at;	/* head.first_at as it is now: the file's is brought up in steps of PUNCH_BYTES */
	uint64_t dropped[SPOOL_STREAMS];	/* head.start as it is now */
	uint64_t gap[SPOOL_STREAMS];	/* number + 1 of its newest gap of unknown size; 0 = none */
	uint64_t held;		/* bytes in records' `mem` */
	bool failed;		/* the last write to the disk failed */
	bool said;		/* output was lost, and the caller has got the error */
};

static inline struct record *spool_record_at(const struct spool *s, uint64_t number)
{
	return &s->v[number % s->cap];
}

static inline uint64_t spool_data_size(const struct record *r)
{
	return r->r.reason ? 0 : r->r.size;
}

/* The size of a record as far as readers may have it. */
static inline uint64_t spool_shown_size(const struct spool *s, uint64_t number)
{
	return number + 1 == s->shown.next ? s->shown.last_size : spool_record_at(s, number)->r.size;
}

/* Is anything waiting to be written? */
static inline bool spool_is_staged(const struct spool *s)
{
	return s->batch.len && !s->batch.written;
}

/* spool.c: the index */
must_check int spool_push(struct spool *s, const struct record *r);	/* adds a record at `came` */
void spool_charge(struct spool *s, uint64_t n);
void spool_show(struct spool *s);		/* moves `shown` to `came` */
void spool_drop_oldest(struct spool *s);

/* spool_disk.c: 0 or -errno */
must_check int spool_want_file(struct spool *s);	/* opens the file; makes it, with its head, if there is none */
must_check int spool_write_at(struct spool *s, struct iovec *v, int n, uint64_t at);
must_check int spool_read_at(struct spool *s, uint64_t at, void *buf, size_t n);	/* -ENODATA: the file is shorter */
must_check int spool_write_head(struct spool *s);
must_check int spool_write_record(struct spool *s, const struct spool_record *r, uint64_t at);	/* the head before its bytes at `at` */
void spool_truncate(struct spool *s);		/* cuts the file off behind the last shown record */

#endif
