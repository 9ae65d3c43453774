/* SPDX-License-Identifier: MIT */
/*
 * A simulated host: the real daemon/sandbox under scripted clients and a scripted cloud, in one thread,
 * everything drawn from one 64-bit seed. The seams of lifecycle are replaced at link time: loop, clock and
 * cloud (tests/lib/sim), store (disk.c), the kernel's answers about processes (procs.c).
 *
 * A crash is placed at a seam: from that call on the rest of the step has no effect (nothing is sent,
 * stored or answered), then the memory is dropped and the next run opens what the disk kept.
 */
#ifndef AB_TESTS_SIM_SIM_H
/* The head of a call. */
#define CALL(...) (&(struct sandbox_call){ __VA_ARGS__ })

#define AB_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/auth/principal.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/row.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/rng.h"
#include "tests/lib/sim/fake.h"

struct cloud;
struct loop;
struct store;

#define SIM_PROCS	6u
#define SIM_UIDS	2u
#define SIM_REQUESTS	12u
#define SIM_NAMES	3u
#define SIM_LEASES	400u
#define SIM_WANTS	64u
#define SIM_POLICIES	6u
#define SIM_POSTS	1400u
#define SIM_COPIES	200u
#define SIM_CHILDREN	3u
#define SIM_ENTRIES	2u

/* How bad this world is, beside its cloud: chances in 1000. */
struct sim_faults {
	unsigned store_fails;
	unsigned outage;	/* at each pause of the clients: the cloud goes away */
	unsigned hang;		/* … or our own loop does */
	unsigned claims_fail;	/* no room for the line of a claim */
	unsigned prepare_fails;
	unsigned agents_away;	/* at each pause of the clients: no agent answers for a while */
};

/* What is known of one that an entry [warm] made. */
struct sim_warm {
	bool made;			/* it is such a one, and no child of one */
	unsigned entry;
	bool claimed;			/* the newest row says so */
	bool claim_kept;		/* … and survives a crash */
	bool quarantined;
	bool told, unrecorded;		/* a Create was answered with it; its line of STATE/claims was lost */
	uid_t uid;			/* of the claim */
	char name[16];
	unsigned request;		/* of the Create that was told; SIM_REQUESTS = without an id */
	uint64_t ready_at_ms;
	bool is_ready_told;		/* it became ready when the cloud had said what time it is */
};

struct sim_sandbox {			/* what our clients know of a sandbox, and asked for */
	struct fake_sandbox *real;		/* what it is */
	bool foreign;
	bool acked, kill_asked, kill_acked, was_leased;
	bool created, lease_asked;	/* a Create answered with it; somebody asked for a lease on it */
	unsigned request;		/* … of that Create */
	uint64_t maybe_of[SIM_PROCS];	/* a process (its start) that may hold a lease it was not told of */
	unsigned sets_open, connects_open;	/* calls of users under way */
	struct policy may[SIM_POLICIES];	/* its policy is one of these */
	unsigned n_may, policy_calls;
	uint64_t policy_since_ms, pause_asked_ms;
	uint64_t released_at_ms;	/* the first end of a lease since the last was taken */
	unsigned commands;
	uint64_t seen_alive_ms;		/* a GET of this run said so; 0 = none */
	unsigned end_sent_run;		/* that sent a DELETE by itself */
	const struct sim_copy *of;	/* a child of this fork */
	bool old;			/* made before the database was lost; only its tag says whose it is */
	bool orphan;			/* … and lists may hide it, or it shows up later */
	struct sim_warm warm;
};

/* A fork or a snapshot that a client asks for. In the cloud it is known by a timeout, or a name, that
 * no other has. */
struct sim_copy {
	bool fork;
	uid_t uid;
	unsigned request;		/* SIM_REQUESTS = without an id */
	unsigned count;
	uint32_t timeout_s;
	char name[16];
	struct policy policy;		/* of the children */
	bool accepted;
	char shown[SIM_CHILDREN][32];	/* what its answers said */
};

struct sim_snap {
	struct fake_snapshot *real;
	bool acked, delete_asked;
};

struct sim_proc {
	pid_t pid;
	uint64_t start_time, conn;
	uid_t uid;
	int fd;				/* an eventfd: readable when it has died */
	bool alive;
};

struct sim_lease {
	char id[32];			/* "" = of Create or ConnectSandbox */
	struct sim_sandbox *sandbox;
	enum sandbox_lease_kind kind;
	unsigned proc;
	uint64_t proc_start;
	uint64_t ends_at_ms;		/* TTL, true time: it surely counts until then */
	struct sandbox_held *held;
	unsigned run;			/* in which it was taken */
	bool over;
};

