/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl cp -r: a whole tree, as one stream of tar through a command in the sandbox. One copy, up
 * (cp_up.c) or down (cp_down.c); what there is in the sandbox, for --update (cp_list.c).
 */
#ifndef AB_CLIENT_CLI_TREE_CP_TREE_H
#define AB_CLIENT_CLI_TREE_CP_TREE_H

#include "client/cli/term/cli.h"
#include "client/cli/term/meter.h"
#include "client/cli/tree/tree.h"

struct cp_tree {
	struct cli *cli;
	const char *sandbox, *user;
	const char *remote;	/* absolute path of the directory in the sandbox */
	char *remote_word;	/* for its scripts, as printf's %b takes it: a command's words are UTF-8 */
	const char *label;
	int root;		/* the directory of this machine */
	bool made;		/* the destination is new: it gets mode and times of the source */
	int sig_fd;
	struct meter meter;
	/* how it went */
	uint64_t files, bytes, unchanged;
	unsigned warnings;
	int signo;
};

/* Exit codes. */
int cp_up(struct cp_tree *t);
int cp_down(struct cp_tree *t);
/* A tree_warn_fn. */
void cp_warn(void *tree, const char *rel, const char *what);

/* --- what there is in the sandbox --- */

struct far_node {
	char *rel, *link;
	char type;		/* of find: 'f', 'd', 'l', 'p', … */
	uint32_t mode;
	uint64_t size;
	int64_t mtime_s;
	uint32_t mtime_ns;
};

struct far_tree {
	struct far_node *v;	/* by name */
	size_t n;
	bool unknown;		/* the sandbox has no find that could tell */
};

int cp_list(struct cp_tree *t, struct far_tree *ret);
void far_tree_fini(struct far_tree *f);
const struct far_node *far_find(const struct far_tree *f, const char *rel);
/* Are they alike, as far as size, mode, time and target of a link tell? */
bool far_is_same(const struct far_node *f, const struct stat *st, const char *link);

#endif
