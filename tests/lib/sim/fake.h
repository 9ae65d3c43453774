/* SPDX-License-Identifier: MIT */
/*
 * The fake cloud of the simulation and of the sandbox module's unit tests: the functions of
 * daemon/cloud/cloud.h over a ledger of what is true. A request takes simulated time to arrive, and
 * its answer to come back; its fate on the way is scripted (fake_next()) or drawn by chance (faults).
 * A request that has left acts when it arrives, also when its sender has crashed meanwhile.
 *
 * fake.c is the ledger and what a request does to it, wire.c the way there and back.
 */
#ifndef AB_TESTS_LIB_SIM_FAKE_H
#define AB_TESTS_LIB_SIM_FAKE_H

#include "daemon/cloud/cloud.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/rng.h"
#include "tests/lib/sim/host.h"

#define FAKE_SANDBOXES     600u
#define FAKE_SNAPSHOTS 200u
#define FAKE_TAGS      12u
#define FAKE_ENV       "KIND"

enum fake_call {
	FAKE_CREATE, FAKE_GET, FAKE_LIST, FAKE_KILL, FAKE_CONNECT, FAKE_TIMEOUT, FAKE_REFRESH,
	FAKE_PAUSE, FAKE_FORK, FAKE_SNAPSHOT, FAKE_SNAPSHOTS_LIST, FAKE_SNAPSHOT_DELETE,
	FAKE_NETWORK, FAKE_METRICS, FAKE_TEMPLATES,
	FAKE_CALLS,	/* how many there are */
};

enum fake_fate {
	FAKE_OK,
	FAKE_UNSENT,		/* proven unprocessed */
	FAKE_LOST_BEFORE,	/* on its way there */
	FAKE_LOST_AFTER,	/* it acts; its answer is lost */
	FAKE_LATE,		/* the same, and it acts after the loss is known */
	FAKE_ERR_BEFORE,	/* 500 without acting */
	FAKE_ERR_AFTER,		/* … after acting */
	FAKE_REFUSED,		/* 400 */
	FAKE_LIMITED,		/* 429 */
	FAKE_STALL,		/* it acts; no answer until the deadline */
	FAKE_TWICE,		/* somebody on the way sends it again */
	FAKE_CONFLICT,		/* 409 */
	FAKE_HOLD,		/* it acts; the answer comes with fake->released */
};

struct fake_sandbox {
	char id[64];
	char keys[FAKE_TAGS][64], values[FAKE_TAGS][256];
	unsigned n_tags;
	char env[32];			/* what its environment has for FAKE_ENV */
	bool alive, paused;
	bool hidden;			/* in no list */
	unsigned left_out;		/* of so many lists that were read, one after the other */
	uint64_t listed_at_ms, died_at_ms, touched_at_ms;	/* true time; listed: in a list from then on */
	uint64_t busy_until_ms;		/* it is being copied: in no list */
	int64_t started_at_ms, end_at_ms;	/* the cloud's clock */
	const char *how;		/* it died */
	unsigned deletes;
};

struct fake_snapshot {
	char id[64], source[64], name[64];
	bool alive;
};

/* A request on its way. */
struct fake_request {
	struct fake *fake;
	struct cloud_call *call;	/* NULL: nobody waits any more */
	enum fake_call what;
	enum fake_fate fate;
	char id[64];			/* of the sandbox; of the snapshot to delete */
	char name[64];			/* of a snapshot */
	char label[80];			/* what it is known by at both ends: the tag of a create, … */
	char env[32];			/* create */
	uint32_t timeout_s, count;
	struct cloud_kvs kvs;		/* create: metadata; list: filter */
	unsigned run;			/* the `runs` of its sender */
	uint64_t until_ms, reply_at_ms;	/* true time */
	bool sent, acted, answered, withdrawn;
	unsigned events;		/* still to come */
	struct cloud_result result;
};

/* Told of what happens. */
struct fake_observer {
	void (*begins)(const struct fake_request *q);
	void (*copies)(const struct fake_request *q);	/* a fork or a snapshot is about to be made */
	/* parent: NULL for a create */
	void (*made)(const struct fake_request *q, struct fake_sandbox *b,
		     const struct fake_sandbox *parent);
	void (*over)(const struct fake_request *q, enum cloud_outcome outcome);	/* that its caller sees */
};

