/* SPDX-License-Identifier: MIT */
/* What fits, how many are made, when an entry stops, whose turn it is: tables. */
#include "daemon/sandbox/rules/warm.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

static char *heap(const char *s)
{
	char *copy = str_dup(s);

	CHECK(copy);
	return copy;
}

static void fill(struct cloud_create *c)
{
	struct cloud_rule *rule;

	*c = (struct cloud_create){ .template_id = heap("py"), .timeout_s = 60 };
	CHECK(!cloud_kvs_add(&c->envs, "A", "1") && !cloud_kvs_add(&c->envs, "B", "2"));
	c->network = calloc(1, sizeof(*c->network));
	CHECK(!cloud_strs_add(&c->network->allow_out, "10.0.0.0/8"));
	CHECK(!cloud_network_add_rule(c->network, "a.example", &rule));
	CHECK(!cloud_kvs_add(&rule->headers, "X-A", "1"));
	c->network->egress_address = heap("proxy.example:1080");
	c->network->egress_username = heap("me");
	c->network->egress_password = heap("secret");
	c->iam_tokens = calloc(1, sizeof(*c->iam_tokens));
	c->n_iam_tokens = 1;
	c->iam_tokens[0] = (struct cloud_iam_token){ heap("one"), heap("aud"), heap("id") };
}

#define DIFFERS(want, ...)                                                                                         \
	do {                                                                                                       \
		struct cloud_create a, b;                                                                          \
                                                                                                                   \
		fill(&a);                                                                                          \
		fill(&b);                                                                                          \
		__VA_ARGS__;                                                                                       \
		CHECK_STR(warm_differs(&a, &b) ? warm_differs(&a, &b) : "", want);                                 \
		CHECK_STR(warm_differs(&b, &a) ? warm_differs(&b, &a) : "", want);                                 \
		cloud_create_fini(&a);                                                                             \
		cloud_create_fini(&b);                                                                             \
	} while (0)

/* Each property that is fixed at creation, and none that is not. */
TEST(what_fits)
{
	DIFFERS("", );
	DIFFERS("", b.timeout_s = 1000);
	DIFFERS("", CHECK(!cloud_kvs_add(&b.metadata, "who", "me")));
	DIFFERS("", b.secure = b.allow_internet_access = TRI_TRUE);
	DIFFERS("", b.lifecycle = (struct cloud_lifecycle){ .pause = TRI_FALSE, .auto_resume = TRI_FALSE, .keep_memory = TRI_TRUE });
	DIFFERS("template", (free(b.template_id), b.template_id = heap("py2")));
	DIFFERS("secure", b.secure = TRI_FALSE);
	DIFFERS("allow_internet_access", b.allow_internet_access = TRI_FALSE);
	DIFFERS("lifecycle", b.lifecycle.pause = TRI_TRUE);
	DIFFERS("lifecycle", b.lifecycle.auto_resume = TRI_TRUE);
	DIFFERS("lifecycle", (a.lifecycle.pause = b.lifecycle.pause = TRI_TRUE, b.lifecycle.keep_memory = TRI_FALSE));
	DIFFERS("network", CHECK(!cloud_strs_add(&b.network->deny_out, "1.1.1.1")));
	DIFFERS("network", (free(b.network->egress_password), b.network->egress_password = heap("other")));
	DIFFERS("network", (free(b.network->egress_username), b.network->egress_username = heap("you")));
	DIFFERS("network", (free(b.network->egress_address), b.network->egress_address = heap("proxy.example:1081")));
	DIFFERS("network", b.network->mask_request_host = heap("h"));
	DIFFERS("network", b.network->allow_public_traffic = TRI_FALSE);
	DIFFERS("network", b.network->asks_https_ports = true);
	DIFFERS("network", CHECK(!cloud_kvs_add(&b.network->rules[0].headers, "X-B", "1")));
	DIFFERS("network", (free(b.network->rules[0].headers.v[0].value), b.network->rules[0].headers.v[0].value = heap("2")));
	DIFFERS("network", (free(b.network->rules[0].domain), b.network->rules[0].domain = heap("b.example")));
	DIFFERS("network", CHECK(!cloud_strs_add(&b.network->allow_out, "10.0.0.1")));
	DIFFERS("network", b.network = cloud_network_free(b.network));
	DIFFERS("iam_tokens", (free(b.iam_tokens[0].name), b.iam_tokens[0].name = heap("two")));
	DIFFERS("iam_tokens", (free(b.iam_tokens[0].token_type), b.iam_tokens[0].token_type = NULL));
	DIFFERS("iam_tokens", (free(b.iam_tokens[0].audience), b.iam_tokens[0].audience = heap("x")));
	DIFFERS("envs", CHECK(!cloud_kvs_add(&b.envs, "C", "")));
	DIFFERS("envs", (free(b.envs.v[1].value), b.envs.v[1].value = heap("3")));
	DIFFERS("envs", (free(b.envs.v[1].key), b.envs.v[1].key = heap("C")));
}

