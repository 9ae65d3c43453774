/* SPDX-License-Identifier: MIT */
/*
 * May this request go to that port of that sandbox? Judged by the request's head and by what is known of the sandbox. [pure]
 *
 * The agent's port: the access token (the sandbox's, or the one made here for a sandbox without), the signature of a link to a file, or a token of the gateway. Any other port: the access token,
 * the traffic token, a token of the gateway; and one with public traffic is open to its owner's own programs, pages of others
 * excepted, as is GET /health, and the agent of a sandbox without an access token. A traffic token is never enough for the agent.
 */
#ifndef AB_DAEMON_GATEWAY_RELAY_RIGHT_H
#define AB_DAEMON_GATEWAY_RELAY_RIGHT_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/http/query.h"
#include "proto/base/cc.h"
#include "proto/wire/fields.h"

struct token;

struct relay_asker {
	const struct fields *head;
	const struct token *token;	/* shown as Agentboxd-Token, and good; NULL = none */
	bool is_own_program;		/* its process is known to be of this uid, and no page of others is behind it */
	uid_t uid;
	int64_t now_s;			/* wall: links expire */
};

struct relay_door {			/* what it wants to pass */
	const char *sandbox;
	uint16_t port;
	bool is_health;			/* the agent's, which says nothing but that it is there */
	const char *access_token;	/* "" = it has none */
	const char *made_token;		/* … then ours (made_token.h); "" = none either */
	const char *traffic_token;	/* "" = public */
	uid_t owner;
};

enum relay_right {
	RELAY_BY_ACCESS,		/* the request itself has the access token */
	RELAY_BY_TRAFFIC,		/* … or the traffic token */
	RELAY_BY_LINK,
	RELAY_BY_TOKEN,
	RELAY_BY_UID,
	RELAY_ALLOWED,			/* and above it are refusals: */
	RELAY_NO_ACCESS_TOKEN,
	RELAY_WRONG_ACCESS_TOKEN,	/* or signature */
	RELAY_NO_TRAFFIC_TOKEN,
	RELAY_WRONG_TRAFFIC_TOKEN,
	RELAY_NOT_OWNER,
	RELAY_LINK_OVER,		/* its signature was good for a time that has passed */
	RELAY_OUT_OF_SCOPE,		/* the gateway's token is for other sandboxes of its uid */
};

enum relay_right relay_judge(const struct relay_asker *a, const struct relay_door *d);

/* Is it a signed link to a file: a path of files with a signature in its query? */
bool relay_is_link(const struct fields *head);

/* The same for many tokens: the head is read once. */
struct relay_link {
	struct query q;
	const char *path, *user, *signature;	/* in q */
	bool writes, is_over;
	int64_t until_s;			/* CLOUD_LINK_FOREVER: for ever */
};
/* False: it is none; nothing is to be freed. */
bool relay_link_read(const struct relay_asker *a, struct relay_link *ret);
bool relay_link_is_of(const struct relay_link *l, const char *access_token);
void relay_link_fini(struct relay_link *l);

/* Whether it shows anything at all that could be a secret of a sandbox or of the gateway. */
bool relay_shows_secret(const struct relay_asker *a);

#endif
