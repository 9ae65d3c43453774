/* SPDX-License-Identifier: MIT */
#include "daemon/store/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/store/db.h"
#include "daemon/store/schema.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define SINCE_MAX (8u << 20)	/* bytes of gathered changes; above it the copy is made as a whole */
#define ROOM_LEFT (16ull << 20)	/* bytes of the disk that a copy leaves free */

static int errno_of(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_DONE:
		return 0;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_FULL:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

static int open_file(struct state_dir *dir, const char *name, struct sqlite3 **ret)
{
	char *path = str_printf("%s/%s", dir->path, name);
	int rc;

	if (!path)
		return SQLITE_NOMEM;
	rc = sqlite3_open_v2(path, ret, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
						SQLITE_OPEN_PRIVATECACHE, NULL);
	free(path);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(*ret, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA trusted_schema = OFF;"
					"PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
	return rc;
}

/* On a disk that is nearly full the space is left to the database. */
static bool has_room(struct state_dir *dir)
{
	struct statvfs fs;
	struct stat st;

	if (fstatvfs(dir->fd, &fs) < 0 || fstatat(dir->fd, DB_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return true;
	return (uint64_t)fs.f_bavail * fs.f_frsize >= 2 * (uint64_t)st.st_size + ROOM_LEFT;
}

int backup_begin(struct backup *b, struct db *db, const char *file, uint64_t mark)
{
	int fd, rc, r = 0;

	if (!has_room(db->dir))
		return -ENOSPC;
	if (unlinkat(db->dir->fd, file, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(db->dir->fd, file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	fd_close(fd);
	b->file = file;
	rc = open_file(db->dir, file, &b->to);
	/* No journal: the file is of use only when it is whole. */
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(b->to, "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF", NULL, NULL, NULL);
	if (rc == SQLITE_OK) {
		b->run = sqlite3_backup_init(b->to, "main", db->sql, "main");
		rc = b->run ? SQLITE_OK : sqlite3_errcode(b->to);
	}
	r = errno_of(rc);
	if (r < 0)
		backup_drop(b, db);
	b->mark = mark;
	return r;
}

static int put_in_place(struct state_dir *dir)
{
	scoped(fd_closep) int fd = openat(dir->fd, BACKUP_NEW_FILE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	/* A journal of the old file would be taken for one of the new. */
	if (unlinkat(dir->fd, BACKUP_FILE "-journal", 0) < 0 && errno != ENOENT)
		return -errno;
	if (fd < 0 || fsync(fd) < 0 || renameat(dir->fd, BACKUP_NEW_FILE, dir->fd, BACKUP_FILE) < 0 ||
	    fsync(dir->fd) < 0)
		return -errno;
	return 0;
}

/* Ends the copy. Its header says WAL, as the database's does: it is set to DELETE, so that opening it makes no other files. */
static int backup_finish(struct backup *b)
{
	int rc = sqlite3_backup_finish(b->run);

	b->run = NULL;
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(b->to, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
	if (rc == SQLITE_OK) {
		rc = sqlite3_close(b->to);
		b->to = NULL;
	}
	return errno_of(rc);
}

int backup_copy(struct backup *b, struct db *db, int pages)
{
	int r, rc = sqlite3_backup_step(b->run, pages);

	if (rc == SQLITE_OK)
		return 0;
	r = rc == SQLITE_DONE ? backup_finish(b) : errno_of(rc);
	if (r < 0) {
		backup_drop(b, db);
		return r;
	}
	return 1;
}

int backup_step(struct backup *b, struct db *db, int pages)
{
	int r = backup_copy(b, db, pages);

	if (r != 1)
		return r;
	r = put_in_place(db->dir);
	if (r < 0) {
		backup_drop(b, db);
		return r;
	}
	b->follows = true;
	return 1;
}

void backup_drop(struct backup *b, struct db *db)
{
	if (b->run)
		(void)sqlite3_backup_finish(b->run);
	if (b->to) {
		(void)sqlite3_close(b->to);
		(void)unlinkat(db->dir->fd, b->file, 0);
	}
	buf_fini(&b->since);
	*b = (struct backup){ 0 };
}

/* --- by change --- */

void backup_note(struct backup *b, const struct changes *c)
{
	size_t n = buf_len(&c->buf);

	if (!b->follows || !n)
		return;
	if (buf_len(&b->since) + n <= SINCE_MAX && !buf_put(&b->since, buf_data(&c->buf), n))
		return;
	b->follows = false;
	buf_fini(&b->since);
}

static int apply_since(struct backup *b, struct db *copy, uint64_t to)
{
	struct changes c = { .buf = b->since };
	int rc = db_step(copy, STMT_BEGIN);

	if (rc == SQLITE_OK)
		rc = db_apply(copy, &c);
	if (rc == SQLITE_OK)
		rc = db_put_mark(copy, to);
	return rc == SQLITE_OK ? db_step(copy, STMT_COMMIT) : rc;
}

/* The copy is open only during this call, since its statements and pages cost memory. */
int backup_follow(struct backup *b, struct state_dir *dir, uint64_t from, uint64_t to)
{
	struct db copy = { .dir = dir, .file = BACKUP_FILE };
	int rc = db_reopen(&copy);

	if (rc == SQLITE_OK && db_get_number(&copy, "mark") != from)
		rc = SQLITE_NOTFOUND;
	if (rc == SQLITE_OK)
		rc = apply_since(b, &copy, to);
	db_close(&copy);
	buf_fini(&b->since);
	b->follows = rc == SQLITE_OK;
	return errno_of(rc);
}

/* --- reading one --- */

static void backup_look_one(struct db *x, struct backup_facts *ret)
{
	int version = 0;

	if (db_version(x, &version) != SQLITE_OK || version < 1 || version > schema_version)
		return;
	ret->mark = db_get_number(x, "mark");
	db_get_host(x, ret->host);
	ret->usable = true;
}

void backup_look(struct state_dir *dir, struct backup_facts *ret)
{
	struct db x = { .dir = dir };
	struct stat st;

	*ret = (struct backup_facts){ 0 };
	if (fstatat(dir->fd, BACKUP_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_uid != geteuid())
		return;
	if (open_file(dir, BACKUP_FILE, &x.sql) == SQLITE_OK)
		backup_look_one(&x, ret);
	db_close(&x);
}

bool backup_is_sound(struct state_dir *dir)
{
	struct db x = { .dir = dir };
	bool sound = open_file(dir, BACKUP_FILE, &x.sql) == SQLITE_OK && db_check(&x) == SQLITE_OK;

	db_close(&x);
	return sound;
}

int backup_restore(struct state_dir *dir)
{
	scoped(fd_closep) int from = openat(dir->fd, BACKUP_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	scoped(fd_closep) int to = -1;
	char block[16384];
	ssize_t n;
	int r = 0;

	if (from < 0 || (unlinkat(dir->fd, DB_FILE ".new", 0) < 0 && errno != ENOENT))
		return -errno;
	to = openat(dir->fd, DB_FILE ".new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	while (!r && (n = read(from, block, sizeof(block))) != 0)
		r = n < 0 ? -errno : fd_write_all(to, block, (size_t)n);
	if (!r && (fsync(to) < 0 || renameat(dir->fd, DB_FILE ".new", dir->fd, DB_FILE) < 0 || fsync(dir->fd) < 0))
		r = -errno;
	if (r < 0)
		(void)unlinkat(dir->fd, DB_FILE ".new", 0);
	return r;
}
