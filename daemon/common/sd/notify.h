/* SPDX-License-Identifier: MIT */
/*
 * What a service tells the service manager that started it: datagrams to the Unix socket that $NOTIFY_SOCKET names, as
 * sd_notify(3) documents them. A message that cannot be delivered at once is lost: the daemon never waits for the manager, but a tenth of
 * a second where it gives descriptors away.
 */
#ifndef AB_DAEMON_COMMON_SD_NOTIFY_H
#define AB_DAEMON_COMMON_SD_NOTIFY_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "proto/base/cc.h"

#define NOTIFY_STATUS_MAX 256u	/* bytes of a status; the rest is cut */
#define NOTIFY_FDS_MAX	  128u	/* descriptors of one message; the kernel's own limit is 253 */

struct notify {
	int fd;			/* -1 = there is no manager, and every message below is dropped */
	struct sockaddr_un to;
	socklen_t to_len;
};

#define NOTIFY_NOBODY { .fd = -1 }

/* `address` is the value of $NOTIFY_SOCKET: an absolute path, or '@' and an abstract name; NULL and "" mean that there is no
 * manager. -EINVAL for another form, -E2BIG for one that is too long, or -errno; then there is none either. */
must_check int notify_open(struct notify *n, const char *address);
void notify_close(struct notify *n);

static inline bool notify_is_open(const struct notify *n)
{
	return n->fd >= 0;
}

/* Lines of VARIABLE=value as sd_notify(3) names them. 0, also where there is no manager, or -errno. */
int notify_send(const struct notify *n, const char *lines);
/* STATUS=: a sentence for a person, in `systemctl status`. Control characters become spaces. */
int notify_status(const struct notify *n, const char *fmt, ...) printf_like(2, 3);
/* A start that failed: the sentence, and the error as a number of errno. */
int notify_failed(const struct notify *n, int err, const char *why);
/* RELOADING=1; READY=1 has to follow when the reload is over, also when it failed. */
int notify_reloading(const struct notify *n);
/* The start, the reload or the stop that goes on may take this much longer from now. */
int notify_extend(const struct notify *n, uint64_t us);
/*
 * The manager's store: it keeps duplicates of these descriptors over a restart, and passes them to the next process by this name, all
 * those of one name together (listen_fds.h). A service that has no room there (FileDescriptorStoreMax=) is not told: the manager closes
 * its duplicates. -EINVAL for a name that cannot be sent (1 to 255 printable characters without ':'), -ENOTCONN where there is no
 * manager, -EAGAIN if it takes no message for 100 ms, -errno.
 */
must_check int notify_store_fds(const struct notify *n, const int *fds, size_t n_fds, const char *name);
/* It closes all that it has by this name. */
must_check int notify_drop_fds(const struct notify *n, const char *name);
/* $WATCHDOG_USEC and $WATCHDOG_PID, either may be NULL: how often the manager wants WATCHDOG=1 from this process, 0 = it does
 * not. -EINVAL for values that are no numbers. */
must_check int notify_watchdog(const char *usec, const char *pid, pid_t self, uint64_t *ret_us);

#endif
