/* SPDX-License-Identifier: MIT */
#include "proto/wire/fields.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

/* Secrets leave nothing in memory that is given back. */
static void wipe(struct fields *f)
{
	if (f->has_secret)
		explicit_bzero(f->text, f->text_len);
	f->has_secret = false;
}

void fields_fini(struct fields *f)
{
	wipe(f);
	free(f->text);
	free(f->v);
	quota_give(f->quota, f->text_cap + f->cap * sizeof(*f->v));
	*f = (struct fields){ .max_n = f->max_n, .max_bytes = f->max_bytes, .quota = f->quota };
}

void fields_clear(struct fields *f)
{
	wipe(f);
	f->n = f->text_len = f->bytes = 0;
}

static int grow_list(struct fields *f, uint32_t n)
{
	uint32_t cap = f->cap ? f->cap : 16;
	struct field *v;

	while (cap - f->n < n)
		cap *= 2;
	if (quota_take(f->quota, (cap - f->cap) * sizeof(*v)) < 0)
		return -ENOBUFS;
	v = realloc(f->v, cap * sizeof(*v));
	if (!v) {
		quota_give(f->quota, (cap - f->cap) * sizeof(*v));
		return -ENOMEM;
	}
	f->v = v;
	f->cap = cap;
	return 0;
}

static char *move_text(struct fields *f, uint32_t cap)
{
	char *t = f->has_secret ? malloc(cap) : realloc(f->text, cap);

	if (t && f->has_secret) {	/* realloc() would leave a copy */
		memcpy(t, f->text, f->text_len);
		explicit_bzero(f->text, f->text_len);
		free(f->text);
	}
	return t;
}

static int grow_text(struct fields *f, size_t n)
{
	uint32_t cap = f->text_cap ? f->text_cap : 512;
	char *t;

	while (cap < f->text_len + n)
		cap *= 2;
	if (quota_take(f->quota, cap - f->text_cap) < 0)
		return -ENOBUFS;
	t = move_text(f, cap);
	if (!t) {
		quota_give(f->quota, cap - f->text_cap);
		return -ENOMEM;
	}
	f->text = t;
	f->text_cap = cap;
	return 0;
}

static inline int room_for(struct fields *f, uint32_t n, size_t text)
{
	int r = f->cap - f->n < n ? grow_list(f, n) : 0;

	return !r && f->text_cap - f->text_len < text ? grow_text(f, text) : r;
}

static bool fits(const struct fields *f, size_t n, size_t bytes)
{
	uint32_t max_n = f->max_n ? f->max_n : FIELDS_MAX_N, max_bytes = f->max_bytes ? f->max_bytes : FIELDS_MAX_BYTES;

	return n <= max_n && f->n <= max_n - n && bytes <= max_bytes && f->bytes <= max_bytes - bytes;
}

int fields_add(struct fields *f, const char *name, size_t name_len, const char *value,
	       size_t value_len, bool secret)
{
	struct field *at;
	int r;

	if (!fits(f, 1, name_len + value_len + 32))
		return -EMSGSIZE;
	r = room_for(f, 1, name_len + value_len + 2);
	if (r < 0)
		return r;
	at = &f->v[f->n++];
	*at = (struct field){ .name_at = f->text_len, .name_len = (uint32_t)name_len,
			      .value_at = f->text_len + (uint32_t)name_len + 1,
			      .value_len = (uint32_t)value_len, .secret = secret };
	f->has_secret |= secret;
	if (name_len)
		memcpy(f->text + at->name_at, name, name_len);
	f->text[at->name_at + name_len] = 0;
	if (value_len)
		memcpy(f->text + at->value_at, value, value_len);
	f->text[at->value_at + value_len] = 0;
	f->text_len += (uint32_t)(name_len + value_len + 2);
	f->bytes += (uint32_t)(name_len + value_len + 32);
	return 0;
}

/* Text lies in the order of its fields, so that what is behind one of them is one piece. */
int fields_append(struct fields *f, const struct fields *from, uint32_t first)
{
	uint32_t n = from->n - MIN(first, from->n), at = n ? from->v[first].name_at : 0, len = n ? from->text_len - at : 0;
	uint32_t bytes = len + 30 * n;	/* two of the 32 are the ends of name and value, which lie in the text */
	int r = fits(f, n, bytes) ? 0 : -EMSGSIZE;

	if (!n || r < 0)
		return r;
	r = room_for(f, n, len);
	if (r < 0)
		return r;
	memcpy(f->text + f->text_len, from->text + at, len);
	for (uint32_t i = 0; i < n; i++) {
		struct field *to = &f->v[f->n + i];

		*to = from->v[first + i];
		to->name_at += f->text_len - at;
		to->value_at += f->text_len - at;
		f->has_secret |= to->secret;
	}
	f->n += n;
	f->text_len += len;
	f->bytes += bytes;
	return 0;
}

int fields_put_secret(struct fields *f, const char *name, const char *value)
{
	return fields_add(f, name, strlen(name), value, strlen(value), true);
}

int fields_printf(struct fields *f, const char *name, const char *fmt, ...)
{
	char small[128], *big = NULL;
	va_list ap;
	int n, r;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if (n >= (int)sizeof(small)) {
		va_start(ap, fmt);
		n = vasprintf(&big, fmt, ap);
		va_end(ap);
		if (n < 0)
			return -ENOMEM;
	}
	r = fields_add(f, name, strlen(name), big ? big : small, (size_t)n, false);
	free(big);
	return r;
}

int fields_find_n(const struct fields *f, const char *name, size_t n, uint32_t from)
{
	for (uint32_t i = from; i < f->n; i++)
		if (f->v[i].name_len == n && !memcmp(fields_name(f, i), name, n))
			return (int)i;
	return -1;
}
