/* SPDX-License-Identifier: MIT */
/* GET /metrics: on a Unix socket of its own, [daemon] metrics_socket, and at a loopback address, metrics_listen. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/net/http.h"
#include "daemon/gateway/who.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/gateway_address.h"
#include "daemon/main/metrics.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define TEXT_MAX    (1024u * 1024)
#define CONNS_MAX   16u
#define CONN_BYTES  (2u << 20)
#define IDLE_MS	    60000u
#define TYPE	    "application/openmetrics-text; version=1.0.0; charset=utf-8"

static void app_metrics_on_ready(struct http_stream *x, void *user)
{
}

static void app_metrics_answer(struct http_stream *x, const char *status, const char *type,
			       const void *body, size_t n)
{
	struct fields f = FIELDS_NULL;

	if (fields_put(&f, ":status", status) < 0 || fields_put(&f, "content-type", type) < 0 ||
	    fields_printf(&f, "content-length", "%zu", n) < 0 ||
	    http_stream_respond(x, &f, false) < 0 || http_stream_write(x, body, n) < 0 ||
	    http_stream_finish(x, NULL) < 0)
		http_stream_reset(x, 2);
	fields_fini(&f);
}

static void answer_metrics(struct app *a, struct http_stream *x)
{
	struct buf text;

	buf_init(&text, TEXT_MAX);
	if (metrics_write(a, &text) < 0)
		app_metrics_answer(x, "500", "text/plain", "out of memory\n", 14);
	else
		app_metrics_answer(x, "200", TYPE, buf_data(&text), buf_len(&text));
	buf_fini(&text);
}

static void app_metrics_on_request(struct http_stream *x, void *user)
{
	const char *method = fields_get(http_stream_head(x), ":method"),
		   *path = fields_get(http_stream_head(x), ":path");

	http_stream_set_owner(x, app_metrics_on_ready, NULL);
	if (!str_eq(path, "/metrics"))
		app_metrics_answer(x, "404", "text/plain", "GET /metrics\n", 13);
	else if (!str_eq(method, "GET"))
		app_metrics_answer(x, "405", "text/plain", "GET /metrics\n", 13);
	else
		answer_metrics(user, x);
	http_stream_release(x);
}

/* A page in a browser can name this address as it likes, but not as this machine. */
static void app_metrics_on_tcp_request(struct http_stream *x, void *user)
{
	if (who_is_local_host(fields_get(http_stream_head(x), ":authority"))) {
		app_metrics_on_request(x, user);
		return;
	}
	http_stream_set_owner(x, app_metrics_on_ready, NULL);
	app_metrics_answer(x, "421", "text/plain", "write localhost\n", 16);
	http_stream_release(x);
}

static struct http_server_options options_of(struct app *a)
{
	return (struct http_server_options){
		.loop = a->loop, .http1 = true, .http2 = true, .max_conns = CONNS_MAX, .quota = uid_quotas_all(a->quotas),
		.conn_max = CONN_BYTES, .idle_ms = IDLE_MS, .on_request = app_metrics_on_request, .user = a,
	};
}

static int serve(struct http_server **ret, const char *key, const struct http_server_options *o)
{
	if (http_server_new(o, ret) == 0)
		return 0;
	fd_close(o->listen_fd);
	fprintf(stderr, "agentboxd: %s: out of memory\n", key);
	return APP_EXIT_UNAVAILABLE;
}

static int listen_socket(struct app *a)
{
	struct rpc_socket_options where = { .path = conf_get(a->conf, "daemon", NULL, "metrics_socket"), .mode = 0600,
					    .gid = (gid_t)-1, .dir_mode = a->user_mode ? 0700 : 0755 };
	struct http_server_options o = options_of(a);
	struct status why = STATUS_OK;
	int r = app_manager_take(a, APP_FD_METRICS, &o.listen_fd);

	if (r)
		return r;
	if (o.listen_fd >= 0)
		return serve(&a->metrics, "the passed metrics socket", &o);
	if (str_is_empty(where.path))
		return 0;
	if (conf_is_set(a->conf, "daemon", NULL, "admin_group")) {
		must(conf_id(a->conf, CONF_ID_GROUP, conf_get(a->conf, "daemon", NULL, "admin_group"), &where.gid));
		where.mode = 0660;
	}
	r = rpc_socket_open(&where, &a->metrics_socket, &why);
	if (r) {
		fprintf(stderr, "agentboxd: metrics_socket: %s\n", why.text);
		return r == RPC_SOCKET_BUSY ? APP_EXIT_BUSY : APP_EXIT_CONFIG;
	}
	o.listen_fd = rpc_socket_take_fd(a->metrics_socket);
	return serve(&a->metrics, "metrics_socket", &o);
}

static int listen_tcp(struct app *a)
{
	const char *text = conf_get(a->conf, "daemon", NULL, "metrics_listen");
	struct http_server_options o = options_of(a);
	struct host_port at;
	int r;

	if (str_is_empty(text))
		return 0;
	if (metrics_address(text, &at) < 0)
		return APP_EXIT_CONFIG;		/* app_check_conf() has said it */
	r = gateway_bind(at.host, at.port, &o.listen_fd);
	if (r < 0) {
		fprintf(stderr, "agentboxd: metrics_listen: %s: %s\n", text, strerrordesc_np(-r));
		return r == -EADDRINUSE ? APP_EXIT_BUSY : APP_EXIT_CONFIG;
	}
	o.on_request = app_metrics_on_tcp_request;
	return serve(&a->metrics_tcp, "metrics_listen", &o);
}

int app_metrics_new(struct app *a)
{
	int r = listen_socket(a);

	return r ? r : listen_tcp(a);
}

void app_metrics_free(struct app *a)
{
	a->metrics_tcp = http_server_free(a->metrics_tcp);
	a->metrics = http_server_free(a->metrics);
	a->metrics_socket = rpc_socket_free(a->metrics_socket);
}
