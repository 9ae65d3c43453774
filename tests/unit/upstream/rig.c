/* SPDX-License-Identifier: MIT */
#include "tests/unit/upstream/rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/net/resolve.h"
#include "daemon/common/net/xport.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/h2.h"

#define LOOKUP_MS 2u

static struct rig *rig;			/* of the test under way, for what is wrapped */
static struct peer *peer_of_fd[1024];	/* whom our ends of the pairs lead to */
static char tls_settings;		/* stands for those of all */

/* --- a peer's end of a connection --- */

static void stream_free(struct peer_stream *s)
{
	timer_clear(&s->answers);
	list_del(&s->node);
	s->conn->n_open--;
	s->conn->peer->n_open--;
	if (s->s)
		h2_stream_release(s->s);
	free(s);
}

static void conn_free(struct peer_conn *c)
{
	while (!list_is_empty(&c->streams))
		stream_free(list_entry(c->streams.next, struct peer_stream, node));
	timer_clear(&c->connects);
	watch_fini(&c->watch);
	close(c->fd);
	h2_free(c->h2);
	list_del(&c->node);
	c->peer->n_conns--;
	free(c);
}

void peer_close(struct peer_conn *c)
{
	conn_free(c);
}

static void send_all(struct peer_conn *c, const void *p, size_t n)
{
	/* The reader is in this program: what does not fit at once is a mistake of the test. An end that
	 * the pool has closed takes nothing. */
	ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);

	must(k == (ssize_t)n || (k < 0 && errno == EPIPE));
}

static void flush(struct peer_conn *c)
{
	const uint8_t *p;
	size_t n;

	while (c->h2 && !h2_output(c->h2, &p, &n) && n) {
		send_all(c, p, n);
		h2_sent(c->h2, n);
	}
}

void peer_raw(struct peer_conn *c, const void *p, size_t n)
{
	flush(c);
	send_all(c, p, n);
}

static void put_u32(uint8_t *p, uint32_t n)
{
	n = htonl(n);
	memcpy(p, &n, sizeof(n));
}

void peer_raw_streams(struct peer_conn *c, uint32_t n)
{
	uint8_t f[15] = { 0, 0, 6, 4, [10] = 3 };

	put_u32(f + 11, n);
	c->foreign_acks++;
	peer_raw(c, f, sizeof(f));
}

void peer_answer(struct peer_stream *s, unsigned status)
{
	const struct peer *p = s->conn->peer;
	struct peer_conn *c = s->conn;
	struct fields f = FIELDS_NULL;
	char text[256];

	if (!c->h2) {
		snprintf(text, sizeof(text), "HTTP/1.1 %u \r\ncontent-length: 0\r\n%s%s%s%s\r\n",
			 status, p->field ? p->field : "", p->field ? ": " : "",
			 p->field ? p->value : "", p->field ? "\r\n" : "");
		send_all(c, text, strlen(text));
		stream_free(s);
		return;
	}
	must(!fields_printf(&f, ":status", "%u", status));
	must(!p->field || !fields_put(&f, p->field, p->value));
	must(!h2_respond(s->s, &f, true));
	fields_fini(&f);
	flush(c);
	stream_free(s);
}

void peer_reset(struct peer_stream *s, uint32_t code)
{
	struct peer_conn *c = s->conn;

	h2_stream_reset(s->s, code);
	flush(c);
	stream_free(s);
}

void peer_goaway(struct peer_conn *c, uint32_t code)
{
	h2_goaway(c->h2, code);
	flush(c);
}

struct peer_conn *peer_conn_at(struct peer *p, unsigned i)
{
	list_for_each(n, &p->conns)
		if (!i--)
			return list_entry(n, struct peer_conn, node);
	must(false);
	return NULL;
}

struct peer_stream *peer_stream_at(struct peer_conn *c, unsigned i)
{
	list_for_each(n, &c->streams)
		if (!i--)
			return list_entry(n, struct peer_stream, node);
	must(false);
	return NULL;
}

/* --- what it does with a request --- */

