/* SPDX-License-Identifier: MIT */
/* Output: JSON by a small emitter that escapes everything, tables whose columns fit their widest cell. */
#ifndef AB_CLIENT_CLI_TERM_OUT_H
#define AB_CLIENT_CLI_TERM_OUT_H

#include <stdio.h>

#include "client/cli/term/cli.h"

struct json {
	FILE *f;
	bool comma;	/* something stands before, on this level */
	bool bare;	/* one value for a person: text has no quotes, null is nothing */
};

bool is_utf8(const char *s);

/* One document, an object; json_end() closes it and ends its line. A key is NULL inside of a list. Text that is not UTF-8
 * gets U+FFFD for each bad byte. */
void json_begin(struct json *j, FILE *f);
void json_end(struct json *j);
void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);
void json_text(struct json *j, const char *key, const char *value);
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
/* Digits as they are. */
void json_number(struct json *j, const char *key, const char *digits);
void json_bool(struct json *j, const char *key, bool value);
/* RFC 3339 with milliseconds, null for 0. */
void json_time(struct json *j, const char *key, int64_t at_ms);
/* Not there for AB_DEFAULT. */
void json_choice(struct json *j, const char *key, enum ab_choice c);
void json_pairs(struct json *j, const char *key, const struct ab_pair *v, size_t n);
void json_words(struct json *j, const char *key, const char *const *v, size_t n);

/* The rest of a line of which `indent` columns are written, and a newline. On a terminal its further lines begin below its first word. */
void print_wrapped(FILE *f, size_t indent, const char *text);

#define TABLE_COLUMNS_MAX 12u

struct table {
	char **cells;		/* row after row, the head first */
	size_t n_cells, cap, columns;
	const char *const *spare;	/* heads of columns that are left out, in this order, on a terminal that is too narrow; NULL = none */
	bool cuts_last;		/* there the last column is cut at the edge, too */
	bool failed;		/* without memory */
	bool quiet;		/* only free it */
};

/* heads: NULL-terminated. */
void table_begin(struct table *t, const char *const *heads);
/* The next cell; text may hold anything. */
void table_cell(struct table *t, const char *text);
void table_number(struct table *t, uint64_t n);
/* Prints it; a line has no blanks at its end. What is not a terminal gets every column whole. 0, or EXIT_ERROR without memory. */
int table_end(struct table *t);

/* "2026-08-21T10:00:00Z", "-" for 0. */
const char *time_text(int64_t at_ms, char buf[32]);
/* "12.3 MiB" */
const char *size_text(uint64_t bytes, char buf[32]);
/* "90s", "1h30m"; "-" for 0. */
const char *span_text(int64_t ms, char buf[32]);
const char *state_name(enum ab_sandbox_state s);
const char *source_name(enum ab_source s);
const char *action_name(enum ab_action a);
/* What happens by itself, short: "kill after 2s, idle pause 10m". */
const char *policy_text(const struct ab_policy *p, char *buf, size_t n);
void json_policy(struct json *j, const char *key, const struct ab_policy *p);
/* The value of --policy and the like. 0, or EXIT_USAGE after saying what is wrong. */
int policy_option(const struct command *cmd, const char *text, struct ab_policy *ret);

/* One sandbox: a JSON document (sandbox_field.c), or lines of "name: value". */
void print_sandbox_json(const struct ab_sandbox *sb);
void print_sandbox(const struct cli *cli, const struct ab_sandbox *sb);

/* cmd_files.c: one entry as an object. */
void print_file_json(struct json *j, const char *key, const struct ab_file *f);

/* All that was printed has arrived. 0, or EXIT_ERROR after saying that it has not. */
int out_flush(const struct cli *cli);

#endif
