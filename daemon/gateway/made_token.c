/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/made_token.h"

#include <string.h>

#include "daemon/gateway/keyed_sum.h"
#include "proto/cloud/model.h"

void made_token(const uint8_t *secret, const char *sandbox, char ret[MADE_TOKEN_TEXT])
{
	size_t n = strlen(sandbox);

	ret[0] = '\0';
	if (!secret || n > CLOUD_SANDBOX_ID_MAX)
		return;
	keyed_sum(secret, sandbox, n, ret);
}
