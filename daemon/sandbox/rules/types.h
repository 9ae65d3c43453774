/* SPDX-License-Identifier: MIT */
/*
 * The types that rules share with the module's callers: a sandbox as it is shown, and the parameters of Create and List. The calls
 * are in daemon/sandbox/sandbox.h.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_TYPES_H
#define AB_DAEMON_SANDBOX_RULES_TYPES_H

#include <stdbool.h>

#include "daemon/auth/principal.h"
#include "daemon/sandbox/rules/policy.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/cloud/model.h"

enum sandbox_state {	/* numbers of agentbox.v1.SandboxState; stored: never renumber */
	SANDBOX_STATE_NONE = 0,
	SANDBOX_CREATING = 1,
	SANDBOX_RUNNING = 2,
	SANDBOX_PAUSING = 3,
	SANDBOX_PAUSED = 4,
	SANDBOX_RESUMING = 5,
	SANDBOX_SNAPSHOTTING = 6,
	SANDBOX_KILLING = 7,
	SANDBOX_GONE = 8,
};

enum sandbox_source {	/* numbers of agentbox.v1.Freshness.Source */
	SANDBOX_FROM_CLOUD = 1,
	SANDBOX_FROM_CACHE = 2,
	SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE = 3,
};

enum sandbox_warm_mode {	/* numbers of agentbox.v1.WarmMode */
	SANDBOX_WARM_UNSET = 0,	/* the configured default */
	SANDBOX_WARM_NEVER = 1,
	SANDBOX_WARM_PREFER = 2,
	SANDBOX_WARM_REQUIRE = 3,
};

struct sandbox_pair {
	const char *key, *value;
};

/* A sandbox as callers see it: all of agentbox.v1.Sandbox. Strings are never NULL. */
struct sandbox_view {
	const char *id, *name, *account;
	const char *template_id, *alias;
	enum sandbox_state state;
	const struct sandbox_pair *metadata;	/* without our own keys, sorted by key */
	size_t n_metadata;
	int64_t started_at_ms, end_at_ms;	/* wall; 0 = unknown */
	uint32_t cpu_count, memory_mb, disk_size_mb;
	const char *envd_version, *domain;
	const char *access_token, *traffic_token;	/* secret; "" = none, or not known yet */
	bool token_known;		/* the tokens are known, so that "" means none */
	bool is_detail;				/* a GET was answered: settings and machine are known */
	bool resumed;				/* the answered ConnectSandbox has resumed it */
	enum tri allow_internet_access;
	struct cloud_lifecycle lifecycle;	/* what the cloud does at end_at */
	const struct cloud_network *network;	/* NULL = none, or not known yet (a list does not say) */
	struct policy policy;
	uid_t owner_uid;
	uint32_t leases, generation;
	enum sandbox_source source;
	int64_t as_of_ms;			/* wall */
	const char *warning;
	bool adopted;
	enum ab_reason gone_reason;		/* with SANDBOX_GONE */
	bool warm;				/* a claimed warm one: the cloud has other metadata */
	bool end_pending;			/* end_at_ms was asked for at its claim, and the cloud did not confirm it yet */
};

/* What a Create asks for, or a Fork for each child. It owns all that it points to; NULL texts are unset. */
struct sandbox_create {
	char *request_id;		/* 1..128 printable bytes */
	uint8_t params_hash[32];	/* SHA-256 of the canonical encoding without the request id */
	uint64_t timeout_ms;		/* 0 = 300 s; sent rounded up to seconds */
	struct policy_change policy;	/* the fields that are set */
	/* What follows is for a Create only. */
	char *account;			/* NULL = the caller's */
	char *name;
	bool must_create, wait_ready;
	bool process_lease;		/* the calling process holds a lease from the first moment */
	enum sandbox_warm_mode warm;
	bool cloud_rules;		/* settings that the cloud takes are not refused, also where they make no sense */
	uint64_t sent_deadline_ms;	/* replaces the call's deadline when the POST was sent; 0 = it does not */
	struct cloud_create what;	/* sent as it is, with timeout_s and our tags added; template_id NULL = "base" */
};

struct sandbox_list {
	const struct sandbox_pair *metadata;	/* all must match */
	size_t n_metadata;
	uint32_t states;		/* BIT(enum sandbox_state); 0 = all but GONE */
	const char *template_id;	/* id or alias; NULL or "" = any */
	uint32_t page_size;		/* 0 = 100; at most 1000 */
	const char *page_token;		/* NULL or "" = from the start */
	bool cached, all_owners, all_hosts;
	bool count_running;		/* sandbox_page.n_running is wanted, which may take a walk over all sandboxes of the owner */
	bool ascending;			/* the oldest first; such pages go by place_id, not by page_token */
	int64_t started_after_ms;	/* only those that started at or after it; 0 = all */
	const char *place_id;		/* the page begins behind this sandbox, which may be gone; NULL or "" = by page_token */
	int64_t place_started_at_ms;	/* its started_at */
	const struct cloud_strs *only;	/* these ids; NULL = any */
	const char *account;		/* NULL or "" = the caller's; another: admins */
};

#endif
