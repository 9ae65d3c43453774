/* SPDX-License-Identifier: MIT */
/* Moving the bytes of one file between a descriptor and a sandbox, in constant memory. */
#ifndef AB_CLIENT_CLI_TREE_XFER_H
#define AB_CLIENT_CLI_TREE_XFER_H

#include "client/cli/term/cli.h"

/* "ID:PATH": a colon before any slash. Cuts `word` in two. false: a path on this machine. */
bool xfer_split(struct cli *cli, char *word, struct ab_path *ret);
/* A path of a sandbox that was typed: as it is, or if it is not UTF-8, its text. */
const char *xfer_text(struct cli *cli, const char *path);

struct xfer {
	struct cli *cli;
	const char *label;	/* for the progress bar */
	bool progress;
	uint64_t bytes;		/* so far */
	uint64_t total;		/* 0 = not known */
	int signo;		/* that interrupted it */
	int error;		/* errno of the local side, 0 = none */
};

/* Both return 0 if it went well; else the call, done, has the error, or signo or error is set.
 * Signals are taken from sig_fd. */
int xfer_down(struct xfer *x, struct ab_call *call, int fd, int sig_fd);
int xfer_up(struct xfer *x, struct ab_call *call, int fd, int sig_fd);

#endif
