/* SPDX-License-Identifier: MIT */
/* agentboxctl create */
#include <stdio.h>
#include <string.h>

#include "client/cli/cmd/netopt.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_create_opts[] = {
	OPT('t', "template", OPT_TEXT, template_name, "T", "name or id of a template or snapshot (base)"),
	OPT(0, "timeout", OPT_SPAN, timeout_ms, "D", "its life from now (5m)"),
	OPT('m', "metadata", OPT_PAIR, metadata, "K=V", "a mark to find it by; may be repeated"),
	OPT('e', "env", OPT_PAIR, envs, "K=V", "in the environment of all it runs; may be repeated"),
	OPT(0, "name", OPT_TEXT, name, "N", "get or create the sandbox of this name"),
	OPT(0, "policy", OPT_TEXT, policy, "P", "such as on_release=kill,release_grace=2s; see agentboxctl policy"),
	OPT(0, "on-timeout", OPT_TEXT, on_timeout, "kill|pause", "what the cloud does at its end (kill)"),
	OPT(0, "no-memory", OPT_FLAG, no_memory, NULL, "with --on-timeout pause: keep the files only"),
	OPT(0, "auto-resume", OPT_FLAG, auto_resume, NULL, "with --on-timeout pause: traffic from outside resumes it"),
	OPT(0, "no-internet", OPT_FLAG, no_internet, NULL, "nothing goes out but what --allow-out says"),
	NETOPT_EGRESS,
	OPT(0, "private", OPT_FLAG, private_ports, NULL, "its ports are reached with a token only"),
	OPT(0, "mask-host", OPT_TEXT, mask_host, "HOST", "the Host that its services see; ${PORT} is the port"),
	OPT(0, "iam", OPT_PAIR, iam, "NAME=AUDIENCE", "a workload token, for --header; may be repeated"),
	OPT(0, "not-secure", OPT_FLAG, not_secure, NULL, "its agent takes calls without a token"),
	OPT(0, "must-create", OPT_FLAG, must_create, NULL, "with --name: fail where there is one"),
	OPT(0, "warm", OPT_TEXT, warm, "HOW", "take one that is ready: never, prefer or require (as configured)"),
	OPT(0, "wait-ready", OPT_FLAG, wait_ready, NULL, "return when the agent inside answers"),
	OPT(0, "request-id", OPT_TEXT, request_id, "R", "the same id never creates twice"),
};

static int take_warm(const struct cli *cli, enum ab_warm_mode *ret)
{
	static const char *const words[] = { [AB_WARM_NEVER] = "never", [AB_WARM_PREFER] = "prefer", [AB_WARM_REQUIRE] = "require" };

	for (unsigned i = 1; cli->args.warm && i < ARRAY_SIZE(words); i++)
		if (!strcmp(words[i], cli->args.warm))
			*ret = (enum ab_warm_mode)i;
	if (cli->args.warm && !*ret)
		return usage(cli->command, "--warm is never, prefer or require, not '%s'", cli->args.warm);
	return EXIT_OK;
}

static int cmd_create_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct ab_policy policy = { 0 };
	struct netopt net = { 0 };
	struct ab_sandbox_create_options o = {
		.policy = a->policy ? &policy : NULL,
		.request_id = a->request_id,
		.template_name = a->template_name,
		.sandbox_timeout_ms = a->timeout_ms,
		.metadata = a->metadata.v,
		.n_metadata = a->metadata.n,
		.envs = a->envs.v,
		.n_envs = a->envs.n,
		.name = a->name,
		.secure = a->not_secure ? AB_NO : AB_DEFAULT,
		.must_create = a->must_create,
		.wait_ready = a->wait_ready,
		.allow_internet_access = a->no_internet ? AB_NO : AB_DEFAULT,
		.keep_memory = a->no_memory ? AB_NO : AB_DEFAULT,
		.auto_resume = a->auto_resume ? AB_YES : AB_DEFAULT,
	};
	struct ab_call *call;
	struct ab_sandbox *sb;
	int r = a->policy ? policy_option(cli->command, a->policy, &policy) : 0;

	if (r)
		return r;
	r = netopt_on_timeout(cli, &o.on_timeout);
	if (!r)
		r = take_warm(cli, &o.warm);
	if (!r)
		r = netopt_make(cli, &net);
	if (r)
		return r;
	o.network = net.any ? &net.network : NULL;
	o.iam_tokens = net.tokens;
	o.n_iam_tokens = net.n_tokens;
	r = ab_sandbox_create_start(cli->client, &o, NULL, &call);
	netopt_free(&net);
	if (r < 0)
		return fail_here(cli, "%s", strerror(-r));
	if (ab_call_wait(call)) {
		r = fail_create(cli, call);
		ab_call_free(call);
		return r;
	}
	sb = ab_call_take(call);
	if (a->json) {
		print_sandbox(cli, sb);
	} else {
		if (*sb->warning)
			say(cli, "warning: %s", sb->warning);
		puts(sb->id);
	}
	ab_free(sb);
	ab_call_free(call);
	return EXIT_OK;
}

const struct command cmd_create = {
	.name = "create",
	.words = "",
	.help = "Creates a sandbox and prints its id.",
	.opts = cmd_create_opts,
	.n_opts = ARRAY_SIZE(cmd_create_opts),
	.run = cmd_create_run,
};
