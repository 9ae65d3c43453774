/* SPDX-License-Identifier: MIT */
/*
 * A header list with caps on count and decoded size (name + value + 32 each, as HPACK counts).
 * Names are lower case. Text sits in one block; every name and value is NUL-terminated. With a quota
 * both blocks are charged before they are allocated.
 */
#ifndef AB_PROTO_WIRE_FIELDS_H
#define AB_PROTO_WIRE_FIELDS_H

#include <stdbool.h>
#include <string.h>

#include "proto/base/quota.h"
#include "proto/base/cc.h"

struct field {
	uint32_t name_at, value_at;	/* offsets into text */
	uint32_t name_len, value_len;
	bool secret;			/* never indexed by HPACK, never logged */
};

struct fields {
	char *text;
	struct field *v;
	uint32_t text_len, text_cap;
	uint32_t n, cap;
	uint32_t bytes;			/* as HPACK counts */
	uint32_t max_n, max_bytes;	/* 0 = FIELDS_MAX_* */
	bool has_secret;		/* the text is wiped before it is freed */
	bool lasting;			/* said by its owner: it stays as it is until all that it was sent on is gone */
	struct quota *quota;		/* borrowed; NULL = none */
};

#define FIELDS_NULL	 { 0 }
#define FIELDS_MAX_N	 128u
#define FIELDS_MAX_BYTES 65536u

void fields_fini(struct fields *f);
void fields_clear(struct fields *f);	/* empties, keeps the memory */

/* 0, -EMSGSIZE above a cap, -ENOBUFS above the quota, -ENOMEM. The name must be lower case already. */
must_check int fields_add(struct fields *f, const char *name, size_t name_len, const char *value,
			  size_t value_len, bool secret);
static inline must_check int fields_put(struct fields *f, const char *name, const char *value)
{
	return fields_add(f, name, strlen(name), value, strlen(value), false);
}
must_check int fields_put_secret(struct fields *f, const char *name, const char *value);
must_check int fields_printf(struct fields *f, const char *name, const char *fmt, ...)
	printf_like(3, 4);

/* All fields of `from` with index `first` and above, or none: as fields_add(). */
must_check int fields_append(struct fields *f, const struct fields *from, uint32_t first);

static inline const char *fields_name(const struct fields *f, uint32_t i)
{
	return f->text + f->v[i].name_at;
}

static inline const char *fields_value(const struct fields *f, uint32_t i)
{
	return f->text + f->v[i].value_at;
}

/* Index of the first field of that name (lower case, of n bytes) at or after `from`, -1 if none. */
int fields_find_n(const struct fields *f, const char *name, size_t n, uint32_t from);
static inline int fields_find(const struct fields *f, const char *name, uint32_t from)
{
	return fields_find_n(f, name, strlen(name), from);
}

/* First value of that name, NULL if absent. */
static inline const char *fields_get(const struct fields *f, const char *name)
{
	int i = fields_find(f, name, 0);

	return i < 0 ? NULL : fields_value(f, (uint32_t)i);
}

#endif
