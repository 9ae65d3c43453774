/* SPDX-License-Identifier: MIT */
#include "proto/base/name.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

#define ESCAPE_BYTES 4u		/* \xHH */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that is written at s, or -1. */
static int escaped_byte(const char *s)
{
	int high, low, byte;

	if (s[0] != '\\' || s[1] != 'x')
		return -1;
	high = hex_digit(s[2]);
	low = high < 0 ? -1 : hex_digit(s[3]);
	if (low < 0)
		return -1;
	byte = high << 4 | low;
	return byte == '\\' || byte >= 0x80 ? byte : -1;
}

bool name_is_text(const char *name)
{
	size_t n = strlen(name), len;

	for (size_t i = 0; i < n; i += len) {
		len = str_utf8_len(name + i, n - i);
		if (!len || escaped_byte(name + i) >= 0)
			return false;
	}
	return true;
}

char *name_to_text(const char *name)
{
	static const char hex[] = "0123456789abcdef";
	size_t n = name ? strlen(name) : 0, at = 0, len;
	char *text = name && n < (SIZE_MAX - 1) / ESCAPE_BYTES ? malloc(ESCAPE_BYTES * n + 1) : NULL;

	if (!text)
		return NULL;
	for (size_t i = 0; i < n; i += len) {
		len = escaped_byte(name + i) >= 0 ? 0 : str_utf8_len(name + i, n - i);
		if (len) {
			memcpy(text + at, name + i, len);
			at += len;
			continue;
		}
		len = 1;
		text[at++] = '\\';
		text[at++] = 'x';
		text[at++] = hex[(uint8_t)name[i] >> 4];
		text[at++] = hex[(uint8_t)name[i] & 15];
	}
	text[at] = 0;
	return text;
}

char *name_from_text(const char *text)
{
	size_t at = 0;
	char *name = text ? malloc(strlen(text) + 1) : NULL;

	if (!name)
		return NULL;
	while (*text) {
		int byte = escaped_byte(text);

		name[at++] = byte >= 0 ? (char)byte : *text;
		text += byte >= 0 ? ESCAPE_BYTES : 1;
	}
	name[at] = 0;
	return name;
}
