/* SPDX-License-Identifier: MIT */
#include "proto/base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

#define BUF_KEEP_BYTES 4096u /* an empty block up to this size is kept for the next write */

void buf_fini(struct buf *b)
{
	free(b->mem);
	b->mem = NULL;
	b->cap = b->head = b->len = 0;
}

uint8_t *buf_space(struct buf *b, size_t n)
{
	size_t cap;
	uint8_t *mem;

	if (b->mem && b->cap - b->head - b->len >= n)
		return b->mem + b->head + b->len;
	if (n > SIZE_MAX / 4 - b->len)
		return NULL;
	if (b->head && b->cap - b->len >= n && b->head >= b->len) {
		memmove(b->mem, b->mem + b->head, b->len);
		b->head = 0;
		return b->mem + b->len;
	}
	cap = b->cap ? b->cap : 256;
	while (cap < b->len + n)
		cap *= 2;
	mem = malloc(cap);
	if (!mem)
		return NULL;
	if (b->len)
		memcpy(mem, b->mem + b->head, b->len);
	free(b->mem);
	b->mem = mem;
	b->cap = cap;
	b->head = 0;
	return mem + b->len;
}

void buf_added(struct buf *b, size_t n)
{
	must(b->head + b->len + n <= b->cap);
	b->len += n;
}

int buf_put(struct buf *b, const void *p, size_t n)
{
	uint8_t *at;

	if (n > buf_room(b))
		return -ENOBUFS;
	if (!n)
		return 0;
	at = buf_space(b, n);
	if (!at)
		return -ENOMEM;
	memcpy(at, p, n);
	b->len += n;
	return 0;
}

int buf_put_str(struct buf *b, const char *s)
{
	return buf_put(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;
	uint8_t *at;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n > buf_room(b))
		return -ENOBUFS;
	at = buf_space(b, (size_t)n + 1);
	if (!at)
		return -ENOMEM;
	va_start(ap, fmt);
	vsnprintf((char *)at, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

void buf_drop(struct buf *b, size_t n)
{
	must(n <= b->len);
	b->head += n;
	b->len -= n;
	if (b->len)
		return;
	b->head = 0;
	if (b->cap > BUF_KEEP_BYTES)
		buf_fini(b);
}

char *buf_take_str(struct buf *b)
{
	uint8_t *at = buf_space(b, 1);
	char *s;

	if (!at)
		return NULL;
	*at = 0;
	if (b->head)
		memmove(b->mem, b->mem + b->head, b->len + 1);
	s = (char *)b->mem;
	b->mem = NULL;
	b->cap = b->head = b->len = 0;
	return s;
}

int buf_put_json(struct buf *b, const char *s)
{
	int r = buf_put_str(b, "\"");

	while (*s && !r) {
		size_t plain = 0, n;

		while (s[plain] >= 0x20 && s[plain] < 0x7f && s[plain] != '"' && s[plain] != '\\')
			plain++;
		if (plain) {
			r = buf_put(b, s, plain);
			s += plain;
		} else if (*s == '"' || *s == '\\') {
			r = buf_printf(b, "\\%c", *s++);
		} else if ((unsigned char)*s < 0x20 || *s == 0x7f) {
			r = buf_printf(b, "\\u%04x", *s++);
		} else {
			n = str_utf8_len(s, strnlen(s, 4));
			r = n ? buf_put(b, s, n) : buf_put_str(b, "\xef\xbf\xbd");
			s += n ? n : 1;
		}
	}
	return r ? r : buf_put_str(b, "\"");
}
