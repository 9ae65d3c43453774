/* SPDX-License-Identifier: MIT */
/* Calls of the control plane: HTTP in and out over the real core and the fake cloud. Who asks is chosen by the test. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "daemon/auth/token.h"
#include "daemon/auth/uid_quota.h"
#include "daemon/common/http/reply.h"
#include "daemon/gateway/impl.h"
#include "proto/base/fd.h"
#include "proto/cloud/list.h"
#include "tests/unit/sandbox/world.h"

#define ANSWER_MAX (1u << 20)

struct door {
	struct world w;
	struct gateway g;
	struct http_server *server;
	struct uid_quotas *quotas;
	uint16_t port;
	struct gateway_caller by;
	struct token token;
	char *scope[2];
	void *kept[512];		/* freed at the end: what tests look at as long as they like */
	size_t n_kept;
};

static void *keep(struct door *d, void *p)
{
	CHECK(p && d->n_kept < ARRAY_SIZE(d->kept));
	d->kept[d->n_kept++] = p;
	return p;
}

/* In the place of pass.c, whose cloud is a real one: says that it came, and for whom. */
void gateway_pass_request(struct gateway *g, struct http_stream *x, const struct gateway_pass_ask *ask)
{
	char text[120];

	snprintf(text, sizeof(text), "passed %s as %s", reply_request(x, ":path"), ask->account ? ask->account->name : "nobody");
	reply_text(x, 299, text);
}

static void on_request(struct http_stream *x, void *user)
{
	struct door *d = user;

	gateway_control_request(&d->g, x, &d->by);
}

static int listen_on(uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 16));
	CHECK(!getsockname(fd, (struct sockaddr *)&a, &n));
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static char no_policy[] = "";
static struct gateway_account accounts[] = { { .name = "default" }, { .name = "second" } };

/* With an entry [warm], or NULL. */
static void door_open_with(struct door *d, const struct sandbox_warm_entry *warm)
{
	struct http_server_options so = { .http1 = true, .on_request = on_request, .user = d };

	*d = (struct door){ .token = { .refs = 1, .uid = 1000, .run_pidfd = -1, .policy = no_policy }, .w = { .warm = warm, .n_warm = warm ? 1 : 0 } };
	world_new_with(&d->w);
	d->by = (struct gateway_caller){ .who = alice, .token = &d->token, .flavour = flavour_get(FLAVOUR_E2B) };
	d->g.loop = d->w.loop;
	d->g.o.core = d->w.core;
	d->g.accounts = accounts;
	d->g.o.n_accounts = ARRAY_SIZE(accounts);
	d->quotas = uid_quotas_new(&(struct uid_quotas_options){ .max_per_uid = 31u << 20 });
	CHECK(d->quotas);
	d->g.o.quotas = d->quotas;
	list_init(&d->g.controls);
	list_init(&d->g.relays);
	so.loop = d->w.loop;
	so.listen_fd = listen_on(&d->port);
	CHECK(!http_server_new(&so, &d->server));
}

static void door_open(struct door *d)
{
	door_open_with(d, NULL);
}

static void door_close(struct door *d)
{
	uint64_t used, max;

	gateway_control_end_all(&d->g);
	spin(&d->w, 20);
	CHECK_INT(d->g.counts.controls, 0);
	CHECK_INT(d->token.refs, 1);
	while (d->n_kept)
		free(d->kept[--d->n_kept]);
	d->server = http_server_free(d->server);
	uid_quota_read(d->quotas, 1000, &used, &max);
	CHECK_INT(used, 0);
	uid_quotas_free(d->quotas);
	world_free(&d->w);
}

/* --- a client --- */

struct reply {
	unsigned status;
	char *all;		/* head and body; leaks with the test */
	const char *body;
};

static int dial(struct door *d)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(d->port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof(a)));
	CHECK(!fd_set_nonblock(fd, true));
	return fd;
}

static void send_all(struct door *d, int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		} else {
			CHECK(errno == EAGAIN);
			CHECK(loop_once(d->w.loop, 5) >= 0);
		}
	}
}

static const char *header_of(const struct reply *r, const char *name)
{
	static char value[256];
	char want[80];
	const char *at;

	snprintf(want, sizeof(want), "\r\n%s: ", name);
	at = strcasestr(r->all, want);
	if (!at || at > r->body)
		return NULL;
	at += strlen(want);
	(void)str_copy(value, MIN(sizeof(value), strcspn(at, "\r") + 1), at);
	return value;
}

/* Is the answer that begins here all there? */
static bool is_whole(struct reply *r)
{
	char *end = strstr(r->all, "\r\n\r\n");
	const char *length;

	if (!end)
		return false;
	r->body = end + 4;
	r->status = (unsigned)strtoul(r->all + 9, NULL, 10);
	length = header_of(r, "content-length");
	return r->status == 204 || (length && strlen(r->body) >= strtoul(length, NULL, 10));
}

