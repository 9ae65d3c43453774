/* SPDX-License-Identifier: MIT */
/*
 * The face of the store and its writer. On the loop thread: everything but write_batch() and what it
 * calls. `db` belongs to the loop until store_start() and after the worker was joined.
 */
#include "daemon/store/store.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ev/worker.h"
#include "daemon/obs/log.h"
#include "daemon/store/db.h"
#include "daemon/store/dir.h"
#include "daemon/store/hostid.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define STORE_MAGIC	0x53746f72u
#define STORE_GATHER_US 2000u	/* commits that arrive within it share one sync */

struct store {
	uint32_t magic;
	struct loop *loop;
	struct state_dir dir;
	struct db db;
	struct worker *worker;
	struct hostid id;
	bool reserving, muted;
	struct status health;
	char incarnation[33];
};

struct store_tx {
	struct job job;
	struct store *store;
	struct changes changes;
	bool durable;
	uint64_t reserve;	/* not 0: write this into host-id instead */
	int rc, sys_errno;	/* outcome, set by the writer */
	store_done_fn *done;
	void *user;
};

/* --- opening --- */

static int load_hostid(struct store *s, struct store_report *report)
{
	char *host = NULL, *seq = NULL;
	int r = hostid_read(&s->dir, &s->id);

	if (r == -EBADMSG || r == -ENOENT) {
		/* The copy in the database: sandboxes tagged with the old id stay ours. */
		host = db_get_meta(&s->db, "host_id");
		seq = db_get_meta(&s->db, "host_seq");
		if (host && hostid_is_valid(host))
			(void)str_copy(s->id.host, sizeof(s->id.host), host);
		else
			rng_id(s->id.host, HOSTID_LEN);
		if (!seq || str_u64(seq, strlen(seq), INT64_MAX / 2, &s->id.reserved) < 0)
			s->id.reserved = 0;
		s->id.next = s->id.reserved + 1;
		if (r == -EBADMSG || host)
			log_warn("host_id", "state_dir=%s file=%s host=%s from=%s", log_q(s->dir.path),
				 r == -EBADMSG ? "unreadable" : "missing", s->id.host,
				 host ? "database" : "new");
		free(host);
		free(seq);
		r = 0;
	}
	if (r < 0) {
		snprintf(report->why, sizeof(report->why), "%s/host-id: %s", s->dir.path,
			 strerrordesc_np(-r));
		return STORE_BROKEN;
	}
	return 0;
}

static void load_incarnation(struct store *s)
{
	char *text = db_get_meta(&s->db, "incarnation");

	/* The schema wrote it. Without one, cursors are good until the next start. */
	if (!text || !text[0] || !str_copy(s->incarnation, sizeof(s->incarnation), text))
		rng_id(s->incarnation, 12);
	free(text);
}

/* A full or read-only disk is no reason not to start: what is there is served, and kills work. */
static void reserve_first_block(struct store *s)
{
	uint64_t up_to = s->id.next - 1 + HOSTID_BLOCK;
	char text[24];
	struct changes c = { 0 };
	int r;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)up_to);
	change_begin(&c, STMT_PUT_META);
	change_text(&c, "host_id");
	change_text(&c, s->id.host);
	change_begin(&c, STMT_PUT_META);
	change_text(&c, "host_seq");
	change_text(&c, text);
	if (db_apply(&s->db, &c) != SQLITE_OK)
		log_warn("store_meta", "err=%s ignoring=1", log_q(sqlite3_errmsg(s->db.sql)));
	buf_fini(&c.buf);
	r = hostid_write(&s->dir, s->id.host, up_to);
	if (r < 0)
		log_warn("host_id_write", "state_dir=%s err=%s creates=refused", log_q(s->dir.path),
			 log_q(strerrordesc_np(-r)));
	else
		s->id.reserved = up_to;
}

enum store_open_result store_open(const struct store_options *o, struct store_report *ret_report,
				  struct store **ret)
{
	struct store *s = calloc(1, sizeof(*s));
	int r;

