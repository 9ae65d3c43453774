/* SPDX-License-Identifier: MIT */
/* The corners of the pure files that no story of test_pure.c and test_evaluate.c passes: sh tests/coverage.sh wants them all. */
#include <errno.h>
#include <stdio.h>

#include "proto/cloud/model.h"
#include "daemon/sandbox/rules/evaluate.h"
#include "daemon/sandbox/rules/page.h"
#include "daemon/sandbox/rules/policy.h"
#include "daemon/sandbox/rules/resolve.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/str.h"
#include "tests/lib/oom.h"
#include "tests/lib/test.h"

/* --- rules --- */

TEST(ids)
{
	char s[66] = "";

	CHECK(!rules_looks_like_id("") && rules_looks_like_id("i0") && !rules_looks_like_id("I0"));
	memset(s, 'a', 65);
	CHECK(!rules_looks_like_id(s) && rules_looks_like_id(s + 1));
	CHECK(!rules_name_is_valid("~a") && !rules_name_is_valid("{"));
}

TEST(creates)
{
	static struct cloud_kv good[] = {{(char *)"a", (char *)""}},
			       empty[] = {{(char *)"", (char *)"x"}},
			       ours[] = {{(char *)"agentbox.x", (char *)""}};
	static const struct { struct sandbox_create c; bool ok; const char *field;
	} t[] = {
		{{0}, true, ""},
		{{.request_id = (char *)"",
		  .name = (char *)"",
		  .what.metadata = {good, 1},
		  .what.envs = {ours, 1}},
		 true,
		 ""},
		{{.request_id = (char *)"r", .name = (char *)"sandbox", .must_create = true},
		 true,
		 ""},
		{{.request_id = (char *)"\n"}, false, "request_id"},
		{{.name = (char *)"Sandbox"}, false, "name"},
		{{.must_create = true}, false, "must_create"},
		{{.timeout_ms = RULES_SPAN_MAX_MS + 1}, false, "sandbox_timeout"},
		{{.what.metadata = {empty, 1}}, false, "metadata"},
		{{.what.metadata = {ours, 1}}, false, "metadata"},
		{{.what.envs = {empty, 1}}, false, "envs"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct status st = STATUS_OK;

		CHECK_INT(rules_check_create(&t[i].c, &st), t[i].ok);
		CHECK_INT(st.reason, t[i].ok ? 0 : R_FIELD_INVALID);
		if (!t[i].ok)
			CHECK(strstr(st.text, t[i].field) || st.n_evidence);
	}
}

TEST(moments)
{
	struct status st;

	status_set(&st, R_RATE_LIMITED, "x");
	st.retry_after_ms = 100000;
	CHECK_INT(rules_refusal_ms(&st), 60000);
	CHECK(!rules_request_is_old(0, false, 0, 1, 0));
	CHECK_INT(rules_answer_by_ms(1000, 1000), 1000);
	CHECK_INT(evaluate_retry_at_ms(0, INT64_MAX / 2, 0, 0) >= 250, 1);
	CHECK(evaluate_retry_at_ms(1, 0, 1000, 0) >= 1250);	/* its end is over: the wait is not shortened any more */
}

/* --- policies --- */

TEST(policy_values)
{
	struct policy p;
	struct status st;
	char long_text[POLICY_TEXT_MAX + 1];

	for (unsigned i = 0; i < 9; i++) {
		static const struct policy ok = { .on_release = POLICY_LEAVE, .on_idle = POLICY_PAUSE,
						  .on_max_age = POLICY_KILL, .on_cap = POLICY_WARN, .on_gone = POLICY_FAIL };

		p = ok;
		CHECK(policy_is_valid(&p));
		if (i == 0)
			p.on_release = (enum policy_action)9;
		else if (i == 1)
			p.on_idle = POLICY_LEAVE;
		else if (i == 2)
			p.on_max_age = POLICY_WARN;
		else if (i == 3)
			p.on_cap = POLICY_LEAVE;
		else if (i == 4)
			p.on_gone = (enum policy_on_gone)0;
		else if (i == 5)
			p.release_grace_ms = RULES_SPAN_MAX_MS + 1;
		else if (i == 6)
			p.idle_timeout_ms = RULES_SPAN_MAX_MS + 1;
		else if (i == 7)
			p.max_age_ms = RULES_SPAN_MAX_MS + 1;
		else
			p.on_gone = (enum policy_on_gone)7;
		CHECK(!policy_is_valid(&p));
	}
	memset(long_text, 'x', sizeof(long_text));
	long_text[POLICY_TEXT_MAX] = 0;
	CHECK_INT(policy_parse(long_text, &p), -EINVAL);
	st = (struct status)STATUS_OK;
	CHECK(!policy_check(&(struct policy_change){ .set = BIT(POLICY_F_ON_GONE), .to.on_gone = (enum policy_on_gone)7 }, &st));
	CHECK_INT(st.reason, R_FIELD_INVALID);
}

/* --- pages --- */

static char *token_of(const char *text)
{
	return str_base64_encode(text, strlen(text), false);
}

TEST(bad_tokens)
{
	static const char *const t[] = { "", "1 0000000000000007 ", "1 0000000000000007 5", "1 0000000000000007 x i",
					 "1 0000000000000008 5 i", "1 0000000000000007 -5 i" };
	char text[520];
	struct page_place p;
	char *token;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		token = token_of(t[i]);
		CHECK_INT(page_token_parse(token, 7, &p), -EINVAL);
		free(token);
	}
	token = token_of("1 0000000000000007 5 i");
	CHECK(!page_token_parse(token, 7, &p) && p.started_at_ms == 5);
	free(token);
	token = str_base64_encode("1 0000000000000007 5 i\0x", 24, false);
	CHECK_INT(page_token_parse(token, 7, &p), -EINVAL);
	free(token);
	snprintf(text, sizeof(text), "1 0000000000000007 5 %0100d", 1);
	token = token_of(text);
	CHECK_INT(page_token_parse(token, 7, &p), -EINVAL);	/* an id that is too long */
	free(token);
	memset(text, 'A', sizeof(text));
	text[519] = 0;
	CHECK_INT(page_token_parse(text, 7, &p), -EINVAL);
	CHECK(page_cmp(1, "a", 2, "a") > 0);
}

