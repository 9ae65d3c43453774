/* SPDX-License-Identifier: MIT */
/* The inside of daemon/command, for its own files only. */
#ifndef AB_DAEMON_COMMAND_IMPL_H
#define AB_DAEMON_COMMAND_IMPL_H

#include "daemon/auth/uid_quota.h"
#include "daemon/cloud/envd.h"
#include "daemon/command/command.h"
#include "daemon/common/ev/loop.h"
#include "daemon/store/store.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/seen.h"
#include "proto/wire/trace.h"

#define COMMAND_MAGIC	     0x636d6430u
#define COMMAND_ID_CHARS     20u
#define COMMAND_PIPE_BYTES   (32u * 1024)	/* the agent's largest chunk of output */
#define COMMAND_PUMP_EVENTS  64u		/* upstream events of a command that one pass takes */
#define COMMAND_ENDED_PER_UID 1000u		/* ended commands that are kept; above it the oldest are forgotten */
#define COMMAND_RESIZE_MS    100u		/* between two sizes of one terminal */
#define COMMAND_REATTACH_MS  120000u		/* how long a stream that is cut again and again is attached to again */
#define COMMAND_STOOD_MS     10000u		/* a stream that was open for so long counts as progress, although nothing came */
#define COMMAND_BEGIN_MS     75000u		/* how long an opened stream may say nothing before it counts as lost; longer than its head may take */
#define COMMAND_START_MS     30000u		/* how long a start without a deadline is sent again if it was not processed */
#define COMMAND_ASK_MAX_MS   30000u		/* the longest wait between two questions about a sandbox out of reach */
#define COMMAND_FIND_MS	     3000u		/* how long the process of a start whose answer was lost is looked for */
#define COMMAND_REQUESTS_MAX 50000u		/* rows of request ids that a uid may have; those used longest ago go first */
#define COMMAND_REFUSED_MS   60000u		/* how long a request id repeats the cloud's refusal */
#define COMMAND_REQUEST_MS   (7 * 86400000ll)	/* how long a request id's row is kept after its last use */
#define COMMAND_SETSID_MAX   10000u			/* entries of commands.setsid; above it all are dropped */
#define COMMAND_HELPER	     "agentbox-helper"	/* tag of our own processes in a sandbox: no list shows them */
#define COMMAND_TAG	     "agentbox-"		/* with the id behind it: the tag of a command */
#define COMMAND_ENV	     "AGENTBOX_COMMAND"	/* variable in every command's environment: its id */

struct kill_call;

/* The commands of a uid, and what they may use. */
struct uid_share {
	uid_t uid;
	struct spool_quota quota;	/* of output; its `memory` is a child of `memory` below */
	uint32_t n_running, n_ended;
	struct list ended;		/* struct command, share_node; oldest first */
	struct list kept;		/* the ended ones that have output, kept_node */
	struct quota *memory;		/* the uid's memory; NULL = not charged */
	uint64_t held;			/* bytes of `memory` that commands have charged */
};

/* The commands of a sandbox id (several accounts may have it); exists as long as there is one. */
struct sandbox_commands {
	char *id;
	struct list running, ended;	/* struct command, sandbox_node */
};

struct commands {
	struct commands_options o;
	struct sandbox_core *core;		/* NULL until commands_take_up() */
	struct spool_dir spools;
	struct map by_id;		/* command_id → struct command */
	struct map shares;		/* uid → struct uid_share */
	struct map by_sandbox;		/* id → struct sandbox_commands */
	struct map setsid;		/* "account/sandbox/generation" → SETSID_… (start.c): does it have /usr/bin/setsid? */
	struct list all;		/* those that have not ended, in the order of their starts */
	uint32_t n_running;		/* length of `all` */
	struct list ended;		/* oldest first */
	struct list kept;		/* the ended ones that have output, kept_all_node */
	struct list ops;
	struct list dying;		/* commands without a ref; `sweep` frees them after the callbacks */
	struct defer sweep;
	struct spool_quota total;
	struct timer evict;
	struct map requests;		/* request_key() → struct cmd_request */
	struct list request_list;
	struct seen stored_requests;	/* keys of those that may have a row although they are not in memory */
	uint32_t requests_let_go;	/* how many left memory since their rows were last pruned */
	uint64_t requests_pruned_ms;	/* BOOTTIME; 0 = not in this run */
	struct list refused;		/* struct refused_command (saved.c) */
	bool keep_spools;		/* no spool is removed: a refused row does not say which command it is of */
	struct list writes;		/* struct cmd_write */
	struct list looks;		/* struct exit_watch_call: scripts under way */
	char boot[40];			/* boot id of this machine */
	bool closing;			/* commands_free(): files and rows stay */
};

