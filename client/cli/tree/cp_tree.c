/* SPDX-License-Identifier: MIT */
/* cp -r: which directory becomes which, as cp(1) has it, and how it went. */
#include "client/cli/tree/cp_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/term/out.h"
#include "client/cli/tree/cp.h"

void cp_warn(void *tree, const char *rel, const char *what)
{
	struct cp_tree *t = tree;
	char name[256];

	t->warnings++;
	say(t->cli, "warning: %s: %s", safe(*rel ? rel : ".", name, sizeof(name)), what);
}

static int fail_local(struct cp_tree *t, const char *path, int err)
{
	return fail_here(t->cli, "%s: %s", path, strerror(err));
}

/* The last name of a path, heap; NULL if it has none: then it is what is inside that is copied. */
static char *last_name(const char *path)
{
	size_t n = strlen(path), from;

	while (n && path[n - 1] == '/')
		n--;
	for (from = n; from && path[from - 1] != '/';)
		from--;
	if (from == n || !strncmp(path + from, ".", n - from) || !strncmp(path + from, "..", n - from))
		return NULL;
	return strndup(path + from, n - from);
}

char *cp_join(const char *dir, const char *name)
{
	char *path = NULL;
	size_t n = strlen(dir);

	if (!name)
		return strdup(dir);
	return asprintf(&path, "%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name) < 0 ? NULL : path;
}

static int out_of_memory(struct cp_tree *t)
{
	return fail_here(t->cli, "out of memory");
}

/* --- the side of the sandbox --- */

/* *ret: NULL if nothing is there. */
static int look(struct cp_tree *t, const char *path, struct ab_file **ret)
{
	const struct ab_path p = { .sandbox = t->sandbox, .path = path, .user = t->user };

	*ret = NULL;
	if (ab_file_stat(t->cli->client, &p, NULL, ret) == AB_OK)
		return EXIT_OK;
	if (!strcmp(ab_client_error(t->cli->client)->reason, "FILE_NOT_FOUND"))
		return EXIT_OK;
	return fail_client(t->cli);
}

static int not_a_directory(struct cp_tree *t, const char *path)
{
	return fail_here(t->cli, "%s in the sandbox is no directory (NOT_A_DIRECTORY)", path);
}

static int make_remote(struct cp_tree *t, const char *path, struct ab_file **ret)
{
	const struct ab_path p = { .sandbox = t->sandbox, .path = path, .user = t->user };

	if (ab_file_make_dir(t->cli->client, &p, NULL, &t->made))
		return fail_client(t->cli);
	return look(t, path, ret);
}

/* Where a tree called `name` goes if `path` was named. */
static int aim_remote(struct cp_tree *t, const char *path, const char *name, struct ab_file **ret)
{
	char *full;
	int code = look(t, path, ret);

	if (code != EXIT_OK)
		return code;
	if (*ret && (*ret)->type != AB_DIRECTORY)
		return not_a_directory(t, path);
	if (!*ret)
		return make_remote(t, path, ret);
	if (!name)
		return EXIT_OK;
	full = cp_join((*ret)->path, name);
	ab_free(*ret);
	*ret = NULL;
	code = full ? look(t, full, ret) : out_of_memory(t);
	if (code == EXIT_OK && *ret && (*ret)->type != AB_DIRECTORY)
		code = not_a_directory(t, full);
	else if (code == EXIT_OK && !*ret)
		code = make_remote(t, full, ret);
	free(full);
	return code;
}

/* --- the side of this machine --- */

static int aim_local(struct cp_tree *t, const char *path, const char *name)
{
	struct stat st;
	bool there = stat(path, &st) == 0;
	char *full = cp_join(path, there ? name : NULL);

	if (!full)
		return out_of_memory(t);
	t->made = mkdir(full, 0777) == 0;
	t->root = t->made || errno == EEXIST ? open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (t->root < 0)
		(void)fail_local(t, full, errno);
	free(full);
	return t->root < 0 ? EXIT_ERROR : EXIT_OK;
}

/* --- a copy --- */

static void report(const struct cp_tree *t)
{
	struct json j;

	if (!t->cli->args.json)
		return;
	json_begin(&j, stdout);
	json_text(&j, "sandbox", t->sandbox);
	json_text(&j, "path", t->remote);
	json_uint(&j, "files", t->files);
	json_uint(&j, "bytes", t->bytes);
	json_uint(&j, "unchanged", t->unchanged);
	json_uint(&j, "warnings", t->warnings);
	json_end(&j);
}

/* The bytes of a path, each as \0ooo. */
static char *printf_word(const char *text)
{
	char *bytes = ab_path_bytes(text), *word = bytes ? malloc(5 * strlen(bytes) + 1) : NULL;

	for (size_t i = 0; word && (i == 0 || bytes[i - 1]); i++)
		(void)snprintf(word + 5 * i, bytes[i] ? 6 : 1, "\\0%03o", (unsigned char)bytes[i]);
	free(bytes);
	return word;
}

static int copy(struct cp_tree *t, const struct ab_file *dir, bool up)
{
	int code;

	t->remote = dir->path;
	t->remote_word = printf_word(dir->path);
	if (!t->remote_word)
		return out_of_memory(t);
	meter_open(&t->meter, !t->cli->args.json && isatty(STDERR_FILENO));
	code = up ? cp_up(t) : cp_down(t);
	meter_close(&t->meter);
	if (code == EXIT_OK && t->warnings) {
		say(t->cli, "copied, but for what the warnings name");
		code = EXIT_ERROR;
	}
	report(t);
	free(t->remote_word);
	return code;
}

int cp_tree_up(struct cli *cli, const struct ab_path *to, const char *from, int sig_fd, int *ret_signo)
{
	struct cp_tree t = { .cli = cli, .sandbox = to->sandbox, .user = to->user, .sig_fd = sig_fd };
	char *name = last_name(from), *text = name ? ab_path_text(name) : NULL;
	struct ab_file *dir = NULL;
	int code = EXIT_ERROR;

	t.label = name ? name : from;
	t.root = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t.root < 0)
		code = fail_local(&t, from, errno);
	else
		code = name && !text ? out_of_memory(&t) : aim_remote(&t, *to->path ? to->path : ".", text, &dir);
	if (code == EXIT_OK)
		code = dir ? copy(&t, dir, true) : not_a_directory(&t, to->path);
	if (t.root >= 0)
		(void)close(t.root);
	ab_free(dir);
	free(name);
	free(text);
	*ret_signo = t.signo;
	return code;
}

int cp_tree_down(struct cli *cli, const struct ab_path *from, const char *to, int sig_fd, int *ret_signo)
{
	struct cp_tree t = { .cli = cli, .sandbox = from->sandbox, .user = from->user, .root = -1,
			     .sig_fd = sig_fd };
	const char *path = *from->path ? from->path : ".";
	char *text = last_name(path), *name = text ? ab_path_bytes(text) : NULL;
	struct ab_file *dir = NULL;
	int code = look(&t, path, &dir);

	t.label = text ? text : path;
	if (code == EXIT_OK && !dir)
		code = fail_client(cli);
	else if (code == EXIT_OK && dir->type != AB_DIRECTORY)
		code = CP_IS_A_FILE;
	else if (code == EXIT_OK)
		code = text && !name ? out_of_memory(&t) : aim_local(&t, to, name);
	if (code == EXIT_OK)
		code = copy(&t, dir, false);
	if (t.root >= 0)
		(void)close(t.root);
	ab_free(dir);
	free(text);
	free(name);
	*ret_signo = t.signo;
	return code;
}
