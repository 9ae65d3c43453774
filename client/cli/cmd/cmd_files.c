/* SPDX-License-Identifier: MIT */
/* agentboxctl files, stat, mkdir, mv, rm, sign: one call each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"
#include "client/cli/tree/xfer.h"

#define DEPTH_ALL 100u		/* what the daemon takes at most */

static const struct opt user_opts[] = {
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
};
static const struct opt files_opts[] = {
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
	OPT('r', "recursive", OPT_FLAG, recursive, NULL, "also what is below"),
};
static const struct opt sign_opts[] = {
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
	OPT(0, "write", OPT_FLAG, write, NULL, "a link to write the file, by POST"),
	OPT(0, "expires", OPT_SPAN, expires_ms, "D", "how long it is good (as long as the sandbox lives)"),
};

/* ID:PATH out of a word. EXIT_OK, or what usage() says. */
static int take_path(struct cli *cli, char *word, bool may_be_home, struct ab_path *ret)
{
	if (!xfer_split(cli, word, ret) || (!*ret->path && !may_be_home))
		return usage(cli->command, "needs ID:PATH");
	if (!*ret->path)
		ret->path = ".";
	ret->user = cli->args.user;
	return EXIT_OK;
}

/* --- one entry --- */

static const char *type_text(const struct ab_file *f)
{
	return f->symlink_target	  ? "symlink"
	       : f->type == AB_DIRECTORY ? "directory"
	       : f->type == AB_FILE	  ? "file"
	       : f->type == AB_SYMLINK	  ? "symlink"
					  : "other";
}

void print_file_json(struct json *j, const char *key, const struct ab_file *f)
{
	json_open(j, key, '{');
	json_text(j, "name", f->name);
	json_text(j, "path", f->path);
	json_text(j, "type", type_text(f));
	json_int(j, "size", f->size);
	json_text(j, "permissions", f->permissions);
	json_uint(j, "mode", f->mode);
	json_text(j, "owner", f->owner);
	json_text(j, "group", f->group);
	json_time(j, "modified_at", f->modified_at_ms);
	if (f->symlink_target)
		json_text(j, "symlink_target", f->symlink_target);
	json_pairs(j, "metadata", f->metadata, f->n_metadata);
	json_close(j, '}');
}

static void print_one_json(const struct ab_file *f)
{
	struct json j = { .f = stdout };

	print_file_json(&j, NULL, f);
	putchar('\n');
}

static void print_file(const struct ab_file *f)
{
	char buf[32], text[4200];

	printf("path: %s\n", safe(f->path, text, sizeof(text)));
	printf("type: %s\n", type_text(f));
	printf("size: %lld\n", (long long)f->size);
	printf("permissions: %s\n", f->permissions);
	printf("owner: %s:%s\n", safe(f->owner, text, 64), f->group);
	printf("modified: %s\n", time_text(f->modified_at_ms, buf));
	if (f->symlink_target)
		printf("target: %s\n", safe(f->symlink_target, text, sizeof(text)));
	for (size_t i = 0; i < f->n_metadata; i++)
		printf("metadata: %s=%s\n", f->metadata[i].key, safe(f->metadata[i].value, text, sizeof(text)));
}

static int run_stat(struct cli *cli)
{
	struct ab_path path;
	struct ab_file *f;
	int r = take_path(cli, cli->args.words[0], true, &path);

	if (r != EXIT_OK)
		return r;
	if (ab_file_stat(cli->client, &path, NULL, &f))
		return fail_client(cli);
	if (cli->args.json)
		print_one_json(f);
	else
		print_file(f);
	ab_free(f);
	return EXIT_OK;
}

/* --- many --- */

static void cmd_files_row(struct table *t, const struct ab_file *f, size_t skip)
{
	char buf[64], name[4300];

	table_cell(t, f->permissions);
	(void)snprintf(buf, sizeof(buf), "%s:%s", f->owner, f->group);
	table_cell(t, buf);
	(void)snprintf(buf, sizeof(buf), "%lld", (long long)f->size);
	table_cell(t, buf);
	table_cell(t, time_text(f->modified_at_ms, buf));
	(void)snprintf(name, sizeof(name), "%s%s%s", f->path + skip, f->symlink_target ? " -> " : "",
		       f->symlink_target ? f->symlink_target : "");
	table_cell(t, name);
}

/* How much of each path is that of the directory: what the entries have in common, up to a slash. */
static size_t common(const struct ab_file_list *l)
{
	size_t n = l->n ? strlen(l->items[0]->path) - strlen(l->items[0]->name) : 0;

	for (size_t i = 0; i < l->n; i++) {
		size_t k = strlen(l->items[i]->path) - strlen(l->items[i]->name);

		n = k < n ? k : n;
	}
	return n;
}

