/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/who.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

struct who_lookup {
	int fd;
	uint32_t seq;
};

int who_lookup_new(struct who_lookup **ret)
{
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);

	*ret = NULL;
	if (fd < 0)
		return errno == ENOMEM ? -ENOMEM : 0;
	*ret = calloc(1, sizeof(**ret));
	if (!*ret) {
		fd_close(fd);
		return -ENOMEM;
	}
	(*ret)->fd = fd;
	return 0;
}

struct who_lookup *who_lookup_free(struct who_lookup *l)
{
	if (l)
		fd_close(l->fd);
	free(l);
	return NULL;
}

static bool put_end(const struct sockaddr_storage *a, __be32 addr[4], __be16 *port)
{
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;

		memcpy(addr, &in->sin_addr, sizeof(in->sin_addr));
		*port = in->sin_port;
	} else if (a->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)a;

		memcpy(addr, &in6->sin6_addr, sizeof(in6->sin6_addr));
		*port = in6->sin6_port;
	} else {
		return false;
	}
	return true;
}

/* The peer's socket: its own end is our peer's address, its other end ours. */
static bool find_id(int fd, struct inet_diag_req_v2 *ret)
{
	struct sockaddr_storage ours = { 0 }, theirs = { 0 };
	socklen_t n = sizeof(ours), m = sizeof(theirs);

	*ret = (struct inet_diag_req_v2){ .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u,
					  .id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } };
	if (getsockname(fd, (struct sockaddr *)&ours, &n) < 0 || getpeername(fd, (struct sockaddr *)&theirs, &m) < 0 ||
	    ours.ss_family != theirs.ss_family)
		return false;
	ret->sdiag_family = (uint8_t)ours.ss_family;
	return put_end(&theirs, ret->id.idiag_src, &ret->id.idiag_sport) &&
	       put_end(&ours, ret->id.idiag_dst, &ret->id.idiag_dport);
}

/* The kernel answers within sendto(); an answer of another number is left from a call that failed. */
static bool ask(struct who_lookup *l, const struct inet_diag_req_v2 *req, struct inet_diag_msg *ret)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 req;
	} out = { .h = { .nlmsg_len = sizeof(out), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST,
			 .nlmsg_seq = ++l->seq }, .req = *req };
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct {
		struct nlmsghdr h;
		struct inet_diag_msg msg;
		char more[1024];
	} in;
	ssize_t n;

	if (sendto(l->fd, &out, sizeof(out), 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return false;
	while ((n = recv(l->fd, &in, sizeof(in), 0)) >= (ssize_t)sizeof(in.h)) {
		if (in.h.nlmsg_seq != l->seq)
			continue;
		if (in.h.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < (ssize_t)(sizeof(in.h) + sizeof(in.msg)))
			return false;
		*ret = in.msg;
		return true;
	}
	return false;
}

void who_find(struct who_lookup *l, int fd, struct who_peer *ret)
{
	struct inet_diag_req_v2 req;
	struct inet_diag_msg msg;

	*ret = (struct who_peer){ .uid = (uid_t)-1 };
	if (!l || fd < 0 || !find_id(fd, &req) || !ask(l, &req, &msg))
		return;
	/* Once its owner closed it, a socket is nobody's and its uid reads 0. */
	if (msg.idiag_state != TCP_ESTABLISHED || !msg.idiag_inode)
		return;
	ret->is_known = true;
	ret->uid = msg.idiag_uid;
}

/* --- pages --- */

static bool is_own_origin(const struct fields *head, const char *origin, bool is_tls)
{
	const char *authority = fields_get(head, ":authority"), *scheme = is_tls ? "https://" : "http://";

	return authority && !strncasecmp(origin, scheme, strlen(scheme)) && !strcasecmp(origin + strlen(scheme), authority);
}

bool who_is_foreign_page(const struct fields *head, bool is_tls)
{
	for (int at = fields_find(head, "origin", 0); at >= 0; at = fields_find(head, "origin", (uint32_t)at + 1))
		if (!is_own_origin(head, fields_value(head, (uint32_t)at), is_tls))
			return true;
	for (int at = fields_find(head, "sec-fetch-site", 0); at >= 0;
	     at = fields_find(head, "sec-fetch-site", (uint32_t)at + 1)) {
		const char *site = fields_value(head, (uint32_t)at);

		if (!str_eq(site, "same-origin") && !str_eq(site, "none"))
			return true;
	}
	return false;
}

bool who_is_local_host(const char *authority)
{
	struct host_port at;

	if (!authority || host_port_parse(authority, strlen(authority), &at) < 0)
		return false;
	str_lower(at.host);
	return host_is_loopback(at.host) || host_is_address(at.host);
}
