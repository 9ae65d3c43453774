/* SPDX-License-Identifier: MIT */
/* Snapshots: made of a sandbox's files, listed; rest_template.c deletes them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/listing.h"
#include "daemon/local/api/rest.h"
#include "daemon/local/state/saved_state.h"
#include "proto/base/clock.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "proto/cloud/list.h"

#define ID_TEXT_MAX (3 * TEMPLATE_NAME_MAX + 8)

/* What is told of a build; its texts are in *room. */
struct snapshot_view {
	struct cloud_snapshot v;
	char id[ID_TEXT_MAX], name[ID_TEXT_MAX], *names[1];
};

static const struct cloud_snapshot *snapshot_view(const struct template *t, const struct template_build *b,
						  struct snapshot_view *room)
{
	template_snapshot_id(t, b, room->id, sizeof(room->id));
	snprintf(room->name, sizeof(room->name), "%s/%s", t->team, t->name);
	room->names[0] = room->name;
	room->v = (struct cloud_snapshot){ .id = room->id, .names = { room->names, t->name[0] ? 1 : 0 } };
	return &room->v;
}

/* --- POST /sandboxes/{id}/snapshots --- */

struct making {
	struct rest *r;
	struct template_ref ref;
	struct template_build build;
};

static void add_snapshot(struct making *m)
{
	struct rest *r = m->r;
	struct state *st = r->l->state;
	struct snapshot_view view;
	struct template *t;
	char *replaced;
	int e;

	m->build.at_us = m->build.tagged_us = clock_wall_ms() * 1000;
	e = templates_add(state_templates(st), r->team, &m->ref, &m->build, &t, &replaced);
	if (e < 0) {
		state_drop_layer(st, m->build.layer);
		rest_fail(r, e == -ENOSPC ? 429 : 500, "Failed to create snapshot: %s",
			  e == -ENOSPC ? "there are too many" : strerror(-e));
		return;
	}
	if (replaced)
		state_drop_layer(st, replaced);
	free(replaced);
	saved_state_write(st);
	rest_limit(r, "no-memory");
	rest_reply_doc(r, 201, CLOUD_DOC_SNAPSHOT, snapshot_view(t, template_newest(t, m->build.tag), &view), 0);
}

static void on_saved(void *user, int e, const char *why)
{
	struct making *m = user;

	if (e < 0)
		rest_fail(m->r, 500, "Failed to create snapshot: %s", why);
	else
		add_snapshot(m);
	free(m);
}

/* False after the call ended. */
static bool take_name(struct rest *r, const char *name, struct template_ref *ret)
{
	struct template_ref unused;
	struct template *t;
	struct template_build *b;

	*ret = (struct template_ref){ "" };
	if (name) {
		if (template_ref_parse(name, ret) < 0) {
			rest_fail(r, 400, "Invalid snapshot name");
			return false;
		}
		if (ret->space[0] && !str_eq(ret->space, r->team)) {
			rest_fail(r, 400, "the namespace of a snapshot's name must be your team's");
			return false;
		}
	}
	unused = *ret;
	unused.space[0] = '\0';
	if (ret->name[0] && templates_find(state_templates(r->l->state), r->team, &unused, &t, &b) !=
				    TEMPLATE_UNKNOWN && !t->team) {
		rest_fail(r, 400, "\"%s\" is a template", ret->name);
		return false;
	}
	if (!ret->tag[0])
		str_copy(ret->tag, sizeof(ret->tag), TEMPLATE_DEFAULT_TAG);
	return true;
}

/* A running one; else 404 (paused too) or 409. */
void rest_snapshot(struct rest *r)
{
	struct cloud_snapshot_name body = { 0 };
	struct template_ref ref;
	struct making *m;
	struct sandbox *s;
	bool ok;
	int e;

	if (!rest_take(r, CLOUD_DOC_SNAPSHOT_NAME, &body))
		return;
	ok = take_name(r, body.name, &ref);
	cloud_doc_fini(CLOUD_DOC_SNAPSHOT_NAME, &body);
	if (!ok)
		return;
	s = rest_running(r);
	if (!s)
		return;
	m = calloc(1, sizeof(*m));
	if (!m) {
		rest_fail(r, 500, "out of memory");
		return;
	}
	m->r = r;
	m->ref = ref;
	m->build.layer[0] = 's';
	rng_id(m->build.layer + 1, 20);
	str_copy(m->build.tag, sizeof(m->build.tag), ref.tag);
	str_copy(m->build.root, sizeof(m->build.root), s->root);
	str_copy(m->build.source, sizeof(m->build.source), s->id);
	e = sandbox_save(s, m->build.layer, on_saved, m);
	if (e < 0) {
		free(m);
		rest_fail(r, 500, "Failed to create snapshot: %s", strerror(-e));
	}
}

