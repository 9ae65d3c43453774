/* SPDX-License-Identifier: MIT */
/*
 * STATE/sent: the numbers of the intents whose request may have been sent. A record is written before the request's first
 * byte, and is not synced: it survives kill -9 but not a power failure, so the file is valid within one boot of the
 * machine. A number from the file's `base` on without a record was never sent; of numbers below it nothing is known.
 */
#ifndef AB_DAEMON_STORE_SENT_H
#define AB_DAEMON_STORE_SENT_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define SENT_FILE	 "sent"
#define SENT_RECORDS_MAX 65536u		/* of a file, a megabyte; then it begins anew */
#define SENT_BOOT_MAX	 64u

struct sent_head {			/* of the file, in the machine's own byte order: it never leaves the machine */
	char magic[16];
	char host[32];
	char boot[SENT_BOOT_MAX];
	uint64_t base;
	uint64_t unused;
};

struct sent_record {
	uint64_t seq;
	uint64_t at_ms;			/* BOOTTIME */
};

struct sent {
	int dir_fd;			/* borrowed; owner of the file's name */
	int fd;				/* -1 = not open */
	bool is_void;			/* the file is empty and proves nothing; the next record begins a new one */
	struct sent_head head;
	size_t n;			/* records in the file */
	struct sent_record *seen;	/* owned: records of earlier runs; NULL = none, or forgotten */
	size_t n_seen;
};

#define SENT_NULL (struct sent){ .dir_fd = -1, .fd = -1 }

enum sent_known {
	SENT_UNKNOWN,
	SENT_NEVER,
	SENT_MAYBE,			/* its first byte may have left at *ret_at_ms */
};

/* boot "": not known, and the file proves nothing. is_trusted: the rows are those of the time when the file was
 * written. next: the next number that store_next_seq() gives. A file that cannot be used is begun anew. */
void sent_open(struct sent *s, int dir_fd, const char *host, const char *boot, bool is_trusted, uint64_t next);
enum sent_known sent_find(const struct sent *s, uint64_t seq, uint64_t *ret_at_ms);
/* Frees the records of earlier runs. */
void sent_forget(struct sent *s);
/* next: as above. -errno: the record could not be written and the file is not void either: the intent must not be sent. */
must_check int sent_put(struct sent *s, uint64_t seq, uint64_t now_ms, uint64_t next);
void sent_close(struct sent *s);

#endif
