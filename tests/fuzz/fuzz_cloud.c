/* SPDX-License-Identifier: MIT */
/*
 * G-2: the cloud's answers as a sequence. The real core and the real client of the control plane, on simulated time and over a
 * replaced store (tests/sim/disk.c), before a model cloud whose every answer may be changed: lost before or after it acted, another
 * status, headers that lie, a document with bytes, values or names of another, the answer to an earlier request, cut short.
 * Two users call what they like. At least ANSWERS answers make a sequence. Whatever comes:
 *
 *   - nothing aborts, and nothing of a sequence is left: requests, calls, charges;
 *   - each call is answered, once;
 *   - a create that may have been processed is not sent again;
 *   - a sandbox that is leased is not ended, unless its user asked for that, or was told that it is gone.
 *
 * The input's bytes are the choices; where they end, a seed made of them goes on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/upstream/pool.h"
#include "proto/base/clock.h"
#include "proto/base/list.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "tests/fuzz/model.h"
#include "tests/fuzz/users.h"
#include "tests/sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* --- in place of daemon/upstream and the exchange --- */

struct http_stream {
	struct fields head;
	unsigned status;
	struct buf body;
	bool over;
};

struct pool_req {
	struct list node;
	struct loop *loop;
	char *method, *path, *body;
	uint64_t deadline_ms;
	struct timer timer;
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
	struct http_stream x;
	enum pool_fate fate;
	struct status failure;
	bool sent, is_create;
	char tag[80];
	unsigned post;	/* its number among them */
};

static struct list reqs;
static struct quota *quota;

/* Nothing was proven about what became of it. */
static void note_doubt(struct pool_req *r, unsigned status)
{
	if (r->is_create && status < 300)
		create_in_doubt(r->post);
}

static void fail_req(struct pool_req *r, enum pool_fate fate)
{
	r->fate = fate;
	status_set(&r->failure, R_UNREACHABLE, "the model cloud is not there");
	r->on_ready(r, r->user);
}

static void on_answer(struct timer *t, void *user)
{
	struct pool_req *r = user;
	unsigned status, what = choose(16);
	struct buf b = BUF_NULL;

	if (what == 0 || (r->deadline_ms && clock_boot_ms() >= r->deadline_ms)) {
		fail_req(r, POOL_UNSENT);
		return;
	}
	r->sent = true;
	if (r->is_create) {
		r->post = create_sent(r->tag);
	}
	if (what == 1) {	/* lost on its way there */
		note_doubt(r, 0);
		fail_req(r, POOL_BROKEN);
		return;
	}
	n_answers++;
	status = act(r->method, r->path, r->body, &b);
	if (status >= 300 && !buf_len(&b))
		must(!buf_printf(&b, "{\"code\":%u,\"message\":\"the model says %u\"}", status, status));
	keep_answer(&b);
	if (what == 2) {	/* and on its way back */
		buf_fini(&b);
		note_doubt(r, 0);
		fail_req(r, POOL_BROKEN);
		return;
	}
	if (what >= 10)
		lie(&status, &b);
	note_doubt(r, status);
	head_of(&r->x.head);
	r->x.status = status;
	r->x.body = b;
	r->x.over = true;
	r->fate = POOL_CLEAN;
	r->on_ready(r, r->user);
}

struct pool_req *pool_request(struct pool *p, const struct pool_ask *a)
{
	struct pool_req *r = calloc(1, sizeof(*r));
	char *metadata;

	must(r);
	list_add_tail(&reqs, &r->node);
	r->loop = W->loop;
	r->method = str_dup(a->method);
	r->path = str_dup(a->path);
	r->body = strndup(a->n_body ? a->body : "", a->n_body);
	r->deadline_ms = a->deadline_ms;
	r->on_ready = a->on_ready;
	r->user = a->user;
	r->is_create = str_eq(a->method, "POST") && (str_eq(a->path, "/sandboxes") || str_eq(a->path, "/v2/sandboxes"));
	metadata = value_of(r->body, "\"metadata\":");
	if (r->is_create)
		tag_of(metadata, r->tag);
	free(metadata);
	timer_init(&r->timer, r->loop, on_answer, r);
	must(!timer_set(&r->timer, clock_boot_ms() + 1 + (rarely() ? choose(256) * 100u : choose(50))));
	return r;
}

