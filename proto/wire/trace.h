/* SPDX-License-Identifier: MIT */
/*
 * `traceparent` of W3C Trace Context, level 2: what ties the requests of one work together. It goes on as it came; the daemon makes no
 * spans of its own, and passes no `tracestate` on. [pure]
 */
#ifndef AB_PROTO_WIRE_TRACE_H
#define AB_PROTO_WIRE_TRACE_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct fields;

#define TRACE_HEADER   "traceparent"
#define TRACE_BYTES    56u	/* "00-TRACE-PARENT-FLAGS" with its end */
#define TRACE_ID_BYTES 33u	/* the part that is the same in all of it */

struct trace {
	char parent[TRACE_BYTES];	/* "" = none, or what came is to be ignored */
};

/* Of a later version it takes the part that it knows, as version 00. False, and "": the text is none. */
bool trace_parse(const char *text, struct trace *ret);
/* Of a request's head. One that is there twice is none. */
void trace_of(const struct fields *head, struct trace *ret);
/* The id of the whole trace, 32 digits; "" = none. */
const char *trace_id(const struct trace *t, char ret[TRACE_ID_BYTES]);
/* Puts the header, if there is one. -ENOMEM. */
must_check int trace_put(struct fields *f, const struct trace *t);

#endif
