/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/mime.h"

#include <string.h>
#include <strings.h>

static const struct {
	const char *end, *type;
} by_end[] = {
	{ ".avif", "image/avif" },
	{ ".css", "text/css; charset=utf-8" },
	{ ".csv", "text/csv; charset=utf-8" },
	{ ".gif", "image/gif" },
	{ ".gz", "application/gzip" },
	{ ".htm", "text/html; charset=utf-8" },
	{ ".html", "text/html; charset=utf-8" },
	{ ".jpeg", "image/jpeg" },
	{ ".jpg", "image/jpeg" },
	{ ".js", "text/javascript; charset=utf-8" },
	{ ".json", "application/json" },
	{ ".md", "text/markdown; charset=utf-8" },
	{ ".mjs", "text/javascript; charset=utf-8" },
	{ ".mp4", "video/mp4" },
	{ ".pdf", "application/pdf" },
	{ ".png", "image/png" },
	{ ".py", "text/x-python; charset=utf-8" },
	{ ".sh", "application/x-sh" },
	{ ".svg", "image/svg+xml" },
	{ ".tar", "application/x-tar" },
	{ ".txt", "text/plain; charset=utf-8" },
	{ ".wasm", "application/wasm" },
	{ ".webp", "image/webp" },
	{ ".xml", "text/xml; charset=utf-8" },
	{ ".zip", "application/zip" },
};

static const struct {
	const char *bytes;
	size_t n;
	const char *type;
} by_head[] = {
	{ "\x89PNG\r\n\x1a\n", 8, "image/png" },
	{ "\xff\xd8\xff", 3, "image/jpeg" },
	{ "GIF8", 4, "image/gif" },
	{ "%PDF-", 5, "application/pdf" },
	{ "\x1f\x8b\x08", 3, "application/x-gzip" },
	{ "PK\x03\x04", 4, "application/zip" },
	{ "\0asm", 4, "application/wasm" },
};

const char *mime_type(const char *name, const uint8_t *head, size_t n)
{
	const char *end = strrchr(name, '.');

	for (size_t i = 0; end && i < ARRAY_SIZE(by_end); i++)
		if (!strcasecmp(by_end[i].end, end))
			return by_end[i].type;
	for (size_t i = 0; i < ARRAY_SIZE(by_head); i++)
		if (n >= by_head[i].n && !memcmp(head, by_head[i].bytes, by_head[i].n))
			return by_head[i].type;
	for (size_t i = 0; i < n; i++)
		if (head[i] < 0x09 || head[i] == 0x0b || (head[i] >= 0x0e && head[i] < 0x20 &&
							  head[i] != 0x1b))
			return "application/octet-stream";
	return "text/plain; charset=utf-8";
}
