/* SPDX-License-Identifier: MIT */
/* What cmd_cp.c asks of the copying of trees. */
#ifndef AB_CLIENT_CLI_TREE_CP_H
#define AB_CLIENT_CLI_TREE_CP_H

#include "client/cli/term/cli.h"

#define CP_IS_A_FILE (-1)	/* nothing was done: it is a file's copy that is wanted */

/* A path inside of a directory ("": as it is; name NULL: the directory), heap; NULL without memory. */
char *cp_join(const char *dir, const char *name);
/* A directory with all in it. Exit codes; *ret_signo: the signal that interrupted it, 0 = none. */
int cp_tree_up(struct cli *cli, const struct ab_path *to, const char *from, int sig_fd, int *ret_signo);
int cp_tree_down(struct cli *cli, const struct ab_path *from, const char *to, int sig_fd, int *ret_signo);

#endif
