/* SPDX-License-Identifier: MIT */
/* The pure files of lifecycle, by tables. */
#include <errno.h>
#include <stdarg.h>

#include "daemon/auth/grant.h"
#include "proto/cloud/model.h"
#include "daemon/sandbox/rules/page.h"
#include "daemon/sandbox/rules/pairs.h"
#include "daemon/sandbox/rules/plan.h"
#include "daemon/sandbox/rules/policy.h"
#include "daemon/sandbox/rules/resolve.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/str.h"
#include "proto/cloud/netrules.h"
#include "tests/lib/test.h"

TEST(names)
{
	static const struct { const char *s; bool ok; } t[] = {
		{ "a", true },
		{ "my-sandbox_1.x", true },
		{ "i0a1b2c3d4e5f6g7h8i9", true },	/* one short of an id */
		{ "i0a1b2c3d4e5f6g7h8i9j", false },	/* an id */
		{ "i0a1b2c3d4e5f6g7h8-9j", true },
		{ "", false },
		{ "1a", false },
		{ "A", false },
		{ "a b", false },
		{ "a/b", false },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", true },	/* 63 */
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(rules_name_is_valid(t[i].s), t[i].ok);
}

TEST(request_ids)
{
	char long_id[RULES_REQUEST_ID_MAX + 2];

	memset(long_id, 'x', sizeof(long_id));
	long_id[RULES_REQUEST_ID_MAX + 1] = 0;
	CHECK(!rules_request_id_is_valid(long_id));
	long_id[RULES_REQUEST_ID_MAX] = 0;
	CHECK(rules_request_id_is_valid(long_id));
	CHECK(!rules_request_id_is_valid(""));
	CHECK(!rules_request_id_is_valid("a\n"));
	CHECK(!rules_request_id_is_valid("\xc3\xa9"));
	CHECK(rules_request_id_is_valid("a b~"));
}

TEST(spans)
{
	static const struct { uint64_t ms; bool ok; uint32_t s; } t[] = {
		{ 0, true, 300 },
		{ 1, true, 1 },
		{ 1000, true, 1 },
		{ 1001, true, 2 },
		{ RULES_SPAN_MAX_MS, true, 30 * 24 * 3600 },
		{ RULES_SPAN_MAX_MS + 1, false, 0 },
		{ UINT64_MAX, false, 0 },
	};
	uint32_t s;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(rules_timeout_s(t[i].ms, &s), t[i].ok);
		if (t[i].ok)
			CHECK_INT(s, t[i].s);
	}
	CHECK_INT(rules_answer_by_ms(1000, 0), 900);
	CHECK_INT(rules_answer_by_ms(100000, 0), 99800);
	CHECK_INT(rules_answer_by_ms(5, 10), 5);
	for (unsigned n = 0; n < 200; n++) {
		CHECK(rules_backoff_ms(n, 200, 5000, 12345) <= 5000);
		CHECK(rules_backoff_ms(n, 200, 5000, 0) >= 100);
	}
	CHECK_INT(rules_backoff_ms(0, 0, 0, 9), 0);
}

TEST(reasons_of_an_end)
{
	CHECK_INT(rules_gone_reason(true, 0, 0, false), R_SANDBOX_KILLED);
	CHECK_INT(rules_gone_reason(false, 10000, 20000, false), R_SANDBOX_EXPIRED);
	CHECK_INT(rules_gone_reason(false, 10000, 9000, false), R_SANDBOX_EXPIRED);
	CHECK_INT(rules_gone_reason(false, 100000, 20000, false), R_SANDBOX_GONE);
	CHECK_INT(rules_gone_reason(false, 0, 20000, false), R_SANDBOX_GONE);
	CHECK_INT(rules_gone_reason(false, 10000, 20000, true), R_SANDBOX_GONE);
}

