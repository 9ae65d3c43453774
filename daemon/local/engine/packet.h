/* SPDX-License-Identifier: MIT */
/*
 * Messages between the engine, the supervisor and the inits: fixed structs over SOCK_SEQPACKET with
 * descriptors beside them. All ends are forks of one image, so a struct is its own wire format.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_PACKET_H
#define AB_DAEMON_LOCAL_ENGINE_PACKET_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/local/engine/cg.h"
#include "daemon/local/engine/container.h"

#define PKT_FDS_MAX  4u
#define PKT_TEXT_MAX 320u

/* CLOEXEC pair; the first end (the engine's) is non-blocking. */
must_check int pkt_pair(int ret[2]);
/* 0, -EAGAIN (non-blocking and full), -EPIPE (nobody there), -errno. The fds stay the caller's. */
must_check int pkt_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds);
/* Bytes received, 0 at the end of file, -EAGAIN, -errno. A message of another size than `n` is
 * -EBADMSG. Descriptors that do not come are -1. */
must_check ssize_t pkt_recv(int sock, void *p, size_t n, int ret_fds[PKT_FDS_MAX]);
/* The same for messages of any size up to `cap`; a longer one is -EBADMSG. */
must_check ssize_t pkt_recv_any(int sock, void *p, size_t cap, int ret_fds[PKT_FDS_MAX]);
void pkt_close_fds(int fds[PKT_FDS_MAX]);

/* Moves a descriptor out of a variable, leaving -1. */
static inline int pkt_take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* --- engine and supervisor --- */

enum supervisor_op {
	SUPERVISOR_CREATE,	/* > fd: the init's socket */
	SUPERVISOR_REMOVE,	/* > the sandbox is dead: remove what is left of it, or keep its files as `layer` */
	SUPERVISOR_SAVE,	/* > copy the files of container_token to `layer` */
	SUPERVISOR_DROP,	/* > remove `layer` */
	SUPERVISOR_QUIT,	/* > remove everything and end */
	SUPERVISOR_READY,	/* < r, text, facts */
	SUPERVISOR_CREATED,	/* < fd: pidfd of the init */
	SUPERVISOR_FAILED,	/* < r, text */
	SUPERVISOR_REMOVED,	/* < r */
	SUPERVISOR_DONE,	/* < r; the answer to SAVE and DROP */
};

struct supervisor_req {
	enum supervisor_op op;
	uint64_t token;			/* of the container or the task, chosen by the engine, never reused */
	uint64_t container_token;		/* SUPERVISOR_SAVE */
	uint32_t id_slot;		/* which range of ids */
	uint32_t template;		/* index */
	uint64_t memory_bytes;
	uint32_t max_pids, cpus;
	char id[CONTAINER_ID_MAX + 1];
	char layer[CONTAINER_ID_MAX + 1];	/* "" = none; SUPERVISOR_CREATE: begin with its files */
	bool take_layer;		/* … and the layer is no more */
	bool probe;			/* a trial */
};

/* What the trial found out. */
struct container_facts {
	bool as_user;		/* one id is mapped */
	bool idmap;
	bool usr_writable;
	bool egress;
	char egress_why[PKT_TEXT_MAX];	/* not */
	struct cg_roots cg;
};

struct supervisor_rep {
	enum supervisor_op op;
	uint64_t token;
	int r;
	char text[PKT_TEXT_MAX];
	struct container_facts facts;
};

/* --- engine and init --- */

enum init_op {
	INIT_READY,	/* < fds: handles on the root and on the folder of nsmount_shown(); with egress: those of struct nsnet */
	INIT_FAILED,	/* < a = enum ns_stage, r = -errno, text */
	INIT_SPAWN,	/* > id; fds: arguments, and stdin, stdout, stderr unless a pty */
	INIT_STARTED,	/* < id, a = pid; fd: pty master if one was asked for */
	INIT_NOT_STARTED, /* < id, a = enum container_spawn_error, r = errno */
	INIT_ENDED,	/* < id, a = wait status */
	INIT_SIGNAL,	/* > id, a = signal */
	INIT_RELEASE,	/* > id: it may be reaped; the last word about it */
	INIT_WORKER,	/* > fd: the socket of a file worker */
	INIT_WATCHER,	/* > fd: the socket of a watching process */
	INIT_SOCKET,	/* > id, a = family, b = type; < id, r, fd */
	INIT_STOP,	/* > a: stop (1) or continue (0) everything but the init; < a, r */
};

struct init_msg {
	enum init_op op;
	uint32_t id;
	int32_t a, b;
	int32_t r;
	char text[PKT_TEXT_MAX];
};

#endif
