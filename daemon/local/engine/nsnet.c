/* SPDX-License-Identifier: MIT */
/*
 * Netlink by hand: it is twenty messages, and neither `nft` nor `ip` has to be there
 * (least of all those of a template).
 */
#include "daemon/local/engine/nsnet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"

#define MESSAGE_BYTES 4096u
#define BACKLOG	      128
#define PROBE_WAIT_MS 2000
#define TABLE	      "agentbox"
#define NAT_PRIORITY  -100

/* --- netlink messages --- */

struct nl {
	union {
		struct nlmsghdr align;
		uint8_t b[MESSAGE_BYTES];
	};
	size_t n;
	struct nlmsghdr *head;	/* of the message being built */
	unsigned n_acks;
};

static void *nsnet_put(struct nl *m, const void *p, size_t n)
{
	uint8_t *at = m->b + m->n;

	must(m->n + NLMSG_ALIGN(n) <= sizeof(m->b));
	memset(at, 0, NLMSG_ALIGN(n));
	if (p)
		memcpy(at, p, n);
	m->n += NLMSG_ALIGN(n);
	return at;
}

static void message(struct nl *m, unsigned type, unsigned flags, const void *body, size_t n)
{
	const struct nlmsghdr h = { .nlmsg_type = (uint16_t)type,
				    .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags) };

	m->head = nsnet_put(m, &h, sizeof(h));
	nsnet_put(m, body, n);
	m->n_acks += (flags & NLM_F_ACK) != 0;
}

static void end(struct nl *m)
{
	m->head->nlmsg_len = (uint32_t)(m->b + m->n - (uint8_t *)m->head);
}

static struct nlattr *attr(struct nl *m, unsigned type, const void *p, size_t n)
{
	const struct nlattr a = { .nla_len = (uint16_t)(NLA_HDRLEN + n), .nla_type = (uint16_t)type };
	struct nlattr *at = nsnet_put(m, &a, sizeof(a));

	if (n)
		nsnet_put(m, p, n);
	return at;
}

static struct nlattr *nest(struct nl *m, unsigned type)
{
	return attr(m, type | NLA_F_NESTED, NULL, 0);
}

static void unnest(struct nl *m, struct nlattr *a)
{
	a->nla_len = (uint16_t)(m->b + m->n - (uint8_t *)a);
}

static void attr_be32(struct nl *m, unsigned type, uint32_t v)
{
	v = htonl(v);
	attr(m, type, &v, sizeof(v));
}

static void attr_str(struct nl *m, unsigned type, const char *s)
{
	attr(m, type, s, strlen(s) + 1);
}

