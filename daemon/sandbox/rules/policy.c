/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/policy.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/sandbox/rules/rules.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define LEAVE_PAUSE_KILL (BIT(POLICY_LEAVE) | BIT(POLICY_PAUSE) | BIT(POLICY_KILL))
#define PAUSE_KILL	 (BIT(POLICY_PAUSE) | BIT(POLICY_KILL))
#define PAUSE_KILL_WARN	 (PAUSE_KILL | BIT(POLICY_WARN))

static const char *const action_names[] = { "", "leave", "pause", "kill", "warn" };
static const char *const on_gone_names[] = { "", "fail", "recreate" };

void policy_default(struct policy *ret)
{
	*ret = (struct policy){
		.keep_alive = true,
		.on_release = POLICY_LEAVE,
		.release_grace_ms = 30000,
		.on_idle = POLICY_PAUSE,
		.on_max_age = POLICY_KILL,
		.on_cap = POLICY_WARN,
		.on_gone = POLICY_FAIL,
	};
}

static bool action_is(enum policy_action a, unsigned allowed)
{
	return (unsigned)a <= POLICY_WARN && (BIT(a) & allowed);
}

bool policy_is_valid(const struct policy *p)
{
	return action_is(p->on_release, LEAVE_PAUSE_KILL) &&
	       action_is(p->on_idle, PAUSE_KILL) &&
	       action_is(p->on_max_age, PAUSE_KILL) &&
	       action_is(p->on_cap, PAUSE_KILL_WARN) &&
	       (p->on_gone == POLICY_FAIL || p->on_gone == POLICY_RECREATE) &&
	       p->release_grace_ms <= RULES_SPAN_MAX_MS && p->idle_timeout_ms <= RULES_SPAN_MAX_MS &&
	       p->max_age_ms <= RULES_SPAN_MAX_MS;
}

void policy_format(const struct policy *p, char ret[POLICY_TEXT_MAX])
{
	int n;

	must(policy_is_valid(p));
	n = snprintf(ret, POLICY_TEXT_MAX,
		     "ka=%d;or=%s;rg=%llu;it=%llu;oi=%s;ma=%llu;om=%s;oc=%s;og=%s;ru=%d",
		     p->keep_alive, action_names[p->on_release],
		     (unsigned long long)p->release_grace_ms, (unsigned long long)p->idle_timeout_ms,
		     action_names[p->on_idle], (unsigned long long)p->max_age_ms,
		     action_names[p->on_max_age], action_names[p->on_cap], on_gone_names[p->on_gone],
		     p->resume_on_use);
	must(n > 0 && n < (int)POLICY_TEXT_MAX);
}

static int index_of(const char *const *names, int n, const char *s)
{
	for (int i = 1; i < n; i++)
		if (str_eq(names[i], s))
			return i;
	return 0;
}

/* 0, or -EINVAL for a bad span; an unknown key changes nothing, and policy_is_valid() finds bad actions. */
static int set_one(struct policy *p, const char *key, const char *value)
{
	int action = index_of(action_names, ARRAY_SIZE(action_names), value);
	bool on = str_eq(value, "1");

	if (str_eq(key, "ka"))
		p->keep_alive = on;
	else if (str_eq(key, "ru"))
		p->resume_on_use = on;
	else if (str_eq(key, "rg"))
		return str_u64(value, strlen(value), RULES_SPAN_MAX_MS, &p->release_grace_ms);
	else if (str_eq(key, "it"))
		return str_u64(value, strlen(value), RULES_SPAN_MAX_MS, &p->idle_timeout_ms);
	else if (str_eq(key, "ma"))
		return str_u64(value, strlen(value), RULES_SPAN_MAX_MS, &p->max_age_ms);
	else if (str_eq(key, "or"))
		p->on_release = (enum policy_action)action;
	else if (str_eq(key, "oi"))
		p->on_idle = (enum policy_action)action;
	else if (str_eq(key, "om"))
		p->on_max_age = (enum policy_action)action;
	else if (str_eq(key, "oc"))
		p->on_cap = (enum policy_action)action;
	else if (str_eq(key, "og"))
		p->on_gone = (enum policy_on_gone)index_of(on_gone_names,
							   ARRAY_SIZE(on_gone_names), value);
	return 0;
}

