/* SPDX-License-Identifier: MIT */
#include "proto/base/buf.h"

#include <errno.h>

#include "tests/lib/test.h"

TEST(full_is_a_result_and_changes_nothing)
{
	struct buf b;

	buf_init(&b, 10);
	CHECK_INT(buf_put(&b, "1234567", 7), 0);
	CHECK_INT(buf_room(&b), 3);
	CHECK_INT(buf_put(&b, "abcd", 4), -ENOBUFS);
	CHECK_INT(buf_len(&b), 7);
	CHECK_INT(buf_put(&b, "abc", 3), 0);
	CHECK(!memcmp(buf_data(&b), "1234567abc", 10));
	buf_fini(&b);
}

TEST(bytes_come_out_in_order_over_many_wraps)
{
	struct buf b;
	unsigned char in = 0, out = 0;

	buf_init(&b, 0);
	for (int round = 0; round < 2000; round++) {
		size_t n = (size_t)(round * 37 % 301);

		for (size_t i = 0; i < n; i++) {
			unsigned char c = in++;

			CHECK_INT(buf_put(&b, &c, 1), 0);
		}
		n = buf_len(&b) * 2 / 3;
		for (size_t i = 0; i < n; i++)
			CHECK(buf_data(&b)[i] == (unsigned char)(out + i));
		out = (unsigned char)(out + n);
		buf_drop(&b, n);
	}
	buf_fini(&b);
}

TEST(text_is_taken_with_its_terminator)
{
	struct buf b;
	char *s;

	buf_init(&b, 0);
	CHECK_INT(buf_printf(&b, "%d-%s", 7, "x"), 0);
	buf_drop(&b, 1);
	s = buf_take_str(&b);
	CHECK_STR(s, "-x");
	free(s);
	CHECK_INT(buf_len(&b), 0);
}

TEST_MAIN()
