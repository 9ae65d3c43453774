/* SPDX-License-Identifier: MIT */
/*
 * The snapshots of the accounts in memory: those made here with their owner and source, the others as the cloud
 * lists them. The cloud says neither source nor age, so only rows have these.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/lines.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"
#include "proto/cloud/template_ref.h"

#define GONE_KEPT_MS 600000u	/* how long a deleted one is remembered: longer than any list takes */
#define GONE_MAX     500u	/* how many deleted ones are remembered; a list from before may bring others back for a while */

static void snap_free(struct snap *s)
{
	if (!s)
		return;
	free(s->id);
	free(s->source);
	cloud_strs_fini(&s->names);
	free(s);
}

static struct snap *snapshots_find(struct sandbox_core *core, const struct account *a, const char *id)
{
	list_for_each(n, &core->snapshots) {
		struct snap *s = list_entry(n, struct snap, node);

		if (s->account == a && str_eq(s->id, id))
			return s;
	}
	return NULL;
}

struct snap *snap_find(struct sandbox_core *core, const struct account *a, const char *id)
{
	struct snap *s = snapshots_find(core, a, id);

	return s && !s->gone_boot_ms ? s : NULL;
}

bool snap_may_see(const struct principal *who, const struct snap *s)
{
	return !s->ours || grant_row(who, s->uid) == GRANT_OK;
}

bool snap_may_change(const struct principal *who, const struct snap *s)
{
	return s->ours ? grant_row(who, s->uid) == GRANT_OK : who->admin;
}

bool snap_same_template(const char *a, const char *b)
{
	struct template_ref x, y;

	return !template_ref_parse(a, &x) && !template_ref_parse(b, &y) && str_eq(x.name, y.name);
}

bool snap_is_named(const struct snap *s, const char *ref)
{
	bool is = snap_same_template(s->id, ref);

	for (size_t k = 0; k < s->names.n && !is; k++)
		is = snap_same_template(s->names.v[k], ref);
	return is;
}

struct snap *snap_named(struct sandbox_core *core, const struct account *a, const char *ref)
{
	list_for_each(n, &core->snapshots) {
		struct snap *s = list_entry(n, struct snap, node);

		if (s->account == a && !s->gone_boot_ms && snap_is_named(s, ref))
			return s;
	}
	return NULL;
}

/* Does a snapshot under way of another uid, which has no row yet, have this name? */
static bool is_being_made(struct sandbox_core *core, const struct account *a, uid_t by_others_than,
			  const char *name)
{
	list_for_each(n, &core->attempts) {
		struct attempt *t = list_entry(n, struct attempt, node);

		if (t->account == a && t->uid != by_others_than && attempt_is_copy(t) &&
		    copy_from(t)->kind == &copy_snapshot && copy_from(t)->name[0] &&
		    snap_same_template(copy_from(t)->name, name))
			return true;
	}
	return false;
}

bool snap_name_is_taken(struct sandbox_core *core, const struct account *a, const struct principal *who,
			const char *name, struct status *st)
{
	const struct snap *s = snap_named(core, a, name);

	if (!(s && !snap_may_change(who, s)) && !is_being_made(core, a, who->uid, name))
		return false;
	status_set(st, R_NAME_EXISTS, "the name %s is taken: give the snapshot another one", name);
	status_evidence(st, "name", "%s", name);
	return true;
}

bool snap_is_gone_since(struct sandbox_core *core, const struct account *a, const char *id,
			uint64_t asked_boot_ms)
{
	const struct snap *s = snapshots_find(core, a, id);

	return s && s->gone_boot_ms && s->gone_boot_ms >= asked_boot_ms;
}

static int snapshots_add(struct sandbox_core *core, struct account *a, const char *id,
			 struct snap **ret)
{
	struct snap *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->account = a;
	if (text_set(&s->id, id) < 0 || text_set(&s->source, "") < 0) {
		snap_free(s);
		return -ENOMEM;
	}
	list_add_tail(&core->snapshots, &s->node);
	*ret = s;
	return 0;
}

static int put_row(const struct snap *s, struct store_tx *t)
{
	char *names = lines_join(&s->names);
	struct row_snapshot row = {
		.account = s->account->name,
		.id = s->id,
		.uid = s->uid,
		.ours = s->ours,
		.source = s->source,
		.names = names,
		.created_at_ms = s->created_at_ms,
		.as_of_ms = s->as_of_ms,
	};

	if (!names)
		return -ENOMEM;
	store_tx_put_snapshot(t, &row);
	free(names);
	return 0;
}

