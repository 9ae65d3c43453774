/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl diag: one tar for a bug report. A daemon that does not answer is a part of the report, so it is asked from here and not before.
 * What the daemon tells holds no secrets; diag_mask.h goes over all of it all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/cmd/diag_mask.h"
#include "client/cli/cmd/reports.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/out.h"
#include "proto/wire/tar.h"

#define FOLDER	      "agentboxd-diag"
#define JOURNAL_BYTES (4u << 20)	/* the newest of it */
#define JOURNAL_LINES "5000"
#define ASK_MS	      5000u

struct diag {
	struct cli *cli;
	FILE *out;
	int64_t now_ms;
	struct diag_mask mask;
	struct ab_client *client;	/* NULL: the daemon does not answer, … */
	char why[512];			/* … because of this */
	bool failed;
};

/* One part of the report while it is written. */
struct part {
	FILE *f;
	char *text;
	size_t n;
};

static bool begin(struct diag *d, struct part *p)
{
	*p = (struct part){ 0 };
	p->f = open_memstream(&p->text, &p->n);
	d->failed |= !p->f;
	return p->f != NULL;
}

static void put_file(struct diag *d, const char *name, const char *text, size_t n)
{
	static const uint8_t zeros[TAR_BLOCK];
	uint8_t head[TAR_HEADER_MAX];
	char path[128];
	const struct tar_entry e = { .type = TAR_FILE, .name = path, .link = "", .mode = 0600, .size = n,
				     .mtime_s = d->now_ms / 1000 };

	(void)snprintf(path, sizeof(path), FOLDER "/%s", name);
	(void)fwrite(head, 1, tar_header(&e, head), d->out);
	(void)fwrite(text, 1, n, d->out);
	(void)fwrite(zeros, 1, tar_padding(n), d->out);
}

/* The part goes into the tar with its ids and keys hidden. */
static void finish(struct diag *d, struct part *p, const char *name)
{
	struct part clean;

	if (fclose(p->f) || !p->text || !begin(d, &clean)) {
		d->failed = true;
		free(p->text);
		return;
	}
	for (size_t i = 0; i < p->n; i++)
		if (!p->text[i])
			p->text[i] = '?';
	diag_mask_print(&d->mask, clean.f, p->text);
	if (fclose(clean.f) || !clean.text)
		d->failed = true;
	else
		put_file(d, name, clean.text, clean.n);
	free(clean.text);
	free(p->text);
}

/* --- the parts --- */

static void put_readme(struct diag *d)
{
	static const char text[] =
		"A report about agentboxd, made by `agentboxctl diag`.\n\n"
		"versions.txt   the command, the daemon, this system\n"
		"status.json    agentboxctl --json status\n"
		"pool.json      agentboxctl --json pool\n"
		"config.txt     the configuration in force, without secrets and without api_key_command\n"
		"journal.txt    the daemon's newest lines in the journal\n"
		"error.txt      why the daemon could not be asked, if it could not\n\n"
		"Left out are keys, tokens, environments, output of commands and content of files. Ids of sandboxes, which give access\n"
		"to some of them, are numbers that mean the same one in all parts. Names of users, hosts and folders are there: look\n"
		"through it before you send it.\n";

	put_file(d, "README.txt", text, sizeof(text) - 1);
}

static void put_release(FILE *to)
{
	FILE *f = fopen("/etc/os-release", "re");
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "PRETTY_NAME=", 12))
			(void)fputs(line, to);
	if (f)
		(void)fclose(f);
}

static void put_versions(struct diag *d)
{
	struct utsname u;
	struct part p;
	char at[32];

	if (!begin(d, &p))
		return;
	fprintf(p.f, "at %s\nagentboxctl %s\n", time_text(d->now_ms, at), ab_version());
	if (uname(&u) == 0)
		fprintf(p.f, "system %s %s %s %s\n", u.sysname, u.release, u.version, u.machine);
	put_release(p.f);
	fprintf(p.f, "uid %u\nsocket %s\n", (unsigned)getuid(), d->client ? ab_socket(d->client) : "-");
	finish(d, &p, "versions.txt");
}

static void note_error(struct diag *d, const char *what)
{
	const struct ab_error *e = ab_client_error(d->client);

	(void)snprintf(d->why, sizeof(d->why), "%s: %s", what, e ? e->message : "out of memory");
}

static void put_status(struct diag *d)
{
	const struct ab_call_options how = { .deadline_ms = ASK_MS };
	struct ab_daemon_status *s;
	struct part p;

	if (ab_daemon_status(d->client, &how, &s)) {
		note_error(d, "status");
		return;
	}
	if (begin(d, &p)) {
		status_print_json(p.f, s);
		finish(d, &p, "status.json");
	}
	if (begin(d, &p)) {
		pool_print_json(p.f, s);
		finish(d, &p, "pool.json");
	}
	ab_free(s);
}

static bool is_shown(const struct ab_config_value *v)
{
	return !v->secret && strcmp(v->key, "api_key_command") != 0;
}

