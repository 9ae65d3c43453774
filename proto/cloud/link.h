/* SPDX-License-Identifier: MIT */
/* Signatures of links to files, which stand for the access token of a sandbox; and the hash they are made with. */
#ifndef AB_PROTO_CLOUD_LINK_H
#define AB_PROTO_CLOUD_LINK_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define CLOUD_LINK_FOREVER INT64_MIN

void cloud_sha256(const void *p, size_t n, uint8_t ret[32]);

/* "v1_" and the unpadded base64 of SHA-256(path:read|write:user:token[:expiry]). `user` "" = none named; expiry in s
 * since 1970. Heap; NULL without memory. */
char *cloud_link_sign(const char *path, bool write, const char *user, const char *token, int64_t expires_s);

#endif
