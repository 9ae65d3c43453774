/* SPDX-License-Identifier: MIT */
#include "proto/wire/frame.h"

#include "tests/lib/test.h"

/* "ab", an oversize one, an empty one, "xyz" with flag 2 */
static size_t stream(uint8_t *out)
{
	size_t n = 0;

	frame_prefix(out + n, 0, 2);
	n += 5;
	memcpy(out + n, "ab", 2);
	n += 2;
	frame_prefix(out + n, 0, 20);
	n += 5;
	memset(out + n, '!', 20);
	n += 20;
	frame_prefix(out + n, 1, 0);
	n += 5;
	frame_prefix(out + n, 2, 3);
	n += 5;
	memcpy(out + n, "xyz", 3);
	return n + 3;
}

static void check_cut(size_t slice)
{
	static const struct {
		uint8_t flags;
		const char *body;
	} want[] = { { 0, "ab" }, { 1, "" }, { 2, "xyz" } };
	uint8_t in[128];
	size_t n = stream(in), at = 0, messages = 0, oversize = 0;
	struct frame_reader r;

	frame_reader_init(&r, 10);
	while (at < n) {
		size_t used, k = MIN(slice, n - at);
		uint8_t flags = 0;

		switch (frame_reader_feed(&r, in + at, k, &used, &flags)) {
		case FRAME_MESSAGE:
			CHECK(messages < ARRAY_SIZE(want));
			CHECK_INT(flags, want[messages].flags);
			CHECK_INT(buf_len(&r.body), strlen(want[messages].body));
			CHECK(!buf_len(&r.body) ||
			      !memcmp(buf_data(&r.body), want[messages].body, buf_len(&r.body)));
			messages++;
			frame_reader_next(&r);
			break;
		case FRAME_TOO_LARGE:
			oversize++;
			break;
		default:
			CHECK_INT(used, k);
		}
		at += used;
	}
	CHECK_INT(messages, 3);
	CHECK_INT(oversize, 1);
	CHECK(frame_reader_is_idle(&r));
	frame_reader_fini(&r);
}

TEST(messages_come_whole_however_the_stream_is_cut)
{
	for (size_t slice = 1; slice < 60; slice++)
		check_cut(slice);
}

TEST(a_huge_length_allocates_nothing)
{
	struct frame_reader r;
	uint8_t in[5], flags;
	size_t used;

	frame_reader_init(&r, 1000);
	frame_prefix(in, 0, 0xffffffff);
	CHECK_INT(frame_reader_feed(&r, in, 5, &used, &flags), FRAME_TOO_LARGE);
	CHECK_INT(r.body.cap, 0);
	frame_reader_fini(&r);
}

TEST_MAIN()
