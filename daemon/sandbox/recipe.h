/* SPDX-License-Identifier: MIT */
/*
 * What a Create sent, kept so that it can be sent again: only with on_gone=recreate, since there are
 * secrets in it (environment). One block of pairs. [pure]
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

/* Wipes. */
void recipe_fini(struct recipe *r);
/* Takes a copy. -ENOMEM leaves it as it was. */
must_check int recipe_set(struct recipe *r, const void *p, size_t len);
/* Before our tags are added. */
must_check int recipe_pack(const struct cloud_create *c, struct recipe *ret);
/* Into one that has nothing yet. -EBADMSG where it is not such a block. */
must_check int recipe_unpack(const struct recipe *r, struct cloud_create *c);

enum recipe_verdict {
	RECIPE_NOT_ASKED,	/* its policy does not say so, or its user or a policy ended it */
	RECIPE_GO,
	RECIPE_UNUSED,		/* it expired and nobody wanted more of it, or it was paused */
	RECIPE_IN_DOUBT,	/* its row may have forgotten who ended it */
	RECIPE_MISSING,		/* the parameters are not known */
	RECIPE_TOO_SOON,	/* made again not long ago: that does not help */
};

struct recipe_facts {
	enum policy_on_gone on_gone;
	bool ended;		/* by its user or by a policy, or that was under way */
	bool ours, named, in_doubt, known;
	bool in_use;		/* leased, or a command ran */
	bool keep_alive;
	enum sandbox_state before;
	enum ab_reason reason;
	uint32_t generation;
	int64_t age_ms;		/* -1 = unknown */
};

#define RECIPE_TOO_SOON_MS 60000

/* It is gone: is it to be made again? */
enum recipe_verdict recipe_judge(const struct recipe_facts *f);
const char *recipe_verdict_name(enum recipe_verdict v);	/* "" for NOT_ASKED */

#endif
