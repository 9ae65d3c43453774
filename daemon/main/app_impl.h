/* SPDX-License-Identifier: MIT */
/* Inside of the composition root, for app*.c only. */
#ifndef AB_DAEMON_MAIN_APP_IMPL_H
#define AB_DAEMON_MAIN_APP_IMPL_H

#include <sys/stat.h>

#include "daemon/auth/access.h"
#include "daemon/auth/owner.h"
#include "daemon/auth/owners.h"
#include "daemon/auth/templates.h"
#include "daemon/auth/uid_quota.h"
#include "daemon/auth/users.h"
#include "daemon/cloud/cloud.h"
#include "daemon/command/command.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/net/tls.h"
#include "daemon/common/sd/listen_fds.h"
#include "daemon/common/sd/notify.h"
#include "daemon/conf/secret.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app.h"
#include "daemon/main/app_warm.h"
#include "daemon/main/child.h"
#include "daemon/main/local_process.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/socket.h"
#include "daemon/rpc/svc_backup.h"
#include "daemon/rpc/svc_daemon.h"
#include "daemon/rpc/svc_token.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/store.h"
#include "daemon/upstream/pool.h"

#define APP_ACCOUNTS_MAX SANDBOX_ACCOUNTS_MAX

/* FileDescriptorName= of the sockets that a service manager may pass. */
#define APP_FD_API     "api"
#define APP_FD_METRICS "metrics"
#define APP_FD_GATEWAY "gateway"
/* Names in the manager's store: the gateway's own listeners, and its idle connections over a restart. */
#define APP_FD_KEPT_PORT "gateway-port"
#define APP_FD_KEPT_IDLE "gateway-idle"
#define APP_KEPT_PORTS_MAX 16u	/* as many as [gateway] listen can name, of two families each */

/* A listener of the gateway that the manager has a duplicate of, or is to have one. */
struct kept_port {
	int fd;			/* the gateway's, once it is used */
	bool is_new, is_used;
};

struct account {
	char *name;
	struct app *app;
	struct cloud *cloud;
	struct tls_client *tls;
	char *ca_file;			/* NULL = none */
	struct stat tls_stat[3];	/* of ca_file, client_cert and client_key when they were last read, or tried */
	struct secret *key;
	char *key_path;			/* NULL: from the environment, or none */
	char *key_command;		/* NULL = none */
	struct key_command *key_run;	/* it runs */
	uint64_t key_run_at_ms;		/* not before */
	struct stat key_stat;		/* of that file when it was last read, or tried */
	uint64_t looked_in_pass;	/* at all of these files, last; 0 = never */
	char *proxy, *no_proxy;		/* until they are its cloud's */
	const char *proxy_origin;	/* static */
	char *domain;
	bool retired;			/* the configuration does not have it any more */
};

