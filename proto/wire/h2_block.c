/* SPDX-License-Identifier: MIT */
#include "proto/wire/h2_block.h"

#include "proto/base/cc.h"

enum { TYPE_DATA = 0, TYPE_HEADERS = 1, TYPE_PUSH_PROMISE = 5, TYPE_CONTINUATION = 9, FLAG_END_HEADERS = 4 };

void h2_block_init(struct h2_block *b, uint32_t preface)
{
	*b = (struct h2_block){ .skip = preface };
}

static void begin_frame(struct h2_block *b)
{
	uint8_t type = b->head[3];

	b->skip = (uint32_t)b->head[0] << 16 | (uint32_t)b->head[1] << 8 | b->head[2];
	b->n_head = 0;
	b->in_data = type == TYPE_DATA;
	b->open = type == TYPE_HEADERS || type == TYPE_PUSH_PROMISE || type == TYPE_CONTINUATION;
	b->last = b->open && (b->head[4] & FLAG_END_HEADERS);
}

bool h2_block_feed(struct h2_block *b, const uint8_t *p, size_t n)
{
	bool finished = false;

	for (;;) {
		size_t k = MIN(n, (size_t)b->skip);

		p += k;
		n -= k;
		b->skip -= (uint32_t)k;
		b->data_bytes += b->in_data ? k : 0;
		if (!b->skip && b->last) {
			b->open = b->last = false;
			finished = true;
		}
		if (!n)
			return finished;
		while (n && b->n_head < sizeof(b->head)) {
			b->head[b->n_head++] = *p++;
			n--;
		}
		if (b->n_head < sizeof(b->head))
			return finished;
		begin_frame(b);
	}
}
