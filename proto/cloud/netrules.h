/* SPDX-License-Identifier: MIT */
/*
 * What network settings and workload tokens may say: the rules of the cloud's own validators, for who asks, before
 * anything is sent, and for who obeys. Nothing is resolved, so a proxy whose name turns out to be a private address
 * is found by the cloud alone; features that a team does not have are no rule. [pure]
 */
#ifndef AB_PROTO_CLOUD_NETRULES_H
#define AB_PROTO_CLOUD_NETRULES_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/cloud/flavour.h"
#include "proto/cloud/model.h"

#define NETRULES_ALL_TRAFFIC "0.0.0.0/0"
#define NETRULES_TOKENS_MAX  5u
#define NETRULES_DOMAINS_MAX 10u
#define NETRULES_HEADERS_MAX 20u
#define NETRULES_TOKEN_TYPE  "JWT-SVID"

enum netrules_field {
	NETRULES_ALLOW_OUT,
	NETRULES_DENY_OUT,
	NETRULES_PROXY,
	NETRULES_PROXY_ADDRESS,
	NETRULES_PROXY_USERNAME,
	NETRULES_RULES,
	NETRULES_PUBLIC,
	NETRULES_MASK,
	NETRULES_TOKENS,
};

struct netrules_fault {
	enum netrules_field field;
	char text[240];		/* what is wrong, without the field's name; one line of UTF-8 */
};

struct netrules_with {
	bool replaces_egress;	/* of one that runs: ingress cannot be said any more */
	enum tri secure;	/* of the create; UNSET = not secure */
	const struct flavour *flavour;	/* whose placeholders there are; NULL = of every one */
	bool knows_tokens;	/* identity placeholders must name one of these, and any otherwise */
	const struct cloud_iam_token *tokens;
	size_t n_tokens;
};

bool netrules_network_ok(const struct cloud_network *n, const struct netrules_with *with, struct netrules_fault *ret);
bool netrules_tokens_ok(const struct cloud_iam_token *v, size_t n, struct netrules_fault *ret);

/* "No internet" denies all traffic; names that are allowed are exceptions from that only where the list of what is
 * denied says so itself. Adds it where it is missing. -ENOMEM. */
must_check int netrules_complete(struct cloud_network *n, enum tri allow_internet_access);
/* allowOut and rules hold a name, for which somebody must be asked for addresses; an address or range holds none. */
bool netrules_is_name(const char *allowed);
/* It has rules that set something. */
bool netrules_sets_headers(const struct cloud_network *n);
/* A placeholder of some flavour stands in the value: it is replaced on its way. */
bool netrules_has_placeholder(const char *value);

#endif
