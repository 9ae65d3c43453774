/* SPDX-License-Identifier: MIT */
/* What Status and Config tell: facts gathered from every module, as plain data. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "daemon/auth/principal.h"
#include "daemon/main/app_impl.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define ORIGINS_MAX	256u	/* shown in Status; the pool's later ones are left out, as are … */
#define CONNS_MAX	512u	/* … connections … */
#define LIMITS_MAX	128u	/* … and limited routes beyond these */
#define DEGRADED_MAX	(3 * APP_ACCOUNTS_MAX + 10)
#define LITTLE_SPACE	(8u * 1024 * 1024)	/* the next commits may not fit */

struct app_status {
	struct daemon_cloud clouds[APP_ACCOUNTS_MAX];
	struct status failures[APP_ACCOUNTS_MAX], extensions[APP_ACCOUNTS_MAX], strange[APP_ACCOUNTS_MAX];
	int64_t short_since_ms[APP_ACCOUNTS_MAX];	/* 0 = extensions are not short */
	char proxies[APP_ACCOUNTS_MAX][256];
	struct daemon_origin origins[ORIGINS_MAX];
	char origin_names[ORIGINS_MAX][300], origin_accounts[ORIGINS_MAX][128];
	struct daemon_conn conns[CONNS_MAX];
	size_t n_conns;
	struct daemon_limit limits[LIMITS_MAX];
	size_t n_limits;
	struct daemon_degradation degraded[DEGRADED_MAX];
	size_t n_degraded;
	struct status store_health, store_doubt, store_refused, store_unlinked, store_cloned, warm, quiesced;
	struct local_info local;
	int64_t store_since_ms;		/* when the trouble was seen first; 0 = there is none */
	char db_path[4200];
	struct daemon_config_value *rows;
	const char **row_values;
	char (*row_sections)[96];
	size_t n_rows;
};

/* Moments of the loop's clock as wall time. */
static int64_t wall_of(const struct app *a, uint64_t boot_ms)
{
	return boot_ms ? clock_wall_ms() - (int64_t)loop_now_ms(a->loop) + (int64_t)boot_ms : 0;
}

static void degrade(struct app_status *k, const char *what, const char *account,
		    const struct status *st, int64_t since_ms)
{
	if (k->n_degraded < DEGRADED_MAX)
		k->degraded[k->n_degraded++] = (struct daemon_degradation){
			.what = what, .account = account, .reason = st->reason, .message = st->text,
			.since_ms = since_ms };
}

/* "http://user:pass@host:port" without the middle. */
static const char *without_credentials(const char *proxy, char ret[256])
{
	const char *at = proxy ? strrchr(proxy, '@') : NULL;

	if (!proxy)
		return "";
	snprintf(ret, 256, "%s%s", at ? "http://" : "", at ? at + 1 : proxy);
	return ret;
}

static void collect_limits(struct app *a, const struct cloud *cloud, struct daemon_cloud *ret)
{
	struct app_status *k = a->look;
	struct cloud_limit l;

	ret->limits = &k->limits[k->n_limits];
	while (k->n_limits < LIMITS_MAX && cloud_limits(cloud, ret->n_limits, &l)) {
		k->limits[k->n_limits++] = (struct daemon_limit){
			.route = l.route, .next_at_ms = wall_of(a, l.at_ms), .in_flight = l.in_flight,
			.window = l.window, .burst = l.burst, .per_s_milli = l.per_s_milli,
		};
		ret->n_limits++;
	}
}

static void collect_local(struct app *a)
{
	struct app_status *k = a->look;

	if (!a->local)
		return;
	local_process_info(a->local, &k->local);
	if (k->local.since_ms)
		degrade(k, "local", a->accounts[0].name, &k->local.why, k->local.since_ms);
}

static void collect_extensions(struct app *a, size_t i)
{
	struct app_status *k = a->look;
	struct sandbox_extensions x;
	struct status *st = &k->extensions[i];

	sandbox_extensions(a->core, i, &x);
	k->clouds[i].extend_kept = x.kept;
	k->clouds[i].extend_most = x.most;
	k->clouds[i].extend_per_s_milli = x.per_s_milli;
	k->clouds[i].extend_waiting = x.waiting;
	k->clouds[i].extend_span_ms = x.span_s * 1000ull;
	k->clouds[i].extend_refused = x.refused;
	k->short_since_ms[i] = !x.is_short ? 0 : k->short_since_ms[i] ? k->short_since_ms[i] : clock_wall_ms();
	if (!x.is_short)
		return;
	status_set(st, R_RATE_LIMITED,
		   "%u of at most %u sandboxes are kept alive by the %u.%03u extensions a second that the cloud gives; "
		   "%llu leases were refused. Release sandboxes, or give them a longer timeout before they are leased",
		   x.kept, x.most, x.per_s_milli / 1000, x.per_s_milli % 1000, (unsigned long long)x.refused);
	degrade(k, "extensions", a->accounts[i].name, st, k->short_since_ms[i]);
}