int policy_parse(const char *s, struct policy *ret)
{
	char text[POLICY_TEXT_MAX], *rest = text, *item, *value;
	struct policy p;

	policy_default(&p);
	if (!str_copy(text, sizeof(text), s))
		return -EINVAL;
	while ((item = strsep(&rest, ";"))) {
		value = strchr(item, '=');
		if (!value)
			continue;
		*value++ = 0;
		if (set_one(&p, item, value) < 0)
			return -EINVAL;
	}
	if (!policy_is_valid(&p))
		return -EINVAL;
	*ret = p;
	return 0;
}

int policy_parse_next(struct policy_memo *m, const char *s, struct policy *ret)
{
	int r;

	if (!m->text[0] || !str_eq(m->text, s)) {
		m->text[0] = 0;
		r = policy_parse(s, &m->policy);
		if (r < 0)
			return r;
		(void)str_copy(m->text, sizeof(m->text), s);
	}
	*ret = m->policy;
	return 0;
}

/* --- changes --- */

enum kind { KIND_BOOL, KIND_ACTION, KIND_SPAN, KIND_ON_GONE };

static const struct {
	const char *name;
	enum kind kind;
	size_t at;
	unsigned allowed;	/* KIND_ACTION: BIT(enum policy_action) */
	const char *words;	/* KIND_ACTION: `allowed` for error texts */
	bool zero_ok;		/* KIND_SPAN */
} fields[POLICY_FIELDS] = {
	[POLICY_F_KEEP_ALIVE] = { "keep_alive", KIND_BOOL, offsetof(struct policy, keep_alive), 0, 0, 0 },
	[POLICY_F_ON_RELEASE] = { "on_release", KIND_ACTION, offsetof(struct policy, on_release),
				  LEAVE_PAUSE_KILL, "leave, pause or kill", 0 },
	[POLICY_F_RELEASE_GRACE] = { "release_grace", KIND_SPAN, offsetof(struct policy, release_grace_ms),
				     0, 0, true },
	[POLICY_F_IDLE_TIMEOUT] = { "idle_timeout", KIND_SPAN, offsetof(struct policy, idle_timeout_ms),
				    0, 0, 0 },
	[POLICY_F_ON_IDLE] = { "on_idle", KIND_ACTION, offsetof(struct policy, on_idle), PAUSE_KILL,
			       "pause or kill", 0 },
	[POLICY_F_MAX_AGE] = { "max_age", KIND_SPAN, offsetof(struct policy, max_age_ms), 0, 0, 0 },
	[POLICY_F_ON_MAX_AGE] = { "on_max_age", KIND_ACTION, offsetof(struct policy, on_max_age),
				  PAUSE_KILL, "pause or kill", 0 },
	[POLICY_F_ON_CAP] = { "on_cap", KIND_ACTION, offsetof(struct policy, on_cap), PAUSE_KILL_WARN,
			      "pause, kill or warn", 0 },
	[POLICY_F_ON_GONE] = { "on_gone", KIND_ON_GONE, offsetof(struct policy, on_gone), 0, 0, 0 },
	[POLICY_F_RESUME_ON_USE] = { "resume_on_use", KIND_BOOL, offsetof(struct policy, resume_on_use),
				     0, 0, 0 },
};

static const void *field_of(const struct policy *p, enum policy_field f)
{
	return (const char *)p + fields[f].at;
}

static void *field_to(struct policy *p, enum policy_field f)
{
	return (char *)p + fields[f].at;
}

const char *policy_field_name(enum policy_field f)
{
	return fields[f].name;
}

enum policy_field policy_field_find(const char *name)
{
	unsigned f = 0;

	while (f < POLICY_FIELDS && !str_eq(fields[f].name, name))
		f++;
	return (enum policy_field)f;
}

static size_t size_of(enum policy_field f)
{
	switch (fields[f].kind) {
	case KIND_BOOL:
		return sizeof(bool);
	case KIND_SPAN:
		return sizeof(uint64_t);
	case KIND_ACTION:
		return sizeof(enum policy_action);
	default:
		return sizeof(enum policy_on_gone);
	}
}

static void copy_field(struct policy *to, const struct policy *from, enum policy_field f)
{
	memcpy(field_to(to, f), field_of(from, f), size_of(f));
}

void policy_merge(struct policy *p, const struct policy_change *c)
{
	for (unsigned f = 0; f < POLICY_FIELDS; f++)
		if (c->set & BIT(f))
			copy_field(p, &c->to, (enum policy_field)f);
}

