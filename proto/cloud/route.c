/* SPDX-License-Identifier: MIT */
#include "proto/cloud/route.h"

#include <stdlib.h>

#include "proto/base/cc.h"
#include "proto/base/str.h"

static const struct cloud_route_info routes[CLOUD_ROUTES] = {
#define ROUTE(name, method, path, success, flags) [CLOUD_ROUTE_##name] = { method, path, success, flags },
#include "proto/cloud/route.def"
#undef ROUTE
};

const struct cloud_route_info *cloud_route_info(enum cloud_route r)
{
	return &routes[r];
}

bool cloud_route_is_success(enum cloud_route r, unsigned status)
{
	unsigned want = routes[r].success;

	return want == 20 ? status == 200 || status == 201 : want ? status == want : status / 100 == 2;
}

char *cloud_route_path(enum cloud_route r, const char *value)
{
	const char *path = routes[r].path, *open = strchr(path, '{'), *close = open ? strchr(open, '}') : NULL;
	char *coded, *out;

	if (!open || !close || !value)
		return str_dup(path);
	coded = str_percent_encode(value, strlen(value));
	out = coded ? str_printf("%.*s%s%s", (int)(open - path), path, coded, close + 1) : NULL;
	free(coded);
	return out;
}

/* The next segment of a path of the table; false at its end. */
static bool next_segment(const char **path, const char **ret, size_t *ret_n)
{
	if (!**path)
		return false;
	*ret = ++*path;
	*ret_n = strcspn(*path, "/");
	*path += *ret_n;
	return true;
}

/* Where the segment of the table's path ends that is the word, in which a slash can be; NULL: it is another. */
static const char *behind_word(const char *path, const char *word)
{
	while (*word && *word == *path && *path != '/') {
		word++;
		path++;
	}
	return !*word && (!*path || *path == '/') ? path : NULL;
}

/* How many words of the path the segments have, if all match; else -1. Most paths of the table differ in the first letter. */
static int matching_words(const char *path, const char *const *segments, size_t n)
{
	int words = 0;
	size_t i = 0;

	for (; *path; i++) {
		if (i == n || !*segments[i])
			return -1;
		if (*++path == '{') {
			path += strcspn(path, "/");
			continue;
		}
		path = behind_word(path, segments[i]);
		if (!path)
			return -1;
		words++;
	}
	return i == n ? words : -1;
}

enum cloud_route cloud_route_find(const char *method, const char *const *segments, size_t n)
{
	enum cloud_route found = CLOUD_ROUTE_UNKNOWN;
	int best = 0;

	for (unsigned i = 0; i < CLOUD_ROUTES; i++) {
		int words = matching_words(routes[i].path, segments, n);

		if (words < best || words < 0)
			continue;
		if (words > best)
			found = CLOUD_ROUTE_METHOD;
		best = words;
		if (str_eq(routes[i].method, method))
			found = (enum cloud_route)i;
	}
	return found;
}

size_t cloud_route_parameter(enum cloud_route r, const char *name)
{
	const char *path = routes[r].path, *s;
	size_t i = 0, len;

	for (; next_segment(&path, &s, &len); i++)
		if (strlen(name) == len && !strncmp(s, name, len))
			break;
	return i;
}
