/* SPDX-License-Identifier: MIT */
/*
 * Settings: one table of keys (conf.def), filled from command line, files, environment and defaults,
 * in this order. Everything is checked before anything is used, and all errors are reported at once,
 * each with file and line. Only app.c reads it; modules get structs.
 */
#ifndef AB_DAEMON_CONF_CONF_H
#define AB_DAEMON_CONF_CONF_H

#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"

enum conf_type {
	CONF_STRING,
	CONF_PATH,	/* absolute */
	CONF_URL,	/* http:// or https:// */
	CONF_HEADER,	/* an HTTP field name */
	CONF_DURATION,
	CONF_BYTES,
	CONF_U32,
	CONF_BOOL,	/* yes no true false on off */
	CONF_LEVEL,	/* of the log */
};

enum conf_origin {	/* rising precedence */
	CONF_DEFAULT = 1,
	CONF_ENVIRONMENT,
	CONF_FILE,
	CONF_COMMAND_LINE,
};

struct conf_key {
	const char *section, *key, *default_value, *help;
	enum conf_type type;
	uint64_t min, max;
	bool reloadable;
};

extern const struct conf_key conf_keys[];
extern const unsigned conf_n_keys;

struct conf;

must_check int conf_new(struct conf **ret);
struct conf *conf_free(struct conf *c);		/* NULL is fine; returns NULL */

struct conf_text {
	const char *p;
	size_t n;
};
/* Reads the text of a file; `name` is for messages. Problems are collected (conf_errors()). A value that another file gave before is
 * replaced. */
must_check int conf_read_text(struct conf *c, const char *name, struct conf_text text);
/* One value, checked like the file's; a problem is collected. `instance` NULL for plain sections. */
must_check int conf_set(struct conf *c, enum conf_origin origin, const char *section,
			const char *instance, const char *key, const char *value);
/* One more problem, for checks across keys. */
void conf_problem(struct conf *c, const char *fmt, ...) printf_like(2, 3);
/* All problems so far, a line each; "" = none. */
const char *conf_errors(struct conf *c);

/* The value in force, never NULL; "" = unset and without default. */
const char *conf_get(const struct conf *c, const char *section, const char *instance, const char *key);
uint64_t conf_get_number(const struct conf *c, const char *section, const char *instance,
			 const char *key);	/* ms, bytes, count; 0 if unset */
bool conf_get_bool(const struct conf *c, const char *section, const char *instance, const char *key);
/* Where the value in force is from. */
enum conf_origin conf_origin(const struct conf *c, const char *section, const char *instance, const char *key);
bool conf_is_set(const struct conf *c, const char *section, const char *instance, const char *key);

/* Of the value in force; 0 and "" = not from a file. */
unsigned conf_line(const struct conf *c, const char *section, const char *instance, const char *key);
const char *conf_file(const struct conf *c, const char *section, const char *instance, const char *key);

/* "FILE:LINE: [section instance] key", as problems are introduced; without file where it is not from
 * there. */
const char *conf_place(const struct conf *c, const char *section, const char *instance, const char *key,
		       char ret[512]);

/* Instances of "account", "uid", "policy" or "warm" in the order they came first; NULL at the end. The first
 * of "policy" is "": the section without one. */
const char *conf_instance(const struct conf *c, const char *section, size_t i);
size_t conf_n_instances(const struct conf *c, const char *section);
bool conf_has_instance(const struct conf *c, const char *section, const char *name);

/* What the command line and the environment gave stays so when the file is read again: copies those values. */
must_check int conf_keep_given(struct conf *c, const struct conf *from);
/* Calls `fn` for each key of each instance of which the two have different values in force; `instance` NULL for plain sections. `fn` may
 * take the value. */
typedef void conf_change_fn(const struct conf_key *key, const char *instance, void *user);
void conf_compare(const struct conf *now, const struct conf *fresh, conf_change_fn *fn, void *user);
/* The two exchange the value of a key; `instance` NULL for plain sections. The old text stays where it is until `from` ends. Cannot fail. */
void conf_take(struct conf *c, struct conf *from, const struct conf_key *key, const char *instance);
/* After all was taken: instances of which `c` has a value now are known to it, and those of which neither has one are forgotten. Cannot
 * fail. */
void conf_take_instances(struct conf *c, struct conf *from);

/* What a name of the file is on this machine: whoever has looked it up notes it, and the numbers go over with conf_take_instances(). */
enum conf_id {
	CONF_ID_USER,
	CONF_ID_GROUP,
};
must_check int conf_note_id(struct conf *c, enum conf_id kind, const char *name, uint32_t id);
/* Of a number the number itself. False: it is a name that was not noted. */
bool conf_id(const struct conf *c, enum conf_id kind, const char *name, uint32_t *ret);

size_t conf_n_problems(const struct conf *c);

/* Rows for Config: every key of every instance. */
struct conf_row {
	const struct conf_key *key;
	const char *instance;		/* NULL for plain sections */
	const char *value;
	enum conf_origin origin;
	unsigned line;			/* 0 = not from a file */
	const char *file;		/* "" = not from one */
};
bool conf_row(const struct conf *c, size_t i, struct conf_row *ret);
size_t conf_n_rows(const struct conf *c);

/* The commented default file. */
must_check int conf_print_defaults(struct buf *out);

#endif
