/* SPDX-License-Identifier: MIT */
/* Inside of daemon/command, for its own files only. */
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

#define COMMAND_MAGIC	     0x636d6430u
#define COMMAND_ID_CHARS     20u
#define COMMAND_PIPE_BYTES   (32u * 1024)	/* the agent's largest chunk (CLOUD-WIRE §4.7) */
#define COMMAND_PUMP_EVENTS  64u		/* upstream events in one go; the rest next pass */
#define COMMAND_ENDED_PER_UID 1000u		/* ended ones kept; above, the oldest are forgotten */
#define COMMAND_RESIZE_MS    100u		/* between two sizes of one terminal */
#define COMMAND_REATTACH_MS  120000u		/* a stream that is cut again and again is given up after it */
#define COMMAND_STOOD_MS     10000u		/* one that stood so long was no failure, although nothing came */
#define COMMAND_START_MS     30000u		/* a start without a deadline that was not processed is repeated */
#define COMMAND_ASK_MAX_MS   30000u		/* between two questions about a sandbox out of reach */
#define COMMAND_FIND_MS	     3000u		/* a start whose answer was lost is looked for */
#define COMMAND_REQUESTS_MAX 50000u		/* request ids of a uid without a command; those used longest ago go first */
#define COMMAND_REFUSED_MS   60000u		/* so long a request id repeats the cloud's refusal */
#define COMMAND_REQUEST_MS   (7 * 86400000ll)	/* kept so long after its last use */
#define COMMAND_SETSID_MAX   10000u			/* sandboxes known to have it or not; then all are asked again */
#define COMMAND_HELPER	     "agentbox-helper"	/* tag of our own processes there: in no list */
#define COMMAND_TAG	     "agentbox-"		/* and the id: tag of a command */
#define COMMAND_ENV	     "AGENTBOX_COMMAND"	/* in every command's environment: its tag */

struct kill_call;

/* What one uid has. */
struct uid_share {
	uid_t uid;
	struct spool_quota quota;	/* its `memory` is a part of the next one */
	uint32_t n_running, n_ended;
	struct list ended;		/* struct command, share_node; oldest first */
	struct list kept;		/* those of them that have output, kept_node */
	struct quota *memory;		/* the uid's; NULL = nobody counts */
	uint64_t held;			/* of it, by commands */
};

/* The commands of the sandbox, or sandboxes of several accounts, with one id; there as long as it has any. */
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
	struct map setsid;		/* "account/sandbox/generation" → (void *)1 has it, (void *)2 not */
	struct list all;		/* running ones first come, first */
	uint32_t n_running;		/* on it */
	struct list ended;		/* oldest first */
	struct list kept;		/* those of them that have output, kept_all_node */
	struct list ops;
	struct list dying;		/* without a ref; swept after the callbacks */
	struct defer sweep;
	struct spool_quota total;
	struct timer evict;
	struct map requests;		/* request_key() → struct cmd_request */
	struct list request_list;
	uint32_t requests_let_go;	/* since their rows were last pruned */
	uint64_t requests_pruned_ms;	/* 0 = not by this daemon */
	struct list refused;		/* struct refused_command (saved.c) */
	bool keep_spools;		/* … of a row that does not say which command it is */
	struct list writes;		/* struct cmd_write */
	struct list looks;		/* struct exit_watch_call: helpers on their way */
	char boot[40];			/* boot id of this machine */
	bool closing;			/* files and rows stay */
};

enum command_state {
	CMD_STARTING = 1,	/* on its way, no pid yet */
	CMD_FINDING,		/* its process is looked for by tag */
	CMD_RUNNING,
	CMD_ATTACHING,		/* the stream was lost; asking for it again */
	CMD_ASKING,		/* asking lifecycle what became of the sandbox */
	CMD_ENDING,		/* the end is known; a kill still counts survivors, or it is being written */
	CMD_ENDED,
};

/* The size of a terminal (terminal.c). */
struct terminal {
	uint32_t cols, rows;		/* the last one asked for */
	struct envd_call *call;
	struct timer again;		/* set: the next size waits for it */
	struct list waiting, in_flight;	/* struct command_op */
};

/* Is its process still there (exit_watch.c)? */
struct exit_watch {
	struct timer due;		/* the next look, or when it is over */
	uint64_t wait_ms;		/* before that look */
	unsigned seen;			/* times it was seen dead */
	bool told;			/* by the look that is evaluated */
	uint32_t status;		/* as wait() says it */
	uint64_t heard_at_ms;		/* the last output */
	uint64_t free_at_ms;		/* since then nothing holds its end back */
};

/* A request id: the same command for the same parameters. Its row lies beside the command's. */
struct cmd_request {
	struct list node;		/* cs->request_list */
	struct uid_share *share;
	char *method, *id, *key;
	uint8_t hash[32];
	char command_id[1 + COMMAND_ID_CHARS + 1];
	struct command *c;		/* borrowed; NULL: it was refused */
	int64_t used_at_ms;
	struct status *refused;
	uint64_t refused_until_ms;
};

