/* SPDX-License-Identifier: MIT */
/*
 * What the supervisor's files share: supervisor.c serves, supervisor_make.c makes the inits, supervisor_start.c is
 * what happens before the first request.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_SUPERVISOR_INT_H
#define AB_DAEMON_LOCAL_ENGINE_SUPERVISOR_INT_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/local/engine/layer.h"
#include "daemon/local/engine/ns.h"
#include "daemon/local/engine/supervisor.h"

#define SUPERVISOR_SOCK_FD	 3	/* of the supervisor and of each init */
#define SUPERVISOR_NAME_SIZE	 (CONTAINER_ID_MAX + 24u)
#define SUPERVISOR_TRIES	 100
#define SUPERVISOR_PAUSE_MS	 5

enum kid_kind {
	KID_INIT,
	KID_REMOVER,	/* of a container; token 0: of nobody's */
	KID_TASK,	/* saves or drops a layer */
	KID_FILLER,	/* copies a layer into the folder of a container that is made then */
};

struct kid {
	pid_t pid;
	enum kid_kind kind;
	uint64_t token;
	struct supervisor_req *q;	/* KID_FILLER: what is asked for; heap */
	int sock;
};

struct supervisor {
	const struct supervisor_options *o;
	struct container_facts facts;
	char dir[PATH_MAX];	/* STATE/engine */
	int dir_fd, engine_fd, trash_fd, layers_fd, sig_fd, lock_fd;
	struct kid *kids;
	size_t n, cap;
	bool base_in_memory;	/* a tmpfs in our own mount namespace */
};

struct making {
	char name[SUPERVISOR_NAME_SIZE];
	char dir[PATH_MAX], base[PATH_MAX], root[PATH_MAX];
	char why[PKT_TEXT_MAX];
	struct ns_plan plan;
};

/* --- supervisor.c --- */

must_check int supervisor_kid_add(struct supervisor *k, struct kid kid);
void supervisor_say(struct supervisor *k, const struct supervisor_rep *rep, int fd);
/* Out of the way at once; the rest takes its time. */
void supervisor_to_trash(const struct supervisor *k, const char *name);
must_check int supervisor_remove_all(const struct supervisor *k, const char *name);

/* --- supervisor_make.c --- */

/* "a/bc"; -ENAMETOOLONG. */
must_check int supervisor_path(char *ret, size_t cap, const char *a, const char *b, const char *c);
void supervisor_name(char ret[SUPERVISOR_NAME_SIZE], const char *id, uint64_t token);
struct layer_ids supervisor_ids(const struct supervisor *k, uint32_t slot);
/* Where a template's files are (suffix ""), or its patch. */
must_check int supervisor_template_path(const struct supervisor *k,
					const struct supervisor_template *t, const char *suffix,
					char ret[PATH_MAX]);
/* *ret_pidfd and the pid, or -errno with m->why. */
must_check pid_t supervisor_make(struct supervisor *k, const struct supervisor_req *q, int sock,
				 struct making *m, int *ret_pidfd);

/* --- supervisor_start.c --- */

/* All before the first request; says READY. */
void supervisor_start(struct supervisor *k);
must_check int supervisor_base_unmount(struct supervisor *k);

#endif
