/* SPDX-License-Identifier: MIT */
/*
 * The store's public functions on the loop thread: opening, host id, numbers. `db` belongs to this thread until
 * store_start() and again when the worker has ended.
 */
#include "daemon/store/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/recover.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

static int move_aside(struct store *s, const char *name, int64_t now_wall_ms)
{
	char aside[128];

	snprintf(aside, sizeof(aside), "%s.elsewhere-%lld", name, (long long)now_wall_ms);
	return renameat(s->dir.fd, name, s->dir.fd, aside) < 0 && errno != ENOENT ? -errno : 0;
}

/* The directory is a copy of another host's, which may be running: takes a new host id, as sandboxes with the old one
 * are not ours. The rows are moved aside before the id is written, so that a crash in between repeats this. */
static int become_another(struct store *s, const struct store_options *o, struct store_report *report)
{
	int r;

	(void)str_copy(report->was_host, sizeof(report->was_host), s->file.host);
	r = db_move_aside(&s->dir, "elsewhere", o->now_wall_ms, report->moved_aside, sizeof(report->moved_aside));
	if (!r)
		r = move_aside(s, BACKUP_FILE, o->now_wall_ms);
	if (!r)
		r = move_aside(s, CLAIMS_FILE, o->now_wall_ms);
	if (r < 0) {
		snprintf(report->why, sizeof(report->why),
			 "%s is a copy of another daemon's and cannot be moved aside: %s", s->dir.path,
			 strerrordesc_np(-r));
		return STORE_BROKEN;
	}
	s->file = (struct hostid){ .reserved = s->file.reserved };
	rng_id(s->file.host, HOSTID_LEN);
	log_error("host_cloned", "state_dir=%s was=%s host=%s moved_to=%s", log_q(s->dir.path), report->was_host,
		  s->file.host, log_q(report->moved_aside));
	return 0;
}

static int read_hostid(struct store *s, const struct store_options *o, struct store_report *report)
{
	struct hostid here;
	int r = hostid_read(&s->dir, &s->file), e = 0;

	hostid_here(&s->dir, &here);
	if (r == -EBADMSG || r == -ENOENT) {
		if (r == -EBADMSG)
			log_warn("host_id", "state_dir=%s file=unreadable", log_q(s->dir.path));
		s->file = (struct hostid){ 0 };
	} else if (r < 0) {
		snprintf(report->why, sizeof(report->why), "%s/host-id: %s", s->dir.path, strerrordesc_np(-r));
		return STORE_BROKEN;
	} else if (hostid_is_elsewhere(&s->file, &here)) {
		if (o->no_clone_check)
			log_info("host_moved", "state_dir=%s host=%s clone_check=no", log_q(s->dir.path),
				 s->file.host);
		else
			e = become_another(s, o, report);
	}
	(void)str_copy(s->file.machine, sizeof(s->file.machine), here.machine);
	(void)str_copy(s->file.place, sizeof(s->file.place), here.place);
	return e;
}

/* Without the file host-id, takes the host id from the database, so that sandboxes with its tag stay ours. */
static void complete_hostid(struct store *s)
{
	if (!s->file.host[0]) {
		db_get_host(&s->db, s->file.host);
		s->file.reserved = db_get_number(&s->db, "host_seq");
		s->file.mark = db_get_number(&s->db, "mark");
		if (s->file.host[0])
			log_warn("host_id", "state_dir=%s host=%s from=database", log_q(s->dir.path),
				 s->file.host);
		else
			rng_id(s->file.host, HOSTID_LEN);
	}
	(void)str_copy(s->host, sizeof(s->host), s->file.host);
	s->recorded = db_get_number(&s->db, "seq_given");
	s->first = s->next = s->file.reserved + 1;
	s->reserved = s->file.reserved;
	s->file.mark = MAX(s->file.mark, db_get_number(&s->db, "mark"));
}

static void load_incarnation(struct store *s)
{
	char *text = db_get_meta(&s->db, "incarnation");

	/* schema.c made it. If it is missing all the same, cursors are valid until the next start. */
	if (!text || !text[0] || !str_copy(s->incarnation, sizeof(s->incarnation), text))
		rng_id(s->incarnation, 12);
	free(text);
}

/* For the loss of the file host-id. Without a sync: the first number that is given is in a commit behind this one, which has its own. */
static int note_host(struct store *s, uint64_t reserved)
{
	char text[24];
	int rc = db_set_durable(&s->db, false);

	snprintf(text, sizeof(text), "%llu", (unsigned long long)reserved);
	if (rc == SQLITE_OK)
		rc = db_step(&s->db, STMT_BEGIN);
	if (rc == SQLITE_OK)
		rc = db_put_meta(&s->db, "host_id", s->host);
	if (rc == SQLITE_OK)
		rc = db_put_meta(&s->db, "host_seq", text);
	if (rc == SQLITE_OK)
		rc = db_step(&s->db, STMT_COMMIT);
	if (!sqlite3_get_autocommit(s->db.sql))
		(void)!db_exec(&s->db, "ROLLBACK");	/* the next commit fails for the same reason */
	return rc;
}

/* A full or read-only disk does not prevent the start: creations are refused, everything else works. */
static void reserve_first_block(struct store *s)
{
	struct hostid file = s->file;
	int r;

	file.reserved = s->next - 1 + HOSTID_BLOCK;
	if (note_host(s, file.reserved) != SQLITE_OK)
		log_warn("store_meta", "error=%s ignoring=1", log_q(sqlite3_errmsg(s->db.sql)));
	r = hostid_write(&s->dir, &file);
	if (r < 0) {
		log_warn("host_id_write", "state_dir=%s error=%s creates=refused",
			 log_q(s->dir.path), log_q(strerrordesc_np(-r)));
		return;
	}
	s->file = file;
	s->reserved = file.reserved;
}

