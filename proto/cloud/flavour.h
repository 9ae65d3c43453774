/* SPDX-License-Identifier: MIT */
/*
 * The flavours of the contract. AgentBox is the default; E2B, whose fork it is, is the second one. What
 * differs between the two is in this table and nowhere else: names of headers and of environment
 * variables, domains, the form of a key, what only one of them answers.
 */
#ifndef AB_PROTO_CLOUD_FLAVOUR_H
#define AB_PROTO_CLOUD_FLAVOUR_H

#include <stdbool.h>
#include <stddef.h>

enum flavour_id {
	FLAVOUR_AGENTBOX,
	FLAVOUR_E2B,
	FLAVOURS,
};

enum flavour_header {
	FLAVOUR_SANDBOX_ID,
	FLAVOUR_SANDBOX_PORT,
	FLAVOUR_TRAFFIC_TOKEN,
	FLAVOUR_HEADERS,
};

#define FLAVOUR_SHARED_MAX 4u

struct flavour {
	enum flavour_id id;
	const char *name;			/* as the configuration writes it: "agentbox" */
	const char *title;			/* as a person writes it: "AgentBox" */
	const char *domain;
	const char *shared[FLAVOUR_SHARED_MAX];	/* domains with a shared host for all agents; NULL = no more */
	const char *key_prefix;			/* "ab_" */
	bool key_is_hex;			/* behind the prefix lower-case hex digits, and nothing else */
	const char *environment;		/* prefix of the variables: "AGENTBOX_" */
	const char *headers[FLAVOUR_HEADERS];	/* lower case */
	bool traffic_token_to_agent;		/* its token goes with every call of the agent too */
	bool sandbox_url_has_hosts;		/* a fixed sandbox URL names the ports below itself; else it is all */
	const char *identity;			/* "${agentbox.identity.tokens."; a name and '}' follow */
	const char *secret;			/* "${e2b.secrets."; NULL = it has none */
	bool answers_extra;			/* clientID, volumeMounts, error_code, and moments of metrics as text */
};

const struct flavour *flavour_get(enum flavour_id id);
/* "agentbox" or "e2b"; NULL for anything else. */
const struct flavour *flavour_named(const char *name);
/* By the prefix of a key; NULL if it tells nothing. */
const struct flavour *flavour_of_key(const char *key);
/* Whose domain a host is, or is below: "api.e2b.app" is E2B's; NULL for all other hosts. */
const struct flavour *flavour_of_host(const char *host);
/* Does the domain have one host, sandbox.DOMAIN, for all agents? */
bool flavour_has_shared_host(const struct flavour *f, const char *domain);
/* The form that this flavour's clients insist on; true if they insist on none. */
bool flavour_key_ok(const struct flavour *f, const char *key);
/* The form of any key: a flavour's prefix and a part in that flavour's alphabet. */
bool flavour_key_known(const char *key);

#endif
