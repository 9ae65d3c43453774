/* SPDX-License-Identifier: MIT */
/*
 * STATE/host-id: who we are in the cloud's tags, and a number that every intent's number stays
 * under. Outside the database, so that losing that does not make us forget which sandboxes are ours
 * or give a number twice. Numbers are reserved in blocks; only the reservation is written. It also
 * says on which machine and in which directory it was made, so that a copy knows that it is one.
 */
#ifndef AB_DAEMON_STORE_HOSTID_H
#define AB_DAEMON_STORE_HOSTID_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct state_dir;

#define HOSTID_LEN   16u
#define HOSTID_BLOCK 4096u

struct hostid {
	char host[HOSTID_LEN + 1];	/* "" = not known yet */
	uint64_t reserved;		/* every number given is <= this */
	/* Raised with each backup, in the database first: a database whose mark is smaller is an old one. */
	uint64_t mark;
	char machine[64], place[64];	/* where it was made; "" = not known */
};

/* 0; -ENOENT if there is no file; -EBADMSG if it is not one of ours. */
must_check int hostid_read(struct state_dir *dir, struct hostid *ret);
/* Any thread. 0 or -errno. */
must_check int hostid_write(struct state_dir *dir, const struct hostid *id);
bool hostid_is_valid(const char *host);

/* This machine and this directory; what cannot be told is "". */
void hostid_here(const struct state_dir *dir, struct hostid *ret);
/* The file was made elsewhere: on another machine, or in a directory that this one is a copy of. What
 * either side does not know proves nothing. [pure] */
bool hostid_is_elsewhere(const struct hostid *file, const struct hostid *here);

#endif
