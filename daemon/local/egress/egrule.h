/* SPDX-License-Identifier: MIT */
/*
 * What may go out of a sandbox: its allowOut and denyOut, compiled. Pure. What no sandbox may reach,
 * whatever its rules say, is in egress_host.h.
 */
#ifndef AB_DAEMON_LOCAL_EGRESS_EGRULE_H
#define AB_DAEMON_LOCAL_EGRESS_EGRULE_H

#include <netinet/in.h>
#include <stdbool.h>

#include "proto/base/cc.h"

#define EGRULE_LIST_MAX 1024u	/* entries of allowOut and denyOut each; more are refused */
#define EGRULE_NAME_MAX 253u

struct cloud_network;
struct egrule;

enum egrule_verdict {
	EGRULE_ALLOW,
	EGRULE_DENY,
	EGRULE_BY_NAME,		/* denied, unless the connection turns out to be for a name that is allowed */
};

/* An address or a range; without "/N" all bits count. */
struct egrule_net {
	uint32_t first, mask;	/* host order */
};

/* False if it is no IPv4 address or range. */
bool egrule_net_parse(const char *s, struct egrule_net *ret);

static inline bool egrule_net_has(const struct egrule_net *n, uint32_t address)
{
	return (address & n->mask) == n->first;
}

/* From network settings that were let through (NULL: nothing is listed); `block`: as if
 * denyOut had everything. IPv6 entries match nothing, since no IPv6 leaves a sandbox. -ENOMEM. */
must_check int egrule_new(const struct cloud_network *network, bool block, struct egrule **ret);
struct egrule *egrule_free(struct egrule *r);	/* NULL is fine; returns NULL */

/* What is allowed beats what is denied; what is on no list may go out. */
enum egrule_verdict egrule_address(const struct egrule *r, uint32_t address);
/* Of a name in lower case, without a dot at its end. "*.a.b" is everything below a.b, not a.b. */
bool egrule_name(const struct egrule *r, const char *name);
/* What `rules` sets in requests for a host. */
struct egrule_header {
	char *name;		/* lower case */
	char *value;
};

/* How many; 0 = none, also if there are no rules at all. */
size_t egrule_headers(const struct egrule *r, const char *host, const struct egrule_header **ret);
bool egrule_has_headers(const struct egrule *r);

/* A SOCKS5 server that connections go through, once they may go out at all. */
struct egrule_proxy {
	char *host, *user, *password;	/* user, password: NULL = none */
	uint16_t port;
};

/* NULL = none. */
const struct egrule_proxy *egrule_proxy(const struct egrule *r);
bool egrule_has_same_proxy(const struct egrule *a, const struct egrule *b);
/* Nothing at all may go out. */
bool egrule_is_closed(const struct egrule *r);
/* Names that are allowed are of no use without somebody to ask for their addresses. */
bool egrule_dns(const struct egrule *r);

#endif
