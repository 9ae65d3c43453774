/* SPDX-License-Identifier: MIT */
/*
 * What GET /metrics tells. Numbers only, and labels that are few: accounts, methods, reasons, states; never a sandbox or a host, and uids
 * only where [daemon] metrics_per_uid says so.
 */
#include "daemon/main/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/metrics_text.h"
#include "daemon/rpc/ended.h"
#include "daemon/sandbox/totals.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define ORIGINS_MAX 1024u	/* looked at for gauges */
#define UIDS_MAX    100u	/* with labels of their own, the lowest of them */

struct account_sums {
	uint64_t conns, dialing, streams, queued, held_down;
};

/* --- the daemon --- */

static void put_daemon(struct metrics_text *t, const struct app *a)
{
	struct commands_counts commands;
	struct rpc_counts clients;
	struct sandbox_core_counts core;

	sandbox_core_count(a->core, (uid_t)-1, &core);
	commands_count(a->commands, (uid_t)-1, &commands);
	rpc_server_count(a->server, (uid_t)-1, &clients);
	metrics_head(t, "build", "info", "What runs.");
	metrics_line(t, "build_info", METRICS_LABELS("version", AB_VERSION), 1);
	metrics_gauge(t, "uptime_seconds", "Since the start, suspended time included.",
	      (clock_boot_ms() - a->started_boot_ms) / 1000);
	metrics_gauge(t, "draining", "1: it takes no new work.", a->drain_until_ms != 0);
	metrics_gauge(t, "quiesced", "1: it makes no new sandboxes, as an admin said.", a->quiesced_at_ms != 0);
	metrics_gauge(t, "store_ok", "0: the last commit failed.", status_ok(&core.store));
	metrics_head(t, "sandboxes", "gauge", "Sandboxes by state.");
	metrics_line(t, "sandboxes", METRICS_LABELS("state", "running"), core.running);
	metrics_line(t, "sandboxes", METRICS_LABELS("state", "paused"), core.paused);
	metrics_line(t, "sandboxes", METRICS_LABELS("state", "changing"), core.other);
	metrics_gauge(t, "leases", "Leases held.", core.leases);
	metrics_gauge(t, "open_intents", "Decisions whose outcome is not known yet.", core.intents);
	metrics_gauge(t, "commands_running", "Commands that run.", commands.running);
	metrics_gauge(t, "spool_bytes", "Output kept.", commands.spool_used);
	metrics_gauge(t, "client_connections", "Connections of local clients.", clients.connections);
	metrics_gauge(t, "client_calls", "Unary calls of clients in flight.", clients.calls);
	metrics_gauge(t, "client_streams", "Long streams of clients.", clients.streams);
}

static void put_memory(struct metrics_text *t, const struct app *a)
{
	struct daemon_memory m;

	app_memory_collect(a, (uid_t)-1, &m);
	metrics_head(t, "memory_held_bytes", "gauge", "Memory held for others: local clients, the cloud's answers.");
	metrics_line(t, "memory_held_bytes", METRICS_LABELS("for", "clients"), m.client_bytes);
	metrics_line(t, "memory_held_bytes", METRICS_LABELS("for", "cloud"), m.cloud_bytes);
	metrics_head(t, "memory_max_bytes", "gauge", "How much that may be.");
	metrics_line(t, "memory_max_bytes", METRICS_LABELS("for", "clients"), m.max_client_bytes);
	metrics_line(t, "memory_max_bytes", METRICS_LABELS("for", "cloud"), m.max_cloud_bytes);
	metrics_counter(t, "memory_refused_calls", "Calls refused for lack of memory.", m.refused_calls);
	metrics_counter(t, "memory_closed_connections", "Connections of clients closed or not let in for lack of memory.",
		m.closed_connections);
}

/* `label`: one more, NULL = none. */
static void put_tally(struct metrics_text *t, const char *name, const char *label, const char *value, const struct tally *of)
{
	for (unsigned i = 0; i < TALLY_ENDS; i++)
		if (of->n[i] && tally_name(i))
			metrics_line(t, name, METRICS_LABELS("result", tally_name(i), label, value), of->n[i]);
}

static void put_names(struct metrics_text *t, const char *name, const char *label, const struct totals_by_name *of, const char *action)
{
	for (size_t i = 0; i < TOTALS_NAMES && of->v[i].name; i++)
		metrics_line(t, name, METRICS_LABELS(label, of->v[i].name, action ? "action" : NULL, action), of->v[i].n);
}

