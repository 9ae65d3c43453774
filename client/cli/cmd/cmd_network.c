/* SPDX-License-Identifier: MIT */
/* agentboxctl network */
#include <stdio.h>

#include "client/cli/cmd/netopt.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_network_opts[] = {
	NETOPT_EGRESS,
	OPT(0, "internet", OPT_FLAG, internet, NULL, "it may go out"),
	OPT(0, "no-internet", OPT_FLAG, no_internet, NULL, "nothing goes out but what --allow-out says"),
	OPT(0, "clear", OPT_FLAG, clear, NULL, "no rules at all, and internet access as by default"),
};

static void words(const char *name, const char *const *v, size_t n)
{
	char clean[512];

	for (size_t i = 0; i < n; i++)
		printf("%-12s %s\n", i ? "" : name, safe(v[i], clean, sizeof(clean)));
}

static void headers(const struct ab_network *n)
{
	char text[2300], clean[2300];

	for (size_t i = 0; i < n->n_rules; i++)
		for (size_t k = 0; k < n->rules[i].n_headers; k++) {
			(void)snprintf(text, sizeof(text), "%s:%s=%s", n->rules[i].host,
				       n->rules[i].headers[k].key, n->rules[i].headers[k].value);
			printf("%-12s %s\n", i || k ? "" : "header", safe(text, clean, sizeof(clean)));
		}
}

static void cmd_network_print(const struct ab_sandbox *sb)
{
	const struct ab_network *n = sb->network;
	const char *proxy = n ? n->proxy_address : "", *mask = n ? n->mask_request_host : "";

	printf("%-12s %s\n", "internet", sb->allow_internet_access == AB_NO ? "no" : "yes");
	printf("%-12s %s\n", "ports", n && n->allow_public_traffic == AB_NO ? "private" : "public");
	if (n) {
		words("allow out", n->allow_out, n->n_allow_out);
		words("deny out", n->deny_out, n->n_deny_out);
		headers(n);
	}
	words("proxy", &proxy, *proxy != '\0');
	words("mask host", &mask, *mask != '\0');
}

static int cmd_network_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	enum ab_choice internet = a->internet ? AB_YES : a->no_internet ? AB_NO
				: a->clear    ? AB_YES		/* unsaid, the cloud keeps what was said before */
					      : AB_DEFAULT;
	struct netopt net = { 0 };
	struct ab_sandbox *sb;
	int r = netopt_make(cli, &net);

	if (r)
		return r;
	if (a->internet && a->no_internet)
		r = usage(cli->command, "it is --internet or --no-internet");
	else if (a->clear && net.any)
		r = usage(cli->command, "--clear goes with no other rule");
	else if ((net.any || internet) &&
		 ab_sandbox_update_network(cli->client, a->words[0], &net.network, internet, NULL))
		r = fail_client(cli);
	netopt_free(&net);
	if (r)
		return r;
	/* What is in force now, as the cloud says it. */
	if (ab_sandbox_get(cli->client, a->words[0], AB_ZERO_MS, NULL, &sb))
		return fail_client(cli);
	if (a->json)
		print_sandbox_json(sb);
	else
		cmd_network_print(sb);
	ab_free(sb);
	return EXIT_OK;
}

const struct command cmd_network = {
	.name = "network",
	.words = "ID",
	.help = "Shows where a sandbox may go, or replaces it as a whole.\n"
		"What is not said again is cleared; \"internet\" is shown as last said, until --internet,\n"
		"--no-internet or --clear says it again. Who may come in is said when it is created.",
	.opts = cmd_network_opts,
	.n_opts = ARRAY_SIZE(cmd_network_opts),
	.min_words = 1,
	.max_words = 1,
	.run = cmd_network_run,
};
