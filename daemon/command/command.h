/* SPDX-License-Identifier: MIT */
/*
 * Commands: the daemon holds one upstream stream per command, whatever its clients do, and fans its
 * output out to any number of readers, each with its own place in the spool. The only header of
 * this module that others see. Loop thread only. `done` functions come exactly once, never from
 * inside the call that took them, and not after their cancel.
 *
 * Truth. An exit code is only one the cloud stated. A stream that ended without its end event starts
 * an inquiry; what cannot be known is outcome UNKNOWN, and a sandbox that is gone is LOST.
 */
#ifndef AB_DAEMON_COMMAND_COMMAND_H
#define AB_DAEMON_COMMAND_COMMAND_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/command/spool.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct command;
struct command_op;
struct command_reader;
struct commands;
struct loop;
struct uid_quotas;

struct commands_options {
	struct loop *loop;
	struct store *store;		/* opened, not started: the commands of earlier runs are loaded */
	const char *state_dir;		/* spools live in its folder "spool" */
	uint64_t kill_grace_ms, history_ms;
	uint64_t restart_grace_ms;	/* 0 = 30 s */
	uint64_t spool_per_command, spool_per_uid, spool_total; /* bytes */
	unsigned spools_open;		/* files of them at a time; 0 = a quarter of the descriptors that we may have */
	struct uid_quotas *quotas;	/* of the memory that commands hold; outlives them; NULL = nobody counts */
};

/* Takes over what an earlier run left: ended commands with their output, and those that ran, which are
 * attached to again after commands_take_up(). Spools without a row are removed. */
must_check int commands_new(const struct commands_options *o, struct commands **ret);
/* Once, when lifecycle has loaded; before it nothing may be started. */
void commands_take_up(struct commands *cs, struct sandbox_core *core);
/* No done and no on_ready any more. Upstream streams are dropped; the programs go on, and their rows and
 * spools stay for the next run. NULL is fine. */
struct commands *commands_free(struct commands *cs);

struct commands_counts {
	uint32_t running;
	uint64_t spool_used;
};
/* Of one uid, or of all with (uid_t)-1. */
void commands_count(const struct commands *cs, uid_t uid, struct commands_counts *ret);

enum command_overflow {		/* numbers of agentbox.v1.Overflow */
	COMMAND_OVERFLOW_UNSET = 0,
	COMMAND_BLOCK = 1,
	COMMAND_DROP_OLDEST = 2,
};

struct command_start {
	const struct principal *who;
	uint64_t deadline_ms;		/* of the start, not of the command; 0 = none */
	const char *sandbox;
	const char *shell;		/* run by bash -l -c; NULL: args */
	const char *const *args;
	size_t n_args;
	const struct sandbox_pair *envs;
	size_t n_envs;
	const char *cwd, *user;		/* NULL or "" = the sandbox's default */
	uint64_t timeout_ms;		/* 0 = none */
	int64_t kill_grace_ms;		/* -1 = the configured one */
	bool stdin_open, detach;
	uint64_t spool_limit;		/* 0 = the configured one; more than that is cut to it */
	enum command_overflow overflow;	/* UNSET: BLOCK with blocking_reader; without one always DROP_OLDEST */
	bool blocking_reader;		/* Run: its caller reads from the first byte on */
	const char *request_id;		/* NULL or "" = none; 1..128 printable bytes */
	uint8_t params_hash[32];	/* of the parameters without it */
	bool pty;			/* a terminal; without shell and args: bash -i -l */
	uint32_t cols, rows;		/* with pty: 1..65535 */
};

/* OK: the program runs (its pid is known), or, with a request id that was used before, did. The command
 * is borrowed; take a ref to keep it. At most once: with OUTCOME_UNKNOWN it may have started, and a
 * repeat with the same request id joins the search for it. */
typedef void command_done_fn(void *user, const struct status *st, struct command *c);
must_check int commands_start(struct commands *cs, const struct command_start *s,
			      command_done_fn *done, void *user, struct command_op **ret);
/* The caller is gone before done: done will not come. `end_it`: a start that is under way is ended as
 * soon as it runs. NULL is fine. */
void command_op_cancel(struct command_op *op, bool end_it);

