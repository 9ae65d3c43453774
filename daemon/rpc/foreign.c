/* SPDX-License-Identifier: MIT */
/*
 * The links below /proc/PID/ns may only be read by who may trace the process, which a daemon without rights may not. Everybody may read
 * its maps of ids, which differ between user namespaces: also where one maps every uid to itself, since nobody writes a map of
 * projects there. Where the link can be read, it counts too.
 */
#include "daemon/rpc/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/auth/process.h"
#include "proto/base/str.h"

/* PID 0: the daemon itself. NULL: it cannot be read. Heap. */
static bool is_same_text(pid_t pid, const char *name)
{
	char *ours = process_read(0, name), *theirs = process_read(pid, name);
	bool same = ours && theirs && str_eq(ours, theirs);

	free(ours);
	free(theirs);
	return same;
}

/* Where this kernel has no user namespaces, there is one for all. */
static bool is_same_map(pid_t pid, const char *name)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/%s", name);
	if (stat(path, &st) < 0 && errno == ENOENT)
		return true;
	return is_same_text(pid, name);
}

/* False only if both can be looked at and differ. */
static bool may_be_same_link(pid_t pid, const char *name)
{
	struct stat ours, theirs;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	if (stat(path, &theirs) < 0)
		return true;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return stat(path, &ours) < 0 || (ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev);
}

unsigned foreign_depth(const char *status)
{
	const char *at = str_starts(status, "NSpid:") ? status : strstr(status, "\nNSpid:");
	unsigned n = 0;

	if (!at)
		return 0;
	at = strchr(at, ':') + 1;
	while (*at == ' ' || *at == '\t') {
		size_t digits;

		at += strspn(at, " \t");
		digits = strspn(at, "0123456789");
		if (!digits)
			break;
		n++;
		at += digits;
	}
	return *at == '\n' || !*at ? n : 0;
}

static bool is_same_depth(pid_t pid)
{
	char *ours = process_read(0, "status"), *theirs = process_read(pid, "status");
	bool same = ours && theirs && foreign_depth(theirs) && foreign_depth(ours) == foreign_depth(theirs);

	free(ours);
	free(theirs);
	return same;
}

bool foreign_is(pid_t pid)
{
	static const char *const maps[] = { "uid_map", "gid_map", "projid_map" };

	if (pid <= 0 || !is_same_depth(pid) || !may_be_same_link(pid, "user") || !may_be_same_link(pid, "pid"))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		if (!is_same_map(pid, maps[i]))
			return true;
	return false;
}