typedef void command_written_fn(struct command *c, const struct status *st);

/* A row on its way to the store, for which something waits. */
struct cmd_write {
	struct list node;		/* cs->writes */
	struct commands *cs;
	struct command *c;		/* a ref */
	command_written_fn *done;
};

enum launch {				/* how far a start is, in CMD_STARTING */
	LAUNCH_RESOLVING = 0,
	LAUNCH_WRITING,			/* its row */
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
	char tag[32];
	struct agent_address at;
	char *shell, *user, *cwd;
	char **args;
	size_t n_args;
	struct sandbox_pair *envs;
	size_t n_envs;
	uint32_t pid;
	bool group_known, group, foreign, detach, stdin_open, input_busy, input_ended, pty;
	bool started;			/* its pid is in the store, its callers have been told */
	bool final;			/* the result is known, and on its way to the store */
	bool in_use;			/* it keeps its sandbox in use, and is tied to it */
	struct sandbox_tie tie;
	bool has_row;			/* a row is in the store, or on its way there */
	bool verify;			/* time has passed: look at the process before trusting its pid */
	bool was_paused, restarted;	/* what the next gap, or end, is put down to */
	bool retry_asks;		/* the retry timer asks lifecycle first */
	enum launch launch;
	struct cmd_request *request;	/* borrowed */
	int64_t made_at_ms, started_at_ms, last_output_at_ms, deadline_at_ms;
	uint64_t timeout_ms, kill_grace_ms;
	uint64_t time_left_ms;		/* of command_timeout, while its sandbox is paused */
	struct timer deadline;		/* command_timeout */
	struct timer orphan;		/* nobody came back for it after a restart */
	struct spool *spool;
	uint64_t spool_limit;
	bool spool_held;		/* as it was logged last */
	bool block;			/* upstream waits for the starter's reader */
	struct command_reader *starter;
	struct list readers;
	struct defer pump;		/* upstream events */
	struct defer tell;		/* readers, at the end of the pass */
	bool pump_waits;		/* until they were told */
	struct envd_stream *stream;
	struct envd_call *probe;	/* is there a setsid? */
	bool probe_waits;		/* another command of the sandbox asks */
	struct envd_call *look;		/* for its process */
	struct sandbox_op *inquiry;
	struct timer retry;
	uint64_t start_by_ms;		/* until then a start that was not processed is sent again */
	bool token_refused;		/* of the start; a fresh one is tried once */
	uint64_t stood_at_ms;		/* the stream: since its process was confirmed; 0 = not yet */
	uint64_t cut_at_ms;		/* the first cut since something came; 0 = none, or out of reach since */
	unsigned cuts;			/* since something came */
	unsigned asks;			/* questions since something came: the next one waits longer */
	uint64_t find_by_ms;		/* until then its process is looked for; 0 = no look was answered */
	unsigned finds;			/* looks that were answered */
	struct kill_call *kill_call;
	struct list start_ops;		/* struct command_op: who waits for the start */
	bool end_when_started;
	struct spool_input input;	/* sent above accepted: on its way, or in doubt */
	struct terminal term;
	struct exit_watch exit_watch;
	size_t held;			/* of its uid's memory */
	struct command_result result;
	bool truncated;			/* a hole of the upstream side */
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
	bool run;			/* its caller called Run */
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
	bool asked;			/* LIST: lifecycle, after the agent was not reached */
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
/* Answers from the loop, with op->st, by the kind's own rule. */
void cmd_op_post(struct command_op *op);
/* Ends the calls to the agent that ops of this command wait for; they answer st. */
void cmd_ops_end(struct command *c, const struct status *st);
/* A command of an earlier run whose sandbox was not reached yet: ABORTED, ask again. */
void cmd_taking_up(struct status *ret);

/* command.c */
must_check int command_new(struct commands *cs, uid_t uid, const char *id, struct command **ret);
void command_forget(struct command *c);	/* a running one leaves the table; its row goes too */
void command_destroy(struct command *c);
void command_set_state(struct command *c, enum command_state to);
void command_finish(struct command *c);		/* the result is filled: tells everybody */
void command_end_with(struct command *c, enum command_outcome outcome, const struct status *why);
/* Its sandbox is gone, for the reason in st: whatever was asked of it is answered, and it has ended. */
void command_sandbox_gone(struct command *c, const struct status *st);
void command_use(struct command *c, bool on);	/* once its sandbox is known */
void command_flush(struct command *c);		/* what came is in the file */
void command_wake(struct command *c);		/* the same at the end of the pass, then news to every reader */
/* The spool could not keep what came: -errno of one of its calls, said once. */
void command_note_spool(struct command *c, int err);

/* memory.c */
must_check int share_open_memory(struct uid_share *s, struct uid_quotas *quotas);	/* 0, -ENOMEM */
void share_close_memory(struct uid_share *s);
bool share_is_short(const struct uid_share *s);		/* of memory for outputs */
size_t command_start_bytes(const struct command_start *s);
/* Charges n bytes to its uid. 0, or -EDQUOT. */
must_check int command_hold(struct command *c, size_t n);
void command_hold_restored(struct command *c);	/* of an earlier run: what it is now; never refused */
void command_let_go(struct command *c);
bool command_is_surplus(const struct uid_share *s);	/* its commands hold too much */

/* owners.c */
struct uid_share *share_of(struct commands *cs, uid_t uid);
struct sandbox_commands *sandbox_commands_of(const struct commands *cs, const char *id);	/* NULL: it has none */
must_check int command_join_sandbox(struct command *c);	/* its address says which one; once */
void command_lists_init(struct command *c);
void command_list_running(struct command *c);
void command_list_ended(struct command *c);	/* its end is known */
void command_unlist(struct command *c);
/* Forgets the oldest ended ones of a uid above its number; where a uid, or all, have used three quarters of
 * their room, the oldest output of ended ones makes room for those that run. */
void commands_trim(struct commands *cs, struct uid_share *share);

/* start.c */
must_check int command_launch(struct command *c);	/* the start, or a foreign one's attach */
void command_start_answer(struct command *c, const struct status *st);	/* to all who wait for it */
void command_probe_drop(struct command *c);
void command_is_started(struct command *c);	/* it runs: writes its row, then answers */
void command_start_failed(struct command *c, const struct status *st);	/* nothing runs: nothing is left */
void command_start_cancel(struct command_op *op, bool end_it);
void command_start_again(struct command *c);	/* what was not processed */
/* An agent that cannot start a command repeats the whole line: our own part of it says nothing to anybody. */
void command_hide_wrapper(struct status *st);

/* stream.c */
void command_on_ready(struct envd_stream *s, void *user);
void command_pump(struct defer *d, void *user);
void command_on_retry(struct timer *t, void *user);
void command_hurry(struct command *c);
void command_find(struct command *c);		/* by its tag */
void command_on_sandbox(void *user, enum sandbox_tie_event event, const struct status *st);
enum sandbox_evidence command_evidence(enum envd_class cls);	/* of a failure that was no answer */
void command_ask(struct command *c, enum sandbox_evidence what);
bool command_may_take(const struct command *c);	/* one more chunk from upstream */

/* exit_watch.c */
void exit_watch_watch(struct command *c);		/* it has a stream, from now on or again */
void exit_watch_heard(struct command *c);		/* output came */
void exit_watch_on_due(struct timer *t, void *user);
void exit_watches_fini(struct commands *cs);

/* saved.c */
must_check int command_row_put(struct store_tx *t, const struct command *c);
void command_save(struct command *c);		/* what it is now, without waiting */
void command_unsave(struct command *c);
/* Commits and calls done, never from inside; not after the end of all commands. */
must_check int command_write(struct command *c, struct store_tx *t, bool durable, command_written_fn *done);
must_check int command_write_row(struct command *c, command_written_fn *done);	/* what it is now; -ENOENT without a row */
must_check int commands_load(struct commands *cs, struct store *store);
void commands_forget_refused(struct commands *cs);	/* from memory */

/* request.c */
void requests_fini(struct commands *cs);
must_check int request_add(struct commands *cs, const struct row_command_request *row,
			   struct cmd_request **ret);
/* What became of an earlier use: -ENOENT none; 0 and *ret_c, the same command; 1 and *ret_st, why not. */
must_check int request_look(struct commands *cs, uid_t uid, const char *method, const char *id,
			    const uint8_t hash[32], struct command **ret_c, struct status *ret_st);
void request_row(const struct cmd_request *q, struct row_command_request *ret);
void request_drop(struct cmd_request *q);		/* nothing happened: it may be used again */
void request_refuse(struct cmd_request *q, const struct status *st);
/* Says in *ret_st what became of the command of a row; this is a use of it. */
void request_refuse_repeat(struct commands *cs, const struct row_command_request *row, const uint8_t hash[32],
			   struct status *ret_st);
void request_gone(struct command *c);			/* the command's record goes: the request id is a row alone */
void requests_expire(struct commands *cs, int64_t now_wall_ms);

/* input.c */
void command_input_lost(struct command *c, struct command_op *op);	/* whether it arrived is not known */

/* kill_call.c */
void command_end_now(struct command *c);	/* kill without anybody waiting */
void kill_call_go(struct command *c);		/* its sandbox is known: a kill that waited begins */
void kill_call_skip(struct kill_call *k);		/* the end came before it could begin */
void kill_call_abandon(struct command *c);		/* its sandbox is gone: so is all that ran there */

/* terminal.c */
void terminal_init(struct command *c);
void terminal_fini(struct command *c);		/* whoever waits is told that it ended */

void kill_call_free(struct kill_call *k);
bool kill_call_survivors(const struct kill_call *k, const uint32_t **ret, size_t *ret_n);

#endif
