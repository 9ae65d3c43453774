/* SPDX-License-Identifier: MIT */
/*
 * Commands: the daemon holds one upstream stream per command, whatever its clients do, and fans its
 * output out to any number of readers, each with its own position in the spool. The only header of
 * this module for other modules. Loop thread only. `done` functions come exactly once, never from
 * inside the call that took them, and not after their cancel.
 *
 * Invariant: every exit code was stated by the cloud. If a stream ends without its end event, the cloud is
 * asked what became of the command; if that cannot be known its outcome is UNKNOWN, and LOST if its sandbox is gone.
 */
#ifndef AB_DAEMON_COMMAND_COMMAND_H
#define AB_DAEMON_COMMAND_COMMAND_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/command/spool.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct agent_address;
struct command;
struct command_op;
struct command_reader;
struct commands;
struct loop;
struct uid_quotas;

struct commands_limits {
	uint64_t kill_grace_ms;		/* of commands that are started from now on, and do not say theirs */
	uint64_t spool_per_command;	/* bytes of output; of commands that are started from now on */
	uint64_t spool_per_uid, spool_total;
};

struct commands_options {
	struct loop *loop;
	struct store *store;		/* opened, not started: the commands of earlier runs are loaded */
	const char *state_dir;		/* spools live in its folder "spool" */
	uint64_t history_ms;
	uint64_t restart_grace_ms;	/* 0 = 30 s */
	struct commands_limits limits;
	unsigned spools_open;		/* most spool files that are open at a time; 0 = a quarter of RLIMIT_NOFILE */
	struct uid_quotas *quotas;	/* pay for the memory of commands; outlive them; NULL = not charged */
};

/* Loads what an earlier run left: ended commands with their output, and running ones, which are
 * attached to again after commands_take_up(). Spools without a row are removed. */
must_check int commands_new(const struct commands_options *o, struct commands **ret);
/* Once, when the sandboxes are loaded; nothing may be started before. */
void commands_take_up(struct commands *cs, struct sandbox_core *core);
/* Other limits from now on; of a uid's memory those that its quota has now. Ended commands lose output above them, running ones none. */
void commands_set_limits(struct commands *cs, const struct commands_limits *l);
/* No done and no on_ready comes any more. Upstream streams are dropped; the programs go on, and their rows and
 * spools stay for the next run. NULL is fine. */
struct commands *commands_free(struct commands *cs);

struct commands_counts {
	uint32_t running;
	uint64_t spool_used;
};
/* Starts that were sent to an agent, or are about to be, and are not answered: the next daemon could not tell whether a short program ran. */
unsigned commands_starting(const struct commands *cs);
/* Of one uid, or of all with (uid_t)-1. */
void commands_count(const struct commands *cs, uid_t uid, struct commands_counts *ret);

enum command_overflow {		/* numbers of agentbox.v1.Overflow */
	COMMAND_OVERFLOW_UNSET = 0,
	COMMAND_BLOCK = 1,
	COMMAND_DROP_OLDEST = 2,
};

#define COMMAND_ARGS_MAX (1024u * 1024)	/* bytes of `args`, each with its NUL, that are kept over a restart */

struct command_start {
	const struct principal *who;
	uint64_t deadline_ms;		/* of the start, not of the command; 0 = none */
	const struct trace *trace;	/* goes on to the agent with the start; NULL = none */
	const char *sandbox;
	const char *shell;		/* a line for bash -l -c; NULL: `args` is the program */
	const char *const *args;
	size_t n_args;
	const struct sandbox_pair *envs;
	size_t n_envs;
	const char *cwd, *user;		/* NULL or "" = the sandbox's default */
	uint64_t timeout_ms;		/* 0 = none */
	int64_t kill_grace_ms;		/* -1 = the configured one */
	bool stdin_open, detach;
	uint64_t spool_limit;		/* bytes; 0 = the configured one, which is also the maximum */
	enum command_overflow overflow;	/* UNSET: BLOCK unless detach; without blocking_reader always DROP_OLDEST */
	bool blocking_reader;		/* Run: its caller reads from the first byte on */
	const char *request_id;		/* NULL or "" = none; 1..128 printable bytes */
	uint8_t params_hash[32];	/* hash of the parameters without the request id */
	bool pty;			/* a terminal; without shell and args: bash -i -l */
	uint32_t cols, rows;		/* with pty: 1..65535; of a plain one as they are */
	/* As the agent would start it for anybody: `args` alone, no variable of ours, the caller's tag. A lost answer to its start is
	 * OUTCOME_UNKNOWN at once, as nothing of ours is there to find it by; later it is found by its pid, command line and the sandbox's
	 * generation. It ends when the agent says so. Its `args` are at most COMMAND_ARGS_MAX, or the next daemon does not find it. */
	bool plain;
	const char *tag;		/* of a plain one; NULL = none */
	uint32_t agent_timeout_ms;	/* of a plain one: the agent kills it then; 0 = never */
};

