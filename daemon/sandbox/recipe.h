/* SPDX-License-Identifier: MIT */
/*
 * What a Create sent, packed into one block of key/value texts, so that it can be sent again. It is kept only with
 * on_gone=recreate, since the environment may have secrets. [pure]
 */
#ifndef AB_DAEMON_SANDBOX_RECIPE_H
#define AB_DAEMON_SANDBOX_RECIPE_H

#include <stddef.h>

#include "daemon/sandbox/sandbox.h"
#include "proto/base/cc.h"

struct cloud_create;

struct recipe {			/* zeroed: none */
	char *p;
	size_t len;
};

/* Wipes the block before it frees it. */
void recipe_fini(struct recipe *r);
/* Takes a copy. -ENOMEM leaves it as it was. */
must_check int recipe_set(struct recipe *r, const void *p, size_t len);
/* *c must not have our tags yet. */
must_check int recipe_pack(const struct cloud_create *c, struct recipe *ret);
/* *c must be zeroed. -EBADMSG: this is not such a block. */
must_check int recipe_unpack(const struct recipe *r, struct cloud_create *c);

enum recipe_verdict {
	RECIPE_NOT_ASKED,	/* its policy does not ask for it, it has no name, or its user or a policy ended it */
	RECIPE_GO,
	RECIPE_UNUSED,		/* it expired or was paused, and nobody used it */
	RECIPE_IN_DOUBT,	/* its row may not know who ended it */
	RECIPE_MISSING,		/* the block is not there */
	RECIPE_TOO_SOON,	/* it was itself made again less than RECIPE_TOO_SOON_MS ago */
};

struct recipe_facts {
	enum policy_on_gone on_gone;
	bool ended;		/* its user or a policy ended it, or was about to */
	bool ours, named, in_doubt;
	bool known;		/* the block is there */
	bool in_use;		/* leased, or a command ran */
	bool keep_alive;
	enum sandbox_state before;
	enum ab_reason reason;
	uint32_t generation;
	int64_t age_ms;		/* -1 = unknown */
};

#define RECIPE_TOO_SOON_MS 60000

/* Is a sandbox that is gone to be made again? */
enum recipe_verdict recipe_judge(const struct recipe_facts *f);
const char *recipe_verdict_name(enum recipe_verdict v);	/* "" for NOT_ASKED */

#endif
