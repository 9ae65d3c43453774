/* SPDX-License-Identifier: MIT */
/* agentboxctl config, reload: what the daemon runs with, and that it reads it again. */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/context.h"
#include "client/cli/term/out.h"

static void json_value(struct json *j, const struct ab_config_value *v)
{
	json_open(j, NULL, '{');
	json_text(j, "section", v->section);
	json_text(j, "key", v->key);
	json_words(j, "values", v->values, v->n_values);
	json_bool(j, "secret", v->secret);
	json_text(j, "origin", v->origin);
	json_text(j, "file", v->file);
	json_uint(j, "line", v->line);
	json_text(j, "default", v->default_value);
	json_bool(j, "reloadable", v->reloadable);
	json_close(j, '}');
}

static void cmd_config_print_json(const struct ab_config *c)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "file", c->file);
	json_bool(&j, "file_changed", c->file_changed);
	json_time(&j, "loaded_at", c->loaded_at_ms);
	json_open(&j, "values", '[');
	for (size_t i = 0; i < c->n; i++)
		json_value(&j, &c->values[i]);
	json_close(&j, ']');
	json_end(&j);
}

static bool is_set(const struct ab_config_value *v)
{
	return strcmp(v->origin, "default") != 0;
}

/* A value as it may stand in the file; "-" = there is none. */
static void value_text(const struct ab_config_value *v, char *buf, size_t n)
{
	size_t at = 0;

	(void)snprintf(buf, n, "%s", v->secret && is_set(v) ? "(not shown)" : "-");
	for (size_t i = 0; i < v->n_values && at < n; i++)
		at += (size_t)snprintf(buf + at, n - at, "%s%s", i ? " " : "", v->values[i]);
}

static void origin_text(const struct ab_config_value *v, char *buf, size_t n)
{
	if (v->line)
		(void)snprintf(buf, n, "%s:%u", v->file, v->line);
	else
		(void)snprintf(buf, n, "%s", !strcmp(v->origin, "command_line") ? "command line" : v->origin);
}

static int print_table(const struct ab_config *c)
{
	static const char *const heads[] = { "SECTION", "KEY", "VALUE", "FROM", NULL };
	struct table t;

	table_begin(&t, heads);
	for (size_t i = 0; i < c->n; i++) {
		char text[4200];

		table_cell(&t, c->values[i].section);
		table_cell(&t, c->values[i].key);
		value_text(&c->values[i], text, sizeof(text));
		table_cell(&t, text);
		origin_text(&c->values[i], text, sizeof(text));
		table_cell(&t, text);
	}
	return table_end(&t);
}

static int show(struct cli *cli)
{
	const char *section = cli->args.n_words > 1 ? cli->args.words[1] : NULL;
	struct ab_config *c;
	int r = EXIT_OK;

	if (ab_daemon_config(cli->client, section, NULL, &c))
		return fail_client(cli);
	if (cli->args.json)
		cmd_config_print_json(c);
	else
		r = print_table(c);
	if (c->file_changed && !cli->args.json)
		say(cli, "%s is another than what the daemon runs with: reload it, or see `agentboxctl reload` for what needs a restart",
		    c->file);
	ab_free(c);
	return r;
}

/* --- the user's own file of daemons --- */

static void print_context(const struct context *x, struct table *t, bool as_json)
{
	struct json j;

	if (!as_json) {
		table_cell(t, x->is_current ? "*" : "");
		table_cell(t, x->name);
		table_cell(t, x->socket);
		return;
	}
	json_begin(&j, stdout);
	json_text(&j, "name", x->name);
	json_text(&j, "socket", x->socket);
	json_bool(&j, "current", x->is_current);
	json_end(&j);
}

static int contexts(struct cli *cli)
{
	static const char *const heads[] = { "", "NAME", "SOCKET", NULL };
	struct contexts all;
	struct table t;
	int r = contexts_read(cli, &all);

	if (r)
		return r;
	table_begin(&t, heads);
	for (size_t i = 0; i < all.n; i++)
		print_context(&all.v[i], &t, cli->args.json);
	t.quiet = cli->args.json;
	contexts_free(&all);
	return table_end(&t);
}

static int cmd_config_run(struct cli *cli)
{
	return strcmp(cli->args.words[0], "contexts") != 0 ? show(cli) : contexts(cli);
}

static int cmd_config_check(struct cli *cli)
{
	const char *what = cli->args.words[0];

	if (!strcmp(what, "contexts"))
		return cli->args.n_words == 1 ? 0 : usage(cli->command, "contexts takes no more");
	return strcmp(what, "show") != 0 ? usage(cli->command, "it is show or contexts, not '%s'", what) : 0;
}

static bool cmd_config_is_offline(const struct args *a)
{
	return !strcmp(a->words[0], "contexts");
}

const struct command cmd_config = {
	.name = "config",
	.words = "show [SECTION] | contexts",
	.help = "Shows what the daemon runs with, each value with its origin, or the daemons that --context knows.\n"
		"SECTION is a section of the configuration, such as daemon, or 'account main'. Secrets are not shown.",
	.min_words = 1,
	.max_words = 2,
	.check = cmd_config_check,
	.is_offline = cmd_config_is_offline,
	.run = cmd_config_run,
};

/* --- reload --- */

static void json_keys(struct json *j, const char *name, const struct ab_changed_key *keys, size_t n)
{
	json_open(j, name, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(j, NULL, '{');
		json_text(j, "section", keys[i].section);
		json_text(j, "key", keys[i].key);
		json_text(j, "file", keys[i].file);
		json_uint(j, "line", keys[i].line);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void cmd_reload_print_json(const struct ab_reloaded *s)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "file", s->file);
	json_words(&j, "problems", s->problems, s->n_problems);
	json_keys(&j, "taken", s->taken, s->n_taken);
	json_keys(&j, "need_restart", s->need_restart, s->n_need_restart);
	json_end(&j);
}

static void print_keys(const char *said, const struct ab_reloaded *s, const struct ab_changed_key *keys, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		printf("%s: [%s] %s", said, keys[i].section, keys[i].key);
		if (keys[i].line)
			printf(" (%s:%u)\n", keys[i].file, keys[i].line);
		else
			printf(" (no longer in %s)\n", s->file);
	}
}

static void cmd_reload_print(struct cli *cli, const struct ab_reloaded *s)
{
	for (size_t i = 0; i < s->n_problems; i++)
		say(cli, "%s", s->problems[i]);
	if (s->n_problems) {
		say(cli, "%s has problems; nothing was changed", s->file);
		return;
	}
	print_keys("taken up", s, s->taken, s->n_taken);
	print_keys("needs a restart", s, s->need_restart, s->n_need_restart);
	if (!s->n_taken && !s->n_need_restart)
		printf("nothing is different in %s\n", s->file);
}

static int cmd_reload_run(struct cli *cli)
{
	struct ab_reloaded *s;
	int r;

	if (ab_daemon_reload(cli->client, NULL, &s))
		return fail_client(cli);
	if (cli->args.json)
		cmd_reload_print_json(s);
	else
		cmd_reload_print(cli, s);
	r = s->n_problems ? EXIT_ERROR : EXIT_OK;
	ab_free(s);
	return r;
}

const struct command cmd_reload = {
	.name = "reload",
	.words = "",
	.help = "The daemon reads its configuration again: prints what it took up, and what needs a restart.\n"
		"Exit code 1 if something in the file is wrong: every problem is printed, and nothing was changed.",
	.run = cmd_reload_run,
};
