/* SPDX-License-Identifier: MIT */
/*
 * The bounded record of one command's output: a 0600 file under the state directory with the bytes in
 * arrival order, each run of them behind a record {stream, offset in that stream, length, time}
 * (spool_file.h), and an index of those records in memory. Offsets of a stream count every byte that
 * arrived, also those dropped since; holes (bytes the cloud did not deliver, or that did not fit on the
 * disk) are gap records.
 *
 * spool_append() collects bytes; spool_flush() writes all of them with one system call, and only
 * then do readers, and the counts of this header, have them. So what a reader got survives a kill -9
 * of the daemon; nothing is synced. The last batch stays in memory until spool_settle() or the next
 * byte, so that a reader at the end needs no read from the file.
 *
 * Disk space is charged to the command, its uid and the whole daemon (struct spool_quota, shared); a record
 * costs SPOOL_RECORD_COST. The index, and bytes that are in memory because the disk takes none, are charged to the uid's
 * `memory`. Where that is full the oldest records are dropped, as at the limit.
 */
#ifndef AB_DAEMON_COMMAND_SPOOL_H
#define AB_DAEMON_COMMAND_SPOOL_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/base/list.h"

enum spool_stream {	/* numbers of agentbox.v1.Output.Stream */
	SPOOL_STDOUT = 1,
	SPOOL_STDERR = 2,
	SPOOL_PTY = 3,
};
#define SPOOL_STREAMS	  4u	/* array size by stream number */
#define SPOOL_RECORD_COST 64u
#define SPOOL_NAME_MAX	  63u
#define SPOOL_MERGE_MS	  1000	/* a record grows for so long: its bytes are at most so much younger than its time */

enum spool_reason {	/* of a gap; stored: never renumber */
	SPOOL_OVERFLOW = 1,	/* dropped by the limit */
	SPOOL_NO_SPACE = 2,	/* the disk, or a quota, was full */
	SPOOL_REATTACHED = 3,	/* lost with a connection, or while no daemon ran */
	SPOOL_UNREADABLE = 4,	/* the file could not be read */
	SPOOL_POWER_LOSS = 5,	/* the machine restarted */
};
const char *spool_reason_name(enum spool_reason r);

struct spool_quota {
	uint64_t used, max;	/* bytes on the disk */
	struct quota *memory;	/* of a uid; NULL = not charged */
};

struct quota;	/* proto/base/quota.h */
struct spool;

/* The folder of spools. At most max_open of their files have a descriptor at a time: the one that was used
 * longest ago gives its own up, and its file is opened again when it is needed. */
struct spool_dir {
	int fd;			/* borrowed */
	unsigned max_open, n_open;
	struct list open;	/* struct spool, used longest ago first */
};
void spool_dir_init(struct spool_dir *d, int fd, unsigned max_open);

/* The folder and the quotas outlive the spool. `name`: of the file, which is made at the first byte. */
must_check int spool_new(struct spool_dir *dir, const char *name, uint64_t limit, struct spool_quota *uid,
			 struct spool_quota *total, struct spool **ret);
/* The spool of an earlier run: a torn end is cut off, and what is above the limit is dropped. Without a file it is
 * empty. -EBADMSG: the file is not a spool; other -errno: it cannot be read. */
must_check int spool_open(struct spool_dir *dir, const char *name, uint64_t limit, struct spool_quota *uid,
			  struct spool_quota *total, struct spool **ret);
/* Flushes, and keeps the file. NULL is fine; returns NULL. */
struct spool *spool_close(struct spool *s);
/* Removes the file. NULL is fine; returns NULL. */
struct spool *spool_free(struct spool *s);
/* Drops all output; the offsets go on. */
void spool_clear(struct spool *s);
/* Closes its descriptor until the file is needed again. */
void spool_rest(struct spool *s);

