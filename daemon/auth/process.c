/* SPDX-License-Identifier: MIT */
#include "daemon/auth/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"

#define PIDFS_MAGIC 0x50494446
#define READ_MAX    (64u * 1024)

char *process_read(pid_t pid, const char *name)
{
	char path[64], *text;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	else
		snprintf(path, sizeof(path), "/proc/self/%s", name);
	return fd_read_file(AT_FDCWD, path, READ_MAX, &text, NULL) == 0 ? text : NULL;
}

uint64_t process_start_time_of(const char *stat)
{
	const char *p = strrchr(stat, ')');	/* the name may hold anything, also this */
	uint64_t v = 0;
	size_t n;

	if (!p)
		return 0;
	p++;
	for (int field = 2; field < 21 && p; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return 0;
	}
	p++;
	n = strspn(p, "0123456789");
	return n && str_u64(p, n, INT64_MAX, &v) == 0 ? v : 0;
}

uint64_t process_inode(int pidfd)
{
	struct statfs fs;
	struct stat st;

	if (pidfd < 0 || fstatfs(pidfd, &fs) < 0 || fs.f_type != PIDFS_MAGIC || fstat(pidfd, &st) < 0)
		return 0;
	return (uint64_t)st.st_ino;
}

bool process_has_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* What was read is the process's own if it lives after the reading. */
uint64_t process_start_time(pid_t pid, int pidfd)
{
	char *text = pidfd < 0 ? NULL : process_read(pid, "stat");
	uint64_t v;

	if (!text)
		return 0;
	v = process_start_time_of(text);
	free(text);
	return process_has_ended(pidfd) ? 0 : v;
}

void process_boot(char ret[PROCESS_BOOT_MAX])
{
	char *text;

	ret[0] = 0;
	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", PROCESS_BOOT_MAX, &text, NULL) < 0)
		return;
	text[strcspn(text, "\n")] = 0;
	(void)str_copy(ret, PROCESS_BOOT_MAX, text);
	free(text);
}

void process_identify(pid_t pid, int pidfd, struct process_id *ret)
{
	*ret = (struct process_id){ .pid = pid };
	process_boot(ret->boot);
	if ((ret->value = process_inode(pidfd)))
		ret->by = PROCESS_BY_INODE;
	else if ((ret->value = process_start_time(pid, pidfd)))
		ret->by = PROCESS_BY_START_TIME;
}

int process_open(const struct process_id *id, int *ret_pidfd)
{
	scoped(fd_closep) int fd = -1;
	char boot[PROCESS_BOOT_MAX];
	uint64_t value;
	int r;

	process_boot(boot);
	if (!str_eq(id->boot, boot))
		return id->boot[0] && boot[0] ? -ESRCH : -ENODATA;
	if (!id->pid || (id->by != PROCESS_BY_INODE && id->by != PROCESS_BY_START_TIME))
		return -ENODATA;
	r = fd_pidfd(id->pid, &fd);
	if (r < 0)
		return r;
	if (process_has_ended(fd))
		return -ESRCH;
	value = id->by == PROCESS_BY_INODE ? process_inode(fd) : process_start_time(id->pid, fd);
	if (!value)
		return -ENODATA;
	if (value != id->value)
		return -ESRCH;
	*ret_pidfd = fd;
	fd = -1;
	return 0;
}

/* The numbers of one line of /proc/PID/status; the first `max` of them. */
static uint32_t read_ids(const char *status, const char *key, gid_t *ret, uint32_t max)
{
	const char *at = strstr(status, key);
	uint32_t n = 0;

	at = at ? at + strlen(key) : "";
	for (;;) {
		size_t digits;
		uint64_t v;

		at += strspn(at, " \t");
		digits = strspn(at, "0123456789");
		if (!digits || n == max || str_u64(at, digits, UINT32_MAX, &v) < 0)
			return n;
		ret[n++] = (gid_t)v;
		at += digits;
	}
}

bool process_groups_of(const char *status, struct principal *ret)
{
	gid_t gids[4];	/* real, effective, saved, of files */

	if (read_ids(status, "\nGid:", gids, ARRAY_SIZE(gids)) != ARRAY_SIZE(gids))
		return false;
	ret->gid = gids[1];
	ret->n_groups = read_ids(status, "\nGroups:", ret->groups, PRINCIPAL_GROUPS_MAX);
	return true;
}

bool process_groups(pid_t pid, int pidfd, struct principal *ret)
{
	char path[64], *text;
	bool ok;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (fd_read_file(AT_FDCWD, path, 64u * 1024, &text, NULL) < 0)
		return false;
	ok = process_groups_of(text, ret) && (pidfd < 0 || !process_has_ended(pidfd));
	free(text);
	return ok;
}