/* The kernel has answered when send() returns. */
static int ask(int protocol, const struct nl *m)
{
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	scoped(fd_closep) int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	_Alignas(struct nlmsghdr) uint8_t in[8192];
	unsigned n_acks = 0;

	if (fd < 0)
		return -errno;
	if (sendto(fd, m->b, m->n, 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	while (n_acks < m->n_acks) {
		ssize_t n = recv(fd, in, sizeof(in), MSG_DONTWAIT);
		struct nlmsghdr *h = (struct nlmsghdr *)(void *)in;

		if (n <= 0)
			return n < 0 && errno != EAGAIN ? -errno : -EIO;
		for (; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
			const struct nlmsgerr *e = NLMSG_DATA(h);

			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			if (e->error < 0)
				return e->error;
			n_acks++;
		}
	}
	return 0;
}

/* --- addresses and routes --- */

int nsnet_loopback(void)
{
	scoped(fd_closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_name = "lo" };

	if (fd < 0)
		return -errno;
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) < 0)
		return -errno;
	ifr.ifr_flags |= IFF_UP;
	return ioctl(fd, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
}

/* Everything is sent to the loopback interface, where the rules see it first. */
static int make_route(void)
{
	const uint32_t own = htonl(NSNET_OWN), lo = if_nametoindex("lo");
	const struct ifaddrmsg address = { .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = lo };
	const struct rtmsg route = { .rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN,
				     .rtm_protocol = RTPROT_BOOT, .rtm_scope = RT_SCOPE_LINK,
				     .rtm_type = RTN_UNICAST };
	struct nl m = { .n = 0 };

	message(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &address, sizeof(address));
	attr(&m, IFA_LOCAL, &own, sizeof(own));
	attr(&m, IFA_ADDRESS, &own, sizeof(own));
	end(&m);
	message(&m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &route, sizeof(route));
	attr(&m, RTA_OIF, &lo, sizeof(lo));
	attr(&m, RTA_PREFSRC, &own, sizeof(own));
	end(&m);
	return ask(NETLINK_ROUTE, &m);
}

/* --- rules --- */

static void nft(struct nl *m, unsigned type)
{
	const struct nfgenmsg g = { .nfgen_family = NFPROTO_IPV4, .version = NFNETLINK_V0 };

	message(m, NFNL_SUBSYS_NFTABLES << 8 | type, NLM_F_CREATE | NLM_F_ACK, &g, sizeof(g));
}

static void batch(struct nl *m, unsigned type)
{
	const struct nfgenmsg g = { .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0,
				    .res_id = htons(NFNL_SUBSYS_NFTABLES) };

	message(m, type, 0, &g, sizeof(g));
	end(m);
}

static void chain(struct nl *m, const char *name, const char *type, int priority)
{
	struct nlattr *hook;

	nft(m, NFT_MSG_NEWCHAIN);
	attr_str(m, NFTA_CHAIN_TABLE, TABLE);
	attr_str(m, NFTA_CHAIN_NAME, name);
	hook = nest(m, NFTA_CHAIN_HOOK);
	attr_be32(m, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
	attr_be32(m, NFTA_HOOK_PRIORITY, (uint32_t)priority);
	unnest(m, hook);
	attr_str(m, NFTA_CHAIN_TYPE, type);
	end(m);
}

struct expr {
	struct nlattr *elem, *data;
};

static struct expr expr(struct nl *m, const char *name)
{
	struct expr e = { .elem = nest(m, NFTA_LIST_ELEM) };

	attr_str(m, NFTA_EXPR_NAME, name);
	e.data = nest(m, NFTA_EXPR_DATA);
	return e;
}

static void expr_end(struct nl *m, struct expr e)
{
	unnest(m, e.data);
	unnest(m, e.elem);
}

static void value(struct nl *m, unsigned type, const void *p, size_t n)
{
	struct nlattr *a = nest(m, type);

	attr(m, NFTA_DATA_VALUE, p, n);
	unnest(m, a);
}

static void equals(struct nl *m, const void *p, size_t n)
{
	struct expr e = expr(m, "cmp");

	attr_be32(m, NFTA_CMP_SREG, NFT_REG_1);
	attr_be32(m, NFTA_CMP_OP, NFT_CMP_EQ);
	value(m, NFTA_CMP_DATA, p, n);
	expr_end(m, e);
}

/* If these bytes of the packet are `p`, … */
static void packet_has(struct nl *m, unsigned base, unsigned offset, const void *p, size_t n)
{
	struct expr e = expr(m, "payload");

	attr_be32(m, NFTA_PAYLOAD_DREG, NFT_REG_1);
	attr_be32(m, NFTA_PAYLOAD_BASE, base);
	attr_be32(m, NFTA_PAYLOAD_OFFSET, offset);
	attr_be32(m, NFTA_PAYLOAD_LEN, (uint32_t)n);
	expr_end(m, e);
	equals(m, p, n);
}

static void protocol_is(struct nl *m, uint8_t protocol)
{
	struct expr e = expr(m, "meta");

	attr_be32(m, NFTA_META_KEY, NFT_META_L4PROTO);
	attr_be32(m, NFTA_META_DREG, NFT_REG_1);
	expr_end(m, e);
	equals(m, &protocol, sizeof(protocol));
}

static void goes_to(struct nl *m, uint32_t address, size_t n_bytes)
{
	const uint32_t a = htonl(address);

	packet_has(m, NFT_PAYLOAD_NETWORK_HEADER, 16, &a, n_bytes);
}

static void accept_it(struct nl *m)
{
	struct expr e = expr(m, "immediate");
	struct nlattr *data, *verdict;

	attr_be32(m, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = nest(m, NFTA_IMMEDIATE_DATA);
	verdict = nest(m, NFTA_DATA_VERDICT);
	attr_be32(m, NFTA_VERDICT_CODE, NF_ACCEPT);
	unnest(m, verdict);
	unnest(m, data);
	expr_end(m, e);
}

static void redirect_it(struct nl *m)
{
	const uint16_t port = htons(NSNET_PORT);
	struct expr e = expr(m, "immediate");

	attr_be32(m, NFTA_IMMEDIATE_DREG, NFT_REG_1);
	value(m, NFTA_IMMEDIATE_DATA, &port, sizeof(port));
	expr_end(m, e);
	e = expr(m, "redir");
	attr_be32(m, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
	expr_end(m, e);
}

static void reject_it(struct nl *m)
{
	const uint8_t code = ICMP_PKT_FILTERED;
	struct expr e = expr(m, "reject");

	attr_be32(m, NFTA_REJECT_TYPE, NFT_REJECT_ICMP_UNREACH);
	attr(m, NFTA_REJECT_ICMP_CODE, &code, sizeof(code));
	expr_end(m, e);
}

static struct nlattr *rule(struct nl *m, const char *in_chain)
{
	nft(m, NFT_MSG_NEWRULE);
	m->head->nlmsg_flags |= NLM_F_APPEND;
	attr_str(m, NFTA_RULE_TABLE, TABLE);
	attr_str(m, NFTA_RULE_CHAIN, in_chain);
	return nest(m, NFTA_RULE_EXPRESSIONS);
}

static void rule_end(struct nl *m, struct nlattr *expressions)
{
	unnest(m, expressions);
	end(m);
}

/* What is the sandbox's own business. */
static void accept_own(struct nl *m, const char *in_chain)
{
	struct nlattr *r = rule(m, in_chain);

	goes_to(m, INADDR_LOOPBACK, 1);
	accept_it(m);
	rule_end(m, r);
	r = rule(m, in_chain);
	goes_to(m, NSNET_OWN, 4);
	accept_it(m);
	rule_end(m, r);
}

static int make_rules(void)
{
	const uint16_t dns = htons(NSNET_DNS_PORT);
	struct nl m = { .n = 0 };
	struct nlattr *r;

	batch(&m, NFNL_MSG_BATCH_BEGIN);
	nft(&m, NFT_MSG_NEWTABLE);
	attr_str(&m, NFTA_TABLE_NAME, TABLE);
	end(&m);
	chain(&m, "redirect", "nat", NAT_PRIORITY);
	accept_own(&m, "redirect");
	r = rule(&m, "redirect");
	protocol_is(&m, IPPROTO_TCP);
	redirect_it(&m);
	rule_end(&m, r);
	r = rule(&m, "redirect");
	protocol_is(&m, IPPROTO_UDP);
	goes_to(&m, NSNET_DNS, 4);
	packet_has(&m, NFT_PAYLOAD_TRANSPORT_HEADER, 2, &dns, sizeof(dns));
	redirect_it(&m);
	rule_end(&m, r);
	chain(&m, "rest", "filter", 0);		/* sees the packets as they are after the chain above */
	accept_own(&m, "rest");
	r = rule(&m, "rest");
	reject_it(&m);
	rule_end(&m, r);
	batch(&m, NFNL_MSG_BATCH_END);
	return ask(NETLINK_NETFILTER, &m);
}

/* --- sockets --- */

static struct sockaddr_in address_of(uint32_t a, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(a),
				     .sin_port = htons(port) };
}

static int make_socket(int type, int *ret)
{
	const struct sockaddr_in at = address_of(INADDR_LOOPBACK, NSNET_PORT);
	scoped(fd_closep) int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
	    (type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
		return -errno;
	*ret = fd;
	fd = -1;
	return 0;
}

static bool comes(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, PROBE_WAIT_MS) == 1 && (p.revents & events);
}

/* A connection somewhere arrives here, and is known to have been meant for there. */
static bool tcp_works(int listener)
{
	const struct sockaddr_in to = address_of(NSNET_DNS, 443);
	scoped(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	scoped(fd_closep) int in = -1;
	struct sockaddr_in meant;
	socklen_t n = sizeof(meant);

	if (fd < 0 || (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS))
		return false;
	if (!comes(listener, POLLIN))
		return false;
	return fd_accept(listener, &in) == 0 && getsockopt(in, IPPROTO_IP, SO_ORIGINAL_DST, &meant, &n) == 0 &&
	       meant.sin_addr.s_addr == to.sin_addr.s_addr && meant.sin_port == to.sin_port;
}

/* A question is heard and the answer comes from where it was asked. */
static bool udp_works(int server)
{
	const struct sockaddr_in to = address_of(NSNET_DNS, NSNET_DNS_PORT);
	scoped(fd_closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_in from;
	socklen_t n = sizeof(from);
	char c;

	if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 || send(fd, "?", 1, 0) != 1)
		return false;
	if (!comes(server, POLLIN) || recvfrom(server, &c, 1, 0, (struct sockaddr *)&from, &n) != 1 ||
	    sendto(server, "!", 1, 0, (const struct sockaddr *)&from, n) != 1)
		return false;
	return comes(fd, POLLIN) && recv(fd, &c, 1, 0) == 1;
}

int nsnet_open(bool probe, struct nsnet *ret)
{
	scoped(fd_closep) int tcp = -1;
	scoped(fd_closep) int udp = -1;
	int r = make_socket(SOCK_STREAM, &tcp);

	if (r == 0)
		r = make_socket(SOCK_DGRAM, &udp);
	if (r == 0)
		r = make_route();
	if (r == 0)
		r = make_rules();
	if (r == 0 && probe && (!tcp_works(tcp) || !udp_works(udp)))
		r = -ENOTCONN;
	if (r < 0)
		return r;
	*ret = (struct nsnet){ tcp, udp };
	tcp = udp = -1;
	return 0;
}
