/* SPDX-License-Identifier: MIT */
#include "client/cli/term/child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };

int child_init(struct child *c, const struct cli *cli)
{
	sigset_t set;

	*c = (struct child){ .cli = cli };
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
		(void)sigaddset(&set, passed[i]);
	if (sigprocmask(SIG_BLOCK, &set, &c->old_mask) < 0)
		return -errno;
	c->sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return c->sig_fd < 0 ? -errno : 0;
}

static void become(const struct child *c, char **argv, pid_t parent)
{
	(void)sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)	/* it died before it could be asked for */
		_exit(128 + SIGTERM);
	(void)execvp(argv[0], argv);
	fprintf(stderr, "agentboxctl: %s: %s: %s\n", c->cli->command->name, argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

int child_begin(struct child *c, char **argv)
{
	pid_t parent = getpid();

	c->pid = fork();
	if (c->pid < 0) {
		say(c->cli, "fork: %s", strerror(errno));
		c->pid = 0;
		return EXIT_ERROR;
	}
	if (!c->pid)
		become(c, argv, parent);
	return 0;
}

void child_signal(struct child *c, int signo)
{
	if (c->pid)
		(void)kill(c->pid, signo);
}

int child_take(struct child *c)
{
	struct signalfd_siginfo si;
	int status;

	while (read(c->sig_fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD) {
			if (c->pid && waitpid(c->pid, &status, WNOHANG) == c->pid) {
				c->pid = 0;
				return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			}
			continue;
		}
		if (!c->pid && si.ssi_signo != SIGWINCH)
			return 128 + (int)si.ssi_signo;
		/* What the terminal sends went to the command as well. */
		if (si.ssi_code != SI_KERNEL)
			child_signal(c, (int)si.ssi_signo);
	}
	return -1;
}