	*ret_report = (struct store_report){ 0 };
	if (!s) {
		snprintf(ret_report->why, sizeof(ret_report->why), "out of memory");
		return STORE_BROKEN;
	}
	s->magic = STORE_MAGIC;
	s->loop = o->loop;
	r = state_dir_open(&s->dir, o->state_dir, ret_report);
	if (!r)
		r = db_open(&s->db, &s->dir, o->now_wall_ms, ret_report);
	if (!r)
		r = load_hostid(s, ret_report);
	if (r) {
		(void)store_close(s);
		return (enum store_open_result)r;
	}
	load_incarnation(s);
	reserve_first_block(s);
	if (s->dir.network_fs)
		log_warn("store_network_fs", "state_dir=%s journal=truncate wal=off", log_q(s->dir.path));
	log_info("store_open", "state_dir=%s host=%s schema=%d created=%d", log_q(s->dir.path),
		 s->id.host, ret_report->schema_known, ret_report->created);
	*ret = s;
	return STORE_OPENED;
}

int store_load(struct store *s, const struct store_visitor *v, struct store_report *report)
{
	must(!s->worker);
	return db_load(&s->db, v, &report->rows_aside);
}

/* --- the writer --- */

static struct store_tx *tx_from_job(struct job *j)
{
	return container_of(j, struct store_tx, job);
}

static void fail_all(struct list *jobs, int rc, int sys_errno)
{
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (t->reserve || t->rc != SQLITE_OK)
			continue;
		t->rc = rc;
		t->sys_errno = sys_errno;
	}
}

/* After some errors SQLite has rolled back by itself; then there is nothing left to end. */
static void roll_back(struct db *db)
{
	if (!sqlite3_get_autocommit(db->sql) && db_exec(db, "ROLLBACK") != SQLITE_OK)
		db_close(db);
}

/* One change that cannot be made (a value refused by the schema) must not take the others along. */
static int apply_one(struct db *db, struct store_tx *t)
{
	int rc = db_exec(db, "SAVEPOINT t");

	if (rc != SQLITE_OK)
		return rc;
	t->rc = db_apply(db, &t->changes);
	if (t->rc == SQLITE_OK)
		return db_exec(db, "RELEASE t");
	t->sys_errno = sqlite3_system_errno(db->sql);
	if (sqlite3_get_autocommit(db->sql))
		return t->rc;
	return db_exec(db, "ROLLBACK TO t; RELEASE t");
}

static int write_all(struct db *db, struct list *jobs)
{
	bool durable = false, any = false;
	int rc;

	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		durable |= t->durable;
		any |= !t->reserve;
	}
	if (!any)
		return SQLITE_OK;
	rc = db_set_durable(db, durable);
	if (rc == SQLITE_OK)
		rc = db_exec(db, "BEGIN IMMEDIATE");
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (rc == SQLITE_OK && !t->reserve)
			rc = apply_one(db, t);
	}
	return rc == SQLITE_OK ? db_exec(db, "COMMIT") : rc;
}

/* On the worker's thread. */
static void write_batch(struct list *jobs, void *user)
{
	struct store *s = user;
	int rc, sys_errno;

	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (t->reserve)
			t->rc = hostid_write(&s->dir, s->id.host, t->reserve);
	}
	rc = s->db.sql ? write_all(&s->db, jobs) : SQLITE_CANTOPEN;
	if (rc != SQLITE_OK) {
		sys_errno = s->db.sql ? sqlite3_system_errno(s->db.sql) : 0;
		fail_all(jobs, rc, sys_errno);
		if (s->db.sql)
			roll_back(&s->db);
		/* After a failed sync the page cache lies: only what is read again is true. */
		if ((!s->db.sql || rc == SQLITE_IOERR) && db_reopen(&s->db) != SQLITE_OK)
			db_close(&s->db);
	}
}

/* --- outcome, on the loop --- */

static void explain(struct store *s, const struct store_tx *t, struct status *ret)
{
	int e = t->sys_errno;

	if (t->rc == SQLITE_OK)
		*ret = (struct status)STATUS_OK;
	else if (t->rc == SQLITE_FULL || e == ENOSPC || e == EDQUOT || e == EFBIG)
		status_set(ret, R_STORE_FULL, "no space left for the daemon's state in %s", s->dir.path);
	else if (t->rc == SQLITE_READONLY || e == EROFS)
		status_set(ret, R_STORE_READONLY, "the daemon's state in %s cannot be written",
			   s->dir.path);
	else if (t->rc == SQLITE_NOMEM)
		status_errno(ret, -ENOMEM, "store");
	else
		status_set(ret, R_BUG, "store: %s%s%s", sqlite3_errstr(t->rc), e ? ": " : "",
			   e ? strerrordesc_np(e) : "");
}