/* --- local clients --- */

static void put_calls(struct metrics_text *t, const struct app *a)
{
	struct rpc_method_stats m;
	size_t pos = 0;

	metrics_head(t, "client_calls_ended", "counter", "Calls of local clients that ended, by their result.");
	while (rpc_server_stats(a->server, &pos, &m))
		put_tally(t, "client_calls_ended_total", "method", m.path + 1, &m.stats->ends);
	metrics_head(t, "client_call_seconds", "histogram", "How long unary calls took.");
	pos = 0;
	while (rpc_server_stats(a->server, &pos, &m))
		if (histogram_count(&m.stats->latency))
			metrics_histogram_with(t, "client_call_seconds", METRICS_LABELS("method", m.path + 1), &m.stats->latency,
					       &m.stats->examples);
}

static int compare_uids(const void *a, const void *b)
{
	const uid_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

struct uid_row {
	char uid[16];
	struct sandbox_core_counts core;
	struct commands_counts commands;
	struct rpc_counts clients;
	struct daemon_memory memory;
};

static void read_uid_row(const struct app *a, uid_t uid, struct uid_row *ret)
{
	if (owner_is_made(uid))		/* one of several that have the uid in turn */
		snprintf(ret->uid, sizeof(ret->uid), "%u/%u", owner_uid(uid), (uid - OWNER_FIRST) & ((1u << OWNER_PRINT_BITS) - 1));
	else
		snprintf(ret->uid, sizeof(ret->uid), "%u", uid);
	sandbox_core_count(a->core, uid, &ret->core);
	commands_count(a->commands, uid, &ret->commands);
	rpc_server_count(a->server, uid, &ret->clients);
	app_memory_collect(a, uid, &ret->memory);
}

static void put_uid_rows(struct metrics_text *t, const struct uid_row *rows, size_t n)
{
	metrics_head(t, "uid_sandboxes", "gauge", "Sandboxes that are not gone, by their owner.");
	for (size_t i = 0; i < n; i++)
		metrics_line(t, "uid_sandboxes", METRICS_LABELS("uid", rows[i].uid),
			     rows[i].core.running + rows[i].core.paused + rows[i].core.other);
	metrics_head(t, "uid_leases", "gauge", "Leases held, by their owner.");
	for (size_t i = 0; i < n; i++)
		metrics_line(t, "uid_leases", METRICS_LABELS("uid", rows[i].uid), rows[i].core.leases);
	metrics_head(t, "uid_commands", "gauge", "Commands that run, by their owner.");
	for (size_t i = 0; i < n; i++)
		metrics_line(t, "uid_commands", METRICS_LABELS("uid", rows[i].uid), rows[i].commands.running);
	metrics_head(t, "uid_spool_bytes", "gauge", "Output kept, by its owner.");
	for (size_t i = 0; i < n; i++)
		metrics_line(t, "uid_spool_bytes", METRICS_LABELS("uid", rows[i].uid), rows[i].commands.spool_used);
	metrics_head(t, "uid_connections", "gauge", "Connections of local clients, by their user.");
	for (size_t i = 0; i < n; i++)
		metrics_line(t, "uid_connections", METRICS_LABELS("uid", rows[i].uid), rows[i].clients.connections);
	metrics_head(t, "uid_memory_bytes", "gauge", "Memory held for local clients, by their user.");
	for (size_t i = 0; i < n; i++)
		metrics_line(t, "uid_memory_bytes", METRICS_LABELS("uid", rows[i].uid), rows[i].memory.uid_bytes);
}

static void put_uids(struct metrics_text *t, const struct app *a)
{
	size_t n_all = sandbox_core_uids(a->core, NULL, 0), n = MIN(n_all, (size_t)UIDS_MAX);
	struct uid_row *rows = calloc(n + 1, sizeof(*rows));
	uid_t *uids = calloc(n_all + 1, sizeof(*uids));

	t->failed |= !rows || !uids;
	if (rows && uids) {
		(void)sandbox_core_uids(a->core, uids, n_all);
		qsort(uids, n_all, sizeof(*uids), compare_uids);
		for (size_t i = 0; i < n; i++)
			read_uid_row(a, uids[i], &rows[i]);
		put_uid_rows(t, rows, n);
		metrics_gauge(t, "uids_left_out", "Users without labels of their own, since there are too many.", n_all - n);
	}
	free(rows);
	free(uids);
}

/* --- sandboxes --- */

static void put_events(struct metrics_text *t, const struct sandbox_totals *n)
{
	metrics_head(t, "sandbox_events", "counter", "Events of sandboxes.");
	for (unsigned i = 1; i < TOTALS_EVENTS; i++)
		if (sandbox_event_name((int)i))
			metrics_line(t, "sandbox_events_total", METRICS_LABELS("type", sandbox_event_name((int)i)), n->events[i]);
	metrics_head(t, "sandboxes_gone", "counter", "Sandboxes that ended, by how.");
	for (unsigned i = 0; i < TALLY_ENDS; i++)
		if (n->gone.n[i] && tally_name(i))
			metrics_line(t, "sandboxes_gone_total", METRICS_LABELS("reason", tally_name(i)), n->gone.n[i]);
}

static void put_sandboxes(struct metrics_text *t, const struct app *a)
{
	const struct sandbox_totals *n = sandbox_core_totals(a->core);

	put_events(t, n);
	metrics_head(t, "sandbox_makes", "counter", "Creates, forks and snapshots, by their result.");
	put_tally(t, "sandbox_makes_total", "what", "create", &n->creates);
	put_tally(t, "sandbox_makes_total", "what", "fork", &n->forks);
	put_tally(t, "sandbox_makes_total", "what", "snapshot", &n->snapshots);
	metrics_head(t, "policy_actions", "counter", "What policies did, by the rule that applied.");
	put_names(t, "policy_actions_total", "rule", &n->pauses, "pause");
	put_names(t, "policy_actions_total", "rule", &n->kills, "kill");
	metrics_counter(t, "leases_taken", "Leases that began.", n->leases_taken);
	metrics_head(t, "leases_ended", "counter", "Leases that ended, by why.");
	put_names(t, "leases_ended_total", "why", &n->leases_ended, NULL);
	metrics_head(t, "renewals", "counter", "Extensions of sandboxes in use, by the cloud's answer.");
	put_tally(t, "renewals_total", NULL, NULL, &n->renewals);
	metrics_head(t, "renewal_delay_seconds", "histogram", "How much later than due extensions were sent.");
	metrics_histogram(t, "renewal_delay_seconds", NULL, &n->renewal_delay);
}

/* --- the daemon's own parts --- */

static void put_inside(struct metrics_text *t, const struct app *a)
{
	const struct loop_totals *loop = loop_totals(a->loop);
	const struct store_totals *store = store_totals(a->store);

	metrics_head(t, "store_commits", "counter", "Commits of the state, by their result.");
	put_tally(t, "store_commits_total", NULL, NULL, &store->ends);
	metrics_head(t, "store_commit_seconds", "histogram", "How long a commit took, waiting for others included.");
	metrics_histogram(t, "store_commit_seconds", METRICS_LABELS("durable", "yes"), &store->durable);
	metrics_histogram(t, "store_commit_seconds", METRICS_LABELS("durable", "no"), &store->others);
	metrics_head(t, "loop_pass_seconds", "histogram", "Passes of the loop: whoever comes meanwhile waits so long.");
	metrics_histogram(t, "loop_pass_seconds", NULL, &loop->busy);
	metrics_head(t, "loop_late_seconds", "histogram", "How much later than wanted the loop was woken by its clock.");
	metrics_histogram(t, "loop_late_seconds", NULL, &loop->late);
}

/* --- the cloud --- */

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
	const struct origin *at = NULL;
	struct pool_stats s;

	for (size_t i = 0; i < ORIGINS_MAX && pool_stats(a->pool, &at, &s); i++) {
		struct account_sums *to = &sums[account_of(a, s.group)];

		to->conns += s.conns;
		to->dialing += s.dialing;
		to->streams += s.streams;
		to->queued += s.queued;
		to->held_down += s.hold_until_ms > now;
	}
}

