/* SPDX-License-Identifier: MIT */
#include "daemon/local/state/template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/local/state/sign.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define BASE_TEMPLATE_ID "rki5dems9wqfm4r03t7g"

struct templates {
	struct list fixed, snapshots;
	size_t n_builds;
};

/* --- the list --- */

static struct template *template_new(struct list *to)
{
	struct template *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	list_init(&t->builds);
	list_add_tail(to, &t->node);
	return t;
}

static void template_free(struct templates *ts, struct template *t)
{
	list_for_each_safe(n, &t->builds) {
		struct template_build *b = list_entry(n, struct template_build, node);

		list_del(n);
		free(b);
		ts->n_builds--;
	}
	list_del(&t->node);
	free(t);
}

static void fixed_id(const char *name, char ret[24])
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	char hex[65];

	if (str_eq(name, "base")) {
		str_copy(ret, 24, BASE_TEMPLATE_ID);
		return;
	}
	sign_sha256_hex(name, strlen(name), hex);
	for (size_t i = 0; i < 20; i++)
		ret[i] = digits[((unsigned char)hex[3 * i] * 7u + (unsigned char)hex[3 * i + 1] * 3u +
				 (unsigned char)hex[3 * i + 2]) % 36];
}

static int add_fixed(struct templates *ts, const char *name, int64_t now_us)
{
	struct template *t;

	list_for_each(n, &ts->fixed)
		if (str_eq(list_entry(n, struct template, node)->name, name))
			return 0;
	t = template_new(&ts->fixed);
	if (!t)
		return -ENOMEM;
	str_copy(t->name, sizeof(t->name), name);
	fixed_id(name, t->id);
	t->made_us = now_us;
	return 0;
}

int templates_new(const struct container_template *v, size_t n, int64_t now_us, struct templates **ret)
{
	struct templates *ts = calloc(1, sizeof(*ts));
	int r;

	if (!ts)
		return -ENOMEM;
	list_init(&ts->fixed);
	list_init(&ts->snapshots);
	r = add_fixed(ts, "base", now_us);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_fixed(ts, v[i].name, now_us);
	if (r < 0) {
		templates_free(ts);
		return r;
	}
	*ret = ts;
	return 0;
}

struct templates *templates_free(struct templates *ts)
{
	if (!ts)
		return NULL;
	list_for_each_safe(n, &ts->fixed)
		template_free(ts, list_entry(n, struct template, node));
	list_for_each_safe(n, &ts->snapshots)
		template_free(ts, list_entry(n, struct template, node));
	free(ts);
	return NULL;
}

static struct template *next_of(const struct list *head, const struct template *after)
{
	const struct list *n = after ? after->node.next : head->next;

	return n == head ? NULL : list_entry((struct list *)n, struct template, node);
}

struct template *templates_next_fixed(const struct templates *ts, const struct template *after)
{
	return next_of(&ts->fixed, after);
}

struct template *templates_next(const struct templates *ts, const struct template *after)
{
	return next_of(&ts->snapshots, after);
}

struct template_build *template_newest(const struct template *t, const char *tag)
{
	struct template_build *found = NULL;

	list_for_each(n, &t->builds) {
		struct template_build *b = list_entry(n, struct template_build, node);

		if ((!tag || str_eq(tag, b->tag)) && (!found || b->at_us >= found->at_us))
			found = b;
	}
	return found;
}

/* --- looking up --- */

static struct template *find_fixed(const struct templates *ts, const char *name)
{
	list_for_each(n, &ts->fixed) {
		struct template *t = list_entry(n, struct template, node);

		if (str_eq(t->name, name) || str_eq(t->id, name))
			return t;
	}
	return NULL;
}

/* An id beats a name. */
static struct template *find_snapshot(const struct templates *ts, const char *team, const char *name,
				      bool by_id)
{
	struct template *t = NULL;

	while ((t = templates_next(ts, t)))
		if (t->team == team && !t->deleted && by_id && str_eq(t->id, name))
			return t;
	while ((t = templates_next(ts, t)))
		if (t->team == team && !t->deleted && t->name[0] && str_eq(t->name, name))
			return t;
	return NULL;
}

enum template_found templates_find(const struct templates *ts, const char *team,
				   const struct template_ref *ref, struct template **ret,
				   struct template_build **ret_build)
{
	const char *tag = ref->tag[0] ? ref->tag : NULL;
	struct template *t;

