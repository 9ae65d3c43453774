/* SPDX-License-Identifier: MIT */
/*
 * One recursive walk; its depth is bounded by SCAN_DEPTH_MAX before it goes down, so the stack is
 * too. Memory is an upper estimate of what protobuf-c's unpack will hold at its worst moment.
 */
#include "proto/gen/scan.h"

#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

#define HEAP_OVERHEAD	16u	/* of one allocation */
#define SCANNED_MEMBER	96u	/* protobuf-c notes each field it meets (40 bytes) in doubling slabs */

struct scan {
	const struct scan_limits *limits;
	struct scan_error *err;
	size_t memory;
	size_t max_memory;
	unsigned depth;
	const ProtobufCFieldDescriptor *path[SCAN_DEPTH_MAX];	/* fields that lead to the current one */
};

struct bytes {
	const uint8_t *p, *end;
};

/* One message being walked: how often each of its fields came. */
struct frame {
	const ProtobufCMessageDescriptor *type;
	uint32_t count[SCAN_FIELDS_MAX];
};

static enum scan_result scan_fields(struct scan *s, const ProtobufCMessageDescriptor *type,
				    struct bytes in);

bool scan_is_map_entry(const ProtobufCMessageDescriptor *m)
{
	size_t n = m->short_name ? strlen(m->short_name) : 0;

	return n > 5 && !strcmp(m->short_name + n - 5, "Entry") && m->n_fields == 2 &&
	       m->fields[0].id == 1 && m->fields[0].name && !strcmp(m->fields[0].name, "key") &&
	       m->fields[1].id == 2 && m->fields[1].name && !strcmp(m->fields[1].name, "value");
}

/* Notes where it happened: the fields on the way, then `f`; key and value of a map are left out. */
static enum scan_result scan_failed_one(struct scan *s, const ProtobufCFieldDescriptor *f,
					enum scan_result r)
{
	size_t used = 0;

	if (!s->err)
		return r;
	s->err->path[0] = '\0';
	for (unsigned i = 0; i <= s->depth; i++) {
		const ProtobufCFieldDescriptor *step = i < s->depth ? s->path[i] : f;
		size_t n = step && step->name ? strlen(step->name) : 0;
		bool in_map = i > 0 && s->path[i - 1]->descriptor &&
			      scan_is_map_entry(s->path[i - 1]->descriptor);

		if (!n || in_map || used + n + 2 > SCAN_PATH_MAX)
			continue;
		if (used)
			s->err->path[used++] = '.';
		memcpy(s->err->path + used, step->name, n + 1);
		used += n;
	}
	return r;
}

static enum scan_result charge(struct scan *s, const ProtobufCFieldDescriptor *f, size_t n)
{
	if (n > s->max_memory - s->memory)
		return scan_failed_one(s, f, SCAN_MEMORY);
	s->memory += n;
	return SCAN_OK;
}

/* Tags and lengths have at most 5 bytes, values 10. */
static bool take_varint(struct bytes *in, unsigned max_bytes, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < max_bytes && in->p < in->end; i++) {
		uint8_t b = *in->p++;

		if (i == 9 && b > 1)	/* more than 64 bits */
			return false;
		v |= (uint64_t)(b & 0x7f) << (7 * i);
		if (b < 0x80) {
			*ret = v;
			return true;
		}
	}
	return false;
}

static bool take_bytes(struct bytes *in, uint64_t n, struct bytes *ret)
{
	if (n > (uint64_t)(in->end - in->p))
		return false;
	*ret = (struct bytes){ in->p, in->p + n };
	in->p += n;
	return true;
}

/* The value of one field, whatever it means: for varints and fixed ones the bytes as they are. */
static bool take_value(struct bytes *in, unsigned wire, struct bytes *ret)
{
	const uint8_t *begin = in->p;
	uint64_t n;

	switch (wire) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		if (!take_varint(in, 10, &n))
			return false;
		*ret = (struct bytes){ begin, in->p };
		return true;
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		return take_bytes(in, 8, ret);
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		return take_bytes(in, 4, ret);
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		return take_varint(in, 5, &n) && n <= INT32_MAX && take_bytes(in, n, ret);
	default:
		return false;
	}
}

static unsigned wire_of(ProtobufCType t)
{
	switch (t) {
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return PROTOBUF_C_WIRE_TYPE_32BIT;
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return PROTOBUF_C_WIRE_TYPE_64BIT;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	default:
		return PROTOBUF_C_WIRE_TYPE_VARINT;
	}
}

/* How many values a packed block holds. */
static bool count_packed(ProtobufCType t, struct bytes v, size_t *ret)
{
	size_t n = (size_t)(v.end - v.p), size = wire_of(t) == PROTOBUF_C_WIRE_TYPE_64BIT ? 8 : 4;
	uint64_t ignored;

	if (wire_of(t) != PROTOBUF_C_WIRE_TYPE_VARINT) {
		*ret = n / size;
		return n % size == 0;
	}
	for (*ret = 0; v.p < v.end; ++*ret)
		if (!take_varint(&v, t == PROTOBUF_C_TYPE_BOOL ? 1 : 10, &ignored))
			return false;
	return true;
}

