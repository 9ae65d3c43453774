/* SPDX-License-Identifier: MIT */
/* traceparent as W3C Trace Context tells it; most rows are of its own test suite. */
#include "proto/wire/trace.h"

#include <string.h>

#include "proto/wire/fields.h"
#include "tests/lib/test.h"

#define ID     "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

TEST(what_is_taken_and_what_is_none)
{
	static const struct {
		const char *text, *want;	/* "" = none */
	} t[] = {
		{ "00-" ID "-" PARENT "-01", "00-" ID "-" PARENT "-01" },
		{ "00-" ID "-" PARENT "-00", "00-" ID "-" PARENT "-00" },
		{ "00-" ID "-" PARENT "-03", "00-" ID "-" PARENT "-03" },
		{ "00-" ID "-" PARENT "-ff", "00-" ID "-" PARENT "-03" },	/* flags that nobody here knows are zero */
		{ "00-" ID "-" PARENT "-fc", "00-" ID "-" PARENT "-00" },
		{ "cc-" ID "-" PARENT "-01", "00-" ID "-" PARENT "-01" },	/* a later version: what is known of it */
		{ "cc-" ID "-" PARENT "-01-what-else", "00-" ID "-" PARENT "-01" },
		{ "cc-" ID "-" PARENT "-01.what-else", "" },
		{ "00-" ID "-" PARENT "-01-what-else", "" },
		{ "00-" ID "-" PARENT "-01-", "" },
		{ "ff-" ID "-" PARENT "-01", "" },
		{ "0-" ID "-" PARENT "-01", "" },
		{ "0x-" ID "-" PARENT "-01", "" },
		{ "00-00000000000000000000000000000000-" PARENT "-01", "" },
		{ "00-" ID "-0000000000000000-01", "" },
		{ "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", "" },
		{ "00-" ID "-00F067AA0BA902B7-01", "" },
		{ "00-" ID "-" PARENT "-0A", "" },
		{ "00-" ID "-" PARENT "-1", "" },
		{ "00-" ID "-" PARENT "-", "" },
		{ "00-" ID "-" PARENT, "" },
		{ "00-" ID "." PARENT "-01", "" },
		{ "00-.bf92f3577b34da6a3ce929d0e0e4736-" PARENT "-01", "" },
		{ " 00-" ID "-" PARENT "-01", "" },
		{ "00-" ID "-" PARENT "-01 ", "" },
		{ "", "" },
		{ "-", "" },
	};
	char id[TRACE_ID_BYTES];

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct trace got;

		CHECK_INT(trace_parse(t[i].text, &got), *t[i].want != '\0');
		CHECK_STR(got.parent, t[i].want);
		CHECK_STR(trace_id(&got, id), *t[i].want ? ID : "");
	}
}

TEST(two_of_them_are_none)
{
	struct fields f = FIELDS_NULL, out = FIELDS_NULL;
	struct trace got;

	trace_of(&f, &got);
	CHECK_STR(got.parent, "");
	CHECK_INT(trace_put(&out, &got), 0);
	CHECK_INT(out.n, 0);
	CHECK_INT(fields_put(&f, TRACE_HEADER, "00-" ID "-" PARENT "-01"), 0);
	trace_of(&f, &got);
	CHECK_STR(got.parent, "00-" ID "-" PARENT "-01");
	CHECK_INT(trace_put(&out, &got), 0);
	CHECK_STR(fields_get(&out, TRACE_HEADER), got.parent);
	CHECK_INT(fields_put(&f, TRACE_HEADER, "00-" ID "-" PARENT "-01"), 0);
	trace_of(&f, &got);
	CHECK_STR(got.parent, "");
	fields_fini(&f);
	fields_fini(&out);
}

TEST_MAIN()
