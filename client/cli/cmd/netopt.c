/* SPDX-License-Identifier: MIT */
#include "client/cli/cmd/netopt.h"

#include <stdlib.h>
#include <string.h>

int netopt_on_timeout(const struct cli *cli, enum ab_on_timeout *ret)
{
	const char *what = cli->args.on_timeout;

	if (!what)
		return 0;
	if (!strcmp(what, "kill"))
		*ret = AB_ON_TIMEOUT_KILL;
	else if (!strcmp(what, "pause"))
		*ret = AB_ON_TIMEOUT_PAUSE;
	else
		return usage(cli->command, "--on-timeout is kill or pause, not '%s'", what);
	return 0;
}

void netopt_free(struct netopt *n)
{
	free(n->rules);
	free(n->headers);
	free(n->tokens);
	free(n->user);
	*n = (struct netopt){ 0 };
}

static int out_of_memory(const struct cli *cli, struct netopt *n)
{
	netopt_free(n);
	return usage(cli->command, "out of memory");
}

/* Headers of one host side by side, in the order they were given. */
static int make_rules(const struct cli *cli, struct netopt *n)
{
	const struct pairs *h = &cli->args.headers;
	size_t at = 0;

	n->rules = calloc(h->n + 1, sizeof(*n->rules));
	n->headers = calloc(h->n + 1, sizeof(*n->headers));
	if (!n->rules || !n->headers)
		return out_of_memory(cli, n);
	for (size_t i = 0; i < h->n; i++) {
		char *colon = strchr(h->v[i].key, ':');

		if (!colon || colon == h->v[i].key || !colon[1]) {
			netopt_free(n);
			return usage(cli->command, "--header takes HOST:NAME=VALUE, not '%s=%s'", h->v[i].key,
				     h->v[i].value);
		}
		*colon = '\0';
	}
	for (size_t i = 0; i < h->n; i++) {
		const char *host = h->v[i].key;
		struct ab_network_rule *r = &n->rules[n->network.n_rules];
		bool known = false;

		for (size_t k = 0; k < n->network.n_rules; k++)
			known |= !strcmp(n->rules[k].host, host);
		if (known)
			continue;
		*r = (struct ab_network_rule){ .host = host, .headers = &n->headers[at] };
		for (size_t k = i; k < h->n; k++)
			if (!strcmp(h->v[k].key, host)) {
				n->headers[at++] = (struct ab_pair){ .key = h->v[k].key + strlen(host) + 1,
								     .value = h->v[k].value };
				r->n_headers++;
			}
		n->network.n_rules++;
	}
	n->network.rules = n->rules;
	return 0;
}

static int make_proxy(const struct cli *cli, struct netopt *n)
{
	const char *proxy = cli->args.proxy, *at = proxy ? strrchr(proxy, '@') : NULL;

	if (!proxy)
		return 0;
	n->network.proxy_address = at ? at + 1 : proxy;
	n->network.proxy_password = getenv("EGRESS_PROXY_PASSWORD");
	if (!at)
		return 0;
	n->user = strndup(proxy, (size_t)(at - proxy));
	n->network.proxy_username = n->user;
	return n->user ? 0 : out_of_memory(cli, n);
}

int netopt_make(const struct cli *cli, struct netopt *ret)
{
	const struct args *a = &cli->args;
	int r;

	*ret = (struct netopt){
		.any = a->allow_out.n || a->deny_out.n || a->headers.n || a->proxy || a->private_ports ||
		       a->mask_host,
		.network = {
			.allow_out = a->allow_out.v,
			.n_allow_out = a->allow_out.n,
			.deny_out = a->deny_out.v,
			.n_deny_out = a->deny_out.n,
			.allow_public_traffic = a->private_ports ? AB_NO : AB_DEFAULT,
			.mask_request_host = a->mask_host,
		},
	};
	ret->tokens = calloc(a->iam.n + 1, sizeof(*ret->tokens));
	if (!ret->tokens)
		return out_of_memory(cli, ret);
	for (; ret->n_tokens < a->iam.n; ret->n_tokens++)
		ret->tokens[ret->n_tokens] = (struct ab_iam_token){ .name = a->iam.v[ret->n_tokens].key,
								    .audience = a->iam.v[ret->n_tokens].value };
	r = make_rules(cli, ret);
	return r ? r : make_proxy(cli, ret);
}
