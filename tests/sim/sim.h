/* SPDX-License-Identifier: MIT */
/*
 * A simulated host: the real daemon/sandbox under scripted clients and a scripted cloud, in one thread,
 * everything drawn from one 64-bit seed. The seams of lifecycle are replaced at link time: loop and
 * clock (loop.c), store (disk.c), cloud (cloud.c). Nothing here waits: time is a number.
 *
 * A crash is placed at a seam: from that call on the rest of the step has no effect (nothing is sent,
 * stored or answered), then the memory is dropped and the next life opens what the disk kept.
 */
#ifndef AB_TESTS_SIM_SIM_H
#define AB_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/auth/principal.h"
#include "daemon/cloud/cloud.h"
#include "daemon/cloud/model.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/row.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/rng.h"

struct cloud;
struct loop;
struct store;

#define SIM_BOXES	600u
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
#define SIM_SNAPS	200u

/* How bad this world is: chances in 1000. */
struct sim_faults {
	unsigned unsent, lost_before, lost_after, late, err_before, err_after, refused, limited, stall, twice;
	unsigned list_omit, list_empty, list_lag;
	unsigned store_fails;
	unsigned outage;	/* at each pause of the clients: the cloud goes away */
	unsigned hang;		/* … or our own loop does */
};

struct sim_sandbox {		/* the cloud's ledger, and what our clients know of it */
	char id[32];
	struct cloud_kvs tags;
	bool alive, paused, foreign;
	uint64_t listed_at_ms, died_at_ms, touched_at_ms;	/* true time */
	int64_t started_at_ms, end_at_ms;	/* the cloud's clock */
	uint32_t timeout_s;
	const char *how;		/* it died */
	/* what was asked for */
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
	uint64_t seen_alive_ms;		/* a GET of this life said so; 0 = none */
	unsigned end_sent_life;		/* that sent a DELETE by itself */
	const struct sim_copy *of;	/* a child of this fork */
	uint64_t busy_until_ms;		/* it is being copied: in no list */
	bool old;			/* made before the database was lost; only its tag says whose it is */
	bool orphan;			/* … and lists may hide it, or it shows up later */
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
	char id[32], source[32];
	const struct sim_copy *of;
	bool alive, acked, delete_asked;
};

struct sim_proc {
	pid_t pid;
	uint64_t start_time, conn;
	uid_t uid;
	int fd;				/* an eventfd: readable when it has died */
	bool alive;
};

struct sim_lease {
	char id[32];			/* "" = of Create or Connect */
	struct sim_sandbox *sandbox;
	enum sandbox_lease_kind kind;
	unsigned proc;
	uint64_t proc_start;
	uint64_t ends_at_ms;		/* TTL, true time: it surely counts until then */
	struct sandbox_held *held;
	unsigned core;			/* in which it was taken */
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
	char lease[32], ref[64];
	struct policy_change policy;
	struct sim_copy *copy;
};

struct sim_post {
	char tag[40];
	bool open, maybe;		/* without an answer; perhaps accepted */
	bool old;			/* of before the database was lost */
};

struct world {
	uint64_t seed;
	struct rng rng, cloud_rng, sys_rng, wall_rng;
	struct sim_faults faults;
	bool quiet;			/* faults have stopped */
	bool ending;			/* events only free what is theirs */
	bool losses;			/* sandboxes with a name vanish */
	bool no_crash, transition_wall;	/* of the comparison of two runs */

	/* time: true ms since the world began */
	uint64_t now_ms, boot_base_ms, hung_at_ms;
	int64_t wall_offset_ms, cloud_offset_ms;
	uint64_t cloud_down_until_ms;
	char boot_id[40];

	/* the life under way */
	struct loop *loop;
	struct store *store;
	struct cloud *cloud;
	struct sandbox_core *core;
	unsigned sandbox_no;
	uint64_t sandbox_began_ms;
	bool dead;			/* crashed in this step: nothing has an effect any more */
	long crash_in;			/* seam calls until then */
	bool store_failed;		/* a commit was refused in this world */
	unsigned lost_life;		/* after which the database was lost; 0 = never */
	uint64_t restart_grace_ms, horizon_ms, unclaimed_grace_ms;
	unsigned sweeps;		/* of this life */

