/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/warm.h"

#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/str.h"
#include "proto/cloud/netrules.h"

#define RETRY_BASE_MS 1000u
#define RETRY_MAX_MS  60000u

/* --- which entry fits --- */

static bool same_yes(enum tri a, enum tri b, enum tri unset)
{
	return (a == TRI_UNSET ? unset : a) == (b == TRI_UNSET ? unset : b);
}

/* No key is in a list twice, so equal numbers and every pair of `a` in `b` mean that they are equal. */
static bool same_kvs(const struct cloud_kvs *a, const struct cloud_kvs *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		const char *other = cloud_kvs_get(b, a->v[i].key);

		if (!other || !str_eq(other, a->v[i].value))
			return false;
	}
	return true;
}

static bool same_lifecycle(const struct cloud_lifecycle *a, const struct cloud_lifecycle *b)
{
	bool pauses = a->pause == TRI_TRUE || b->pause == TRI_TRUE;

	return same_yes(a->pause, b->pause, TRI_FALSE) && same_yes(a->auto_resume, b->auto_resume, TRI_FALSE) &&
	       (!pauses || same_yes(a->keep_memory, b->keep_memory, TRI_TRUE));
}

static bool same_text(const char *a, const char *b)
{
	return str_eq(a ? a : "", b ? b : "");
}

static const char *token_type_of(const struct cloud_iam_token *t)
{
	return str_is_empty(t->token_type) ? NETRULES_TOKEN_TYPE : t->token_type;
}

static bool same_token(const struct cloud_iam_token *a, const struct cloud_iam_token *b)
{
	return same_text(a->name, b->name) && same_text(a->audience, b->audience) && str_eq(token_type_of(a), token_type_of(b));
}

static bool has_token(const struct cloud_create *c, const struct cloud_iam_token *t)
{
	for (size_t i = 0; i < c->n_iam_tokens; i++)
		if (same_token(&c->iam_tokens[i], t))
			return true;
	return false;
}

static bool same_tokens(const struct cloud_create *a, const struct cloud_create *b)
{
	if (a->n_iam_tokens != b->n_iam_tokens)
		return false;
	for (size_t i = 0; i < a->n_iam_tokens; i++)
		if (!has_token(b, &a->iam_tokens[i]))
			return false;
	return true;
}

/* Settings that change nothing count as none. */
static bool is_no_network(const struct cloud_network *n)
{
	return !n || (!n->allow_out.n && !n->deny_out.n && n->allow_public_traffic != TRI_FALSE &&
		      str_is_empty(n->mask_request_host) && str_is_empty(n->egress_address) && !n->n_rules && !n->asks_https_ports);
}

/* Whatever their order. */
static bool same_strs(const struct cloud_strs *a, const struct cloud_strs *b)
{
	for (size_t i = 0; i < a->n; i++)
		if (!cloud_strs_has(b, a->v[i]))
			return false;
	for (size_t i = 0; i < b->n; i++)
		if (!cloud_strs_has(a, b->v[i]))
			return false;
	return true;
}

static bool has_rule(const struct cloud_network *n, const struct cloud_rule *rule)
{
	for (size_t i = 0; i < n->n_rules; i++)
		if (str_eq(n->rules[i].domain, rule->domain))
			return same_kvs(&n->rules[i].headers, &rule->headers) && n->rules[i].surplus == rule->surplus;
	return false;
}

static bool same_rules(const struct cloud_network *a, const struct cloud_network *b)
{
	if (a->n_rules != b->n_rules)
		return false;
	for (size_t i = 0; i < a->n_rules; i++)
		if (!has_rule(b, &a->rules[i]))
			return false;
	return true;
}

static bool same_proxy(const struct cloud_network *a, const struct cloud_network *b)
{
	return same_text(a->egress_address, b->egress_address) && same_text(a->egress_username, b->egress_username) &&
	       same_text(a->egress_password, b->egress_password);
}

static bool same_network(const struct cloud_network *a, const struct cloud_network *b)
{
	if (is_no_network(a) || is_no_network(b))
		return is_no_network(a) && is_no_network(b);
	return same_strs(&a->allow_out, &b->allow_out) && same_strs(&a->deny_out, &b->deny_out) && same_rules(a, b) && same_proxy(a, b) &&
	       same_yes(a->allow_public_traffic, b->allow_public_traffic, TRI_TRUE) &&
	       same_text(a->mask_request_host, b->mask_request_host) && a->asks_https_ports == b->asks_https_ports;
}

