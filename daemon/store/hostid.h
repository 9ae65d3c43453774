/* SPDX-License-Identifier: MIT */
/*
 * STATE/host-id: our host id in the cloud's tags, and an upper bound of all intents' numbers. It is
 * outside the database, so that after a loss of that we still know which sandboxes are ours
 * and give no number twice. Numbers are reserved in blocks; only the reservation is written. The file also
 * has the machine and the directory that it was made in, so that a copied directory is recognised.
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
	/* Raised with each backup, in the database first: a database with a smaller mark was put back from an earlier time. */
	uint64_t mark;
	char machine[64], place[64];	/* machine and directory that it was made in; "" = not known */
};

/* 0; -ENOENT if there is no file; -EBADMSG if it is not one of ours. */
must_check int hostid_read(struct state_dir *dir, struct hostid *ret);
/* Any thread. 0 or -errno. */
must_check int hostid_write(struct state_dir *dir, const struct hostid *id);
bool hostid_is_valid(const char *host);

/* Sets machine and place to this machine and this directory; "" = not known. */
void hostid_here(const struct state_dir *dir, struct hostid *ret);
/* Was the file made on another machine, or in a directory that this one is a copy of? A value that is not known proves
 * nothing. [pure] */
bool hostid_is_elsewhere(const struct hostid *file, const struct hostid *here);

#endif
