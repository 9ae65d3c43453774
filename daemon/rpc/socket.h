/* SPDX-License-Identifier: MIT */
/*
 * The listening Unix socket in the file system: bound so that nobody else can connect early, plant
 * something in its place, or be pushed aside. Uses a lock file beside it (PATH.lock), held for life.
 */
#ifndef AB_DAEMON_RPC_SOCKET_H
#define AB_DAEMON_RPC_SOCKET_H

#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

/* The most that kernels take by default: one for all users, so it should never be full. */
#define RPC_SOCKET_BACKLOG 4096u

struct rpc_socket;

struct rpc_socket_options {
	const char *path;	/* absolute */
	mode_t mode;		/* of the socket */
	gid_t gid;		/* (gid_t)-1 = leave it */
	mode_t dir_mode;	/* make the last folder with this mode if it is missing; 0 = do not */
};

enum rpc_socket_result {
	RPC_SOCKET_OK = 0,
	RPC_SOCKET_BUSY,	/* another daemon serves it */
	RPC_SOCKET_REFUSED,	/* the place is not safe or not ours: nothing was touched */
};

/* Binds and listens. A socket left by a dead daemon is removed, and only that: a socket, ours, that
 * refuses connections. RPC_SOCKET_*, or -errno; `why` then says it in a sentence, naming the path. */
must_check int rpc_socket_open(const struct rpc_socket_options *o, struct rpc_socket **ret,
			       struct status *why);
/* Takes the listening descriptor out (non-blocking, CLOEXEC); the file stays this object's. */
int rpc_socket_take_fd(struct rpc_socket *s);

enum rpc_socket_state {
	RPC_SOCKET_THERE = 0,
	RPC_SOCKET_MISSING,	/* the path is free: rpc_socket_rebind() */
	RPC_SOCKET_REPLACED,	/* something else is there: leave it, give up serving */
};
must_check int rpc_socket_check(const struct rpc_socket *s);	/* RPC_SOCKET_*, or -errno */
must_check int rpc_socket_rebind(struct rpc_socket *s, struct status *why);
/* Removes the file if it is still ours, and unlocks. NULL is fine; returns NULL. */
struct rpc_socket *rpc_socket_free(struct rpc_socket *s);

/* For a descriptor given by somebody else (socket activation): 0 if it is a listening Unix stream
 * socket, set non-blocking and CLOEXEC; else -errno. */
must_check int rpc_socket_adopt(int fd);
/* Where such a socket is bound, '@' before an abstract name. Heap; NULL without memory. */
char *rpc_socket_place(int fd);

#endif
