/* SPDX-License-Identifier: MIT */
/* The contract's rules for network settings: what the cloud refuses, and with which status. Pure. */
#ifndef AB_DAEMON_LOCAL_EGRESS_NETRULE_H
#define AB_DAEMON_LOCAL_EGRESS_NETRULE_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/base/cc.h"

struct netrule_fault {
	unsigned status;	/* 400 */
	bool schema;		/* its message has the prefix of the schema's check */
	char text[240];		/* may be cut inside a character */
};

/* allowOut, denyOut, egressProxy, rules of `o`. True if they are in order. */
bool netrule_egress_ok(const json_t *o, struct netrule_fault *ret);
/* allowPublicTraffic and maskRequestHost. */
bool netrule_ingress_ok(const json_t *o, bool secure, struct netrule_fault *ret);
/* What is in order and still cannot be had here, or not on a machine without `egress`: its name, or
 * NULL. */
const char *netrule_unsupported(const json_t *o, bool egress);
/* It has rules that set something. */
bool netrule_has_headers(const json_t *o);

/* "localhost:${PORT}" and 8080 → "localhost:8080"; heap, NULL without memory. */
char *netrule_mask_host(const char *mask, uint64_t port);

#endif
