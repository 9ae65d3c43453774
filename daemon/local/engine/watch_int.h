/* SPDX-License-Identifier: MIT */
/* What the engine and the watching process inside a sandbox say to each other (packet.h): one
 * request, then reports, and bytes that ask for a mark among them. Both ends are forks of one image, so a struct is its own wire format. */
#ifndef AB_DAEMON_LOCAL_ENGINE_WATCH_INT_H
#define AB_DAEMON_LOCAL_ENGINE_WATCH_INT_H

#include <stdbool.h>

#include "daemon/local/engine/fs.h"
#include "daemon/local/engine/watch.h"

#define WATCH_REPORT_MAX (32u * 1024)
#define WATCH_ASKS_MARK	 1u	/* a byte from the engine, later than the request */

struct watch_request {
	bool recursive, entries, network;
	char path[FS_PATH_MAX + 1];
};

struct watch_report {
	uint32_t kind;		/* enum container_watch_kind */
	int32_t r;
	uint32_t op;
	uint32_t name_bytes;	/* with its NUL; follows */
	uint32_t entry_bytes;	/* follows the name; 0 = none */
};

/* The process; reads its request from `sock` and ends with it. */
noreturn_ void container_watch_run(int sock, bool as_user);

#endif
