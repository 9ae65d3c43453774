/* SPDX-License-Identifier: MIT */
/* What the engine's files (container.c, process.c, fs.c, pause.c, capability.c) share. Loop thread only. */
#ifndef AB_DAEMON_LOCAL_ENGINE_CONTAINER_INT_H
#define AB_DAEMON_LOCAL_ENGINE_CONTAINER_INT_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/ev/loop.h"
#include "daemon/local/engine/container.h"
#include "daemon/local/engine/fs.h"
#include "daemon/local/engine/nsnet.h"
#include "daemon/local/engine/supervisor.h"
#include "proto/base/list.h"
#include "proto/base/map.h"

#define CONTAINER_MAX_PIDS 4096u

struct engine {
	struct loop *loop;
	char *state_dir;
	struct supervisor_template *templates;
	size_t n_templates;
	pid_t supervisor;
	int supervisor_pidfd, sock;		/* sock -1: the supervisor is dead */
	struct watch watch;
	struct list outbox;		/* requests the socket did not take yet */
	container_done_fn *ready;
	void *ready_user;
	void (*on_dead)(void *user);
	void *on_dead_user;
	bool is_ready, has_sudo;
	int ready_r;			/* once is_ready */
	char why[PKT_TEXT_MAX];
	struct container_facts facts;
	struct list all;		/* of engine, also those being removed */
	struct map by_token;
	struct map tasks;		/* of pause.c, by token */
	uint64_t next_token;
	uint32_t next_slot;
	bool slots[SUPERVISOR_ID_SLOTS];
	struct cg_roots cg;
};

enum container_state {
	CONTAINER_WAITING,	/* for the engine to be ready */
	CONTAINER_CREATING,	/* the supervisor was asked */
	CONTAINER_SETUP,	/* there is an init, not ready */
	CONTAINER_RUNNING,
	CONTAINER_FAILED,	/* container_new's done said so, or was cancelled */
	CONTAINER_DEAD,	/* no process is left */
	CONTAINER_REMOVING,	/* the supervisor removes it */
};

struct fs_worker {
	struct container *container;
	int sock;		/* -1: this place is free */
	struct watch watch;
	struct fs_op *op;
};

struct container {
	unsigned magic;
	struct engine *engine;
	struct list node;
	uint64_t token;
	uint32_t slot;
	enum container_state state;
	bool destroying, frozen;
	struct {
		container_done_fn *done;	/* NULL = none is going on */
		void *user;
		bool on, over;		/* over: `done` comes from the loop */
		uint64_t by_ms;
		struct timer poll;
	} freeze;
	char stash[CONTAINER_ID_MAX + 1];	/* its files become this layer */
	char id[CONTAINER_ID_MAX + 1];
	char cg_name[CONTAINER_ID_MAX + 24];
	struct supervisor_req req;
	int sock, pidfd, root_fd, shown_fd;
	struct nsnet net;		/* not taken yet */
	struct watch watch, pid_watch;
	struct defer defer;
	struct grave grave;
	container_done_fn *created, *destroyed;
	void *created_user, *destroyed_user;
	void (*death)(void *user);
	void *death_user;
	struct map procs, sockets;
	uint32_t next_id;
	struct fs_worker workers[FS_WORKERS_MAX];
	struct list fs_queue;
};

/* process.c */
void process_on_message(struct container *b, const struct init_msg *m, int fds[PKT_FDS_MAX]);
/* All commands and sockets end; with callbacks or (quiet) without. */
void process_end_all(struct container *b, bool quiet);

/* container.c */
must_check int engine_ask(struct engine *bs, const struct supervisor_req *q, int fd);	/* takes fd */
bool engine_id_ok(const char *s);

/* pause.c */
void pause_init(struct container *b);
void pause_on_stopped(struct container *b, const struct init_msg *m);
/* A freeze that is going on comes to nothing. */
void pause_end(struct container *b, bool quiet);
void pause_on_task(struct engine *bs, const struct supervisor_rep *rep);
void pause_end_tasks(struct engine *bs, bool quiet);

/* fs.c */
void fs_init(struct container *b);
void fs_end_all(struct container *b, bool quiet);

#endif
