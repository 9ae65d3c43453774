/* SPDX-License-Identifier: MIT */
/* agentboxctl status, page */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/cmd/reports.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static void printf_like(2, 3) line(const char *name, const char *fmt, ...)
{
	char text[1024], clean[1024];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("%-12s ", name);
	print_wrapped(stdout, 13, safe(text, clean, sizeof(clean)));
}

/* What a person can do; what is not listed says so in its message, or passes by itself. */
static const struct {
	const char *what, *reason;	/* NULL: any */
	const char *advice;
} advices[] = {
	{ "key", "KEY_MISSING", "set api_key_file of the account in agentboxd.conf (agentboxd.conf(5)), and restart the daemon" },
	{ "cloud", "KEY_REJECTED", "put a valid key where the account's key comes from; it is read again" },
	{ "cloud", "TLS_UNTRUSTED", "name the CA of your network in ca_file of the account" },
	{ "cloud", "PROXY_AUTH", "correct user and password in proxy of the account" },
	{ "cloud", "PROXY_FAILED", "look at the proxy of the account, or set proxy = none" },
	{ "cloud", NULL, "see that this machine reaches api_url of the account; the daemon goes on trying" },
	{ "local", NULL, "see the log: agentbox-local is started again by itself" },
	{ "store", "NO_SPACE", "make room on the file system of the state directory" },
	{ "store", "STORE_FULL", "make room on the file system of the state directory" },
	{ "store", "STORE_READONLY", "make the state directory writable for the daemon's user" },
	{ "store", "TRUNCATED", "see agentboxd(8), what the daemon remembers; it is said until the next start" },
	{ "host_id", NULL, "take over with agentboxctl connect --adopt what is to be this host's; it is said until the next start" },
};

static const char *advice_for(const struct ab_degradation *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(advices); i++)
		if (!strcmp(advices[i].what, d->what) && (!advices[i].reason || !strcmp(advices[i].reason, d->reason)))
			return advices[i].advice;
	return NULL;
}

static void print_degradation(const struct ab_degradation *d)
{
	const char *advice = advice_for(d);
	char buf[32];

	line("degraded", "%s%s%s: %s (%s) since %s", d->what, *d->account ? " of account " : "", d->account, d->message, d->reason,
	     time_text(d->since_at_ms, buf));
	if (advice)
		line("", "to do: %s", advice);
}

static void print_clouds(const struct ab_daemon_status *s)
{
	char buf[32];

	for (size_t i = 0; i < s->n_clouds; i++) {
		const struct ab_cloud_status *c = &s->clouds[i];

		line("cloud", "%s: %s, %s, key %s%s%s", c->account, c->api_url,
		     c->reachable ? "answers" : "does not answer", *c->key ? c->key : "unknown",
		     *c->proxy ? ", through " : "", c->proxy);
		if (!c->reachable)
			line("", "since %s: %s (%s)", time_text(c->last_failure_at_ms, buf),
			     c->last_failure_message, c->last_failure);
	}
	for (size_t i = 0; i < s->n_pool; i++) {
		const struct ab_origin_status *o = &s->pool[i];

		line("connections", "%s: %u (%s), %u streams, %u waiting", o->origin, o->connections,
		     *o->protocol ? o->protocol : "-", o->streams, o->queued);
	}
}

static void print_memory(const struct ab_daemon_status *s)
{
	char own[32], own_max[32], all[32], all_max[32], cloud[32], cloud_max[32];

	if (!s->max_client_bytes)	/* a daemon that does not tell */
		return;
	line("memory", "%s of %s held for you, %s of %s for all users, %s of %s for the cloud",
	     size_text(s->uid_bytes, own), size_text(s->max_uid_bytes, own_max), size_text(s->client_bytes, all),
	     size_text(s->max_client_bytes, all_max), size_text(s->cloud_bytes, cloud),
	     size_text(s->max_cloud_bytes, cloud_max));
	if (s->refused_calls || s->closed_connections)
		line("", "%llu calls refused, %llu connections closed for lack of it", (unsigned long long)s->refused_calls,
		     (unsigned long long)s->closed_connections);
}

static void print_gateway(const struct ab_daemon_status *s)
{
	const char *url = s->gateway_url, *socket = s->gateway_socket;

	if (!url || (!*url && !*socket))
		return;
	line("gateway", "%s%s%s: %u connections, %u calls, %u relayed; %llu requests, %llu refused", url, *url && *socket ? ", " : "",
	     socket, s->gateway_connections, s->gateway_calls, s->gateway_relays, (unsigned long long)s->gateway_requests,
	     (unsigned long long)s->gateway_refused);
}

