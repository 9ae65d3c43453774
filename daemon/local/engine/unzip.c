/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/unzip.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/fd.h"

#define NOT_THERE 127

static const struct {
	const char *program;
	uint8_t magic[6];
	size_t n;
} formats[] = {
	{ "gzip", { 0x1f, 0x8b }, 2 },
	{ "zstd", { 0x28, 0xb5, 0x2f, 0xfd }, 4 },
	{ "xz", { 0xfd, '7', 'z', 'X', 'Z', 0 }, 6 },
	{ "bzip2", { 'B', 'Z', 'h' }, 3 },
};

static noreturn_ void become_program(const char *program, int in, int out)
{
	sigset_t none;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || close_range(STDERR_FILENO + 1, ~0u, 0) < 0)
		_exit(1);
	execlp(program, program, "-dc", "-q", (char *)NULL);
	_exit(NOT_THERE);
}

static int start_program(int fd, struct unzip *z)
{
	int pipe_fds[2];

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	z->pid = fork();
	if (z->pid == 0)
		become_program(z->program, fd, pipe_fds[1]);
	fd_close(pipe_fds[1]);
	z->fd = pipe_fds[0];
	if (z->pid > 0)
		return 0;
	fd_close(z->fd);
	return -EAGAIN;
}

int unzip_open(int fd, struct unzip *ret)
{
	uint8_t begin[6] = { 0 };
	ssize_t n = pread(fd, begin, sizeof(begin), 0);

	if (n < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	*ret = (struct unzip){ .fd = fd };
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if ((size_t)n >= formats[i].n && !memcmp(begin, formats[i].magic, formats[i].n))
			ret->program = formats[i].program;
	return ret->program ? start_program(fd, ret) : 0;
}

ssize_t unzip_read(struct unzip *z, void *p, size_t n)
{
	ssize_t k;

	do
		k = read(z->fd, p, n);
	while (k < 0 && errno == EINTR);
	z->ended = k == 0;
	return k < 0 ? -errno : k;
}

int unzip_close(struct unzip *z, bool early)
{
	int status;

	if (!z->pid)
		return 0;
	early = early && !z->ended;
	if (early)
		(void)kill(z->pid, SIGKILL);
	z->fd = fd_close(z->fd);
	while (waitpid(z->pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	z->pid = 0;
	if (early || (WIFEXITED(status) && !WEXITSTATUS(status)))
		return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == NOT_THERE ? -ENOEXEC : -EBADMSG;
}
