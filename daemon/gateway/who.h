/* SPDX-License-Identifier: MIT */
/*
 * Who is behind a connection and who sent the page that makes a request. Both only narrow: what a secret allows may be refused
 * for them, and a port that needs no secret is open to the uid that was found and to no foreign page.
 */
#ifndef AB_DAEMON_GATEWAY_WHO_H
#define AB_DAEMON_GATEWAY_WHO_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/wire/fields.h"

struct who_peer {
	bool is_known;		/* an established TCP socket of this network namespace, still in its owner's hands */
	uid_t uid;
};

struct who_lookup;		/* the kernel's table of sockets, by NETLINK_SOCK_DIAG */

/* A kernel without it: 0 and NULL, which finds nobody. -ENOMEM. */
must_check int who_lookup_new(struct who_lookup **ret);
struct who_lookup *who_lookup_free(struct who_lookup *l);	/* NULL is fine; returns NULL */
/* Whose is the other end of this connected TCP socket? */
void who_find(struct who_lookup *l, int fd, struct who_peer *ret);

/* Does a page of another origin make this request, as far as a browser says? [pure] */
bool who_is_foreign_page(const struct fields *head, bool is_tls);
/* Is the host one that a name server of others cannot have made: an address of this machine, localhost, or below it? [pure] */
bool who_is_local_host(const char *authority);

#endif
