/* SPDX-License-Identifier: MIT */
#include "proto/cloud/flavour.h"

#include "tests/lib/test.h"

/* The head table of the contract (A). */
TEST(a_2_what_a_flavour_sets_together)
{
	const struct flavour *a = flavour_named("agentbox"), *e = flavour_named("e2b");

	CHECK(a == flavour_get(FLAVOUR_AGENTBOX) && e == flavour_get(FLAVOUR_E2B) && !flavour_named("E2B"));
	CHECK_STR(a->domain, "agentbox-runtime.ru");
	CHECK_STR(a->headers[FLAVOUR_SANDBOX_ID], "agentbox-sandbox-id");
	CHECK_STR(a->headers[FLAVOUR_SANDBOX_PORT], "agentbox-sandbox-port");
	CHECK_STR(a->headers[FLAVOUR_TRAFFIC_TOKEN], "agentbox-traffic-access-token");
	CHECK_STR(a->identity, "${agentbox.identity.tokens.");
	CHECK(a->traffic_token_to_agent && a->sandbox_url_has_hosts && !a->secret);
	CHECK(!a->answers_extra && e->answers_extra);
	CHECK_STR(e->domain, "e2b.app");
	CHECK_STR(e->headers[FLAVOUR_SANDBOX_ID], "e2b-sandbox-id");
	CHECK_STR(e->headers[FLAVOUR_SANDBOX_PORT], "e2b-sandbox-port");
	CHECK_STR(e->headers[FLAVOUR_TRAFFIC_TOKEN], "e2b-traffic-access-token");
	CHECK_STR(e->identity, "${e2b.identity.tokens.");
	CHECK(!e->traffic_token_to_agent && !e->sandbox_url_has_hosts);
}

TEST(a_1_keys)
{
	static const struct {
		const char *key;
		int of;			/* -1 = tells nothing */
		bool agentbox_ok, e2b_ok, known;
	} t[] = {
		{ "ab_0123", FLAVOUR_AGENTBOX, true, false, true },
		{ "ab_Some-Thing_9", FLAVOUR_AGENTBOX, true, false, true },
		{ "ab_", FLAVOUR_AGENTBOX, true, false, false },
		{ "ab_a b", FLAVOUR_AGENTBOX, true, false, false },
		{ "e2b_0123456789abcdef", FLAVOUR_E2B, true, true, true },
		{ "e2b_XYZ", FLAVOUR_E2B, true, false, false },
		{ "e2b_", FLAVOUR_E2B, true, false, false },
		{ "E2B_00", -1, true, false, false },
		{ "abc", -1, true, false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		const struct flavour *of = flavour_of_key(t[i].key);

		CHECK_INT(of ? (int)of->id : -1, t[i].of);
		CHECK_INT(flavour_key_ok(flavour_get(FLAVOUR_AGENTBOX), t[i].key), t[i].agentbox_ok);
		CHECK_INT(flavour_key_ok(flavour_get(FLAVOUR_E2B), t[i].key), t[i].e2b_ok);
		CHECK_INT(flavour_key_known(t[i].key), t[i].known);
	}
}

TEST(a_2_whose_a_host_is)
{
	static const struct {
		const char *host;
		int of;
	} t[] = {
		{ "agentbox-runtime.ru", FLAVOUR_AGENTBOX }, { "api.agentbox-runtime.ru", FLAVOUR_AGENTBOX },
		{ "e2b.app", FLAVOUR_E2B },		     { "api.e2b.app", FLAVOUR_E2B },
		{ "API.E2B.APP.", FLAVOUR_E2B },	     { "api.e2b.dev", FLAVOUR_E2B },
		{ "note2b.app", -1 },			     { "e2b.app.example.org", -1 },
		{ "127.0.0.1", -1 },			     { "", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		const struct flavour *of = flavour_of_host(t[i].host);

		CHECK_INT(of ? (int)of->id : -1, t[i].of);
	}
	CHECK(flavour_has_shared_host(flavour_get(FLAVOUR_E2B), "e2b.pro"));
	CHECK(!flavour_has_shared_host(flavour_get(FLAVOUR_AGENTBOX), "e2b.app"));
	CHECK(!flavour_has_shared_host(flavour_get(FLAVOUR_AGENTBOX), "x.agentbox-runtime.ru"));
}

TEST_MAIN()
