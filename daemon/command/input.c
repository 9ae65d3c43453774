/* SPDX-License-Identifier: MIT */
/* Standard input: ordered by offset, each chunk sent at most once, one writer at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
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

static bool check_open(struct command *c, struct status *st)
{
	if (c->state < CMD_ENDING && (!c->at.cloud || !c->pid)) {
		cmd_taking_up(st);
		return false;
	}
	if (c->state < CMD_ENDING && (c->foreign || c->pty || (c->stdin_open && !c->input_ended)))
		return true;
	status_set(st, R_PROCESS_STDIN_CLOSED, "the standard input of this command is %s",
		   c->state >= CMD_ENDING ? "gone, the command ended"
		   : c->input_ended	  ? "closed"
					  : "not open: start it with stdin");
	return false;
}

/* If this fails, the stored counts are wrong after a crash; nothing else depends on them. */
static void save_input(struct command *c)
{
	int r = c->has_row ? spool_set_input(c->spool, &c->input) : 0;

	if (r < 0)
		log_warn("command_input", "command=%s error=%s ignoring=1", c->id, log_q(strerrordesc_np(-r)));
}

static void set_in_doubt(struct status *st, uint64_t from, uint64_t to)
{
	status_set(st, R_OUTCOME_UNKNOWN,
		   "whether these bytes of input arrived is not known; do not send them again");
	st->code = CODE_UNKNOWN;
	status_evidence(st, "input_from", "%llu", (unsigned long long)from);
	status_evidence(st, "input_to", "%llu", (unsigned long long)to);
}

void command_input_lost(struct command *c, struct command_op *op)
{
	set_in_doubt(&op->st, op->from, op->from + op->n);
	c->input.accepted = c->input.sent;
	save_input(c);
}

static void on_sent(struct envd_result *r, void *user)
{
	struct command_op *op = user;
	struct command *c = op->c;

	op->call = NULL;
	op->st = r->status;
	if (r->cls == ENVD_OK) {
		c->input.accepted = c->input.sent;
	} else if (r->cls == ENVD_LOST) {
		set_in_doubt(&op->st, op->from, op->from + op->n);
		c->input.accepted = c->input.sent;
	} else if (r->cls == ENVD_ANSWERED && r->status.reason != R_PROCESS_NOT_FOUND) {
		status_set(&op->st, R_PROCESS_STDIN_CLOSED, "the command does not take input: %s",
			   r->status.text);
	}
	c->input.sent = c->input.accepted;
	save_input(c);
	cmd_op_post(op);
}

/* The range is stored before it is sent, so that after a crash it is known to be in doubt. */
static int send_chunk(struct command_op *op, const void *p)
{
	struct command *c = op->c;
	struct envd_target target = agent_target(&c->at, NULL, op->deadline_ms);

	c->input.sent = op->from + op->n;
	save_input(c);
	op->call = envd_send_input(&target, c->pid, c->pty, p, op->n, on_sent, op);
	return op->call ? 0 : -ENOMEM;
}

/* True: op->st is the answer, and nothing is sent. */
static bool answer_offset(struct command *c, struct command_op *op, uint64_t offset)
{
	if (!check_open(c, &op->st))
		return true;
	if (c->input.sent > c->input.accepted && offset < c->input.sent) { /* after a crash, or an earlier writer left */
		set_in_doubt(&op->st, c->input.accepted, c->input.sent);
		c->input.accepted = c->input.sent;
		return true;
	}
	c->input.accepted = MAX(c->input.accepted, c->input.sent); /* the caller leaves the bytes in doubt out */
	if (offset <= c->input.accepted)
		return false;
	status_set(&op->st, R_INPUT_OFFSET, "offset: %llu is beyond the %llu bytes taken so far",
		   (unsigned long long)offset, (unsigned long long)c->input.accepted);
	return true;
}

int command_input_send(struct command *c, uint64_t offset, const void *p, size_t n,
		       uint64_t deadline_ms, command_input_fn *done, void *user, struct command_op **ret)
{
	struct command_op *op = cmd_op_new(c->cs, OP_INPUT, c, user);
	uint64_t skip;
	int r;

	if (!op)
		return -ENOMEM;
	op->input = done;
	op->deadline_ms = deadline_ms;
	if (answer_offset(c, op, offset)) {
		cmd_op_post(op);
		*ret = op;
		return 0;
	}
	skip = MIN(c->input.accepted - offset, (uint64_t)n);
	op->from = c->input.accepted;
	op->n = n - skip;
	p = (const uint8_t *)p + skip;
	r = 0;
	if (!op->n)
		cmd_op_post(op);
	else
		r = send_chunk(op, p);
	if (r < 0) {
		cmd_op_free(op);
		return r;
	}
	*ret = op;
	return 0;
}

static void on_ended(struct envd_result *r, void *user)
{
	struct command_op *op = user;

	op->call = NULL;
	op->st = r->status;
	if (r->cls == ENVD_OK) {
		op->c->input_ended = true;
		command_save(op->c);
	}
	cmd_op_post(op);
}

int command_input_end(struct command *c, uint64_t deadline_ms, command_input_fn *done, void *user,
		      struct command_op **ret)
{
	struct command_op *op = cmd_op_new(c->cs, OP_INPUT, c, user);
	struct envd_target target = agent_target(&c->at, NULL, deadline_ms);

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
