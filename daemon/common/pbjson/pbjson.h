/* SPDX-License-Identifier: MIT */
/*
 * protobuf messages as JSON, by the rules of protojson: lowerCamelCase names, bytes as base64, 64-bit
 * numbers as strings, enums by name, default values left out, unknown fields ignored. It works on
 * the descriptors of protobuf-c. A map field is a repeated message of the two fields key and value.
 * Not supported, because the agent's messages have none: floating point, maps of anything but
 * strings, well-known types other than Timestamp. Pure.
 */
#ifndef AB_DAEMON_COMMON_PBJSON_PBJSON_H
#define AB_DAEMON_COMMON_PBJSON_PBJSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "proto/base/buf.h"

#define PBJSON_WHY_MAX 160u

/* Appends. Strings that are not UTF-8 get U+FFFD where they are not. 0, -ENOMEM, -ENOBUFS. */
must_check int pbjson_write(struct buf *out, const ProtobufCMessage *m);

/* The caller frees by protobuf_c_message_free_unpacked(m, NULL). 0, -EINVAL with `why`, -ENOMEM. */
must_check int pbjson_read(const char *text, size_t n, const ProtobufCMessageDescriptor *type,
			   char why[PBJSON_WHY_MAX], ProtobufCMessage **ret);
/* The same, but an unknown field is an error, too. */
must_check int pbjson_read_known(const char *text, size_t n, const ProtobufCMessageDescriptor *type,
				 char why[PBJSON_WHY_MAX], ProtobufCMessage **ret);

#endif
