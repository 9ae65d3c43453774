/* SPDX-License-Identifier: MIT */
/*
 * libagentbox, waited for: a sandbox, a command that is started and attached to, a file written, read
 * and watched. Streams are taken piece by piece; ab_call_poll() waits where there is nothing to take.
 *
 *	cc waiting.c $(pkg-config --cflags --libs libagentbox) && ./a.out
 */
#include <agentbox.h>
#include <stdio.h>
#include <string.h>

static int failed(struct ab_client *c, const char *what)
{
	const struct ab_error *e = ab_client_error(c);

	fprintf(stderr, "%s: %s\n", what, e ? e->message : "out of memory");
	return 1;
}

/* A command goes on by itself; whoever knows its id can read what it says, from any offset. */
static int commands(struct ab_client *c, const char *sandbox)
{
	struct ab_command_options o = { .sandbox = sandbox, .shell = "for i in 1 2 3; do echo line $i; done" };
	struct ab_command_event e;
	struct ab_command *command;
	struct ab_call *stream;

	if (ab_command_spawn(c, &o, NULL, &command))
		return failed(c, "spawn");
	if (ab_command_attach_start(c, &(struct ab_command_ref){ .command_id = command->command_id }, NULL, NULL,
				    &stream) < 0)
		return 1;
	while (!ab_call_is_done(stream)) {
		if (!ab_command_next(stream, &e)) {
			ab_call_poll(stream, -1);
			continue;
		}
		if (e.type == AB_EVENT_OUTPUT)
			fwrite(e.data, 1, e.size, stdout);
		else if (e.type == AB_EVENT_EXITED)
			printf("exit code %d\n", e.result->exit_code);
	}
	ab_call_free(stream);
	ab_free(command);
	return 0;
}

static int print(void *user, const void *data, size_t n)
{
	return fwrite(data, 1, n, stdout) == n ? 0 : -1;
}

static ptrdiff_t text_source(void *user, void *data, size_t n)
{
	const char **text = user;
	size_t k = strlen(*text) < n ? strlen(*text) : n;

	memcpy(data, *text, k);
	*text += k;
	return (ptrdiff_t)k;
}

static int files(struct ab_client *c, const char *sandbox)
{
	struct ab_path dir = { .sandbox = sandbox, .path = "/home/user" };
	struct ab_path path = { .sandbox = sandbox, .path = "/home/user/note.txt" };
	const char *text = "a file\n";
	struct ab_file_event e = { 0 };
	struct ab_call *watch;

	if (ab_file_watch_start(c, &dir, NULL, NULL, &watch) < 0)
		return 1;
	/* Only what happens after READY is told. */
	while (!ab_file_watch_next(watch, &e) && !ab_call_is_done(watch))
		ab_call_poll(watch, -1);
	if (ab_file_write_from(c, &path, NULL, NULL, text_source, &text, NULL))
		return failed(c, "write");
	while (!ab_call_is_done(watch) && e.type != AB_FILE_EVENT_CHANGE)
		if (!ab_file_watch_next(watch, &e))
			ab_call_poll(watch, -1);
	printf("created %s\n", e.name ? e.name : "?");
	ab_call_free(watch);
	return ab_file_read_to(c, &path, NULL, NULL, print, NULL) ? failed(c, "read") : 0;
}

int main(void)
{
	struct ab_sandbox *box;
	struct ab_client *c;
	bool found;
	int r;

	if (ab_client_new(NULL, &c) < 0)
		return 1;
	if (ab_sandbox_create(c, NULL, NULL, &box)) {
		r = failed(c, "create");
		ab_client_free(c);
		return r;
	}
	r = commands(c, box->id);
	if (r == 0)
		r = files(c, box->id);
	ab_sandbox_kill(c, box->id, NULL, &found);
	ab_free(box);
	ab_client_free(c);
	return r;
}
