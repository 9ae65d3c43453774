/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/keyed_sum.h"

#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/link.h"

static void sum_behind_key(const uint8_t key[KEYED_SUM_KEY], const void *p, size_t n, uint8_t ret[32])
{
	uint8_t text[KEYED_SUM_KEY + KEYED_SUM_MAX];

	must(n <= KEYED_SUM_MAX);
	memcpy(text, key, KEYED_SUM_KEY);
	memcpy(text + KEYED_SUM_KEY, p, n);
	cloud_sha256(text, KEYED_SUM_KEY + n, ret);
	explicit_bzero(text, sizeof(text));
}

/* The key goes before the text and before that sum: nobody can make the sum of a longer text. */
void keyed_sum(const uint8_t key[KEYED_SUM_KEY], const void *p, size_t n, char ret[KEYED_SUM_TEXT])
{
	uint8_t inner[32], sum[32];

	sum_behind_key(key, p, n, inner);
	sum_behind_key(key, inner, sizeof(inner), sum);
	str_hex(sum, sizeof(sum), ret);
}
