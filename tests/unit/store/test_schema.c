/* SPDX-License-Identifier: MIT */
/* Databases of every older version become what a new one is, and keep their rows. */
#include "daemon/store/schema.h"

#include <sqlite3.h>
#include <stdlib.h>

#include "daemon/store/sql.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

/* The steps of 0.1.0, as they were: version n is made by the first n. */
static const char *const frozen[] = {
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

static struct sqlite3 *memory_db(void)
{
	struct sqlite3 *db;

	CHECK_INT(sqlite3_open(":memory:", &db), SQLITE_OK);
	return db;
}

static void run(struct sqlite3 *db, const char *sql)
{
	char *why = NULL;

	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
		printf("%s: %s\n", sql, why);
	CHECK(!why);
}

static struct sqlite3 *old_db(int version)
{
	struct sqlite3 *db = memory_db();
	char text[48];

	for (int i = 0; i < version; i++)
		run(db, frozen[i]);
	snprintf(text, sizeof(text), "PRAGMA user_version = %d", version);
	run(db, text);
	return db;
}

/* Everything a query says, one value a line. */
static char *ask(struct sqlite3 *db, const char *sql)
{
	scoped(buf_fini) struct buf b = BUF_NULL;
	struct sqlite3_stmt *s;

	CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
	while (sqlite3_step(s) == SQLITE_ROW)
		for (int i = 0; i < sqlite3_column_count(s); i++)
			CHECK(!buf_printf(&b, "%s\n", sqlite3_column_text(s, i)));
	CHECK_INT(sqlite3_finalize(s), SQLITE_OK);
	return buf_take_str(&b);
}

static void check_says(struct sqlite3 *db, const char *sql, const char *want)
{
	char *got = ask(db, sql);

	CHECK_STR(got, want);
	free(got);
}

/* `aside` is where 0.1.0 put rows that it refused: left where it is, and used no more. */
static const char shape[] = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name <> 'aside' ORDER BY name;";

static void insert(struct sqlite3 *db, enum row_table table, const char *values)
{
	char *sql = str_printf("INSERT INTO %s VALUES (%s)", store_tables[table].name, values);

	run(db, sql);
	free(sql);
}

/* One row of each table that the version has, by its own order of columns. */
static void fill(struct sqlite3 *db, int version)
{
	const char *late = version < 2 ? "" : version < 4 ? ", 11, 12, 13" : version < 5 ? ", 11, 12, 13, '{}'" :
			   ", 11, 12, 13, '{}', x'0102', 'iold'";
	char *sandbox = str_printf("'default', 'iaaa', 'box', 1000, 3, 2, 1, 0, 1, 0, 5, 'tag', 'base', 'al', x'6b007600',"
				   " 100, 200, 2, 512, 1024, 'v1', 'd', 'tok', 'ttok', 1, -1, 2, -1, 1, 'p', 'w', 300, 0,"
				   " 0, ''%s", late);

	insert(db, ROW_TABLE_sandbox, sandbox);
	insert(db, ROW_TABLE_intent, version < 5 ? "7, 1, 1, 'default', 1000, 'r', 'tag', 'n', 1, 't', 'p', 1, 400" :
						   "7, 1, 1, 'default', 1000, 'r', 'tag', 'n', 1, 't', 'p', 1, 400, x'', ''");
	insert(db, ROW_TABLE_request, "1000, 'Create', 'r', zeroblob(32), 2, 'default', 'iaaa', 'tag', 500");
	insert(db, ROW_TABLE_name, "1000, 'box', 'default', 'iaaa', 3");
	run(db, "INSERT INTO meta (key, value) VALUES ('host_seq', '4096')");
	if (version >= 2) {
		insert(db, ROW_TABLE_lease, "'lx', 'default', 'iaaa', 1000, 2, 77, 'label', 600, 0, 1, 'boot', 99");
		insert(db, ROW_TABLE_event, "9, 4, 1000, 700, 1, 'default', 'iaaa', 'box', 0, 2, 100, 200, 1, 3, 'by=user'");
	}
	if (version >= 3) {
		insert(db, ROW_TABLE_command, "'cx', 1000, 'default', 'iaaa', 3, 2, 1, 88, '', x'6100', 'u', '/', 80, 24, 0, 1,"
					      " 2, 'boot', 800, 801, 0, 0, 0, 0, '', '', x'', 0");
		insert(db, ROW_TABLE_command_request, "1000, 'Run', 'r', zeroblob(32), 'cx', 900");
	}
	if (version >= 4) {
		insert(db, ROW_TABLE_copy, "8, 1, 'default', 1000, 'r2', 'iaaa', '', 2, 'p', 'a', 950");
		insert(db, ROW_TABLE_snapshot, "'default', 'sx', 1000, 1, 'n1', 'iaaa', 960, 970");
	}
	free(sandbox);
}

/* C-4, HOUSE 2.1: 5 is what b4401d2 wrote. */
TEST(every_version_becomes_a_new_one)
{
	struct sqlite3 *fresh = memory_db();
	char *want;

	CHECK_INT(schema_migrate(fresh, 0), SQLITE_OK);
	want = ask(fresh, shape);
	CHECK(strstr(want, "CREATE TABLE sandbox (account TEXT NOT NULL, id TEXT NOT NULL"));
	for (int version = 1; version <= (int)ARRAY_SIZE(frozen); version++) {
		struct sqlite3 *old = old_db(version);

		CHECK_INT(schema_migrate(old, version), SQLITE_OK);
		check_says(old, shape, want);
		check_says(old, "PRAGMA user_version", "14\n");
		check_says(old, "PRAGMA application_id", "1097294456\n");
		check_says(old, "SELECT length(value) FROM meta WHERE key = 'incarnation'", "12\n");
		CHECK_INT(sqlite3_close(old), SQLITE_OK);
	}
	check_says(fresh, "SELECT length(value) FROM meta WHERE key = 'incarnation'", "12\n");
	free(want);
	sqlite3_close(fresh);
}

/* Every row is read again, and what its version did not know is unknown. */
TEST(rows_survive)
{
	for (int version = 1; version <= (int)ARRAY_SIZE(frozen); version++) {
		struct sqlite3 *db = old_db(version);
		unsigned tables = 0;

		fill(db, version);
		run(db, "INSERT INTO aside VALUES ('sandbox', 'alias', 'id=x')");
		CHECK_INT(schema_migrate(db, version), SQLITE_OK);
		for (size_t t = 0; t < ROW_TABLES; t++) {
			char *sql = sql_select(&store_tables[t]);
			struct sqlite3_stmt *s;
			struct row_check check;
			union row row;

			CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
			while (sqlite3_step(s) == SQLITE_ROW) {
				sql_read(s, &store_tables[t], &row, &check);
				CHECK(!check.refused && !check.replaced);
				tables++;
			}
			CHECK_INT(sqlite3_finalize(s), SQLITE_OK);
			free(sql);
		}
		CHECK_INT(tables, version < 2 ? 4 : version < 3 ? 6 : version < 4 ? 8 : 10);
		check_says(db, "SELECT id, generation, hex(metadata), access_token, auto_resume, as_of_ms FROM sandbox",
			   "iaaa\n3\n6B007600\ntok\n1\n300\n");
		check_says(db, "SELECT released_at_ms, used_at_ms, timeout_s, network, hex(recipe), replaces FROM sandbox",
			   version < 2 ? "0\n0\n0\n\n\n\n" : version < 4 ? "11\n12\n13\n\n\n\n" :
			   version < 5 ? "11\n12\n13\n{}\n\n\n" : "11\n12\n13\n{}\n0102\niold\n");
		check_says(db, "SELECT value FROM meta WHERE key = 'host_seq'", "4096\n");
		check_says(db, "SELECT tbl, why, body FROM aside", "sandbox\nalias\nid=x\n");
		CHECK_INT(sqlite3_close(db), SQLITE_OK);
	}
}

/* 8 had no sandboxes that were ready before they were asked for: what it knows was made by a Create. */
TEST(version_8_knows_no_warm_ones)
{
	static const char *const columns[] = { "warm", "warm_state", "warm_print", "warm_at_ms", "asked_end_at_ms" };
	struct sqlite3 *db = memory_db();
	char *want;

	CHECK_INT(schema_migrate(db, 0), SQLITE_OK);
	want = ask(db, shape);
	run(db, "DROP TABLE warm; PRAGMA user_version = 8");
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		char *sql = str_printf("ALTER TABLE sandbox DROP COLUMN %s", columns[i]);

		run(db, sql);
		free(sql);
	}
	run(db, "INSERT INTO sandbox VALUES ('default', 'iaaa', 'box', 1000, 3, 2, 1, 0, 1, 0, 5, 'tag', 'base', 'al', x'', 100, 200,"
		" 2, 512, 1024, 'v1', 'd', 'tok', 'ttok', 1, -1, 2, -1, 1, 'p', 'w', 300, 0, 0, '', 11, 12, 13, '{}', x'', '', '')");
	CHECK_INT(schema_migrate(db, 8), SQLITE_OK);
	check_says(db, shape, want);
	check_says(db, "SELECT id, warm, warm_at_ms, asked_end_at_ms FROM sandbox", "iaaa\n\n0\n0\n");
	free(want);
	sqlite3_close(db);
}

