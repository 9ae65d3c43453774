/* SPDX-License-Identifier: MIT */
/* The fields of a sandbox under the names that JSON has for them, one by one: to print, to compare, to choose by. */
#ifndef AB_CLIENT_CLI_TERM_FIELD_H
#define AB_CLIENT_CLI_TERM_FIELD_H

#include <stdio.h>

#include "client/cli/term/cli.h"

struct field;

/* A field, or with `key` the value of that key of the metadata. */
struct field_ref {
	const struct field *field;
	const char *key;	/* not terminated */
	size_t n_key;
};

/* The field named by `n` bytes: "id", "metadata.KEY". 0, or EXIT_USAGE after listing those that there are. */
int field_find(const struct command *cmd, const char *name, size_t n, struct field_ref *ret);
/* Whether one is before the other: numbers, times and text are; an object is not. */
bool field_has_order(const struct field_ref *r);
/* Less than 0: `a` comes first. What is not there comes before all that is. */
int field_compare(const struct field_ref *r, const struct ab_sandbox *a, const struct ab_sandbox *b);

/* "{id} {name}": `{{` and `}}` are braces, `\t` and `\n` what they are in C. 0, or EXIT_USAGE after saying what is wrong. */
int format_check(const struct command *cmd, const char *format);
/* `format` was checked. What is not there is nothing, an object is JSON. */
void format_print(FILE *f, const char *format, const struct ab_sandbox *sb);

/* The value of a key, NULL without one. */
const char *metadata_value(const struct ab_sandbox *sb, const char *key, size_t n);

#endif
