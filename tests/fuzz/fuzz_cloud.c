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
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/cloud/cloud.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/upstream/pool.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "proto/wire/fields.h"
#include "tests/sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define ANSWERS	    24u
#define STEPS_MAX   400u
#define BOXES	    32u
#define CALLS	    24u
#define OLD_ANSWERS 4u

#define FINDING(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), abort())

struct world *W;

/* --- choices --- */

static const uint8_t *input;
static size_t n_input;
static struct rng later;

static unsigned choose(unsigned n)
{
	if (n_input) {
		n_input--;
		return *input++ % n;
	}
	return (unsigned)rng_below(&later, n);
}

static bool rarely(void)
{
	return choose(8) == 0;
}

void __wrap_rng_system(void *p, size_t n);
void __wrap_rng_id(char *ret, size_t n);

void __wrap_rng_system(void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)(W ? rng_u64(&W->sys_rng) : i);
}

void __wrap_rng_id(char *ret, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ret[i] = (char)('a' + rng_below(&W->sys_rng, 26));
	ret[n] = 0;
}

static void hash(const void *p, size_t n, uint8_t ret[32])
{
	uint64_t h = 14695981039346656037u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
	for (unsigned i = 0; i < 32; i++)
		ret[i] = (uint8_t)(h >> (i % 8 * 8)) ^ (uint8_t)i;
}

bool sim_chance(struct rng *r, unsigned of_1000)
{
	return rng_below(r, 1000) < of_1000;
}

uint64_t sim_between(struct rng *r, uint64_t lo, uint64_t hi)
{
	return lo + rng_below(r, hi - lo + 1);
}

/* --- the model --- */

struct box {
	char id[32], tag[80];
	char *metadata;
	bool alive, paused;
	int64_t started_ms, end_ms;
	unsigned leases;	/* that our users hold, as far as they were told */
	bool kill_asked;
};

static struct box boxes[BOXES];
static unsigned n_boxes, n_answers;
static char *old_answers[OLD_ANSWERS];

struct post {			/* a create that was sent */
	char tag[80];
	bool may_be_processed;
};
static struct post posts[256];
static unsigned n_posts;

static struct box *box_of(const char *id, size_t n)
{
	for (unsigned i = 0; i < n_boxes; i++)
		if (strlen(boxes[i].id) == n && !memcmp(boxes[i].id, id, n))
			return &boxes[i];
	return NULL;
}

static const char *iso(char ret[40], int64_t ms)
{
	time_t s = (time_t)(ms / 1000);
	struct tm tm;

	gmtime_r(&s, &tm);
	strftime(ret, 40, "%Y-%m-%dT%H:%M:%SZ", &tm);
	return ret;
}

static void put_box(struct buf *b, const struct box *x)
{
	char from[40], to[40];

	must(!buf_printf(b, "{\"sandboxID\":\"%s\",\"templateID\":\"base\",\"alias\":\"a\",\"envdVersion\":\"0.6.13\",\"envdAccessToken\":"
			 "\"tok-%s\",\"domain\":\"x.test\",\"startedAt\":\"%s\",\"endAt\":\"%s\",\"cpuCount\":2,\"memoryMB\":512,"
			 "\"diskSizeMB\":1024,\"state\":\"%s\",\"metadata\":%s}",
			 x->id, x->id, iso(from, x->started_ms), iso(to, x->end_ms), x->paused ? "paused" : "running",
			 x->metadata ? x->metadata : "{}"));
}

/* The value of a key of a request's body, as text; "" = none. */
static char *value_of(const char *body, const char *key)
{
	const char *p = body ? strstr(body, key) : NULL, *q;
	unsigned depth = 0;
	bool quoted = false;

	if (!p)
		return str_dup("");
	p += strlen(key);
	for (q = p; *q; q++) {
		if (*q == '"' && q > p && q[-1] != '\\')
			quoted = !quoted;
		else if (!quoted && *q == '{')
			depth++;
		else if (!quoted && *q == '}' && (!depth || !--depth))
			break;
		else if (!quoted && !depth && *q == ',')
			return strndup(p, (size_t)(q - p));
	}
	return strndup(p, (size_t)(q - p) + (*p == '{'));
}

static void tag_of(const char *metadata, char ret[80])
{
	const char *p = strstr(metadata, ".req\":\"");
	size_t n = p ? strcspn(p + 7, "\"") : 0;

	snprintf(ret, 80, "%.*s", (int)MIN(n, (size_t)79), p ? p + 7 : "");
}

