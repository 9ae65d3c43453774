/* SPDX-License-Identifier: MIT */
#include "daemon/main/app.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/auth/token.h"
#include "daemon/cloud/envd.h"
#include "proto/cloud/link.h"
#include "daemon/common/net/resolve.h"
#include "daemon/common/obs/log.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/start_extension.h"
#include "daemon/rpc/limits.h"
#include "daemon/rpc/peer.h"
#include "daemon/rpc/svc_command.h"
#include "daemon/rpc/svc_file.h"
#include "daemon/rpc/svc_lease.h"
#include "daemon/rpc/svc_sandbox.h"
#include "daemon/rpc/svc_warm.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define TICK_MS	  5000u		/* look at the socket's file */
#define FDS_MIN	  256u

static uint64_t number(const struct app *a, const char *section, const char *key)
{
	return conf_get_number(a->conf, section, NULL, key);
}

/* --- the agent's health, for lifecycle --- */

struct probe {
	struct envd_call *call;
	sandbox_probed_fn *done;
	void *user;
};

static void on_probed(struct envd_result *r, void *user)
{
	struct probe *p = user;
	struct probe copy = *p;
	enum sandbox_probe_result result = SANDBOX_PROBE_NO_ANSWER;

	if (r->cls == ENVD_OK)
		result = r->running ? SANDBOX_PROBE_HEALTHY : SANDBOX_PROBE_ABSENT;
	else if (r->cls == ENVD_NOT_RUNNING)
		result = SANDBOX_PROBE_ABSENT;
	free(p);
	copy.done(copy.user, result, &r->status);
}

static void *probe_start(const struct sandbox_target *t, uint64_t deadline_ms,
			 sandbox_probed_fn *done, void *done_user, void *user)
{
	struct envd_target target = { .at = t->at, .deadline_ms = deadline_ms };
	struct probe *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->done = done;
	p->user = done_user;
	p->call = envd_health(&target, on_probed, p);
	if (!p->call) {
		free(p);
		return NULL;
	}
	return p;
}

static void probe_cancel(void *probe, void *user)
{
	struct probe *p = probe;

	envd_call_cancel(p->call);
	free(p);
}

/* --- building --- */

static int out_of_memory(void)
{
	fprintf(stderr, "agentboxd: out of memory\n");
	return APP_EXIT_UNAVAILABLE;
}

static int app_failed(const char *what, int r)
{
	fprintf(stderr, "agentboxd: %s: %s\n", what, strerrordesc_np(r < 0 ? -r : r));
	return APP_EXIT_UNAVAILABLE;
}

char *app_state_dir(const struct conf *c, bool user_mode)
{
	const char *state = conf_get(c, "daemon", NULL, "state_dir"), *given = getenv("STATE_DIRECTORY");
	const char *state_home = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	if (!str_is_empty(state))
		return strdup(state);
	if (!str_is_empty(given))
		return strndup(given, strcspn(given, ":"));	/* the first of StateDirectory= */
	if (!user_mode)
		return strdup("/var/lib/agentboxd");
	if (!str_is_empty(state_home))
		return str_printf("%s/agentboxd", state_home);
	return str_is_empty(home) ? NULL : str_printf("%s/.local/state/agentboxd", home);
}

/* Where things are: command line and file, then the usual places. */
static int choose_places(struct app *a)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR"), *socket = conf_get(a->conf, "daemon", NULL, "socket");

	if (a->listen_fd >= 0)
		a->socket_path = rpc_socket_place(a->listen_fd);
	else if (!str_is_empty(socket))
		a->socket_path = strdup(socket);
	else if (!a->user_mode)
		a->socket_path = strdup("/run/agentboxd/agentboxd.sock");
	else if (!str_is_empty(runtime))
		a->socket_path = str_printf("%s/agentboxd/agentboxd.sock", runtime);
	a->state_dir = app_state_dir(a->conf, a->user_mode);
	if (!a->socket_path)
		fprintf(stderr, "agentboxd: no place for the socket: $XDG_RUNTIME_DIR is not set; give --socket\n");
	if (!a->state_dir)
		fprintf(stderr, "agentboxd: no place for the state: $HOME is not set; give --state-dir\n");
	return a->socket_path && a->state_dir ? 0 : APP_EXIT_CONFIG;
}

