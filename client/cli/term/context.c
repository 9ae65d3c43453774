/* SPDX-License-Identifier: MIT */
#include "client/cli/term/context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTEXT_ENV "AGENTBOXCTL_CONTEXT"
#define BLANKS	    " \t\r"

void contexts_free(struct contexts *c)
{
	free(c->text);
	free(c->v);
	*c = (struct contexts){ 0 };
}

/* Heap; NULL = there is no place for it. */
static char *contexts_path(void)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int n = -1;

	if (config && *config == '/')
		n = asprintf(&path, "%s/agentboxctl/contexts", config);
	else if (home && *home)
		n = asprintf(&path, "%s/.config/agentboxctl/contexts", home);
	return n < 0 ? NULL : path;
}

static const char *wanted(const struct cli *cli)
{
	const char *set = getenv("AGENTBOXD_SOCKET");

	if (cli->args.context)
		return cli->args.context;
	return set && *set ? NULL : getenv(CONTEXT_ENV);
}

/* What another user could have written decides nothing. */
static const char *distrust(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "is no file";
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return "belongs to another user";
	if (st->st_mode & 022)
		return "can be written by others: chmod go-w";
	return (uint64_t)st->st_size > CONTEXTS_BYTES_MAX ? "is too long" : NULL;
}

static int read_all(int fd, char **ret)
{
	char *text = calloc(1, CONTEXTS_BYTES_MAX + 1);
	size_t n = 0;
	ssize_t got = 1;

	if (!text)
		return -ENOMEM;
	while (n < CONTEXTS_BYTES_MAX && (got = read(fd, text + n, CONTEXTS_BYTES_MAX - n)) > 0)
		n += (size_t)got;
	if (got < 0) {
		free(text);
		return -errno;
	}
	*ret = text;
	return 0;
}

/* *ret NULL = there is no file. */
static int open_and_read(const struct cli *cli, const char *path, char **ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r;
	const char *why;
	struct stat st;

	*ret = NULL;
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? EXIT_OK : fail_here(cli, "%s: %s", path, strerror(errno));
	if (fstat(fd, &st) < 0)
		r = fail_here(cli, "%s: %s", path, strerror(errno));
	else if ((why = distrust(&st)))
		r = fail_here(cli, "%s: %s", path, why);
	else if ((r = read_all(fd, ret)) < 0)
		r = fail_here(cli, "%s: %s", path, strerror(-r));
	(void)close(fd);
	return r;
}

/* Without the blanks around it. */
static char *trim(char *s)
{
	size_t n;

	s += strspn(s, BLANKS);
	for (n = strlen(s); n && strchr(BLANKS, s[n - 1]); n--)
		;
	s[n] = '\0';
	return s;
}

/* 0: a comment or nothing; 1: *ret; -1: it is none. */
static int read_line(char *line, struct context *ret)
{
	char *at = trim(line), *eq = strchr(at, '=');

	if (!*at || *at == '#')
		return 0;
	if (!eq)
		return -1;
	*eq = '\0';
	*ret = (struct context){ .name = trim(at), .socket = trim(eq + 1) };
	return *ret->name && *ret->socket == '/' ? 1 : -1;
}

static bool is_there(const struct contexts *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->v[i].name, name))
			return true;
	return false;
}

/* NULL, or what is wrong with the line. */
static const char *take_line(char *line, const char *now, struct contexts *ret)
{
	struct context *v = reallocarray(ret->v, ret->n + 1, sizeof(*v));
	int r;

	if (!v)
		return "out of memory";
	ret->v = v;
	r = read_line(line, &v[ret->n]);
	if (r <= 0)
		return r < 0 ? "is not NAME = /PATH/OF/SOCKET" : NULL;
	if (is_there(ret, v[ret->n].name))
		return "has a name that stands above it";
	v[ret->n].is_current = now && !strcmp(now, v[ret->n].name);
	ret->n++;
	return NULL;
}

static int parse(const struct cli *cli, const char *path, struct contexts *ret)
{
	const char *now = wanted(cli);
	unsigned number = 0;

	for (char *line, *rest = ret->text; (line = strsep(&rest, "\n"));) {
		const char *why = take_line(line, now, ret);

		number++;
		if (!why)
			continue;
		return fail_here(cli, "%s:%u: %s", path, number, why);
	}
	return EXIT_OK;
}

int contexts_read(const struct cli *cli, struct contexts *ret)
{
	char *path = contexts_path();
	int r = EXIT_OK;

	*ret = (struct contexts){ 0 };
	if (path)
		r = open_and_read(cli, path, &ret->text);
	if (!r && ret->text)
		r = parse(cli, path, ret);
	if (r)
		contexts_free(ret);
	free(path);
	return r;
}

int context_choose(struct cli *cli, struct contexts *ret)
{
	const char *name = wanted(cli);
	char *path;
	int r;

	*ret = (struct contexts){ 0 };
	if (cli->args.context && cli->args.socket)
		return usage(cli->command, "--context and --socket name two daemons: give one of them");
	if (!name || !*name || cli->args.socket)
		return EXIT_OK;
	r = contexts_read(cli, ret);
	if (r)
		return r;
	for (size_t i = 0; i < ret->n && !cli->args.socket; i++)
		if (ret->v[i].is_current)
			cli->args.socket = ret->v[i].socket;
	if (cli->args.socket)
		return EXIT_OK;
	path = contexts_path();
	say(cli, "there is no context '%s' in %s; write a line: %s = /PATH/OF/SOCKET", name, path ? path : "~/.config/agentboxctl/contexts",
	    name);
	free(path);
	contexts_free(ret);
	return EXIT_USAGE;
}
