/* SPDX-License-Identifier: MIT */
/* SIGUSR1: a diagnostic dump into the log, at most DUMP_LINES_MAX lines of a kind. Host names that contain a sandbox's id are
 * cut, because the id gives access. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/child.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"

#define DUMP_LINES_MAX (LOG_LINES_PER_S - 4)	/* the log drops what is more */

static unsigned open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n > 3 ? n - 3 : 0;	/* ".", ".." and the folder's own */
}

/* 0 = not known. */
static uint64_t resident_kb(void)
{
	unsigned long pages = 0;
	char *text;

	if (fd_read_file(AT_FDCWD, "/proc/self/statm", 256, &text, NULL) < 0)
		return 0;
	(void)!sscanf(text, "%*u %lu", &pages);
	free(text);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void dump_daemon(struct app *a)
{
	struct rpc_counts clients;

	rpc_server_count(a->server, (uid_t)-1, &clients);
	log_info("dump_daemon", "version=%s pid=%d uptime_s=%" PRIu64 " draining=%s files=%u rss_kb=%" PRIu64, AB_VERSION,
		 (int)getpid(), (clock_boot_ms() - a->started_boot_ms) / 1000, a->drain_until_ms ? "yes" : "no",
		 open_files(), resident_kb());
	log_info("dump_clients", "connections=%u calls=%u streams=%u calls_total=%" PRIu64 " failed_total=%" PRIu64,
		 clients.connections, clients.calls, clients.streams, clients.calls_total, clients.failed_total);
}

static void dump_sandboxes(struct app *a)
{
	struct sandbox_core_counts core;
	struct commands_counts commands;

	sandbox_core_count(a->core, (uid_t)-1, &core);
	commands_count(a->commands, (uid_t)-1, &commands);
	log_info("dump_sandboxes", "running=%u paused=%u changing=%u gone=%u leases=%u intents=%u requests=%u", core.running,
		 core.paused, core.other, core.gone, core.leases, core.intents, core.requests);
	log_info("dump_commands", "running=%u spool_bytes=%" PRIu64, commands.running, (uint64_t)commands.spool_used);
	log_info("dump_store", "error=%s schema=%d", status_ok(&core.store) ? "none" : log_q(core.store.text),
		 (int)a->store_report.schema_known);
}

/* -1 = never. */
static int64_t ago_ms(const struct app *a, uint64_t at_ms)
{
	return at_ms ? (int64_t)(loop_now_ms(a->loop) - at_ms) : -1;
}

static void dump_account(struct app *a, const struct account *c)
{
	struct cloud_health h;

	cloud_health(c->cloud, &h);
	log_info("dump_account", "account=%s api_url=%s key=%s in_flight=%u queued=%u last_ok_ms_ago=%" PRId64
		 " last_failure_ms_ago=%" PRId64 " error=%s", c->name, log_q(cloud_api_url(c->cloud)),
		 h.key_rejected ? "rejected" : h.key_present ? "present" : "missing", h.in_flight, h.queued,
		 ago_ms(a, h.last_ok_at_ms), ago_ms(a, h.last_failure_at_ms), log_q(h.last_failure.text));
}

static void dump_pool(struct app *a)
{
	const struct origin *at = NULL;
	struct pool_stats s;

	for (size_t i = 0; i < DUMP_LINES_MAX && pool_stats(a->pool, &at, &s); i++) {
		const char *dot = strchr(s.host, '.');
		bool is_sandbox = app_is_sandbox_host(s.host);

		log_info("dump_origin", "origin=%s://%s%s:%u connections=%u connecting=%u streams=%u queued=%u calls=%" PRIu64
			 " failures=%" PRIu64 " error=%s", s.scheme, is_sandbox ? "*" : "", is_sandbox ? dot : s.host, s.port,
			 s.conns, s.dialing, s.streams, s.queued, s.requests, s.dial_failures + s.pings_lost,
			 log_q(is_sandbox ? "" : s.last_error));
	}
	pool_totals(a->pool, &s);
	log_info("dump_pool", "calls=%" PRIu64 " dials=%" PRIu64 " dial_failures=%" PRIu64 " replays=%" PRIu64, s.requests,
		 s.dials, s.dial_failures, s.replays);
}

static void dump_children(struct app *a)
{
	struct child_info c;

	for (size_t i = 0; i < DUMP_LINES_MAX && child_info(a->children, i, &c); i++)
		log_info("dump_child", "child=%s state=%s pid=%d for_ms=%" PRId64, c.name, c.state, (int)c.pid,
			 ago_ms(a, c.started_at_ms));
}

void app_dump(struct app *a)
{
	dump_daemon(a);
	dump_sandboxes(a);
	for (size_t i = 0; i < a->n_accounts && i < DUMP_LINES_MAX; i++)
		dump_account(a, &a->accounts[i]);
	dump_pool(a);
	dump_children(a);
	log_info("dump_end", "accounts=%zu", a->n_accounts);
}
