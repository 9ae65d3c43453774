/* SPDX-License-Identifier: MIT */
/*
 * For which host a connection is, by its first bytes: the server name of a TLS ClientHello, or the
 * Host of an HTTP/1 request. Pure. Whatever is not beyond doubt has no name.
 */
#ifndef AB_DAEMON_LOCAL_EGRESS_SNIFF_H
#define AB_DAEMON_LOCAL_EGRESS_SNIFF_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define SNIFF_MAX_BYTES 16384u	/* a name that has not come by then is none */
#define SNIFF_NAME_MAX	253u

enum sniff {
	SNIFF_MORE,		/* these bytes may become one of the others */
	SNIFF_NONE,
	SNIFF_TLS,
	SNIFF_HTTP,
};

/* *ret is written for TLS and HTTP: in lower case, without port and without a dot at its end; never
 * an address. */
enum sniff sniff_name(const uint8_t *p, size_t n, char ret[SNIFF_NAME_MAX + 1]);

/* "A.test:80" → "a.test", by the same rules. */
bool sniff_host(const char *host, char ret[SNIFF_NAME_MAX + 1]);

#endif
