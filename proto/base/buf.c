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
#define BUF_DOUBLE_MAX (64u * 1024) /* a larger block grows by a quarter, in whole pages */
#define BUF_MOVE_PART  3u	/* as much as this part of the content was read: it is moved to the block's begin */

void buf_fini(struct buf *b)
{
	free(b->mem);
	quota_give(b->quota, b->cap);
	b->mem = NULL;
	b->cap = b->head = b->len = 0;
}

static size_t in_pages(size_t n)
{
	return (n + 4095) & ~(size_t)4095;
}

/* What is read while more is written gets room to move in, so that the block fits from then on. */
static size_t cap_for(const struct buf *b, size_t need)
{
	size_t cap = b->cap ? b->cap : 256;

	if (!b->cap && need > BUF_KEEP_BYTES)	/* often one message, and no more */
		return in_pages(need);
	if (b->head && need > BUF_DOUBLE_MAX)
		return in_pages(need + need / 2);
	while (cap < need && cap < BUF_DOUBLE_MAX)
		cap *= 2;
	return cap >= need ? cap : in_pages(need + need / 4);
}

/* A block of `cap` bytes that are charged already; both are, while the content moves. */
static int move_to(struct buf *b, size_t cap)
{
	uint8_t *mem = malloc(cap);

	if (!mem) {
		quota_give(b->quota, cap);
		return -ENOMEM;
	}
	if (b->len)
		memcpy(mem, b->mem + b->head, b->len);
	free(b->mem);
	quota_give(b->quota, b->cap);
	b->mem = mem;
	b->cap = cap;
	b->head = 0;
	return 0;
}

/* Makes the n bytes behind the content ours. */
static int make_space(struct buf *b, size_t n)
{
	size_t cap;

	if (b->mem && b->cap - b->head - b->len >= n)
		return 0;
	if (n > SIZE_MAX / 4 - b->len)
		return -ENOMEM;
	if (b->cap - b->len >= n && b->head > b->len / BUF_MOVE_PART) {
		memmove(b->mem, b->mem + b->head, b->len);
		b->head = 0;
		return 0;
	}
	cap = cap_for(b, b->len + n);
	return quota_take(b->quota, cap) < 0 ? -ENOBUFS : move_to(b, cap);
}

int buf_reserve(struct buf *b, size_t n, bool begun)
{
	int r;

	if (b->cap - b->head - b->len >= n)
		return 0;
	r = begun ? quota_take(b->quota, b->len + n) : quota_reserve(b->quota, b->len + n);
	return r < 0 ? r : move_to(b, b->len + n);
}

uint8_t *buf_space(struct buf *b, size_t n)
{
	return make_space(b, n) < 0 ? NULL : b->mem + b->head + b->len;
}

void buf_added(struct buf *b, size_t n)
{
	must(b->head + b->len + n <= b->cap);
	b->len += n;
}

int buf_put(struct buf *b, const void *p, size_t n)
{
	int r;

	if (n > buf_room(b))
		return -ENOBUFS;
	if (!n)
		return 0;
	r = make_space(b, n);
	if (r < 0)
		return r;
	memcpy(b->mem + b->head + b->len, p, n);
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
	int n, r;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n > buf_room(b))
		return -ENOBUFS;
	r = make_space(b, (size_t)n + 1);
	if (r < 0)
		return r;
	va_start(ap, fmt);
	vsnprintf((char *)b->mem + b->head + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

/* A few bytes do not hold a large block: whoever takes the rest may take its time. */
static void shrink(struct buf *b)
{
	if (b->len > BUF_KEEP_BYTES || b->cap < 4 * BUF_KEEP_BYTES)
		return;
	quota_add(b->quota, BUF_KEEP_BYTES);
	(void)!move_to(b, BUF_KEEP_BYTES);	/* without memory it stays as it is */
}

void buf_drop(struct buf *b, size_t n)
{
	must(n <= b->len);
	b->head += n;
	b->len -= n;
	if (b->len) {
		shrink(b);
		return;
	}
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
	quota_give(b->quota, b->cap);
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