/* --- GET /snapshots --- */

struct row {
	const struct template *t;
	const struct template_build *b;
};

struct snapshot_query {
	const char *source;		/* NULL = any */
	char source_id[ROUTE_ID_MAX + 1];
	bool none;
	struct template_ref ref;
	const struct template *named;
	struct listing page;
};

static bool take_filter(struct rest *r, struct snapshot_query *q)
{
	const char *source = query_get(&r->query, "sandboxID");
	const char *name = query_get(&r->query, "name");
	struct template_ref no_tag;
	struct template_build *b;
	struct template *t = NULL;

	if (source && *source) {
		if (cloud_id_parse(source, q->source_id) < 0) {
			rest_fail(r, 400, "Invalid sandbox ID");
			return false;
		}
		q->source = q->source_id;
	}
	if (!name || !*name)
		return true;
	if (template_ref_parse(name, &q->ref) < 0 ||
	    (q->ref.space[0] && !str_eq(q->ref.space, r->team))) {
		rest_fail(r, 400, "Invalid snapshot name");
		return false;
	}
	no_tag = q->ref;
	no_tag.tag[0] = '\0';
	if (templates_find(state_templates(r->l->state), r->team, &no_tag, &t, &b) != TEMPLATE_FOUND ||
	    !t->team)
		q->none = true;
	q->named = t;
	return true;
}

static bool take_snapshots_page(struct rest *r, struct snapshot_query *q)
{
	const char *why;

	if (listing_parse_page(&r->query, &q->page, &why) == 0)
		return true;
	rest_fail(r, 400, "%s", why);
	return false;
}

/* The build that stands for the snapshot in the list. */
static const struct template_build *shown(const struct template *t, const struct snapshot_query *q)
{
	const char *tag = q->ref.tag[0] ? q->ref.tag : NULL;
	const struct template_build *b = template_newest(t, tag);

	return b && (!q->source || str_eq(b->source, q->source)) ? b : NULL;
}

static int compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return cursor_compare(x->b->at_us, x->t->id, y->b->at_us, y->t->id, false);
}

static size_t collect(const struct rest *r, const struct snapshot_query *q, struct row *v)
{
	struct template *t = NULL;
	size_t n = 0;

	while (!q->none && (t = templates_next(state_templates(r->l->state), t))) {
		const struct template_build *b = t->deleted || t->team != r->team ? NULL : shown(t, q);

		if (b && (!q->named || q->named == t))
			v[n++] = (struct row){ t, b };
	}
	qsort(v, n, sizeof(*v), compare);
	return n;
}

static void rest_snap_answer(struct rest *r, const struct snapshot_query *q, const struct row *v, size_t n)
{
	struct doc_list rows;
	size_t at = 0;

	doc_list_begin(&rows, r->flavour, NULL);
	while (q->page.has_cursor && at < n &&
	       cursor_compare(v[at].b->at_us, v[at].t->id, q->page.cursor.at_us, q->page.cursor.id, false) <= 0)
		at++;
	for (size_t end = MIN(n, at + q->page.limit); at < end; at++) {
		struct snapshot_view view;

		doc_list_add(&rows, NULL, CLOUD_DOC_SNAPSHOT, snapshot_view(v[at].t, v[at].b, &view), 0);
	}
	if (!rows.e && at < n && at)
		rows.e = listing_put_next(&r->extra, v[at - 1].b->at_us, v[at - 1].t->id, false);
	rest_list_reply(r, 200, &rows);
}

void rest_snapshots(struct rest *r)
{
	struct snapshot_query q = { 0 };
	struct template *t = NULL;
	struct row *v;
	size_t n = 1;

	if (!take_filter(r, &q) || !take_snapshots_page(r, &q))
		return;
	while ((t = templates_next(state_templates(r->l->state), t)))
		n++;
	v = calloc(n, sizeof(*v));
	if (v)
		rest_snap_answer(r, &q, v, collect(r, &q, v));
	else
		rest_fail(r, 500, "out of memory");
	free(v);
}
