/* SPDX-License-Identifier: MIT */
/*
 * api_key_command: a program that prints an API key. It runs by /bin/sh -c in a process group of its own, with nothing to
 * read, our standard error and our environment, and is ended with its group after KEY_COMMAND_LIMIT_MS.
 */
#ifndef AB_DAEMON_MAIN_KEY_COMMAND_H
#define AB_DAEMON_MAIN_KEY_COMMAND_H

#include "daemon/common/ev/loop.h"
#include "daemon/conf/secret.h"

#define KEY_COMMAND_LIMIT_MS 10000u

struct key_command;

/* Once, never from inside of key_command_start(). key is the callee's; NULL: why. The run is over and free. */
typedef void key_command_done_fn(void *user, struct secret *key, const char *why);

must_check int key_command_start(struct loop *l, const char *command, key_command_done_fn *done, void *user, struct key_command **ret);
void key_command_cancel(struct key_command *k);	/* ends it; NULL is fine */

#endif
