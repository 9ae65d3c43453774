/* SPDX-License-Identifier: MIT */
#include "proto/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return -1;
}

void fd_closep(int *fd)
{
	*fd = fd_close(*fd);
}

int fd_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int fd_fill_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int fd_accept(int listen_fd, int *ret)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return -errno;
	*ret = fd;
	return 0;
}

int fd_pidfd(pid_t pid, int *ret)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return -errno;
	*ret = fd;
	return 0;
}

int fd_read_file(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len)
{
	scoped(fd_closep) int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t len = 0, cap = 4096;
	char *mem;

	if (fd < 0)
		return -errno;
	mem = malloc(cap + 1);
	if (!mem)
		return -ENOMEM;
	for (;;) {
		ssize_t n;

		if (len == cap) {
			char *more = realloc(mem, cap * 2 + 1);

			if (!more) {
				free(mem);
				return -ENOMEM;
			}
			mem = more;
			cap *= 2;
		}
		n = read(fd, mem + len, cap - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || len + (size_t)n > max) {
			int r = n < 0 ? -errno : -EFBIG;

			free(mem);
			return r;
		}
		if (!n)
			break;
		len += (size_t)n;
	}
	mem[len] = 0;
	*ret = mem;
	if (ret_len)
		*ret_len = len;
	return 0;
}

int fd_write_all(int fd, const void *p, size_t n)
{
	const char *at = p;

	while (n) {
		ssize_t r = write(fd, at, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

int fd_print(const char *program, const char *text)
{
	int r = fd_write_all(STDOUT_FILENO, text, strlen(text));

	if (r < 0)
		fprintf(stderr, "%s: cannot write the output: %s\n", program, strerrordesc_np(-r));
	return r;
}

int fd_write_file(int dir_fd, const char *path, const void *p, size_t n, mode_t mode)
{
	char tmp[PATH_MAX];
	scoped(fd_closep) int fd = -1;
	int r;

	if (snprintf(tmp, sizeof(tmp), "%s.new", path) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	if (unlinkat(dir_fd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, p, n);
	if (!r && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || renameat(dir_fd, tmp, dir_fd, path) < 0))
		r = -errno;
	if (r)
		(void)unlinkat(dir_fd, tmp, 0);
	return r;
}

int fd_mkdirs(const char *path, mode_t mode)
{
	char part[PATH_MAX];
	size_t n = strlen(path);

	if (n >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, n + 1);
	for (char *at = part + 1;; at++) {
		char c = *at;

		if (c != '/' && c)
			continue;
		*at = 0;
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return -errno;
		if (!c)
			return 0;
		*at = '/';
	}
}