enum command_state {
	CMD_STARTING = 1,	/* no pid yet */
	CMD_FINDING,		/* its process is looked for by its tag */
	CMD_RUNNING,
	CMD_ATTACHING,		/* the stream was lost, and a new one is asked for */
	CMD_ASKING,		/* the sandbox module is asked what became of the sandbox */
	CMD_ENDING,		/* the end is known; survivors of a kill are counted, or the end is being written */
	CMD_ENDED,
};

/* The size of a terminal (terminal.c). */
struct terminal {
	uint32_t cols, rows;		/* the last one asked for */
	struct envd_call *call;
	struct timer again;		/* while it is set no size is sent */
	struct list waiting, in_flight;	/* struct command_op */
};

/* Of a command: is its process still there (exit_watch.c)? All times BOOTTIME. */
struct exit_watch {
	struct timer due;		/* the next look, or the next check whether its output is over */
	uint64_t wait_ms;		/* before the next look */
	unsigned seen;			/* how many looks in a row saw it dead */
	bool told;			/* the look that is being evaluated saw it dead */
	uint32_t status;		/* wait status of its main process */
	uint64_t heard_at_ms;		/* when output came last */
	uint64_t free_at_ms;		/* since when nothing but output holds its end back */
};

/* A request id of Start or Run, and the command that it started. */
struct cmd_request {
	struct list node;		/* cs->request_list */
	struct uid_share *share;
	char *method, *id, *key;
	uint8_t hash[32];
	char command_id[1 + COMMAND_ID_CHARS + 1];
	struct command *c;		/* borrowed; NULL: it was refused */
	int64_t used_at_ms;		/* wall: as its row has it */
	struct status *refused;		/* owned: the refusal that repeats get; NULL = none */
	uint64_t refused_until_ms;	/* BOOTTIME */
};

typedef void command_written_fn(struct command *c, const struct status *st);

/* A commit, or a read, whose end something waits for. */
struct cmd_write {
	struct list node;		/* cs->writes */
	struct commands *cs;
	struct command *c;		/* a ref */
	command_written_fn *done;
};

enum launch {				/* the step of a start, in CMD_STARTING */
	LAUNCH_RESOLVING = 0,		/* its sandbox is looked for */
	LAUNCH_WRITING,			/* its row is being written */
	LAUNCH_SENT,
};

