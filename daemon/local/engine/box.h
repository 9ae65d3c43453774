/* SPDX-License-Identifier: MIT */
/*
 * The sandbox engine of agentbox-local: makes confined sandboxes on this machine, runs commands in
 * them, removes them without a trace. Files in a sandbox: daemon/local/engine/boxfs.h.
 *
 * All calls are for the loop's thread and none of them waits: the work is done by a helper process
 * (the keeper), by the init process of each sandbox and by file workers inside it. Every callback
 * is called from the loop, exactly once where it is a `done`, and never before the call that asked
 * for it has returned. Objects may be freed inside callbacks as said at each call.
 *
 * Invariant: nothing of a sandbox outlives its destruction, nor for long the death of this process:
 * init and keeper end at the end of file of their sockets, mounts live only in mount
 * namespaces of the keeper and the sandboxes, and what stays on disk or in cgroups goes at the next boxes_new().
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_BOX_H
#define AB_DAEMON_LOCAL_ENGINE_BOX_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct loop;
struct boxes;
struct box;
struct box_proc;

#define BOX_ID_MAX	  63u		  /* [a-z0-9-]+ */
#define BOX_ARGV_MAX_BYTES (2u * 1024 * 1024) /* args and envs together; -E2BIG above it */

/* --- the engine --- */

struct box_template {
	const char *name;	/* [a-z0-9][a-z0-9._-]*; "base" is built in */
	/* A directory or a tar archive: a whole root file system, or, if it has neither /usr/bin nor
	 * /bin, files that lie over the base. */
	const char *path;
};

struct boxes_options {
	struct loop *loop;
	const char *state_dir;		/* exists, 0700, ours alone (the caller holds its lock) */
	const char *const *secret_paths; /* NULL-terminated; no base may contain them */
	const struct box_template *templates;
	size_t n_templates;
	bool no_idmap;			/* tests: as on a kernel without idmapped mounts */
	bool no_cgroup;			/* tests: as without cgroups */
	bool no_egress;			/* sandboxes have a loopback interface and no way out */
	/* The keeper died, and every sandbox with it: nothing can be made any more. May be NULL. */
	void (*on_dead)(void *user);
	void *user;
};

/* r = 0, or -errno with the reason for a person ("… refuses user namespaces because …"). */
typedef void box_done_fn(void *user, int r, const char *why);

/*
 * Starts the keeper (a fork: call it before secrets are read into memory and before threads are
 * made), removes what an earlier life left in the state directory and in cgroups, builds the base,
 * and makes one sandbox as a trial. `ready` says how that went; -errno there means that no sandbox
 * can be made on this machine. Boxes asked for earlier wait for it.
 * Fails at once with -EINVAL for a base that is / or contains the state directory or a secret.
 */
must_check int boxes_new(const struct boxes_options *o, box_done_fn *ready, void *user,
			 char **ret_why, struct boxes **ret);
/* Kills everything at once, without callbacks, and waits (bounded) for the keeper to clean up: the
 * only call that waits, for the end of the program. NULL is fine; returns NULL. */
struct boxes *boxes_free(struct boxes *bs);
bool boxes_has_template(const struct boxes *bs, const char *name);

struct box_capability {
	const char *name;	/* stable, "idmapped-mounts" */
	bool available;
	char text[320];		/* what that means here */
};

#define BOX_CAPABILITIES_MAX 24u

/* What this machine and this user allow; complete after `ready`. Returns how many were written. */
size_t boxes_capabilities(const struct boxes *bs, struct box_capability ret[BOX_CAPABILITIES_MAX]);

/* --- a sandbox --- */

struct box_options {
	const char *id;		/* unique among living ones */
	const char *template;
	uint64_t memory_bytes;	/* 0 = no limit */
	uint32_t max_pids;	/* 0 = 4,096 */
	uint32_t cpus;		/* 0 = no limit */
	const char *layer;	/* it begins with these files; NULL = the template's alone */
	bool take_layer;	/* … which are its own from then on: the layer is gone */
};

/*
 * -ENOENT unknown template, -EEXIST id in use, -EINVAL malformed id, -EAGAIN no uid range is free.
 * After done(0) the box takes commands and file calls. After done(-errno) the box is only good for
 * box_destroy(), which must still be called.
 */
must_check int box_new(struct boxes *bs, const struct box_options *o, box_done_fn *done, void *user,
		       struct box **ret);
/* Kills all of it, removes its files and groups; `done` (may be NULL) when nothing is left. Commands
 * get their `ended` (signal 9) before. The pointer is invalid once this call has returned, except in
 * those callbacks. A `done` of box_new still outstanding is called first, with -ECANCELED. */
void box_destroy(struct box *b, box_done_fn *done, void *user);
/* Called once if the sandbox dies by itself (its init was killed for lack of memory, …): all
 * commands have ended; box_destroy() is still to be called. */
void box_on_death(struct box *b, void (*fn)(void *user), void *user);


/*
 * All processes stop, memory is kept, and `done` comes when not one of them runs any more; or (on =
 * false) they go on. File calls made while frozen wait. By cgroup, which nobody inside can notice;
 * without one by SIGSTOP and SIGCONT, which a parent can. One at a time. -EPIPE: it is not running.
 * -ETIMEDOUT: something does not stop; it runs on. -ECANCELED: it died or was destroyed meanwhile.
 */
