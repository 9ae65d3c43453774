/* SPDX-License-Identifier: MIT */
/*
 * Copies a tree. A file with several names is copied once, into a folder beside the copy that is
 * removed at the end, and linked from there.
 */
#include "daemon/local/engine/copytree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define XATTRS_MAX  65536u
#define CHUNK_BYTES (256u * 1024)

struct copy {
	const struct container_copy *how;
	int links_fd;		/* of files with several names, by inode */
	uint8_t *chunk;
};

/* Where an entry is; for calls that know no descriptors. */
static void entry_path(char ret[PATH_MAX], int fd, const char *name)
{
	snprintf(ret, PATH_MAX, "/proc/self/fd/%d/%s", fd, name);
}

/* What an overlay noted about the layers it lay over: they are not the same ones for the copy. */
static bool is_left_out(const char *xattr)
{
	return str_eq(xattr, "trusted.overlay.origin") || str_eq(xattr, "user.overlay.origin") ||
	       str_eq(xattr, "trusted.overlay.uuid") || str_eq(xattr, "user.overlay.uuid");
}

static int copy_xattr(const char *from, const char *to, const char *name)
{
	char value[XATTRS_MAX];
	ssize_t n = lgetxattr(from, name, value, sizeof(value));

	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	if (lsetxattr(to, name, value, (size_t)n, 0) == 0)
		return 0;
	/* What this process may not set (labels of a security module) is the new place's own. */
	return errno == EPERM || errno == EOPNOTSUPP || errno == EINVAL ? 0 : -errno;
}

static int copy_xattrs(int from_fd, const char *from, int to_fd, const char *to)
{
	char a[PATH_MAX], b[PATH_MAX], names[XATTRS_MAX];
	ssize_t n;
	int r = 0;

	entry_path(a, from_fd, from);
	entry_path(b, to_fd, to);
	n = llistxattr(a, names, sizeof(names));
	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *s = names; s < names + n && r == 0; s += strlen(s) + 1)
		if (!is_left_out(s))
			r = copy_xattr(a, b, s);
	return r;
}

