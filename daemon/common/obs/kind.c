/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/kind.h"

#include <stdlib.h>
#include <string.h>

static const struct kind_row {
	const char *name, *id;
} kinds[] = {
#define KIND(n, i, subject, text) { #n, i },
#include "daemon/common/obs/kinds.def"
#undef KIND
};

static int compare(const void *name, const void *row)
{
	return strcmp(name, ((const struct kind_row *)row)->name);
}

enum log_kind log_kind_find(const char *name)
{
	const struct kind_row *row = bsearch(name, kinds, LOG_KINDS, sizeof(*kinds), compare);

	return row ? (enum log_kind)(row - kinds) : LOG_KINDS;
}

const char *log_kind_name(enum log_kind kind)
{
	return kind < LOG_KINDS ? kinds[kind].name : "?";
}

const char *log_kind_id(enum log_kind kind)
{
	return kind < LOG_KINDS ? kinds[kind].id : NULL;
}