/* The order of names says nothing, and neither does a block of a network that says nothing. */
TEST(what_is_said_in_another_way_fits)
{
	struct cloud_create a = { .template_id = heap("py") }, b = { .template_id = heap("py") };

	CHECK(!cloud_kvs_add(&a.envs, "A", "1") && !cloud_kvs_add(&a.envs, "B", "2"));
	CHECK(!cloud_kvs_add(&b.envs, "B", "2") && !cloud_kvs_add(&b.envs, "A", "1"));
	a.network = calloc(1, sizeof(*a.network));
	a.network->allow_public_traffic = TRI_TRUE;
	CHECK(!warm_differs(&a, &b) && !warm_differs(&b, &a));
	a.network->allow_public_traffic = TRI_FALSE;
	CHECK_STR(warm_differs(&a, &b), "network");
	cloud_create_fini(&a);
	cloud_create_fini(&b);
}

TEST(lists_of_a_network_have_no_order)
{
	static const char *const out[] = { "10.0.0.0/8", "a.example" }, *const hosts[] = { "a.example", "b.example" };
	struct cloud_create c[2] = { { .template_id = heap("py") }, { .template_id = heap("py") } };
	struct cloud_rule *rule;

	for (size_t k = 0; k < 2; k++) {
		c[k].network = calloc(1, sizeof(*c[k].network));
		for (size_t i = 0; i < 2; i++) {
			CHECK(!cloud_strs_add(&c[k].network->allow_out, out[i ^ k]));
			CHECK(!cloud_network_add_rule(c[k].network, hosts[i ^ k], &rule));
			CHECK(!cloud_kvs_add(&rule->headers, "X-Host", hosts[i ^ k]));
		}
		c[k].iam_tokens = calloc(1, sizeof(*c[k].iam_tokens));
		c[k].n_iam_tokens = 1;
		c[k].iam_tokens[0] = (struct cloud_iam_token){ heap("one"), heap("aud"), k ? heap("JWT-SVID") : NULL };
	}
	CHECK(!warm_differs(&c[0], &c[1]) && !warm_differs(&c[1], &c[0]));
	cloud_create_fini(&c[0]);
	cloud_create_fini(&c[1]);
}

TEST(the_words_of_a_mode)
{
	enum sandbox_warm_mode mode = SANDBOX_WARM_UNSET;

	CHECK(!warm_mode_parse("", &mode) && !warm_mode_parse("Prefer", &mode) && mode == SANDBOX_WARM_UNSET);
	CHECK(warm_mode_parse("never", &mode) && mode == SANDBOX_WARM_NEVER);
	CHECK(warm_mode_parse("prefer", &mode) && mode == SANDBOX_WARM_PREFER);
	CHECK(warm_mode_parse("require", &mode) && mode == SANDBOX_WARM_REQUIRE);
}

TEST(who_may)
{
	static const uid_t uids[] = { 1000, 1002 };
	static const gid_t gids[] = { 50 };
	const struct warm_claimers both = { uids, 2, gids, 1 }, one = { uids, 1, NULL, 0 }, nobody = { NULL, 0, NULL, 0 };
	struct principal who = { .uid = 1000, .gid = 7 };

	CHECK(warm_may_claim(&both, &who) && !warm_may_claim(&nobody, &who));
	who.uid = 1001;
	CHECK(!warm_may_claim(&both, &who));
	who.gid = 50;
	CHECK(warm_may_claim(&both, &who));
	who.gid = 7;
	who.groups[who.n_groups++] = 50;
	CHECK(warm_may_claim(&both, &who));
	CHECK(warm_is_for(&one, 1000) && !warm_is_for(&one, 1001) && !warm_is_for(&both, 1000) && !warm_is_for(&nobody, 0));
}

