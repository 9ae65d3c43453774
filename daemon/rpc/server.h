/* SPDX-License-Identifier: MIT */
/*
 * The gRPC server: connections of local processes, calls on them. Health and reflection are built in.
 * A connection belongs to the process the kernel names; when that process dies the connection is
 * closed, also while a forked child keeps the socket open.
 */
#ifndef AB_DAEMON_RPC_SERVER_H
#define AB_DAEMON_RPC_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/rpc/method.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct access_rules;
struct admit_uid_limit;	/* daemon/rpc/admit.h */
struct loop;
struct principal;
struct rpc_server;
struct rpc_stats;
struct uid_quotas;
struct owners;
struct users;

struct rpc_limits {
	uint32_t max_streams;		/* long streams of a uid; 0 = RPC_STREAMS_PER_UID */
	const struct admit_uid_limit *uids;	/* those that may have another number of them; copied */
	size_t n_uids;
	uint64_t conn_max;		/* bytes held for a connection; 0 = RPC_MEMORY_CONN */
};

struct rpc_server_options {
	struct loop *loop;
	int listen_fd;			/* taken over, also on failure; non-blocking, listening */
	const struct access_rules *rules;	/* outlive the server, or are replaced; NULL: everybody may, root and its own user are admins */
	struct owners *owners;		/* outlive the server; NULL = a uid is its own owner */
	struct users *users;		/* names of uids; outlive the server; NULL = they have none */
	struct rpc_limits limits;
	struct uid_quotas *quotas;	/* of the memory held for clients; outlives the server; NULL = its own */
	/* Of every connection that was let in; NULL = nobody wants to know. */
	void (*on_conn_end)(const struct principal *who, void *user);
	void *user;
};

must_check int rpc_server_new(const struct rpc_server_options *o, struct rpc_server **ret);
/* Before the first loop pass. Paths must be new. `service` is for rpc_call_service(). */
must_check int rpc_server_add(struct rpc_server *s, const struct rpc_method *methods, size_t n,
			      void *service);
/* What health answers for the whole server and every service; true at first. */
void rpc_server_set_serving(struct rpc_server *s, bool serving);
/* Other rules, from now on: streams of those who lost a right end. The rules before are not looked at any more. */
void rpc_server_set_rules(struct rpc_server *s, const struct access_rules *rules);
/* Room for other limits; without it, -ENOMEM and nothing was changed. */
must_check int rpc_server_reserve(struct rpc_server *s, const struct rpc_limits *limits);
/* Other limits from now on, for which there is room; streams that are open stay, and connections keep the maximum that they began with. */
void rpc_server_set_limits(struct rpc_server *s, const struct rpc_limits *limits);
/* One more listening socket for the same server (the path was removed and bound again). */
must_check int rpc_server_listen(struct rpc_server *s, int listen_fd);
/* A stop is near: calls that would begin something (RPC_BEGINS) are accepted and not looked at, until the drain ends them as DRAINING. */
void rpc_server_hold(struct rpc_server *s);
/* Stops accepting, GOAWAY to every connection; health says NOT_SERVING. Open calls go on, new ones are refused unseen. */
void rpc_server_drain(struct rpc_server *s);
struct rpc_waited {
	uint32_t ending;	/* unary calls, which have a moment */
	uint32_t uploads;
	uint32_t others;	/* downloads, and calls without a request id */
};
/* After rpc_server_drain(), from time to time: ends the calls that need not be waited for (method.h), the unary ones of them
 * once their moment is over. True: some are left, in *ret. */
bool rpc_server_drain_calls(struct rpc_server *s, bool moment_over, struct rpc_waited *ret);
/* Ends every call that is left (on_gone: SERVER), and tells each client which of its calls were not looked at. */
void rpc_server_drain_end(struct rpc_server *s);
/* Between two passes of the loop. Open calls get no on_gone: end them before. NULL is fine; returns NULL. */
struct rpc_server *rpc_server_free(struct rpc_server *s);

struct rpc_counts {
	uint32_t connections, calls, streams;	/* unary in flight; long streams */
	uint32_t max_streams;			/* of the uid asked for */
	uint64_t calls_total, failed_total;
	uint64_t refused_total, closed_total;	/* calls and connections, for lack of memory; of all */
};
/* Of one uid, or of all with uid = (uid_t)-1. */
void rpc_server_count(const struct rpc_server *s, uid_t uid, struct rpc_counts *ret);

struct rpc_method_stats {
	const char *path;		/* "/agentbox.v1.SandboxService/Create" */
	const struct rpc_stats *stats;	/* ended.h */
};
/* One method after the other; *pos is 0 at first. False: that were all. */
bool rpc_server_stats(const struct rpc_server *s, size_t *pos, struct rpc_method_stats *ret);

#endif
