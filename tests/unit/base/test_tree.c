/* SPDX-License-Identifier: MIT */
#include "proto/base/tree.h"

#include "proto/base/rng.h"
#include "tests/lib/test.h"

struct item {
	uint64_t key;
	struct tree_node node;
};

static uint64_t key_of(const struct tree_node *n)
{
	return container_of(n, struct item, node)->key;
}

static int by_key(const struct tree_node *a, const struct tree_node *b)
{
	return key_of(a) < key_of(b) ? -1 : 1;
}

static int at_key(const struct tree_node *n, const void *place)
{
	uint64_t at = *(const uint64_t *)place;

	return key_of(n) < at ? -1 : key_of(n) > at;
}

static unsigned depth_of(const struct tree_node *n)
{
	unsigned left = n ? depth_of(n->left) : 0, right = n ? depth_of(n->right) : 0;

	return n ? 1 + MAX(left, right) : 0;
}

/* Everything the header promises, against an array of what is in. */
static void check(const struct tree *t, const struct item *v, size_t n)
{
	const struct tree_node *want_last = NULL;
	struct tree_node *walk = tree_first(t);
	size_t in = 0;

	for (uint64_t at = 0; at <= n; at++) {
		bool is_in = at < n && tree_has(&v[at].node);
		struct tree_node *found = tree_at(t, at_key, &at);

		CHECK(found == walk);
		if (!is_in)
			continue;
		CHECK(walk == &v[at].node);
		CHECK(tree_prev(walk) == want_last);
		want_last = walk;
		walk = tree_next(walk);
		in++;
	}
	CHECK(!walk);
	CHECK(tree_last(t) == want_last);
	CHECK_INT(t->n, in);
}

TEST(is_in_order_after_any_sequence)
{
	static struct item v[200];
	struct tree t = { 0 };
	struct rng rng;

	rng_seed(&rng, 7);
	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		v[i].key = i;
	for (unsigned n = 0; n < 2000; n++) {
		struct item *x = &v[rng_below(&rng, ARRAY_SIZE(v))];

		if (tree_has(&x->node))
			tree_del(&t, &x->node);
		else
			tree_insert(&t, &x->node, by_key);
		if (n % 20 == 0)
			check(&t, v, ARRAY_SIZE(v));
	}
	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		tree_del(&t, &v[i].node);
	check(&t, v, ARRAY_SIZE(v));
	CHECK(!t.root);
}

TEST(is_not_deep_when_all_come_in_order)
{
	static struct item v[20000];
	struct tree t = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
		v[i].key = i;
		tree_insert(&t, &v[i].node, by_key);
	}
	CHECK(depth_of(t.root) < 60);	/* about 34 are expected, and 60 never come */
}

TEST(appended_nodes_make_the_same_tree)
{
	static struct item v[2000];
	struct tree t = { 0 };
	struct rng rng;

	rng_seed(&rng, 7);
	for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
		v[i].key = i;
		if (i % 2)
			tree_append(&t, &v[i].node);
	}
	check(&t, v, ARRAY_SIZE(v));
	CHECK(depth_of(t.root) < 50);	/* about 25 are expected */
	/* What was appended can be changed as what was inserted. */
	for (size_t i = 0; i < ARRAY_SIZE(v); i += 2)
		tree_insert(&t, &v[i].node, by_key);
	for (unsigned n = 0; n < 500; n++)
		tree_del(&t, &v[rng_below(&rng, ARRAY_SIZE(v))].node);
	check(&t, v, ARRAY_SIZE(v));
}

TEST_MAIN()
