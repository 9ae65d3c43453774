/* SPDX-License-Identifier: MIT */
/* Errors of both planes of the cloud: {"code", "message", "error_code"}, Connect's words, and what is no JSON at all. */
#ifndef AB_PROTO_CLOUD_ERROR_H
#define AB_PROTO_CLOUD_ERROR_H

#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/cloud/flavour.h"

/* Known values of `error_code`, an open set. */
#define CLOUD_ERROR_CAPACITY	   "sandbox_capacity_unavailable"	/* 503: no room now */
#define CLOUD_ERROR_NO_NODE	   "sandbox_no_compatible_node"		/* 503: no machine for this at all */
#define CLOUD_ERROR_CREATE_FAILED  "sandbox_create_failed"		/* 500 */

/* Every text fits or is cut, a message in its middle (its end says why); absent ones are "". */
struct cloud_error_body {
	bool is_json;		/* a JSON object */
	bool has_port;		/* the edge's "port closed" */
	int64_t code;		/* numeric `code`, -1 = none */
	char code_name[32];	/* Connect's string `code` */
	char message[240];
	char error_code[64];
};

struct cloud_error;

/* Whatever it is: what is no JSON object becomes the message, cut and made printable. */
void cloud_error_read(const void *p, size_t n, struct cloud_error_body *ret);
void cloud_error_take(const struct cloud_error *e, struct cloud_error_body *ret);
/* The payload of Connect's end-of-stream record: *ret_error = false for success. 0, -EBADMSG, -ENOMEM. */
must_check int cloud_error_read_end(const void *p, size_t n, bool *ret_error, struct cloud_error_body *ret);
/* Appends the body of an answer. `error_code` NULL = none. -EINVAL: not UTF-8; -ENOMEM. */
must_check int cloud_error_write(unsigned status, const char *error_code, const char *message, const struct flavour *f,
				 struct buf *out);

#endif
