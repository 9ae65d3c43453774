/* SPDX-License-Identifier: MIT */
/* A failure of the core as the cloud says it, and back as a daemon reads it: nothing gets better or worse on the way. */
#include "daemon/cloud/fault.h"
#include "daemon/gateway/refusal.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

/* What a daemon makes of the answer to a call of that kind. */
static struct status read_back(const struct status *st, enum fault_op op, enum cloud_route to, bool *ret_not_found)
{
	struct fault_answer a = { .route = "R" };
	struct cloud_result r = { 0 };
	scoped(buf_fini) struct buf body = BUF_NULL;
	struct refusal f;
	char wait[16];

	refusal_of(st, to, &f);
	CHECK(f.http >= 400 && f.http < 600);
	CHECK(!cloud_error_write(f.http, f.error_code, st->text, flavour_get(FLAVOUR_E2B), &body));
	cloud_error_read(buf_data(&body), buf_len(&body), &a.body);
	CHECK_INT(a.body.code, f.http);
	snprintf(wait, sizeof(wait), "%u", f.retry_after_s);
	a.http_status = f.http;
	a.retry_after = f.retry_after_s ? wait : NULL;
	fault_rest(op, &a, &r);
	*ret_not_found = r.not_found;
	return r.status;
}

TEST(there_and_back)
{
	/* `back`: several of ours are one of the contract's, which has no more words. */
	static const struct {
		enum ab_reason reason, back;
	} rows[] = {
		{ R_SANDBOX_NOT_FOUND, R_SANDBOX_NOT_FOUND }, { R_SANDBOX_EXPIRED, R_SANDBOX_NOT_FOUND },
		{ R_SANDBOX_KILLED, R_SANDBOX_NOT_FOUND }, { R_SANDBOX_GONE, R_SANDBOX_NOT_FOUND },
		{ R_SANDBOX_REPLACED, R_SANDBOX_NOT_FOUND }, { R_SANDBOX_PAUSED, R_SANDBOX_NOT_FOUND },
		{ R_STATE_CHANGING, R_STATE_CHANGING }, { R_KEY_REJECTED, R_KEY_REJECTED }, { R_KEY_MISSING, R_KEY_REJECTED },
		{ R_CLOUD_FORBIDDEN, R_CLOUD_FORBIDDEN }, { R_UID_DENIED, R_CLOUD_FORBIDDEN },
		{ R_RATE_LIMITED, R_RATE_LIMITED }, { R_TOO_MANY_STREAMS, R_RATE_LIMITED },
		/* Both come with the time after which it may be tried again, which a daemon waits for. */
		{ R_CONCURRENCY_LIMIT, R_RATE_LIMITED }, { R_QUOTA_UID, R_RATE_LIMITED },
		{ R_UNREACHABLE, R_UNREACHABLE }, { R_TLS_UNTRUSTED, R_UNREACHABLE }, { R_PROXY_FAILED, R_UNREACHABLE },
		{ R_DRAINING, R_UNREACHABLE }, { R_DEADLINE_REQUEST, R_UNREACHABLE }, { R_OUTCOME_UNKNOWN, R_UNREACHABLE },
		{ R_STORE_FULL, R_UNREACHABLE }, { R_BAD_CLOUD_REPLY, R_BAD_CLOUD_REPLY }, { R_BUG, R_BAD_CLOUD_REPLY },
		{ R_CLOUD_REFUSED, R_CLOUD_REFUSED }, { R_FIELD_INVALID, R_CLOUD_REFUSED }, { R_UNSUPPORTED, R_CLOUD_REFUSED },
		{ R_TEMPLATE_TOO_OLD, R_CLOUD_REFUSED }, { R_TOO_LARGE, R_CLOUD_REFUSED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct status st, back;
		bool not_found;

		status_set(&st, rows[i].reason, "why");
		back = read_back(&st, FAULT_GET, CLOUD_ROUTE_GET, &not_found);
		if (back.reason != rows[i].back)
			fprintf(stderr, "%s came back as %s\n", status_reason_name(rows[i].reason),
				status_reason_name(back.reason));
		CHECK_INT(back.reason, rows[i].back);
		CHECK_INT(not_found, rows[i].back == R_SANDBOX_NOT_FOUND);
		CHECK(strstr(back.text, "why"));
	}
}

TEST(of_a_template)
{
	struct status st, back;
	bool not_found;

	status_set(&st, R_TEMPLATE_NOT_FOUND, "why");
	back = read_back(&st, FAULT_CREATE, CLOUD_ROUTE_CREATE, &not_found);
	CHECK_INT(back.reason, R_TEMPLATE_NOT_FOUND);
}

/* What the cloud itself refused is told as it told it: everything fault.c reads comes back the same. */
TEST(what_the_cloud_said_passes)
{
	static const unsigned statuses[] = { 400, 401, 403, 404, 409, 418, 429, 500, 502, 503, 504 };

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		struct fault_answer a = { .http_status = statuses[i], .route = "R" };
		struct cloud_result r = { 0 };
		struct refusal f;
		char body[160];

		snprintf(body, sizeof(body), "{\"code\":%u,\"message\":\"m\",\"error_code\":\"tag_%u\"}", statuses[i], statuses[i]);
		cloud_error_read(body, strlen(body), &a.body);
		fault_rest(FAULT_GET, &a, &r);
		refusal_of(&r.status, CLOUD_ROUTE_GET, &f);
		CHECK_INT(f.http, statuses[i]);
		if (statuses[i] >= 500)
			CHECK_STR(f.error_code, a.body.error_code);
	}
}

