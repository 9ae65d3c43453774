/* SPDX-License-Identifier: MIT */
#include "daemon/store/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/db.h"
#include "daemon/store/dir.h"
#include "daemon/store/hostid.h"
#include "daemon/store/schema.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define RESTORE_FILE "restore.db"
#define SEQ_JUMP     (1u << 24)	/* numbers that may have been given since the backup, where no host-id says how many */

struct restore {
	const struct store_restore_options *o;
	struct store_restored *ret;
	struct state_dir dir;
	struct db db;		/* RESTORE_FILE */
	struct hostid id;	/* the file host-id as it will be */
	char was_host[HOSTID_LEN + 1];	/* as it is; "" = there is none */
};

printf_like(3, 4) static int fail(struct restore *x, int result, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(x->ret->report.why, sizeof(x->ret->report.why), fmt, ap);
	va_end(ap);
	return result;
}

static int copy_bytes(struct restore *x, int to)
{
	char block[16384];
	ssize_t n;
	int r = 0;

	while (!r && (n = read(x->o->from_fd, block, sizeof(block))) != 0) {
		if (n < 0 && errno != EINTR)
			return fail(x, STORE_BROKEN, "%s: %m", x->o->from);
		if (n > 0)
			r = fd_write_all(to, block, (size_t)n);
	}
	if (!r && fsync(to) < 0)
		r = -errno;
	return r ? fail(x, STORE_BROKEN, "%s/" RESTORE_FILE ": %s", x->dir.path, strerrordesc_np(-r)) : 0;
}

static int copy_file(struct restore *x)
{
	scoped(fd_closep) int to = -1;

	if (unlinkat(x->dir.fd, RESTORE_FILE, 0) == 0 || errno == ENOENT)
		to = openat(x->dir.fd, RESTORE_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return fail(x, STORE_BROKEN, "%s/" RESTORE_FILE ": %m", x->dir.path);
	return copy_bytes(x, to);
}

/* --- is it one of ours? --- */

static int check_kind(struct restore *x)
{
	struct store_report *report = &x->ret->report;
	int application = 0, rc = db_connect(&x->db);

	if (rc == SQLITE_OK)
		rc = db_application(&x->db, &application);
	if (rc == SQLITE_OK)
		rc = db_version(&x->db, &report->schema_found);
	report->schema_known = schema_version;
	if (rc == SQLITE_NOTADB)
		return fail(x, STORE_NOT_OURS, "%s is no database", x->o->from);
	if (rc == SQLITE_OK && (application != schema_application || report->schema_found < 1))
		return fail(x, STORE_NOT_OURS, "%s is no backup of agentboxd: it is another program's, or empty", x->o->from);
	if (rc == SQLITE_OK)
		rc = db_check_all(&x->db);
	if (rc != SQLITE_OK)
		return fail(x, STORE_NOT_OURS, "%s is damaged (%s); nothing was changed", x->o->from, sqlite3_errstr(rc));
	if (report->schema_found > schema_version)
		return fail(x, STORE_TOO_NEW, "%s has schema %d, this version knows %d; use the newer agentboxd", x->o->from,
			    report->schema_found, schema_version);
	return 0;
}

/* Opens it as a start would, which migrates it and finds what its tables lack. */
static int check_tables(struct restore *x)
{
	struct store_report opened = { 0 };
	int rc;

	db_close(&x->db);
	rc = db_open(&x->db, &opened);
	if (rc != SQLITE_OK)
		return fail(x, STORE_NOT_OURS, "%s cannot be used: %s", x->o->from, sqlite3_errstr(rc));
	db_get_host(&x->db, x->id.host);
	if (!x->id.host[0])
		return fail(x, STORE_NOT_OURS, "%s does not say which daemon it is of", x->o->from);
	return 0;
}

/* --- who the daemon will be --- */

/* The mark rises above the backup's, so that the next start takes it for one that was put back. */
static int choose_identity(struct restore *x)
{
	struct hostid here, was = { 0 };
	uint64_t given = MAX(db_get_number(&x->db, "host_seq"), db_get_number(&x->db, "seq_given"));
	uint64_t mark = db_get_number(&x->db, "mark");
	int r = hostid_read(&x->dir, &was);

	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return fail(x, STORE_BROKEN, "%s/host-id: %s", x->dir.path, strerrordesc_np(-r));
	(void)str_copy(x->was_host, sizeof(x->was_host), was.host);
	if (was.host[0] && !str_eq(was.host, x->id.host) && !x->o->other_host)
		return fail(x, STORE_NOT_OURS, "%s is of host %s, and %s belongs to host %s: with --other-host that one's state is "
			    "moved aside, and this daemon becomes the other", x->o->from, x->id.host, x->dir.path, was.host);
	if (!str_eq(was.host, x->id.host))
		was = (struct hostid){ .reserved = given + SEQ_JUMP };
	hostid_here(&x->dir, &here);
	x->id.reserved = MAX(was.reserved, given);
	x->id.mark = MAX(was.mark, mark + 1);
	(void)str_copy(x->id.machine, sizeof(x->id.machine), here.machine);
	(void)str_copy(x->id.place, sizeof(x->id.place), here.place);
	return 0;
}

/* --- putting it in place --- */

static int move_aside(struct restore *x, const char *name)
{
	char to[128];

	snprintf(to, sizeof(to), "%s.replaced-%lld", name, (long long)x->o->now_wall_ms);
	return renameat(x->dir.fd, name, x->dir.fd, to) < 0 && errno != ENOENT ? -errno : 0;
}

/* What was claimed and sent by the host that was there is nothing to the one that comes. */
static int move_identity_aside(struct restore *x)
{
	static const char *const names[] = { "host-id", "claims", "sent" };
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names) && !r; i++)
		r = move_aside(x, names[i]);
	return r;
}

