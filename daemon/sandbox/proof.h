/* SPDX-License-Identifier: MIT */
/*
 * Whose key is it? An account's key is trusted when its print is the one beside the rows, when a complete list
 * that it gives has a sandbox of the rows, or when there is no row that it could prove. Until then nothing
 * but that list is asked with it: a strange team's answers would end every row, and its cloud would get what
 * is made again. The rows stay as they are, and so they are found when the right key is back.
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
	char trusted[PROOF_PRINT_LEN + 1];	/* print of the last key that was; "" = none yet */
	struct timer timer;		/* the next question */
	struct cloud_call *call;
	unsigned failures;
	struct status why;		/* OK = the key is trusted, or was not asked about yet */
	int64_t since_ms;		/* wall: how long it is not */
};

/* Before the store is started; when the rows are there, and nothing was asked yet. */
void proof_load(struct sandbox_core *core);
void proof_start(struct sandbox_core *core);
/* True: nothing can be asked now, and *ret_why says what to do. What is written down first looks here first. */
bool proof_is_strange(const struct account *a, struct status *ret_why);
void proof_stop(struct sandbox_core *core);

#endif
