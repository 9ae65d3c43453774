/* SPDX-License-Identifier: MIT */
/*
 * libagentbox: a terminal in a sandbox. A shell is started with a size; what it is told is typed into its
 * input stream; the size changes while it runs. Its output is one stream, AB_PTY.
 *
 *	terminal SANDBOX
 */
#include <agentbox.h>
#include <stdio.h>
#include <string.h>

static const char typed[] = "PS1=; stty -echo; stty size\nstty size; exit 7\n";

int main(int argc, char **argv)
{
	static const char *const shell[] = { "bash", "--norc", "--noprofile", NULL };
	struct ab_command_options o = { .argv = shell, .pty_cols = 80, .pty_rows = 24, .stdin_open = true };
	struct ab_command_ref ref = { 0 };
	struct ab_command *command;
	struct ab_command_event e;
	struct ab_call *out, *in;
	struct ab_client *c;
	size_t put = 0;
	int code = 1;

	if (argc != 2 || ab_client_new(NULL, &c) < 0)
		return 2;
	o.sandbox = argv[1];
	if (ab_command_spawn(c, &o, NULL, &command)) {
		fprintf(stderr, "%s\n", ab_client_error(c)->message);
		ab_client_free(c);
		return 1;
	}
	ref.command_id = command->command_id;
	if (ab_command_resize(c, &ref, 120, 40, NULL))
		fprintf(stderr, "%s\n", ab_client_error(c)->message);
	if (ab_command_attach_start(c, &ref, NULL, NULL, &out) < 0 ||
	    ab_command_input_start(c, &ref, 0, NULL, &in) < 0)
		return 1;
	while (!ab_call_is_done(out)) {
		ptrdiff_t k = put < strlen(typed) ? ab_input_put(in, typed + put, strlen(typed) - put) : 0;

		put += k > 0 ? (size_t)k : 0;
		if (!ab_command_next(out, &e))
			ab_call_poll(out, 100);
		else if (e.type == AB_EVENT_OUTPUT)
			fwrite(e.data, 1, e.size, stdout);
		else if (e.type == AB_EVENT_EXITED)
			code = e.result->exit_code;
	}
	ab_call_free(in);
	ab_call_free(out);
	ab_free(command);
	ab_client_free(c);
	return code;
}