struct command {
	uint32_t magic;
	unsigned refs;
	struct commands *cs;
	struct uid_share *share;
	struct sandbox_commands *sandbox;	/* NULL until its sandbox is known */
	enum { LISTED_NOWHERE, LISTED_RUNNING, LISTED_ENDED } listed;
	struct list node;		/* cs->all or cs->ended, then cs->dying */
	struct list share_node, kept_node, kept_all_node, sandbox_node;	/* owners.c */
	enum command_state state;
	char id[1 + COMMAND_ID_CHARS + 1];
	char tag[32];			/* of one that is not plain */
	char *own_tag;			/* of a plain one: the caller's; NULL = none, or of an earlier run */
	struct agent_address at;
	char *shell, *user, *cwd;
	char **args;
	size_t n_args;
	struct sandbox_pair *envs;
	size_t n_envs;
	uint32_t pid;
	bool group_known, group, foreign, detach, stdin_open, input_busy, input_ended, pty;
	bool plain;			/* nothing of ours is in it (command_start.plain) */
	uint32_t agent_timeout_ms;	/* of a plain one */
	bool started;			/* its pid is in the store, and the calls that waited were answered */
	bool final;			/* `result` is complete, and is in the store or being written */
	bool in_use;			/* it keeps its sandbox in use, and is tied to it */
	struct sandbox_tie tie;
	bool has_row;			/* a row is in the store, or being written */
	bool verify;			/* the pid may be another process's by now: the process list is asked first */
	bool was_paused, restarted;	/* why the next gap, or an end that nobody saw, came about */
	bool retry_asks;		/* the retry timer asks about the sandbox before it attaches */
	struct trace trace;		/* of whoever started it */
	enum launch launch;
	struct cmd_request *request;	/* borrowed */
	int64_t made_at_ms, started_at_ms, last_output_at_ms, deadline_at_ms;	/* wall; 0 = not yet, or none */
	uint64_t timeout_ms, kill_grace_ms;
	uint64_t time_left_ms;		/* of timeout_ms, while its sandbox is paused */
	struct timer deadline;		/* the end of timeout_ms */
	struct timer orphan;		/* after a restart: ends it if no reader comes back */
	struct spool *spool;
	uint64_t spool_limit;
	bool spool_held;		/* spool_is_held() as it was logged last */
	bool block;			/* upstream waits for `starter` */
	struct command_reader *starter;	/* the reader of the Run; NULL = none */
	struct list readers;
	struct defer pump;		/* takes upstream events */
	struct defer tell;		/* calls the readers, in the last stage of a pass */
	bool pump_waits;		/* `tell` has to come before `pump` goes on */
	struct envd_stream *stream;
	struct envd_call *probe;	/* asks whether the sandbox has setsid */
	bool probe_waits;		/* another command's probe asks for this one, too */
	struct envd_call *look;		/* asks for the process list */
	struct sandbox_op *inquiry;	/* asks the sandbox module about the sandbox */
	struct timer retry;
	uint64_t start_by_ms;		/* BOOTTIME: until then a start that was not processed is sent again */
	bool token_refused;		/* the agent refused the start's token; a fresh one is tried once */
	uint64_t stood_at_ms;		/* BOOTTIME since when the stream is confirmed; 0 = it is not */
	uint64_t cut_at_ms;		/* BOOTTIME of the first cut since progress; 0 = none, or the sandbox was out of reach since */
	unsigned cuts;			/* cuts since progress (note_progress()) */
	unsigned asks;			/* questions since progress: each waits longer than the one before */
	uint64_t find_by_ms;		/* BOOTTIME: until then its process is looked for; 0 = no process list came yet */
	unsigned finds;			/* process lists that came */
	struct kill_call *kill_call;
	struct list start_ops;		/* struct command_op: calls that wait for the start */
	struct list reach_ops;		/* … that act on it, and wait for command_is_reached() */
	struct timer reach;		/* they wait no longer */
	bool end_when_started;
	struct spool_input input;	/* bytes between accepted and sent are under way, or in doubt */
	struct terminal term;
	struct exit_watch exit_watch;
	size_t held;			/* bytes charged to its uid's memory */
	struct command_result result;
	bool truncated;			/* output was lost before it reached the spool */
};

static inline struct command *command_from(void *p)
{
	struct command *c = p;

	must(c && c->magic == COMMAND_MAGIC);
	return c;
}

struct command_reader {
	struct command *c;
	struct list node;
	struct spool_pos pos;
	command_ready_fn *on_ready;
	void *user;
	bool run;			/* its caller called Run, or a plain command waits for it */
};

enum op_kind {
	OP_START,
	OP_FIND,
	OP_LIST,
	OP_KILL,
	OP_SIGNAL,
	OP_INPUT,
	OP_RESIZE,
};