static struct reply read_reply(struct door *d, int fd)
{
	struct reply r = { .all = keep(d, calloc(1, ANSWER_MAX)) };
	uint64_t until = clock_boot_ms() + 200000;
	size_t n = 0;

	while (!is_whole(&r)) {
		ssize_t k = recv(fd, r.all + n, ANSWER_MAX - n - 1, 0);

		CHECK(k > 0 || (k < 0 && errno == EAGAIN));
		if (k > 0)
			n += (size_t)k;
		else
			CHECK(loop_once(d->w.loop, 5) >= 0);
		CHECK(clock_boot_ms() < until);
	}
	return r;
}

static void send_call(struct door *d, int fd, const char *line, const char *headers, const char *body)
{
	size_t n = body ? strlen(body) : 0;
	char *text;

	text = str_printf("%s HTTP/1.1\r\nhost: localhost\r\n%s%s%s%zu\r\n\r\n%s", line, headers ? headers : "",
			  body ? "content-type: application/json\r\n" : "", "content-length: ", n, body ? body : "");
	CHECK(text);
	send_all(d, fd, text, strlen(text));
	free(text);
}

static struct reply call_with(struct door *d, const char *line, const char *headers, const char *body)
{
	int fd = dial(d);
	struct reply r;

	send_call(d, fd, line, headers, body);
	r = read_reply(d, fd);
	close(fd);
	return r;
}

static struct reply call(struct door *d, const char *line, const char *body)
{
	return call_with(d, line, NULL, body);
}

printf_like(3, 4) static struct reply callf(struct door *d, const char *body, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	return call(d, line, body);
}

#define CHECK_STATUS(r, want) do { \
	const struct reply r_ = (r); \
	if (r_.status != (want)) \
		fprintf(stderr, "%s\n", r_.all); \
	CHECK_INT(r_.status, want); \
} while (0)

/* The text of a member that is one, of its first occurrence. */
static const char *member(const struct reply *r, const char *name)
{
	static char value[4][256];
	static unsigned turn;
	char want[80], *at = value[turn++ % 4];
	const char *p;

	snprintf(want, sizeof(want), "\"%s\":\"", name);
	p = strstr(r->body, want);
	if (!p)
		return NULL;
	p += strlen(want);
	(void)str_copy(at, MIN(sizeof(value[0]), strcspn(p, "\"") + 1), p);
	return at;
}

static const char *make_with(struct door *d, const char *headers)
{
	struct reply r = call_with(d, "POST /sandboxes", headers, "{\"templateID\":\"base\",\"timeout\":300,\"secure\":true}");

	CHECK_STATUS(r, 201);
	return keep(d, str_dup(member(&r, "sandboxID")));
}

static const char *make(struct door *d)
{
	return make_with(d, NULL);
}

/* --- what each route answers --- */

TEST(a_life)
{
	struct door d;
	struct reply r;
	const char *id;

	door_open(&d);
	r = call(&d, "POST /sandboxes",
		 "{\"templateID\":\"base\",\"timeout\":300,\"secure\":true,\"metadata\":{\"user\":\"a b\"},\"envVars\":{\"A\":\"1\"}}");
	CHECK_STATUS(r, 201);
	CHECK(member(&r, "envdAccessToken") && member(&r, "envdVersion") && member(&r, "templateID"));
	CHECK(strstr(r.body, "\"clientID\":") && strstr(r.body, "\"trafficAccessToken\":null"));
	id = keep(&d, str_dup(member(&r, "sandboxID")));
	r = callf(&d, NULL, "GET /sandboxes/%s", id);
	CHECK_STATUS(r, 200);
	CHECK_STR(member(&r, "state"), "running");
	CHECK_STR(member(&r, "user"), "a b");
	CHECK(!strstr(r.body, "agentbox."));		/* our own tags */
	CHECK(header_of(&r, "age"));
	CHECK_STR(header_of(&r, "agentboxd-source"), "cache");
	r = callf(&d, NULL, "GET /sandboxes/%s-6532622b", id);	/* the old form of an id */
	CHECK_STATUS(r, 200);
	r = callf(&d, "{\"timeout\":600}", "POST /sandboxes/%s/timeout", id);
	CHECK_STATUS(r, 204);
	CHECK(fake_find(d.w.fake, id)->end_at_ms > fake_now(d.w.fake) + 590000);
	r = callf(&d, NULL, "POST /sandboxes/%s/refreshes", id);
	CHECK_STATUS(r, 204);
	r = callf(&d, "{\"timeout\":300}", "POST /sandboxes/%s/connect", id);
	CHECK_STATUS(r, 200);
	r = callf(&d, "{\"memory\":true}", "POST /sandboxes/%s/pause", id);
	CHECK_STATUS(r, 204);
	r = callf(&d, NULL, "POST /sandboxes/%s/pause", id);
	CHECK_STATUS(r, 409);
	r = callf(&d, "{\"timeout\":60}", "POST /sandboxes/%s/timeout", id);
	CHECK_STATUS(r, 404);
	r = callf(&d, "{\"timeout\":300}", "POST /sandboxes/%s/connect", id);
	CHECK_STATUS(r, 201);
	r = callf(&d, NULL, "POST /sandboxes/%s/resume", id);
	CHECK_STATUS(r, 409);
	r = callf(&d, "{}", "PUT /sandboxes/%s/network", id);
	CHECK_STATUS(r, 204);
	r = callf(&d, NULL, "DELETE /sandboxes/%s", id);
	CHECK_STATUS(r, 204);
	r = callf(&d, NULL, "DELETE /sandboxes/%s", id);
	CHECK_STATUS(r, 404);
	r = callf(&d, NULL, "GET /sandboxes/%s", id);
	CHECK_STATUS(r, 404);
	CHECK(strstr(r.body, "\"code\":404,"));
	door_close(&d);
}

