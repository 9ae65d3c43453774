/* SPDX-License-Identifier: MIT */
/* Invariant: nothing an object points to is owned by anything but the object. */
#include "client/lib/obj.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/agentbox.h"
#include "proto/base/must.h"

#define OBJ_MAGIC 0x61626f62u

struct piece {
	struct piece *next;
	max_align_t data[];
};

struct obj {
	uint32_t magic;
	ProtobufCMessage *owns;
	struct piece *pieces;
	struct obj *parts, *next_part;	/* objects that became part of this one */
	max_align_t data[];
};

static struct obj *obj_from(const void *object)
{
	struct obj *o = container_of(object, struct obj, data);

	must(o->magic == OBJ_MAGIC);
	return o;
}

void *obj_new(size_t n, ProtobufCMessage *owns)
{
	struct obj *o = calloc(1, sizeof(*o) + n);

	if (!o) {
		if (owns)
			protobuf_c_message_free_unpacked(owns, NULL);
		return NULL;
	}
	o->magic = OBJ_MAGIC;
	o->owns = owns;
	return o->data;
}

int obj_take(ProtobufCMessage *owns, const void *value, size_t n, void **ret)
{
	void *o = obj_new(n, owns);

	if (!o)
		return -ENOMEM;
	*ret = memcpy(o, value, n);
	return 0;
}

void *obj_alloc(void *object, size_t count, size_t size)
{
	struct obj *o = obj_from(object);
	struct piece *p;
	size_t n;

	if (__builtin_mul_overflow(count, size, &n) || __builtin_add_overflow(n, sizeof(*p), &n))
		return NULL;
	p = calloc(1, n);
	if (!p)
		return NULL;
	p->next = o->pieces;
	o->pieces = p;
	return p->data;
}

char *obj_strdup(void *object, const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = obj_alloc(object, n, 1);

	return copy ? memcpy(copy, s, n) : NULL;
}

void obj_adopt(void *object, const void *part)
{
	struct obj *o = obj_from(object), *p = obj_from(part);

	must(!p->next_part);
	p->next_part = o->parts;
	o->parts = p;
}

void obj_free(const void *object)
{
	struct obj *o;

	if (!object)
		return;
	o = obj_from(object);
	while (o->pieces) {
		struct piece *p = o->pieces;

		o->pieces = p->next;
		free(p);
	}
	while (o->parts) {
		struct obj *p = o->parts;

		o->parts = p->next_part;
		obj_free(p->data);
	}
	if (o->owns)
		protobuf_c_message_free_unpacked(o->owns, NULL);
	o->magic = 0;
	free(o);
}

void obj_freep(void *object)
{
	obj_free(*(void **)object);
}

void ab_free(const void *object)
{
	obj_free(object);
}