/* Owner, mode, attributes, times: in this order, because each may undo one before it. */
static int copy_facts(const struct copy *c, int from_fd, const char *from, int to_fd, const char *to,
		      const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	uid_t uid = (uid_t)((int64_t)st->st_uid + c->how->shift);
	gid_t gid = (gid_t)((int64_t)st->st_gid + c->how->shift);
	int r;

	if (c->how->supervisor_owners && fchownat(to_fd, to, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = copy_xattrs(from_fd, from, to_fd, to);
	if (r < 0)
		return r;
	if (!S_ISLNK(st->st_mode) && fchmodat(to_fd, to, st->st_mode & 07777, 0) < 0)
		return -errno;
	return utimensat(to_fd, to, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* --- data --- */

static int copy_run(const struct copy *c, int in, int out, off_t at, off_t end)
{
	while (at < end) {
		size_t want = (size_t)MIN(end - at, (off_t)CHUNK_BYTES);
		ssize_t n = pread(in, c->chunk, want, at);

		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;	/* shorter than it was: its size is set at the end */
		for (ssize_t done = 0; done < n;) {
			ssize_t k = pwrite(out, c->chunk + done, (size_t)(n - done), at + done);

			if (k < 0)
				return -errno;
			done += k;
		}
		at += n;
	}
	return 0;
}

static int copy_data(const struct copy *c, int in, int out, off_t size)
{
	off_t at = 0;
	int r = 0;

	if (!size || ioctl(out, FICLONE, in) == 0)
		return 0;
	while (at < size && r == 0) {
		off_t data = lseek(in, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break;		/* only a hole is left */
		if (data < 0)
			return -errno;
		hole = lseek(in, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		r = copy_run(c, in, out, data, MIN(hole, size));
		at = hole;
	}
	return r < 0 ? r : ftruncate(out, size) < 0 ? -errno : 0;
}

/* A user's sandbox may have files that not even their owner may read. */
static int open_source(int at, const char *name, int flags, mode_t mode)
{
	int fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno != EACCES || fchmodat(at, name, (mode & 07777) | 0500, 0) < 0)
		return -errno;
	fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)fchmod(fd, mode & 07777);
	return fd;
}

static int copy_file(const struct copy *c, int from_fd, const char *from, int to_fd, const char *to,
		     const struct stat *st)
{
	scoped(fd_closep) int in = open_source(from_fd, from, O_RDONLY | O_NONBLOCK, st->st_mode);
	scoped(fd_closep) int out = -1;
	struct stat now;
	int r;

	if (in < 0)
		return in;
	if (fstat(in, &now) < 0 || !S_ISREG(now.st_mode))
		return -ESTALE;
	out = openat(to_fd, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	r = copy_data(c, in, out, now.st_size);
	return r < 0 ? r : copy_facts(c, from_fd, from, to_fd, to, st);
}

static int copy_symlink(int from_fd, const char *from, int to_fd, const char *to)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(from_fd, from, target, PATH_MAX);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, to_fd, to) < 0 ? -errno : 0;
}

/* Whiteouts are character devices 0/0, which anybody may make. */
static int copy_other(const struct copy *c, int from_fd, const char *from, int to_fd, const char *to,
		      const struct stat *st)
{
	int r;

	if (S_ISREG(st->st_mode))
		return copy_file(c, from_fd, from, to_fd, to, st);
	if (S_ISLNK(st->st_mode))
		r = copy_symlink(from_fd, from, to_fd, to);
	else
		r = mknodat(to_fd, to, (st->st_mode & S_IFMT) | 0600, st->st_rdev) < 0 ? -errno : 0;
	return r < 0 ? r : copy_facts(c, from_fd, from, to_fd, to, st);
}

static int copy_linked(const struct copy *c, int from_fd, const char *from, int to_fd, const char *to,
		       const struct stat *st)
{
	char name[40];
	int r;

	snprintf(name, sizeof(name), "%llx", (unsigned long long)st->st_ino);
	if (faccessat(c->links_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		r = copy_other(c, from_fd, from, c->links_fd, name, st);
		if (r < 0)
			return r;
	}
	return linkat(c->links_fd, name, to_fd, to, 0) < 0 ? -errno : 0;
}

/* --- folders --- */

static int copy_dir(const struct copy *c, int from_fd, const char *from, int to_fd, const char *to,
		    const struct stat *st, unsigned depth);

static int copy_entry(const struct copy *c, int in, int out, const char *name, unsigned depth)
{
	struct stat st;

	if (fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return copy_dir(c, in, name, out, name, &st, depth + 1);
	/* Whiteouts are links of one file: each is made anew. */
	if (st.st_nlink > 1 && !S_ISCHR(st.st_mode))
		return copy_linked(c, in, name, out, name, &st);
	return copy_other(c, in, name, out, name, &st);
}

static int copy_dir(const struct copy *c, int from_fd, const char *from, int to_fd, const char *to,
		    const struct stat *st, unsigned depth)
{
	scoped(fd_closep) int out = -1;
	int in, r = 0;
	struct dirent *e;
	DIR *d;

	if (depth > CONTAINER_COPY_DEPTH_MAX)
		return -ENAMETOOLONG;
	in = open_source(from_fd, from, O_RDONLY | O_DIRECTORY, st->st_mode);
	if (in < 0)
		return in;
	d = fdopendir(in);
	if (!d) {
		fd_close(in);
		return -ENOMEM;
	}
	if (mkdirat(to_fd, to, 0700) < 0)
		r = -errno;
	else
		out = openat(to_fd, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r == 0 && out < 0)
		r = -errno;
	while (r == 0 && (errno = 0, e = readdir(d)))
		if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
			r = copy_entry(c, in, out, e->d_name, depth);
	if (r == 0 && errno)
		r = -errno;
	closedir(d);
	return r < 0 ? r : copy_facts(c, from_fd, from, to_fd, to, st);
}

static int copy_all(struct copy *c, int from_fd, const char *from, int to_fd, const char *to)
{
	char links[NAME_MAX + 1];
	struct stat st;
	int r, e;

	if (fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (snprintf(links, sizeof(links), "%s.links", to) >= (int)sizeof(links))
		return -ENAMETOOLONG;
	if (mkdirat(to_fd, links, 0700) < 0)
		return -errno;
	c->links_fd = openat(to_fd, links, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = c->links_fd < 0 ? -errno : copy_dir(c, from_fd, from, to_fd, to, &st, 0);
	fd_close(c->links_fd);
	e = rmtree(to_fd, links);
	return r < 0 ? r : e;
}

int copytree(int from_fd, const char *from, int to_fd, const char *to, const struct container_copy *how)
{
	struct copy c = { .how = how, .links_fd = -1, .chunk = malloc(CHUNK_BYTES) };
	struct rlimit files;
	int r;

	if (!c.chunk)
		return -ENOMEM;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {	/* two for each folder above */
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	r = copy_all(&c, from_fd, from, to_fd, to);
	free(c.chunk);
	return r;
}
