/* SPDX-License-Identifier: MIT */
/*
 * Listing templates. The cloud is asked for all pages each time, nothing is kept, and a page of its answer is returned.
 * A cloud that does not know the list in pages is asked for the older one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/page.h"
#include "proto/base/map.h"
#include "proto/base/str.h"

struct templates_args {
	char *token;
	uint32_t asked_size, page_size;
	struct page_place after;
	uint64_t question;
	bool whole;		/* the cloud has only the list without pages */
};

static void op_templates_fini_args(void *args)
{
	struct templates_args *a = args;

	free(a->token);
}

/* Of "team/Name:tag" the name in lower case, which is the same for all references to one template. Heap; NULL without memory. */
static char *plain_name(const char *ref)
{
	const char *slash = strrchr(ref, '/'), *at = slash ? slash + 1 : ref;
	char *name = strndup(at, strcspn(at, ":"));

	if (name)
		str_lower(name);
	return name;
}

/* Fills *ret with the names of the snapshots that do not exist for this caller. */
static int find_hidden(const struct sandbox_op *op, struct map *ret)
{
	int r = 0;

	list_for_each(i, &op->core->snapshots) {
		struct snap *s = list_entry(i, struct snap, node);
		char *name;

		if (r || s->account != op->account || snap_may_see(&op->who, s))
			continue;
		name = plain_name(s->id);
		r = name ? map_put_str(ret, name, s) : -ENOMEM;
		free(name);
	}
	return r;
}

/* 1 if one of the names is in the map, else 0; -ENOMEM. */
static int has_any(const struct map *names, char *const *v, size_t n)
{
	int r = 0;

	for (size_t i = 0; map_size(names) && i < n && !r; i++) {
		char *name = plain_name(v[i]);

		r = name ? map_get_str(names, name) != NULL : -ENOMEM;
		free(name);
	}
	return r;
}

/* A cloud may list snapshots with its templates: 1 if it is one of another uid's, else 0; -ENOMEM. */
static int is_hidden(const struct map *hidden, const struct cloud_template *t)
{
	int r = has_any(hidden, &t->id, 1);

	if (!r)
		r = has_any(hidden, t->names.v, t->names.n);
	return r ? r : has_any(hidden, t->aliases.v, t->aliases.n);
}

static void view_template(const struct cloud_template *t, struct sandbox_template *ret)
{
	const struct cloud_strs *names = t->names.n ? &t->names : &t->aliases;

	*ret = (struct sandbox_template){
		.id = t->id,
		.names = (const char *const *)names->v,
		.n_names = names->n,
		.is_public = t->is_public,
		.build_id = t->build_id ? t->build_id : "",
		.build_status = t->build_status ? t->build_status : "",
		.envd_version = t->envd_version ? t->envd_version : "",
		.cpu_count = t->cpu_count,
		.memory_mb = t->memory_mb,
		.disk_size_mb = t->disk_size_mb,
		.created_at_ms = t->created_at_ms,
		.updated_at_ms = t->updated_at_ms,
		.spawned_at_ms = t->spawned_at_ms,
		.spawn_count = t->spawn_count > 0 ? (uint64_t)t->spawn_count : 0,
	};
}

/* Fills v with what the caller may see, each once: one that moved between two of the cloud's pages comes twice. */
static int take_templates(const struct cloud_templates *list, const struct map *hidden, const struct cloud_template **v, size_t *ret_n)
{
	struct map seen = MAP_NULL;
	int r = 0;

	for (size_t i = 0; i < list->n && r >= 0; i++) {
		struct cloud_template *t = list->v[i];

		if (map_get_str(&seen, t->id))
			continue;
		r = is_hidden(hidden, t);
		if (r == 0) {
			v[(*ret_n)++] = t;
			r = map_put_str(&seen, t->id, t);
		}
	}
	map_fini(&seen);
	return r < 0 ? r : 0;
}