/* Nobody of the same uid may read our memory or environment; no core files with secrets in them. */
static void harden(void)
{
	struct rlimit none = { 0, 0 }, files;

	(void)prctl(PR_SET_DUMPABLE, 0);
	(void)setrlimit(RLIMIT_CORE, &none);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

/* In a user namespace other users are not seen as they are, so many cannot be served there. */
static int check_users(struct app *a)
{
	if (a->user_mode || peer_check_namespace() == 0)
		return 0;
	fprintf(stderr, "agentboxd: in a user namespace (PrivateUsers=, a rootless container) the users of this "
			"machine cannot be told apart; run it outside, or as a user daemon\n");
	return APP_EXIT_CONFIG;
}

static int check_limits(struct app *a)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= FDS_MIN)
		return 0;
	fprintf(stderr, "agentboxd: at most %llu files may be open; at least %u are needed (ulimit -n)\n",
		(unsigned long long)files.rlim_cur, FDS_MIN);
	return APP_EXIT_UNAVAILABLE;
}

static int take_socket(struct app *a)
{
	return app_manager_take(a, APP_FD_API, &a->listen_fd);
}

static int open_store(struct app *a)
{
	char boot[PROCESS_BOOT_MAX];
	struct store_options o = { .loop = a->loop, .state_dir = a->state_dir,
				   .now_wall_ms = clock_wall_ms(),
				   .no_clone_check = !number(a, "daemon", "clone_check"), .boot = boot };
	struct start_extension *more_time;
	enum store_open_result r;

	if (start_extension_begin(a->notify, START_EXTENSION_EVERY_MS, &more_time) < 0)
		return out_of_memory();
	process_boot(boot);
	r = store_open(&o, &a->store_report, &a->store);
	start_extension_end(more_time);
	if (r == STORE_OPENED)
		return 0;
	fprintf(stderr, "agentboxd: %s\n", a->store_report.why);
	return (int)r;
}

static int make_resolver(struct app *a)
{
	int r = resolver_new(a->loop, &a->resolver);

	return r < 0 ? app_failed("the resolver", r) : 0;
}

static bool is_account(const void *user, const char *name)
{
	return app_has_account(user, name);
}

/* What the configuration names was there when it was checked, and is looked up once more here. */
static int read_rules(struct app *a, struct app_warm *warm, struct sandbox_core_rules *ret)
{
	const struct app_known_accounts accounts = { .has = is_account, .user = a };

	if (app_warm_read(a->conf, &accounts, a->user_mode, warm) < 0 || app_rules_read(a->conf, a->conf, &accounts, warm, ret) < 0)
		return out_of_memory();
	if (!conf_errors(a->conf)[0])
		return 0;
	fprintf(stderr, "agentboxd: the configuration has errors:\n%s", conf_errors(a->conf));
	return APP_EXIT_CONFIG;
}

static int make_quotas(struct app *a)
{
	return app_memory_new(a) < 0 ? out_of_memory() : 0;
}

static int make_pool(struct app *a)
{
	struct pool_options o = { .loop = a->loop,
				  .resolver = a->resolver,
				  .max_conns_h2 = (uint32_t)number(a, "pool", "max_connections"),
				  .quota = a->cloud_quota,
				  .idle_ms = (uint32_t)number(a, "pool", "idle") };

	return pool_new(&o, &a->pool) < 0 ? out_of_memory() : 0;
}

static int make_life(struct app *a)
{
	struct sandbox_core_account accounts[APP_ACCOUNTS_MAX];
	struct sandbox_core_options o = {
		.loop = a->loop, .store = a->store, .accounts = accounts, .n_accounts = a->n_accounts,
		.sha256 = cloud_sha256,
		.prober = { .start = probe_start, .cancel = probe_cancel },
		.preparer = app_preparer(),
		.history_ms = number(a, "daemon", "history"),
		.unclaimed_grace_ms = number(a, "daemon", "unclaimed_grace"),
		.restart_grace_ms = number(a, "daemon", "restart_grace"),
		.reconcile_period_ms = number(a, "daemon", "reconcile_period"),
		.max_staleness_ms = number(a, "daemon", "max_staleness"),
	};
	struct local_info local = { .plain_ports = false };
	struct app_warm warm = { 0 };
	int r;

	if (a->local)
		local_process_info(a->local, &local);
	r = read_rules(a, &warm, &o.rules);
	if (r) {
		app_rules_free(&o.rules);
		app_warm_free(&warm);
		return r;
	}
	rng_system(&o.rng_seed, sizeof(o.rng_seed));
	for (size_t i = 0; i < a->n_accounts; i++) {
		const struct account *c = &a->accounts[i];

		accounts[i] = (struct sandbox_core_account){
			.name = c->name, .cloud = c->cloud, .plain_ports = local.plain_ports,
			.is_own_cloud = a->local_mode,
			.default_user = conf_get(a->conf, "account", c->name, "default_user"),
			.max_sandboxes = (uint32_t)conf_get_number(a->conf, "account", c->name, "max_sandboxes"),
		};
	}
	r = sandbox_core_new(&o, &a->core);
	app_rules_free(&o.rules);
	app_warm_free(&warm);
	return r < 0 ? app_failed("loading the state", r) : 0;
}

