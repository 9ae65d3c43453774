/* SPDX-License-Identifier: MIT */
/* How the init starts commands: spawn.c does so for the engine, sudo.c for programs inside. */
#ifndef AB_DAEMON_LOCAL_ENGINE_SPAWN_INT_H
#define AB_DAEMON_LOCAL_ENGINE_SPAWN_INT_H

#include "daemon/local/engine/spawn.h"

#define SPAWN_WRAPPER 4u	/* arguments of the wrapper, before those that were asked for */

struct spawn_args {
	const struct spawn_head *head;
	void *map;
	size_t size;
	const char *cwd;
	char **argv, **envp;
};

struct spawn_failure {
	int32_t error;	/* enum container_spawn_error */
	int32_t err;
};

/* Of a memfd as in spawn.h. -EBADMSG; then, too, to be given to spawn_args_fini(). */
must_check int spawn_args_map(int fd, struct spawn_args *ret);
void spawn_args_fini(struct spawn_args *a);
/* In the child: becomes the command, or writes a struct spawn_failure and ends. */
noreturn_ void spawn_child_run(const struct spawn_args *a, const int std[3], int status_fd, bool as_user);

#endif
