/* SPDX-License-Identifier: MIT */
/* HTTP proxies: their addresses, and the CONNECT that makes one a tunnel. Inside of net. */
#ifndef AB_DAEMON_COMMON_NET_PROXY_H
#define AB_DAEMON_COMMON_NET_PROXY_H

#include "proto/base/cc.h"

struct loop;
struct status;
struct proxy_talk;

struct proxy {
	char *host;
	char *authorization;	/* value of Proxy-Authorization, NULL = none */
	uint16_t port;
};

/* "http://[user:pass@]host[:port]", user and password percent-coded. 0, -EINVAL, -ENOMEM. */
must_check int proxy_parse(const char *url, struct proxy **ret);
void proxy_free(struct proxy *p);

/* Asks for host:port over the connected fd, which it takes over, also on failure. Then once, never
 * from inside: the fd as a tunnel that nothing was read from yet, or -1 and why (PROXY_AUTH,
 * PROXY_FAILED). A byte of the far side that came with the proxy's answer is a failure: it was
 * there before TLS could vouch for it. */
typedef void proxy_fn(int fd, const struct status *failure, void *user);
must_check int proxy_talk(const struct proxy *p, struct loop *l, int fd, const char *host,
			  uint16_t port, proxy_fn *done, void *user, struct proxy_talk **ret);
/* Before done: closes the fd, and no call comes. NULL is fine; returns NULL. */
struct proxy_talk *proxy_talk_free(struct proxy_talk *t);

#endif
