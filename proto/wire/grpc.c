/* SPDX-License-Identifier: MIT */
#include "proto/wire/grpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

#define TIMEOUT_DIGITS_MAX 8u

int grpc_timeout_parse(const char *s, uint64_t *ret_ms)
{
	size_t n = strspn(s, "0123456789");
	uint64_t v;

	if (!n || n > TIMEOUT_DIGITS_MAX || !s[n] || s[n + 1])
		return -EINVAL;
	if (str_u64(s, n, UINT64_MAX, &v) < 0)
		return -EINVAL;
	switch (s[n]) {
	case 'H':
		*ret_ms = v * 3600000;
		return 0;
	case 'M':
		*ret_ms = v * 60000;
		return 0;
	case 'S':
		*ret_ms = v * 1000;
		return 0;
	case 'm':
		*ret_ms = v;
		return 0;
	case 'u':
		*ret_ms = (v + 999) / 1000;
		return 0;
	case 'n':
		*ret_ms = (v + 999999) / 1000000;
		return 0;
	default:
		return -EINVAL;
	}
}

void grpc_timeout_format(uint64_t ms, char ret[16])
{
	const uint64_t max = 99999999;

	if (ms <= max)
		snprintf(ret, 16, "%llum", (unsigned long long)ms);
	else if (ms / 1000 <= max)
		snprintf(ret, 16, "%lluS", (unsigned long long)((ms + 999) / 1000));
	else
		snprintf(ret, 16, "%lluM", (unsigned long long)MIN(ms / 60000, max));
}

char *grpc_message_encode(const char *s)
{
	char *out = malloc(strlen(s) * 3 + 1), *at = out;

	if (!out)
		return NULL;
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c >= 0x20 && c <= 0x7e && c != '%')
			*at++ = (char)c;
		else
			at = str_percent_byte(at, c);
	}
	*at = 0;
	return out;
}

void grpc_message_decode(char *s)
{
	char *at = s;

	while (*s) {
		int hi = *s == '%' ? str_hex_value(s[1]) : -1, lo = hi < 0 ? -1 : str_hex_value(s[2]);

		if (lo >= 0 && (hi || lo)) {
			*at++ = (char)(hi << 4 | lo);
			s += 3;
		} else {
			*at++ = *s++;
		}
	}
	*at = 0;
}

int grpc_request_head(struct fields *f, const char *path, const char *authority, uint64_t timeout_ms,
		      const char *user_agent)
{
	char timeout[16];
	int r = fields_put(f, ":method", "POST");

	if (!r)
		r = fields_put(f, ":scheme", "http");
	if (!r)
		r = fields_put(f, ":path", path);
	if (!r)
		r = fields_put(f, ":authority", authority);
	if (!r)
		r = fields_put(f, "content-type", "application/grpc");
	if (!r)
		r = fields_put(f, "te", "trailers");
	if (!r && user_agent)
		r = fields_put(f, "user-agent", user_agent);
	if (!r && timeout_ms) {
		grpc_timeout_format(timeout_ms, timeout);
		r = fields_put(f, "grpc-timeout", timeout);
	}
	return r;
}

int grpc_response_head(struct fields *f)
{
	int r = fields_put(f, ":status", "200");

	return r ? r : fields_put(f, "content-type", "application/grpc");
}

int grpc_trailers(struct fields *f, enum ab_code code, const char *message, const void *details,
		  size_t n_details)
{
	int r = fields_printf(f, "grpc-status", "%d", (int)code);
	char *text;

	if (!r && !str_is_empty(message)) {
		text = grpc_message_encode(message);
		r = text ? fields_put(f, "grpc-message", text) : -ENOMEM;
		free(text);
	}
	if (!r && n_details) {
		text = str_base64_encode(details, n_details, false);
		r = text ? fields_put(f, "grpc-status-details-bin", text) : -ENOMEM;
		free(text);
	}
	return r;
}

int grpc_check_request(const struct fields *head)
{
	const char *method = fields_get(head, ":method"), *path = fields_get(head, ":path");
	const char *type = fields_get(head, "content-type");
	const char *kind = "application/grpc";

	if (!method || !str_eq(method, "POST"))
		return 405;
	if (!type || !str_starts(type, kind) ||
	    (type[strlen(kind)] && !strchr("+;", type[strlen(kind)])) ||
	    (type[strlen(kind)] == '+' && !str_starts(type + strlen(kind), "+proto")))
		return 415;
	if (!path || path[0] != '/')
		return 400;
	return 0;
}

enum ab_code grpc_code_from_http(unsigned http_status)
{
	switch (http_status) {
	case 400:
		return CODE_INTERNAL;
	case 401:
		return CODE_UNAUTHENTICATED;
	case 403:
		return CODE_PERMISSION_DENIED;
	case 404:
		return CODE_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return CODE_UNAVAILABLE;
	default:
		return CODE_UNKNOWN;
	}
}

enum ab_code grpc_status_read(const struct fields *f, const char **ret_message, uint8_t **ret_details,
			      size_t *ret_n_details)
{
	const char *status = fields_get(f, "grpc-status"), *http = fields_get(f, ":status");
	const char *details = fields_get(f, "grpc-status-details-bin");
	uint64_t code, http_status = 200;

	*ret_message = fields_get(f, "grpc-message");
	if (!*ret_message)
		*ret_message = "";
	*ret_details = NULL;
	*ret_n_details = 0;
	if (!status || str_u64(status, strlen(status), 16, &code) < 0) {
		if (http && str_u64(http, strlen(http), 999, &http_status) < 0)
			http_status = 0;
		return grpc_code_from_http((unsigned)http_status);
	}
	if (details) {
		size_t n = strlen(details);
		uint8_t *mem = malloc(n + 1);
		ssize_t len = mem ? str_base64_decode(details, n, mem) : -1;

		if (len < 0) {
			free(mem);
		} else {
			*ret_details = mem;
			*ret_n_details = (size_t)len;
		}
	}
	return (enum ab_code)code;
}
