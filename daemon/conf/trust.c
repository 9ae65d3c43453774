/* SPDX-License-Identifier: MIT */
#include "daemon/conf/trust.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/str.h"

/* Others may add names to a folder with the sticky bit, such as /tmp, and not exchange those of ours. */
static bool others_may_write(const struct stat *st)
{
	bool shields = S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX);

	return (st->st_mode & (S_IWGRP | S_IWOTH)) && !shields;
}

static int check_one(const char *path, char why[TRUST_WHY_BYTES])
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return -errno;
	if (st.st_uid != 0 && st.st_uid != geteuid()) {
		(void)snprintf(why, TRUST_WHY_BYTES, "%.300s belongs to uid %u, who may change it: chown root %.100s", path,
			       st.st_uid, path);
		return -EPERM;
	}
	if (S_ISLNK(st.st_mode) || !others_may_write(&st))
		return 0;
	(void)snprintf(why, TRUST_WHY_BYTES, "%.300s has mode %04o, so that others may change it: chmod go-w %.100s", path,
		       st.st_mode & 07777, path);
	return -EPERM;
}

/* `path`, then each folder above it, up to the root. */
static int check_upwards(const char *path, char why[TRUST_WHY_BYTES])
{
	char *at = str_dup(path), *slash;
	int r = at ? check_one(at, why) : -ENOMEM;

	while (r == 0 && at[1] && (slash = strrchr(at, '/'))) {
		slash[slash == at] = '\0';
		r = check_one(at, why);
	}
	free(at);
	return r;
}

int trust_check(const char *path, char why[TRUST_WHY_BYTES])
{
	char *target = realpath(path, NULL);
	int r = target ? check_upwards(target, why) : -errno;

	free(target);
	if (r == 0 && path[0] == '/')
		r = check_upwards(path, why);
	return r;
}