static void note_post(const char *tag)
{
	for (unsigned i = 0; i < n_posts; i++)
		if (tag[0] && str_eq(posts[i].tag, tag) && posts[i].may_be_processed)
			FINDING("a create that may have been processed was sent again: %s", tag);
	must(n_posts < ARRAY_SIZE(posts));
	posts[n_posts] = (struct post){ 0 };
	(void)str_copy(posts[n_posts++].tag, sizeof(posts[0].tag), tag);
}

static unsigned make_box(const char *body, struct buf *ret)
{
	struct box *x = &boxes[n_boxes];
	char *seconds;

	if (n_boxes == BOXES)
		return 429;
	*x = (struct box){ .alive = true, .metadata = value_of(body, "\"metadata\":"), .started_ms = clock_wall_ms() };
	if (x->metadata[0] != '{') {
		free(x->metadata);
		x->metadata = str_dup("{}");
	}
	tag_of(x->metadata, x->tag);
	snprintf(x->id, sizeof(x->id), "i%020u", ++n_boxes);
	seconds = value_of(body, "\"timeout\":");
	x->end_ms = x->started_ms + atoi(seconds) * 1000ll;
	free(seconds);
	put_box(ret, x);
	return 201;
}

static void end_box(struct box *x, bool asked_for)
{
	if (x->alive && asked_for && x->leases && !x->kill_asked)
		FINDING("%s was ended while it is leased", x->id);
	x->alive = false;
}

static unsigned about_box(const char *method, const char *id, const char *body, struct buf *ret)
{
	size_t n = strcspn(id, "/?");
	struct box *x = box_of(id, n);
	const char *what = id + n;

	if (x && x->alive && !x->paused && clock_wall_ms() >= x->end_ms)
		end_box(x, false);
	if (!x || !x->alive)
		return 404;
	if (str_eq(method, "DELETE")) {
		end_box(x, true);
		return 204;
	}
	if (str_starts(what, "/pause")) {
		if (x->paused)
			return 409;
		x->paused = true;
		return 204;
	}
	if (str_starts(what, "/timeout") || str_starts(what, "/refreshes") || str_starts(what, "/connect")) {
		char *s = value_of(body, str_starts(what, "/refreshes") ? "\"duration\":" : "\"timeout\":");

		x->end_ms = MAX(x->end_ms, clock_wall_ms() + atoi(s) * 1000ll);
		free(s);
		if (!str_starts(what, "/connect"))
			return 204;
		if (x->paused)
			x->started_ms = clock_wall_ms();
		x->paused = false;
		put_box(ret, x);
		return 201;
	}
	if (str_starts(what, "/snapshots")) {
		must(!buf_printf(ret, "{\"snapshotID\":\"snap%u:default\",\"names\":[\"team/s%u\"]}", n_answers, n_answers));
		return 201;
	}
	if (str_starts(what, "/metrics")) {
		must(!buf_printf(ret, "[{\"timestampUnix\":1,\"cpuCount\":1,\"cpuUsedPct\":1.5,\"memUsed\":1,\"memTotal\":2,\"diskUsed\":1,"
				 "\"diskTotal\":2}]"));
		return 200;
	}
	put_box(ret, x);
	return 200;
}

static unsigned list_boxes(struct buf *ret)
{
	bool first = true;

	must(!buf_printf(ret, "["));
	for (unsigned i = 0; i < n_boxes; i++) {
		if (!boxes[i].alive)
			continue;
		if (!first)
			must(!buf_printf(ret, ","));
		first = false;
		put_box(ret, &boxes[i]);
	}
	must(!buf_printf(ret, "]"));
	return 200;
}

/* What the cloud does, and what it says. */
static unsigned act(const char *method, const char *path, const char *body, struct buf *ret)
{
	const char *at = str_starts(path, "/v2") ? path + 3 : path;

	if (str_eq(method, "POST") && str_eq(at, "/sandboxes"))
		return make_box(body, ret);
	if (str_starts(at, "/sandboxes/"))
		return about_box(method, at + strlen("/sandboxes/"), body, ret);
	if (str_starts(at, "/sandboxes"))
		return list_boxes(ret);
	if (str_starts(at, "/snapshots")) {
		must(!buf_printf(ret, "[{\"snapshotID\":\"snap1:default\",\"names\":[\"team/s1\"]}]"));
		return 200;
	}
	return str_starts(at, "/templates") && str_eq(method, "DELETE") ? 204 : 404;
}

/* --- lies --- */

