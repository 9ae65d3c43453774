/* SPDX-License-Identifier: MIT */
/*
 * Everything is done relative to an open folder that only we (or root) can write; so nobody can swap
 * a name between a check and its use. Order: folder, lock, what is there, bind, mode, listen.
 */
#include "daemon/rpc/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"


struct rpc_socket {
	char *path;
	char *lock_name;
	const char *name;	/* last part of path */
	int dir_fd, lock_fd, fd;
	mode_t mode;
	gid_t gid;
	bool bound;
	dev_t dev;		/* of the bound file */
	ino_t ino;
};

static int refuse(struct status *why, const char *fmt, ...) printf_like(2, 3);

static int refuse(struct status *why, const char *fmt, ...)
{
	char text[STATUS_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	status_set_code(why, CODE_FAILED_PRECONDITION, "%s", text);
	return RPC_SOCKET_REFUSED;
}

static int socket_failed(struct status *why, int err, const char *what, const char *path)
{
	status_set_code(why, CODE_INTERNAL, "%s: %s: %s", path, what, strerror(err));
	return -err;
}

static int open_dir(struct rpc_socket *s, mode_t dir_mode, struct status *why)
{
	scoped(fd_closep) int fd = -1;
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	size_t n = (size_t)(s->name - s->path);
	struct stat st;

	n = n > 1 ? n - 1 : 1;	/* without the slash, but "/" stays */
	memcpy(dir, s->path, n);
	dir[n] = '\0';
	if (dir_mode && mkdir(dir, dir_mode) < 0 && errno != EEXIST)
		return socket_failed(why, errno, "cannot make this folder for the socket", dir);
	fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return refuse(why, "%s: not a folder; the socket's folder must be one itself", dir);
	if (fd < 0)
		return socket_failed(why, errno, "cannot open this folder for the socket", dir);
	if (fstat(fd, &st) < 0)
		return socket_failed(why, errno, "fstat", dir);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return refuse(why, "%s: belongs to uid %u; the socket needs a folder of uid %u or 0", dir,
			      st.st_uid, geteuid());
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return refuse(why, "%s: mode %04o lets others write; the socket needs a folder only "
			      "its owner can write (0755 or less)", dir, st.st_mode & 07777);
	s->dir_fd = fd;
	fd = -1;
	return 0;
}

/* The lock file is removed at the end by who holds it, so a lock counts only while its file is the
 * one at the name. */
static int take_lock(struct rpc_socket *s, struct status *why)
{
	for (;;) {
		scoped(fd_closep) int fd = -1;
		struct stat ours, there;

		fd = openat(s->dir_fd, s->lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			return socket_failed(why, errno, "cannot open its lock file", s->path);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return socket_failed(why, errno, "cannot lock", s->path);
			status_set_code(why, CODE_UNAVAILABLE, "%s: another agentboxd serves it",
					s->path);
			return RPC_SOCKET_BUSY;
		}
		if (fstat(fd, &ours) < 0)
			return socket_failed(why, errno, "fstat of its lock file", s->path);
		if (fstatat(s->dir_fd, s->lock_name, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
		    ours.st_ino != there.st_ino || ours.st_dev != there.st_dev)
			continue;
		s->lock_fd = fd;
		fd = -1;
		return 0;
	}
}

static void make_address(const struct rpc_socket *s, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(ret->sun_path, s->path, strlen(s->path) + 1);
}

/* 0 = nobody answers; else the errno of connecting, EISCONN for success. */
static int probe(const struct rpc_socket *s)
{
	scoped(fd_closep) int fd = -1;
	struct sockaddr_un a;

	make_address(s, &a);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return EISCONN;
	return errno == ECONNREFUSED ? 0 : errno;
}

static int remove_stale(struct rpc_socket *s, struct status *why)
{
	struct stat st;
	int r;

	if (fstatat(s->dir_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : socket_failed(why, errno, "cannot look at it", s->path);
	if (!S_ISSOCK(st.st_mode))
		return refuse(why, "%s: is there and is not a socket; left alone", s->path);
	if (st.st_uid != geteuid())
		return refuse(why, "%s: is a socket of uid %u; left alone", s->path, st.st_uid);
	r = probe(s);
	if (r == EISCONN || r == EAGAIN) {
		status_set_code(why, CODE_UNAVAILABLE, "%s: another program serves it", s->path);
		return RPC_SOCKET_BUSY;
	}
	if (r)
		return refuse(why, "%s: cannot tell whether somebody serves it (%s); left alone",
			      s->path, strerror(r));
	if (unlinkat(s->dir_fd, s->name, 0) < 0 && errno != ENOENT)
		return socket_failed(why, errno, "cannot remove the old socket", s->path);
	return 0;
}

static int bind_and_listen(struct rpc_socket *s, struct status *why)
{
	scoped(fd_closep) int fd = -1;
	struct sockaddr_un a;
	struct stat st;

	make_address(s, &a);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return socket_failed(why, errno, "socket", s->path);
	/* The file takes this mode at bind, less the umask: never wider than wanted, not for a moment. */
	if (fchmod(fd, s->mode & 0600) < 0)
		return socket_failed(why, errno, "fchmod", s->path);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return socket_failed(why, errno, "cannot bind", s->path);
	s->bound = true;
	if (fstatat(s->dir_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode) ||
	    st.st_uid != geteuid()) {
		s->bound = false;
		return refuse(why, "%s: changed while it was bound", s->path);
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	if (s->gid != (gid_t)-1 &&
	    fchownat(s->dir_fd, s->name, (uid_t)-1, s->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return socket_failed(why, errno, "cannot set its group", s->path);
	if (fchmodat(s->dir_fd, s->name, s->mode, 0) < 0)
		return socket_failed(why, errno, "cannot set its mode", s->path);
	if (listen(fd, RPC_SOCKET_BACKLOG) < 0)
		return socket_failed(why, errno, "listen", s->path);
	fd_close(s->fd);
	s->fd = fd;
	fd = -1;
	return 0;
}

static int check_path(const char *path, struct status *why)
{
	const size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;

	if (path[0] != '/' || path[strlen(path) - 1] == '/')
		return refuse(why, "%s: the socket needs an absolute path", path);
	if (strlen(path) > max)
		return refuse(why, "%.120s: has %zu bytes; a socket's path has at most %zu", path,
			      strlen(path), max);
	return 0;
}

static void socket_freep(struct rpc_socket **s)
{
	*s = rpc_socket_free(*s);
}

int rpc_socket_open(const struct rpc_socket_options *o, struct rpc_socket **ret, struct status *why)
{
	scoped(socket_freep) struct rpc_socket *s = NULL;
	int r = check_path(o->path, why);

	if (r)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return socket_failed(why, ENOMEM, "no memory", o->path);
	s->dir_fd = s->lock_fd = s->fd = -1;
	s->mode = o->mode;
	s->gid = o->gid;
	s->path = str_dup(o->path);
	if (!s->path)
		return socket_failed(why, ENOMEM, "no memory", o->path);
	s->name = strrchr(s->path, '/') + 1;
	s->lock_name = str_printf("%s.lock", s->name);
	if (!s->lock_name)
		return socket_failed(why, ENOMEM, "no memory", o->path);

	r = open_dir(s, o->dir_mode, why);
	if (!r)
		r = take_lock(s, why);
	if (!r)
		r = remove_stale(s, why);
	if (!r)
		r = bind_and_listen(s, why);
	if (r)
		return r;
	*ret = give(s);
	return RPC_SOCKET_OK;
}

int rpc_socket_take_fd(struct rpc_socket *s)
{
	int fd = s->fd;

	must(fd >= 0);
	s->fd = -1;
	return fd;
}

int rpc_socket_check(const struct rpc_socket *s)
{
	struct stat st;

	if (fstatat(s->dir_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? RPC_SOCKET_MISSING : -errno;
	return st.st_ino == s->ino && st.st_dev == s->dev ? RPC_SOCKET_THERE : RPC_SOCKET_REPLACED;
}

int rpc_socket_rebind(struct rpc_socket *s, struct status *why)
{
	s->bound = false;
	return bind_and_listen(s, why);
}

struct rpc_socket *rpc_socket_free(struct rpc_socket *s)
{
	if (!s)
		return NULL;
	if (s->bound && rpc_socket_check(s) == RPC_SOCKET_THERE)
		(void)unlinkat(s->dir_fd, s->name, 0);
	if (s->lock_fd >= 0)
		(void)unlinkat(s->dir_fd, s->lock_name, 0);
	fd_close(s->fd);
	fd_close(s->lock_fd);
	fd_close(s->dir_fd);
	free(s->lock_name);
	free(s->path);
	free(s);
	return NULL;
}

int rpc_socket_adopt(int fd)
{
	int value;
	socklen_t n = sizeof(value);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &n) < 0)
		return -errno;
	if (value != AF_UNIX)
		return -EAFNOSUPPORT;
	n = sizeof(value);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &n) < 0)
		return -errno;
	if (value != SOCK_STREAM)
		return -EPROTOTYPE;
	n = sizeof(value);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &n) < 0)
		return -errno;
	if (!value)
		return -EINVAL;
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	return fd_set_nonblock(fd, true);
}

char *rpc_socket_place(int fd)
{
	struct sockaddr_un a = { 0 };
	socklen_t n = sizeof(a);
	size_t len;

	if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
		n = 0;
	len = n > offsetof(struct sockaddr_un, sun_path) ? MIN(n, sizeof(a)) - offsetof(struct sockaddr_un, sun_path) : 0;
	if (len && !a.sun_path[0])
		a.sun_path[0] = '@';
	return strndup(a.sun_path, len);
}