static void note_health(struct store *s, const struct status *st)
{
	if (st->reason != s->health.reason) {
		if (status_ok(st))
			log_info("store_ok", "state_dir=%s", log_q(s->dir.path));
		else
			log_error("store_failed", "reason=%s text=%s", status_reason_name(st->reason),
				  log_q(st->text));
	}
	s->health = *st;
}

static void tx_free(struct store_tx *t)
{
	buf_fini(&t->changes.buf);
	free(t);
}

static void on_written(struct job *j)
{
	struct store_tx *t = tx_from_job(j);
	struct store *s = t->store;
	struct status st;

	must(s->magic == STORE_MAGIC);
	explain(s, t, &st);
	note_health(s, &st);
	if (t->done && !s->muted)
		t->done(t->user, &st);
	tx_free(t);
}

static void on_reserved(struct job *j)
{
	struct store_tx *t = tx_from_job(j);
	struct store *s = t->store;

	s->reserving = false;
	if (!t->rc)
		s->id.reserved = MAX(s->id.reserved, t->reserve);
	else
		log_warn("host_id_write", "state_dir=%s err=%s", log_q(s->dir.path),
			 log_q(strerrordesc_np(-t->rc)));
	tx_free(t);
}

int store_start(struct store *s)
{
	struct worker_options o = {
		.loop = s->loop,
		.name = "store",
		.batch = write_batch,
		.user = s,
		.gather_us = STORE_GATHER_US,
	};

	return worker_new(&o, &s->worker);
}

void store_mute(struct store *s)
{
	s->muted = true;
}

struct store *store_close(struct store *s)
{
	if (!s)
		return NULL;
	must(s->magic == STORE_MAGIC);
	s->worker = worker_free(s->worker);
	db_close(&s->db);
	state_dir_close(&s->dir);
	s->magic = 0;
	free(s);
	return NULL;
}

/* --- host id and numbers --- */

const char *store_host_id(const struct store *s)
{
	return s->id.host;
}

const char *store_incarnation(const struct store *s)
{
	return s->incarnation;
}

const struct status *store_health(const struct store *s)
{
	return &s->health;
}

static void reserve_more(struct store *s)
{
	struct store_tx *t;

	if (s->reserving || s->id.next + HOSTID_BLOCK / 2 <= s->id.reserved)
		return;
	if (store_tx_new(s, &t) < 0)
		return; /* the next number tries again */
	t->reserve = s->id.next - 1 + HOSTID_BLOCK;
	t->job.done = on_reserved;
	s->reserving = true;
	worker_submit(s->worker, &t->job);
}

int store_next_seq(struct store *s, uint64_t *ret)
{
	reserve_more(s);
	if (s->id.next > s->id.reserved)
		return -EAGAIN;
	*ret = s->id.next++;
	return 0;
}

void store_seen_seq(struct store *s, uint64_t seq)
{
	if (seq < s->id.next || seq > INT64_MAX / 2)
		return;
	log_warn("seq_rollback", "seen=%llu next=%llu", (unsigned long long)seq,
		 (unsigned long long)s->id.next);
	s->id.next = seq + 1;
	reserve_more(s);
}

/* --- transactions --- */

int store_tx_new(struct store *s, struct store_tx **ret)
{
	struct store_tx *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->store = s;
	list_init(&t->job.node);
	t->job.done = on_written;
	*ret = t;
	return 0;
}

void store_tx_drop(struct store_tx *t)
{
	if (t)
		tx_free(t);
}

void store_tx_hurry(struct store_tx *t)
{
	t->job.hurry = true;
}

void store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user)
{
	t->durable = durable;
	t->done = done;
	t->user = user;
	must(t->store->worker);
	worker_submit(t->store->worker, &t->job);
}