static void degrade_keyless(struct app *a, size_t i)
{
	struct status *st = &a->look->strange[i];

	status_set(st, R_KEY_MISSING, "there is no API key: nothing is created, and nothing is known of the cloud");
	degrade(a->look, "key", a->accounts[i].name, st, a->started_at_ms);
}

static void collect_cloud(struct app *a, size_t i, const struct sandbox_core_counts *core)
{
	struct app_status *k = a->look;
	struct account *c = &a->accounts[i];
	struct cloud_health h;
	int64_t strange_since_ms;
	/* Of agentbox-local, which has not told its address yet. */
	bool unknown = a->local && str_is_empty(k->local.url);

	cloud_health(c->cloud, &h);
	k->failures[i] = h.last_failure;
	k->clouds[i] = (struct daemon_cloud){
		.account = c->name, .domain = unknown ? "" : c->domain,
		.api_url = unknown ? "" : cloud_api_url(c->cloud),
		.proxy = without_credentials(cloud_proxy(c->cloud), k->proxies[i]), .proxy_origin = c->proxy_origin,
		.key = h.key_rejected ? DAEMON_KEY_REJECTED : h.key_present ? DAEMON_KEY_PRESENT
									    : DAEMON_KEY_MISSING,
		.reachable = h.last_failure_at_ms <= h.last_ok_at_ms,
		.last_answer_at_ms = wall_of(a, h.last_ok_at_ms),
		.last_failure_at_ms = wall_of(a, h.last_failure_at_ms),
		.limited_until_ms = wall_of(a, h.limited_until_ms),
		.reconciled_at_ms = wall_of(a, core->reconciled_at_ms),
		.last_failure = k->failures[i].reason,
		.last_failure_message = k->failures[i].text,
		.in_flight = h.in_flight, .max_in_flight = h.max_in_flight, .queued = h.queued,
	};
	collect_limits(a, c->cloud, &k->clouds[i]);
	collect_extensions(a, i);
	if (sandbox_key_strange(a->core, i, &k->strange[i], &strange_since_ms))
		degrade(k, "key", c->name, &k->strange[i], strange_since_ms);
	else if (!h.key_present && !unknown)
		degrade_keyless(a, i);
	if (!k->clouds[i].reachable && !k->local.since_ms)	/* the cause is told instead */
		degrade(k, "cloud", c->name, &k->failures[i], k->clouds[i].last_failure_at_ms);
}

static const char *protocol_name(uint32_t version)
{
	return version == HTTP_VERSION_2 ? "h2" : version ? "http/1.1" : "";
}

static void collect_conns(struct app *a, const struct origin *origin, struct daemon_origin *ret)
{
	struct app_status *k = a->look;
	uint64_t now = loop_now_ms(a->loop);
	struct pool_conn_stats c;

	ret->conns = &k->conns[k->n_conns];
	while (k->n_conns < CONNS_MAX && pool_conn_stats(origin, ret->n_conns, &c)) {
		k->conns[k->n_conns++] = (struct daemon_conn){
			.state = c.state, .peer = c.peer, .protocol = protocol_name(c.version),
			.streams = c.streams, .max_streams = c.limit, .rtt_us = c.rtt_us,
			.age_ms = now - MIN(c.opened_at_ms, now), .silent_ms = now - MIN(c.last_read_ms, now),
		};
		ret->n_conns++;
	}
}

bool app_is_sandbox_host(const char *host)
{
	size_t n = strspn(host, "0123456789");

	return n && host[n] == '-' && strchr(host, '.');
}

