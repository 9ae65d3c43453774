/* SPDX-License-Identifier: MIT */
/*
 * Reading everything at start. Each value is checked for the range it was written in: the file may
 * have been changed by others or by a fault that left it a valid database. A row that cannot be
 * right goes to table `aside` as text; it is reported and never fatal.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/db.h"
#include "daemon/store/store.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"

struct reader {
	struct sqlite3_stmt *s;
	int col;
	const char *bad;	/* name of the first value that cannot be right */
};

static int64_t r_int(struct reader *r, const char *what, int64_t min, int64_t max)
{
	int64_t v = sqlite3_column_int64(r->s, r->col);

	if (!r->bad && (sqlite3_column_type(r->s, r->col) != SQLITE_INTEGER || v < min || v > max))
		r->bad = what;
	r->col++;
	return v;
}

static int64_t r_ms(struct reader *r, const char *what)
{
	return r_int(r, what, 0, INT64_MAX / 1000);
}

static const char *r_text(struct reader *r, const char *what, size_t min, size_t max)
{
	const char *s = (const char *)sqlite3_column_text(r->s, r->col);
	size_t n = (size_t)sqlite3_column_bytes(r->s, r->col);

	if (!r->bad && (!s || n < min || n > max || strlen(s) != n || !str_is_utf8(s, n)))
		r->bad = what;
	r->col++;
	return s ? s : "";
}

static const char *r_blob(struct reader *r, const char *what, size_t min, size_t max, size_t *ret_n)
{
	const char *p = sqlite3_column_blob(r->s, r->col);

	*ret_n = (size_t)sqlite3_column_bytes(r->s, r->col);
	if (!r->bad && (*ret_n < min || *ret_n > max || (*ret_n && !p)))
		r->bad = what;
	r->col++;
	return p;
}

#define TEXT_MAX 1024u
#define BLOB_MAX (1024u * 1024)
#define RECIPE_MAX (2 * BLOB_MAX)
#define UID_MAX	 0xfffffffell

static void read_sandbox(struct reader *r, const struct store_visitor *v)
{
	struct row_sandbox b = { 0 };

	b.account = r_text(r, "account", 1, TEXT_MAX);
	b.id = r_text(r, "id", 1, TEXT_MAX);
	b.name = r_text(r, "name", 0, TEXT_MAX);
	b.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	b.generation = (uint32_t)r_int(r, "generation", 0, UINT32_MAX);
	b.state = (int)r_int(r, "state", 1, 8);
	b.ours = r_int(r, "ours", 0, 1);
	b.adopted = r_int(r, "adopted", 0, 1);
	b.claimed = r_int(r, "claimed", 0, 1);
	b.unclaimed_at_ms = r_ms(r, "unclaimed_at_ms");
	b.seq = (uint64_t)r_int(r, "seq", 0, INT64_MAX);
	b.req_tag = r_text(r, "req_tag", 0, TEXT_MAX);
	b.template_id = r_text(r, "template_id", 0, TEXT_MAX);
	b.alias = r_text(r, "alias", 0, TEXT_MAX);
	b.metadata = r_blob(r, "metadata", 0, BLOB_MAX, &b.metadata_len);
	b.started_at_ms = r_ms(r, "started_at_ms");
	b.end_at_ms = r_ms(r, "end_at_ms");
	b.cpu_count = (uint32_t)r_int(r, "cpu_count", 0, UINT32_MAX);
	b.memory_mb = (uint32_t)r_int(r, "memory_mb", 0, UINT32_MAX);
	b.disk_size_mb = (uint32_t)r_int(r, "disk_size_mb", 0, UINT32_MAX);
	b.envd_version = r_text(r, "envd_version", 0, TEXT_MAX);
	b.domain = r_text(r, "domain", 0, TEXT_MAX);
	b.access_token = r_text(r, "access_token", 0, 4 * TEXT_MAX);
	b.traffic_token = r_text(r, "traffic_token", 0, 4 * TEXT_MAX);
	b.token_known = r_int(r, "token_known", 0, 1);
	b.allow_internet_access = (int)r_int(r, "allow_internet_access", -1, 1);
	b.on_timeout = (int)r_int(r, "on_timeout", 0, 2);
	b.keep_memory = (int)r_int(r, "keep_memory", -1, 1);
	b.auto_resume = (int)r_int(r, "auto_resume", -1, 1);
	b.policy = r_text(r, "policy", 0, TEXT_MAX);
	b.warning = r_text(r, "warning", 0, 4 * TEXT_MAX);
	b.as_of_ms = r_ms(r, "as_of_ms");
	b.gone_reason = (int)r_int(r, "gone_reason", 0, 1000);
	b.gone_at_ms = r_ms(r, "gone_at_ms");
	b.gone_evidence = r_text(r, "gone_evidence", 0, 4 * TEXT_MAX);
	b.released_at_ms = r_ms(r, "released_at_ms");
	b.used_at_ms = r_ms(r, "used_at_ms");
	b.timeout_s = (uint32_t)r_int(r, "timeout_s", 0, UINT32_MAX);
	b.network = r_text(r, "network", 0, BLOB_MAX);
	b.recipe = r_blob(r, "recipe", 0, RECIPE_MAX, &b.recipe_len);
	b.replaces = r_text(r, "replaces", 0, TEXT_MAX);
	if (!r->bad)
		v->sandbox(&b, v->user);
}