static void put_accounts(struct metrics_text *t, const struct app *a)
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
		metrics_head(t, v[k].name, "gauge", v[k].help);
		for (size_t i = 0; i < a->n_accounts; i++)
			metrics_line(t, v[k].name, METRICS_LABELS("account", a->accounts[i].name),
				     *(const uint64_t *)((const char *)&sums[i] + v[k].at));
	}
	for (size_t i = 0; i < a->n_accounts; i++)
		cloud_health(a->accounts[i].cloud, &h[i]);
	metrics_head(t, "cloud_reachable", "gauge", "1: the last call of the control plane got an answer.");
	for (size_t i = 0; i < a->n_accounts; i++)
		metrics_line(t, "cloud_reachable", METRICS_LABELS("account", a->accounts[i].name),
			     h[i].last_failure_at_ms <= h[i].last_ok_at_ms);
	metrics_head(t, "limiter_in_flight", "gauge", "Calls of the control plane in flight.");
	for (size_t i = 0; i < a->n_accounts; i++)
		metrics_line(t, "limiter_in_flight", METRICS_LABELS("account", a->accounts[i].name), h[i].in_flight);
	metrics_head(t, "limiter_queued", "gauge", "Calls of the control plane that wait for their turn.");
	for (size_t i = 0; i < a->n_accounts; i++)
		metrics_line(t, "limiter_queued", METRICS_LABELS("account", a->accounts[i].name), h[i].queued);
}

