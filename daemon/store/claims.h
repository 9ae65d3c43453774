/* SPDX-License-Identifier: MIT */
/*
 * STATE/claims: to whom claimed sandboxes belong, one in a line. The file is outside the database so that it survives its loss. A line
 * that is torn or not of this format is ignored.
 */
#ifndef AB_DAEMON_STORE_CLAIMS_H
#define AB_DAEMON_STORE_CLAIMS_H

#include <stdbool.h>

#include "daemon/store/store.h"

struct buf;
struct state_dir;

#define CLAIMS_FILE	"claims"
#define CLAIM_LINE_MAX	(8 * 1024u)

/* Appends the line. -ENOMEM, or -EINVAL for a text that would break it. */
must_check int claim_format(const struct store_claim *c, struct buf *b);
/* A line without its line feed; *ret points into it, as it is cut into fields. False: it is not a claim. */
bool claim_parse(char *line, struct store_claim *ret);

/* On the worker. Appends whole lines and syncs; *fd is the open file afterwards. -errno. */
must_check int claims_append(struct state_dir *dir, int *fd, const void *p, size_t n);
/* Replaces the file by these lines, and closes *fd. */
must_check int claims_replace(struct state_dir *dir, int *fd, const void *p, size_t n);

#endif
