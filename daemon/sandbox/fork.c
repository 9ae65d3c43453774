/* SPDX-License-Identifier: MIT */
/*
 * The copy_kind of forks. Children carry their parent's tags, so they are told from it by not having existed
 * before; they get rows of their own, without a name, with the policy that was asked for. The parent's row is not
 * touched.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define NOMEM_WAIT_MS 1000u

static struct cloud_call *ask_known(struct copy *c, const struct cloud_ask *ask)
{
	struct cloud_kv want[] = {
		{ (char *)TAG_HOST, (char *)store_host_id(c->att.core->store) },
		{ (char *)TAG_REQ, c->att.req_tag },
	};
	struct cloud_filter f = { .metadata = want, .n_metadata = ARRAY_SIZE(want) };

	return cloud_list_all(c->att.account->cloud, &f, ask);
}

static int take_known(struct copy *c, const struct cloud_result *r)
{
	struct sandbox *b = NULL;
	int e = 0;

	for (size_t i = 0; i < r->list->n && !e; i++)
		e = cloud_strs_add(&c->known, r->list->v[i]->id);
	/* A sandbox that is being snapshotted is in no list; its row is here. */
	while (!e && (b = index_of_tag(c->att.core, c->att.account, c->att.req_tag, b)))
		if (b->state != SANDBOX_GONE)
			e = cloud_strs_add(&c->known, b->id);
	return e;
}

static struct cloud_call *fork_post(struct copy *c, const struct cloud_ask *ask)
{
	return cloud_fork(c->att.account->cloud, c->att.source, c->count, c->timeout_s, ask);
}

/* Its caller may have met it in a list, and used it, before this answer. */
static bool is_other(const struct copy *c, const char *id)
{
	const struct sandbox *b = core_find_any(c->att.core, c->att.account, id);

	if (str_eq(id, c->att.source) || cloud_strs_has(&c->known, id))
		return true;
	return b && (b->ours || b->uid != c->att.uid);
}

static bool fork_names_another(const struct copy *c, const struct cloud_result *r)
{
	const struct cloud_children *k = r->children;

	for (size_t i = 0; i < k->n; i++) {
		const struct cloud_sandbox *s = k->v[i].sandbox;

		if (!s)
			continue;
		if (is_other(c, s->id))
			return true;
		for (size_t j = 0; j < i; j++)
			if (k->v[j].sandbox && str_eq(k->v[j].sandbox->id, s->id))
				return true;
	}
	return false;
}

static void fork_take(struct copy *c, struct cloud_result *r)
{
	c->children = give(r->children);
}

/* --- rows --- */

/* What the cloud's answer does not say of a child is the same as its parent's. */
static int inherit(struct sandbox *b, const struct sandbox *parent)
{
	int r;

	pairs_fini(&b->metadata);	/* an answer may have some */
	r = pairs_from(&b->metadata, parent->metadata.v, parent->metadata.n);

	b->allow_internet_access = parent->allow_internet_access;
	b->lifecycle = parent->lifecycle;
	b->cpu_count = parent->cpu_count;
	b->memory_mb = parent->memory_mb;
	b->disk_size_mb = parent->disk_size_mb;
	return r;
}

static int make_sandbox(struct copy *c, const struct cloud_sandbox *s, struct sandbox **ret)
{
	scoped(sandbox_freep) struct sandbox *b = NULL;
	struct sandbox *parent = core_find(c->att.core, c->att.account, c->att.source);
	bool changed;
	int r = sandbox_new(c->att.account, s->id, &b);

	if (!r && parent)
		r = inherit(b, parent);
	if (!r)
		r = sandbox_learn(b, s, clock_boot_ms(), clock_wall_ms(), &changed);
	if (!r)
		r = text_set(&b->req_tag, c->att.req_tag);
	if (r < 0)
		return r;
	sandbox_set_state(b, s->state == CLOUD_STATE_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING);
	r = core_insert(c->att.core, b);
	if (!r)
		*ret = give(b);
	return r;
}