/* 9 had tokens that said nothing of warm ones. */
TEST(tokens_of_version_9_say_nothing_of_warm_ones)
{
	struct sqlite3 *db = memory_db();
	char *want;

	CHECK_INT(schema_migrate(db, 0), SQLITE_OK);
	want = ask(db, shape);
	run(db, "ALTER TABLE gateway_token DROP COLUMN warm; ALTER TABLE gateway_token DROP COLUMN policy; DROP TABLE owner; PRAGMA user_version = 9");
	run(db, "INSERT INTO gateway_token VALUES ('tx', 1000, zeroblob(32), 'label', 100, 0, 'iaaa', 77, 1, 'boot', 99, 3)");
	CHECK_INT(schema_migrate(db, 9), SQLITE_OK);
	check_says(db, shape, want);
	check_says(db, "SELECT id, pid, on_release, warm FROM gateway_token", "tx\n77\n3\n0\n");
	free(want);
	sqlite3_close(db);
}

/* 10 and 11 had tokens without a policy. */
TEST(tokens_of_version_10_have_no_policy)
{
	struct sqlite3 *db = memory_db();
	char *want;

	CHECK_INT(schema_migrate(db, 0), SQLITE_OK);
	want = ask(db, shape);
	run(db, "ALTER TABLE gateway_token DROP COLUMN policy; DROP TABLE owner; PRAGMA user_version = 10");
	run(db, "INSERT INTO gateway_token VALUES ('tx', 1000, zeroblob(32), 'label', 100, 0, 'iaaa', 77, 1, 'boot', 99, 3, 2)");
	CHECK_INT(schema_migrate(db, 10), SQLITE_OK);
	check_says(db, shape, want);
	check_says(db, "SELECT id, pid, warm, policy FROM gateway_token", "tx\n77\n2\n\n");
	free(want);
	sqlite3_close(db);
}

