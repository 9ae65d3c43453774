/* SPDX-License-Identifier: MIT */
/* The options about networks that create and network have in common. */
#ifndef AB_CLIENT_CLI_CMD_NETOPT_H
#define AB_CLIENT_CLI_CMD_NETOPT_H

#include "client/cli/term/cli.h"

#define NETOPT_EGRESS                                                                              \
	OPT(0, "allow-out", OPT_WORDS, allow_out, "WHERE",                                         \
	    "address, range or host name that may be reached; may be repeated"),                   \
	OPT(0, "deny-out", OPT_WORDS, deny_out, "WHERE",                                           \
	    "address or range that may not; 0.0.0.0/0 is all; may be repeated"),                   \
	OPT(0, "proxy", OPT_TEXT, proxy, "[USER@]HOST:PORT",                                       \
	    "SOCKS5 proxy for what goes out; its password is taken from EGRESS_PROXY_PASSWORD"),   \
	OPT(0, "header", OPT_PAIR, headers, "HOST:NAME=VALUE",                                     \
	    "a header that requests to HOST get on their way; may be repeated")

struct netopt {
	bool any;			/* something was said */
	struct ab_network network;
	struct ab_iam_token *tokens;
	size_t n_tokens;
	/* what it points to */
	struct ab_network_rule *rules;
	struct ab_pair *headers;
	char *user;
};

/* 0, or EXIT_USAGE after saying what is wrong. */
int netopt_make(const struct cli *cli, struct netopt *ret);
void netopt_free(struct netopt *n);
int netopt_on_timeout(const struct cli *cli, enum ab_on_timeout *ret);

#endif
