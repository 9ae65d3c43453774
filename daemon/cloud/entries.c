/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/entries.h"

#define FIELD_ENTRY 1u

enum wire_type { WIRE_NUMBER = 0, WIRE_8_BYTES = 1, WIRE_BYTES = 2, WIRE_4_BYTES = 5 };

void entries_init(struct entries *e)
{
	*e = (struct entries){ .part = ENTRIES_TAG };
	buf_init(&e->entry, 0);
}

void entries_fini(struct entries *e)
{
	buf_fini(&e->entry);
}

bool entries_may_end(const struct entries *e)
{
	return e->part == ENTRIES_TAG && !e->in_tag;
}

static void expect(struct entries *e, enum entries_part part, uint64_t left)
{
	e->part = part;
	e->left = left;
	e->number = 0;
	e->shift = 0;
	e->in_tag = false;
}

/* One more byte of a varint: 1 = it is whole, 0 = not yet, -1 = it is none. */
static int take_number(struct entries *e, uint8_t byte)
{
	if (e->shift > 63 || (e->shift == 63 && byte > 1))
		return -1;
	e->number |= (uint64_t)(byte & 0x7f) << e->shift;
	e->shift += 7;
	return !(byte & 0x80);
}

static enum entries_result take_tag(struct entries *e)
{
	uint64_t field = e->number >> 3;

	if (!field || field > (1u << 29) - 1)
		return ENTRIES_BAD;
	e->is_entry = field == FIELD_ENTRY;
	switch (e->number & 7) {
	case WIRE_NUMBER:
		expect(e, ENTRIES_NUMBER, 0);
		break;
	case WIRE_8_BYTES:
		expect(e, ENTRIES_DROP, 8);
		break;
	case WIRE_4_BYTES:
		expect(e, ENTRIES_DROP, 4);
		break;
	case WIRE_BYTES:
		expect(e, ENTRIES_LENGTH, 0);
		return ENTRIES_MORE;
	default:
		return ENTRIES_BAD;
	}
	return e->is_entry ? ENTRIES_BAD : ENTRIES_MORE;
}

static enum entries_result take_length(struct entries *e)
{
	uint64_t n = e->number;

	if (e->is_entry && n > ENTRY_MAX_BYTES)
		return ENTRIES_TOO_LARGE;
	expect(e, e->is_entry ? ENTRIES_ENTRY : ENTRIES_DROP, n);
	return ENTRIES_MORE;
}

static enum entries_result take_byte(struct entries *e, uint8_t byte)
{
	int whole = take_number(e, byte);

	e->in_tag = true;
	if (whole <= 0)
		return whole < 0 ? ENTRIES_BAD : ENTRIES_MORE;
	switch (e->part) {
	case ENTRIES_TAG:
		return take_tag(e);
	case ENTRIES_LENGTH:
		return take_length(e);
	default:
		expect(e, ENTRIES_TAG, 0);
		return ENTRIES_MORE;
	}
}

/* A run of bytes of the current field, or as much of it as there is. */
static enum entries_result take_run(struct entries *e, const uint8_t *p, size_t n, size_t *ret_used, const uint8_t **ret,
				    size_t *ret_n)
{
	size_t k = (size_t)MIN((uint64_t)n, e->left);
	bool kept = e->part == ENTRIES_ENTRY, whole = k == e->left && !buf_len(&e->entry);

	*ret_used = k;
	if (kept && !whole && buf_put(&e->entry, p, k) < 0)
		return ENTRIES_NO_MEMORY;
	e->left -= k;
	if (e->left)
		return ENTRIES_MORE;
	expect(e, ENTRIES_TAG, 0);
	if (!kept)
		return ENTRIES_MORE;
	*ret = whole ? p : buf_data(&e->entry);
	*ret_n = whole ? k : buf_len(&e->entry);
	e->entry_out = true;
	return ENTRIES_GOT;
}

enum entries_result entries_feed(struct entries *e, const uint8_t *p, size_t n, size_t *ret_used, const uint8_t **ret,
				 size_t *ret_n)
{
	enum entries_result r = ENTRIES_MORE;
	size_t at = 0, used;

	if (e->entry_out)
		buf_drop(&e->entry, buf_len(&e->entry));
	e->entry_out = false;
	while (r == ENTRIES_MORE && (at < n || (e->part >= ENTRIES_DROP && !e->left))) {
		if (e->part >= ENTRIES_DROP) {
			r = take_run(e, p + at, n - at, &used, ret, ret_n);
			at += used;
		} else {
			r = take_byte(e, p[at++]);
		}
	}
	*ret_used = at;
	return r;
}
