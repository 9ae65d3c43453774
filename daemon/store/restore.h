/* SPDX-License-Identifier: MIT */
/*
 * Puts a backup into the state directory of a daemon that does not run. What was there is moved aside. The next start takes the rows for
 * old ones (STORE_OLD): what they say may be long over, so nothing is ended for it, and what was made since is found by its tags.
 */
#ifndef AB_DAEMON_STORE_RESTORE_H
#define AB_DAEMON_STORE_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/store.h"
#include "proto/base/cc.h"

struct store_restore_options {
	const char *state_dir;	/* made 0700 if missing */
	int from_fd;		/* the backup, from where it stands to its end */
	const char *from;	/* its name, for messages */
	int64_t now_wall_ms;	/* for the names of files that are moved aside */
	bool other_host;	/* also where the directory belongs to another host, whose host-id is moved aside, too */
};

struct store_restored {
	struct store_report report;	/* why; holder; schema_found: of the backup; moved_aside: the state that was there, "" = none */
	char dir[256], host[32];	/* where it was put, and who that daemon will be; cut if they are too long */
};

/* STORE_NOT_OURS: the file is no sound backup of this program, or of another host. Whatever fails before the first file is moved,
 * the state stays as it was. Where the machine stops in between, it can be called again. */
must_check enum store_open_result store_restore(const struct store_restore_options *o, struct store_restored *ret);

#endif
