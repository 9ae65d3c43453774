/* SPDX-License-Identifier: MIT */
/*
 * The copy_kind of snapshots. A snapshot has no tag, so a lost answer is resolved by the list of its source's
 * snapshots: if exactly one of them is new, that is it.
 */

#include "daemon/sandbox/copy.h"
#include "proto/base/clock.h"

static struct cloud_call *ask_known(struct copy *c, const struct cloud_ask *ask)
{
	return cloud_snapshots(c->att.account->cloud, c->att.source, NULL, ask);
}

static int take_known(struct copy *c, const struct cloud_result *r)
{
	int e = 0;

	for (size_t i = 0; i < r->snapshots->n && !e; i++)
		e = cloud_strs_add(&c->known, r->snapshots->v[i]->id);
	return e;
}

static struct cloud_call *snapshot_post(struct copy *c, const struct cloud_ask *ask)
{
	return cloud_snapshot(c->att.account->cloud, c->att.source, c->name, ask);
}

/* A name that is given again keeps its snapshot's id. */
static bool snapshot_names_another(const struct copy *c, const struct cloud_result *r)
{
	const struct snap *s = snap_find(c->att.core, c->att.account, r->snapshot->id);

	return c->name[0] ? s && !snap_is_named(s, c->name) : s || cloud_strs_has(&c->known, r->snapshot->id);
}

static void snapshot_take(struct copy *c, struct cloud_result *r)
{
	c->snapshot = give(r->snapshot);
}

static int snapshot_record(struct copy *c, struct store_tx *t)
{
	struct snap *s;
	int r = text_set(&c->att.object, c->snapshot->id);

	if (!r)
		r = snap_put(c->att.account, c->snapshot, c->att.source, &c->att.uid, t, &s);
	return r;
}

static enum resolve_next snapshot_resolve(struct copy *c, struct cloud_result *r, uint64_t *ret_wait_ms)
{
	struct cloud_snapshots *list = r->outcome == CLOUD_DONE ? r->snapshots : NULL;
	const struct resolve_when when = attempt_when(&c->att);
	size_t i = 0;
	enum resolve_next next = resolve_snapshot(list, &c->known, &when, &i, ret_wait_ms);

	if (next == RESOLVE_FOUND) {
		c->snapshot = give(list->v[i]);
		list->v[i] = list->v[--list->n];
	}
	return next;
}

const struct copy_kind copy_snapshot = {
	.row = ROW_COPY_SNAPSHOT,
	.method = REQUEST_SNAPSHOT,
	.what = "snapshot",
	.ask_known = ask_known,
	.take_known = take_known,
	.post = snapshot_post,
	.names_another = snapshot_names_another,
	.take = snapshot_take,
	.record = snapshot_record,
	.resolve = snapshot_resolve,
};