static int run_files(struct cli *cli)
{
	static const char *const heads[] = { "PERMISSIONS", "OWNER", "SIZE", "MODIFIED", "NAME", NULL };
	struct ab_file_list *list;
	struct ab_path path;
	struct table t;
	size_t skip;
	int r = take_path(cli, cli->args.words[0], true, &path);

	if (r != EXIT_OK)
		return r;
	if (ab_file_list(cli->client, &path, cli->args.recursive ? DEPTH_ALL : 1, NULL, &list))
		return fail_client(cli);
	skip = common(list);
	table_begin(&t, heads);
	t.quiet = cli->args.json;
	for (size_t i = 0; i < list->n; i++) {
		if (cli->args.json)
			print_one_json(list->items[i]);
		else
			cmd_files_row(&t, list->items[i], skip);
	}
	r = table_end(&t);
	ab_free(list);
	return cli->args.json ? EXIT_OK : r;
}

/* --- changes --- */

static void print_changed_json(const struct ab_path *path, const bool *created)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "sandbox", path->sandbox);
	json_text(&j, "path", path->path);
	if (created)
		json_bool(&j, "created", *created);
	json_end(&j);
}

static int run_mkdir(struct cli *cli)
{
	struct ab_path path;
	bool created;
	int r = take_path(cli, cli->args.words[0], false, &path);

	if (r != EXIT_OK)
		return r;
	if (ab_file_make_dir(cli->client, &path, NULL, &created))
		return fail_client(cli);
	if (cli->args.json)
		print_changed_json(&path, &created);
	return EXIT_OK;
}

static int run_rm(struct cli *cli)
{
	int r = EXIT_OK;

	for (size_t i = 0; i < cli->args.n_words && r == EXIT_OK; i++) {
		struct ab_path path;

		r = take_path(cli, cli->args.words[i], false, &path);
		if (r == EXIT_OK && ab_file_remove(cli->client, &path, NULL))
			r = fail_client(cli);
		else if (r == EXIT_OK && cli->args.json)
			print_changed_json(&path, NULL);
	}
	return r;
}

static int run_mv(struct cli *cli)
{
	char *to = cli->args.words[1];
	const char *new_path;
	struct ab_path path, target;
	struct ab_file *f;
	int r = take_path(cli, cli->args.words[0], false, &path);

	if (r != EXIT_OK)
		return r;
	if (xfer_split(cli, to, &target)) {
		if (strcmp(target.sandbox, path.sandbox) != 0)
			return usage(cli->command, "cannot move to another sandbox: '%s' is not '%s'; a new name with a "
				     "colon needs a slash before it, such as ./a:b", target.sandbox, path.sandbox);
		if (!*target.path)
			return usage(cli->command, "needs a new path after %s:", target.sandbox);
		new_path = target.path;
	} else {
		new_path = xfer_text(cli, to);
	}
	if (ab_file_move(cli->client, &path, new_path, NULL, &f))
		return fail_client(cli);
	if (cli->args.json)
		print_one_json(f);
	ab_free(f);
	return EXIT_OK;
}

/* --- links --- */

static int run_sign(struct cli *cli)
{
	struct ab_path path;
	struct ab_link *l;
	struct json j;
	int r = take_path(cli, cli->args.words[0], false, &path);

	if (r != EXIT_OK)
		return r;
	if (ab_file_sign(cli->client, &path, cli->args.write, cli->args.expires_ms, NULL, &l))
		return fail_client(cli);
	if (cli->args.json) {
		json_begin(&j, stdout);
		json_text(&j, "url", l->url);
		json_time(&j, "expires_at", l->expires_at_ms);
		json_end(&j);
	} else {
		printf("%s\n", l->url);
	}
	ab_free(l);
	return EXIT_OK;
}

/* --- the commands --- */

#define COMMAND(id, name_, words_, help_, opts_, least, most)                                      \
	const struct command cmd_##id = {                                                          \
		.name = name_, .words = words_, .help = help_, .opts = opts_,                      \
		.n_opts = ARRAY_SIZE(opts_), .min_words = least, .max_words = most, .run = run_##id,\
	}

COMMAND(files, "files", "ID:[PATH]", "Lists a directory of a sandbox.", files_opts, 1, 1);
COMMAND(stat, "stat", "ID:[PATH]", "Shows what a name in a sandbox is; of a link, the link.", user_opts, 1, 1);
COMMAND(mkdir, "mkdir", "ID:PATH", "Makes a directory in a sandbox, with those above it.", user_opts, 1, 1);
COMMAND(rm, "rm", "ID:PATH…", "Removes files, and directories with all in them, from sandboxes.\n"
	"What is not there is no failure.", user_opts, 1, SIZE_MAX);
COMMAND(mv, "mv", "ID:PATH [ID:]NEWPATH", "Renames something inside a sandbox.", user_opts, 2, 2);
COMMAND(sign, "sign", "ID:PATH", "Prints a link that reads a file without any other credential.\n"
	"Whoever has it may use it.", sign_opts, 1, 1);
