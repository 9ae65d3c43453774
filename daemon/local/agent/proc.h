/* SPDX-License-Identifier: MIT */
/*
 * A command of a sandbox as the agent knows it: its output goes to the calls that listen, its input
 * comes from calls that wait until it is written.
 *
 * Events of a listener: one start, data, one end, always in this order, and the end only when all
 * output was read (or a signal of the agent stopped the reading). A chunk goes out when every
 * listener has room, so the slowest one holds the command up; without listeners output is dropped.
 * After its end a command is remembered for a while, for late listeners.
 */
#ifndef AB_DAEMON_LOCAL_AGENT_PROC_H
#define AB_DAEMON_LOCAL_AGENT_PROC_H

#include "daemon/local/agent/connect.h"
#include "proto/gen/envd_process.pb-c.h"

#define PROC_RETAIN_MS 30000u

/* Who of this program sees a command beside its listeners. Calls none of the others from inside. */
struct proc_watcher {
	void (*started)(struct proc_watcher *w);	/* may be NULL */
	void (*output)(struct proc_watcher *w, const uint8_t *p, size_t n);	/* of either pipe; may be NULL */
	/* Once: x is how it ended, or NULL: it could not be started, `why` in words. */
	void (*over)(struct proc_watcher *w, const struct container_exit *x, const char *why);
};

enum proc_state {
	PROC_STARTING,
	PROC_RUNNING,
	PROC_OVER,		/* remembered */
};

struct proc_pipe {
	struct proc *p;
	enum container_stream stream;
	int fd;			/* -1 = none, or read to its end */
	struct watch w;
};

struct proc {
	uint32_t magic;
	struct sandbox *s;		/* NULL: the sandbox is gone, and so is this soon */
	struct loop *loop;
	struct journal *journal;
	enum proc_state state;
	struct list node;
	struct container_proc *bp;	/* NULL once over */
	uint32_t pid;
	bool is_pty;
	Process__StartRequest *req;	/* config and tag */
	struct proc_pipe out[2];
	struct proc_pipe in;
	struct list inputs;
	bool ended, mute;
	struct container_exit exit;
	struct list listeners;
	struct call *starter;	/* waits for the start; NULL = gone */
	struct proc_watcher *watcher;	/* NULL = none */
	bool is_quiet;			/* in no diary */
	uint64_t deadline_ms;	/* 0 = none; then it is killed */
	struct timer deadline, retain;
	struct grave grave;
};

/* Takes c->req (a StartRequest) and starts it; the call becomes its first listener, or fails. */
void proc_start(struct call *c, const struct container_user *u, const char *cwd,
		const char *const *envs, size_t n_envs);
/* The same for this program itself; takes req, also where it fails (-errno, nothing is told). *ret is there until the
 * sandbox stops: set its watcher to NULL before. */
must_check int proc_start_own(struct local *l, struct sandbox *s, Process__StartRequest *req, const struct container_user *u,
			      const char *cwd, const char *const *envs, size_t n_envs, struct proc_watcher *watcher,
			      struct proc **ret);
/* How it ended, in the agent's words. */
void proc_exit_text(const struct container_exit *x, char ret[64]);
/* The call listens from now on; of one that is over it gets the start and the end. */
void proc_listen(struct proc *p, struct call *c);

/* NULL for none. Running ones only, unless `also_over`. */
struct proc *proc_by_pid(const struct sandbox *s, uint32_t pid, bool also_over);
struct proc *proc_by_tag(const struct sandbox *s, const char *tag, bool also_over);

/* 0, -ESRCH. Stops the collection of output. */
must_check int proc_signal(struct proc *p, int sig);
/* Appends input (taken: malloc'd) or, with data NULL, its end. `written` is called when it is done
 * (not from inside this call), with -EPIPE if it never will be; proc_input_forget() before. */
struct proc_input;
typedef void proc_written_fn(void *user, int r);
must_check int proc_write(struct proc *p, uint8_t *data, size_t n, proc_written_fn *written,
			  void *user, struct proc_input **ret);
void proc_input_forget(struct proc_input *in);
/* -EOPNOTSUPP without a terminal. */
must_check int proc_resize(struct proc *p, uint16_t cols, uint16_t rows);

/* Its deadline moves away by so much. */
void proc_delay(struct proc *p, uint64_t by_ms);
/* Lets go of it, and of its process; nothing is called any more. */
void proc_drop(struct proc *p);

#endif
