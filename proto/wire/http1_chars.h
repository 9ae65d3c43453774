/* SPDX-License-Identifier: MIT */
/* What the three files http1*.c share: character classes and one field line. */
#ifndef AB_PROTO_WIRE_HTTP1_CHARS_H
#define AB_PROTO_WIRE_HTTP1_CHARS_H

#include "proto/wire/http1.h"

bool http1_is_token(const uint8_t *p, size_t n);	/* at least one byte */
bool http1_is_value(const uint8_t *p, size_t n);	/* no control byte but tab */
/* "Name: value" without its line end → a field with a lower-case name. MORE = added. */
must_check enum http1_result http1_field_line(struct fields *out, const uint8_t *p, size_t n);

#endif