static void name_not_kept(struct snap *s)
{
	if (!s->told_unkept)
		log_warn("snapshot_unkept", "snapshot=%s field=names reason=out_of_bounds", s->id);
	s->told_unkept = true;
}

/* The names that its row can hold, which are one a line there. */
static int keep_names(struct snap *s, const struct cloud_strs *names, struct cloud_strs *ret)
{
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < names->n && !r; i++) {
		n += strlen(names->v[i]) + 1;
		if (n > ROW_BLOB_MAX || strchr(names->v[i], '\n') || !names->v[i][0])
			name_not_kept(s);
		else
			r = cloud_strs_add(ret, names->v[i]);
	}
	return r;
}

int snap_put(struct account *a, const struct cloud_snapshot *c, const char *source,
	     const uid_t *uid, struct store_tx *t, struct snap **ret)
{
	struct sandbox_core *core = a->core;
	struct snap *s = snapshots_find(core, a, c->id);
	bool changed = !s || s->gone_boot_ms || uid;
	struct cloud_strs names = { 0 };
	int r = s ? 0 : snapshots_add(core, a, c->id, &s);

	if (!r && source)
		r = text_set(&s->source, source);
	if (!r)
		r = keep_names(s, &c->names, &names);
	if (r < 0) {
		cloud_strs_fini(&names);
		return r;
	}
	changed = changed || !cloud_strs_equal(&s->names, &names);
	cloud_strs_fini(&s->names);
	s->names = names;
	if (s->gone_boot_ms) {		/* a new snapshot with the id of a deleted one */
		s->ours = false;
		s->uid = 0;
		s->created_at_ms = 0;
		s->gone_boot_ms = s->made_boot_ms = 0;
	}
	s->as_of_ms = clock_wall_ms();
	s->seen = true;
	if (uid) {
		s->uid = *uid;
		s->ours = true;
		s->created_at_ms = s->as_of_ms;
		s->made_boot_ms = clock_boot_ms();
		list_del(&s->node);
		list_add_head(&core->snapshots, &s->node);
	}
	*ret = s;
	return changed ? put_row(s, t) : 0;
}

static void snap_drop(struct snap *s)
{
	list_del(&s->node);
	snap_free(s);
}

void snap_forget(struct snap *s, struct store_tx *t)
{
	store_tx_del_snapshot(t, s->account->name, s->id);
	s->gone_boot_ms = MAX(clock_boot_ms(), (uint64_t)1);
}

/* The one that was deleted first; NULL = none is. */
static struct snap *oldest_gone(struct sandbox_core *core, size_t *ret_n)
{
	struct snap *oldest = NULL;

	*ret_n = 0;
	list_for_each(n, &core->snapshots) {
		struct snap *s = list_entry(n, struct snap, node);

		if (!s->gone_boot_ms)
			continue;
		++*ret_n;
		if (!oldest || s->gone_boot_ms < oldest->gone_boot_ms)
			oldest = s;
	}
	return oldest;
}

void snap_forget_old(struct sandbox_core *core)
{
	uint64_t now = clock_boot_ms();
	struct snap *s;
	size_t n;

	while ((s = oldest_gone(core, &n)) && (n > GONE_MAX || now >= s->gone_boot_ms + GONE_KEPT_MS))
		snap_drop(s);
}

void snap_view(const struct snap *s, enum sandbox_source source, struct sandbox_snapshot *ret)
{
	*ret = (struct sandbox_snapshot){
		.id = s->id,
		.names = (const char *const *)s->names.v,
		.n_names = s->names.n,
		.source_sandbox = s->source,
		.created_at_ms = s->created_at_ms,
		.source = source,
		.as_of_ms = s->as_of_ms,
	};
}

/* --- start and end --- */

int snapshot_load(struct sandbox_core *core, const struct row_snapshot *r)
{
	struct account *a = core_account_by_name(core, r->account);
	struct snap *s;
	int e;

	e = snapshots_add(core, a, r->id, &s);
	if (!e)
		e = text_set(&s->source, r->source);
	if (!e)
		e = lines_split(&s->names, r->names);
	if (e < 0)
		return e;
	s->uid = r->uid;
	s->ours = r->ours;
	s->created_at_ms = r->created_at_ms;
	s->as_of_ms = r->as_of_ms;
	return 0;
}

void snapshot_forget_all(struct sandbox_core *core)
{
	while (!list_is_empty(&core->snapshots))
		snap_drop(list_entry(core->snapshots.next, struct snap, node));
}