TEST(matches)
{
	struct sandbox_pair have[] = {{"k", "v"}, {"l", "w"}}, want[] = {{"l", "w"}},
			    wrong[] = {{"l", "v"}}, absent[] = {{"m", "v"}};
	struct sandbox_view b = {.state = SANDBOX_RUNNING,
				 .template_id = "tid",
				 .alias = "base",
				 .metadata = have,
				 .n_metadata = 2};
	struct sandbox_view gone = { .state = SANDBOX_GONE, .template_id = "tid", .alias = "" };
	const struct { struct sandbox_list q; bool b, gone; } t[] = {
		{ { 0 }, true, false },
		{ { .states = BIT(SANDBOX_GONE) }, false, true },
		{ { .template_id = "" }, true, false },
		{ { .template_id = "tid" }, true, false },
		{ { .template_id = "base" }, true, false },
		{ { .template_id = "old" }, false, false },
		{ { .metadata = want, .n_metadata = 1 }, true, false },
		{ { .metadata = wrong, .n_metadata = 1 }, false, false },
		{ { .metadata = absent, .n_metadata = 1 }, false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(page_matches(&t[i].q, &b), t[i].b);
		CHECK_INT(page_matches(&t[i].q, &gone), t[i].gone);
		for (size_t k = 0; k < i; k++)	/* other questions, but for "" and none */
			CHECK((page_question(&t[i].q, 5, "a") == page_question(&t[k].q, 5, "a")) ==
			      (i == 2 && k == 0));
	}
}

/* --- resolving --- */

#define WHEN(...) (&(struct resolve_when){ __VA_ARGS__ })

static struct cloud_sandbox *sb(const char *id, const char *host, const char *req, int64_t started)
{
	struct cloud_sandbox *s = calloc(1, sizeof(*s));

	s->id = str_dup(id);
	s->started_at_ms = started;
	CHECK(!cloud_kvs_add(&s->metadata, TAG_HOST, host));
	CHECK(!cloud_kvs_add(&s->metadata, TAG_REQ, req));
	return s;
}

static struct cloud_list *list_of(struct cloud_sandbox *const *v, size_t n)
{
	struct cloud_list *l = calloc(1, sizeof(*l));

	l->v = calloc(n + 1, sizeof(*l->v));
	for (size_t i = 0; i < n; i++)
		l->v[l->n++] = v[i];
	return l;
}

static bool is_tracked(const char *id, void *user)
{
	return str_eq(id, user);
}

TEST(settling_equals)
{
	struct cloud_sandbox *v[] = { sb("ib", "h", "r", 5), sb("ia", "h", "r", 5), sb("ic", "h", "r", 5), sb("id", "h", "r", 9) };
	struct cloud_list *l = list_of(v, ARRAY_SIZE(v));
	uint64_t wait;
	size_t i;

	CHECK_INT(resolve_plan(l, "h", "r", WHEN(0, 0, 100), &i, &wait), RESOLVE_FOUND);
	CHECK_STR(l->v[i]->id, "ia");
	cloud_list_free(l);
}

TEST(settling_forks)
{
	struct cloud_sandbox *v[] = { sb("iold", "h", "r", 5000), sb("iknown", "h", "r", 50000), sb("iother", "x", "r", 50000),
				      sb("iquery", "h", "q", 50000), sb("itracked", "h", "r", 50000), sb("ia", "h", "r", 50000),
				      sb("ib", "h", "r", 49500) };
	struct cloud_list *l = list_of(v, ARRAY_SIZE(v)), *none = list_of(NULL, 0);
	struct cloud_strs known = { 0 };
	struct resolve_fork f = {.host = "h",
				 .req = "r",
				 .known = &known,
				 .made_at_ms = 50000,
				 .count = 2,
				 .is_tracked = is_tracked,
				 .user = (void *)"itracked"};
	size_t at[3], n = 9;
	uint64_t wait;

	CHECK(!cloud_strs_add(&known, "iknown"));
	CHECK_INT(resolve_fork(l, &f, WHEN(1, 0, 1000000), at, &n, &wait), RESOLVE_FOUND);
	CHECK(n == 2 && at[0] == 5 && at[1] == 6);
	f.count = 3;	/* one is missing: only after the horizon */
	CHECK_INT(resolve_fork(l, &f, WHEN(1, 0, 1000000), at, &n, &wait), RESOLVE_WAIT);
	CHECK_INT(resolve_fork(l, &f, WHEN(1, 1000000, 1000000), at, &n, &wait), RESOLVE_FOUND);
	CHECK_INT(n, 2);
	CHECK_INT(resolve_fork(none, &f, WHEN(1, 1000000, 1000000), at, &n, &wait), RESOLVE_CLOSE);
	CHECK_INT(resolve_fork(NULL, &f, WHEN(1, 1000000, 1000000), at, &n, &wait), RESOLVE_WAIT);
	f.count = 1;	/* more than it can have made */
	CHECK_INT(resolve_fork(l, &f, WHEN(1, 0, 1000000), at, &n, &wait), RESOLVE_AMBIGUOUS);
	cloud_strs_fini(&known);
	cloud_list_free(l);
	cloud_list_free(none);
}

TEST(settling_snapshots)
{
	struct cloud_snapshots *l = calloc(1, sizeof(*l));
	struct cloud_strs known = { 0 };
	uint64_t wait;
	size_t i = 9;

	CHECK(!cloud_strs_add(&known, "old"));
	for (unsigned k = 0; k < 3; k++) {
		struct cloud_snapshot *s;

		CHECK_INT(resolve_snapshot(l, &known, WHEN(1, 0, 9), &i, &wait),
			  k == 2 ? RESOLVE_FOUND : RESOLVE_WAIT);
		s = calloc(1, sizeof(*s));
		s->id = str_dup(k == 0 ? "old" : k == 1 ? "new" : "newer");
		CHECK(!cloud_snapshots_add(l, s));
	}
	CHECK_INT(i, 1);
	CHECK_INT(resolve_snapshot(l, &known, WHEN(1, 0, 9), &i, &wait), RESOLVE_AMBIGUOUS);
	CHECK_INT(resolve_snapshot(NULL, &known, WHEN(1, 10, 9), &i, &wait), RESOLVE_WAIT);
	cloud_snapshots_free(l);
	cloud_strs_fini(&known);
}

TEST(tags_without_memory)
{
	struct tags t = { .host = "h", .req = "r", .name = "n", .policy = "" };
	struct cloud_kvs kvs = { 0 };

	if (!oom_after(1))
		return;
	CHECK_INT(tags_add(&kvs, &t), -ENOMEM);
	cloud_kvs_fini(&kvs);
	t.name = "";
	CHECK(!tags_add(&kvs, &t));
	tags_read(&kvs, &t);
	CHECK_STR(t.name, "");
	cloud_kvs_fini(&kvs);
}

/* --- what is due --- */

static struct evaluation decide(struct evaluate_input b, const struct policy *p, int64_t now)
{
	struct evaluation d;

	b.policy = p;
	evaluate(&b, now, &d);
	return d;
}

TEST(dues)
{
	const int64_t t0 = 1000000;
	const struct evaluate_input base = {.state = SANDBOX_RUNNING,
					 .ours = true,
					 .timeout_s = 300,
					 .started_at_ms = t0,
					 .end_at_ms = t0 + 300000,
					 .learnt_at_ms = t0};
	struct policy p;
	struct evaluate_input b = base;

	policy_default(&p);
	p.on_cap = POLICY_PAUSE;
	b.end_at_ms = 0;	/* its end is not known: neither extended nor warned of, nor capped */
	b.leases = 1;
	b.capped = true;
	CHECK_INT(decide(b, &p, t0).act, EVALUATE_NOTHING);
	CHECK_INT(decide(b, &p, t0).again_at_ms, EVALUATE_NEVER);
	b.capped = false;
	CHECK_INT(decide(b, &p, t0 + 1000000).act, EVALUATE_NOTHING);

	b = base;		/* paused, and its end capped: that end does not come */
	b.state = SANDBOX_PAUSED;
	b.capped = true;
	b.leases = 1;
	CHECK_INT(decide(b, &p, t0 + 299000).act, EVALUATE_NOTHING);

	b = base;		/* somebody else's, leased and capped: it is only warned of */
	b.ours = false;
	b.leases = 1;
	b.capped = true;
	CHECK_INT(decide(b, &p, t0).act, EVALUATE_WARN);
	b.cap_told = true;
	CHECK_INT(decide(b, &p, t0 + 299999).act, EVALUATE_TELL_VERY_SOON);
	b.cap_told = false;
	b.ours = true;
	b.timeout_s = 15;	/* so short that the lead is a quarter of it */
	CHECK_INT(decide(b, &p, t0 + 296000).act, EVALUATE_TELL_VERY_SOON);
	CHECK_INT(decide(b, &p, t0 + 296250).act, EVALUATE_PAUSE);

	b = base;		/* old, but nobody knows how old */
	p.max_age_ms = 1000;
	b.started_at_ms = 0;
	CHECK(decide(b, &p, t0 + 5000).rule != EVALUATE_BY_MAX_AGE);

	b = base;		/* idle since when? */
	policy_default(&p);
	p.idle_timeout_ms = 1000;
	CHECK_INT(decide(b, &p, t0 + 5000).act, EVALUATE_NOTHING);
	b.used_at_ms = t0;
	b.state = SANDBOX_PAUSED;
	p.on_idle = POLICY_KILL;
	CHECK_INT(decide(b, &p, t0 + 5000).act, EVALUATE_KILL);

	policy_default(&p);	/* ends learnt after the moment of their warnings */
	b = base;
	b.learnt_at_ms = t0 + 295000;
	CHECK_INT(decide(b, &p, t0 + 296000).act, EVALUATE_NOTHING);
	b.learnt_at_ms = t0;
	b.told_very_soon = true;	/* the first one would come late */
	CHECK_INT(decide(b, &p, t0 + 296000).act, EVALUATE_NOTHING);
	b = base;
	b.leases = 1;
	b.degraded = true;
	b.retry_at_ms = t0 + 400000;
	CHECK_INT(decide(b, &p, t0 + 291000).act, EVALUATE_TELL_VERY_SOON);
}

TEST_MAIN()