TEST(memory_of_requests)
{
	const int64_t day = 24ll * 3600 * 1000;
	struct status st;

	CHECK(!rules_request_is_old(0, true, 0, 100 * day, day));
	CHECK(!rules_request_is_old(0, false, 0, 6 * day, day));
	CHECK(!rules_request_is_old(0, false, 7 * day, 7 * day, day));
	CHECK(rules_request_is_old(0, false, 7 * day, 8 * day, day));
	status_set(&st, R_RATE_LIMITED, "x");
	CHECK_INT(rules_refusal_ms(&st), 60000);
	st.retry_after_ms = 2000;
	CHECK_INT(rules_refusal_ms(&st), 2000);
}

TEST(policies)
{
	struct policy p, q;
	char text[POLICY_TEXT_MAX];

	policy_default(&p);
	CHECK(policy_is_valid(&p));
	CHECK(p.keep_alive && p.on_release == POLICY_LEAVE && p.release_grace_ms == 30000);
	p.on_release = POLICY_KILL;
	p.idle_timeout_ms = 30ull * 24 * 3600 * 1000;
	p.max_age_ms = p.release_grace_ms = p.idle_timeout_ms;
	p.on_cap = POLICY_PAUSE;
	p.on_gone = POLICY_RECREATE;
	p.resume_on_use = true;
	p.keep_alive = false;
	policy_format(&p, text);
	CHECK(!policy_parse(text, &q));
	CHECK(!memcmp(&p, &q, sizeof(p)));
	CHECK(!policy_parse("", &q));
	CHECK(!policy_parse("zz=9;ka", &q)); /* from a newer version */
	CHECK_INT(policy_parse("or=warn", &q), -EINVAL);
	CHECK_INT(policy_parse("or=x", &q), -EINVAL);
	CHECK_INT(policy_parse("oi=leave", &q), -EINVAL);
	CHECK_INT(policy_parse("om=leave", &q), -EINVAL);
	CHECK_INT(policy_parse("oc=leave", &q), -EINVAL);
	CHECK_INT(policy_parse("og=x", &q), -EINVAL);
	CHECK(policy_parse("rg=-1", &q) < 0);
	CHECK(policy_parse("it=99999999999999", &q) < 0);
	CHECK(policy_parse("ma=1x", &q) < 0);
}

/* A memo changes nothing, whatever came before. */
TEST(policies_in_a_row)
{
	static const char *const texts[] = { "ka=0;ru=1", "ka=0;ru=1", "or=x", "ka=0;ru=1", "", "or=x", "or=x", "ka=1", "it=7", "it=7" };
	struct policy_memo memo = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct policy want, have;
		int r;

		policy_default(&want);
		policy_default(&have);
		r = policy_parse(texts[i], &want);
		CHECK_INT(policy_parse_next(&memo, texts[i], &have), r);
		CHECK(policy_equal(&want, &have));
	}
}

TEST(tags_there_and_back)
{
	struct tags in = {.host = "h",
			  .req = "abc",
			  .name = "sandbox",
			  .uid = 12,
			  .seq = 99,
			  .policy = "ka=1"};
	struct cloud_kvs kvs = { 0 };
	struct tags out;

	CHECK(!tags_add(&kvs, &in));
	CHECK(!cloud_kvs_add(&kvs, "user", "x"));
	tags_read(&kvs, &out);
	CHECK(tags_are_of(&out, "h") && !tags_are_of(&out, "hh"));
	CHECK_STR(out.req, "abc");
	CHECK_STR(out.name, "sandbox");
	CHECK_STR(out.policy, "ka=1");
	CHECK(out.has_uid && out.uid == 12 && out.seq == 99);
	cloud_kvs_fini(&kvs);
	CHECK(!cloud_kvs_add(&kvs, TAG_HOST, ""));
	CHECK(!cloud_kvs_add(&kvs, TAG_UID, "4294967295"));
	CHECK(!cloud_kvs_add(&kvs, TAG_SEQ, "-1"));
	tags_read(&kvs, &out);
	CHECK(!out.host && !out.has_uid && !out.seq && !tags_are_of(&out, ""));
	cloud_kvs_fini(&kvs);
}

