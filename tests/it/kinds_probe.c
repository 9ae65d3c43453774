/* SPDX-License-Identifier: MIT */
/*
 * kinds_probe SOCKET KIND PERIOD_MS
 *	One client of the library that makes calls of one kind, each waited for, in a sandbox of its own, one each PERIOD_MS, until its input
 *	ends. A line for each: "ok", "gap" (a run whose output is not complete, and says so), "unknown" (OUTCOME_UNKNOWN), or what was wrong.
 */
#include <agentbox.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES	    20
#define INPUT_BYTES 200000
#define FILE_BYTES  300000

struct probe {
	struct ab_client *c;
	struct ab_sandbox *box;
	struct ab_lease *held;
	const char *sandbox;
	struct ab_command *command;	/* of what acts on one */
	const char *lease;
	uint64_t sent;			/* of its input */
	bool moved;
	const char *wrong;		/* what a call that went well got */
	char failed[256];		/* why a call failed that others came behind; "" = the client says it */
	bool gap;
};

_Noreturn static void die(struct probe *p, const char *what)
{
	const struct ab_error *e = ab_client_error(p->c);

	fprintf(stderr, "kinds_probe: %s: %s\n", what, e ? e->message : "-");
	exit(1);
}

static const char *why(const struct probe *p)
{
	const struct ab_error *e = ab_client_error(p->c);

	return !strcmp(e->reason, "OUTCOME_UNKNOWN") ? "unknown" : e->message;
}

static struct ab_command *spawn(struct probe *p, const char *shell, bool stdin_open, bool pty)
{
	const struct ab_command_options o = { .sandbox = p->sandbox, .shell = shell, .stdin_open = stdin_open, .detach = true,
					      .pty_cols = pty ? 80 : 0, .pty_rows = pty ? 24 : 0 };
	struct ab_command *ret = NULL;

	return ab_command_spawn(p->c, &o, NULL, &ret) ? NULL : ret;
}

static struct ab_command_ref ref_of(const struct ab_command *c)
{
	return (struct ab_command_ref){ .command_id = c->command_id };
}

/* --- output --- */

struct got {
	char text[4096];
	size_t n;
};

static int keep(void *user, enum ab_stream stream, const void *data, size_t n)
{
	struct got *g = user;

	if (stream == AB_STDOUT && n < sizeof(g->text) - g->n) {
		memcpy(g->text + g->n, data, n);
		g->n += n;
		g->text[g->n] = '\0';
	}
	return 0;
}

/* Lines that are numbers, each greater than the one before; how many, -1: they are not. */
static int rising(const char *text)
{
	int n = 0, last = 0, line, used;

	for (; sscanf(text, "%d\n%n", &line, &used) == 1; text += used, n++) {
		if (line <= last)
			return -1;
		last = line;
	}
	return *text || last > LINES ? -1 : n;
}

/* --- kinds --- */

static int call_run(struct probe *p)
{
	const struct ab_command_options o = { .sandbox = p->sandbox, .shell = "for i in $(seq 20); do echo $i; sleep 0.05; done" };
	struct got got = { .n = 0 };
	const struct ab_command_io io = { .output = keep, .user = &got };
	struct ab_command_result *result;
	int n, r = ab_command_run(p->c, &o, NULL, &io, &result);

	if (r)
		return r;
	n = rising(got.text);
	p->gap = !result->output_complete;
	if (n < 0 || (n < LINES && result->output_complete) || result->exit_code)
		p->wrong = "the lines are not the program's";
	ab_free(result);
	return 0;
}

/* What comes out says how much came in. */
static int call_run_input(struct probe *p)
{
	static char input[INPUT_BYTES];
	const struct ab_command_options o = { .sandbox = p->sandbox, .shell = "wc -c; sleep 0.5" };
	struct got got = { .n = 0 };
	const struct ab_command_io io = { .output = keep, .user = &got, .input = input, .n_input = sizeof(input) };
	struct ab_command_result *result;
	int r = ab_command_run(p->c, &o, NULL, &io, &result);

	if (r)
		return r;
	p->gap = !result->output_complete;
	if (atoi(got.text) != INPUT_BYTES && result->output_complete)
		p->wrong = "its input is not what was given";
	ab_free(result);
	return 0;
}

static int call_wait(struct probe *p)
{
	struct ab_command *c = spawn(p, "sleep 0.5; exit 7", false, false);
	struct ab_command_ref ref;
	struct ab_command_result *result;
	int r;

	if (!c)
		return (int)ab_client_error(p->c)->status;
	ref = ref_of(c);
	r = ab_command_wait(p->c, &ref, NULL, &result);
	if (!r && result->exit_code != 7)
		p->wrong = "another exit code";
	if (!r)
		ab_free(result);
	ab_free(c);
	return r;
}

static int call_signal(struct probe *p)
{
	struct ab_command *c = spawn(p, "exec sleep 1000", false, false);
	struct ab_command_ref ref;
	bool found = false;
	int r;

	if (!c)
		return (int)ab_client_error(p->c)->status;
	ref = ref_of(c);
	r = ab_command_signal(p->c, &ref, SIGTERM, NULL, &found);
	if (!r && !found)
		p->wrong = "a program that runs is not there";
	ab_free(c);
	return r;
}