static void read_intent(struct reader *r, const struct store_visitor *v)
{
	struct row_intent i = { 0 };

	i.seq = (uint64_t)r_int(r, "seq", 1, INT64_MAX);
	i.kind = (int)r_int(r, "kind", ROW_INTENT_CREATE, ROW_INTENT_CREATE);
	i.state = (enum row_intent_state)r_int(r, "state", ROW_INTENT_OPEN, ROW_INTENT_SETTLING);
	i.account = r_text(r, "account", 1, TEXT_MAX);
	i.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	i.request_id = r_text(r, "request_id", 0, TEXT_MAX);
	i.req_tag = r_text(r, "req_tag", 1, TEXT_MAX);
	i.name = r_text(r, "name", 0, TEXT_MAX);
	i.generation = (uint32_t)r_int(r, "generation", 0, UINT32_MAX);
	i.template_id = r_text(r, "template_id", 0, TEXT_MAX);
	i.policy = r_text(r, "policy", 0, TEXT_MAX);
	i.claimed = r_int(r, "claimed", 0, 1);
	i.made_at_ms = r_ms(r, "made_at_ms");
	i.recipe = r_blob(r, "recipe", 0, RECIPE_MAX, &i.recipe_len);
	i.replaces = r_text(r, "replaces", 0, TEXT_MAX);
	if (!r->bad)
		v->intent(&i, v->user);
}

static void read_request(struct reader *r, const struct store_visitor *v)
{
	struct row_request q = { 0 };
	const char *hash;
	size_t n;

	q.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	q.method = r_text(r, "method", 1, TEXT_MAX);
	q.request_id = r_text(r, "request_id", 1, TEXT_MAX);
	hash = r_blob(r, "params_hash", ROW_HASH_BYTES, ROW_HASH_BYTES, &n);
	q.state = (enum row_request_state)r_int(r, "state", ROW_REQUEST_OPEN, ROW_REQUEST_UNKNOWN);
	q.account = r_text(r, "account", 1, TEXT_MAX);
	q.object = r_text(r, "object", q.state == ROW_REQUEST_DONE, 16 * TEXT_MAX);
	q.req_tag = r_text(r, "req_tag", 1, TEXT_MAX);
	q.used_at_ms = r_ms(r, "used_at_ms");
	if (r->bad)
		return;
	memcpy(q.params_hash, hash, ROW_HASH_BYTES);
	v->request(&q, v->user);
}

static void read_name(struct reader *r, const struct store_visitor *v)
{
	struct row_name m = { 0 };

	m.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	m.name = r_text(r, "name", 1, TEXT_MAX);
	m.account = r_text(r, "account", 0, TEXT_MAX);
	m.id = r_text(r, "id", 0, TEXT_MAX);
	m.generation = (uint32_t)r_int(r, "generation", 0, UINT32_MAX);
	if (!r->bad)
		v->name(&m, v->user);
}

