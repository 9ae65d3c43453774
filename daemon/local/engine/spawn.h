/* SPDX-License-Identifier: MIT */
/*
 * The init of a sandbox, process 1 of its pid namespace: starts commands, reaps whatever dies, tells
 * the engine. It ends when its socket does, and the kernel then ends everything else inside.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_SPAWN_H
#define AB_DAEMON_LOCAL_ENGINE_SPAWN_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct nsnet;

#define SPAWN_GROUPS_MAX 32u

/* The arguments of INIT_SPAWN, in a memfd: this head, then NUL-terminated strings: the
 * working directory, n_args arguments, n_envs variables. */
struct spawn_head {
	uint32_t uid, gid;
	uint32_t n_groups;
	uint32_t groups[SPAWN_GROUPS_MAX];
	uint32_t n_args, n_envs;
	uint32_t bytes;		/* of the strings together */
	uint16_t pty, cols, rows;
	uint16_t stdin_null;	/* then only stdout and stderr are passed */
};

/* Serves until the socket ends. The caller has been through ns_setup(); what that gave goes to the
 * engine. */
noreturn_ void spawn_run(int sock, bool as_user, int shown, const struct nsnet *net);

#endif
