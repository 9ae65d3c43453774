/* SPDX-License-Identifier: MIT */
/*
 * STATE/backup.db: the second copy of the database. It is made by SQLite's backup interface in steps between commits and renamed
 * into place; from then on committed changes are gathered and applied to it, in one transaction. Where
 * that is not possible (one failed, too many were gathered, the file is another one), the copy is made as a whole again. On the
 * thread of the connection.
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

#define BACKUP_NEW_FILE	BACKUP_FILE ".new"
#define BACKUP_STEP	128		/* pages between two commits */
#define BACKUP_ALL	(-1)

struct backup {			/* zeroed: none under way */
	struct sqlite3 *to;
	struct sqlite3_backup *run;
	const char *file;	/* its name while it is written */
	uint64_t mark;		/* hostid.mark that the copy under way will have */
	bool follows;		/* the file in place lacks `since` and nothing else */
	struct buf since;	/* committed changes, as in struct changes */
};

/* 0 or -errno. -ENOSPC also where the copy would take the last space of the disk. `file`: its name until it is whole, of the program's
 * life; a file of that name is removed. */
must_check int backup_begin(struct backup *b, struct db *db, const char *file, uint64_t mark);
/* 0: more to do; 1: the file is whole, closed and nobody's, but not synced; -errno: given up, and it is removed. */
must_check int backup_copy(struct backup *b, struct db *db, int pages);
/* The same for BACKUP_NEW_FILE. 0: more to do; 1: it is in place and on the disk; -errno: given up, the earlier copy is still there. */
must_check int backup_step(struct backup *b, struct db *db, int pages);
/* Gives a copy under way up; the next one has to be made as a whole. */
void backup_drop(struct backup *b, struct db *db);
/* Gathers changes that were committed. */
void backup_note(struct backup *b, const struct changes *c);
/* Applies the gathered changes to the file in place, whose mark has to be `from`, and gives it the mark `to`. -errno: it has
 * to be made as a whole again. */
must_check int backup_follow(struct backup *b, struct state_dir *dir, uint64_t from, uint64_t to);

struct backup_facts {
	bool usable;		/* of a schema that we know; whether it is sound says backup_is_sound() */
	uint64_t mark;
	char host[HOSTID_LEN + 1];	/* "" = not known */
};
void backup_look(struct state_dir *dir, struct backup_facts *ret);
/* Reads all of it, which takes long: for a copy that is wanted. */
bool backup_is_sound(struct state_dir *dir);
/* Makes a database from the copy, which stays. There must be none. 0 or -errno. */
must_check int backup_restore(struct state_dir *dir);

#endif