struct pool_req *pool_req_free(struct pool_req *r)
{
	if (!r)
		return NULL;
	timer_clear(&r->timer);
	list_del(&r->node);
	fields_fini(&r->x.head);
	buf_fini(&r->x.body);
	free(r->method);
	free(r->path);
	free(r->body);
	free(r);
	return NULL;
}

struct pool_req *pool_req_leave(struct pool_req *r)
{
	return pool_req_free(r);
}

bool pool_req_repeat(struct pool_req *r)
{
	return false;
}

struct http_stream *pool_req_x(const struct pool_req *r)
{
	return r->x.over ? (struct http_stream *)&r->x : NULL;
}

enum pool_fate pool_req_fate(const struct pool_req *r)
{
	return r->fate;
}

const struct status *pool_req_failure(const struct pool_req *r)
{
	return r->fate == POOL_UNSENT || r->fate == POOL_BROKEN ? &r->failure : NULL;
}

bool pool_req_was_sent(const struct pool_req *r)
{
	return r->sent;
}

bool pool_req_was_repeated(const struct pool_req *r)
{
	return false;
}

unsigned pool_req_posts(const struct pool_req *r)
{
	return r->sent;
}

uint64_t pool_req_sent_at_ms(const struct pool_req *r)
{
	return r->sent ? clock_boot_ms() : 0;
}

struct quota *pool_quota(const struct pool *p)
{
	return quota;
}

void pool_retire_group(struct pool *p, const char *group)
{
}

const struct fields *http_stream_head(const struct http_stream *x)
{
	return &x->head;
}

unsigned http_stream_status(const struct http_stream *x)
{
	return x->status;
}

size_t http_stream_peek(const struct http_stream *x, const uint8_t **ret)
{
	*ret = buf_data(&x->body);
	return buf_len(&x->body);
}

void http_stream_consume(struct http_stream *x, size_t n)
{
	buf_drop(&x->body, n);
}

bool http_stream_at_end(const struct http_stream *x)
{
	return !buf_len(&x->body);
}

enum http_close http_stream_closed(const struct http_stream *x, uint32_t *ret_code)
{
	return HTTP_OPEN;
}

size_t http_stream_room(const struct http_stream *x)
{
	return 0;
}

int http_stream_write(struct http_stream *x, const void *p, size_t n)
{
	return -EPIPE;
}

int http_stream_finish(struct http_stream *x, const struct fields *trailers)
{
	return -EPIPE;
}

/* --- a sequence --- */

static void begin(const uint8_t *p, size_t n)
{
	world_begin(p, n);
	quota = quota_new(&(struct quota_options){ .name = "model", .max = 64u << 20 });
	must(quota);
	list_init(&reqs);
	core_open((struct pool *)(void *)&quota, NULL, NULL);
}

static void end(void)
{
	users_end();
	core = sandbox_core_free(core);
	W->store = disk_close(W->store, DISK_STOP);
	cloud_free(W->cloud);
	loop_free(W->loop);
	if (!list_is_empty(&reqs))
		FINDING("a request is left");
	if (quota_used(quota))
		FINDING("%zu bytes are still charged", (size_t)quota_used(quota));
	quota = quota_unref(quota);
	world_end();
}

unsigned sequence_answers(void)
{
	return n_answers;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	begin(p, n);
	for (unsigned i = 0; n_answers < ANSWERS && i < STEPS_MAX && has_room_for_creates(); i++) {
		some_call();
		if (choose(4) == 0)
			let_one_go();
		pass(rarely() ? choose(256) * 500u : choose(64) * 4u);
	}
	pass(70000);
	end();
	return 0;
}
