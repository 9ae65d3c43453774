/* SPDX-License-Identifier: MIT */
/*
 * Reads a tar archive as it comes: ustar with pax and GNU headers. Pure but for the source; what it reads may be an enemy's. Whether a
 * name may be used is not decided here.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_TARBALL_H
#define AB_DAEMON_LOCAL_ENGINE_TARBALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/cc.h"

#define TARBALL_BLOCK	 512u
#define TARBALL_NAME_MAX 4096u
#define TARBALL_PAX_MAX	 (1024u * 1024)	/* of one extended header */

/* At most n bytes; 0 at the end; -errno. */
struct tarball_source {
	ssize_t (*read)(struct tarball_source *s, void *p, size_t n);
};

enum tarball_type {
	TARBALL_FILE,
	TARBALL_HARD_LINK,
	TARBALL_SYMLINK,
	TARBALL_DIRECTORY,
	TARBALL_FIFO,
	TARBALL_DEVICE,
};

struct tarball_entry {
	enum tarball_type type;
	const char *name;	/* never empty */
	const char *link;	/* of the two kinds of links, never empty there */
	uint32_t mode;		/* 07777 */
	uint64_t uid, gid;
	uint64_t size;		/* of TARBALL_FILE */
	int64_t mtime_s;
	uint32_t mtime_ns;
};

struct tarball;

must_check int tarball_new(struct tarball_source *s, struct tarball **ret);	/* -ENOMEM */
struct tarball *tarball_free(struct tarball *t);	/* NULL is fine; returns NULL */

/* 1: *ret is the next entry, valid until the next call; 0: the archive has ended. -EBADMSG: it is not well-formed, tarball_why()
 * says how; other -errno: of the source. After a failure nothing more may be read. */
must_check int tarball_next(struct tarball *t, const struct tarball_entry **ret);
/* A piece of the entry's data; 0 at its end; failures as above. */
must_check ssize_t tarball_data(struct tarball *t, void *p, size_t n);
const char *tarball_why(const struct tarball *t);

#endif
