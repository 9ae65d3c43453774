/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/join.h"

#include "daemon/common/http/relay_head.h"
#include "proto/base/str.h"

/* From one to the other, as far as there is room; false when `to` is gone. */
static bool move(struct http_stream *from, struct http_stream *to, bool *done, uint64_t *passed)
{
	const uint8_t *p;
	size_t n = http_stream_peek(from, &p), room;

	while (n && (room = http_stream_room(to)) > 0) {
		size_t k = MIN(n, room);

		if (http_stream_write(to, p, k) < 0)
			return false;
		http_stream_consume(from, k);
		*passed += k;
		n = http_stream_peek(from, &p);
	}
	if (n || *done || !http_stream_at_end(from))
		return true;
	*done = true;
	return http_stream_finish(to, http_stream_trailers(from)) >= 0;
}

static int answer(struct http_join *j, struct http_stream *x, struct http_stream *y)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	int r;

	j->tunnel = http_stream_status(y) == 101;
	j->down_done = !j->tunnel && http_stream_at_end(y) && !http_stream_trailers(y);
	r = relay_response_head(http_stream_head(y), j->tunnel, &head);
	if (r == 0)
		r = http_stream_respond(x, &head, j->down_done);
	j->answered = r == 0;
	if (j->tunnel)
		j->up_done = false;
	return r;
}

/* 1xx pass as they come; one that cannot has told the client nothing that it needs. */
static int pass_interims(struct http_join *j, struct http_stream *x, struct http_stream *y)
{
	struct fields in;
	int r = 0;

	while (r == 0 && http_stream_next_interim(y, &in)) {
		scoped(fields_fini) struct fields head = FIELDS_NULL;

		j->expects = j->expects && !str_eq(fields_get(&in, ":status"), "100");
		r = relay_response_head(&in, false, &head);
		if (r == 0 && !j->answered)
			r = http_stream_respond(x, &head, false);
		fields_fini(&in);
	}
	return r;
}

/* It ended without having said all, and what it said has passed. */
static bool is_lost(const struct http_stream *y)
{
	enum http_close how = http_stream_closed(y, NULL);
	const uint8_t *p;

	return how != HTTP_OPEN && how != HTTP_CLOSE_CLEAN && !http_stream_ended(y) && !http_stream_peek(y, &p);
}

enum http_join_state http_join_pump(struct http_join *j, struct http_stream *x, struct http_stream *y)
{
	if (http_stream_closed(x, NULL) != HTTP_OPEN)
		return HTTP_JOIN_LEFT;
	if (pass_interims(j, x, y) < 0)
		return HTTP_JOIN_LOST;
	if (!j->holds && !j->answered && http_stream_head(y) && answer(j, x, y) < 0)
		return HTTP_JOIN_LOST;
	if (j->answered && !move(y, x, &j->down_done, &j->down))
		return HTTP_JOIN_LOST;
	if (is_lost(y))
		return HTTP_JOIN_LOST;
	/* A program that hears no more may still be heard. */
	if (http_stream_closed(y, NULL) == HTTP_OPEN && !(j->expects && http_stream_awaits_continue(x)))
		(void)move(x, y, &j->up_done, &j->up);
	return j->down_done && !j->tunnel ? HTTP_JOIN_DONE : HTTP_JOIN_OPEN;
}