	*ret_build = NULL;
	if (ref->space[0] && !str_eq(ref->space, team))
		return TEMPLATE_FOREIGN;
	t = find_fixed(ts, ref->name);
	if (t) {
		*ret = t;
		return tag && !str_eq(tag, TEMPLATE_DEFAULT_TAG) ? TEMPLATE_NO_TAG : TEMPLATE_FOUND;
	}
	t = find_snapshot(ts, team, ref->name, !ref->space[0]);
	if (!t)
		return TEMPLATE_UNKNOWN;
	*ret = t;
	*ret_build = template_newest(t, tag ? tag : TEMPLATE_DEFAULT_TAG);
	if (!*ret_build && !tag)
		*ret_build = template_newest(t, NULL);
	return *ret_build ? TEMPLATE_FOUND : TEMPLATE_NO_TAG;
}

void template_snapshot_id(const struct template *t, const struct template_build *b, char *ret, size_t cap)
{
	const char *colon = b->tag[0] ? ":" : "";

	if (t->name[0])
		snprintf(ret, cap, "%s/%s%s%s", t->team, t->name, colon, b->tag);
	else
		snprintf(ret, cap, "%s%s%s", t->id, colon, b->tag);
}

/* Version 8 and the usual variant: its other digits are of our own making (RFC 9562). */
void template_build_id(const struct template *t, const struct template_build *b, char ret[TEMPLATE_UUID_MAX + 1])
{
	const char *of = b ? b->layer : t->id;
	char hex[65];

	sign_sha256_hex(of, strlen(of), hex);
	snprintf(ret, TEMPLATE_UUID_MAX + 1, "%.8s-%.4s-8%.3s-a%.3s-%.12s", hex, hex + 8, hex + 12, hex + 15, hex + 18);
}

/* --- changes --- */

static struct template *new_snapshot(struct templates *ts, const char *team, const char *name)
{
	struct template *t = template_new(&ts->snapshots);

	if (!t)
		return NULL;
	rng_id(t->id, 20);
	t->team = team;
	str_copy(t->name, sizeof(t->name), name);
	return t;
}

/* Another entry of the same build. */
static struct template_build *twin(const struct template *t, const struct template_build *b)
{
	list_for_each(n, &t->builds) {
		struct template_build *other = list_entry(n, struct template_build, node);

		if (other != b && str_eq(other->layer, b->layer))
			return other;
	}
	return NULL;
}

bool template_is_first_of_build(const struct template *t, const struct template_build *b)
{
	list_for_each(n, &t->builds)
		if (str_eq(list_entry(n, struct template_build, node)->layer, b->layer))
			return n == &b->node;
	return false;
}

static void drop_entry(struct templates *ts, struct template_build *b)
{
	list_del(&b->node);
	free(b);
	ts->n_builds--;
}

/* The entry that has the tag goes; the layer of a build that this was the last of is the caller's to remove. */
static int replace(struct templates *ts, struct template *t, const char *tag, char **ret)
{
	struct template_build *old = tag[0] ? template_newest(t, tag) : NULL;

	*ret = NULL;
	if (!old)
		return 0;
	if (!twin(t, old)) {
		*ret = str_dup(old->layer);
		if (!*ret)
			return -ENOMEM;
	}
	drop_entry(ts, old);
	return 0;
}

static int add_build(struct templates *ts, struct template *t, const struct template_build *b,
		     char **ret_replaced)
{
	struct template_build *copy = malloc(sizeof(*copy));
	int r = copy ? replace(ts, t, b->tag, ret_replaced) : -ENOMEM;

	if (r < 0) {
		free(copy);
		return r;
	}
	*copy = *b;
	list_add_tail(&t->builds, &copy->node);
	ts->n_builds++;
	return 0;
}

int templates_add(struct templates *ts, const char *team, const struct template_ref *ref,
		  const struct template_build *b, struct template **ret, char **ret_replaced)
{
	struct template *t = NULL;
	int r;

	*ret_replaced = NULL;
	if (ref->name[0] && find_fixed(ts, ref->name))
		return -EEXIST;
	if (ts->n_builds >= TEMPLATE_BUILDS_MAX)
		return -ENOSPC;
	if (ref->name[0])
		t = find_snapshot(ts, team, ref->name, false);
	if (!t)
		t = new_snapshot(ts, team, ref->name);
	if (!t)
		return -ENOMEM;
	r = add_build(ts, t, b, ret_replaced);
	if (r < 0 && list_is_empty(&t->builds))
		template_free(ts, t);
	else if (r == 0)
		*ret = t;
	return r;
}

