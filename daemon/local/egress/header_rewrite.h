/* SPDX-License-Identifier: MIT */
/*
 * The requests of one HTTP/1.1 connection on their way out, with the headers that a sandbox's rules set
 * in them. Each is read strictly and written anew, so that none slips through between two readings.
 * No I/O.
 */
#ifndef AB_DAEMON_LOCAL_EGRESS_HEADER_REWRITE_H
#define AB_DAEMON_LOCAL_EGRESS_HEADER_REWRITE_H

#include "proto/base/buf.h"
#include "proto/base/cc.h"

struct egrule;
struct header_rewrite;

#define HEADER_REWRITE_AHEAD (32u * 1024)	/* no more is written while this much waits in `out` */

/* For a connection to this host, whose rules alone are followed. At most `max_raw` bytes wait. */
must_check int header_rewrite_new(const char *host, size_t max_raw, struct header_rewrite **ret);
struct header_rewrite *header_rewrite_free(struct header_rewrite *h);	/* NULL is fine; returns NULL */

/* Where the program's bytes are put. */
struct buf *header_rewrite_raw(struct header_rewrite *h);
/* Moves what it can to `out`, which has no maximum. 0, -ENOMEM, or -EPROTO: *ret_why, static, says what cannot
 * go on: it is no request, or one for another host that has rules, too. */
must_check int header_rewrite_run(struct header_rewrite *h, const struct egrule *rules,
				  struct buf *out, const char **ret_why);

#endif
