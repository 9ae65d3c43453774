/* SPDX-License-Identifier: MIT */
/*
 * The service manager. Sockets that it passed are its own: they are never bound, removed, or given another mode or owner here.
 * The watchdog is fed by the loop that serves, and by nothing else, so that a loop that hangs is found.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define WATCHDOG_MIN_MS 10u
#define STOP_EXTRA_MS	20000u	/* of a stop, after the last call: closing the store */

/* --- what it passed --- */

static int read_passed(struct app *a)
{
	const struct listen_env env = { .pid = getenv("LISTEN_PID"), .fds = getenv("LISTEN_FDS"),
					.names = getenv("LISTEN_FDNAMES") };
	int r = listen_fds_parse(&env, getpid(), &a->passed);

	if (!r)
		r = listen_fds_keep(&a->passed);
	if (!r)
		return 0;
	fprintf(stderr, "agentboxd: the sockets that the service manager passed: LISTEN_FDS=%s LISTEN_FDNAMES=%s: %s\n",
		env.fds ? env.fds : "", env.names ? env.names : "", strerrordesc_np(-r));
	return r == -ENOMEM ? APP_EXIT_UNAVAILABLE : APP_EXIT_CONFIG;
}

int app_manager_take(struct app *a, const char *name, int *ret)
{
	int fd = listen_fds_take(&a->passed, name), r;

	*ret = -1;
	if (fd == -ENOENT)
		return 0;
	if (fd < 0) {
		fprintf(stderr, "agentboxd: several sockets named %s were passed: one ListenStream= per FileDescriptorName=\n", name);
		return APP_EXIT_CONFIG;
	}
	r = rpc_socket_adopt(fd);
	if (r < 0) {
		fprintf(stderr, "agentboxd: the socket named %s that was passed is no listening Unix stream socket: %s\n", name,
			strerrordesc_np(-r));
		fd_close(fd);
		return APP_EXIT_CONFIG;
	}
	*ret = fd;
	return 0;
}

/* How many that nobody took are here, one behind the other by one name. */
static size_t run_of(const struct listen_fds *l, size_t i)
{
	size_t n = 0;

	while (i + n < l->n && l->v[i + n].fd >= 0 && str_eq(l->v[i + n].name, l->v[i].name))
		n++;
	return n;
}

/* What nobody took: of a newer version, maybe, or named wrongly. If it is a socket unit's, that still listens on it; the manager's store
 * does not need to have it any more. */
static void close_unknown(struct app *a)
{
	for (size_t i = 0, n; i < a->passed.n; i += MAX(n, (size_t)1)) {
		n = run_of(&a->passed, i);
		if (!n)
			continue;
		log_warn("passed_descriptor_unknown", "name=%s action=closed descriptors=%zu advice=\"FileDescriptorName= is api, "
			 "gateway or metrics\"", log_q(a->passed.v[i].name), n);
		(void)!notify_drop_fds(a->notify, a->passed.v[i].name);	/* it may not be in the store */
	}
	listen_fds_fini(&a->passed);
}

/* --- the watchdog --- */

static void on_watchdog(struct timer *t, void *user)
{
	struct app *a = user;

	(void)notify_send(a->notify, "WATCHDOG=1");
	if (timer_set(t, loop_now_ms(a->loop) + a->watchdog_ms) < 0)
		log_error("watchdog", "error=\"out of memory\"");
}

static int read_watchdog(struct app *a)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t us;

	if (notify_watchdog(usec, pid, getpid(), &us) < 0) {
		fprintf(stderr, "agentboxd: WATCHDOG_USEC=%s WATCHDOG_PID=%s: not numbers\n", usec ? usec : "", pid ? pid : "");
		return APP_EXIT_CONFIG;
	}
	/* Half of the time that the manager waits. */
	a->watchdog_ms = us ? MAX(us / 2000, (uint64_t)WATCHDOG_MIN_MS) : 0;
	return 0;
}

