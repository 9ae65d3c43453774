/* SPDX-License-Identifier: MIT */
/*
 * The bounded record of one command's output: a 0600 file under the state directory with the bytes in
 * arrival order, each run of them behind a record {stream, offset in that stream, length, time}
 * (spool_file.h), and an index of those records in memory, which holds none of the bytes. Bytes and
 * record are in the file before any reader sees them, so what a reader saw survives a kill -9 of the
 * daemon; nothing is synced. Offsets of a stream count every byte that arrived, also those dropped
 * since; holes (bytes the cloud did not deliver, or that did not fit on the disk) are gap records.
 *
 * Room is charged to the command, its uid and the whole daemon (struct spool_quota, shared); a record
 * costs SPOOL_RECORD_COST, so that single bytes do not cost memory that nobody counts.
 */
#ifndef AB_DAEMON_COMMAND_SPOOL_H
#define AB_DAEMON_COMMAND_SPOOL_H

#include <stdbool.h>

#include "proto/base/cc.h"

enum spool_stream {	/* numbers of agentbox.v1.Output.Stream */
	SPOOL_STDOUT = 1,
	SPOOL_STDERR = 2,
	SPOOL_PTY = 3,
};
#define SPOOL_STREAMS	  4u	/* array size by stream number */
#define SPOOL_RECORD_COST 64u
#define SPOOL_NAME_MAX	  63u

enum spool_reason {	/* of a gap; stored: never renumber */
	SPOOL_OVERFLOW = 1,	/* dropped by the limit */
	SPOOL_NO_SPACE = 2,	/* the disk, or a quota, was full */
	SPOOL_REATTACHED = 3,	/* lost with a connection, or while no daemon ran */
	SPOOL_UNREADABLE = 4,	/* the file could not be read */
	SPOOL_POWER_LOSS = 5,	/* the machine restarted */
};
const char *spool_reason_name(enum spool_reason r);

struct spool_quota {
	uint64_t used, max;
};

struct spool;

/* dir_fd and the quotas outlive the spool. `name` is the file's; made at the first byte. */
must_check int spool_new(int dir_fd, const char *name, uint64_t limit, struct spool_quota *uid,
			 struct spool_quota *total, struct spool **ret);
/* What an earlier process left; a torn end is cut off, what is more than the limit is dropped. No file:
 * an empty one. -EBADMSG: the file is not one of ours; other -errno: it cannot be read. */
must_check int spool_open(int dir_fd, const char *name, uint64_t limit, struct spool_quota *uid,
			  struct spool_quota *total, struct spool **ret);
/* Leaves the file. NULL is fine; returns NULL. */
struct spool *spool_close(struct spool *s);
/* Removes the file. NULL is fine; returns NULL. */
struct spool *spool_free(struct spool *s);
/* Drops everything held, so that only the counts are left. */
void spool_clear(struct spool *s);

void spool_set_limit(struct spool *s, uint64_t limit);
/* Bytes that fit now without dropping any. */
uint64_t spool_room(const struct spool *s);
uint64_t spool_used(const struct spool *s);
/* Appends; drops the oldest records until it fits (callers that must not lose bytes look at
 * spool_room() before). Bytes that cannot be stored become a gap: -ENOSPC, -EIO, … say so once,
 * the count goes on. n <= 1 MiB. */
must_check int spool_append(struct spool *s, enum spool_stream stream, const void *p, size_t n,
			    int64_t now_wall_ms);
/* A hole of unknown size at the current end of the stream. */
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
/* The next piece, at most `max` bytes of data into buf. 0 = nothing new, 1 = *ret is filled and the
 * position moved, -errno = the file cannot be read. Bytes that were dropped come as a gap first. */
must_check int spool_read(struct spool *s, struct spool_pos *pos, void *buf, size_t max,
			  struct spool_piece *ret);
/* Bytes that fit without dropping any that lie before this reader. */
uint64_t spool_room_behind(const struct spool *s, const struct spool_pos *pos);
/* Bytes between this place and the end. */
uint64_t spool_ahead(const struct spool *s, const struct spool_pos *pos);

#endif
