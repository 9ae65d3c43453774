/* SPDX-License-Identifier: MIT */
/*
 * Names for the sockets of several daemons, in a file of the user's: lines "NAME = PATH", "#" begins a comment. The file is
 * $XDG_CONFIG_HOME/agentboxctl/contexts, or ~/.config/agentboxctl/contexts.
 */
#ifndef AB_CLIENT_CLI_TERM_CONTEXT_H
#define AB_CLIENT_CLI_TERM_CONTEXT_H

#include "client/cli/term/cli.h"

#define CONTEXTS_BYTES_MAX 65536u

struct context {
	const char *name, *socket;	/* of the file's text */
	bool is_current;		/* without -s it is the one that would be asked */
};

struct contexts {
	char *text;
	struct context *v;
	size_t n;
};

/* EXIT_OK, without a file too; else the exit code, after saying what is wrong with it. */
int contexts_read(const struct cli *cli, struct contexts *ret);
void contexts_free(struct contexts *c);

/* The socket of the context that the command line or the environment names goes into cli->args.socket; contexts_free() after its last
 * use. EXIT_OK, or the exit code after saying why not. */
int context_choose(struct cli *cli, struct contexts *ret);

#endif