static const char *const values[] = {
	"null", "\"\"", "-1", "1e99", "18446744073709551616", "[]", "{}", "true", "\"../x\"", "\"i00000000000000000001\"",
	"\"i00000000000000000002\"", "\"2999-01-01T00:00:00Z\"", "\"0001-01-01T00:00:00Z\"", "\"killing\"", "\"paused\"", "\"\\u0000\"",
	"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
};

/* A body as a string, never NULL: an empty buffer has no data to point to. */
static char *text_of(const struct buf *b)
{
	char *ret = buf_len(b) ? strndup((const char *)buf_data(b), buf_len(b)) : strdup("");

	must(ret);
	return ret;
}

/* Another value for one of its members. */
static void change_value(struct buf *b)
{
	char *text = text_of(b), *p = text, *end;
	unsigned skip = choose(16);
	struct buf out = BUF_NULL;

	while ((p = strstr(p, "\":")) && skip--)
		p += 2;
	if (p) {
		p += 2;
		end = p + strcspn(p, ",}");
		must(!buf_printf(&out, "%.*s%s%s", (int)(p - text), text, values[choose(ARRAY_SIZE(values))], end));
		buf_fini(b);
		*b = out;
	}
	free(text);
}

static void flip_bytes(struct buf *b)
{
	char *text = text_of(b);
	size_t n = buf_len(b);

	for (unsigned i = 0; n && i < 3; i++)
		text[(choose(256) * 256 + choose(256)) % n] = (char)choose(256);
	buf_fini(b);
	*b = (struct buf)BUF_NULL;
	must(!buf_put(b, text, n));
	free(text);
}

static void say_an_older(struct buf *b)
{
	const char *old = old_answers[choose(OLD_ANSWERS)];

	buf_fini(b);
	*b = (struct buf)BUF_NULL;
	must(!buf_printf(b, "%s", old ? old : "[]"));
}

static void lie(unsigned *status, struct buf *b)
{
	static const unsigned statuses[] = { 200, 201, 204, 206, 301, 400, 401, 403, 404, 409, 410, 413, 429, 500, 502, 503, 504, 599, 999, 0 };

	switch (choose(7)) {
	case 0:
		*status = statuses[choose(ARRAY_SIZE(statuses))];
		break;
	case 1:
		change_value(b);
		break;
	case 2:
		flip_bytes(b);
		break;
	case 3:
		say_an_older(b);
		break;
	case 4:
		if (buf_len(b)) {
			struct buf cut = BUF_NULL;

			must(!buf_put(&cut, buf_data(b), (choose(256) * buf_len(b)) / 256));
			buf_fini(b);
			*b = cut;
		}
		break;
	case 5: {
		struct buf twice = BUF_NULL;

		must(!buf_put(&twice, buf_data(b), buf_len(b)) && !buf_put(&twice, buf_data(b), buf_len(b)));
		buf_fini(b);
		*b = twice;
		break;
	}
	default:
		change_value(b);
		change_value(b);
		break;
	}
}

static void head_of(struct fields *f)
{
	char date[64];
	time_t s = (time_t)(clock_wall_ms() / 1000);
	struct tm tm;

	gmtime_r(&s, &tm);
	strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	must(!fields_put(f, "content-type", rarely() ? "text/html" : "application/json"));
	must(!fields_put(f, "date", rarely() ? "Thu, 01 Jan 1970 00:00:00 GMT" : date));
	if (rarely())
		must(!fields_put(f, "retry-after", choose(2) ? "1" : "1000000000"));
	if (rarely())
		must(!fields_put(f, "x-next-token", choose(2) ? "t" : "u"));
	if (rarely()) {
		must(!fields_put(f, "ratelimit-limit", choose(2) ? "0" : "4294967295"));
		must(!fields_put(f, "ratelimit-remaining", choose(2) ? "0" : "3"));
		must(!fields_put(f, "ratelimit-reset", choose(2) ? "1" : "4294967295"));
	}
}

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
		posts[r->post].may_be_processed = true;
}

static void fail_req(struct pool_req *r, enum pool_fate fate)
{
	r->fate = fate;
	status_set(&r->failure, R_UNREACHABLE, "the model cloud is not there");
	r->on_ready(r, r->user);
}

