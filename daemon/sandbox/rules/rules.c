/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/rules.h"

#include <stdio.h>
#include <string.h>

#include "daemon/sandbox/rules/pairs.h"
#include "proto/base/str.h"
#include "proto/cloud/netrules.h"
#include "proto/cloud/template_ref.h"

#define LOWER_DIGITS "abcdefghijklmnopqrstuvwxyz0123456789"

bool rules_looks_like_id(const char *s)
{
	size_t n = strlen(s);

	return n && n <= 64 && strspn(s, LOWER_DIGITS) == n;
}

bool rules_name_is_valid(const char *s)
{
	size_t n = strlen(s);

	if (!n || n > RULES_NAME_MAX || s[0] < 'a' || s[0] > 'z' ||
	    strspn(s, LOWER_DIGITS "._-") != n)
		return false;
	return !(s[0] == 'i' && n == 21 && rules_looks_like_id(s));
}

bool rules_request_id_is_valid(const char *s)
{
	size_t n = strlen(s);

	return n && n <= RULES_REQUEST_ID_MAX && str_is_printable(s, n);
}

bool rules_check_request_id(const char *s, struct status *st)
{
	if (str_is_empty(s) || rules_request_id_is_valid(s))
		return true;
	status_field(st, "request_id", "must be 1 to %u printable ASCII characters", RULES_REQUEST_ID_MAX);
	return false;
}

bool rules_timeout_s(uint64_t timeout_ms, uint32_t *ret_s)
{
	if (!timeout_ms)
		timeout_ms = RULES_TIMEOUT_DEFAULT_MS;
	if (timeout_ms > RULES_SPAN_MAX_MS)
		return false;
	*ret_s = (uint32_t)((timeout_ms + 999) / 1000);
	return true;
}

enum ab_reason rules_gone_reason(bool by_us, int64_t end_at_ms, int64_t now_wall_ms, bool was_paused)
{
	if (by_us)
		return R_SANDBOX_KILLED;
	/* A paused sandbox outlives its end, so that cannot explain why it is gone. */
	if (!was_paused && end_at_ms && now_wall_ms + RULES_END_SLACK_MS >= end_at_ms)
		return R_SANDBOX_EXPIRED;
	return R_SANDBOX_GONE;
}

static bool check_pairs(const char *field, const struct cloud_kvs *kvs, bool reserved,
			struct status *st)
{
	for (size_t i = 0; i < kvs->n; i++) {
		if (!kvs->v[i].key[0]) {
			status_field(st, field, "a key is empty");
			return false;
		}
		if (reserved && str_starts(kvs->v[i].key, PAIRS_TAG_PREFIX)) {
			status_field(st, field, "keys that begin with " PAIRS_TAG_PREFIX
						" are the daemon's own; choose another key");
			return false;
		}
	}
	return true;
}

bool rules_check_template(const char *field, const char *s, struct status *st)
{
	struct template_ref ref;

	if (!template_ref_parse(s, &ref))
		return true;
	status_field(st, field, "must be an id or [namespace/]name[:tag] of letters, digits, - and _, in a tag also dots");
	return false;
}

bool rules_check_create(const struct sandbox_create *c, struct status *st)
{
	uint32_t s;

	if (!rules_check_request_id(c->request_id, st))
		return false;
	if (!str_is_empty(c->name) && !rules_name_is_valid(c->name)) {
		status_field(st, "name",
			     "must match [a-z][a-z0-9._-]{0,62} and not look like a sandbox id");
		return false;
	}
	if (c->must_create && str_is_empty(c->name)) {
		status_field(st, "must_create", "needs a name");
		return false;
	}
	if (!rules_timeout_s(c->timeout_ms, &s)) {
		status_field(st, "sandbox_timeout", "must be at most 30 days");
		return false;
	}
	if (!str_is_empty(c->what.template_id) && !rules_check_template("template", c->what.template_id, st))
		return false;
	return check_pairs("metadata", &c->what.metadata, true, st) &&
	       check_pairs("envs", &c->what.envs, false, st);
}

