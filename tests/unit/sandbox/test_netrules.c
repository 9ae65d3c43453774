/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/netrules.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/str.h"
#include "tests/lib/test.h"

static const struct cloud_iam_token aws = { .name = (char *)"aws", .audience = (char *)"a",
					    .token_type = (char *)"JWT-SVID" };

/* From the text form, which is the cloud's; with the password apart, which is never in it. */
static const char *check_with(const char *text, const char *password, struct netrules_with with)
{
	static struct status st;
	scoped(cloud_network_freep) struct cloud_network *n = NULL;

	CHECK_INT(cloud_network_parse(text, &n), 0);
	if (password)
		n->egress_password = str_dup(password);
	if (netrules_network(n, &with, &st))
		return "";
	CHECK_INT(st.reason, R_FIELD_INVALID);
	return status_evidence_get(&st, "field");
}

static const char *check(const char *text)
{
	return check_with(text, NULL, (struct netrules_with){ .creates = true, .tokens = &aws, .n_tokens = 1 });
}

/* Conformance cases 80, 81, 84 and 85, so that nothing is sent. */
TEST(case_080_081_addresses)
{
	static const struct netrules_with offline = { .creates = true, .allow_internet_access = TRI_FALSE };

	CHECK_STR(check("{}"), "");
	CHECK_STR(check("{\"allowOut\":[\"example.com\"]}"), "network.allow_out");
	CHECK_STR(check("{\"allowOut\":[\"example.com\",\"*.x.org\",\"*\"],\"denyOut\":[\"0.0.0.0/0\"]}"), "");
	CHECK_STR(check_with("{\"allowOut\":[\"example.com\"]}", NULL, offline), "");
	CHECK_STR(check("{\"allowOut\":[\"1.1.1.1\",\"2001:db8::/32\"]}"), "");
	CHECK_STR(check("{\"allowOut\":[\"0.0.0.0\"]}"), "network.allow_out");
	CHECK_STR(check("{\"allowOut\":[\"::\"]}"), "network.allow_out");
	CHECK_STR(check("{\"allowOut\":[\"-x.org\"],\"denyOut\":[\"0.0.0.0/0\"]}"), "network.allow_out");
	CHECK_STR(check("{\"allowOut\":[\"\"],\"denyOut\":[\"0.0.0.0/0\"]}"), "network.allow_out");
	CHECK_STR(check("{\"denyOut\":[\"example.com\"]}"), "network.deny_out");
	CHECK_STR(check("{\"denyOut\":[\"10.0.0.0/8\",\"8.8.8.8\"]}"), "");
	CHECK_STR(check("{\"denyOut\":[\"0.0.0.0\"]}"), "network.deny_out");
	CHECK_STR(check("{\"denyOut\":[\"0.0.0.0/1\"]}"), "network.deny_out");
	CHECK_STR(check("{\"denyOut\":[\"10.0.0.0/33\"]}"), "network.deny_out");
	CHECK_STR(check("{\"denyOut\":[\"10.0.0.0/\"]}"), "network.deny_out");
}

#define RULE(value) "{\"rules\":{\"x.org\":[{\"transform\":{\"headers\":{\"A\":\"" value "\"}}}]}}"

TEST(case_084_rules)
{
	static const struct netrules_with update = { .creates = false };
	char many[4096] = "{\"rules\":{", *p = many + strlen(many);

	CHECK_STR(check(RULE("Bearer ${e2b.identity.tokens.aws}")), "");
	CHECK_STR(check(RULE("${e2b.identity.tokens.}")), "network.rules");
	CHECK_STR(check(RULE("${e2b.identity.tokens.aws")), "network.rules");
	CHECK_STR(check(RULE("${e2b.secrets.}")), "network.rules");
	CHECK_STR(check(RULE("${e2b.secrets.a${e2b.secrets.b}")), "network.rules");
	CHECK_STR(check(RULE("${e2b.other.x} ${e2b.secrets.k} $ ${")), "");
	/* Not registered: an error on create; on update nobody here knows. */
	CHECK_STR(check(RULE("${e2b.identity.tokens.gcp}")), "network.rules");
	CHECK_STR(check_with(RULE("${e2b.identity.tokens.gcp}"), NULL, update), "");
	CHECK_STR(check(RULE("a\\u0001")), "network.rules");
	CHECK_STR(check("{\"rules\":{\"x.org\":[{\"transform\":{\"headers\":{\"A b\":\"c\"}}}]}}"), "network.rules");
	CHECK_STR(check("{\"rules\":{\"x org\":[]}}"), "network.rules");
	for (int i = 0; i < 11; i++)
		p += sprintf(p, "%s\"h%d.org\":[]", i ? "," : "", i);
	strcpy(p, "}}");
	CHECK_STR(check(many), "network.rules");
	p = many + sprintf(many, "{\"rules\":{\"x.org\":[{\"transform\":{\"headers\":{");
	for (int i = 0; i < 21; i++)
		p += sprintf(p, "%s\"h%d\":\"v\"", i ? "," : "", i);
	strcpy(p, "}}}]}}");
	CHECK_STR(check(many), "network.rules");
}

