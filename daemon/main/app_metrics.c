/* SPDX-License-Identifier: MIT */
/*
 * OpenMetrics on a Unix socket of its own, [daemon] metrics_socket: GET /metrics. Numbers only, and labels that are
 * few: accounts and states, never a sandbox, a host or a uid.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/net/http.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app_impl.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define TEXT_MAX    (1024u * 1024)
#define ORIGINS_MAX 1024u	/* looked at for gauges */
#define CONNS_MAX   16u
#define CONN_BYTES  (2u << 20)
#define IDLE_MS	    60000u
#define TYPE	    "application/openmetrics-text; version=1.0.0; charset=utf-8"

struct account_sums {
	uint64_t conns, dialing, streams, queued, held_down;
};

/* Out of memory shows at the end, once: what does not fit is not sent. */
struct text {
	struct buf b;
	bool failed;
};

static void head(struct text *t, const char *name, const char *type, const char *help)
{
	t->failed |= buf_printf(&t->b, "# TYPE agentbox_%s %s\n# HELP agentbox_%s %s\n", name, type, name, help) < 0;
}

static void line(struct text *t, const char *name, const char *label, const char *value, uint64_t n)
{
	if (label)
		t->failed |= buf_printf(&t->b, "agentbox_%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, n) < 0;
	else
		t->failed |= buf_printf(&t->b, "agentbox_%s %" PRIu64 "\n", name, n) < 0;
}

static void gauge(struct text *t, const char *name, const char *help, uint64_t n)
{
	head(t, name, "gauge", help);
	line(t, name, NULL, NULL, n);
}

static void counter(struct text *t, const char *name, const char *help, uint64_t n)
{
	char total[64];

	head(t, name, "counter", help);
	snprintf(total, sizeof(total), "%s_total", name);
	line(t, total, NULL, NULL, n);
}

static void put_daemon(struct text *t, const struct app *a)
{
	struct commands_counts commands;
	struct rpc_counts clients;
	struct sandbox_core_counts core;

	sandbox_core_count(a->core, (uid_t)-1, &core);
	commands_count(a->commands, (uid_t)-1, &commands);
	rpc_server_count(a->server, (uid_t)-1, &clients);
	head(t, "build", "info", "What runs.");
	line(t, "build_info", "version", AB_VERSION, 1);
	gauge(t, "uptime_seconds", "Since the start, suspended time included.",
	      (clock_boot_ms() - a->started_boot_ms) / 1000);
	gauge(t, "draining", "1: it takes no new work.", a->drain_until_ms != 0);
	gauge(t, "store_ok", "0: the last commit failed.", status_ok(&core.store));
	head(t, "sandboxes", "gauge", "Sandboxes by state.");
	line(t, "sandboxes", "state", "running", core.running);
	line(t, "sandboxes", "state", "paused", core.paused);
	line(t, "sandboxes", "state", "changing", core.other);
	gauge(t, "leases", "Leases held.", core.leases);
	gauge(t, "open_intents", "Decisions whose outcome is not known yet.", core.intents);
	gauge(t, "commands_running", "Commands that run.", commands.running);
	gauge(t, "spool_bytes", "Output kept.", commands.spool_used);
	gauge(t, "client_connections", "Connections of local clients.", clients.connections);
	gauge(t, "client_calls", "Unary calls of clients in flight.", clients.calls);
	gauge(t, "client_streams", "Long streams of clients.", clients.streams);
}

static void put_memory(struct text *t, const struct app *a)
{
	struct daemon_memory m;

	app_memory_collect(a, (uid_t)-1, &m);
	head(t, "memory_held_bytes", "gauge", "Memory held for others: local clients, the cloud's answers.");
	line(t, "memory_held_bytes", "for", "clients", m.client_bytes);
	line(t, "memory_held_bytes", "for", "cloud", m.cloud_bytes);
	head(t, "memory_max_bytes", "gauge", "How much that may be.");
	line(t, "memory_max_bytes", "for", "clients", m.max_client_bytes);
	line(t, "memory_max_bytes", "for", "cloud", m.max_cloud_bytes);
	counter(t, "memory_refused_calls", "Calls refused for lack of memory.", m.refused_calls);
	counter(t, "memory_closed_connections", "Connections of clients closed or not let in for lack of memory.",
		m.closed_connections);
}

/* "NAME#GENERATION" or "NAME" */
static size_t account_of(const struct app *a, const char *group)
{
	size_t n = strcspn(group, "#");

	for (size_t i = 0; i < a->n_accounts; i++)
		if (strlen(a->accounts[i].name) == n && !strncmp(a->accounts[i].name, group, n))
			return i;
	return a->n_accounts;
}

static void add_up(const struct app *a, struct account_sums *sums)
{
	uint64_t now = loop_now_ms(a->loop);
	struct pool_stats s;

	for (size_t i = 0; i < ORIGINS_MAX && pool_stats(a->pool, i, &s); i++) {
		struct account_sums *to = &sums[account_of(a, s.group)];

		to->conns += s.conns;
		to->dialing += s.dialing;
		to->streams += s.streams;
		to->queued += s.queued;
		to->held_down += s.hold_until_ms > now;
	}
}

static void put_accounts(struct text *t, const struct app *a)
{
	static const struct {
		const char *name, *help;
		size_t at;
	} v[] = {
		{ "pool_connections", "Connections to the cloud.", offsetof(struct account_sums, conns) },
		{ "pool_connecting", "Connections that are being made.", offsetof(struct account_sums, dialing) },
		{ "pool_streams", "Calls in flight on them.", offsetof(struct account_sums, streams) },
		{ "pool_queued", "Calls that wait for one.", offsetof(struct account_sums, queued) },
		{ "pool_held_down", "Origins that are not dialled for now.", offsetof(struct account_sums, held_down) },
	};
	struct account_sums sums[APP_ACCOUNTS_MAX + 1] = { 0 };
	struct cloud_health h[APP_ACCOUNTS_MAX];

	add_up(a, sums);
	for (size_t k = 0; k < ARRAY_SIZE(v); k++) {
		head(t, v[k].name, "gauge", v[k].help);
		for (size_t i = 0; i < a->n_accounts; i++)
			line(t, v[k].name, "account", a->accounts[i].name,
			     *(const uint64_t *)((const char *)&sums[i] + v[k].at));
	}
	for (size_t i = 0; i < a->n_accounts; i++)
		cloud_health(a->accounts[i].cloud, &h[i]);
	head(t, "cloud_reachable", "gauge", "1: the last call of the control plane got an answer.");
	for (size_t i = 0; i < a->n_accounts; i++)
		line(t, "cloud_reachable", "account", a->accounts[i].name, h[i].last_failure_at_ms <= h[i].last_ok_at_ms);
	head(t, "limiter_in_flight", "gauge", "Calls of the control plane in flight.");
	for (size_t i = 0; i < a->n_accounts; i++)
		line(t, "limiter_in_flight", "account", a->accounts[i].name, h[i].in_flight);
	head(t, "limiter_queued", "gauge", "Calls of the control plane that wait for their turn.");
	for (size_t i = 0; i < a->n_accounts; i++)
		line(t, "limiter_queued", "account", a->accounts[i].name, h[i].queued);
}

static void put_totals(struct text *t, const struct app *a)
{
	struct pool_stats s;

	pool_totals(a->pool, &s);
	counter(t, "pool_calls", "Calls sent to the cloud.", s.requests);
	counter(t, "pool_dials", "Attempts to connect.", s.dials);
	counter(t, "pool_dial_failures", "Attempts that failed.", s.dial_failures);
	counter(t, "pool_goaways", "Connections that the cloud asked to leave.", s.goaways);
	counter(t, "pool_complaints", "Of them with ENHANCE_YOUR_CALM.", s.enhance_calm_count);
	counter(t, "pool_replays", "Calls that were sent again.", s.replays);
	counter(t, "pool_pings_lost", "Connections that went silent.", s.pings_lost);
}

static void put_gateway(struct text *t, const struct app *a)
{
	struct gateway_counts n;

	gateway_counts(a->gateway, &n);
	gauge(t, "gateway_connections", "Connections of programs with an SDK.", n.connections);
	gauge(t, "gateway_calls", "Calls of the control plane in flight.", n.controls);
	gauge(t, "gateway_relays", "Requests to sandboxes in flight.", n.relays);
	counter(t, "gateway_requests", "Requests that came.", n.requests);
	counter(t, "gateway_refused", "Requests turned away at the door.", n.refused);
	counter(t, "gateway_bytes_up", "Bytes relayed to sandboxes.", n.relayed_up);
	counter(t, "gateway_bytes_down", "Bytes relayed from sandboxes.", n.relayed_down);
}

/* --- serving --- */

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
	struct text t = { .failed = false };

	buf_init(&t.b, TEXT_MAX);
	put_daemon(&t, a);
	put_memory(&t, a);
	put_accounts(&t, a);
	put_totals(&t, a);
	if (a->gateway)
		put_gateway(&t, a);
	t.failed |= buf_printf(&t.b, "# EOF\n") < 0;
	if (t.failed)
		app_metrics_answer(x, "500", "text/plain", "out of memory\n", 14);
	else
		app_metrics_answer(x, "200", TYPE, buf_data(&t.b), buf_len(&t.b));
	buf_fini(&t.b);
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

static int serve(struct app *a, const struct http_server_options *o)
{
	if (http_server_new(o, &a->metrics) == 0)
		return 0;
	fd_close(o->listen_fd);
	fprintf(stderr, "agentboxd: metrics_socket: out of memory\n");
	return APP_EXIT_UNAVAILABLE;
}

int app_metrics_new(struct app *a)
{
	struct rpc_socket_options where = { .path = conf_get(a->conf, "daemon", NULL, "metrics_socket"), .mode = 0600,
					    .gid = (gid_t)-1, .dir_mode = a->user_mode ? 0700 : 0755 };
	struct http_server_options o = {.loop = a->loop,
					.http1 = true,
					.http2 = true,
					.max_conns = CONNS_MAX,
					.quota = uid_quotas_all(a->quotas),
					.conn_max = CONN_BYTES,
					.idle_ms = IDLE_MS,
					.on_request = app_metrics_on_request,
					.user = a};
	struct status why = STATUS_OK;
	int r = app_manager_take(a, APP_FD_METRICS, &o.listen_fd);

	if (r)
		return r;
	if (o.listen_fd >= 0)
		return serve(a, &o);
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
	return serve(a, &o);
}

void app_metrics_free(struct app *a)
{
	a->metrics = http_server_free(a->metrics);
	a->metrics_socket = rpc_socket_free(a->metrics_socket);
}
