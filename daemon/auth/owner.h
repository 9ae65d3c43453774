/* SPDX-License-Identifier: MIT */
/*
 * Whose something is: the number in every row and every list of owners. [pure]
 *
 * It is the uid of its user. Only of the uids that systemd gives to services in turn (access_is_dynamic()) it is a number of its own for
 * each pair of uid and user name, made of both: 1, the place of the uid among them (13 bits), a print of the name (18 bits). So another
 * name at the same uid is another owner, a name that comes back is the same one, and a number that a tag of the cloud has kept still says
 * whose it was when the rows are lost. No user may have a uid in that range (OWNER_FIRST to OWNER_LAST): its connections are refused.
 */
#ifndef AB_DAEMON_AUTH_OWNER_H
#define AB_DAEMON_AUTH_OWNER_H

#include <stdint.h>

#include "daemon/auth/access.h"
#include "proto/base/cc.h"

#define OWNER_PRINT_BITS 18u
#define OWNER_FIRST	 0x80000000u
#define OWNER_LAST	 (OWNER_FIRST + ((ACCESS_DYNAMIC_LAST - ACCESS_DYNAMIC_FIRST + 1) << OWNER_PRINT_BITS) - 1)

/* Is the number made of a uid and a name? */
static inline bool owner_is_made(uid_t owner)
{
	return owner >= OWNER_FIRST && owner <= OWNER_LAST;
}

/* The uid that the system knows: for limits of [uid], for people, for the log. */
static inline uid_t owner_uid(uid_t owner)
{
	return owner_is_made(owner) ? ACCESS_DYNAMIC_FIRST + ((owner - OWNER_FIRST) >> OWNER_PRINT_BITS) : owner;
}

/* Of a uid that is given in turn. `turn` 0 is the first to be tried; others are for two names of one print. */
static inline uid_t owner_make(uid_t uid, const char *name, uint32_t turn)
{
	uint32_t print = 2166136261u;	/* FNV-1a; stored, so it is never another */

	for (; *name; name++)
		print = (print ^ (uint8_t)*name) * 16777619u;
	print = ((print >> OWNER_PRINT_BITS) ^ print) + turn;
	return OWNER_FIRST + ((uid - ACCESS_DYNAMIC_FIRST) << OWNER_PRINT_BITS) + (print & ((1u << OWNER_PRINT_BITS) - 1));
}

#endif
