/* SPDX-License-Identifier: MIT */
/* Standard input: ordered by offset, each chunk sent at most once, one writer at a time. */
#include <errno.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "proto/base/must.h"

int command_input_open(struct command *c)
{
	if (c->input_busy)
		return -EBUSY;
	c->input_busy = true;
	return 0;
}

void command_input_close(struct command *c)
{
	c->input_busy = false;
}

uint64_t command_input_accepted(const struct command *c)
{
	return c->input_accepted;
}

static bool check_open(struct command *c, struct status *st)
{
	if (c->state < CMD_ENDING && (c->foreign || c->pty || (c->stdin_open && !c->input_ended)))
		return true;
	status_set(st, R_PROCESS_STDIN_CLOSED, "the standard input of this command is %s",
		   c->state >= CMD_ENDING ? "gone, the command ended"
		   : c->input_ended	  ? "closed"
					  : "not open: start it with stdin");
	return false;
}

static void on_sent(struct envd_result *r, void *user)
{
	struct command_op *op = user;
	struct command *c = op->c;

	op->call = NULL;
	op->st = r->status;
	if (r->cls == ENVD_OK) {
		c->input_accepted = op->from + op->n;
	} else if (r->cls == ENVD_LOST) {
		status_set(&op->st, R_OUTCOME_UNKNOWN,
			   "whether these bytes of input arrived is not known; do not send them again");
		op->st.code = CODE_UNKNOWN;
		status_evidence(&op->st, "input_from", "%llu", (unsigned long long)op->from);
		status_evidence(&op->st, "input_to", "%llu", (unsigned long long)(op->from + op->n));
		c->input_accepted = op->from + op->n;
	} else if (r->cls == ENVD_ANSWERED && r->status.reason != R_PROCESS_NOT_FOUND) {
		status_set(&op->st, R_PROCESS_STDIN_CLOSED, "the command does not take input: %s",
			   r->status.text);
	}
	cmd_op_post(op);
}

int command_input_send(struct command *c, uint64_t offset, const void *p, size_t n,
		       uint64_t deadline_ms, command_input_fn *done, void *user, struct command_op **ret)
{
	struct command_op *op = cmd_op_new(c->cs, OP_INPUT, c, user);
	struct envd_target target = where_target(&c->at, NULL, deadline_ms);
	uint64_t skip;

	if (!op)
		return -ENOMEM;
	op->input = done;
	*ret = op;
	if (!check_open(c, &op->st)) {
		cmd_op_post(op);
		return 0;
	}
	if (offset > c->input_accepted) {
		status_set(&op->st, R_INPUT_OFFSET, "offset: %llu is beyond the %llu bytes taken so far",
			   (unsigned long long)offset, (unsigned long long)c->input_accepted);
		cmd_op_post(op);
		return 0;
	}
	skip = MIN(c->input_accepted - offset, (uint64_t)n);
	if (skip == n) {
		cmd_op_post(op);
		return 0;
	}
	op->from = c->input_accepted;
	op->n = n - skip;
	op->call = envd_send_input(&target, c->pid, c->pty, (const uint8_t *)p + skip, n - (size_t)skip,
				   on_sent, op);
	if (!op->call) {
		cmd_op_free(op);
		return -ENOMEM;
	}
	return 0;
}

static void on_ended(struct envd_result *r, void *user)
{
	struct command_op *op = user;

	op->call = NULL;
	op->st = r->status;
	if (r->cls == ENVD_OK)
		op->c->input_ended = true;
	cmd_op_post(op);
}

int command_input_end(struct command *c, uint64_t deadline_ms, command_input_fn *done, void *user,
		      struct command_op **ret)
{
	struct command_op *op = cmd_op_new(c->cs, OP_INPUT, c, user);
	struct envd_target target = where_target(&c->at, NULL, deadline_ms);

	if (!op)
		return -ENOMEM;
	op->input = done;
	*ret = op;
	if (c->pty && c->state < CMD_ENDING) {
		status_set(&op->st, R_UNSUPPORTED,
			   "a terminal has no end of file: send the byte 0x04 as input instead");
		cmd_op_post(op);
		return 0;
	}
	if (c->input_ended || !check_open(c, &op->st)) {
		cmd_op_post(op);
		return 0;
	}
	op->call = envd_close_stdin(&target, c->pid, on_ended, op);
	if (!op->call) {
		cmd_op_free(op);
		return -ENOMEM;
	}
	return 0;
}
