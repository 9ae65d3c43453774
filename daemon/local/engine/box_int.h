/* SPDX-License-Identifier: MIT */
/* What the engine's files (box.c, boxproc.c, boxfs.c, boxpause.c, boxcap.c) share. Loop thread only. */
#ifndef AB_DAEMON_LOCAL_ENGINE_BOX_INT_H
#define AB_DAEMON_LOCAL_ENGINE_BOX_INT_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/ev/loop.h"
#include "daemon/local/engine/box.h"
#include "daemon/local/engine/boxfs.h"
#include "daemon/local/engine/boxkeep.h"
#include "daemon/local/engine/nsnet.h"
#include "proto/base/list.h"
#include "proto/base/map.h"

#define BOX_MAX_PIDS 4096u

struct boxes {
	struct loop *loop;
	char *state_dir;
	struct keep_template *templates;
	size_t n_templates;
	pid_t keeper;
	int keeper_pidfd, sock;		/* sock -1: the keeper is dead */
	struct watch watch;
	struct list outbox;		/* requests the socket did not take yet */
	box_done_fn *ready;
	void *ready_user;
	void (*on_dead)(void *user);
	void *on_dead_user;
	bool is_ready;
	int ready_r;			/* once is_ready */
	char why[PKT_TEXT_MAX];
	struct box_facts facts;
	struct list all;		/* of boxes, also those being removed */
	struct map by_token;
	struct map tasks;		/* of boxpause.c, by token */
	uint64_t next_token;
	uint32_t next_slot;
	bool slots[KEEP_ID_SLOTS];
	struct cg_roots cg;
};

enum box_state {
	BOX_WAITING,	/* for the engine to be ready */
	BOX_CREATING,	/* the keeper was asked */
	BOX_SETUP,	/* there is an init, not ready */
	BOX_RUNNING,
	BOX_FAILED,	/* box_new's done said so, or was cancelled */
	BOX_DEAD,	/* no process is left */
	BOX_REMOVING,	/* the keeper removes it */
};

struct fs_worker {
	struct box *box;
	int sock;		/* -1: this place is free */
	struct watch watch;
	struct boxfs_op *op;
};

struct box {
	unsigned magic;
	struct boxes *boxes;
	struct list node;
	uint64_t token;
	uint32_t slot;
	enum box_state state;
	bool destroying, frozen;
	struct {
		box_done_fn *done;	/* NULL = none is going on */
		void *user;
		bool on, over;		/* over: `done` comes from the loop */
		uint64_t by_ms;
		struct timer poll;
	} freeze;
	char stash[BOX_ID_MAX + 1];	/* its files become this layer */
	char id[BOX_ID_MAX + 1];
	char cg_name[BOX_ID_MAX + 24];
	struct keep_req req;
	int sock, pidfd, root_fd;
	struct nsnet net;		/* not taken yet */
	struct watch watch, pid_watch;
	struct defer defer;
	struct grave grave;
	box_done_fn *created, *destroyed;
	void *created_user, *destroyed_user;
	void (*death)(void *user);
	void *death_user;
	struct map procs, sockets;
	uint32_t next_id;
	struct fs_worker workers[BOXFS_WORKERS_MAX];
	struct list fs_queue;
};

/* boxproc.c */
void boxproc_on_message(struct box *b, const struct init_msg *m, int fds[PKT_FDS_MAX]);
/* All commands and sockets end; with callbacks or (quiet) without. */
void boxproc_end_all(struct box *b, bool quiet);

/* box.c */
must_check int boxes_ask(struct boxes *bs, const struct keep_req *q, int fd);	/* takes fd */
bool boxes_id_ok(const char *s);

/* boxpause.c */
void boxpause_init(struct box *b);
void boxpause_on_stopped(struct box *b, const struct init_msg *m);
/* A freeze that is going on comes to nothing. */
void boxpause_end(struct box *b, bool quiet);
void boxpause_on_task(struct boxes *bs, const struct keep_rep *rep);
void boxpause_end_tasks(struct boxes *bs, bool quiet);

/* boxfs.c */
void boxfs_init(struct box *b);
void boxfs_end_all(struct box *b, bool quiet);

#endif