/* What the cloud takes is taken: the sandbox is its user's, not ours. */
TEST(what_only_the_cloud_takes)
{
	struct door d;
	struct reply r;
	const char *id;

	door_open(&d);
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\",\"autoResume\":{\"enabled\":true}}");
	CHECK_STATUS(r, 201);
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\",\"autoPauseMemory\":true}");
	CHECK_STATUS(r, 201);
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\",\"autoPauseMemory\":false}");
	CHECK_STATUS(r, 400);
	id = make(&d);
	r = callf(&d, "{\"timeout\":0}", "POST /sandboxes/%s/timeout", id);
	CHECK_STATUS(r, 204);
	CHECK(fake_find(d.w.fake, id)->end_at_ms <= fake_now(d.w.fake));
	door_close(&d);
}

TEST(health_and_what_is_no_route)
{
	struct door d;
	struct reply r;

	door_open(&d);
	r = call(&d, "GET /health", NULL);
	CHECK_STATUS(r, 204);
	r = call(&d, "GET /nothing", NULL);
	CHECK_STATUS(r, 403);
	CHECK(strstr(r.body, "relay = read"));
	r = call(&d, "GET /sandboxes/x/y/z", NULL);
	CHECK_STATUS(r, 404);
	CHECK(strstr(r.body, "validation error"));
	r = call(&d, "PATCH /sandboxes", "{}");
	CHECK_STATUS(r, 400);
	r = call(&d, "GET /templates", NULL);
	CHECK_STATUS(r, 403);
	CHECK(strstr(r.body, "GET /templates") && strstr(r.body, "relay = read in [uid 1000]"));
	r = call(&d, "GET /api-keys", NULL);
	CHECK_STATUS(r, 403);
	r = call(&d, "GET /sandboxes/Not-an-id", NULL);
	CHECK_STATUS(r, 400);
	r = call(&d, "POST /sandboxes", NULL);
	CHECK_STATUS(r, 400);
	r = call(&d, "POST /sandboxes", "[]");
	CHECK_STATUS(r, 400);
	r = call(&d, "POST /sandboxes", "{\"templateID\":7}");
	CHECK_STATUS(r, 400);
	CHECK(strstr(r.body, "templateID"));
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\",\"timeout\":0}");
	CHECK_STATUS(r, 400);
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\",\"metadata\":{\"agentbox.uid\":\"0\"}}");
	CHECK_STATUS(r, 400);
	CHECK_INT(fake_alive(d.w.fake), 0);
	door_close(&d);
}

static void read_uid(void *user, uid_t uid, struct gateway_uid *ret)
{
	CHECK_INT(uid, 1000);
	ret->passes = *(enum pass_level *)user;
	ret->account = "second";
}

/* GATEWAY §2, last line of the table. */
TEST(relay_of_what_the_core_has_not)
{
	static const struct {
		const char *call;
		enum pass_level needs;
	} rows[] = {
		{ "GET /templates", PASS_READ },
		{ "GET /v2/templates?limit=2", PASS_READ },
		{ "POST /v3/templates", PASS_TEMPLATES },
		{ "GET /templates/x/files/0a", PASS_TEMPLATES },
		{ "DELETE /templates/other", PASS_ALL },	/* below it the core knows whose it is */
		{ "POST /volumes", PASS_ALL },
		{ "GET /api-keys", PASS_NEVER },
		{ "GET /teams", PASS_NEVER },
		{ "GET /v3/sandboxes/x", PASS_NEVER },
		{ "GET /templates/../api-keys", PASS_NEVER },
	};
	enum pass_level level = PASS_NONE;
	struct door d;
	struct reply r;

	door_open(&d);
	d.g.o.read_uid = read_uid;
	d.g.o.user = &level;
	for (; level < PASS_LEVELS; level++)
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
			bool is_delete = strstr(rows[i].call, "DELETE");

			r = call(&d, rows[i].call, NULL);
			CHECK((r.status == 299) == (level >= rows[i].needs));
			CHECK(r.status == 299 || r.status == 400 || r.status == 403 || r.status == 404);
			if (r.status == 299)
				CHECK(strstr(r.body, "as second"));
			else if (rows[i].needs == PASS_NEVER)
				CHECK(!strstr(r.body, "relay ="));
			else if (!is_delete)
				CHECK(strstr(r.body, "relay ="));
		}
	/* A token for some sandboxes passes nothing. */
	level = PASS_ALL;
	d.token.sandboxes = d.scope;
	d.token.n_sandboxes = 1;
	d.scope[0] = (char *)"i123";
	r = call(&d, "GET /templates", NULL);
	CHECK_STATUS(r, 403);
	r = call(&d, "DELETE /templates/other", NULL);
	CHECK_STATUS(r, 403);
	d.token.sandboxes = NULL;
	d.token.n_sandboxes = 0;
	door_close(&d);
}

