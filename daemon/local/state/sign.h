/* SPDX-License-Identifier: MIT */
/* Tokens of sandboxes and signatures of file URLs. Pure. */
#ifndef AB_DAEMON_LOCAL_STATE_SIGN_H
#define AB_DAEMON_LOCAL_STATE_SIGN_H

#include "proto/base/cc.h"

#define SIGN_SEED_BYTES 32u
#define SIGN_NO_EXPIRY	INT64_MIN

/* hex(HMAC-SHA256(seed, text)) */
void sign_token(const uint8_t seed[SIGN_SEED_BYTES], const char *text, char ret[65]);
void sign_sha256_hex(const void *p, size_t n, char ret[65]);

/* "v1_" and the unpadded base64 of SHA-256(path:op:user:token[:expiry]); heap, NULL without memory. */
char *sign_file(const char *path, const char *op, const char *user, const char *token,
		int64_t expires_s);

#endif