static void on_answers(struct timer *t, void *user)
{
	struct peer_stream *s = user;
	unsigned status = s->conn->peer->status;

	if (!s->conn->silent)
		peer_answer(s, status ? status : 200);
}

/* GOAWAY (last stream, NO_ERROR) below this one, by hand: our own HTTP/2 names what it has seen. */
static void leave_before(struct peer_stream *s)
{
	uint8_t f[17] = { 0, 0, 8, 7 };

	put_u32(f + 9, MAX(h2_stream_id(s->s), 2u) - 2);
	peer_raw(s->conn, f, sizeof(f));
}

/* False: its connection is gone. */
static bool obey(struct peer_stream *s)
{
	const struct peer *p = s->conn->peer;

	switch (p->does) {
	case PEER_ANSWERS:
		must(!timer_set(&s->answers, clock_boot_ms() + RIG_ANSWER_MS));
		return true;
	case PEER_HOLDS:
		return true;
	case PEER_RESETS:
		peer_reset(s, p->reset_code);
		return true;
	case PEER_LEAVES:
		leave_before(s);
		return true;
	case PEER_CUTS:
		break;
	}
	conn_free(s->conn);
	return false;
}

static struct peer_stream *stream_new(struct peer_conn *c, struct h2_stream *h, const char *host,
				      const char *path)
{
	struct peer_stream *s = calloc(1, sizeof(*s));
	struct peer *p = c->peer;
	size_t n = strlen(p->rig->log);

	must(s);
	s->conn = c;
	s->s = h;
	(void)str_copy(s->host, sizeof(s->host), host);
	(void)str_copy(s->path, sizeof(s->path), path);
	timer_init(&s->answers, p->rig->loop, on_answers, s);
	list_add_tail(&c->streams, &s->node);
	snprintf(p->rig->log + n, sizeof(p->rig->log) - n, "%s%s ", host, path);
	p->requests++;
	p->n_open++;
	c->n_open++;
	p->max_open = MAX(p->max_open, c->n_open);
	return s;
}

static void take_body(struct peer_stream *s)
{
	const uint8_t *p;
	size_t n = h2_stream_peek(s->s, &p), have = strlen(s->body);

	if (!n)
		return;
	must(have + n < sizeof(s->body));
	memcpy(s->body + have, p, n);
	h2_stream_consume(s->s, n);
}

/* False: the connection is gone. */
static bool serve_h2(struct peer_conn *c)
{
	struct h2_stream *h;

	while ((h = h2_next_ready(c->h2))) {
		unsigned what = h2_stream_take_ready(h);
		struct peer_stream *s = h2_stream_user(h);

		if (what & H2_READY_CLOSED) {
			if (s)
				stream_free(s);
			else
				h2_stream_release(h);
			continue;
		}
		if (s && (what & H2_READY_DATA))
			take_body(s);
		if (s || !(what & H2_READY_HEAD))
			continue;
		s = stream_new(c, h, fields_get(h2_stream_head(h), ":authority"),
			       fields_get(h2_stream_head(h), ":path"));
		h2_stream_set_user(h, s);
		take_body(s);
		if (!obey(s))
			return false;
	}
	return true;
}

/* One request at a time, its head in one piece: "GET /path HTTP/1.1\r\nhost: …". */
static void serve_h1(struct peer_conn *c, char *text)
{
	char *path = strchr(text, ' '), *host = strcasestr(text, "\r\nhost: ");

	must(path && host && strstr(text, "\r\n\r\n"));
	path++;
	host += strlen("\r\nhost: ");
	*strchr(path, ' ') = 0;
	*strchr(host, '\r') = 0;
	(void)obey(stream_new(c, NULL, host, path));
}

/* Takes out the acknowledgements of SETTINGS that h2 did not send. */
static size_t without_acks(struct peer_conn *c, uint8_t *in, size_t n)
{
	static const uint8_t ack[9] = { 0, 0, 0, 4, 1 };
	uint8_t *at;

	while (c->foreign_acks && (at = memmem(in, n, ack, sizeof(ack)))) {
		n -= sizeof(ack);
		memmove(at, at + sizeof(ack), n - (size_t)(at - in));
		c->foreign_acks--;
	}
	return n;
}