/* Another uid's is nothing, byte for byte but for its name. */
TEST(what_is_anothers_is_not_there)
{
	static const struct {
		const char *before, *behind, *body;
	} calls[] = {
		{ "GET ", "", NULL }, { "DELETE ", "", NULL }, { "POST ", "/timeout", "{\"timeout\":5}" },
		{ "POST ", "/refreshes", NULL }, { "POST ", "/connect", "{\"timeout\":5}" }, { "POST ", "/resume", NULL },
		{ "POST ", "/pause", NULL }, { "POST ", "/fork", NULL }, { "PUT ", "/network", "{}" },
		{ "POST ", "/snapshots", "{}" }, { "GET ", "/metrics", NULL }, { "GET ", "/logs", NULL },
	};
	const char *id, *none = "i00000000000000000000";
	struct door d;

	door_open(&d);
	id = make(&d);
	d.by.who = bob;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct reply theirs, no_ones;
		char *at;

		theirs = callf(&d, calls[i].body, "%s/sandboxes/%s%s", calls[i].before, id, calls[i].behind);
		no_ones = callf(&d, calls[i].body, "%s/sandboxes/%s%s", calls[i].before, none, calls[i].behind);
		while ((at = strstr(no_ones.all, none)))
			memcpy(at, id, strlen(none));
		CHECK_INT(strlen(id), strlen(none));
		CHECK_STR(theirs.all, no_ones.all);
		CHECK_INT(theirs.status, str_eq(calls[i].behind, "/metrics") ? 200 : 404);
	}
	CHECK(fake_find(d.w.fake, id));
	door_close(&d);
}

/* A token for some sandboxes: the others of its own uid are refused, another uid's are not there. */
TEST(scope_of_a_token)
{
	const char *inside, *outside, *theirs;
	struct door d;
	struct reply r;

	door_open(&d);
	inside = make(&d);
	outside = make(&d);
	d.by.who = bob;
	theirs = make(&d);
	d.by.who = alice;
	d.scope[0] = (char *)inside;
	d.token.sandboxes = d.scope;
	d.token.n_sandboxes = 1;
	r = callf(&d, NULL, "GET /sandboxes/%s", inside);
	CHECK_STATUS(r, 200);
	r = callf(&d, NULL, "DELETE /sandboxes/%s", outside);
	CHECK_STATUS(r, 403);
	CHECK(strstr(r.body, "this token is not for"));
	r = callf(&d, NULL, "GET /sandboxes/%s", theirs);
	CHECK_STATUS(r, 404);
	r = callf(&d, NULL, "GET /sandboxes/%s", "i00000000000000000000");
	CHECK_STATUS(r, 404);
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\"}");
	CHECK_STATUS(r, 403);
	r = callf(&d, NULL, "POST /sandboxes/%s/fork", inside);
	CHECK_STATUS(r, 403);
	r = call(&d, "GET /v2/sandboxes", NULL);
	CHECK_STATUS(r, 200);
	CHECK(strstr(r.body, inside) && !strstr(r.body, outside));
	CHECK_STR(header_of(&r, "x-total-running"), "1");
	CHECK(fake_find(d.w.fake, outside));
	door_close(&d);
}

