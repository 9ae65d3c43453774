/* SPDX-License-Identifier: MIT */
/*
 * Objects that the library hands out. Each is one block with a hidden head that owns whatever the
 * public struct points to: the message it was made from, and pieces allocated for it. So one
 * ab_free() ends any of them, and strings of the message are handed out without a copy.
 */
#ifndef AB_CLIENT_LIB_OBJ_H
#define AB_CLIENT_LIB_OBJ_H

#include <protobuf-c/protobuf-c.h>

#include "proto/base/cc.h"

/* A zeroed object of n bytes that takes `owns` (may be NULL) from the caller, also when it fails.
 * NULL without memory. */
void *obj_new(size_t n, ProtobufCMessage *owns);
/* An object that is a copy of n bytes, which may point into `owns`. 0, -ENOMEM. */
must_check int obj_take(ProtobufCMessage *owns, const void *value, size_t n, void **ret);
/* A zeroed piece that lives as long as the object. NULL without memory. */
void *obj_alloc(void *object, size_t count, size_t size);
char *obj_strdup(void *object, const char *s);
/* Makes another object part of this one. */
void obj_adopt(void *object, const void *part);
void obj_free(const void *object);
void obj_freep(void *object);	/* for scoped(): takes the address of the pointer */

#endif
