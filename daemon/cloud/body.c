/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/body.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

int body_init(struct body *b, const char *coding, struct quota *q)
{
	*b = (struct body){ .coded = coding && !str_eq(coding, "identity"), .held = { .quota = q } };
	if (!b->coded)
		return 0;
	if (!str_eq(coding, "gzip"))
		return -ENOTSUP;
	if (charge_set(&b->held, GZ_STATE_BYTES + BODY_PIECE_BYTES) < 0)
		return -ENOBUFS;
	b->piece = malloc(BODY_PIECE_BYTES);
	return b->piece ? gz_init(&b->gz, true) : -ENOMEM;
}

void body_fini(struct body *b)
{
	gz_fini(&b->gz);
	free(b->piece);
	charge_fini(&b->held);
	*b = (struct body){ 0 };
}

/* The next piece; false if there is none yet, or none any more. */
static bool inflate_piece(struct body *b, struct http_stream *x)
{
	const uint8_t *p;
	size_t n, used = 0, got = 0;

	while (!b->broken && (n = http_stream_peek(x, &p)) > 0) {
		if (gz_inflate(&b->gz, p, n, &used, b->piece, BODY_PIECE_BYTES, &got) < 0 || (!used && !got)) {
			b->broken = true;
			return false;
		}
		http_stream_consume(x, used);
		if (got) {
			b->at = 0;
			b->end = got;
			return true;
		}
	}
	return false;
}

size_t body_peek(struct body *b, struct http_stream *x, const uint8_t **ret)
{
	if (!b->coded)
		return x ? http_stream_peek(x, ret) : 0;
	if (b->at == b->end && (!x || !inflate_piece(b, x)))
		return 0;
	*ret = b->piece + b->at;
	return b->end - b->at;
}

void body_consume(struct body *b, struct http_stream *x, size_t n)
{
	if (!b->coded) {
		http_stream_consume(x, n);
		return;
	}
	must(n <= b->end - b->at);
	b->at += n;
}

enum body_state body_state(const struct body *b, const struct http_stream *x)
{
	if (b->broken)
		return BODY_BROKEN;
	if (!x || !http_stream_at_end(x) || b->at < b->end)
		return BODY_OPEN;
	return b->coded && !b->gz.at_member_end ? BODY_CUT : BODY_WHOLE;
}
