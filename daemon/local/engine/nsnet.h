/* SPDX-License-Identifier: MIT */
/*
 * The network of a sandbox: a namespace with a loopback interface and nothing else, so that no packet
 * ever leaves it. Where the kernel lets us, every outgoing TCP connection of it, to whatever address,
 * ends at a listener that the engine holds, and so do the datagrams for its name server. Everything
 * else is rejected. The rules are made here, before the init gives up CAP_NET_ADMIN, and nobody
 * inside can change them afterwards.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_NSNET_H
#define AB_DAEMON_LOCAL_ENGINE_NSNET_H

#include <stdbool.h>

#include "proto/base/cc.h"

/* The only name server there is inside: that of the cloud's sandboxes. */
#define NSNET_DNS	0x08080808u
#define NSNET_DNS_PORT	53u
/* Of the sandbox itself, besides 127.0.0.1: programs ask for IPv4 addresses of names only if one of
 * their own is not a loopback address. TEST-NET-1: hides nothing that could be reached. */
#define NSNET_OWN	0xc0000202u
/* On 127.0.0.1, TCP and UDP: one that nothing else wants, nor tries because nobody listens there. */
#define NSNET_PORT	1009u

struct nsnet {
	int tcp, udp;		/* the listener and the name server's socket; non-blocking; -1 = none */
};

/* In the sandbox's network namespace, with CAP_NET_ADMIN over it. */
must_check int nsnet_loopback(void);
/* After that. `probe`: sends something through, as the trial sandbox does. -ENOTCONN: the rules are
 * there and do not work. */
must_check int nsnet_open(bool probe, struct nsnet *ret);

#endif
