/* SPDX-License-Identifier: MIT */
#include "daemon/life/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

#define SPAN_MAX_MS (30ull * 24 * 3600 * 1000)

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
	return action_is(p->on_release, BIT(POLICY_LEAVE) | BIT(POLICY_PAUSE) | BIT(POLICY_KILL)) &&
	       action_is(p->on_idle, BIT(POLICY_PAUSE) | BIT(POLICY_KILL)) &&
	       action_is(p->on_max_age, BIT(POLICY_PAUSE) | BIT(POLICY_KILL)) &&
	       action_is(p->on_cap, BIT(POLICY_PAUSE) | BIT(POLICY_KILL) | BIT(POLICY_WARN)) &&
	       (p->on_gone == POLICY_FAIL || p->on_gone == POLICY_RECREATE) &&
	       p->release_grace_ms <= SPAN_MAX_MS && p->idle_timeout_ms <= SPAN_MAX_MS &&
	       p->max_age_ms <= SPAN_MAX_MS;
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

/* 0, or -EINVAL for a value that cannot be; what is not known is left alone. */
static int set_one(struct policy *p, const char *key, const char *value)
{
	int action = index_of(action_names, ARRAY_SIZE(action_names), value);
	bool on = str_eq(value, "1");

	if (str_eq(key, "ka"))
		p->keep_alive = on;
	else if (str_eq(key, "ru"))
		p->resume_on_use = on;
	else if (str_eq(key, "rg"))
		return str_u64(value, strlen(value), SPAN_MAX_MS, &p->release_grace_ms);
	else if (str_eq(key, "it"))
		return str_u64(value, strlen(value), SPAN_MAX_MS, &p->idle_timeout_ms);
	else if (str_eq(key, "ma"))
		return str_u64(value, strlen(value), SPAN_MAX_MS, &p->max_age_ms);
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