/* By its id. NULL: no such command, or not this caller's. */
struct command *commands_find(struct commands *cs, const struct principal *who, const char *command_id);
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
	char signal[16];		/* "KILL"; only with SIGNALED, "" if not told */
	bool timed_out, killed, output_complete;
	bool pipes_held;		/* processes that it left hold its output; what they say is not read */
	uint32_t n_survivors;
	uint32_t survivors[COMMAND_SURVIVORS_MAX];
	int64_t exited_at_ms;		/* wall */
	enum ab_reason reason;		/* with LOST, UNKNOWN */
	char message[STATUS_TEXT_MAX];
};

/* A look at one; pointers live as long as the command does. */
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

/* Ours (with `ended`: also those that ended) and what else runs there; newest first. */
typedef void command_list_fn(void *user, const struct status *st, const struct command_view *v, size_t n);
must_check int commands_list(struct commands *cs, const struct sandbox_call *call, bool ended,
			     command_list_fn *done, struct command_op **ret);

/* --- readers --- */

typedef void command_ready_fn(struct command_reader *r, void *user);

struct command_read_from {
	uint64_t offset[SPOOL_STREAMS];	/* wanted from here on */
	bool from_end;			/* only what comes now; offsets are ignored */
	bool timed;			/* only what came at `since_ms` (wall clock) or later; with offsets both hold */
	int64_t since_ms;
	bool run;			/* of a Run: BLOCK waits for it, and its end ends the command */
};

/* Keeps the command. News says only that something changed. */
must_check int command_reader_new(struct command *c, const struct command_read_from *from,
				  command_ready_fn *on_ready, void *user, struct command_reader **ret);
enum command_read {
	COMMAND_READ_NOTHING,	/* on_ready will be called */
	COMMAND_READ_PIECE,
	COMMAND_READ_ENDED,	/* every piece was read and the result is known */
	COMMAND_READ_CAUGHT_UP,	/* only without follow: no more for now, and it runs */
};
/* The next piece, its bytes in buf. Follow: whether to wait for more. */
enum command_read command_reader_next(struct command_reader *r, bool follow, void *buf, size_t max,
				      struct spool_piece *ret);
struct command *command_reader_command(const struct command_reader *r);
/* `end_it`: what the end of the last Run's reader means for a command that is not detached: it is
 * ended. Otherwise it becomes DROP_OLDEST and goes on. NULL is fine; returns NULL. */
struct command_reader *command_reader_free(struct command_reader *r, bool end_it);

/* --- acting on one --- */

/* TERM, grace, KILL for its whole session, children and everything that carries its tag; the command
 * is looked at in done (result, survivors). found false: it was over before. Equal kills merge. */
typedef void command_killed_fn(void *user, const struct status *st, bool found,
			       const uint32_t *survivors, size_t n);
must_check int command_kill(struct command *c, command_killed_fn *done, void *user,
			    struct command_op **ret);
/* The signal to its main process alone, without loss of output. signo 9 or 15. */
must_check int command_signal(struct command *c, int signo, uint64_t deadline_ms,
			      command_killed_fn *done, void *user, struct command_op **ret);

/* Sets the size of its terminal; UNSUPPORTED without one, PROCESS_NOT_FOUND once it has ended. Sizes
 * that come while one is on its way collapse: the last one wins, and done comes when it, or a later
 * one, was set. */
typedef void command_resized_fn(void *user, const struct status *st);
must_check int command_resize(struct command *c, uint32_t cols, uint32_t rows, command_resized_fn *done,
			      void *user, struct command_op **ret);

/* One writer at a time: -EBUSY; -EPIPE: it has no open standard input. */
must_check int command_input_open(struct command *c);
void command_input_close(struct command *c);	/* gives the writer's place up, not an end of file */
/* `accepted`: bytes taken so far. OUTCOME_UNKNOWN: the chunk may or may not have arrived; the
 * evidence has its range, and it must not be sent again. One at a time. */
typedef void command_input_fn(void *user, const struct status *st, uint64_t accepted);
must_check int command_input_send(struct command *c, uint64_t offset, const void *p, size_t n,
				  uint64_t deadline_ms, command_input_fn *done, void *user,
				  struct command_op **ret);
/* End of file, after what was sent; repeating it is fine. UNSUPPORTED on a terminal. */
must_check int command_input_end(struct command *c, uint64_t deadline_ms, command_input_fn *done,
				 void *user, struct command_op **ret);

#endif
