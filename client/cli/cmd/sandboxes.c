/* SPDX-License-Identifier: MIT */
/* The sandboxes stay in the pages they came with; the list over them holds pointers. */
#include "client/cli/cmd/sandboxes.h"

#include <stdlib.h>

static int add_page(struct cli *cli, struct sandboxes *s, struct ab_sandbox_list *page)
{
	struct ab_sandbox_list **pages = reallocarray(s->pages, s->n_pages + 1, sizeof(struct ab_sandbox_list *));
	const struct ab_sandbox **v;

	if (!pages) {
		ab_free(page);
		goto no_memory;
	}
	s->pages = pages;
	pages[s->n_pages++] = page;
	if (!page->n)
		return 0;
	v = reallocarray(s->v, s->n + page->n, sizeof(const struct ab_sandbox *));
	if (!v)
		goto no_memory;
	s->v = v;
	for (size_t i = 0; i < page->n; i++)
		v[s->n++] = page->items[i];
	return 0;
no_memory:
	return fail_here(cli, "out of memory");
}

int sandboxes_list(struct cli *cli, const struct ab_sandbox_list_options *o, struct sandboxes *ret)
{
	struct ab_sandbox_list_options how = *o;
	struct ab_sandbox_list *page;
	int r;

	*ret = (struct sandboxes){ 0 };
	how.page_size = 1000;
	do {
		if (ab_sandbox_list(cli->client, &how, NULL, &page))
			return fail_client(cli);
		r = add_page(cli, ret, page);
		if (r)
			return r;
		how.page_token = page->next_page_token;
	} while (*how.page_token);
	if (page->source == AB_SOURCE_CACHE_UNREACHABLE)
		say(cli, "warning: the cloud did not answer; this is what was known before");
	return 0;
}

void sandboxes_free(struct sandboxes *s)
{
	for (size_t i = 0; i < s->n_pages; i++)
		ab_free(s->pages[i]);
	free(s->pages);
	free(s->v);
	*s = (struct sandboxes){ 0 };
}

void sandboxes_keep(struct sandboxes *s, bool (*keep)(const struct ab_sandbox *sb, const void *user), const void *user)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (keep(s->v[i], user))
			s->v[n++] = s->v[i];
	s->n = n;
}
