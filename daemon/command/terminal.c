/* SPDX-License-Identifier: MIT */
/*
 * The size of a terminal. At most one size of a command is being set, and the next one is sent no
 * sooner than COMMAND_RESIZE_MS after it: of many sizes only a few are sent, and the last one always.
 */
#include <errno.h>

#include "daemon/command/impl.h"
#include "proto/base/must.h"

static void answer_all(struct list *ops, const struct status *st)
{
	while (!list_is_empty(ops)) {
		struct command_op *op = list_entry(ops->next, struct command_op, node);

		list_del(&op->node);
		list_add_tail(&op->cs->ops, &op->node);
		op->st = *st;
		cmd_op_post(op);
	}
}

static void send_size(struct command *c);

static void on_set(struct envd_result *r, void *user)
{
	struct command *c = user;

	c->term.call = NULL;
	answer_all(&c->term.in_flight, &r->status);
	if (!list_is_empty(&c->term.waiting) && !timer_is_set(&c->term.again))
		send_size(c);
}

static void send_size(struct command *c)
{
	uint64_t now = loop_now_ms(c->cs->o.loop);
	struct envd_target target = agent_target(&c->at, NULL, now + 30000);
	struct status st;

	list_take(&c->term.in_flight, &c->term.waiting);
	c->term.call = envd_resize(&target, c->pid, c->term.cols, c->term.rows, on_set, c);
	if (c->term.call && timer_set(&c->term.again, now + COMMAND_RESIZE_MS) == 0)
		return;
	envd_call_cancel(give(c->term.call));
	status_errno(&st, ENOMEM, "setting a terminal's size");
	answer_all(&c->term.in_flight, &st);
}

static void terminal_on_again(struct timer *t, void *user)
{
	struct command *c = user;

	if (!c->term.call && !list_is_empty(&c->term.waiting))
		send_size(c);
}

void terminal_init(struct command *c)
{
	timer_init(&c->term.again, c->cs->o.loop, terminal_on_again, c);
	list_init(&c->term.waiting);
	list_init(&c->term.in_flight);
}

void terminal_fini(struct command *c)
{
	struct status st;

	timer_clear(&c->term.again);
	envd_call_cancel(give(c->term.call));
	status_set(&st, R_PROCESS_NOT_FOUND, "the command ended");
	answer_all(&c->term.in_flight, &st);
	answer_all(&c->term.waiting, &st);
}

int command_resize(struct command *c, uint32_t cols, uint32_t rows, command_resized_fn *done, void *user,
		   struct command_op **ret)
{
	struct command_op *op = cmd_op_new(c->cs, OP_RESIZE, c, user);

	if (!op)
		return -ENOMEM;
	op->resized = done;
	*ret = op;
	if (c->state >= CMD_ENDING) {
		status_set(&op->st, R_PROCESS_NOT_FOUND, "the command ended");
		cmd_op_post(op);
		return 0;
	}
	if (!c->pty && !c->foreign) {
		status_set(&op->st, R_UNSUPPORTED, "the command has no terminal: start it with pty");
		cmd_op_post(op);
		return 0;
	}
	if (!c->at.cloud || !c->pid) {
		cmd_taking_up(&op->st);
		cmd_op_post(op);
		return 0;
	}
	c->term.cols = cols;
	c->term.rows = rows;
	list_del(&op->node);
	list_add_tail(&c->term.waiting, &op->node);
	if (!c->term.call && !timer_is_set(&c->term.again))
		send_size(c);
	return 0;
}
