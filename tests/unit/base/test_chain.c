/* SPDX-License-Identifier: MIT */
#include "proto/base/chain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/rng.h"
#include "tests/lib/test.h"

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 131 + (i >> 9));
}

static void put(struct chain *c, size_t at, size_t n, size_t soon)
{
	uint8_t *p = malloc(n + 1);

	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(at + i);
	CHECK_INT(chain_put(c, p, n, soon), 0);
	free(p);
}

/* n bytes come out in order, in pieces of which none is empty. */
static void take(struct chain *c, size_t at, size_t n)
{
	const uint8_t *p;

	while (n) {
		size_t k = MIN(chain_peek(c, &p), n);

		CHECK(k > 0);
		for (size_t i = 0; i < k; i++)
			CHECK(p[i] == byte_at(at + i));
		chain_drop(c, k);
		at += k;
		n -= k;
	}
}

TEST(what_came_until_something_is_dropped_is_one_piece)
{
	struct chain c = { 0 };
	const uint8_t *p;

	for (size_t at = 0; at < CHAIN_WHOLE_BYTES; at += 512) {
		put(&c, at, 512, 512);
		CHECK_INT(chain_peek(&c, &p), at + 512);
	}
	put(&c, CHAIN_WHOLE_BYTES, 1, 1);
	CHECK_INT(chain_len(&c), CHAIN_WHOLE_BYTES + 1);
	take(&c, 0, CHAIN_WHOLE_BYTES + 1);
	CHECK_INT(chain_peek(&c, &p), 0);
}

TEST(what_waits_is_not_moved_by_what_comes)
{
	struct chain c = { 0 };
	const uint8_t *first, *p;

	put(&c, 0, 16384, 262144);
	chain_peek(&c, &first);
	for (size_t at = 16384; at < 4u << 20; at += 16384)
		put(&c, at, 16384, 262144);
	CHECK_INT(chain_peek(&c, &p), 262144);
	CHECK(p == first);
	take(&c, 0, 4u << 20);
}

TEST(any_sequence_comes_out_in_order_and_gives_back_what_it_took)
{
	struct quota_options o = { .max = 8u << 20, .name = "test" };
	struct quota *q = quota_new(&o);
	struct chain c = { .quota = q };
	size_t in = 0, out = 0, n;
	const uint8_t *p;
	struct rng seed;

	rng_seed(&seed, 7);
	for (int i = 0; i < 4000; i++) {
		n = (size_t)(rng_u64(&seed) % 3 ? rng_u64(&seed) % 700 : rng_u64(&seed) % 40000);
		put(&c, in, n, n + (size_t)(rng_u64(&seed) % 100000));
		in += n;
		if (rng_u64(&seed) % 5 == 0 && in > out) {
			n = (size_t)(rng_u64(&seed) % (in - out + 1));
			CHECK_INT(chain_pull(&c, n), 0);
			CHECK(chain_peek(&c, &p) >= n);
		}
		n = (size_t)(rng_u64(&seed) % (in - out + 1));
		if (in - out > 1u << 20 || rng_u64(&seed) % 2) {
			take(&c, out, n);
			out += n;
		}
		CHECK_INT(chain_len(&c), in - out);
		CHECK(quota_used(q) <= 3 * chain_len(&c) + 400000);
	}
	chain_fini(&c);
	CHECK_INT(quota_used(q), 0);
	quota_unref(q);
}

TEST(a_few_bytes_hold_no_large_block)
{
	struct quota_options o = { .max = 8u << 20, .name = "test" };
	struct quota *q = quota_new(&o);
	struct chain c = { .quota = q };

	put(&c, 0, 100000, 200000);
	take(&c, 0, 99990);
	CHECK(quota_used(q) < 5000);
	take(&c, 99990, 10);
	CHECK_INT(quota_used(q), 0);
	quota_unref(q);
}

TEST(above_the_quota_nothing_changes)
{
	struct quota_options o = { .max = 40000, .name = "test" };
	struct quota *q = quota_new(&o);
	struct chain c = { .quota = q };
	uint8_t some[20000] = { 0 };

	put(&c, 0, 20000, 1u << 20);		/* what is expected is no reason to refuse what came */
	CHECK_INT(chain_put(&c, some, sizeof(some), sizeof(some)), -ENOBUFS);
	CHECK(!chain_space(&c, sizeof(some)));
	CHECK_INT(chain_len(&c), 20000);
	take(&c, 0, 20000);
	chain_fini(&c);
	CHECK_INT(quota_used(q), 0);
	quota_unref(q);
}

TEST_MAIN()
