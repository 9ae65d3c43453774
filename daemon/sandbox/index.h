/* SPDX-License-Identifier: MIT */
/*
 * Finds and counts the sandboxes of the core without a walk over all of them. Found: by the tag of the request that made them
 * (children of a fork share their parent's), by the number of their attempt, by the time of their start, by name. Counted: those of
 * an account, of an owner, and of a uid with a limit.
 * A sandbox is indexed as long as it is in the table of the core; its account, tag and number do not change meanwhile.
 */
#ifndef AB_DAEMON_SANDBOX_INDEX_H
#define AB_DAEMON_SANDBOX_INDEX_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/sandbox/rules/types.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/tree.h"

struct account;
struct page_place;
struct request;
struct sandbox;
struct sandbox_core;

/* A uid with sandboxes in an account. It exists as long as the uid has one, gone ones included. */
struct owner {
	struct account *account;
	uid_t uid;
	struct tree by_start;		/* index_node.of_owner */
	size_t n;			/* its sandboxes */
	uint32_t by_state[SANDBOX_GONE + 1];
	uint32_t leases;		/* on its sandboxes */
};

/* A sandbox's part of the index. Sandboxes with the same tag, number or name form a ring; without one the node is alone. */
struct index_node {
	struct list same_tag, same_seq, same_name;
	struct tree_node of_account, of_owner;	/* in the order of pages: rules/page.h */
	struct owner *owner;
	bool counted;
};

void index_node_init(struct index_node *n);
/* For core_insert(), and when it leaves the table. -ENOMEM: it is not indexed. */
must_check int index_add(struct sandbox_core *core, struct sandbox *b);
void index_del(struct sandbox_core *core, struct sandbox *b);
/* The start's: between the two, sandboxes come without a place in the order of pages, which all of them get at once, and nothing
 * walks. -ENOMEM: they have none. */
void index_begin_load(struct sandbox_core *core);
must_check int index_end_load(struct sandbox_core *core);
/* Before and after a change of its state or owner. */
void index_uncount(struct sandbox *b);
void index_count(struct sandbox *b);
/* -ENOMEM: index_name_has_other() may miss it from now on, or nothing was changed. */
must_check int index_set_owner(struct sandbox *b, uid_t uid);
must_check int index_set_name(struct sandbox *b, const char *name);
void index_set_started(struct sandbox *b, int64_t started_at_ms);
/* A lease on it began (1) or ended (-1). */
void index_lease(struct sandbox *b, int change);
struct owner *index_owner(const struct sandbox_core *core, const struct account *a, uid_t uid);	/* NULL: it has no sandbox */
/* Its sandboxes in all accounts that are not gone. */
uint32_t index_alive(const struct sandbox_core *core, uid_t uid);

/* A walk over the sandboxes of an owner or of an account, in the order of pages or in reverse. */
struct index_walk {
	const struct account *account;	/* used without an owner */
	const struct owner *owner;	/* NULL: all of the account */
	bool is_reverse;
};
/* The first one behind `place`; with a NULL the very first. NULL = there is none. */
struct sandbox *index_behind(const struct index_walk *w, const struct page_place *place);
struct sandbox *index_next(const struct index_walk *w, const struct sandbox *b);

/* The sandboxes of an account that carry this tag, one after the other; begin with NULL. NULL at the end, and for "". */
struct sandbox *index_of_tag(const struct sandbox_core *core, const struct account *a, const char *req_tag,
			     const struct sandbox *after);
/* Is there a sandbox with this number and another tag? */
bool index_seq_has_other_tag(const struct sandbox_core *core, uint64_t seq, const char *req_tag);

/* Has, or had, another sandbox of the same owner its name? */
bool index_name_has_other(const struct sandbox *b);

/* Gives a request id its tag; -ENOMEM: it has none. index_request_del() comes before it is freed. */
must_check int index_request_set_tag(struct sandbox_core *core, struct request *q, const char *req_tag);
void index_request_del(struct sandbox_core *core, struct request *q);
/* The request ids of a uid with this tag, as index_of_tag(). */
struct request *index_request_of_tag(const struct sandbox_core *core, uid_t uid, const char *req_tag,
				     const struct request *after);

#endif