/* OK: the program runs (its pid is known), or, for a request id that was used before, has run. The command
 * is borrowed; take a ref to keep it. OUTCOME_UNKNOWN: it may have started; a repeat with the same
 * request id never starts it again, and waits for what is found out. */
typedef void command_done_fn(void *user, const struct status *st, struct command *c);
must_check int commands_start(struct commands *cs, const struct command_start *s,
			      command_done_fn *done, void *user, struct command_op **ret);
/* Only before `done`, which then will not come. `end_it`: a command whose start is under way is ended as
 * soon as it runs, if no other call waits for it. NULL is fine. */
void command_op_cancel(struct command_op *op, bool end_it);

/* It runs, as far as is known, and has no stream: what it says is lost until it has. Readers are told when it begins. */
bool command_is_cut(const struct command *c);
/* Its sandbox is paused, or being paused, and it is not attached to: nothing comes until somebody resumes it. Readers are told when it begins. */
bool command_is_paused(const struct command *c);

/* By its id. NULL: no such command, or not this caller's. */
struct command *commands_find(struct commands *cs, const struct principal *who, const char *command_id);
/* Does a call that acts on it know at once whether it can? After a restart the sandbox may not have been reached again. */
bool command_is_reached(const struct command *c);
/* Waits for that, but no longer than a few seconds; then what acts on it says STATE_CHANGING. */
must_check int command_reach(struct command *c, command_done_fn *done, void *user, struct command_op **ret);
/* One that runs at this address, by its pid, or with pid 0 by the tag of a plain one. NULL: none of this caller's, or it has no pid yet. */
struct command *commands_find_process(struct commands *cs, const struct principal *who, const struct agent_address *at,
				      uint32_t pid, const char *tag);
/* By pid in a sandbox: ours, or one that somebody else started there (then `foreign`). */
must_check int commands_find_pid(struct commands *cs, const struct sandbox_call *call, uint32_t pid,
				 command_done_fn *done, struct command_op **ret);

enum command_outcome {		/* numbers of agentbox.v1.CommandResult.Outcome */
	COMMAND_RUNNING = 0,
	COMMAND_EXITED = 1,
	COMMAND_SIGNALED = 2,
	COMMAND_NOT_STARTED = 3,
	COMMAND_LOST = 4,
	COMMAND_UNKNOWN = 5,
};

#define COMMAND_SURVIVORS_MAX 64u

struct command_result {
	enum command_outcome outcome;
	int32_t exit_code;		/* only with EXITED */
	char signal[16];		/* "KILL"; only with SIGNALED, "" if the cloud did not say it */
	bool timed_out, killed, output_complete;
	bool pipes_held;		/* processes that it left behind still hold its output, which is not read any more */
	uint32_t n_survivors;
	uint32_t survivors[COMMAND_SURVIVORS_MAX];
	int64_t exited_at_ms;		/* wall */
	enum ab_reason reason;		/* with LOST, UNKNOWN */
	char message[STATUS_TEXT_MAX];
	char said[64], said_error[128];	/* by the agent's end event, where this run of the daemon got it: its status and its error; "" = not */
	bool was_absent;		/* with LOST, UNKNOWN, where this run of the daemon saw it: the agent has no such process */
};

/* A command as callers see it; pointers live as long as the command does. */
struct command_view {
	const char *id;			/* "" for a foreign one that was only listed */
	const char *sandbox, *shell, *user, *cwd, *tag;
	const char *const *args;
	size_t n_args;
	const struct sandbox_pair *envs;
	size_t n_envs;
	uint32_t pid, generation;
	int64_t started_at_ms, last_output_at_ms, expires_at_ms; /* wall; 0 = unknown */
	const struct command_result *result;	/* NULL while it runs */
	bool has[SPOOL_STREAMS];
	uint64_t first[SPOOL_STREAMS], end[SPOOL_STREAMS];
	bool group, foreign, stdin_open, pty;
};

struct command *command_ref(struct command *c);
struct command *command_unref(struct command *c);	/* NULL is fine; returns NULL */
void command_look(const struct command *c, struct command_view *ret);
const struct command_result *command_result(const struct command *c);	/* NULL while it runs */

