/* SPDX-License-Identifier: MIT */
/*
 * A hostile peer of the HTTP/2 engine. Byte 0 chooses role, checks, quota and whether the peer reads, byte 1
 * the size of the pieces; the rest is what the peer sends (a server gets the preface for free). The owner behaves as
 * owners do: answers, echoes, consumes late, resets. Afterwards every stream must have ended once, what
 * is buffered must be within the windows, no more charged than may be, and in the end nothing (JUDGED G-3).
 */
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/wire/h2.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define WINDOW 65536u
#define QUOTA_MIN   (16u * 1024)
#define QUOTA_SLACK 65536u	/* what the heap rounds up, and the last words */

static void answer(struct h2_stream *s, uint32_t id)
{
	struct fields f = FIELDS_NULL;

	if (fields_put(&f, ":status", id % 3 ? "200" : "404") == 0)
		(void)!h2_respond(s, &f, id % 5 == 0);
	if (id % 5)
		(void)!h2_stream_write(s, "0123456789", 10);
	if (id % 5 == 1)
		(void)!h2_stream_finish(s, NULL);
	if (id % 5 == 2)
		h2_stream_reset(s, H2_INTERNAL_ERROR);
	fields_fini(&f);
}

static void look(struct h2 *h, bool server)
{
	struct h2_stream *s;

	while ((s = h2_next_ready(h))) {
		unsigned flags = h2_stream_take_ready(s);
		size_t have = h2_stream_buffered(s);

		must(flags);
		must(have <= WINDOW + 16384);
		if (server && (flags & H2_READY_HEAD))
			answer(s, h2_stream_id(s));
		if (have && h2_stream_id(s) % 7 != 3)
			h2_stream_consume(s, have);
		if (flags & H2_READY_END)
			must(h2_stream_ended(s));
		if (flags & H2_READY_CLOSED) {
			must(h2_stream_closed(s, NULL) != H2_OPEN);
			h2_stream_release(s);
		}
	}
}

static void drain(struct h2 *h)
{
	const uint8_t *p;
	size_t n;

	for (int i = 0; i < 100 && h2_output(h, &p, &n) == 0 && n; i++)
		h2_sent(h, n);
}

static void ask(struct h2 *h, int count)
{
	struct fields f = FIELDS_NULL;
	struct h2_stream *s;

	must(fields_put(&f, ":method", "POST") == 0 && fields_put(&f, ":scheme", "https") == 0 &&
	     fields_put(&f, ":authority", "x") == 0 && fields_put(&f, ":path", "/") == 0);
	while (count--)
		if (h2_request(h, &f, count % 2, NULL, &s) == 0 && count % 2 == 0)
			(void)!h2_stream_write(s, "body", 4);
	fields_fini(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
	struct quota *q = NULL;
	struct h2 *h;
	bool server, reads;
	size_t slice;
	uint64_t now = 1000;

	if (n < 2)
		return 0;
	server = p[0] & 1;
	reads = !(p[0] & 4);
	slice = p[1] ? p[1] : n;
	if (p[0] & 0x38)
		q = quota_new(&(struct quota_options){ .name = "t", .max = QUOTA_MIN << (p[0] >> 3 & 7), .soft = !server });
	if (h2_new(&(struct h2_options){ .server = server, .any_authority = p[0] & 2, .quota = q,
					 .stream_window = WINDOW }, now, &h) < 0) {
		quota_unref(q);
		return 0;
	}
	p += 2;
	n -= 2;
	if (server)
		(void)!h2_feed(h, preface, sizeof(preface) - 1, now);
	else
		ask(h, 5);
	drain(h);
	while (n && !h2_is_dead(h)) {
		must(!q || !server || h2_is_dead(h) || quota_used(q) <= quota_max(q) + QUOTA_SLACK);
		size_t k = MIN(slice, n);

		(void)!h2_feed(h, p, k, now++);
		look(h, server);
		if (reads)
			drain(h);
		p += k;
		n -= k;
	}
	h2_lost(h);
	look(h, server);
	must(h2_open_streams(h) == 0);
	h2_free(h);
	must(!q || (quota_is_idle(q) && !quota_promised(q)));
	quota_unref(q);
	return 0;
}
