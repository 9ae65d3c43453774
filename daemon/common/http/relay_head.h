/* SPDX-License-Identifier: MIT */
/* Heads as they pass the edge, towards a port of a sandbox and back. Pure. */
#ifndef AB_DAEMON_COMMON_HTTP_RELAY_HEAD_H
#define AB_DAEMON_COMMON_HTTP_RELAY_HEAD_H

#include <stdbool.h>

#include "proto/wire/fields.h"

/*
 * Hop-by-hop fields and what Connection names go; so do Forwarded and X-Forwarded-*, which nobody
 * outside can vouch for. With `host` that is the Host, and X-Forwarded-Host has the original one.
 * With `upgrade` the field Upgrade stays; of the rest only what `keep` (NULL = all) agrees to. 0 or -errno.
 */
typedef bool relay_keep_fn(const void *user, const char *name);
must_check int relay_request_head(const struct fields *in, const char *host, bool upgrade, relay_keep_fn *keep,
				  const void *user, struct fields *out);
must_check int relay_response_head(const struct fields *in, bool upgrade, struct fields *out);

#endif