#define PROXY(address) "{\"egressProxy\":{\"address\":\"" address "\"}}"

TEST(case_085_proxy)
{
	static const struct netrules_with with = { .creates = true };

	CHECK_STR(check(PROXY("proxy.example.com:1080")), "");
	CHECK_STR(check(PROXY("[2001:db8::1]:1080")), "");
	CHECK_STR(check(PROXY("127.0.0.1:1080")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("100.64.1.1:1080")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("172.31.0.1:1080")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("172.32.0.1:1080")), "");
	CHECK_STR(check(PROXY("[::1]:1080")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("[fe80::1]:1080")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("[fd00::1]:1080")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("localhost:1080")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("h")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("h:0")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("h:65536")), "network.egress_proxy.address");
	CHECK_STR(check(PROXY("::1:80")), "network.egress_proxy.address");
	CHECK_STR(check_with(PROXY("h.org:1"), "p", with), "network.egress_proxy.username");
	CHECK_STR(check_with("{\"egressProxy\":{\"address\":\"h.org:1\",\"username\":\"u\"}}", "p", with), "");
}

TEST(case_036_ingress)
{
	static const struct netrules_with open = { .creates = true, .secure = TRI_FALSE };
	static const struct netrules_with update = { .creates = false };

	CHECK_STR(check("{\"allowPublicTraffic\":false}"), "");
	CHECK_STR(check_with("{\"allowPublicTraffic\":false}", NULL, open), "network.allow_public_traffic");
	CHECK_STR(check_with("{\"allowPublicTraffic\":true}", NULL, update), "network.allow_public_traffic");
	CHECK_STR(check_with("{\"maskRequestHost\":\"h\"}", NULL, update), "network.mask_request_host");
	CHECK_STR(check("{\"maskRequestHost\":\"localhost:${PORT}\"}"), "");
	CHECK_STR(check("{\"maskRequestHost\":\"h\u00e4.de\"}"), "network.mask_request_host");
	CHECK_STR(check("{\"maskRequestHost\":\"a b\"}"), "network.mask_request_host");
}

TEST(tokens)
{
	struct cloud_iam_token v[6] = { aws, aws, aws, aws, aws, aws };
	struct status st;

	CHECK(netrules_tokens(v, 5, &st));
	CHECK(!netrules_tokens(v, 6, &st));
	CHECK_STR(status_evidence_get(&st, "field"), "iam_tokens");
	v[0].name = (char *)"a}";
	CHECK(!netrules_tokens(v, 1, &st));
	v[0].name = (char *)"";
	CHECK(!netrules_tokens(v, 1, &st));
	v[0] = aws;
	v[0].audience = (char *)"";
	CHECK(!netrules_tokens(v, 1, &st));
	v[0] = aws;
	v[0].token_type = (char *)"JWT";
	CHECK(!netrules_tokens(v, 1, &st));
}

TEST(case_061_062_lifecycle)
{
	static const struct {
		enum sandbox_on_timeout on_timeout;
		int keep, resume;
		const char *field;
	} t[] = {
		{ SANDBOX_ON_TIMEOUT_UNSET, -1, -1, "" },
		{ SANDBOX_ON_TIMEOUT_KILL, -1, -1, "" },
		{ SANDBOX_ON_TIMEOUT_KILL, -1, 0, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, -1, -1, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, 0, -1, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, 0, 0, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, 1, 1, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, 0, 1, "lifecycle.auto_resume" },
		{ SANDBOX_ON_TIMEOUT_KILL, -1, 1, "lifecycle.auto_resume" },
		{ SANDBOX_ON_TIMEOUT_UNSET, -1, 1, "lifecycle.auto_resume" },
		{ SANDBOX_ON_TIMEOUT_KILL, 1, -1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_UNSET, 0, -1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_UNSET, 1, -1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_UNSET, 0, 0, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_UNSET, 1, 0, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_UNSET, 0, 1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_UNSET, 1, 1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_UNSET, -1, 0, "" },
		{ SANDBOX_ON_TIMEOUT_KILL, 0, -1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_KILL, 0, 0, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_KILL, 1, 0, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_KILL, 0, 1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_KILL, 1, 1, "lifecycle.keep_memory" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, 1, -1, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, 1, 0, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, -1, 0, "" },
		{ SANDBOX_ON_TIMEOUT_PAUSE, -1, 1, "" },
		{ (enum sandbox_on_timeout)7, -1, -1, "lifecycle.on_timeout" },
	};
	struct status st;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		bool ok = netrules_lifecycle(t[i].on_timeout, t[i].keep, t[i].resume, &st);

		CHECK_INT(ok, !t[i].field[0]);
		if (!ok)
			CHECK_STR(status_evidence_get(&st, "field"), t[i].field);
	}
}

TEST_MAIN()
