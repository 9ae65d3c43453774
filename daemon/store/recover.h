/* SPDX-License-Identifier: MIT */
/*
 * Which database a start uses: the existing one, its second copy, or an empty one. A database that is
 * not used is moved aside, never deleted.
 */
#ifndef AB_DAEMON_STORE_RECOVER_H
#define AB_DAEMON_STORE_RECOVER_H

#include "daemon/store/backup.h"
#include "daemon/store/hostid.h"
#include "daemon/store/store.h"
#include "proto/base/cc.h"

struct db;

enum recover_choice {
	RECOVER_DATABASE,
	RECOVER_BACKUP,
	RECOVER_EMPTY,
};

struct recover_database {
	bool usable;
	uint64_t mark;
	const char *host;	/* "" = not known */
};

/* `id`: content of the file host-id (host "": there is none). A database of another host is never used; of two
 * of ours the younger one is. *ret_doubt: how far its rows can be relied on. [pure] */
enum recover_choice recover_choose(const struct recover_database *db, const struct backup_facts *backup,
				   const struct hostid *id, enum store_doubt *ret_doubt);

/* Opens. 0 or an enum store_open_result with report->why; fills report->doubt and what was moved. */
must_check int recover_open(struct db *db, struct state_dir *dir, const struct hostid *id, int64_t now_wall_ms,
			    struct store_report *report);
/* The open file was removed or replaced: writes the rows to a new one and opens that. 0 or -errno; after a failure the
 * connection may be closed. */
must_check int recover_unlinked(struct db *db, uint64_t mark, int64_t now_wall_ms);

#endif
