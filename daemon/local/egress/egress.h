/* SPDX-License-Identifier: MIT */
/*
 * A sandbox's way out. Its connections come here, whatever they were for (nsnet.h); each is judged
 * by the sandbox's rules and, if it may go on, joined with one of ours to where it was meant to go.
 * Loop thread only, no thread or process of its own.
 */
#ifndef AB_DAEMON_LOCAL_EGRESS_EGRESS_H
#define AB_DAEMON_LOCAL_EGRESS_EGRESS_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_network;
struct egress;
struct egress_host;
struct loop;

struct egress_options {
	struct loop *loop;
	struct egress_host *host;
	const char *id;		/* of the sandbox, for the log; outlives it */
	int tcp, udp;		/* of container_take_egress(); taken over, whatever comes of it */
};

/* Nothing may go out before egress_set(). */
must_check int egress_new(const struct egress_options *o, struct egress **ret);
/* Ends everything at once, by reset. NULL is fine; returns NULL. */
struct egress *egress_free(struct egress *e);

/* Rules as for egrule_new(). They hold for new connections, and open ones that they do not allow end.
 * On -errno the rules before are in force. */
must_check int egress_set(struct egress *e, const struct cloud_network *network, bool block);
/* All connections and questions that are open end. NULL is fine. */
void egress_cut(struct egress *e);

#endif
