/* SPDX-License-Identifier: MIT */
#include "daemon/local/egress/egress_host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/net/resolve.h"
#include "daemon/common/obs/log.h"
#include "daemon/local/engine/nsnet.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define RESOLV_CONF	"/etc/resolv.conf"
#define RESOLV_MAX_BYTES 65536u
#define SERVERS_MAX	3u	/* as the C library */

struct egress_host {
	struct loop *loop;
	struct resolver *resolver;
	int route_fd;
	uint32_t seq;
	struct egrule_net inner[EGRESS_INNER_MAX];
	size_t n_inner;
	unsigned n_flows;
	struct sockaddr_storage servers[SERVERS_MAX];
	size_t n_servers, at;
	struct timespec servers_of;	/* the file's time */
};

int egress_host_new(struct loop *l, const struct egrule_net *inner, size_t n, struct egress_host **ret)
{
	struct egress_host *h = calloc(1, sizeof(*h));
	int r;

	must(n <= EGRESS_INNER_MAX);
	if (!h)
		return -ENOMEM;
	h->loop = l;
	h->n_inner = n;
	if (n)
		memcpy(h->inner, inner, n * sizeof(*inner));
	h->route_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	r = h->route_fd < 0 ? -errno : resolver_new(l, &h->resolver);
	if (r < 0) {
		egress_host_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

struct egress_host *egress_host_free(struct egress_host *h)
{
	if (!h)
		return NULL;
	must(!h->n_flows);
	resolver_free(h->resolver);
	fd_close(h->route_fd);
	free(h);
	return NULL;
}

/* --- where to --- */

struct range {
	uint32_t net;
	unsigned bits;
};

static bool is_in(const struct range *v, size_t n, uint32_t a)
{
	for (size_t i = 0; i < n; i++)
		if ((a ^ v[i].net) >> (32 - v[i].bits) == 0)
			return true;
	return false;
}

bool egress_is_never(uint32_t a)
{
	static const struct range never[] = {
		{ 0x00000000, 8 }, { 0x7f000000, 8 }, { 0xa9fe0000, 16 }, { 0xe0000000, 3 },
	};

	return is_in(never, ARRAY_SIZE(never), a);
}

/* RFC 6890 and RFC 6598. */
bool egress_is_public(uint32_t a)
{
	static const struct range inner[] = {
		{ 0x0a000000, 8 },  { 0x64400000, 10 }, { 0xac100000, 12 }, { 0xc0000000, 24 },
		{ 0xc0000200, 24 }, { 0xc0a80000, 16 }, { 0xc6120000, 15 }, { 0xc6336400, 24 },
		{ 0xcb007100, 24 },
	};

	return !egress_is_never(a) && !is_in(inner, ARRAY_SIZE(inner), a);
}

/* Global unicast, and not a wrapping of IPv4 (6to4, Teredo) or documentation. */
static bool is_public6(const struct in6_addr *a)
{
	const uint8_t *b = a->s6_addr;

	if (b[0] >> 5 != 1 || (b[0] == 0x20 && b[1] == 0x02))
		return false;
	return !(b[0] == 0x20 && b[1] == 0x01 && ((!b[2] && !b[3]) || (b[2] == 0x0d && b[3] == 0xb8)));
}

/* The kernel answers before sendto() returns. */
static bool is_elsewhere(struct egress_host *h, int family, const void *address, size_t n)
{
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct {
		struct nlmsghdr h;
		struct rtmsg r;
		struct rtattr a;
		uint8_t address[16];
	} q = {
		.h = { .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = ++h->seq },
		.r = { .rtm_family = (unsigned char)family, .rtm_dst_len = (unsigned char)(n * 8) },
		.a = { .rta_len = (unsigned short)RTA_LENGTH(n), .rta_type = RTA_DST },
	};
	_Alignas(struct nlmsghdr) uint8_t in[4096];
	ssize_t k;

	memcpy(q.address, address, n);
	q.h.nlmsg_len = (uint32_t)(offsetof(__typeof__(q), address) + n);
	if (sendto(h->route_fd, &q, q.h.nlmsg_len, 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return false;
	while ((k = recv(h->route_fd, in, sizeof(in), MSG_DONTWAIT)) > 0) {
		const struct nlmsghdr *m = (const struct nlmsghdr *)(const void *)in;
		const struct rtmsg *r = NLMSG_DATA(m);

		if ((size_t)k < NLMSG_LENGTH(sizeof(*r)) || m->nlmsg_seq != h->seq)
			continue;
		return m->nlmsg_type == RTM_NEWROUTE && r->rtm_type == RTN_UNICAST;
	}
	return false;
}

static bool is_open_inner(const struct egress_host *h, uint32_t a)
{
	for (size_t i = 0; i < h->n_inner; i++)
		if (egrule_net_has(&h->inner[i], a))
			return !egress_is_never(a);
	return false;
}

bool egress_host_may(struct egress_host *h, const struct sockaddr *to)
{
	const struct sockaddr_in *v4 = (const void *)to;
	const struct sockaddr_in6 *v6 = (const void *)to;
	uint32_t a;

	if (to->sa_family == AF_INET6)
		return is_public6(&v6->sin6_addr) &&
		       is_elsewhere(h, AF_INET6, &v6->sin6_addr, 16);
	if (to->sa_family != AF_INET)
		return false;
	a = ntohl(v4->sin_addr.s_addr);
	return (egress_is_public(a) || is_open_inner(h, a)) &&
	       is_elsewhere(h, AF_INET, &v4->sin_addr, 4);
}

/* --- names --- */

struct resolver *egress_host_resolver(struct egress_host *h)
{
	return h->resolver;
}

size_t egress_parse_resolv(const char *text, struct sockaddr_storage *ret, size_t max)
{
	size_t n = 0;

	for (const char *s = text; *s && n < max; s += strcspn(s, "\n"), s += *s == '\n') {
		struct sockaddr_in *v4 = (void *)&ret[n];
		struct sockaddr_in6 *v6 = (void *)&ret[n];
		char host[INET6_ADDRSTRLEN];

		if (sscanf(s, "nameserver%*[ \t]%45[0-9a-fA-F.:]", host) != 1)
			continue;
		ret[n] = (struct sockaddr_storage){ 0 };
		if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
			v4->sin_family = AF_INET;
			v4->sin_port = htons(NSNET_DNS_PORT);
			n++;
		} else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
			v6->sin6_family = AF_INET6;
			v6->sin6_port = htons(NSNET_DNS_PORT);
			n++;
		}
	}
	return n;
}

static void read_servers(struct egress_host *h)
{
	struct stat st;
	char *text;
	size_t n;

	if (h->n_servers && (stat(RESOLV_CONF, &st) < 0 ||
			     (st.st_mtim.tv_sec == h->servers_of.tv_sec &&
			      st.st_mtim.tv_nsec == h->servers_of.tv_nsec)))
		return;
	h->n_servers = h->at = 0;
	if (stat(RESOLV_CONF, &st) == 0 && fd_read_file(AT_FDCWD, RESOLV_CONF, RESOLV_MAX_BYTES, &text, &n) == 0) {
		h->n_servers = egress_parse_resolv(text, h->servers, SERVERS_MAX);
		h->servers_of = st.st_mtim;
		free(text);
	}
	if (!h->n_servers)		/* as the C library then does */
		h->n_servers = egress_parse_resolv("nameserver 127.0.0.1", h->servers, SERVERS_MAX);
}

void egress_host_dns(struct egress_host *h, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	read_servers(h);
	*ret = h->servers[h->at % h->n_servers];
	*ret_len = ret->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

void egress_host_dns_failed(struct egress_host *h)
{
	h->at++;
}

/* --- how many --- */

bool egress_host_take(struct egress_host *h)
{
	if (h->n_flows == EGRESS_FLOWS_MAX)
		return false;
	h->n_flows++;
	return true;
}

void egress_host_give(struct egress_host *h)
{
	must(h->n_flows);
	h->n_flows--;
}
