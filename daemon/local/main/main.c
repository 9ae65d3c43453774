/* SPDX-License-Identifier: MIT */
/*
 * agentbox-local: the cloud's API with sandboxes on this machine. One loop thread; builds everything
 * in order, tears it down in reverse. The engine comes first, because its supervisor is forked off a
 * process that holds no secrets yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/common/ev/signals.h"
#include "daemon/common/net/http.h"
#include "daemon/common/net/tls.h"
#include "daemon/common/sd/notify.h"
#include "daemon/local/agent/envd.h"
#include "daemon/local/egress/egress_host.h"
#include "daemon/local/engine/rmtree.h"
#include "daemon/local/main/caps.h"
#include "daemon/local/main/cfg.h"
#include "daemon/local/main/endpoint_file.h"
#include "daemon/local/main/tlsgen.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/local.h"
#include "daemon/local/state/saved_state.h"
#include "daemon/local/state/teams.h"
#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"

#define STOP_MAX_MS	 10000u	/* for the sandboxes to go; then the engine takes them down itself */
#define CLOSE_PASSES_MAX 100

struct client {
	struct list node;
	struct http_conn *conn;
};

/* Held for the clients of both addresses, and for one connection; above it that connection ends. */
#define CLIENT_BYTES (512u << 20)
#define CONN_BYTES   (64u << 20)

struct app {
	struct cfg cfg;
	struct quota *quota;
	char *dir;
	char *tmp_dir;			/* --capabilities without a state directory */
	struct loop *loop;
	struct engine *engine;
	struct egress_host *egress;
	struct local local;
	char *key_path, *domain, *sudo_path;
	struct tlsgen *tlsgen;
	int fd, tls_fd;
	char *address, *tls_address;
	struct tls_server *tls;
	struct http_server *server, *tls_server;
	struct list clients;
	struct timer idle, stop_limit;
	bool stopping;
};

static int complain(const char *what, int r)
{
	fprintf(stderr, "agentbox-local: %s%s%s\n", what, r ? ": " : "", r ? strerror(-r) : "");
	return r ? r : -EINVAL;
}

/* Frees why. */
static int complain_why(char *why, int r)
{
	complain(why ? why : "cannot start", why ? 0 : r);
	free(why);
	return r;
}

/* --- the end --- */

static void app_close_clients(struct app *a)
{
	list_for_each_safe(n, &a->clients)
		http_conn_close(list_entry(n, struct client, node)->conn, "agentbox-local stops");
	for (int i = 0; i < CLOSE_PASSES_MAX && !list_is_empty(&a->clients); i++)
		if (loop_once(a->loop, 0) < 0)
			break;
}

static void on_all_gone(void *user)
{
	struct app *a = user;

	loop_stop(a->loop, 0);
}

static void on_stop_limit(struct timer *t, void *user)
{
	struct app *a = user;

	log_warn("stop_forced", "sandboxes=%zu", state_count(a->local.state));
	loop_stop(a->loop, 0);
}

static void app_stop(struct app *a, const char *why)
{
	if (a->stopping)
		return;
	a->stopping = true;
	log_info("stopping", "why=%s", why);
	if (a->dir)
		endpoint_leave(a->dir);
	if (a->server)
		http_server_stop_accepting(a->server);
	if (a->tls_server)
		http_server_stop_accepting(a->tls_server);
	if (!a->local.state || timer_set(&a->stop_limit, loop_now_ms(a->loop) + STOP_MAX_MS) < 0) {
		loop_stop(a->loop, 0);
		return;
	}
	state_kill_all(a->local.state, "shutdown", on_all_gone, a);
}

static void on_signal(int signo, void *user)
{
	app_stop(user, signo == SIGTERM ? "SIGTERM" : signo == SIGINT ? "SIGINT" : signo == SIGHUP ? "SIGHUP" : "SIGQUIT");
}

/* Better started anew by whoever started us than alive and of no use. */
static void on_engine_dead(void *user)
{
	struct app *a = user;

	if (a->dir && !a->stopping)
		endpoint_leave(a->dir);
	loop_stop(a->loop, 1);
}

/* --- idleness --- */

