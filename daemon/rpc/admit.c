/* SPDX-License-Identifier: MIT */
/* An entry per uid that holds something, or has a limit of its own. */
#include "daemon/rpc/admit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "proto/base/must.h"

struct admit_uid {
	uid_t uid;
	bool stays;	/* it has a limit of its own, or is to have one */
	uint32_t streams_max;
	uint32_t held[ADMIT_KINDS];
};

void admit_init(struct admit *a, const struct admit_limits *limits)
{
	*a = (struct admit){ .limits = *limits };
}

void admit_fini(struct admit *a)
{
	struct admit_uid *u;
	size_t pos = 0;

	for (int what = 0; what < ADMIT_KINDS; what++)
		must(a->held[what] == 0);
	while ((u = map_next(&a->uids, &pos)))
		free(u);
	map_fini(&a->uids);
}

static int find_or_add(struct admit *a, uid_t uid, struct admit_uid **ret)
{
	struct admit_uid *u = map_get_u64(&a->uids, owner_uid(uid));

	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return -ENOMEM;
		u->uid = owner_uid(uid);
		u->streams_max = a->limits.streams_per_uid;
		if (map_put_u64(&a->uids, u->uid, u) < 0) {
			free(u);
			return -ENOMEM;
		}
	}
	*ret = u;
	return 0;
}

static bool forget_if_idle(struct admit *a, struct admit_uid *u)
{
	if (u->stays)
		return false;
	for (int what = 0; what < ADMIT_KINDS; what++)
		if (u->held[what])
			return false;
	map_del_u64(&a->uids, u->uid);
	free(u);
	return true;
}

int admit_reserve(struct admit *a, uid_t uid)
{
	struct admit_uid *u;
	int r = find_or_add(a, uid, &u);

	if (!r)
		u->stays = true;
	return r;
}

void admit_set_streams(struct admit *a, uint32_t streams_per_uid, const struct admit_uid_limit *limits, size_t n)
{
	struct admit_uid *u;
	size_t pos = 0;

	a->limits.streams_per_uid = streams_per_uid;
	while ((u = map_next(&a->uids, &pos))) {
		u->streams_max = streams_per_uid;
		u->stays = false;
	}
	for (size_t i = 0; i < n; i++) {
		u = map_get_u64(&a->uids, owner_uid(limits[i].uid));
		u->streams_max = limits[i].streams;
		u->stays = true;
	}
	pos = 0;
	while ((u = map_next(&a->uids, &pos)))
		if (forget_if_idle(a, u))
			pos = 0;
}

static enum admit_result may_take(const struct admit *a, const struct admit_uid *u,
				  enum admit_what what)
{
	const struct admit_limits *l = &a->limits;
	const uint32_t per_uid[] = { l->conns_per_uid, u->streams_max, l->calls_per_uid };
	const uint32_t all[] = { l->conns, l->streams, l->calls };

	if (u->held[what] >= per_uid[what])
		return ADMIT_UID_FULL;
	if (a->held[what] >= all[what] && !(what == ADMIT_CALL && u->held[what] < l->calls_kept))
		return ADMIT_ALL_FULL;
	return ADMIT_OK;
}

int admit_take(struct admit *a, uid_t uid, enum admit_what what, struct admit_uid **ret)
{
	struct admit_uid *u;
	int r = find_or_add(a, uid, &u);

	if (r < 0)
		return r;
	r = (int)may_take(a, u, what);
	if (r != ADMIT_OK) {
		(void)forget_if_idle(a, u);
		return r;
	}
	u->held[what]++;
	a->held[what]++;
	*ret = u;
	return ADMIT_OK;
}

void admit_give_back(struct admit *a, struct admit_uid *u, enum admit_what what)
{
	must(u->held[what] && a->held[what]);
	u->held[what]--;
	a->held[what]--;
	(void)forget_if_idle(a, u);
}

uint32_t admit_held(const struct admit *a, uid_t uid, enum admit_what what)
{
	const struct admit_uid *u = map_get_u64(&a->uids, owner_uid(uid));

	return u ? u->held[what] : 0;
}

uint32_t admit_max_streams(const struct admit *a, uid_t uid)
{
	const struct admit_uid *u = map_get_u64(&a->uids, owner_uid(uid));

	return u ? u->streams_max : a->limits.streams_per_uid;
}
