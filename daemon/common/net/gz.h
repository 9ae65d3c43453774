/* SPDX-License-Identifier: MIT */
/* gzip in both directions, by pieces and whole. Pure. */
#ifndef AB_DAEMON_COMMON_NET_GZ_H
#define AB_DAEMON_COMMON_NET_GZ_H

#include <stdbool.h>
#include <zlib.h>

#include "proto/base/buf.h"

#define GZ_STATE_BYTES (48u * 1024)	/* about what zlib holds while it inflates */

struct gz {
	z_stream z;
	bool inflating, ready;
	bool at_member_end;	/* inflating: nothing of a member is outstanding */
};

must_check int gz_init(struct gz *g, bool inflating);
void gz_fini(struct gz *g);	/* also on a zeroed one */

/* Inflates from p into out; sets *ret_used and *ret_got. Several members in a row are one text. 0, or
 * -EBADMSG. No progress with input left means that out is full. */
must_check int gz_inflate(struct gz *g, const uint8_t *p, size_t n, size_t *ret_used, uint8_t *out,
			  size_t cap, size_t *ret_got);
/* Appends the compressed form of p to out; `last` ends the stream. */
must_check int gz_deflate(struct gz *g, const void *p, size_t n, bool last, struct buf *out);

/* Whole texts. Unpacking: -EBADMSG, -EFBIG above max. */
must_check int gz_pack(const void *p, size_t n, struct buf *out);
must_check int gz_unpack(const void *p, size_t n, size_t max, struct buf *out);

#endif