uint64_t rules_refusal_ms(const struct status *st)
{
	return st->retry_after_ms ? MIN(st->retry_after_ms, 60000u) : 60000u;
}

bool rules_request_is_old(int64_t used_at_ms, bool object_exists, int64_t gone_at_ms, int64_t now_wall_ms,
			  int64_t history_ms)
{
	return !object_exists && now_wall_ms >= used_at_ms + RULES_REQUEST_KEPT_MS &&
	       now_wall_ms >= gone_at_ms + history_ms;
}

uint64_t rules_backoff_ms(unsigned attempt, uint64_t base_ms, uint64_t cap_ms, uint64_t rnd)
{
	uint64_t d = base_ms;

	while (attempt-- && d < cap_ms)
		d *= 2;
	d = MIN(d, cap_ms);
	return d / 2 + (d / 2 ? rnd % (d / 2 + 1) : 0);
}

uint64_t rules_answer_by_ms(uint64_t deadline_ms, uint64_t now_ms)
{
	uint64_t left = deadline_ms > now_ms ? deadline_ms - now_ms : 0;

	return deadline_ms - MIN(left / 10, 200u);
}

void rules_network_fault(const struct netrules_fault *f, struct status *st)
{
	static const char *const fields[] = {
		[NETRULES_ALLOW_OUT] = "network.allow_out",
		[NETRULES_DENY_OUT] = "network.deny_out",
		[NETRULES_PROXY] = "network.egress_proxy",
		[NETRULES_PROXY_ADDRESS] = "network.egress_proxy.address",
		[NETRULES_PROXY_USERNAME] = "network.egress_proxy.username",
		[NETRULES_RULES] = "network.rules",
		[NETRULES_PUBLIC] = "network.allow_public_traffic",
		[NETRULES_MASK] = "network.mask_request_host",
		[NETRULES_TOKENS] = "iam_tokens",
	};

	status_field(st, fields[f->field], "%s", f->text);
}

bool rules_check_lifecycle(const struct cloud_lifecycle *l, struct status *st)
{
	bool pause = l->pause == TRI_TRUE;

	if ((unsigned)l->pause > TRI_TRUE) {
		status_field(st, "lifecycle.on_timeout", "%d is no action", (int)l->pause);
		return false;
	}
	if (l->keep_memory != TRI_UNSET && !pause) {
		status_field(st, "lifecycle.keep_memory", "has a meaning with on_timeout PAUSE only");
		return false;
	}
	if (l->auto_resume == TRI_TRUE && !pause) {
		status_field(st, "lifecycle.auto_resume", "needs on_timeout PAUSE");
		return false;
	}
	if (l->auto_resume == TRI_TRUE && l->keep_memory == TRI_FALSE) {
		status_field(st, "lifecycle.auto_resume",
			     "needs the memory: without keep_memory nothing would be left to serve the traffic");
		return false;
	}
	return true;
}

void rules_lifecycle_format(const struct cloud_lifecycle *l, char ret[RULES_LIFECYCLE_TEXT_MAX])
{
	snprintf(ret, RULES_LIFECYCLE_TEXT_MAX, "%d %d %d", (int)l->pause, (int)l->keep_memory - 1,
		 (int)l->auto_resume - 1);
}

bool rules_lifecycle_parse(const char *s, struct cloud_lifecycle *ret)
{
	int pause, keep, resume;

	if (sscanf(s, "%d %d %d", &pause, &keep, &resume) != 3 || pause < TRI_UNSET ||
	    pause > TRI_TRUE || keep < -1 || keep > 1 || resume < -1 || resume > 1)
		return false;
	*ret = (struct cloud_lifecycle){ .pause = (enum tri)pause, .keep_memory = (enum tri)(keep + 1),
					 .auto_resume = (enum tri)(resume + 1) };
	return true;
}
