/* SPDX-License-Identifier: MIT */
/* See the header. */
#include "daemon/local/state/sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

void sign_token(const uint8_t seed[SIGN_SEED_BYTES], const char *text, char ret[65])
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	must(HMAC(EVP_sha256(), seed, (int)SIGN_SEED_BYTES, (const uint8_t *)text, strlen(text),
		  mac, &n));
	must(n == 32);
	str_hex(mac, n, ret);
}

static void sha256(const void *p, size_t n, uint8_t ret[32])
{
	unsigned len = 0;

	must(EVP_Digest(p, n, ret, &len, EVP_sha256(), NULL) == 1);
	must(len == 32);
}

void sign_sha256_hex(const void *p, size_t n, char ret[65])
{
	uint8_t hash[32];

	sha256(p, n, hash);
	str_hex(hash, sizeof(hash), ret);
}

char *sign_file(const char *path, const char *op, const char *user, const char *token,
		int64_t expires_s)
{
	char *raw, *b64, *out = NULL;
	uint8_t hash[32];

	raw = expires_s == SIGN_NO_EXPIRY
		      ? str_printf("%s:%s:%s:%s", path, op, user, token)
		      : str_printf("%s:%s:%s:%s:%lld", path, op, user, token,
				   (long long)expires_s);
	if (!raw)
		return NULL;
	sha256(raw, strlen(raw), hash);
	free(raw);
	b64 = str_base64_encode(hash, sizeof(hash), false);
	if (b64)
		out = str_printf("v1_%s", b64);
	free(b64);
	return out;
}
