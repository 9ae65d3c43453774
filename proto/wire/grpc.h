/* SPDX-License-Identifier: MIT */
/*
 * gRPC's rules over HTTP/2 that both roles need: request and response heads, timeout, status and
 * message coding, and the HTTP status → gRPC code table for answers that are not gRPC.
 * The details of a status (google.rpc.Status in grpc-status-details-bin) are bytes here.
 */
#ifndef AB_PROTO_WIRE_GRPC_H
#define AB_PROTO_WIRE_GRPC_H

#include "proto/base/status.h"
#include "proto/wire/fields.h"

/* "1500m" etc. → ms, rounded up; 0 stays 0. -EINVAL: more than 8 digits or no unit. */
must_check int grpc_timeout_parse(const char *s, uint64_t *ret_ms);
/* Writes e.g. "29999m"; never more than 8 digits. */
void grpc_timeout_format(uint64_t ms, char ret[16]);

/* Percent-codes what is not printable ASCII or is '%'. Heap; NULL without memory. */
char *grpc_message_encode(const char *s);
/* In place; bad escapes stay as they are. */
void grpc_message_decode(char *s);

/* POST head of a call. timeout_ms 0 = none. `path` is "/pkg.Service/Method". */
must_check int grpc_request_head(struct fields *f, const char *path, const char *authority,
				 uint64_t timeout_ms, const char *user_agent);
/* ":status 200, content-type application/grpc". */
must_check int grpc_response_head(struct fields *f);
/* Appends grpc-status, grpc-message and, if n_details, grpc-status-details-bin. */
must_check int grpc_trailers(struct fields *f, enum ab_code code, const char *message,
			     const void *details, size_t n_details);

/* What the server thinks of a request head: 0 ok; else the HTTP status to answer (405, 415, 400). */
int grpc_check_request(const struct fields *head);

/* The client's view of the end: trailers, or the head of a trailers-only answer. *ret_message points
 * into `f` (still percent-coded); *ret_details is heap, may be NULL. Missing or malformed
 * grpc-status → the code from the HTTP table (200 → CODE_UNKNOWN). */
enum ab_code grpc_status_read(const struct fields *f, const char **ret_message, uint8_t **ret_details,
			      size_t *ret_n_details);
enum ab_code grpc_code_from_http(unsigned http_status);

#endif