static size_t collect_pool(struct app *a, bool admin)
{
	struct app_status *k = a->look;
	const struct origin *at = NULL;
	struct pool_stats s;
	size_t n = 0;

	while (n < ORIGINS_MAX && pool_stats(a->pool, &at, &s)) {
		const char *rest = !admin && app_is_sandbox_host(s.host) ? strchr(s.host, '.') : s.host;

		snprintf(k->origin_names[n], sizeof(k->origin_names[n]), "%s://%s%.250s:%u", s.scheme,
			 rest == s.host ? "" : "*", rest, s.port);
		snprintf(k->origin_accounts[n], sizeof(k->origin_accounts[n]), "%.*s", (int)strcspn(s.group, "#"),
			 s.group);
		k->origins[n] = (struct daemon_origin){
			.origin = k->origin_names[n],
			.account = k->origin_accounts[n],
			.protocol = protocol_name(s.version),
			.connections = s.conns,
			.connecting = s.dialing,
			.streams = s.streams,
			.queued = s.queued,
			.calls = s.requests,
			.failures = s.dial_failures + s.pings_lost,
			.dials = s.dials,
			.goaways = s.goaways,
			.complaints = s.enhance_calm_count,
			.replays = s.replays,
			.pings_lost = s.pings_lost,
			.stream_target = s.stream_target,
			.held_down_until_ms = s.hold_until_ms > loop_now_ms(a->loop)
						      ? wall_of(a, s.hold_until_ms)
						      : 0,
			.last_error = rest == s.host ? s.last_error : "",
			.last_error_at_ms = wall_of(a, s.last_error_at_ms),
		};
		collect_conns(a, at, &k->origins[n]);
		n++;
	}
	return n;
}

/* The keys of refused rows are ids, names and request ids of all users. */
static void collect_refused_rows(struct app *a, bool admin)
{
	struct app_status *k = a->look;
	const char *rows = store_refused_text(a->store);

	if (!rows[0])
		return;
	status_set(&k->store_refused, R_TRUNCATED, "rows that cannot be read are kept, and what they are about is not ended by policies%s%s",
		   admin ? ": " : "; admins are told which", admin ? rows : "");
	degrade(k, "store", "", &k->store_refused, a->started_at_ms);
}

/* What happened to the rows and to who we are: said until the next start. */
static void collect_backup(struct app *a, const struct sandbox_core_counts *core, bool admin)
{
	struct app_status *k = a->look;

	if (core->doubt_text) {
		status_set(&k->store_doubt, R_TRUNCATED, "%s", core->doubt_text);
		degrade(k, "store", "", &k->store_doubt, core->doubt_at_ms);
	}
	collect_refused_rows(a, admin);
	if (store_unlinked_at_ms(a->store)) {
		status_set(&k->store_unlinked, R_TRUNCATED,
			   "the database file was removed or replaced while it was open; it was written again");
		degrade(k, "store", "", &k->store_unlinked, store_unlinked_at_ms(a->store));
	}
	if (a->store_report.was_host[0]) {
		status_set(&k->store_cloned, R_TRUNCATED,
			   "the state directory is a copy of that of host %s; this is another host, and what that one "
			   "made is left alone", a->store_report.was_host);
		degrade(k, "host_id", "", &k->store_cloned, a->started_at_ms);
	}
}

/* A disk that is nearly full is trouble before a commit fails for it. */
static void collect_space(struct app_status *k, uint64_t free_bytes)
{
	if (status_ok(&k->store_health) && free_bytes < LITTLE_SPACE)
		status_set(&k->store_health, R_NO_SPACE,
			   "the file system of the state has %llu KiB left: soon nothing can be written",
			   (unsigned long long)(free_bytes / 1024));
}

static void collect_store(struct app *a, struct daemon_store *ret, const struct sandbox_core_counts *core, bool admin)
{
	struct app_status *k = a->look;
	struct statvfs fs;
	struct stat st;

	snprintf(k->db_path, sizeof(k->db_path), "%s/agentboxd.db", a->state_dir);
	*ret = (struct daemon_store){ .path = k->db_path,
				      .schema = (uint32_t)a->store_report.schema_known,
				      .open_intents = core->intents,
				      .writable = status_ok(&core->store) };
	if (stat(k->db_path, &st) == 0)
		ret->bytes = (uint64_t)st.st_size;
	if (statvfs(a->state_dir, &fs) == 0) {
		ret->free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
		collect_space(k, ret->free_bytes);
	}
	ret->backup_at_ms = store_backup_at_ms(a->store);
	if (status_ok(&k->store_health))
		k->store_since_ms = 0;
	else if (!k->store_since_ms)
		k->store_since_ms = clock_wall_ms();
	if (k->store_since_ms)
		degrade(k, "store", "", &k->store_health, k->store_since_ms);
	collect_backup(a, core, admin);
}