TEST(lists)
{
	const char *ids[5];
	struct door d;
	struct reply r;
	char line[300];

	door_open(&d);
	for (int i = 0; i < 5; i++) {
		ids[i] = make(&d);
		spin(&d.w, 3);
	}
	CHECK_STATUS(callf(&d, NULL, "POST /sandboxes/%s/pause", ids[4]), 204);
	r = call(&d, "GET /v2/sandboxes?limit=2", NULL);
	CHECK_STATUS(r, 200);
	CHECK(strstr(r.body, ids[4]) && strstr(r.body, ids[3]) && !strstr(r.body, ids[2]));
	CHECK_STR(header_of(&r, "x-total-running"), "4");
	snprintf(line, sizeof(line), "GET /v2/sandboxes?limit=2&nextToken=%s", header_of(&r, "x-next-token"));
	r = call(&d, line, NULL);
	CHECK(strstr(r.body, ids[2]) && strstr(r.body, ids[1]) && !strstr(r.body, ids[0]) && !strstr(r.body, ids[3]));
	snprintf(line, sizeof(line), "GET /v2/sandboxes?limit=2&nextToken=%s", header_of(&r, "x-next-token"));
	r = call(&d, line, NULL);
	CHECK(strstr(r.body, ids[0]) && !strstr(r.body, ids[1]));
	CHECK(!header_of(&r, "x-next-token"));
	r = call(&d, "GET /v2/sandboxes?limit=1&order=asc", NULL);
	CHECK(strstr(r.body, ids[0]));
	snprintf(line, sizeof(line), "GET /v2/sandboxes?order=asc&limit=1&nextToken=%s", header_of(&r, "x-next-token"));
	r = call(&d, line, NULL);
	CHECK(strstr(r.body, ids[1]) && !strstr(r.body, ids[2]));
	r = call(&d, "GET /v2/sandboxes?state=paused", NULL);
	CHECK(strstr(r.body, ids[4]) && !strstr(r.body, ids[3]) && !header_of(&r, "x-total-running"));
	r = call(&d, "GET /sandboxes", NULL);
	CHECK(strstr(r.body, ids[0]) && strstr(r.body, ids[3]) && !strstr(r.body, ids[4]));
	r = call(&d, "GET /v2/sandboxes?template=nosuch", NULL);
	CHECK_STR(r.body, "[]");
	CHECK_STATUS(call(&d, "GET /v2/sandboxes?limit=0", NULL), 400);
	CHECK_STATUS(call(&d, "GET /v2/sandboxes?nextToken=x", NULL), 400);
	CHECK_STATUS(call(&d, "GET /v2/sandboxes?metadata=", NULL), 400);
	CHECK_STATUS(call(&d, "GET /v2/sandboxes?state=dead", NULL), 400);
	door_close(&d);
}

/* A user daemon's own token has the whole account, with what nobody here made. */
TEST(whole_account)
{
	struct door d;
	struct reply r;

	door_open(&d);
	fake_plant(d.w.fake, "iforeign");
	r = call(&d, "GET /v2/sandboxes", NULL);
	CHECK(!strstr(r.body, "iforeign"));
	d.g.o.whole_account = true;
	d.by.who.admin = true;
	spin(&d.w, 2000);
	r = call(&d, "GET /v2/sandboxes", NULL);
	CHECK(strstr(r.body, "iforeign"));
	CHECK_STATUS(call(&d, "GET /sandboxes/iforeign", NULL), 200);
	CHECK_STATUS(call(&d, "DELETE /sandboxes/iforeign", NULL), 204);
	door_close(&d);
}

TEST(forks_and_snapshots)
{
	const char *id, *snapshot;
	struct door d;
	struct reply r;

	door_open(&d);
	id = make(&d);
	d.w.fake->children_fail = 1;
	r = callf(&d, "{\"count\":2,\"timeout\":300}", "POST /sandboxes/%s/fork", id);
	CHECK_STATUS(r, 201);
	CHECK(strstr(r.body, "{\"sandbox\":{") && strstr(r.body, "{\"error\":{\"code\":429"));
	CHECK_STATUS(callf(&d, "{\"count\":0}", "POST /sandboxes/%s/fork", id), 400);
	CHECK_STATUS(callf(&d, "{\"count\":101}", "POST /sandboxes/%s/fork", id), 400);
	r = callf(&d, "{\"name\":\"my-snap\"}", "POST /sandboxes/%s/snapshots", id);
	CHECK_STATUS(r, 201);
	snapshot = member(&r, "snapshotID");
	r = call(&d, "GET /snapshots", NULL);
	CHECK_STATUS(r, 200);
	CHECK(strstr(r.body, snapshot) && header_of(&r, "agentboxd-source"));
	CHECK_STATUS(callf(&d, NULL, "DELETE /templates/%s", snapshot), 204);
	CHECK_STATUS(callf(&d, NULL, "DELETE /templates/%s", snapshot), 404);
	CHECK_STATUS(callf(&d, NULL, "DELETE /templates/%s", "-%20-"), 400);
	door_close(&d);
}

/* --- create --- */

TEST(a_create_once)
{
	static const char key[] = "idempotency-key: k1\r\n", body[] = "{\"templateID\":\"base\",\"secure\":true}";
	struct door d;
	struct reply a, b;

	door_open(&d);
	a = call_with(&d, "POST /sandboxes", key, body);
	CHECK_STATUS(a, 201);
	b = call_with(&d, "POST /sandboxes", key, body);
	CHECK_STATUS(b, 201);
	CHECK_STR(member(&a, "sandboxID"), member(&b, "sandboxID"));
	b = call_with(&d, "POST /sandboxes", key, "{\"templateID\":\"base\",\"secure\":true,\"timeout\":20}");
	CHECK_STATUS(b, 409);
	b = call_with(&d, "POST /sandboxes", "idempotency-key: k1\r\nagentboxd-lease: 10m\r\n", body);
	CHECK_STATUS(b, 409);
	CHECK_INT(fake_alive(d.w.fake), 1);
	/* SDKs send the headers of a create again: elsewhere they mean nothing. */
	b = call_with(&d, "POST /v2/sandboxes", key, body);
	CHECK_STATUS(b, 201);
	CHECK_INT(fake_alive(d.w.fake), 2);
	door_close(&d);
}

