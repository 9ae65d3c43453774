/* SPDX-License-Identifier: MIT */
/*
 * A step is never edited once released: add one. Tables are STRICT, so a value of the wrong type is
 * an error when it is written, not a surprise when it is read.
 */
#include "daemon/store/schema.h"

#include <sqlite3.h>
#include <stdio.h>

static const char *const steps[] = {
	/* 1: sandboxes, intents, request ids, names; rows that could not be right; loose facts */
	"CREATE TABLE sandbox ("
	" account TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, uid INTEGER NOT NULL,"
	" generation INTEGER NOT NULL, state INTEGER NOT NULL, ours INTEGER NOT NULL,"
	" adopted INTEGER NOT NULL, claimed INTEGER NOT NULL, unclaimed_at_ms INTEGER NOT NULL,"
	" seq INTEGER NOT NULL, req_tag TEXT NOT NULL, template_id TEXT NOT NULL,"
	" alias TEXT NOT NULL, metadata BLOB NOT NULL, started_at_ms INTEGER NOT NULL,"
	" end_at_ms INTEGER NOT NULL, cpu_count INTEGER NOT NULL, memory_mb INTEGER NOT NULL,"
	" disk_size_mb INTEGER NOT NULL, envd_version TEXT NOT NULL, domain TEXT NOT NULL,"
	" access_token TEXT NOT NULL, traffic_token TEXT NOT NULL,"
	" token_known INTEGER NOT NULL,"
	" allow_internet_access INTEGER NOT NULL, on_timeout INTEGER NOT NULL,"
	" keep_memory INTEGER NOT NULL, auto_resume INTEGER NOT NULL, policy TEXT NOT NULL,"
	" warning TEXT NOT NULL, as_of_ms INTEGER NOT NULL, gone_reason INTEGER NOT NULL,"
	" gone_at_ms INTEGER NOT NULL, gone_evidence TEXT NOT NULL,"
	" PRIMARY KEY (account, id)) STRICT;"
	"CREATE TABLE intent ("
	" seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, state INTEGER NOT NULL,"
	" account TEXT NOT NULL, uid INTEGER NOT NULL, request_id TEXT NOT NULL,"
	" req_tag TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL,"
	" template_id TEXT NOT NULL, policy TEXT NOT NULL, claimed INTEGER NOT NULL,"
	" made_at_ms INTEGER NOT NULL) STRICT;"
	"CREATE TABLE request ("
	" uid INTEGER NOT NULL, method TEXT NOT NULL, request_id TEXT NOT NULL,"
	" params_hash BLOB NOT NULL, state INTEGER NOT NULL, account TEXT NOT NULL,"
	" object TEXT NOT NULL, req_tag TEXT NOT NULL, used_at_ms INTEGER NOT NULL,"
	" PRIMARY KEY (uid, method, request_id)) STRICT;"
	"CREATE TABLE name ("
	" uid INTEGER NOT NULL, name TEXT NOT NULL, account TEXT NOT NULL, id TEXT NOT NULL,"
	" generation INTEGER NOT NULL, PRIMARY KEY (uid, name)) STRICT;"
	"CREATE TABLE aside ("
	" tbl TEXT NOT NULL, why TEXT NOT NULL, body TEXT NOT NULL) STRICT;"
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
	"PRAGMA application_id = 1097294456;", /* "Agbx" */
	/* leases, events, and what policies need to know of a sandbox */
	"ALTER TABLE sandbox ADD COLUMN released_at_ms INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE sandbox ADD COLUMN used_at_ms INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE sandbox ADD COLUMN timeout_s INTEGER NOT NULL DEFAULT 0;"
	"CREATE TABLE lease ("
	" id TEXT PRIMARY KEY, account TEXT NOT NULL, sandbox TEXT NOT NULL, uid INTEGER NOT NULL,"
	" kind INTEGER NOT NULL, pid INTEGER NOT NULL, label TEXT NOT NULL,"
	" made_at_ms INTEGER NOT NULL, expires_at_ms INTEGER NOT NULL, identity INTEGER NOT NULL,"
	" boot_id TEXT NOT NULL, identity_value INTEGER NOT NULL) STRICT;"
	"CREATE TABLE event ("
	" number INTEGER PRIMARY KEY, seq INTEGER NOT NULL, uid INTEGER NOT NULL,"
	" at_ms INTEGER NOT NULL, type INTEGER NOT NULL, account TEXT NOT NULL,"
	" sandbox TEXT NOT NULL, name TEXT NOT NULL, reason INTEGER NOT NULL,"
	" state INTEGER NOT NULL, started_at_ms INTEGER NOT NULL, end_at_ms INTEGER NOT NULL,"
	" leases INTEGER NOT NULL, generation INTEGER NOT NULL, evidence TEXT NOT NULL) STRICT;"
	"CREATE UNIQUE INDEX event_of_uid ON event (uid, seq);"
	"INSERT INTO meta (key, value) VALUES ('incarnation', lower(hex(randomblob(6))));",
	/* commands and their request ids */
	"CREATE TABLE command ("
	" id TEXT PRIMARY KEY, uid INTEGER NOT NULL, account TEXT NOT NULL, sandbox TEXT NOT NULL,"
	" generation INTEGER NOT NULL, state INTEGER NOT NULL, flags INTEGER NOT NULL,"
	" pid INTEGER NOT NULL, shell TEXT NOT NULL, args BLOB NOT NULL, user TEXT NOT NULL,"
	" cwd TEXT NOT NULL, cols INTEGER NOT NULL, rows INTEGER NOT NULL,"
	" timeout_ms INTEGER NOT NULL, kill_grace_ms INTEGER NOT NULL, spool_limit INTEGER NOT NULL,"
	" boot TEXT NOT NULL,"
	" made_at_ms INTEGER NOT NULL, started_at_ms INTEGER NOT NULL,"
	" deadline_at_ms INTEGER NOT NULL, outcome INTEGER NOT NULL, exit_code INTEGER NOT NULL,"
	" reason INTEGER NOT NULL, signal TEXT NOT NULL, message TEXT NOT NULL,"
	" survivors BLOB NOT NULL, exited_at_ms INTEGER NOT NULL) STRICT;"
	"CREATE TABLE command_request ("
	" uid INTEGER NOT NULL, method TEXT NOT NULL, request_id TEXT NOT NULL,"
	" params_hash BLOB NOT NULL, command TEXT NOT NULL, used_at_ms INTEGER NOT NULL,"
	" PRIMARY KEY (uid, method, request_id)) STRICT;",
	/* forks and snapshots under way, snapshots, what is known of a sandbox's network */
	"ALTER TABLE sandbox ADD COLUMN network TEXT NOT NULL DEFAULT '';"
	"CREATE TABLE copy ("
	" seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, account TEXT NOT NULL, uid INTEGER NOT NULL,"
	" request_id TEXT NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL,"
	" policy TEXT NOT NULL, known TEXT NOT NULL, made_at_ms INTEGER NOT NULL) STRICT;"
	"CREATE TABLE snapshot ("
	" account TEXT NOT NULL, id TEXT NOT NULL, uid INTEGER NOT NULL, ours INTEGER NOT NULL,"
	" names TEXT NOT NULL, source TEXT NOT NULL, created_at_ms INTEGER NOT NULL,"
	" as_of_ms INTEGER NOT NULL, PRIMARY KEY (account, id)) STRICT;",
	/* what was sent, to send it again; what a sandbox takes the place of */
	"ALTER TABLE sandbox ADD COLUMN recipe BLOB NOT NULL DEFAULT x'';"
	"ALTER TABLE sandbox ADD COLUMN replaces TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE intent ADD COLUMN recipe BLOB NOT NULL DEFAULT x'';"
	"ALTER TABLE intent ADD COLUMN replaces TEXT NOT NULL DEFAULT '';",
};

const int schema_version = (int)ARRAY_SIZE(steps);

int schema_migrate(struct sqlite3 *db, int from)
{
	char version[48];
	int rc;

	for (int i = from; i < schema_version; i++) {
		snprintf(version, sizeof(version), "PRAGMA user_version = %d; COMMIT", i + 1);
		rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_exec(db, steps[i], NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_exec(db, version, NULL, NULL, NULL);
		if (rc != SQLITE_OK) {
			(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
			return rc;
		}
	}
	return SQLITE_OK;
}
