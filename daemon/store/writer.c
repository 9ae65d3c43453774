/* SPDX-License-Identifier: MIT */
/*
 * The writer: commits transactions on the worker's thread and calls their `done` on the loop; between
 * commits it makes the second copy. write_batch() and what it calls run on the worker.
 */
#include "daemon/store/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/store/recover.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define GATHER_FROM	  8u	/* with so many transactions waiting, a commit waits for more … */
#define GATHER_MAX_US	  2000u	/* … for at most so long */
#define BACKUP_SOON_MS	  1000u	/* from a change until its copy, at least */
#define BACKUP_GAP_MS	  5000u	/* between two whole copies, … */
#define BACKUP_GAP_MIB_MS 2000u	/* … and so much longer for each MiB of the copy, … */
#define BACKUP_GAP_MAX_MS 55000u	/* … at most so long */
#define FOLLOW_GAP_MS	  20000u	/* between two copies that apply changes, which cost as much as a few commits, … */
#define FOLLOW_BYTES	  (1u << 18)	/* … unless so much is gathered in memory for one, which commits wait for while it is applied */
#define RESCUE_EVERY_MS	  10000u

static struct store_tx *tx_from_job(struct job *j)
{
	return container_of(j, struct store_tx, job);
}

static void fail_all(struct list *jobs, int rc, int sys_errno)
{
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (t->kind != TX_CHANGES || t->rc != SQLITE_OK)
			continue;
		t->rc = rc;
		t->sys_errno = sys_errno;
	}
}

/* Ends the transaction, unless SQLite has rolled it back by itself, as after some errors. */
static void roll_back(struct db *db)
{
	if (!sqlite3_get_autocommit(db->sql) && db_exec(db, "ROLLBACK") != SQLITE_OK)
		db_close(db);
}

/* Applies one of several in a commit: its failure (a value that the schema refuses) must not fail the others. */
static int apply_one(struct db *db, struct store_tx *t)
{
	int rc = db_step(db, STMT_SAVEPOINT);

	if (rc != SQLITE_OK)
		return rc;
	t->rc = db_apply(db, &t->changes);
	if (t->rc == SQLITE_OK)
		return db_step(db, STMT_RELEASE);
	t->sys_errno = sqlite3_system_errno(db->sql);
	if (sqlite3_get_autocommit(db->sql))
		return t->rc;
	return db_exec(db, "ROLLBACK TO t; RELEASE t");
}

/* Applies one that is alone in its commit: without a savepoint. */
static int apply_alone(struct db *db, struct store_tx *t)
{
	t->rc = db_apply(db, &t->changes);
	if (t->rc == SQLITE_OK)
		return SQLITE_OK;
	t->sys_errno = sqlite3_system_errno(db->sql);
	return sqlite3_get_autocommit(db->sql) ? t->rc : db_exec(db, "ROLLBACK");
}

static int commit(struct db *db)
{
	return sqlite3_get_autocommit(db->sql) ? SQLITE_OK : db_step(db, STMT_COMMIT);
}

static int write_all(struct db *db, struct list *jobs)
{
	bool durable = false;
	unsigned changes = 0;
	int rc;

	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		durable |= t->durable;
		changes += t->kind == TX_CHANGES;
	}
	if (!changes)
		return SQLITE_OK;
	rc = db_set_durable(db, durable);
	if (rc == SQLITE_OK)
		rc = db_step(db, STMT_BEGIN);
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (rc == SQLITE_OK && t->kind == TX_CHANGES)
			rc = changes > 1 ? apply_one(db, t) : apply_alone(db, t);
	}
	return rc == SQLITE_OK ? commit(db) : rc;
}

static void note_all(struct backup *b, struct list *jobs)
{
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (t->kind == TX_CHANGES && t->rc == SQLITE_OK)
			backup_note(b, &t->changes);
	}
}

static void reserve(struct store *s, struct store_tx *t)
{
	struct hostid file = s->file;

	file.reserved = t->reserve;
	t->rc = hostid_write(&s->dir, &file);
	if (!t->rc)
		s->file = file;
}

/* The new mark is durable in the database before it is in the copy, and in the copy before it is in the
 * file host-id: a database with a smaller mark than the file's was put back from an earlier time. */
static int raise_mark(struct store *s)
{
	return db_set_durable(&s->db, true) == SQLITE_OK && db_put_mark(&s->db, s->file.mark + 1) == SQLITE_OK ? 0 : -EIO;
}

