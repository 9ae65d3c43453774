/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/net/xport.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define USER_TIMEOUT_MS 30000

void sock_tune(int fd)
{
	int one = 1, ms = USER_TIMEOUT_MS;

	/* Both only make it quicker: on a Unix socket, say, they fail and nothing is lost. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

int sock_connect(const struct sockaddr *addr, unsigned len, int *ret_fd)
{
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r = 0;

	if (fd < 0)
		return -errno;
	sock_tune(fd);
	if (connect(fd, addr, len) < 0)
		r = -errno;
	if (r && r != -EINPROGRESS) {
		fd_close(fd);
		return r;
	}
	*ret_fd = fd;
	return r;
}

int sock_error(int fd)
{
	socklen_t n = sizeof(int);
	int err = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0)
		return -errno;
	return -err;
}

void sock_text(const struct sockaddr *addr, char *ret, size_t cap)
{
	const struct sockaddr_in *v4 = (const void *)addr;
	const struct sockaddr_in6 *v6 = (const void *)addr;
	char host[INET6_ADDRSTRLEN] = "?";

	switch (addr->sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(ret, cap, "%s:%u", host, ntohs(v4->sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(ret, cap, "[%s]:%u", host, ntohs(v6->sin6_port));
		break;
	default:
		str_copy(ret, cap, "unix");
	}
}

void sock_peer_text(int fd, char *ret, size_t cap)
{
	struct sockaddr_storage a = { 0 };
	socklen_t n = sizeof(a);

	if (getpeername(fd, (struct sockaddr *)&a, &n) < 0)
		str_copy(ret, cap, "gone");
	else
		sock_text((const struct sockaddr *)&a, ret, cap);
}
