/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/html.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/str.h"

#define REPLACEMENT "\xef\xbf\xbd"

void html_put(struct html *h, const char *markup)
{
	if (!h->failed)
		h->failed = buf_put_str(&h->b, markup) < 0;
}

static const char *entity_of(uint8_t c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? REPLACEMENT : NULL;
	}
}

/* C1 controls, marks and overrides of direction, separators of lines, and a mark of byte order. */
static bool is_moving(const uint8_t *p, size_t n)
{
	uint32_t c;

	if (n == 2)
		return p[0] == 0xc2 && p[1] < 0xa0;
	if (n != 3)
		return false;
	c = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
	return c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

/* One character at p, or one byte that is none; returns how many bytes that was. */
static size_t put_character(struct html *h, const uint8_t *p, size_t n)
{
	size_t k = str_utf8_len(p, n);
	const char *entity = k == 1 ? entity_of(*p) : !k || is_moving(p, k) ? REPLACEMENT : NULL;

	if (entity)
		html_put(h, entity);
	else if (!h->failed)
		h->failed = buf_put(&h->b, p, k) < 0;
	return k ? k : 1;
}

void html_text(struct html *h, const void *p, size_t n)
{
	const uint8_t *at = p, *end = at + n;

	while (at < end && !h->failed) {
		const uint8_t *from = at;

		while (at < end && *at >= 0x20 && *at < 0x7f && !strchr("&<>\"'", *at))
			at++;
		if (at > from)
			h->failed = buf_put(&h->b, from, (size_t)(at - from)) < 0;
		else
			at += put_character(h, at, (size_t)(end - at));
	}
}

void html_str(struct html *h, const char *s)
{
	if (s)
		html_text(h, s, strlen(s));
}

void html_move(struct html *h, struct html *from)
{
	h->failed |= from->failed;
	if (!h->failed && buf_len(&from->b))
		h->failed = buf_put(&h->b, buf_data(&from->b), buf_len(&from->b)) < 0;
	buf_fini(&from->b);
	*from = (struct html){ .b = BUF_NULL };
}

void html_number(struct html *h, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	html_put(h, text);
}

void html_moment(struct html *h, int64_t wall_ms)
{
	time_t t = (time_t)(wall_ms / 1000);
	char text[96];
	struct tm tm;

	if (wall_ms <= 0 || !gmtime_r(&t, &tm) ||
	    !strftime(text, sizeof(text), "<time datetime=\"%Y-%m-%dT%H:%M:%SZ\">%Y-%m-%d %H:%M:%S</time>", &tm))
		snprintf(text, sizeof(text), "–");
	html_put(h, text);
}

void html_size(struct html *h, uint64_t bytes)
{
	static const char *const units[] = { "kB", "MB", "GB", "TB", "PB", "EB" };
	uint64_t tenths = bytes / 100;
	char text[32];
	size_t i = 0;

	if (bytes < 1000) {
		html_number(h, bytes);
		html_put(h, " B");
		return;
	}
	for (; tenths >= 10000 && i + 1 < ARRAY_SIZE(units); i++)
		tenths /= 1000;
	snprintf(text, sizeof(text), "%llu.%llu %s", (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10), units[i]);
	html_put(h, text);
}