static int begin_backup(struct store *s)
{
	int r = backup_begin(&s->backup, &s->db, BACKUP_NEW_FILE, s->file.mark + 1);

	if (r < 0)
		return r;
	r = raise_mark(s);
	if (r < 0)
		backup_drop(&s->backup, &s->db);
	return r;
}

static int backup_done(struct store *s, uint64_t mark)
{
	struct hostid file = s->file;
	int r;

	file.mark = mark;
	r = hostid_write(&s->dir, &file);
	if (!r)
		s->file = file;
	return r < 0 ? r : 1;
}

/* 1 = done, -errno, or 0 = the copy has to be made as a whole. */
static int follow(struct store *s)
{
	int r = raise_mark(s);

	if (r < 0)
		return r;
	r = backup_follow(&s->backup, &s->dir, s->file.mark, s->file.mark + 1);
	if (r < 0)
		log_info("backup_whole", "state_dir=%s error=%s", log_q(s->dir.path), log_q(strerrordesc_np(-r)));
	return r < 0 ? 0 : backup_done(s, s->file.mark + 1);
}

/* A part of the copy. 0 = more to do, 1 = done, -errno. */
static int backup_some(struct store *s, int pages)
{
	uint64_t mark;
	int r = 0;

	if (!s->db.sql)
		return -EIO;
	if (s->backup.follows)
		return follow(s);
	if (!s->backup.run)
		r = begin_backup(s);
	if (r < 0)
		return r;
	mark = s->backup.mark;
	r = backup_step(&s->backup, &s->db, pages);
	return r == 1 ? backup_done(s, mark) : r;
}

/* Copies that are being made end with the connection. */
static void drop_copies(struct store *s)
{
	backup_drop(&s->backup, &s->db);
	backup_drop(&s->export, &s->db);
}

/* Somebody removed or replaced the open file, whose rows would be lost when it is closed: writes them to a new file. */
static void rescue(struct store *s)
{
	uint64_t now = clock_boot_ms();
	int64_t wall = clock_wall_ms();
	int r;

	if (now < s->rescue_at_ms)
		return;
	s->rescue_at_ms = now + RESCUE_EVERY_MS;
	drop_copies(s);
	r = recover_unlinked(&s->db, s->file.mark, wall);
	log_error("store_unlinked", "state_dir=%s written_again=%s%s%s", log_q(s->dir.path), r < 0 ? "no" : "yes",
		  r < 0 ? " err=" : "", r < 0 ? log_q(strerrordesc_np(-r)) : "");
	s->unlinked_at_ms = wall;
}

/* --- claims --- */

static void claims_failed(struct list *jobs, int error)
{
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (buf_len(&t->claims) && t->rc == SQLITE_OK && !t->claims_anew)
			t->claims_error = error;
	}
}

static void replace_claims(struct store *s, struct store_tx *t)
{
	int r = claims_replace(&s->dir, &s->claims_fd, buf_data(&t->claims), buf_len(&t->claims));

	t->claims_error = r;
	if (r < 0)
		log_warn("claims_replace", "state_dir=%s error=%s using=\"the longer file\"", log_q(s->dir.path),
			 log_q(strerrordesc_np(-r)));
}

/* Claims of a batch share a write and a sync. A transaction that replaces the file does so first: it has the claims from before itself. */
static void write_claims(struct store *s, struct list *jobs)
{
	scoped(buf_fini) struct buf all = BUF_NULL;
	int r = 0;

	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (t->rc != SQLITE_OK || t->kind != TX_CHANGES)
			continue;
		if (t->claims_anew)
			replace_claims(s, t);
		else if (buf_len(&t->claims) && !r)
			r = buf_put(&all, buf_data(&t->claims), buf_len(&t->claims));
	}
	if (buf_len(&all))
		FAILPOINT("warm.claim_unrecorded");
	if (!r && buf_len(&all))
		r = claims_append(&s->dir, &s->claims_fd, buf_data(&all), buf_len(&all));
	if (r < 0)
		claims_failed(jobs, r);
}

/* Commits are as safe in the log as in the file, so a failure is left to the next one. */
static int checkpoint(struct db *db)
{
	return db->sql ? sqlite3_wal_checkpoint_v2(db->sql, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL) : SQLITE_CANTOPEN;
}

