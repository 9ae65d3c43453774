/* SPDX-License-Identifier: MIT */
/* JSON → structs. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/doc.h"
#include "proto/cloud/model.h"

#define CONTAINER_BYTES 256u		/* about what jansson takes for an object or array */
#define VALUE_BYTES	96u		/* about what it takes for a member or an element */
#define SMALL_BYTES	(256u * 1024)	/* any shape may take this much */
#define TEXT_MAX	(64u * 1024)
#define ENTRIES_MAX	512u		/* of a list or map of which the table says nothing else */
#define PATH_MAX_BYTES	120u

int doc_bad(struct cloud_json_error *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	str_clean_line(why->text);	/* keys are foreign */
	return -EBADMSG;
}

/* --- parsing --- */

/* What may be built of it, or why not. jansson recurses, with a bound of 2048 of its own; memory is bounded by a
 * multiple of the size, which honest documents with their long names stay far below. */
static const char *shape_error(const char *s, size_t n)
{
	size_t depth = 0, containers = 0, commas = 0;
	bool in_string = false;

	for (size_t i = 0; i < n; i++) {
		char c = s[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			containers++;
			if (++depth > CLOUD_JSON_DEPTH_MAX)
				return "is nested too deeply";
		} else if (c == '}' || c == ']') {
			if (depth)
				depth--;
		} else if (c == ',') {
			commas++;
		}
	}
	return containers * CONTAINER_BYTES + commas * VALUE_BYTES > SMALL_BYTES + n * 10 ?
		       "is made of too many small values" : NULL;
}

int doc_load(const void *p, size_t n, unsigned flags, json_t **ret, struct cloud_json_error *why)
{
	bool request = flags & CLOUD_JSON_REQUEST;
	const char *wrong;
	json_error_t e;

	if (n > (request ? CLOUD_JSON_REQUEST_MAX : CLOUD_JSON_ANSWER_MAX))
		return doc_bad(why, "the document is too large");
	wrong = shape_error(p, n);
	if (wrong)
		return doc_bad(why, "the document %s", wrong);
	/* A NUL in somebody's metadata must not make a whole list unreadable; in a request it is an error. */
	*ret = json_loadb(p, n, request ? 0 : JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
	if (*ret)
		return 0;
	if (json_error_code(&e) == json_error_out_of_memory)
		return -ENOMEM;
	return doc_bad(why, json_error_code(&e) == json_error_duplicate_key ? "a key occurs twice in the document" :
									       "the document is not JSON");
}

/* --- members --- */

struct doc_reader {
	struct cloud_json_error *why;
	char path[PATH_MAX_BYTES];	/* of the object that is read, with a dot behind it, or "" */
};

static int bad(const struct doc_reader *rd, const char *name, const char *what)
{
	return doc_bad(rd->why, "%s%s %s", rd->path, name, what);
}

static int read_object(struct doc_reader *rd, const struct doc *d, const json_t *o, void *v, unsigned part);

/* The path while the object `name` is read. */
static size_t path_enter(struct doc_reader *rd, const char *name)
{
	size_t n = strlen(rd->path);

	snprintf(rd->path + n, sizeof(rd->path) - n, "%s.", name);
	return n;
}

static void path_leave(struct doc_reader *rd, size_t n)
{
	rd->path[n] = 0;
}

static int read_below(struct doc_reader *rd, const char *name, const struct doc *d, const json_t *o, void *v)
{
	size_t n;
	int r;

	if (!json_is_object(o))
		return bad(rd, name, "must be an object");
	n = path_enter(rd, name);
	r = read_object(rd, d, o, v, 0);
	path_leave(rd, n);
	return r;
}

/* A text that a C string can hold; NULL for any other. */
static const char *clean_text(const json_t *v)
{
	const char *s = json_string_value(v);

	return memchr(s, 0, json_string_length(v)) ? NULL : s;
}

static int read_text(struct doc_reader *rd, const struct doc_field *f, const json_t *v, char **ret)
{
	const char *s = json_is_string(v) ? clean_text(v) : NULL;

	if (!s)
		return bad(rd, f->name, "must be a string");
	if (!*s && f->flags & DOC_REQUIRED)
		return bad(rd, f->name, "is missing");
	if (!(f->flags & DOC_LONG) && json_string_length(v) > (f->max ? (size_t)f->max : TEXT_MAX))
		return bad(rd, f->name, "is too long");
	free(*ret);
	*ret = str_dup(s);
	return *ret ? 0 : -ENOMEM;
}

static int read_number(struct doc_reader *rd, const struct doc_field *f, const json_t *v, int64_t usual, int64_t *ret)
{
	int64_t max = f->max ? f->max : usual;
	char text[64];

	if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= max) {
		*ret = json_integer_value(v);
		return 0;
	}
	snprintf(text, sizeof(text), "must be a whole number from 0 to %lld", (long long)max);
	return bad(rd, f->name, text);
}

