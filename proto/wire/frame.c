/* SPDX-License-Identifier: MIT */
#include "proto/wire/frame.h"

#include <errno.h>
#include <string.h>

void frame_reader_init(struct frame_reader *r, uint32_t max)
{
	*r = (struct frame_reader){ .max = max };
	buf_init(&r->body, 0);
}

void frame_reader_fini(struct frame_reader *r)
{
	buf_fini(&r->body);
}

void frame_reader_set_quota(struct frame_reader *r, struct quota *q)
{
	buf_set_quota(&r->body, q);
}

/* 0, FRAME_NO_ROOM, -ENOMEM. */
static int charge_message(struct frame_reader *r)
{
	int e = r->body.quota && r->left ? buf_reserve(&r->body, r->left, r->urgent) : 0;

	r->charged = !e;
	return e == -ENOBUFS ? FRAME_NO_ROOM : e;
}

int frame_reader_feed(struct frame_reader *r, const uint8_t *p, size_t n, size_t *ret_used,
		      uint8_t *ret_flags)
{
	size_t used = 0, k;

	*ret_used = 0;
	for (;;) {
		if (r->n_prefix < FRAME_PREFIX_BYTES) {
			k = MIN(n - used, FRAME_PREFIX_BYTES - r->n_prefix);
			if (k)
				memcpy(r->prefix + r->n_prefix, p + used, k);
			r->n_prefix += (unsigned)k;
			used += k;
			*ret_used = used;
			if (r->n_prefix < FRAME_PREFIX_BYTES)
				return FRAME_MORE;
			r->left = (uint32_t)r->prefix[1] << 24 | (uint32_t)r->prefix[2] << 16 |
				  (uint32_t)r->prefix[3] << 8 | r->prefix[4];
			r->skipping = r->left > r->max;
			if (r->skipping)
				return FRAME_TOO_LARGE;
		}
		if (!r->skipping && !r->charged) {
			int e = charge_message(r);

			if (e)
				return e;
		}
		k = MIN(n - used, (size_t)r->left);
		if (!r->skipping) {
			int e = buf_put(&r->body, p + used, k);

			if (e < 0)
				return e;
		}
		used += k;
		r->left -= (uint32_t)k;
		*ret_used = used;
		if (r->left)
			return FRAME_MORE;
		if (!r->skipping) {
			*ret_flags = r->prefix[0];
			return FRAME_MESSAGE;
		}
		frame_reader_next(r);
	}
}

void frame_reader_next(struct frame_reader *r)
{
	buf_drop(&r->body, buf_len(&r->body));
	r->n_prefix = 0;
	r->skipping = r->charged = false;
}

bool frame_reader_is_idle(const struct frame_reader *r)
{
	return r->n_prefix == 0;
}

void frame_prefix(uint8_t out[FRAME_PREFIX_BYTES], uint8_t flags, uint32_t len)
{
	out[0] = flags;
	out[1] = (uint8_t)(len >> 24);
	out[2] = (uint8_t)(len >> 16);
	out[3] = (uint8_t)(len >> 8);
	out[4] = (uint8_t)len;
}
