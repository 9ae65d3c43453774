/* SPDX-License-Identifier: MIT */
#include "daemon/local/state/template.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/str.h"
#include "daemon/local/state/sign.h"
#include "tests/lib/test.h"

static const char *const team = "team-a", *const other = "team-b";

static struct template_ref ref(const char *s)
{
	struct template_ref r;

	CHECK_INT(template_ref_parse(s, &r), 0);
	return r;
}

static struct templates *some(void)
{
	static const struct container_template names[] = { { .name = "node" }, { .name = "base" } };
	struct templates *ts;

	CHECK_INT(templates_new(names, 2, 5, &ts), 0);
	return ts;
}

static struct template *add(struct templates *ts, const char *name, const char *layer, int64_t at_us,
			    char **ret_replaced)
{
	struct template_build b = { .root = "base", .source = "i1", .at_us = at_us };
	struct template_ref r = { "" };
	struct template *t;

	if (name)
		r = ref(name);
	str_copy(b.tag, sizeof(b.tag), r.tag[0] ? r.tag : TEMPLATE_DEFAULT_TAG);
	str_copy(b.layer, sizeof(b.layer), layer);
	CHECK_INT(templates_add(ts, team, &r, &b, &t, ret_replaced), 0);
	return t;
}

static enum template_found find(const struct templates *ts, const char *who, const char *what,
				const char *layer)
{
	struct template_build *b = NULL;
	struct template *t = NULL;
	struct template_ref r = ref(what);
	enum template_found f = templates_find(ts, who, &r, &t, &b);

	if (f == TEMPLATE_FOUND && layer)
		CHECK_STR(b ? b->layer : "", layer);
	return f;
}

TEST(of_the_command_line)
{
	struct templates *ts = some();

	CHECK_INT(find(ts, team, "base", ""), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, "NODE", ""), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, "rki5dems9wqfm4r03t7g", ""), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, "base:default", ""), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, "team-a/base", ""), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, "base:other", NULL), TEMPLATE_NO_TAG);
	CHECK_INT(find(ts, team, "team-b/base", NULL), TEMPLATE_FOREIGN);
	CHECK_INT(find(ts, team, "nosuch", NULL), TEMPLATE_UNKNOWN);
	CHECK(!templates_next(ts, NULL));
	templates_free(ts);
}

TEST(snapshots)
{
	struct templates *ts = some();
	char *replaced, id[400];
	struct template *t = add(ts, "my-snap:v1", "l1", 10, &replaced), *u;

	CHECK(!replaced);
	CHECK(add(ts, "my-snap", "l2", 20, &replaced) == t && !replaced);
	CHECK(add(ts, "my-snap:v1", "l3", 30, &replaced) == t);
	CHECK_STR(replaced, "l1");
	free(replaced);
	u = add(ts, NULL, "l4", 40, &replaced);
	CHECK(u != t && !u->name[0]);

	CHECK_INT(find(ts, team, "my-snap:v1", "l3"), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, "my-snap", "l2"), TEMPLATE_FOUND);	/* the tag "default" */
	CHECK_INT(find(ts, team, "team-a/my-snap:v1", "l3"), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, t->id, "l2"), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, u->id, "l4"), TEMPLATE_FOUND);
	CHECK_INT(find(ts, team, "my-snap:v9", NULL), TEMPLATE_NO_TAG);
	CHECK_INT(find(ts, other, "my-snap:v1", NULL), TEMPLATE_UNKNOWN);
	CHECK_INT(find(ts, other, "team-a/my-snap:v1", NULL), TEMPLATE_FOREIGN);

	CHECK_STR(template_newest(t, NULL)->layer, "l3");
	CHECK_STR(template_newest(t, "default")->layer, "l2");
	CHECK(!template_newest(t, "v2"));
	template_snapshot_id(t, template_newest(t, NULL), id, sizeof(id));
	CHECK_STR(id, "team-a/my-snap:v1");
	template_snapshot_id(u, template_newest(u, NULL), id, sizeof(id));
	CHECK(str_starts(id, u->id) && str_eq(id + 20, ":default"));
	templates_free(ts);
}

TEST(without_the_default_tag)
{
	struct templates *ts = some();
	char *replaced;

	add(ts, "s:v1", "l1", 10, &replaced);
	add(ts, "s:v2", "l2", 20, &replaced);
	CHECK_INT(find(ts, team, "s", "l2"), TEMPLATE_FOUND);
	templates_free(ts);
}

