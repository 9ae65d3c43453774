/* SPDX-License-Identifier: MIT */
#include "daemon/local/state/sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/link.h"

void sign_token(const uint8_t seed[SIGN_SEED_BYTES], const char *text, char ret[65])
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	must(HMAC(EVP_sha256(), seed, (int)SIGN_SEED_BYTES, (const uint8_t *)text, strlen(text),
		  mac, &n));
	must(n == 32);
	str_hex(mac, n, ret);
}

void sign_sha256_hex(const void *p, size_t n, char ret[65])
{
	uint8_t hash[32];

	cloud_sha256(p, n, hash);
	str_hex(hash, sizeof(hash), ret);
}