	struct sim_sandbox sandboxes[SIM_BOXES];
	unsigned n_sandboxes;
	struct sim_sandbox *hot;		/* that the last call was about */
	uint32_t cap_s;			/* of an age; 0 = none */
	struct sim_post posts[SIM_POSTS];
	unsigned n_posts;
	struct sim_copy copies[SIM_COPIES];
	unsigned n_copies;
	struct sim_snap snaps[SIM_SNAPS];
	unsigned n_snaps;

	struct sim_proc procs[SIM_PROCS];
	struct sim_lease leases[SIM_LEASES];
	unsigned n_leases;
	struct sim_want wants[SIM_WANTS];
	unsigned serial;
	char shown[SIM_UIDS][SIM_REQUESTS][32];
	bool lease_asked[SIM_UIDS][SIM_REQUESTS];	/* by a Create with this request id */
	uint64_t next_start_time, next_conn;
	pid_t next_pid;

	unsigned long steps, cycles, answers, idle_steps, recreated;
	uint64_t stepped_ms;
};

extern struct world *W;

/* --- main.c --- */

extern bool sim_trace_on;
void sim_trace(const char *fmt, ...) printf_like(1, 2);
/* An invariant is broken: says so with the last steps and how to see it again; ends the program. */
void sim_fail(const char *invariant, const char *fmt, ...) printf_like(2, 3) __attribute__((noreturn));
void sim_action(const char *what, const char *id, uint32_t timeout_s);
/* A place where a crash may fall. True: it has fallen. */
bool sim_seam(const char *name);
bool sim_chance(struct rng *r, unsigned of_1000);
uint64_t sim_between(struct rng *r, uint64_t lo, uint64_t hi);

/* In place of SHA-256. */
void sim_hash(const void *p, size_t n, uint8_t ret[32]);

/* --- loop.c --- */

typedef void sim_event_fn(void *arg);
/* Something outside of the daemon happens at a moment of true time; in the order it was planned. */
void sim_at(uint64_t at_ms, sim_event_fn *fn, void *arg);
/* The next thing that happens, not after until_ms. False: nothing does; the clock is there. */
bool sim_step(uint64_t until_ms);
void sim_events_drop(void);
uint64_t sim_boot_now(void);

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

/* --- cloud.c --- */

struct cloud *sim_cloud_new(void);
struct cloud *sim_cloud_free(struct cloud *c);
struct sim_sandbox *ledger_find(const char *id);	/* alive or dead */
struct sim_sandbox *ledger_plant(const char *host);
struct sim_sandbox *ledger_add(uint32_t timeout_s);
struct cloud_sandbox *ledger_view(const struct sim_sandbox *b, bool tokens, bool listed);
void ledger_end(struct sim_sandbox *b, const char *how);
void ledger_expire(void);
int64_t ledger_now(void);			/* the cloud's clock */

/* --- copies.c --- */

struct sim_snap *ledger_snapshot_find(const char *id);
void ledger_fork(struct sim_sandbox *parent, const struct sim_copy *of, struct cloud_result *r);
void ledger_snapshot(const struct sim_sandbox *source, const struct sim_copy *of,
		     struct cloud_result *r);
/* source, name: NULL or "" = any */
void ledger_snapshots(const char *source, const char *name, struct cloud_result *r);
struct sim_copy *copy_by_timeout(uint32_t timeout_s);
struct sim_copy *copy_by_name(const char *name);
const char *copy_key(const struct sim_copy *c);
/* A client asks for one. */
void act_fork(unsigned proc);
void act_snapshot(unsigned proc);
void act_snapshots(unsigned proc);

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
void check_create_sent(const char *tag);
void check_create_done(const char *tag, bool maybe);
void check_accepted(const struct sim_sandbox *b);
void check_copied(struct sim_copy *c);
void check_snapshot_deleted(const char *id);
void check_end_sent(struct sim_sandbox *b, bool pause);
void check_timeout_sent(const struct sim_sandbox *b);
void check_connect_sent(const struct sim_sandbox *b);
void check_disk(void);		/* after a crash, before the next life */
void check_quiet(void);		/* nothing is under way, faults are over */
void check_released(void);	/* … while streams still hold theirs */
/* While it is quiet: */
void check_kept_alive(void);
void check_known(uint64_t quiet_since_ms);

#endif
