/* SPDX-License-Identifier: MIT */
/*
 * JSON → message. A half-built message is always one that protobuf-c can free: counts and cases are
 * set only after what they promise is there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/pbjson/pbjson.h"
#include "daemon/common/pbjson/pbjson_field.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define DEPTH_MAX 16

struct reader {
	char *why;
	int depth;
	bool known_only;
};

static int read_message(struct reader *rd, const json_t *in, const ProtobufCMessageDescriptor *type,
			ProtobufCMessage **ret);

static int pbjson_read_refuse(struct reader *rd, const ProtobufCFieldDescriptor *f, const char *text)
{
	char name[PBJSON_NAME_MAX];

	pbjson_name(f->name, name);
	snprintf(rd->why, PBJSON_WHY_MAX, "%s: %s", name, text);
	return -EINVAL;
}

/* A whole number, written as one or as a string. */
static int read_number(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
		       long long min, unsigned long long max, long long *ret)
{
	const char *s = json_string_value(in);
	uint64_t u;
	bool negative = false;

	if (json_is_integer(in)) {
		long long v = json_integer_value(in);

		if (v < min || (v > 0 && (unsigned long long)v > max))
			return pbjson_read_refuse(rd, f, "number out of range");
		*ret = v;
		return 0;
	}
	if (json_is_real(in)) {
		double d = json_real_value(in);

		if (d < -9e15 || d > 9e15 || (double)(long long)d != d)
			return pbjson_read_refuse(rd, f, "not a whole number");
		if ((long long)d < min || (d > 0 && (unsigned long long)d > max))
			return pbjson_read_refuse(rd, f, "number out of range");
		*ret = (long long)d;
		return 0;
	}
	if (!s)
		return pbjson_read_refuse(rd, f, "not a number");
	if (*s == '-') {
		negative = true;
		s++;
	}
	if (str_u64(s, strlen(s), negative ? (uint64_t)1 << 63 : UINT64_MAX, &u) < 0)
		return pbjson_read_refuse(rd, f, "not a number");
	if (negative ? u > (uint64_t)(-(min + 1)) + 1 || min >= 0 : u > max)
		return pbjson_read_refuse(rd, f, "number out of range");
	*ret = negative ? (long long)(0 - u) : (long long)u;
	return 0;
}

static int read_enum(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
		     int *ret)
{
	const ProtobufCEnumValue *v;
	long long n;
	int r;

	if (json_is_string(in)) {
		v = protobuf_c_enum_descriptor_get_value_by_name(f->descriptor,
								 json_string_value(in));
		if (!v)
			return pbjson_read_refuse(rd, f, "no such value");
		*ret = v->value;
		return 0;
	}
	r = read_number(rd, in, f, INT32_MIN, INT32_MAX, &n);
	if (!r)
		*ret = (int)n;
	return r;
}

static int read_bytes(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
		      ProtobufCBinaryData *ret)
{
	const char *s = json_string_value(in);
	size_t n = json_string_length(in);
	uint8_t *data;
	ssize_t len;

	if (!s)
		return pbjson_read_refuse(rd, f, "not a string");
	data = malloc(n * 3 / 4 + 1);
	if (!data)
		return -ENOMEM;
	len = str_base64_decode(s, n, data);
	if (len < 0) {
		free(data);
		return pbjson_read_refuse(rd, f, "not base64");
	}
	*ret = (ProtobufCBinaryData){ (size_t)len, data };
	return 0;
}

static int read_timestamp(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
			  ProtobufCMessage **ret)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;
	const char *s = json_string_value(in);
	ProtobufCMessage *m;
	int64_t ms, seconds;
	int32_t ns;

	if (!s || str_rfc3339_ms(s, &ms) < 0)
		return pbjson_read_refuse(rd, f, "not a time");
	m = calloc(1, d->sizeof_message);
	if (!m)
		return -ENOMEM;
	protobuf_c_message_init(d, m);
	seconds = ms >= 0 ? ms / 1000 : -((999 - ms) / 1000);
	ns = (int32_t)(ms - seconds * 1000) * 1000000;
	memcpy((char *)m + d->fields[0].offset, &seconds, sizeof(seconds));
	memcpy((char *)m + d->fields[1].offset, &ns, sizeof(ns));
	*ret = m;
	return 0;
}

static int read_integer(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
			void *p)
{
	long long n;
	int r;

	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		r = read_number(rd, in, f, INT32_MIN, INT32_MAX, &n);
		if (!r)
			*(int32_t *)p = (int32_t)n;
		return r;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		r = read_number(rd, in, f, 0, UINT32_MAX, &n);
		if (!r)
			*(uint32_t *)p = (uint32_t)n;
		return r;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		r = read_number(rd, in, f, 0, UINT64_MAX, &n);
		if (!r)
			*(uint64_t *)p = (uint64_t)n;
		return r;
	default:
		r = read_number(rd, in, f, LLONG_MIN, LLONG_MAX, &n);
		if (!r)
			*(int64_t *)p = n;
		return r;
	}
}

