/* SPDX-License-Identifier: MIT */
/*
 * The tags: metadata that our sandboxes have in the cloud. If the store is lost they are what is left of it,
 * so what is needed then and the cloud cannot say is in them. [pure]
 */
#ifndef AB_DAEMON_SANDBOX_RULES_TAGS_H
#define AB_DAEMON_SANDBOX_RULES_TAGS_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/sandbox/rules/policy.h"
#include "proto/base/cc.h"

struct cloud_kvs;

#define TAG_HOST   "agentbox.host"
#define TAG_UID	   "agentbox.uid"
#define TAG_REQ	   "agentbox.req"
#define TAG_SEQ	   "agentbox.seq"
#define TAG_NAME   "agentbox.name"
#define TAG_POLICY "agentbox.policy"
#define TAG_WARM   "agentbox.warm"

#define TAG_REQ_LEN 32u		/* hex digits */

struct tags {
	const char *host;	/* NULL: not made by an agentboxd */
	const char *req;	/* "" = none; a fork's child carries its parent's */
	const char *name;	/* "" = none */
	uid_t uid;
	bool has_uid;
	uint64_t seq;		/* 0 = none */
	const char *policy;	/* text form; "" = none */
	const char *warm;	/* the entry [warm NAME] that made it; NULL or "" = a Create did */
};

/* Adds all of them. -ENOMEM. */
must_check int tags_add(struct cloud_kvs *kvs, const struct tags *t);
/* A tag that cannot be read counts as absent. Strings point into `kvs`. */
void tags_read(const struct cloud_kvs *kvs, struct tags *ret);
bool tags_are_of(const struct tags *t, const char *host_id);

#endif
