/* SPDX-License-Identifier: MIT */
/*
 * The bounded record of one command's output: a 0600 file under the state directory that holds the
 * bytes in arrival order, and an index of records {stream, offset in that stream, place, length} in
 * memory. Bytes are written to the file before any reader sees them; memory holds none of them.
 * Offsets of a stream count every byte that arrived, also those dropped since; holes (bytes the
 * cloud did not deliver, or that did not fit on the disk) are gap records.
 *
 * Room is charged to the command, its uid and the whole daemon (struct spool_quota, shared).
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
#define SPOOL_STREAMS 4u	/* array size by stream number */

struct spool_quota {
	uint64_t used, max;
};

struct spool;

/* dir_fd and the quotas outlive the spool. `name` is the file's; made at the first byte. */
must_check int spool_new(int dir_fd, const char *name, uint64_t limit, struct spool_quota *uid,
			 struct spool_quota *total, struct spool **ret);
/* Removes the file. NULL is fine; returns NULL. */
struct spool *spool_free(struct spool *s);

void spool_set_limit(struct spool *s, uint64_t limit);
/* Bytes that fit now without dropping any. */
uint64_t spool_room(const struct spool *s);
uint64_t spool_used(const struct spool *s);
/* Appends; drops the oldest records until it fits (callers that must not lose bytes look at
 * spool_room() before). Bytes that cannot be stored become a gap: -ENOSPC, -EIO, … say so once,
 * the count goes on. n <= 1 MiB. */
must_check int spool_append(struct spool *s, enum spool_stream stream, const void *p, size_t n);
/* A hole of unknown size at the current end of the stream. `reason` is a static string. */
must_check int spool_gap(struct spool *s, enum spool_stream stream, const char *reason);

/* First byte still held and one past the last byte that ever came. */
uint64_t spool_first(const struct spool *s, enum spool_stream stream);
uint64_t spool_end(const struct spool *s, enum spool_stream stream);
bool spool_has(const struct spool *s, enum spool_stream stream);	/* anything ever came on it */
/* False once a byte was lost that no reader of the start could have seen, or may have been. */
bool spool_is_whole(const struct spool *s);

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
/* Bytes between this place and the end. */
uint64_t spool_ahead(const struct spool *s, const struct spool_pos *pos);

#endif
