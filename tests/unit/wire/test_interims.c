/* SPDX-License-Identifier: MIT */
/* Interim heads that wait: their order, their bounds, who pays. */
#include <stdlib.h>

#include "proto/base/quota.h"
#include "proto/wire/interims.h"
#include "tests/lib/test.h"

static void put(struct interims *i, struct quota *q, const char *status, const char *value)
{
	struct fields f = { .quota = q };

	CHECK(!fields_put(&f, ":status", status) && !fields_put(&f, "x-a", value));
	interims_put(i, &f);
	CHECK(!f.n && f.quota == q);	/* empty, and the same reader's */
	fields_fini(&f);
}

TEST(in_their_order)
{
	struct quota *q = quota_new(&(struct quota_options){ .name = "test" });
	struct interims i = INTERIMS_NULL;
	struct fields f;

	CHECK(q && !interims_next(&i, &f));
	for (unsigned round = 0; round < 3; round++) {
		put(&i, q, "103", "1");
		put(&i, q, "102", "2");
		CHECK(quota_used(q));
		CHECK(interims_next(&i, &f));
		CHECK_STR(fields_get(&f, ":status"), "103");
		fields_fini(&f);
		put(&i, q, "100", "3");
		CHECK(interims_next(&i, &f));
		CHECK_STR(fields_get(&f, "x-a"), "2");
		fields_fini(&f);
		CHECK(interims_next(&i, &f));
		CHECK_STR(fields_get(&f, ":status"), "100");
		fields_fini(&f);
		CHECK(!interims_next(&i, &f));
		i.bytes = 0;		/* of the next answer */
	}
	CHECK_INT(quota_used(q), 0);
	quota_unref(q);
}

TEST(no_more_than_so_many)
{
	char *big = calloc(1, INTERIMS_MAX_BYTES + 1);
	struct interims i = INTERIMS_NULL;
	struct fields f;
	unsigned n = 0;

	CHECK(big);
	for (size_t k = 0; k < INTERIMS_MAX_BYTES; k++)
		big[k] = 'x';
	put(&i, NULL, "103", big);	/* left out */
	CHECK_INT(i.n, 0);
	for (unsigned k = 0; k < INTERIMS_MAX_N + 5; k++)
		put(&i, NULL, "103", "1");
	while (interims_next(&i, &f)) {
		fields_fini(&f);
		n++;
	}
	CHECK_INT(n, INTERIMS_MAX_N);
	put(&i, NULL, "103", "1");
	interims_fini(&i);		/* one that nobody took */
	free(big);
}

TEST(no_memory_is_left_for_them)
{
	struct quota *q = quota_new(&(struct quota_options){ .name = "test", .max = 1000 });
	struct interims i = INTERIMS_NULL;

	CHECK(q);
	put(&i, q, "103", "1");
	CHECK_INT(i.n, 0);
	CHECK_INT(quota_used(q), 0);
	interims_fini(&i);
	quota_unref(q);
}

TEST_MAIN()
