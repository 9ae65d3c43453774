/* SPDX-License-Identifier: MIT */
/* A pipe or terminal is opened anew through /proc, which gives flags of our own. */
#include "client/cli/term/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void sink_open(struct sink *s, int fd)
{
	char path[32];
	struct stat st;

	*s = (struct sink){ .fd = fd, .kind = SINK_DIRECT };
	if (fstat(fd, &st) < 0)
		return;
	if (S_ISSOCK(st.st_mode)) {
		s->kind = SINK_SOCKET;
		return;
	}
	if (!S_ISFIFO(st.st_mode) && !isatty(fd))
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	s->fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	s->own = s->fd >= 0;
	s->kind = s->own ? SINK_NONBLOCK : SINK_PIECES;
	if (!s->own)
		s->fd = fd;
}

void sink_close(struct sink *s)
{
	if (s->own)
		(void)close(s->fd);
	*s = (struct sink){ .fd = -1 };
}

ssize_t sink_write(struct sink *s, const void *p, size_t n)
{
	ssize_t k;

	/* where poll() said "writable", a pipe takes this much without blocking */
	if (s->kind == SINK_PIECES && n > PIPE_BUF)
		n = PIPE_BUF;
	k = s->kind == SINK_SOCKET ? send(s->fd, p, n, MSG_DONTWAIT) : write(s->fd, p, n);
	if (k >= 0)
		return k;
	return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}