enum sim_ask { SIM_ASKS_NOTHING, SIM_ASKS_CREATE, SIM_ASKS_CONNECT, SIM_ASKS_KILL, SIM_ASKS_TIMEOUT,
	       SIM_ASKS_POLICY, SIM_ASKS_ACQUIRE, SIM_ASKS_RENEW, SIM_ASKS_RELEASE, SIM_ASKS_GET,
	       SIM_ASKS_LIST, SIM_ASKS_PAUSE, SIM_ASKS_FORK, SIM_ASKS_SNAPSHOT, SIM_ASKS_SNAPSHOTS,
	       SIM_ASKS_SNAPSHOT_DELETE };

struct sim_want {			/* a client's call */
	struct sandbox_op *op;
	enum sim_ask what;		/* NOTHING = free */
	unsigned proc, request, serial;
	struct sim_sandbox *sandbox;		/* by id; NULL by name */
	uint64_t began_ms, deadline_ms, ttl_ms;
	enum sandbox_lease_kind kind;
	bool process_lease;
	enum sandbox_warm_mode warm;	/* of a Create, with what its sandbox must be like */
	char env[32], name[16];
	char lease[32], ref[64];
	struct policy_change policy;
	struct sim_copy *copy;
};

/* An entry of the configuration as it is now, and what it did. */
struct sim_entry {
	bool present;
	char name[8], env[32];
	unsigned size, burst, per_hour;
	uint64_t max_age_ms, ready_timeout_ms, active_ms;
	uint32_t timeout_s;
	bool prepares, one_uid;
	unsigned in_flight;		/* POSTs of this run */
	uint64_t hour_at_ms;		/* wall: since the first POST of it */
	unsigned made;
};

struct sim_post {
	char tag[40];
	bool open, maybe;		/* without an answer; perhaps accepted */
	bool old;			/* of before the database was lost */
};

struct world {
	uint64_t seed;
	struct rng rng, sys_rng, wall_rng;
	struct sim_faults faults;
	bool quiet;			/* faults have stopped */
	bool losses;			/* sandboxes with a name vanish */
	bool no_crash, step_wall;	/* of the comparison of two runs */
	bool warm;			/* there are entries [warm] */
	bool warm_full;			/* no more is made: the ledger is nearly full */

	uint64_t hung_at_ms;
	char boot_id[40];

	/* the run of the daemon under way */
	struct loop *loop;
	struct store *store;
	struct cloud *cloud;
	struct sandbox_core *core;
	unsigned run_no;
	uint64_t run_began_ms;
	long crash_in;			/* seam calls until then */
	const char *crash_at;		/* … or the next so many of this one; NULL = any */
	bool store_failed;		/* a commit was refused in this world */
	unsigned lost_run;		/* after which the database was lost; 0 = never */
	uint64_t restart_grace_ms, horizon_ms, unclaimed_grace_ms;
	unsigned sweeps;		/* of this run */
	uint32_t max_sandboxes;		/* of the account; 0 = no bound */
	bool clock_told;		/* the cloud's, in this run */

	struct fake *fake;
	struct sim_sandbox sandboxes[FAKE_SANDBOXES];	/* of the same index there */
	struct sim_sandbox *hot;		/* that the last call was about */
	struct sim_post posts[SIM_POSTS];
	unsigned n_posts;
	struct sim_copy copies[SIM_COPIES];
	unsigned n_copies;
	struct sim_snap snaps[FAKE_SNAPSHOTS];
	struct sim_entry entries[SIM_ENTRIES];

	struct sim_proc procs[SIM_PROCS];
	struct sim_lease leases[SIM_LEASES];
	unsigned n_leases;
	struct sim_want wants[SIM_WANTS];
	unsigned serial;
	char shown[SIM_UIDS][SIM_REQUESTS][32];
	bool lease_asked[SIM_UIDS][SIM_REQUESTS];	/* by a Create with this request id */
	uint64_t next_start_time, next_conn;
	pid_t next_pid;

	unsigned long cycles, answers, recreated, claims, quarantined, given_back;
};

extern struct world *W;

/* --- main.c --- */

extern bool sim_trace_on;
/* sim_trace() keeps the last lines; sim_fail() shows them, and how to see it again. */
void sim_action(const struct fake_request *q);
bool sim_chance(struct rng *r, unsigned of_1000);
uint64_t sim_between(struct rng *r, uint64_t lo, uint64_t hi);

/* --- procs.c: nothing that is called by name --- */

/* --- disk.c --- */

