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
	bool before;

	for (unsigned i = 0; i < 2 * MANY; i++)
		snprintf(ids[i], sizeof(ids[i]), "i%u", i % MANY);
	for (unsigned i = 0; i < 2 * MANY; i++) {
		CHECK_INT(repeats_note(&r, ids[i], &before), 0);
		CHECK_INT(before, i >= MANY);
	}
	CHECK_INT(r.n, MANY);
	CHECK(r.n_slots >= 2 * MANY);
	repeats_fini(&r);
	CHECK_INT(repeats_note(&r, "i0", &before), 0);
	CHECK(!before);
	repeats_fini(&r);
	free(ids);
}

TEST_MAIN()
