/* SPDX-License-Identifier: MIT */
/*
 * Intrusive ordered tree: a treap, whose shape is drawn by chance and so does not depend on the order in which
 * nodes come. Nothing is allocated. The order is the caller's: it must not change for a node that is in a tree.
 */
#ifndef AB_PROTO_BASE_TREE_H
#define AB_PROTO_BASE_TREE_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct tree_node {
	struct tree_node *up, *left, *right;
	uint64_t weight;	/* 0: it is in no tree; else not above its parent's */
};

struct tree {
	struct tree_node *root;
	size_t n;
	uint64_t chance;	/* what weights are drawn from; 0 = nothing was yet */
};

/* < 0: a comes first. Two nodes of one tree are never the same. */
typedef int tree_cmp_fn(const struct tree_node *a, const struct tree_node *b);
/* < 0: the node comes before the place. */
typedef int tree_place_fn(const struct tree_node *n, const void *place);

static inline bool tree_has(const struct tree_node *n)
{
	return n->weight != 0;
}

void tree_insert(struct tree *t, struct tree_node *n, tree_cmp_fn *cmp);
/* The same for a node that comes behind all that are in: without a comparison, so that a tree is built from sorted nodes in
 * linear time. */
void tree_append(struct tree *t, struct tree_node *n);
/* Nothing happens to a node that is in no tree. */
void tree_del(struct tree *t, struct tree_node *n);
struct tree_node *tree_first(const struct tree *t);		/* NULL = the end, here and below */
struct tree_node *tree_last(const struct tree *t);
struct tree_node *tree_next(const struct tree_node *n);
struct tree_node *tree_prev(const struct tree_node *n);
/* The first one that is not before the place; tree_prev() of it is the last one before. */
struct tree_node *tree_at(const struct tree *t, tree_place_fn *fn, const void *place);

#endif