/* One value into *p, which holds nothing to free. */
static int read_value(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
		      void *p)
{
	char *s;

	switch (f->type) {
	case PROTOBUF_C_TYPE_BOOL:
		if (!json_is_boolean(in))
			return pbjson_read_refuse(rd, f, "neither true nor false");
		*(protobuf_c_boolean *)p = json_is_true(in);
		return 0;
	case PROTOBUF_C_TYPE_ENUM:
		return read_enum(rd, in, f, p);
	case PROTOBUF_C_TYPE_STRING:
		if (!json_is_string(in))
			return pbjson_read_refuse(rd, f, "not a string");
		s = str_dup(json_string_value(in));
		if (!s)
			return -ENOMEM;
		*(char **)p = s;
		return 0;
	case PROTOBUF_C_TYPE_BYTES:
		return read_bytes(rd, in, f, p);
	case PROTOBUF_C_TYPE_MESSAGE:
		if (pbjson_is_timestamp(f->descriptor))
			return read_timestamp(rd, in, f, p);
		if (!json_is_object(in))
			return pbjson_read_refuse(rd, f, "not an object");
		return read_message(rd, in, f->descriptor, p);
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
		must(false);	/* the agent's messages have no such type */
		return -EINVAL;
	default:
		return read_integer(rd, in, f, p);
	}
}

static int read_map(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
		    ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;
	size_t *n = (void *)((char *)m + f->quantifier_offset);
	ProtobufCMessage **v;
	const char *key;
	json_t *value;
	int r = 0;

	if (!json_is_object(in))
		return pbjson_read_refuse(rd, f, "not an object");
	if (!json_object_size(in))
		return 0;
	v = calloc(json_object_size(in), sizeof(*v));
	if (!v)
		return -ENOMEM;
	*(void **)(void *)((char *)m + f->offset) = v;
	json_object_foreach((json_t *)in, key, value) {
		ProtobufCMessage *e = calloc(1, d->sizeof_message);
		char *key_copy = str_dup(key);

		if (!e || !key_copy) {
			free(e);
			free(key_copy);
			return -ENOMEM;
		}
		protobuf_c_message_init(d, e);
		*(char **)(void *)((char *)e + d->fields[0].offset) = key_copy;
		v[(*n)++] = e;
		r = read_value(rd, value, &d->fields[1], (char *)e + d->fields[1].offset);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_repeated(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
			 ProtobufCMessage *m)
{
	size_t *n = (void *)((char *)m + f->quantifier_offset);
	size_t i, size = pbjson_size(f);
	json_t *value;
	char *v;

	if (!json_is_array(in))
		return pbjson_read_refuse(rd, f, "not a list");
	if (!json_array_size(in))
		return 0;
	v = calloc(json_array_size(in), size);
	if (!v)
		return -ENOMEM;
	*(void **)(void *)((char *)m + f->offset) = v;
	json_array_foreach((json_t *)in, i, value) {
		int r = read_value(rd, value, f, v + i * size);

		if (r < 0)
			return r;
		(*n)++;
	}
	return 0;
}

static int read_field(struct reader *rd, const json_t *in, const ProtobufCFieldDescriptor *f,
		      ProtobufCMessage *m)
{
	ProtobufCBinaryData value = { 0 };	/* the largest kind of value */
	uint32_t *one;
	int r;

	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return pbjson_is_map(f) ? read_map(rd, in, f, m) : read_repeated(rd, in, f, m);
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
		one = (void *)((char *)m + f->quantifier_offset);
		if (*one)
			return pbjson_read_refuse(rd, f, "only one of its group may be set");
		r = read_value(rd, in, f, &value);
		if (r < 0)
			return r;
		memcpy((char *)m + f->offset, &value, pbjson_size(f));
		*one = f->id;
		return 0;
	}
	return read_value(rd, in, f, (char *)m + f->offset);
}

static json_t *lookup(const json_t *in, const ProtobufCFieldDescriptor *f)
{
	char name[PBJSON_NAME_MAX];
	json_t *v;

	pbjson_name(f->name, name);
	v = json_object_get(in, name);
	return v ? v : json_object_get(in, f->name);
}

static int read_message(struct reader *rd, const json_t *in, const ProtobufCMessageDescriptor *type,
			ProtobufCMessage **ret)
{
	ProtobufCMessage *m;
	size_t known = 0;
	int r = 0;

	if (rd->depth == DEPTH_MAX) {
		snprintf(rd->why, PBJSON_WHY_MAX, "nested too deeply");
		return -EINVAL;
	}
	m = calloc(1, type->sizeof_message);
	if (!m)
		return -ENOMEM;
	protobuf_c_message_init(type, m);
	rd->depth++;
	for (unsigned i = 0; i < type->n_fields && !r; i++) {
		json_t *v = lookup(in, &type->fields[i]);

		known += v != NULL;
		if (v && !json_is_null(v))
			r = read_field(rd, v, &type->fields[i], m);
	}
	rd->depth--;
	if (!r && rd->known_only && known < json_object_size(in)) {
		snprintf(rd->why, PBJSON_WHY_MAX, "a field is unknown");
		r = -EINVAL;
	}
	if (r < 0) {
		protobuf_c_message_free_unpacked(m, NULL);
		return r;
	}
	*ret = m;
	return 0;
}

static int read_text(struct reader *rd, const char *text, size_t n, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret)
{
	json_error_t e;
	json_t *in = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	int r;

	rd->why[0] = 0;
	if (!json_is_object(in)) {
		snprintf(rd->why, PBJSON_WHY_MAX, "%s", in ? "not a JSON object" : e.text);
		json_decref(in);
		return -EINVAL;
	}
	r = read_message(rd, in, type, ret);
	json_decref(in);
	return r;
}

int pbjson_read(const char *text, size_t n, const ProtobufCMessageDescriptor *type,
		char why[PBJSON_WHY_MAX], ProtobufCMessage **ret)
{
	return read_text(&(struct reader){ .why = why }, text, n, type, ret);
}

int pbjson_read_known(const char *text, size_t n, const ProtobufCMessageDescriptor *type,
		      char why[PBJSON_WHY_MAX], ProtobufCMessage **ret)
{
	return read_text(&(struct reader){ .why = why, .known_only = true }, text, n, type, ret);
}
