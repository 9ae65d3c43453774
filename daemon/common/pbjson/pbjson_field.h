/* SPDX-License-Identifier: MIT */
/* What pbjson.c and pbjson_read.c both have to know about a field. Private to the two. */
#ifndef AB_DAEMON_COMMON_PBJSON_PBJSON_FIELD_H
#define AB_DAEMON_COMMON_PBJSON_PBJSON_FIELD_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#define PBJSON_NAME_MAX 64u

bool pbjson_is_map(const ProtobufCFieldDescriptor *f);
bool pbjson_is_timestamp(const ProtobufCMessageDescriptor *d);
/* some_name → someName */
void pbjson_name(const char *snake, char ret[PBJSON_NAME_MAX]);
/* Of one value in memory. */
size_t pbjson_size(const ProtobufCFieldDescriptor *f);

#endif
