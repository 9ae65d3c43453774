/* SPDX-License-Identifier: MIT */
/*
 * Guests: who pays for the connections of a server (one quota, one guest), so that many connections of one do not
 * crowd out the few of another. Sockets that were accepted wait by guest and are served one of each in turn; what the
 * connections of a guest read and do in a pass of the loop is rationed for all of them together.
 */
#ifndef AB_DAEMON_COMMON_NET_GUEST_H
#define AB_DAEMON_COMMON_NET_GUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/cc.h"
#include "proto/base/list.h"

struct quota;
struct guest;

struct guests {
	struct list all, waiting;	/* struct guest; those with a socket that waits, the next one first */
	uint32_t n_waiting;		/* sockets */
};

void guests_init(struct guests *gs);
/* Closes the sockets that wait. Guests with connections go on until those end. */
void guests_fini(struct guests *gs);
/* Takes the socket, and the reference to the quota (NULL = one guest for all), also on failure: -EUSERS when so many
 * of its sockets wait already, or -ENOMEM. */
must_check int guests_put(struct guests *gs, struct quota *q, int fd);
/* Whoever pays by this quota, with a new reference; takes that to the quota. NULL: no memory. */
struct guest *guests_find(struct guests *gs, struct quota *q);
/* The next socket to be served, with a reference to its guest. False: none waits. */
bool guests_take(struct guests *gs, struct guest **ret, int *ret_fd);

struct guest *guest_ref(struct guest *g);	/* returns g */
struct guest *guest_unref(struct guest *g);	/* NULL is fine; returns NULL */
struct quota *guest_quota(const struct guest *g);
/* What one connection may read, and how many streams' owners it may call, in this pass. To be asked once a pass. */
size_t guest_read_bytes(struct guest *g, uint64_t pass);
unsigned guest_calls(struct guest *g, uint64_t pass);
/* May a connection with so many open streams end in this pass? Each of them is work; the first one always may. */
bool guest_may_end(struct guest *g, uint64_t pass, unsigned n_streams);

#endif
