/* SPDX-License-Identifier: MIT */
/*
 * Pulls a tar archive through the reader of proto/wire/tar.h as it comes. Pure but for the source; what it reads may be an enemy's.
 * Whether a name may be used is not decided here.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_TARBALL_H
#define AB_DAEMON_LOCAL_ENGINE_TARBALL_H

#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/wire/tar.h"

/* At most n bytes; 0 at the end; -errno. */
struct tarball_source {
	ssize_t (*read)(struct tarball_source *s, void *p, size_t n);
};

struct tarball;

must_check int tarball_new(struct tarball_source *s, struct tarball **ret);	/* -ENOMEM */
struct tarball *tarball_free(struct tarball *t);	/* NULL is fine; returns NULL */

/* 1: *ret is the next entry, valid until the next call; it is of a known kind, and a link leads somewhere. 0: the archive has ended.
 * -EBADMSG: it is not well-formed, tarball_why() says how; other -errno: of the source. After a failure nothing more may be read. */
must_check int tarball_next(struct tarball *t, const struct tar_entry **ret);
/* A piece of the entry's data at *ret, valid until the next call: its length; 0 at its end; failures as above. */
must_check ssize_t tarball_data(struct tarball *t, const void **ret);
const char *tarball_why(const struct tarball *t);

#endif
