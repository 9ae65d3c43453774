/* SPDX-License-Identifier: MIT */
/* Invariant: there is always an error to show; one that cannot be made is replaced by `no_memory`. */
#include "client/lib/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/gen/google_rpc_error_details.pb-c.h"

#include "client/lib/msg_in.h"
#include "client/lib/obj.h"
#include "proto/base/str.h"
#include "proto/wire/grpc.h"

#define ERROR_TEXT_MAX 1536u	/* longer texts of our own are cut */

static const struct ab_error no_memory = {
	.status = AB_RESOURCE_EXHAUSTED,
	.status_name = "RESOURCE_EXHAUSTED",
	.reason = "",
	.message = "out of memory in this process",
	.local = true,
};

static struct ab_error *error_new(int code, const char *message, bool local)
{
	struct ab_error *e = obj_new(sizeof(*e), NULL);

	if (!e)
		return NULL;
	e->status = code > AB_OK && code <= AB_UNAUTHENTICATED ? (enum ab_status)code : AB_UNKNOWN;
	e->status_name = status_code_name((enum ab_code)e->status);
	e->reason = "";
	e->local = local;
	e->message = obj_strdup(e, message);
	if (!e->message) {
		obj_free(e);
		return NULL;
	}
	return e;
}

const struct ab_error *error_local(enum ab_status status, enum ab_reason reason, const char *fmt, ...)
{
	char text[ERROR_TEXT_MAX];
	struct ab_error *e;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	e = error_new(status, text, true);
	if (!e)
		return &no_memory;
	e->reason = status_reason_name(reason);
	return e;
}

const struct ab_error *error_errno(int err)
{
	switch (err) {
	case -ENOMEM:
		return &no_memory;
	case -EINVAL:
		return error_local(AB_INVALID_ARGUMENT, R_FIELD_INVALID,
				   "a parameter of the call is missing, empty or not valid");
	case -EDEADLK:
		return error_local(AB_FAILED_PRECONDITION, REASON_NONE,
				   "a callback may not wait for a call");
	default:
		return error_local(AB_INTERNAL, REASON_NONE, "%s", strerror(-err));
	}
}

static bool any_is(const Google__Protobuf__Any *any, const char *name)
{
	const char *slash = strrchr(any->type_url, '/');

	return str_eq(slash ? slash + 1 : any->type_url, name);
}

/* Moves the message into a piece of the error's own. Half of it is as good as none. */
static void take_info(struct ab_error *e, const Google__Rpc__ErrorInfo *info)
{
	struct ab_pair *pairs = obj_alloc(e, info->n_metadata ? info->n_metadata : 1, sizeof(*pairs));
	const char *reason = obj_strdup(e, info->reason);

	if (!pairs || !reason)
		return;
	e->reason = reason;
	for (size_t i = 0; i < info->n_metadata; i++) {
		pairs[i].key = obj_strdup(e, info->metadata[i]->key);
		pairs[i].value = obj_strdup(e, info->metadata[i]->value);
		if (!pairs[i].key || !pairs[i].value)
			return;
	}
	e->evidence = pairs;
	e->n_evidence = info->n_metadata;
}

static void take_detail(struct ab_error *e, const Google__Protobuf__Any *any)
{
	if (any_is(any, "google.rpc.ErrorInfo")) {
		Google__Rpc__ErrorInfo *info = google__rpc__error_info__unpack(NULL, any->value.len, any->value.data);

		if (info)
			take_info(e, info);
		google__rpc__error_info__free_unpacked(info, NULL);
	} else if (any_is(any, "google.rpc.RetryInfo")) {
		Google__Rpc__RetryInfo *retry = google__rpc__retry_info__unpack(NULL, any->value.len, any->value.data);

		if (retry)
			e->retry_after_ms = msg_span_us(retry->retry_delay) / 1000;
		google__rpc__retry_info__free_unpacked(retry, NULL);
	}
}

const struct ab_error *error_from_status(int code, const char *message, const Google__Rpc__Status *details)
{
	struct ab_error *e = error_new(code, message, false);

	if (!e)
		return &no_memory;
	for (size_t i = 0; details && i < details->n_details; i++)
		take_detail(e, details->details[i]);
	return e;
}

const struct ab_error *error_from_fields(const struct fields *f)
{
	const char *coded = NULL;
	uint8_t *details = NULL;
	size_t n_details = 0;
	enum ab_code code = grpc_status_read(f, &coded, &details, &n_details);
	const struct ab_error *e = NULL;

	if (code != CODE_OK) {
		Google__Rpc__Status *status = n_details ? google__rpc__status__unpack(NULL, n_details, details) : NULL;
		char *message = str_dup(coded ? coded : "");

		if (message)
			grpc_message_decode(message);
		e = message ? error_from_status((int)code, message, status) : &no_memory;
		free(message);
		google__rpc__status__free_unpacked(status, NULL);
	}
	free(details);
	return e;
}

void error_free(const struct ab_error *e)
{
	if (e != &no_memory)
		obj_free(e);
}
