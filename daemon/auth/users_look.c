/* SPDX-License-Identifier: MIT */
/* The system's tables of users and groups. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/auth/access.h"
#include "daemon/auth/users.h"
#include "proto/base/str.h"

#define ROOM_FIRST 4096u
#define ROOM_MAX   (1024u * 1024)	/* a group with many members is long */

/* One look into a table, whose row has its texts in `room`. */
struct look {
	int (*get)(struct look *l, size_t n);
	const char *name;
	uid_t uid;
	struct passwd user;
	struct group group;
	bool found;
	char *room;
};

static int get_uid(struct look *l, size_t n)
{
	struct passwd *at = NULL;
	int r = getpwuid_r(l->uid, &l->user, l->room, n, &at);

	l->found = at;
	return r;
}

static int get_user(struct look *l, size_t n)
{
	struct passwd *at = NULL;
	int r = getpwnam_r(l->name, &l->user, l->room, n, &at);

	l->found = at;
	return r;
}

static int get_group(struct look *l, size_t n)
{
	struct group *at = NULL;
	int r = getgrnam_r(l->name, &l->group, l->room, n, &at);

	l->found = at;
	return r;
}

/* 0, and the caller frees l->room, as after a failure; -ENOENT: there is none; -errno. */
static int look_up(struct look *l)
{
	int r = ERANGE;

	for (size_t n = ROOM_FIRST; r == ERANGE && n <= ROOM_MAX; n *= 4) {
		free(l->room);
		l->room = malloc(n);
		r = l->room ? l->get(l, n) : ENOMEM;
	}
	if (l->found)
		return 0;
	/* Which number "nobody" is told by differs: these all mean that there is none. */
	return r == 0 || r == ENOENT || r == ESRCH || r == EBADF || r == EPERM ? -ENOENT : -r;
}

static void add_groups(struct user *u)
{
	int n = PRINCIPAL_GROUPS_MAX;
	gid_t all[PRINCIPAL_GROUPS_MAX];

	if (getgrouplist(u->name, u->gid, all, &n) < 0)
		n = PRINCIPAL_GROUPS_MAX;
	u->n_groups = (uint32_t)n;
	memcpy(u->groups, all, sizeof(*all) * u->n_groups);
}

/* What systemd says of the uids that it gives away, for a machine without its module for the tables. */
static int look_dynamic(uid_t uid, struct user *ret)
{
	char path[64];
	ssize_t n;

	if (!access_is_dynamic(uid))
		return -ENOENT;
	snprintf(path, sizeof(path), "/run/systemd/dynamic-uid/direct:%u", uid);
	n = readlink(path, ret->name, sizeof(ret->name));
	if (n <= 0 || (size_t)n >= sizeof(ret->name)) {
		ret->name[0] = '\0';
		return n < 0 && errno != ENOENT ? -errno : -ENOENT;
	}
	ret->name[n] = '\0';
	ret->gid = uid;
	return 0;
}

void users_look(uid_t uid, struct user *ret)
{
	struct look l = { .get = get_uid, .uid = uid };

	*ret = (struct user){ .uid = uid, .gid = (gid_t)-1, .error = look_up(&l) };
	if (!ret->error && !str_copy(ret->name, sizeof(ret->name), l.user.pw_name)) {
		ret->name[0] = '\0';
		ret->error = -ENOENT;
	}
	if (!ret->error)
		ret->gid = l.user.pw_gid;
	free(l.room);
	if (ret->error == -ENOENT)
		ret->error = look_dynamic(uid, ret);
	if (!ret->error)
		add_groups(ret);
}

int users_look_name(const char *name, uint32_t *ret_uid)
{
	struct look l = { .get = get_user, .name = name };
	int r = look_up(&l);

	if (!r)
		*ret_uid = l.user.pw_uid;
	free(l.room);
	return r;
}

int users_look_group(const char *name, uint32_t *ret_gid)
{
	struct look l = { .get = get_group, .name = name };
	int r = look_up(&l);

	if (!r)
		*ret_gid = l.group.gr_gid;
	free(l.room);
	return r;
}
