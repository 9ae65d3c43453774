/* SPDX-License-Identifier: MIT */
#include "daemon/store/change.h"

#include <sqlite3.h>
#include <string.h>

#include "proto/base/must.h"

enum tag { TAG_END, TAG_BEGIN, TAG_INT, TAG_TEXT, TAG_BLOB };

const char *const stmt_sql[STMT_N] = {
	[STMT_PUT_SANDBOX] =
		"INSERT OR REPLACE INTO sandbox (account, id, name, uid, generation, state, ours,"
		" adopted, claimed, unclaimed_at_ms, seq, req_tag, template_id, alias, metadata,"
		" started_at_ms, end_at_ms, cpu_count, memory_mb, disk_size_mb, envd_version,"
		" domain, access_token, traffic_token, token_known, allow_internet_access,"
		" on_timeout, keep_memory, auto_resume, policy, warning, as_of_ms, gone_reason, gone_at_ms,"
		" gone_evidence, released_at_ms, used_at_ms, timeout_s, network, recipe, replaces)"
		" VALUES (?,?,?,?,?,?,?,?,?,?,?,?,"
		"?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	[STMT_DEL_SANDBOX] = "DELETE FROM sandbox WHERE account = ? AND id = ?",
	[STMT_PUT_INTENT] =
		"INSERT OR REPLACE INTO intent (seq, kind, state, account, uid, request_id, req_tag,"
		" name, generation, template_id, policy, claimed, made_at_ms, recipe, replaces)"
		" VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	[STMT_DEL_INTENT] = "DELETE FROM intent WHERE seq = ?",
	[STMT_PUT_REQUEST] =
		("INSERT OR REPLACE INTO request (uid, method, request_id, params_hash, state, account,"
		 " object, req_tag, used_at_ms) VALUES (?,?,?,?,?,?,?,?,?)"),
	[STMT_DEL_REQUEST] = "DELETE FROM request WHERE uid = ? AND method = ? AND request_id = ?",
	[STMT_PUT_NAME] =
		"INSERT OR REPLACE INTO name (uid, name, account, id, generation) VALUES (?,?,?,?,?)",
	[STMT_DEL_NAME] = "DELETE FROM name WHERE uid = ? AND name = ?",
	[STMT_PUT_LEASE] =
		"INSERT OR REPLACE INTO lease (id, account, sandbox, uid, kind, pid, label, made_at_ms,"
		" expires_at_ms, identity, boot_id, identity_value) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
	[STMT_DEL_LEASE] = "DELETE FROM lease WHERE id = ?",
	[STMT_PUT_EVENT] =
		"INSERT OR REPLACE INTO event (number, seq, uid, at_ms, type, account, sandbox, name,"
		" reason, state, started_at_ms, end_at_ms, leases, generation, evidence)"
		" VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	[STMT_DEL_EVENTS] = "DELETE FROM event WHERE uid = ? AND seq <= ?",
	[STMT_PUT_COMMAND] =
		("INSERT OR REPLACE INTO command (id, uid, account, sandbox, generation, state, flags, pid,"
		 " shell, args, user, cwd, cols, rows, timeout_ms, kill_grace_ms, spool_limit,"
		 " boot, made_at_ms, started_at_ms, deadline_at_ms, outcome,"
		 " exit_code, reason, signal, message, survivors, exited_at_ms)"
		 " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"),
	[STMT_DEL_COMMAND] = "DELETE FROM command WHERE id = ?",
	[STMT_PUT_COMMAND_REQUEST] =
		"INSERT OR REPLACE INTO command_request (uid, method, request_id, params_hash, command,"
		" used_at_ms) VALUES (?,?,?,?,?,?)",
	[STMT_DEL_COMMAND_REQUEST] =
		"DELETE FROM command_request WHERE uid = ? AND method = ? AND request_id = ?",
	[STMT_PUT_COPY] =
		"INSERT OR REPLACE INTO copy (seq, kind, account, uid, request_id, source, name, count,"
		" policy, known, made_at_ms) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
	[STMT_DEL_COPY] = "DELETE FROM copy WHERE seq = ?",
	[STMT_PUT_SNAPSHOT] =
		"INSERT OR REPLACE INTO snapshot (account, id, uid, ours, names, source, created_at_ms,"
		" as_of_ms) VALUES (?,?,?,?,?,?,?,?)",
	[STMT_DEL_SNAPSHOT] = "DELETE FROM snapshot WHERE account = ? AND id = ?",
	[STMT_PUT_META] = "INSERT OR REPLACE INTO meta (key, value) VALUES (?,?)",
	[STMT_RAISE_META] =
		("INSERT INTO meta (key, value) VALUES (?,?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
		 " WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER)"),
};

static void change_put(struct changes *c, enum tag tag, const void *p, size_t n)
{
	uint8_t t = (uint8_t)tag;

	if (c->failed)
		return;
	if (buf_put(&c->buf, &t, 1) < 0 || buf_put(&c->buf, p, n) < 0)
		c->failed = true;
}

static void put_bytes(struct changes *c, enum tag tag, const void *p, size_t n)
{
	uint32_t len = (uint32_t)n;

	must(n < UINT32_MAX);
	change_put(c, tag, &len, sizeof(len));
	if (!c->failed && n && buf_put(&c->buf, p, n) < 0)
		c->failed = true;
}

void change_begin(struct changes *c, enum stmt_id id)
{
	uint8_t b = (uint8_t)id;

	change_put(c, TAG_BEGIN, &b, 1);
}

void change_int(struct changes *c, int64_t v)
{
	change_put(c, TAG_INT, &v, sizeof(v));
}

void change_text(struct changes *c, const char *s)
{
	put_bytes(c, TAG_TEXT, s, s ? strlen(s) : 0);
}

void change_blob(struct changes *c, const void *p, size_t n)
{
	put_bytes(c, TAG_BLOB, p, n);
}

bool change_next(struct change_reader *r, enum stmt_id *ret_id)
{
	if (r->p == r->end)
		return false;
	must(r->end - r->p >= 2 && r->p[0] == TAG_BEGIN && r->p[1] < STMT_N);
	*ret_id = (enum stmt_id)r->p[1];
	r->p += 2;
	return true;
}

static const char *take_bytes(struct change_reader *r, uint32_t *ret_n)
{
	const char *p;

	memcpy(ret_n, r->p + 1, sizeof(*ret_n));
	p = (const char *)r->p + 1 + sizeof(*ret_n);
	r->p += 1 + sizeof(*ret_n) + *ret_n;
	return p;
}

/* The buffer outlives the step, so SQLite may look at the bytes where they are. */
void change_bind(struct change_reader *r, struct sqlite3_stmt *s)
{
	const char *p;
	int64_t v;
	uint32_t n;
	int rc;

	for (int i = 1; r->p < r->end && r->p[0] != TAG_BEGIN; i++) {
		switch ((enum tag)r->p[0]) {
		case TAG_INT:
			memcpy(&v, r->p + 1, sizeof(v));
			r->p += 1 + sizeof(v);
			rc = sqlite3_bind_int64(s, i, v);
			break;
		case TAG_TEXT:
			p = take_bytes(r, &n);
			rc = sqlite3_bind_text(s, i, p, (int)n, SQLITE_STATIC);
			break;
		default:
			must(r->p[0] == TAG_BLOB);
			p = take_bytes(r, &n);
			rc = n ? sqlite3_bind_blob(s, i, p, (int)n, SQLITE_STATIC)
			       : sqlite3_bind_zeroblob(s, i, 0);
			break;
		}
		must(rc == SQLITE_OK || rc == SQLITE_NOMEM);
	}
}
