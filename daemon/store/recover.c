/* SPDX-License-Identifier: MIT */
#include "daemon/store/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/db.h"
#include "daemon/store/schema.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

static bool may_be_of(const char *host, const struct hostid *id)
{
	return !host[0] || !id->host[0] || str_eq(host, id->host);
}

enum recover_choice recover_choose(const struct recover_database *db, const struct backup_facts *backup,
				   const struct hostid *id, enum store_doubt *ret_doubt)
{
	bool db_is_ours = db->usable && may_be_of(db->host, id);
	bool backup_is_ours = backup->usable && may_be_of(backup->host, id);

	if (db_is_ours && !(backup_is_ours && backup->mark > db->mark)) {
		*ret_doubt = db->mark < id->mark ? STORE_OLD : STORE_SURE;
		return RECOVER_DATABASE;
	}
	if (backup_is_ours) {
		*ret_doubt = backup->mark < id->mark ? STORE_OLD : STORE_FROM_BACKUP;
		return RECOVER_BACKUP;
	}
	*ret_doubt = id->host[0] ? STORE_LOST : STORE_SURE;
	return RECOVER_EMPTY;
}

static int put_aside(struct db *db, const char *why, int64_t now_wall_ms, struct store_report *report)
{
	int r = db_move_aside(db->dir, why, now_wall_ms, report->moved_aside, sizeof(report->moved_aside));

	if (!r)
		return 0;
	snprintf(report->why, sizeof(report->why), "%s/" DB_FILE ": cannot move it aside: %s", db->dir->path,
		 strerrordesc_np(-r));
	return STORE_BROKEN;
}

/* Makes and opens the chosen database; DB_FILE must not exist. An SQLite code, or -1 with report->why. */
static int replace(struct db *db, enum recover_choice by, struct store_report *report)
{
	int r = by == RECOVER_BACKUP ? backup_restore(db->dir) : 0;

	if (r < 0) {
		snprintf(report->why, sizeof(report->why), "%s/" BACKUP_FILE ": %s", db->dir->path,
			 strerrordesc_np(-r));
		return -1;
	}
	if (by == RECOVER_EMPTY) {
		report->created = true;
		if (db_make_file(db->dir, report))
			return -1;
	}
	return db_open(db, report);
}

/* Stores the doubt, which stays until store_tx_sure(), also over a crash. Rows that went back get a new incarnation, as
 * numbers of events mean something only within one. */
static void note_doubt(struct db *db, enum store_doubt doubt, struct store_report *report)
{
	char text[8], incarnation[13];

	if (doubt == STORE_SURE) {
		report->doubt = (enum store_doubt)MIN(db_get_number(db, "doubt"), (uint64_t)STORE_LOST);
		return;
	}
	report->doubt = doubt;
	rng_id(incarnation, 12);
	snprintf(text, sizeof(text), "%d", (int)doubt);
	if (db_put_meta(db, "incarnation", incarnation) != SQLITE_OK ||
	    db_put_meta(db, "doubt", text) != SQLITE_OK)
		log_warn("store_meta", "error=%s ignoring=1", log_q(sqlite3_errmsg(db->sql)));
}

/* An empty file counts as none. */
static bool has_content(struct state_dir *dir)
{
	struct stat st;

	return fstatat(dir->fd, DB_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0;
}

static int go_on_with(struct db *db, enum recover_choice choice, const struct recover_database *have, bool corrupt,
		      int64_t now_wall_ms, struct store_report *report)
{
	const char *why = corrupt ? "corrupt" : !have->usable ? "lost" : choice == RECOVER_BACKUP ? "old" : "foreign";
	int r, rc;

	/* The journal is moved aside unchanged, as it may have what the file has lost. */
	if (db->sql)
		(void)sqlite3_db_config(db->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	db_close(db);
	r = put_aside(db, why, now_wall_ms, report);
	if (r)
		return r;
	if (!corrupt && !have->usable)
		report->moved_aside[0] = 0; /* there was no database, at most a journal */
	else
		log_error("store_aside", "why=%s moved_to=%s", why, log_q(report->moved_aside));
	rc = replace(db, choice, report);
	return rc == SQLITE_OK ? 0 : rc < 0 ? STORE_BROKEN : db_explain(db, rc, report);
}

static int too_new(struct db *db, struct store_report *report)
{
	snprintf(report->why, sizeof(report->why),
		 "%s/" DB_FILE " has schema %d, this version knows %d; use the newer agentboxd", db->dir->path,
		 report->schema_found, schema_version);
	db_close(db);
	return STORE_TOO_NEW;
}

int recover_open(struct db *db, struct state_dir *dir, const struct hostid *id, int64_t now_wall_ms,
		 struct store_report *report)
{
	struct recover_database have = { .host = "" };
	char host[HOSTID_LEN + 1] = "";
	struct backup_facts backup;
	enum recover_choice choice;
	enum store_doubt doubt;
	bool exists;
	int r, rc = SQLITE_OK;

	*db = (struct db){ .dir = dir };
	report->schema_known = schema_version;
	r = state_dir_check_file(dir, DB_FILE, &exists, report);
	if (r)
		return r;
	exists = exists && has_content(dir);
	if (exists)
		rc = db_open(db, report);
	if (rc != SQLITE_OK && rc != SQLITE_CORRUPT && rc != SQLITE_NOTADB)
		return db_explain(db, rc, report);
	if (exists && rc == SQLITE_OK) {
		if (report->schema_found > schema_version)
			return too_new(db, report);
		db_get_host(db, host);
		have = (struct recover_database){ true, db_get_number(db, "mark"), host };
	}
	backup_look(dir, &backup);
	choice = recover_choose(&have, &backup, id, &doubt);
	if (choice == RECOVER_BACKUP && !backup_is_sound(dir)) {
		backup.usable = false;
		choice = recover_choose(&have, &backup, id, &doubt);
	}
	if (choice != RECOVER_DATABASE)
		r = go_on_with(db, choice, &have, exists && rc != SQLITE_OK, now_wall_ms, report);
	if (r)
		return r;
	note_doubt(db, doubt, report);
	if (doubt != STORE_SURE)
		log_error("store_recovered", "state_dir=%s from=%s rows=%s", log_q(dir->path),
			  choice == RECOVER_DATABASE ? "database" : choice == RECOVER_BACKUP ? "backup" : "nothing",
			  doubt == STORE_OLD ? "old" : doubt == STORE_LOST ? "lost" : "recent");
	return 0;
}

int recover_unlinked(struct db *db, uint64_t mark, int64_t now_wall_ms)
{
	struct backup b = { 0 };
	char to[256];
	int r = backup_begin(&b, db, BACKUP_NEW_FILE, mark);

	while (!r)
		r = backup_step(&b, db, BACKUP_ALL);
	if (r < 0)
		return r;
	r = db_move_aside(db->dir, "replaced", now_wall_ms, to, sizeof(to));
	if (!r)
		r = backup_restore(db->dir);
	if (r < 0)
		return r;
	return db_reopen(db) == SQLITE_OK ? 0 : -EIO;
}
