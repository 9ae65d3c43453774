/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/pass_right.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "daemon/common/http/query.h"
#include "proto/base/str.h"

#define PART_MAX 256u

static const char *const level_names[PASS_LEVELS] = {
	[PASS_NONE] = "none", [PASS_READ] = "read", [PASS_TEMPLATES] = "templates", [PASS_ALL] = "all",
};

enum pass_level pass_level_find(const char *name)
{
	enum pass_level l = PASS_NONE;

	while (l < PASS_LEVELS && !str_eq(level_names[l], name))
		l++;
	return l;
}

const char *pass_level_name(enum pass_level l)
{
	return level_names[l];
}

/* Between the slashes of a path after one more decoding than ours, and after none: the same for everybody. */
static bool is_plain(const char *part, size_t n)
{
	return n && n < PART_MAX && !(n <= 2 && strspn(part, ".") >= n) && !memchr(part, '%', n) && !memchr(part, '\\', n) &&
	       !memchr(part, ';', n) && !memchr(part, '?', n) && !memchr(part, '#', n);
}

static bool is_plain_segment(const char *s)
{
	for (size_t n = strcspn(s, "/");; s += n + 1, n = strcspn(s, "/")) {
		if (!is_plain(s, n))
			return false;
		if (!s[n])
			return true;
	}
}

static bool is_version(const char *s)
{
	return (*s == 'v' || *s == 'V') && s[1] && s[1 + strspn(s + 1, "0123456789")] == '\0';
}

/* The word that says what a path is about, behind "v2" and the like; NULL: it is read in more than one way. */
static const char *subject(const struct query *q)
{
	size_t i = 0;

	for (size_t k = 0; k < q->n_segments; k++)
		if (!is_plain_segment(q->segments[k]))
			return NULL;
	while (i < q->n_segments && is_version(q->segments[i]))
		i++;
	return i < q->n_segments && !strchr(q->segments[i], '/') ? q->segments[i] : NULL;
}

static bool is_never(const char *word)
{
	static const char *const words[] = { "sandboxes", "snapshots", "api-keys", "access-tokens", "teams" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcasecmp(word, words[i]))
			return true;
	return false;
}

/* Asking for a template's file gives an address to write it to. */
static bool is_upload(const struct query *q)
{
	for (size_t i = 1; i < q->n_segments; i++)
		if (!strcasecmp(q->segments[i], "files"))
			return true;
	return false;
}

enum pass_level pass_needs(const char *method, const struct query *q)
{
	const char *word = subject(q);
	bool reads = str_eq(method, "GET") || str_eq(method, "HEAD"), is_template;

	if (!word || is_never(word) || str_eq(method, "CONNECT") || str_eq(method, "TRACE"))
		return PASS_NEVER;
	is_template = !strcasecmp(word, "templates");
	if (!strcasecmp(word, "events"))	/* of everybody's sandboxes */
		return PASS_ALL;
	if (reads && !(is_template && is_upload(q)))
		return PASS_READ;
	return is_template && !str_eq(method, "DELETE") ? PASS_TEMPLATES : PASS_ALL;
}
