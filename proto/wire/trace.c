/* SPDX-License-Identifier: MIT */
#include "proto/wire/trace.h"

#include <stdint.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/wire/fields.h"

#define HEX	   "0123456789abcdef"
#define ID_AT	   3u
#define ID_LEN	   32u
#define PARENT_AT  36u
#define PARENT_LEN 16u
#define FLAGS_AT   53u
#define KNOWN	   0x3u	/* sampled, and that the id is random */

static bool is_hex(const char *s, size_t n)
{
	return strspn(s, HEX) >= n;
}

static bool is_id(const char *s, size_t n)
{
	return is_hex(s, n) && strspn(s, "0") < n;
}

bool trace_parse(const char *text, struct trace *ret)
{
	static const char form[] = "..-................................-................-..";
	size_t n = strlen(text);
	unsigned flags;

	ret->parent[0] = '\0';
	if (n < sizeof(form) - 1)
		return false;
	for (size_t i = 0; i < sizeof(form) - 1; i++)
		if (form[i] == '-' && text[i] != '-')
			return false;
	if (!is_hex(text, 2) || str_starts(text, "ff") || !is_id(text + ID_AT, ID_LEN) || !is_id(text + PARENT_AT, PARENT_LEN) ||
	    !is_hex(text + FLAGS_AT, 2))
		return false;
	if (n > sizeof(form) - 1 && (str_starts(text, "00") || text[sizeof(form) - 1] != '-'))
		return false;
	flags = (unsigned)str_hex_value(text[FLAGS_AT + 1]);	/* those that are known are in the last digit */
	memcpy(ret->parent, text, sizeof(form) - 1);
	memcpy(ret->parent, "00", 2);
	ret->parent[FLAGS_AT] = '0';
	ret->parent[FLAGS_AT + 1] = HEX[flags & KNOWN];
	ret->parent[sizeof(form) - 1] = '\0';
	return true;
}

void trace_of(const struct fields *head, struct trace *ret)
{
	int at = fields_find(head, TRACE_HEADER, 0);

	ret->parent[0] = '\0';
	if (at >= 0 && fields_find(head, TRACE_HEADER, (uint32_t)at + 1) < 0)
		(void)trace_parse(fields_value(head, (uint32_t)at), ret);
}

const char *trace_id(const struct trace *t, char ret[TRACE_ID_BYTES])
{
	size_t n = t->parent[0] ? ID_LEN : 0;

	memcpy(ret, t->parent + ID_AT, n);
	ret[n] = '\0';
	return ret;
}

int trace_put(struct fields *f, const struct trace *t)
{
	return t->parent[0] ? fields_put(f, TRACE_HEADER, t->parent) : 0;
}