static void read_lease(struct reader *r, const struct store_visitor *v)
{
	struct row_lease l = { 0 };

	l.id = r_text(r, "id", 1, TEXT_MAX);
	l.account = r_text(r, "account", 1, TEXT_MAX);
	l.sandbox = r_text(r, "sandbox", 1, TEXT_MAX);
	l.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	l.kind = (enum row_lease_kind)r_int(r, "kind", ROW_LEASE_STREAM, ROW_LEASE_TTL);
	l.pid = r_int(r, "pid", 0, INT32_MAX);
	l.label = r_text(r, "label", 0, TEXT_MAX);
	l.made_at_ms = r_ms(r, "made_at_ms");
	l.expires_at_ms = r_ms(r, "expires_at_ms");
	l.identity = (int)r_int(r, "identity", 0, 100);
	l.boot_id = r_text(r, "boot_id", 0, TEXT_MAX);
	l.identity_value = (uint64_t)r_int(r, "identity_value", 0, INT64_MAX);
	if (!r->bad)
		v->lease(&l, v->user);
}

static void read_event(struct reader *r, const struct store_visitor *v)
{
	struct row_event e = { 0 };

	e.number = (uint64_t)r_int(r, "number", 1, INT64_MAX);
	e.seq = (uint64_t)r_int(r, "seq", 1, INT64_MAX);
	e.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	e.at_ms = r_ms(r, "at_ms");
	e.type = (int)r_int(r, "type", 1, 100);
	e.account = r_text(r, "account", 1, TEXT_MAX);
	e.sandbox = r_text(r, "sandbox", 1, TEXT_MAX);
	e.name = r_text(r, "name", 0, TEXT_MAX);
	e.reason = (int)r_int(r, "reason", 0, 1000);
	e.state = (int)r_int(r, "state", 0, 8);
	e.started_at_ms = r_ms(r, "started_at_ms");
	e.end_at_ms = r_ms(r, "end_at_ms");
	e.leases = (uint32_t)r_int(r, "leases", 0, UINT32_MAX);
	e.generation = (uint32_t)r_int(r, "generation", 0, UINT32_MAX);
	e.evidence = r_text(r, "evidence", 0, 4 * TEXT_MAX);
	if (!r->bad)
		v->event(&e, v->user);
}

static void read_command(struct reader *r, const struct store_visitor *v)
{
	struct row_command c = { 0 };

	c.id = r_text(r, "id", 2, 32);
	c.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	c.account = r_text(r, "account", 1, TEXT_MAX);
	c.sandbox = r_text(r, "sandbox", 1, TEXT_MAX);
	c.generation = (uint32_t)r_int(r, "generation", 0, UINT32_MAX);
	c.state = (enum row_command_state)r_int(r, "state", ROW_COMMAND_INTENT, ROW_COMMAND_ENDED);
	c.flags = (uint32_t)r_int(r, "flags", 0, ROW_COMMAND_FLAGS);
	c.pid = (uint32_t)r_int(r, "pid", c.state == ROW_COMMAND_RUNNING, UINT32_MAX);
	c.shell = r_text(r, "shell", 0, BLOB_MAX);
	c.args = r_blob(r, "args", 0, BLOB_MAX, &c.args_len);
	c.user = r_text(r, "user", 0, BLOB_MAX);
	c.cwd = r_text(r, "cwd", 0, BLOB_MAX);
	c.cols = (uint32_t)r_int(r, "cols", 0, UINT16_MAX);
	c.rows = (uint32_t)r_int(r, "rows", 0, UINT16_MAX);
	c.timeout_ms = (uint64_t)r_ms(r, "timeout_ms");
	c.kill_grace_ms = (uint64_t)r_ms(r, "kill_grace_ms");
	c.spool_limit = (uint64_t)r_int(r, "spool_limit", 0, INT64_MAX);
	c.boot = r_text(r, "boot", 0, TEXT_MAX);
	c.made_at_ms = r_ms(r, "made_at_ms");
	c.started_at_ms = r_ms(r, "started_at_ms");
	c.deadline_at_ms = r_ms(r, "deadline_at_ms");
	c.outcome = (int)r_int(r, "outcome", c.state == ROW_COMMAND_ENDED, 5);
	c.exit_code = (int)r_int(r, "exit_code", INT32_MIN, INT32_MAX);
	c.reason = (int)r_int(r, "reason", 0, 1000);
	c.signal = r_text(r, "signal", 0, TEXT_MAX);
	c.message = r_text(r, "message", 0, 4 * TEXT_MAX);
	c.survivors = r_blob(r, "survivors", 0, 4 * TEXT_MAX, &c.survivors_len);
	c.exited_at_ms = r_ms(r, "exited_at_ms");
	if (!r->bad && c.args_len && c.args[c.args_len - 1])
		r->bad = "args";
	if (!r->bad)
		v->command(&c, v->user);
}