struct app {
	struct conf *conf;
	const char *conf_file;
	struct conf_files conf_files;	/* as they were read last; for Config.file_changed */
	bool conf_needs_restart;	/* it holds values that were not taken up */
	int64_t conf_loaded_at_ms;	/* wall */
	bool local_mode, user_mode;
	char *socket_path, *state_dir;
	const struct notify *notify;	/* the service manager */
	struct listen_fds passed;	/* by it, and not taken yet */
	struct timer watchdog;
	uint64_t watchdog_ms;		/* between two WATCHDOG=1; 0 = none are wanted */
	char said[NOTIFY_STATUS_MAX];	/* the last STATUS= */
	struct worker *reload_worker;	/* NULL before the first reload */
	struct reload *reload;		/* the one that goes on */
	bool reload_again;		/* asked for meanwhile */
	struct list reload_waiters;	/* calls of DaemonService.Reload */
	struct loop *loop;
	struct children *children;
	struct local_process *local;	/* --local only */
	struct timer local_retry;
	bool local_lost;		/* the account could not follow it */
	struct store *store;
	struct store_report store_report;
	struct resolver *resolver;
	struct uid_quotas *quotas;	/* of the memory held for clients … */
	struct quota *cloud_quota;	/* … and for the cloud's answers */
	uint64_t peak_bytes;		/* the most of both since the heap was trimmed */
	struct pool *pool;
	struct account accounts[APP_ACCOUNTS_MAX];
	size_t n_accounts;
	struct sandbox_core *core;
	struct commands *commands;
	struct rpc_socket *socket;	/* NULL: it was passed, and is the manager's */
	int listen_fd;			/* -1 = the server has it */
	struct access_rules access;
	struct owners *owners;
	struct users *users;
	struct rpc_server *server;
	struct svc_daemon_options svc_daemon;
	struct svc_backup_options svc_backup;
	int64_t quiesced_at_ms;		/* wall: since when new sandboxes are refused; 0 = they are not */
	struct timer tick;		/* the socket's file, while draining: who is left */
	uint64_t drain_until_ms;	/* a stop ends then; 0 = there is none */
	uint64_t stop_since_ms, settle_until_ms;
	uint64_t drain_since_ms;	/* 0 = it settles, see app_stop.c */
	uint64_t drained_at_ms;		/* when no call was open any more; 0 = some are */
	int64_t started_at_ms;		/* wall */
	uint64_t started_boot_ms;
	struct app_status *look;
	struct rpc_socket *metrics_socket;	/* as `socket` */
	struct http_server *metrics;	/* NULL = none */
	struct http_server *metrics_tcp;	/* the same at a loopback address */
	struct tokens *tokens;
	struct templates *templates;	/* made through the gateway */
	struct svc_token_options svc_token;
	struct gateway *gateway;
	struct tls_server *gateway_tls;	/* NULL = plain */
	struct rpc_socket *gateway_socket;
	uint8_t gateway_secret[MADE_TOKEN_SECRET];
	struct kept_port kept_ports[2 * APP_KEPT_PORTS_MAX];	/* what was there, and new ones */
	size_t n_kept_ports, n_kept_closed;
	uint64_t hand_over_until_ms;	/* of a stop */
	char *gateway_url;		/* what programs are given; NULL = it listens on no TCP port */
	char *gateway_path;		/* the same of its socket in the file system */
};

/* app_manager.c: the service manager, if one started us: what it passed, and what it is told. As app_accounts_new(). */
must_check int app_manager_new(struct app *a);
void app_manager_free(struct app *a);
/* The listening socket that was passed by this name, in *ret, checked; -1 = none was. 0, or an exit code after the reason was
 * printed. */
must_check int app_manager_take(struct app *a, const char *name, int *ret);
/* The start is over: READY=1, and from now on the loop feeds the watchdog. */
must_check int app_manager_ready(struct app *a);
/* STATUS=, if it is another than before. */
void app_manager_tell(struct app *a);

/* The same while a stop waits for calls; the manager gives it the time that drain_timeout allows. */
void app_manager_tell_stop(struct app *a, const struct rpc_waited *waited);

/* app_reload.c: reads the configuration again; the log tells what came of it. */
void app_reload(struct app *a);
/* The same for a caller who waits for what comes of it: svc_daemon_options.reload. */
void *app_reload_wait(void *user, daemon_reloaded_fn *done, void *done_user, struct status *ret);
void app_reload_cancel(void *user, void *op);
void app_reload_free(struct app *a);

/* app_rules.c: what the sections [policy] and [uid] of `c` say; a uid whose account there is not keeps what `now` says. The strings are
 * theirs. 0 or -ENOMEM. */
must_check int app_rules_read(const struct conf *now, const struct conf *c, const struct app_known_accounts *accounts,
			      const struct app_warm *warm, struct sandbox_core_rules *ret);
void app_rules_free(struct sandbox_core_rules *rules);
/* The core goes by them from now on. -ENOMEM: nothing was changed. */
must_check int app_rules_take(struct app *a, const struct conf *fresh, const struct app_known_accounts *accounts,
			      const struct app_warm *warm);