struct command_op {
	enum op_kind kind;
	struct commands *cs;
	struct list node;		/* cs->ops; START, FIND, KILL, RESIZE: whose they wait for */
	struct command *c;		/* a ref, or NULL */
	struct sandbox_op *core;
	struct envd_call *call;
	struct envd_stream *stream;
	struct defer answer;		/* for answers known at once */
	struct status st;
	bool joined;			/* START, FIND: on the command's start_ops */
	bool flag;			/* FIND, LIST: all/ended; SIGNAL: found */
	bool asked;			/* LIST: the sandbox module was asked, after the agent was not reached */
	uint32_t pid;
	uid_t uid;
	bool admin;
	uint64_t deadline_ms, from, n;	/* INPUT: the range in doubt */
	struct agent_address at;
	union {
		command_done_fn *done;
		command_list_fn *list;
		command_killed_fn *killed;
		command_input_fn *input;
		command_resized_fn *resized;
	};
	void *user;
};

/* For one call to the agent. */
static inline struct envd_target agent_target(const struct agent_address *at, const char *user,
					      uint64_t deadline_ms)
{
	return (struct envd_target){ .at = *at, .user = user, .deadline_ms = deadline_ms };
}

struct command_op *cmd_op_new(struct commands *cs, enum op_kind kind, struct command *c, void *user);
struct command_op *cmd_op_free(struct command_op *op);
/* Answers with op->st, from the loop. */
void cmd_op_post(struct command_op *op);
/* Ends the calls to the agent that ops of this command wait for; they answer st. */
void cmd_ops_end(struct command *c, const struct status *st);
/* The error for a command of an earlier run whose sandbox was not reached in time. */
void cmd_taking_up(struct status *ret);

/* command.c */

/* May the agent be asked to act on its process? Not so after a restart, as long as the sandbox is not reached or the process is looked for. */
bool command_can_begin(const struct command *c);
must_check int command_new(struct commands *cs, uid_t uid, const char *id, struct command **ret);
void command_forget(struct command *c);	/* a running one leaves the table; its row goes too */
void command_destroy(struct command *c);
void command_set_state(struct command *c, enum command_state to);
void command_finish(struct command *c);		/* its outcome is set: writes the end, then tells readers */
void command_end_with(struct command *c, enum command_outcome outcome, const struct status *why);
/* Its sandbox is gone, for the reason in st: ends it, and answers the calls that wait for the agent. */
void command_sandbox_gone(struct command *c, const struct status *st);
void command_use(struct command *c, bool on);	/* keeps its sandbox in use, or no longer */
void command_flush(struct command *c);		/* writes what came to the file */
void command_wake(struct command *c);		/* the same in the last stage of the pass, and tells readers */
/* Logs that the spool lost output; err: -errno of one of its calls. */
void command_note_spool(struct command *c, int err);

/* memory.c */
must_check int share_open_memory(struct uid_share *s, struct uid_quotas *quotas);	/* 0, -ENOMEM */
void share_size_memory(struct uid_share *s);	/* by the maximum that its uid has now */
void share_close_memory(struct uid_share *s);
bool share_is_short(const struct uid_share *s);		/* outputs use three quarters of their memory */
size_t command_start_bytes(const struct command_start *s);
/* Charges n bytes to its uid. 0, or -EDQUOT. */
must_check int command_hold(struct command *c, size_t n);
void command_hold_restored(struct command *c);	/* for one of an earlier run; never refused */
void command_let_go(struct command *c);		/* gives the charge back */
bool command_is_surplus(const struct uid_share *s);	/* commands hold more than their part of the uid's memory */

/* owners.c */
struct uid_share *share_of(struct commands *cs, uid_t uid);
struct sandbox_commands *sandbox_commands_of(const struct commands *cs, const char *id);	/* NULL: it has none */
must_check int command_join_sandbox(struct command *c);	/* once, when c->at is set */
void command_lists_init(struct command *c);
void command_list_running(struct command *c);
void command_list_ended(struct command *c);	/* its end is known */
void command_unlist(struct command *c);
/* Forgets the oldest ended commands of a uid above its limits. Where three quarters of the space for output are used, of the uid
 * or of all, drops the output of ended commands, the oldest first. */
void commands_trim(struct commands *cs, struct uid_share *share);

