/* SPDX-License-Identifier: MIT */
/*
 * The sandboxes there are: their lives, their clocks, who they belong to, and the snapshots made of
 * them. The only code that makes, stops and destroys engine.
 *
 *   creating → running ⇄ snapshotting            paused with memory: the container is there, frozen
 *              running → pausing → paused → resuming → running
 *   any → killing                                paused without: only its files are, as a layer
 *
 * A transition has one that began it and others that wait; who waits looks again when it is over. A
 * sandbox that is being killed or paused answers nobody: its traffic is cut when that begins, so an
 * exit that nobody caused is never reported as one.
 */
#ifndef AB_DAEMON_LOCAL_STATE_STATE_H
#define AB_DAEMON_LOCAL_STATE_STATE_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/http/route.h"
#include "daemon/local/engine/container.h"
#include "daemon/local/state/event_log.h"
#include "daemon/local/state/meter.h"
#include "daemon/local/state/sign.h"
#include "daemon/local/state/template.h"
#include "proto/base/list.h"

#define STATE_ENVD_VERSION "0.6.13"
#define STATE_CLIENT_ID	   "6532622b"
#define STATE_RESUME_MIN_S 300u		/* a sandbox woken by traffic lives at least this long */

struct egress;
struct envd_inside;
struct envd_serve;
struct egress_host;
struct journal;
struct sandbox;
struct state;

struct state_options {
	struct loop *loop;
	struct engine *engine;
	struct journal *journal;
	const char *dir;		/* what outlives us is noted there (saved_state.c) */
	uint8_t seed[SIGN_SEED_BYTES];
	uint32_t max_sandboxes;		/* of a team, running ones */
	uint32_t max_length_s;		/* from start to the latest possible end */
	uint64_t memory_bytes;		/* of a sandbox */
	uint32_t cpus;
	struct egress_host *egress;	/* used if the engine's sandboxes have a way out */
	const struct container_template *templates;	/* beside "base" */
	const struct template_run *runs;		/* theirs, in the same order; NULL = none has one */
	size_t n_templates;
	/* It runs from now on, again or for the first time. */
	void (*on_start)(struct sandbox *s, void *user);
	/* It is new, and its template has a template_run: answered with sandbox_served(), not from inside this call,
	 * unless on_stop comes before, or it returns -errno. */
	int (*serve)(struct sandbox *s, void *user);
	/* Its processes are gone for good, or about to be: they are to be let go of. */
	void (*on_stop)(struct sandbox *s);
	/* It goes on after having stood still for that long. */
	void (*on_thaw)(struct sandbox *s, uint64_t stood_ms);
	/* The number of sandboxes that need this process changed. */
	void (*on_count)(void *user);
	void *user;
};

enum sandbox_state {
	SANDBOX_CREATING,
	SANDBOX_RUNNING,
	SANDBOX_SNAPSHOTTING,
	SANDBOX_PAUSING,
	SANDBOX_PAUSED,
	SANDBOX_RESUMING,
	SANDBOX_KILLING,
};

/* An exchange with a port of a sandbox. `cut` ends it (and takes it off the list). */
struct traffic {
	struct list node;
	void (*cut)(struct traffic *t);
};

/* Called once; the node is off the list then. list_del() before that forgets it. */
struct sandbox_wait {
	struct list node;
	void (*done)(struct sandbox_wait *w);
};

typedef void sandbox_created_fn(void *user, struct sandbox *s, int r, const char *why);
typedef void sandbox_saved_fn(void *user, int r, const char *why);

/* What the caller decided at the creation. Forks inherit it. */
struct sandbox_policy {
	bool secure;
	bool has_internet, internet;	/* what was asked for */
	bool auto_pause, auto_pause_memory, auto_resume;
	bool is_private;		/* ports need the traffic token */
	bool is_blocked;		/* only what allowOut says may go out */
};

struct sandbox {
	uint32_t magic;
	struct state *st;
	enum sandbox_state state;
	char id[ROUTE_ID_MAX + 1];
	const char *team;
	struct template *template;
	char root[CONTAINER_ID_MAX + 1];	/* the engine's template */
	const struct template_run *run;		/* that one's; never NULL */
	bool is_served;				/* it runs for its own start command: its creation is not answered yet */
	struct container *container;		/* NULL while only its files are there */
	char layer[CONTAINER_ID_MAX + 1];	/* those, or what it is being made from; "" = none */
	struct cloud_kvs metadata, env_vars;
	struct cloud_network *network;	/* NULL = nothing was asked for */
	struct sandbox_policy policy;
	char token[65];			/* of the agent; "" unless secure */
	char traffic_token[65];		/* "" unless private */
	int64_t started_us, end_us;	/* wall clock, for display */
	uint64_t started_ms, end_ms;	/* BOOTTIME */
	uint64_t paused_ms;		/* when it began to stand still */
	uint32_t timeout_s;		/* of the creation */
	struct timer expiry, sample;
	uint64_t cpu_us, cpu_asked_us;	/* of the last GET /metrics of the agent */
	struct meter meter;
	struct event_log event_log;
	struct egress *egress;		/* NULL: it has no way out */
	struct list traffic;
	struct list procs;		/* of envd_process.c */
	struct list watchers;		/* of envd_watch.c */
	struct envd_inside *inside;	/* of envd_inside.c */
	struct envd_serve *serve;	/* of envd_serve.c; while is_served */
	const char *why;		/* it is being killed */
	int resume_r;			/* how the last resumption went */
	uint32_t resume_for_s;
	struct snap_op *snap;		/* SANDBOX_SNAPSHOTTING */
	struct list waits;		/* for the end of a transition */
	struct list kill_waits;		/* for the end of it all */
	sandbox_created_fn *created;
	void *created_user;
	struct defer gone;
};