/* app_limits.c: limits as the configuration has them. */
struct app_uid_limits {
	struct uid_quotas_options all_memory;
	struct uid_quota_limit *memory;
	size_t n_memory;
	struct rpc_limits rpc;
};
void app_limits_of_commands(const struct conf *c, struct commands_limits *ret);
void app_limits_of_gateway(const struct conf *c, struct gateway_limits *ret);
uint64_t app_limits_of_cloud(const struct conf *c);	/* bytes held for all accounts */
must_check int app_uid_limits_read(const struct conf *c, struct app_uid_limits *ret);	/* 0 or -ENOMEM */
void app_uid_limits_free(struct app_uid_limits *l);	/* zeroed is fine */
/* Room for them in what is there already. -ENOMEM: nothing was changed. */
must_check int app_uid_limits_reserve(struct app *a, const struct app_uid_limits *l);
/* All of them are in force from now on, with those of uids, for which there is room. */
void app_limits_take(struct app *a, const struct app_uid_limits *l);

/* app_reload_accounts.c: what another configuration changes in the accounts. */
struct app_accounts_change;
/* On the worker. Reads what the loop takes; what is wrong is added to the configuration's problems. *ret is NULL with --local. -ENOMEM. */
must_check int app_accounts_read(struct app *a, struct conf *fresh, struct app_accounts_change **ret);
void app_accounts_change_free(struct app_accounts_change *x);	/* NULL is fine */
/* Whether there is such an account after the change. */
bool app_accounts_will_have(const struct app *a, const struct app_accounts_change *x, const char *name);
/* Whether this key of an account can be taken up; of what comes and what goes as well. */
bool app_accounts_may_take(const struct app *a, const struct app_accounts_change *x, const struct conf *fresh, const struct conf_key *key,
			   const char *name);
/* Whether the key of the account of this index may come from another file. */
bool app_accounts_may_take_key(const struct app_accounts_change *x, size_t i);
/* The first account of the file, if that is another one than now: then all who are told none have another one after a restart. NULL = no. */
const char *app_accounts_other_first(const struct app *a, const struct conf *fresh);
/* New ones begin: -ENOMEM, or -errno and `why`, and none did. They end again by app_accounts_undo(). */
must_check int app_accounts_reserve(struct app *a, struct app_accounts_change *x, const struct conf *fresh, struct status *why);
void app_accounts_undo(struct app *a, struct app_accounts_change *x);
/* When the configuration was taken: all the rest, which cannot fail. */
void app_accounts_take(struct app *a, struct app_accounts_change *x);

/* app_signal.c: what a signal does, from here on. -errno. */
must_check int app_signals_new(struct app *a);
/* app_stop.c: SIGTERM and SIGINT stop, the second one of them and SIGQUIT end at once. */
void app_stop(struct app *a, int signo);
/* Goes on with the stop. After how many ms it wants to be called again; 0 = it is over. */
uint32_t app_stop_tick(struct app *a);
/* app.c: looks at what is looked at from time to time, now. */
void app_tick(struct app *a);

/* app_dump.c: what there is to know of this daemon, as lines of the log; nothing secret. */
void app_dump(struct app *a);

/* app_account.c: every account of the configuration. 0, or an exit code after the reason was printed. */
must_check int app_accounts_new(struct app *a);
void app_accounts_free(struct app *a);
/*
 * What the configuration, and the files that it names, say of an account, in one that is zeroed but for `app` and `name`; on any thread. 0,
 * -ENOMEM, or -errno and `why`.
 */
#define APP_ACCOUNT_KEY	  1u
#define APP_ACCOUNT_TLS	  2u
#define APP_ACCOUNT_PROXY 4u
must_check int app_account_read(struct account *c, const struct conf *conf, unsigned what, struct status *why);
/* One of which all was read has a cloud from now on, to which `c` is known, and so does not move. As above. */
must_check int app_account_begin(struct account *c, const struct conf *conf, struct status *why);
/* `c` has the TLS and the proxy that were read into `from`, from now on. */
void app_account_take(struct account *c, struct account *from);
bool app_has_account(const struct app *a, const char *name);
/* One that nothing else knows of; zeroed is fine. */
void app_account_free(struct account *c);
/* The account's cloud is at this address, with this CA and key. -errno and `why`: it stays as it was. */
must_check int app_account_point(struct account *c, const struct local_info *at, struct status *why);

/* From now on the key comes from this file, heap, which is taken over: its next call reads it, and while it is not there the key before it
 * stays. */
