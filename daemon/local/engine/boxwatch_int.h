/* SPDX-License-Identifier: MIT */
/* What the engine and the watching process inside a sandbox say to each other (boxpkt.h): one
 * request, then reports. Both ends are forks of one image, so a struct is its own wire format. */
#ifndef AB_DAEMON_LOCAL_ENGINE_BOXWATCH_INT_H
#define AB_DAEMON_LOCAL_ENGINE_BOXWATCH_INT_H

#include <stdbool.h>

#include "daemon/local/engine/boxfs.h"
#include "daemon/local/engine/boxwatch.h"

#define WATCH_REPORT_MAX (32u * 1024)

struct watch_request {
	bool recursive, entries, network;
	char path[BOXFS_PATH_MAX + 1];
};

struct watch_report {
	uint32_t kind;		/* enum box_watch_kind */
	int32_t r;
	uint32_t op;
	uint32_t name_bytes;	/* with its NUL; follows */
	uint32_t entry_bytes;	/* follows the name; 0 = none */
};

/* The process; reads its request from `sock` and ends with it. */
noreturn_ void box_watch_run(int sock, bool as_user);

#endif