/* Whatever prefix of these steps was done for the same host, a start finds one of the two states whole: the second copy, which is moved
 * last, is younger than the backup and would be chosen. For another host a start in between may find none; what was there is aside. */
static int put_in_place(struct restore *x)
{
	struct store_report *report = &x->ret->report;
	bool exists, is_other = x->was_host[0] && !str_eq(x->was_host, x->id.host);
	int r = state_dir_check_file(&x->dir, DB_FILE, &exists, report);

	if (r)
		return r;
	r = is_other ? move_identity_aside(x) : 0;
	if (!r)
		r = hostid_write(&x->dir, &x->id);
	if (!r)
		r = db_move_aside(&x->dir, "replaced", x->o->now_wall_ms, report->moved_aside, sizeof(report->moved_aside));
	if (!exists)
		report->moved_aside[0] = 0;
	if (!r && renameat(x->dir.fd, RESTORE_FILE, x->dir.fd, DB_FILE) < 0)
		r = -errno;
	if (!r)
		r = move_aside(x, BACKUP_FILE);
	if (!r && fsync(x->dir.fd) < 0)
		r = -errno;
	return r ? fail(x, STORE_BROKEN, "%s: the state cannot be replaced: %s", x->dir.path, strerrordesc_np(-r)) : 0;
}

static int sync_file(struct restore *x)
{
	scoped(fd_closep) int fd = openat(x->dir.fd, RESTORE_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? fail(x, STORE_BROKEN, "%s/" RESTORE_FILE ": %m", x->dir.path) : 0;
}

static int restore_all(struct restore *x)
{
	int r = copy_file(x);

	if (!r)
		r = check_kind(x);
	if (!r)
		r = check_tables(x);
	if (!r)
		r = choose_identity(x);
	db_close(&x->db);
	if (!r)
		r = sync_file(x);
	if (!r)
		r = put_in_place(x);
	if (r) {
		(void)unlinkat(x->dir.fd, RESTORE_FILE, 0);
		(void)unlinkat(x->dir.fd, RESTORE_FILE "-journal", 0);
	}
	return r;
}

enum store_open_result store_restore(const struct store_restore_options *o, struct store_restored *ret)
{
	struct restore x = { .o = o, .ret = ret };
	int r;

	*ret = (struct store_restored){ 0 };
	r = state_dir_open(&x.dir, o->state_dir, &ret->report);
	x.db = (struct db){ .dir = &x.dir, .file = RESTORE_FILE };
	if (!r)
		r = restore_all(&x);
	if (!r) {
		(void)str_copy(ret->dir, sizeof(ret->dir), x.dir.path);
		(void)str_copy(ret->host, sizeof(ret->host), x.id.host);
	}
	state_dir_close(&x.dir);
	return (enum store_open_result)r;
}
