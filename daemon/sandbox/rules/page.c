/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/page.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/str.h"

#define TOKEN_MAX 512u

int page_cmp(int64_t a_started, const char *a_id, int64_t b_started, const char *b_id)
{
	if (a_started != b_started)
		return a_started > b_started ? -1 : 1;
	return strcmp(a_id, b_id);
}

bool page_size(uint32_t asked, uint32_t *ret)
{
	if (asked > PAGE_MAX)
		return false;
	*ret = asked ? asked : PAGE_DEFAULT;
	return true;
}

/* Guards against mistakes, not against forgery: a forged token only lists what its caller may see. */
uint64_t page_hash(uint64_t h, const char *s)
{
	do
		h = (h ^ (uint8_t)*s) * 0x100000001b3ull;
	while (*s++);
	return h;
}

uint64_t page_question(const struct sandbox_list *q, uid_t uid, const char *account)
{
	char flags[64];
	uint64_t h = page_hash(PAGE_HASH, account);

	snprintf(flags, sizeof(flags), "%u %u %d %d", uid, q->states, q->all_owners, q->all_hosts);
	h = page_hash(h, flags);
	h = page_hash(h, q->template_id ? q->template_id : "");
	/* A sum, since the order of the pairs does not matter. */
	for (size_t i = 0; i < q->n_metadata; i++)
		h += page_hash(page_hash(0x9e3779b97f4a7c15ull, q->metadata[i].key), q->metadata[i].value);
	return h;
}

char *page_token(const struct page_place *last, uint64_t question)
{
	char text[TOKEN_MAX];
	int n = snprintf(text, sizeof(text), "1 %016llx %lld %s", (unsigned long long)question,
			 (long long)last->started_at_ms, last->id);

	return str_base64_encode(text, (size_t)n, false);
}

int page_token_parse(const char *token, uint64_t question, struct page_place *ret)
{
	char text[TOKEN_MAX], want[32];
	char *started, *id;
	size_t n = strlen(token);
	uint64_t at;
	ssize_t len;

	if (n >= TOKEN_MAX)
		return -EINVAL;
	len = str_base64_decode(token, n, (uint8_t *)text);
	if (len < 0)
		return -EINVAL;
	text[len] = 0;
	snprintf(want, sizeof(want), "1 %016llx ", (unsigned long long)question);
	if (strlen(text) != (size_t)len || !str_starts(text, want))
		return -EINVAL;
	started = text + strlen(want);
	id = strchr(started, ' ');
	if (!id || str_u64(started, (size_t)(id - started), INT64_MAX, &at) < 0)
		return -EINVAL;
	ret->started_at_ms = (int64_t)at;
	return str_copy(ret->id, sizeof(ret->id), id + 1) ? 0 : -EINVAL;
}

static bool has_pair(const struct sandbox_view *b, const struct sandbox_pair *want)
{
	for (size_t i = 0; i < b->n_metadata; i++)
		if (str_eq(b->metadata[i].key, want->key))
			return str_eq(b->metadata[i].value, want->value);
	return false;
}

bool page_matches(const struct sandbox_list *q, const struct sandbox_view *b)
{
	uint32_t states = q->states ? q->states : ~BIT(SANDBOX_GONE);

	if (!(states & BIT(b->state)) || (q->started_after_ms && b->started_at_ms < q->started_after_ms))
		return false;
	if (!str_is_empty(q->template_id) && !str_eq(q->template_id, b->template_id) &&
	    !str_eq(q->template_id, b->alias))
		return false;
	for (size_t i = 0; i < q->n_metadata; i++)
		if (!has_pair(b, &q->metadata[i]))
			return false;
	return true;
}
