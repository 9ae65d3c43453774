/* SPDX-License-Identifier: MIT */
/* What network settings that the contract allows cannot be had here, and the host that a port is asked with. Pure. */
#ifndef AB_DAEMON_LOCAL_EGRESS_NETRULE_H
#define AB_DAEMON_LOCAL_EGRESS_NETRULE_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_network;

/* What is in order and still cannot be had here, or not on a machine without `egress`: its name, or
 * NULL. */
const char *netrule_unsupported(const struct cloud_network *n, bool egress);
/* Lists that are longer than what is compiled for each sandbox. */
bool netrule_is_too_long(const struct cloud_network *n);

/* "localhost:${PORT}" and 8080 → "localhost:8080"; heap, NULL without memory. */
char *netrule_mask_host(const char *mask, uint64_t port);

#endif
