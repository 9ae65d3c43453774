/* SPDX-License-Identifier: MIT */
/*
 * STATE/claims: whose a claimed sandbox is, a line each, beside the database on purpose: it survives the loss of it. A line that is
 * torn, or that no version of ours wrote, says nothing.
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
/* One line without its end, which is cut into its fields. */
bool claim_parse(char *line, struct store_claim *ret);

/* On the worker. Appends whole lines and syncs; the file is open from then on. -errno. */
must_check int claims_append(struct state_dir *dir, int *fd, const void *p, size_t n);
/* The file is these lines and no others. */
must_check int claims_replace(struct state_dir *dir, int *fd, const void *p, size_t n);

#endif