struct disk_counts {
	unsigned intents, sandboxes;
};
enum disk_loss {
	DISK_KILL,	/* kill -9: what was committed stays */
	DISK_POWER,	/* … and only what was synced, or a bit more */
	DISK_STOP,	/* everything was written */
};
void disk_reset(uint64_t seed);
void disk_lose(void);
struct store *disk_open(void);
struct store *disk_close(struct store *s, enum disk_loss loss);
const char *disk_host(void);
const struct row_sandbox *disk_sandbox(const char *id);
const struct row_lease *disk_lease(const char *id);
const struct row_snapshot *disk_snapshot(const char *id);
void disk_count(struct disk_counts *ret);
void disk_each_sandbox(void (*fn)(const struct row_sandbox *r));

/* --- copies.c --- */

struct sim_sandbox *ledger_sandbox(const struct fake_sandbox *real);
struct sim_sandbox *ledger_find(const char *id);	/* alive or dead */
void ledger_made(const struct fake_request *q, struct fake_sandbox *real,
		 const struct fake_sandbox *parent);
struct sim_copy *snap_copy(const struct sim_snap *s);
struct sim_copy *copy_by_timeout(uint32_t timeout_s);
struct sim_copy *copy_by_name(const char *name);
const char *copy_key(const struct sim_copy *c);
/* A client asks for one. */
void act_fork(unsigned proc);
void act_snapshot(unsigned proc);
void act_snapshots(unsigned proc);

/* The line of STATE/claims; NULL = there is none. */
const struct store_claim *disk_claim(const char *id);
void disk_lose_claims(void);
const struct row_warm *disk_warm(const char *name);

/* --- warm.c: entries [warm], and what must be so of what they make --- */

void warm_begin(void);			/* a world's entries */
void warm_rules(struct sandbox_core_rules *ret);	/* as they are configured now */
void warm_change(void);			/* another configuration; the caller hands it over */
void warm_act(void);			/* a reload, a set, a retry */
void warm_pause(void);			/* with a pause of the clients: agents go and come */
struct sandbox_preparer warm_preparer(void);
void warm_crash_point(void);		/* at times the next crash is at a step of theirs */
/* Whose it is, and its name: "" = nobody's, none. */
const char *ledger_uid(const struct sim_sandbox *b);
const char *ledger_name(const struct sim_sandbox *b);
bool warm_is_unclaimed(const struct sim_sandbox *b);
bool warm_may_end(const struct sim_sandbox *b);	/* without a policy that says so */
/* What a Create asks for. */
void warm_ask(struct sim_want *c, struct rng *same, struct sandbox_create *q);
/* What the daemon does: */
void warm_made_one(const struct fake_request *q, struct sim_sandbox *b);
void warm_row(const struct row_sandbox *r);	/* it is handed to the store */
void warm_told(const struct sim_want *c, struct sim_sandbox *b, const struct sandbox_view *v);
void warm_request(const struct fake_request *q);
void warm_request_over(const struct fake_request *q);
/* After a crash; after the loss of the database, before the next start; at rest, and when nobody wants one any more. */
void warm_after_crash(void);
void warm_lose_store(bool claims_too);
void warm_check_rest(void);
void warm_release(void);
void warm_check_released(void);

/* --- clients.c --- */

struct sim_want *want_begin(enum sim_ask what, unsigned proc);
void want_done(struct sim_want *c);
/* It is about a sandbox of its user, by id or by name. False: there is none. */
bool want_aim(struct sim_want *c, bool by_name);
/* False: nobody hears the answer. */
bool want_hears(struct sim_want *c, const struct status *st);
struct principal principal_of(unsigned proc);
struct policy_change some_policy(struct rng *r);

void clients_start(void);
void clients_act(void);		/* one of them does something */
void clients_forget_calls(void);	/* the daemon is gone: no answer comes */
void clients_close_streams(bool keep);	/* before a stop */
void clients_lose_store(void);	/* what they were told is forgotten, but for what tags say */
void clients_reboot(void);
void clients_exchange(void);
void clients_end_commands(void);
bool lease_counts(const struct sim_lease *x);
void proc_die(unsigned i);

/* --- check.c --- */

/* Nothing that the daemon could look at says that it was made. */
bool is_forgotten(const struct sim_sandbox *b);
void check_accepted(struct sim_sandbox *b);
extern const struct fake_observer check_observer;
void check_disk(void);		/* after a crash, before the next run */
void check_quiet(void);		/* nothing is under way, faults are over */
void check_released(void);	/* … while streams still hold theirs */
/* While it is quiet: */
void check_kept_alive(void);
void check_known(uint64_t quiet_since_ms);

#endif
