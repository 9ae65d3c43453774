/* SPDX-License-Identifier: MIT */
/* Commands in a test: the real module, core and store, over simulated time, the fake cloud and a scripted agent. */
#ifndef AB_TESTS_UNIT_COMMAND_WORLD_H
#define AB_TESTS_UNIT_COMMAND_WORLD_H

#include "daemon/command/command.h"
#include "tests/unit/command/agent.h"
#include "tests/unit/sandbox/world.h"

extern struct loop *world_loop;

struct shop {			/* where commands are made */
	struct world w;
	struct commands *cs;
	char sandbox[64];	/* one of alice's */
	uint64_t history_ms, spool_per_command, spool_per_uid, spool_total;	/* 0 = default */
};

void shop_open(struct shop *s);		/* what *s says of the options stays */
void shop_close(struct shop *s);
void shop_restart(struct shop *s);	/* a clean stop, and a new daemon */
/* Until nothing is left to be done at this moment. */
void turn(struct shop *s);

const char *world_dir_name(void);
unsigned open_files(void);	/* of this process */

/* What a call of the module answered. */
struct got {
	struct command_op *op;
	struct command *c;		/* a ref, with an OK start or find */
	bool done, found;
	struct status st;
	uint64_t accepted;
	uint32_t survivors[8];
	size_t n;			/* of them; of a list */
	char ids[16][32];
	uint32_t pids[16];
};

struct command_start a_start(const struct shop *s, const char *shell);
void start(struct shop *s, struct got *g, const struct command_start *what);
/* A command that runs, with this pid. */
struct command *running(struct shop *s, uint32_t pid);
struct command *running_as(struct shop *s, const struct command_start *what, uint32_t pid);
void got_drop(struct got *g);
void find_pid(struct shop *s, struct got *g, const struct principal *who, uint32_t pid);
void list_commands(struct shop *s, struct got *g, const struct principal *who, bool ended);
void kill_command(struct command *c, struct got *g);
void signal_command(struct command *c, struct got *g, int signo);
void send_input(struct command *c, struct got *g, uint64_t offset, const char *text);
void end_input(struct command *c, struct got *g);
void resize(struct command *c, struct got *g, uint32_t cols, uint32_t rows);

/* A reader that takes what it is told of, as long as it has room. */
struct view {
	struct command_reader *r;
	size_t room;			/* bytes that it may still take */
	char bytes[SPOOL_STREAMS][1 << 19];
	size_t n[SPOOL_STREAMS];
	unsigned gaps, pieces, told;
	char reason[16];		/* of the last gap */
	bool ended;
};

void look_from(struct command *c, struct view *v, const struct command_read_from *from);
void look(struct command *c, struct view *v);	/* from the beginning, with room for all */
void look_on(struct view *v);			/* takes what there is */
void look_away(struct view *v, bool end_it);

const struct command_result *result_of(struct command *c);	/* must be there */
bool has_ended(struct command *c);

#endif
