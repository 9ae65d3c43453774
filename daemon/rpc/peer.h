/* SPDX-License-Identifier: MIT */
/*
 * Who is on the other end of a Unix socket: the kernel's word only (SO_PEERCRED, SO_PEERPIDFD,
 * SO_PEERGROUPS), never a name or a number from the client. No passwd, no group file, no NSS.
 */
#ifndef AB_DAEMON_RPC_PEER_H
#define AB_DAEMON_RPC_PEER_H

#include "daemon/auth/principal.h"

enum peer_result {
	PEER_OK = 0,
	PEER_DEAD,		/* the process that connected is gone already */
	PEER_UNMAPPED,		/* its uid has no number here (another user namespace), or one of those that owner.h makes */
};

/* Fills `ret` without what access.h says, of an unmapped peer only its numbers; its pidfd is the caller's and -1 where there is none to be had (no pid in our
 * namespace, or a kernel without). A PEER_*, or -errno. */
must_check int peer_read(int fd, struct principal *ret);

/* Only its uid, for whoever is at the door. 0, -errno. */
must_check int peer_uid(int fd, uid_t *ret);

/* Is that peer of another user or pid namespace than the daemon? Also true where it cannot be told. */
bool peer_is_foreign(int fd, const struct principal *who);

/* In a user namespace other uids are not seen as they are: a daemon for many users cannot work there.
 * 0, -EXDEV in such a namespace, or -errno. */
must_check int peer_check_namespace(void);

#endif
