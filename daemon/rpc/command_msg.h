/* SPDX-License-Identifier: MIT */
/* Command and CommandResult messages of a look at a command; they point into it. */
#ifndef AB_DAEMON_RPC_COMMAND_MSG_H
#define AB_DAEMON_RPC_COMMAND_MSG_H

#include "daemon/command/command.h"
#include "daemon/rpc/msg.h"
#include "proto/gen/agentbox_command.pb-c.h"

struct result_message {
	Agentbox__V1__CommandResult m;
	Google__Protobuf__Timestamp at;
};

struct command_message {
	Agentbox__V1__Command m;
	Agentbox__V1__StreamRange range[SPOOL_STREAMS];
	Google__Protobuf__Timestamp started, last_output, expires;
	struct result_message result;
	Agentbox__V1__Command__EnvsEntry *entries;
};

Agentbox__V1__CommandResult *command_msg_result(struct result_message *r, const struct command_view *v);
/* -ENOMEM leaves nothing to free. */
must_check int command_msg_fill(struct command_message *c, const struct command_view *v);
void command_msg_fini(struct command_message *c);

#define COMMAND_MSG_HEAD_MAX 48u
/* A CommandEvent with this piece of output, as it is encoded, up to its data: they follow as they are. Returns
 * its length. */
size_t command_msg_output_head(const struct spool_piece *p, uint8_t ret[COMMAND_MSG_HEAD_MAX]);

#endif
