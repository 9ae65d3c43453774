/* SPDX-License-Identifier: MIT */
/*
 * A whole run, waited for. Invariant: a restart of the daemon ends the streams and not the run: its output goes on behind what was given to
 * the caller, and its input is sent again from the begin, of which the daemon drops what the command has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"
#include "client/lib/error.h"
#include "client/lib/obj.h"

struct run {
	struct ab_client *c;
	const struct ab_command_io *io;
	struct repeat output_repeat, input_repeat;
	struct ab_call *call;		/* the Run, or an Attach that took its place */
	struct ab_call *input;
	char *command_id;		/* NULL: not known yet */
	uint64_t offsets[AB_PTY + 1];	/* of each output: what comes next */
	size_t given;			/* of io->input, to this attempt */
	uint64_t accepted;		/* of it, by all */
	bool attached;			/* the end of the stream does not end the command */
	void *result;
};

static bool has_input(const struct run *run)
{
	return run->io && run->io->input;
}

static int begin_input(struct run *run)
{
	const struct ab_command_ref ref = { .command_id = run->command_id };

	run->given = 0;
	return ab_command_input_start(run->c, &ref, 0, NULL, &run->input);
}

static int on_started(struct run *run, const struct ab_command_event *ev)
{
	if (!run->command_id) {
		run->command_id = strdup(ev->command->command_id);
		if (!run->command_id)
			return -ENOMEM;
	}
	return has_input(run) && !run->input ? begin_input(run) : 0;
}

static int run_event(struct run *run, const struct ab_command_event *ev)
{
	repeat_heard(&run->output_repeat);
	switch (ev->type) {
	case AB_EVENT_STARTED:
		return on_started(run, ev);
	case AB_EVENT_OUTPUT:
		run->offsets[ev->stream] = ev->offset + ev->size;
		if (run->io && run->io->output &&
		    run->io->output(run->io->user, ev->stream, ev->data, ev->size))
			return -ECANCELED;
		return 0;
	case AB_EVENT_EXITED:
		/* the object behind the event is one that ab_free() takes for a result */
		run->result = give(run->call->event);
		return 0;
	default:
		return 0;
	}
}

/* -EPIPE: the command does not get the rest, and would wait for it for ever. One that takes no more is not our matter. */
static int input_again(struct run *run)
{
	const struct ab_error *e = run->input->error;

	if (repeat_may(&run->input_repeat, e)) {
		ab_call_free(give(run->input));
		return begin_input(run);
	}
	return !e || e->status == AB_FAILED_PRECONDITION || e->status == AB_NOT_FOUND ? 0 : -EPIPE;
}

static int run_input(struct run *run)
{
	ptrdiff_t n;

	if (!run->input)
		return 0;
	if (run->input->accepted > run->accepted) {
		run->accepted = run->input->accepted;
		repeat_heard(&run->input_repeat);
	}
	if (ab_call_is_done(run->input))
		return input_again(run);
	if (run->input->finished)
		return 0;
	n = ab_input_put(run->input, (const uint8_t *)run->io->input + run->given,
			 run->io->n_input - run->given);
	if (n > 0)
		run->given += (size_t)n;
	if (n >= 0 && run->given == run->io->n_input)
		(void)ab_input_finish(run->input, true);
	return 0;
}

/* 1: the stream goes on; 0: its end is the run's; -errno. */
static int attach_again(struct run *run)
{
	const struct ab_command_ref ref = { .command_id = run->command_id };
	const struct ab_attach_options o = { .stdout_offset = run->offsets[AB_STDOUT], .stderr_offset = run->offsets[AB_STDERR],
					     .pty_offset = run->offsets[AB_PTY] };
	struct ab_call *call;
	int r;

	if (run->result || !run->command_id || !repeat_may(&run->output_repeat, run->call->error))
		return 0;
	r = ab_command_attach_start(run->c, &ref, &o, &run->output_repeat.how, &call);
	if (r < 0)
		return r;
	ab_call_free(run->call);
	run->call = call;
	run->attached = true;
	return 1;
}

static int run_loop(struct run *run)
{
	struct ab_command_event ev;
	int r = 0;

	while (r == 0) {
		if (ab_command_next(run->call, &ev)) {
			r = run_event(run, &ev);
		} else if (ab_call_is_done(run->call)) {
			r = attach_again(run);
			if (r <= 0)
				return r;
			r = 0;
		} else {
			r = run_input(run);
			if (r == 0)
				wait_once(run->call, -1);
		}
	}
	return r;
}

/* The end of a Run's stream ends its command; an Attach's does not. */
static void end_command(struct run *run, const struct ab_command_options *o)
{
	const struct ab_command_ref ref = { .command_id = run->command_id };

	ab_call_cancel(run->call);
	if (run->attached && !run->result && !o->detach)
		(void)ab_command_kill(run->c, &ref, NULL, NULL);
}

int ab_command_run(struct ab_client *c, const struct ab_command_options *o,
		   const struct ab_call_options *how, const struct ab_command_io *io,
		   struct ab_command_result **ret)
{
	struct ab_command_options with_input;
	struct run run = { .c = c, .io = io };
	int r = c->in_callback ? -EDEADLK : 0;

	if (r == 0 && o && io && io->input) {
		with_input = *o;
		with_input.stdin_open = true;
		o = &with_input;
	}
	repeat_init(&run.output_repeat, c, how);
	repeat_init(&run.input_repeat, c, NULL);
	run.input_repeat.is_input = true;
	if (r == 0)
		r = ab_command_run_start(c, o, how, &run.call);
	if (r < 0)
		return wait_object(c, r, NULL);
	r = run_loop(&run);
	if (r == -ENOMEM)
		(void)call_fail(run.call, r);
	if (r < 0 || ab_call_status(run.call) == AB_DEADLINE_EXCEEDED)
		end_command(&run, o);
	if (r == -EPIPE) {
		error_free(run.call->error);
		run.call->error = give(run.input->error);
	}
	ab_call_free(run.input);
	free(run.command_id);
	if (!run.call->error && ret)
		*ret = give(run.result);
	obj_free(run.result);
	return wait_end(c, run.call);
}
