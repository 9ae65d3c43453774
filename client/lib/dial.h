/* SPDX-License-Identifier: MIT */
/*
 * Where the daemon's socket is, and one attempt to reach it. Looked up anew at each attempt, so an
 * environment that outlived its daemon does no harm: an AGENTBOXD_SOCKET where nobody listens is
 * passed over, with a notice.
 */
#ifndef AB_CLIENT_LIB_DIAL_H
#define AB_CLIENT_LIB_DIAL_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define DIAL_PATH_MAX 108u	/* of a Unix socket's address, with the NUL */

struct dial {
	char path[DIAL_PATH_MAX];	/* reached, or the last one tried */
	char passed_over[DIAL_PATH_MAX];/* AGENTBOXD_SOCKET, if it refused and another one was reached */
	char text[512];			/* why not: every path and what it said */
	bool later;			/* missing or refused: worth another attempt */
};

/* 0 for a path that can be one; -EINVAL. */
must_check int dial_check_path(const char *path);
/* explicit_path NULL: the usual places. 0 and a connected non-blocking descriptor; -errno with
 * text and `later` set. */
must_check int dial_try(const char *explicit_path, struct dial *d, int *ret_fd);

#endif
