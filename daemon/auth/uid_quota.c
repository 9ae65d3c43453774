/* SPDX-License-Identifier: MIT */
/* An entry per uid that came, until so many are there that those without a charge are forgotten. */
#include "daemon/auth/uid_quota.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "proto/base/map.h"

#define ENTRIES_MAX 256u	/* kept without a charge */

struct entry {
	uid_t uid;
	bool stays;	/* it has a limit of its own, or is to have one */
	struct quota *quota;
};

struct uid_quotas {
	struct uid_quotas_options o;
	struct quota *all;
	struct map entries;	/* uid → struct entry */
	size_t sweep_at;	/* entries from which on those without a charge are looked for */
};

struct uid_quotas *uid_quotas_new(const struct uid_quotas_options *o)
{
	struct uid_quotas *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->o = *o;
	u->sweep_at = ENTRIES_MAX;
	u->all = quota_new(&(struct quota_options){ .name = "all users together", .max = o->max });
	if (u->all)
		return u;
	free(u);
	return NULL;
}

struct uid_quotas *uid_quotas_free(struct uid_quotas *u)
{
	struct entry *e;
	size_t pos = 0;

	if (!u)
		return NULL;
	while ((e = map_next(&u->entries, &pos))) {
		quota_unref(e->quota);
		free(e);
	}
	map_fini(&u->entries);
	quota_unref(u->all);
	free(u);
	return NULL;
}

static uint64_t kept_of(const struct uid_quotas *u)
{
	return u->o.max / UID_QUOTA_KEPT;
}

static struct quota *make_quota(struct uid_quotas *u, uid_t uid)
{
	char name[QUOTA_NAME_MAX];
	struct quota_options o = { .parent = u->all, .name = name, .max = u->o.max_per_uid, .kept = kept_of(u) };

	snprintf(name, sizeof(name), "uid %u", uid);
	return quota_new(&o);
}

static struct entry *add(struct uid_quotas *u, uid_t uid)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->uid = uid;
	e->quota = make_quota(u, uid);
	if (e->quota && map_put_u64(&u->entries, uid, e) == 0)
		return e;
	quota_unref(e->quota);
	free(e);
	return NULL;
}

int uid_quotas_reserve(struct uid_quotas *u, uid_t uid)
{
	struct entry *e = map_get_u64(&u->entries, uid);

	if (!e)
		e = add(u, uid);
	if (!e)
		return -ENOMEM;
	e->stays = true;
	return 0;
}

void uid_quotas_set(struct uid_quotas *u, const struct uid_quotas_options *o, const struct uid_quota_limit *limits, size_t n)
{
	struct entry *e;
	size_t pos = 0;

	u->o = *o;
	quota_set_max(u->all, o->max, 0);
	while ((e = map_next(&u->entries, &pos))) {
		quota_set_max(e->quota, o->max_per_uid, kept_of(u));
		e->stays = false;
	}
	for (size_t i = 0; i < n; i++) {
		e = map_get_u64(&u->entries, limits[i].uid);
		quota_set_max(e->quota, limits[i].max, kept_of(u));
		e->stays = true;
	}
}

static void sweep(struct uid_quotas *u)
{
	struct entry *e;
	size_t pos = 0;

	while ((e = map_next(&u->entries, &pos))) {
		if (e->stays || !quota_is_idle(e->quota))
			continue;
		map_del_u64(&u->entries, e->uid);
		quota_unref(e->quota);
		free(e);
		pos = 0;	/* taking away moves the others */
	}
	u->sweep_at = MAX(2 * map_size(&u->entries), (size_t)ENTRIES_MAX);
}

struct quota *uid_quota(struct uid_quotas *u, uid_t uid)
{
	struct entry *e = map_get_u64(&u->entries, owner_uid(uid));

	if (!e) {
		if (map_size(&u->entries) >= u->sweep_at)
			sweep(u);
		e = add(u, owner_uid(uid));
	}
	return e ? quota_ref(e->quota) : NULL;
}

void uid_quota_read(const struct uid_quotas *u, uid_t uid, uint64_t *ret_used, uint64_t *ret_max)
{
	const struct entry *e = map_get_u64(&u->entries, owner_uid(uid));

	*ret_used = e ? quota_used(e->quota) : 0;
	*ret_max = e ? quota_max(e->quota) : u->o.max_per_uid;
}

struct quota *uid_quotas_all(const struct uid_quotas *u)
{
	return u->all;
}
