/* SPDX-License-Identifier: MIT */
/*
 * What a bug report may show of a text of the daemon: ids of sandboxes, which give access to some of them, become numbers that stay the
 * same in one report; what begins like a key or a token is hidden. The daemon hides its secrets in its log; this is the second wall.
 */
#ifndef AB_CLIENT_CLI_CMD_DIAG_MASK_H
#define AB_CLIENT_CLI_CMD_DIAG_MASK_H

#include <stdio.h>

#define DIAG_IDS_MAX 4096u	/* later ones are all "#many" */

struct diag_mask {
	char **ids;		/* in the order they came */
	size_t n;
};

void diag_mask_fini(struct diag_mask *m);
/* Writes the text to `f`. */
void diag_mask_print(struct diag_mask *m, FILE *f, const char *text);

#endif
