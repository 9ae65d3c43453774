/* SPDX-License-Identifier: MIT */
/* A sandbox's metadata: key/value pairs sorted by key, in one block that is stored as it is. [pure] */
#ifndef AB_DAEMON_SANDBOX_RULES_PAIRS_H
#define AB_DAEMON_SANDBOX_RULES_PAIRS_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_kvs;
struct sandbox_pair;

struct pairs {
	char *blob;		/* key NUL value NUL … */
	size_t len;
	struct sandbox_pair *v;	/* into the blob */
	size_t n;
};

#define PAIRS_TAG_PREFIX "agentbox."	/* keys of our tags: refused from callers, not shown to them */

void pairs_fini(struct pairs *p);
/* Copies all pairs but our tags. */
must_check int pairs_from_cloud(struct pairs *ret, const struct cloud_kvs *kvs);
must_check int pairs_from(struct pairs *ret, const struct sandbox_pair *v, size_t n);
/* -EBADMSG: `blob` is not such a block. */
must_check int pairs_from_blob(struct pairs *ret, const char *blob, size_t len);
bool pairs_equal(const struct pairs *a, const struct pairs *b);
/* Does *p have every pair of `want`? */
bool pairs_have(const struct pairs *p, const struct sandbox_pair *want, size_t n);

#endif
