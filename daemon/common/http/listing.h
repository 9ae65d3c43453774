/* SPDX-License-Identifier: MIT */
/* What a listing of the control plane is asked for, and the token of its next page. Pure. */
#ifndef AB_DAEMON_COMMON_HTTP_LISTING_H
#define AB_DAEMON_COMMON_HTTP_LISTING_H

#include <stdbool.h>

#include "daemon/common/http/query.h"
#include "proto/cloud/list.h"
#include "proto/wire/fields.h"

#define LISTING_PAGE_MAX 100u

struct listing {
	bool running, paused, ascending;
	struct cloud_kvs metadata;	/* none match everything */
	bool has_template;
	struct template_ref template;	/* without a tag */
	int64_t after_us;		/* started not before; INT64_MIN = whenever */
	bool has_cursor;
	struct cursor cursor;		/* behind this one */
	uint64_t limit;
};

/* Of GET /v2/sandboxes. -EINVAL: *ret_why is the message of a 400. */
must_check int listing_parse(const struct query *q, struct listing *ret, const char **ret_why);
/* Of GET /sandboxes: running ones, without pages. */
must_check int listing_parse_v1(const struct query *q, struct listing *ret, const char **ret_why);
/* Of any other: `limit` and `nextToken` alone. */
must_check int listing_parse_page(const struct query *q, struct listing *ret, const char **ret_why);
void listing_fini(struct listing *l);

/* The header of an answer that ends with that row and has a next page. 0 or -errno. */
must_check int listing_put_next(struct fields *head, int64_t at_us, const char *id, bool ascending);

#endif