/* E-3: tags share a build; what one is taken from stays, and its layer goes with the last that has it. */
TEST(several_tags_of_a_build)
{
	struct templates *ts = some();
	char *replaced, one[37], again[37];
	struct template *t = add(ts, "s:v1", "l1", 10, &replaced);

	CHECK_INT(templates_tag(ts, t, template_newest(t, "v1"), "stable", 15, &replaced), 0);
	CHECK(!replaced);
	CHECK_INT(find(ts, team, "s:stable", "l1"), TEMPLATE_FOUND);
	template_build_id(t, template_newest(t, "v1"), one);
	template_build_id(t, template_newest(t, "stable"), again);
	CHECK_STR(one, again);
	CHECK(template_is_first_of_build(t, template_newest(t, "v1")));
	CHECK(!template_is_first_of_build(t, template_newest(t, "stable")));
	/* another build takes the tag over: the first one has the other left */
	CHECK(add(ts, "s:v1", "l2", 20, &replaced) == t && !replaced);
	CHECK_INT(find(ts, team, "s:stable", "l1"), TEMPLATE_FOUND);
	CHECK_INT(templates_tag(ts, t, template_newest(t, "v1"), "stable", 25, &replaced), 0);
	CHECK_STR(replaced, "l1");
	free(replaced);
	templates_untag(ts, t, "stable");
	CHECK_INT(find(ts, team, "s:stable", NULL), TEMPLATE_NO_TAG);
	CHECK_INT(find(ts, team, "s:v1", "l2"), TEMPLATE_FOUND);
	templates_untag(ts, t, "nosuch");
	templates_free(ts);
}

TEST(without_any_tag)
{
	struct templates *ts = some(), *again = some();
	char *replaced, id[400];
	struct template *t = add(ts, "s:v1", "l1", 10, &replaced);
	json_t *saved;

	add(ts, "s:v2", "l2", 20, &replaced);
	templates_untag(ts, t, "v1");
	templates_untag(ts, t, "v2");
	CHECK_INT(find(ts, team, "s", "l2"), TEMPLATE_FOUND);
	template_snapshot_id(t, template_newest(t, NULL), id, sizeof(id));
	CHECK_STR(id, "team-a/s");
	saved = templates_save(ts);
	CHECK_INT(templates_load(again, json_array_get(saved, 0), team), 0);
	json_decref(saved);
	CHECK_INT(find(again, team, "s", "l2"), TEMPLATE_FOUND);
	CHECK(template_newest(templates_next(again, NULL), NULL)->node.prev != &templates_next(again, NULL)->builds);
	CHECK_INT(templates_tag(ts, t, template_newest(t, NULL), "v3", 30, &replaced), 0);
	CHECK(!replaced);
	CHECK_INT(find(ts, team, "s:v3", "l2"), TEMPLATE_FOUND);
	CHECK(template_is_first_of_build(t, template_newest(t, "v3")));
	templates_free(ts);
	templates_free(again);
}

TEST(taken_names)
{
	struct templates *ts = some();
	struct template_build b = { .tag = "v1", .layer = "l", .root = "base" };
	struct template_ref r = ref("base:v1");
	struct template *t;
	char *replaced;

	CHECK_INT(templates_add(ts, team, &r, &b, &t, &replaced), -EEXIST);
	templates_free(ts);
}

TEST(deleted_with_their_last_user)
{
	struct templates *ts = some();
	char *replaced;
	struct template *t = add(ts, "s", "l1", 10, &replaced);

	template_use(t);
	template_use(t);
	templates_delete(ts, t);
	CHECK_INT(find(ts, team, "s", NULL), TEMPLATE_UNKNOWN);
	CHECK(add(ts, "s", "l2", 20, &replaced) != t);
	template_unuse(ts, t);
	CHECK(t->deleted);
	template_unuse(ts, t);
	CHECK_INT(find(ts, team, "s", "l2"), TEMPLATE_FOUND);
	templates_free(ts);
}

TEST(over_a_restart)
{
	struct templates *ts = some(), *again = some();
	json_t *saved, *o;
	char *replaced;
	size_t i;

	add(ts, "s:v1", "l1", 10, &replaced);
	add(ts, "s:v2", "l2", 20, &replaced);
	add(ts, NULL, "l3", 30, &replaced);
	saved = templates_save(ts);
	CHECK_INT(json_array_size(saved), 2);
	json_array_foreach(saved, i, o)
		CHECK_INT(templates_load(again, o, team), 0);
	CHECK_INT(find(again, team, "s:v1", "l1"), TEMPLATE_FOUND);
	CHECK_INT(find(again, team, "s", "l2"), TEMPLATE_FOUND);
	CHECK_INT(find(again, team, templates_next(ts, templates_next(ts, NULL))->id, "l3"), TEMPLATE_FOUND);
	json_decref(saved);
	for (const char *const *bad = (const char *const[]){ "{}", "{\"id\":\"x\"}", "[]",
			"{\"id\":\"x\",\"name\":\"\",\"builds\":[]}",
			"{\"id\":\"x\",\"name\":\"\",\"builds\":[{\"tag\":1}]}",
			"{\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"name\":\"\",\"builds\":[{}]}", NULL };
	     *bad; bad++) {
		o = json_loads(*bad, 0, NULL);
		CHECK_INT(templates_load(again, o, team), -EINVAL);
		json_decref(o);
	}
	templates_free(ts);
	templates_free(again);
}

TEST(tokens)
{
	uint8_t seed[SIGN_SEED_BYTES] = { 1 };
	char a[65], b[65], again[65];

	sign_token(seed, "ia", a);
	sign_token(seed, "ib", b);
	sign_token(seed, "ia", again);
	CHECK_INT(strlen(a), 64);
	CHECK(strcmp(a, b) != 0);
	CHECK_STR(a, again);
}

TEST_MAIN()
