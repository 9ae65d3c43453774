/* SPDX-License-Identifier: MIT */
/*
 * Templates, which snapshots are too: looked up, listed, tagged, deleted. A listing has those of the command line, as
 * the cloud's has no snapshots; these are everybody's, so nobody may change one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/listing.h"
#include "daemon/local/api/rest.h"
#include "daemon/local/state/saved_state.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"
#include "proto/cloud/list.h"

#define TEXT_MAX (2 * TEMPLATE_NAME_MAX + 2)

/* --- whose it is --- */

/* "team/name:tag" in one encoded segment, or raw in two. */
static int parse_path(const struct rest *r, struct template_ref *ret)
{
	const char *const *v = r->query.segments;
	size_t n = r->query.n_segments, team = cloud_route_parameter(r->to, "{team}"),
	       name = cloud_route_parameter(r->to, "{template}");
	char *text = team < n ? str_printf("%s/%s", v[team], v[name]) : str_dup(v[name]);
	int e = text ? template_ref_parse(text, ret) : -ENOMEM;

	free(text);
	return e;
}

/* What is called that, for the caller's team. False after the call ended. */
static bool find(struct rest *r, const struct template_ref *ref, struct template **ret, struct template_build **ret_build)
{
	switch (templates_find(state_templates(r->l->state), r->team, ref, ret, ret_build)) {
	case TEMPLATE_FOUND:
		return true;
	case TEMPLATE_FOREIGN:
		rest_fail(r, 400, "the namespace of a template's name must be your team's");
		return false;
	case TEMPLATE_NO_TAG:
		rest_fail(r, 404, "template \"%s\" has no tag \"%s\"", ref->name, ref->tag);
		return false;
	case TEMPLATE_UNKNOWN:
		break;
	}
	rest_fail(r, 404, "template \"%s\" not found", ref->name);
	return false;
}

/* The template that the path names; a tag in it counts only where it is asked for. */
static bool find_path(struct rest *r, bool with_tag, struct template **ret, struct template_build **ret_build)
{
	struct template_ref ref;

	if (parse_path(r, &ref) < 0) {
		rest_fail(r, 400, "Invalid template reference");
		return false;
	}
	if (!with_tag)
		ref.tag[0] = '\0';
	return find(r, &ref, ret, ret_build);
}

/* The snapshot that a body names; the tag of the name is ref->tag. */
static bool find_own(struct rest *r, const char *name, struct template_ref *ref, struct template **ret,
		     struct template_build **ret_build)
{
	if (template_ref_parse(name, ref) < 0) {
		rest_fail(r, 400, "Invalid template name");
		return false;
	}
	if (!find(r, ref, ret, ret_build))
		return false;
	if ((*ret)->team)
		return true;
	rest_fail(r, 403, "template \"%s\" belongs to everybody", ref->name);
	return false;
}

/* --- GET /templates/aliases/{template} --- */

void rest_template_alias(struct rest *r)
{
	struct template_build *b;
	struct template *t;

	if (find_path(r, true, &t, &b))
		rest_reply_doc(r, 200, CLOUD_DOC_TEMPLATE_ALIAS,
			       &(struct cloud_template_alias){ .id = t->id, .is_public = !t->team }, 0);
}

/* --- tags --- */

static void add_tag(struct doc_list *rows, const struct template *t, const struct template_build *b)
{
	char id[TEMPLATE_UUID_MAX + 1];
	struct cloud_template_tag v = {
		.tag = (char *)(b ? b->tag : TEMPLATE_DEFAULT_TAG),
		.build_id = id,
		.created_at_ms = (b ? b->tagged_us : t->made_us) / 1000,
	};

	template_build_id(t, b, id);
	doc_list_add(rows, NULL, CLOUD_DOC_TEMPLATE_TAG, &v, 0);
}

