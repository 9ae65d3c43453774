/* SPDX-License-Identifier: MIT */
/* Inside of CommandService, for svc_command*.c only: one call and what works for it. */
#ifndef AB_DAEMON_RPC_COMMAND_CALL_H
#define AB_DAEMON_RPC_COMMAND_CALL_H

#include "daemon/command/command.h"
#include "daemon/rpc/call.h"
#include "daemon/sandbox/rules/page.h"
#include "proto/gen/agentbox_command.pb-c.h"

struct cmd_call {
	struct rpc_call *call;
	struct commands *commands;
	struct command_op *op;
	struct command_reader *reader;
	struct command *command;	/* a ref; input streams and unary waits */
	bool follow, run, detach, input_open;
	bool closing, ended;		/* SendInput: `close` came; the client has sent its last message */
	bool acts;			/* on a command that runs: it is waited for until it is reached */
	/* What to do once the reference is resolved. */
	void (*with)(struct cmd_call *x, struct command *c);
	int signo;
	size_t page_size;
	uint64_t question;		/* of a list, for its page tokens */
	bool behind;			/* only what comes behind `last` */
	struct page_place last;
	struct command_read_from from;
	uint32_t cols, rows;		/* the size to set; 0 = none */
};

/* NULL: without memory; the call is over. */
struct cmd_call *cmd_call_new(struct rpc_call *call);
/* `end_it`: a Run's command that is not detached ends with it. */
void cmd_call_free(struct cmd_call *x, bool end_it);
/* The ends: each frees x. */
void cmd_call_fail(struct cmd_call *x, const struct status *st);
void cmd_call_fail_errno(struct cmd_call *x, int err);
void cmd_call_reply(struct cmd_call *x, const ProtobufCMessage *m);
void cmd_call_on_gone(struct rpc_call *call, enum rpc_gone why);
/* By its id. NULL: there is none, and the call is over. */
struct command *cmd_call_find_id(struct cmd_call *x, const char *id);
/* Resolves `ref` and goes on with x->with, at once or later. */
void cmd_call_find(struct cmd_call *x, const Agentbox__V1__CommandRef *ref);

extern const struct rpc_handler command_input_handler, command_close_input_handler;

#endif