TEST(whose_life_is_long_enough)
{
	CHECK(warm_has_life(300000, 0, 1000000, WARM_LIFE_MIN_MS));
	CHECK(!warm_has_life(1, 0, 0, WARM_LIFE_MIN_MS - 1));
	CHECK(warm_has_life(300000, 360000, 60000, 60000));
	CHECK(!warm_has_life(300001, 360000, 60000, 60000));
	CHECK(warm_has_life(300000, 300000, -5, 60000));	/* clocks differ */
}

TEST(how_many_are_made)
{
	static const struct warm_pool base = { .size = 4, .burst = 2, .per_hour = 10, .hour_at_ms = 1000, .now_wall_ms = 2000,
					       .now_ms = 500 };
	struct warm_refill r;
	struct warm_pool p;

#define REFILL(n_make, n_end, again, ...)                                                                          \
	do {                                                                                                       \
		p = base;                                                                                          \
		__VA_ARGS__;                                                                                       \
		warm_refill(&p, &r);                                                                               \
		CHECK_INT(r.make, n_make);                                                                         \
		CHECK_INT(r.end, n_end);                                                                           \
		CHECK_INT(r.again_in_ms, again);                                                                   \
	} while (0)
	REFILL(2, 0, 0, );
	REFILL(1, 0, 0, p.ready = 3);
	REFILL(0, 0, 0, p.ready = 4);
	REFILL(0, 2, 0, p.ready = 6);
	REFILL(0, 3, 0, (p.size = 0, p.ready = 3));
	REFILL(0, 0, 0, (p.coming = 2, p.making = 2));	/* the burst is under way */
	REFILL(1, 0, 0, (p.coming = 2, p.making = 1));
	REFILL(2, 0, 0, p.coming = 2);			/* they are being prepared */
	REFILL(1, 0, 0, p.made = 9);
	REFILL(0, 0, WARM_HOUR_MS - 1000, p.made = 10);
	REFILL(0, 0, WARM_HOUR_MS - 1000, p.made = 11);
	REFILL(2, 0, 0, (p.made = 10, p.per_hour = 0));
	REFILL(2, 0, 0, (p.made = 10, p.now_wall_ms = 1000 + WARM_HOUR_MS));
	REFILL(2, 0, 0, (p.made = 10, p.now_wall_ms = 900));	/* the clock was set back */
	REFILL(0, 0, 0, p.failed = true);
	REFILL(0, 1, 0, (p.failed = true, p.ready = 5));
	REFILL(0, 0, 200, p.retry_at_ms = 700);
	REFILL(2, 0, 0, p.retry_at_ms = 500);
	REFILL(0, 0, 0, p.active_ms = 60000);			/* nobody has wanted one yet */
	REFILL(2, 0, 0, (p.active_ms = 60000, p.waiting = 1));
	REFILL(2, 0, 0, (p.active_ms = 1001, p.wanted_at_ms = 1000));
	REFILL(0, 0, 0, (p.active_ms = 1000, p.wanted_at_ms = 1000));
}

TEST(when_it_stops)
{
	CHECK(!warm_is_failed(2) && warm_is_failed(3));
	for (uint32_t i = 1; i < 40; i++) {
		CHECK(warm_retry_ms(i, 0) >= 500 && warm_retry_ms(i, 0) <= 60000);
		CHECK(warm_retry_ms(i, UINT64_MAX) <= 60000);
	}
	CHECK(warm_is_its_fault(R_TEMPLATE_NOT_FOUND) && warm_is_its_fault(R_OUTCOME_UNKNOWN) &&
	      warm_is_its_fault(R_SANDBOX_NOT_READY));
	CHECK(!warm_is_its_fault(R_UNREACHABLE) && !warm_is_its_fault(R_RATE_LIMITED) && !warm_is_its_fault(R_KEY_REJECTED));
}

TEST(whose_turn_it_is)
{
	static const uid_t many[] = { 7, 7, 7, 3, 9 };

	CHECK_INT(warm_next_waiter(many, 5, 0), 3);
	CHECK_INT(warm_next_waiter(many, 5, 3), 0);
	CHECK_INT(warm_next_waiter(many, 5, 7), 4);
	CHECK_INT(warm_next_waiter(many, 5, 9), 3);
	CHECK_INT(warm_next_waiter(many, 1, 7), 0);
}

TEST_MAIN()
