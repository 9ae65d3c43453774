/* SPDX-License-Identifier: MIT */
/* Inside of daemon/command, for its own files only. */
#ifndef AB_DAEMON_COMMAND_IMPL_H
#define AB_DAEMON_COMMAND_IMPL_H

#include "daemon/cloud/envd.h"
#include "daemon/command/command.h"
#include "daemon/ev/loop.h"
#include "proto/base/list.h"
#include "proto/base/map.h"

#define COMMAND_MAGIC	     0x636d6430u
#define COMMAND_ID_CHARS     20u
#define COMMAND_PIPE_BYTES   (32u * 1024)	/* the agent's largest chunk (CLOUD-WIRE §4.7) */
#define COMMAND_PUMP_EVENTS  64u		/* upstream events in one go; the rest next pass */
#define COMMAND_ENDED_PER_UID 1000u		/* ended ones kept; above, the oldest are forgotten */
#define COMMAND_RESIZE_MS    100u		/* between two sizes of one terminal */
#define COMMAND_REATTACH_MAX 5u			/* attempts without a byte or keep-alive between them */
#define COMMAND_ENV	     "AGENTBOX_COMMAND"	/* in every command's environment: its tag */

struct killer;

struct uid_share {
	uid_t uid;
	struct spool_quota quota;
	uint32_t n_ended;
};

struct commands {
	struct commands_options o;
	int spool_fd;
	struct map by_id;		/* command_id → struct command */
	struct map shares;		/* uid → struct uid_share */
	struct map setsid;		/* "account/sandbox" → (void *)1 has it, (void *)2 not */
	struct list all;		/* running ones first come, first */
	struct list ended;		/* oldest first */
	struct list ops;
	struct list dying;		/* without a ref; swept after the callbacks */
	struct defer sweep;
	struct spool_quota total;
	uint32_t n_running, n_ended, n_readers;
	struct timer evict;
};

/* Strings of one target, copied from life. */
struct where {
	struct cloud *cloud;
	char *account, *id, *domain, *token, *version;
	uint32_t generation;
	uid_t owner;
};

enum command_state {
	CMD_STARTING = 1,	/* sent, no pid yet */
	CMD_RUNNING,
	CMD_ATTACHING,		/* the stream was lost; asking for it again */
	CMD_ASKING,		/* asking lifecycle what became of the sandbox */
	CMD_ENDING,		/* the end is known; a kill is still counting survivors */
	CMD_ENDED,
};

/* The size of a terminal (terminal.c). */
struct terminal {
	uint32_t cols, rows;		/* the last one asked for */
	struct envd_call *call;
	struct timer again;		/* set: the next size waits for it */
	struct list waiting, in_flight;	/* struct command_op */
};

struct command {
	uint32_t magic;
	unsigned refs;
	struct commands *cs;
	struct uid_share *share;
	struct list node;
	enum command_state state;
	char id[1 + COMMAND_ID_CHARS + 1];
	char tag[32];
	struct where at;
	bool counts;			/* as use of its sandbox; see command_use() */
	char *shell, *user, *cwd;
	char **args;
	size_t n_args;
	struct life_pair *envs;
	size_t n_envs;
	uint32_t pid;
	bool group_known, group, foreign, detach, stdin_open, input_busy, input_ended, pty;
	int64_t started_at_ms, last_output_at_ms;
	uint64_t timeout_ms, kill_grace_ms;
	struct timer deadline;		/* command_timeout */
	struct spool *spool;
	uint64_t spool_limit;
	bool block;			/* upstream waits for the starter's reader */
	struct command_reader *starter;
	struct list readers;
	struct defer pump, tell;
	struct envd_stream *stream;
	struct envd_call *probe;	/* is there a setsid? */
	struct life_op *inquiry;
	struct timer retry;
	unsigned attempts;
	struct killer *killer;
	struct command_op *start_op;
	bool end_when_started;
	uint64_t input_accepted;
	struct terminal term;
	struct command_result result;
	bool truncated;			/* a hole of the upstream side */
};

struct command_reader {
	struct command *c;
	struct list node;
	struct spool_pos pos;
	command_news_fn *news;
	void *user;
	bool starter;
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
	struct list node;		/* cs->ops; OP_KILL, OP_RESIZE: whose they wait for */
	struct command *c;		/* a ref, or NULL */
	struct life_op *life;
	struct envd_call *call;
	struct envd_stream *stream;
	struct defer answer;		/* for answers known at once */
	struct status st;
	bool flag;			/* FIND, LIST: all/ended; SIGNAL: found */
	uint32_t pid;
	uid_t uid;
	bool admin;
	uint64_t deadline_ms, from, n;	/* INPUT: the range in doubt */
	struct where at;
	union {
		command_done_fn *done;
		command_list_fn *list;
		command_killed_fn *killed;
		command_input_fn *input;
		command_resized_fn *resized;
	};
	void *user;
};

int where_copy(struct where *w, const struct life_target *t);
void where_fini(struct where *w);
/* Borrowed view for one envd call. */
struct envd_target where_target(const struct where *w, const char *user, uint64_t deadline_ms);

struct command_op *cmd_op_new(struct commands *cs, enum op_kind kind, struct command *c, void *user);
struct command_op *cmd_op_free(struct command_op *op);
/* Answers from the loop, with op->st, by the kind's own rule. */
void cmd_op_post(struct command_op *op);

struct command *command_new(struct commands *cs, const struct where *w, uid_t uid);
int command_launch(struct command *c);		/* the start, or a foreign one's attach */
void command_forget(struct command *c);	/* a running one leaves the table */
/* Call it too for one that was found again after a restart. */
void command_use(struct command *c);
void command_destroy(struct command *c);
void command_set_state(struct command *c, enum command_state to);
void command_finish(struct command *c);		/* the result is filled: tells everybody */
void command_end_now(struct command *c);	/* kill without anybody waiting */
void command_wake(struct command *c);		/* news to every reader */
void commands_forget_surplus(struct commands *cs);

/* terminal.c */
void terminal_init(struct command *c);
void terminal_fini(struct command *c);		/* whoever waits is told that it ended */

/* killer.c */
void killer_free(struct killer *k);
bool killer_survivors(const struct killer *k, const uint32_t **ret, size_t *ret_n);

#endif
