/* SPDX-License-Identifier: MIT */
/*
 * Who asks: filled once per connection by rpc/peer (socket credentials) or the gateway (token), then
 * only read. Plain data; the pidfd belongs to the connection, so whoever must outlive it dups it.
 */
#ifndef AB_DAEMON_AUTH_PRINCIPAL_H
#define AB_DAEMON_AUTH_PRINCIPAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

#define PRINCIPAL_GROUPS_MAX 64u	/* supplementary groups beyond it are not seen */
#define PRINCIPAL_USER_BYTES 64u	/* a longer name is none */

struct principal {
	uid_t uid;	/* the owner of what it makes: its uid, or a number of its own (owner.h) */
	gid_t gid;
	pid_t pid;	/* for display only: numbers of processes are reused; 0 = unknown */
	int pidfd;	/* -1 = none */
	uint64_t conn;	/* number of its connection, never used twice; 0 = none */
	bool admin;	/* access.h has said so */
	bool observer;	/* sees what is everybody's, without secrets … */
	bool looks_only;	/* … and may do nothing else */
	bool is_foreign;	/* of another user or pid namespace than the daemon, or it cannot be told */
	char user[PRINCIPAL_USER_BYTES];	/* the name of its uid, "" = not known */
	uint32_t n_groups;
	gid_t groups[PRINCIPAL_GROUPS_MAX];
};

static inline bool principal_in_group(const struct principal *p, gid_t gid)
{
	if (p->gid == gid)
		return true;
	for (uint32_t i = 0; i < p->n_groups; i++)
		if (p->groups[i] == gid)
			return true;
	return false;
}

#endif
