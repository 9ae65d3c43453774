/* SPDX-License-Identifier: MIT */
/*
 * A scripted agent: the functions of daemon/cloud/envd.h that commands use. Every request is noted as an ask, and
 * waits for the test to answer it; but a sandbox's setsid is there unless the test says otherwise. Nothing
 * is told from inside a call: the loop tells it.
 */
#ifndef AB_TESTS_UNIT_COMMAND_AGENT_H
#define AB_TESTS_UNIT_COMMAND_AGENT_H

#include "daemon/cloud/envd.h"
#include "daemon/common/ev/loop.h"

#define AGENT_ASKS  4096u
#define AGENT_WORDS 4096u	/* of one ask */

enum agent_what {
	AGENT_START,	/* a command */
	AGENT_HELPER,	/* a program of ours: a kill, a signal */
	AGENT_LOOK,	/* one that looks for processes that have ended */
	AGENT_ATTACH,
	AGENT_LIST,
	AGENT_INPUT,
	AGENT_CLOSE,
	AGENT_SIGNAL,
	AGENT_RESIZE,
	AGENT_STAT,
};

struct agent_ask {
	enum agent_what what;
	uint32_t pid;
	char sandbox[64], token[64], tag[64], cwd[64];
	char *words;			/* cmd and arguments, a space between them; or the input */
	size_t n_words;
	bool stdin_open, pty;
	uint32_t cols, rows;		/* start, resize */
	int signo;
	uint64_t at_ms, deadline_ms;
	bool over;			/* answered, or nobody waits for it any more */
	struct envd_stream *stream;	/* NULL once it is over */
	struct envd_call *call;
};

/* Of the world under way. */
struct agent {
	struct agent_ask asks[AGENT_ASKS];
	unsigned n_asks;
	bool hold_stat;			/* stats wait for the test, too */
	struct envd_process processes[16];	/* what a list says; strings are borrowed */
	size_t n_processes;
};
extern struct agent *agent;

void agent_begin(void);		/* a world begins */
void agent_end(void);

unsigned agent_count(enum agent_what what);
/* The n-th of its kind, from 0; -1: the last one. */
struct agent_ask *agent_ask(enum agent_what what, int n);

/* Of a stream. */
void agent_started(struct agent_ask *a, uint32_t pid);
void agent_says(struct agent_ask *a, enum envd_data_stream stream, const char *text);
void agent_says_bytes(struct agent_ask *a, enum envd_data_stream stream, const void *p, size_t n);
void agent_keepalive(struct agent_ask *a);
void agent_exits(struct agent_ask *a, int code);
void agent_killed(struct agent_ask *a);		/* by SIGKILL */
/* A stream ends by the agent's own record, with this code and message, which is borrowed. */
void agent_refuses(struct agent_ask *a, enum ab_code code, const char *text);
/* Of a stream or a call; a class of OK ends a stream by its own record. */
void agent_fails(struct agent_ask *a, enum envd_class cls, enum ab_reason reason, const char *text);
/* The stream's bytes that the daemon has not taken. */
size_t agent_unread(const struct agent_ask *a);
/* Of a call. A list says agent->processes. */
void agent_answers(struct agent_ask *a);

#endif