static void keep_answer(const struct buf *b)
{
	unsigned i = n_answers % OLD_ANSWERS;

	free(old_answers[i]);
	old_answers[i] = strndup(buf_len(b) ? (const char *)buf_data(b) : "", buf_len(b));
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
		r->post = n_posts;
		note_post(r->tag);
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

/* --- users --- */

struct call {
	struct sandbox_op *op;
	bool open;
	struct box *leases, *kills;
};

static struct call calls[CALLS];
static struct sandbox_core *core;

static void call_over(struct call *c)
{
	if (!c->open)
		FINDING("a call was answered twice");
	c->open = false;
	c->op = NULL;
}

static void on_view(void *user, const struct status *st, const struct sandbox_view *b)
{
	call_over(user);
}

static void on_bool(void *user, const struct status *st, bool yes)
{
	call_over(user);
}

static void on_list(void *user, const struct status *st, const struct sandbox_page *p)
{
	call_over(user);
}

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	call_over(user);
}

static void on_snapshots(void *user, const struct status *st, const struct sandbox_snapshot_page *p)
{
	call_over(user);
}

static void on_metrics(void *user, const struct status *st, const struct sandbox_metrics *m)
{
	call_over(user);
}

struct held {
	struct list node;
	struct sandbox_held *h;
	struct box *box;
};
static struct list held;

static void on_held(void *user, enum sandbox_held_change change, const struct status *st, const struct sandbox_lease *lease)
{
	struct held *h = user;

	if (change != SANDBOX_HELD_LOST || !h->box)
		return;
	h->box->leases--;
	h->box = NULL;
}

static void on_lease(void *user, const struct status *st, const struct sandbox_lease *lease)
{
	struct call *c = user;
	struct held *h;

	call_over(c);
	if (!lease)
		return;
	h = calloc(1, sizeof(*h));
	must(h);
	h->box = box_of(lease->sandbox, strlen(lease->sandbox));
	must(!sandbox_held_new(core, lease->id, on_held, h, &h->h));
	if (h->box)
		h->box->leases++;
	list_add_tail(&held, &h->node);
}

static void let_go(struct held *h)
{
	if (h->box)
		h->box->leases--;
	list_del(&h->node);
	sandbox_held_free(h->h, false);
	free(h);
}

static bool is_of(const struct box *x, uid_t uid)
{
	char tag[48];

	snprintf(tag, sizeof(tag), "\"" TAG_UID "\":\"%u\"", (unsigned)uid);
	return strstr(x->metadata, tag) != NULL;
}

static struct call *free_call(void)
{
	for (unsigned i = 0; i < CALLS; i++)
		if (!calls[i].open)
			return &calls[i];
	return NULL;
}

static int create(const struct sandbox_call *head, struct call *c)
{
	static const char *const ids[] = { NULL, "r0", "r1", "r2" }, *const names[] = { NULL, NULL, "n0", "n1" };
	const char *id = ids[choose(4)], *name = names[choose(4)];
	struct sandbox_create q = { .request_id = id ? str_dup(id) : NULL, .name = name ? str_dup(name) : NULL,
				    .timeout_ms = 10000 + choose(256) * 1000u };

	q.what.metadata = (struct cloud_kvs){ 0 };
	return sandbox_create(core, head, &q, on_view, &c->op);
}

/* A user asks for something. */
static void some_call(void)
{
	static const struct principal users[] = { { .uid = 1000, .gid = 1000, .pidfd = -1 }, { .uid = 1001, .gid = 1001, .pidfd = -1 } };
	struct box *x = n_boxes ? &boxes[choose(n_boxes)] : NULL;
	struct sandbox_snapshot_create snap = { .request_id = choose(2) ? "s0" : "", .name = "" };
	struct sandbox_snapshot_list snaps = { .cached = false };
	struct sandbox_acquire lease = { .kind = SANDBOX_LEASE_STREAM };
	struct sandbox_connect connect = { .timeout_ms = 60000 };
	struct sandbox_list list = { .page_size = 100 };
	struct call *c = free_call();
	struct sandbox_call head = { .who = &users[choose(8) == 0], .sandbox = x ? x->id : "n0", .user = c,
				     .deadline_ms = clock_boot_ms() + 1000 + choose(64) * 1000u };
	int r = -ENOMEM;

	if (!c)
		return;
	c->open = true;
	switch (choose(14)) {
	case 0: case 1: case 2: case 3:
		r = create(&head, c);
		break;
	case 4: case 5:
		r = sandbox_get(core, &head, choose(2) ? 0 : SANDBOX_STALENESS_DEFAULT, on_view, &c->op);
		break;
	case 6:
		r = sandbox_list(core, &head, &list, on_list, &c->op);
		break;
	case 7:
		if (x && is_of(x, head.who->uid))
			x->kill_asked = true;
		r = sandbox_kill(core, &head, on_bool, &c->op);
		break;
	case 8:
		r = sandbox_connect(core, &head, &connect, on_view, &c->op);
		break;
	case 9:
		r = sandbox_pause(core, &head, true, on_bool, &c->op);
		break;
	case 10:
		r = sandbox_acquire(core, &head, &lease, on_lease, &c->op);
		break;
	case 11:
		r = sandbox_snapshot_create(core, &head, &snap, on_snapshot, &c->op);
		break;
	case 12:
		r = choose(2) ? sandbox_list_snapshots(core, &head, &snaps, on_snapshots, &c->op)
			      : sandbox_delete_snapshot(core, &head, "snap1:default", on_bool, &c->op);
		break;
	default:
		r = choose(2) ? sandbox_get_metrics(core, &head, 0, 0, on_metrics, &c->op)
			      : sandbox_set_timeout(core, &head, 60000, on_view, &c->op);
		break;
	}
	if (r < 0) {
		c->open = false;
		c->op = NULL;
	}
}