static void read_command_request(struct reader *r, const struct store_visitor *v)
{
	struct row_command_request q = { 0 };
	const char *hash;
	size_t n;

	q.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	q.method = r_text(r, "method", 1, TEXT_MAX);
	q.request_id = r_text(r, "request_id", 1, TEXT_MAX);
	hash = r_blob(r, "params_hash", ROW_HASH_BYTES, ROW_HASH_BYTES, &n);
	q.command = r_text(r, "command", 2, 32);
	q.used_at_ms = r_ms(r, "used_at_ms");
	if (r->bad)
		return;
	memcpy(q.params_hash, hash, ROW_HASH_BYTES);
	v->command_request(&q, v->user);
}

static void read_copy(struct reader *r, const struct store_visitor *v)
{
	struct row_copy c = { 0 };

	c.seq = (uint64_t)r_int(r, "seq", 1, INT64_MAX);
	c.kind = (enum row_copy_kind)r_int(r, "kind", ROW_COPY_FORK, ROW_COPY_SNAPSHOT);
	c.account = r_text(r, "account", 1, TEXT_MAX);
	c.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	c.request_id = r_text(r, "request_id", 0, TEXT_MAX);
	c.source = r_text(r, "source", 1, TEXT_MAX);
	c.name = r_text(r, "name", 0, TEXT_MAX);
	c.count = (uint32_t)r_int(r, "count", 1, 1000);
	c.policy = r_text(r, "policy", 0, TEXT_MAX);
	c.known = r_text(r, "known", 0, 4 * BLOB_MAX);
	c.made_at_ms = r_ms(r, "made_at_ms");
	if (!r->bad)
		v->copy(&c, v->user);
}

static void read_snapshot(struct reader *r, const struct store_visitor *v)
{
	struct row_snapshot s = { 0 };

	s.account = r_text(r, "account", 1, TEXT_MAX);
	s.id = r_text(r, "id", 1, TEXT_MAX);
	s.uid = (uid_t)r_int(r, "uid", 0, UID_MAX);
	s.ours = r_int(r, "ours", 0, 1);
	s.names = r_text(r, "names", 0, BLOB_MAX);
	s.source = r_text(r, "source", 0, TEXT_MAX);
	s.created_at_ms = r_ms(r, "created_at_ms");
	s.as_of_ms = r_ms(r, "as_of_ms");
	if (!r->bad)
		v->snapshot(&s, v->user);
}

static const struct table {
	const char *name;
	size_t fn;	/* of the visitor */
	void (*read)(struct reader *r, const struct store_visitor *v);
} tables[] = {
	{ "sandbox", offsetof(struct store_visitor, sandbox), read_sandbox },
	{ "intent", offsetof(struct store_visitor, intent), read_intent },
	{ "request", offsetof(struct store_visitor, request), read_request },
	{ "name", offsetof(struct store_visitor, name), read_name },
	{ "lease", offsetof(struct store_visitor, lease), read_lease },
	{ "event", offsetof(struct store_visitor, event), read_event },
	{ "command", offsetof(struct store_visitor, command), read_command },
	{ "command_request", offsetof(struct store_visitor, command_request), read_command_request },
	{ "copy", offsetof(struct store_visitor, copy), read_copy },
	{ "snapshot", offsetof(struct store_visitor, snapshot), read_snapshot },
};