/* A uid that is given to services in turn is another's now: what its former user held is over. */
static void on_owner_over(void *user, uid_t owner)
{
	struct app *a = user;

	tokens_revoke_all(a->tokens, owner);
	sandbox_core_release_owner(a->core, owner);
}

static int make_owners(struct app *a)
{
	const struct owners_options o = { .store = a->store, .over = on_owner_over, .user = a };

	return owners_new(&o, &a->owners) < 0 ? out_of_memory() : 0;
}

static int make_access(struct app *a)
{
	const struct users_options o = { .loop = a->loop };
	int r = app_access_read(a->conf, &a->access);

	if (!r)
		r = users_new(&o, &a->users);
	/* A program that shows a token is not kept waiting for its user's name. */
	for (const struct token *t = tokens_next(a->tokens, NULL); t && !r; t = tokens_next(a->tokens, t))
		r = users_prime(a->users, owner_uid(t->uid));
	return r < 0 ? out_of_memory() : 0;
}

static int make_commands(struct app *a)
{
	struct commands_options o = {
		.loop = a->loop, .store = a->store, .state_dir = a->state_dir,
		.restart_grace_ms = number(a, "daemon", "restart_grace"),
		.history_ms = number(a, "daemon", "history"),
		.quotas = a->quotas,
	};
	int r;

	app_limits_of_commands(a->conf, &o.limits);
	r = commands_new(&o, &a->commands);
	return r < 0 ? app_failed("the spool folder", r) : 0;
}

static int take_up_commands(struct app *a)
{
	commands_take_up(a->commands, a->core);
	return 0;
}

static int open_socket(struct app *a)
{
	const char *group = conf_get(a->conf, "daemon", NULL, "socket_group");
	struct rpc_socket_options o = { .path = a->socket_path,
					.mode = a->user_mode ? 0600 : 0666,
					.gid = (gid_t)-1,
					.dir_mode = a->user_mode ? 0700 : 0755 };
	struct status why = STATUS_OK;
	int r;

	if (a->listen_fd >= 0)
		return 0;
	if (!str_is_empty(group)) {
		must(conf_id(a->conf, CONF_ID_GROUP, group, &o.gid));
		o.mode = 0660;
		o.dir_mode = 0755;
	} else if (!a->user_mode && !conf_is_set(a->conf, "access", NULL, "allow")) {
		log_warn("access_open", "socket=%s action=\"every user of this machine may use the accounts: set [daemon] "
			 "socket_group or [access] allow\"", log_q(a->socket_path));
	}
	r = rpc_socket_open(&o, &a->socket, &why);
	if (!r)
		a->listen_fd = rpc_socket_take_fd(a->socket);
	if (!r)
		return 0;
	fprintf(stderr, "agentboxd: %s\n", why.text);
	return r == RPC_SOCKET_BUSY ? APP_EXIT_BUSY : APP_EXIT_CONFIG;
}

static void on_conn_end(const struct principal *who, void *user)
{
	struct app *a = user;

	if (a->core)
		sandbox_connection_ended(a->core, who);
}

static int make_server(struct app *a)
{
	struct app_uid_limits limits;
	struct rpc_server_options o = { .loop = a->loop, .rules = &a->access, .owners = a->owners, .users = a->users,
					.on_conn_end = on_conn_end, .user = a, .quotas = a->quotas };
	int r = app_uid_limits_read(a->conf, &limits);

	if (r < 0)
		return out_of_memory();
	o.limits = limits.rpc;
	o.listen_fd = a->listen_fd;
	a->listen_fd = -1;
	r = rpc_server_new(&o, &a->server);
	app_uid_limits_free(&limits);
	if (!r)
		r = svc_sandbox_add(a->server, a->core);
	if (!r)
		r = svc_lease_add(a->server, a->core);
	if (!r)
		r = svc_warm_add(a->server, a->core);
	if (!r)
		r = svc_command_add(a->server, a->commands);
	if (!r)
		r = svc_file_add(a->server, a->core);
	if (!r)
		r = app_token_service_add(a);
	if (!r)
		r = app_status_new(a);
	if (!r)
		r = app_backup_new(a);
	return r < 0 ? app_failed("the gRPC server", r) : 0;
}

static void on_tick(struct timer *t, void *user);

static int make_loop(struct app *a)
{
	int r = loop_new(&a->loop);

	if (!r)
		r = app_signals_new(a);
	if (!r)
		r = children_new(a->loop, &a->children);
	if (!r) {
		timer_init(&a->tick, a->loop, on_tick, a);
		r = timer_set(&a->tick, loop_now_ms(a->loop) + TICK_MS);
	}
	return r < 0 ? app_failed("the event loop", r) : 0;
}