static void put_totals(struct metrics_text *t, const struct app *a)
{
	struct pool_stats s;

	pool_totals(a->pool, &s);
	metrics_counter(t, "pool_calls", "Calls sent to the cloud.", s.requests);
	metrics_counter(t, "pool_dials", "Attempts to connect.", s.dials);
	metrics_counter(t, "pool_dial_failures", "Attempts that failed.", s.dial_failures);
	metrics_counter(t, "pool_goaways", "Connections that the cloud asked to leave.", s.goaways);
	metrics_counter(t, "pool_complaints", "Of them with ENHANCE_YOUR_CALM.", s.enhance_calm_count);
	metrics_counter(t, "pool_replays", "Calls that were sent again.", s.replays);
	metrics_counter(t, "pool_pings_lost", "Connections that went silent.", s.pings_lost);
	metrics_counter(t, "pool_misdirected", "Answers of 421.", s.misdirected);
	metrics_counter(t, "pool_received_bytes", "Bytes that came from the cloud.", s.bytes_in);
	metrics_counter(t, "pool_sent_bytes", "Bytes that went to the cloud.", s.bytes_out);
	metrics_head(t, "pool_queue_seconds", "histogram", "How long requests waited for a connection.");
	metrics_histogram(t, "pool_queue_seconds", NULL, pool_queue_time(a->pool));
}

static void put_cloud(struct metrics_text *t, const struct app *a)
{
	metrics_head(t, "cloud_calls", "counter", "Calls of the control plane, by their result.");
	for (size_t i = 0; i < a->n_accounts; i++)
		put_tally(t, "cloud_calls_total", "account", a->accounts[i].name, &cloud_totals(a->accounts[i].cloud)->ends);
	metrics_head(t, "cloud_call_seconds", "histogram", "How long they took, from the first attempt on the wire.");
	for (size_t i = 0; i < a->n_accounts; i++)
		metrics_histogram(t, "cloud_call_seconds", METRICS_LABELS("account", a->accounts[i].name),
				  &cloud_totals(a->accounts[i].cloud)->took);
	metrics_head(t, "cloud_turn_seconds", "histogram", "How long they waited for the account's turn.");
	for (size_t i = 0; i < a->n_accounts; i++)
		metrics_histogram(t, "cloud_turn_seconds", METRICS_LABELS("account", a->accounts[i].name),
				  &cloud_totals(a->accounts[i].cloud)->waited);
	metrics_head(t, "cloud_limited", "counter", "Answers of 429.");
	for (size_t i = 0; i < a->n_accounts; i++)
		metrics_line(t, "cloud_limited_total", METRICS_LABELS("account", a->accounts[i].name),
			     cloud_totals(a->accounts[i].cloud)->limited);
	metrics_head(t, "cloud_repeats", "counter", "Attempts after the first of a call.");
	for (size_t i = 0; i < a->n_accounts; i++)
		metrics_line(t, "cloud_repeats_total", METRICS_LABELS("account", a->accounts[i].name),
			     cloud_totals(a->accounts[i].cloud)->repeats);
}

/* --- all of it --- */