static void collect_access(const struct app *a, uid_t uid, struct daemon_access *ret)
{
	struct sandbox_uid_use use;

	sandbox_uid_use(a->core, uid, &use);
	*ret = (struct daemon_access){ .account = use.account, .sandboxes = use.alive, .max_sandboxes = use.max_sandboxes,
				       .creates_per_minute = use.creates_per_minute, .creates_left = use.creates_left };
}

/* The first entry that has failed. Why it did has ids of sandboxes and names of files, which are admins' as all of WarmService is. */
static void collect_warm(struct app *a, bool admin)
{
	struct app_status *k = a->look;
	struct sandbox_warm_info i;
	int64_t since_ms = 0;
	unsigned n = 0;

	for (size_t at = 0; sandbox_warm_info(a->core, at, &i); at++) {
		if (!i.failed || n++)
			continue;
		since_ms = i.failed_at_ms;
		status_set(&k->warm, R_SANDBOX_NOT_READY, "[warm %s] makes none any more after %u failures (agentboxctl warm retry %s)%s%s",
			   i.name, i.failures, i.name, admin ? ": " : "", admin ? i.why : "");
	}
	if (n)
		degrade(k, "warm", "", &k->warm, since_ms);
}

static void collect_quiesced(struct app *a)
{
	struct app_status *k = a->look;

	if (!a->quiesced_at_ms)
		return;
	status_set(&k->quiesced, R_QUIESCED, "no new sandboxes are made, %s; agentboxctl quiesce --off, or a restart, ends that",
		   sandbox_core_quiesced(a->core));
	degrade(k, "quiesce", "", &k->quiesced, a->quiesced_at_ms);
}

static void app_status_look(void *user, const struct principal *who, struct daemon_facts *ret)
{
	static const char *const features[] = { "local", "reflection" };
	struct app *a = user;
	struct app_status *k = a->look;
	uid_t uid = who->admin || who->observer ? (uid_t)-1 : who->uid;
	struct commands_counts commands;
	struct sandbox_core_counts core;

	k->n_degraded = k->n_conns = k->n_limits = 0;
	sandbox_core_count(a->core, uid, &core);
	k->store_health = core.store;
	commands_count(a->commands, uid, &commands);
	collect_quiesced(a);
	collect_local(a);
	for (size_t i = 0; i < a->n_accounts; i++)
		collect_cloud(a, i, &core);
	collect_warm(a, who->admin);
	*ret = (struct daemon_facts){
		.features = features, .n_features = ARRAY_SIZE(features),
		.socket = a->socket_path, .state_dir = a->state_dir, .host_id = store_host_id(a->store),
		.user_mode = a->user_mode, .draining = a->drain_until_ms != 0,
		.started_at_ms = a->started_at_ms, .uptime_ms = clock_boot_ms() - a->started_boot_ms,
		.identity = (enum daemon_identity)core.identity,
		.clouds = k->clouds, .n_clouds = a->n_accounts,
		.pool = k->origins, .n_pool = collect_pool(a, who->admin),
		.leases = core.leases,
		.running = core.running, .paused = core.paused, .changing = core.other,
		.commands = commands.running, .spool_bytes = commands.spool_used,
		.is_local = a->local != NULL, .local_pid = k->local.pid,
		.local_address = k->local.address ? k->local.address : "",
		.local_ca_file = k->local.ca_file ? k->local.ca_file : "",
	};
	collect_store(a, &ret->store, &core, who->admin);
	app_memory_collect(a, who->uid, &ret->memory);
	app_gateway_collect(a, &ret->gateway);
	collect_access(a, who->uid, &ret->access);
	ret->degraded = k->degraded;
	ret->n_degraded = k->n_degraded;
}

/* --- Config --- */

static bool file_changed(const struct app *a)
{
	char why[CONF_FILES_WHY_BYTES];
	struct conf_files now;
	bool changed;

	if (str_is_empty(a->conf_file))
		return false;
	if (conf_files_read(a->conf_file, &now, why) < 0)
		return true;
	changed = a->conf_needs_restart || !conf_files_equal(&now, &a->conf_files);
	conf_files_fini(&now);
	return changed;
}

/* A proxy may hold a password. Keys are files. */
static bool is_secret(const struct conf_row *row)
{
	return str_eq(row->key->key, "proxy") && strchr(row->value, '@');
}

