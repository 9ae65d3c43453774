/* SPDX-License-Identifier: MIT */
/*
 * Whether an account's key belongs to the team of its rows. It is trusted when its print is the one in the store, when
 * a complete list asked with it has a sandbox of the rows, or when no row could prove anything. Until then only
 * that list is asked: the answers to another team's key would end every row, and sandboxes would be made again
 * in that team. The rows stay as they are, for the day when the right key is back.
 */
#ifndef AB_DAEMON_SANDBOX_PROOF_H
#define AB_DAEMON_SANDBOX_PROOF_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct account;
struct sandbox_core;
struct cloud_call;

#define PROOF_PRINT_LEN 64u

struct proof {			/* of an account's key */
	bool is_needless;	/* the cloud is the daemon's own */
	char trusted[PROOF_PRINT_LEN + 1];	/* print of the last trusted key; "" = none yet */
	struct timer timer;		/* the next list */
	struct cloud_call *call;
	unsigned failures;		/* in a row */
	struct status why;		/* why the key is not trusted; OK = it is, or the list did not come yet */
	int64_t since_ms;		/* wall: since when it is not trusted; 0 = it is, or the list did not come yet */
};

/* Before the store is started. */
void proof_load(struct sandbox_core *core);
/* When all rows are loaded, and before anything is asked of the cloud. */
void proof_start(struct sandbox_core *core);
/* True: the key is not trusted, and *ret_why says what to do. Calls that write an intent before they ask the cloud look here first. */
bool proof_is_strange(const struct account *a, struct status *ret_why);
void proof_stop(struct sandbox_core *core);
/* The same for one account that comes later, without rows, or goes. */
void proof_add(struct account *a);
void proof_drop(struct account *a);

#endif
