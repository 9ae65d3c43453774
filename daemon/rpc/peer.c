/* SPDX-License-Identifier: MIT */
/*
 * Kernels differ in what SO_PEERPIDFD says of a dead peer (a dead pidfd, ESRCH, EINVAL) and older
 * ones do not have it at all (ENOPROTOOPT). There the pidfd is opened by number and believed only if
 * the peer's end is still open afterwards: a number is reused only after its process is gone.
 */
#include "daemon/rpc/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/auth/owner.h"
#include "daemon/rpc/foreign.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define TEXT_MAX_BYTES (64u * 1024)

/* What the kernel shows for a uid that has no number here. */
static uid_t overflow_uid(void)
{
	uint64_t v = 65534;
	char *text;

	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/overflowuid", TEXT_MAX_BYTES, &text, NULL) < 0)
		return (uid_t)v;
	(void)!str_u64(text, strcspn(text, "\n"), UINT32_MAX, &v);
	free(text);
	return (uid_t)v;
}

static bool is_hung_up(int fd)
{
	struct pollfd p = { .fd = fd, .events = 0 };

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

static bool is_dead(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* PEER_OK with *ret = -1 where no pidfd is to be had. */
static int read_pidfd(int fd, pid_t pid, int *ret)
{
	scoped(fd_closep) int pidfd = -1;
	socklen_t n = sizeof(pidfd);
	int r;

	*ret = -1;
	if (pid <= 0)		/* of a pid namespace we do not see */
		return PEER_OK;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) < 0) {
		r = errno;
		pidfd = -1;
		if (r == ESRCH)
			return PEER_DEAD;
		if (r != ENOPROTOOPT && r != EINVAL)
			return -r;
		r = fd_pidfd(pid, &pidfd);
		if (r == -ESRCH)
			return PEER_DEAD;
		if (r == -ENOSYS || r == -EPERM)
			return PEER_OK;
		if (r < 0)
			return r;
		if (is_hung_up(fd))
			return PEER_DEAD;
	}
	if (is_dead(pidfd))
		return PEER_DEAD;
	*ret = pidfd;
	pidfd = -1;
	return PEER_OK;
}

static int read_groups(int fd, struct principal *p)
{
	socklen_t n = sizeof(p->groups);
	gid_t *all;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, p->groups, &n) == 0) {
		p->n_groups = (uint32_t)(n / sizeof(gid_t));
		return 0;
	}
	if (errno != ERANGE)
		return -errno;
	all = malloc(n);	/* n is what it takes */
	if (!all)
		return -ENOMEM;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, all, &n) < 0) {
		free(all);
		return -EIO;
	}
	p->n_groups = PRINCIPAL_GROUPS_MAX;
	memcpy(p->groups, all, sizeof(p->groups));
	free(all);
	return 0;
}

int peer_uid(int fd, uid_t *ret)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return -errno;
	*ret = cred.uid;
	return 0;
}

int peer_read(int fd, struct principal *ret)
{
	struct principal p = { .pidfd = -1 };
	struct ucred cred;
	socklen_t n = sizeof(cred);
	int r;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return -errno;
	if (cred.uid == (uid_t)-1 || cred.uid == overflow_uid() || owner_is_made(cred.uid)) {
		*ret = (struct principal){ .uid = cred.uid, .gid = cred.gid, .pidfd = -1 };
		return PEER_UNMAPPED;
	}
	p.uid = cred.uid;
	p.gid = cred.gid;
	p.pid = cred.pid;
	r = read_groups(fd, &p);
	if (r < 0)
		return r;
	r = read_pidfd(fd, p.pid, &p.pidfd);
	if (r != PEER_OK)
		return r;
	*ret = p;
	return PEER_OK;
}

/* Its number is its own as long as it lives. */
bool peer_is_foreign(int fd, const struct principal *who)
{
	bool foreign = foreign_is(who->pid);

	return foreign || (who->pidfd >= 0 ? is_dead(who->pidfd) : is_hung_up(fd));
}

int peer_check_namespace(void)
{
	unsigned inside, outside, count;
	char *text;
	int r = fd_read_file(AT_FDCWD, "/proc/self/uid_map", TEXT_MAX_BYTES, &text, NULL);

	if (r < 0)
		return r == -ENOENT ? 0 : r;	/* a kernel without user namespaces */
	r = sscanf(text, "%u %u %u", &inside, &outside, &count);
	free(text);
	if (r != 3)
		return -EIO;
	return inside == 0 && outside == 0 && count == UINT32_MAX ? 0 : -EXDEV;
}