/* The row as quoted text, so that a person can read what was there; secrets stay in this file. */
static int set_aside(struct db *db, const struct table *t, struct reader *r, int64_t rowid)
{
	char *body = NULL, *sql;
	int rc, n = sqlite3_column_count(r->s);

	for (int i = 0; i < n - 1; i++) {
		char *more = sqlite3_mprintf("%s%s=%Q ", body ? body : "", sqlite3_column_name(r->s, i),
					     (const char *)sqlite3_column_text(r->s, i));
		sqlite3_free(body);
		body = more;
	}
	log_warn("store_row_aside", "table=%s rowid=%lld value=%s", t->name, (long long)rowid, r->bad);
	sql = sqlite3_mprintf("INSERT INTO aside (tbl, why, body) VALUES (%Q, %Q, %Q);"
			      "DELETE FROM \"%w\" WHERE rowid = %lld",
			      t->name, r->bad, body ? body : "", t->name, (long long)rowid);
	rc = sql ? db_exec(db, sql) : SQLITE_NOMEM;
	sqlite3_free(sql);
	sqlite3_free(body);
	return rc;
}

static int set_aside_by_rowid(struct db *db, const struct table *t, int64_t rowid)
{
	static const struct store_visitor nobody = { 0 };
	struct reader r = { 0 };
	char sql[96];
	int rc;

	snprintf(sql, sizeof(sql), "SELECT *, rowid FROM %s WHERE rowid = %lld", t->name,
		 (long long)rowid);
	rc = sqlite3_prepare_v2(db->sql, sql, -1, &r.s, NULL);
	if (rc == SQLITE_OK && sqlite3_step(r.s) == SQLITE_ROW) {
		t->read(&r, &nobody); /* to know again what was wrong */
		rc = set_aside(db, t, &r, rowid);
	}
	(void)sqlite3_finalize(r.s);
	return rc;
}

/* Two passes: rows must not be deleted under the statement that reads them. */
static int load_table(struct db *db, const struct table *t, const struct store_visitor *v,
		      unsigned *aside)
{
	scoped(buf_fini) struct buf bad = BUF_NULL;
	struct reader r = { 0 };
	char sql[96];
	int64_t rowid;
	int rc;

	snprintf(sql, sizeof(sql), "SELECT *, rowid FROM %s ORDER BY rowid", t->name);
	rc = sqlite3_prepare_v2(db->sql, sql, -1, &r.s, NULL);
	if (rc != SQLITE_OK)
		return rc;
	while ((rc = sqlite3_step(r.s)) == SQLITE_ROW) {
		r.col = 0;
		r.bad = NULL;
		t->read(&r, v);
		if (!r.bad)
			continue;
		rowid = sqlite3_column_int64(r.s, sqlite3_column_count(r.s) - 1);
		if (buf_put(&bad, &rowid, sizeof(rowid)) < 0)
			break;
		++*aside;
	}
	(void)sqlite3_finalize(r.s);
	if (!buf_len(&bad))
		return rc;
	/* Where it cannot be set aside (disk full), it stays and is skipped again next time. */
	if (db_exec(db, "BEGIN IMMEDIATE") != SQLITE_OK)
		return rc;
	for (; buf_len(&bad); buf_drop(&bad, sizeof(rowid))) {
		memcpy(&rowid, buf_data(&bad), sizeof(rowid));
		if (set_aside_by_rowid(db, t, rowid) != SQLITE_OK)
			log_warn("store_row_aside", "table=%s rowid=%lld error=%s ignoring=1",
				 t->name, (long long)rowid, log_q(sqlite3_errmsg(db->sql)));
	}
	if (db_exec(db, "COMMIT") != SQLITE_OK && db_exec(db, "ROLLBACK") != SQLITE_OK)
		return SQLITE_IOERR;
	return rc;
}

static bool is_wanted(const struct store_visitor *v, const struct table *t)
{
	void (*fn)(void);

	memcpy(&fn, (const char *)v + t->fn, sizeof(fn));
	return fn;
}

int db_load(struct db *db, const struct store_visitor *v, unsigned *ret_aside)
{
	*ret_aside = 0;
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (is_wanted(v, &tables[i]) &&
		    load_table(db, &tables[i], v, ret_aside) != SQLITE_DONE) {
			log_error("store_load", "table=%s error=%s", tables[i].name,
				  log_q(sqlite3_errmsg(db->sql)));
			return -EIO;
		}
	return 0;
}
