/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/made_token.h"

#include <string.h>

#include "proto/base/str.h"
#include "proto/cloud/link.h"
#include "proto/cloud/model.h"

/* The secret goes before the text and before that sum: nobody can make the sum of a longer text. */
static void keyed_sum(const uint8_t secret[MADE_TOKEN_SECRET], const void *p, size_t n, uint8_t ret[32])
{
	uint8_t text[MADE_TOKEN_SECRET + CLOUD_SANDBOX_ID_MAX + 32];

	memcpy(text, secret, MADE_TOKEN_SECRET);
	memcpy(text + MADE_TOKEN_SECRET, p, n);
	cloud_sha256(text, MADE_TOKEN_SECRET + n, ret);
	explicit_bzero(text, sizeof(text));
}

void made_token(const uint8_t *secret, const char *sandbox, char ret[MADE_TOKEN_TEXT])
{
	size_t n = strlen(sandbox);
	uint8_t inner[32], sum[32];

	ret[0] = '\0';
	if (!secret || n > CLOUD_SANDBOX_ID_MAX)
		return;
	keyed_sum(secret, sandbox, n, inner);
	keyed_sum(secret, inner, sizeof(inner), sum);
	str_hex(sum, sizeof(sum), ret);
}
