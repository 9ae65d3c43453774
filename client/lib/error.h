/* SPDX-License-Identifier: MIT */
/* Errors as the public struct: made here, or read from what the daemon sent. */
#ifndef AB_CLIENT_LIB_ERROR_H
#define AB_CLIENT_LIB_ERROR_H

#include <stdbool.h>

#include "proto/gen/google_rpc_status.pb-c.h"

#include "client/include/agentbox.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/wire/fields.h"

/* Always an error, if need be the one that says there is no memory. End it with error_free(). */
const struct ab_error *error_local(enum ab_status status, enum ab_reason reason, const char *fmt, ...)
	printf_like(3, 4);
/* The same from a negative errno of this library. */
const struct ab_error *error_errno(int err);
/* What trailers, or the head of an answer without a body, say. NULL: it went well. */
const struct ab_error *error_from_fields(const struct fields *f);
/* With what the details say: reason, evidence, when to try again. message is plain text; details NULL = none. */
const struct ab_error *error_from_status(int code, const char *message, const Google__Rpc__Status *details);
void error_free(const struct ab_error *e);

#endif