TEST(a_named_create)
{
	static const char name[] = "agentboxd-name: worker\r\n";
	struct door d;
	struct reply r;
	const char *id;

	door_open(&d);
	id = make_with(&d, name);
	CHECK_STR(make_with(&d, name), id);
	CHECK_STATUS(callf(&d, NULL, "POST /sandboxes/%s/pause", id), 204);
	CHECK_STR(make_with(&d, name), id);
	CHECK(!fake_find(d.w.fake, id)->paused);
	r = call_with(&d, "POST /sandboxes", name, "{\"templateID\":\"other\"}");
	CHECK_STATUS(r, 409);
	CHECK(strstr(r.body, "Agentboxd-Name"));
	CHECK_INT(fake_alive(d.w.fake), 1);
	r = call_with(&d, "POST /sandboxes", "agentboxd-name: Not a name\r\n", "{\"templateID\":\"base\"}");
	CHECK_STATUS(r, 400);
	door_close(&d);
}

static struct answer look(struct door *d, const char *id)
{
	return do_get(&d->w, &alice, id, SANDBOX_STALENESS_DEFAULT);
}

TEST(policies_and_leases)
{
	struct door d;
	const char *id;
	struct answer a;

	door_open(&d);
	a = look(&d, make(&d));
	CHECK(!a.policy.keep_alive && !a.leases);	/* the cloud's clock is its user's */
	a = look(&d, make_with(&d, "agentboxd-policy: on_release=kill, idle_timeout=10m\r\n"));
	CHECK(a.policy.on_release == POLICY_KILL && a.policy.idle_timeout_ms == 600000 && !a.policy.keep_alive);
	id = make_with(&d, "agentboxd-lease: 10m\r\n");
	a = look(&d, id);
	CHECK(a.policy.keep_alive && a.leases == 1);
	a = look(&d, make_with(&d, "agentboxd-lease: none\r\n"));
	CHECK(!a.leases);
	CHECK_STATUS(call_with(&d, "POST /sandboxes", "agentboxd-lease: soon\r\n", "{\"templateID\":\"base\"}"), 400);
	CHECK_STATUS(call_with(&d, "POST /sandboxes", "agentboxd-policy: on_relase=kill\r\n", "{\"templateID\":\"base\"}"), 400);
	CHECK_STATUS(call_with(&d, "POST /sandboxes", "agentboxd-policy: on_release=kil\r\n", "{\"templateID\":\"base\"}"), 400);
	CHECK_STATUS(call_with(&d, "POST /sandboxes", "agentboxd-deadline: x\r\n", "{\"templateID\":\"base\"}"), 400);
	door_close(&d);
}

TEST(words_in_the_metadata)
{
	static const char body[] = "{\"templateID\":\"base\",\"metadata\":{\"a\":\"1\",\"agentboxd.lease\":\"10m\",\"b\":\"2\"}}";
	struct door d;
	struct reply r;

	door_open(&d);
	r = call(&d, "POST /sandboxes", body);
	CHECK_STATUS(r, 201);
	CHECK_INT(look(&d, member(&r, "sandboxID")).leases, 0);		/* words of theirs */
	d.g.o.metadata_words = true;
	r = call(&d, "POST /sandboxes", body);
	CHECK_STATUS(r, 201);
	CHECK_INT(look(&d, member(&r, "sandboxID")).leases, 1);
	r = callf(&d, NULL, "GET /sandboxes/%s", member(&r, "sandboxID"));
	CHECK(strstr(r.body, "\"a\":\"1\",\"b\":\"2\"") && !strstr(r.body, "agentboxd.lease"));
	door_close(&d);
}

static uint32_t n_ready(const struct door *d)
{
	struct sandbox_warm_info i;

	CHECK(sandbox_warm_info(d->w.core, 0, &i));
	return i.ready;
}

/* Is what these words make one that was ready? The answer says so. */
static bool makes_warm(struct door *d, const char *headers, const char *metadata)
{
	char *body = str_printf("{\"templateID\":\"base\",\"timeout\":300,\"secure\":true,\"metadata\":{%s}}", metadata);
	struct reply r;
	bool yes;

	UNTIL(&d->w, n_ready(d) == 2);
	r = call_with(d, "POST /sandboxes", headers, body);
	CHECK_STATUS(r, 201);
	yes = header_of(&r, "agentboxd-warm");
	CHECK(!yes || !strcmp(header_of(&r, "agentboxd-warm"), "true"));
	CHECK(look(d, member(&r, "sandboxID")).warm == yes);
	CHECK_INT(n_ready(d), yes ? 1 : 2);
	free(body);
	return yes;
}