/* start.c */
must_check int command_launch(struct command *c);	/* the start, or a foreign one's attach */
void command_start_answer(struct command *c, const struct status *st);	/* to all calls that wait for it */
void command_probe_drop(struct command *c);
void command_is_started(struct command *c);	/* it runs: writes its row, then answers */
void command_start_failed(struct command *c, const struct status *st);	/* nothing runs: answers, and forgets the command */
void command_start_cancel(struct command_op *op, bool end_it);
void command_start_again(struct command *c);	/* after a request that was not processed */
/* An agent that cannot start a command repeats the whole line: takes our wrapper out of that text. */
void command_hide_wrapper(struct status *st);

/* stream.c */
void command_on_ready(struct envd_stream *s, void *user);
void command_pump(struct defer *d, void *user);
void command_on_retry(struct timer *t, void *user);
void command_await_start(struct command *c);	/* its stream was asked for, and has to say that the command runs */
void command_hurry(struct command *c);		/* one that waits for the end of a pause asks at once */
void command_find(struct command *c);		/* looks for its process by its tag */
void command_on_sandbox(void *user, enum sandbox_tie_event event, const struct status *st);
enum sandbox_evidence command_evidence(enum envd_class cls);	/* of a failure that was no answer */
void command_ask(struct command *c, enum sandbox_evidence what);
bool command_may_take(const struct command *c);	/* is there room for one more chunk from upstream? */

/* exit_watch.c */
void exit_watch_watch(struct command *c);		/* it has a stream now */
void exit_watch_heard(struct command *c);		/* output came */
void exit_watch_on_due(struct timer *t, void *user);
void exit_watches_fini(struct commands *cs);

/* saved.c */
must_check int command_row_put(struct store_tx *t, const struct command *c);
void command_save(struct command *c);		/* writes its row without waiting */
void command_unsave(struct command *c);		/* deletes its row */
/* Commits and calls done, never from inside; not after commands_free(). */
must_check int command_write(struct command *c, struct store_tx *t, bool durable, command_written_fn *done);
must_check int command_write_row(struct command *c, command_written_fn *done);	/* the same with its row; -ENOENT without one */
must_check int commands_load(struct commands *cs, struct store *store);
void commands_forget_refused(struct commands *cs);	/* from memory */

/* request.c */
void requests_fini(struct commands *cs);
must_check int request_add(struct commands *cs, const struct row_command_request *row,
			   struct cmd_request **ret);
/* Was the id used before? -ENOENT: not as far as memory knows; 0: by *ret_c; 1: refused with *ret_st. */
/* A row was found whose id is not taken into memory. */
void request_note_stored(struct commands *cs, const struct row_command_request *row);
/* False: it is certain that the store had no row of an id when it was taken into memory. */
bool request_may_have_row(const struct commands *cs, const struct cmd_request *q);
must_check int request_look(struct commands *cs, uid_t uid, const char *method, const char *id,
			    const uint8_t hash[32], struct command **ret_c, struct status *ret_st);
void request_row(const struct cmd_request *q, struct row_command_request *ret);
void request_drop(struct cmd_request *q);		/* nothing was started: the id may be used again */
void request_refuse(struct cmd_request *q, const struct status *st);
/* The answer to a repeat of a row's request id, whose command is forgotten; counts as a use of the id. */
void request_refuse_repeat(struct commands *cs, const struct row_command_request *row, const uint8_t hash[32],
			   struct status *ret_st);
void request_gone(struct command *c);			/* the command is forgotten: its request id stays as a row alone */
void requests_expire(struct commands *cs, int64_t now_wall_ms);

/* input.c */
void command_input_lost(struct command *c, struct command_op *op);	/* op's bytes may or may not have arrived */

/* kill_call.c */
void command_end_now(struct command *c);	/* kills it without a waiter */
void kill_call_go(struct command *c);		/* the sandbox can be reached: begins a kill that waited for that */
void kill_call_skip(struct kill_call *k);		/* the command ended: ends a kill that has not begun */
void kill_call_abandon(struct command *c);		/* the sandbox is gone: ends the kill */

/* terminal.c */
void terminal_init(struct command *c);
void terminal_fini(struct command *c);		/* answers waiting calls with PROCESS_NOT_FOUND */

void kill_call_free(struct kill_call *k);
bool kill_call_survivors(const struct kill_call *k, const uint32_t **ret, size_t *ret_n);

#endif
