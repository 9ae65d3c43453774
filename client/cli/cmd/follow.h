/* SPDX-License-Identifier: MIT */
/* Output of a command on ours, over restarts of the daemon: what attach and logs have in common. */
#ifndef AB_CLIENT_CLI_CMD_FOLLOW_H
#define AB_CLIENT_CLI_CMD_FOLLOW_H

#include "client/cli/term/cli.h"

/* The command is the first word; --from says where to begin, unless *o does. Without input and terminal. Returns the exit code:
 * 0 at the end of the command, however it ended. */
int follow_logs(struct cli *cli, const struct ab_attach_options *o);

#endif
