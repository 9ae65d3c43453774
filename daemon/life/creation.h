/* SPDX-License-Identifier: MIT */
/* The protocol of Create (create.c) as its callers (op_create.c) see it. */
#ifndef AB_DAEMON_LIFE_CREATION_H
#define AB_DAEMON_LIFE_CREATION_H

#include "daemon/life/core.h"

struct life_op;

#define CREATION_MAGIC 0x43726561u

enum creation_step {
	CREATION_NEW,
	CREATION_INTENT,
	CREATION_POST,
	CREATION_PAUSE,		/* between two posts, or two attempts to record */
	CREATION_RECORD,
	CREATION_SETTLE,
};

/* What the cloud does at the sandbox's end. */
struct creation_end {
	enum life_on_timeout on_timeout;
	int keep_memory, auto_resume;	/* -1 = unset */
};

struct creation {
	uint32_t magic;
	struct list node;	/* in life->creations */
	struct life *life;
	struct account *account;
	enum creation_step step;
	uint64_t seq;
	uid_t uid;
	struct request *request;	/* NULL = without a request id */
	struct name_slot *name;		/* NULL = without a name */
	uint32_t generation;
	char *req_tag;
	struct policy policy;
	char policy_text[POLICY_TEXT_MAX];
	int64_t made_at_ms;
	uint8_t params_hash[ROW_HASH_BYTES];
	/* what is sent; empty after a restart, when nothing is sent any more */
	char *template_id;
	uint32_t timeout_s;
	enum tri secure, allow_internet_access;
	struct cloud_kvs metadata, envs;
	struct cloud_network *network;
	struct cloud_iam_token *tokens;
	size_t n_tokens;
	struct creation_end end;

	struct holder *holder;		/* the process that is to hold a lease; NULL = none */

	struct list waiters;		/* life_op.wait */
	struct cloud_call *call;
	struct timer timer;
	unsigned posts, lists;
	uint64_t settle_until_ms;
	struct status lost;		/* why the answer is not known */
	struct cloud_sandbox *found;
	bool settled, recorded, detailed;
	bool lease_put;			/* the creator's lease is in the transaction of the row */
	bool loaded;			/* its intent is from before the start */
	int64_t used_at_ms;		/* of the box when its row was made */
	struct fetch_wait detail;
	struct grave grave;
};

/* In the life's list from here on; fill it, then start it or drop it. */
must_check int creation_new(struct life *l, struct account *a, uid_t uid, struct creation **ret);
/* Takes a number, adds the tags, writes the intent. -EAGAIN: no durable number now. */
must_check int creation_start(struct creation *c);
void creation_tokens_free(struct cloud_iam_token *v, size_t n);
void creation_drop(struct creation *c);

/* The op waits for its end: op_create_ended() is called, never from inside. */
void creation_join(struct creation *c, struct life_op *op);
void creation_leave(struct creation *c, struct life_op *op);
bool creation_maybe_sent(const struct creation *c);
void creation_unknown(const struct creation *c, bool has_request_id, struct status *ret);

/* op_create.c. b is NULL with a failure; c is still readable and in no table. */
void op_create_ended(struct life_op *op, const struct creation *c, const struct status *st,
		     struct box *b);

#endif
