/* SPDX-License-Identifier: MIT */
/* What a listing is asked with: page cursors, the metadata filter, template references. Pure. */
#ifndef AB_PROTO_CLOUD_LIST_H
#define AB_PROTO_CLOUD_LIST_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/cloud/model.h"
#include "proto/cloud/template_ref.h"

struct cursor {
	int64_t at_us;
	bool ascending;
	char id[CLOUD_SANDBOX_ID_MAX + 1];
};

/* Padded URL-safe base64 of "<time>__<id>[__asc]"; heap, NULL without memory. */
char *cursor_encode(const struct cursor *c);
must_check int cursor_decode(const char *s, struct cursor *ret);	/* 0, -EINVAL */

/* < 0: a comes before b. Start descending, ties by id ascending; `ascending` is the reverse. */
int cursor_compare(int64_t a_us, const char *a_id, int64_t b_us, const char *b_id, bool ascending);

/* RFC 3339 in microseconds, cut. 0 or -EINVAL. */
must_check int list_time_us(const char *s, int64_t *ret);

/* The parameter `metadata` of a listing, as it is sent: pairs are coded twice, joined, and the whole once more. Heap;
 * NULL without memory. */
char *meta_filter_format(const struct cloud_kv *v, size_t n);
/* The parameter after its first decoding. 0, -EINVAL for a malformed pair, -ENOMEM. */
must_check int meta_filter_parse(const char *param, struct cloud_kvs *ret);
/* All pairs of the filter are in `metadata`. */
bool meta_filter_match(const struct cloud_kvs *filter, const struct cloud_kvs *metadata);

#endif
