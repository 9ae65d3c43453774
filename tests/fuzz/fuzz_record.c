/* SPDX-License-Identifier: MIT */
/* What find prints in a sandbox, record by record: entries whose texts are UTF-8, or a refusal. */
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/record.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void look(const struct envd_entry *e)
{
	must(str_is_utf8(e->owner, strlen(e->owner)) && str_is_utf8(e->group, strlen(e->group)));
	must(e->name && e->path && e->size >= 0 && e->mode <= 0777);
	must(e->modified_ns >= 0 && e->modified_ns < 1000000000);
	must(strlen(e->permissions) >= 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const char *w[RECORD_WORDS];
	uint8_t *copy = malloc(n ? n : 1);	/* of its own, so that what lies behind it shows */
	size_t at = 0, used;
	struct envd_entry e;

	must(copy);
	if (n)
		memcpy(copy, p, n);
	for (; record_split(copy + at, n - at, RECORD_WORDS, w, &used); at += used) {
		if (record_entry(at ? "/" : "/d\xff", w, &e) < 0)
			continue;
		look(&e);
		envd_entry_fini(&e);
	}
	free(copy);
	return 0;
}
