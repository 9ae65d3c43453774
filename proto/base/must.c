/* SPDX-License-Identifier: MIT */
#include "proto/base/must.h"

#include <stdio.h>
#include <stdlib.h>

void must_failed(const char *expr, const char *file, int line)
{
	fprintf(stderr, "BUG: %s does not hold at %s:%d\n", expr, file, line);
	abort();
}
