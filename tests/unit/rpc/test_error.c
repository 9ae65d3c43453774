/* SPDX-License-Identifier: MIT */
#include "tests/lib/test.h"

#include "daemon/rpc/error.h"
#include "proto/gen/google_rpc_error_details.pb-c.h"

static void *detail(const Google__Rpc__Status *m, const char *type,
		    const ProtobufCMessageDescriptor *d)
{
	for (size_t i = 0; i < m->n_details; i++)
		if (strstr(m->details[i]->type_url, type))
			return protobuf_c_message_unpack(d, NULL, m->details[i]->value.len,
							 m->details[i]->value.data);
	return NULL;
}

TEST(a_wrong_field_has_info_and_violation)
{
	Google__Rpc__BadRequest *bad;
	Google__Rpc__ErrorInfo *info;
	Google__Rpc__Status *m;
	struct status st;

	status_field(&st, "sandbox_timeout", "must not be negative");
	m = rpc_error_message(&st);
	CHECK(m);
	CHECK_INT(m->code, CODE_INVALID_ARGUMENT);
	CHECK_STR(m->message, st.text);
	CHECK_INT(m->n_details, 2);
	info = detail(m, "/google.rpc.ErrorInfo", &google__rpc__error_info__descriptor);
	CHECK_STR(info->reason, "FIELD_INVALID");
	CHECK_STR(info->domain, "agentbox");
	CHECK_STR(info->metadata[0]->key, "field");
	CHECK_STR(info->metadata[0]->value, "sandbox_timeout");
	bad = detail(m, "/google.rpc.BadRequest", &google__rpc__bad_request__descriptor);
	CHECK_STR(bad->field_violations[0]->field, "sandbox_timeout");
	google__rpc__bad_request__free_unpacked(bad, NULL);
	google__rpc__error_info__free_unpacked(info, NULL);
	google__rpc__status__free_unpacked(m, NULL);
}

TEST(waiting_is_told)
{
	Google__Rpc__RetryInfo *retry;
	Google__Rpc__Status *m;
	struct status st;

	status_set(&st, R_RATE_LIMITED, "slow down");
	st.retry_after_ms = 1500;
	for (int i = 0; i < 8; i++)	/* more than there is room for */
		status_evidence(&st, "upstream_request_id", "%0127d", i);
	m = rpc_error_message(&st);
	retry = detail(m, "/google.rpc.RetryInfo", &google__rpc__retry_info__descriptor);
	CHECK_INT(retry->retry_delay->seconds, 1);
	CHECK_INT(retry->retry_delay->nanos, 500000000);
	google__rpc__retry_info__free_unpacked(retry, NULL);
	google__rpc__status__free_unpacked(m, NULL);
}

TEST(a_bare_code_has_no_details)
{
	uint8_t *p = NULL;
	struct status st;
	size_t n = 1;

	status_set_code(&st, CODE_UNIMPLEMENTED, "no");
	CHECK_INT(rpc_error_pack(&st, &p, &n), 0);
	CHECK_INT(n, 0);
	CHECK(!p);
}

TEST_MAIN()
