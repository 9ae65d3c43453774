/* SPDX-License-Identifier: MIT */
/*
 * The gateway: HTTP for unmodified SDKs, on loopback. Control calls are answered by the core (daemon/sandbox/sandbox.h) with
 * the contract's documents (proto/cloud); requests for a port of a sandbox are passed on through the pool. Loop thread only.
 */
#ifndef AB_DAEMON_GATEWAY_GATEWAY_H
#define AB_DAEMON_GATEWAY_GATEWAY_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/gateway/made_token.h"
#include "daemon/gateway/page_pass.h"
#include "daemon/gateway/pass_right.h"
#include "proto/base/cc.h"

struct access_rules;
struct principal;
struct quota;
struct status;
struct cloud;
struct commands;
struct gateway;
struct http_server;
struct loop;
struct sandbox_core;
struct templates;
struct tls_server;
struct tokens;
struct uid_quotas;
struct owners;
struct users;

/* Names and numbers of accounts as in sandbox_core_options. */
struct gateway_account {
	const char *name;
	struct cloud *cloud;
};

struct gateway_uid {
	enum pass_level passes;		/* of what the core does not answer */
	const char *account;		/* "" = the first one */
};

/* What the status page shows of one sandbox, or of all that its viewer may see. */
struct gateway_view_ask {
	const struct principal *who;
	const char *sandbox;		/* "" = all of them … */
	const char *page_token;		/* … from this place on, "" = the newest */
	struct quota *quota;		/* of its connection: what is made is charged to it; lives as long as the view; NULL = nobody counts */
};
/* `html` goes into <main>; with a failure it is of no length. */
typedef void gateway_view_fn(void *user, const struct status *st, const char *html, size_t n);

struct gateway_limits {
	uint32_t max_connections;	/* of all listeners; 0 = 4096; half of them for one uid, unless whole_account */
	uint32_t max_streams;		/* at once on a connection of HTTP/2; 0 = 256 */
	uint64_t conn_max;		/* bytes held for a connection; 0 = as its uid's quota allows */
};

struct gateway_options {
	struct loop *loop;
	struct sandbox_core *core;
	struct tokens *tokens;			/* daemon/auth/token.h */
	const struct gateway_account *accounts;	/* at most SANDBOX_ACCOUNTS_MAX; copied; the names and clouds outlive the gateway */
	size_t n_accounts;
	uid_t own_uid;		/* the daemon's */
	bool whole_account;	/* a user daemon: its own uid sees and changes all of the account */
	bool metadata_words;	/* agentboxd.lease and .policy in a create's metadata are ours */
	struct commands *commands;	/* through which Start and Connect of the agent's processes go (durable.c); outlive the gateway; NULL = relayed */
	struct gateway_limits limits;
	struct uid_quotas *quotas;	/* what connections hold is charged to; outlives the gateway; NULL = nobody counts */
	const struct access_rules *rules;	/* outlive the gateway, or are replaced; NULL = everybody may */
	struct owners *owners;		/* outlive the gateway; NULL = a uid is its own owner */
	struct templates *templates;	/* whose those are that are made; outlive the gateway; NULL = nobody's */
	struct users *users;		/* names and groups of uids; outlive the gateway; NULL only without rules */
	const uint8_t *secret;	/* of MADE_TOKEN_SECRET bytes; outlives the gateway; NULL = no access tokens are made */
	void (*read_uid)(void *user, uid_t uid, struct gateway_uid *ret);	/* asked at each call; NULL = nothing passes */
	/* Makes what the status page shows: `done` comes once, never from inside, and not after `view_cancel` with what this returned.
	 * NULL: no memory. Without it there is no page; with it `rules` and `users` are there. */
	void *(*view)(void *user, const struct gateway_view_ask *ask, gateway_view_fn *done, void *done_user);
	void (*view_cancel)(void *user, void *view);
	void *user;
};

struct gateway_listen {
	int fd;				/* listening, non-blocking; taken over */
	struct tls_server *tls;		/* NULL = plain */
	bool is_unix;			/* a socket in the file system: no peer to look up, no web page behind it */
	const char *shown;		/* "http://localhost:4711"; copied */
};

struct gateway_counts {
	uint32_t connections, controls, relays, pages;	/* open */
	uint64_t requests, refused;			/* since the start */
	uint64_t relayed_up, relayed_down;		/* bytes since the start */
};

must_check int gateway_new(const struct gateway_options *o, struct gateway **ret);
must_check int gateway_listen(struct gateway *g, const struct gateway_listen *l);
/* Other rules, from now on: what is relayed for those who may not any more ends. The rules before are not looked at any more. */
void gateway_set_rules(struct gateway *g, const struct access_rules *rules);
/* One more account, as in the options. */
void gateway_add_account(struct gateway *g, const struct gateway_account *account);
/* Other limits, for who comes from now on; connections that are open stay. */
void gateway_set_limits(struct gateway *g, const struct gateway_limits *limits);

/*
 * Connections over a restart (keep.c). A stop accepts no more and hands over, up to GATEWAY_HANDED_MAX, those that are plain and idle, so
 * that another process could serve them: `store` makes duplicates of these descriptors, or returns -errno, and is not asked again then.
 * Returns how many were handed over; those are closed here.
 */
#define GATEWAY_HANDED_MAX     4000u	/* the units have room for 4096, listeners too */
#define GATEWAY_HANDED_AT_ONCE 128u
typedef int gateway_store_fn(void *user, const int *fds, size_t n);
size_t gateway_hand_over(struct gateway *g, gateway_store_fn *store, void *user);
struct gateway_taken {
	uint32_t taken, closed;
	const char *why;	/* of one that was closed */
};
/* Takes the descriptors over, after all its listeners are there: each is served if it is a connection to one of those, and closed if it is
 * anything else. */
void gateway_take_over(struct gateway *g, const int *fds, size_t n, struct gateway_taken *ret);

void gateway_drain(struct gateway *g);		/* no new connections; answers end with connection: close */
/* While it drains: is a call of the control plane still open? `end`: they end now, with a 503 or, where the
 * cloud answers itself, cut, and none is. */
bool gateway_drain_calls(struct gateway *g, bool end);
void gateway_counts(const struct gateway *g, struct gateway_counts *ret);
/* The path of a link that opens the status page once, within PAGE_TICKET_S, for a browser of who->uid. */
#define GATEWAY_PAGE_PATH "/_agentboxd/"
#define GATEWAY_PAGE_LINK (sizeof(GATEWAY_PAGE_PATH "?open=") + PAGE_PASS_TEXT)
void gateway_page_link(struct gateway *g, const struct principal *who, char ret[GATEWAY_PAGE_LINK]);
/* Whether this address ("localhost:4711") is one of its listeners: no account's cloud may be there. */
bool gateway_is_own(const struct gateway *g, const char *host, uint16_t port);
struct gateway *gateway_free(struct gateway *g);	/* NULL is fine; returns NULL */

#endif