void spool_set_limit(struct spool *s, uint64_t limit);
/* How many bytes fit now without dropping any. */
uint64_t spool_room(const struct spool *s);
uint64_t spool_used(const struct spool *s);
/* Appends n <= 1 MiB bytes; drops the oldest records until they fit (callers that must not lose bytes ask
 * spool_room() before). Bytes that cannot be stored become a gap: the first call of a row returns -ENOSPC, -EIO, …,
 * the others 0. The caller flushes in the same pass of the loop; above SPOOL_MEMORY_BYTES this call does. */
must_check int spool_append(struct spool *s, enum spool_stream stream, const void *p, size_t n,
			    int64_t now_wall_ms);
/* Writes what was appended, for readers to have. Fails as spool_append() does. */
must_check int spool_flush(struct spool *s);
/* Every reader was called after the last flush: frees the batch. */
void spool_settle(struct spool *s);
/* Would n more bytes drop some that came since the last spool_settle()? */
bool spool_would_skip(const struct spool *s, size_t n);
/* A hole of unknown size at the current end of the stream, which is one, also if it is said again; flushes. */
must_check int spool_gap(struct spool *s, enum spool_stream stream, enum spool_reason reason,
			 int64_t now_wall_ms);

/* First byte still held and one past the last byte that ever came. */
uint64_t spool_first(const struct spool *s, enum spool_stream stream);
uint64_t spool_end(const struct spool *s, enum spool_stream stream);
bool spool_has(const struct spool *s, enum spool_stream stream);	/* anything ever came on it */
/* The disk takes nothing: output is held in memory, SPOOL_MEMORY_BYTES of it, and is lost with this process. */
bool spool_is_held(const struct spool *s);
/* False when output was, or may have been, lost that not even a reader from the first byte on could get. */
bool spool_is_whole(const struct spool *s);
int64_t spool_last_ms(const struct spool *s);	/* about when the last byte came; 0 = none */

/* Counts of the command's input, kept in the spool file since writing them there costs no commit. `sent` is written before
 * bytes are sent, so that after a crash those above `accepted` are known to be in doubt. -errno: they are in
 * memory alone. */
struct spool_input {
	uint64_t accepted, sent;
};
must_check int spool_set_input(struct spool *s, const struct spool_input *i);
void spool_get_input(const struct spool *s, struct spool_input *ret);

struct spool_piece {
	enum spool_stream stream;
	bool gap;
	bool size_known;	/* of a gap */
	uint64_t offset;	/* in the stream */
	uint64_t size;
	const uint8_t *data;	/* not of a gap; valid until the spool is changed or the buffer used again */
	const char *reason;	/* of a gap */
};

/* A reader's position. Records are numbered in arrival order, from 0 on, and no number is used twice. */
struct spool_pos {
	uint64_t record;
	uint64_t within;			/* bytes of that record already read */
	uint64_t seen[SPOOL_STREAMS];		/* the next offset that the reader expects in each stream */
};

/* To the oldest record; bytes below the wanted offsets are skipped. */
void spool_seek(const struct spool *s, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret);
void spool_seek_end(const struct spool *s, struct spool_pos *ret);
/* To the bytes that came at wall_ms or later, with some of up to SPOOL_MERGE_MS before; bytes below the wanted offsets are skipped.
 * Where the oldest record is young enough and older bytes were dropped, these come as a gap, since some of them may be
 * young enough, too. Only records that will be read are walked. */
void spool_seek_since(const struct spool *s, int64_t wall_ms, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret);
/* The next piece, with at most `max` bytes, which are in memory of the spool or in buf. 1: *ret is it, and the position has
 * moved; 0: there is none now; -errno: the file cannot be read. Bytes that were dropped come as a gap. */
must_check int spool_read(struct spool *s, struct spool_pos *pos, void *buf, size_t max,
			  struct spool_piece *ret);
/* How many bytes fit without dropping any that this reader did not get yet. */
uint64_t spool_room_behind(const struct spool *s, const struct spool_pos *pos);
/* How many bytes this reader did not get yet, those that are not flushed included. */
uint64_t spool_ahead(const struct spool *s, const struct spool_pos *pos);

#endif
