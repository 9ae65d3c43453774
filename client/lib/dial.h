/* SPDX-License-Identifier: MIT */
/*
 * Where the daemon's socket is, and one attempt to reach it, looked up anew at each attempt. A path that the user or
 * AGENTBOXD_SOCKET names is the only one that is tried: what is meant for one daemon never reaches another.
 */
#ifndef AB_CLIENT_LIB_DIAL_H
#define AB_CLIENT_LIB_DIAL_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define DIAL_PATH_MAX 108u	/* of a Unix socket's address, with the NUL */

struct dial {
	char path[DIAL_PATH_MAX];	/* reached, or the last one tried */
	char text[1024];			/* why not: every path and what it said */
	bool denied;			/* the last one that was tried is there, and not for us */
	bool later;			/* missing or refused: worth another attempt */
};

/* 0 for a path that can be one; -EINVAL. */
must_check int dial_check_path(const char *path);
/* explicit_path NULL: AGENTBOXD_SOCKET, or else the usual places. 0 and a connected non-blocking descriptor; -errno with
 * text and `later` set. */
must_check int dial_try(const char *explicit_path, struct dial *d, int *ret_fd);

#endif
