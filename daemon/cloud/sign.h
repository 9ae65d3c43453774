/* SPDX-License-Identifier: MIT */
/* Hashing for the layers that may not see OpenSSL. */
#ifndef AB_DAEMON_CLOUD_SIGN_H
#define AB_DAEMON_CLOUD_SIGN_H

#include <stdbool.h>

#include "proto/base/cc.h"

void sign_sha256(const void *p, size_t n, uint8_t ret[32]);

/* The signature of a file's link (CLOUD-WIRE §5.6); user "" = none named, expires_s 0 = none. Heap;
 * NULL without memory. */
char *sign_link(const char *path, bool write, const char *user, const char *token, int64_t expires_s);

#endif
