/* SPDX-License-Identifier: MIT */
#include "proto/wire/connect_code.h"

#include "tests/lib/test.h"

/* The table of the protocol. */
TEST(words_and_statuses)
{
	static const struct {
		enum ab_code code;
		const char *name;
		unsigned http;
	} t[] = {
		{ CODE_CANCELLED, "canceled", 499 },	  { CODE_UNKNOWN, "unknown", 500 },
		{ CODE_INVALID_ARGUMENT, "invalid_argument", 400 },
		{ CODE_DEADLINE_EXCEEDED, "deadline_exceeded", 504 },
		{ CODE_NOT_FOUND, "not_found", 404 },	  { CODE_ALREADY_EXISTS, "already_exists", 409 },
		{ CODE_PERMISSION_DENIED, "permission_denied", 403 },
		{ CODE_RESOURCE_EXHAUSTED, "resource_exhausted", 429 },
		{ CODE_FAILED_PRECONDITION, "failed_precondition", 400 },
		{ CODE_ABORTED, "aborted", 409 },	  { CODE_OUT_OF_RANGE, "out_of_range", 400 },
		{ CODE_UNIMPLEMENTED, "unimplemented", 501 }, { CODE_INTERNAL, "internal", 500 },
		{ CODE_UNAVAILABLE, "unavailable", 503 }, { CODE_DATA_LOSS, "data_loss", 500 },
		{ CODE_UNAUTHENTICATED, "unauthenticated", 401 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_STR(connect_code_name(t[i].code), t[i].name);
		CHECK_INT(connect_code_http(t[i].code), t[i].http);
		CHECK_INT(connect_code_by_name(t[i].name), t[i].code);
	}
	CHECK_INT(connect_code_by_name("cancelled"), CODE_UNKNOWN);
	CHECK_INT(connect_code_by_name(""), CODE_UNKNOWN);
}

TEST_MAIN()
