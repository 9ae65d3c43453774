/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/words.h"

#include <stdio.h>
#include <string.h>

#include "daemon/sandbox/rules/warm.h"
#include "proto/base/str.h"

#define SPACE " \t"

static bool words_refuse(char ret_why[WORDS_WHY_MAX], const char *what, const char *why)
{
	snprintf(ret_why, WORDS_WHY_MAX, "Agentboxd-Policy: %s: %s", what, why);
	return false;
}

/* "on_release=kill", with space around it. */
static bool take_field(char *word, struct policy_change *ret, char ret_why[WORDS_WHY_MAX])
{
	char *key = word + strspn(word, SPACE), *value = strchr(key, '=');
	enum policy_field f;

	if (!value)
		return words_refuse(ret_why, key, "must be NAME=VALUE");
	*value++ = '\0';
	value[strcspn(value, SPACE)] = '\0';
	f = policy_field_find(key);
	if (f == POLICY_FIELDS)
		return words_refuse(ret_why, key, "is no field of a policy");
	return policy_change_text(ret, f, value) == 0 || words_refuse(ret_why, key, "has no such value");
}

static bool take_fields(const char *text, struct policy_change *ret, char ret_why[WORDS_WHY_MAX])
{
	char word[128];
	size_t n;

	for (const char *s = text; s && *s; s += n + (s[n] == ',')) {
		n = strcspn(s, ",");
		if (n >= sizeof(word))
			return words_refuse(ret_why, "a word", "is too long");
		(void)str_copy(word, n + 1, s);
		if (!take_field(word, ret, ret_why))
			return false;
	}
	return true;
}

static bool take_lease(const char *text, struct words *ret, char ret_why[WORDS_WHY_MAX])
{
	ret->no_lease = text && str_eq(text, "none");
	if (!text || ret->no_lease ||
	    (str_duration_ms(text, &ret->lease_ms) == 0 && ret->lease_ms && ret->lease_ms <= WORDS_LEASE_MAX_MS))
		return true;
	snprintf(ret_why, WORDS_WHY_MAX, "Agentboxd-Lease: must be none or a time up to 30 days, as 10m");
	return false;
}

static bool take_warm(const char *text, struct words *ret, char ret_why[WORDS_WHY_MAX])
{
	if (!text || warm_mode_parse(text, &ret->warm))
		return true;
	snprintf(ret_why, WORDS_WHY_MAX, "Agentboxd-Warm: must be prefer, require or never, not \"%.60s\"", text);
	return false;
}

bool words_read(const struct words_text *said, struct words *ret, char ret_why[WORDS_WHY_MAX])
{
	*ret = (struct words){ 0 };
	return take_fields(said->policy, &ret->policy, ret_why) && take_lease(said->lease, ret, ret_why) &&
	       take_warm(said->warm, ret, ret_why);
}

bool words_read_token(const char *policy, struct policy_change *ret)
{
	char why[WORDS_WHY_MAX];

	*ret = (struct policy_change){ 0 };
	return take_fields(policy, ret, why);
}
