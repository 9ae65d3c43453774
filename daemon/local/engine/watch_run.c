/* SPDX-License-Identifier: MIT */
/*
 * The watching process inside a sandbox: one inotify instance, one directory (with all below it if
 * asked). It reports to the engine and waits where the engine does not read; the kernel's queue of
 * events is the only buffer, and its overflow is told.
 *
 * A directory that appears is watched first and looked through then, so what was made in it before
 * is reported too. One that is moved away is forgotten with all below it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/local/engine/fs_wire.h"
#include "daemon/local/engine/fs_worker.h"
#include "daemon/local/engine/packet.h"
#include "daemon/local/engine/watch_int.h"
#include "proto/base/fd.h"
#include "proto/base/map.h"
#include "proto/base/str.h"

#define EVENTS_BYTES (64u * 1024)
#define MOVED_WAIT_MS 20	/* the kernel tells both names in one call, one after the other */
#define WATCH_MASK                                                                                 \
	(IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_MODIFY | IN_ATTRIB | IN_DELETE |             \
	 IN_DELETE_SELF | IN_MOVE_SELF)

#define CIFS_MAGIC  0xff534d42u
#define SMB2_MAGIC  0xfe534d42u

struct wdir {
	int wd;
	char *rel;		/* below the watched directory; "" is itself */
};

struct run {
	struct fsw fs;
	int sock, ino;
	dev_t dev;		/* which directory it is; a handle on it would keep it from being */
	ino_t inode;		/* removed for the kernel, and its removal from being told */
	struct watch_request q;
	struct map dirs;	/* wd → struct wdir */
	struct {
		uint32_t cookie;	/* 0 = nothing is on its way */
		bool seen;		/* events were read after it */
		char rel[FS_PATH_MAX + 1];
	} moved;		/* a directory that left its name; its new one may be told next */
};

/* Names still to be looked through. */
struct todo {
	char **v;
	size_t n, cap;
};

/* --- reports --- */

static void send_report(struct run *w, const struct watch_report *h, const char *name)
{
	struct buf msg = BUF_NULL;
	int r = buf_put(&msg, h, sizeof(*h));

	if (r == 0 && h->name_bytes)
		r = buf_put(&msg, name, h->name_bytes);
	if (r == 0 && h->entry_bytes)
		r = buf_put(&msg, buf_data(&w->fs.out), h->entry_bytes);
	if (r == 0)
		r = pkt_send(w->sock, buf_data(&msg), buf_len(&msg), NULL, 0);
	buf_fini(&msg);
	if (r < 0)
		_exit(0);	/* nobody there, or no memory: the engine sees the end */
}

static void send_kind(struct run *w, enum container_watch_kind kind, int r)
{
	const struct watch_report h = { .kind = kind, .r = r };

	send_report(w, &h, NULL);
}

static noreturn_ void end(struct run *w, enum container_watch_kind kind, int r)
{
	send_kind(w, kind, r);
	_exit(0);
}

/* --- paths below the directory --- */

/* -ESTALE: the watched directory is not where it was. */
static int open_top(const struct run *w)
{
	int fd = fsw_open(&w->fs, w->q.path, O_PATH | O_DIRECTORY, 0);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == w->dev && st.st_ino == w->inode)
		return fd;
	fd_close(fd);
	return -ESTALE;
}

static int open_below(const struct run *w, const char *rel)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	scoped(fd_closep) int top = open_top(w);
	long fd;

	if (top < 0)
		return top;
	do
		fd = syscall(SYS_openat2, top, *rel ? rel : ".", &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : (int)fd;
}

/* "dir/name"; false if it is too long to be reported. */
static bool join(char *ret, size_t cap, const char *dir, const char *name)
{
	int n = snprintf(ret, cap, "%s%s%s", dir, *dir ? "/" : "", name);

	return n >= 0 && (size_t)n < cap;
}

