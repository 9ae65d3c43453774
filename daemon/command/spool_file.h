/* SPDX-License-Identifier: MIT */
/*
 * The format of a spool file: a file head, the counts of the input, then records, each a record head of
 * SPOOL_HEAD_BYTES, its bytes (a gap has none), and zeros up to the next multiple of 64. No head
 * crosses a page or a sector, so a kill leaves it old or new. Numbers are little
 * endian. Every head has a checksum that begins with the file's own random number, so that a program's
 * output is never taken for a record. [pure]
 *
 * Appending writes head and bytes at once; where the last record grows, first the bytes, then its
 * head. After any crash the file is a sequence of whole records, behind which spool_load.c cuts the rest off, or
 * shortens the last record to the bytes that are there.
 */
#ifndef AB_DAEMON_COMMAND_SPOOL_FILE_H
#define AB_DAEMON_COMMAND_SPOOL_FILE_H

#include "daemon/command/spool.h"

#define SPOOL_HEAD_BYTES  64u
#define SPOOL_INPUT_AT	  64u			/* of the input's counts; zeros: none yet */
#define SPOOL_FIRST_AT	  128u			/* of the first record, in a new file */
#define SPOOL_RECORD_MAX  (2u * 1024 * 1024)	/* bytes of one record */
#define SPOOL_OFFSET_MAX  (UINT64_MAX / 4)

struct spool_head {		/* of the file */
	uint64_t nonce;
	uint64_t first_at;	/* file offset of the oldest record whose space was not given back */
	uint64_t start[SPOOL_STREAMS];	/* each stream's offset at that record */
	bool lost;		/* not spool_is_whole() */
};

struct spool_record {
	uint64_t offset;	/* in the stream */
	uint64_t size;		/* of the bytes; of a gap if it is known, else 0 */
	int64_t time_ms;	/* of its first byte */
	uint8_t stream;
	uint8_t reason;		/* enum spool_reason of a gap; 0 = bytes */
	bool size_known;	/* of a gap */
};

void spool_head_put(const struct spool_head *h, uint8_t ret[SPOOL_HEAD_BYTES]);
must_check bool spool_head_get(const uint8_t p[SPOOL_HEAD_BYTES], struct spool_head *ret);
void spool_input_put(const struct spool_input *i, uint64_t nonce, uint8_t ret[SPOOL_HEAD_BYTES]);
must_check bool spool_input_get(const uint8_t p[SPOOL_HEAD_BYTES], uint64_t nonce, struct spool_input *ret);
void spool_record_put(const struct spool_record *r, uint64_t nonce, uint8_t ret[SPOOL_HEAD_BYTES]);
/* Also checks every value against its range. */
must_check bool spool_record_get(const uint8_t p[SPOOL_HEAD_BYTES], uint64_t nonce,
				 struct spool_record *ret);

static inline uint64_t spool_align(uint64_t at)
{
	return (at + SPOOL_HEAD_BYTES - 1) & ~(uint64_t)(SPOOL_HEAD_BYTES - 1);
}

#endif