TEST(one_that_is_ready)
{
	static const uid_t claimers[] = { 1000 };
	static const struct sandbox_warm_entry e = {
		.name = "py", .what = { .template_id = (char *)"base", .timeout_s = 120 }, .size = 2, .claimers = { claimers, 1, NULL, 0 },
		.ready_timeout_ms = 5000, .max_age_ms = 1800000, .burst = 2, .per_hour = 60,
	};
	static const char word[] = "\"agentboxd.warm\":\"prefer\"";
	struct door d;
	struct reply r;

	door_open_with(&d, &e);
	CHECK(!makes_warm(&d, NULL, ""));
	CHECK(makes_warm(&d, "agentboxd-warm: prefer\r\n", "\"a\":\"1\""));
	CHECK(makes_warm(&d, "agentboxd-warm: require\r\n", ""));
	CHECK(!makes_warm(&d, "agentboxd-warm: never\r\n", ""));
	CHECK(!makes_warm(&d, NULL, word));		/* a word of theirs */
	d.g.o.metadata_words = true;
	CHECK(makes_warm(&d, NULL, word));
	CHECK(!makes_warm(&d, "agentboxd-warm: never\r\n", word));
	d.token.warm = SANDBOX_WARM_PREFER;
	CHECK(makes_warm(&d, NULL, ""));
	CHECK(!makes_warm(&d, "agentboxd-warm: never\r\n", ""));
	d.token.warm = SANDBOX_WARM_UNSET;
	d.w.core->warm_mode = SANDBOX_WARM_PREFER;	/* [policy] warm */
	CHECK(makes_warm(&d, NULL, ""));
	r = call_with(&d, "POST /sandboxes", "agentboxd-warm: always\r\n", "{\"templateID\":\"base\"}");
	CHECK_STATUS(r, 400);
	CHECK(strstr(r.body, "Agentboxd-Warm: must be prefer, require or never, not \\\"always\\\""));
	r = call_with(&d, "POST /sandboxes", NULL, "{\"templateID\":\"base\",\"metadata\":{\"agentboxd.warm\":\"\"}}");
	CHECK_STATUS(r, 400);
	r = call_with(&d, "POST /sandboxes", "agentboxd-warm: require\r\n", "{\"templateID\":\"base\",\"envVars\":{\"A\":\"1\"}}");
	CHECK_STATUS(r, 400);
	CHECK(strstr(r.body, "the nearest differs in"));
	door_close(&d);
}

/* The end that was asked for is told at once, and that the cloud has not said it yet. */
TEST(the_end_of_one_that_was_ready)
{
	static const uid_t claimers[] = { 1000 };
	static const struct sandbox_warm_entry e = {
		.name = "py", .what = { .template_id = (char *)"base", .timeout_s = 120 }, .size = 1, .claimers = { claimers, 1, NULL, 0 },
		.ready_timeout_ms = 5000, .max_age_ms = 1800000, .burst = 2, .per_hour = 60,
	};
	struct door d;
	struct reply r;

	door_open_with(&d, &e);
	UNTIL(&d.w, n_ready(&d) == 1);
	r = call_with(&d, "POST /sandboxes", "agentboxd-warm: prefer\r\nidempotency-key: k\r\n",
		      "{\"templateID\":\"base\",\"timeout\":700,\"secure\":true}");
	CHECK_STATUS(r, 201);
	CHECK(header_of(&r, "agentboxd-end-pending"));
	r = call_with(&d, "POST /sandboxes", "idempotency-key: k\r\n", "{\"templateID\":\"base\",\"timeout\":700,\"secure\":true}");
	CHECK_STATUS(r, 409);		/* without the word it is another create */
	r = call_with(&d, "POST /sandboxes", "agentboxd-warm: prefer\r\nidempotency-key: k\r\n",
		      "{\"templateID\":\"base\",\"timeout\":700,\"secure\":true}");
	CHECK_STATUS(r, 201);
	CHECK(header_of(&r, "agentboxd-warm"));
	UNTIL(&d.w, !look(&d, member(&r, "sandboxID")).end_pending);
	r = callf(&d, NULL, "GET /sandboxes/%s", member(&r, "sandboxID"));
	CHECK(header_of(&r, "agentboxd-warm") && !header_of(&r, "agentboxd-end-pending"));
	door_close(&d);
}

/* What a run makes is leased to its process, and what becomes of it then is said by the run. */
TEST(a_run)
{
	struct door d;
	struct answer a;
	pid_t pid;

	door_open(&d);
	pid = idle_child();
	d.by.who.pid = pid;
	d.by.who.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	d.token.run.pid = pid;
	d.token.on_release = POLICY_KILL;
	a = look(&d, make(&d));
	CHECK(a.leases == 1 && a.policy.on_release == POLICY_KILL && !a.policy.keep_alive);
	a = look(&d, make_with(&d, "agentboxd-lease: none\r\n"));
	CHECK_INT(a.leases, 0);
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid);
	UNTIL(&d.w, fake_alive(d.w.fake) == 1);
	close(d.by.who.pidfd);
	door_close(&d);
}