const char *warm_differs(const struct cloud_create *entry, const struct cloud_create *asked)
{
	if (!same_text(entry->template_id, asked->template_id))
		return "template";
	if (!same_yes(entry->secure, asked->secure, TRI_TRUE))
		return "secure";
	if (!same_yes(entry->allow_internet_access, asked->allow_internet_access, TRI_TRUE))
		return "allow_internet_access";
	if (!same_lifecycle(&entry->lifecycle, &asked->lifecycle))
		return "lifecycle";
	if (!same_network(entry->network, asked->network))
		return "network";
	if (!same_tokens(entry, asked))
		return "iam_tokens";
	return same_kvs(&entry->envs, &asked->envs) ? NULL : "envs";
}

bool warm_mode_parse(const char *text, enum sandbox_warm_mode *ret)
{
	static const char *const words[] = { [SANDBOX_WARM_NEVER] = "never", [SANDBOX_WARM_PREFER] = "prefer",
					     [SANDBOX_WARM_REQUIRE] = "require" };

	for (size_t i = SANDBOX_WARM_NEVER; i < ARRAY_SIZE(words); i++)
		if (str_eq(words[i], text)) {
			*ret = (enum sandbox_warm_mode)i;
			return true;
		}
	return false;
}

bool warm_may_claim(const struct warm_claimers *c, const struct principal *who)
{
	for (size_t i = 0; i < c->n_uids; i++)
		if (c->uids[i] == owner_uid(who->uid))
			return true;
	for (size_t i = 0; i < c->n_gids; i++)
		if (principal_in_group(who, c->gids[i]))
			return true;
	return false;
}

bool warm_is_for(const struct warm_claimers *c, uid_t uid)
{
	return !c->n_gids && c->n_uids == 1 && c->uids[0] == uid;
}

bool warm_has_life(uint64_t timeout_ms, uint64_t cap_ms, int64_t age_ms, int64_t left_ms)
{
	if (left_ms < WARM_LIFE_MIN_MS)
		return false;
	return !cap_ms || MAX(age_ms, (int64_t)0) + (int64_t)timeout_ms <= (int64_t)cap_ms;
}

/* --- the pool of an entry --- */

bool warm_is_active(const struct warm_pool *p)
{
	if (!p->active_ms || p->waiting)
		return true;
	return p->wanted_at_ms && p->now_wall_ms - p->wanted_at_ms < (int64_t)p->active_ms;
}

static bool is_same_hour(const struct warm_pool *p)
{
	int64_t since = p->now_wall_ms - p->hour_at_ms;

	/* A clock that was set back begins a new hour, which else might not end for years. */
	return p->hour_at_ms && since >= 0 && since < WARM_HOUR_MS;
}

/* How many may still be made in this hour. */
static uint32_t hour_room(const struct warm_pool *p)
{
	if (!p->per_hour)
		return UINT32_MAX;
	if (!is_same_hour(p))
		return p->per_hour;
	return p->per_hour - MIN(p->made, p->per_hour);
}

static uint32_t left_of(uint32_t most, uint32_t used)
{
	return most - MIN(most, used);
}

void warm_refill(const struct warm_pool *p, struct warm_refill *ret)
{
	uint32_t have = p->ready + p->coming, room = hour_room(p), lacking;

	*ret = (struct warm_refill){ .end = left_of(p->ready, p->size) };
	lacking = left_of(p->size, have);
	if (!lacking || p->failed || !warm_is_active(p))
		return;
	if (p->retry_at_ms > p->now_ms) {
		ret->again_in_ms = p->retry_at_ms - p->now_ms;
		return;
	}
	if (!room) {
		ret->again_in_ms = (uint64_t)(p->hour_at_ms + WARM_HOUR_MS - p->now_wall_ms);
		return;
	}
	ret->make = MIN(MIN(lacking, room), left_of(p->burst, p->making));
}

uint64_t warm_retry_ms(uint32_t failures, uint64_t rnd)
{
	return rules_backoff_ms(failures ? failures - 1 : 0, RETRY_BASE_MS, RETRY_MAX_MS, rnd);
}

bool warm_is_its_fault(enum ab_reason r)
{
	switch (r) {
	case R_UNREACHABLE:
	case R_TLS_UNTRUSTED:
	case R_PROXY_FAILED:
	case R_PROXY_AUTH:
	case R_RATE_LIMITED:
	case R_CONCURRENCY_LIMIT:
	case R_QUOTA_UID:
	case R_KEY_MISSING:
	case R_KEY_REJECTED:
	case R_STORE_FULL:
	case R_STORE_READONLY:
	case R_DRAINING:
	case R_QUIESCED:
		return false;
	default:
		return true;
	}
}

bool warm_is_failed(uint32_t failures)
{
	return failures >= WARM_FAILURES_MAX;
}

size_t warm_next_waiter(const uid_t *waiters, size_t n, uid_t last)
{
	size_t next = n, first = 0;

	for (size_t i = 0; i < n; i++) {
		if (waiters[i] > last && (next == n || waiters[i] < waiters[next]))
			next = i;
		if (waiters[i] < waiters[first])
			first = i;
	}
	return next < n ? next : first;
}
