/* SPDX-License-Identifier: MIT */
/*
 * agentbox.v1.DaemonService. What it tells comes from modules of many layers, so app.c gathers it as
 * plain data through the functions given here; this file only turns it into messages.
 * Strings are never NULL; moments are wall ms, 0 = never. What a function returns stays valid until
 * it is called again.
 */
#ifndef AB_DAEMON_RPC_SVC_DAEMON_H
#define AB_DAEMON_RPC_SVC_DAEMON_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

struct principal;
struct rpc_server;

struct daemon_degradation {
	const char *what, *message, *account;
	enum ab_reason reason;
	int64_t since_ms;
};

enum daemon_key {		/* numbers of agentbox.v1.CloudStatus.Key */
	DAEMON_KEY_PRESENT = 1,
	DAEMON_KEY_MISSING = 2,
	DAEMON_KEY_REJECTED = 3,
};

struct daemon_limit {
	const char *route;
	int64_t next_at_ms;
	uint32_t in_flight, window, burst, per_s_milli;
};

struct daemon_cloud {
	const char *account, *api_url, *domain;
	const char *proxy, *proxy_origin;	/* without credentials */
	enum daemon_key key;
	bool reachable;
	int64_t last_answer_at_ms, last_failure_at_ms, limited_until_ms, reconciled_at_ms;
	enum ab_reason last_failure;
	const char *last_failure_message;
	uint32_t in_flight, max_in_flight, queued;
	const struct daemon_limit *limits;
	size_t n_limits;
	uint32_t extend_kept, extend_most, extend_per_s_milli, extend_waiting;
	uint64_t extend_span_ms, extend_refused;
};

struct daemon_conn {
	const char *state, *peer, *protocol;
	uint32_t streams, max_streams, rtt_us;
	uint64_t age_ms, silent_ms;
};

struct daemon_origin {
	const char *origin, *account, *protocol;
	uint32_t connections, connecting, streams, queued;
	uint64_t calls, failures, dials, goaways, complaints, replays, pings_lost;
	uint32_t stream_target;
	const char *last_error;
	int64_t held_down_until_ms, last_error_at_ms;
	const struct daemon_conn *conns;
	size_t n_conns;
};

struct daemon_store {
	const char *path;
	uint32_t schema, open_intents;
	uint64_t bytes, free_bytes;
	bool writable;
	int64_t backup_at_ms;		/* of the second copy; 0 = none yet */
};

struct daemon_memory {			/* held for local clients, for those of the caller's uid, for the cloud's answers */
	uint64_t client_bytes, max_client_bytes, uid_bytes, max_uid_bytes, cloud_bytes, max_cloud_bytes;
	uint64_t refused_calls, closed_connections;	/* since the start, for lack of it */
};

struct daemon_gateway {
	const char *url, *socket;	/* "" = none */
	uint32_t connections, calls, relays;
	uint64_t requests, refused, bytes_up, bytes_down;	/* since the start */
};

struct daemon_access {			/* of the caller's uid */
	const char *account;
	uint32_t sandboxes, max_sandboxes, creates_per_minute, creates_left;	/* 0 = no limit */
};

enum daemon_identity {		/* numbers of agentbox.v1.StatusResponse.ProcessIdentity */
	DAEMON_IDENTITY_PIDFD_INODE = 1,
	DAEMON_IDENTITY_START_TIME = 2,
	DAEMON_IDENTITY_CONNECTION = 3,
};

struct daemon_facts {
	const char *const *features;
	size_t n_features;
	const char *socket, *state_dir, *host_id;
	bool user_mode, draining;
	int64_t started_at_ms;
	uint64_t uptime_ms;
	enum daemon_identity identity;
	const struct daemon_degradation *degraded;
	size_t n_degraded;
	const struct daemon_cloud *clouds;
	size_t n_clouds;
	const struct daemon_origin *pool;
	size_t n_pool;
	struct daemon_store store;
	struct daemon_memory memory;
	struct daemon_gateway gateway;
	struct daemon_access access;
	uint32_t running, paused, changing, leases, commands;	/* of `who`; of all for an admin */
	uint64_t spool_bytes;
	bool is_local;
	const char *local_address, *local_ca_file;
	int64_t local_pid;
};

enum daemon_config_origin {	/* numbers of agentbox.v1.ConfigValue.Origin */
	DAEMON_CONFIG_DEFAULT = 1,
	DAEMON_CONFIG_ENVIRONMENT = 2,
	DAEMON_CONFIG_FILE = 3,
	DAEMON_CONFIG_COMMAND_LINE = 4,
};

struct daemon_config_value {
	const char *section, *key, *default_value;
	const char *const *values;
	size_t n_values;
	enum daemon_config_origin origin;
	bool reloadable;
	bool secret;		/* its values are sent to nobody even if they are here */
	bool for_admins;	/* they may hold a secret */
	const char *file;	/* "" = from none */
	uint32_t line;
};

struct daemon_config {
	const struct daemon_config_value *values;
	size_t n_values;
	const char *file;
	bool file_changed;
	int64_t loaded_at_ms;
};

struct daemon_changed_key {
	const char *section, *key;
	const char *file;
	uint32_t line;		/* 0 = it is in no file any more */
};

struct daemon_reloaded {
	const char *file;
	const char *const *problems;		/* any: nothing was changed */
	size_t n_problems;
	const struct daemon_changed_key *taken, *need_restart;
	size_t n_taken, n_need_restart;
};

struct daemon_quiesced {
	int64_t since_ms;	/* 0 = it is not */
	uint32_t changing;	/* sandboxes in a transition, those that are being made among them */
};

typedef void daemon_reloaded_fn(void *user, const struct status *st, const struct daemon_reloaded *result);
typedef void daemon_stopped_fn(void *user, const struct status *st, uint32_t killed, bool was_running);

struct svc_daemon_options {	/* must live as long as the server */
	void (*look)(void *user, const struct principal *who, struct daemon_facts *ret);
	void (*config)(void *user, struct daemon_config *ret);
	/* Reads the configuration again. `done` comes once, never from inside, and not after `reload_cancel` with what this
	 * returned; the result lives for the time of that call. NULL: *ret says why. */
	void *(*reload)(void *user, daemon_reloaded_fn *done, void *done_user, struct status *ret);
	void (*reload_cancel)(void *user, void *op);
	/* New sandboxes are refused from now on, or made again. */
	void (*quiesce)(void *user, const struct principal *who, bool off, const char *reason, struct daemon_quiesced *ret);
	/* --local only, else NULL: kills the sandboxes of agentbox-local and ends it. `done` comes once,
	 * never from inside, and not after `stop_local_cancel` with what this returned. NULL: no memory. */
	void *(*stop_local)(void *user, uint64_t deadline_ms, daemon_stopped_fn *done, void *done_user);
	void (*stop_local_cancel)(void *user, void *op);
	void *user;
	struct rpc_server *server;	/* filled by svc_daemon_add() */
};

must_check int svc_daemon_add(struct rpc_server *s, struct svc_daemon_options *o);

#endif