static uint32_t cap_of(const struct scan *s, const ProtobufCFieldDescriptor *f)
{
	for (size_t i = 0; f->name && i < s->limits->n_caps; i++)
		if (!strcmp(s->limits->caps[i].field, f->name))
			return s->limits->caps[i].max;
	return s->limits->max_elements ? s->limits->max_elements : SCAN_ELEMENTS_MAX;
}

/* `n` more elements of a field; each takes a slot in the array. */
static enum scan_result count(struct scan *s, struct frame *frame, unsigned index, size_t n)
{
	const ProtobufCFieldDescriptor *f = &frame->type->fields[index];
	uint32_t max;

	if (f->label != PROTOBUF_C_LABEL_REPEATED) {
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && frame->count[index]++)
			return scan_failed_one(s, f, SCAN_MALFORMED);
		return SCAN_OK;
	}
	max = cap_of(s, f);
	if (n > max - frame->count[index]) {
		if (s->err)
			s->err->max = max;
		return scan_failed_one(s, f, SCAN_COUNT);
	}
	frame->count[index] += (uint32_t)n;
	return charge(s, f, n * sizeof(ProtobufCBinaryData) + HEAP_OVERHEAD);
}

static enum scan_result go_down(struct scan *s, const ProtobufCFieldDescriptor *f, struct bytes v)
{
	enum scan_result r;

	if (s->depth + 1 >= SCAN_DEPTH_MAX)
		return scan_failed_one(s, f, SCAN_DEPTH);
	s->path[s->depth++] = f;
	r = scan_fields(s, f->descriptor, v);
	s->depth--;
	return r;
}

static enum scan_result scan_value(struct scan *s, struct frame *frame, unsigned index,
				   unsigned wire, struct bytes v)
{
	const ProtobufCFieldDescriptor *f = &frame->type->fields[index];
	size_t n = (size_t)(v.end - v.p), elements = 1;
	enum scan_result r;

	if (wire != wire_of(f->type)) {
		if (f->label != PROTOBUF_C_LABEL_REPEATED ||
		    wire != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED || !count_packed(f->type, v, &elements))
			return scan_failed_one(s, f, SCAN_MALFORMED);
	}
	r = count(s, frame, index, elements);
	if (r)
		return r;

	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		return go_down(s, f, v);
	case PROTOBUF_C_TYPE_STRING:
		if (!str_is_utf8(v.p, n))
			return scan_failed_one(s, f, SCAN_TEXT);
		fallthrough_;
	case PROTOBUF_C_TYPE_BYTES:
		return charge(s, f, n + 1 + HEAP_OVERHEAD);
	default:
		return SCAN_OK;
	}
}

static enum scan_result scan_fields(struct scan *s, const ProtobufCMessageDescriptor *type,
				    struct bytes in)
{
	scratch_ struct frame frame;
	enum scan_result r;

	must(type->n_fields <= SCAN_FIELDS_MAX);
	frame.type = type;
	memset(frame.count, 0, type->n_fields * sizeof(frame.count[0]));
	r = charge(s, NULL, type->sizeof_message + HEAP_OVERHEAD);
	while (!r && in.p < in.end) {
		const ProtobufCFieldDescriptor *f;
		struct bytes v;
		uint64_t tag;

		/* Field numbers have 29 bits; 0 is none. */
		if (!take_varint(&in, 5, &tag) || tag > UINT32_MAX || tag < 8 ||
		    !take_value(&in, tag & 7, &v))
			return scan_failed_one(s, NULL, SCAN_MALFORMED);
		f = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
		r = charge(s, f, SCANNED_MEMBER);
		if (!r && f)
			r = scan_value(s, &frame, (unsigned)(f - type->fields), tag & 7, v);
		else if (!r)
			r = charge(s, NULL, sizeof(ProtobufCMessageUnknownField) + HEAP_OVERHEAD +
						    (size_t)(v.end - v.p));
	}
	return r;
}

enum scan_result scan_message(const ProtobufCMessageDescriptor *type, const void *p, size_t n,
			      const struct scan_limits *limits, struct scan_error *err)
{
	size_t memory;

	return scan_measure(type, p, n, limits, err, &memory);
}

enum scan_result scan_measure(const ProtobufCMessageDescriptor *type, const void *p, size_t n,
			      const struct scan_limits *limits, struct scan_error *err, size_t *ret_memory)
{
	enum scan_result r;
	static const struct scan_limits none;
	struct scan s = { .limits = limits ? limits : &none, .err = err };
	struct bytes in = { p, (const uint8_t *)p + n };

	s.max_memory = s.limits->max_memory_bytes;
	if (!s.max_memory)
		s.max_memory = MAX(n > SIZE_MAX / SCAN_MEMORY_FACTOR ? SIZE_MAX :
								       n * SCAN_MEMORY_FACTOR,
				   (size_t)SCAN_MEMORY_FLOOR);
	r = n ? scan_fields(&s, type, in) : SCAN_OK;
	*ret_memory = s.memory;
	return r;
}

const char *scan_result_text(enum scan_result r)
{
	switch (r) {
	case SCAN_OK:
		return "is fine";
	case SCAN_MALFORMED:
		return "is not a valid protobuf encoding";
	case SCAN_DEPTH:
		return "is nested too deeply";
	case SCAN_COUNT:
		return "has too many elements";
	case SCAN_TEXT:
		return "is not UTF-8 without NUL";
	case SCAN_MEMORY:
		return "needs too much memory";
	}
	return "is bad";
}