/* A daemon that may still ask for sandboxes holds STATE/users shared. */
static bool app_is_needed(const struct app *a)
{
	char *path = str_printf("%s/users", a->dir);
	scoped(fd_closep) int fd = path ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;

	free(path);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static void app_check_idle(struct app *a)
{
	bool busy = !list_is_empty(&a->clients) || state_count_bound(a->local.state) || a->stopping;

	if (!a->cfg.exit_when_idle_s)
		return;
	if (busy)
		timer_clear(&a->idle);
	else if (!timer_is_set(&a->idle) &&
		 timer_set(&a->idle, loop_now_ms(a->loop) + a->cfg.exit_when_idle_s * 1000ull) < 0)
		log_warn("idle_timer_lost", "seconds=%u", a->cfg.exit_when_idle_s);
}

static void on_idle(struct timer *t, void *user)
{
	struct app *a = user;

	if (app_is_needed(a))
		app_check_idle(a);
	else
		app_stop(a, "idle");
}

static void on_count(void *user)
{
	app_check_idle(user);
}

/* The servers' user is &app.local, which is what requests want. */
static struct app *app_of(void *local)
{
	return container_of(local, struct app, local);
}

static int on_conn(struct http_conn *c, void *user, void **ret_user)
{
	struct app *a = app_of(user);
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	client->conn = c;
	list_add_tail(&a->clients, &client->node);
	app_check_idle(a);
	*ret_user = client;
	return 0;
}

static void on_conn_closed(struct http_conn *c, void *conn_user, const char *reason, void *user)
{
	struct client *client = conn_user;

	list_del(&client->node);
	free(client);
	app_check_idle(app_of(user));
}

/* --- the beginning --- */

static void on_start(struct sandbox *s, void *user)
{
	struct app *a = user;

	envd_start(&a->local, s);
}

static int on_serve(struct sandbox *s, void *user)
{
	struct app *a = user;

	return envd_serve(&a->local, s);
}

static int app_state(struct app *a)
{
	struct state_options o = {
		.loop = a->loop,
		.engine = a->engine,
		.dir = a->dir,
		.max_sandboxes = a->cfg.max_sandboxes,
		.max_length_s = a->cfg.max_length_s,
		.memory_bytes = (uint64_t)a->cfg.memory_mb << 20,
		.cpus = a->cfg.cpus,
		.egress = a->egress,
		.templates = a->cfg.templates,
		.n_templates = a->cfg.n_templates,
		.runs = a->cfg.runs,
		.on_start = on_start,
		.serve = on_serve,
		.on_stop = envd_stop,
		.on_thaw = envd_process_thaw,
		.on_count = on_count,
		.user = a,
	};
	char *why;
	int r;

	r = a->cfg.api_key_file ? teams_load(a->key_path, &why, &a->local.teams)
				: teams_load_or_make(a->key_path, &why, &a->local.teams);
	if (r < 0)
		return complain_why(why, r);
	r = endpoint_seed(a->dir, o.seed);
	if (!r)
		r = journal_open(a->dir, &a->local.journal);
	o.journal = a->local.journal;
	if (!r)
		r = state_new(&o, &a->local.state);
	explicit_bzero(o.seed, sizeof(o.seed));
	if (r < 0)
		return complain(a->dir, r);
	r = saved_state_load(a->local.state, a->local.teams);
	return r < 0 ? complain("kept.json in the state directory cannot be used", r) : 0;
}

static char *certificate_for(const char *name, void *user)
{
	return tlsgen_certificate_for(user, name);
}

/* With certificates for the domain, which may have a port, if it is a name. */
static int app_tlsgen(struct app *a, char **ret_why)
{
	const char *domain = a->cfg.domain ? a->cfg.domain : "";
	struct host_port hp;
	bool is_name = host_port_parse(domain, strlen(domain), &hp) == 0 && host_is_name(hp.host, strlen(hp.host)) &&
		       !host_is_address(hp.host);

	return tlsgen_new(a->dir, is_name ? hp.host : NULL, &a->tlsgen, ret_why);
}

static int app_tls(struct app *a)
{
	struct tls_server_options o = { .cert_file = a->cfg.cert_file,
					.key_file = a->cfg.key_file };
	struct status s = STATUS_OK;
	char *why;
	int r;

	if (a->cfg.auto_tls) {
		r = app_tlsgen(a, &why);
		if (r < 0)
			return complain_why(why, r);
		o.cert_file = tlsgen_paths(a->tlsgen)->cert;
		o.key_file = tlsgen_paths(a->tlsgen)->key;
		o.certificate_for = certificate_for;
		o.user = a->tlsgen;
	}
	if (!a->cfg.tls_listen.set)
		return 0;
	r = tls_server_new(&o, &a->tls, &s);
	return r < 0 ? complain(s.text[0] ? s.text : "TLS", s.text[0] ? 0 : r) : 0;
}

static int app_listen(struct app *a)
{
	uint16_t port = 0, tls_port = 0;
	int r = 0;

	if (a->cfg.listen.set)
		r = endpoint_listen(&a->cfg.listen, &a->fd, &a->address, &port);
	if (r < 0)
		return complain("--listen", r);
	if (a->cfg.tls_listen.set)
		r = endpoint_listen(&a->cfg.tls_listen, &a->tls_fd, &a->tls_address, &tls_port);
	if (r < 0)
		return complain("--tls-listen", r);
	/* Clients put https:// before it where they are not told otherwise. */
	a->domain = a->cfg.domain ? str_dup(a->cfg.domain)
				  : str_printf("localhost:%u", tls_port ? tls_port : port);
	a->local.domain = a->domain;
	return a->domain ? 0 : complain("cannot start", -ENOMEM);
}

/* The service manager that started us, if one did. */
static void tell_ready(void)
{
	struct notify n;

	if (notify_open(&n, getenv("NOTIFY_SOCKET")) == 0)
		(void)notify_send(&n, "READY=1");
	notify_close(&n);
}

/* Takes *fd. */
static int app_serve(struct app *a, int *fd, struct tls_server *tls, struct http_server **ret)
{
	struct http_server_options o = {
		.loop = a->loop,
		.listen_fd = *fd,
		.tls = tls,
		.title_names = true,
		.http1 = true,
		.http2 = true,
		.quota = a->quota,
		.conn_max = CONN_BYTES,
		.on_conn = on_conn,
		.on_conn_closed = on_conn_closed,
		.on_request = local_request,
		.user = &a->local,
	};

	*fd = -1;
	return http_server_new(&o, ret);
}

static int app_open(struct app *a)
{
	struct endpoint e = {
		.address = a->address,
		.tls_address = a->tls_address,
		.ca_file = a->tlsgen ? tlsgen_paths(a->tlsgen)->ca : NULL,
		.bundle_file = a->tlsgen ? tlsgen_paths(a->tlsgen)->bundle : NULL,
		.api_key_file = a->key_path,
		.api_key = teams_first_key(a->local.teams),
		.domain = a->domain,
	};
	int r = 0;

	saved_state_sweep(a->local.state);
	if (a->fd >= 0)
		r = app_serve(a, &a->fd, NULL, &a->server);
	if (!r && a->tls_fd >= 0)
		r = app_serve(a, &a->tls_fd, a->tls, &a->tls_server);
	if (!r)
		r = endpoint_announce(a->dir, &e, a->cfg.ready_fd);
	if (r < 0)
		return complain("cannot serve", r);
	log_info("ready", "address=%s tls_address=%s state_dir=%s", a->address ? a->address : "-",
		 a->tls_address ? a->tls_address : "-", log_q(a->dir));
	tell_ready();
	app_check_idle(a);
	return 0;
}

static void on_ready(void *user, int r, const char *why)
{
	struct app *a = user;

	if (r < 0) {
		fprintf(stderr, "agentbox-local: no sandbox can be made on this machine: %s\n",
			why ? why : strerror(-r));
		loop_stop(a->loop, 1);
	} else if (a->cfg.capabilities) {
		loop_stop(a->loop, caps_print(a->engine) < 0 ? 1 : 0);
	} else if (!a->stopping && app_open(a) < 0) {
		loop_stop(a->loop, 1);
	}
}

/* Beside us where we were built, or where it is installed; NULL: nowhere. */
static char *find_sudo(void)
{
	char self[4096] = "", *slash, *path;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	slash = n > 0 ? strrchr(self, '/') : NULL;
	if (slash)
		*slash = '\0';
	path = str_printf("%s/agentbox-sudo", self);
	if (path && access(path, X_OK) < 0) {
		free(path);
		path = access(AB_LIBEXECDIR "/agentbox-sudo", X_OK) < 0 ? NULL : str_dup(AB_LIBEXECDIR "/agentbox-sudo");
	}
	return path;
}

static int app_engine(struct app *a)
{
	const char *secrets[] = { a->key_path, a->cfg.key_file, NULL };
	struct engine_options o = {
		.loop = a->loop,
		.state_dir = a->dir,
		.secret_paths = a->key_path ? secrets : NULL,
		.templates = a->cfg.templates,
		.n_templates = a->cfg.n_templates,
		.no_idmap = a->cfg.no_idmap,
		.no_cgroup = a->cfg.no_cgroup,
		.no_egress = a->cfg.no_egress,
		.sudo = a->sudo_path,
		.on_dead = on_engine_dead,
		.user = a,
	};
	char *why = NULL;
	int r = engine_new(&o, on_ready, a, &why, &a->engine);

	return r < 0 ? complain_why(why, r) : 0;
}

/* Commands and connections need descriptors. After the fork of the supervisor, whose children are the
 * sandboxes: they keep the usual limit. */
static void raise_file_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	l.rlim_cur = l.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &l) < 0)
		log_warn("file_limit", "error=%s", log_q(strerror(errno)));
}