/* The entry into w->fs.out; its length, 0 if it is gone. */
static uint32_t describe(struct run *w, const char *rel)
{
	char report[FS_PATH_MAX + 1], parent[FS_PATH_MAX + 1];
	const char *slash = strrchr(rel, '/'), *top = w->q.path;
	size_t n = strlen(top);
	scoped(fd_closep) int fd = -1;

	buf_drop(&w->fs.out, buf_len(&w->fs.out));
	w->fs.n_out = 0;
	while (n > 0 && top[n - 1] == '/')
		n--;
	if (snprintf(report, sizeof(report), "%.*s/%s", (int)n, top, rel) >= (int)sizeof(report))
		return 0;
	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - rel) : 0, rel);
	fd = open_below(w, parent);
	if (fd < 0 || fsw_add_entry(&w->fs, fd, slash ? slash + 1 : rel, report) < 0)
		return 0;
	free(w->fs.passwd);
	free(w->fs.group);
	w->fs.passwd = w->fs.group = NULL;
	return (uint32_t)buf_len(&w->fs.out);
}

static void report(struct run *w, enum container_watch_op op, const char *rel)
{
	struct watch_report h = { .kind = CONTAINER_WATCH_CHANGE, .op = op,
				  .name_bytes = (uint32_t)strlen(rel) + 1 };
	bool wanted = op == CONTAINER_WATCH_CREATE || op == CONTAINER_WATCH_WRITE ||
		      op == CONTAINER_WATCH_CHMOD;

	if (w->q.entries && wanted)
		h.entry_bytes = describe(w, rel);
	if (sizeof(h) + h.name_bytes + h.entry_bytes > WATCH_REPORT_MAX)
		h.entry_bytes = 0;
	send_report(w, &h, rel);
}

/* --- directories --- */

static void wdir_free(struct wdir *d)
{
	free(d->rel);
	free(d);
}

/* Watches one directory. 0 or -errno; -ENOSPC: too many. */
static int add_dir(struct run *w, const char *rel)
{
	scoped(fd_closep) int fd = open_below(w, rel);
	struct wdir *d;
	char path[32];
	char *name;
	int wd, r;

	if (fd < 0)
		return fd;
	if (map_size(&w->dirs) >= CONTAINER_WATCH_DIRS_MAX)
		return -ENOSPC;
	wd = inotify_add_watch(w->ino, fsw_fd_path(fd, path), WATCH_MASK | IN_ONLYDIR);
	if (wd < 0)
		return -errno;
	name = str_dup(rel);
	if (!name)
		return -ENOMEM;
	d = map_get_u64(&w->dirs, (uint64_t)wd);
	if (d) {	/* the same directory under a new name */
		free(d->rel);
		d->rel = name;
		return 0;
	}
	d = malloc(sizeof(*d));
	if (d)
		*d = (struct wdir){ wd, name };
	r = d ? map_put_u64(&w->dirs, (uint64_t)wd, d) : -ENOMEM;
	if (r < 0) {
		free(name);
		free(d);
	}
	return r;
}

static int todo_add(struct todo *t, const char *rel)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 32;
		char **more = reallocarray(t->v, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->v = more;
		t->cap = cap;
	}
	t->v[t->n] = str_dup(rel);
	return t->v[t->n] ? (void)t->n++, 0 : -ENOMEM;
}