/* --- what it is told --- */

static void collect(const struct app *a, char ret[NOTIFY_STATUS_MAX])
{
	struct sandbox_core_counts core;
	struct commands_counts commands;
	struct rpc_counts clients;
	struct cloud_health h;
	size_t n;

	sandbox_core_count(a->core, (uid_t)-1, &core);
	commands_count(a->commands, (uid_t)-1, &commands);
	rpc_server_count(a->server, (uid_t)-1, &clients);
	n = (size_t)snprintf(ret, NOTIFY_STATUS_MAX, "%u sandboxes, %u leases, %u commands, %u clients",
			     core.running + core.paused + core.other, core.leases, commands.running, clients.connections);
	if (a->quiesced_at_ms && n < NOTIFY_STATUS_MAX)
		n += (size_t)snprintf(ret + n, NOTIFY_STATUS_MAX - n, "; no new sandboxes are made");
	for (size_t i = 0; i < a->n_accounts && n < NOTIFY_STATUS_MAX; i++) {
		cloud_health(a->accounts[i].cloud, &h);
		if (h.key_rejected || (!h.key_present && !a->local_mode))
			n += (size_t)snprintf(ret + n, NOTIFY_STATUS_MAX - n, "; account %s: %s", a->accounts[i].name,
					      h.key_rejected ? "the API key is refused" : "no API key yet");
	}
}

void app_manager_tell(struct app *a)
{
	char now[NOTIFY_STATUS_MAX];

	if (!notify_is_open(a->notify) || a->drain_until_ms)
		return;
	collect(a, now);
	if (str_eq(now, a->said))
		return;
	memcpy(a->said, now, sizeof(now));
	(void)notify_status(a->notify, "%s", now);
}

void app_manager_tell_stop(struct app *a, const struct rpc_waited *waited)
{
	char now[NOTIFY_STATUS_MAX];

	snprintf(now, sizeof(now), "stopping: waits for %u uploads, %u downloads and calls without a request id", waited->uploads,
		 waited->others);
	if (!notify_is_open(a->notify) || (!waited->uploads && !waited->others) || str_eq(now, a->said))
		return;
	memcpy(a->said, now, sizeof(now));
	(void)notify_status(a->notify, "%s", now);
	(void)notify_extend(a->notify, (a->drain_until_ms - loop_now_ms(a->loop) + STOP_EXTRA_MS) * 1000);
}

/* Connections wait for accept() in there; when it is full, more are refused, those of a restart too. */
static void check_backlog(void)
{
	char *text;
	uint64_t n = RPC_SOCKET_BACKLOG;

	if (fd_read_file(AT_FDCWD, "/proc/sys/net/core/somaxconn", 32, &text, NULL) < 0)
		return;
	if (str_u64(text, strcspn(text, "\n"), UINT32_MAX, &n) == 0 && n < RPC_SOCKET_BACKLOG)
		log_warn("somaxconn", "value=%" PRIu64 " effect=\"more clients than this cannot wait while the daemon is "
			 "restarted\" advice=\"sysctl net.core.somaxconn=%u\"", n, RPC_SOCKET_BACKLOG);
	free(text);
}

int app_manager_ready(struct app *a)
{
	close_unknown(a);
	check_backlog();
	(void)notify_send(a->notify, "READY=1");
	app_manager_tell(a);
	if (!a->watchdog_ms || !notify_is_open(a->notify))
		return 0;
	if (timer_set(&a->watchdog, loop_now_ms(a->loop)) == 0)
		return 0;
	fprintf(stderr, "agentboxd: out of memory\n");
	return APP_EXIT_UNAVAILABLE;
}

int app_manager_new(struct app *a)
{
	int r = read_passed(a);

	timer_init(&a->watchdog, a->loop, on_watchdog, a);
	return r ? r : read_watchdog(a);
}

void app_manager_free(struct app *a)
{
	timer_clear(&a->watchdog);
	listen_fds_fini(&a->passed);
}
