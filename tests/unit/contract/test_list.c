/* SPDX-License-Identifier: MIT */
#include "proto/cloud/list.h"

#include "tests/lib/test.h"

static const char desc[] = "MjAyNi0wOC0yMVQxMDowMDowMC4xMjM0NTZaX19pMGExYjJjM2Q0ZTVmNmc3aDhpOWo=";
static const char asc[] =
	"MjAyNi0wOC0yMVQxMDowMDowMC4xMjM0NTZaX19pMGExYjJjM2Q0ZTVmNmc3aDhpOWpfX2FzYw==";

TEST(cursors)
{
	struct cursor c, back;
	char *text;

	CHECK(!cursor_decode(desc, &c));
	CHECK_STR(c.id, "i0a1b2c3d4e5f6g7h8i9j");
	CHECK(!c.ascending);
	CHECK_INT(c.at_us % 1000000, 123456);
	text = cursor_encode(&c);
	CHECK_STR(text, desc);
	free(text);
	c.ascending = true;
	text = cursor_encode(&c);
	CHECK_STR(text, asc);
	CHECK(!cursor_decode(text, &back));
	CHECK(back.ascending && back.at_us == c.at_us);
	free(text);
}

TEST(bad_cursors)
{
	static const char *const t[] = { "@@@", "YQ==", "", "X18=", "X19pYWJj" /* __iabc */ };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cursor c;

		CHECK(cursor_decode(t[i], &c) < 0);
	}
}

TEST(order)
{
	CHECK(cursor_compare(2, "b", 1, "a", false) < 0);	/* newest first */
	CHECK(cursor_compare(1, "a", 1, "b", false) < 0);	/* ties by id */
	CHECK(cursor_compare(1, "a", 1, "b", true) > 0);	/* the exact reverse */
	CHECK_INT(cursor_compare(1, "a", 1, "a", false), 0);
}

TEST(times)
{
	static const struct {
		const char *in;
		int64_t us;
	} t[] = { { "1970-01-01T00:00:00Z", 0 },
		  { "1970-01-01T00:00:00.5Z", 500000 },
		  { "1970-01-01T00:00:00.123456Z", 123456 },
		  { "1970-01-01T00:00:00.123456789Z", 123456 },
		  { "1970-01-01T01:00:00.000001+01:00", 1 } };
	int64_t us;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK(!list_time_us(t[i].in, &us));
		CHECK_INT(us, t[i].us);
	}
	CHECK(list_time_us("yesterday", &us) < 0);
	CHECK(list_time_us("", &us) < 0);
}

/* Appendix B, both ways. */
TEST(metadata_filter)
{
	static struct cloud_kv pairs[] = { { (char *)"user", (char *)"abc d" }, { (char *)"k&=", (char *)"é+1" },
					   { (char *)"more", (char *)"x" } };
	struct cloud_kvs f = { 0 }, same = { pairs, 3 }, other = { pairs, 1 }, none = { 0 };
	char *text = meta_filter_format(pairs, 2);

	CHECK_STR(text, "user%3Dabc%252520d%26k%252526%25253D%3D%2525C3%2525A9%25252B1");
	free(text);
	CHECK(!meta_filter_parse("user=abc%2520d&k%2526%253D=%25C3%25A9%252B1", &f));
	CHECK_INT(f.n, 2);
	CHECK(meta_filter_match(&f, &same));
	CHECK(!meta_filter_match(&f, &other));
	CHECK(!meta_filter_match(&f, &none));
	cloud_kvs_fini(&f);
	CHECK(!meta_filter_parse("a=1&a=2", &f));
	CHECK_INT(f.n, 1);
	CHECK_STR(f.v[0].value, "2");
	cloud_kvs_fini(&f);
}

TEST(bad_filters)
{
	static const char *const t[] = { "", "nopair", "a=1&", "a=1&b", "a=b=c", "a=%25zz", "a=%2500",
					 "a=%25ff" };
	struct cloud_kvs f = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK(meta_filter_parse(t[i], &f) < 0 && !f.n);
}

TEST(template_references)
{
	static const struct {
		const char *in, *space, *name, *tag;
	} t[] = { { "base", "", "base", "" },
		  { " BASE\n", "", "base", "" },
		  { "team/My-Snap:v1.2", "team", "my-snap", "v1.2" },
		  { "base:default", "", "base", "default" },
		  { "bad name!", NULL, NULL, NULL },
		  { "", NULL, NULL, NULL },
		  { "base:", NULL, NULL, NULL },
		  { "/base", NULL, NULL, NULL },
		  { "a.b", NULL, NULL, NULL },
		  { "a/b/c", NULL, NULL, NULL },
		  { "a:b:c", NULL, NULL, NULL } };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct template_ref r;
		int e = template_ref_parse(t[i].in, &r);

		CHECK_INT(!e, t[i].name != NULL);
		if (e)
			continue;
		CHECK_STR(r.space, t[i].space);
		CHECK_STR(r.name, t[i].name);
		CHECK_STR(r.tag, t[i].tag);
	}
}

TEST_MAIN()