static bool is_dir(int at, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type == DT_DIR;
	return fstatat(at, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Watches it, then looks at what is in it. */
static int scan_one(struct run *w, const char *rel, bool tell, struct todo *t)
{
	char name[FS_PATH_MAX + 1];
	struct dirent *e;
	int fd, at, r = add_dir(w, rel);
	DIR *d;

	if (r < 0)
		return r;
	at = open_below(w, rel);
	fd = at < 0 ? at : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd_close(at);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		fd_close(fd);
		return -ENOENT;	/* gone, or not to be read: its parent tells */
	}
	while (r == 0 && (e = readdir(d))) {
		if (str_eq(e->d_name, ".") || str_eq(e->d_name, "..") ||
		    !join(name, sizeof(name), rel, e->d_name))
			continue;
		if (tell)
			report(w, CONTAINER_WATCH_CREATE, name);
		if (is_dir(dirfd(d), e))
			r = todo_add(t, name);
	}
	closedir(d);
	return r;
}

/* A directory and all below it. -ENOENT inside is a race lost, no failure. */
static int scan(struct run *w, const char *rel, bool tell)
{
	struct todo t = { 0 };
	int r = todo_add(&t, rel);

	while (r == 0 && t.n) {
		char *one = t.v[--t.n];

		r = scan_one(w, one, tell, &t);
		if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EACCES)
			r = 0;
		free(one);
	}
	while (t.n)
		free(t.v[--t.n]);
	free(t.v);
	return r;
}

/* Moved away: what happens there is nobody's any more. */
static void forget_below(struct run *w, const char *rel)
{
	size_t n = strlen(rel), pos = 0, n_wds = 0;
	int *wds = calloc(map_size(&w->dirs) + 1, sizeof(*wds));
	struct wdir *d;

	if (!wds)
		end(w, CONTAINER_WATCH_OVERFLOW, 0);
	while ((d = map_next(&w->dirs, &pos)))
		if (!strncmp(d->rel, rel, n) && (!d->rel[n] || d->rel[n] == '/'))
			wds[n_wds++] = d->wd;
	while (n_wds) {
		(void)inotify_rm_watch(w->ino, wds[--n_wds]);
		wdir_free(map_del_u64(&w->dirs, (uint64_t)wds[n_wds]));
	}
	free(wds);
}

/* The directory and all below it have another name; nothing that happens there is missed. */
static int rename_below(struct run *w, const char *old, const char *rel)
{
	size_t n = strlen(old), pos = 0;
	struct wdir *d;

	while ((d = map_next(&w->dirs, &pos))) {
		char *name;

		if (strncmp(d->rel, old, n) != 0 || (d->rel[n] && d->rel[n] != '/'))
			continue;
		name = str_printf("%s%s", rel, d->rel + n);
		if (!name)
			return -ENOMEM;
		free(d->rel);
		d->rel = name;
	}
	return 0;
}

/* It went out of sight. */
static void moved_away(struct run *w)
{
	if (w->moved.cookie)
		forget_below(w, w->moved.rel);
	w->moved.cookie = 0;
}

static void moved_from(struct run *w, const char *rel, uint32_t cookie)
{
	moved_away(w);
	w->moved.cookie = cookie;
	w->moved.seen = false;
	(void)str_copy(w->moved.rel, sizeof(w->moved.rel), rel);
}

/* A new directory is told with all that is in it; one that only has another name is not. */
static int appeared(struct run *w, const char *rel, const struct inotify_event *e)
{
	if (!(e->mask & IN_MOVED_TO) || !w->moved.cookie || e->cookie != w->moved.cookie)
		return scan(w, rel, true);
	w->moved.cookie = 0;
	return rename_below(w, w->moved.rel, rel);
}

/* --- events --- */

