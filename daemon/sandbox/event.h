/* SPDX-License-Identifier: MIT */
/*
 * Events: what changed, kept for watchers. Each is written in the transaction of the change it tells
 * of, and is told after that was committed; so a cursor that a watcher saw is one the store knows.
 * Kept for EVENTS_FOR_MS and EVENTS_PER_UID; a uid's newest one always (numbers go on above it).
 */
#ifndef AB_DAEMON_SANDBOX_EVENT_H
#define AB_DAEMON_SANDBOX_EVENT_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/list.h"
#include "proto/base/map.h"

struct sandbox;
struct sandbox_core;
struct row_event;
struct store_tx;

#define EVENTS_FOR_MS  (24ll * 3600 * 1000)
#define EVENTS_PER_UID 10000u
#define EVENTS_IN_ALL  50000u	/* of all uids; above it the oldest of all go */
#define EVENT_TEXT_MAX 400u

enum event_type {		/* numbers of agentbox.v1.SandboxEvent.Type */
	EVENT_CREATED = 1,
	EVENT_UPDATED = 2,
	EVENT_EXTENDED = 3,
	EVENT_PAUSED = 4,
	EVENT_RESUMED = 5,
	EVENT_EXPIRING = 6,
	EVENT_GONE = 7,
	EVENT_ADOPTED = 8,
	EVENT_RENEWAL_DEGRADED = 9,
	EVENT_RENEWAL_OK = 10,
	EVENT_RESYNC = 11,
	EVENT_RESYNC_DONE = 12,
	EVENT_HEARTBEAT = 13,
	EVENT_WARM_READY = 14,
	EVENT_WARM_CLAIMED = 15,
	EVENT_WARM_FAILED = 16,
};

struct event {
	unsigned refs;			/* its uid's log, the log of all */
	uint64_t number, seq;
	uid_t uid;
	int64_t at_ms;
	enum event_type type;
	unsigned account;		/* index */
	char *id, *name, *evidence;	/* evidence: "key=value" lines */
	enum ab_reason reason;
	enum sandbox_state state;
	int64_t started_at_ms, end_at_ms;
	uint32_t leases, generation;
};

/* By rising key: a ring of pointers. */
struct event_log {
	uid_t uid;
	struct event **v;
	size_t cap, head, n;
};

struct events {
	struct map by_uid;		/* u64 → struct event_log */
	struct event_log all;
	uint64_t number;		/* of the newest */
	uint64_t told;			/* committed up to this number */
	struct defer fence;
	struct list watches;		/* struct sandbox_watch */
};

struct event *event_at(const struct event_log *g, size_t i);
/* Index of the first one above the key (its seq, or its number in the log of all). */
size_t event_above(const struct event_log *g, bool by_number, uint64_t key);

void events_init(struct sandbox_core *core);
void events_fini(struct sandbox_core *core);
void event_load(struct sandbox_core *core, const struct row_event *r);
/* Into the transaction, which the caller commits before it returns to the loop. */
void event_put(struct sandbox_core *core, struct store_tx *t, const struct sandbox *b,
	       enum event_type type, const char *evidence_fmt, ...) printf_like(5, 6);
/* On its own, for what changes no row. */
void event_say(struct sandbox_core *core, const struct sandbox *b, enum event_type type,
	       const char *evidence_fmt, ...) printf_like(4, 5);
void events_prune(struct sandbox_core *core, int64_t now_wall_ms);
struct event_log *events_of(struct sandbox_core *core, uid_t uid);		/* NULL = none yet */
void event_watches_wake(struct sandbox_core *core);	/* watch.c */

#endif
