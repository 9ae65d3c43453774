/* SPDX-License-Identifier: MIT */
/* agentboxctl pool */
#include <inttypes.h>
#include <stdio.h>

#include "client/cli/cmd/reports.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const char *or_dash(const char *text)
{
	return *text ? text : "-";
}

static const char *rtt_text(uint32_t us, char buf[32])
{
	if (us)
		(void)snprintf(buf, 32, "%.1fms", us / 1000.0);
	else
		(void)snprintf(buf, 32, "-");
	return buf;
}

static int print_origins(const struct ab_daemon_status *s)
{
	static const char *const heads[] = { "ORIGIN", "ACCOUNT", "PROTOCOL", "CONNS", "STREAMS", "WAITING", "CALLS",
					     "DIALS", "LOST", "GOAWAYS", "AGAIN", NULL };
	static const char *const spare[] = { "AGAIN", "DIALS", "GOAWAYS", "PROTOCOL", "LOST", "ACCOUNT", "CALLS", NULL };
	struct table t;

	table_begin(&t, heads);
	t.spare = spare;
	for (size_t i = 0; i < s->n_pool; i++) {
		const struct ab_origin_status *o = &s->pool[i];

		table_cell(&t, o->origin);
		table_cell(&t, or_dash(o->account));
		table_cell(&t, or_dash(o->protocol));
		table_number(&t, o->connections);
		table_number(&t, o->streams);
		table_number(&t, o->queued);
		table_number(&t, o->calls);
		table_number(&t, o->dials);
		table_number(&t, o->failures);
		table_number(&t, o->goaways);
		table_number(&t, o->replays);
	}
	return table_end(&t);
}

static int print_conns(const struct ab_daemon_status *s)
{
	static const char *const heads[] = { "PEER", "ORIGIN", "STATE", "STREAMS", "MAX", "RTT", "AGE", "SILENT", NULL };
	static const char *const spare[] = { "MAX", "SILENT", "AGE", NULL };
	struct table t;
	char buf[32];

	table_begin(&t, heads);
	t.spare = spare;
	for (size_t i = 0; i < s->n_pool; i++)
		for (size_t k = 0; k < s->pool[i].n_conns; k++) {
			const struct ab_connection_status *c = &s->pool[i].conns[k];

			table_cell(&t, c->peer);
			table_cell(&t, s->pool[i].origin);
			table_cell(&t, c->state);
			table_number(&t, c->streams);
			table_number(&t, c->max_streams);
			table_cell(&t, rtt_text(c->rtt_us, buf));
			table_cell(&t, span_text((int64_t)(c->age_ms / 1000 * 1000), buf));
			table_cell(&t, span_text((int64_t)(c->silent_ms / 1000 * 1000), buf));
		}
	return table_end(&t);
}

static void print_limits(const struct ab_cloud_status *c)
{
	char buf[32], clean[256];

	printf("%s: %u of %u calls, %u waiting\n", safe(c->account, clean, sizeof(clean)), c->in_flight, c->max_in_flight,
	       c->queued);
	for (size_t i = 0; i < c->n_limits; i++) {
		const struct ab_limited_route *l = &c->limits[i];

		printf("  %s: %u of %u calls", safe(l->route, clean, sizeof(clean)), l->in_flight, l->window);
		if (l->burst)
			printf(", budget %u, %.3g a second", l->burst, l->per_second);
		if (l->next_at_ms)
			printf(", next at %s", time_text(l->next_at_ms, buf));
		printf("\n");
	}
}

/* What keeps an origin from being used in full. */
static void print_trouble(const struct ab_origin_status *o)
{
	char buf[32], origin[512], text[1024];

	(void)safe(o->origin, origin, sizeof(origin));
	if (o->held_down_until_ms)
		printf("%s: no new connection before %s\n", origin, time_text(o->held_down_until_ms, buf));
	if (*o->last_error)
		printf("%s: at %s: %s\n", origin, time_text(o->last_error_at_ms, buf),
		       safe(o->last_error, text, sizeof(text)));
	if (o->complaints)
		printf("%s: asked for calm %" PRIu64 " times, %u streams a connection\n", origin, o->complaints,
		       o->stream_target);
}

