/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/fault.h"

#include "tests/lib/test.h"

#define API(code, msg) "{\"code\":" #code ",\"message\":\"" msg "\"}"

/* A-05, A-06, A-07, A-09, A-13, A-17, A-18, A-39: what each answer of the control plane means. */
TEST(control_plane)
{
	static const struct {
		enum fault_op op;
		unsigned http;
		const char *body, *retry_after;
		enum cloud_outcome outcome;
		enum ab_reason reason;
		bool not_found, conflict, later;
	} t[] = {
		{ FAULT_CREATE, 400, API(400, "timeout"), NULL, CLOUD_REFUSED, R_CLOUD_REFUSED, 0, 0, 0 },
		{ FAULT_CREATE, 401, API(401, "no"), NULL, CLOUD_REFUSED, R_KEY_REJECTED, 0, 0, 0 },
		{ FAULT_CREATE, 403, API(403, "no"), NULL, CLOUD_REFUSED, R_CLOUD_FORBIDDEN, 0, 0, 0 },
		{ FAULT_CREATE, 404, API(404, "template"), NULL, CLOUD_REFUSED, R_TEMPLATE_NOT_FOUND, 0, 0, 0 },
		{ FAULT_CREATE, 404, "<html>", NULL, CLOUD_REFUSED, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_CREATE, 429, API(429, "20 sandboxes"), NULL, CLOUD_REFUSED, R_CONCURRENCY_LIMIT, 0, 0, 0 },
		{ FAULT_CREATE, 429, API(429, "slow"), "3", CLOUD_REFUSED, R_RATE_LIMITED, 0, 0, 1 },
		{ FAULT_CREATE, 500, API(500, "x"), NULL, CLOUD_UNKNOWN, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_CREATE, 502, "<html>", NULL, CLOUD_UNKNOWN, R_UNREACHABLE, 0, 0, 1 },
		{ FAULT_CREATE, 503, "{\"code\":503,\"message\":\"Failed to place sandbox\","
		  "\"error_code\":\"sandbox_capacity_unavailable\"}", NULL, CLOUD_UNSENT, R_UNREACHABLE, 0, 0, 1 },
		{ FAULT_CREATE, 503, "{\"code\":503,\"message\":\"x\",\"error_code\":\"sandbox_no_compatible_node\"}",
		  NULL, CLOUD_REFUSED, R_CLOUD_REFUSED, 0, 0, 0 },
		{ FAULT_CREATE, 504, "{\"code\":504,\"message\":\"x\",\"error_code\":\"sandbox_placement_timeout\"}",
		  NULL, CLOUD_UNKNOWN, R_UNREACHABLE, 0, 0, 1 },
		{ FAULT_CREATE, 307, "", NULL, CLOUD_UNKNOWN, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_CREATE, 421, "", NULL, CLOUD_UNSENT, R_UNREACHABLE, 0, 0, 0 },
		{ FAULT_GET, 404, API(404, "x"), NULL, CLOUD_REFUSED, R_SANDBOX_NOT_FOUND, 1, 0, 0 },
		{ FAULT_GET, 404, "not here", NULL, CLOUD_UNKNOWN, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_GET, 404, API(404, "validation error: no route"), NULL, CLOUD_UNKNOWN, R_BAD_CLOUD_REPLY,
		  0, 0, 0 },
		{ FAULT_KILL, 404, API(404, "x"), NULL, CLOUD_DONE, REASON_NONE, 1, 0, 0 },
		{ FAULT_KILL, 404, "", NULL, CLOUD_UNKNOWN, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_CONNECT, 409, API(409, "x"), NULL, CLOUD_REFUSED, R_STATE_CHANGING, 0, 1, 0 },
		{ FAULT_REFRESH, 404, API(404, "x"), NULL, CLOUD_REFUSED, R_SANDBOX_NOT_FOUND, 1, 0, 0 },
		{ FAULT_TIMEOUT, 418, API(418, "x"), NULL, CLOUD_REFUSED, R_CLOUD_REFUSED, 0, 0, 0 },
		{ FAULT_PAUSE, 409, API(409, "x"), NULL, CLOUD_REFUSED, R_STATE_CHANGING, 0, 1, 0 },
		{ FAULT_PAUSE, 404, API(404, "x"), NULL, CLOUD_REFUSED, R_SANDBOX_NOT_FOUND, 1, 0, 0 },
		{ FAULT_NETWORK, 400, API(400, "denyOut"), NULL, CLOUD_REFUSED, R_CLOUD_REFUSED, 0, 0, 0 },
		{ FAULT_NETWORK, 403, API(403, "egress"), NULL, CLOUD_REFUSED, R_CLOUD_FORBIDDEN, 0, 0, 0 },
		{ FAULT_FORK, 404, API(404, "x"), NULL, CLOUD_REFUSED, R_SANDBOX_NOT_FOUND, 1, 0, 0 },
		{ FAULT_FORK, 404, "<html>", NULL, CLOUD_REFUSED, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_FORK, 409, API(409, "x"), NULL, CLOUD_REFUSED, R_STATE_CHANGING, 0, 1, 0 },
		{ FAULT_FORK, 500, API(500, "x"), NULL, CLOUD_UNKNOWN, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_FORK, 503, API(503, "busy"), NULL, CLOUD_UNSENT, R_UNREACHABLE, 0, 0, 1 },
		{ FAULT_FORK, 503, "<html>", NULL, CLOUD_UNKNOWN, R_UNREACHABLE, 0, 0, 1 },
		{ FAULT_SNAPSHOT, 400, API(400, "name"), NULL, CLOUD_REFUSED, R_CLOUD_REFUSED, 0, 0, 0 },
		{ FAULT_SNAPSHOT, 503, API(503, "busy"), NULL, CLOUD_UNSENT, R_UNREACHABLE, 0, 0, 1 },
		{ FAULT_SNAPSHOT, 502, "<html>", NULL, CLOUD_UNKNOWN, R_UNREACHABLE, 0, 0, 1 },
		{ FAULT_SNAPSHOT_DELETE, 404, API(404, "x"), NULL, CLOUD_DONE, REASON_NONE, 1, 0, 0 },
		{ FAULT_SNAPSHOT_DELETE, 400, API(400, "in use"), NULL, CLOUD_REFUSED, R_CLOUD_REFUSED, 0, 0, 0 },
		{ FAULT_TEMPLATES, 404, API(404, "x"), NULL, CLOUD_REFUSED, R_CLOUD_REFUSED, 1, 0, 0 },
		{ FAULT_TEMPLATES, 404, "<html>", NULL, CLOUD_UNKNOWN, R_BAD_CLOUD_REPLY, 0, 0, 0 },
		{ FAULT_METRICS, 404, API(404, "x"), NULL, CLOUD_REFUSED, R_SANDBOX_NOT_FOUND, 1, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct fault_answer a = { .http_status = t[i].http, .retry_after = t[i].retry_after,
					  .request_id = "req-1", .route = "R" };
		struct cloud_result r = { 0 };

		cloud_error_read(t[i].body, strlen(t[i].body), &a.body);
		fault_rest(t[i].op, &a, &r);
		if (r.outcome != t[i].outcome || r.status.reason != t[i].reason)
			fprintf(stderr, "row %zu: %s\n", i, r.status.text);
		CHECK_INT(r.outcome, t[i].outcome);
		CHECK_INT(r.status.reason, t[i].reason);
		CHECK_INT(r.not_found, t[i].not_found);
		CHECK_INT(r.conflict, t[i].conflict);
		CHECK_INT(r.retry_later, t[i].later);
		if (!status_ok(&r.status)) {
			CHECK_STR(status_evidence_get(&r.status, "upstream_request_id"), "req-1");
			CHECK(status_evidence_get(&r.status, "upstream_status"));
		}
		if (t[i].retry_after)
			CHECK_INT(r.status.retry_after_ms, 3000);
	}
}

TEST(children)
{
	static const struct {
		int64_t code;
		enum ab_reason reason;
	} t[] = {
		{ 400, R_CLOUD_REFUSED }, { 401, R_KEY_REJECTED }, { 404, R_SNAPSHOT_NOT_FOUND },
		{ 429, R_CONCURRENCY_LIMIT }, { 500, R_BAD_CLOUD_REPLY }, { 503, R_UNREACHABLE },
		{ -1, R_BAD_CLOUD_REPLY },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cloud_error_body b = { .is_json = true, .code = t[i].code };
		struct status st = STATUS_OK;

		fault_child(&b, &st);
		CHECK_INT(st.reason, t[i].reason);
		CHECK(!status_ok(&st));
	}
}

TEST(agent)
{
	static const struct {
		enum fault_subject what;
		unsigned http;
		const char *body;
		enum envd_class cls;
		enum ab_code code;
		enum ab_reason reason;
	} t[] = {
		{ FAULT_PROCESS, 404, "{\"code\":\"not_found\",\"message\":\"x\"}", ENVD_ANSWERED,
		  CODE_NOT_FOUND, R_PROCESS_NOT_FOUND },
		{ FAULT_PROCESS, 404, "<html>", ENVD_ANSWERED, CODE_NOT_FOUND, R_PROCESS_NOT_FOUND },
		{ FAULT_PATH, 404, "{\"code\":404,\"message\":\"x\"}", ENVD_ANSWERED, CODE_NOT_FOUND,
		  R_FILE_NOT_FOUND },
		{ FAULT_PATH, 409, "{\"code\":\"already_exists\"}", ENVD_ANSWERED, CODE_ALREADY_EXISTS,
		  REASON_NONE },
		{ FAULT_PATH, 400, "{\"code\":\"invalid_argument\",\"message\":\"path is not a directory: /x\"}",
		  ENVD_ANSWERED, CODE_FAILED_PRECONDITION, R_NOT_A_DIRECTORY },
		{ FAULT_DIR, 400, "{\"code\":\"invalid_argument\",\"message\":\"in other words\"}",
		  ENVD_ANSWERED, CODE_FAILED_PRECONDITION, R_NOT_A_DIRECTORY },
		{ FAULT_PATH, 400, "{\"code\":400,\"message\":\"path '/x' is a directory\"}", ENVD_ANSWERED,
		  CODE_FAILED_PRECONDITION, R_IS_A_DIRECTORY },
		{ FAULT_PATH, 507, "{\"code\":507,\"message\":\"disk full\"}", ENVD_ANSWERED,
		  CODE_RESOURCE_EXHAUSTED, R_NO_SPACE },
		{ FAULT_PROCESS, 401, "{\"code\":401,\"message\":\"unauthorized access\"}", ENVD_TOKEN,
		  CODE_FAILED_PRECONDITION, R_CLOUD_REFUSED },
		{ FAULT_PROCESS, 401, "{\"code\":\"unauthenticated\",\"message\":\"invalid username\"}",
		  ENVD_ANSWERED, CODE_INVALID_ARGUMENT, R_FIELD_INVALID },
		{ FAULT_PATH, 401, "{\"code\":401,\"message\":\"error looking up user 'x'\"}", ENVD_ANSWERED,
		  CODE_INVALID_ARGUMENT, R_FIELD_INVALID },
		{ FAULT_PROCESS, 502, "{\"sandboxId\":\"i\",\"message\":\"x\",\"code\":502}", ENVD_NOT_RUNNING,
		  CODE_UNAVAILABLE, R_UNREACHABLE },
		{ FAULT_PROCESS, 502, "{\"sandboxId\":\"i\",\"message\":\"x\",\"port\":49983,\"code\":502}",
		  ENVD_UNSENT, CODE_FAILED_PRECONDITION, R_SANDBOX_NOT_READY },
		{ FAULT_INPUT, 500, "{\"code\":\"internal\",\"message\":\"stdin closed\"}", ENVD_ANSWERED,
		  CODE_FAILED_PRECONDITION, R_PROCESS_STDIN_CLOSED },
		{ FAULT_PATH, 500, "{\"code\":\"internal\",\"message\":\"write: no space left on device\"}",
		  ENVD_ANSWERED, CODE_RESOURCE_EXHAUSTED, R_NO_SPACE },
		{ FAULT_PROCESS, 501, "{\"code\":\"unimplemented\"}", ENVD_ANSWERED, CODE_FAILED_PRECONDITION,
		  R_UNSUPPORTED },
		{ FAULT_PROCESS, 503, "", ENVD_LOST, CODE_UNAVAILABLE, R_UNREACHABLE },
		{ FAULT_PROCESS, 504, "", ENVD_LOST, CODE_DEADLINE_EXCEEDED, R_DEADLINE_REQUEST },
		{ FAULT_PROCESS, 429, "{\"code\":429,\"message\":\"x\"}", ENVD_ANSWERED,
		  CODE_RESOURCE_EXHAUSTED, R_RATE_LIMITED },
		{ FAULT_PROCESS, 409, "{\"sandboxId\":\"i\",\"code\":409}", ENVD_ANSWERED, CODE_ABORTED,
		  R_STATE_CHANGING },
		{ FAULT_PROCESS, 200, "", ENVD_LOST, CODE_UNAVAILABLE, R_BAD_CLOUD_REPLY },
		{ FAULT_PROCESS, 500, "{\"code\":\"brand_new\",\"message\":\"x\"}", ENVD_ANSWERED,
		  CODE_FAILED_PRECONDITION, R_CLOUD_REFUSED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct fault_answer a = { .http_status = t[i].http, .route = "R" };
		struct status st = STATUS_OK;
		enum envd_class cls;

		cloud_error_read(t[i].body, strlen(t[i].body), &a.body);
		cls = fault_envd(t[i].what, &a, &st);
		if (cls != t[i].cls || st.reason != t[i].reason)
			fprintf(stderr, "row %zu: %s\n", i, st.text);
		CHECK_INT(cls, t[i].cls);
		CHECK_INT(st.code, t[i].code);
		CHECK_INT(st.reason, t[i].reason);
	}
}

TEST(retry_after)
{
	int64_t at = fault_http_date_ms("Sun, 06 Nov 1994 08:49:37 GMT");

	CHECK_INT(at, 784111777000);
	CHECK_INT(fault_http_date_ms("Sun,  6 Nov 1994 08:49:37 GMT"), at);
	CHECK_INT(fault_http_date_ms("Fri, 31 Dec 2027 23:59:59 GMT"), 1830297599000);
	CHECK_INT(fault_http_date_ms("yesterday"), 0);
	CHECK_INT(fault_http_date_ms("Sun, 06 Nov 1994 08:49:37 CET"), 0);
	CHECK_INT(fault_http_date_ms("Sun, 06 Nov 1994 08-49-37 GMT"), 0);
	CHECK_INT(fault_http_date_ms("Sun, x6 Nov 1994 08:49:37 GMT"), 0);
	CHECK_INT(fault_http_date_ms("Sun, 06 anF 1994 08:49:37 GMT"), 0);
	CHECK_INT(fault_http_date_ms("Sun, 32 Jan 1994 08:49:37 GMT"), 0);
	CHECK_INT(fault_http_date_ms("Sun, 06 Xxx 1994 08:49:37 GMT"), 0);
	CHECK_INT(fault_http_date_ms(NULL), 0);
	CHECK_INT(fault_retry_after_ms("7", 0), 7000);
	CHECK_INT(fault_retry_after_ms("0", 0), 1000);
	/* B-4: nobody waits longer than 300 s, whatever a cloud asks for. */
	CHECK_INT(FAULT_RETRY_AFTER_MAX_MS, 300000);
	CHECK_INT(fault_retry_after_ms("300", 0), 300000);
	CHECK_INT(fault_retry_after_ms("301", 0), 300000);
	CHECK_INT(fault_retry_after_ms("1000000000", 0), 300000);
	CHECK_INT(fault_retry_after_ms("100000000000000000000000", 0), 300000);
	CHECK_INT(fault_retry_after_ms("Sun, 06 Nov 1994 08:49:37 GMT", at - 86400000), 300000);
	CHECK_INT(fault_retry_after_ms("-1", 0), 0);
	CHECK_INT(fault_retry_after_ms("Sun, 06 Nov 1994 08:49:37 GMT", at - 5000), 5000);
	CHECK_INT(fault_retry_after_ms("Sun, 06 Nov 1994 08:49:37 GMT", at + 5000), 1000);
}

TEST_MAIN()
