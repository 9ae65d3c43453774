/* SPDX-License-Identifier: MIT */
/* The message prefix: any cutting of the stream gives the same messages. */
#include "proto/base/must.h"
#include "proto/wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* A sum over what was read: kinds, flags, lengths, bytes. */
static uint64_t read_all(const uint8_t *p, size_t n, size_t slice)
{
	struct frame_reader r;
	uint64_t sum = 1;
	size_t at = 0;

	frame_reader_init(&r, 1000);
	while (at < n) {
		size_t used, k = MIN(slice, n - at);
		uint8_t flags = 0;
		int what = frame_reader_feed(&r, p + at, k, &used, &flags);

		must(what >= 0 && used <= k);
		must(used || what != FRAME_MORE);
		at += used;
		if (what == FRAME_MORE)
			continue;
		sum = sum * 31 + (uint64_t)what;
		if (what == FRAME_MESSAGE) {
			sum = sum * 31 + flags;
			for (size_t i = 0; i < buf_len(&r.body); i++)
				sum = sum * 31 + buf_data(&r.body)[i];
			must(buf_len(&r.body) <= 1000);
			frame_reader_next(&r);
		}
	}
	sum = sum * 31 + frame_reader_is_idle(&r);
	frame_reader_fini(&r);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	uint64_t whole;

	if (n < 2)
		return 0;
	whole = read_all(p + 1, n - 1, n);
	must(read_all(p + 1, n - 1, 1) == whole);
	must(read_all(p + 1, n - 1, 1 + p[0]) == whole);
	return 0;
}
