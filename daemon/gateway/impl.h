/* SPDX-License-Identifier: MIT */
/*
 * Inside of the gateway: what its files share. door.c has the listeners and decides whose request it is (plane.h) and who asks
 * (daemon/auth/token.h, who.h); control*.c answer the control plane from the core; relay*.c pass a request on to a port of
 * a sandbox. A request belongs to door.c until it is handed on, and then to exactly one of the two.
 */
#ifndef AB_DAEMON_GATEWAY_IMPL_H
#define AB_DAEMON_GATEWAY_IMPL_H

#include <sys/socket.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "daemon/gateway/gateway.h"
#include "daemon/gateway/plane.h"
#include "daemon/gateway/who.h"
#include "daemon/auth/token.h"
#include "proto/base/map.h"
#include "proto/cloud/flavour.h"

struct gateway_control;		/* a call of the control plane under way: control.c */
struct gateway_relay;		/* a request that is passed on: relay.c */
struct gateway_page;		/* a request of the status page: page.c */

/* Who asks for the control plane, found by the token. Plain data, copied by who needs it longer. */
struct gateway_caller {
	struct principal who;		/* pidfd -1 unless the token is of a run: then the run's process, borrowed */
	struct token *token;		/* borrowed: daemon/auth/token.h; token_ref() by who keeps it, or who.pidfd, longer */
	const struct flavour *flavour;	/* in whose words it is answered: that of the token's spelling */
};

struct gateway_door {			/* a listener */
	struct list node;
	struct gateway *g;
	struct http_server *server;
	char *shown;
	struct sockaddr_storage at;	/* where it listens */
	socklen_t at_len;		/* 0 = that is not known */
	uint16_t port;			/* 0 = a Unix socket */
	bool is_unix, is_tls;
};

/* A uid with connections; those whose uid is not known are one together. */
struct gateway_guest {
	uint64_t key;			/* in gateway.guests */
	uint32_t conns;
	uint32_t compared;		/* with a link, in the second that began at … */
	uint64_t compared_since_ms;
};

struct gateway_conn {			/* what is known of a connection: http_conn_user() */
	struct list node;		/* in gateway.conns */
	struct gateway_guest *guest;
	struct gateway_door *door;
	struct http_conn *http;
	uint64_t number;
	struct who_peer peer;
	struct plane_port to;		/* of a forwarded one: the port of all its requests … */
	struct token *token;		/* … and by whose right: a reference; NULL = it is not forwarded */
};

#define GATEWAY_TICKETS 64u	/* that wait for their browser; one more takes the place of the oldest */

struct gateway {
	struct loop *loop;
	struct gateway_options o;
	struct gateway_account *accounts;	/* o.accounts, copied */
	struct list doors, conns;
	struct map guests;		/* key → struct gateway_guest */
	struct map links;		/* signature → id of the sandbox it was found for; heap */
	struct who_lookup *lookup;
	uint64_t last_conn;
	bool draining;
	uint64_t asked_at_ms;			/* relay.c: when a token that did not fit made it ask last */
	struct list controls, passes, relays, durables, pages;	/* all that are open: gateway_free() and drains end them */
	uint8_t page_key[PAGE_PASS_KEY];
	uint8_t tickets[GATEWAY_TICKETS][PAGE_PASS_NONCE];	/* those that were not used yet; zeros = none */
	uint32_t next_ticket;
	struct gateway_counts counts;
};

/* door.c: a request head came on a connection of this door. */
void gateway_door_on_request(struct http_stream *x, void *door);
/* Answers with the cloud's error and takes x over. `f` NULL = the default flavour's. */
void gateway_refuse(struct gateway *g, struct http_stream *x, const struct flavour *f, unsigned status, const char *fmt, ...)
	printf_like(5, 6);

/* control.c. Takes x over; answers exactly once, when the client is still there. The route and its segments are found in there
 * (proto/cloud/route.h). */
void gateway_control_request(struct gateway *g, struct http_stream *x, const struct gateway_caller *by);
void gateway_control_end_all(struct gateway *g);

/* pass.c. */
struct gateway_pass_ask {
	const struct flavour *flavour;
	const struct gateway_account *account;	/* NULL = the caller's is not configured */
	uid_t uid;			/* whose turn it is */
	bool makes;			/* what it makes is a template, and this uid's (pass_made.h) */
	const char *deletes;		/* copied: the template of this uid that it deletes; NULL = none */
};
/* Takes x over: it goes on to this account's cloud as it is. */
void gateway_pass_request(struct gateway *g, struct http_stream *x, const struct gateway_pass_ask *ask);
void gateway_pass_end_all(struct gateway *g);

/* forward.c: does this request ask that all that follow on its connection go to one port of a sandbox? */
bool gateway_forward_is_asked(const struct http_stream *x);
/* Takes x over: a connection whose port is found and whose token is good is forwarded from now on. */
void gateway_forward_request(struct gateway *g, struct http_stream *x);

/* page.c. Takes x over. */
bool gateway_page_is(const char *path);
void gateway_page_request(struct gateway *g, struct http_stream *x, const struct gateway_conn *conn);
void gateway_page_end_all(struct gateway *g);

/* relay.c. Takes x over. `to` is copied; NULL: a signed link, whose signature tells the sandbox. Its credentials are read from
 * x's head. A port that needs none is open to the uid of http_conn_user(x)'s peer, unless who_is_foreign_page(). */
void gateway_relay_request(struct gateway *g, struct http_stream *x, const struct plane_port *to);
void gateway_relay_end_all(struct gateway *g);
/* Ends those whose users may not use the daemon any more. */
void gateway_relay_check_all(struct gateway *g);
void gateway_forget_links(struct gateway *g);

/* durable.c: ends the streams, and none of their commands. */
void gateway_durable_end_all(struct gateway *g);
/* Ends those whose users may not use the daemon any more. */
void gateway_durable_check_all(struct gateway *g);

#endif