static int call_send_input(struct probe *p)
{
	const struct ab_command_ref ref = ref_of(p->command);
	char data[1000] = { 0 };
	uint64_t accepted;
	int r = ab_command_send_input(p->c, &ref, p->sent, data, sizeof(data), false, NULL, &accepted);

	if (!r && accepted != p->sent + sizeof(data))
		p->wrong = "another offset";
	p->sent = r ? p->sent : accepted;
	return r;
}

static int call_resize(struct probe *p)
{
	const struct ab_command_ref ref = ref_of(p->command);

	p->moved = !p->moved;
	return ab_command_resize(p->c, &ref, p->moved ? 100 : 80, 30, NULL);
}

static int call_renew(struct probe *p)
{
	return ab_lease_renew(p->c, p->lease, 60000, NULL, NULL);
}

static int call_pause(struct probe *p)
{
	const struct ab_sandbox_connect_options o = { .sandbox_timeout_ms = 600000 };
	int r = ab_sandbox_pause(p->c, p->sandbox, AB_DEFAULT, NULL, NULL);

	return r ? r : ab_sandbox_connect(p->c, p->sandbox, &o, NULL, NULL);
}

static int call_fork(struct probe *p)
{
	struct ab_fork_list *made;
	int r = ab_sandbox_fork(p->c, p->sandbox, NULL, NULL, &made);

	if (r)
		return r;
	if (made->n != 1 || !made->items[0].sandbox)
		p->wrong = made->n ? strdup(made->items[0].message) : "no child";
	else
		r = ab_sandbox_kill(p->c, made->items[0].sandbox->id, NULL, NULL);
	ab_free(made);
	return r;
}

static int write_file(struct probe *p, const char *name)
{
	const struct ab_path path = { .sandbox = p->sandbox, .path = name };
	static char content[FILE_BYTES];
	FILE *from = tmpfile();
	struct ab_file *f;
	int r;

	if (!from || fwrite(content, sizeof(content), 1, from) != 1 || fflush(from) || lseek(fileno(from), 0, SEEK_SET))
		die(p, "a file of our own");
	r = ab_file_write_from_fd(p->c, &path, NULL, NULL, fileno(from), &f);
	fclose(from);
	if (!r && f->size != FILE_BYTES)
		p->wrong = "another size";
	if (!r)
		ab_free(f);
	return r;
}

static int call_write(struct probe *p)
{
	return write_file(p, "written");
}

static int call_move(struct probe *p)
{
	const struct ab_path paths[] = { { .sandbox = p->sandbox, .path = "here" }, { .sandbox = p->sandbox, .path = "there" } };
	int r = ab_file_move(p->c, &paths[p->moved], paths[!p->moved].path, NULL, NULL);

	if (!r) {
		p->moved = !p->moved;
		return 0;
	}
	snprintf(p->failed, sizeof(p->failed), "%s", why(p));
	if (ab_file_exists(p->c, &paths[1], NULL, &p->moved))	/* where it is, which may not be known */
		die(p, "exists");
	return r;
}

static int call_remove(struct probe *p)
{
	const struct ab_path path = { .sandbox = p->sandbox, .path = "removed" };
	int r = ab_file_make_dir(p->c, &path, NULL, NULL);

	return r ? r : ab_file_remove(p->c, &path, NULL);
}

static const struct {
	const char *name;
	int (*call)(struct probe *p);
	const char *shell;	/* a command that they act on */
	bool pty;
} kinds[] = {
	{ "Run", call_run, NULL, false },	      { "Run with input", call_run_input, NULL, false },
	{ "Wait", call_wait, NULL, false },	      { "Signal", call_signal, NULL, false },
	{ "SendInput", call_send_input, "cat >/dev/null", false }, { "Resize", call_resize, "sleep 1000", true },
	{ "Renew", call_renew, NULL, false },	      { "Pause", call_pause, NULL, false },
	{ "Fork", call_fork, NULL, false },	      { "Write", call_write, NULL, false },
	{ "Move", call_move, NULL, false },	      { "Remove", call_remove, NULL, false },
};

static void begin(struct probe *p, const char *shell, bool pty)
{
	const struct ab_sandbox_create_options create = { .sandbox_timeout_ms = 3600000 };
	const struct ab_lease_options lease = { .ttl_ms = 60000 };

	if (ab_sandbox_create(p->c, &create, NULL, &p->box) || ab_lease_acquire(p->c, p->box->id, &lease, NULL, &p->held))
		die(p, "create");
	p->sandbox = p->box->id;
	p->lease = p->held->id;
	if (shell && !(p->command = spawn(p, shell, !pty, pty)))
		die(p, "spawn");
	if (write_file(p, "here"))
		die(p, "write");
}

static void say(struct probe *p, int r)
{
	if (r)
		puts(p->failed[0] ? p->failed : why(p));
	else
		puts(p->wrong ? p->wrong : p->gap ? "gap" : "ok");
	fflush(stdout);
	p->wrong = NULL;
	p->failed[0] = '\0';
	p->gap = false;
}

int main(int argc, char **argv)
{
	const struct ab_client_options o = { .socket = argc == 4 ? argv[1] : NULL, .wait_ms = 30000 };
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	struct probe p = { 0 };

	if (argc != 4 || ab_client_new(&o, &p.c) < 0)
		return 2;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, argv[2]) != 0)
			continue;
		begin(&p, kinds[i].shell, kinds[i].pty);
		do
			say(&p, kinds[i].call(&p));
		while (!poll(&input, 1, atoi(argv[3])));
		ab_free(p.command);
		ab_free(p.held);
		ab_free(p.box);
		ab_client_free(p.c);
		return 0;
	}
	return 2;
}
