/* SPDX-License-Identifier: MIT */
/* The two listings. The core filters, orders and cuts; a page ends with the place of its last row. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/http/listing.h"
#include "daemon/gateway/control.h"
#include "proto/base/str.h"

#define V1_PAGE 1000u	/* of the core; the route has no pages of its own */

struct listing_state {
	struct listing l;
	struct doc_list rows;
	struct sandbox_pair *metadata;
	char place_id[CLOUD_SANDBOX_ID_MAX + 1];
	int64_t place_started_at_ms;
	bool is_v1;
};

static void listing_state_free(void *p)
{
	struct listing_state *s = p;

	listing_fini(&s->l);
	doc_list_fini(&s->rows);
	free(s->metadata);
	free(s);
}

static void add_row(struct gateway_control *c, const struct sandbox_view *v)
{
	struct listing_state *s = c->state;
	unsigned part = CLOUD_LISTED | (control_state(v->state) == CLOUD_STATE_PAUSED ? 0 : CLOUD_LIVE);
	struct cloud_sandbox doc;

	if (!s->rows.e)
		s->rows.e = control_view(c, v, &doc);
	if (s->rows.e)
		return;
	doc_list_add(&s->rows, NULL, CLOUD_DOC_SANDBOX, &doc, part);
	control_view_fini(&doc);
}

static int put_headers(struct gateway_control *c, const struct sandbox_page *page)
{
	struct listing_state *s = c->state;
	const struct sandbox_view *last = page->n ? &page->sandboxes[page->n - 1] : NULL;
	int r = control_put_age(c, page->source, page->as_of_ms);

	if (!r && s->l.running)
		r = fields_printf(&c->extra, "x-total-running", "%zu", page->n_running);
	if (!r && last && page->next_page_token[0])
		r = listing_put_next(&c->extra, last->started_at_ms * 1000, last->id, s->l.ascending);
	return r;
}

static void list_ask(struct gateway_control *c);

static void control_on_listed(void *user, const struct status *st, const struct sandbox_page *page)
{
	struct gateway_control *c = control_done(user);
	struct listing_state *s = c->state;

	if (!status_ok(st)) {
		control_fail(c, st);
		return;
	}
	for (size_t i = 0; i < page->n; i++)
		add_row(c, &page->sandboxes[i]);
	if (s->is_v1 && page->next_page_token[0] && page->n && !s->rows.e) {
		s->place_started_at_ms = page->sandboxes[page->n - 1].started_at_ms;
		(void)str_copy(s->place_id, sizeof(s->place_id), page->sandboxes[page->n - 1].id);
		list_ask(c);
		return;
	}
	if (!s->rows.e)
		s->rows.e = put_headers(c, page);
	control_reply_list(c, 200, &s->rows);
}

static uint32_t states_of(const struct listing *l)
{
	return (l->running ? BIT(SANDBOX_RUNNING) : 0) |
	       (l->paused ? BIT(SANDBOX_PAUSING) | BIT(SANDBOX_PAUSED) | BIT(SANDBOX_RESUMING) : 0);
}

static void list_ask(struct gateway_control *c)
{
	struct listing_state *s = c->state;
	struct sandbox_call call = control_call(c, NULL);
	bool whole = c->g->o.whole_account && c->who.admin;
	const struct cloud_strs scope = { c->token->sandboxes, c->token->n_sandboxes };
	const struct sandbox_list q = {
		.metadata = s->metadata,
		.n_metadata = s->l.metadata.n,
		.states = states_of(&s->l),
		.template_id = s->l.has_template ? s->l.template.name : NULL,
		.page_size = s->is_v1 ? V1_PAGE : (uint32_t)s->l.limit,
		.all_owners = whole,
		.all_hosts = whole,
		.count_running = s->l.running,
		.ascending = s->l.ascending,
		.started_after_ms = s->l.after_us == INT64_MIN ? 0 : s->l.after_us / 1000,
		.place_id = s->place_id,
		.place_started_at_ms = s->place_started_at_ms,
		.only = scope.n ? &scope : NULL,
	};

	control_started(c, sandbox_list(c->g->o.core, &call, &q, control_on_listed, &c->op));
}

static void list_begin(struct gateway_control *c, struct listing_state *s)
{
	s->metadata = calloc(s->l.metadata.n + 1, sizeof(*s->metadata));
	if (!s->metadata) {
		control_no_memory(c);
		return;
	}
	for (size_t i = 0; i < s->l.metadata.n; i++)
		s->metadata[i] = (struct sandbox_pair){ s->l.metadata.v[i].key, s->l.metadata.v[i].value };
	if (s->l.has_cursor) {
		s->place_started_at_ms = s->l.cursor.at_us / 1000;
		(void)str_copy(s->place_id, sizeof(s->place_id), s->l.cursor.id);
	}
	doc_list_begin(&s->rows, c->flavour, NULL);
	list_ask(c);
}

static void list_as(struct gateway_control *c, bool is_v1)
{
	struct listing_state *s = calloc(1, sizeof(*s));
	const char *why;
	int e;

	if (!s) {
		control_no_memory(c);
		return;
	}
	c->state = s;
	c->free_state = listing_state_free;
	s->is_v1 = is_v1;
	e = is_v1 ? listing_parse_v1(&c->query, &s->l, &why) : listing_parse(&c->query, &s->l, &why);
	if (e == -EINVAL)
		control_refuse(c, 400, "%s", why);
	else if (e < 0)
		control_no_memory(c);
	else
		list_begin(c, s);
}

void control_list_v1(struct gateway_control *c)
{
	list_as(c, true);
}

void control_list_v2(struct gateway_control *c)
{
	list_as(c, false);
}
