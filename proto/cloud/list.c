/* SPDX-License-Identifier: MIT */
#include "proto/cloud/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

int list_time_us(const char *s, int64_t *ret)
{
	const char *dot = strchr(s, '.');
	int64_t ms, us = 0;

	if (strlen(s) > 64 || str_rfc3339_ms(s, &ms) < 0)
		return -EINVAL;
	/* ms holds three digits of the fraction; the next three are ours. */
	for (int i = 1; dot && i <= 6 && dot[i] >= '0' && dot[i] <= '9'; i++) {
		static const int64_t weight[] = { 0, 0, 0, 0, 100, 10, 1 };	/* by the digit's place */

		us += (dot[i] - '0') * weight[i];
	}
	*ret = ms * 1000 + us;
	return 0;
}

char *cursor_encode(const struct cursor *c)
{
	char time[40], *text, *out;

	str_rfc3339(c->at_us, 6, time);
	text = str_printf("%s__%s%s", time, c->id, c->ascending ? "__asc" : "");
	if (!text)
		return NULL;
	out = str_base64_encode(text, strlen(text), true);
	free(text);
	for (char *p = out; p && *p; p++)
		*p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
	return out;
}

int cursor_decode(const char *s, struct cursor *ret)
{
	struct cursor c = { 0 };
	char text[256], *id, *order;
	ssize_t n;

	if (strlen(s) > 200)
		return -EINVAL;
	n = str_base64_decode(s, strlen(s), (uint8_t *)text);
	if (n < 0 || memchr(text, 0, (size_t)n))
		return -EINVAL;
	text[n] = 0;
	id = strstr(text, "__");
	if (!id)
		return -EINVAL;
	*id = 0;
	id += 2;
	order = strstr(id, "__");
	if (order) {
		*order = 0;
		if (!str_eq(order + 2, "asc"))
			return -EINVAL;
		c.ascending = true;
	}
	if (list_time_us(text, &c.at_us) < 0 || cloud_id_parse(id, c.id) < 0)
		return -EINVAL;
	*ret = c;
	return 0;
}

int cursor_compare(int64_t a_us, const char *a_id, int64_t b_us, const char *b_id, bool ascending)
{
	int d = a_us > b_us ? -1 : a_us < b_us ? 1 : strcmp(a_id, b_id);

	return ascending ? -d : d;
}

/* Coded for a query, twice. */
static char *code_twice(const char *s)
{
	char *once = str_percent_encode(s, strlen(s)), *twice = once ? str_percent_encode(once, strlen(once)) : NULL;

	free(once);
	return twice;
}

char *meta_filter_format(const struct cloud_kv *v, size_t n)
{
	char *all = str_dup(""), *coded;

	for (size_t i = 0; all && i < n; i++) {
		char *key = code_twice(v[i].key), *value = code_twice(v[i].value);
		char *next = key && value ? str_printf("%s%s%s=%s", all, i ? "&" : "", key, value) : NULL;

		free(key);
		free(value);
		free(all);
		all = next;
	}
	coded = all ? str_percent_encode(all, strlen(all)) : NULL;
	free(all);
	return coded;
}

/* The last one of a key counts. */
static int put_pair(struct cloud_kvs *filter, const char *key, const char *value)
{
	for (size_t i = 0; i < filter->n; i++) {
		char *copy;

		if (!str_eq(filter->v[i].key, key))
			continue;
		copy = str_dup(value);
		if (!copy)
			return -ENOMEM;
		free(filter->v[i].value);
		filter->v[i].value = copy;
		return 0;
	}
	return cloud_kvs_add(filter, key, value);
}

static int add_pair(struct cloud_kvs *filter, char *piece)
{
	char *eq = strchr(piece, '=');

	if (!eq || strchr(eq + 1, '='))
		return -EINVAL;
	*eq = 0;
	if (str_unescape(piece, true) < 0 || str_unescape(eq + 1, true) < 0 || !str_is_utf8(piece, strlen(piece)) ||
	    !str_is_utf8(eq + 1, strlen(eq + 1)))
		return -EINVAL;
	return put_pair(filter, piece, eq + 1);
}

int meta_filter_parse(const char *param, struct cloud_kvs *ret)
{
	struct cloud_kvs filter = { 0 };
	char *s = str_dup(param), *piece, *next;
	int r = s ? str_unescape(s, true) : -ENOMEM;

	for (piece = s; !r && piece; piece = next) {
		next = strchr(piece, '&');
		if (next)
			*next++ = 0;
		r = add_pair(&filter, piece);
	}
	free(s);
	if (r < 0)
		cloud_kvs_fini(&filter);
	else
		*ret = filter;
	return r;
}

bool meta_filter_match(const struct cloud_kvs *filter, const struct cloud_kvs *metadata)
{
	for (size_t i = 0; i < filter->n; i++) {
		const char *value = cloud_kvs_get(metadata, filter->v[i].key);

		if (!value || !str_eq(value, filter->v[i].value))
			return false;
	}
	return true;
}
