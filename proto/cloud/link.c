/* SPDX-License-Identifier: MIT */
#include "proto/cloud/link.h"

#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

void cloud_sha256(const void *p, size_t n, uint8_t ret[32])
{
	SHA256(p, n, ret);
}

char *cloud_link_sign(const char *path, bool write, const char *user, const char *token, int64_t expires_s)
{
	char until[24] = "", *raw, *coded, *out;
	uint8_t hash[32];

	if (expires_s != CLOUD_LINK_FOREVER)
		snprintf(until, sizeof(until), ":%" PRId64, expires_s);
	raw = str_printf("%s:%s:%s:%s%s", path, write ? "write" : "read", user, token, until);
	if (!raw)
		return NULL;
	cloud_sha256(raw, strlen(raw), hash);
	explicit_bzero(raw, strlen(raw));
	free(raw);
	coded = str_base64_encode(hash, sizeof(hash), false);
	out = coded ? str_printf("v1_%s", coded) : NULL;
	free(coded);
	return out;
}
