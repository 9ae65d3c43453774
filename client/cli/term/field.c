/* SPDX-License-Identifier: MIT */
/* One table says how each field of a row is found; printing, order and the list of an error are made from it. */
#include "client/cli/term/field.h"

#include <string.h>

#include "client/cli/term/out.h"

#define METADATA "metadata."

static const void *place(const struct field *f, const void *row)
{
	return (const char *)row + f->at;
}

static const char *text_of(const struct field *f, const void *row)
{
	return f->kind == FIELD_WORD ? f->word(row) : *(const char *const *)place(f, row);
}

static void put_field(struct json *j, const char *key, const struct field *f, const void *row)
{
	switch (f->kind) {
	case FIELD_NOTE:
		if (*text_of(f, row))
			json_text(j, key, text_of(f, row));
		return;
	case FIELD_TEXT:
	case FIELD_WORD:
		json_text(j, key, text_of(f, row));
		return;
	case FIELD_UINT:
		json_uint(j, key, *(const uint32_t *)place(f, row));
		return;
	case FIELD_COUNT:
		json_uint(j, key, *(const uint64_t *)place(f, row));
		return;
	case FIELD_TIME:
		json_time(j, key, *(const int64_t *)place(f, row));
		return;
	case FIELD_BOOL:
		json_bool(j, key, *(const bool *)place(f, row));
		return;
	case FIELD_CHOICE:
		json_choice(j, key, *(const enum ab_choice *)place(f, row));
		return;
	case FIELD_OBJECT:
		f->put(j, key, row);
	}
}

void fields_print_json(const struct field_table *all, const void *row)
{
	struct json j;

	json_begin(&j, stdout);
	for (size_t i = 0; i < all->n; i++)
		put_field(&j, all->v[i].name, &all->v[i], row);
	json_end(&j);
}

/* --- one by one --- */

static int refuse(const struct command *cmd, const struct field_table *all, const char *name, size_t n)
{
	char list[512];
	int at = 0;

	for (size_t i = 0; i < all->n && (size_t)at < sizeof(list); i++)
		at += snprintf(list + at, sizeof(list) - (size_t)at, "%s%s", i ? ", " : "", all->v[i].name);
	return usage(cmd, "'%.*s' is no field; there are %s%s", (int)n, name, list, all->metadata ? ", " METADATA "KEY" : "");
}

int field_find(const struct command *cmd, const struct field_table *all, const char *name, size_t n, struct field_ref *ret)
{
	*ret = (struct field_ref){ .all = all };
	if (all->metadata && n > strlen(METADATA) && !memcmp(name, METADATA, strlen(METADATA))) {
		ret->key = name + strlen(METADATA);
		ret->n_key = n - strlen(METADATA);
		return 0;
	}
	for (size_t i = 0; i < all->n; i++)
		if (strlen(all->v[i].name) == n && !memcmp(all->v[i].name, name, n))
			ret->field = &all->v[i];
	return ret->field ? 0 : refuse(cmd, all, name, n);
}

bool field_has_order(const struct field_ref *r)
{
	return r->key || r->field->kind != FIELD_OBJECT;
}

static int64_t number_of(const struct field *f, const void *row)
{
	switch (f->kind) {
	case FIELD_UINT:
		return *(const uint32_t *)place(f, row);
	case FIELD_COUNT:
		return (int64_t)*(const uint64_t *)place(f, row);
	case FIELD_TIME:
		return *(const int64_t *)place(f, row);
	case FIELD_BOOL:
		return *(const bool *)place(f, row);
	default:	/* FIELD_CHOICE: no is before yes */
		return *(const enum ab_choice *)place(f, row) == AB_DEFAULT ? -1 : *(const enum ab_choice *)place(f, row) == AB_YES;
	}
}

static int compare_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

int field_compare(const struct field_ref *r, const void *a, const void *b)
{
	int64_t one, other;

	if (r->key)
		return compare_text(r->all->metadata(a, r->key, r->n_key), r->all->metadata(b, r->key, r->n_key));
	if (r->field->kind == FIELD_TEXT || r->field->kind == FIELD_NOTE || r->field->kind == FIELD_WORD)
		return strcmp(text_of(r->field, a), text_of(r->field, b));
	one = number_of(r->field, a);
	other = number_of(r->field, b);
	return (one > other) - (one < other);
}

/* --- order --- */

int order_parse(const struct command *cmd, const struct field_table *all, const char *name, struct order *ret)
{
	if (!name)
		return 0;
	ret->down = name[0] == '-';
	name += ret->down;
	if (field_find(cmd, all, name, strlen(name), &ret->by))
		return EXIT_USAGE;
	if (!field_has_order(&ret->by))
		return usage(cmd, "--sort: '%s' has several values and no order", name);
	return 0;
}

int order_compare(const struct order *o, const void *a, const void *b)
{
	int r = field_compare(&o->by, a, b);

	return o->down ? -r : r;
}

/* --- filters --- */

bool filters_hold(const struct pairs *p, bool (*holds)(const struct ab_pair *f, const void *row), const void *row)
{
	for (size_t i = 0; i < p->n; i++) {
		bool one = false;

		for (size_t k = 0; k < p->n && !one; k++)
			one = !strcmp(p->v[k].key, p->v[i].key) && holds(&p->v[k], row);
		if (!one)
			return false;
	}
	return true;
}

/* --- formats --- */

static void print_bare(FILE *f, const struct field_ref *r, const void *row)
{
	const char *value = r->key ? r->all->metadata(row, r->key, r->n_key) : NULL;
	struct json j = { .f = f, .bare = true };

	if (r->field)
		put_field(&j, NULL, r->field, row);
	else if (value)
		json_text(&j, NULL, value);
}

/* One character of a format that is none of a field. Returns how many bytes it takes there. */
static size_t take_plain(const char *at, char *ret)
{
	bool twice = (at[0] == '{' || at[0] == '}') && at[1] == at[0];
	bool escape = at[0] == '\\' && (at[1] == 't' || at[1] == 'n');

	*ret = !escape ? at[0] : at[1] == 't' ? '\t' : '\n';
	return twice || escape ? 2 : 1;
}

/* With `row` it prints, without it only checks. */
static int walk(const struct command *cmd, const struct field_table *all, const char *format, FILE *f, const void *row)
{
	while (*format) {
		struct field_ref ref;
		char c;

		if (format[0] != '{' || format[1] == '{') {
			format += take_plain(format, &c);
			if (row)
				(void)fputc(c, f);
			continue;
		}
		size_t n = strcspn(++format, "}");

		if (!format[n])
			return usage(cmd, "--format: '{%s' has no '}'; a brace itself is '{{'", format);
		if (field_find(cmd, all, format, n, &ref))
			return EXIT_USAGE;
		if (row)
			print_bare(f, &ref, row);
		format += n + 1;
	}
	return 0;
}

int format_check(const struct command *cmd, const struct field_table *all, const char *format)
{
	return walk(cmd, all, format, NULL, NULL);
}

void format_print(FILE *f, const struct field_table *all, const char *format, const void *row)
{
	(void)walk(NULL, all, format, f, row);
	(void)fputc('\n', f);
}