static void print_config(FILE *f, const struct ab_config *c)
{
	char clean[1024];

	fprintf(f, "# %s%s\n", *c->file ? c->file : "no file", c->file_changed ? ", which differs from what runs" : "");
	for (size_t i = 0; i < c->n; i++) {
		const struct ab_config_value *v = &c->values[i];

		fprintf(f, "[%s] %s =", v->section, v->key);
		for (size_t k = 0; is_shown(v) && k < v->n_values; k++)
			fprintf(f, " %s", safe(v->values[k], clean, sizeof(clean)));
		fprintf(f, "%s (%s)\n", is_shown(v) ? "" : " not shown", v->origin);
	}
}

static void put_config(struct diag *d)
{
	const struct ab_call_options how = { .deadline_ms = ASK_MS };
	struct ab_config *c;
	struct part p;

	if (ab_daemon_config(d->client, NULL, &how, &c)) {
		note_error(d, "config");
		return;
	}
	if (begin(d, &p)) {
		print_config(p.f, c);
		finish(d, &p, "config.txt");
	}
	ab_free(c);
}

/* Its output on a pipe; what it complains of too. */
static void become_journalctl(int to, bool system)
{
	const char *argv[] = { "journalctl", system ? "--system" : "--user", "-q", "-o", "short-iso", "-n", JOURNAL_LINES, "-u",
			       "agentboxd", NULL };

	(void)dup2(to, STDOUT_FILENO);
	(void)dup2(to, STDERR_FILENO);
	(void)execvp(argv[0], (char **)argv);
	fprintf(stderr, "journalctl: %s\n", strerror(errno));
	_exit(127);
}

static void copy_journal(FILE *to, bool system)
{
	char block[8192];
	size_t all = 0;
	int fds[2];
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (!pid)
		become_journalctl(fds[1], system);
	(void)close(fds[1]);
	while (pid > 0 && (n = read(fds[0], block, sizeof(block))) > 0 && all < JOURNAL_BYTES)
		all += fwrite(block, 1, (size_t)n, to);
	(void)close(fds[0]);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
}

static void put_journal(struct diag *d)
{
	struct part p;

	if (!begin(d, &p))
		return;
	copy_journal(p.f, true);
	copy_journal(p.f, false);
	finish(d, &p, "journal.txt");
}

static void put_error(struct diag *d)
{
	struct part p;

	if (!d->why[0] || !begin(d, &p))
		return;
	fprintf(p.f, "%s\n", d->why);
	finish(d, &p, "error.txt");
}

/* --- all of it --- */

static void connect_to(struct diag *d)
{
	const struct ab_client_options o = { .socket = d->cli->args.socket, .wait_ms = d->cli->args.wait_ms,
					     .user_agent = "agentboxctl" };

	if (ab_client_new(&o, &d->client) < 0) {
		d->client = NULL;
		(void)snprintf(d->why, sizeof(d->why), "the socket's name is not usable");
	} else if (ab_connect(d->client)) {
		note_error(d, "connecting");
		ab_client_free(d->client);
		d->client = NULL;
	}
}

static void write_report(struct diag *d)
{
	static const uint8_t end[TAR_END_BYTES];

	connect_to(d);
	put_readme(d);
	put_versions(d);
	if (d->client)
		put_status(d);
	if (d->client)
		put_config(d);
	put_journal(d);
	put_error(d);
	(void)fwrite(end, 1, sizeof(end), d->out);
	ab_client_free(d->client);
	diag_mask_fini(&d->mask);
}

/* A new file, that only its user reads: nothing that is there is replaced. */
static FILE *open_report(const struct cli *cli, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f) {
		say(cli, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			(void)close(fd);
	}
	return f;
}

static int cmd_diag_run(struct cli *cli)
{
	struct diag d = { .cli = cli, .now_ms = cli_wall_ms() };
	const char *path = cli->args.n_words ? cli->args.words[0] : FOLDER ".tar";
	bool is_stdout = !strcmp(path, "-"), failed;

	d.out = is_stdout ? stdout : open_report(cli, path);
	if (!d.out)
		return EXIT_ERROR;
	write_report(&d);
	failed = d.failed || ferror(d.out);
	if (!is_stdout)
		failed |= fclose(d.out) != 0;
	if (failed)
		return fail_here(cli, "%s: the report could not be written", path);
	if (d.why[0])
		say(cli, "the daemon could not be asked, which is in the report: %s", d.why);
	if (!is_stdout)
		say(cli, "%s: look through it before you send it", path);
	return EXIT_OK;
}

static int cmd_diag_check(struct cli *cli)
{
	if (cli->args.n_words && !strcmp(cli->args.words[0], "-") && isatty(STDOUT_FILENO))
		return usage(cli->command, "a tar is nothing for a terminal: name a file");
	return 0;
}

static bool always(const struct args *a)
{
	return true;
}

const struct command cmd_diag = {
	.name = "diag",
	.words = "[FILE]",
	.help = "Writes a report about the daemon into a tar, for a bug report, also when the daemon does not answer.\n"
		"FILE is agentboxd-diag.tar if it is not given, and - is the standard output. It holds versions, status, the\n"
		"connections, the configuration without secrets and the newest lines of the journal; ids of sandboxes are numbers.",
	.max_words = 1,
	.no_json = true,
	.check = cmd_diag_check,
	.is_offline = always,
	.run = cmd_diag_run,
};
