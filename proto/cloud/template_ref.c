/* SPDX-License-Identifier: MIT */
#include "proto/cloud/template_ref.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Copies a name of [a-z0-9-_] (and '.' in a tag), lowered. */
static int take_name(const char *s, size_t n, bool dots, char ret[TEMPLATE_NAME_MAX + 1])
{
	if (!n || n > TEMPLATE_NAME_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		char c = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + 32) : s[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
		      (dots && c == '.')))
			return -EINVAL;
		ret[i] = c;
	}
	ret[n] = 0;
	return 0;
}

int template_ref_parse(const char *s, struct template_ref *ret)
{
	struct template_ref t = { 0 };
	const char *slash, *colon;
	size_t n;
	int r = 0;

	s += strspn(s, " \t\r\n");
	n = strlen(s);
	while (n && strchr(" \t\r\n", s[n - 1]))
		n--;
	slash = memchr(s, '/', n);
	if (slash) {
		r = take_name(s, (size_t)(slash - s), false, t.space);
		n -= (size_t)(slash - s) + 1;
		s = slash + 1;
	}
	colon = memchr(s, ':', n);
	if (!r && colon)
		r = take_name(colon + 1, n - (size_t)(colon - s) - 1, true, t.tag);
	if (!r)
		r = take_name(s, colon ? (size_t)(colon - s) : n, false, t.name);
	if (r < 0)
		return r;
	*ret = t;
	return 0;
}
