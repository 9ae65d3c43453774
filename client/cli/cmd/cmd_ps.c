/* SPDX-License-Identifier: MIT */
/* agentboxctl ps */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_ps_opts[] = {
	OPT('a', "all", OPT_FLAG, all, NULL, "also those that ended"),
	OPT(0, "ended", OPT_FLAG, all, NULL, "the same"),
};

static const char *state_text(const struct ab_command *c, char *buf, size_t n)
{
	const struct ab_command_result *r = c->result;

	if (c->running || !r)
		return "running";
	if (r->outcome == AB_EXITED)
		(void)snprintf(buf, n, "exited %d", r->exit_code);
	else if (r->outcome == AB_SIGNALED)
		(void)snprintf(buf, n, "signal %s", r->signal);
	else
		(void)snprintf(buf, n, "%s", r->outcome == AB_NOT_STARTED ? "not started"
					     : r->outcome == AB_LOST	  ? "lost"
									  : "unknown");
	return buf;
}

static const char *words_text(const struct ab_command *c, char *buf, size_t n)
{
	size_t at = 0;

	if (*c->shell)
		return c->shell;
	buf[0] = '\0';
	for (size_t i = 0; i < c->n_args && at + 1 < n; i++) {
		int k = snprintf(buf + at, n - at, "%s%s", i ? " " : "", c->args[i]);

		at += k > 0 ? (size_t)k : 0;
	}
	return buf;
}

static void cmd_ps_row(struct table *t, const struct ab_command *c)
{
	char buf[64], words[256];

	table_number(t, c->pid);
	table_cell(t, *c->command_id ? c->command_id : "-");
	table_cell(t, state_text(c, buf, sizeof(buf)));
	table_cell(t, *c->user ? c->user : "-");
	table_cell(t, time_text(c->started_at_ms, buf));
	table_cell(t, words_text(c, words, sizeof(words)));
}

static void result_json(struct json *j, const struct ab_command_result *r)
{
	static const char *const outcomes[] = { "", "exited", "signaled", "not_started", "lost",
						"unknown" };

	json_open(j, "result", '{');
	json_text(j, "outcome", outcomes[r->outcome]);
	if (r->outcome == AB_EXITED)
		json_int(j, "exit_code", r->exit_code);
	if (r->outcome == AB_SIGNALED)
		json_text(j, "signal", r->signal);
	json_bool(j, "timed_out", r->timed_out);
	json_bool(j, "killed", r->killed);
	json_uint(j, "stdout_bytes", r->stdout_bytes);
	json_uint(j, "stderr_bytes", r->stderr_bytes);
	json_bool(j, "output_complete", r->output_complete);
	json_bool(j, "pipes_held", r->pipes_held);
	json_time(j, "exited_at", r->exited_at_ms);
	json_text(j, "reason", r->reason);
	json_text(j, "message", r->message);
	json_close(j, '}');
}

static void cmd_ps_print_json(const struct ab_command *c)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "command_id", c->command_id);
	json_text(&j, "sandbox", c->sandbox);
	json_uint(&j, "pid", c->pid);
	if (*c->shell)
		json_text(&j, "shell", c->shell);
	json_words(&j, "args", c->args, c->n_args);
	json_pairs(&j, "envs", c->envs, c->n_envs);
	json_text(&j, "user", c->user);
	json_text(&j, "cwd", c->cwd);
	json_text(&j, "tag", c->tag);
	json_bool(&j, "pty", c->pty);
	json_bool(&j, "foreign", c->foreign);
	json_bool(&j, "running", c->running);
	json_time(&j, "started_at", c->started_at_ms);
	if (c->result)
		result_json(&j, c->result);
	json_end(&j);
}

static int cmd_ps_run(struct cli *cli)
{
	static const char *const heads[] = { "PID", "COMMAND", "STATE", "USER", "STARTED", "WORDS", NULL };
	static const char *const spare[] = { "STARTED", "USER", NULL };
	struct ab_command_list_options o = { .ended = cli->args.all, .page_size = 1000 };
	struct ab_command_list *page = NULL, *next;
	struct table t;
	int r = EXIT_OK, r_table;

	table_begin(&t, heads);
	t.spare = spare;
	t.cuts_last = true;
	do {
		o.page_token = page ? page->next_page_token : NULL;
		if (ab_command_list(cli->client, cli->args.words[0], &o, NULL, &next)) {
			r = fail_client(cli);
			break;
		}
		ab_free(page);
		page = next;
		for (size_t i = 0; i < page->n; i++) {
			if (cli->args.json)
				cmd_ps_print_json(page->items[i]);
			else
				cmd_ps_row(&t, page->items[i]);
		}
	} while (*page->next_page_token);
	ab_free(page);
	if (cli->args.json || r)
		t.quiet = true;
	r_table = table_end(&t);
	return cli->args.json || r ? r : r_table;
}

const struct command cmd_ps = {
	.name = "ps",
	.words = "ID",
	.help = "Lists what runs in a sandbox.",
	.opts = cmd_ps_opts,
	.n_opts = ARRAY_SIZE(cmd_ps_opts),
	.min_words = 1,
	.max_words = 1,
	.run = cmd_ps_run,
};