/* On the worker's thread. */
static void write_batch(struct list *jobs, void *user)
{
	struct store *s = user;
	int rc, sys_errno;

	if (s->db.sql && !db_is_in_place(&s->db))
		rescue(s);
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (t->kind == TX_RESERVE)
			reserve(s, t);
	}
	rc = s->db.sql ? write_all(&s->db, jobs) : SQLITE_CANTOPEN;
	if (rc != SQLITE_OK) {
		sys_errno = s->db.sql ? sqlite3_system_errno(s->db.sql) : 0;
		fail_all(jobs, rc, sys_errno);
		drop_copies(s);
		if (s->db.sql)
			roll_back(&s->db);
		/* After a failed sync SQLite's cache may have pages that the disk does not have. */
		if ((!s->db.sql || rc == SQLITE_IOERR) && db_reopen(&s->db) != SQLITE_OK)
			db_close(&s->db);
	}
	note_all(&s->backup, jobs);
	write_claims(s, jobs);
	list_for_each(n, jobs) {
		struct store_tx *t = tx_from_job(list_entry(n, struct job, node));

		if (t->kind == TX_BACKUP)
			t->rc = backup_some(s, BACKUP_STEP);
		else if (t->kind == TX_CHECKPOINT)
			t->rc = checkpoint(&s->db);
		else if (t->kind == TX_EXPORT)
			t->rc = export_some(s, t);
		else if (t->kind == TX_GET)
			t->rc = s->db.sql ? db_get(&s->db, &t->changes, t->read->table, &t->read->row, &t->read->found)
					  : SQLITE_CANTOPEN;
	}
}

/* --- the second copy, on the loop --- */