static int app_start(struct app *a)
{
	char *why = NULL;
	int r = endpoint_take(a->cfg.state_dir, &a->dir, &why);

	if (r < 0)
		return complain_why(why, r);
	a->key_path = a->cfg.api_key_file ? realpath(a->cfg.api_key_file, NULL)
					  : str_printf("%s/api-key", a->dir);
	if (!a->key_path)
		return complain(a->cfg.api_key_file ? a->cfg.api_key_file : "cannot start",
				a->cfg.api_key_file ? -errno : -ENOMEM);
	r = app_engine(a);
	for (size_t i = 0; !r && i < a->cfg.n_templates; i++)
		a->cfg.runs[i].env = engine_template_env(a->engine, a->cfg.templates[i].name);
	raise_file_limit();
	if (!r) {
		r = egress_host_new(a->loop, a->cfg.egress_to, a->cfg.n_egress_to, &a->egress);
		if (r < 0)
			return complain("cannot start", r);
	}
	if (!r)
		r = app_state(a);
	if (!r)
		r = app_tls(a);
	if (!r)
		r = app_listen(a);
	return r;
}

/* --- --capabilities --- */

static int app_examine(struct app *a)
{
	char template[] = "/tmp/agentbox-local-XXXXXX";
	char *why = NULL;
	int r;

	if (!a->cfg.state_dir) {
		if (!mkdtemp(template))
			return complain("/tmp", -errno);
		a->tmp_dir = str_dup(template);
	}
	r = endpoint_take(a->cfg.state_dir ? a->cfg.state_dir : template, &a->dir, &why);
	return r < 0 ? complain_why(why, r) : app_engine(a);
}

