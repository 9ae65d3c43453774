/* SPDX-License-Identifier: MIT */
/* Header lists: one behind the other, with the caps of the first. */
#include "proto/wire/fields.h"

#include <errno.h>

#include "tests/lib/test.h"

static void fill(struct fields *f)
{
	CHECK_INT(fields_put(f, ":method", "GET"), 0);
	CHECK_INT(fields_put(f, "a", ""), 0);
	CHECK_INT(fields_put_secret(f, "x-key", "hidden"), 0);
	CHECK_INT(fields_put(f, "b", "last"), 0);
}

TEST(append_takes_what_is_behind_a_field)
{
	scoped(fields_fini) struct fields from = FIELDS_NULL, to = FIELDS_NULL, one = FIELDS_NULL;

	fill(&from);
	CHECK_INT(fields_put(&to, ":path", "/"), 0);
	CHECK_INT(fields_append(&to, &from, 1), 0);
	CHECK_INT(to.n, 4);
	CHECK_STR(fields_get(&to, ":path"), "/");
	CHECK(!fields_get(&to, ":method"));
	CHECK_STR(fields_get(&to, "a"), "");
	CHECK_STR(fields_get(&to, "x-key"), "hidden");
	CHECK(to.has_secret && to.v[2].secret && !to.v[3].secret);
	CHECK_STR(fields_name(&to, 3), "b");
	CHECK_STR(fields_value(&to, 3), "last");
	CHECK_INT(fields_append(&to, &from, 4), 0);
	CHECK_INT(to.n, 4);

	/* It is counted as if each was added. */
	CHECK_INT(fields_put(&one, ":path", "/"), 0);
	CHECK_INT(fields_put(&one, "a", ""), 0);
	CHECK_INT(fields_put(&one, "x-key", "hidden"), 0);
	CHECK_INT(fields_put(&one, "b", "last"), 0);
	CHECK_INT(to.bytes, one.bytes);
	CHECK_INT(to.text_len, one.text_len);
}

TEST(append_grows_once_and_keeps_the_caps)
{
	scoped(fields_fini) struct fields from = FIELDS_NULL, to = FIELDS_NULL;
	scoped(fields_fini) struct fields few = { .max_n = 4 }, small = { .max_bytes = 200 };

	for (int i = 0; i < 100; i++)
		CHECK_INT(fields_printf(&from, "name", "%d", i), 0);
	CHECK_INT(fields_append(&to, &from, 0), 0);
	CHECK_INT(fields_append(&to, &from, 90), 0);
	CHECK_INT(to.n, 110);
	CHECK_STR(fields_value(&to, 99), "99");
	CHECK_STR(fields_value(&to, 100), "90");
	CHECK_INT(fields_append(&to, &from, 81), -EMSGSIZE);
	CHECK_INT(to.n, 110);

	CHECK_INT(fields_append(&few, &from, 95), -EMSGSIZE);
	CHECK_INT(fields_append(&few, &from, 96), 0);
	CHECK_INT(fields_append(&small, &from, 94), -EMSGSIZE);	/* 38 each */
	CHECK_INT(fields_append(&small, &from, 95), 0);
	CHECK_INT(small.bytes, 190);
}

TEST(append_is_charged_before)
{
	struct quota *q = quota_new(&(struct quota_options){ .name = "t", .max = 600 });
	struct fields from = FIELDS_NULL, to = { .quota = q };

	for (int i = 0; i < 13; i++)
		CHECK_INT(fields_put(&from, "name", "value"), 0);
	CHECK_INT(fields_append(&to, &from, 0), -ENOBUFS);
	CHECK_INT(to.n, 0);
	fields_fini(&to);
	CHECK_INT(quota_used(q), 0);
	fields_fini(&from);
	quota_unref(q);
}

TEST_MAIN()
