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

/* Whether a call that needs room has to be made again, with more of it. */
static bool needs_more(int r, size_t *n)
{
	if (r != ERANGE || *n >= ROOM_MAX)
		return false;
	*n *= 4;
	return true;
}

/* Which number "nobody" is told by differs: these all mean that there is none. */
static int result_of(int r, bool found)
{
	if (found)
		return 0;
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
	size_t n = ROOM_FIRST;
	struct passwd pw, *found = NULL;
	char *room = NULL;
	int r;

	*ret = (struct user){ .uid = uid, .gid = (gid_t)-1 };
	do {
		free(room);
		room = malloc(n);
		r = room ? getpwuid_r(uid, &pw, room, n, &found) : ENOMEM;
	} while (needs_more(r, &n));
	ret->error = result_of(r, found);
	if (!ret->error && !str_copy(ret->name, sizeof(ret->name), found->pw_name)) {
		ret->name[0] = '\0';
		ret->error = -ENOENT;
	}
	if (!ret->error)
		ret->gid = found->pw_gid;
	free(room);
	if (ret->error == -ENOENT)
		ret->error = look_dynamic(uid, ret);
	if (!ret->error)
		add_groups(ret);
}

int users_look_name(const char *name, uint32_t *ret_uid)
{
	size_t n = ROOM_FIRST;
	struct passwd pw, *found = NULL;
	char *room = NULL;
	int r;

	do {
		free(room);
		room = malloc(n);
		r = room ? getpwnam_r(name, &pw, room, n, &found) : ENOMEM;
	} while (needs_more(r, &n));
	r = result_of(r, found);
	if (!r)
		*ret_uid = found->pw_uid;
	free(room);
	return r;
}

int users_look_group(const char *name, uint32_t *ret_gid)
{
	size_t n = ROOM_FIRST;
	struct group gr, *found = NULL;
	char *room = NULL;
	int r;

	do {
		free(room);
		room = malloc(n);
		r = room ? getgrnam_r(name, &gr, room, n, &found) : ENOMEM;
	} while (needs_more(r, &n));
	r = result_of(r, found);
	if (!r)
		*ret_gid = found->gr_gid;
	free(room);
	return r;
}