/* The order of lists: the newest first, then by id, and those without an id by pid; other fields do not count. < 0: a comes first. */
int command_view_cmp(const struct command_view *a, const struct command_view *b);

/* The caller's commands in a sandbox (with `ended` also ended ones), and other processes that the agent started there;
 * newest first. */
typedef void command_list_fn(void *user, const struct status *st, const struct command_view *v, size_t n);
must_check int commands_list(struct commands *cs, const struct sandbox_call *call, bool ended,
			     command_list_fn *done, struct command_op **ret);

/* Ours there, also those that ended, newest first, by what is known here: nothing is asked, and nothing woken. *ret is heap, NULL if
 * *ret_n is 0; what its views point to lives until the loop's next pass. -ENOMEM. */
must_check int commands_known(const struct commands *cs, const struct principal *who, const char *account, const char *sandbox,
			      struct command_view **ret, size_t *ret_n);

/* --- readers --- */

typedef void command_ready_fn(struct command_reader *r, void *user);

struct command_read_from {
	uint64_t offset[SPOOL_STREAMS];	/* first byte wanted of each stream */
	bool from_end;			/* only what comes from now on; offsets are ignored */
	bool timed;			/* only what came at `since_ms` or later, and not below `offset` */
	int64_t since_ms;		/* wall */
	bool run;			/* of a Run: BLOCK waits for this reader, and its end ends the command */
	bool holds;			/* a plain command's output waits for this reader, as long as it is there */
};

/* The reader holds a reference on the command. on_ready says only that something changed. */
must_check int command_reader_new(struct command *c, const struct command_read_from *from,
				  command_ready_fn *on_ready, void *user, struct command_reader **ret);
enum command_read {
	COMMAND_READ_NOTHING,	/* on_ready will be called */
	COMMAND_READ_PIECE,
	COMMAND_READ_ENDED,	/* every piece was read and the result is known */
	COMMAND_READ_CAUGHT_UP,	/* instead of NOTHING without `follow`: no more for now, and the command runs */
};
/* The next piece; its bytes are in buf or in memory of the spool. */
enum command_read command_reader_next(struct command_reader *r, bool follow, void *buf, size_t max,
				      struct spool_piece *ret);
/* To what comes from now on, if the command has a stream or is over. False: it has none now; on_ready will be called when it has, and
 * what was lost meanwhile is none of this reader's. */
bool command_reader_join(struct command_reader *r);
struct command *command_reader_command(const struct command_reader *r);
/* If this is the last Run's reader, a command that is not detached is ended with `end_it`; otherwise it
 * goes on with DROP_OLDEST. NULL is fine; returns NULL. */
struct command_reader *command_reader_free(struct command_reader *r, bool end_it);

/* --- acting on one --- */

/* TERM, grace, KILL for its session, its descendants and every process with its id in the environment.
 * found false: it had ended before. All kills of a command share one. */
typedef void command_killed_fn(void *user, const struct status *st, bool found,
			       const uint32_t *survivors, size_t n);
must_check int command_kill(struct command *c, command_killed_fn *done, void *user,
			    struct command_op **ret);
/* Signals its main process alone; no output is lost. signo 9 or 15. */
must_check int command_signal(struct command *c, int signo, uint64_t deadline_ms,
			      command_killed_fn *done, void *user, struct command_op **ret);

/* Sets the size of its terminal; UNSUPPORTED without one, PROCESS_NOT_FOUND once it has ended. Of sizes
 * that come while another is being set only the last is sent; done comes when this one, or a later one, was set. */
typedef void command_resized_fn(void *user, const struct status *st);
must_check int command_resize(struct command *c, uint32_t cols, uint32_t rows, command_resized_fn *done,
			      void *user, struct command_op **ret);

/* Makes the caller the command's one writer. -EBUSY: there is one already. */
must_check int command_input_open(struct command *c);
void command_input_close(struct command *c);	/* the caller is the writer no more; this is no end of file */
/* `accepted`: bytes taken so far. OUTCOME_UNKNOWN: the chunk may or may not have arrived; the
 * evidence has its range, which must not be sent again. One chunk at a time. */
typedef void command_input_fn(void *user, const struct status *st, uint64_t accepted);
must_check int command_input_send(struct command *c, uint64_t offset, const void *p, size_t n,
				  uint64_t deadline_ms, command_input_fn *done, void *user,
				  struct command_op **ret);
/* End of file, after what was sent; repeating it is fine. UNSUPPORTED on a terminal. */
must_check int command_input_end(struct command *c, uint64_t deadline_ms, command_input_fn *done,
				 void *user, struct command_op **ret);

#endif