static int cmd_pool_print(const struct ab_daemon_status *s)
{
	int r = print_origins(s);

	if (r)
		return r;
	printf("\n");
	r = print_conns(s);
	if (r)
		return r;
	printf("\n");
	for (size_t i = 0; i < s->n_clouds; i++)
		print_limits(&s->clouds[i]);
	for (size_t i = 0; i < s->n_pool; i++)
		print_trouble(&s->pool[i]);
	return EXIT_OK;
}

static void json_conn(struct json *j, const struct ab_connection_status *c)
{
	json_open(j, NULL, '{');
	json_text(j, "state", c->state);
	json_text(j, "peer", c->peer);
	json_text(j, "protocol", c->protocol);
	json_uint(j, "streams", c->streams);
	json_uint(j, "max_streams", c->max_streams);
	json_uint(j, "rtt_us", c->rtt_us);
	json_uint(j, "age_ms", c->age_ms);
	json_uint(j, "silent_ms", c->silent_ms);
	json_close(j, '}');
}

static void json_origin(struct json *j, const struct ab_origin_status *o)
{
	json_open(j, NULL, '{');
	json_text(j, "origin", o->origin);
	json_text(j, "account", o->account);
	json_text(j, "protocol", o->protocol);
	json_uint(j, "connections", o->connections);
	json_uint(j, "connecting", o->connecting);
	json_uint(j, "streams", o->streams);
	json_uint(j, "queued", o->queued);
	json_uint(j, "calls", o->calls);
	json_uint(j, "dials", o->dials);
	json_uint(j, "failures", o->failures);
	json_uint(j, "goaways", o->goaways);
	json_uint(j, "complaints", o->complaints);
	json_uint(j, "replays", o->replays);
	json_uint(j, "pings_lost", o->pings_lost);
	json_uint(j, "stream_target", o->stream_target);
	json_time(j, "held_down_until", o->held_down_until_ms);
	json_text(j, "last_error", o->last_error);
	json_time(j, "last_error_at", o->last_error_at_ms);
	json_open(j, "conns", '[');
	for (size_t i = 0; i < o->n_conns; i++)
		json_conn(j, &o->conns[i]);
	json_close(j, ']');
	json_close(j, '}');
}

static void json_limiter(struct json *j, const struct ab_cloud_status *c)
{
	json_open(j, NULL, '{');
	json_text(j, "account", c->account);
	json_uint(j, "in_flight", c->in_flight);
	json_uint(j, "max_in_flight", c->max_in_flight);
	json_uint(j, "queued", c->queued);
	json_time(j, "limited_until", c->limited_until_ms);
	json_open(j, "routes", '[');
	for (size_t i = 0; i < c->n_limits; i++) {
		const struct ab_limited_route *l = &c->limits[i];
		char rate[32];

		(void)snprintf(rate, sizeof(rate), "%.3f", l->per_second);
		json_open(j, NULL, '{');
		json_text(j, "route", l->route);
		json_uint(j, "in_flight", l->in_flight);
		json_uint(j, "window", l->window);
		json_uint(j, "burst", l->burst);
		json_number(j, "per_second", rate);
		json_time(j, "next_at", l->next_at_ms);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

void pool_print_json(FILE *f, const struct ab_daemon_status *s)
{
	struct json j;

	json_begin(&j, f);
	json_open(&j, "origins", '[');
	for (size_t i = 0; i < s->n_pool; i++)
		json_origin(&j, &s->pool[i]);
	json_close(&j, ']');
	json_open(&j, "limits", '[');
	for (size_t i = 0; i < s->n_clouds; i++)
		json_limiter(&j, &s->clouds[i]);
	json_close(&j, ']');
	json_end(&j);
}

static int cmd_pool_run(struct cli *cli)
{
	struct ab_daemon_status *s;
	int r = EXIT_OK;

	if (ab_daemon_status(cli->client, NULL, &s))
		return fail_client(cli);
	if (cli->args.json)
		pool_print_json(stdout, s);
	else
		r = cmd_pool_print(s);
	ab_free(s);
	return r;
}

const struct command cmd_pool = {
	.name = "pool",
	.words = "",
	.help = "Shows the connections to the cloud, and who waits for what.",
	.run = cmd_pool_run,
};
