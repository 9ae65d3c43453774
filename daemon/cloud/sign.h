/* SPDX-License-Identifier: MIT */
/* Hashing for the layers that may not see OpenSSL. */
#ifndef AB_DAEMON_CLOUD_SIGN_H
#define AB_DAEMON_CLOUD_SIGN_H

#include "proto/base/cc.h"

void sign_sha256(const void *p, size_t n, uint8_t ret[32]);

#endif
