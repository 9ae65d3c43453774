/* SPDX-License-Identifier: MIT */
/* The Connect protocol's codes: their words, and the HTTP status of a unary answer. Their numbers are gRPC's. */
#ifndef AB_PROTO_WIRE_CONNECT_CODE_H
#define AB_PROTO_WIRE_CONNECT_CODE_H

#include "proto/base/status.h"

const char *connect_code_name(enum ab_code code);	/* "not_found"; of no OK */
unsigned connect_code_http(enum ab_code code);
/* CODE_UNKNOWN for a word that is none. */
enum ab_code connect_code_by_name(const char *name);

#endif