void app_account_set_key_path(struct account *c, char *path);

/* app_local.c: agentbox-local, and the account that follows it. As app_accounts_new(). */
must_check int app_local_new(struct app *a);
/* The account's calls go to agentbox-local, or wait until it is there. */
void app_local_open(struct account *c);

/* The instance of a [uid] section, or of a [policy uid:…] behind the colon; the configuration has looked it up. Not of [uid *]. */
uid_t app_uid_of(const struct conf *c, const char *instance);
/* The instance of a uid's section; "*" if it has none. */
const char *app_uid_instance(const struct conf *c, uid_t uid);
/* The section that has a uid's value of a key: its own, or [uid *]. */
const char *app_uid_section(const struct conf *c, const char *instance, const char *key);

/* app_names.c: names of users and groups, looked up and noted in the configuration; adds to its problems. How many of those are that the
 * system's tables did not answer. */
size_t app_check_names(struct conf *c);
/* app_access.c: the lists of [access], which app_check_names() has looked up. 0 or -ENOMEM. */
must_check int app_access_read(const struct conf *c, struct access_rules *ret);

/* app_memory.c: 0 or -ENOMEM. The quotas live until everything that charges them is gone. */
must_check int app_memory_new(struct app *a);
void app_memory_free(struct app *a);
/* Now and then: gives free memory back, if enough was freed. */
void app_memory_tick(struct app *a);
void app_memory_collect(const struct app *a, uid_t uid, struct daemon_memory *ret);

/* app_metrics.c: the socket and the address for OpenMetrics, if there are to be any. As app_accounts_new(). */
must_check int app_metrics_new(struct app *a);
void app_metrics_free(struct app *a);

/* app_page.c: what the status page shows, for gateway_options. `user` is the app. */
void *app_page_view(void *user, const struct gateway_view_ask *ask, gateway_view_fn *done, void *done_user);
void app_page_cancel(void *user, void *view);

/* app_gateway.c: tokens are read before the core starts the store, rows that are over go after it. As app_accounts_new(). */
must_check int app_tokens_new(struct app *a);
must_check int app_tokens_start(struct app *a);
/* -errno. */
must_check int app_token_service_add(struct app *a);
must_check int app_gateway_new(struct app *a);
/* app_gateway_passed.c: listens on the sockets that the service manager passed for it. 0, or the exit code. */
must_check int app_gateway_listen_passed(struct app *a, size_t *ret_n);
/*
 * app_gateway_kept.c: listeners and connections over a restart, by the manager's store of descriptors. In this order: what is there is
 * looked at; a listener of this address is taken from it (-1: there is none), or one that was bound is added to it; what nobody took is
 * closed and removed, new ones are stored, and connections are served again. A stop hands over those that are idle.
 */
void app_gateway_kept_read(struct app *a);
int app_gateway_kept_take(struct app *a, const char *address, uint16_t port);
void app_gateway_kept_add(struct app *a, int fd);
void app_gateway_kept_end(struct app *a);
void app_gateway_hand_over(struct app *a);
/* app_gateway.c: whether an account of the configuration has an address where this gateway listens. */
bool app_gateway_is_account(const struct app *a, const struct conf *c, const char *account, const char **ret_key);
void app_gateway_collect(const struct app *a, struct daemon_gateway *ret);
void app_gateway_free(struct app *a);

/* app_quiesce.c: svc_daemon_options.quiesce. */
void app_quiesce(void *user, const struct principal *who, bool off, const char *reason, struct daemon_quiesced *ret);

/* app_backup.c: DaemonService.Backup. */
must_check int app_backup_new(struct app *a);

/* app_status.c: what Status and Config tell. */
/* "49983-ID.domain": whoever knows the id may use the sandbox, so it is for admins. */
bool app_is_sandbox_host(const char *host);
/* Command lines, an environment and headers may hold anything: values for admins, and not for the log. */
bool app_may_hold_secret(const struct conf_key *key);
must_check int app_status_new(struct app *a);
/* Room for the rows of Config, of so many at the most. 0 or -ENOMEM. */
must_check int app_status_reserve(struct app *a, size_t n_rows);
void app_status_free(struct app *a);

#endif