TEST(capacity)
{
	struct fault_answer a = { .http_status = 503, .route = "R" };
	struct cloud_result r = { 0 };
	struct refusal f;
	static const char body[] = "{\"code\":503,\"message\":\"Failed to place sandbox\",\"error_code\":\"" CLOUD_ERROR_CAPACITY "\"}";

	cloud_error_read(body, strlen(body), &a.body);
	fault_rest(FAULT_CREATE, &a, &r);
	refusal_of(&r.status, CLOUD_ROUTE_CREATE, &f);
	CHECK_INT(f.http, 503);
	CHECK_STR(f.error_code, CLOUD_ERROR_CAPACITY);
}

/* A reason that is added later has a status of its own, or this names it. */
TEST(every_reason_has_a_status)
{
	static const enum ab_reason all[] = {
#define REASON(n, name, code) R_##name,
#include "proto/base/reasons.def"
#undef REASON
	};
	struct refusal f, by_code;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct status st, bare;

		status_set(&st, all[i], "x");
		refusal_of(&st, CLOUD_ROUTE_GET, &f);
		CHECK(f.http >= 400 && f.http < 600);
		status_set_code(&bare, st.code, "x");
		refusal_of(&bare, CLOUD_ROUTE_GET, &by_code);
		CHECK(by_code.http >= 400 && by_code.http < 600);
	}
}

TEST(when_to_come_back)
{
	struct refusal f;
	struct status st;

	status_set(&st, R_CONCURRENCY_LIMIT, "x");
	refusal_of(&st, CLOUD_ROUTE_CREATE, &f);
	CHECK(f.http == 429 && f.retry_after_s >= 1);
	st.retry_after_ms = 2001;
	refusal_of(&st, CLOUD_ROUTE_CREATE, &f);
	CHECK_INT(f.retry_after_s, 3);
	status_set(&st, R_SANDBOX_PAUSED, "x");
	refusal_of(&st, CLOUD_ROUTE_FORK, &f);
	CHECK_INT(f.http, 409);
	refusal_of(&st, CLOUD_ROUTE_TIMEOUT, &f);
	CHECK_INT(f.http, 404);
	CHECK(!f.retry_after_s);
}

TEST_MAIN()
