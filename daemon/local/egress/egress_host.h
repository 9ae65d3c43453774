/* SPDX-License-Identifier: MIT */
/*
 * What all sandboxes' ways out have in common, on the host's side: which of the host's surroundings
 * they may reach at all, who answers names, how many connections there are.
 */
#ifndef AB_DAEMON_LOCAL_EGRESS_EGRESS_HOST_H
#define AB_DAEMON_LOCAL_EGRESS_EGRESS_HOST_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "daemon/local/egress/egrule.h"
#include "proto/base/cc.h"

struct egress_host;
struct loop;
struct resolver;

#define EGRESS_INNER_MAX 16u		/* --egress-to */
#define EGRESS_FLOWS_MAX 4096u		/* connections of all sandboxes; more are reset */

/* `inner`: ranges that are no part of the internet and may be reached nevertheless; copied. After the
 * supervisor was forked: makes a thread. */
must_check int egress_host_new(struct loop *l, const struct egrule_net *inner, size_t n,
			       struct egress_host **ret);
/* No sandbox's egress may be open. NULL is fine; returns NULL. */
struct egress_host *egress_host_free(struct egress_host *h);

/*
 * Whether a sandbox may ever be connected to this: a public address, or one of `inner`, to which the
 * host would send packets to somebody else. Never the host itself, by any of its addresses (the
 * kernel's routing table is asked), loopback, link-local (metadata services), multicast.
 */
bool egress_host_may(struct egress_host *h, const struct sockaddr *to);
/* The first half of that, without the routing table: pure. Host order. */
bool egress_is_public(uint32_t address);
/* Can even --egress-to not open it? */
bool egress_is_never(uint32_t address);

struct resolver *egress_host_resolver(struct egress_host *h);
/* The machine's name server: the first of /etc/resolv.conf, or the next one after it failed. */
void egress_host_dns(struct egress_host *h, struct sockaddr_storage *ret, socklen_t *ret_len);
void egress_host_dns_failed(struct egress_host *h);
/* One more connection, unless there are too many; and one less. */
bool egress_host_take(struct egress_host *h);
void egress_host_give(struct egress_host *h);

/* Name servers of a resolv.conf, with port 53; how many (at most max). Pure. */
size_t egress_parse_resolv(const char *text, struct sockaddr_storage *ret, size_t max);

#endif
