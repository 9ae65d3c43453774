/* SPDX-License-Identifier: MIT */
/*
 * libagentbox in a program's own loop: nothing here waits but poll(). Every call has a function that is
 * called when it has news; it takes all there is and starts what comes next:
 *
 *	create → watch the home directory → write a file → read it back → run a command, attach → kill
 */
#include <agentbox.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program {
	struct ab_client *client;
	struct ab_sandbox *box;
	struct ab_call *watch;
	bool done, ok;
};

static const char content[] = "written in pieces\n";

/* --- small helpers --- */

static void finish(struct program *p, const struct ab_error *e)
{
	if (e)
		fprintf(stderr, "%s\n", e->message);
	p->ok = !e;
	p->done = true;
}

/* True if the call went well; else the program is over. */
static bool went_well(struct program *p, struct ab_call *call)
{
	if (ab_call_status(call) != AB_OK)
		finish(p, ab_call_error(call));
	return ab_call_status(call) == AB_OK;
}

static struct ab_path note(const struct program *p)
{
	return (struct ab_path){ .sandbox = p->box->id, .path = "/home/user/note.txt" };
}

static void started(struct program *p, int r)
{
	if (r < 0)
		p->done = true;
}

/* --- one step after the other, the last one first --- */

static void on_killed(struct ab_call *call, void *user)
{
	if (!ab_call_is_done(call))
		return;
	if (went_well(user, call))
		finish(user, NULL);
	ab_call_free(call);
}

static void on_output(struct ab_call *call, void *user)
{
	struct ab_call_options how = { .ready = on_killed, .user = user };
	struct program *p = user;
	struct ab_command_event e;

	while (ab_command_next(call, &e)) {
		if (e.type == AB_EVENT_OUTPUT)
			fwrite(e.data, 1, e.size, stdout);
		else if (e.type == AB_EVENT_EXITED)
			printf("exit code %d\n", e.result->exit_code);
	}
	if (!ab_call_is_done(call))
		return;
	if (went_well(p, call)) {
		ab_call_free(p->watch);
		p->watch = NULL;
		started(p, ab_sandbox_kill_start(p->client, p->box->id, &how, &(struct ab_call *){ NULL }));
	}
	ab_call_free(call);
}

static void on_spawned(struct ab_call *call, void *user)
{
	struct ab_call_options how = { .ready = on_output, .user = user };
	struct program *p = user;
	struct ab_command *command;

	if (!ab_call_is_done(call))
		return;
	if (went_well(p, call)) {
		command = ab_call_take(call);
		started(p, ab_command_attach_start(p->client,
						   &(struct ab_command_ref){ .command_id = command->command_id },
						   NULL, &how, &(struct ab_call *){ NULL }));
		ab_free(command);
	}
	ab_call_free(call);
}

static void on_read(struct ab_call *call, void *user)
{
	struct ab_call_options how = { .ready = on_spawned, .user = user };
	struct program *p = user;
	const void *data;
	size_t n;

	while (ab_file_read_next(call, &data, &n))
		fwrite(data, 1, n, stdout);
	if (!ab_call_is_done(call))
		return;
	if (went_well(p, call)) {
		struct ab_command_options o = { .sandbox = p->box->id, .shell = "wc -c < note.txt" };

		started(p, ab_command_spawn_start(p->client, &o, &how, &(struct ab_call *){ NULL }));
	}
	ab_call_free(call);
}

/* Called when there is room, and once more when the file is there. */
static void on_write(struct ab_call *call, void *user)
{
	static size_t put;
	struct ab_call_options how = { .ready = on_read, .user = user };
	struct program *p = user;
	ptrdiff_t k = 1;

	while (put < sizeof(content) - 1 && k > 0) {
		k = ab_file_write_put(call, content + put, sizeof(content) - 1 - put);
		put += k > 0 ? (size_t)k : 0;
		if (put == sizeof(content) - 1)
			ab_file_write_finish(call);
	}
	if (!ab_call_is_done(call))
		return;
	if (went_well(p, call)) {
		struct ab_path path = note(p);

		started(p, ab_file_read_start(p->client, &path, NULL, &how, &(struct ab_call *){ NULL }));
	}
	ab_call_free(call);
}

static void on_watch(struct ab_call *call, void *user)
{
	struct ab_call_options how = { .ready = on_write, .user = user };
	struct program *p = user;
	struct ab_file_event e;

	while (ab_file_watch_next(call, &e)) {
		if (e.type == AB_FILE_EVENT_READY) {
			struct ab_path path = note(p);

			started(p, ab_file_write_start(p->client, &path, NULL, &how,
						       &(struct ab_call *){ NULL }));
		} else if (e.type == AB_FILE_EVENT_CHANGE && e.change == AB_CHANGE_CREATE) {
			printf("created %s\n", e.name);
		}
	}
	if (ab_call_is_done(call) && !p->done)
		(void)went_well(p, call);
}

static void on_created(struct ab_call *call, void *user)
{
	struct ab_call_options how = { .ready = on_watch, .user = user };
	struct program *p = user;

	if (!ab_call_is_done(call))
		return;
	if (went_well(p, call)) {
		struct ab_path dir = { .path = "/home/user" };

		p->box = ab_call_take(call);
		dir.sandbox = p->box->id;
		started(p, ab_file_watch_start(p->client, &dir, NULL, &how, &p->watch));
	}
	ab_call_free(call);
}

int main(void)
{
	struct program p = { 0 };
	struct ab_call_options how = { .ready = on_created, .user = &p };

	if (ab_client_new(NULL, &p.client) < 0)
		return 1;
	started(&p, ab_sandbox_create_start(p.client, NULL, &how, &(struct ab_call *){ NULL }));
	while (!p.done) {
		struct pollfd fd = { .fd = ab_fd(p.client), .events = (short)ab_events(p.client) };

		if (poll(&fd, 1, ab_timeout(p.client)) < 0)
			break;
		if (ab_process(p.client) < 0)
			break;
	}
	ab_call_free(p.watch);
	ab_free(p.box);
	ab_client_free(p.client);
	return p.ok ? 0 : 1;
}
