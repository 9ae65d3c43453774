/* SPDX-License-Identifier: MIT */
/* Tokens of sandboxes. Pure. */
#ifndef AB_DAEMON_LOCAL_STATE_SIGN_H
#define AB_DAEMON_LOCAL_STATE_SIGN_H

#include "proto/base/cc.h"

#define SIGN_SEED_BYTES 32u

/* hex(HMAC-SHA256(seed, text)) */
void sign_token(const uint8_t seed[SIGN_SEED_BYTES], const char *text, char ret[65]);
void sign_sha256_hex(const void *p, size_t n, char ret[65]);

#endif
