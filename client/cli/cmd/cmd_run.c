/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl run: a program on this host (child.h) with an unmodified SDK. Its token is of a run, whose process is this one: when
 * it ends the token is void, and what was made with it is released, whether the program ended, was killed, or we were. It
 * needs no connection meanwhile, so a restart of the daemon is nothing to it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cmd/gwenv.h"
#include "client/cli/term/child.h"
#include "client/cli/term/out.h"

static const struct opt cmd_run_opts[] = {
	OPT(0, "on-release", OPT_TEXT, on_release, "kill|pause|leave", "its sandboxes when it has ended (kill)"),
	OPT(0, "policy", OPT_TEXT, policy, "P", "of creates that do not say it, such as idle_timeout=10m,on_idle=kill"),
	OPT(0, "warm", OPT_FLAG, prefers_warm, NULL, "creates that do not say it take one that is ready"),
	OPT(0, "label", OPT_TEXT, label, "TEXT", "of its token, shown in lists"),
};

static bool set_variable(void *user, const char *name, const char *value)
{
	return setenv(name, value, 1) == 0;
}

static enum ab_action action_of(const char *text)
{
	static const char *const words[] = { [AB_ACTION_LEAVE] = "leave", [AB_ACTION_PAUSE] = "pause", [AB_ACTION_KILL] = "kill" };

	for (size_t i = AB_ACTION_LEAVE; i < ARRAY_SIZE(words); i++)
		if (!strcmp(words[i], text))
			return (enum ab_action)i;
	return AB_ACTION_DEFAULT;
}

/* --on-release is a part of it. EXIT_USAGE after it was said. */
static int take_policy(const struct cli *cli, struct ab_policy *ret)
{
	const struct args *a = &cli->args;
	int r = a->policy ? policy_option(cli->command, a->policy, ret) : 0;

	if (r)
		return r;
	if (a->on_release && !action_of(a->on_release))
		return usage(cli->command, "--on-release: kill, pause or leave, not '%s'", a->on_release);
	if (a->on_release && ret->on_release && ret->on_release != action_of(a->on_release))
		return usage(cli->command, "--on-release says another thing than --policy");
	if (a->on_release)
		ret->on_release = action_of(a->on_release);
	return 0;
}

static int prepare(struct cli *cli, const struct ab_policy *policy)
{
	const struct ab_token_options o = { .label = cli->args.label ? cli->args.label : cli->args.rest[0], .run = true, .policy = policy,
					    .warm = cli->args.prefers_warm ? AB_WARM_PREFER : AB_WARM_DEFAULT };
	struct ab_gateway *gateway;
	struct ab_token *token;
	int r = gwenv_find(cli, &gateway);

	if (r)
		return r;
	if (ab_token_create(cli->client, &o, NULL, &token)) {
		r = fail_client(cli);
	} else {
		r = gwenv_each(gateway->url, token->secret, false, set_variable, NULL);
		if (r)
			say(cli, "the environment: %s", strerror(errno));
		ab_free(token);
	}
	ab_free(gateway);
	return r ? EXIT_FAILED : 0;
}

static int cmd_run_wait(struct child *c)
{
	int code;

	while ((code = child_take(c)) < 0) {
		struct pollfd p = { .fd = c->sig_fd, .events = POLLIN };

		(void)poll(&p, 1, -1);
	}
	return code;
}

static int cmd_run_run(struct cli *cli)
{
	struct ab_policy policy = { 0 };
	struct child c;
	int r;

	if (!cli->args.n_rest)
		return usage(cli->command, "the program to run is missing: run -- CMD…");
	r = take_policy(cli, &policy);
	if (!r)
		r = prepare(cli, &policy);
	if (r)
		return r;
	r = child_init(&c, cli);
	if (r < 0)
		return fail_here(cli, "%s", strerror(-r));
	ab_client_free(cli->client);
	cli->client = NULL;
	return child_begin(&c, cli->args.rest) ? EXIT_FAILED : cmd_run_wait(&c);
}

const struct command cmd_run = {
	.name = "run",
	.words = "[--] CMD…",
	.help = "Runs a program with an unmodified SDK through this daemon; its sandboxes do not outlive it.\n"
		"Ends with its exit code; 125 if it could not begin.",
	.opts = cmd_run_opts,
	.n_opts = ARRAY_SIZE(cmd_run_opts),
	.takes_rest = true,
	.no_json = true,
	.fail_code = EXIT_FAILED,
	.run = cmd_run_run,
};