/* How long after a copy the next one is made: the longer the larger it is, less than a minute. */
static uint64_t backup_gap_ms(const struct store *s)
{
	struct stat st;
	uint64_t mib = 0;

	if (s->backup_follows)
		return FOLLOW_GAP_MS;
	if (fstatat(s->dir.fd, BACKUP_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		mib = (uint64_t)st.st_size >> 20;
	return MIN(BACKUP_GAP_MS + mib * BACKUP_GAP_MIB_MS, BACKUP_GAP_MAX_MS);
}

static bool gathered_enough(const struct store *s)
{
	return s->backup_follows && s->backup_lacks >= FOLLOW_BYTES;
}

static void backup_wanted(struct store *s, size_t n_bytes)
{
	uint64_t now = clock_boot_ms(), at = now + BACKUP_SOON_MS;

	s->changed = true;
	s->backup_lacks += n_bytes;
	if (s->backup_job || (timer_is_set(&s->backup_timer) && !gathered_enough(s)))
		return;
	if (gathered_enough(s))
		at = now;
	else if (s->backup_over_ms)
		at = MAX(at, s->backup_over_ms + backup_gap_ms(s));
	if (timer_set(&s->backup_timer, at) < 0)
		log_warn("backup_timer", "error=nomem at=next_change");
}

static void on_checkpointed(struct job *j)
{
	struct store_tx *t = tx_from_job(j);

	t->store->settle = SETTLE_OVER;
	tx_free(t);
}

/* `copied`: the copy has what was committed before. */
static void settle_log(struct store *s, bool copied)
{
	struct store_tx *t;

	s->settled_copy = copied;
	s->settle = SETTLE_OVER;
	if (s->closing || store_tx_new(s, &t) < 0)
		return;		/* the close does it */
	s->settle = SETTLE_LOG;
	t->kind = TX_CHECKPOINT;
	t->job.done = on_checkpointed;
	worker_submit(s->worker, &t->job);
}

static void on_backup_step(struct job *j)
{
	struct store_tx *t = tx_from_job(j);
	struct store *s = t->store;
	int r = t->rc;

	if (r == 0 && !s->closing) {
		worker_submit(s->worker, j);
		return;
	}
	s->backup_job = NULL;
	s->backup_over_ms = clock_boot_ms();
	if (r < 0 && !s->backup_failed)
		log_warn("backup_failed", "state_dir=%s error=%s", log_q(s->dir.path),
			 log_q(strerrordesc_np(-r)));
	if (r == 1)
		s->backup_at_ms = clock_wall_ms();
	s->backup_failed = r < 0;
	s->backup_follows = r == 1;
	tx_free(t);
	if (s->settle == SETTLE_COPY)
		settle_log(s, r == 1);
	if (!s->closing && (s->changed || r < 0))
		backup_wanted(s, 0);
}

void writer_on_backup_timer(struct timer *t, void *user)
{
	struct store *s = user;

	if (!s->worker || s->backup_job || store_tx_new(s, &s->backup_job) < 0)
		return;
	s->changed = false;
	s->backup_lacks = 0;
	s->backup_job->kind = TX_BACKUP;
	s->backup_job->job.done = on_backup_step;
	worker_submit(s->worker, &s->backup_job->job);
}

void writer_settle(struct store *s)
{
	s->settle = SETTLE_COPY;
	if (!s->backup_job && s->changed)
		writer_on_backup_timer(&s->backup_timer, s);
	if (!s->backup_job)
		settle_log(s, !s->changed);
}

/* --- outcome, on the loop --- */

static void explain_claims(struct store *s, int e, struct status *ret)
{
	if (e == ENOSPC || e == EDQUOT || e == EFBIG)
		status_set(ret, R_STORE_FULL, "no space left for the daemon's state in %s", s->dir.path);
	else if (e == ENOMEM)
		status_errno(ret, -ENOMEM, "store");
	else
		status_set(ret, R_STORE_READONLY, "%s/" CLAIMS_FILE " cannot be written: %s", s->dir.path, strerrordesc_np(e));
}

static void explain(struct store *s, const struct store_tx *t, struct status *ret)
{
	int e = t->sys_errno;

	if (t->rc == SQLITE_OK && t->claims_error < 0)
		explain_claims(s, -t->claims_error, ret);
	else if (t->rc == SQLITE_OK)
		*ret = (struct status)STATUS_OK;
	else if (t->changes.refused[0])
		status_set(ret, R_BUG, "the daemon's state cannot hold this value of %s", t->changes.refused);
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

void writer_on_written(struct job *j)
{
	struct store_tx *t = tx_from_job(j);
	struct store *s = t->store;
	struct status st;

	must(s->magic == STORE_MAGIC);
	explain(s, t, &st);
	tally_add(&s->totals.ends, &st);
	histogram_add(t->durable ? &s->totals.durable : &s->totals.others, clock_boot_us() - t->committed_us);
	if (!t->changes.refused[0])
		note_health(s, &st);
	if (t->rc == SQLITE_OK && buf_len(&t->changes.buf))
		backup_wanted(s, buf_len(&t->changes.buf));
	if (t->done && !s->muted)
		t->done(t->user, &st);
	tx_free(t);
}

void writer_on_read(struct job *j)
{
	struct store_tx *t = tx_from_job(j);
	struct read *r = t->read;
	struct status st;

	explain(t->store, t, &st);
	if (t->store->muted)
		;
	else if (r->on_request)
		r->on_request(t->user, &st, r->found ? &r->row.request : NULL);
	else
		r->on_command_request(t->user, &st, r->found ? &r->row.command_request : NULL);
	tx_free(t);
}

void writer_on_reserved(struct job *j)
{
	struct store_tx *t = tx_from_job(j);
	struct store *s = t->store;

	s->reserving = false;
	if (!t->rc)
		s->reserved = MAX(s->reserved, t->reserve);
	else
		log_warn("host_id_write", "state_dir=%s error=%s", log_q(s->dir.path),
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
		.gather_from = GATHER_FROM,
		.gather_max_us = GATHER_MAX_US,
	};
	int r = worker_new(&o, &s->worker);

	/* The copy may lack the last changes of the last run. */
	if (!r)
		backup_wanted(s, 0);
	return r;
}

/* If this fails, the copy in place is sound but older. */
void writer_finish(struct store *s)
{
	bool lacks;
	int r = 0;

	if (s->db.sql && !db_is_in_place(&s->db))
		rescue(s);
	backup_drop(&s->export, &s->db);
	lacks = s->changed || s->backup.run;
	if (s->backup.run)
		backup_drop(&s->backup, &s->db);
	if (!lacks || s->settled_copy) {
		backup_drop(&s->backup, &s->db);	/* changes that the next start copies */
		return;
	}
	while (!r)
		r = backup_some(s, BACKUP_ALL);
	if (r < 0)
		log_warn("backup_failed", "state_dir=%s error=%s", log_q(s->dir.path),
			 log_q(strerrordesc_np(-r)));
}
