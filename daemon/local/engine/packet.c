/* SPDX-License-Identifier: MIT */
/* Fixed-size messages with descriptors over SOCK_SEQPACKET. No state; any process. */
#include "daemon/local/engine/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"

int pkt_pair(int ret[2])
{
	int sv[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	r = fd_set_nonblock(sv[0], true);
	if (r < 0) {
		fd_close(sv[0]);
		fd_close(sv[1]);
		return r;
	}
	ret[0] = sv[0];
	ret[1] = sv[1];
	return 0;
}

int pkt_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * PKT_FDS_MAX)];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)p, .iov_len = n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t k;

	must(n_fds <= PKT_FDS_MAX);
	if (n_fds) {
		struct cmsghdr *c;

		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	do
		k = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}

void pkt_close_fds(int fds[PKT_FDS_MAX])
{
	for (size_t i = 0; i < PKT_FDS_MAX; i++)
		fds[i] = fd_close(fds[i]);
}

static void take_fds(struct msghdr *m, int ret_fds[PKT_FDS_MAX])
{
	size_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t k;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < k; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (n < PKT_FDS_MAX)
				ret_fds[n++] = fd;
			else
				fd_close(fd);
		}
	}
}

ssize_t pkt_recv_any(int sock, void *p, size_t cap, int ret_fds[PKT_FDS_MAX])
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * PKT_FDS_MAX)];
	} control = { 0 };
	struct iovec iov = { .iov_base = p, .iov_len = cap };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	ssize_t k;

	for (size_t i = 0; i < PKT_FDS_MAX; i++)
		ret_fds[i] = -1;
	do
		k = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return errno == ECONNRESET ? 0 : -errno;
	take_fds(&m, ret_fds);
	if (k == 0)
		return 0;
	if (m.msg_flags & MSG_TRUNC) {
		pkt_close_fds(ret_fds);
		return -EBADMSG;
	}
	return k;
}

ssize_t pkt_recv(int sock, void *p, size_t n, int ret_fds[PKT_FDS_MAX])
{
	ssize_t k = pkt_recv_any(sock, p, n, ret_fds);

	if (k > 0 && (size_t)k != n) {
		pkt_close_fds(ret_fds);
		return -EBADMSG;
	}
	return k;
}
