/* SPDX-License-Identifier: MIT */
#include "daemon/common/net/gz.h"

#include <errno.h>
#include <string.h>

#include "proto/base/must.h"

#define GZIP_WINDOW (15 + 16)	/* zlib: largest window, gzip wrapping */
#define PIECE_BYTES 16384u

int gz_init(struct gz *g, bool inflating)
{
	int r;

	memset(g, 0, sizeof(*g));
	g->inflating = inflating;
	r = inflating ? inflateInit2(&g->z, GZIP_WINDOW)
		      : deflateInit2(&g->z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW, 8,
				     Z_DEFAULT_STRATEGY);
	if (r != Z_OK)
		return -ENOMEM;
	g->ready = true;
	return 0;
}

void gz_fini(struct gz *g)
{
	if (!g->ready)
		return;
	if (g->inflating)
		inflateEnd(&g->z);
	else
		deflateEnd(&g->z);
	g->ready = false;
}

int gz_inflate(struct gz *g, const uint8_t *p, size_t n, size_t *ret_used, uint8_t *out, size_t cap,
	       size_t *ret_got)
{
	int r;

	must(g->ready && g->inflating);
	n = MIN(n, (size_t)1 << 30);
	cap = MIN(cap, (size_t)1 << 30);
	if (n && g->at_member_end) {
		if (inflateReset(&g->z) != Z_OK)
			return -EBADMSG;
		g->at_member_end = false;
	}
	g->z.next_in = (Bytef *)p;
	g->z.avail_in = (uInt)n;
	g->z.next_out = out;
	g->z.avail_out = (uInt)cap;
	r = n && cap ? inflate(&g->z, Z_NO_FLUSH) : Z_OK;
	if (r == Z_STREAM_END)
		g->at_member_end = true;
	else if (r != Z_OK && r != Z_BUF_ERROR)
		return r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
	*ret_used = n - g->z.avail_in;
	*ret_got = cap - g->z.avail_out;
	return 0;
}

int gz_deflate(struct gz *g, const void *p, size_t n, bool last, struct buf *out)
{
	int r;

	must(g->ready && !g->inflating && n <= (size_t)1 << 30);
	g->z.next_in = (Bytef *)p;
	g->z.avail_in = (uInt)n;
	do {
		uint8_t *space = buf_space(out, PIECE_BYTES);

		if (!space)
			return -ENOMEM;
		g->z.next_out = space;
		g->z.avail_out = PIECE_BYTES;
		r = deflate(&g->z, last ? Z_FINISH : Z_NO_FLUSH);
		must(r != Z_STREAM_ERROR);
		buf_added(out, PIECE_BYTES - g->z.avail_out);
	} while (!g->z.avail_out || (last && r != Z_STREAM_END));
	return 0;
}

int gz_pack(const void *p, size_t n, struct buf *out)
{
	struct gz g;
	int r = gz_init(&g, false);

	if (r < 0)
		return r;
	r = gz_deflate(&g, p, n, true, out);
	gz_fini(&g);
	return r;
}

int gz_unpack(const void *p, size_t n, size_t max, struct buf *out)
{
	size_t used = 0, got = 0, total = 0, at = 0;
	struct gz g;
	int r = gz_init(&g, true);

	while (!r) {
		uint8_t *space = buf_space(out, PIECE_BYTES);

		if (!space) {
			r = -ENOMEM;
			break;
		}
		r = gz_inflate(&g, (const uint8_t *)p + at, n - at, &used, space, PIECE_BYTES,
			       &got);
		if (r < 0)
			break;
		buf_added(out, got);
		at += used;
		total += got;
		if (total > max)
			r = -EFBIG;
		else if (at == n && g.at_member_end)
			break;
		else if (!used && !got)
			r = -EBADMSG;	/* cut off */
	}
	gz_fini(&g);
	return r;
}