static void put_warm(struct metrics_text *t, const struct app *a)
{
	static const struct {
		const char *name, *total, *help;
		size_t at, size;
	} v[] = {
#define FIELD(field) offsetof(struct sandbox_warm_info, field), sizeof(((struct sandbox_warm_info *)0)->field)
		{ "warm_ready", NULL, "Sandboxes of an entry that wait for a claim.", FIELD(ready) },
		{ "warm_coming", NULL, "Those that are being made or prepared.", FIELD(coming) },
		{ "warm_waiting", NULL, "Creates that wait for one.", FIELD(waiting) },
		{ "warm_failed", NULL, "1: the entry makes none any more.", FIELD(failed) },
		{ "warm_prepare_ms", NULL, "From the creation of the last one until it was ready.", FIELD(prepare_ms) },
		{ "warm_oldest_ready_ms", NULL, "For how long the oldest has been ready.", FIELD(oldest_ready_ms) },
		{ "warm_hits", "warm_hits_total", "Creates that got one.", FIELD(hits) },
		{ "warm_misses", "warm_misses_total", "Creates that would have fitted while none was ready.", FIELD(misses) },
		{ "warm_made", "warm_made_total", "Creations for an entry.", FIELD(made) },
		{ "warm_failures", "warm_failures_total", "Those that did not become ready, or died soon after.", FIELD(failures_in_all) },
#undef FIELD
	};
	struct sandbox_warm_info i;

	for (size_t k = 0; k < ARRAY_SIZE(v); k++) {
		metrics_head(t, v[k].name, v[k].total ? "counter" : "gauge", v[k].help);
		for (size_t n = 0; sandbox_warm_info(a->core, n, &i); n++) {
			const char *at = (const char *)&i + v[k].at;
			uint64_t value = v[k].size == sizeof(bool) ? *(const bool *)at : v[k].size == sizeof(uint32_t) ?
					 *(const uint32_t *)(const void *)at : *(const uint64_t *)(const void *)at;

			metrics_line(t, v[k].total ? v[k].total : v[k].name, METRICS_LABELS("entry", i.name), value);
		}
	}
	metrics_gauge(t, "warm_quarantined", "Sandboxes of which it was forgotten whether somebody claimed them.",
		      sandbox_warm_quarantined(a->core));
}

static void put_gateway(struct metrics_text *t, const struct app *a)
{
	struct gateway_counts n;

	gateway_counts(a->gateway, &n);
	metrics_gauge(t, "gateway_connections", "Connections of programs with an SDK.", n.connections);
	metrics_gauge(t, "gateway_calls", "Calls of the control plane in flight.", n.controls);
	metrics_gauge(t, "gateway_relays", "Requests to sandboxes in flight.", n.relays);
	metrics_gauge(t, "gateway_pages", "Status pages that are open, or being made.", n.pages);
	metrics_counter(t, "gateway_requests", "Requests that came.", n.requests);
	metrics_counter(t, "gateway_refused", "Requests turned away at the door.", n.refused);
	metrics_counter(t, "gateway_bytes_up", "Bytes relayed to sandboxes.", n.relayed_up);
	metrics_counter(t, "gateway_bytes_down", "Bytes relayed from sandboxes.", n.relayed_down);
}

int metrics_write(const struct app *a, struct buf *out)
{
	struct metrics_text t = { .b = *out, .tells_requests = conf_get_bool(a->conf, "daemon", NULL, "metrics_per_uid") };
	struct sandbox_warm_info warm;

	put_daemon(&t, a);
	put_memory(&t, a);
	put_calls(&t, a);
	if (t.tells_requests)
		put_uids(&t, a);
	put_sandboxes(&t, a);
	put_inside(&t, a);
	put_accounts(&t, a);
	put_totals(&t, a);
	if (sandbox_warm_info(a->core, 0, &warm))
		put_warm(&t, a);
	put_cloud(&t, a);
	if (a->gateway)
		put_gateway(&t, a);
	t.failed |= buf_printf(&t.b, "# EOF\n") < 0;
	*out = t.b;
	return t.failed ? -ENOMEM : 0;
}

int metrics_address(const char *text, struct host_port *ret)
{
	int r = host_port_parse(text, strlen(text), ret);

	return r < 0 ? r : ret->has_port && ret->port && host_is_address(ret->host) && host_is_loopback(ret->host) ? 0 : -EINVAL;
}
