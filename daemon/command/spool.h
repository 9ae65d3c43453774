/* SPDX-License-Identifier: MIT */
/*
 * The bounded record of one command's output: a 0600 file under the state directory with the bytes in
 * arrival order, each run of them behind a record {stream, offset in that stream, length, time}
 * (spool_file.h), and an index of those records in memory. Offsets of a stream count every byte that
 * arrived, also those dropped since; holes (bytes the cloud did not deliver, or that did not fit on the
 * disk) are gap records.
 *
 * spool_append() collects bytes; spool_flush() writes all of them with one call of the system, and only
 * then do readers, and every count in here, know of them. What a reader saw therefore survives a kill -9
 * of the daemon; nothing is synced. What was written last stays in memory until spool_settle() or the next
 * byte, so that a reader at the end needs no read from the file.
 *
 * Room is charged to the command, its uid and the whole daemon (struct spool_quota, shared); a record
 * costs SPOOL_RECORD_COST. The index, and bytes in memory because the disk takes nothing, are charged to the uid's
 * `memory`. Where that is full the oldest records go, as at the limit.
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
#define SPOOL_MERGE_MS	  1000	/* a record grows for so long, so its bytes are at most this much younger than its time */

enum spool_reason {	/* of a gap; stored: never renumber */
	SPOOL_OVERFLOW = 1,	/* dropped by the limit */
	SPOOL_NO_SPACE = 2,	/* the disk, or a quota, was full */
	SPOOL_REATTACHED = 3,	/* lost with a connection, or while no daemon ran */
	SPOOL_UNREADABLE = 4,	/* the file could not be read */
	SPOOL_POWER_LOSS = 5,	/* the machine restarted */
};
const char *spool_reason_name(enum spool_reason r);

struct spool_quota {
	uint64_t used, max;	/* on the disk */
	struct quota *memory;	/* of a uid; NULL = nobody counts */
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

/* The folder and the quotas outlive the spool. `name` is the file's; made at the first byte. */
must_check int spool_new(struct spool_dir *dir, const char *name, uint64_t limit, struct spool_quota *uid,
			 struct spool_quota *total, struct spool **ret);
/* What an earlier process left; a torn end is cut off, what is more than the limit is dropped. No file:
 * an empty one. -EBADMSG: the file is not one of ours; other -errno: it cannot be read. */
must_check int spool_open(struct spool_dir *dir, const char *name, uint64_t limit, struct spool_quota *uid,
			  struct spool_quota *total, struct spool **ret);
/* Leaves the file, with all that came. NULL is fine; returns NULL. */
struct spool *spool_close(struct spool *s);
/* Removes the file. NULL is fine; returns NULL. */
struct spool *spool_free(struct spool *s);
/* Drops everything held, so that only the counts are left. */
void spool_clear(struct spool *s);
/* Gives its descriptor up until the file is needed again. */
void spool_rest(struct spool *s);

void spool_set_limit(struct spool *s, uint64_t limit);
/* Bytes that fit now without dropping any. */
uint64_t spool_room(const struct spool *s);
uint64_t spool_used(const struct spool *s);
/* Appends; drops the oldest records until it fits (callers that must not lose bytes look at
 * spool_room() before). Bytes that cannot be stored become a gap: -ENOSPC, -EIO, … say so once,
 * the count goes on. n <= 1 MiB. The caller flushes in the same pass of the loop; 128 KiB that wait are
 * written at once. */
must_check int spool_append(struct spool *s, enum spool_stream stream, const void *p, size_t n,
			    int64_t now_wall_ms);
/* What was appended is in the file, and readers may have it. Fails as spool_append() does. */
must_check int spool_flush(struct spool *s);
/* Every reader was told of what was flushed, and those at the end have taken it: its memory goes. */
void spool_settle(struct spool *s);
/* Would n more bytes push some out that came since then? */
bool spool_would_skip(const struct spool *s, size_t n);
/* A hole of unknown size at the current end of the stream; flushes. */
must_check int spool_gap(struct spool *s, enum spool_stream stream, enum spool_reason reason,
			 int64_t now_wall_ms);

/* First byte still held and one past the last byte that ever came. */
uint64_t spool_first(const struct spool *s, enum spool_stream stream);
uint64_t spool_end(const struct spool *s, enum spool_stream stream);
bool spool_has(const struct spool *s, enum spool_stream stream);	/* anything ever came on it */
/* The disk takes nothing: what comes is held in memory, 128 KiB of it, and does not survive us. */
bool spool_is_held(const struct spool *s);
/* False once a byte was lost that no reader of the start could have seen, or may have been. */
bool spool_is_whole(const struct spool *s);
int64_t spool_last_ms(const struct spool *s);	/* about when the last byte came; 0 = none */

/* Counts of the input, kept here because writing them costs no commit: `sent` is written before bytes
 * go out, so that after a crash those above `accepted` are known to be in doubt. -errno: only kept in
 * memory. */
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

/* A reader's place: records are numbered in arrival order, for ever. */
struct spool_pos {
	uint64_t record;
	uint64_t within;			/* bytes of that record already read */
	uint64_t seen[SPOOL_STREAMS];		/* next offset per stream that the reader expects */
};

/* From the oldest record on, skipping what lies below the wanted offsets. */
void spool_seek(const struct spool *s, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret);
void spool_seek_end(const struct spool *s, struct spool_pos *ret);
/* To what came at that time or later, and at most SPOOL_MERGE_MS earlier, skipping what lies below the wanted offsets. It looks at
 * those records alone that will be read. Where older bytes were dropped and the oldest record is young enough, all dropped
 * bytes are a gap: some may belong to it. */
void spool_seek_since(const struct spool *s, int64_t wall_ms, const uint64_t from[SPOOL_STREAMS], struct spool_pos *ret);
/* The next piece, at most `max` bytes of data: in memory of the spool, or in buf. 0 = nothing new, 1 = *ret
 * is filled and the position moved, -errno = the file cannot be read. Bytes that were dropped come as a gap
 * first. */
must_check int spool_read(struct spool *s, struct spool_pos *pos, void *buf, size_t max,
			  struct spool_piece *ret);
/* Bytes that fit without dropping any that this reader has not had. */
uint64_t spool_room_behind(const struct spool *s, const struct spool_pos *pos);
/* Bytes between this place and the end, with those that were not flushed. */
uint64_t spool_ahead(const struct spool *s, const struct spool_pos *pos);

#endif
