/* SPDX-License-Identifier: MIT */
/* What is done with a sandbox by itself: the decisions, by tables. */
#include <errno.h>

#include "daemon/auth/process.h"
#include "daemon/sandbox/rules/evaluate.h"
#include "daemon/sandbox/rules/policy.h"
#include "daemon/sandbox/rules/rules.h"
#include "tests/lib/test.h"

#define T0 1000000	/* BOOTTIME at which the sandbox began */

/* --- policies --- */

TEST(policy_fields)
{
	static const struct { const char *field, *value; int r; bool ok; enum ab_reason reason; } t[] = {
		{ "on_release", "leave", 0, true, 0 },
		{ "on_release", "pause", 0, true, 0 },
		{ "on_release", "kill", 0, true, 0 },
		{ "on_release", "warn", 0, false, R_FIELD_INVALID },
		{ "on_release", "never", -EINVAL, false, 0 },
		{ "on_idle", "leave", 0, false, R_FIELD_INVALID },
		{ "on_idle", "pause", 0, true, 0 },
		{ "on_idle", "warn", 0, false, R_FIELD_INVALID },
		{ "on_max_age", "leave", 0, false, R_FIELD_INVALID },
		{ "on_max_age", "kill", 0, true, 0 },
		{ "on_cap", "leave", 0, false, R_FIELD_INVALID },
		{ "on_cap", "warn", 0, true, 0 },
		{ "on_gone", "fail", 0, true, 0 },
		{ "on_gone", "recreate", 0, true, 0 },
		{ "on_gone", "kill", -EINVAL, false, 0 },
		{ "release_grace", "0s", 0, true, 0 },
		{ "release_grace", "30d", 0, true, 0 },
		{ "release_grace", "31d", 0, false, R_FIELD_INVALID },
		{ "release_grace", "5", -EINVAL, false, 0 },
		{ "idle_timeout", "0s", 0, false, R_FIELD_INVALID },
		{ "idle_timeout", "10m", 0, true, 0 },
		{ "max_age", "0s", 0, false, R_FIELD_INVALID },
		{ "max_age", "721h", 0, false, R_FIELD_INVALID },
		{ "keep_alive", "no", 0, true, 0 },
		{ "keep_alive", "maybe", -EINVAL, false, 0 },
		{ "resume_on_use", "yes", 0, true, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		enum policy_field f = policy_field_find(t[i].field);
		struct policy_change c = { 0 };
		struct status st = STATUS_OK;

		CHECK(f < POLICY_FIELDS);
		CHECK_STR(policy_field_name(f), t[i].field);
		CHECK_INT(policy_change_text(&c, f, t[i].value), t[i].r);
		if (t[i].r < 0) {
			CHECK_INT(c.set, 0);
			continue;
		}
		CHECK_INT(c.set, BIT(f));
		CHECK_INT(policy_check(&c, &st), t[i].ok);
		CHECK_INT(st.reason, t[i].reason);
	}
	CHECK_INT(policy_field_find("nothing"), POLICY_FIELDS);
}

TEST(policy_merging)
{
	struct policy base, p, q;
	struct policy_change c = { 0 };

	policy_default(&base);
	p = base;
	CHECK(!policy_change_text(&c, POLICY_F_ON_RELEASE, "kill"));
	CHECK(!policy_change_text(&c, POLICY_F_IDLE_TIMEOUT, "5s"));
	CHECK(!policy_change_text(&c, POLICY_F_KEEP_ALIVE, "no"));
	policy_merge(&p, &c);
	CHECK(p.on_release == POLICY_KILL && p.idle_timeout_ms == 5000 && !p.keep_alive);
	CHECK_INT(p.release_grace_ms, base.release_grace_ms);
	CHECK(!policy_equal(&p, &base));
	policy_reset(&p, &base, BIT(POLICY_F_IDLE_TIMEOUT));
	CHECK(p.on_release == POLICY_KILL && !p.idle_timeout_ms);
	q = p;
	CHECK(policy_equal(&p, &q));
	policy_reset(&p, &base, ~0u);
	CHECK(policy_equal(&p, &base));
}

/* --- what is due --- */

struct row {
	const char *what;
	int64_t now;		/* since T0 */
	enum evaluate_action act;
	enum evaluate_rule rule;
	int64_t again;		/* since T0; 0 = never */
	/* what differs from a running sandbox that ends at 300 s; `ours` is the other way round */
	struct evaluate_input b;
	struct policy p;
};

static struct policy with(const struct policy *p)
{
	struct policy q;

	policy_default(&q);
	q.keep_alive = !p->resume_on_use;	/* in the rows: resume_on_use marks keep_alive=no */
	if (p->on_release)
		q.on_release = p->on_release;
	if (p->release_grace_ms)
		q.release_grace_ms = p->release_grace_ms;
	if (p->on_idle)
		q.on_idle = p->on_idle;
	if (p->on_max_age)
		q.on_max_age = p->on_max_age;
	if (p->on_cap)
		q.on_cap = p->on_cap;
	q.idle_timeout_ms = p->idle_timeout_ms;
	q.max_age_ms = p->max_age_ms;
	return q;
}

#define KILL_AFTER(ms) { .on_release = POLICY_KILL, .release_grace_ms = (ms) }

TEST(decisions)
{
	static const struct row t[] = {
		{"nobody uses it: it is warned of", 1000, EVALUATE_NOTHING, 0, 240000, {0}, {0}},
		{"T-60", 240000, EVALUATE_TELL_SOON, 0, 0, {0}, {0}},
		{"T-60 told", 240000, EVALUATE_NOTHING, 0, 290000, {.told_soon = true}, {0}},
		{"T-10", 290000, EVALUATE_TELL_VERY_SOON, 0, 0, {.told_soon = true}, {0}},
		{"T-60 slept through", 291000, EVALUATE_TELL_VERY_SOON, 0, 0, {0}, {0}},
		{"both told",
		 295000,
		 EVALUATE_NOTHING,
		 0,
		 0,
		 {.told_soon = true, .told_very_soon = true},
		 {0}},
		{"the end was learnt later than T-60",
		 250000,
		 EVALUATE_NOTHING,
		 0,
		 290000,
		 {.learnt_at_ms = T0 + 245000},
		 {0}},
		{"leased: at half", 100000, EVALUATE_NOTHING, 0, 150000, {.leases = 1}, {0}},
		{"leased, half is over", 150000, EVALUATE_EXTEND, 0, 0, {.leases = 1}, {0}},
		{"a command", 150000, EVALUATE_EXTEND, 0, 0, {.commands = 1}, {0}},
		{"leased, keep_alive=no",
		 150000,
		 EVALUATE_NOTHING,
		 0,
		 240000,
		 {.leases = 1},
		 {.resume_on_use = true}},
		{"adopted and leased", 150000, EVALUATE_EXTEND, 0, 0, {.leases = 1, .ours = true}, {0}},
		{"the last attempt failed",
		 150000,
		 EVALUATE_NOTHING,
		 0,
		 155000,
		 {.leases = 1, .retry_at_ms = T0 + 155000},
		 {0}},
		{"… and is warned of",
		 240000,
		 EVALUATE_TELL_SOON,
		 0,
		 0,
		 {.leases = 1, .retry_at_ms = T0 + 241000, .degraded = true},
		 {0}},
		{"jitter is earlier", 121000, EVALUATE_EXTEND, 0, 0, {.leases = 1, .rnd = 29500}, {0}},
		{"leased and paused",
		 150000,
		 EVALUATE_NOTHING,
		 0,
		 0,
		 {.leases = 1, .state = SANDBOX_PAUSED},
		 {0}},
		{"leased and being killed",
		 150000,
		 EVALUATE_NOTHING,
		 0,
		 0,
		 {.leases = 1, .state = SANDBOX_KILLING},
		 {0}},
		{"released, in its grace",
		 100000,
		 EVALUATE_NOTHING,
		 0,
		 102000,
		 {.released_at_ms = T0 + 100000},
		 KILL_AFTER(2000)},
		{"released, grace over",
		 102000,
		 EVALUATE_KILL,
		 EVALUATE_BY_RELEASE,
		 0,
		 {.released_at_ms = T0 + 100000},
		 KILL_AFTER(2000)},
		{"released and leased again",
		 102000,
		 EVALUATE_NOTHING,
		 0,
		 150000,
		 {.released_at_ms = T0 + 100000, .leases = 1},
		 KILL_AFTER(2000)},
		{"released with a command",
		 102000,
		 EVALUATE_NOTHING,
		 0,
		 150000,
		 {.released_at_ms = T0 + 100000, .commands = 1},
		 KILL_AFTER(2000)},
		{"released, its command ended later",
		 102000,
		 EVALUATE_NOTHING,
		 0,
		 103000,
		 {.released_at_ms = T0 + 100000, .command_ended_at_ms = T0 + 101000},
		 KILL_AFTER(2000)},
		{"released, calls go on",
		 102000,
		 EVALUATE_KILL,
		 EVALUATE_BY_RELEASE,
		 0,
		 {.released_at_ms = T0 + 100000, .used_at_ms = T0 + 101900},
		 KILL_AFTER(2000)},
		{"released: leave",
		 140000,
		 EVALUATE_LEAVE,
		 EVALUATE_BY_RELEASE,
		 0,
		 {.released_at_ms = T0 + 100000},
		 {0}},
		{"released: pause",
		 140000,
		 EVALUATE_PAUSE,
		 EVALUATE_BY_RELEASE,
		 0,
		 {.released_at_ms = T0 + 100000},
		 {.on_release = POLICY_PAUSE}},
		{"to be paused after a long grace: it must live",
		 200000,
		 EVALUATE_EXTEND,
		 0,
		 0,
		 {.released_at_ms = T0 + 100000},
		 {.on_release = POLICY_PAUSE, .release_grace_ms = 900000}},
		{"released, paused already",
		 140000,
		 EVALUATE_LEAVE,
		 EVALUATE_BY_RELEASE,
		 0,
		 {.released_at_ms = T0 + 100000, .state = SANDBOX_PAUSED},
		 {.on_release = POLICY_PAUSE}},
		{"released and paused: kill",
		 140000,
		 EVALUATE_KILL,
		 EVALUATE_BY_RELEASE,
		 0,
		 {.released_at_ms = T0 + 100000, .state = SANDBOX_PAUSED},
		 KILL_AFTER(2000)},
		{"somebody else's, released",
		 140000,
		 EVALUATE_NOTHING,
		 0,
		 240000,
		 {.released_at_ms = T0 + 100000, .ours = true},
		 KILL_AFTER(2000)},
		{"idle",
		 60000,
		 EVALUATE_PAUSE,
		 EVALUATE_BY_IDLE,
		 0,
		 {.used_at_ms = T0 + 1000},
		 {.idle_timeout_ms = 59000}},
		{"idle soon",
		 50000,
		 EVALUATE_NOTHING,
		 0,
		 60000,
		 {.used_at_ms = T0 + 1000},
		 {.idle_timeout_ms = 59000}},
		{"idle, kill",
		 60000,
		 EVALUATE_KILL,
		 EVALUATE_BY_IDLE,
		 0,
		 {.used_at_ms = T0 + 1000},
		 {.idle_timeout_ms = 59000, .on_idle = POLICY_KILL}},
		{"idle, but leased",
		 60000,
		 EVALUATE_NOTHING,
		 0,
		 150000,
		 {.used_at_ms = T0 + 1000, .leases = 1},
		 {.idle_timeout_ms = 59000}},
		{"idle, just started",
		 60000,
		 EVALUATE_NOTHING,
		 0,
		 70000,
		 {.used_at_ms = T0 + 1000, .quiet_until_ms = T0 + 70000},
		 {.idle_timeout_ms = 59000}},
		{"idle and paused",
		 60000,
		 EVALUATE_NOTHING,
		 0,
		 0,
		 {.used_at_ms = T0 + 1000, .state = SANDBOX_PAUSED},
		 {.idle_timeout_ms = 59000}},
		{"too old, leased",
		 100000,
		 EVALUATE_KILL,
		 EVALUATE_BY_MAX_AGE,
		 0,
		 {.leases = 1},
		 {.max_age_ms = 100000}},
		{"old soon, leased",
		 90000,
		 EVALUATE_NOTHING,
		 0,
		 100000,
		 {.leases = 1},
		 {.max_age_ms = 100000}},
		{"too old: pause",
		 100000,
		 EVALUATE_PAUSE,
		 EVALUATE_BY_MAX_AGE,
		 0,
		 {0},
		 {.max_age_ms = 100000, .on_max_age = POLICY_PAUSE}},
		{"too old and paused",
		 100000,
		 EVALUATE_NOTHING,
		 0,
		 0,
		 {.state = SANDBOX_PAUSED},
		 {.max_age_ms = 100000, .on_max_age = POLICY_PAUSE}},
		{"somebody else's, too old",
		 100000,
		 EVALUATE_NOTHING,
		 0,
		 150000,
		 {.ours = true, .leases = 1},
		 {.max_age_ms = 100000}},
		{"unclaimed",
		 100000,
		 EVALUATE_KILL,
		 EVALUATE_BY_UNCLAIMED,
		 0,
		 {.unclaimed_at_ms = T0 + 10000},
		 KILL_AFTER(1)},
		{"unclaimed, in its grace",
		 20000,
		 EVALUATE_NOTHING,
		 0,
		 100000,
		 {.unclaimed_at_ms = T0 + 10000},
		 KILL_AFTER(1)},
		{"unclaimed: leave",
		 100000,
		 EVALUATE_LEAVE,
		 EVALUATE_BY_UNCLAIMED,
		 0,
		 {.unclaimed_at_ms = T0 + 10000},
		 {0}},
		{"capped: warn",
		 100000,
		 EVALUATE_WARN,
		 EVALUATE_BY_CAP,
		 0,
		 {.leases = 1, .capped = true},
		 {0}},
		{"capped and warned",
		 100000,
		 EVALUATE_NOTHING,
		 0,
		 240000,
		 {.leases = 1, .capped = true, .cap_told = true},
		 {0}},
		{"capped: pause before the end",
		 290000,
		 EVALUATE_PAUSE,
		 EVALUATE_BY_CAP,
		 0,
		 {.leases = 1, .capped = true},
		 {.on_cap = POLICY_PAUSE}},
		{"capped: not yet",
		 230000,
		 EVALUATE_NOTHING,
		 0,
		 240000,
		 {.leases = 1, .capped = true},
		 {.on_cap = POLICY_PAUSE}},
		{"capped, nobody's",
		 290000,
		 EVALUATE_TELL_VERY_SOON,
		 0,
		 0,
		 {.capped = true},
		 {.on_cap = POLICY_PAUSE}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct evaluate_input b = t[i].b;
		struct policy p = with(&t[i].p);
		struct evaluation d;

		b.policy = &p;
		b.ours = !b.ours;
		b.state = b.state ? b.state : SANDBOX_RUNNING;
		b.timeout_s = 300;
		b.started_at_ms = T0;
		b.end_at_ms = T0 + 300000;
		b.learnt_at_ms = b.learnt_at_ms ? b.learnt_at_ms : T0;
		b.unclaimed_grace_ms = 90000;
		evaluate(&b, T0 + t[i].now, &d);
		if (d.act != t[i].act || d.rule != t[i].rule ||
		    (d.act == EVALUATE_NOTHING &&
		     d.again_at_ms != (t[i].again ? T0 + t[i].again : EVALUATE_NEVER))) {
			fprintf(stderr, "%s: act %d rule %s again %lld\n", t[i].what, (int)d.act,
				evaluate_rule_name(d.rule), (long long)(d.again_at_ms - T0));
			exit(1);
		}
	}
}

TEST(extensions)
{
	static const struct { uint32_t timeout_s; int64_t end, learnt, at; uint32_t s; } t[] = {
		{ 300, 300000, 0, 150000, 300 },
		{ 15, 15000, 0, 7500, 15 },
		{ 0, 300000, 0, 150000, 300 },		/* unknown: the default */
		{ 5, 15000, 0, 7500, 15 },		/* the cloud raises less */
		{ 7200, 7200000, 0, 5400000, 3600 },	/* a refresh brings nothing before */
		{ 300, 300000, 200000, 250000, 300 },	/* learnt late */
		{ 300, 300000, 400000, 300000, 300 },	/* over already: at once */
	};
	struct policy p;

	policy_default(&p);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct evaluate_input b = {.state = SANDBOX_RUNNING,
					.policy = &p,
					.leases = 1,
					.timeout_s = t[i].timeout_s,
					.end_at_ms = T0 + t[i].end,
					.learnt_at_ms = T0 + t[i].learnt};

		CHECK_INT(evaluate_extend_at_ms(&b) - T0, t[i].at);
		CHECK_INT(evaluate_extend_s(&b), t[i].s);
		for (b.rnd = 0; b.rnd < 1000000; b.rnd += 9999)	/* never later than half, never out of the span */
			CHECK(evaluate_extend_at_ms(&b) - T0 <= t[i].at &&
			      evaluate_extend_at_ms(&b) - T0 >= t[i].at - t[i].end / 5);
	}
	/* C-3: for the account's budget to be enough it asks for more than its user did, and at once if what it
	 * has is less than half of that. */
	struct evaluate_input many = { .state = SANDBOX_RUNNING, .policy = &p, .leases = 1, .timeout_s = 30, .span_s = 300,
				       .end_at_ms = T0 + 30000, .learnt_at_ms = T0 };

	CHECK_INT(evaluate_extend_s(&many), 300);
	CHECK_INT(evaluate_extend_at_ms(&many) - T0, 0);
	many.retry_at_ms = T0 + 700;
	CHECK_INT(evaluate_extend_at_ms(&many) - T0, 700);
	many.end_at_ms = T0 + 160000;
	CHECK_INT(evaluate_extend_at_ms(&many) - T0, 80000);
	many.leases = 0;
	CHECK_INT(evaluate_extend_at_ms(&many), EVALUATE_NEVER);
	CHECK(evaluate_extended_fully(T0, 300, T0 + 300000));
	CHECK(evaluate_extended_fully(T0, 300, T0 + 296000));
	CHECK(!evaluate_extended_fully(T0, 300, T0 + 290000));
	CHECK_INT(evaluate_extend_patience_ms(T0 + 300000, T0), 15000);
	CHECK_INT(evaluate_extend_patience_ms(T0 + 9000, T0), 3000);
	CHECK_INT(evaluate_extend_patience_ms(T0 - 9000, T0), 2000);
	for (unsigned n = 1; n < 100; n++) {	/* never gives up, never in a tight loop */
		int64_t at = evaluate_retry_at_ms(n, T0 + 60000, T0, n * 7919);

		CHECK(at >= T0 + 250 && at <= T0 + 5000);
		at = evaluate_retry_at_ms(n, T0 + 400, T0, n * 7919);
		CHECK(at >= T0 + 250 && at <= T0 + 300);
	}
}

/* Wall-clock changes move nothing here: no wall clock goes in. Moments before the boot are negative. */
TEST(older_than_the_boot)
{
	struct policy p;
	struct evaluate_input b = {.state = SANDBOX_RUNNING,
				.ours = true,
				.policy = &p,
				.started_at_ms = -5000000,
				.end_at_ms = 900000,
				.released_at_ms = -40000};
	struct evaluation d;

	policy_default(&p);
	p.on_release = POLICY_KILL;
	evaluate(&b, 10, &d);
	CHECK_INT(d.act, EVALUATE_KILL);
	p.max_age_ms = 4000000;
	evaluate(&b, 10, &d);
	CHECK_INT(d.rule, EVALUATE_BY_MAX_AGE);
}

TEST(budget)
{
	struct budget b = { 0 };
	uint64_t now = 5000, done = 0, wait;

	for (unsigned i = 0; i < BUDGET_BURST; i++)
		CHECK_INT(budget_take(&b, false, 1000, now), 0);
	wait = budget_take(&b, false, 1000, now);
	CHECK(wait > 0 && wait <= 50);
	/* 1,000 that die at once: within the rate, and not much slower. */
	for (uint64_t end = now + 10000; now < end; now += 10)
		while (!budget_take(&b, false, 1000, now))
			done++;
	CHECK(done >= 195 && done <= 201);

	/* What nobody claimed: five a minute, or a tenth. */
	b = (struct budget){ 0 };
	for (done = 0; !budget_take(&b, true, 10, now); done++)
		;
	CHECK_INT(done, BUDGET_SWEEP_MIN);
	CHECK_INT(budget_take(&b, false, 10, now), 0);	/* the others go on */
	CHECK(budget_take(&b, true, 10, now + 59999) == 1);
	CHECK_INT(budget_take(&b, true, 10, now + 60000), 0);
	b = (struct budget){ 0 };
	for (done = 0; !budget_take(&b, true, 150, now); done++)
		;
	CHECK_INT(done, 15);
}

TEST(start_times)
{
	static const struct { const char *stat; uint64_t t; } t[] = {
		{ "7 (sh) S 1 7 7 0 -1 4194560 100 0 0 0 0 0 0 0 20 0 1 0 8914 2576384 200", 8914 },
		{ "7 (a) b) (c) R 1 7 7 0 -1 4194560 100 0 0 0 0 0 0 0 20 0 1 0 12 2576384 200", 12 },
		{ "7 (sh) S 1 7", 0 },
		{ "7 sh", 0 },
		{ "", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(process_start_time_of(t[i].stat), t[i].t);
}

/* Fields that are set are written, and read again as a user's. */
TEST(the_words_of_a_change)
{
	const uint32_t all = BIT(POLICY_FIELDS) - 1;
	char words[POLICY_WORDS_MAX], text[POLICY_WORDS_MAX];
	struct policy_change c = { 0 };

	policy_change_words(&c, words);
	CHECK_STR(words, "");
	for (uint32_t set = 1; set <= all; set++) {
		struct policy_change back = { 0 };
		char *rest = text, *word;

		policy_default(&c.to);
		c.to.idle_timeout_ms = c.to.max_age_ms = c.to.release_grace_ms = RULES_SPAN_MAX_MS;
		c.to.on_release = POLICY_PAUSE;
		c.to.on_gone = POLICY_RECREATE;
		c.set = set;
		policy_change_words(&c, words);
		(void)!strcpy(text, words);
		while ((word = strsep(&rest, ","))) {
			char *value = strchr(word, '=');

			CHECK(value);
			*value = '\0';
			CHECK(!policy_change_text(&back, policy_field_find(word), value + 1));
		}
		CHECK_INT(back.set, set);
		policy_merge(&c.to, &back);
		policy_change_words(&c, text);
		CHECK_STR(text, words);
	}
}

TEST_MAIN()