static void on_bytes(struct watch *w, unsigned ready, void *user)
{
	struct peer_conn *c = user;
	uint8_t in[65536 + 1];
	ssize_t n;

	if (c->silent) {
		must(!watch_set(&c->watch, 0));
		return;
	}
	n = read(c->fd, in, sizeof(in) - 1);
	if (n <= 0) {
		conn_free(c);
		return;
	}
	in[n] = 0;
	if (!c->h2) {
		serve_h1(c, (char *)in);
		return;
	}
	(void)!h2_feed(c->h2, in, without_acks(c, in, (size_t)n), clock_boot_ms());
	if (serve_h2(c))
		flush(c);
}

/* --- its way there --- */

static void connected(struct peer_conn *c)
{
	struct h2_options o = { .server = true, .max_streams = c->peer->max_streams };

	if (!c->peer->http1)
		must(!h2_new(&o, clock_boot_ms(), &c->h2));
	must(!watch_set(&c->watch, WATCH_READ));
	flush(c);
	if (c->peer->no_streams)
		peer_raw_streams(c, 0);
}

/* Until it is connected our end cannot be written to. */
static void fill(int fd)
{
	static const char some[4096];

	while (send(fd, some, sizeof(some), MSG_NOSIGNAL) > 0)
		;
}

static void drain(const struct peer_conn *c)
{
	char some[65536];

	while (read(c->fd, some, sizeof(some)) > 0)
		;
}

static void on_connects(struct timer *t, void *user)
{
	struct peer_conn *c = user;

	drain(c);
	connected(c);
}

static struct peer *peer_at(const struct sockaddr *addr)
{
	char text[INET_ADDRSTRLEN];

	must(addr->sa_family == AF_INET);
	inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)addr)->sin_addr, text,
		  sizeof(text));
	for (unsigned i = 0; i < rig->n_peers; i++)
		if (str_eq(rig->peers[i].address, text))
			return &rig->peers[i];
	return NULL;
}

static struct peer_conn *conn_new(struct peer *p, int *ret_fd)
{
	struct peer_conn *c = calloc(1, sizeof(*c));
	int two[2], large = 1 << 20;

	must(c && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, two));
	(void)setsockopt(two[1], SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
	c->peer = p;
	c->fd = two[1];
	list_init(&c->streams);
	timer_init(&c->connects, rig->loop, on_connects, c);
	must(!watch_init(&c->watch, rig->loop, c->fd, on_bytes, c));
	list_add_tail(&p->conns, &c->node);
	p->n_conns++;
	p->dials++;
	must(two[0] < (int)ARRAY_SIZE(peer_of_fd));
	peer_of_fd[two[0]] = p;
	*ret_fd = two[0];
	return c;
}

int __wrap_sock_connect(const struct sockaddr *addr, unsigned len, int *ret_fd);
int __wrap_sock_connect(const struct sockaddr *addr, unsigned len, int *ret_fd)
{
	struct peer *p = peer_at(addr);
	struct peer_conn *c;

	if (!p || p->connect == PEER_REFUSES)
		return p ? -ECONNREFUSED : -EHOSTUNREACH;
	c = conn_new(p, ret_fd);
	if (p->connect == PEER_ACCEPTS && !p->connect_ms) {
		connected(c);
		return 0;
	}
	fill(*ret_fd);
	if (p->connect == PEER_ACCEPTS)
		must(!timer_set(&c->connects, clock_boot_ms() + p->connect_ms));
	return -EINPROGRESS;
}

void __wrap_sock_peer_text(int fd, char *ret, size_t cap);
void __wrap_sock_peer_text(int fd, char *ret, size_t cap)
{
	snprintf(ret, cap, "%s:443", peer_of_fd[fd]->address);
}

/* --- names --- */

struct resolve_query {
	struct timer timer;
	char host[64];
	uint16_t port;
	resolve_fn *done;
	void *user;
};