static const char *limit_text(uint32_t used, uint32_t max, char buf[48])
{
	if (max)
		snprintf(buf, 48, "%u of %u", used, max);
	else
		snprintf(buf, 48, "%u", used);
	return buf;
}

static void print_access(const struct ab_daemon_status *s)
{
	char sandboxes[48];

	if (!s->access_right)
		return;
	line("you", "uid %u%s%s%s: %s, by %s", s->uid, *s->user ? " (" : "", s->user, *s->user ? ")" : "", s->access_right,
	     s->access_rule);
	line("yours", "%s sandboxes, account %s", limit_text(s->uid_sandboxes, s->max_sandboxes, sandboxes), s->account);
	if (s->creates_per_minute)
		line("", "%u of %u creates left in this minute", s->creates_left, s->creates_per_minute);
}

static void cmd_status_print(const struct ab_daemon_status *s)
{
	char buf[32];

	line("version", "%s", s->version);
	line("pid", "%lld, %s, up since %s", (long long)s->pid, s->system ? "system" : "user",
	     time_text(s->started_at_ms, buf));
	line("socket", "%s", s->socket);
	line("state", "%s (%s%s)", s->state_dir, size_text(s->store_bytes, buf),
	     s->store_writable ? "" : ", read-only");
	line("host", "%s", s->host_id);
	line("sandboxes", "%u running, %u paused, %u changing", s->sandboxes_running,
	     s->sandboxes_paused, s->sandboxes_changing);
	line("commands", "%u running, %s of output kept", s->commands_running,
	     size_text(s->spool_bytes, buf));
	line("clients", "%u connections, %u calls, %u of %u streams, %u leases", s->connections, s->calls,
	     s->streams, s->max_streams, s->leases);
	print_access(s);
	print_memory(s);
	print_gateway(s);
	print_clouds(s);
	if (s->local_address)
		line("local", "%s%s%s", s->local_address, s->local_address[0] ? ", " : "",
		     s->local_pid ? "running" : "not running");
	if (s->draining)
		line("draining", "takes no new work");
	for (size_t i = 0; i < s->n_degraded; i++)
		print_degradation(&s->degraded[i]);
}

