/* SPDX-License-Identifier: MIT */
/*
 * Pages of a list: the order, and the token that says where the next page begins. [pure]
 * Order: started_at descending, then id ascending. A token has the place of the last row and a hash of
 * the query, so that it is refused with another query.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_PAGE_H
#define AB_DAEMON_SANDBOX_RULES_PAGE_H

#include <stdbool.h>

#include "daemon/sandbox/rules/types.h"
#include "proto/base/cc.h"

#define PAGE_DEFAULT 100u
#define PAGE_MAX     1000u

struct page_place {
	int64_t started_at_ms;
	char id[80];
};

/* < 0: a comes first. */
int page_cmp(int64_t a_started, const char *a_id, int64_t b_started, const char *b_id);
/* asked 0 = PAGE_DEFAULT; false above PAGE_MAX. */
bool page_size(uint32_t asked, uint32_t *ret);
/* FNV-1a over `s` and its end. Begin with PAGE_HASH. */
#define PAGE_HASH 0xcbf29ce484222325ull
uint64_t page_hash(uint64_t h, const char *s);
/* Hash of the filters that may differ between calls with page tokens: uid, account, states, owners, hosts, template, metadata. */
uint64_t page_question(const struct sandbox_list *q, uid_t uid, const char *account);
/* Heap; NULL without memory. */
char *page_token(const struct page_place *last, uint64_t question);
/* -EINVAL: not one of ours, or of another query. */
must_check int page_token_parse(const char *token, uint64_t question, struct page_place *ret);
/* Do states, start, template and metadata match? */
bool page_matches(const struct sandbox_list *q, const struct sandbox_view *b);

#endif
