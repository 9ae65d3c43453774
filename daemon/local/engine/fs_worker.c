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

/* "/" and paths that end in dots have no name in a parent: they are described as themselves. */
static int do_stat(struct fsw *w, const char *path)
{
	char buf[FS_PATH_MAX + 1];
	scoped(fd_closep) int fd = -1;
	const char *name;
	int r = fsw_open_parent(w, path, buf, &name, &fd);

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

	return fd < 0 ? fd : list_dir(w, fd, path, depth ? depth : 1);
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
		return fd == -ENOTDIR || fd == -EEXIST ? -ENOTSUP : fd;
	fd_close(fd);
	return do_stat(w, q->path);
}

static int do_move(struct fsw *w, const struct fsw_request *q)
{
	char from_buf[FS_PATH_MAX + 1], to_buf[FS_PATH_MAX + 1];
	scoped(fd_closep) int from = -1;
	scoped(fd_closep) int to = -1;
	const char *from_name, *to_name;
	struct stat st;
	int r = fsw_open_parent(w, q->path, from_buf, &from_name, &from);

	if (r < 0)
		return r;
	if (fstatat(from, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = parent_of(q->to, to_buf);
	if (r == 0)
		r = fsw_make_dirs(w, to_buf, q->uid, q->gid);
	if (r < 0)
		return r == -ENOENT ? -ENOTSUP : r;	/* -ENOENT is the source's */
	fd_close(r);
	r = fsw_open_parent(w, q->to, to_buf, &to_name, &to);
	if (r == 0 && renameat(from, from_name, to, to_name) < 0)
		r = -errno;
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
 * some files of /proc look at who reads, which would be the engine. */
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

static int do_open_read(struct fsw *w, const char *path, int *ret_fd)
{
	scoped(fd_closep) int handle = fsw_open(w, path, O_PATH, 0);
	int fd, r;

	if (handle < 0)
		return handle;
	fd = reopen(handle, O_RDONLY);
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

/* A file that is there is checked before it is opened; a new one is created where links lead. */
static int open_or_create(const struct fsw *w, const char *path)
{
	scoped(fd_closep) int handle = fsw_open(w, path, O_PATH, 0);
	int fd, r;

	if (handle >= 0)
		return reopen(handle, O_WRONLY | O_TRUNC);
	if (handle != -ENOENT)
		return handle;
	fd = fsw_open(w, path, O_WRONLY | O_CREAT | O_NOCTTY | O_NONBLOCK, 0644);
	if (fd < 0)
		return fd;
	r = check_regular(fd);
	if (r == 0 && ftruncate(fd, 0) < 0)
		r = -errno;
	if (r < 0)
		fd_close(fd);
	return r < 0 ? r : fd;
}

static int do_open_write(struct fsw *w, const struct fsw_request *q, int *ret_fd)
{
	char parent[FS_PATH_MAX + 1];
	scoped(fd_closep) int dir = -1;
	int fd, r = parent_of(q->path, parent);
	size_t n = strlen(q->path);

	if (r < 0)
		return r;
	if (n && q->path[n - 1] == '/')
		return -EISDIR;
	dir = fsw_make_dirs(w, parent, q->uid, q->gid);
	if (dir < 0)
		return dir;
	fd = open_or_create(w, q->path);
	if (fd < 0)
		return fd;
	r = fsw_set_owner(w, fd, q->uid, q->gid);
	if (r == 0)
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
		return made;
	r = fsw_open_parent(w, q->path, buf, &name, &dir);
	if (r < 0)
		return r == -EINVAL ? -EISDIR : r;
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
