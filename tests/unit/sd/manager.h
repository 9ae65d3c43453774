/* SPDX-License-Identifier: MIT */
/* A service manager's end of the notify socket. */
#ifndef AB_TESTS_UNIT_SD_MANAGER_H
#define AB_TESTS_UNIT_SD_MANAGER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/test.h"

struct manager {
	char dir[64], address[96];
	int fd;
};

static inline void manager_open(struct manager *m, bool is_abstract)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n;

	snprintf(m->dir, sizeof(m->dir), "/tmp/ab-sd-XXXXXX");
	CHECK(mkdtemp(m->dir));
	snprintf(m->address, sizeof(m->address), "%s%s/notify", is_abstract ? "@" : "", m->dir);
	n = strlen(m->address);
	memcpy(a.sun_path, m->address, n);
	if (is_abstract)
		a.sun_path[0] = '\0';
	m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(m->fd >= 0);
	n += offsetof(struct sockaddr_un, sun_path) + !is_abstract;
	CHECK_INT(bind(m->fd, (struct sockaddr *)&a, (socklen_t)n), 0);
}

/* The next message, within ten seconds. */
static inline const char *manager_next(struct manager *m, char text[4096])
{
	struct pollfd p = { .fd = m->fd, .events = POLLIN };
	ssize_t n;

	CHECK_INT(poll(&p, 1, 10000), 1);
	n = recv(m->fd, text, 4095, 0);
	CHECK(n >= 0);
	text[n] = '\0';
	return text;
}

/* The same, with the descriptors that came with it. */
static inline const char *manager_next_fds(struct manager *m, char text[4096], int *fds, size_t *n_fds)
{
	struct pollfd p = { .fd = m->fd, .events = POLLIN };
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(253 * sizeof(int))];
	} control;
	struct iovec in = { .iov_base = text, .iov_len = 4095 };
	struct msghdr h = { .msg_iov = &in, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	ssize_t n;

	CHECK_INT(poll(&p, 1, 10000), 1);
	n = recvmsg(m->fd, &h, MSG_CMSG_CLOEXEC);
	CHECK(n >= 0 && !(h.msg_flags & MSG_CTRUNC));
	text[n] = '\0';
	*n_fds = 0;
	if (CMSG_FIRSTHDR(&h)) {
		*n_fds = (control.head.cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(&control.head), *n_fds * sizeof(int));
	}
	return text;
}

static inline void manager_close(struct manager *m)
{
	close(m->fd);
	if (m->address[0] == '/')
		unlink(m->address);
	rmdir(m->dir);
}

#endif
