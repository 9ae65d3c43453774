/* SPDX-License-Identifier: MIT */
/*
 * The sandboxes of the core, found and counted without a walk over all of them: by the tag of the request that made them (children
 * of a fork share their parent's), by the number of their attempt, and how many of an account or of a uid with a limit there are.
 * A sandbox is in here as long as it is in the table of the core; its account, tag and number do not change meanwhile.
 */
#ifndef AB_DAEMON_SANDBOX_INDEX_H
#define AB_DAEMON_SANDBOX_INDEX_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/list.h"

struct account;
struct sandbox;
struct sandbox_core;

/* Of a sandbox. Those with the same key are in one ring, of which the map knows one; alone in it without a key. */
struct index_node {
	struct list same_tag, same_seq;
	bool counted;
};

void index_node_init(struct index_node *n);
/* core_insert() and its opposite. -ENOMEM: it is in none. */
must_check int index_add(struct sandbox_core *core, struct sandbox *b);
void index_del(struct sandbox_core *core, struct sandbox *b);
/* Its state or its owner is about to change, or did: it counts where it belongs now. */
void index_uncount(struct sandbox *b);
void index_count(struct sandbox *b);
void index_set_owner(struct sandbox *b, uid_t uid);

/* The sandboxes of an account that carry this tag, one after the other; begin with NULL. NULL at the end, and for "". */
struct sandbox *index_of_tag(const struct sandbox_core *core, const struct account *a, const char *req_tag,
			     const struct sandbox *after);
/* Is there one with this number and another tag? */
bool index_seq_has_other_tag(const struct sandbox_core *core, uint64_t seq, const char *req_tag);

#endif
