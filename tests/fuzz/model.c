/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define OLD_ANSWERS 4u
#define POSTS	    256u

struct world *W;

/* --- choices --- */

static const uint8_t *input;
static size_t n_input;
static struct rng later;

unsigned choose(unsigned n)
{
	if (n_input) {
		n_input--;
		return *input++ % n;
	}
	return (unsigned)rng_below(&later, n);
}

bool rarely(void)
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

void model_hash(const void *p, size_t n, uint8_t ret[32])
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

struct box boxes[BOXES];
unsigned n_boxes, n_answers;
static char *old_answers[OLD_ANSWERS];

struct post {			/* a create that was sent */
	char tag[80];
	bool may_be_processed;
};
static struct post posts[POSTS];
static unsigned n_posts;

struct box *box_of(const char *id, size_t n)
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

char *value_of(const char *body, const char *key)
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

void tag_of(const char *metadata, char ret[80])
{
	const char *p = strstr(metadata, ".req\":\"");
	size_t n = p ? strcspn(p + 7, "\"") : 0;

	snprintf(ret, 80, "%.*s", (int)MIN(n, (size_t)79), p ? p + 7 : "");
}

unsigned create_sent(const char *tag)
{
	for (unsigned i = 0; i < n_posts; i++)
		if (tag[0] && str_eq(posts[i].tag, tag) && posts[i].may_be_processed)
			FINDING("a create that may have been processed was sent again: %s", tag);
	must(n_posts < ARRAY_SIZE(posts));
	posts[n_posts] = (struct post){ 0 };
	(void)str_copy(posts[n_posts].tag, sizeof(posts[0].tag), tag);
	return n_posts++;
}

void create_in_doubt(unsigned number)
{
	posts[number].may_be_processed = true;
}

bool has_room_for_creates(void)
{
	return n_posts < POSTS - 32;
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
unsigned act(const char *method, const char *path, const char *body, struct buf *ret)
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
	if (str_starts(at, "/templates") && str_eq(method, "GET")) {
		must(!buf_printf(ret, "[{\"templateID\":\"t1\",\"names\":[\"team/s1\"]},{\"templateID\":\"t2\"}]"));
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

void flip_bytes(struct buf *b)
{
	struct buf out = BUF_NULL;
	size_t n = buf_len(b), at[3];
	uint8_t *p = NULL;

	if (!n)
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
		at[i] = (choose(256) * 256 + choose(256)) % n;
	p = buf_space(&out, n);
	must(p);
	memcpy(p, buf_data(b), n);
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
		p[at[i]] = (uint8_t)choose(256);
	buf_added(&out, n);
	buf_fini(b);
	*b = out;
}

static void say_an_older(struct buf *b)
{
	const char *old = old_answers[choose(OLD_ANSWERS)];

	buf_fini(b);
	*b = (struct buf)BUF_NULL;
	must(!buf_printf(b, "%s", old ? old : "[]"));
}

void lie(unsigned *status, struct buf *b)
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

void head_of(struct fields *f)
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

void keep_answer(const struct buf *b)
{
	unsigned i = n_answers % OLD_ANSWERS;

	free(old_answers[i]);
	old_answers[i] = strndup(buf_len(b) ? (const char *)buf_data(b) : "", buf_len(b));
}

/* --- a sequence --- */

void model_begin(const uint8_t *p, size_t n)
{
	uint64_t seed = 1469598103934665603u;

	for (size_t i = 0; i < n; i++)
		seed = (seed ^ p[i]) * 1099511628211u;
	rng_seed(&later, seed);
	input = p;
	n_input = n;
	n_boxes = n_answers = n_posts = 0;
	rng_seed(&W->fake->rng, seed);
	rng_seed(&W->sys_rng, seed);
}

void model_end(void)
{
	for (unsigned i = 0; i < n_boxes; i++)
		free(boxes[i].metadata);
	for (unsigned i = 0; i < OLD_ANSWERS; i++) {
		free(old_answers[i]);
		old_answers[i] = NULL;
	}
}
