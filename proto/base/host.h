/* SPDX-License-Identifier: MIT */
/* Hosts as text: names, addresses, "host:port". Nothing is resolved here. */
#ifndef AB_PROTO_BASE_HOST_H
#define AB_PROTO_BASE_HOST_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define HOST_MAX 253u

struct host_port {
	char host[HOST_MAX + 1];	/* without brackets; of no checked form */
	bool has_port;
	uint16_t port;
};

/* "host", "host:port", "[v6]", "[v6]:port". -EINVAL: no or a too long host, brackets that do not match, an
 * IPv6 address with a port and without brackets, a port that is no number up to 65535. */
must_check int host_port_parse(const char *s, size_t n, struct host_port *ret);

/* Labels of letters, digits, '-' and '_', 1 to 63 bytes each, no '-' at their ends, dots between them; at most
 * `max` bytes and no dot at the end. */
bool host_is_name(const char *s, size_t max);
/* "host" or "host:port", where host is a name or an address, and the port not 0. */
bool host_port_is_valid(const char *s);
bool host_is_address(const char *s);	/* IPv4 or IPv6, without brackets */
bool host_is_any(const char *s);	/* 0.0.0.0 or ::, which reach this machine */
/* This machine: 127.0.0.0/8, ::1, localhost and what is below it, with the dot of the root behind it or not. */
bool host_is_loopback(const char *s);

#endif
