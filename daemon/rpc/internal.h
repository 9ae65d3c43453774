/* SPDX-License-Identifier: MIT */
/* What server.c and call.c know of each other. Nobody else includes this but health.c and reflection.c. */
#ifndef AB_DAEMON_RPC_INTERNAL_H
#define AB_DAEMON_RPC_INTERNAL_H

#include <stdbool.h>

#include "daemon/auth/principal.h"
#include "daemon/common/ev/loop.h"
#include "daemon/rpc/admit.h"
#include "daemon/rpc/method.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/status.h"

struct http_conn;
struct http_server;
struct http_stream;

#define RPC_LISTENERS_MAX 8u	/* one, and one more for each time its path was removed */

struct rpc_entry {
	const struct rpc_method *method;
	void *service;
};

struct rpc_server {
	struct loop *loop;
	struct admit admit;
	gid_t admin_gid;
	struct http_server *http[RPC_LISTENERS_MAX];
	struct h2_budget *budget;	/* of what is received and not read */
	unsigned n_http;
	struct map methods;	/* path → struct rpc_entry */
	struct map services;	/* name → the entry of one of its methods */
	struct list calls;
	struct list conns;
	struct list watchers;	/* of health */
	bool serving, draining;
	bool ending;		/* rpc_server_free() is at work */
	uint64_t calls_total, failed_total;
	uint64_t last_conn;	/* number of the newest connection */
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
	unsigned n_calls;
	bool denied;		/* we cannot tell whose it is: every call is refused */
	bool over_send_limit;		/* its uid has too much unsent */
	struct list node;
	struct grave grave;
};

/* call.c: a request head came. */
void rpc_call_begin(struct rpc_server *s, struct rpc_conn *conn, struct http_stream *x);
/* Ends one for the server's reasons: the client gets `st`, the handler on_gone. */
void rpc_call_stop(struct rpc_call *c, const struct status *st);
struct rpc_call *rpc_call_from_node(struct list *node);
/* Without a word to anybody, with the server. */
void rpc_call_drop(struct rpc_call *c);
/* server.c: the last use of a connection by a call. */
void rpc_conn_unref(struct rpc_conn *conn);
/* Its client leaves so much unread, on it or on all its uid's connections, that answers must be short.
 * To be asked whenever something was queued. */
bool rpc_conn_over_send_limit(struct rpc_conn *conn);

/* Which methods the two built-in services have. `service` is the server. */
must_check int rpc_health_add(struct rpc_server *s);
void rpc_health_changed(struct rpc_server *s);
must_check int rpc_reflection_add(struct rpc_server *s);

#endif
