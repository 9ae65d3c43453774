/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/repeats.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/test.h"

#define MANY 3000u

TEST(ids_that_came_before)
{
	char (*ids)[16] = calloc(2 * MANY, sizeof(*ids));
	struct repeats r = { 0 };
	size_t n = 0;
	bool before;

	for (unsigned i = 0; i < 2 * MANY; i++)
		snprintf(ids[i], sizeof(ids[i]), "i%u", i % MANY);
	for (unsigned i = 0; i < 2 * MANY; i++) {
		CHECK_INT(repeats_note(&r, ids[i], &before), 0);
		CHECK_INT(before, i >= MANY);
	}
	for (unsigned i = 0; i < REPEATS_PARTS; i++) {
		const struct repeats_part *p = &r.parts[i];

		CHECK(p->n_slots >= 2 * p->n);
		CHECK(p->n < 4 * MANY / REPEATS_PARTS);
		n += p->n;
	}
	CHECK_INT(n, MANY);
	repeats_fini(&r);
	CHECK_INT(repeats_note(&r, "i0", &before), 0);
	CHECK(!before);
	repeats_fini(&r);
	free(ids);
}

TEST_MAIN()
