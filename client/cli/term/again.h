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

/* A stream of lines, until it ends or a signal comes: asked for by `ask` (0 or -errno), what comes printed by `take`, which calls
 * again_heard() for each. It is the first member of the struct that these two cast it to. */
struct again_stream {
	struct cli *cli;
	struct ab_call *call;
	int (*ask)(struct again_stream *s, struct ab_call **ret);
	void (*take)(struct again_stream *s);
	struct again again;
};

/* The command's exit code; after a signal it ends the process by it. */
int again_follow(struct again_stream *s);

#endif
