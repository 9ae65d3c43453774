/* SPDX-License-Identifier: MIT */
/* Numbers stand in for names that the system does not know. */
#include "client/lib/denied.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/dial.h"
#include "proto/base/str.h"

#define NAME_MAX_BYTES 64u
#define LOOKUP_BYTES   1024u

static void user_name(uid_t uid, char buf[NAME_MAX_BYTES])
{
	char room[LOOKUP_BYTES];
	struct passwd pw, *found = NULL;

	if (getpwuid_r(uid, &pw, room, sizeof(room), &found) == 0 && found)
		(void)snprintf(buf, NAME_MAX_BYTES, "%.40s (uid %u)", found->pw_name, uid);
	else
		(void)snprintf(buf, NAME_MAX_BYTES, "uid %u", uid);
}

static void group_name(gid_t gid, char buf[NAME_MAX_BYTES])
{
	char room[LOOKUP_BYTES];
	struct group gr, *found = NULL;

	if (getgrgid_r(gid, &gr, room, sizeof(room), &found) == 0 && found)
		(void)snprintf(buf, NAME_MAX_BYTES, "%.40s", found->gr_name);
	else
		(void)snprintf(buf, NAME_MAX_BYTES, "%u", gid);
}

/* The file, or the first folder above it that can be looked at: what is below is hidden by it. */
static bool find_refuser(const char *path, char at[DIAL_PATH_MAX], struct stat *ret)
{
	if (!str_copy(at, DIAL_PATH_MAX, path))
		return false;
	while (stat(at, ret) < 0) {
		char *slash = strrchr(at, '/');

		if (!slash)
			return false;
		slash[slash == at] = '\0';
		if (slash == at)
			return stat(at, ret) == 0;
	}
	return true;
}

static void advice(const struct stat *st, const char *group, char *buf, size_t n)
{
	bool to_group = st->st_gid != 0 && (st->st_mode & (S_ISDIR(st->st_mode) ? 0010 : 0020));

	if (to_group)
		(void)snprintf(buf, n, "its group may: usermod -aG %s USER as root, then log in anew", group);
	else
		(void)snprintf(buf, n, "SocketGroup= and SocketMode= of agentboxd.socket say who may (systemctl edit agentboxd.socket); "
			       "the daemon of another user is for that user alone");
}

void denied_text(const char *path, char *buf, size_t n)
{
	char at[DIAL_PATH_MAX], me[NAME_MAX_BYTES], owner[NAME_MAX_BYTES], group[NAME_MAX_BYTES], what[256];
	struct stat st;

	user_name(geteuid(), me);
	if (!find_refuser(path, at, &st)) {
		(void)snprintf(buf, n, "Permission denied to %s", me);
		return;
	}
	user_name(st.st_uid, owner);
	group_name(st.st_gid, group);
	advice(&st, group, what, sizeof(what));
	(void)snprintf(buf, n, "Permission denied to %s: %s has owner %s, group %s, mode %04o; %s", me, at, owner, group,
		       st.st_mode & 07777, what);
}
