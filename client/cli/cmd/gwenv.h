/* SPDX-License-Identifier: MIT */
/* The environment in which programs with either SDK use the daemon's gateway. */
#ifndef AB_CLIENT_CLI_CMD_GWENV_H
#define AB_CLIENT_CLI_CMD_GWENV_H

#include "client/cli/term/cli.h"

/* Each variable with its value. False ends it. */
typedef bool gwenv_fn(void *user, const char *name, const char *value);

/* `token` has the prefix "ab_". `control`: only the control plane's address and the key. 0, or EXIT_ERROR where `fn` ended it. */
int gwenv_each(const char *url, const char *token, bool control, gwenv_fn *fn, void *user);
/* 0, or an exit code after saying that there is no address to give to programs. */
int gwenv_find(struct cli *cli, struct ab_gateway **ret);

#endif
