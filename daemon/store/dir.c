/* SPDX-License-Identifier: MIT */
#include "daemon/store/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

printf_like(3, 4) static int fail(struct store_report *r, int result, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	return result;
}

/* File systems whose locks and shared memory cannot be trusted over the network. */
static bool is_network_fs(int fd)
{
	static const uint32_t magics[] = {
		NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC,
		AFS_SUPER_MAGIC, AFS_FS_MAGIC,	  CEPH_SUPER_MAGIC, V9FS_MAGIC,
		CODA_SUPER_MAGIC, FUSE_SUPER_MAGIC, 0x0bd00bd0 /* Lustre */, 0x47504653 /* GPFS */,
	};
	struct statfs s;

	if (fstatfs(fd, &s) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
		if ((uint32_t)s.f_type == magics[i])
			return true;
	return false;
}

static int check_dir(struct state_dir *d, struct store_report *r)
{
	struct stat st;

	if (fstat(d->fd, &st) < 0)
		return fail(r, STORE_BROKEN, "%s: %m", d->path);
	if (st.st_uid != geteuid())
		return fail(r, STORE_UNSAFE, "%s belongs to uid %u, not to us (uid %u)", d->path,
			    st.st_uid, geteuid());
	if (st.st_mode & 022)
		return fail(r, STORE_UNSAFE,
			    "%s can be written by others (mode %04o); chmod it to 0700", d->path,
			    st.st_mode & 07777);
	if (st.st_mode & 077) {
		if (fchmod(d->fd, 0700) < 0)
			return fail(r, STORE_UNSAFE, "%s: chmod 0700: %m", d->path);
		log_info("state_dir_mode", "path=%s mode=0700 was=%04o", log_q(d->path),
			 st.st_mode & 07777);
	}
	return 0;
}

static pid_t read_holder(int lock_fd)
{
	char text[24];
	uint64_t pid;
	ssize_t n = pread(lock_fd, text, sizeof(text), 0);

	if (n > 0 && text[n - 1] == '\n')
		n--;
	return n > 0 && !str_u64(text, (size_t)n, INT32_MAX, &pid) ? (pid_t)pid : 0;
}

static int take_lock(struct state_dir *d, struct store_report *r)
{
	char text[24];
	int n;

	d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (d->lock_fd < 0)
		return fail(r, errno == ELOOP ? STORE_UNSAFE : STORE_BROKEN, "%s/lock: %m", d->path);
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return fail(r, STORE_BROKEN, "%s/lock: flock: %m", d->path);
		r->holder = read_holder(d->lock_fd);
		return fail(r, STORE_BUSY, "%s is in use by process %d; stop it or use another --state-dir",
			    d->path, (int)r->holder);
	}
	/* The pid is for people: the lock is what counts, so a full disk is no reason to stop. */
	n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(d->lock_fd, 0) < 0 || pwrite(d->lock_fd, text, (size_t)n, 0) != n)
		log_warn("state_lock_pid", "path=%s error=%s ignoring=1", log_q(d->path),
			 log_q(strerrordesc_np(errno)));
	return 0;
}

int state_dir_open(struct state_dir *d, const char *path, struct store_report *report)
{
	int r;

	*d = (struct state_dir){ .fd = -1, .lock_fd = -1 };
	r = fd_mkdirs(path, 0700);
	if (r < 0)
		return fail(report, STORE_BROKEN, "%s: %s", path, strerrordesc_np(-r));
	d->path = realpath(path, NULL);
	if (!d->path)
		return fail(report, STORE_BROKEN, "%s: %m", path);
	d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d->fd < 0)
		return fail(report, STORE_BROKEN, "%s: %m", d->path);
	r = check_dir(d, report);
	if (r)
		return r;
	d->network_fs = report->network_fs = is_network_fs(d->fd);
	return take_lock(d, report);
}

int state_dir_check_file(struct state_dir *d, const char *name, bool *ret_exists,
			 struct store_report *report)
{
	struct stat st;

	*ret_exists = false;
	if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail(report, STORE_BROKEN, "%s/%s: %m", d->path, name);
	*ret_exists = true;
	if (!S_ISREG(st.st_mode))
		return fail(report, STORE_UNSAFE, "%s/%s is not a regular file", d->path, name);
	if (st.st_uid != geteuid())
		return fail(report, STORE_UNSAFE, "%s/%s belongs to uid %u, not to us", d->path, name,
			    st.st_uid);
	if ((st.st_mode & 077) && fchmodat(d->fd, name, 0600, 0) < 0)
		return fail(report, STORE_UNSAFE, "%s/%s: chmod 0600: %m", d->path, name);
	return 0;
}

void state_dir_close(struct state_dir *d)
{
	d->lock_fd = fd_close(d->lock_fd);
	d->fd = fd_close(d->fd);
	free(d->path);
	d->path = NULL;
}