void store_tx_put_sandbox(struct store_tx *t, const struct row_sandbox *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_SANDBOX);
	change_text(c, r->account);
	change_text(c, r->id);
	change_text(c, r->name);
	change_int(c, r->uid);
	change_int(c, r->generation);
	change_int(c, r->state);
	change_int(c, r->ours);
	change_int(c, r->adopted);
	change_int(c, r->claimed);
	change_int(c, r->unclaimed_at_ms);
	change_int(c, (int64_t)r->seq);
	change_text(c, r->req_tag);
	change_text(c, r->template_id);
	change_text(c, r->alias);
	change_blob(c, r->metadata, r->metadata_len);
	change_int(c, r->started_at_ms);
	change_int(c, r->end_at_ms);
	change_int(c, r->cpu_count);
	change_int(c, r->memory_mb);
	change_int(c, r->disk_size_mb);
	change_text(c, r->envd_version);
	change_text(c, r->domain);
	change_text(c, r->access_token);
	change_text(c, r->traffic_token);
	change_int(c, r->token_known);
	change_int(c, r->allow_internet_access);
	change_int(c, r->on_timeout);
	change_int(c, r->keep_memory);
	change_int(c, r->auto_resume);
	change_text(c, r->policy);
	change_text(c, r->warning);
	change_int(c, r->as_of_ms);
	change_int(c, r->gone_reason);
	change_int(c, r->gone_at_ms);
	change_text(c, r->gone_evidence);
	change_int(c, r->released_at_ms);
	change_int(c, r->used_at_ms);
	change_int(c, r->timeout_s);
	change_text(c, r->network);
}

void store_tx_del_sandbox(struct store_tx *t, const char *account, const char *id)
{
	change_begin(&t->changes, STMT_DEL_SANDBOX);
	change_text(&t->changes, account);
	change_text(&t->changes, id);
}

void store_tx_put_intent(struct store_tx *t, const struct row_intent *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_INTENT);
	change_int(c, (int64_t)r->seq);
	change_int(c, r->kind);
	change_int(c, r->state);
	change_text(c, r->account);
	change_int(c, r->uid);
	change_text(c, r->request_id);
	change_text(c, r->req_tag);
	change_text(c, r->name);
	change_int(c, r->generation);
	change_text(c, r->template_id);
	change_text(c, r->policy);
	change_int(c, r->claimed);
	change_int(c, r->made_at_ms);
}

void store_tx_del_intent(struct store_tx *t, uint64_t seq)
{
	change_begin(&t->changes, STMT_DEL_INTENT);
	change_int(&t->changes, (int64_t)seq);
}

void store_tx_put_request(struct store_tx *t, const struct row_request *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_REQUEST);
	change_int(c, r->uid);
	change_text(c, r->method);
	change_text(c, r->request_id);
	change_blob(c, r->params_hash, sizeof(r->params_hash));
	change_int(c, r->state);
	change_text(c, r->account);
	change_text(c, r->object);
	change_text(c, r->req_tag);
	change_int(c, r->used_at_ms);
}

void store_tx_del_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id)
{
	change_begin(&t->changes, STMT_DEL_REQUEST);
	change_int(&t->changes, uid);
	change_text(&t->changes, method);
	change_text(&t->changes, request_id);
}

void store_tx_put_name(struct store_tx *t, const struct row_name *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_NAME);
	change_int(c, r->uid);
	change_text(c, r->name);
	change_text(c, r->account);
	change_text(c, r->id);
	change_int(c, r->generation);
}

void store_tx_del_name(struct store_tx *t, uid_t uid, const char *name)
{
	change_begin(&t->changes, STMT_DEL_NAME);
	change_int(&t->changes, uid);
	change_text(&t->changes, name);
}

void store_tx_put_lease(struct store_tx *t, const struct row_lease *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_LEASE);
	change_text(c, r->id);
	change_text(c, r->account);
	change_text(c, r->sandbox);
	change_int(c, r->uid);
	change_int(c, r->kind);
	change_int(c, r->pid);
	change_text(c, r->label);
	change_int(c, r->made_at_ms);
	change_int(c, r->expires_at_ms);
	change_int(c, r->identity);
	change_text(c, r->boot_id);
	change_int(c, (int64_t)r->identity_value);
}

void store_tx_del_lease(struct store_tx *t, const char *id)
{
	change_begin(&t->changes, STMT_DEL_LEASE);
	change_text(&t->changes, id);
}