struct sandbox_params {
	const char *team;
	struct template *template;
	const char *root;
	const char *layer;		/* files to begin with; NULL = the template's own */
	uint32_t timeout_s;
	struct sandbox_policy policy;
	struct cloud_kvs metadata, env_vars;	/* borrowed, like all of it */
	const struct cloud_network *network;	/* NULL = none */
};

must_check int state_new(const struct state_options *o, struct state **ret);
struct state *state_free(struct state *st);	/* all sandboxes must be gone */

const struct state_options *state_opts(const struct state *st);
struct templates *state_templates(const struct state *st);
size_t state_count(const struct state *st);
/* Those that would be lost with this process. */
size_t state_count_bound(const struct state *st);
/* That count against the team's limit. */
uint32_t state_count_team(const struct state *st, const char *team);
/* In any state; NULL for none. */
struct sandbox *state_find(const struct state *st, const char *id);
/* Walks all in no order; *pos = 0 to begin, NULL at the end. */
struct sandbox *state_next(const struct state *st, size_t *pos);
/* Kills all that would not survive; `done` when none is left (at once if there is none). */
void state_kill_all(struct state *st, const char *why, void (*done)(void *user), void *user);

#define STATE_FULL 1	/* the team has as many as it may */

/* 0: `created` will be called once, with r < 0 if it came to nothing (`s` is gone then). */
must_check int sandbox_create(struct state *st, const struct sandbox_params *p,
			      sandbox_created_fn *created, void *user);
/* Its start command runs and it is ready, or (r < 0) never will be: the sandbox is killed then. */
void sandbox_served(struct sandbox *s, int r, const char *why);
/* Puts one back that was paused in an earlier life. */
must_check int sandbox_restore(struct state *st, const char *id, const struct sandbox_params *p,
			       struct sandbox **ret);
/* Begins or joins, in any state; `w` may be NULL. */
void sandbox_kill(struct sandbox *s, const char *why, struct sandbox_wait *w);
/* Until the transition that is going on is over; the sandbox may be gone then. */
void sandbox_wait(struct sandbox *s, struct sandbox_wait *w);
/* Ends `for_ms` from now, or at the maximum length. */
void sandbox_set_timeout(struct sandbox *s, uint64_t for_ms);
/* The same, unless it already ends later. */
void sandbox_extend(struct sandbox *s, uint64_t for_ms);
void sandbox_traffic_add(struct sandbox *s, struct traffic *t, void (*cut)(struct traffic *t));

/* Replaces what it may reach. -errno: nothing has changed. */
must_check int sandbox_set_network(struct sandbox *s, const struct cloud_network *network, bool is_blocked);

/* --- lifecycle.c --- */

/* A running one; wait for it. One that cannot be paused is gone then. */
void sandbox_pause(struct sandbox *s, bool memory);
/* A paused one; wait for it. One that cannot be resumed is paused again, resume_r says why. Without
 * `memory` it starts anew from its files. STATE_FULL. */
must_check int sandbox_resume(struct sandbox *s, uint32_t for_s, bool memory);
/* Has no memory any more, or only files: a resumption is a cold start. */
static inline bool sandbox_is_cold(const struct sandbox *s)
{
	return !s->container;
}
/* A running one: copies its files to a new layer. `done` comes once, also when the sandbox dies. */
must_check int sandbox_save(struct sandbox *s, const char *layer, sandbox_saved_fn *done, void *user);

/* The sandbox is about to be freed. */
void sandbox_save_orphan(struct snap_op *op);

/* --- state.c, for lifecycle.c and saved_state.c --- */

void sandbox_set_state(struct sandbox *s, enum sandbox_state to);
/* A transition is over: whoever waits looks again. */
void sandbox_transition_done(struct sandbox *s);
/* It runs from now on. */
void sandbox_begin(struct sandbox *s, uint32_t for_s);
void sandbox_cut_traffic(struct sandbox *s);
/* It, or all it was, ends. */
void sandbox_close_egress(struct sandbox *s);
/* Leaves the table, without a trace of its own. */
void sandbox_forget(struct sandbox *s);
bool state_is_stopping(const struct state *st);
/* Records of saved_state.c that have no place now; an array, borrowed. */
json_t *state_strangers(const struct state *st);
/* A sandbox's or a snapshot's files are not needed any more: they go, at the latest when nothing is
 * being made from them. */
void state_drop_layer(struct state *st, const char *layer);

#endif
