/* SPDX-License-Identifier: MIT */
/*
 * api_key_command: a program that prints an API key. It runs by /bin/sh -c as a child (child.h) whose whole process group
 * ends with it, and is stopped after KEY_COMMAND_LIMIT_MS.
 */
#ifndef AB_DAEMON_MAIN_KEY_COMMAND_H
#define AB_DAEMON_MAIN_KEY_COMMAND_H

#include <stdint.h>

#include "daemon/conf/secret.h"
#include "daemon/main/child.h"

#define KEY_COMMAND_LIMIT_MS 10000u

struct key_command;

/* Called once, never from inside key_command_start(). The callee owns key; if it is NULL, why says the reason. The command
 * is freed before. */
typedef void key_command_done_fn(void *user, struct secret *key, const char *why);

must_check int key_command_start(struct children *s, const char *command, uint32_t limit_ms, key_command_done_fn *done,
				 void *user, struct key_command **ret);
/* Kills it; `done` does not come. NULL is fine. */
void key_command_cancel(struct key_command *k);

#endif
