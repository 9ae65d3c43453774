/* SPDX-License-Identifier: MIT */
/*
 * The sandbox engine of agentbox-local: makes confined sandboxes on this machine, runs commands in
 * them, removes them without a trace. Files in a sandbox: daemon/local/engine/fs.h.
 *
 * All calls are for the loop's thread and none of them waits: the work is done by a helper process
 * (the supervisor), by the init process of each sandbox and by file workers inside it. Every callback
 * is called from the loop, exactly once where it is a `done`, and never before the call that asked
 * for it has returned. Objects may be freed inside callbacks as said at each call.
 *
 * Invariant: nothing of a sandbox outlives its destruction, nor for long the death of this process:
 * init and supervisor end at the end of file of their sockets, mounts live only in mount
 * namespaces of the supervisor and the sandboxes, and what stays on disk or in cgroups goes at the next engine_new().
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_CONTAINER_H
#define AB_DAEMON_LOCAL_ENGINE_CONTAINER_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct loop;
struct engine;
struct container;
struct container_proc;

#define CONTAINER_ID_MAX	  63u		  /* [a-z0-9-]+ */
#define CONTAINER_ARGV_MAX_BYTES (2u * 1024 * 1024) /* args and envs together; -E2BIG above it */

/* --- the engine --- */

struct container_template {
	const char *name;	/* [a-z0-9][a-z0-9._-]*; "base" is built in */
	/* A directory, a tar archive or an image in a layout folder (image.h; DIR, or DIR:NAME): a whole root file system, or, if it
	 * has neither /usr/bin nor /bin, files that lie over the base. */
	const char *path;
};

struct engine_options {
	struct loop *loop;
	const char *state_dir;		/* exists, 0700, ours alone (the caller holds its lock) */
	const char *const *secret_paths; /* NULL-terminated; no base may contain them */
	const struct container_template *templates;
	size_t n_templates;
	bool no_idmap;			/* tests: as on a kernel without idmapped mounts */
	bool no_cgroup;			/* tests: as without cgroups */
	bool no_egress;			/* sandboxes have a loopback interface and no way out */
	const char *sudo;		/* the program agentbox-sudo; NULL: sandboxes have none */
	/* The supervisor died, and every sandbox with it: nothing can be made any more. May be NULL. */
	void (*on_dead)(void *user);
	void *user;
};

/* r = 0, or -errno with the reason for a person ("… refuses user namespaces because …"). */
typedef void container_done_fn(void *user, int r, const char *why);

/*
 * Starts the supervisor (a fork: call it before secrets are read into memory and before threads are
 * made), removes what an earlier life left in the state directory and in cgroups, builds the base,
 * and makes one sandbox as a trial. `ready` says how that went; -errno there means that no sandbox
 * can be made on this machine. Containers asked for earlier wait for it.
 * Fails at once with -EINVAL for a base that is / or contains the state directory or a secret.
 */
must_check int engine_new(const struct engine_options *o, container_done_fn *ready, void *user,
			  char **ret_why, struct engine **ret);
/* Kills everything at once, without callbacks, and waits (bounded) for the supervisor to clean up: the
 * only call that waits, for the end of the program. NULL is fine; returns NULL. */
struct engine *engine_free(struct engine *bs);
bool engine_has_template(const struct engine *bs, const char *name);
/* The variables of a template's image, "NAME=value", NULL-terminated; NULL: it is no image. */
const char *const *engine_template_env(const struct engine *bs, const char *name);

struct container_capability {
	const char *name;	/* stable, "idmapped-mounts" */
	bool available;
	char text[320];		/* what that means here */
};

#define CONTAINER_CAPABILITIES_MAX 24u

/* What this machine and this user allow; complete after `ready`. Returns how many were written. */
size_t engine_capabilities(const struct engine *bs,
			   struct container_capability ret[CONTAINER_CAPABILITIES_MAX]);

/* --- a sandbox --- */

