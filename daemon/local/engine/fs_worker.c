/* SPDX-License-Identifier: MIT */
/*
 * The file worker. It lives inside the sandbox's namespaces, so no mistake here can reach further
 * than the sandbox's own root could; it works through a handle on the root with openat2() all the
 * same. One request at a time, each answered once.
 */
#include "daemon/local/engine/fs_worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/fs_wire.h"
#include "daemon/local/engine/packet.h"
#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define OPEN_FILES  4096u	/* a listing holds one per level */
#define COMPOSE_SLICE_BYTES (1u << 20)
#define PROC_FILE_MAX	    (16u << 20)	/* of what /proc makes up while it is read */

/* --- paths --- */

int fsw_open(const struct fsw *w, const char *path, uint64_t flags, uint32_t mode)
{
	struct open_how how = { .flags = flags | O_CLOEXEC,
				.mode = mode,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	long fd;

	do
		fd = syscall(SYS_openat2, w->root, *path ? path : "/", &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));	/* EAGAIN: a rename meanwhile */
	return fd < 0 ? -errno : (int)fd;
}

const char *fsw_fd_path(int fd, char buf[32])
{
	snprintf(buf, 32, "/proc/self/fd/%d", fd);
	return buf;
}

int fsw_open_parent(const struct fsw *w, const char *path, char *buf, const char **ret_name, int *ret_fd)
{
	char *slash;
	int fd;

	if (!str_copy(buf, FS_PATH_MAX + 1, path))
		return -ENAMETOOLONG;
	for (size_t n = strlen(buf); n > 1 && buf[n - 1] == '/'; n--)
		buf[n - 1] = '\0';
	slash = strrchr(buf, '/');
	if (!slash || !slash[1] || str_eq(slash + 1, ".") || str_eq(slash + 1, ".."))
		return -EINVAL;
	*slash = '\0';
	fd = fsw_open(w, buf, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	*ret_name = slash + 1;
	*ret_fd = fd;
	return 0;
}

int fsw_set_owner(const struct fsw *w, int fd, uint32_t uid, uint32_t gid)
{
	char path[32], text[32];

	if (!w->as_user)
		return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
	snprintf(text, sizeof(text), "%u:%u", uid, gid);
	if (setxattr(fsw_fd_path(fd, path), CONTAINER_OWNER_XATTR, text, strlen(text), 0) < 0 &&
	    errno != EOPNOTSUPP && errno != EPERM)
		return -errno;
	return 0;
}

/* One more folder in `at`; somebody else may be making it, too. */
static int make_dir(const struct fsw *w, int at, const char *name, const char *whole, uint32_t uid,
		    uint32_t gid)
{
	bool ours = mkdirat(at, name, 0755) == 0;
	int fd, r;

	if (!ours && errno != EEXIST)
		return -errno;
	fd = ours ? openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
		  : fsw_open(w, whole, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return ours ? -errno : fd;
	r = ours ? fsw_set_owner(w, fd, uid, gid) : 0;
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	return fd;
}

int fsw_make_dirs(const struct fsw *w, const char *path, uint32_t uid, uint32_t gid)
{
	char prefix[FS_PATH_MAX + 1] = "";
	size_t n = 0;
	int at = fsw_open(w, "/", O_PATH | O_DIRECTORY, 0);

	while (at >= 0) {
		size_t skip = strspn(path, "/"), len = strcspn(path + skip, "/");
		int next;

		if (!len)
			return at;
		if (n + len + 2 > sizeof(prefix)) {
			fd_close(at);
			return -ENAMETOOLONG;
		}
		prefix[n] = '/';
		memcpy(prefix + n + 1, path + skip, len);
		prefix[n + 1 + len] = '\0';
		next = fsw_open(w, prefix, O_PATH | O_DIRECTORY, 0);
		if (next == -ENOENT)
			next = make_dir(w, at, prefix + n + 1, prefix, uid, gid);
		fd_close(at);
		at = next;
		n += len + 1;
		path += skip + len;
	}
	return at;
}

static int parent_of(const char *path, char ret[FS_PATH_MAX + 1])
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] != '/')
		n--;
	if (n > FS_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(ret, path, n);
	ret[n] = '\0';
	return 0;
}

