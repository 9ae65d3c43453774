/* SPDX-License-Identifier: MIT */
#include "client/cli/tree/remote.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/term/sig.h"

#define NOT_FOUND_CODE 127	/* of the shell: there is no such program */

int remote_start(struct remote *r, const char *sandbox, const char *user, const char *const *argv, bool wants_input)
{
	static const struct ab_pair envs[] = { { "LC_ALL", "C" } };	/* names are bytes */
	struct ab_command_options o = {
		.sandbox = sandbox, .argv = argv, .user = user, .envs = envs, .n_envs = 1,
		.stdin_open = wants_input,
	};
	int e = ab_command_run_start(r->cli->client, &o, NULL, &r->stream);

	r->wants_input = wants_input;
	if (e == 0)
		return EXIT_OK;
	return fail_here(r->cli, "%s", strerror(-e));
}

static void hear(struct remote *r, const void *p, size_t n)
{
	size_t k = n < REMOTE_SAID_MAX - r->n_said ? n : REMOTE_SAID_MAX - r->n_said;

	memcpy(r->said + r->n_said, p, k);
	r->n_said += k;
	r->said[r->n_said] = '\0';
}

static void on_started(struct remote *r, const struct ab_command *c)
{
	const struct ab_command_ref ref = { .command_id = c->command_id };

	if (r->wants_input && ab_command_input_start(r->cli->client, &ref, 0, NULL, &r->input) < 0)
		say(r->cli, "out of memory");
}

static void on_exited(struct remote *r, const struct ab_command_result *res)
{
	r->known = res->outcome == AB_EXITED || res->outcome == AB_NOT_STARTED;
	r->exit_code = res->outcome == AB_NOT_STARTED ? NOT_FOUND_CODE : res->exit_code;
	r->torn |= !res->output_complete;
	if (!r->known || (res->outcome == AB_NOT_STARTED && *res->message))
		hear(r, res->message, strlen(res->message));
}

int remote_read(struct remote *r, const void **ret, size_t *ret_n)
{
	struct ab_command_event ev;

	while (ab_command_next(r->stream, &ev)) {
		if (ev.type == AB_EVENT_STARTED)
			on_started(r, ev.command);
		else if (ev.type == AB_EVENT_GAP)
			r->torn = true;
		else if (ev.type == AB_EVENT_EXITED)
			on_exited(r, ev.result);
		else if (ev.type == AB_EVENT_OUTPUT && ev.stream == AB_STDERR)
			hear(r, ev.data, (size_t)ev.size);
		else if (ev.type == AB_EVENT_OUTPUT) {
			*ret = ev.data;
			*ret_n = (size_t)ev.size;
			return 1;
		}
	}
	r->over = r->over || ab_call_is_done(r->stream);
	return r->over ? -1 : 0;
}

ssize_t remote_write(struct remote *r, const void *p, size_t n)
{
	ptrdiff_t k;

	if (!r->input)
		return r->over ? -1 : 0;
	k = ab_input_put(r->input, p, n);
	return k < 0 ? -1 : k;
}

void remote_write_end(struct remote *r)
{
	if (r->input)
		(void)ab_input_finish(r->input, true);
}

void remote_wait(struct remote *r)
{
	struct ab_client *c = r->cli->client;
	struct pollfd p[3] = {
		{ .fd = ab_fd(c), .events = (short)ab_events(c) },
		{ .fd = r->sig_fd, .events = POLLIN },
		{ .fd = r->meter ? r->meter->fd : -1, .events = POLLIN },
	};

	if (poll(p, ARRAY_SIZE(p), ab_timeout(c)) < 0)
		return;
	if (p[1].revents)
		r->signo = sig_take(r->sig_fd);
	if (p[2].revents)
		meter_draw(r->meter, r->label, r->bytes, r->total);
	(void)ab_process(c);
}

/* Line by line: messages of a program are not one sentence. */
static void pass_on(struct remote *r)
{
	for (char *line = r->said, *next; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		if (*line)
			say(r->cli, "in the sandbox: %s", line);
	}
}

int remote_verdict(struct remote *r, const char *program)
{
	if (ab_call_status(r->stream) && !r->known && !r->n_said)
		return fail(r->cli, ab_call_error(r->stream));
	if (r->known && r->exit_code == NOT_FOUND_CODE)
		return fail_here(r->cli, "the sandbox has no %s, which copying trees needs (UNSUPPORTED)", program);
	pass_on(r);
	if (!r->known)
		say(r->cli, "how %s ended in the sandbox is not known", program);
	else if (r->torn)
		say(r->cli, "some of what %s said in the sandbox was lost", program);
	return r->known && !r->exit_code && !r->torn ? EXIT_OK : EXIT_ERROR;
}

void remote_close(struct remote *r)
{
	ab_call_free(r->input);
	ab_call_free(r->stream);
	r->input = r->stream = NULL;
}
