/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/index.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/sandbox/core.h"
#include "proto/base/str.h"

#define TAG_KEY_MAX 192u	/* longer tags share the ring of their beginning */

void index_node_init(struct index_node *n)
{
	list_init(&n->same_tag);
	list_init(&n->same_seq);
	n->counted = false;
}

static size_t tag_key(char key[TAG_KEY_MAX], const struct account *a, const char *req_tag)
{
	snprintf(key, TAG_KEY_MAX, "%u %s", a->index, req_tag);
	return strlen(key);
}

/* --- counts --- */

void index_uncount(struct sandbox *b)
{
	struct uid_limit *u;

	if (!b->index.counted)
		return;
	b->index.counted = false;
	b->account->n_alive--;
	u = core_uid_limit(b->account->core, b->uid);
	if (u)
		u->n_alive--;
}

void index_count(struct sandbox *b)
{
	struct uid_limit *u;

	if (list_is_empty(&b->node) || b->state == SANDBOX_GONE)
		return;
	b->index.counted = true;
	b->account->n_alive++;
	u = core_uid_limit(b->account->core, b->uid);
	if (u)
		u->n_alive++;
}

void index_set_owner(struct sandbox *b, uid_t uid)
{
	index_uncount(b);
	b->uid = uid;
	index_count(b);
}

/* --- rings --- */

int index_add(struct sandbox_core *core, struct sandbox *b)
{
	char key[TAG_KEY_MAX];
	size_t n = tag_key(key, b->account, b->req_tag);
	struct sandbox *tagged = b->req_tag[0] ? map_get(&core->tag_map, key, n) : NULL;
	struct sandbox *numbered = b->seq ? map_get_u64(&core->seq_map, b->seq) : NULL;
	int r = 0;

	if (tagged)
		list_add_tail(&tagged->index.same_tag, &b->index.same_tag);
	else if (b->req_tag[0])
		r = map_put(&core->tag_map, key, n, b);
	if (r < 0)
		return r;
	if (numbered)
		list_add_tail(&numbered->index.same_seq, &b->index.same_seq);
	else if (b->seq)
		r = map_put_u64(&core->seq_map, b->seq, b);
	if (r < 0)
		index_del(core, b);
	return r;
}

static struct sandbox *of_tag_node(struct list *n)
{
	return container_of(n, struct sandbox, index.same_tag);
}

static struct sandbox *of_seq_node(struct list *n)
{
	return container_of(n, struct sandbox, index.same_seq);
}

/* The map's one is replaced by the next in its ring, in a slot that is there: without memory to ask for. */
static void leave_tag(struct sandbox_core *core, struct sandbox *b)
{
	char key[TAG_KEY_MAX];
	size_t n = tag_key(key, b->account, b->req_tag);

	if (map_get(&core->tag_map, key, n) != b)
		;
	else if (list_is_empty(&b->index.same_tag))
		(void)map_del(&core->tag_map, key, n);
	else
		(void)!map_put(&core->tag_map, key, n, of_tag_node(b->index.same_tag.next));
	list_del(&b->index.same_tag);
}

static void leave_seq(struct sandbox_core *core, struct sandbox *b)
{
	if (map_get_u64(&core->seq_map, b->seq) != b)
		;
	else if (list_is_empty(&b->index.same_seq))
		(void)map_del_u64(&core->seq_map, b->seq);
	else
		(void)!map_put_u64(&core->seq_map, b->seq, of_seq_node(b->index.same_seq.next));
	list_del(&b->index.same_seq);
}

void index_del(struct sandbox_core *core, struct sandbox *b)
{
	index_uncount(b);
	leave_tag(core, b);
	leave_seq(core, b);
}

struct sandbox *index_of_tag(const struct sandbox_core *core, const struct account *a, const char *req_tag,
			     const struct sandbox *after)
{
	char key[TAG_KEY_MAX];
	struct sandbox *first, *b;

	if (!req_tag[0])
		return NULL;
	first = map_get(&core->tag_map, key, tag_key(key, a, req_tag));
	b = after ? of_tag_node(after->index.same_tag.next) : first;
	if (after && b == first)
		return NULL;
	while (b && !str_eq(b->req_tag, req_tag)) {
		b = of_tag_node(b->index.same_tag.next);
		if (b == first)
			b = NULL;
	}
	return b;
}

bool index_seq_has_other_tag(const struct sandbox_core *core, uint64_t seq, const char *req_tag)
{
	struct sandbox *first = seq ? map_get_u64(&core->seq_map, seq) : NULL, *b = first;

	while (b) {
		if (!str_eq(b->req_tag, req_tag))
			return true;
		b = of_seq_node(b->index.same_seq.next);
		if (b == first)
			b = NULL;
	}
	return false;
}