/* No step waits for another process or for the network. A signal that comes meanwhile is handled when the loop runs. */
static int build(struct app *a)
{
	static int (*const steps[])(struct app *) = {
		make_loop, app_manager_new, take_socket, check_limits, check_users, choose_places, open_store, open_socket,
		app_local_new, make_resolver, make_quotas, make_pool, app_accounts_new, make_owners, app_tokens_new, make_commands, make_life,
		app_tokens_start, take_up_commands, make_access, make_server, app_metrics_new, app_gateway_new, app_manager_ready,
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = steps[i](a);

		if (r)
			return r;
	}
	return 0;
}

int app_new(const struct app_options *o, struct app **ret)
{
	static const struct notify nobody = NOTIFY_NOBODY;
	struct app *a = calloc(1, sizeof(*a));
	int r;

	if (!a) {
		conf_free(o->conf);
		return out_of_memory();
	}
	a->conf = o->conf;
	a->conf_file = o->conf_file;
	a->local_mode = o->local;
	a->user_mode = o->user_mode;
	a->notify = o->notify ? o->notify : &nobody;
	a->listen_fd = -1;
	list_init(&a->reload_waiters);
	a->started_at_ms = clock_wall_ms();
	a->conf_loaded_at_ms = a->started_at_ms;
	a->started_boot_ms = clock_boot_ms();
	harden();
	tls_setup();
	r = build(a);
	if (!r) {
		log_info("ready", "version=%s socket=%s state=%s mode=%s pid=%d", AB_VERSION, log_q(a->socket_path),
			 log_q(a->state_dir), a->user_mode ? "user" : "system", (int)getpid());
		*ret = a;
		return 0;
	}
	app_free(a);
	return r;
}

/* --- running and ending --- */

static void check_socket(struct app *a)
{
	struct status why = STATUS_OK;
	int fd;

	if (!a->socket)
		return;
	switch (rpc_socket_check(a->socket)) {
	case RPC_SOCKET_MISSING:
		log_warn("socket_removed", "path=%s action=\"bound again\"", log_q(a->socket_path));
		if (rpc_socket_rebind(a->socket, &why) != 0) {
			log_error("socket_lost", "path=%s error=%s", log_q(a->socket_path), log_q(why.text));
			break;
		}
		fd = rpc_socket_take_fd(a->socket);
		if (rpc_server_listen(a->server, fd) < 0)
			log_error("socket_lost", "path=%s error=\"out of memory\"", log_q(a->socket_path));
		break;
	case RPC_SOCKET_REPLACED:
		log_error("socket_replaced", "path=%s action=\"giving up\"", log_q(a->socket_path));
		loop_stop(a->loop, APP_EXIT_BUSY);
		break;
	default:
		break;
	}
}

static void on_tick(struct timer *t, void *user)
{
	struct app *a = user;
	uint32_t again_ms = TICK_MS;

	if (a->drain_until_ms) {
		again_ms = app_stop_tick(a);
	} else {
		check_socket(a);
		app_manager_tell(a);
		app_memory_tick(a);
	}
	if (again_ms && timer_set(t, loop_now_ms(a->loop) + again_ms) < 0)
		log_error("tick", "error=\"out of memory\"");
}

void app_tick(struct app *a)
{
	on_tick(&a->tick, a);
}

int app_run(struct app *a)
{
	int r = loop_run(a->loop);

	if (r < 0)
		return app_failed("the event loop", r);
	/* The last answers leave. */
	for (int i = 0; i < 20 && !loop_once(a->loop, 0); i++)
		;
	log_info("stopped", "code=%d", r);
	return r;
}

struct app *app_free(struct app *a)
{
	if (!a)
		return NULL;
	app_reload_free(a);
	timer_clear(&a->tick);	/* it asks the server, and the loop runs once more below */
	app_gateway_free(a);
	app_metrics_free(a);
	a->server = rpc_server_free(a->server);
	fd_close(a->listen_fd);
	rpc_socket_free(a->socket);
	app_status_free(a);
	commands_free(a->commands);
	sandbox_core_free(a->core);
	tokens_free(a->tokens);
	templates_free(a->templates);
	local_process_free(a->local);
	timer_clear(&a->local_retry);
	app_accounts_free(a);
	pool_free(a->pool);
	for (int i = 0; i < 3 && a->loop && !loop_once(a->loop, 0); i++)
		;	/* connections end from the loop */
	resolver_free(a->resolver);
	store_close(a->store);
	children_free(a->children);
	app_manager_free(a);
	owners_free(a->owners);
	users_free(a->users);
	loop_free(a->loop);
	app_memory_free(a);
	access_rules_fini(&a->access);
	conf_free(a->conf);
	conf_files_fini(&a->conf_files);
	free(a->socket_path);
	free(a->state_dir);
	free(a);
	return NULL;
}
