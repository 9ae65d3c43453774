/* SPDX-License-Identifier: MIT */
/* grpc.health.v1: the whole server ("") and every service it has go by one state. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/call.h"
#include "daemon/rpc/internal.h"
#include "daemon/rpc/server.h"
#include "proto/base/str.h"
#include "proto/gen/grpc_health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckResponse response;
typedef Grpc__Health__V1__HealthCheckRequest request;

#define SERVING(x) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##x

struct watcher {
	struct rpc_call *call;
	struct list node;
};

static void send_status(struct rpc_call *c, int status, void (*send)(struct rpc_call *,
								   const ProtobufCMessage *))
{
	response r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	r.status = status;
	send(c, &r.base);
}

static int status_of(const struct rpc_server *s)
{
	return s->serving ? SERVING(SERVING) : SERVING(NOT_SERVING);
}

static bool is_known(const struct rpc_server *s, const char *service)
{
	return str_is_empty(service) || map_get_str(&s->services, service);
}

static void on_check(struct rpc_call *c, const ProtobufCMessage *message)
{
	const request *q = (const request *)message;
	struct rpc_server *s = rpc_call_service(c);

	if (!is_known(s, q->service)) {
		struct status st;

		status_set_code(&st, CODE_NOT_FOUND, "no service %.128s here", q->service);
		rpc_call_fail(c, &st);
		return;
	}
	send_status(c, status_of(s), rpc_call_reply);
}

/* A service that is not there never comes, so its watcher is told so once and waits in vain. */
static void on_watch(struct rpc_call *c, const ProtobufCMessage *message)
{
	const request *q = (const request *)message;
	struct rpc_server *s = rpc_call_service(c);
	struct watcher *w = rpc_call_new_user(c, sizeof(*w));

	if (!w)
		return;
	w->call = c;
	list_init(&w->node);
	if (is_known(s, q->service))
		list_add_tail(&s->watchers, &w->node);
	send_status(c, is_known(s, q->service) ? status_of(s) : SERVING(SERVICE_UNKNOWN),
		    rpc_call_send);
}

static void on_watch_gone(struct rpc_call *c, enum rpc_gone why)
{
	struct watcher *w = rpc_call_user(c);

	list_del(&w->node);
	free(w);
}

void rpc_health_changed(struct rpc_server *s)
{
	list_for_each(n, &s->watchers)
		send_status(list_entry(n, struct watcher, node)->call, status_of(s), rpc_call_send);
}

int rpc_health_add(struct rpc_server *s)
{
	static const struct rpc_handler check = { .on_message = on_check };
	static const struct rpc_handler watch = { .on_message = on_watch, .on_gone = on_watch_gone };
	static const struct rpc_method methods[] = {
		{ .path = "/grpc.health.v1.Health/Check", .kind = RPC_UNARY,
		  .request = &grpc__health__v1__health_check_request__descriptor, .handler = &check,
		  .effect = RPC_OBSERVES },
		{ .path = "/grpc.health.v1.Health/Watch", .kind = RPC_SERVER_STREAM,
		  .request = &grpc__health__v1__health_check_request__descriptor, .handler = &watch,
		  .effect = RPC_OBSERVES },
	};

	return rpc_server_add(s, methods, ARRAY_SIZE(methods), s);
}
