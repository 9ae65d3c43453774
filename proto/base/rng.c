/* SPDX-License-Identifier: MIT */
#include "proto/base/rng.h"

#include <errno.h>
#include <sys/random.h>

#include "proto/base/must.h"

void rng_seed(struct rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++) { /* splitmix64 */
		uint64_t z = (seed += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		r->s[i] = z ^ (z >> 31);
	}
}

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

uint64_t rng_u64(struct rng *r) /* xoshiro256** */
{
	uint64_t result = rotl(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;

	r->s[2] ^= r->s[0];
	r->s[3] ^= r->s[1];
	r->s[1] ^= r->s[2];
	r->s[0] ^= r->s[3];
	r->s[2] ^= t;
	r->s[3] = rotl(r->s[3], 45);
	return result;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)rng_u64(r) * n) >> 64);
}

void rng_system(void *p, size_t n)
{
	uint8_t *at = p;

	while (n) {
		ssize_t r = getrandom(at, n, 0);

		if (r < 0 && errno == EINTR)
			continue;
		must(r > 0);
		at += r;
		n -= (size_t)r;
	}
}

void rng_id(char *ret, size_t n)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t i = 0;

	while (i < n) {
		uint8_t b[32];

		rng_system(b, sizeof(b));
		for (size_t k = 0; k < sizeof(b) && i < n; k++)
			if (b[k] < 252) /* 7 * 36: no bias */
				ret[i++] = alphabet[b[k] % 36];
	}
	ret[n] = 0;
}
