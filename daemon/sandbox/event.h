/* SPDX-License-Identifier: MIT */
/*
 * The event log: what changed, kept for watchers. An event is written in the transaction of its change and
 * goes to watchers after the commit, so that every cursor that a watcher saw is in the store.
 * Bounds: EVENTS_FOR_MS, EVENTS_PER_UID and EVENTS_IN_ALL; a uid's newest event is always kept, as the next gets the seq above it.
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
	uint64_t number;		/* rises over all uids */
	uint64_t seq;			/* rises within the uid; a cursor names it */
	uid_t uid;
	int64_t at_ms;			/* wall */
	enum event_type type;
	unsigned account;		/* index */
	char *id, *name, *evidence;	/* evidence: "key=value" lines */
	enum ab_reason reason;
	enum sandbox_state state;
	int64_t started_at_ms, end_at_ms;
	uint32_t leases, generation;
};

/* The events of a uid by seq, or of all uids by number: a ring of pointers. */
struct event_log {
	uid_t uid;
	struct event **v;
	size_t cap, head, n;
};

struct events {
	struct map by_uid;		/* u64 → struct event_log */
	struct event_log all;
	uint64_t number;		/* of the newest */
	uint64_t told;			/* watchers may have events up to this number: their commits are done */
	struct defer fence;		/* starts the empty commit that follows those of a pass */
	struct list watches;		/* struct sandbox_watch */
};

struct event *event_at(const struct event_log *g, size_t i);
/* Index of the first event above the key: a number (in the log of all), or a seq. */
size_t event_above(const struct event_log *g, bool by_number, uint64_t key);

void events_init(struct sandbox_core *core);
void events_fini(struct sandbox_core *core);
void event_load(struct sandbox_core *core, const struct row_event *r);
/* Adds an event to the transaction of its change, which the caller commits before it returns to the loop. */
void event_put(struct sandbox_core *core, struct store_tx *t, const struct sandbox *b,
	       enum event_type type, const char *evidence_fmt, ...) printf_like(5, 6);
/* The same in a transaction of its own, for what changes no row. */
void event_say(struct sandbox_core *core, const struct sandbox *b, enum event_type type,
	       const char *evidence_fmt, ...) printf_like(4, 5);
void events_prune(struct sandbox_core *core, int64_t now_wall_ms);
struct event_log *events_of(struct sandbox_core *core, uid_t uid);		/* NULL = none yet */
void event_watches_wake(struct sandbox_core *core);	/* watch.c */

#endif