bool app_may_hold_secret(const struct conf_key *key)
{
	static const char *const keys[][2] = { { "account", "api_key_command" }, { "warm", "prepare" }, { "warm", "envs" }, { "warm", "headers" } };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (str_eq(key->section, keys[i][0]) && str_eq(key->key, keys[i][1]))
			return true;
	return false;
}

static void config(void *user, struct daemon_config *ret)
{
	struct app *a = user;
	struct app_status *k = a->look;
	struct conf_row row;
	size_t i;

	for (i = 0; i < k->n_rows && conf_row(a->conf, i, &row); i++) {
		snprintf(k->row_sections[i], sizeof(k->row_sections[i]), "%s%s%s", row.key->section,
			 row.instance ? " " : "", row.instance ? row.instance : "");
		k->row_values[i] = row.value;
		k->rows[i] = (struct daemon_config_value){
			.section = k->row_sections[i], .key = row.key->key,
			.default_value = row.key->default_value, .values = &k->row_values[i],
			.n_values = row.value[0] ? 1 : 0,
			.origin = (enum daemon_config_origin)row.origin,
			.reloadable = row.key->reloadable, .secret = is_secret(&row),
			.for_admins = row.value[0] && app_may_hold_secret(row.key), .line = row.line, .file = row.file,
		};
	}
	*ret = (struct daemon_config){ .values = k->rows, .n_values = i, .file = a->conf_file,
				       .file_changed = file_changed(a), .loaded_at_ms = a->conf_loaded_at_ms };
}

/* --- StopLocal --- */

struct stopping {
	struct app *app;
	struct local_process_stop *stop;
	uint32_t killed;
	daemon_stopped_fn *done;
	void *user;
};

static void on_stopped(void *user, const struct status *st, bool was_running)
{
	struct stopping *s = user;
	struct stopping copy = *s;

	free(s);
	copy.done(copy.user, st, was_running ? copy.killed : 0, was_running);
}

static void *stop_local(void *user, uint64_t deadline_ms, daemon_stopped_fn *done, void *done_user)
{
	struct app *a = user;
	struct stopping *s = calloc(1, sizeof(*s));
	struct sandbox_core_counts counts;

	if (!s)
		return NULL;
	sandbox_core_count(a->core, (uid_t)-1, &counts);
	s->app = a;
	s->killed = counts.running;
	s->done = done;
	s->user = done_user;
	if (local_process_stop(a->local, deadline_ms, on_stopped, s, &s->stop) < 0) {
		free(s);
		return NULL;
	}
	return s;
}

static void stop_local_cancel(void *user, void *op)
{
	struct stopping *s = op;

	local_process_stop_cancel(s->stop);
	free(s);
}

int app_status_reserve(struct app *a, size_t n_rows)
{
	struct app_status *k = a->look;
	void *rows = calloc(n_rows + 1, sizeof(*k->rows)), *values = calloc(n_rows + 1, sizeof(*k->row_values)),
	     *sections = calloc(n_rows + 1, sizeof(*k->row_sections));

	if (!rows || !values || !sections) {
		free(rows);
		free(values);
		free(sections);
		return -ENOMEM;
	}
	free(k->rows);
	free(k->row_values);
	free(k->row_sections);
	k->rows = rows;
	k->row_values = values;
	k->row_sections = sections;
	k->n_rows = n_rows;
	return 0;
}

int app_status_new(struct app *a)
{
	struct app_status *k = calloc(1, sizeof(*k));
	char why[CONF_FILES_WHY_BYTES];
	int r;

	a->look = k;
	if (!k)
		return -ENOMEM;
	r = app_status_reserve(a, conf_n_rows(a->conf));
	if (r < 0)
		return r;
	if (!str_is_empty(a->conf_file)) {
		r = conf_files_read(a->conf_file, &a->conf_files, why);
		if (r < 0)
			return r;
	}
	a->svc_daemon =
		(struct svc_daemon_options){.look = app_status_look, .config = config, .reload = app_reload_wait,
					    .reload_cancel = app_reload_cancel, .quiesce = app_quiesce, .user = a};
	if (a->local) {
		a->svc_daemon.stop_local = stop_local;
		a->svc_daemon.stop_local_cancel = stop_local_cancel;
	}
	return svc_daemon_add(a->server, &a->svc_daemon);
}

void app_status_free(struct app *a)
{
	struct app_status *k = a->look;

	if (!k)
		return;
	free(k->rows);
	free(k->row_values);
	free(k->row_sections);
	free(k);
	a->look = NULL;
}
