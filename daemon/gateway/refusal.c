/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/refusal.h"

#include <string.h>

#include "proto/base/str.h"
#include "proto/cloud/error.h"

#define LIMIT_RETRY_S 10u	/* a place among the running sandboxes: nobody knows when one ends */

static const struct {
	uint16_t http;
	bool upstream;			/* the cloud's own status goes before, if there was one */
	uint8_t retry_s;		/* where the core names no time */
	const char *error_code;
} refusals[] = {
	[R_SANDBOX_NOT_FOUND] = { 404 },
	[R_SANDBOX_EXPIRED] = { 404 },
	[R_SANDBOX_KILLED] = { 404 },
	[R_SANDBOX_GONE] = { 404 },
	[R_SANDBOX_REPLACED] = { 404 },
	[R_SANDBOX_PAUSED] = { 404 },	/* is not running, as the cloud puts it; a fork: below */
	[R_SANDBOX_NOT_READY] = { 503 },
	[R_STATE_CHANGING] = { 409 },
	[R_SNAPSHOT_NOT_FOUND] = { 404 },
	[R_PROCESS_NOT_FOUND] = { 404 },
	[R_PROCESS_STDIN_CLOSED] = { 409 },
	[R_FILE_NOT_FOUND] = { 404 },
	[R_TEMPLATE_NOT_FOUND] = { 404 },
	[R_TEMPLATE_TOO_OLD] = { 400 },
	[R_FIELD_INVALID] = { 400 },
	[R_TOO_LARGE] = { 413 },
	[R_REQUEST_ID_REUSED] = { 409 },
	[R_OUTCOME_UNKNOWN] = { 504 },
	[R_TRUNCATED] = { 500 },
	[R_NO_SPACE] = { 507 },
	[R_STORE_FULL] = { 503 },
	[R_STORE_READONLY] = { 503 },
	[R_QUOTA_UID] = { 429, .retry_s = LIMIT_RETRY_S },
	[R_TOO_MANY_STREAMS] = { 429, .retry_s = 1 },
	[R_RATE_LIMITED] = { 429, .retry_s = 1 },
	[R_CONCURRENCY_LIMIT] = { 429, .retry_s = LIMIT_RETRY_S },
	[R_KEY_MISSING] = { 401 },
	[R_KEY_REJECTED] = { 401 },
	[R_CALLER_CREDENTIAL] = { 401 },
	[R_UID_DENIED] = { 403 },
	[R_UNREACHABLE] = { 503, .upstream = true },
	[R_TLS_UNTRUSTED] = { 503 },
	[R_PROXY_FAILED] = { 503 },
	[R_PROXY_AUTH] = { 503 },
	[R_BAD_CLOUD_REPLY] = { 500, .upstream = true },
	[R_DRAINING] = { 503, .retry_s = 1 },
	[R_UNSUPPORTED] = { 400 },
	[R_PORT_CLOSED] = { 502 },
	[R_DEADLINE_REQUEST] = { 504 },
	[R_DEADLINE_IDLE] = { 504 },
	[R_NOT_A_DIRECTORY] = { 400 },
	[R_BUG] = { 500, .error_code = "internal_server_error" },
	[R_NAME_EXISTS] = { 409 },
	[R_LEASE_NOT_FOUND] = { 404 },
	[R_INPUT_OFFSET] = { 409 },
	[R_INPUT_BUSY] = { 409 },
	[R_CLOUD_FORBIDDEN] = { 403 },
	[R_IS_A_DIRECTORY] = { 400 },
	[R_ACCOUNT_NOT_FOUND] = { 400 },
	[R_CLOUD_REFUSED] = { 400, .upstream = true },
	[R_QUIESCED] = { 503, .retry_s = LIMIT_RETRY_S },
};

/* Without a reason. */
static unsigned http_of_code(enum ab_code code)
{
	switch (code) {
	case CODE_INVALID_ARGUMENT:
	case CODE_OUT_OF_RANGE:
		return 400;
	case CODE_NOT_FOUND:
		return 404;
	case CODE_ALREADY_EXISTS:
	case CODE_ABORTED:
	case CODE_FAILED_PRECONDITION:
		return 409;
	case CODE_PERMISSION_DENIED:
		return 403;
	case CODE_UNAUTHENTICATED:
		return 401;
	case CODE_RESOURCE_EXHAUSTED:	/* memory */
	case CODE_CANCELLED:
	case CODE_UNAVAILABLE:
		return 503;
	case CODE_DEADLINE_EXCEEDED:
		return 504;
	case CODE_UNIMPLEMENTED:
		return 501;
	default:
		return 500;
	}
}

/* 0 = the cloud was not asked, or what it answered is no error. */
static unsigned upstream_of(const struct status *st)
{
	const char *said = status_evidence_get(st, "upstream_status");
	uint64_t http;

	return said && str_u64(said, strlen(said), 599, &http) == 0 && http >= 400 ? (unsigned)http : 0;
}

void refusal_of(const struct status *st, enum cloud_route to, struct refusal *ret)
{
	size_t i = st->reason < ARRAY_SIZE(refusals) ? st->reason : 0;
	unsigned upstream = refusals[i].upstream ? upstream_of(st) : 0;

	*ret = (struct refusal){ .http = refusals[i].http, .error_code = refusals[i].error_code,
				 .retry_after_s = refusals[i].retry_s };
	if (!ret->http)
		ret->http = http_of_code(st->code);
	if (st->reason == R_SANDBOX_PAUSED && to == CLOUD_ROUTE_FORK)
		ret->http = 409;
	if (upstream) {
		ret->http = upstream;
		ret->error_code = status_evidence_get(st, "error_code");
	}
	if (st->retry_after_ms)
		ret->retry_after_s = MAX((st->retry_after_ms + 999) / 1000, 1u);
	if (ret->http == 500 && !ret->error_code && to == CLOUD_ROUTE_CREATE)
		ret->error_code = CLOUD_ERROR_CREATE_FAILED;
}
