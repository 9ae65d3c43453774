/* SPDX-License-Identifier: MIT */
/* File worker: describes one file as the cloud's agent tells it (lstat, and a link's target beside it). */
#include "daemon/local/engine/fs_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/fs_wire.h"
#include "daemon/local/engine/passwd.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define NAMES_MAX   (64u * 1024)	/* of one file's attributes; the kernel's own limit */
#define ID_TEXT_MAX 65u

struct described {
	struct fs_entry e;
	char owner[ID_TEXT_MAX], group[ID_TEXT_MAX];
	char target[PATH_MAX];
	struct fs_meta *meta;
	char *names, *values;	/* what meta points into */
};

static enum fs_type type_of(mode_t m)
{
	return S_ISREG(m) ? FS_FILE : S_ISDIR(m) ? FS_DIRECTORY :
	       S_ISLNK(m) ? FS_SYMLINK : FS_UNSPECIFIED;
}

/* In the notation of Go's FileMode: the cloud's agent is written in it. */
static void permissions(mode_t m, char ret[16])
{
	static const char rwx[] = "rwxrwxrwx";
	size_t n = 0;

	if (S_ISDIR(m))
		ret[n++] = 'd';
	if (S_ISLNK(m))
		ret[n++] = 'L';
	if (S_ISBLK(m) || S_ISCHR(m))
		ret[n++] = 'D';
	if (S_ISFIFO(m))
		ret[n++] = 'p';
	if (S_ISSOCK(m))
		ret[n++] = 'S';
	if (m & S_ISUID)
		ret[n++] = 'u';
	if (m & S_ISGID)
		ret[n++] = 'g';
	if (S_ISCHR(m))
		ret[n++] = 'c';
	if (m & S_ISVTX)
		ret[n++] = 't';
	if (n == 0)
		ret[n++] = '-';
	for (unsigned i = 0; i < 9; i++)
		ret[n++] = m & (0400u >> i) ? rwx[i] : '-';
	ret[n] = '\0';
}

/* --- owners --- */

/* As an ordinary user all files have one owner: the attribute says whose they are. Without one, what
 * is ours was made by a command, so by `user`; what is not is the machine's, so root's. */
static void stored_owner(const char *path, const struct stat *st, uint32_t *ret_uid, uint32_t *ret_gid)
{
	char text[32];
	ssize_t n = getxattr(path, CONTAINER_OWNER_XATTR, text, sizeof(text) - 1);
	unsigned uid, gid;

	*ret_uid = *ret_gid = st->st_uid == 0 ? CONTAINER_USER_ID : 0;
	if (n <= 0)
		return;
	text[n] = '\0';
	if (sscanf(text, "%u:%u", &uid, &gid) == 2) {
		*ret_uid = uid;
		*ret_gid = gid;
	}
}

static void owner_names(struct fsw *w, struct described *d)
{
	/* A sandbox without these files shows numbers. */
	if (!w->passwd && passwd_read(w->root, "/etc/passwd", &w->passwd) < 0)
		w->passwd = NULL;
	if (!w->group && passwd_read(w->root, "/etc/group", &w->group) < 0)
		w->group = NULL;
	if (!w->passwd || !passwd_name_of(w->passwd, d->e.uid, d->owner, sizeof(d->owner)))
		snprintf(d->owner, sizeof(d->owner), "%u", d->e.uid);
	if (!w->group || !passwd_name_of(w->group, d->e.gid, d->group, sizeof(d->group)))
		snprintf(d->group, sizeof(d->group), "%u", d->e.gid);
	d->e.owner = d->owner;
	d->e.group = d->group;
}

/* --- metadata --- */

static size_t count_meta(const char *names, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i += strlen(names + i) + 1)
		count += str_starts(names + i, FSW_META_PREFIX);
	return count;
}

/* Metadata that cannot be read is left out: the file system may have none. The path is a magic link of
 * /proc/self/fd: the calls that do not follow would ask the link itself. */
static int read_meta(const char *path, struct described *d)
{
	ssize_t n = listxattr(path, NULL, 0);
	size_t count, used = 0;

	if (n <= 0)
		return 0;
	d->names = malloc(NAMES_MAX);
	if (!d->names)
		return -ENOMEM;
	n = listxattr(path, d->names, NAMES_MAX - 1);
	if (n <= 0)
		return 0;
	d->names[n] = '\0';
	count = count_meta(d->names, (size_t)n);
	if (!count || count > FS_META_MAX_BYTES)
		return 0;
	d->meta = calloc(count, sizeof(*d->meta));
	d->values = malloc(2 * FS_META_MAX_BYTES);
	if (!d->meta || !d->values)
		return -ENOMEM;
	for (size_t i = 0; i < (size_t)n; i += strlen(d->names + i) + 1) {
		const char *name = d->names + i;
		ssize_t k;

		if (!str_starts(name, FSW_META_PREFIX) || used >= 2 * FS_META_MAX_BYTES - 1)
			continue;
		k = getxattr(path, name, d->values + used, 2 * FS_META_MAX_BYTES - used - 1);
		if (k < 0 || memchr(d->values + used, 0, (size_t)k))
			continue;
		d->values[used + (size_t)k] = '\0';
		d->meta[d->e.n_meta++] =
			(struct fs_meta){name + strlen(FSW_META_PREFIX), d->values + used};
		used += (size_t)k + 1;
	}
	d->e.meta = d->meta;
	return 0;
}

/* --- links --- */

/* Type and mode are the target's; a dangling link has neither and is its own target. */
static void follow(struct fsw *w, const char *report, struct described *d)
{
	scoped(fd_closep) int fd = fsw_open(w, report, O_PATH, 0);
	char path[32];
	struct stat st;
	ssize_t n;

	d->e.type = FS_UNSPECIFIED;
	d->e.mode = 0;
	d->e.symlink_target = report;
	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	n = readlink(fsw_fd_path(fd, path), d->target, sizeof(d->target) - 1);
	if (n <= 0)
		return;
	d->target[n] = '\0';
	d->e.symlink_target = d->target;
	d->e.type = type_of(st.st_mode);
	d->e.mode = st.st_mode & 0777;
}

static int describe(struct fsw *w, int fd, const char *report, struct described *d)
{
	char path[32];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	d->e = (struct fs_entry){.path = report,
				 .type = type_of(st.st_mode),
				 .mode = st.st_mode & 0777,
				 .size = st.st_size,
				 .mtime_s = st.st_mtim.tv_sec,
				 .mtime_ns = (int32_t)st.st_mtim.tv_nsec,
				 .uid = st.st_uid,
				 .gid = st.st_gid};
	permissions(st.st_mode, d->e.permissions);
	if (w->as_user)
		stored_owner(fsw_fd_path(fd, path), &st, &d->e.uid, &d->e.gid);
	owner_names(w, d);
	if (S_ISLNK(st.st_mode)) {
		follow(w, report, d);
		return 0;
	}
	return read_meta(fsw_fd_path(fd, path), d);
}

int fsw_add_entry(struct fsw *w, int parent_fd, const char *name, const char *report)
{
	scoped(fd_closep) int fd = -1;
	struct described d = { .meta = NULL };
	int r;

	fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = describe(w, fd, report, &d);
	if (r == 0)
		r = fsw_entry_encode(&d.e, &w->out);
	if (r == 0)
		w->n_out++;
	free(d.meta);
	free(d.names);
	free(d.values);
	return r;
}