static void json_clouds(struct json *j, const struct ab_daemon_status *s)
{
	json_open(j, "clouds", '[');
	for (size_t i = 0; i < s->n_clouds; i++) {
		const struct ab_cloud_status *c = &s->clouds[i];

		json_open(j, NULL, '{');
		json_text(j, "account", c->account);
		json_text(j, "api_url", c->api_url);
		json_text(j, "domain", c->domain);
		json_text(j, "proxy", c->proxy);
		json_text(j, "key", c->key);
		json_bool(j, "reachable", c->reachable);
		json_time(j, "last_answer_at", c->last_answer_at_ms);
		json_time(j, "last_failure_at", c->last_failure_at_ms);
		json_text(j, "last_failure", c->last_failure);
		json_text(j, "last_failure_message", c->last_failure_message);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_open(j, "pool", '[');
	for (size_t i = 0; i < s->n_pool; i++) {
		const struct ab_origin_status *o = &s->pool[i];

		json_open(j, NULL, '{');
		json_text(j, "origin", o->origin);
		json_text(j, "account", o->account);
		json_text(j, "protocol", o->protocol);
		json_uint(j, "connections", o->connections);
		json_uint(j, "connecting", o->connecting);
		json_uint(j, "streams", o->streams);
		json_uint(j, "queued", o->queued);
		json_uint(j, "calls", o->calls);
		json_uint(j, "failures", o->failures);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_counts(struct json *j, const struct ab_daemon_status *s)
{
	json_uint(j, "sandboxes_running", s->sandboxes_running);
	json_uint(j, "sandboxes_paused", s->sandboxes_paused);
	json_uint(j, "sandboxes_changing", s->sandboxes_changing);
	json_uint(j, "leases", s->leases);
	json_uint(j, "commands_running", s->commands_running);
	json_uint(j, "spool_bytes", s->spool_bytes);
	json_uint(j, "connections", s->connections);
	json_uint(j, "calls", s->calls);
	json_uint(j, "streams", s->streams);
	json_uint(j, "max_streams", s->max_streams);
	json_uint(j, "uid_bytes", s->uid_bytes);
	json_uint(j, "max_uid_bytes", s->max_uid_bytes);
	json_uint(j, "client_bytes", s->client_bytes);
	json_uint(j, "max_client_bytes", s->max_client_bytes);
	json_uint(j, "cloud_bytes", s->cloud_bytes);
	json_uint(j, "max_cloud_bytes", s->max_cloud_bytes);
	json_uint(j, "refused_calls", s->refused_calls);
	json_uint(j, "closed_connections", s->closed_connections);
}

static void json_access(struct json *j, const struct ab_daemon_status *s)
{
	if (!s->access_right)
		return;
	json_open(j, "access", '{');
	json_uint(j, "uid", s->uid);
	json_text(j, "user", s->user);
	json_text(j, "right", s->access_right);
	json_text(j, "rule", s->access_rule);
	json_text(j, "account", s->account);
	json_uint(j, "sandboxes", s->uid_sandboxes);
	json_uint(j, "max_sandboxes", s->max_sandboxes);
	json_uint(j, "creates_per_minute", s->creates_per_minute);
	json_uint(j, "creates_left", s->creates_left);
	json_close(j, '}');
}

static void json_gateway(struct json *j, const struct ab_daemon_status *s)
{
	if (!s->gateway_url)
		return;
	json_open(j, "gateway", '{');
	json_text(j, "url", s->gateway_url);
	json_text(j, "socket", s->gateway_socket);
	json_uint(j, "connections", s->gateway_connections);
	json_uint(j, "calls", s->gateway_calls);
	json_uint(j, "relays", s->gateway_relays);
	json_uint(j, "requests", s->gateway_requests);
	json_uint(j, "refused", s->gateway_refused);
	json_close(j, '}');
}

void status_print_json(FILE *f, const struct ab_daemon_status *s)
{
	struct json j;

	json_begin(&j, f);
	json_text(&j, "version", s->version);
	json_words(&j, "features", s->features, s->n_features);
	json_time(&j, "started_at", s->started_at_ms);
	json_uint(&j, "uptime_ms", s->uptime_ms);
	json_int(&j, "pid", s->pid);
	json_text(&j, "mode", s->system ? "system" : "user");
	json_text(&j, "socket", s->socket);
	json_text(&j, "state_dir", s->state_dir);
	json_text(&j, "host_id", s->host_id);
	json_bool(&j, "draining", s->draining);
	json_text(&j, "process_identity", s->process_identity);
	json_text(&j, "store_path", s->store_path);
	json_uint(&j, "store_bytes", s->store_bytes);
	json_bool(&j, "store_writable", s->store_writable);
	json_uint(&j, "open_intents", s->open_intents);
	json_counts(&j, s);
	json_gateway(&j, s);
	json_access(&j, s);
	json_clouds(&j, s);
	json_open(&j, "degraded", '[');
	for (size_t i = 0; i < s->n_degraded; i++) {
		json_open(&j, NULL, '{');
		json_text(&j, "what", s->degraded[i].what);
		json_text(&j, "reason", s->degraded[i].reason);
		json_text(&j, "message", s->degraded[i].message);
		json_text(&j, "advice", advice_for(&s->degraded[i]) ? advice_for(&s->degraded[i]) : "");
		json_text(&j, "account", s->degraded[i].account);
		json_time(&j, "since", s->degraded[i].since_at_ms);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	if (s->local_address) {
		json_open(&j, "local", '{');
		json_text(&j, "address", s->local_address);
		json_int(&j, "pid", s->local_pid);
		json_text(&j, "ca_file", s->local_ca_file);
		json_close(&j, '}');
	}
	json_end(&j);
}

static int cmd_status_run(struct cli *cli)
{
	struct ab_daemon_status *s;
	int r;

	if (ab_daemon_status(cli->client, NULL, &s))
		return fail_client(cli);
	if (cli->args.json)
		status_print_json(stdout, s);
	else
		cmd_status_print(s);
	r = s->n_degraded ? EXIT_ERROR : EXIT_OK;
	ab_free(s);
	return r;
}

const struct command cmd_status = {
	.name = "status",
	.words = "",
	.help = "Shows the daemon: what it does, and what does not work.\n"
		"Exit code 1 if something does not: why, and what to do, is in the lines \"degraded\".",
	.run = cmd_status_run,
};

/* --- page --- */

static void cmd_page_print_json(const struct ab_page *p)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "url", p->url);
	json_time(&j, "expires_at", p->expires_at_ms);
	json_end(&j);
}

static int cmd_page_run(struct cli *cli)
{
	struct ab_page *p;

	if (ab_page_open(cli->client, NULL, &p))
		return fail_client(cli);
	if (cli->args.json)
		cmd_page_print_json(p);
	else
		puts(p->url);
	ab_free(p);
	return EXIT_OK;
}

const struct command cmd_page = {
	.name = "page",
	.words = "",
	.help = "Prints a link to the status page, good for a minute and one use, in a browser of yours on this machine.",
	.run = cmd_page_run,
};