must_check int box_freeze(struct box *b, bool on, box_done_fn *done, void *user);

/* --- layers: files kept without a sandbox, over restarts of this program too --- */

/* Copies all its files to the new layer `id` ([a-z0-9-]+); frozen around it, they belong together.
 * The sandbox must not be destroyed before `done`. */
must_check int box_save(struct box *b, const char *id, box_done_fn *done, void *user);
/* As box_destroy(), but its files become the layer `id`. On failure they are lost (r says so), unless
 * the box began by taking a layer of that id which is still there. */
void box_stash(struct box *b, const char *id, box_done_fn *done, void *user);
/* `done` may be NULL. A missing one is success. */
must_check int boxes_drop_layer(struct boxes *bs, const char *id, box_done_fn *done, void *user);
bool boxes_has_layer(const struct boxes *bs, const char *id);
/* Calls fn for each layer there is. */
void boxes_each_layer(const struct boxes *bs, void (*fn)(void *user, const char *id), void *user);

struct box_usage {
	uint64_t cpu_us;	/* since creation */
	uint64_t mem_bytes, mem_cache_bytes, mem_limit_bytes;	/* limit: machine's size if none */
	uint64_t disk_used_bytes, disk_total_bytes;
	uint32_t n_cpus;
};

/* What cannot be known is 0. */
void box_usage(struct box *b, struct box_usage *ret);

/*
 * A fresh, unconnected, non-blocking socket inside the sandbox's network: connect() on it reaches
 * the ports of the sandbox. fd is the callee's; -errno if r < 0.
 */
typedef void box_fd_fn(void *user, int r, int fd);
must_check int box_socket(struct box *b, int family, int type, box_fd_fn *done, void *user);

/* Whether outgoing connections of sandboxes come to us (nsnet.h); known after `ready`. */
bool boxes_have_egress(const struct boxes *bs);
/* The listener where they come, and the socket of the sandbox's name server: non-blocking, the
 * caller's from then on; -1 without egress, or when they were taken before. A running box. */
void box_take_egress(struct box *b, int *ret_tcp, int *ret_udp);

/* --- users --- */

struct box_user {
	uint32_t uid, gid;	/* inside the sandbox */
	char name[64];
	char home[256];
};

/* Reads the sandbox's own /etc/passwd. 0, -ENOENT no such user, or -errno. A number is not a name. */
must_check int box_user_lookup(struct box *b, const char *name, struct box_user *ret);

/* --- commands --- */

struct box_proc_options {
	const char *cmd;
	const char *const *args;	/* without the command itself */
	size_t n_args;
	const char *const *envs;	/* "NAME=value"; the whole environment */
	size_t n_envs;
	const char *cwd;		/* absolute */
	const struct box_user *user;
	bool stdin_pipe;		/* else /dev/null */
	bool pty;			/* then stdin_pipe is ignored */
	uint16_t cols, rows;
};

enum box_spawn_error {		/* positive outcomes of `started` */
	BOX_SPAWN_OK = 0,
	BOX_SPAWN_CWD,		/* the folder is missing, no folder, or not allowed */
	BOX_SPAWN_EXEC,		/* /bin/sh cannot be run */
	BOX_SPAWN_USER,		/* the ids cannot be taken */
	BOX_SPAWN_RESOURCES,	/* no process, memory or terminal is left */
	BOX_SPAWN_DEAD,		/* the sandbox died meanwhile */
};

struct box_exit {
	bool exited;		/* else killed by `sig` */
	uint8_t code;
	uint8_t sig;
	bool core;
};

struct box_proc_events {
	/* Once. On failure (`err` is an errno for the log) the object is freed after this call and
	 * `ended` never comes. */
	void (*started)(void *user, struct box_proc *p, enum box_spawn_error e, int err);
	/* Once, after started(OK): the main process has ended. Output may still be in the pipes, and
	 * other processes may hold them open. It stays a zombie until box_proc_free(). */
	void (*ended)(void *user, struct box_proc *p, const struct box_exit *x);
};

/* The command is run through `/bin/sh -c 'exec "$@"'`: a missing program is exit code 127.
 * -EPIPE: the box is not running (dead or not ready); -E2BIG; -EAGAIN: init does not keep up. */
must_check int box_proc_start(struct box *b, const struct box_proc_options *o,
			      const struct box_proc_events *ev, void *user, struct box_proc **ret);
/* Closes what was not taken; a living process lives on, unobserved. NULL is fine. */
void box_proc_free(struct box_proc *p);

/* Inside the sandbox's pid namespace; 0 before `started`. */
uint32_t box_proc_pid(const struct box_proc *p);

enum box_stream {
	BOX_STDIN,
	BOX_STDOUT,
	BOX_STDERR,
	BOX_PTY,		/* both ways; a read of -EIO is its end */
};

/* Moves our non-blocking end to the caller, valid after started(OK); -1 if there is none. */
int box_proc_take_fd(struct box_proc *p, enum box_stream s);
/* To the main process only. 0, -ESRCH when it has ended, -EAGAIN. */
must_check int box_proc_signal(struct box_proc *p, int sig);
/* On the taken BOX_PTY descriptor. */
must_check int box_pty_resize(int pty_fd, uint16_t cols, uint16_t rows);

#endif
