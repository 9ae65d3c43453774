/* SPDX-License-Identifier: MIT */
/* Snapshots: made, listed, and deleted by the route of templates. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/http/listing.h"
#include "daemon/gateway/control.h"
#include "proto/base/str.h"

static void add_snapshot(struct doc_list *l, const struct sandbox_snapshot *s)
{
	const struct cloud_snapshot v = { .id = (char *)s->id, .names = { (char **)s->names, s->n_names } };

	doc_list_add(l, NULL, CLOUD_DOC_SNAPSHOT, &v, 0);
}

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	struct gateway_control *c = control_done(user);

	if (status_ok(st))
		control_reply_doc(c, 201, CLOUD_DOC_SNAPSHOT,
				  &(struct cloud_snapshot){ .id = (char *)s->id, .names = { (char **)s->names, s->n_names } }, 0);
	else
		control_fail(c, st);
}

void control_snapshot(struct gateway_control *c)
{
	struct cloud_snapshot_name body = { 0 };
	struct sandbox_call call = control_call(c, c->id);
	struct sandbox_snapshot_create args = { 0 };
	struct template_ref ref;

	if (!control_take(c, CLOUD_DOC_SNAPSHOT_NAME, &body))
		return;
	args.name = body.name;
	if (body.name && template_ref_parse(body.name, &ref) < 0)
		control_refuse(c, 400, "Invalid snapshot name");
	else
		control_started(c, sandbox_snapshot_create(c->g->o.core, &call, &args, on_snapshot, &c->op));
	cloud_doc_fini(CLOUD_DOC_SNAPSHOT_NAME, &body);
}

/* --- the list: the core's tokens --- */

static void on_snapshots(void *user, const struct status *st, const struct sandbox_snapshot_page *p)
{
	struct gateway_control *c = control_done(user);
	struct doc_list l;

	if (!status_ok(st)) {
		control_fail(c, st);
		return;
	}
	doc_list_begin(&l, c->flavour, NULL);
	for (size_t i = 0; i < p->n; i++)
		add_snapshot(&l, &p->snapshots[i]);
	if (!l.e && p->n)
		l.e = control_put_age(c, p->snapshots[0].source, p->snapshots[0].as_of_ms);
	if (!l.e && p->next_page_token[0])
		l.e = fields_put(&c->extra, "x-next-token", p->next_page_token);
	control_reply_list(c, 200, &l);
}

static bool take_source(struct gateway_control *c, char ret[CLOUD_SANDBOX_ID_MAX + 1])
{
	const char *source = query_get(&c->query, "sandboxID");

	ret[0] = '\0';
	if (str_is_empty(source) || cloud_id_parse(source, ret) == 0)
		return true;
	control_refuse(c, 400, "Invalid sandbox ID");
	return false;
}

static bool take_snapshot_name(struct gateway_control *c, const char **ret)
{
	struct template_ref ref;

	*ret = query_get(&c->query, "name");
	if (str_is_empty(*ret) || template_ref_parse(*ret, &ref) == 0)
		return true;
	control_refuse(c, 400, "Invalid snapshot name");
	return false;
}

static bool take_snapshot_limit(struct gateway_control *c, uint32_t *ret)
{
	const char *limit = query_get(&c->query, "limit");
	uint64_t n = LISTING_PAGE_MAX;

	if (limit && (str_u64(limit, strlen(limit), LISTING_PAGE_MAX, &n) < 0 || !n)) {
		control_invalid(c, "limit must be from 1 to %u", LISTING_PAGE_MAX);
		return false;
	}
	*ret = (uint32_t)n;
	return true;
}

void control_snapshots(struct gateway_control *c)
{
	struct sandbox_snapshot_list q = { .page_token = query_get(&c->query, "nextToken") };
	char source[CLOUD_SANDBOX_ID_MAX + 1];
	struct sandbox_call call;

	if (!take_source(c, source) || !take_snapshot_name(c, &q.name) || !take_snapshot_limit(c, &q.page_size))
		return;
	call = control_call(c, source);
	control_started(c, sandbox_list_snapshots(c->g->o.core, &call, &q, on_snapshots, &c->op));
}

/* --- delete --- */

static void on_template_deleted(void *user, const struct status *st, bool found)
{
	struct gateway_control *c = control_done(user);

	if (!status_ok(st))
		control_fail(c, st);
	else if (found)
		control_reply(c, 204, NULL);
	else
		control_refuse(c, 404, "template \"%s\" not found", c->query.segments[c->query.n_segments - 1]);
}

/* "team/name:tag" in one encoded segment, or raw in two. */
void control_template_delete(struct gateway_control *c)
{
	struct sandbox_call call = control_call(c, NULL);
	const struct query *q = &c->query;
	struct template_ref ref;
	char *text = q->n_segments > 2 ? str_printf("%s/%s", q->segments[1], q->segments[2]) : str_dup(q->segments[1]);

	if (!text)
		control_no_memory(c);
	else if (template_ref_parse(text, &ref) < 0)
		control_refuse(c, 400, "Invalid template reference");
	else
		control_started(c, sandbox_delete_snapshot(c->g->o.core, &call, text, on_template_deleted, &c->op));
	free(text);
}