static int record_child(struct copy *c, const struct cloud_sandbox *s, struct store_tx *t)
{
	struct sandbox *b = core_find(c->att.core, c->att.account, s->id);
	int r = b ? 0 : make_sandbox(c, s, &b);

	if (!r)
		r = index_set_owner(b, c->att.uid);
	if (r < 0)
		return r;
	/* If its parent has no tag of ours, neither has it: it counts as made elsewhere. */
	b->ours = c->att.req_tag[0] != 0;
	b->adopted = !b->ours;
	b->policy = c->att.policy;
	b->token_known = b->token_known || s->envd_access_token;
	b->claimed = !list_is_empty(&c->att.waiters);
	b->unclaimed_at_ms = b->claimed ? 0 : clock_wall_ms();
	b->unclaimed_boot_ms = b->claimed ? 0 : (int64_t)clock_boot_ms();
	b->timeout_s = c->timeout_s;
	b->used_at_ms = (int64_t)clock_boot_ms();
	sandbox_put(t, b);
	event_put(c->att.core, t, b, EVENT_CREATED, "by=fork\nparent=%s\n", c->att.source);
	runner_poke(b);
	return 0;
}

/* The request's object: a word for each child, its id or "!" and the reason why there is none. */
static int say_object(struct copy *c)
{
	scoped(buf_fini) struct buf text = BUF_NULL;
	int r = 0;

	for (size_t i = 0; i < c->children->n && !r; i++) {
		const struct cloud_child *k = &c->children->v[i];
		const char *word = k->sandbox ? k->sandbox->id : status_reason_name(k->error.reason);

		if (i)
			r = buf_put(&text, " ", 1);
		if (!r && !k->sandbox)
			r = buf_put(&text, "!", 1);
		if (!r)
			r = buf_put(&text, word, strlen(word));
	}
	if (!r)
		r = buf_put(&text, "", 1);
	return r < 0 ? r : text_set(&c->att.object, (const char *)buf_data(&text));
}

static int fork_record(struct copy *c, struct store_tx *t)
{
	int r = say_object(c);

	for (size_t i = 0; i < c->children->n && !r; i++)
		if (c->children->v[i].sandbox)
			r = record_child(c, c->children->v[i].sandbox, t);
	return r;
}

/* --- resolving --- */

static bool is_tracked(const char *id, void *user)
{
	struct copy *c = user;

	return core_find(c->att.core, c->att.account, id) != NULL;
}

/* Takes the found children out of the list, as fork_take() does with an answer; the missing ones are OUTCOME_UNKNOWN. */
static int adopt_found(struct copy *c, struct cloud_list *list, const size_t *index, size_t n)
{
	struct cloud_children *k = calloc(1, sizeof(*k));
	size_t left = 0;

	if (k)
		k->v = calloc(c->count, sizeof(*k->v));
	if (!k || !k->v) {
		cloud_children_free(k);
		return -ENOMEM;
	}
	for (; k->n < n; k->n++)
		k->v[k->n].sandbox = give(list->v[index[k->n]]);
	for (; k->n < c->count; k->n++)
		status_set(&k->v[k->n].error, R_OUTCOME_UNKNOWN,
			   "the cloud's answer was lost and this child has not shown up");
	/* The list keeps the others. */
	for (size_t i = 0; i < list->n; i++)
		if (list->v[i])
			list->v[left++] = list->v[i];
	list->n = left;
	cloud_children_free(c->children);
	c->children = k;
	return 0;
}

static enum resolve_next fork_resolve(struct copy *c, struct cloud_result *r, uint64_t *ret_wait_ms)
{
	struct resolve_fork f = {
		.host = store_host_id(c->att.core->store),
		.req = c->att.req_tag,
		.known = &c->known,
		.made_at_ms = c->att.made_at_ms,
		.count = c->count,
		.is_tracked = is_tracked,
		.user = c,
	};
	const struct resolve_when when = attempt_when(&c->att);
	size_t *index, n = 0;
	enum resolve_next next;

	*ret_wait_ms = NOMEM_WAIT_MS;
	index = calloc(c->count, sizeof(*index));
	if (!index)
		return RESOLVE_WAIT;
	next = resolve_fork(r->outcome == CLOUD_DONE ? r->list : NULL, &f, &when, index, &n,
			    ret_wait_ms);
	if (next == RESOLVE_FOUND && adopt_found(c, r->list, index, n) < 0)
		next = RESOLVE_WAIT;
	free(index);
	return next;
}

const struct copy_kind copy_fork = {
	.row = ROW_COPY_FORK,
	.method = REQUEST_FORK,
	.what = "fork",
	.ask_known = ask_known,
	.take_known = take_known,
	.post = fork_post,
	.names_another = fork_names_another,
	.take = fork_take,
	.record = fork_record,
	.resolve = fork_resolve,
};
