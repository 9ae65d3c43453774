/* SPDX-License-Identifier: MIT */
/*
 * STATE/host-id: who we are in the cloud's tags, and a number that every intent's number stays
 * under. Outside the database, so that losing that does not make us forget which sandboxes are ours
 * or give a number twice. Numbers are reserved in blocks; only the reservation is written.
 */
#ifndef AB_DAEMON_STORE_HOSTID_H
#define AB_DAEMON_STORE_HOSTID_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct state_dir;

#define HOSTID_LEN   16u
#define HOSTID_BLOCK 4096u

struct hostid {
	char host[HOSTID_LEN + 1];
	uint64_t next;		/* the number given next */
	uint64_t reserved;	/* durable: every number given is <= this */
};

/* 0; -ENOENT if there is no file; -EBADMSG if it is not one of ours. */
must_check int hostid_read(struct state_dir *dir, struct hostid *ret);
/* Any thread. 0 or -errno. */
must_check int hostid_write(struct state_dir *dir, const char *host, uint64_t reserved);
bool hostid_is_valid(const char *host);

#endif