TEST(metadata_pairs)
{
	static const struct sandbox_pair v[] = { { "b", "2" }, { "a", "" }, { "c", "x y" } };
	static const struct sandbox_pair want[] = { { "c", "x y" }, { "a", "" } };
	static const struct sandbox_pair wrong[] = { { "c", "x" } }, absent[] = { { "d", "" } };
	struct pairs p, q;

	CHECK(!pairs_from(&p, v, 3));
	CHECK_STR(p.v[0].key, "a");
	CHECK(!pairs_from_blob(&q, p.blob, p.len));
	CHECK(pairs_equal(&p, &q));
	CHECK(pairs_have(&p, want, 2) && pairs_have(&p, NULL, 0));
	CHECK(!pairs_have(&p, wrong, 1) && !pairs_have(&p, absent, 1));
	pairs_fini(&q);
	CHECK_INT(pairs_from_blob(&q, "a", 1), -EBADMSG);
	CHECK_INT(pairs_from_blob(&q, "a\0", 2), -EBADMSG);
	CHECK(!pairs_from_blob(&q, "", 0));
	CHECK(!pairs_have(&q, want, 1));
	pairs_fini(&q);
	pairs_fini(&p);
}

/* C-9: one list may be wrong. */
TEST(lists_that_prove_that_nothing_was_made)
{
	CHECK_INT(resolve_lists_needed(0), 1);
	CHECK_INT(resolve_lists_needed(300), 1);
	CHECK_INT(resolve_lists_needed(60000), 3);	/* after 15, 31 and 61 s */
	CHECK_INT(resolve_lists_needed(180000), 4);	/* of those after 61, 91, 121, 151 and 181 s */
}

/* --- lists of the cloud --- */

static struct cloud_sandbox *sb(const char *id, const char *host, const char *req, int64_t started)
{
	struct cloud_sandbox *s = calloc(1, sizeof(*s));

	s->id = str_dup(id);
	s->started_at_ms = started;
	s->state = CLOUD_STATE_RUNNING;
	if (host)
		CHECK(!cloud_kvs_add(&s->metadata, TAG_HOST, host));
	if (req)
		CHECK(!cloud_kvs_add(&s->metadata, TAG_REQ, req));
	CHECK(!cloud_kvs_add(&s->metadata, TAG_SEQ, "7"));
	return s;
}

static struct cloud_list *list(size_t n, ...)
{
	struct cloud_list *l = calloc(1, sizeof(*l));
	va_list ap;

	l->v = calloc(n + 1, sizeof(struct cloud_sandbox *));
	va_start(ap, n);
	for (size_t i = 0; i < n; i++)
		l->v[l->n++] = va_arg(ap, struct cloud_sandbox *);
	va_end(ap);
	return l;
}

#define WHEN(...) (&(struct resolve_when){ __VA_ARGS__ })

TEST(resolving)
{
	struct cloud_list *l = list(4, sb("ib", "h", "r", 20), sb("ia", "h", "r", 10),
				    sb("ic", "x", "r", 1), sb("id", "h", "q", 1));
	struct cloud_list *none = list(0);
	uint64_t wait;
	size_t i;

	CHECK_INT(resolve_plan(l, "h", "r", WHEN(0, 0, 100), &i, &wait), RESOLVE_FOUND);
	CHECK_STR(l->v[i]->id, "ia"); /* the oldest: children carry the tag too */
	CHECK_INT(resolve_plan(l, "h", "r", WHEN(9, 1000, 100), &i, &wait), RESOLVE_FOUND);
	CHECK_INT(resolve_plan(none, "h", "r", WHEN(1, 0, 180000), &i, &wait), RESOLVE_WAIT);
	CHECK_INT(wait, 2000);
	CHECK_INT(resolve_plan(none, "h", "r", WHEN(9, 170000, 180000), &i, &wait), RESOLVE_WAIT);
	CHECK_INT(wait, 10000);
	CHECK_INT(resolve_plan(NULL, "h", "r", WHEN(9, 190000, 180000), &i, &wait), RESOLVE_WAIT);
	CHECK_INT(wait, 30000); /* no list proves nothing, however late */
	CHECK_INT(resolve_plan(none, "h", "r", WHEN(9, 180000, 180000), &i, &wait), RESOLVE_CLOSE);
	cloud_list_free(l);
	cloud_list_free(none);
}

