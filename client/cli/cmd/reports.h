/* SPDX-License-Identifier: MIT */
/* What status and pool print with --json, for whoever else needs it. */
#ifndef AB_CLIENT_CLI_CMD_REPORTS_H
#define AB_CLIENT_CLI_CMD_REPORTS_H

#include <stdio.h>

#include "client/cli/term/cli.h"

void status_print_json(FILE *f, const struct ab_daemon_status *s);
void pool_print_json(FILE *f, const struct ab_daemon_status *s);

#endif
