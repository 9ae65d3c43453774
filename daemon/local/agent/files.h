/* SPDX-License-Identifier: MIT */
/* What the two directions of /files share. */
#ifndef AB_DAEMON_LOCAL_AGENT_FILES_H
#define AB_DAEMON_LOCAL_AGENT_FILES_H

#include "daemon/local/engine/container.h"
#include "daemon/local/state/state.h"

struct http_stream;
struct query;

#define FILES_SLICE_BYTES (256u * 1024)	/* read or written in one go; then others have their turn */

/* Token or signature for reading or writing, then the user. False after the answer (401, 400). */
bool files_authorize(const struct sandbox *s, struct http_stream *x, const struct query *q,
		     bool write, struct container_user *ret);

/* Whether the link's signature was made with the sandbox's token, at any time. */
bool files_is_signed(const struct sandbox *s, const struct query *q, bool write);

/* Answers a failed file operation by the contract's table. */
void files_fail(struct http_stream *x, int r, const char *path);

#endif
