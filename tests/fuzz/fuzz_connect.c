/* SPDX-License-Identifier: MIT */
/*
 * A Connect stream of the agent, from body bytes to events. The same bytes whole and cut into pieces
 * must give the same events and the same end; there is exactly one end, and it is a success only
 * with an end-of-stream record. The exchange and the pool are played here. The first byte says how
 * long the pieces are.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/connect.h"
#include "daemon/cloud/message.h"
#include "proto/base/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct http_stream {
	const uint8_t *p;
	size_t n;	/* that came and was not taken */
	size_t later;	/* that will come */
};

static struct http_stream now_x;
static struct fields head;

const struct fields *http_stream_head(const struct http_stream *x)
{
	return &head;
}

unsigned http_stream_status(const struct http_stream *x)
{
	return 200;
}

size_t http_stream_peek(const struct http_stream *x, const uint8_t **ret)
{
	*ret = x->p;
	return x->n;
}

void http_stream_consume(struct http_stream *x, size_t n)
{
	must(n <= x->n);
	x->p += n;
	x->n -= n;
}

bool http_stream_at_end(const struct http_stream *x)
{
	return !x->n && !x->later;
}

enum http_close http_stream_closed(const struct http_stream *x, uint32_t *ret_code)
{
	return HTTP_OPEN;
}

struct http_stream *pool_req_x(const struct pool_req *r)
{
	return &now_x;
}

const struct status *pool_req_failure(const struct pool_req *r)
{
	return NULL;
}

struct pool_req *pool_req_free(struct pool_req *r)
{
	return NULL;
}

bool pool_req_repeat(struct pool_req *r)
{
	return false;
}

struct pool_req *pool_req_leave(struct pool_req *r)
{
	return NULL;
}

struct pool_req *agent_request(const struct agent_ask *a)
{
	abort();
}

const char *agent_no_room(int r)
{
	return "no room";
}

uint64_t agent_deadline_ms(const struct envd_target *t)
{
	return 0;
}

uint64_t loop_now_ms(const struct loop *l)
{
	return 0;
}

bool agent_refused(struct http_stream *x, struct buf *b, const char *route, enum fault_subject what,
		   enum envd_class *ret_cls, struct status *ret)
{
	abort();
}

enum envd_class agent_failure(const struct pool_req *r, struct status *ret)
{
	abort();
}

int agent_collect(struct http_stream *x, struct buf *b, size_t max)
{
	abort();
}

struct outcome {
	uint64_t hash;
	unsigned events;
	bool over, good;
};

static void mix(struct outcome *o, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		o->hash = (o->hash ^ ((const uint8_t *)p)[i]) * 1099511628211u;
}

static void take(struct connect_stream *s, struct outcome *o)
{
	const uint8_t *p;
	size_t n;
	enum envd_class cls;
	struct status why = STATUS_OK;
	enum connect_result r;

	while ((r = connect_stream_next(s, &p, &n, &cls, &why)) == CONNECT_MESSAGE) {
		struct envd_event e;
		Process__StartResponse *held;

		must(!o->over);
		if (message_event(p, n, &e, &held) == 0) {
			mix(o, &e.type, sizeof(e.type));
			if (e.type == ENVD_EVENT_DATA)
				mix(o, e.data, e.n);
		}
		message_event_free(held);
		o->events++;
	}
	if (r != CONNECT_MORE) {
		must(!o->over);
		o->over = true;
		o->good = r == CONNECT_END;
		must(o->good || why.code != CODE_OK);
	}
}

static struct outcome play(const uint8_t *p, size_t n, size_t piece)
{
	struct outcome o = { .hash = 1469598103934665603u };
	struct connect_stream s = { .path = "/process.Process/Start" };
	struct buf all = BUF_NULL;

	/* A copy of the exact size, so that a read beyond it is seen. */
	must(!n || buf_put(&all, p, n) == 0);
	frame_reader_init(&s.reader, CONNECT_MESSAGE_MAX);
	buf_init(&s.error, 0);
	now_x = (struct http_stream){ .p = buf_data(&all), .later = n };
	while (now_x.later) {
		size_t k = MIN(piece, now_x.later);

		now_x.n += k;
		now_x.later -= k;
		take(&s, &o);
	}
	take(&s, &o);
	must(o.over);
	connect_stream_fini(&s);
	buf_fini(&all);
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct outcome whole, cut;

	if (!n)
		return 0;
	if (!head.n && fields_put(&head, "content-type", "application/connect+proto") < 0)
		return 0;
	whole = play(p + 1, n - 1, n);
	cut = play(p + 1, n - 1, 1u + *p % 16);
	must(whole.hash == cut.hash && whole.events == cut.events && whole.good == cut.good);
	fields_fini(&head);
	return 0;
}
