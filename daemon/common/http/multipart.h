/* SPDX-License-Identifier: MIT */
/*
 * multipart/form-data, read by pieces from a window onto the body: what a call did not use must be
 * in the next window again, followed by more. Parts may be of any size, their headers may not.
 * Strict where it costs nothing (CRLF only), and a body without its closing line never ends well.
 * Pure.
 */
#ifndef AB_DAEMON_COMMON_HTTP_MULTIPART_H
#define AB_DAEMON_COMMON_HTTP_MULTIPART_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define MULTIPART_BOUNDARY_MAX	   70u
#define MULTIPART_HEADER_MAX_BYTES 16384u	/* of one part; MULTIPART_BAD above it */

enum multipart_event {
	MULTIPART_MORE,		/* give a longer window */
	MULTIPART_PART,		/* name and filename are set */
	MULTIPART_DATA,		/* bytes of the part: *ret_data, *ret_len, inside the window */
	MULTIPART_PART_END,
	MULTIPART_END,		/* the rest of the body means nothing */
	MULTIPART_BAD,
};

enum multipart_state {
	MULTIPART_PREAMBLE,
	MULTIPART_AFTER_LINE,	/* behind a boundary: the end, or headers */
	MULTIPART_HEADERS,
	MULTIPART_BODY,
	MULTIPART_DONE,
	MULTIPART_BROKEN,
};

struct multipart {
	enum multipart_state state;
	char line[MULTIPART_BOUNDARY_MAX + 5];	/* "\r\n--boundary" */
	size_t n_line;
	bool at_start;		/* of a part's body */
	char *name, *filename;	/* of the current part; NULL if absent */
};

/* Takes the boundary from a content-type. 0, -EINVAL when there is no valid one, -ENOMEM. */
must_check int multipart_init(struct multipart *m, const char *content_type);
void multipart_fini(struct multipart *m);
enum multipart_event multipart_next(struct multipart *m, const uint8_t *p, size_t n, size_t *ret_used,
				    const uint8_t **ret_data, size_t *ret_len);

/* Value of a parameter in "token; a=b; c=\"d\""; understands name*=UTF-8''… too. Heap; NULL when it
 * is absent or malformed. */
char *header_param(const char *header, const char *name);

#endif