static bool look_up(const char *host, uint16_t port, struct resolve_answer *ret)
{
	*ret = (struct resolve_answer){ 0 };
	for (unsigned i = 0; i < rig->n_hosts; i++)
		for (unsigned k = 0; str_eq(rig->hosts[i].name, host) && k < rig->hosts[i].n; k++) {
			struct resolve_address *a = &ret->v[ret->n++];

			a->v4.sin_family = AF_INET;
			a->v4.sin_port = htons(port);
			a->len = sizeof(a->v4);
			must(inet_pton(AF_INET, rig->hosts[i].addresses[k], &a->v4.sin_addr) == 1);
		}
	return ret->n;
}

static void on_looked_up(struct timer *t, void *user)
{
	struct resolve_query *q = user;
	struct resolve_answer a;
	bool found = look_up(q->host, q->port, &a);

	q->done(found ? &a : NULL, found ? "" : "no such name", q->user);
	free(q);
}

int __wrap_resolve_start(struct resolver *r, const char *host, uint16_t port, resolve_fn *done,
			 void *user, struct resolve_query **ret);
int __wrap_resolve_start(struct resolver *r, const char *host, uint16_t port, resolve_fn *done,
			 void *user, struct resolve_query **ret)
{
	struct resolve_query *q = calloc(1, sizeof(*q));

	must(q);
	rig->lookups++;
	(void)str_copy(q->host, sizeof(q->host), host);
	q->port = port;
	q->done = done;
	q->user = user;
	timer_init(&q->timer, rig->loop, on_looked_up, q);
	must(!timer_set(&q->timer, clock_boot_ms() + LOOKUP_MS));
	*ret = q;
	return 0;
}

void __wrap_resolve_cancel(struct resolve_query *q);
void __wrap_resolve_cancel(struct resolve_query *q)
{
	timer_clear(&q->timer);
	free(q);
}

int __wrap_resolver_family(const struct resolver *r, const char *host);
int __wrap_resolver_family(const struct resolver *r, const char *host)
{
	return AF_UNSPEC;
}

void __wrap_resolver_family_worked(struct resolver *r, const char *host, int family);
void __wrap_resolver_family_worked(struct resolver *r, const char *host, int family)
{
}

/* --- TLS --- */

struct tls_client *__wrap_tls_client_ref(struct tls_client *t);
struct tls_client *__wrap_tls_client_ref(struct tls_client *t)
{
	return t;
}

struct tls_client *__wrap_tls_client_unref(struct tls_client *t);
struct tls_client *__wrap_tls_client_unref(struct tls_client *t)
{
	return NULL;
}

int __wrap_tls_conn_client(struct tls_client *t, const char *host, uint16_t port, bool http1_only, struct tls_conn **ret);
int __wrap_tls_conn_client(struct tls_client *t, const char *host, uint16_t port, bool http1_only, struct tls_conn **ret)
{
	*ret = NULL;
	return 0;
}

bool __wrap_http_conn_is_tls(const struct http_conn *c);
bool __wrap_http_conn_is_tls(const struct http_conn *c)
{
	return true;
}

bool __wrap_http_conn_covers(const struct http_conn *c, const char *host);
bool __wrap_http_conn_covers(const struct http_conn *c, const char *host)
{
	const char *name = peer_of_fd[http_conn_fd(c)]->covers;
	size_t n = name ? strlen(name) : 0, k = strlen(host);

	return !name || str_eq(name, host) ||
	       (k > n + 1 && host[k - n - 1] == '.' && str_eq(host + k - n, name));
}

/* --- the rig --- */

void rig_begin(struct rig *g, const struct pool_options *options)
{
	struct pool_options o = options ? *options : (struct pool_options){ 0 };

	memset(g, 0, sizeof(*g));
	sim_begin(&g->time);
	rig = g;
	must(!loop_new(&g->loop));
	o.loop = g->loop;
	o.resolver = (struct resolver *)(void *)g;
	o.seed = 7;
	must(!pool_new(&o, &g->pool));
}

