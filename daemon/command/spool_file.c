/* SPDX-License-Identifier: MIT */
#include "daemon/command/spool_file.h"

#include <endian.h>
#include <string.h>

#define FILE_MAGIC   0x316c707378426741ull /* "AgBxspl1" */
#define INPUT_MAGIC  0x7475706eull
#define RECORD_MAGIC 0x5278u
#define SUM_AT	     (SPOOL_HEAD_BYTES - 8)
#define FLAG_LOST    1u
#define FLAG_KNOWN   1u

/* Guards against torn and foreign bytes, not against somebody who can read the file. */
static uint64_t sum(const uint8_t *p, uint64_t nonce)
{
	uint64_t h = nonce ^ 0xcbf29ce484222325ull;

	for (size_t i = 0; i < SUM_AT; i += 8) {
		uint64_t w;

		memcpy(&w, p + i, 8);
		h = (h ^ le64toh(w)) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	return h;
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, 8);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return le64toh(v);
}

void spool_head_put(const struct spool_head *h, uint8_t ret[SPOOL_HEAD_BYTES])
{
	put64(ret, FILE_MAGIC);
	put64(ret + 8, h->nonce);
	/* first_at is a multiple of 64, so that its low bits can hold the flag. */
	put64(ret + 16, h->first_at | (h->lost ? FLAG_LOST : 0));
	put64(ret + 24, h->start[SPOOL_STDOUT]);
	put64(ret + 32, h->start[SPOOL_STDERR]);
	put64(ret + 40, h->start[SPOOL_PTY]);
	put64(ret + 48, 0);
	put64(ret + SUM_AT, sum(ret, h->nonce));
}

bool spool_head_get(const uint8_t p[SPOOL_HEAD_BYTES], struct spool_head *ret)
{
	uint64_t place = get64(p + 16);

	*ret = (struct spool_head){ .nonce = get64(p + 8), .lost = place & FLAG_LOST };
	ret->first_at = place & ~(uint64_t)FLAG_LOST;
	if (get64(p) != FILE_MAGIC || get64(p + SUM_AT) != sum(p, ret->nonce) || get64(p + 48) ||
	    ret->first_at % SPOOL_HEAD_BYTES || ret->first_at < SPOOL_FIRST_AT ||
	    ret->first_at > SPOOL_OFFSET_MAX)
		return false;
	for (unsigned s = SPOOL_STDOUT; s < SPOOL_STREAMS; s++) {
		ret->start[s] = get64(p + 16 + 8 * s);
		if (ret->start[s] > SPOOL_OFFSET_MAX)
			return false;
	}
	return true;
}

void spool_input_put(const struct spool_input *i, uint64_t nonce, uint8_t ret[SPOOL_HEAD_BYTES])
{
	memset(ret, 0, SPOOL_HEAD_BYTES);
	put64(ret, INPUT_MAGIC);
	put64(ret + 8, i->accepted);
	put64(ret + 16, i->sent);
	put64(ret + SUM_AT, sum(ret, nonce));
}

bool spool_input_get(const uint8_t p[SPOOL_HEAD_BYTES], uint64_t nonce, struct spool_input *ret)
{
	*ret = (struct spool_input){ .accepted = get64(p + 8), .sent = get64(p + 16) };
	return get64(p) == INPUT_MAGIC && get64(p + SUM_AT) == sum(p, nonce) &&
	       ret->accepted <= ret->sent && ret->sent <= SPOOL_OFFSET_MAX;
}

void spool_record_put(const struct spool_record *r, uint64_t nonce, uint8_t ret[SPOOL_HEAD_BYTES])
{
	memset(ret, 0, SPOOL_HEAD_BYTES);
	put64(ret, RECORD_MAGIC | (uint64_t)r->stream << 16 | (uint64_t)r->reason << 24 |
			   (r->size_known ? (uint64_t)FLAG_KNOWN << 32 : 0));
	put64(ret + 8, r->offset);
	put64(ret + 16, r->size);
	put64(ret + 24, (uint64_t)r->time_ms);
	put64(ret + SUM_AT, sum(ret, nonce));
}

bool spool_record_get(const uint8_t p[SPOOL_HEAD_BYTES], uint64_t nonce, struct spool_record *ret)
{
	uint64_t word = get64(p);

	*ret = (struct spool_record){
		.offset = get64(p + 8), .size = get64(p + 16), .time_ms = (int64_t)get64(p + 24),
		.stream = (uint8_t)(word >> 16), .reason = (uint8_t)(word >> 24),
		.size_known = word >> 32 & FLAG_KNOWN,
	};
	if ((word & 0xffff) != RECORD_MAGIC || word >> 33 || get64(p + SUM_AT) != sum(p, nonce) ||
	    ret->stream < SPOOL_STDOUT || ret->stream >= SPOOL_STREAMS || ret->time_ms < 0 ||
	    ret->offset > SPOOL_OFFSET_MAX)
		return false;
	if (!ret->reason)
		return ret->size && ret->size <= SPOOL_RECORD_MAX && !ret->size_known;
	return ret->reason <= SPOOL_POWER_LOSS && ret->size <= SPOOL_OFFSET_MAX &&
	       (ret->size_known ? ret->size > 0 : ret->size == 0);
}