struct container_options {
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
 * After done(0) the container takes commands and file calls. After done(-errno) the container is only good for
 * container_destroy(), which must still be called.
 */
must_check int container_new(struct engine *bs, const struct container_options *o,
			     container_done_fn *done, void *user, struct container **ret);
/* Kills all of it, removes its files and groups; `done` (may be NULL) when nothing is left. Commands
 * get their `ended` (signal 9) before. The pointer is invalid once this call has returned, except in
 * those callbacks. A `done` of container_new still outstanding is called first, with -ECANCELED. */
void container_destroy(struct container *b, container_done_fn *done, void *user);
/* Called once if the sandbox dies by itself (its init was killed for lack of memory, …): all
 * commands have ended; container_destroy() is still to be called. */
void container_on_death(struct container *b, void (*fn)(void *user), void *user);


/*
 * All processes stop, memory is kept, and `done` comes when not one of them runs any more; or (on =
 * false) they go on. File calls made while frozen wait. By cgroup, which nobody inside can notice;
 * without one by SIGSTOP and SIGCONT, which a parent can. One at a time. -EPIPE: it is not running.
 * -ETIMEDOUT: something does not stop; it runs on. -ECANCELED: it died or was destroyed meanwhile.
 */
must_check int container_freeze(struct container *b, bool on, container_done_fn *done, void *user);

/* --- layers: files kept without a sandbox, over restarts of this program too --- */

/* Copies all its files to the new layer `id` ([a-z0-9-]+); frozen around it, they belong together.
 * The sandbox must not be destroyed before `done`. */
must_check int container_save(struct container *b, const char *id, container_done_fn *done, void *user);
/* As container_destroy(), but its files become the layer `id`. On failure they are lost (r says so), unless
 * the container began by taking a layer of that id which is still there. */
void container_stash(struct container *b, const char *id, container_done_fn *done, void *user);
/* `done` may be NULL. A missing one is success. */
must_check int engine_drop_layer(struct engine *bs, const char *id, container_done_fn *done,
				 void *user);
bool engine_has_layer(const struct engine *bs, const char *id);
/* Calls fn for each layer there is. */
void engine_each_layer(const struct engine *bs, void (*fn)(void *user, const char *id), void *user);

/* What a sandbox that was asked for with these has: 0 = as much as the machine. */
uint32_t container_cpus(uint32_t asked);
uint64_t container_memory_bytes(uint64_t asked);

struct container_usage {
	uint64_t cpu_us;	/* since creation */
	uint64_t mem_bytes, mem_cache_bytes, mem_limit_bytes;	/* limit: machine's size if none */
	uint64_t disk_used_bytes, disk_total_bytes;
	uint32_t n_cpus;
};

/* What cannot be known is 0. */
void container_usage(struct container *b, struct container_usage *ret);
/* Shows it inside, in /proc/meminfo. */
void container_show_usage(struct container *b, const struct container_usage *u);

/*
 * A fresh, unconnected, non-blocking socket inside the sandbox's network: connect() on it reaches
 * the ports of the sandbox. fd is the callee's; -errno if r < 0.
 */
typedef void container_fd_fn(void *user, int r, int fd);
must_check int container_socket(struct container *b, int family, int type, container_fd_fn *done,
				void *user);

/* Whether outgoing connections of sandboxes come to us (nsnet.h); known after `ready`. */
bool engine_have_egress(const struct engine *bs);
/* The listener where they come, and the socket of the sandbox's name server: non-blocking, the
 * caller's from then on; -1 without egress, or when they were taken before. A running container. */
void container_take_egress(struct container *b, int *ret_tcp, int *ret_udp);

/* --- users --- */

struct container_user {
	uint32_t uid, gid;	/* inside the sandbox */
	char name[64];
	char home[256];
};

/* Reads the sandbox's own /etc/passwd. 0, -ENOENT no such user, or -errno. A number is not a name. */
must_check int container_user_lookup(struct container *b, const char *name, struct container_user *ret);

/* --- commands --- */

struct container_proc_options {
	const char *cmd;
	const char *const *args;	/* without the command itself */
	size_t n_args;
	const char *const *envs;	/* "NAME=value"; the whole environment */
	size_t n_envs;
	const char *cwd;		/* absolute */
	const struct container_user *user;
	bool stdin_pipe;		/* else /dev/null */
	bool pty;			/* then stdin_pipe is ignored */
	uint16_t cols, rows;
};

enum container_spawn_error {		/* positive outcomes of `started` */
	CONTAINER_SPAWN_OK = 0,
	CONTAINER_SPAWN_CWD,		/* the folder is missing, no folder, or not allowed */
	CONTAINER_SPAWN_EXEC,		/* /bin/sh cannot be run */
	CONTAINER_SPAWN_USER,		/* the ids cannot be taken */
	CONTAINER_SPAWN_RESOURCES,	/* no process, memory or terminal is left */
	CONTAINER_SPAWN_DEAD,		/* the sandbox died meanwhile */
};

struct container_exit {
	bool exited;		/* else killed by `sig` */
	uint8_t code;
	uint8_t sig;
	bool core;
};

struct container_proc_events {
	/* Once. On failure (`err` is an errno for the log) the object is freed after this call and
	 * `ended` never comes. */
	void (*started)(void *user, struct container_proc *p, enum container_spawn_error e, int err);
	/* Once, after started(OK): the main process has ended. Output may still be in the pipes, and
	 * other processes may hold them open. It stays a zombie until container_proc_free(). */
	void (*ended)(void *user, struct container_proc *p, const struct container_exit *x);
};

/* The command is run through `/bin/sh -c 'exec "$@"'`: a missing program is exit code 127.
 * -EPIPE: the container is not running (dead or not ready); -E2BIG; -EAGAIN: init does not keep up. */
must_check int container_proc_start(struct container *b, const struct container_proc_options *o,
				    const struct container_proc_events *ev, void *user,
				    struct container_proc **ret);
/* Closes what was not taken; a living process lives on, unobserved. NULL is fine. */
void container_proc_free(struct container_proc *p);

/* Inside the sandbox's pid namespace; 0 before `started`. */
uint32_t container_proc_pid(const struct container_proc *p);

enum container_stream {
	CONTAINER_STDIN,
	CONTAINER_STDOUT,
	CONTAINER_STDERR,
	CONTAINER_PTY,		/* both ways; a read of -EIO is its end */
};

/* Moves our non-blocking end to the caller, valid after started(OK); -1 if there is none. */
int container_proc_take_fd(struct container_proc *p, enum container_stream s);
/* To the main process only. 0, -ESRCH when it has ended, -EAGAIN. */
must_check int container_proc_signal(struct container_proc *p, int sig);
/* On the taken CONTAINER_PTY descriptor. */
must_check int container_pty_resize(int pty_fd, uint16_t cols, uint16_t rows);

#endif
