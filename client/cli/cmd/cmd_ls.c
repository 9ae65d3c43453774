/* SPDX-License-Identifier: MIT */
/* agentboxctl ls */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/out.h"

static const struct opt cmd_ls_opts[] = {
	OPT('m', "metadata", OPT_PAIR, metadata, "K=V", "only those with this mark; may be repeated"),
	OPT(0, "state", OPT_TEXT, states, "S,...", "only in these states: running, paused, gone, ... (all but gone)"),
	OPT('t', "template", OPT_TEXT, template_name, "T", "only of this template"),
	OPT(0, "cached", OPT_FLAG, cached, NULL, "what the daemon knows, without asking the cloud"),
	OPT(0, "all-hosts", OPT_FLAG, all_hosts, NULL, "also what this daemon did not make"),
	OPT(0, "all-owners", OPT_FLAG, all_owners, NULL, "of all users (administrators)"),
};

/* "a=1 b=2", cut where it gets long. */
static void metadata_text(const struct ab_sandbox *sb, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < sb->n_metadata && at + 1 < n; i++) {
		int k = snprintf(buf + at, n - at, "%s%s=%s", i ? " " : "", sb->metadata[i].key,
				 sb->metadata[i].value);

		at += k > 0 ? (size_t)k : 0;
	}
}

static void cmd_ls_row(struct table *t, const struct ab_sandbox *sb, int64_t now_ms)
{
	char buf[32], metadata[200], policy[160];

	metadata_text(sb, metadata, sizeof(metadata));
	table_cell(t, sb->id);
	table_cell(t, *sb->name ? sb->name : "-");
	table_cell(t, state_name(sb->state));
	table_cell(t, *sb->alias ? sb->alias : sb->template_id);
	table_cell(t, time_text(sb->started_at_ms, buf));
	table_cell(t, time_text(sb->end_at_ms, buf));
	table_cell(t, sb->state == AB_SANDBOX_RUNNING ? span_text((sb->end_at_ms - now_ms) / 1000 * 1000, buf) : "-");
	(void)snprintf(buf, sizeof(buf), "%u", sb->owner_uid);
	table_cell(t, buf);
	(void)snprintf(buf, sizeof(buf), "%u", sb->leases);
	table_cell(t, buf);
	table_cell(t, policy_text(&sb->policy, policy, sizeof(policy)));
	table_cell(t, metadata);
}

/* 0, or EXIT_USAGE after saying what is wrong. */
static int read_states(struct cli *cli, uint32_t *ret)
{
	for (const char *p = cli->args.states; p && *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
		size_t n = strcspn(p, ",");
		enum ab_sandbox_state s = AB_SANDBOX_CREATING;

		while (s <= AB_SANDBOX_GONE && (strlen(state_name(s)) != n || strncmp(state_name(s), p, n) != 0))
			s++;
		if (s > AB_SANDBOX_GONE)
			return usage(cli->command, "'%.*s' is no state", (int)n, p);
		*ret |= 1u << s;
	}
	if (cli->args.states && !*ret)
		return usage(cli->command, "--state needs one");
	return 0;
}

static int cmd_ls_run(struct cli *cli)
{
	static const char *const heads[] = { "ID", "NAME", "STATE", "TEMPLATE", "STARTED", "ENDS", "LEFT",
					     "OWNER", "LEASES", "POLICY", "METADATA", NULL };
	const struct args *a = &cli->args;
	struct ab_sandbox_list_options o = {
		.metadata = a->metadata.v,
		.n_metadata = a->metadata.n,
		.page_size = 1000,
		.cached = a->cached,
		.all_hosts = a->all_hosts,
		.all_owners = a->all_owners,
		.template_name = a->template_name,
	};
	struct ab_sandbox_list *page = NULL, *next;
	struct table t;
	int r = read_states(cli, &o.states), r_table;

	if (r)
		return r;
	table_begin(&t, heads);
	do {
		o.page_token = page ? page->next_page_token : NULL;
		if (ab_sandbox_list(cli->client, &o, NULL, &next)) {
			r = fail_client(cli);
			break;
		}
		ab_free(page);
		page = next;
		for (size_t i = 0; i < page->n; i++) {
			if (a->json)
				print_sandbox_json(page->items[i]);
			else
				cmd_ls_row(&t, page->items[i], cli_wall_ms());
		}
	} while (*page->next_page_token);
	if (page && page->source == AB_SOURCE_CACHE_UNREACHABLE)
		say(cli, "warning: the cloud did not answer; this is what was known before");
	ab_free(page);
	if (a->json || r)
		t.quiet = true;
	r_table = table_end(&t);
	return a->json || r ? r : r_table;
}

const struct command cmd_ls = {
	.name = "ls",
	.words = "",
	.help = "Lists sandboxes, newest first.",
	.opts = cmd_ls_opts,
	.n_opts = ARRAY_SIZE(cmd_ls_opts),
	.run = cmd_ls_run,
};
