/* SPDX-License-Identifier: MIT */
/* The table of the commands, in the order of the overview. */
#ifndef AB_CLIENT_CLI_MAIN_COMMANDS_H
#define AB_CLIENT_CLI_MAIN_COMMANDS_H

#include "client/cli/term/cli.h"

extern const struct command *const commands[];
extern const size_t n_commands;

/* completion.c */
extern const struct command cmd_completion;

#endif
