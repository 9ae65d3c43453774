/* SPDX-License-Identifier: MIT */
/*
 * The sandboxes there are: their lives (creating → running → killing), their clocks, who they belong
 * to. The only code that makes and destroys boxes.
 *
 * A sandbox that is being killed answers nobody: its traffic is cut when the killing begins, so an
 * exit that nobody caused is never reported as one.
 */
#ifndef AB_DAEMON_LOCAL_STATE_H
#define AB_DAEMON_LOCAL_STATE_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/ev/loop.h"
#include "daemon/local/box.h"
#include "daemon/local/route.h"
#include "daemon/local/sign.h"
#include "proto/base/list.h"

#define STATE_ENVD_VERSION  "0.6.13"
#define STATE_CLIENT_ID	    "6532622b"
#define STATE_TEMPLATES_MAX 32u

struct journal;
struct sbox;
struct state;

struct state_template {
	char name[64];
	char id[24];
};

struct state_options {
	struct loop *loop;
	struct boxes *boxes;
	struct journal *journal;
	uint8_t seed[SIGN_SEED_BYTES];
	uint32_t max_sandboxes;		/* of a team */
	uint32_t max_length_s;		/* from start to the latest possible end */
	uint64_t memory_bytes;		/* of a sandbox */
	uint32_t cpus;
	const char *const *templates;	/* names, beside "base" */
	size_t n_templates;
	/* A sandbox stops: its processes are to be let go of. */
	void (*on_stop)(struct sbox *s);
	/* The number of sandboxes changed. */
	void (*on_count)(void *user);
	void *user;
};

enum sbox_state {
	SBOX_CREATING,
	SBOX_RUNNING,
	SBOX_KILLING,
};

/* An exchange with a port of a sandbox. `cut` ends it (and takes it off the list). */
struct traffic {
	struct list node;
	void (*cut)(struct traffic *t);
};

struct kill_wait {
	struct list node;
	void (*done)(struct kill_wait *w);
};

typedef void sbox_created_fn(void *user, struct sbox *s, int r, const char *why);

struct sbox {
	uint32_t magic;
	struct state *st;
	enum sbox_state state;
	char id[ROUTE_ID_MAX + 1];
	const char *team;
	const struct state_template *template;
	struct box *box;
	json_t *metadata, *env_vars;	/* objects; never NULL */
	bool secure;
	bool has_internet, internet;	/* what was asked for */
	char token[65];			/* of the agent; "" unless secure */
	int64_t started_us, end_us;	/* wall clock, for display */
	uint64_t started_ms, end_ms;	/* BOOTTIME */
	uint32_t timeout_s;
	struct timer expiry;
	uint64_t cpu_us, cpu_asked_us;	/* of the last GET /metrics */
	struct list traffic;
	struct list procs;		/* of envd_process.c */
	const char *why;		/* it is being killed */
	struct list kill_waits;
	sbox_created_fn *created;
	void *created_user;
};

struct sbox_params {
	const char *team;
	const struct state_template *template;
	uint32_t timeout_s;
	bool secure, has_internet, internet;
	json_t *metadata, *env_vars;	/* borrowed; NULL = empty */
};

must_check int state_new(const struct state_options *o, struct state **ret);
struct state *state_free(struct state *st);	/* all sandboxes must be gone */

const struct state_options *state_opts(const struct state *st);
/* By name or id; NULL for none. */
const struct state_template *state_template(const struct state *st, const char *name_or_id);
size_t state_count(const struct state *st);
/* In any state; NULL for none. */
struct sbox *state_find(const struct state *st, const char *id);
/* Walks all in no order; *pos = 0 to begin, NULL at the end. */
struct sbox *state_next(const struct state *st, size_t *pos);
/* Kills all; `done` when none is left (at once if there is none). */
void state_kill_all(struct state *st, const char *why, void (*done)(void *user), void *user);

#define STATE_FULL 1	/* the team has as many as it may */

/* 0: `created` will be called once, with r < 0 if it came to nothing (`s` is gone then). */
must_check int sbox_create(struct state *st, const struct sbox_params *p, sbox_created_fn *created,
			   void *user, struct sbox **ret);
void sbox_uncreated(struct sbox *s);	/* `created` is not to be called any more */
/* Begins or joins; `w` may be NULL. */
void sbox_kill(struct sbox *s, const char *why, struct kill_wait *w);
/* Ends `for_ms` from now, or at the maximum length. */
void sbox_set_timeout(struct sbox *s, uint64_t for_ms);
/* The same, unless it already ends later. */
void sbox_extend(struct sbox *s, uint64_t for_ms);
void sbox_traffic_add(struct sbox *s, struct traffic *t, void (*cut)(struct traffic *t));

#endif