/* Chances in 1000. */
struct fake_faults {
	unsigned unsent, lost_before, lost_after, late, err_before, err_after, refused, limited, stall;
	unsigned twice;
	unsigned list_omit, list_empty, list_lag;
	unsigned child_fails;		/* of each child of a fork: 429 */
	unsigned cut;			/* of each request whose sender has crashed: it never arrives */
	bool slow;			/* some take seconds, and what is made is not in a list at once */
};

/* In shared memory, without pointers into the heap: it outlives the process that asked. */
struct fake {
	struct sim time;		/* the world's: `sim` points here */
	struct fake_sandbox sandboxes[FAKE_SANDBOXES];
	unsigned n_sandboxes;
	struct fake_snapshot snapshots[FAKE_SNAPSHOTS];
	unsigned n_snapshots;
	unsigned seen[FAKE_CALLS];	/* requests of each kind that came, or were lost on the way */
	int64_t clock_offset_ms;	/* of the cloud's clock to true time */
	uint32_t cap_s;			/* of an age; 0 = none */
	uint32_t latency_ms;		/* of each way, at most, but for what is slow */
	/* Refreshes that it lets pass: a bucket of that size; 0 = all of them. What is over it is answered 429. */
	uint32_t refresh_burst, refresh_per_s_milli;
	int64_t refresh_tokens_milli;	/* at … */
	uint64_t refresh_filled_ms;	/* true time; 0 = full */
	unsigned refreshes_refused;
	bool old_templates;		/* it lists them without pages alone */
	bool refresh_told;		/* an answer has told the bucket */
	/* the script */
	struct {
		enum fake_fate fate;
		unsigned n;
	} next[FAKE_CALLS];
	unsigned children_fail;		/* so many of the next children */
	bool released;			/* what is held is answered */
	bool list_empty;		/* 200 with nothing */
	enum sandbox_probe_result probe;
	bool down;			/* nothing is answered: each call tries again until its deadline */
	/* chance */
	struct rng rng;
	struct fake_faults faults;
	uint64_t down_until_ms;		/* true time; what is asked before is not sent or lost, at once */
	const struct fake_observer *observer;
	unsigned runs;			/* of our side: fake_cloud() calls */
};

/* The version that every sandbox's agent has. */
extern const char *fake_agent;

/* Shared memory, zeroed; the pointer is valid in children too. */
void *shared_new(size_t n);
void shared_free(void *p, size_t n);

/* Begins a world, with a well-behaved cloud. */
struct fake *fake_new(void);
void fake_free(struct fake *f);
/* One face of it in this process, for one run of the daemon. */
struct cloud *fake_cloud(struct fake *f, struct loop *l);
struct cloud *fake_cloud_free(struct cloud *c);
/* Asks its sandboxes' agents: each answers fake->probe. */
struct sandbox_prober fake_prober(struct cloud *c);
/* In place of SHA-256: different inputs give different tags. */
void fake_hash(const void *p, size_t n, uint8_t ret[32]);
/* The next n calls of a kind; later ones go well. */
void fake_next(struct fake *f, enum fake_call what, unsigned n, enum fake_fate fate);

int64_t fake_now(const struct fake *f);		/* the cloud's clock */
struct fake_sandbox *fake_find(struct fake *f, const char *id);	/* NULL: none that is alive */
struct fake_sandbox *fake_find_any(struct fake *f, const char *id);
struct fake_sandbox *fake_add(struct fake *f, uint32_t timeout_s);
/* One that somebody else made; no two of them start at once. */
struct fake_sandbox *fake_plant(struct fake *f, const char *id);
const char *fake_tag(const struct fake_sandbox *b, const char *key);
void fake_plant_tag(struct fake_sandbox *b, const char *key, const char *value);
void fake_end(struct fake_sandbox *b, const char *how);
void fake_expire(struct fake *f);		/* ends those whose end has come */
unsigned fake_alive(const struct fake *f);

/* For wire.c: what a request does when it arrives, and its result. */
void fake_act(struct fake_request *q);
void fake_refuse(struct cloud_result *r, unsigned http, enum ab_reason reason);
void fake_conflict(struct cloud_result *r);

#endif
