/* SPDX-License-Identifier: MIT */
/*
 * Trees of files on this machine: what is there (tree_walk.c), and making what an archive says
 * (tree_put.c). Every name is resolved below one directory, by openat2() and without following a link:
 * neither an archive nor somebody who changes the tree meanwhile can lead out of it.
 */
#ifndef AB_CLIENT_CLI_TREE_TREE_H
#define AB_CLIENT_CLI_TREE_TREE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "proto/wire/tar.h"

/* --- what is there --- */

struct tree_node {
	char *rel;			/* below the root; "" is the root itself */
	char *link;			/* target of a symbolic link, else NULL */
	struct stat st;
	const struct tree_node *same;	/* the first name of the same file, else NULL */
	bool skip;
};

struct tree {
	struct tree_node *v;		/* by name: parents before what is in them */
	size_t n, cap;
};

typedef void tree_warn_fn(void *user, const char *rel, const char *what);

/* All below `root`. What cannot be read, or be in an archive, is told to `warn` and left out. 0, -errno. */
int tree_walk(int root, struct tree *ret, tree_warn_fn *warn, void *user);
void tree_fini(struct tree *t);
int tree_by_name(const void *a, const void *b);	/* its order, for bsearch() */
/* Something below a directory; "" is the directory itself. fd or -errno. */
int tree_open_below(int root, const char *rel, int flags);
/* A regular file of a walk, for reading. fd or -errno. */
int tree_open(int root, const char *rel);

/* The target of a symbolic link of that size, heap; NULL if it cannot be read, or has changed meanwhile. */
char *tree_read_link(int at, const char *name, off_t size);

/* --- making it --- */

struct put;
struct put_options {
	int root;			/* directory, stays the caller's */
	bool set_root;			/* the archive's "./" gives it mode and times */
	bool all_links;			/* also symbolic links that lead out of the tree */
	tree_warn_fn *warn;
	void *user;
};

int put_new(const struct put_options *o, struct put **ret);
/* 0; 1: warned, and left out; -errno with *ret_why: the archive is refused, or the disk is. */
int put_entry(struct put *p, const struct tar_entry *e, const char **ret_why);
int put_data(struct put *p, const void *data, size_t n);	/* 0, -errno */
int put_end(struct put *p);					/* 0, -errno */
/* Modes and times of directories, at last. Those that cannot be set are told to `warn`. */
void put_finish(struct put *p);
struct put *put_free(struct put *p);	/* an unfinished file is removed */

/* Cleans a name of an archive in place: "./a//b/" → "a/b", "./" → "". False if it is absolute or has
 * a "..": it leads out. */
bool put_clean_name(char *name);
/* Would a symbolic link at `rel` with this target lead out of the tree? */
bool put_link_leaves(const char *rel, const char *target);

#endif
