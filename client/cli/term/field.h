/* SPDX-License-Identifier: MIT */
/* The fields of a row of a list, a sandbox for one, under the names that JSON has for them, one by one: to print, to compare, to choose by. */
#ifndef AB_CLIENT_CLI_TERM_FIELD_H
#define AB_CLIENT_CLI_TERM_FIELD_H

#include <stdio.h>

#include "client/cli/term/cli.h"

struct json;

enum field_kind {
	FIELD_TEXT,	/* const char * */
	FIELD_NOTE,	/* the same, not there when it is empty */
	FIELD_UINT,	/* uint32_t */
	FIELD_COUNT,	/* uint64_t */
	FIELD_TIME,	/* int64_t */
	FIELD_BOOL,
	FIELD_CHOICE,	/* enum ab_choice, not there without one */
	FIELD_WORD,	/* by `word` */
	FIELD_OBJECT,	/* by `put` */
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t at;	/* offset in the row */
	const char *(*word)(const void *row);
	void (*put)(struct json *j, const char *key, const void *row);
};

#define FIELD_AS(row_, kind_, name_, member) { .name = name_, .kind = FIELD_##kind_, .at = offsetof(row_, member) }
#define FIELD(row_, kind_, member)	     FIELD_AS(row_, kind_, #member, member)
#define FIELD_BY(kind_, name_, how)	     { .name = name_, .kind = FIELD_##kind_, how }

/* All fields of one kind of row. */
struct field_table {
	const struct field *v;
	size_t n;
	const char *(*metadata)(const void *row, const char *key, size_t n);	/* for "metadata.KEY"; NULL: it has none */
};

extern const struct field_table fields_of_sandbox;	/* of struct ab_sandbox */

/* A line with all of them. */
void fields_print_json(const struct field_table *all, const void *row);

/* A field, or with `key` the value of that key of the metadata. */
struct field_ref {
	const struct field_table *all;
	const struct field *field;
	const char *key;	/* not terminated */
	size_t n_key;
};

/* The field named by `n` bytes: "id", "metadata.KEY". 0, or EXIT_USAGE after listing those that there are. */
int field_find(const struct command *cmd, const struct field_table *all, const char *name, size_t n, struct field_ref *ret);
/* Whether one is before the other: numbers, times and text are; an object is not. */
bool field_has_order(const struct field_ref *r);
/* Less than 0: `a` comes first. What is not there comes before all that is. */
int field_compare(const struct field_ref *r, const void *a, const void *b);

struct order {
	struct field_ref by;
	bool down;
};

/* --sort, "FIELD" or "-FIELD"; NULL: *ret stays. 0, or EXIT_USAGE after saying what is wrong. */
int order_parse(const struct command *cmd, const struct field_table *all, const char *name, struct order *ret);
int order_compare(const struct order *o, const void *a, const void *b);

/* --filter: those of one key are alternatives; every key has to have one that holds. */
bool filters_hold(const struct pairs *p, bool (*holds)(const struct ab_pair *f, const void *row), const void *row);

/* "{id} {name}": `{{` and `}}` are braces, `\t` and `\n` what they are in C. 0, or EXIT_USAGE after saying what is wrong. */
int format_check(const struct command *cmd, const struct field_table *all, const char *format);
/* `format` was checked. What is not there is nothing, an object is JSON. */
void format_print(FILE *f, const struct field_table *all, const char *format, const void *row);

/* The value of a key, NULL without one. */
const char *metadata_value(const struct ab_sandbox *sb, const char *key, size_t n);

#endif
