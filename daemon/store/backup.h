/* SPDX-License-Identifier: MIT */
/*
 * STATE/backup.db: the second copy of the database. It is made by SQLite's backup interface in steps between commits and put in
 * place as a whole; from then on the changes that were committed since are gathered and applied to it, in one transaction. Where
 * that cannot be (one failed, too many were gathered, the file is not the one that was made), it is made as a whole again. Whoever
 * has the connection's thread calls this.
 */
#ifndef AB_DAEMON_STORE_BACKUP_H
#define AB_DAEMON_STORE_BACKUP_H

#include <stdbool.h>

#include "daemon/store/hostid.h"
#include "proto/base/buf.h"
#include "proto/base/cc.h"

struct changes;
struct db;
struct sqlite3;
struct sqlite3_backup;
struct state_dir;

#define BACKUP_STEP	128		/* pages between two commits */
#define BACKUP_ALL	(-1)

struct backup {			/* zeroed: none under way */
	struct sqlite3 *to;
	struct sqlite3_backup *run;
	uint64_t mark;		/* that the database has in it */
	bool follows;		/* the file in place lacks `since` and nothing else */
	struct buf since;	/* changes, as in struct changes */
};

/* 0 or -errno. -ENOSPC also where it would take the last room. */
must_check int backup_begin(struct backup *b, struct db *db, uint64_t mark);
/* 0: more to do; 1: it is in place and on the disk; -errno: given up, the earlier copy is still there. */
must_check int backup_step(struct backup *b, struct db *db, int pages);
/* What is under way; and the file in place is not known to lack only `since`. */
void backup_drop(struct backup *b, struct db *db);
/* These were committed. */
void backup_note(struct backup *b, const struct changes *c);
/* Applies what is gathered to the file in place, whose mark is `from`, and gives it the mark `to`. 0 or -errno: it has to be
 * made as a whole again. */
must_check int backup_follow(struct backup *b, struct state_dir *dir, uint64_t from, uint64_t to);

struct backup_facts {
	bool usable;		/* sound, and of a schema that we know */
	uint64_t mark;
	char host[HOSTID_LEN + 1];	/* "" = it does not say */
};
void backup_look(struct state_dir *dir, struct backup_facts *ret);
/* It becomes the database, which must not be there; the copy stays. 0 or -errno. */
must_check int backup_restore(struct state_dir *dir);

#endif