void rig_end(struct rig *g)
{
	g->pool = pool_free(g->pool);
	for (unsigned i = 0; i < g->n_peers; i++)
		while (!list_is_empty(&g->peers[i].conns))
			conn_free(peer_conn_at(&g->peers[i], 0));
	rig_spin(g, 60000);	/* what the connections still had to do */
	g->loop = loop_free(g->loop);
	sim_end();
	rig = NULL;
}

struct peer *rig_peer(struct rig *g, const char *address)
{
	struct peer *p = &g->peers[g->n_peers++];

	must(g->n_peers <= RIG_PEERS && str_copy(p->address, sizeof(p->address), address));
	p->rig = g;
	list_init(&p->conns);
	return p;
}

void rig_host(struct rig *g, const char *name, const char *address)
{
	unsigned i = 0;

	while (i < g->n_hosts && !str_eq(g->hosts[i].name, name))
		i++;
	must(i < RIG_HOSTS && str_copy(g->hosts[i].name, sizeof(g->hosts[i].name), name));
	g->n_hosts = MAX(g->n_hosts, i + 1);
	must(g->hosts[i].n < ARRAY_SIZE(g->hosts[i].addresses));
	g->hosts[i].addresses[g->hosts[i].n++] = address;
}

void rig_spin(struct rig *g, uint64_t ms)
{
	uint64_t until = clock_boot_ms() + ms;

	while (clock_boot_ms() < until)
		must(loop_once(g->loop, (int)MIN(until - clock_boot_ms(), 1000u)) >= 0);
}

/* --- requests --- */

static void ask_on_ready(struct pool_req *r, void *user)
{
	struct http_stream *x = pool_req_x(r);
	struct ask *a = user;

	a->told++;
	must(!a->over || pool_req_fate(r) == a->fate);
	if (x && http_stream_head(x)) {
		a->status = (unsigned)http_stream_status(x);
		http_stream_consume(x, http_stream_buffered(x));
	}
	a->fate = pool_req_fate(r);
	a->over = a->fate != POOL_PENDING;
	if (pool_req_failure(r))
		a->why = *pool_req_failure(r);
}

static bool speaks_http1(const struct rig *g, const char *host)
{
	struct resolve_answer a;
	const struct peer *p = look_up(host, 443, &a) ? peer_at(&a.v[0].sa) : NULL;

	return p && p->http1;
}

void ask(struct rig *g, struct ask *a, const struct asked *q)
{
	struct pool_target t = {
		.scheme = q->plain ? "http" : "https",
		.host = q->host,
		.port = 443,
		.group = q->group ? q->group : "account",
		.tls = q->plain ? NULL : (struct tls_client *)(void *)&tls_settings,
		.plain_http2 = !speaks_http1(g, q->host),
		.http1 = q->http1,
	};
	struct pool_ask how = {
		.target = &t,
		.authority = q->authority,
		.method = q->once ? "POST" : "GET",
		.path = q->path ? q->path : "/",
		.cls = q->cls,
		.idempotent = !q->once,
		.body_mode = q->body ? POOL_BODY_WHOLE : POOL_BODY_NONE,
		.body = q->body,
		.n_body = q->body ? strlen(q->body) : 0,
		.deadline_ms = q->deadline_ms ? clock_boot_ms() + q->deadline_ms : 0,
		.head_by_ms = q->head_by_ms ? clock_boot_ms() + q->head_by_ms : 0,
		.on_ready = ask_on_ready,
		.user = a,
	};

	*a = (struct ask){ 0 };
	a->r = pool_request(g->pool, &how);
	must(a->r);
	must(!a->told);	/* never from inside */
}

void ask_end(struct ask *a)
{
	a->r = pool_req_free(a->r);
}

struct pool_stats rig_stats(struct rig *g, const char *host)
{
	const struct origin *at = NULL;
	struct pool_stats s;

	while (pool_stats(g->pool, &at, &s))
		if (str_eq(s.host, host))
			return s;
	must(false);
	return s;
}
