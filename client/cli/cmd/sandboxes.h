/* SPDX-License-Identifier: MIT */
/* All sandboxes that match, at once: the pages of a list one after the other, then what is chosen here. */
#ifndef AB_CLIENT_CLI_CMD_SANDBOXES_H
#define AB_CLIENT_CLI_CMD_SANDBOXES_H

#include "client/cli/term/cli.h"

struct sandboxes {
	const struct ab_sandbox **v;	/* belong to the pages */
	size_t n;
	struct ab_sandbox_list **pages;
	size_t n_pages;
};

/* 0, or the exit code after saying what is wrong; *ret is to be freed in any case. */
int sandboxes_list(struct cli *cli, const struct ab_sandbox_list_options *o, struct sandboxes *ret);
void sandboxes_free(struct sandboxes *s);
/* Only those stay for which `keep` is true, in their order. */
void sandboxes_keep(struct sandboxes *s, bool (*keep)(const struct ab_sandbox *sb, const void *user), const void *user);

#endif