/* Field by field: what the create says, the token, the gateway's own defaults. */
TEST(a_policy_of_the_token)
{
	char words[] = "idle_timeout=600000ms,on_idle=kill,keep_alive=yes", broken[] = "idle_timeout=x";
	struct door d;
	struct answer a;
	struct reply r;
	const char *id;

	door_open(&d);
	d.token.policy = words;
	id = make(&d);
	a = look(&d, id);
	CHECK(a.policy.idle_timeout_ms == 600000 && a.policy.on_idle == POLICY_KILL && a.policy.keep_alive);
	r = callf(&d, "{\"timeout\":300}", "POST /sandboxes/%s/fork", id);
	CHECK_STATUS(r, 201);
	CHECK(counts(&d.w).running == 2);
	a = look(&d, make_with(&d, "agentboxd-policy: on_idle=pause, keep_alive=no\r\n"));
	CHECK(a.policy.idle_timeout_ms == 600000 && a.policy.on_idle == POLICY_PAUSE && !a.policy.keep_alive);
	d.token.policy = broken;
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\"}");
	CHECK_STATUS(r, 500);
	CHECK(strstr(r.body, "the policy of your token"));
	d.token.policy = no_policy;
	a = look(&d, make(&d));
	CHECK(!a.policy.idle_timeout_ms && !a.policy.keep_alive);
	door_close(&d);
}

/* The limit of running sandboxes is told at once, and when to come back. */
TEST(limits)
{
	struct door d;
	struct reply r;

	door_open(&d);
	fake_next(d.w.fake, FAKE_CREATE, 1, FAKE_LIMITED);
	r = call(&d, "POST /sandboxes", "{\"templateID\":\"base\"}");
	CHECK_STATUS(r, 429);
	CHECK(header_of(&r, "retry-after"));
	fake_next(d.w.fake, FAKE_CREATE, 1, FAKE_REFUSED);
	CHECK_STATUS(call(&d, "POST /sandboxes", "{\"templateID\":\"base\"}"), 400);
	door_close(&d);
}

/* --- lives of a call --- */

TEST(a_client_that_leaves)
{
	struct door d;
	int fd;

	door_open(&d);
	fake_next(d.w.fake, FAKE_CREATE, 1, FAKE_HOLD);
	fd = dial(&d);
	send_call(&d, fd, "POST /sandboxes", NULL, "{\"templateID\":\"base\"}");
	UNTIL(&d.w, d.w.fake->seen[FAKE_CREATE] == 1);
	CHECK_INT(d.g.counts.controls, 1);
	close(fd);
	UNTIL(&d.w, !d.g.counts.controls);
	d.w.fake->released = true;
	UNTIL(&d.w, counts(&d.w).running == 1);		/* it is kept, and nobody waits for it */
	fd = dial(&d);
	send_all(&d, fd, "POST /sandboxes HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{", 60);
	spin(&d.w, 20);
	close(fd);
	UNTIL(&d.w, !d.g.counts.controls);
	door_close(&d);
}

TEST(bodies_are_bounded)
{
	struct door d;
	struct reply r;
	static const char too_large[] = "POST /sandboxes HTTP/1.1\r\nhost: a\r\ncontent-length: 17000000\r\n\r\n";
	char *big = malloc(1u << 20);
	int fds[2];

	door_open(&d);
	r = call_with(&d, "POST /sandboxes", NULL, NULL);
	CHECK_STATUS(r, 400);
	fds[0] = dial(&d);
	send_all(&d, fds[0], too_large, strlen(too_large));
	r = read_reply(&d, fds[0]);
	CHECK_STATUS(r, 413);
	close(fds[0]);
	/* All that a uid has under way. */
	CHECK(big);
	memset(big, ' ', 1u << 20);
	for (int i = 0; i < 2; i++) {
		static const char head[] = "POST /sandboxes HTTP/1.1\r\nhost: a\r\ncontent-length: 16777216\r\n\r\n";

		fds[i] = dial(&d);
		send_all(&d, fds[i], head, strlen(head));
		for (int k = 0; k < 12; k++)
			send_all(&d, fds[i], big, 1u << 20);
		spin(&d.w, 10);
	}
	r = read_reply(&d, fds[1]);
	CHECK_STATUS(r, 429);
	CHECK(header_of(&r, "retry-after"));
	for (int i = 0; i < 2; i++)
		close(fds[i]);
	free(big);
	UNTIL(&d.w, !d.g.counts.controls);
	door_close(&d);
}

TEST(a_stop)
{
	struct door d;
	struct reply r;
	int fd;

	door_open(&d);
	fake_next(d.w.fake, FAKE_CREATE, 1, FAKE_HOLD);
	fd = dial(&d);
	send_call(&d, fd, "POST /sandboxes", NULL, "{\"templateID\":\"base\"}");
	UNTIL(&d.w, d.w.fake->seen[FAKE_CREATE] == 1);
	gateway_control_end_all(&d.g);
	r = read_reply(&d, fd);
	CHECK_STATUS(r, 503);
	CHECK(header_of(&r, "retry-after"));
	close(fd);
	d.w.fake->released = true;
	UNTIL(&d.w, counts(&d.w).running == 1);
	door_close(&d);
}

TEST_MAIN()
