/* SPDX-License-Identifier: MIT */
#include "proto/base/tree.h"

#include "proto/base/must.h"
#include "proto/base/rng.h"

/* splitmix64 from a seed of the kernel's: whoever chooses keys cannot make a tree deep. */
static uint64_t draw(struct tree *t)
{
	uint64_t x;

	while (!t->chance)
		rng_system(&t->chance, sizeof(t->chance));
	x = t->chance += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (x ^ (x >> 31)) | 1;
}

/* Where the tree points to n. */
static struct tree_node **link_of(struct tree *t, struct tree_node *n)
{
	if (!n->up)
		return &t->root;
	return n->up->left == n ? &n->up->left : &n->up->right;
}

/* The child takes its parent's place, and the parent becomes its child on the other side. */
static void raise_child(struct tree *t, struct tree_node *n)
{
	struct tree_node *p = n->up, *moved;
	bool is_left = p->left == n;

	*link_of(t, p) = n;
	n->up = p->up;
	moved = is_left ? n->right : n->left;
	if (is_left) {
		p->left = moved;
		n->right = p;
	} else {
		p->right = moved;
		n->left = p;
	}
	if (moved)
		moved->up = p;
	p->up = n;
}

/* Puts n where the tree has an empty link, below `up`. */
static void put_at(struct tree *t, struct tree_node **at, struct tree_node *up, struct tree_node *n)
{
	*n = (struct tree_node){ .up = up, .weight = draw(t) };
	*at = n;
	t->n++;
	while (n->up && n->up->weight < n->weight)
		raise_child(t, n);
}

void tree_insert(struct tree *t, struct tree_node *n, tree_cmp_fn *cmp)
{
	struct tree_node **at = &t->root, *up = NULL;

	must(!tree_has(n));
	while (*at) {
		up = *at;
		at = cmp(n, up) < 0 ? &up->left : &up->right;
	}
	put_at(t, at, up, n);
}

void tree_append(struct tree *t, struct tree_node *n)
{
	struct tree_node *last = tree_last(t);

	must(!tree_has(n));
	put_at(t, last ? &last->right : &t->root, last, n);
}

static struct tree_node *heavier(struct tree_node *a, struct tree_node *b)
{
	return !a || (b && b->weight > a->weight) ? b : a;
}

void tree_del(struct tree *t, struct tree_node *n)
{
	struct tree_node *child;

	if (!tree_has(n))
		return;
	while ((child = heavier(n->left, n->right)))
		raise_child(t, child);
	*link_of(t, n) = NULL;
	*n = (struct tree_node){ 0 };
	t->n--;
}

static struct tree_node *leftmost(struct tree_node *n)
{
	while (n && n->left)
		n = n->left;
	return n;
}

static struct tree_node *rightmost(struct tree_node *n)
{
	while (n && n->right)
		n = n->right;
	return n;
}

struct tree_node *tree_first(const struct tree *t)
{
	return leftmost(t->root);
}

struct tree_node *tree_last(const struct tree *t)
{
	return rightmost(t->root);
}

struct tree_node *tree_next(const struct tree_node *n)
{
	if (n->right)
		return leftmost(n->right);
	while (n->up && n->up->right == n)
		n = n->up;
	return n->up;
}

struct tree_node *tree_prev(const struct tree_node *n)
{
	if (n->left)
		return rightmost(n->left);
	while (n->up && n->up->left == n)
		n = n->up;
	return n->up;
}

struct tree_node *tree_at(const struct tree *t, tree_place_fn *fn, const void *place)
{
	struct tree_node *n = t->root, *best = NULL;

	while (n) {
		bool is_before = fn(n, place) < 0;

		if (!is_before)
			best = n;
		n = is_before ? n->right : n->left;
	}
	return best;
}