static int open_all(struct store *s, const struct store_options *o, struct store_report *report)
{
	static const struct hostid nobody = { 0 };	/* of a new host, whose empty database is no loss */
	int r = state_dir_open(&s->dir, o->state_dir, report);
	struct stat st;

	if (!r)
		r = read_hostid(s, o, report);
	if (!r)
		r = recover_open(&s->db, &s->dir, report->was_host[0] ? &nobody : &s->file, o->now_wall_ms, report);
	if (r)
		return r;
	(void)unlinkat(s->dir.fd, EXPORT_FILE, 0);	/* of a daemon that was killed */
	s->doubt = report->doubt;
	if (fstatat(s->dir.fd, BACKUP_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		s->backup_at_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
	complete_hostid(s);
	load_incarnation(s);
	reserve_first_block(s);
	sent_open(&s->sent, s->dir.fd, s->host, o->boot ? o->boot : "",
		  s->doubt == STORE_SURE && !report->was_host[0], s->next);
	return 0;
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
	s->sent = SENT_NULL;
	s->claims_fd = -1;
	timer_init(&s->backup_timer, o->loop, writer_on_backup_timer, s);
	r = open_all(s, o, ret_report);
	if (r) {
		(void)store_close(s);
		return (enum store_open_result)r;
	}
	if (s->dir.network_fs)
		log_warn("store_network_fs", "state_dir=%s journal=truncate wal=off", log_q(s->dir.path));
	log_info("store_open", "state_dir=%s host=%s schema=%d created=%d", log_q(s->dir.path),
		 s->host, ret_report->schema_known, ret_report->created);
	*ret = s;
	return STORE_OPENED;
}

void store_mute(struct store *s)
{
	s->muted = true;
}

void store_settle(struct store *s)
{
	if (s->settle == SETTLE_NONE)
		writer_settle(s);
}

bool store_is_settled(const struct store *s)
{
	return s->settle == SETTLE_OVER;
}

struct store *store_close(struct store *s)
{
	if (!s)
		return NULL;
	must(s->magic == STORE_MAGIC);
	s->closing = true;
	s->worker = worker_free(s->worker);
	writer_finish(s);
	s->claims_fd = fd_close(s->claims_fd);
	timer_clear(&s->backup_timer);	/* the last commits may have set it */
	db_close(&s->db);
	sent_close(&s->sent);
	state_dir_close(&s->dir);
	s->magic = 0;
	free(s);
	return NULL;
}

/* --- host id and numbers --- */

const char *store_host_id(const struct store *s)
{
	return s->host;
}

char *store_key_print(struct store *s, const char *account)
{
	char *name = str_printf("key_print:%s", account);
	char *text = name ? db_get_meta(&s->db, name) : NULL;

	free(name);
	return text;
}

const char *store_incarnation(const struct store *s)
{
	return s->incarnation;
}

const struct store_totals *store_totals(const struct store *s)
{
	return &s->totals;
}

const struct status *store_health(const struct store *s)
{
	return &s->health;
}

enum store_doubt store_doubt(const struct store *s)
{
	return s->doubt;
}

int64_t store_backup_at_ms(const struct store *s)
{
	return s->backup_at_ms;
}

int64_t store_unlinked_at_ms(const struct store *s)
{
	return s->unlinked_at_ms;
}

void store_new_incarnation(struct store *s)
{
	struct store_tx *t;

	rng_id(s->incarnation, 12);
	if (store_tx_new(s, &t) < 0)
		return; /* the next start has the old one again */
	tx_put_meta(t, "incarnation", s->incarnation);
	store_tx_commit(t, true, NULL, NULL);
}

static void reserve_more(struct store *s)
{
	struct store_tx *t;

	if (s->reserving || s->next + HOSTID_BLOCK / 2 <= s->reserved)
		return;
	if (store_tx_new(s, &t) < 0)
		return; /* the next call tries again */
	t->kind = TX_RESERVE;
	t->reserve = s->next - 1 + HOSTID_BLOCK;
	t->job.done = writer_on_reserved;
	s->reserving = true;
	worker_submit(s->worker, &t->job);
}

int store_next_seq(struct store *s, uint64_t *ret)
{
	reserve_more(s);
	if (s->next > s->reserved)
		return -EAGAIN;
	*ret = s->next++;
	return 0;
}

bool store_gave_seq(const struct store *s, uint64_t seq)
{
	return seq >= s->first && seq < s->next;
}

bool store_knows_seq(const struct store *s, uint64_t seq)
{
	return seq <= s->recorded || store_gave_seq(s, seq);
}

int store_put_sent(struct store *s, uint64_t seq)
{
	return sent_put(&s->sent, seq, clock_boot_ms(), s->next);
}

enum sent_known store_sent(const struct store *s, uint64_t seq, uint64_t *ret_at_ms)
{
	return sent_find(&s->sent, seq, ret_at_ms);
}

void store_forget_sent(struct store *s)
{
	sent_forget(&s->sent);
}

void store_seen_seq(struct store *s, uint64_t seq)
{
	if (seq < s->next || seq > INT64_MAX / 2)
		return;
	log_warn("seq_rollback", "seen=%llu next=%llu", (unsigned long long)seq, (unsigned long long)s->next);
	s->next = seq + 1;
	reserve_more(s);
}
