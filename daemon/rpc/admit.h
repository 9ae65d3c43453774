/* SPDX-License-Identifier: MIT */
/*
 * How much of the server one uid may use. Charges are held by connections and calls and given back in
 * their destructors; admit_fini() finds nothing charged. [pure]
 */
#ifndef AB_DAEMON_RPC_ADMIT_H
#define AB_DAEMON_RPC_ADMIT_H

#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/map.h"

enum admit_result {
	ADMIT_OK = 0,
	ADMIT_UID_FULL,		/* this uid has as much as it may have */
	ADMIT_ALL_FULL,		/* all uids together have */
};

enum admit_what {
	ADMIT_CONN,
	ADMIT_STREAM,		/* long: streams, and unary calls that wait */
	ADMIT_CALL,		/* unary */
	ADMIT_KINDS,
};

struct admit_limits {
	uint32_t conns_per_uid, conns;
	uint32_t streams_per_uid, streams;
	uint32_t calls_per_uid, calls;
	uint32_t calls_kept;	/* of each uid, whatever `calls` says */
};

struct admit {
	struct admit_limits limits;
	struct map uids;	/* uid → struct admit_uid */
	uint32_t held[ADMIT_KINDS];
};

struct admit_uid;

void admit_init(struct admit *a, const struct admit_limits *limits);
void admit_fini(struct admit *a);
/* Another number of streams for a uid. */
struct admit_uid_limit {
	uid_t uid;
	uint32_t streams;
};
/* Room for a limit of this uid in admit_set_streams(), which cannot fail then. -ENOMEM. */
must_check int admit_reserve(struct admit *a, uid_t uid);
/* Other numbers from now on; what is held stays. Every uid of `limits` was reserved since the last call. */
void admit_set_streams(struct admit *a, uint32_t streams_per_uid, const struct admit_uid_limit *limits, size_t n);
/* 0 and *ret set, a positive ADMIT_*, or -ENOMEM. Each ADMIT_OK needs one admit_give_back(). */
must_check int admit_take(struct admit *a, uid_t uid, enum admit_what what, struct admit_uid **ret);
void admit_give_back(struct admit *a, struct admit_uid *u, enum admit_what what);
/* What a uid holds; 0 for an unknown one. */
uint32_t admit_held(const struct admit *a, uid_t uid, enum admit_what what);
uint32_t admit_max_streams(const struct admit *a, uid_t uid);

#endif