/* --- stat, list --- */

static bool ends_in_slash(const char *path)
{
	size_t n = strlen(path);

	return n && path[n - 1] == '/';
}

/* "/" and paths that end in dots have no name in a parent: they are described as themselves. So are
 * those that end in a slash, which are folders or fail, and lead through a link. */
static int do_stat(struct fsw *w, const char *path)
{
	char buf[FS_PATH_MAX + 1];
	scoped(fd_closep) int fd = -1;
	const char *name;
	int r = ends_in_slash(path) ? -EINVAL : fsw_open_parent(w, path, buf, &name, &fd);

	if (r == 0)
		return fsw_add_entry(w, fd, name, path);
	if (r != -EINVAL)
		return r;
	fd = fsw_open(w, path, O_PATH | O_DIRECTORY, 0);
	return fd < 0 ? fd : fsw_add_entry(w, fd, ".", path);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_free(char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

static int names_read(int fd, char ***ret, size_t *ret_n)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	char **names = NULL;
	size_t n = 0, cap = 0;
	struct dirent *e;
	int r = 0;

	if (!d) {
		r = copy < 0 ? -errno : -ENOMEM;
		fd_close(copy);
		return r;
	}
	while (r == 0 && (e = readdir(d))) {
		if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
			continue;
		if (n == FS_LIST_MAX) {
			r = -E2BIG;
			break;
		}
		if (n == cap) {
			char **more = reallocarray(names, cap ? cap * 2 : 32, sizeof(*more));

			r = more ? 0 : -ENOMEM;
			names = more ? more : names;
			cap = more ? (cap ? cap * 2 : 32) : cap;
		}
		if (r == 0 && !(names[n] = strdup(e->d_name)))
			r = -ENOMEM;
		n += r == 0;
	}
	closedir(d);
	if (r < 0) {
		names_free(names, n);
		return r;
	}
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	*ret = names;
	*ret_n = n;
	return 0;
}

static int list_dir(struct fsw *w, int fd, const char *report, uint32_t depth);

static int list_one(struct fsw *w, int fd, const char *report, const char *name, uint32_t depth)
{
	char path[FS_PATH_MAX + 1];
	scoped(fd_closep) int sub = -1;
	size_t n = strlen(report);
	int r;

	while (n > 0 && report[n - 1] == '/')
		n--;
	if (snprintf(path, sizeof(path), "%.*s/%s", (int)n, report, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (w->n_out == FS_LIST_MAX)
		return -E2BIG;
	r = fsw_add_entry(w, fd, name, path);
	if (r < 0 || depth <= 1)
		return r == -ENOENT ? 0 : r;
	sub = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0)
		return 0;	/* no folder, or gone meanwhile */
	r = list_dir(w, sub, path, depth - 1);
	return r == -EACCES ? 0 : r;	/* shown, not what is in it: one of /usr that is not for all */
}

static int list_dir(struct fsw *w, int fd, const char *report, uint32_t depth)
{
	char **names = NULL;
	size_t n = 0;
	int r = names_read(fd, &names, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r == 0; i++)
		r = list_one(w, fd, report, names[i], depth);
	names_free(names, n);
	return r;
}

static int do_list(struct fsw *w, const char *path, uint32_t depth)
{
	scoped(fd_closep) int fd = fsw_open(w, path, O_PATH | O_DIRECTORY, 0);
	char report[FS_PATH_MAX + 1];

	if (fd < 0)
		return fd;
	if (!str_copy(report, sizeof(report), path))
		return -ENAMETOOLONG;
	str_clean_path(report);
	return list_dir(w, fd, report, depth ? depth : 1);
}

/* --- change --- */

static int do_mkdir(struct fsw *w, const struct fsw_request *q)
{
	int fd = fsw_open(w, q->path, O_PATH, 0);
	struct stat st;
	int r;

	if (fd >= 0) {
		r = fstat(fd, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? -EEXIST : -ENOTDIR;
		fd_close(fd);
		return r;
	}
	if (fd == -ENOTDIR)
		return -ENOTSUP;
	if (fd != -ENOENT)
		return fd;
	fd = fsw_make_dirs(w, q->path, q->uid, q->gid);
	if (fd < 0)
		return fd == -ENOTDIR || fd == -EEXIST || fd == -ENOENT ? -ENOTSUP : fd;
	fd_close(fd);
	return do_stat(w, q->path);
}

/* A name with the slash that the path ends in: it then has to be a folder. */
static int name_as_asked(const char *path, const char *name, char ret[NAME_MAX + 2])
{
	const char *slash = ends_in_slash(path) ? "/" : "";

	return snprintf(ret, NAME_MAX + 2, "%s%s", name, slash) < NAME_MAX + 2 ? 0 : -ENAMETOOLONG;
}

/* All above the new name; a path that ends in a slash is a folder itself. */
static int make_above(const struct fsw *w, const struct fsw_request *q)
{
	char above[FS_PATH_MAX + 1];
	int r = parent_of(q->to, above);

	if (r == 0)
		r = fsw_make_dirs(w, ends_in_slash(q->to) ? q->to : above, q->uid, q->gid);
	if (r < 0)
		return r == -ENOENT ? -ENOTSUP : r;	/* -ENOENT is the source's */
	fd_close(r);
	return 0;
}

/* Nothing is moved onto a folder, not even an empty one; the agent is that careful. */
static int rename_entry(int from, const char *old, int to, const char *new, const char *old_path,
			const char *new_path)
{
	struct stat a, b;

	if (fstatat(from, old, &a, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (fstatat(to, new, &b, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(b.st_mode) &&
	    (str_eq(old_path, new_path) || a.st_dev != b.st_dev || a.st_ino != b.st_ino))
		return -EEXIST;
	return renameat(from, old, to, new) < 0 ? -errno : 0;
}

static int do_move(struct fsw *w, const struct fsw_request *q)
{
	char from_buf[FS_PATH_MAX + 1], to_buf[FS_PATH_MAX + 1], old[NAME_MAX + 2], new[NAME_MAX + 2];
	scoped(fd_closep) int from = -1;
	scoped(fd_closep) int to = -1;
	const char *from_name, *to_name;
	struct stat st;
	int r = fsw_open_parent(w, q->path, from_buf, &from_name, &from);

	if (r == 0)
		r = name_as_asked(q->path, from_name, old);
	if (r < 0)
		return r;
	if (fstatat(from, old, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = make_above(w, q);
	if (r == 0)
		r = fsw_open_parent(w, q->to, to_buf, &to_name, &to);
	if (r == 0)
		r = name_as_asked(q->to, to_name, new);
	if (r == 0)
		r = rename_entry(from, old, to, new, q->path, q->to);
	return r < 0 ? r : fsw_add_entry(w, to, to_name, q->to);
}

static int do_remove(const struct fsw *w, const char *path)
{
	char buf[FS_PATH_MAX + 1];
	scoped(fd_closep) int fd = -1;
	const char *name;
	int r = fsw_open_parent(w, path, buf, &name, &fd);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : rmtree(fd, name);
}

/* --- open --- */

/* Only regular files of real file systems: opening anything else can block or have effects, and
 * some files of /proc look at who reads, which would be the engine (see copy_of_proc()). */
static int check_regular(int fd)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return S_ISREG(st.st_mode) && fs.f_type != PROC_SUPER_MAGIC ? 0 : -EMEDIUMTYPE;
}

static int reopen(int path_fd, int flags)
{
	char path[32];
	int fd, r = check_regular(path_fd);

	if (r < 0)
		return r;
	fd = open(fsw_fd_path(path_fd, path), flags | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool is_of_proc(int fd)
{
	struct statfs fs;
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fstatfs(fd, &fs) == 0 &&
	       fs.f_type == PROC_SUPER_MAGIC;
}

/* Of the worker's own process nothing is told that speaks of its memory: it is a copy of the engine's. */
static bool may_be_told(int handle)
{
	static const char *const told[] = {
		"cgroup", "cmdline", "comm", "gid_map", "limits", "loginuid", "mountinfo", "mounts",
		"mountstats", "oom_score", "oom_score_adj", "sessionid", "setgroups", "statm", "status",
		"uid_map",
	};
	char link[32], path[FS_PATH_MAX + 1], own[32];
	ssize_t n = readlink(fsw_fd_path(handle, link), path, sizeof(path) - 1);
	int len = snprintf(own, sizeof(own), "/proc/%d/", (int)getpid());

	if (n <= 0)
		return false;
	path[n] = '\0';
	if (!str_starts(path, own) || str_starts(path + len, "net/"))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(told); i++)
		if (str_eq(path + len, told[i]))
			return true;
	return false;
}

static int copy_slices(int in, int out)
{
	char slice[16384];
	size_t all = 0;

	for (;;) {
		ssize_t n = read(in, slice, sizeof(slice));
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		all += (size_t)n;
		r = all > PROC_FILE_MAX ? -EFBIG : fd_write_all(out, slice, (size_t)n);
		if (r < 0)
			return r;
	}
}

/* A file of /proc as it is for this process, in memory that is charged to the sandbox: it has no
 * size of its own and cannot be sought in. */
static int copy_of_proc(int handle)
{
	scoped(fd_closep) int in = -1;
	char path[32];
	int out, r;

	if (!may_be_told(handle))
		return -EACCES;
	in = open(fsw_fd_path(handle, path), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (in < 0)
		return -errno;
	out = memfd_create("agentbox-proc", MFD_CLOEXEC);
	if (out < 0)
		return -errno;
	r = copy_slices(in, out);
	if (r < 0)
		fd_close(out);
	return r < 0 ? r : out;
}

/* A device's size is 0, and so is what the cloud's agent reads of one, whatever it would go on with. */
static int copy_of_device(void)
{
	int fd = memfd_create("agentbox-device", MFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool is_device(int handle)
{
	struct stat st;

	return fstat(handle, &st) == 0 && S_ISCHR(st.st_mode);
}

static int do_open_read(struct fsw *w, const char *path, int *ret_fd)
{
	scoped(fd_closep) int handle = fsw_open(w, path, O_PATH, 0);
	int fd, r;

	if (handle < 0)
		return handle;
	fd = is_of_proc(handle) ? copy_of_proc(handle) : is_device(handle) ? copy_of_device() : reopen(handle, O_RDONLY);
	if (fd < 0)
		return fd;
	r = do_stat(w, path);
	if (r < 0)
		fd_close(fd);
	else
		*ret_fd = fd;
	return r;
}

static void clear_meta(int fd)
{
	char *names = malloc(65536);
	ssize_t n = names ? flistxattr(fd, names, 65535) : 0;

	if (n > 0) {
		names[n] = '\0';
		for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1)
			if (str_starts(names + i, FSW_META_PREFIX))
				(void)fremovexattr(fd, names + i);
	}
	free(names);
}

/* On a file system without attributes the upload succeeds and has none. */
static int set_meta(int fd, const struct fsw_request *q)
{
	char name[256];

	clear_meta(fd);
	for (size_t i = 0; i < q->n_meta; i++) {
		if (snprintf(name, sizeof(name), FSW_META_PREFIX "%s", q->meta[i].key) >= (int)sizeof(name))
			return -EINVAL;
		if (fsetxattr(fd, name, q->meta[i].value, strlen(q->meta[i].value), 0) < 0 &&
		    errno != EOPNOTSUPP)
			return -errno;
	}
	return 0;
}

/* Whoever watches is told of a new owner first, then of the writing. */
static int open_old(const struct fsw *w, int handle, const struct fsw_request *q)
{
	int r = check_regular(handle);

	if (r == 0)
		r = fsw_set_owner(w, handle, q->uid, q->gid);
	return r < 0 ? r : reopen(handle, O_WRONLY | O_TRUNC);
}

/* Nothing is cut off where nothing is: a watch would be told of a write. */
static int open_new(const struct fsw *w, const struct fsw_request *q)
{
	int r, fd = fsw_open(w, q->path, O_WRONLY | O_CREAT | O_NOCTTY | O_NONBLOCK, 0644);
	struct stat st;

	if (fd < 0)
		return fd;
	r = check_regular(fd);
	if (r == 0)
		r = fsw_set_owner(w, fd, q->uid, q->gid);
	if (r == 0 && (fstat(fd, &st) < 0 || (st.st_size > 0 && ftruncate(fd, 0) < 0)))
		r = -errno;
	if (r < 0)
		fd_close(fd);
	return r < 0 ? r : fd;
}

/* A file that is there is checked before it is opened; a new one is created where links lead. */
static int open_or_create(const struct fsw *w, const struct fsw_request *q)
{
	scoped(fd_closep) int handle = fsw_open(w, q->path, O_PATH, 0);

	if (handle >= 0)
		return open_old(w, handle, q);
	return handle == -ENOENT ? open_new(w, q) : handle;
}

/* What cannot be made is no missing file. */
static int not_made(int r)
{
	return r == -ENOENT ? -ENOTSUP : r;
}

static int do_open_write(struct fsw *w, const struct fsw_request *q, int *ret_fd)
{
	char parent[FS_PATH_MAX + 1];
	scoped(fd_closep) int dir = -1;
	int fd, r = parent_of(q->path, parent);

	if (r < 0)
		return r;
	if (ends_in_slash(q->path))
		return -EISDIR;
	dir = fsw_make_dirs(w, parent, q->uid, q->gid);
	if (dir < 0)
		return not_made(dir);
	fd = open_or_create(w, q);
	if (fd < 0)
		return not_made(fd);
	r = set_meta(fd, q);
	if (r == 0)
		r = do_stat(w, q->path);
	if (r < 0)
		fd_close(fd);
	else
		*ret_fd = fd;
	return r;
}

/* --- compose --- */

static int append_file(const struct fsw *w, const char *path, int out)
{
	scoped(fd_closep) int handle = fsw_open(w, path, O_PATH, 0);
	scoped(fd_closep) int in = -1;
	ssize_t n;

	if (handle < 0)
		return handle;
	in = reopen(handle, O_RDONLY);
	if (in < 0)
		return in;
	do
		n = sendfile(out, in, NULL, COMPOSE_SLICE_BYTES);
	while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : 0;
}

/* Every source is looked at before the first byte is written, and removed after the last one. */
static int compose_into(const struct fsw *w, const struct fsw_request *q, int dir, const char *tmp)
{
	scoped(fd_closep) int out = -1;
	int r = 0;

	for (size_t i = 0; i < q->n_meta && r == 0; i++) {
		scoped(fd_closep) int fd = fsw_open(w, q->meta[i].key, O_PATH, 0);

		r = fd < 0 ? fd : check_regular(fd);
	}
	if (r < 0)
		return r;
	out = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (out < 0)
		return -errno;
	for (size_t i = 0; i < q->n_meta && r == 0; i++)
		r = append_file(w, q->meta[i].key, out);
	return r < 0 ? r : fsw_set_owner(w, out, q->uid, q->gid);
}

static int do_compose(struct fsw *w, const struct fsw_request *q)
{
	char parent[FS_PATH_MAX + 1], buf[FS_PATH_MAX + 1], tmp[64];
	scoped(fd_closep) int made = -1;
	scoped(fd_closep) int dir = -1;
	const char *name;
	int r = parent_of(q->path, parent);

	if (r < 0)
		return r;
	made = fsw_make_dirs(w, parent, q->uid, q->gid);
	if (made < 0)
		return not_made(made);
	r = fsw_open_parent(w, q->path, buf, &name, &dir);
	if (r < 0)
		return r == -EINVAL ? -EISDIR : not_made(r);
	snprintf(tmp, sizeof(tmp), ".agentbox-compose-%ld", (long)getpid());
	r = compose_into(w, q, dir, tmp);
	if (r == 0 && renameat(dir, tmp, dir, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dir, tmp, 0);
		return r;
	}
	for (size_t i = 0; i < q->n_meta; i++)
		(void)do_remove(w, q->meta[i].key);
	return fsw_add_entry(w, dir, name, q->path);
}

/* --- serving --- */

static int carry_out(struct fsw *w, const struct fsw_request *q, int *ret_fd)
{
	switch (q->op) {
	case FSW_STAT:
		return do_stat(w, q->path);
	case FSW_LIST:
		return do_list(w, q->path, q->depth);
	case FSW_MKDIR:
		return do_mkdir(w, q);
	case FSW_MOVE:
		return do_move(w, q);
	case FSW_REMOVE:
		return do_remove(w, q->path);
	case FSW_OPEN_READ:
		return do_open_read(w, q->path, ret_fd);
	case FSW_OPEN_WRITE:
		return do_open_write(w, q, ret_fd);
	case FSW_COMPOSE:
		return do_compose(w, q);
	}
	return -EBADMSG;
}

static int to_memfd(const struct buf *b, int *ret)
{
	int fd = memfd_create("agentbox-list", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, buf_data(b), buf_len(b));
	if (r < 0)
		fd_close(fd);
	else
		*ret = fd;
	return r;
}

static int fs_worker_answer(struct fsw *w, int sock, int r, int fd)
{
	scoped(fd_closep) int memfd = -1;
	struct fsw_reply head = { .r = r };
	struct buf msg = BUF_NULL;
	int passed;

	if (r == 0 && buf_len(&w->out) + sizeof(head) > FSW_MESSAGE_MAX) {
		head.r = to_memfd(&w->out, &memfd);
		head.in_memfd = head.r == 0;
	}
	if (head.r == 0) {
		head.n_entries = w->n_out;
		head.bytes = (uint32_t)buf_len(&w->out);
	}
	passed = head.r < 0 ? -1 : memfd >= 0 ? memfd : fd;
	r = buf_put(&msg, &head, sizeof(head));
	if (r == 0 && head.bytes && !head.in_memfd)
		r = buf_put(&msg, buf_data(&w->out), buf_len(&w->out));
	if (r == 0)
		r = pkt_send(sock, buf_data(&msg), buf_len(&msg), &passed, passed >= 0);
	buf_fini(&msg);
	return r;
}

static void serve(struct fsw *w, int sock, const void *p, size_t n)
{
	struct fs_meta *meta = NULL;
	struct fsw_request q;
	int fd = -1, r = fsw_request_decode(p, n, &q, &meta);

	if (r == 0)
		r = carry_out(w, &q, &fd);
	r = fs_worker_answer(w, sock, r, fd);
	fd_close(fd);
	free(meta);
	buf_fini(&w->out);
	buf_init(&w->out, FSW_REPLY_MAX);
	w->n_out = 0;
	free(w->passwd);
	free(w->group);
	w->passwd = w->group = NULL;
	if (r < 0)
		_exit(1);
}

noreturn_ void fs_worker_run(int sock, bool as_user)
{
	static char request[FSW_MESSAGE_MAX];
	struct fsw w = { .as_user = as_user };
	struct rlimit files;

	(void)umask(0);
	buf_init(&w.out, FSW_REPLY_MAX);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = MIN(files.rlim_max, OPEN_FILES);
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	w.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w.root < 0)
		_exit(1);
	for (;;) {
		ssize_t n = read(sock, request, sizeof(request));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(0);
		serve(&w, sock, request, (size_t)n);
	}
}