TEST(reconciling)
{
	static const struct {
		struct plan_row row;
		enum plan_kind listed;
		bool is_expected;
	} t[] = {
		{ { .fresh_at_ms = 399 }, PLAN_UPDATE, true },
		{ { .fresh_at_ms = 400 }, PLAN_NOTHING, false },	/* made after the list began */
		{ { .busy = true }, PLAN_NOTHING, false },
		{ { .gone = true }, PLAN_REVIVE, false },
		{ { .gone = true, .killed = true }, PLAN_NOTHING, false },
		{ { .gone = true, .fresh_at_ms = 500 }, PLAN_NOTHING, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		for (int is_tagged = 0; is_tagged < 2; is_tagged++)
			CHECK_INT(plan_listed(&t[i].row, is_tagged, 400), t[i].listed);
		CHECK_INT(plan_expects(&t[i].row, 400), t[i].is_expected);
	}
	CHECK_INT(plan_listed(NULL, true, 400), PLAN_ADOPT);
	CHECK_INT(plan_listed(NULL, false, 400), PLAN_NOTHING); /* another's, or nobody's */
}

TEST(mass_loss_is_suspicious)
{
	static const struct { size_t rows, listed; bool suspicious; } t[] = {
		{ 0, 0, false },
		{ 2, 0, false },
		{ 3, 0, true },
		{ 50, 0, true },
		{ 50, 47, false },
		{ 10, 7, true },
		{ 10, 8, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(plan_is_suspicious(t[i].rows, t[i].rows - t[i].listed), t[i].suspicious);
}

TEST(pages)
{
	struct sandbox_pair m[] = { { "a", "1" }, { "b", "2" } }, r[] = { { "b", "2" }, { "a", "1" } };
	struct sandbox_list q = { .metadata = m, .n_metadata = 2 };
	struct sandbox_list same = { .metadata = r, .n_metadata = 2 };
	struct page_place in = { .started_at_ms = 1700000000123, .id = "iabc" }, out;
	uint64_t question = page_question(&q, 5, "default");
	char *token = page_token(&in, question);
	uint32_t n;

	CHECK(page_question(&same, 5, "default") == question);
	CHECK(page_question(&q, 5, "other") != question);
	CHECK(!page_token_parse(token, question, &out));
	CHECK_INT(out.started_at_ms, in.started_at_ms);
	CHECK_STR(out.id, "iabc");
	CHECK_INT(page_token_parse(token, question + 1, &out), -EINVAL);
	CHECK_INT(page_token_parse("%%%", question, &out), -EINVAL);
	CHECK_INT(page_token_parse("AAAA", question, &out), -EINVAL);
	free(token);
	CHECK(page_size(0, &n) && n == 100);
	CHECK(page_size(1000, &n) && n == 1000);
	CHECK(!page_size(1001, &n));
	CHECK(page_cmp(2, "b", 1, "a") < 0); /* newest first */
	CHECK(page_cmp(1, "a", 1, "b") < 0);
	CHECK(page_cmp(1, "a", 1, "a") == 0);
}

TEST(grants)
{
	static const struct principal owner = { .uid = 5, .gid = 6, .n_groups = 1, .groups = { 7 } };
	static const struct principal other = { .uid = 8 }, admin = { .uid = 9, .admin = true };

	CHECK_INT(grant_row(&owner, 5), GRANT_OK);
	CHECK_INT(grant_row(&other, 5), GRANT_HIDDEN);
	CHECK_INT(grant_row(&admin, 5), GRANT_OK);
	CHECK_INT(grant_all_owners(&owner), GRANT_DENIED);
	CHECK_INT(grant_all_owners(&admin), GRANT_OK);
	CHECK_INT(grant_account(&owner, "a", ""), GRANT_OK);
	CHECK_INT(grant_account(&owner, "a", "a"), GRANT_OK);
	CHECK_INT(grant_account(&owner, "a", "b"), GRANT_DENIED);
	CHECK_INT(grant_account(&admin, "a", "b"), GRANT_OK);
	CHECK_INT(grant_daemon(&other), GRANT_DENIED);
	CHECK_INT(grant_daemon(&admin), GRANT_OK);
	CHECK(principal_in_group(&owner, 6) && principal_in_group(&owner, 7));
	CHECK(!principal_in_group(&owner, 8));
}

TEST(case_061_062_lifecycle)
{
	static const struct {
		int on_timeout, keep, resume;	/* as a row has them */
		const char *field;
	} t[] = {
		{ 0, -1, -1, "" },
		{ 1, -1, -1, "" },
		{ 1, -1, 0, "" },
		{ 2, -1, -1, "" },
		{ 2, 0, -1, "" },
		{ 2, 0, 0, "" },
		{ 2, 1, 1, "" },
		{ 2, 0, 1, "lifecycle.auto_resume" },
		{ 1, -1, 1, "lifecycle.auto_resume" },
		{ 0, -1, 1, "lifecycle.auto_resume" },
		{ 1, 1, -1, "lifecycle.keep_memory" },
		{ 0, 0, -1, "lifecycle.keep_memory" },
		{ 0, 1, -1, "lifecycle.keep_memory" },
		{ 0, 0, 0, "lifecycle.keep_memory" },
		{ 0, 1, 0, "lifecycle.keep_memory" },
		{ 0, 0, 1, "lifecycle.keep_memory" },
		{ 0, 1, 1, "lifecycle.keep_memory" },
		{ 0, -1, 0, "" },
		{ 1, 0, -1, "lifecycle.keep_memory" },
		{ 1, 0, 0, "lifecycle.keep_memory" },
		{ 1, 1, 0, "lifecycle.keep_memory" },
		{ 1, 0, 1, "lifecycle.keep_memory" },
		{ 1, 1, 1, "lifecycle.keep_memory" },
		{ 2, 1, -1, "" },
		{ 2, 1, 0, "" },
		{ 2, -1, 0, "" },
		{ 2, -1, 1, "" },
		{ 7, -1, -1, "lifecycle.on_timeout" },
	};
	struct status st;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cloud_lifecycle l = { (enum tri)t[i].on_timeout, (enum tri)(t[i].keep + 1),
					     (enum tri)(t[i].resume + 1) };
		bool ok = rules_check_lifecycle(&l, &st);

		CHECK_INT(ok, !t[i].field[0]);
		if (!ok)
			CHECK_STR(status_evidence_get(&st, "field"), t[i].field);
	}
}

TEST(network_faults_name_the_field_of_the_api)
{
	struct netrules_fault f = { NETRULES_ALLOW_OUT, "is wrong" };
	struct status st;

	rules_network_fault(&f, &st);
	CHECK_INT(st.reason, R_FIELD_INVALID);
	CHECK_STR(status_evidence_get(&st, "field"), "network.allow_out");
	f.field = NETRULES_PROXY_USERNAME;
	rules_network_fault(&f, &st);
	CHECK_STR(status_evidence_get(&st, "field"), "network.egress_proxy.username");
	f.field = NETRULES_TOKENS;
	rules_network_fault(&f, &st);
	CHECK_STR(status_evidence_get(&st, "field"), "iam_tokens");
}

TEST_MAIN()
