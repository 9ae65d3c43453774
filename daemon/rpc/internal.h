/* SPDX-License-Identifier: MIT */
/* What the files of the server know of each other; a service includes call.h and method.h alone. */
#ifndef AB_DAEMON_RPC_INTERNAL_H
#define AB_DAEMON_RPC_INTERNAL_H

#include <stdbool.h>

#include "daemon/auth/access.h"
#include "daemon/auth/audit.h"
#include "daemon/auth/principal.h"
#include "daemon/auth/uid_quota.h"
#include "daemon/auth/users.h"
#include "daemon/common/ev/loop.h"
#include "daemon/rpc/admit.h"
#include "daemon/rpc/ended.h"
#include "daemon/rpc/method.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/status.h"
#include "proto/wire/fields.h"

struct encoded;
struct http_conn;
struct http_server;
struct http_stream;

#define RPC_ABOUT_BYTES	  48u
#define RPC_LISTENERS_MAX 8u	/* one, and one more for each time its path was removed */

struct rpc_entry {
	const struct rpc_method *method;
	void *service;
	struct rpc_stats stats;
};

struct rpc_server {
	struct loop *loop;
	struct admit admit;
	struct access_rules own_rules;	/* without lists … */
	const struct access_rules *rules;	/* … where none are given */
	struct owners *owners;		/* NULL = a uid is its own owner */
	struct users *users;		/* NULL = nobody knows names */
	struct http_server *http[RPC_LISTENERS_MAX];
	struct uid_quotas *quotas;	/* borrowed, or … */
	struct uid_quotas *own_quotas;	/* … ours */
	uint64_t conn_max;
	unsigned n_http;
	struct map methods;	/* path → struct rpc_entry */
	struct map services;	/* name → the entry of one of its methods */
	struct list calls;
	struct list conns;
	struct list watchers;	/* of health */
	struct list hungry;	/* calls whose next message waits for memory or for its turn */
	struct timer feed;	/* set while there are some */
	struct timer relief;	/* set after a client had no memory left */
	uint64_t inflated_pass;	/* the pass in which … */
	size_t inflated;		/* … so much was inflated */
	bool serving, draining;
	bool holding;		/* rpc_server_hold() */
	bool ending;		/* rpc_server_free() is at work */
	uint64_t calls_total, failed_total;
	uint64_t refused_total, closed_total;	/* calls and connections, for lack of memory */
	uint64_t log_ms;		/* when tokens for lines of the log were added … */
	unsigned log_tokens, n_unlogged;	/* … and how many lines there were none for */
	uint64_t last_conn;	/* number of the newest connection */
	struct encoded *encoded;
	struct fields head, end_ok;	/* of every response, and of one that ended well; they last */
	void (*on_conn_end)(const struct principal *who, void *user);
	void *on_conn_end_user;
};

/* A connection outlives its last call: calls point to its principal. */
struct rpc_conn {
	struct rpc_server *server;
	struct http_conn *http;	/* NULL once it has ended */
	struct principal who;
	struct admit_uid *charge;
	struct watch death;	/* of the process: its pidfd */
	struct quota *quota;	/* of the connection; outlives it here */
	struct rpc_call *urgent;	/* the one that may use what is kept for what has begun */
	unsigned n_calls;
	bool unmapped;		/* we cannot tell whose it is: every call is refused */
	bool nameless;		/* nobody could say whose name its uid has, which counts for it */
	bool is_asked;		/* its name is being looked up: its calls wait */
	bool is_place_known;	/* who.is_foreign was looked at */
	struct users_wait name;
	struct access_verdict verdict;
	struct audit_process process;
	struct list node;
	struct grave grave;
};

/* call_begin.c: a request head came. */
void rpc_call_begin(struct rpc_server *s, struct rpc_conn *conn, struct http_stream *x);

/* right.c: who.user, admin and observer, as soon as they are known; conn->is_asked until then. -errno. */
must_check int rpc_right_begin(struct rpc_conn *conn);
void rpc_right_end(struct rpc_conn *conn);
/* May this connection call it? False: `st` says who it is, which rule, and where that stands. */
bool rpc_right_check(const struct rpc_conn *conn, const struct rpc_method *m, struct status *st);
/* A refusal that is about a right gets the same. */
void rpc_right_explain(const struct rpc_conn *conn, struct status *st);

/* audit.c: a text of a message by its field's name; "" of a oneof where another is set, NULL if it has no such field. */
const char *rpc_text_field(const ProtobufCMessage *m, const char *name);
/* What a call is about, for its line of the audit; "" = not known. */
struct rpc_about {
	char sandbox[RPC_ABOUT_BYTES], object[RPC_ABOUT_BYTES];
};
/* Adds what this message of the call names and is not known yet. */
void rpc_audit_note(struct rpc_about *about, const ProtobufCMessage *m);
/* The line of a call that has ended; `request` NULL for a stream of the client's. */
void rpc_audit(struct rpc_conn *conn, const struct rpc_method *m, const struct rpc_about *about, const ProtobufCMessage *request,
	       const struct trace *trace, const char *result);

/* call_send.c: what the head of every response has. */
must_check int rpc_response_head(struct fields *f);
/* call_end.c: frees all calls with the server, without a word to anybody. */
void rpc_calls_drop(struct rpc_server *s);
/* server.c: the last use of a connection by a call. */
void rpc_conn_unref(struct rpc_conn *conn);
/* call_request.c: the calls that wait for memory look again. */
void rpc_calls_feed(struct rpc_server *s);
/* May there be a line of the log about something that a client did? A flood of it has few. */
bool rpc_may_log(struct rpc_server *s);
/* Somebody has no memory left: who does not read is closed soon. */
void rpc_server_expect_relief(struct rpc_server *s);

/* The two built-in services; rpc_call_service() of their calls is the server. */
must_check int rpc_health_add(struct rpc_server *s);
void rpc_health_changed(struct rpc_server *s);
must_check int rpc_reflection_add(struct rpc_server *s);

#endif
