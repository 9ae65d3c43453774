/* SPDX-License-Identifier: MIT */
/* Writing; reading is in pbjson_read.c. */
#include "daemon/common/pbjson/pbjson.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/pbjson/pbjson_field.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

bool pbjson_is_map(const ProtobufCFieldDescriptor *f)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;

	if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE)
		return false;
	return d->n_fields == 2 && str_eq(d->fields[0].name, "key") &&
	       str_eq(d->fields[1].name, "value");
}

bool pbjson_is_timestamp(const ProtobufCMessageDescriptor *d)
{
	return str_eq(d->name, "google.protobuf.Timestamp");
}

void pbjson_name(const char *snake, char ret[PBJSON_NAME_MAX])
{
	size_t n = 0;

	for (; *snake && n < PBJSON_NAME_MAX - 1; snake++) {
		if (*snake == '_' && snake[1] >= 'a' && snake[1] <= 'z')
			ret[n++] = (char)(*++snake - 32);
		else
			ret[n++] = *snake;
	}
	ret[n] = 0;
}

static int write_bytes(struct buf *out, const ProtobufCBinaryData *b)
{
	char *text = str_base64_encode(b->data, b->len, true);
	int r;

	if (!text)
		return -ENOMEM;
	r = buf_put_str(out, "\"");
	if (!r)
		r = buf_put_str(out, text);
	free(text);
	return r ? r : buf_put_str(out, "\"");
}

static int write_timestamp(struct buf *out, const ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	int64_t s;
	int32_t ns;
	char text[40], fraction[16] = "";

	must(d->n_fields == 2);
	memcpy(&s, (const char *)m + d->fields[0].offset, sizeof(s));
	memcpy(&ns, (const char *)m + d->fields[1].offset, sizeof(ns));
	if (s < -62135596800 || s > 253402300799)
		s = 0;	/* no date that RFC 3339 can say */
	str_rfc3339(s * 1000000, 0, text);
	if (ns > 0 && ns < 1000000000)
		snprintf(fraction, sizeof(fraction), ".%09d", ns);
	text[strcspn(text, "Z")] = 0;
	return buf_printf(out, "\"%s%sZ\"", text, fraction);
}

static int write_enum(struct buf *out, const ProtobufCEnumDescriptor *d, int value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);

	return v ? buf_printf(out, "\"%s\"", v->name) : buf_printf(out, "%d", value);
}

/* One value; `p` points at it. */
static int write_value(struct buf *out, const ProtobufCFieldDescriptor *f, const void *p)
{
	const ProtobufCMessage *m;

	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return buf_printf(out, "%d", *(const int32_t *)p);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return buf_printf(out, "%u", *(const uint32_t *)p);
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return buf_printf(out, "\"%lld\"", (long long)*(const int64_t *)p);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return buf_printf(out, "\"%llu\"", (unsigned long long)*(const uint64_t *)p);
	case PROTOBUF_C_TYPE_BOOL:
		return buf_put_str(out, *(const protobuf_c_boolean *)p ? "true" : "false");
	case PROTOBUF_C_TYPE_ENUM:
		return write_enum(out, f->descriptor, *(const int *)p);
	case PROTOBUF_C_TYPE_STRING:
		return buf_put_json(out, *(char *const *)p ? *(char *const *)p : "");
	case PROTOBUF_C_TYPE_BYTES:
		return write_bytes(out, p);
	case PROTOBUF_C_TYPE_MESSAGE:
		m = *(const ProtobufCMessage *const *)p;
		return pbjson_is_timestamp(m->descriptor) ? write_timestamp(out, m)
							  : pbjson_write(out, m);
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
		break;
	}
	must(false);	/* the agent's messages have no such type */
	return -EINVAL;
}

size_t pbjson_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 8;
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 4;
	}
}

static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	static const char zero[sizeof(ProtobufCBinaryData)];
	const char *p = (const char *)m + f->offset;

	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return *(const size_t *)(const void *)((const char *)m + f->quantifier_offset) > 0;
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset) ==
		       f->id;
	if (f->type == PROTOBUF_C_TYPE_STRING) {
		const char *s = *(char *const *)(const void *)p;

		return s && *s;
	}
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return ((const ProtobufCBinaryData *)(const void *)p)->len > 0;
	return memcmp(p, zero, pbjson_size(f)) != 0;
}

static int write_repeated(struct buf *out, const ProtobufCMessage *m,
			  const ProtobufCFieldDescriptor *f)
{
	size_t n = *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
	const char *v = *(char *const *)(const void *)((const char *)m + f->offset);
	bool map = pbjson_is_map(f);
	int r = buf_put_str(out, map ? "{" : "[");

	for (size_t i = 0; i < n && !r; i++) {
		const char *p = v + i * pbjson_size(f);

		if (i)
			r = buf_put_str(out, ",");
		if (r || !map) {
			r = r ? r : write_value(out, f, p);
			continue;
		}
		const ProtobufCMessage *e = *(ProtobufCMessage *const *)(const void *)p;
		const ProtobufCMessageDescriptor *d = e->descriptor;

		r = write_value(out, &d->fields[0], (const char *)e + d->fields[0].offset);
		if (!r)
			r = buf_put_str(out, ":");
		if (!r)
			r = write_value(out, &d->fields[1], (const char *)e + d->fields[1].offset);
	}
	return r ? r : buf_put_str(out, map ? "}" : "]");
}

int pbjson_write(struct buf *out, const ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	char name[PBJSON_NAME_MAX];
	bool first = true;
	int r = buf_put_str(out, "{");

	for (unsigned i = 0; i < d->n_fields && !r; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];

		if (!is_set(m, f))
			continue;
		pbjson_name(f->name, name);
		r = buf_printf(out, "%s\"%s\":", first ? "" : ",", name);
		first = false;
		if (r)
			break;
		r = f->label == PROTOBUF_C_LABEL_REPEATED
			    ? write_repeated(out, m, f)
			    : write_value(out, f, (const char *)m + f->offset);
	}
	return r ? r : buf_put_str(out, "}");
}
