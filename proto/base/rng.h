/* SPDX-License-Identifier: MIT */
/* Chance behind one handle: seedable for tests (jitter), the kernel's for secrets and ids. */
#ifndef AB_PROTO_BASE_RNG_H
#define AB_PROTO_BASE_RNG_H

#include "proto/base/cc.h"

struct rng {
	uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
/* Uniform in [0, n); n > 0. */
uint64_t rng_below(struct rng *r, uint64_t n);

/* Bytes from the kernel; cannot fail after early boot. */
void rng_system(void *p, size_t n);
/* n characters from [a-z0-9] from the kernel's source, plus a NUL: `ret` holds n + 1 bytes. */
void rng_id(char *ret, size_t n);

#endif
