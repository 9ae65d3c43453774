/* SPDX-License-Identifier: MIT */
#include "client/cli/term/sig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/cli/term/cli.h"

static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static int open_set(const sigset_t *set)
{
	int fd;

	if (sigprocmask(SIG_BLOCK, set, NULL) < 0)
		return -errno;
	fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int sig_open(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++) {
		struct sigaction old;

		/* nohup and background jobs of a shell mean it when they ignore one */
		if (sigaction(wanted[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaddset(&set, wanted[i]);
	}
	(void)signal(SIGPIPE, SIG_IGN);
	return open_set(&set);
}

int sig_open_winch(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGWINCH);
	return open_set(&set);
}

int sig_open_file(const char *path, int flags)
{
	sigset_t set, old;
	int fd, err;

	(void)sigemptyset(&set);
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
		(void)sigaddset(&set, wanted[i]);
	(void)sigprocmask(SIG_UNBLOCK, &set, &old);
	fd = open(path, flags | O_CLOEXEC);
	err = errno;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	errno = err;
	return fd;
}

int sig_take(int fd)
{
	struct signalfd_siginfo si;

	return read(fd, &si, sizeof(si)) == sizeof(si) ? (int)si.ssi_signo : 0;
}

int sig_wait(struct ab_client *c, int fd)
{
	struct pollfd p[] = { { .fd = ab_fd(c), .events = (short)ab_events(c) }, { .fd = fd, .events = POLLIN } };

	(void)poll(p, ARRAY_SIZE(p), ab_timeout(c));
	if (p[1].revents)
		return sig_take(fd);
	(void)ab_process(c);
	return 0;
}

void sig_die(int signo)
{
	sigset_t set;

	(void)signal(signo, SIG_DFL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, signo);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	(void)raise(signo);
	_exit(128 + signo);
}
