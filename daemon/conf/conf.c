/* SPDX-License-Identifier: MIT */
#include "daemon/conf/conf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/conf/ini.h"
#include "proto/base/list.h"
#include "proto/base/str.h"

#define PROBLEMS_MAX 50u	/* reported; the rest is counted */

const struct conf_key conf_keys[] = {
#define KEY(section, key, type, default_value, min, max, reloadable, help)                         \
	{ #section, #key, default_value, help, CONF_##type, min, max, reloadable },
#include "daemon/conf/conf.def"
#undef KEY
};
const unsigned conf_n_keys = ARRAY_SIZE(conf_keys);

static const char *const sections_with_instance[] = { "account", "uid", "policy", "warm" };

struct value {
	struct list node;
	const struct conf_key *key;
	char *instance;		/* "" for plain sections */
	char *text;
	uint64_t number;
	enum conf_origin origin;
	unsigned line;
	char *file;		/* "" where it is not from one */
};

struct instance {
	struct list node;
	const char *section;	/* static */
	char *name;
};

struct id {
	struct list node;
	enum conf_id kind;
	uint32_t number;
	char *name;
};

struct conf {
	struct list values;
	struct list ids;
	struct list instances;
	struct buf problems;
	unsigned n_problems;
	const char *file;	/* that is being read: the reader's own; else "" */
};

static int note_instance(struct conf *c, const struct conf_key *k, const char *instance);
static void take_ids(struct conf *c, struct conf *from);
static const struct conf_key *find_key(const char *section, const char *key);

int conf_new(struct conf **ret)
{
	struct conf *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	list_init(&c->values);
	list_init(&c->instances);
	list_init(&c->ids);
	c->file = "";
	buf_init(&c->problems, 0);
	/* [policy] is there without being written: it is the one without an instance. */
	if (note_instance(c, find_key("policy", "keep_alive"), "") < 0) {
		conf_free(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

static void value_free(struct value *v)
{
	list_del(&v->node);
	free(v->instance);
	free(v->text);
	free(v->file);
	free(v);
}

static void id_free(struct id *i)
{
	list_del(&i->node);
	free(i->name);
	free(i);
}

struct conf *conf_free(struct conf *c)
{
	if (!c)
		return NULL;
	while (!list_is_empty(&c->values))
		value_free(list_entry(c->values.next, struct value, node));
	while (!list_is_empty(&c->instances)) {
		struct instance *i = list_entry(c->instances.next, struct instance, node);

		list_del(&i->node);
		free(i->name);
		free(i);
	}
	while (!list_is_empty(&c->ids))
		id_free(list_entry(c->ids.next, struct id, node));
	buf_fini(&c->problems);
	free(c);
	return NULL;
}

void conf_problem(struct conf *c, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* Without memory the count alone still stops the start. */
	if (c->n_problems++ < PROBLEMS_MAX)
		(void)!buf_printf(&c->problems, "%s\n", text);
}

size_t conf_n_problems(const struct conf *c)
{
	return c->n_problems;
}

const char *conf_errors(struct conf *c)
{
	uint8_t *end;

	if (!c->n_problems)
		return "";
	if (c->n_problems > PROBLEMS_MAX) {
		(void)!buf_printf(&c->problems, "… and %u more\n", c->n_problems - PROBLEMS_MAX);
		c->n_problems = PROBLEMS_MAX;
	}
	end = buf_space(&c->problems, 1);
	if (!end)
		return "out of memory\n";
	*end = 0;
	return (const char *)buf_data(&c->problems);
}

/* "file:line: " or "" */
static const char *where(const char *file, unsigned line, enum conf_origin origin, char ret[256])
{
	if (line)
		snprintf(ret, 256, "%.240s:%u: ", file, line);
	else
		snprintf(ret, 256, "%s", origin == CONF_COMMAND_LINE  ? "command line: "
					: origin == CONF_ENVIRONMENT ? "environment: "
								     : "");
	return ret;
}

static bool takes_instance(const char *section)
{
	for (size_t i = 0; i < ARRAY_SIZE(sections_with_instance); i++)
		if (str_eq(section, sections_with_instance[i]))
			return true;
	return false;
}

static const struct conf_key *find_key(const char *section, const char *key)
{
	for (unsigned i = 0; i < conf_n_keys; i++)
		if (str_eq(conf_keys[i].section, section) && str_eq(conf_keys[i].key, key))
			return &conf_keys[i];
	return NULL;
}

static bool is_section(const char *section)
{
	for (unsigned i = 0; i < conf_n_keys; i++)
		if (str_eq(conf_keys[i].section, section))
			return true;
	return false;
}

static struct value *find_value(const struct conf *c, const struct conf_key *key, const char *instance)
{
	list_for_each(n, &c->values) {
		struct value *v = list_entry(n, struct value, node);

		if (v->key == key && str_eq(v->instance, instance))
			return v;
	}
	return NULL;
}

/* --- checking a value --- */

static bool parse_bool(const char *s, uint64_t *ret)
{
	static const char *const yes[] = { "yes", "true", "on" }, *const no[] = { "no", "false", "off" };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		if (str_eq(s, yes[i]) || str_eq(s, no[i])) {
			*ret = str_eq(s, yes[i]);
			return true;
		}
	}
	return false;
}

static bool is_header_name(const char *s)
{
	static const char token[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "!#$%&'*+-.^_`|~";

	return *s && strspn(s, token) == strlen(s);
}

/* NULL, or what is wrong and what to write instead. */
static const char *check_value(const struct conf_key *k, const char *s, uint64_t *ret)
{
	enum log_level level;
	int r = 0;

	*ret = 0;
	switch (k->type) {
	case CONF_STRING:
		return NULL;
	case CONF_PATH:
		return s[0] == '/' ? NULL : "is not an absolute path";
	case CONF_URL:
		return str_starts(s, "https://") || str_starts(s, "http://")
			       ? NULL
			       : "does not begin with https:// or http://";
	case CONF_HEADER:
		return is_header_name(s) ? NULL : "is not an HTTP field name";
	case CONF_BOOL:
		return parse_bool(s, ret) ? NULL : "is neither yes nor no";
	case CONF_LEVEL:
		return log_level_parse(s, &level) ? (*ret = level, NULL) : "is not one of error, warn, info, debug";
	case CONF_DURATION:
		r = str_duration_ms(s, ret);
		if (r == -EINVAL)
			return "is not a duration such as 90s, 5m or 1h30m";
		break;
	case CONF_BYTES:
		r = str_bytes(s, ret);
		if (r == -EINVAL)
			return "is not a size such as 65536, 64k, 16M or 1G";
		break;
	case CONF_U32:
		r = str_u64(s, strlen(s), UINT32_MAX, ret);
		if (r == -EINVAL)
			return "is not a number";
		break;
	}
	return r < 0 || *ret < k->min || *ret > k->max ? "is out of range" : NULL;
}

static void report_bad(struct conf *c, const char *at, const struct conf_key *k, const char *instance,
		       const char *what, const char *value)
{
	char range[128] = "";

	if (str_eq(what, "is out of range")) {
		if (k->type == CONF_DURATION)
			snprintf(range, sizeof(range), ": from %llus to %llus", (unsigned long long)k->min / 1000,
				 (unsigned long long)k->max / 1000);
		else
			snprintf(range, sizeof(range), ": from %llu to %llu", (unsigned long long)k->min,
				 (unsigned long long)k->max);
	}
	conf_problem(c, "%s[%s%s%s] %s: \"%.100s\" %s%s", at, k->section, *instance ? " " : "", instance, k->key,
		     value, what, range);
}

static int note_instance(struct conf *c, const struct conf_key *k, const char *instance)
{
	struct instance *i;

	list_for_each(n, &c->instances) {
		i = list_entry(n, struct instance, node);
		if (str_eq(i->section, k->section) && str_eq(i->name, instance))
			return 0;
	}
	i = calloc(1, sizeof(*i));
	if (!i || !(i->name = strdup(instance))) {
		free(i);
		return -ENOMEM;
	}
	i->section = k->section;
	list_add_tail(&c->instances, &i->node);
	return 0;
}

static int conf_put(struct conf *c, enum conf_origin origin, unsigned line,
		    const struct conf_key *k, const char *instance, const char *text)
{
	char at[256];
	struct value *v = find_value(c, k, instance);
	uint64_t number;
	const char *wrong = check_value(k, text, &number);

	where(c->file, line, origin, at);
	if (wrong) {
		report_bad(c, at, k, instance, wrong, text);
		return 0;
	}
	if (v && v->origin == CONF_FILE && origin == CONF_FILE && str_eq(v->file, c->file)) {
		conf_problem(c, "%s[%s%s%s] %s: is given twice, first in line %u", at, k->section,
			     *instance ? " " : "", instance, k->key, v->line);
		return 0;
	}
	if (v && v->origin > origin)
		return 0;
	if (v)
		value_free(v);
	if (takes_instance(k->section) && note_instance(c, k, instance) < 0)
		return -ENOMEM;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	list_init(&v->node);
	v->key = k;
	v->instance = strdup(instance);
	v->text = strdup(text);
	v->file = strdup(line ? c->file : "");
	v->number = number;
	v->origin = origin;
	v->line = line;
	list_add_tail(&c->values, &v->node);
	if (v->instance && v->text && v->file)
		return 0;
	value_free(v);
	return -ENOMEM;
}

int conf_set(struct conf *c, enum conf_origin origin, const char *section, const char *instance,
	     const char *key, const char *value)
{
	const struct conf_key *k = find_key(section, key);

	if (!k)
		return -EINVAL;
	return conf_put(c, origin, 0, k, instance ? instance : "", value);
}

/* --- the file --- */

#define SECTION_BYTES 64u

struct reading {
	struct conf *c;
	bool skips;	/* the keys of a section that there is not */
	int error;
};

static void on_problem(void *user, unsigned line, const char *what)
{
	struct reading *r = user;

	conf_problem(r->c, "%s:%u: the line %s", r->c->file, line, what);
}

/* A number, or what may be a user's name: whether there is one is looked up by others. */
static bool is_user(const char *s)
{
	uint64_t uid;

	if (strspn(s, "0123456789") == strlen(s))
		return str_u64(s, strlen(s), UINT32_MAX - 1, &uid) == 0;
	return strlen(s) <= 64 && !strpbrk(s, " \t,:*@") && *s != '-';
}

static bool instance_is_good(const char *section, const char *instance)
{
	if (str_eq(section, "uid"))
		return str_eq(instance, "*") || is_user(instance);
	if (str_eq(section, "policy") && (!*instance || str_starts(instance, "uid:")))
		return !*instance || is_user(instance + 4);
	if (str_eq(section, "policy"))
		return str_starts(instance, "template:") && instance[9] && strlen(instance) <= 128 &&
		       !strpbrk(instance, " \t");
	return *instance && strlen(instance) <= 64 && !strpbrk(instance, " \t/");
}

/* The section of "section instance"; returns the instance, "" = none. */
static const char *split_header(const char *header, char ret_section[SECTION_BYTES])
{
	const char *blank = strchr(header, ' '), *instance = blank ? blank + 1 : "";

	snprintf(ret_section, SECTION_BYTES, "%.*s", blank ? (int)(blank - header) : (int)SECTION_BYTES - 1, header);
	return instance + strspn(instance, " ");
}

static void on_section(void *user, unsigned line, const char *header)
{
	struct reading *r = user;
	char section[SECTION_BYTES];
	const char *instance = split_header(header, section);

	r->skips = true;
	if (!is_section(section))
		conf_problem(r->c, "%s:%u: there is no section [%s]", r->c->file, line, header);
	else if (takes_instance(section) ? !instance_is_good(section, instance) : *instance != 0)
		conf_problem(r->c, "%s:%u: [%s]: write [%s%s]", r->c->file, line, header, section,
			     str_eq(section, "uid")	? " USER"
			     : str_eq(section, "policy") ? "], [policy template:NAME] or [policy uid:USER"
			     : takes_instance(section) ? " NAME"
						       : "");
	else
		r->skips = false;
}

static void on_value(void *user, unsigned line, const char *header, const char *key, const char *value)
{
	struct reading *r = user;
	char section[SECTION_BYTES];
	const char *instance = split_header(header, section);
	const struct conf_key *k;

	if (r->skips)
		return;
	if (!*section) {
		conf_problem(r->c, "%s:%u: %s stands before the first [section]", r->c->file, line, key);
		return;
	}
	k = find_key(section, key);
	if (!k) {
		conf_problem(r->c, "%s:%u: there is no key %s in [%s]", r->c->file, line, key, section);
		return;
	}
	if (conf_put(r->c, CONF_FILE, line, k, instance, value) < 0)
		r->error = -ENOMEM;
}

int conf_read_text(struct conf *c, const char *name, struct conf_text text)
{
	struct reading reading = { .c = c };
	struct ini_input in = { .p = text.p, .n = text.n, .begin = on_section, .value = on_value,
				.problem = on_problem, .user = &reading };
	int r;

	c->file = name;
	r = ini_read(&in);
	c->file = "";
	return r < 0 ? r : reading.error;
}

/* --- asking --- */

const char *conf_get(const struct conf *c, const char *section, const char *instance, const char *key)
{
	const struct conf_key *k = find_key(section, key);
	const struct value *v = k ? find_value(c, k, instance ? instance : "") : NULL;

	return v ? v->text : k ? k->default_value : "";
}

uint64_t conf_get_number(const struct conf *c, const char *section, const char *instance, const char *key)
{
	const struct conf_key *k = find_key(section, key);
	const struct value *v = k ? find_value(c, k, instance ? instance : "") : NULL;
	uint64_t number = 0;

	if (v)
		return v->number;
	return !k || check_value(k, k->default_value, &number) ? 0 : number;
}

bool conf_get_bool(const struct conf *c, const char *section, const char *instance, const char *key)
{
	return conf_get_number(c, section, instance, key) != 0;
}

enum conf_origin conf_origin(const struct conf *c, const char *section, const char *instance, const char *key)
{
	const struct conf_key *k = find_key(section, key);
	const struct value *v = k ? find_value(c, k, instance ? instance : "") : NULL;

	return v ? v->origin : CONF_DEFAULT;
}

unsigned conf_line(const struct conf *c, const char *section, const char *instance, const char *key)
{
	const struct conf_key *k = find_key(section, key);
	const struct value *v = k ? find_value(c, k, instance ? instance : "") : NULL;

	return v ? v->line : 0;
}

const char *conf_file(const struct conf *c, const char *section, const char *instance, const char *key)
{
	const struct conf_key *k = find_key(section, key);
	const struct value *v = k ? find_value(c, k, instance ? instance : "") : NULL;

	return v ? v->file : "";
}

bool conf_is_set(const struct conf *c, const char *section, const char *instance, const char *key)
{
	const struct conf_key *k = find_key(section, key);

	return k && find_value(c, k, instance ? instance : "");
}

const char *conf_place(const struct conf *c, const char *section, const char *instance, const char *key,
		       char ret[512])
{
	const struct conf_key *k = find_key(section, key);
	const struct value *v = k ? find_value(c, k, instance ? instance : "") : NULL;
	char at[256];

	snprintf(ret, 512, "%s[%s%s%s] %s", v ? where(v->file, v->line, v->origin, at) : "", section,
		 instance ? " " : "", instance ? instance : "", key);
	return ret;
}

const char *conf_instance(const struct conf *c, const char *section, size_t i)
{
	list_for_each(n, &c->instances) {
		struct instance *in = list_entry(n, struct instance, node);

		if (str_eq(in->section, section) && i-- == 0)
			return in->name;
	}
	return NULL;
}

size_t conf_n_instances(const struct conf *c, const char *section)
{
	size_t n = 0;

	while (conf_instance(c, section, n))
		n++;
	return n;
}

int conf_keep_given(struct conf *c, const struct conf *from)
{
	int r = 0;

	list_for_each(n, &from->values) {
		const struct value *v = list_entry(n, struct value, node);

		if (!r && (v->origin == CONF_COMMAND_LINE || v->origin == CONF_ENVIRONMENT))
			r = conf_set(c, v->origin, v->key->section, v->instance, v->key->key, v->text);
	}
	return r;
}

static const char *in_force(const struct value *v, const struct conf_key *key)
{
	return v ? v->text : key->default_value;
}

bool conf_has_instance(const struct conf *c, const char *section, const char *name)
{
	const char *known;

	for (size_t i = 0; (known = conf_instance(c, section, i)); i++)
		if (str_eq(known, name))
			return true;
	return false;
}

static bool is_changed(const struct conf *now, const struct conf *fresh, const struct conf_row *row, const char *instance)
{
	const struct value *a = find_value(now, row->key, instance), *b = find_value(fresh, row->key, instance);

	return !str_eq(in_force(a, row->key), in_force(b, row->key));
}

void conf_compare(const struct conf *now, const struct conf *fresh, conf_change_fn *fn, void *user)
{
	struct conf_row row;

	for (size_t i = 0; conf_row(fresh, i, &row); i++)
		if (is_changed(now, fresh, &row, row.instance ? row.instance : ""))
			fn(row.key, row.instance, user);
	/* … and of what is there no more. */
	for (size_t i = 0; conf_row(now, i, &row); i++)
		if (row.instance && !conf_has_instance(fresh, row.key->section, row.instance) &&
		    is_changed(now, fresh, &row, row.instance))
			fn(row.key, row.instance, user);
}

static void move(struct list *node, struct list *to)
{
	if (!node)
		return;
	list_del(node);
	list_add_tail(to, node);
}

void conf_take(struct conf *c, struct conf *from, const struct conf_key *key, const char *instance)
{
	struct value *old = find_value(c, key, instance ? instance : ""), *fresh = find_value(from, key, instance ? instance : "");

	move(old ? &old->node : NULL, &from->values);
	move(fresh ? &fresh->node : NULL, &c->values);
}

static bool has_value(const struct conf *c, const struct instance *of)
{
	list_for_each(n, &c->values) {
		const struct value *v = list_entry(n, struct value, node);

		if (str_eq(v->key->section, of->section) && str_eq(v->instance, of->name))
			return true;
	}
	return false;
}

void conf_take_instances(struct conf *c, struct conf *from)
{
	list_for_each_safe(n, &from->instances) {
		const struct instance *i = list_entry(n, struct instance, node);

		if (!conf_has_instance(c, i->section, i->name) && has_value(c, i))
			move(n, &c->instances);
	}
	list_for_each_safe(n, &c->instances) {
		const struct instance *i = list_entry(n, struct instance, node);

		if (*i->name && !has_value(c, i))
			move(n, &from->instances);
	}
	take_ids(c, from);
}

/* --- numbers of names --- */

static struct id *find_id(const struct conf *c, enum conf_id kind, const char *name)
{
	list_for_each(n, &c->ids) {
		struct id *i = list_entry(n, struct id, node);

		if (i->kind == kind && str_eq(i->name, name))
			return i;
	}
	return NULL;
}

int conf_note_id(struct conf *c, enum conf_id kind, const char *name, uint32_t number)
{
	struct id *i = find_id(c, kind, name);

	if (!i) {
		i = calloc(1, sizeof(*i));
		if (!i || !(i->name = strdup(name))) {
			free(i);
			return -ENOMEM;
		}
		i->kind = kind;
		list_add_tail(&c->ids, &i->node);
	}
	i->number = number;
	return 0;
}

bool conf_id(const struct conf *c, enum conf_id kind, const char *name, uint32_t *ret)
{
	const struct id *i = find_id(c, kind, name);
	uint64_t number;

	if (str_u64(name, strlen(name), UINT32_MAX - 1, &number) == 0)
		*ret = (uint32_t)number;
	else if (i)
		*ret = i->number;
	else
		return false;
	return true;
}

static void take_ids(struct conf *c, struct conf *from)
{
	list_for_each_safe(n, &from->ids) {
		const struct id *i = list_entry(n, struct id, node);
		struct id *old = find_id(c, i->kind, i->name);

		if (old)
			id_free(old);
		move(n, &c->ids);
	}
}

bool conf_row(const struct conf *c, size_t i, struct conf_row *ret)
{
	for (unsigned k = 0; k < conf_n_keys; k++) {
		const struct conf_key *key = &conf_keys[k];
		bool many = takes_instance(key->section);

		for (size_t n = 0;; n++) {
			const char *instance = many ? conf_instance(c, key->section, n) : "";
			const struct value *v;

			if (!instance || (!many && n))
				break;
			if (i--)
				continue;
			v = find_value(c, key, instance);
			*ret = (struct conf_row){ .key = key, .instance = *instance ? instance : NULL,
						  .value = v ? v->text : key->default_value,
						  .origin = v ? v->origin : CONF_DEFAULT,
						  .line = v ? v->line : 0,
						  .file = v ? v->file : "" };
			return true;
		}
	}
	return false;
}

size_t conf_n_rows(const struct conf *c)
{
	size_t n = 0;

	for (unsigned k = 0; k < conf_n_keys; k++)
		n += takes_instance(conf_keys[k].section) ? conf_n_instances(c, conf_keys[k].section) : 1;
	return n;
}

int conf_print_defaults(struct buf *out)
{
	const char *section = "";
	int r = buf_put_str(out, "# Configuration of agentboxd: every key with its default.\n");

	for (unsigned i = 0; i < conf_n_keys && !r; i++) {
		const struct conf_key *k = &conf_keys[i];

		if (!str_eq(section, k->section)) {
			section = k->section;
			r = buf_printf(out, "\n%s[%s%s]\n",
				       takes_instance(section) && !str_eq(section, "policy") ? "#" : "", section,
				       str_eq(section, "uid")	  ? " alice"
				       : str_eq(section, "account") ? " default"
				       : str_eq(section, "warm")    ? " python"
								    : "");
		}
		if (!r)
			r = buf_printf(out, "# %s\n#%s = %s\n", k->help, k->key, k->default_value);
	}
	return r;
}
