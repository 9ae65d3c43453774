/* SPDX-License-Identifier: MIT */
#include "daemon/store/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

static const char *command_contradicts_itself(const void *row)
{
	const struct row_command *c = row;

	if (c->state == ROW_COMMAND_RUNNING && !c->pid)
		return "pid";
	if (c->state == ROW_COMMAND_ENDED && !c->outcome)
		return "outcome";
	return c->args_len && c->args[c->args_len - 1] ? "args" : NULL;
}

#define AT(name) offsetof(ROW, name)
#define TABLE_BEGIN(table) static const struct column table##_columns[] = {
#define COLUMN_INT(name, type, min, max, need, other) \
	{ #name, COLUMN_IS_INT, need, (type)-1 < (type)1, sizeof(type), AT(name), 0, min, max, other },
#define COLUMN_TEXT(name, min, max, need)  { #name, COLUMN_IS_TEXT, need, false, 0, AT(name), 0, min, max, 0 },
#define COLUMN_BLOB(name, max, need)	   { #name, COLUMN_IS_BLOB, need, false, 0, AT(name), AT(name##_len), 0, max, 0 },
#define COLUMN_BYTES(name, bytes)	   { #name, COLUMN_IS_BYTES, false, false, 0, AT(name), 0, bytes, bytes, 0 },
#define TABLE_END(table, key, marks, n_key, rule) };
#include "daemon/store/rows/tables.def"

const struct table store_tables[ROW_TABLES] = {
#define TABLE_END(table, key, marks, n_key, rule) \
	[ROW_TABLE_##table] = { #table, key, marks, table##_columns, ARRAY_SIZE(table##_columns), n_key, \
				sizeof(struct row_##table), rule },
#include "daemon/store/rows/tables.def"
};

static int64_t int_at(const struct column *c, const void *p)
{
	uint8_t small;
	uint32_t mid;
	int64_t v;

	switch (c->size) {
	case sizeof(small):
		memcpy(&small, p, sizeof(small));
		return small;
	case sizeof(mid):
		memcpy(&mid, p, sizeof(mid));
		return c->is_signed ? (int32_t)mid : (int64_t)mid;
	default:
		must(c->size == sizeof(v));
		memcpy(&v, p, sizeof(v));
		return v;
	}
}

struct value column_get(const struct column *c, const void *row)
{
	const char *at = (const char *)row + c->at;
	struct value v = { 0 };

	switch (c->kind) {
	case COLUMN_IS_INT:
		v.i = int_at(c, at);
		break;
	case COLUMN_IS_TEXT:
		memcpy(&v.p, at, sizeof(v.p));
		v.n = v.p ? strlen(v.p) : 0;
		break;
	case COLUMN_IS_BLOB:
		memcpy(&v.p, at, sizeof(v.p));
		memcpy(&v.n, (const char *)row + c->len_at, sizeof(v.n));
		break;
	case COLUMN_IS_BYTES:
		v.p = at;
		v.n = (size_t)c->most;
		break;
	}
	return v;
}

static bool is_within(const struct column *c, const struct value *v)
{
	if (c->kind == COLUMN_IS_INT)
		return v->i >= c->least && v->i <= c->most;
	if (v->n < (size_t)c->least || v->n > (size_t)c->most || (v->n && !v->p))
		return false;
	return c->kind != COLUMN_IS_TEXT || !v->n || (!memchr(v->p, 0, v->n) && str_is_utf8(v->p, v->n));
}

static void put_int(const struct column *c, void *p, int64_t v)
{
	uint8_t small = (uint8_t)v;
	uint32_t mid = (uint32_t)v;

	switch (c->size) {
	case sizeof(small):
		memcpy(p, &small, sizeof(small));
		break;
	case sizeof(mid):
		memcpy(p, &mid, sizeof(mid));
		break;
	default:
		memcpy(p, &v, sizeof(v));
		break;
	}
}

static void put(const struct column *c, void *row, const struct value *v)
{
	char *at = (char *)row + c->at;
	const char *text = v->n ? v->p : "";

	switch (c->kind) {
	case COLUMN_IS_INT:
		put_int(c, at, v->i);
		break;
	case COLUMN_IS_TEXT:
		memcpy(at, &text, sizeof(text));
		break;
	case COLUMN_IS_BLOB:
		memcpy(at, &v->p, sizeof(v->p));
		memcpy((char *)row + c->len_at, &v->n, sizeof(v->n));
		break;
	case COLUMN_IS_BYTES:
		if (v->n)
			memmove(at, v->p, v->n);
		else
			memset(at, 0, (size_t)c->most);
		break;
	}
}

static void put_otherwise(const struct column *c, void *row, struct row_check *check)
{
	const struct value otherwise = { .i = c->otherwise };
	const char **what = c->required ? &check->refused : &check->replaced;

	put(c, row, &otherwise);
	if (!*what)
		*what = c->name;
}

void row_check_column(const struct column *c, void *row, const struct value *v, struct row_check *check)
{
	if (is_within(c, v))
		put(c, row, v);
	else
		put_otherwise(c, row, check);
}

void row_check_end(const struct table *t, const void *row, struct row_check *check)
{
	if (!check->refused && t->contradicts)
		check->refused = t->contradicts(row);
}

void row_check(const struct table *t, void *row, struct row_check *ret)
{
	*ret = (struct row_check){ 0 };
	for (size_t i = 0; i < t->n; i++) {
		struct value v = column_get(&t->columns[i], row);

		row_check_column(&t->columns[i], row, &v, ret);
	}
	row_check_end(t, row, ret);
}

static bool has_bytes(const struct column *c)
{
	return c->kind == COLUMN_IS_TEXT || c->kind == COLUMN_IS_BLOB;
}

int row_dup(const struct table *t, const void *row, union row *ret)
{
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	memcpy(ret, row, t->row_size);
	for (size_t i = 0; i < t->n; i++) {
		struct value v = column_get(&t->columns[i], row);
		char *copy = has_bytes(&t->columns[i]) ? malloc(v.n + 1) : NULL;

		if (!has_bytes(&t->columns[i]))
			continue;
		if (!copy)
			r = -ENOMEM;
		else if (v.n)
			memcpy(copy, v.p, v.n);
		if (copy)
			copy[v.n] = 0;
		memcpy((char *)ret + t->columns[i].at, &copy, sizeof(copy));
	}
	if (r < 0)
		row_fini(t, ret);
	return r;
}

void row_fini(const struct table *t, union row *row)
{
	char *p;

	for (size_t i = 0; i < t->n; i++) {
		if (!has_bytes(&t->columns[i]))
			continue;
		memcpy(&p, (char *)row + t->columns[i].at, sizeof(p));
		free(p);
	}
	memset(row, 0, sizeof(*row));
}

void row_key_text(const struct table *t, const void *row, char *ret, size_t size)
{
	size_t at = 0;

	ret[0] = 0;
	for (size_t i = 0; i < t->n_key && at < size; i++) {
		struct value v = column_get(&t->columns[i], row);

		at += (size_t)(t->columns[i].kind == COLUMN_IS_INT ?
				       snprintf(ret + at, size - at, "%s%lld", i ? "/" : "", (long long)v.i) :
				       snprintf(ret + at, size - at, "%s%s", i ? "/" : "", v.n ? v.p : ""));
	}
}

bool row_keeps(enum row_table table, size_t at, const char *text)
{
	const struct table *t = &store_tables[table];
	struct value v = { .p = text, .n = strlen(text) };

	for (size_t i = 0; i < t->n; i++)
		if (t->columns[i].at == at)
			return is_within(&t->columns[i], &v);
	must(false);
	return false;
}