void store_tx_put_event(struct store_tx *t, const struct row_event *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_EVENT);
	change_int(c, (int64_t)r->number);
	change_int(c, (int64_t)r->seq);
	change_int(c, r->uid);
	change_int(c, r->at_ms);
	change_int(c, r->type);
	change_text(c, r->account);
	change_text(c, r->sandbox);
	change_text(c, r->name);
	change_int(c, r->reason);
	change_int(c, r->state);
	change_int(c, r->started_at_ms);
	change_int(c, r->end_at_ms);
	change_int(c, r->leases);
	change_int(c, r->generation);
	change_text(c, r->evidence);
}

void store_tx_del_events(struct store_tx *t, uid_t uid, uint64_t seq)
{
	change_begin(&t->changes, STMT_DEL_EVENTS);
	change_int(&t->changes, uid);
	change_int(&t->changes, (int64_t)seq);
}

void store_tx_put_command(struct store_tx *t, const struct row_command *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_COMMAND);
	change_text(c, r->id);
	change_int(c, r->uid);
	change_text(c, r->account);
	change_text(c, r->sandbox);
	change_int(c, r->generation);
	change_int(c, r->state);
	change_int(c, r->flags);
	change_int(c, r->pid);
	change_text(c, r->shell);
	change_blob(c, r->args, r->args_len);
	change_text(c, r->user);
	change_text(c, r->cwd);
	change_int(c, r->cols);
	change_int(c, r->rows);
	change_int(c, (int64_t)r->timeout_ms);
	change_int(c, (int64_t)r->kill_grace_ms);
	change_int(c, (int64_t)r->spool_limit);
	change_text(c, r->boot);
	change_int(c, r->made_at_ms);
	change_int(c, r->started_at_ms);
	change_int(c, r->deadline_at_ms);
	change_int(c, r->outcome);
	change_int(c, r->exit_code);
	change_int(c, r->reason);
	change_text(c, r->signal);
	change_text(c, r->message);
	change_blob(c, r->survivors, r->survivors_len);
	change_int(c, r->exited_at_ms);
}

void store_tx_del_command(struct store_tx *t, const char *id)
{
	change_begin(&t->changes, STMT_DEL_COMMAND);
	change_text(&t->changes, id);
}

void store_tx_put_command_request(struct store_tx *t, const struct row_command_request *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_COMMAND_REQUEST);
	change_int(c, r->uid);
	change_text(c, r->method);
	change_text(c, r->request_id);
	change_blob(c, r->params_hash, sizeof(r->params_hash));
	change_text(c, r->command);
	change_int(c, r->used_at_ms);
}

void store_tx_del_command_request(struct store_tx *t, uid_t uid, const char *method,
				  const char *request_id)
{
	change_begin(&t->changes, STMT_DEL_COMMAND_REQUEST);
	change_int(&t->changes, uid);
	change_text(&t->changes, method);
	change_text(&t->changes, request_id);
}

void store_tx_put_copy(struct store_tx *t, const struct row_copy *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_COPY);
	change_int(c, (int64_t)r->seq);
	change_int(c, r->kind);
	change_text(c, r->account);
	change_int(c, r->uid);
	change_text(c, r->request_id);
	change_text(c, r->source);
	change_text(c, r->name);
	change_int(c, r->count);
	change_text(c, r->policy);
	change_text(c, r->known);
	change_int(c, r->made_at_ms);
}

void store_tx_del_copy(struct store_tx *t, uint64_t seq)
{
	change_begin(&t->changes, STMT_DEL_COPY);
	change_int(&t->changes, (int64_t)seq);
}

void store_tx_put_snapshot(struct store_tx *t, const struct row_snapshot *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_SNAPSHOT);
	change_text(c, r->account);
	change_text(c, r->id);
	change_int(c, r->uid);
	change_int(c, r->ours);
	change_text(c, r->names);
	change_text(c, r->source);
	change_int(c, r->created_at_ms);
	change_int(c, r->as_of_ms);
}

void store_tx_del_snapshot(struct store_tx *t, const char *account, const char *id)
{
	change_begin(&t->changes, STMT_DEL_SNAPSHOT);
	change_text(&t->changes, account);
	change_text(&t->changes, id);
}
