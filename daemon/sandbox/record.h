/* SPDX-License-Identifier: MIT */
/*
 * One sandbox: what is known of it, and the state machine. sandbox_set_state() is the one writer of its
 * state. A sandbox is owned by the table of the core (core.h) from core_insert() on.
 */
#ifndef AB_DAEMON_SANDBOX_RECORD_H
#define AB_DAEMON_SANDBOX_RECORD_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/index.h"
#include "daemon/sandbox/recipe.h"
#include "daemon/sandbox/rules/pairs.h"
#include "daemon/sandbox/rules/warm.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/row.h"
#include "proto/base/list.h"

struct account;
struct cloud_sandbox;
struct fetch;
struct killing;
struct transition;
struct warm_box;
struct warm_claim;

/* The last series that was asked for. */
struct sandbox_series {
	struct cloud_metrics *m;	/* NULL = none */
	int64_t start_s, end_s;		/* of the question; 0 = not said */
	uint64_t fresh_at_ms;		/* BOOTTIME */
	int64_t as_of_ms;		/* wall */
};

#define SANDBOX_MAGIC    0x426f7821u
#define USED_SAVE_MS 60000	/* uses nearer than this to the row's are not written */

struct sandbox {
	uint32_t magic;
	struct list node;		/* in core->sandboxes */
	struct index_node index;
	struct account *account;
	char *id, *name;		/* name: what its owner called it; see named */
	bool named;			/* holds the name now */
	uid_t uid;			/* once it is in the table, index_set_owner() changes it */
	uint32_t generation;
	enum sandbox_state state;
	bool ours, adopted, claimed;
	bool claim_unsaved;		/* the row may not say yet that it is claimed */
	int64_t unclaimed_at_ms;
	uint64_t seq;
	char *req_tag;

	char *template_id, *alias, *envd_version, *domain, *warning;
	char *access_token, *traffic_token;
	bool token_known;
	bool detail_known;		/* a get was read in this run: what lists and creates do not say is there */
	struct pairs metadata;
	int64_t started_at_ms, end_at_ms;
	uint32_t cpu_count, memory_mb, disk_size_mb;
	enum tri allow_internet_access;
	struct cloud_lifecycle lifecycle;
	struct policy policy;
	uint32_t timeout_s;		/* what its user last asked for; 0 = unknown */

	struct list leases;		/* those that count, by number: lease.sandbox_node */
	uint32_t n_leases, n_commands;
	/* BOOTTIME, 0 = never; negative where it was before the boot */
	int64_t released_at_ms, used_at_ms, command_ended_at_ms, unclaimed_boot_ms;
	int64_t used_saved_ms;		/* the use that the row knows of */
	struct runner *runner;
	char *ended_by;			/* the rule that kills it; "" = its owner does, or nobody */

	int64_t as_of_ms;		/* wall, for people */
	uint64_t fresh_at_ms;		/* BOOTTIME of the last word; 0 = none since the start */
	bool unreachable;		/* the last question about it was not answered */
	enum ab_reason gone_reason;
	int64_t gone_at_ms;
	char *gone_evidence;

	struct fetch *fetch;		/* a question under way */
	struct killing *killing;
	struct list ties;		/* struct sandbox_tie: what ends with it */
	struct list untold;		/* in core->untold: it is gone, and its ties have not heard yet */
	uint64_t untold_number;		/* … until events are committed up to this one */
	struct list turns;		/* turn.h */
	struct defer turn_kick;
	bool turn_ready;
	bool changing;			/* who has the turn sets the state, nobody else */
	uint64_t moved_at_ms;		/* BOOTTIME of the end of the last change; 0 = none */
	int64_t resumed_at_ms;		/* by us, on the cloud's clock; 0 = not by this daemon */
	struct transition *transition;		/* the pause or resume that waits last, or is under way */
	struct cloud_network *network;	/* NULL = none known */
	char *network_text;		/* for its row */
	struct sandbox_series metrics;
	struct recipe recipe;		/* to make it again; none without on_gone=recreate */
	char *replaces;			/* the one that vanished; "" = none */
	/* warm.h; "", NONE and zeros for what a Create made */
	char *warm;			/* the entry that made it */
	enum warm_state warm_state;
	uint8_t warm_print[ROW_HASH_BYTES];	/* of that entry as it was then */
	int64_t warm_at_ms;		/* by the cloud's clock: when it became ready, or was claimed */
	int64_t asked_end_at_ms;	/* by the cloud's clock; 0 = none is pending */
	bool warm_ends;			/* nobody has claimed it, and it is being ended */
	struct warm_box *box;		/* it waits for a claim */
	struct warm_claim *claim;	/* … that is being written */
	bool held;			/* refused.c: not ended in the background */
	bool told_unkept;		/* that something the cloud says of it is not kept */
	bool loaded;			/* its row is from before the start */
	bool from_tag;			/* adopted in this run: its row was made from its tags */
	bool asked;			/* reconcile has it on its list of missing ones */
};

must_check int sandbox_new(struct account *a, const char *id, struct sandbox **ret);
/* Heap only: it must be in no table. NULL is fine; returns NULL. */
struct sandbox *sandbox_free(struct sandbox *b);
void sandbox_freep(struct sandbox **b);

/* What a create, list or get said of a sandbox that has no sandbox yet: learnt, and in its state. */
must_check int sandbox_from_cloud(struct account *a, const struct cloud_sandbox *s,
				  struct sandbox **ret);
/* The row's account must be `a`. */
must_check int sandbox_from_row(struct account *a, const struct row_sandbox *r, struct sandbox **ret);
/* `policy_text` holds the row's policy while the row is used. */
void sandbox_to_row(const struct sandbox *b, char policy_text[POLICY_TEXT_MAX],
		    struct row_sandbox *ret);

/* Takes over what a create, connect, list or get said; what it did not say stays. *ret_changed: is
 * there something to store? Does not touch the state. */
must_check int sandbox_learn(struct sandbox *b, const struct cloud_sandbox *s, uint64_t now_ms,
			     int64_t now_wall_ms, bool *ret_changed);
void sandbox_set_state(struct sandbox *b, enum sandbox_state to);
bool sandbox_is_live(const struct sandbox *b);	/* not gone and not being killed */
void sandbox_view(const struct sandbox *b, enum sandbox_source source, struct sandbox_view *ret);
void sandbox_target_of(const struct sandbox *b, struct sandbox_target *ret);
/* Why it cannot be used: SANDBOX_EXPIRED, _KILLED, _GONE, _PAUSED with its evidence. */
void sandbox_refusal(const struct sandbox *b, struct status *ret);

const char *sandbox_state_name(enum sandbox_state s);
must_check int text_set(char **field, const char *s);	/* NULL counts as "" */

#endif