static void on_event(struct run *w, const struct inotify_event *e)
{
	static const struct {
		uint32_t mask;
		enum container_watch_op op;
	} ops[] = {
		{ IN_CREATE | IN_MOVED_TO, CONTAINER_WATCH_CREATE },
		{ IN_MOVED_FROM | IN_MOVE_SELF, CONTAINER_WATCH_RENAME },
		{ IN_ATTRIB, CONTAINER_WATCH_CHMOD },
		{ IN_MODIFY, CONTAINER_WATCH_WRITE },
		{ IN_DELETE | IN_DELETE_SELF, CONTAINER_WATCH_REMOVE },
	};
	struct wdir *d = map_get_u64(&w->dirs, (uint64_t)e->wd);
	char name[FS_PATH_MAX + 1];

	if (!d)
		return;
	if (e->mask & IN_IGNORED) {
		wdir_free(map_del_u64(&w->dirs, (uint64_t)e->wd));
		return;
	}
	if (!e->len) {
		if (*d->rel)
			return;		/* its parent tells, by name */
		(void)str_copy(name, sizeof(name), ".");
	} else if (!join(name, sizeof(name), d->rel, e->name)) {
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (e->mask & ops[i].mask)
			report(w, ops[i].op, name);
	if (!w->q.recursive || !(e->mask & IN_ISDIR) || !e->len)
		return;
	if (e->mask & IN_MOVED_FROM)
		moved_from(w, name, e->cookie);
	if (e->mask & (IN_CREATE | IN_MOVED_TO) && appeared(w, name, e) < 0)
		end(w, CONTAINER_WATCH_OVERFLOW, 0);
}

/* Bytes of events that were read. */
static size_t serve(struct run *w)
{
	static char buf[EVENTS_BYTES] __attribute__((aligned(8)));
	const struct inotify_event *e;
	ssize_t n = read(w->ino, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n <= 0)
		end(w, CONTAINER_WATCH_FAILED, n < 0 ? -errno : -EIO);
	for (const char *p = buf; p < buf + n; p += sizeof(*e) + e->len) {
		e = (const void *)p;
		if (e->mask & IN_Q_OVERFLOW)
			end(w, CONTAINER_WATCH_OVERFLOW, 0);
		on_event(w, e);
	}
	if (w->moved.seen)
		moved_away(w);
	w->moved.seen = w->moved.cookie != 0;
	return (size_t)n;
}

/* All that the kernel has told up to now, then the mark. */
static void mark(struct run *w)
{
	uint8_t asked;
	int left = 0;

	if (read(w->sock, &asked, sizeof(asked)) != (ssize_t)sizeof(asked) || asked != WATCH_ASKS_MARK)
		_exit(0);	/* the engine lets go of it */
	if (ioctl(w->ino, FIONREAD, &left) < 0)
		end(w, CONTAINER_WATCH_FAILED, -errno);
	while (left > 0)
		left -= (int)serve(w);
	send_kind(w, CONTAINER_WATCH_MARK, 0);
}

/* --- the beginning --- */

static bool is_network(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((uint32_t)fs.f_type) {
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case CIFS_MAGIC:
	case SMB2_MAGIC:
	case FUSE_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

static int begin(struct run *w)
{
	scoped(fd_closep) int fd = fsw_open(&w->fs, w->q.path, O_PATH | O_DIRECTORY, 0);
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	if (!w->q.network && is_network(fd))
		return -EREMOTE;
	if (fstat(fd, &st) < 0)
		return -errno;
	w->dev = st.st_dev;
	w->inode = st.st_ino;
	w->ino = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->ino < 0)
		return -errno;
	r = add_dir(w, "");
	return r < 0 || !w->q.recursive ? r : scan(w, "", false);
}

noreturn_ void container_watch_run(int sock, bool as_user)
{
	struct run w = { .fs = { .as_user = as_user }, .sock = sock };
	struct pollfd p[2];
	int r;

	buf_init(&w.fs.out, WATCH_REPORT_MAX);
	w.fs.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w.fs.root < 0 || read(sock, &w.q, sizeof(w.q)) != (ssize_t)sizeof(w.q))
		_exit(1);
	w.q.path[FS_PATH_MAX] = '\0';
	r = begin(&w);
	if (r < 0)
		end(&w, CONTAINER_WATCH_FAILED, r);
	send_kind(&w, CONTAINER_WATCH_READY, 0);
	p[0] = (struct pollfd){ .fd = w.ino, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = sock, .events = POLLIN };
	for (;;) {
		int n = poll(p, 2, w.moved.cookie ? MOVED_WAIT_MS : -1);

		if (n < 0 && errno != EINTR)
			_exit(1);
		if (n == 0)
			moved_away(&w);
		if (p[1].revents)
			mark(&w);
		else if (p[0].revents)
			(void)serve(&w);
	}
}