/* 12 knew owners by their uid alone; those of a service wait for the first name. */
TEST(version_12_knows_no_names_of_owners)
{
	struct sqlite3 *db = memory_db();
	char *want;

	CHECK_INT(schema_migrate(db, 0), SQLITE_OK);
	check_says(db, "SELECT count(*) FROM owner", "0\n");
	want = ask(db, shape);
	run(db, "DROP TABLE owner; PRAGMA user_version = 12");
	run(db, "INSERT INTO name VALUES (1000, 'a', 'default', 'iaaa', 1), (61184, 'b', 'default', 'ibbb', 1),"
		" (65519, 'c', 'default', 'iccc', 1), (65520, 'd', 'default', 'iddd', 1)");
	run(db, "INSERT INTO request VALUES (61184, 'Create', 'r', zeroblob(32), 1, 'default', '', '', 5),"
		" (61500, 'Create', 'r', zeroblob(32), 1, 'default', '', '', 5)");
	CHECK_INT(schema_migrate(db, 12), SQLITE_OK);
	check_says(db, shape, want);
	check_says(db, "SELECT number, uid, name, state FROM owner ORDER BY number",
		   "61184\n61184\n\n3\n61500\n61500\n\n3\n65519\n65519\n\n3\n");
	CHECK_INT(schema_migrate(db, 13), SQLITE_OK);
	free(want);
	sqlite3_close(db);
}

/* 13 did not know whose templates are. */
TEST(version_13_knows_no_templates)
{
	struct sqlite3 *db = memory_db();
	char *want;

	CHECK_INT(schema_migrate(db, 0), SQLITE_OK);
	want = ask(db, shape);
	run(db, "DROP TABLE template; PRAGMA user_version = 13");
	run(db, "INSERT INTO name VALUES (1000, 'a', 'default', 'iaaa', 1)");
	CHECK_INT(schema_migrate(db, 13), SQLITE_OK);
	check_says(db, shape, want);
	check_says(db, "SELECT count(*) FROM template", "0\n");
	check_says(db, "SELECT id FROM name", "iaaa\n");
	free(want);
	sqlite3_close(db);
}

/* A step that fails leaves the old database as it was. */
TEST(a_migration_is_whole_or_not_there)
{
	struct sqlite3 *db = old_db(5);
	char *before, *after;

	fill(db, 5);
	run(db, "CREATE TABLE old (x)"); /* in the way */
	before = ask(db, "SELECT sql FROM sqlite_schema");
	CHECK(schema_migrate(db, 5) != SQLITE_OK);
	after = ask(db, "SELECT sql FROM sqlite_schema");
	CHECK_STR(after, before);
	check_says(db, "PRAGMA user_version", "5\n");
	check_says(db, "SELECT id FROM sandbox", "iaaa\n");
	free(before);
	free(after);
	sqlite3_close(db);
}

TEST_MAIN()