static int read_word(struct doc_reader *rd, const struct doc_field *f, const json_t *v, int *ret)
{
	if (!json_is_string(v))
		return bad(rd, f->name, "must be a string");
	*ret = 0;
	for (int i = 0; f->words[i]; i++)
		if (str_eq(f->words[i], json_string_value(v)))
			*ret = i + 1;
	return 0;
}

static bool is_too_many(const struct doc_field *f, size_t n)
{
	return n > (size_t)(f->max ? f->max : ENTRIES_MAX);
}

/* A value that no C string can hold is left out, not an error: anybody of the team may have put it there. */
static int read_kvs(struct doc_reader *rd, const struct doc_field *f, const json_t *v, struct cloud_kvs *ret)
{
	const char *key, *s;
	json_t *value;
	int r = 0;

	if (!json_is_object(v))
		return bad(rd, f->name, "must be an object of strings");
	if (is_too_many(f, json_object_size(v)))
		return bad(rd, f->name, "has too many entries");
	json_object_foreach((json_t *)v, key, value) {
		if (!json_is_string(value))
			return bad(rd, f->name, "must be an object of strings");
		s = clean_text(value);
		if (!(f->flags & DOC_LONG) && json_string_length(value) > TEXT_MAX)
			s = NULL;
		r = s ? cloud_kvs_add(ret, key, s) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_strs(struct doc_reader *rd, const struct doc_field *f, const json_t *v, struct cloud_strs *ret)
{
	int r = 0;

	if (!json_is_array(v))
		return bad(rd, f->name, "must be a list of strings");
	if (is_too_many(f, json_array_size(v)))
		return bad(rd, f->name, "has too many entries");
	for (size_t i = 0; i < json_array_size(v) && !r; i++) {
		const json_t *e = json_array_get(v, i);
		const char *s = json_is_string(e) && json_string_length(e) <= TEXT_MAX ? clean_text(e) : NULL;

		r = s ? cloud_strs_add(ret, s) : bad(rd, f->name, "must be a list of strings");
	}
	return r;
}

/* --- lists --- */

static int make_room(const struct doc_field *f, struct doc_vector *l, size_t n)
{
	l->v = n ? calloc(n, f->of->size) : NULL;
	l->n = 0;
	return n && !l->v ? -ENOMEM : 0;
}

static int read_list(struct doc_reader *rd, const struct doc_field *f, const json_t *v, struct doc_vector *l)
{
	int r;

	if (!json_is_array(v))
		return bad(rd, f->name, "must be a list");
	if (is_too_many(f, json_array_size(v)))
		return bad(rd, f->name, "has too many entries");
	r = make_room(f, l, json_array_size(v));
	for (size_t i = 0; i < json_array_size(v) && !r; i++)
		r = read_below(rd, f->name, f->of, json_array_get(v, i), l->v + l->n++ * f->of->size);
	return r;
}

/* Of "domain": [rule]: the first one; how many more there are is T.surplus, which lies behind the key. */
static int read_rule(struct doc_reader *rd, const struct doc_field *f, const char *key, const json_t *v, void *to)
{
	struct cloud_rule *rule = to;

	if (!json_is_array(v))
		return bad(rd, key, "must be a list");
	if (!json_array_size(v))
		return 0;
	rule->surplus = json_array_size(v) - 1;
	return read_below(rd, key, f->of, json_array_get(v, 0), to);
}

static int read_map(struct doc_reader *rd, const struct doc_field *f, const json_t *v, struct doc_vector *l)
{
	const char *key;
	json_t *value;
	size_t n;
	int r;

	if (!json_is_object(v))
		return bad(rd, f->name, "must be an object");
	if (is_too_many(f, json_object_size(v)))
		return bad(rd, f->name, "has too many entries");
	r = make_room(f, l, json_object_size(v));
	n = path_enter(rd, f->name);
	json_object_foreach((json_t *)v, key, value) {
		char *to = l->v + l->n * f->of->size, *name;

		if (r < 0)
			break;
		l->n++;
		name = str_dup(key);
		memcpy(to, &name, sizeof(name));
		r = !name			? -ENOMEM :
		    f->kind == DOC_RULES ? read_rule(rd, f, key, value, to) :
					       read_below(rd, key, f->of, value, to);
	}
	path_leave(rd, n);
	return r;
}

static int read_new(struct doc_reader *rd, const struct doc_field *f, const json_t *v, void **ret)
{
	if (!*ret)
		*ret = calloc(1, f->of->size);
	return *ret ? read_below(rd, f->name, f->of, v, *ret) : -ENOMEM;
}

static bool asks_something(const json_t *v)
{
	return !(json_is_object(v) && !json_object_size(v)) && !(json_is_array(v) && !json_array_size(v));
}

static int read_moment(struct doc_reader *rd, const struct doc_field *f, const json_t *v, int64_t *ret)
{
	if (!json_is_string(v) || str_rfc3339_ms(json_string_value(v), ret) < 0)
		return bad(rd, f->name, "must be a date and time");
	/* Before 1970 (the zero value of some languages is year 1) it says nothing. */
	*ret = MAX(*ret, (int64_t)0);
	return 0;
}

static int read_seconds(struct doc_reader *rd, const struct doc_field *f, const json_t *v, int64_t *ret)
{
	int r = read_number(rd, f, v, INT64_MAX / 1000, ret);

	if (r == 0)
		*ret *= 1000;
	return r;
}

static int read_flag(struct doc_reader *rd, const struct doc_field *f, const json_t *v, void *m)
{
	if (!json_is_boolean(v))
		return bad(rd, f->name, "must be true or false");
	if (f->kind == DOC_TRI)
		*(enum tri *)m = tri_of(json_is_true(v));
	else
		*(bool *)m = json_is_true(v);
	return 0;
}

static int read_u32(struct doc_reader *rd, const struct doc_field *f, const json_t *v, uint32_t *ret)
{
	int64_t n = 0;
	int r = read_number(rd, f, v, INT32_MAX, &n);

	if (r == 0)
		*ret = (uint32_t)n;
	return r;
}

static int read_real(struct doc_reader *rd, const struct doc_field *f, const json_t *v, double *ret)
{
	if (!json_is_number(v))
		return bad(rd, f->name, "must be a number");
	*ret = json_number_value(v);
	return 0;
}

static int read_value(struct doc_reader *rd, const struct doc_field *f, const json_t *o, void *v)
{
	void *m = (char *)v + f->at;

	switch (f->kind) {
	case DOC_TEXT:
		return read_text(rd, f, o, m);
	case DOC_U32:
		return read_u32(rd, f, o, m);
	case DOC_I64:
		return read_number(rd, f, o, INT64_MAX, m);
	case DOC_REAL:
		return read_real(rd, f, o, m);
	case DOC_BOOL:
	case DOC_TRI:
		return read_flag(rd, f, o, m);
	case DOC_MOMENT:
		return read_moment(rd, f, o, m);
	case DOC_WORD:
		return read_word(rd, f, o, m);
	case DOC_SECONDS:
		return read_seconds(rd, f, o, m);
	case DOC_PAUSE:
		*(enum tri *)m = tri_of(json_is_string(o) && str_eq(json_string_value(o), "pause"));
		return 0;
	case DOC_CONST:
	case DOC_KEY:
	case DOC_INLINE:
		return 0;
	case DOC_ASKED:
		*(bool *)m = asks_something(o);
		return 0;
	case DOC_KVS:
		return read_kvs(rd, f, o, m);
	case DOC_STRS:
		return read_strs(rd, f, o, m);
	case DOC_SAME:
		return read_below(rd, f->name, f->of, o, v);
	case DOC_NEW:
		return read_new(rd, f, o, m);
	case DOC_LIST:
		return read_list(rd, f, o, m);
	case DOC_MAP:
	case DOC_RULES:
		return read_map(rd, f, o, m);
	}
	must(false);
	return -EINVAL;
}

/* `part`: only what belongs to it; 0 = all. */
static int read_object(struct doc_reader *rd, const struct doc *d, const json_t *o, void *v, unsigned part)
{
	int r = 0;

	for (size_t i = 0; i < d->n && !r; i++) {
		const struct doc_field *f = &d->fields[i];
		const json_t *member = f->kind == DOC_KEY ? NULL : json_object_get(o, f->name);

		if (part && f->in && !(f->in & part))
			continue;
		if (f->kind == DOC_INLINE)
			r = read_object(rd, f->of, o, v, f->part);
		else if (member && !json_is_null(member))
			r = read_value(rd, f, member, v);
		else if (f->flags & DOC_REQUIRED)
			r = bad(rd, f->name, "is missing");
		if (r == -EBADMSG && f->flags & DOC_LOOSE)
			r = 0;
	}
	if (!r && d->settle)
		r = d->settle(v, rd->why);
	return r;
}

int doc_read(const struct doc *d, const json_t *o, void *v, struct cloud_json_error *why)
{
	struct doc_reader rd = { .why = why };

	return json_is_object(o) ? read_object(&rd, d, o, v, 0) : doc_bad(why, "the document must be an object");
}
