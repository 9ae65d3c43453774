/* SPDX-License-Identifier: MIT */
/*
 * How much memory may be held for somebody. Quotas form a tree (all peers → a uid → a connection);
 * what is charged to one is charged to all above it, so a charge that any of them refuses was never
 * made. Whoever is about to hold memory charges it first, and gives back exactly that when the memory
 * goes. A quota lives until its last reference and its last charge are gone: what is charged to one may outlive its maker.
 *
 * Marks. Bytes that wait to be read, by us or by the peer, leave a quarter for all else: quota_spare() is what is
 * left until then, and each stream may have a small part of it, so that there is something for those who come late.
 * From seven eighths on a quota is tight: nothing new is begun. The last eighth is for what has begun already, and for
 * saying no. Above the maximum a charge is refused.
 *
 * `kept` is what a quota may always have: up to there its parents neither refuse nor count as tight, so that the
 * many who hold much never lock out one who holds little.
 *
 * Promises are credit given to a peer that it has not used yet (HTTP/2 windows). They hold no memory; they
 * only stop further promises, so that what is promised fits when it comes.
 *
 * NULL is a quota without a limit, which counts nothing. One thread.
 */
#ifndef AB_PROTO_BASE_QUOTA_H
#define AB_PROTO_BASE_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/cc.h"

#define QUOTA_NAME_MAX 24u

struct quota;

struct quota_options {
	struct quota *parent;		/* NULL = a root; a reference is taken */
	const char *name;		/* for a person: "uid 1000", "this connection"; copied, cut */
	uint64_t max;			/* 0 = no limit but its parents' */
	uint64_t kept;
	bool soft;			/* nothing charged to itself is refused, by its parents neither: for what
					 * is bounded by what we asked for */
};

/* NULL without memory. */
struct quota *quota_new(const struct quota_options *o);
struct quota *quota_ref(struct quota *q);	/* returns q */
struct quota *quota_unref(struct quota *q);	/* NULL is fine; returns NULL */
/* Other bounds from now on, each as in the options; what is charged stays, above them too. */
void quota_set_max(struct quota *q, uint64_t max, uint64_t kept);

/* 0 and it is charged, or -ENOBUFS and nothing is. */
must_check int quota_take(struct quota *q, size_t n);
/* The same for something new: refused as soon as a quota would become tight by it. */
must_check int quota_reserve(struct quota *q, size_t n);
/* Charges what cannot be refused any more. */
void quota_add(struct quota *q, size_t n);
void quota_give(struct quota *q, size_t n);	/* 0 is nothing, also of a quota that is gone */

#define QUOTA_PARTS 32u		/* one stream may have this part of what is spare */

/* What is left for bytes that wait to be read. */
uint64_t quota_spare(const struct quota *q);
/* Promises n bytes if they are no more than one part of what is spare, less what is promised already. */
bool quota_promise(struct quota *q, size_t n);
void quota_unpromise(struct quota *q, size_t n);

/* Would quota_take() take them? */
bool quota_fits(const struct quota *q, size_t n);
/* The nearest one that n more bytes make tight, or that is so already; NULL = none. */
const struct quota *quota_tight(const struct quota *q, size_t n);
/* Nothing but its maker knows it, and nothing is charged. */
bool quota_is_idle(const struct quota *q);

const char *quota_name(const struct quota *q);
uint64_t quota_max(const struct quota *q);
uint64_t quota_used(const struct quota *q);
uint64_t quota_promised(const struct quota *q);
/* The most that was charged at once since the last call of this. */
uint64_t quota_take_peak(struct quota *q);

/* A charge whose size changes with what it stands for. Zeroed is an empty one without a quota. */
struct charge {
	struct quota *quota;	/* a reference of somebody's until there is a charge */
	size_t n;
};

/* 0, or -ENOBUFS and it is as it was; less is never refused. */
must_check int charge_set(struct charge *c, size_t n);
/* Grows it by n for something new, as quota_reserve(). */
must_check int charge_reserve(struct charge *c, size_t n);
static inline void charge_fini(struct charge *c)
{
	quota_give(c->quota, c->n);
	c->n = 0;
}

#endif
