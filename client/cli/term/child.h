/* SPDX-License-Identifier: MIT */
/*
 * A command on this host that we stand for: it gets the signals that we get, does not outlive us (PR_SET_PDEATHSIG), and its end
 * is ours.
 */
#ifndef AB_CLIENT_CLI_TERM_CHILD_H
#define AB_CLIENT_CLI_TERM_CHILD_H

#include <signal.h>

#include "client/cli/term/cli.h"

struct child {
	const struct cli *cli;
	pid_t pid;		/* 0 = not begun, or over */
	int sig_fd;		/* for poll() */
	sigset_t old_mask;
};

/* From now on signals wait on sig_fd. -errno. */
int child_init(struct child *c, const struct cli *cli);
/* 0, or an exit code after saying why. */
int child_begin(struct child *c, char **argv);
void child_signal(struct child *c, int signo);
/* What came on sig_fd is passed on. -1, or the exit code: the command's, 128 and the signal that ended it, or the one that came
 * before it began. */
int child_take(struct child *c);

#endif