void rest_template_tags(struct rest *r)
{
	struct template_build *b;
	struct doc_list rows;
	struct template *t;

	if (!find_path(r, false, &t, &b))
		return;
	doc_list_begin(&rows, r->flavour, NULL);
	if (!t->team)
		add_tag(&rows, t, NULL);
	list_for_each(n, &t->builds) {
		b = list_entry(n, struct template_build, node);
		if (b->tag[0])
			add_tag(&rows, t, b);
	}
	rest_list_reply(r, 200, &rows);
}

static int strip_doubles(struct cloud_strs *tags, const struct cloud_strs *asked)
{
	int e = 0;

	for (size_t i = 0; i < asked->n && !e; i++) {
		const char *tag = asked->v[i] + strspn(asked->v[i], " \t\r\n");
		char *text = str_printf("x:%s", tag);
		struct template_ref ref;

		e = text ? template_ref_parse(text, &ref) : -ENOMEM;
		free(text);
		if (!e && !cloud_strs_has(tags, ref.tag))
			e = cloud_strs_add(tags, ref.tag);
	}
	return e;
}

/* Each once, as tags are written: lower case, no space around. False after the call ended. */
static bool take_tags(struct rest *r, const struct cloud_strs *asked, struct cloud_strs *ret)
{
	int e = strip_doubles(ret, asked);

	if (e == -ENOMEM)
		rest_fail(r, 500, "out of memory");
	else if (e < 0)
		rest_fail(r, 400, "Invalid tag: letters, digits, '-', '_' and '.' only");
	else if (!ret->n)
		rest_fail(r, 400, "At least one tag is required");
	return e == 0 && ret->n;
}

/* Gives one tag; what it was on before goes if it has no other. */
static int give_tag(struct state *st, struct template *t, const char *layer, const char *tag)
{
	struct template_build *b = NULL;
	char *replaced = NULL;
	int e;

	list_for_each(n, &t->builds)	/* an entry may have gone with the tag before this one */
		if (str_eq(list_entry(n, struct template_build, node)->layer, layer))
			b = list_entry(n, struct template_build, node);
	e = b ? templates_tag(state_templates(st), t, b, tag, clock_wall_ms() * 1000, &replaced) : -ENOENT;
	if (replaced)
		state_drop_layer(st, replaced);
	free(replaced);
	return e;
}

static void assign(struct rest *r, const char *name, const struct cloud_strs *tags)
{
	char layer[sizeof(((struct template_build *)0)->layer)], id[TEMPLATE_UUID_MAX + 1];
	struct template_build *b;
	struct template_ref ref;
	struct template *t;
	int e = 0;

	if (!find_own(r, name, &ref, &t, &b))
		return;
	template_build_id(t, b, id);
	str_copy(layer, sizeof(layer), b->layer);
	for (size_t i = 0; i < tags->n && !e; i++)
		e = give_tag(r->l->state, t, layer, tags->v[i]);
	saved_state_write(r->l->state);
	if (e < 0)
		rest_fail(r, e == -ENOSPC ? 429 : 500, "Failed to assign tags: %s",
			  e == -ENOSPC ? "there are too many" : strerror(-e));
	else
		rest_reply_doc(r, 201, CLOUD_DOC_TAGS_ASSIGNED,
			       &(struct cloud_tags_assigned){ .tags = *tags, .build_id = id }, 0);
}

void rest_tags_assign(struct rest *r)
{
	struct cloud_tags body = { 0 };
	struct cloud_strs tags = { 0 };

	if (!rest_take(r, CLOUD_DOC_TAGS_ASSIGN, &body))
		return;
	if (take_tags(r, &body.tags, &tags))
		assign(r, body.name, &tags);
	cloud_strs_fini(&tags);
	cloud_doc_fini(CLOUD_DOC_TAGS_ASSIGN, &body);
}

static void take_away(struct rest *r, const char *name, const struct cloud_strs *tags)
{
	struct template_build *b;
	struct template_ref ref;
	struct template *t;

	if (cloud_strs_has(tags, TEMPLATE_DEFAULT_TAG)) {
		rest_fail(r, 400, "Cannot delete the \"" TEMPLATE_DEFAULT_TAG "\" tag");
		return;
	}
	if (!find_own(r, name, &ref, &t, &b))
		return;
	if (ref.tag[0]) {
		rest_fail(r, 400, "the name of the template must have no tag: those to delete are in \"tags\"");
		return;
	}
	for (size_t i = 0; i < tags->n; i++)
		templates_untag(state_templates(r->l->state), t, tags->v[i]);
	saved_state_write(r->l->state);
	rest_reply(r, 204, NULL);
}

