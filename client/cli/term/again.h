/* SPDX-License-Identifier: MIT */
/* A stream that goes on over a restart of the daemon: whether to ask for it again, and when. */
#ifndef AB_CLIENT_CLI_TERM_AGAIN_H
#define AB_CLIENT_CLI_TERM_AGAIN_H

#include "client/cli/term/cli.h"

struct again {
	int64_t until_ms;	/* 0: the stream was not lost since it last said something */
};

/* The stream said something. */
void again_heard(struct again *a);
/* It ended as `e` (NULL: well). May it be asked for again? Once after the daemon was lost or began to stop, then with a pause
 * for as long as --wait says (30 s). 0: ask again; -1: the end is its own; else a signal that came at sig_fd. */
int again_wait(struct again *a, const struct cli *cli, const struct ab_error *e, int sig_fd);

#endif
