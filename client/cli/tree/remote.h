/* SPDX-License-Identifier: MIT */
/*
 * A helper command inside a sandbox (tar, find) with its input and output in our hands. What it says on
 * its standard error is kept, to be told when it fails.
 */
#ifndef AB_CLIENT_CLI_TREE_REMOTE_H
#define AB_CLIENT_CLI_TREE_REMOTE_H

#include <sys/types.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/meter.h"

#define REMOTE_SAID_MAX 4096u

struct remote {
	struct cli *cli;
	int sig_fd;
	struct meter *meter;		/* may be NULL; with the next three */
	const char *label;
	uint64_t bytes, total;
	int signo;			/* that interrupted us */
	/* private, but exit_code and known once it is over */
	struct ab_call *stream, *input;
	bool wants_input, over;
	bool known;			/* how it ended: exit_code */
	int exit_code;
	bool torn;			/* some of its output was lost */
	char said[REMOTE_SAID_MAX + 1];
	size_t n_said;
};

/* 0, or an exit code after saying why. */
int remote_start(struct remote *r, const char *sandbox, const char *user, const char *const *argv, bool wants_input);
/* The next piece of its output, valid until the next call: 1; 0: none now; -1: it is over. */
int remote_read(struct remote *r, const void **ret, size_t *ret_n);
/* How much of it was taken; 0: no room now; -1: it takes no more. */
ssize_t remote_write(struct remote *r, const void *p, size_t n);
void remote_write_end(struct remote *r);
/* Waits for the command, for signals, which it takes, and for the beat of the progress bar, which it draws. */
void remote_wait(struct remote *r);
/* Says what is wrong with how it ended, if anything: an exit code. `program` is what exit code 127
 * means the sandbox lacks. */
int remote_verdict(struct remote *r, const char *program);
/* Ends it if it still runs. */
void remote_close(struct remote *r);

#endif