void rest_tags_delete(struct rest *r)
{
	struct cloud_tags body = { 0 };
	struct cloud_strs tags = { 0 };

	if (!rest_take(r, CLOUD_DOC_TAGS_REMOVE, &body))
		return;
	if (take_tags(r, &body.tags, &tags))
		take_away(r, body.name, &tags);
	cloud_strs_fini(&tags);
	cloud_doc_fini(CLOUD_DOC_TAGS_REMOVE, &body);
}

/* --- GET /templates, /v2/templates, /templates/{template} --- */

/* What is told of a template; its texts are in *room or the template's own. */
struct template_view {
	struct cloud_template v;
	char build[TEMPLATE_UUID_MAX + 1], name[TEXT_MAX];
	char *aliases[1], *names[1];
};

static const struct cloud_template *template_view(const struct rest *r, const struct template *t,
						  struct template_view *room)
{
	const struct template_build *newest = template_newest(t, NULL);
	struct template *own = (struct template *)t;

	template_build_id(t, newest, room->build);
	snprintf(room->name, sizeof(room->name), "%s%s%s", t->team ? t->team : "", t->team ? "/" : "", t->name);
	room->aliases[0] = own->name;
	room->names[0] = room->name;
	room->v = (struct cloud_template){
		.id = own->id,
		.build_id = room->build,
		.build_status = (char *)"ready",
		.envd_version = (char *)STATE_ENVD_VERSION,
		.cpu_count = rest_cpu_count(r->l->state),
		.memory_mb = rest_memory_mb(r->l->state),
		.disk_size_mb = REST_DISK_MB,
		.is_public = !t->team,
		.aliases = { room->aliases, t->name[0] ? 1 : 0 },
		.names = { room->names, t->name[0] ? 1 : 0 },
		.created_at_ms = (newest ? newest->at_us : t->made_us) / 1000,
		.updated_at_ms = (newest ? newest->at_us : t->made_us) / 1000,
		.spawned_at_ms = t->spawned_us / 1000,
		.spawn_count = (int64_t)t->n_spawned,
		.build_count = 1,
	};
	return &room->v;
}

/* False after the call ended: a client that asks for another team than its key's would take the list for that one's. */
static bool team_is_own(struct rest *r)
{
	const char *asked = query_get(&r->query, "teamID");

	if (!asked || str_eq(asked, r->team))
		return true;
	rest_fail(r, 400, "teamID is not the team of the API key");
	return false;
}

static void list_all(struct rest *r, const struct template *after, uint64_t limit)
{
	struct doc_list rows;
	const struct template *t = after, *last = NULL;

	doc_list_begin(&rows, r->flavour, NULL);
	while ((t = templates_next_fixed(state_templates(r->l->state), t)) && limit--) {
		struct template_view room;

		doc_list_add(&rows, NULL, CLOUD_DOC_TEMPLATE, template_view(r, t, &room), CLOUD_LISTED);
		last = t;
	}
	if (!rows.e && t && last)
		rows.e = listing_put_next(&r->extra, last->made_us, last->id, false);
	rest_list_reply(r, 200, &rows);
}

void rest_templates_v1(struct rest *r)
{
	if (team_is_own(r))
		list_all(r, NULL, UINT64_MAX);
}

/* The page that is asked for, and the template that it begins behind; false after the call ended. */
static bool take_templates_page(struct rest *r, struct listing *page, const struct template **ret)
{
	const struct template *t = NULL;
	const char *why;

	*ret = NULL;
	if (listing_parse_page(&r->query, page, &why) < 0) {
		rest_fail(r, 400, "%s", why);
		return false;
	}
	if (!page->has_cursor)
		return true;
	while ((t = templates_next_fixed(state_templates(r->l->state), t)) && !str_eq(t->id, page->cursor.id))
		;
	*ret = t;
	if (!t)
		rest_fail(r, 400, "Invalid next token");
	return t;
}