/* --- all of it --- */

static void app_fini(struct app *a)
{
	app_close_clients(a);
	http_server_free(a->server);
	http_server_free(a->tls_server);
	tls_server_unref(a->tls);
	timer_clear(&a->idle);
	timer_clear(&a->stop_limit);
	/* Only a stop that took too long leaves some; the engine takes them down below. */
	if (a->local.state && !state_count(a->local.state))
		a->local.state = state_free(a->local.state);
	engine_free(a->engine);
	if (!a->local.state)
		egress_host_free(a->egress);
	teams_free(a->local.teams);
	journal_close(a->local.journal);
	fd_close(a->fd);
	fd_close(a->tls_fd);
	loop_free(a->loop);
	quota_unref(a->quota);
	if (a->tmp_dir)
		(void)!rmtree(AT_FDCWD, a->tmp_dir);
	free(a->tmp_dir);
	free(a->dir);
	free(a->key_path);
	free(a->sudo_path);
	tlsgen_free(a->tlsgen);
	free(a->domain);
	free(a->address);
	free(a->tls_address);
}

static int app_run(struct app *a)
{
	static const int stop[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT }, meaningless[] = { SIGUSR1 };
	int r = loop_new(&a->loop);

	if (r < 0)
		return complain("the event loop", r);
	a->quota = quota_new(&(struct quota_options){ .name = "all clients", .max = CLIENT_BYTES });
	if (!a->quota)
		return complain("out of memory", 0);
	a->local.loop = a->loop;
	a->sudo_path = find_sudo();
	timer_init(&a->idle, a->loop, on_idle, a);
	timer_init(&a->stop_limit, a->loop, on_stop_limit, a);
	r = a->cfg.capabilities ? app_examine(a) : app_start(a);
	if (r < 0)
		return r;
	r = loop_signals(a->loop, stop, ARRAY_SIZE(stop), on_signal, a);
	if (!r)
		r = signals_ignore(a->loop, meaningless, ARRAY_SIZE(meaningless));
	if (r < 0)
		return complain("signals", r);
	return loop_run(a->loop);
}

int main(int argc, char **argv)
{
	struct app a = { .fd = -1, .tls_fd = -1 };
	int r;

	list_init(&a.clients);
	if (fd_fill_standard() < 0)
		return 1;
	r = cfg_parse(argc, argv, &a.cfg);
	if (r)
		return r == CFG_DONE ? 0 : 2;
	log_setup(a.cfg.log_level);
	signal(SIGPIPE, SIG_IGN);
	tls_setup();
	r = app_run(&a);
	app_fini(&a);
	return r ? 1 : 0;
}
