/* SPDX-License-Identifier: MIT */
/*
 * api_key_command: a program that prints an API key. It runs by /bin/sh -c in a process group of its own, with nothing to
 * read, our standard error and our environment, and is ended with its group after KEYRUN_LIMIT_MS.
 */
#ifndef AB_DAEMON_MAIN_KEYRUN_H
#define AB_DAEMON_MAIN_KEYRUN_H

#include "daemon/common/ev/loop.h"
#include "daemon/conf/secret.h"

#define KEYRUN_LIMIT_MS 10000u

struct keyrun;

/* Once, never from inside of keyrun_start(). key is the callee's; NULL: why. The run is over and free. */
typedef void keyrun_done_fn(void *user, struct secret *key, const char *why);

must_check int keyrun_start(struct loop *l, const char *command, keyrun_done_fn *done, void *user, struct keyrun **ret);
void keyrun_cancel(struct keyrun *k);	/* ends it; NULL is fine */

#endif