void rest_templates_v2(struct rest *r)
{
	const struct template *after;
	struct listing page;

	if (team_is_own(r) && take_templates_page(r, &page, &after))
		list_all(r, after, page.limit);
}

/* Of a template that is no snapshot: NULL. */
static void build_view(const struct rest *r, const struct template *t, const struct template_build *b,
		       char id[TEMPLATE_UUID_MAX + 1], struct cloud_template_build *ret)
{
	template_build_id(t, b, id);
	*ret = (struct cloud_template_build){
		.id = id,
		.envd_version = (char *)STATE_ENVD_VERSION,
		.created_at_ms = (b ? b->at_us : t->made_us) / 1000,
		.cpu_count = rest_cpu_count(r->l->state),
		.memory_mb = rest_memory_mb(r->l->state),
		.disk_size_mb = REST_DISK_MB,
	};
}

/* Each build once, newest first. */
static size_t collect_builds(const struct rest *r, const struct template *t, char (*ids)[TEMPLATE_UUID_MAX + 1],
			     struct cloud_template_build *v)
{
	size_t n = 0;

	if (!t->team)
		build_view(r, t, NULL, ids[n++], v);
	for (struct list *p = t->builds.prev; p != &t->builds; p = p->prev) {
		struct template_build *b = list_entry(p, struct template_build, node);

		if (template_is_first_of_build(t, b)) {
			build_view(r, t, b, ids[n], &v[n]);
			n++;
		}
	}
	return n;
}

void rest_template(struct rest *r)
{
	struct cloud_template_build *v;
	char (*ids)[TEMPLATE_UUID_MAX + 1];
	struct template_build *b;
	struct template_view room;
	struct template *t;
	size_t n = 1;

	if (!find_path(r, false, &t, &b))
		return;
	list_for_each(p, &t->builds)
		n++;
	v = calloc(n, sizeof(*v));
	ids = calloc(n, sizeof(*ids));
	if (v && ids) {
		(void)template_view(r, t, &room);
		room.v.n_builds = collect_builds(r, t, ids, v);
		room.v.builds = v;
		rest_reply_doc(r, 200, CLOUD_DOC_TEMPLATE, &room.v, CLOUD_DETAIL);
	} else {
		rest_fail(r, 500, "out of memory");
	}
	free(v);
	free(ids);
}

/* --- DELETE /templates/{template} --- */

static bool is_in_use(const struct state *st, const struct template *t)
{
	size_t pos = 0;
	struct sandbox *s;

	while ((s = state_next(st, &pos)))
		if (s->template == t && s->state != SANDBOX_KILLING)
			return true;
	return false;
}

static void delete(struct rest *r, struct template *t)
{
	struct state *st = r->l->state;

	list_for_each(n, &t->builds) {
		const struct template_build *b = list_entry(n, struct template_build, node);

		if (template_is_first_of_build(t, b))
			state_drop_layer(st, b->layer);
	}
	templates_delete(state_templates(st), t);
	saved_state_write(st);
	rest_reply(r, 204, NULL);
}

void rest_delete_template(struct rest *r)
{
	struct template_build *b;
	struct template *t = NULL;
	struct template_ref ref;

	if (parse_path(r, &ref) < 0) {
		rest_fail(r, 400, "Invalid template reference");
		return;
	}
	ref.tag[0] = '\0';	/* the whole template goes */
	if (templates_find(state_templates(r->l->state), r->team, &ref, &t, &b) != TEMPLATE_FOUND)
		rest_fail(r, 404, "template \"%s\" not found", ref.name);
	else if (!t->team)
		rest_fail(r, 403, "template \"%s\" belongs to everybody", ref.name);
	else if (is_in_use(r->l->state, t))
		rest_fail(r, 400, "cannot delete template \"%s\": there are sandboxes that use it",
			  ref.name);
	else
		delete(r, t);
}
