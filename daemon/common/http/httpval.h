/* SPDX-License-Identifier: MIT */
/* Values of HTTP headers that the file calls need. Pure. */
#ifndef AB_DAEMON_COMMON_HTTP_HTTPVAL_H
#define AB_DAEMON_COMMON_HTTP_HTTPVAL_H

#include <stdbool.h>

#include "proto/base/cc.h"

enum coding {
	CODING_IDENTITY,
	CODING_GZIP,
	CODING_NONE,		/* nothing acceptable */
};

/* What to send for this Accept-Encoding (NULL = absent). `identity_only`: gzip is not to be used. */
enum coding httpval_coding(const char *accept, bool identity_only);

enum range {
	RANGE_WHOLE,		/* absent, not understood, or several: the whole file */
	RANGE_PART,
	RANGE_BAD,		/* 416 */
};

/* "bytes=…" for a file of `size`; sets first and length of a part. */
enum range httpval_range(const char *s, uint64_t size, uint64_t *ret_first, uint64_t *ret_n);

/* "Sun, 06 Nov 1994 08:49:37 GMT". */
void httpval_date(int64_t s, char ret[40]);
must_check int httpval_parse_date(const char *s, int64_t *ret);	/* 0, -EINVAL */

/* inline; filename=NAME, quoted or extended as it needs. Heap; NULL without memory. */
char *httpval_disposition(const char *name);

#endif