void policy_reset(struct policy *p, const struct policy *base, uint32_t mask)
{
	struct policy_change c = { .set = mask, .to = *base };

	policy_merge(p, &c);
}

bool policy_equal(const struct policy *a, const struct policy *b)
{
	for (unsigned f = 0; f < POLICY_FIELDS; f++)
		if (memcmp(field_of(a, (enum policy_field)f), field_of(b, (enum policy_field)f),
			   size_of((enum policy_field)f)))
			return false;
	return true;
}

static bool check_field(const struct policy *p, enum policy_field f, struct status *st)
{
	char name[48];
	uint64_t span;

	snprintf(name, sizeof(name), "policy.%s", fields[f].name);
	switch (fields[f].kind) {
	case KIND_ACTION:
		if (action_is(*(const enum policy_action *)field_of(p, f), fields[f].allowed))
			return true;
		status_field(st, name, "must be %s", fields[f].words);
		return false;
	case KIND_SPAN:
		span = *(const uint64_t *)field_of(p, f);
		if (span <= RULES_SPAN_MAX_MS && (span || fields[f].zero_ok))
			return true;
		status_field(st, name, "must be %s 30 days", fields[f].zero_ok ? "at most" : "above 0 and at most");
		return false;
	case KIND_ON_GONE:
		if (p->on_gone == POLICY_FAIL || p->on_gone == POLICY_RECREATE)
			return true;
		status_field(st, name, "must be fail or recreate");
		return false;
	case KIND_BOOL:
		break;
	}
	return true;
}

bool policy_check(const struct policy_change *c, struct status *st)
{
	for (unsigned f = 0; f < POLICY_FIELDS; f++)
		if ((c->set & BIT(f)) && !check_field(&c->to, (enum policy_field)f, st))
			return false;
	return true;
}

static int bool_text(const char *s, bool *ret)
{
	static const char *const yes[] = { "yes", "true", "on" }, *const no[] = { "no", "false", "off" };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		if (str_eq(s, yes[i]) || str_eq(s, no[i])) {
			*ret = str_eq(s, yes[i]);
			return 0;
		}
	return -EINVAL;
}

int policy_change_text(struct policy_change *c, enum policy_field f, const char *value)
{
	int n, r = 0;

	switch (fields[f].kind) {
	case KIND_BOOL:
		r = bool_text(value, field_to(&c->to, f));
		break;
	case KIND_SPAN:
		r = str_duration_ms(value, field_to(&c->to, f));
		break;
	case KIND_ACTION:
		n = index_of(action_names, ARRAY_SIZE(action_names), value);
		memcpy(field_to(&c->to, f), &n, sizeof(n));
		r = n ? 0 : -EINVAL;
		break;
	case KIND_ON_GONE:
		c->to.on_gone = (enum policy_on_gone)index_of(on_gone_names, ARRAY_SIZE(on_gone_names), value);
		r = c->to.on_gone ? 0 : -EINVAL;
		break;
	}
	if (!r)
		c->set |= BIT(f);
	return r;
}

static int policy_put_value(const struct policy *p, enum policy_field f, char *ret, size_t n)
{
	switch (fields[f].kind) {
	case KIND_BOOL:
		return snprintf(ret, n, "%s", *(const bool *)field_of(p, f) ? "yes" : "no");
	case KIND_SPAN:
		return snprintf(ret, n, "%llums", (unsigned long long)*(const uint64_t *)field_of(p, f));
	case KIND_ACTION:
		return snprintf(ret, n, "%s", action_names[*(const enum policy_action *)field_of(p, f)]);
	default:
		return snprintf(ret, n, "%s", on_gone_names[p->on_gone]);
	}
}

void policy_change_words(const struct policy_change *c, char ret[POLICY_WORDS_MAX])
{
	size_t at = 0;

	ret[0] = '\0';
	for (unsigned f = 0; f < POLICY_FIELDS; f++) {
		if (!(c->set & BIT(f)))
			continue;
		at += (size_t)snprintf(ret + at, POLICY_WORDS_MAX - at, "%s%s=", at ? "," : "", fields[f].name);
		must(at < POLICY_WORDS_MAX);
		at += (size_t)policy_put_value(&c->to, (enum policy_field)f, ret + at, POLICY_WORDS_MAX - at);
		must(at < POLICY_WORDS_MAX);
	}
}
