/* SPDX-License-Identifier: MIT */
#include "proto/wire/connect_code.h"

#include "proto/base/cc.h"
#include "proto/base/str.h"

static const struct {
	const char *name;
	unsigned http;
} codes[] = {
	[CODE_CANCELLED] = { "canceled", 499 },
	[CODE_UNKNOWN] = { "unknown", 500 },
	[CODE_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[CODE_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[CODE_NOT_FOUND] = { "not_found", 404 },
	[CODE_ALREADY_EXISTS] = { "already_exists", 409 },
	[CODE_PERMISSION_DENIED] = { "permission_denied", 403 },
	[CODE_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[CODE_FAILED_PRECONDITION] = { "failed_precondition", 400 },
	[CODE_ABORTED] = { "aborted", 409 },
	[CODE_OUT_OF_RANGE] = { "out_of_range", 400 },
	[CODE_UNIMPLEMENTED] = { "unimplemented", 501 },
	[CODE_INTERNAL] = { "internal", 500 },
	[CODE_UNAVAILABLE] = { "unavailable", 503 },
	[CODE_DATA_LOSS] = { "data_loss", 500 },
	[CODE_UNAUTHENTICATED] = { "unauthenticated", 401 },
};

const char *connect_code_name(enum ab_code code)
{
	return codes[code].name;
}

unsigned connect_code_http(enum ab_code code)
{
	return codes[code].http;
}

enum ab_code connect_code_by_name(const char *name)
{
	for (unsigned i = CODE_CANCELLED; i < ARRAY_SIZE(codes); i++)
		if (str_eq(codes[i].name, name))
			return (enum ab_code)i;
	return CODE_UNKNOWN;
}
