/* SPDX-License-Identifier: MIT */
/*
 * One sandbox: what is known of it, and the state machine. sandbox_set_state() is the one writer of its
 * state. A sandbox is owned by the table of the core (core.h) from core_insert() on. Its texts are never NULL; text_set() and
 * text_give() alone change them, since those that never were set share one "".
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

/* The metrics of the last question, kept to answer the same question again. */
struct sandbox_series {
	struct cloud_metrics *m;	/* NULL = none */
	int64_t start_s, end_s;		/* as asked for; 0 = open */
	uint64_t fresh_at_ms;		/* BOOTTIME */
	int64_t as_of_ms;		/* wall */
};

#define SANDBOX_MAGIC    0x426f7821u
#define USED_SAVE_MS 60000	/* a use that is not so much later than the row's is not written */

struct sandbox {
	uint32_t magic;
	struct list node;		/* in core->sandboxes */
	struct index_node index;
	struct account *account;
	char *id, *name;		/* name: as its owner called it, also after `named` ended */
	bool named;			/* the name means this sandbox now */
	uid_t uid;			/* once it is in the table, index_set_owner() changes it */
	uint32_t generation;
	enum sandbox_state state;
	bool ours;			/* made by this daemon, and its row is not in doubt: policies may end it */
	bool adopted;			/* not ours: taken over by its id, or in doubt */
	bool claimed;			/* somebody was told of it, and so answers for it */
	bool claim_unsaved;		/* the row may not say yet that it is claimed */
	int64_t unclaimed_at_ms;	/* wall: since when it waits to be claimed; 0 = it does not */
	uint64_t seq;			/* of the attempt that made it; 0 = none of ours */
	char *req_tag;			/* of the request that made it; "" = none of ours */

	char *template_id, *alias, *envd_version, *domain, *warning;
	char *access_token, *traffic_token;
	bool token_known;
	bool detail_known;		/* a get was answered in this run, which says more than lists and creates do */
	struct pairs metadata;
	int64_t started_at_ms, end_at_ms;	/* by the cloud's clock; 0 = not known */
	uint32_t cpu_count, memory_mb, disk_size_mb;
	enum tri allow_internet_access;
	struct cloud_lifecycle lifecycle;
	struct policy policy;
	uint32_t timeout_s;		/* what its user last asked for; 0 = unknown */

	struct list leases;		/* that keep it in use, by number: lease.sandbox_node */
	uint32_t n_leases, n_commands;
	/* BOOTTIME, 0 = never; negative where it was before the boot */
	int64_t released_at_ms, used_at_ms, command_ended_at_ms, unclaimed_boot_ms;
	int64_t used_saved_ms;		/* used_at_ms as the row has it */
	struct runner *runner;
	char *ended_by;			/* the rule that is killing it, or did; "" = its owner, or nobody */

	int64_t as_of_ms;		/* wall: when the cloud last said something of it; shown to callers */
	uint64_t fresh_at_ms;		/* the same as BOOTTIME; 0 = not since the start, or not to be relied on */
	bool unreachable;		/* the last question about it was not answered */
	enum ab_reason gone_reason;
	int64_t gone_at_ms;		/* wall */
	char *gone_evidence;		/* who said that it is gone, for people */

	struct fetch *fetch;		/* the GET of it that is under way */
	struct killing *killing;
	struct list ties;		/* struct sandbox_tie: what ends with it */
	struct list untold;		/* in core->untold: it is gone, and its ties have not been told yet */
	uint64_t untold_number;		/* its ties are told when events up to this number are committed */
	struct list turns;		/* turn.h */
	struct defer turn_kick;
	bool turn_ready;
	bool changing;			/* the holder of the turn alone sets the state now */
	uint64_t moved_at_ms;		/* BOOTTIME of our last change of its state; 0 = none in this run */
	int64_t resumed_at_ms;		/* when we resumed it last, by the cloud's clock; 0 = not in this run */
	struct transition *transition;		/* the pause or resume that waits last, or is under way */
	struct cloud_network *network;	/* NULL = none known */
	char *network_text;		/* the network as its row has it */
	struct sandbox_series metrics;
	struct recipe recipe;		/* to make it again; none without on_gone=recreate */
	char *replaces;			/* id of the vanished sandbox that it was made for (recreate.h); "" = none */
	/* Of warm.h; "", NONE and zeros for what a Create made. */
	char *warm;			/* name of the entry that made it */
	enum warm_state warm_state;
	uint8_t warm_print[ROW_HASH_BYTES];	/* of that entry as it was then */
	int64_t warm_at_ms;		/* by the cloud's clock: when it became ready, or was claimed */
	int64_t asked_end_at_ms;	/* the end that its claim asked for, by the cloud's clock, until the cloud has it; else 0 */
	bool warm_ends;			/* nobody has claimed it, and it is being ended */
	struct warm_box *box;		/* while it waits for a claim; else NULL */
	struct warm_claim *claim;	/* its claim, while that is being written; else NULL */
	bool held;			/* refused.c: not ended in the background */
	bool told_unkept;		/* it was logged that its row cannot hold what the cloud says of it */
	bool loaded;			/* its row is from before the start */
	bool from_tag;			/* its row was made from its tags in this run */
	uint32_t listed_in;		/* number of the last list that had it (reconcile.h); 0 = none in this run */
	bool asked;			/* a list lacked it, and sync.c asks the cloud about it */
};

must_check int sandbox_new(struct account *a, const char *id, struct sandbox **ret);
/* Heap only: it must be in no table. NULL is fine; returns NULL. */
struct sandbox *sandbox_free(struct sandbox *b);
void sandbox_freep(struct sandbox **b);

/* A sandbox that is not in the table, with what a create, list or get said of it. */
must_check int sandbox_from_cloud(struct account *a, const struct cloud_sandbox *s,
				  struct sandbox **ret);
/* The row's account must be `a`. `memo` goes from row to row. */
must_check int sandbox_from_row(struct account *a, const struct row_sandbox *r, struct policy_memo *memo, struct sandbox **ret);
/* `policy_text` holds the row's policy while the row is used. */
void sandbox_to_row(const struct sandbox *b, char policy_text[POLICY_TEXT_MAX],
		    struct row_sandbox *ret);

/* Takes over what a create, connect, list or get said; what it did not say stays. The state is not
 * changed. *ret_changed: there is something to store. */
must_check int sandbox_learn(struct sandbox *b, const struct cloud_sandbox *s, uint64_t now_ms,
			     int64_t now_wall_ms, bool *ret_changed);
void sandbox_set_state(struct sandbox *b, enum sandbox_state to);
bool sandbox_is_live(const struct sandbox *b);	/* not gone and not being killed */
void sandbox_view(const struct sandbox *b, enum sandbox_source source, struct sandbox_view *ret);
void sandbox_target_of(const struct sandbox *b, struct sandbox_target *ret);
/* Why it cannot be used: SANDBOX_EXPIRED, _KILLED, _GONE, _PAUSED with its evidence. */
void sandbox_refusal(const struct sandbox *b, struct status *ret);

must_check int text_set(char **field, const char *s);	/* NULL counts as "" */
void text_give(char **field, char *text);		/* takes a heap text over */

#endif