static void pass(uint64_t ms)
{
	uint64_t until = sim->now_ms + ms;

	while (sim_step(until))
		;
}

/* --- a sequence --- */

static void begin(const uint8_t *p, size_t n)
{
	static struct fake fake;
	static bool quiet;
	uint64_t seed = 1469598103934665603u;
	struct cloud_options co = { .account = "default", .domain = "x.test", .api_key = "ab_key", .no_proxy = "*" };
	struct sandbox_core_account account = { .name = "default" };
	struct sandbox_core_options o = { .accounts = &account, .n_accounts = 1, .sha256 = hash, .rng_seed = 7,
					  .resolve_horizon_ms = 20000, .reconcile_period_ms = 30000, .unclaimed_grace_ms = 3600000 };
	struct status why;

	if (!quiet)
		log_setup(getenv("FUZZ_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	if (!quiet) {	/* the key of all maps, before chance is the sequence's */
		struct map m = { 0 };

		must(!map_put_u64(&m, 1, &m));
		map_fini(&m);
	}
	quiet = true;
	for (size_t i = 0; i < n; i++)
		seed = (seed ^ p[i]) * 1099511628211u;
	rng_seed(&later, seed);
	input = p;
	n_input = n;
	W = calloc(1, sizeof(*W));
	must(W);
	memset(&fake, 0, sizeof(fake));
	W->fake = &fake;
	rng_seed(&fake.rng, seed);
	rng_seed(&W->sys_rng, seed);
	sim_begin(&fake.time);
	disk_reset(1);
	must(!loop_new(&W->loop));
	W->store = disk_open();
	co.loop = W->loop;
	co.pool = (struct pool *)&fake;
	quota = quota_new(&(struct quota_options){ .name = "model", .max = 64u << 20 });
	must(quota);
	list_init(&reqs);
	list_init(&held);
	must(!cloud_new(&co, &W->cloud, &why));
	account.cloud = W->cloud;
	o.loop = W->loop;
	o.store = W->store;
	o.prober = (struct sandbox_prober){ 0 };
	policy_default(&o.rules.policy);
	must(!sandbox_core_new(&o, &core));
}

static void end(void)
{
	for (unsigned i = 0; i < CALLS; i++)
		if (calls[i].open)
			FINDING("a call was never answered");
	while (!list_is_empty(&held))
		let_go(list_entry(held.next, struct held, node));
	core = sandbox_core_free(core);
	W->store = disk_close(W->store, DISK_STOP);
	cloud_free(W->cloud);
	loop_free(W->loop);
	if (!list_is_empty(&reqs))
		FINDING("a request is left");
	if (quota_used(quota))
		FINDING("%zu bytes are still charged", (size_t)quota_used(quota));
	quota = quota_unref(quota);
	disk_lose();
	sim_end();
	for (unsigned i = 0; i < n_boxes; i++)
		free(boxes[i].metadata);
	for (unsigned i = 0; i < OLD_ANSWERS; i++) {
		free(old_answers[i]);
		old_answers[i] = NULL;
	}
	memset(calls, 0, sizeof(calls));
	n_boxes = n_answers = n_posts = 0;
	free(W);
	W = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	begin(p, n);
	for (unsigned i = 0; n_answers < ANSWERS && i < STEPS_MAX && n_posts < ARRAY_SIZE(posts) - 32; i++) {
		some_call();
		if (choose(4) == 0 && !list_is_empty(&held))
			let_go(list_entry(held.next, struct held, node));
		pass(rarely() ? choose(256) * 500u : choose(64) * 4u);
	}
	pass(70000);
	end();
	return 0;
}