int templates_tag(struct templates *ts, struct template *t, struct template_build *b, const char *tag, int64_t now_us,
		  char **ret_replaced)
{
	struct template_build *has = template_newest(t, tag), copy = *b;
	int r;

	*ret_replaced = NULL;
	if (has && str_eq(has->layer, b->layer)) {
		has->tagged_us = now_us;
		return 0;
	}
	if (ts->n_builds >= TEMPLATE_BUILDS_MAX)
		return -ENOSPC;
	str_copy(copy.tag, sizeof(copy.tag), tag);
	copy.tagged_us = now_us;
	r = add_build(ts, t, &copy, ret_replaced);
	if (r == 0 && !b->tag[0])
		drop_entry(ts, b);
	return r;
}

void templates_untag(struct templates *ts, struct template *t, const char *tag)
{
	struct template_build *b = template_newest(t, tag);

	if (b && twin(t, b))
		drop_entry(ts, b);
	else if (b)
		b->tag[0] = '\0';
}

void templates_delete(struct templates *ts, struct template *t)
{
	must(t->team);
	t->deleted = true;
	if (!t->users)
		template_free(ts, t);
}

void template_use(struct template *t)
{
	t->users++;
}

void template_spawned(struct template *t, int64_t now_us)
{
	t->n_spawned++;
	t->spawned_us = now_us;
}

void template_unuse(struct templates *ts, struct template *t)
{
	must(t->users);
	if (!--t->users && t->deleted)
		template_free(ts, t);
}

/* --- over restarts --- */

static json_t *save_one(const struct template *t)
{
	json_t *builds = json_array();

	list_for_each(n, &t->builds) {
		const struct template_build *b = list_entry(n, struct template_build, node);

		if (json_array_append_new(builds, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "tag", b->tag,
							    "layer", b->layer, "root", b->root,
							    "source", b->source, "at_us",
							    (json_int_t)b->at_us, "tagged_us",
							    (json_int_t)b->tagged_us)) < 0) {
			json_decref(builds);
			return NULL;
		}
	}
	return json_pack("{s:s, s:s, s:s, s:o}", "id", t->id, "name", t->name, "team", t->team, "builds",
			 builds);
}

json_t *templates_save(const struct templates *ts)
{
	json_t *all = json_array();
	struct template *t = NULL;

	while (all && (t = templates_next(ts, t)))
		if (!t->deleted && json_array_append_new(all, save_one(t)) < 0) {
			json_decref(all);
			return NULL;
		}
	return all;
}

static int load_build(struct templates *ts, struct template *t, const json_t *o)
{
	struct template_build b = { 0 };
	const char *tag, *layer, *root, *source;
	json_int_t at_us, tagged_us = -1;
	char *replaced = NULL;
	int r;

	if (json_unpack((json_t *)o, "{s:s, s:s, s:s, s:s, s:I, s?:I}", "tag", &tag, "layer", &layer, "root",
			&root, "source", &source, "at_us", &at_us, "tagged_us", &tagged_us) < 0 ||
	    !str_copy(b.tag, sizeof(b.tag), tag) || !str_copy(b.layer, sizeof(b.layer), layer) ||
	    !str_copy(b.root, sizeof(b.root), root) || !str_copy(b.source, sizeof(b.source), source))
		return -EINVAL;
	b.at_us = at_us;
	b.tagged_us = tagged_us < 0 ? at_us : tagged_us;
	r = add_build(ts, t, &b, &replaced);
	free(replaced);
	return r;
}

int templates_load(struct templates *ts, const json_t *o, const char *team)
{
	const char *id, *name;
	struct template *t;
	json_t *builds, *b;
	size_t i;
	int r = 0;

	if (json_unpack((json_t *)o, "{s:s, s:s, s:o}", "id", &id, "name", &name, "builds", &builds) < 0 ||
	    !json_is_array(builds) || !json_array_size(builds) || strlen(id) >= sizeof(t->id) ||
	    strlen(name) > TEMPLATE_NAME_MAX)
		return -EINVAL;
	t = new_snapshot(ts, team, name);
	if (!t)
		return -ENOMEM;
	str_copy(t->id, sizeof(t->id), id);
	json_array_foreach(builds, i, b)
		if (r == 0)
			r = load_build(ts, t, b);
	if (r < 0)
		template_free(ts, t);
	return r;
}
