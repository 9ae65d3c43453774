/* SPDX-License-Identifier: MIT */
/*
 * How a process is known again, also by a daemon that started later: never by its number alone.
 *
 *   inode       (boot id, pid, inode of its pidfd), where the kernel has pidfs (6.9)
 *   start time  (boot id, pid, start time), where /proc can be read
 */
#ifndef AB_DAEMON_AUTH_PROCESS_H
#define AB_DAEMON_AUTH_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/auth/principal.h"
#include "proto/base/cc.h"

#define PROCESS_BOOT_MAX 64u

enum process_by {		/* stored: never renumber; sandbox.h's enum sandbox_identity has the same numbers */
	PROCESS_BY_NOTHING = 0,
	PROCESS_BY_INODE = 1,
	PROCESS_BY_START_TIME = 2,
};

/* What /proc says of a process in the file `name`, at most 64 KiB as a heap string; pid 0: this process. NULL: it cannot be read. */
char *process_read(pid_t pid, const char *name);

struct process_id {
	pid_t pid;
	enum process_by by;
	uint64_t value;
	char boot[PROCESS_BOOT_MAX];	/* id of the machine's boot; "" = not known */
};

/* Each of a process whose pidfd is held; 0 = cannot be told here. */
uint64_t process_inode(int pidfd);
uint64_t process_start_time(pid_t pid, int pidfd);
bool process_has_ended(int pidfd);
/* "PID (name) S …": field 22, in clock ticks since boot. 0 = not found. [pure] */
uint64_t process_start_time_of(const char *stat);
/* Its primary and supplementary groups, as /proc tells everybody: fills gid, groups and n_groups. False: they cannot be read, or it has
 * ended. `pidfd` -1 = none. */
bool process_groups(pid_t pid, int pidfd, struct principal *ret);
/* Of the text of /proc/PID/status. [pure] */
bool process_groups_of(const char *status, struct principal *ret);
/* The machine's current boot, "" if unknown. */
void process_boot(char ret[PROCESS_BOOT_MAX]);

/* The best that there is. */
void process_identify(pid_t pid, int pidfd, struct process_id *ret);
/* Its pidfd, for the caller. -ESRCH: that process is no more; -ENODATA: nothing can be said of it; -errno. */
must_check int process_open(const struct process_id *id, int *ret_pidfd);

#endif
