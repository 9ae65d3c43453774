/* SPDX-License-Identifier: MIT */
/* See sig.h. */
#include "client/cli/sig.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

int sig_open(void)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP };
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		struct sigaction old;

		/* nohup and background jobs of a shell mean it when they ignore one */
		if (sigaction(wanted[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaddset(&set, wanted[i]);
	}
	(void)signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int sig_open_winch(void)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGWINCH);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int sig_take(int fd)
{
	struct signalfd_siginfo si;

	return read(fd, &si, sizeof(si)) == sizeof(si) ? (int)si.ssi_signo : 0;
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