static int choose(const struct sandbox_op *op, const struct cloud_templates *list, const struct cloud_template **v, size_t *ret_n)
{
	struct map hidden = MAP_NULL;
	int r = find_hidden(op, &hidden);

	if (r == 0)
		r = take_templates(list, &hidden, v, ret_n);
	map_fini(&hidden);
	return r;
}

/* The index of the page's first one: behind the template of the token's id, or if that is gone, at the token's index. */
static size_t page_begin(const struct templates_args *a, const struct cloud_template *const *v, size_t n)
{
	size_t at = 0;

	if (!a->token[0])
		return 0;
	while (at < n && !str_eq(v[at]->id, a->after.id))
		at++;
	return at < n ? at + 1 : MIN((size_t)a->after.started_at_ms, n);
}

static void op_templates_answer(struct sandbox_op *op, const struct cloud_template *const *v, size_t n)
{
	struct templates_args *a = op->args;
	struct sandbox_template *views = calloc(a->page_size, sizeof(*views));
	struct sandbox_template_page page = { .templates = views, .next_page_token = "", .question = a->question };
	struct status ok = STATUS_OK;
	size_t at = page_begin(a, v, n);
	char *token = NULL;

	page.from = at;
	for (; views && at < n && page.n < a->page_size; at++)
		view_template(v[at], &views[page.n++]);
	if (views && at < n)
		token = sandbox_index_token(at, v[at - 1]->id, a->question);
	if (!views || (at < n && !token)) {
		op_fail_errno(op, -ENOMEM);
	} else {
		page.next_page_token = token ? token : "";
		op_end_templates(op, &ok, &page);
	}
	free(views);
	free(token);
}

static void ask_cloud(struct sandbox_op *op);

static void op_templates_on_listed(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct templates_args *a = op->args;
	const struct cloud_template **v;
	size_t n = 0;

	op->call = NULL;
	if (r->http_status == 404 && !a->whole) {
		a->whole = true;
		ask_cloud(op);
		return;
	}
	if (r->outcome != CLOUD_DONE) {
		op_fail(op, &r->status);
		return;
	}
	v = calloc(r->templates->n + 1, sizeof(*v));
	if (v && choose(op, r->templates, v, &n) == 0)
		op_templates_answer(op, v, n);
	else
		op_fail_errno(op, -ENOMEM);
	free(v);
}

static void ask_cloud(struct sandbox_op *op)
{
	const struct templates_args *a = op->args;
	struct cloud_ask ask = op_ask(op, op_templates_on_listed);

	op->call = cloud_templates(op->account->cloud, a->whole, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static bool op_templates_check(struct sandbox_op *op, struct status *st)
{
	struct templates_args *a = op->args;

	if (!page_size(a->asked_size, &a->page_size)) {
		status_field(st, "page_size", "must be at most %u", PAGE_MAX);
		return false;
	}
	a->question = page_hash(page_hash(PAGE_HASH, op->account->name), "templates") + op->who.uid;
	if (a->token[0] && page_token_parse(a->token, a->question, &a->after) < 0) {
		status_field(st, "page_token", "is not one that this list gave out");
		return false;
	}
	return true;
}

static void op_templates_start(struct sandbox_op *op)
{
	struct status st;

	op->account = core_account_of(op->core, op->who.uid);
	if (op_templates_check(op, &st))
		ask_cloud(op);
	else
		op_fail(op, &st);
}

static const struct op_kind op_templates_kind = {
	.name = "ListTemplates",
	.start = op_templates_start,
	.fail = op_fail_templates,
	.args_size = sizeof(struct templates_args),
	.fini_args = op_templates_fini_args,
};

int sandbox_list_templates(struct sandbox_core *core, const struct sandbox_call *call, const struct sandbox_template_list *q,
			   sandbox_templates_fn *done, struct sandbox_op **ret)
{
	struct templates_args a = { .asked_size = q->page_size };

	if (text_set(&a.token, q->page_token) < 0) {
		op_templates_fini_args(&a);
		return -ENOMEM;
	}
	return op_new(core, &op_templates_kind, call, &a, (union op_done){ .templates = done }, ret);
}
