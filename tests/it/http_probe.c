/* SPDX-License-Identifier: MIT */
/*
 * The HTTP layer by itself, for programs of others to judge.
 *
 * http_probe serve [--cert FILE --key FILE] [--unix PATH]
 *     Prints "port N" (or "ready"). POST: the body comes back. GET /bytes/N: N bytes. Anything else:
 *     "hello\n". SIGTERM drains and exits 0.
 * http_probe get HOST PORT PATH [--ca FILE] [--http1 | --h2] [--proxy URL] [--post N] [--times N]
 *     Prints one line for each answer: "version=20 status=200 bytes=6 sum=<sum of all bytes> end=clean",
 *     or "failed REASON text". --post sends a body of N bytes; --times: one after the other on the
 *     same connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "daemon/common/net/resolve.h"
#include "daemon/common/net/tls.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

static const char *cert_file, *key_file, *unix_path, *ca_file, *proxy;
static bool http1, h2;
static uint64_t post_bytes, times = 1;
static bool posting;
static char pattern[65536 + 256];	/* byte i of a body is pattern[i], with a period of 256 */
static struct loop *loop;

/* --- server --- */

struct call {
	bool echo;
	uint64_t left, sent;
};

static struct http_server *server;
static uint32_t n_open;
static bool draining;

static int write_pattern(struct http_stream *x, uint64_t *sent, uint64_t *left)
{
	size_t n = MIN(http_stream_room(x), MIN(*left, sizeof(pattern) - 256));
	int r = http_stream_write(x, pattern + (*sent & 255), n);

	if (r < 0)
		return r;
	*sent += n;
	*left -= n;
	return *left ? 0 : http_stream_finish(x, NULL);
}

static void maybe_stop(void)
{
	if (draining && !n_open)
		loop_stop(loop, 0);
}

static void http_probe_on_ready(struct http_stream *x, void *user)
{
	struct call *c = user;
	const uint8_t *p;
	size_t n;

	if (http_stream_closed(x, NULL)) {
		http_stream_release(x);
		free(c);
		return;
	}
	while (!c->echo && c->left && http_stream_room(x))
		if (write_pattern(x, &c->sent, &c->left) < 0)
			return; /* its end comes as news */
	while ((n = MIN(http_stream_peek(x, &p), c->echo ? http_stream_room(x) : SIZE_MAX)) > 0) {
		if (c->echo && http_stream_write(x, p, n) < 0)
			return;
		http_stream_consume(x, n);
	}
	if (!c->echo)
		return;
	if (http_stream_at_end(x) && http_stream_room(x))
		(void)!http_stream_finish(x, NULL);
}

static void respond(struct http_stream *x, uint64_t length, bool has_length, bool end)
{
	struct fields f = FIELDS_NULL;

	must(!fields_put(&f, ":status", "200") && !fields_put(&f, "content-type", "text/plain"));
	if (has_length)
		must(!fields_printf(&f, "content-length", "%llu", (unsigned long long)length));
	(void)!http_stream_respond(x, &f, end);
	fields_fini(&f);
}

static void on_request(struct http_stream *x, void *user)
{
	const struct fields *head = http_stream_head(x);
	const char *path = fields_get(head, ":path"), *method = fields_get(head, ":method");
	struct call *c = calloc(1, sizeof(*c));
	const uint8_t *p;

	must(c);
	http_stream_set_owner(x, http_probe_on_ready, c);
	if (str_eq(method, "POST") || str_eq(method, "PUT")) {
		c->echo = true;
		http_stream_peek(x, &p); /* asks for the body where the client waits for that */
		respond(x, 0, false, false);
	} else if (str_starts(path, "/bytes/") &&
		   str_u64(path + 7, strlen(path + 7), UINT64_MAX, &c->left) == 0 && c->left) {
		respond(x, c->left, true, false);
	} else {
		respond(x, 6, true, false);
		(void)!http_stream_write(x, "hello\n", 6);
		(void)!http_stream_finish(x, NULL);
	}
}

static int on_conn(struct http_conn *c, void *user, void **ret_user)
{
	n_open++;
	return 0;
}

static void on_conn_closed(struct http_conn *c, void *conn_user, const char *reason, void *user)
{
	n_open--;
	maybe_stop();
}

static void on_term(int signo, void *user)
{
	draining = true;
	http_server_drain(server);
	maybe_stop();
}

static int listen_on(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t n = sizeof(in);
	int fd = socket(unix_path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	must(fd >= 0);
	if (unix_path) {
		must(str_copy(un.sun_path, sizeof(un.sun_path), unix_path));
		must(!bind(fd, (struct sockaddr *)&un, sizeof(un)) && !listen(fd, 1024));
		puts("ready");
	} else {
		must(!bind(fd, (struct sockaddr *)&in, n) && !listen(fd, 1024));
		must(!getsockname(fd, (struct sockaddr *)&in, &n));
		printf("port %u\n", ntohs(in.sin_port));
	}
	fflush(stdout);
	return fd;
}

static int serve(void)
{
	struct tls_server_options to = { .cert_file = cert_file, .key_file = key_file };
	struct http_server_options o = {
		.loop = loop,
		.http1 = true,
		.http2 = true,
		.max_streams = 1000,
		.stream_window = 1024 * 1024,
		.on_conn = on_conn,
		.on_conn_closed = on_conn_closed,
		.on_request = on_request,
	};
	struct status why;
	int r;

	if (cert_file && tls_server_new(&to, &o.tls, &why) < 0) {
		fprintf(stderr, "%s\n", why.text);
		return 1;
	}
	must(!loop_signal(loop, SIGTERM, on_term, NULL));
	o.listen_fd = listen_on();
	must(!http_server_new(&o, &server));
	r = loop_run(loop);
	http_server_free(server);
	tls_server_unref(o.tls);
	return r;
}

/* --- client --- */

static const char *host, *path;
static uint64_t port;
static struct http_conn *conn;
static struct http_stream *ask;
static uint64_t to_post, posted, got_bytes, got_sum;
static int result = -1;

static void begin(void);

static void print_answer(enum http_close how)
{
	static const char *const names[] = { "open", "clean", "local", "reset", "refused", "lost" };

	printf("version=%d status=%u bytes=%llu sum=%llu end=%s\n", http_conn_version(conn),
	       http_stream_status(ask), (unsigned long long)got_bytes, (unsigned long long)got_sum,
	       names[how]);
}

static void on_answer(struct http_stream *x, void *user)
{
	enum http_close how = http_stream_closed(x, NULL);
	const uint8_t *p;
	size_t n;

	while (to_post && http_stream_room(x))
		if (write_pattern(x, &posted, &to_post) < 0)
			break;
	while ((n = http_stream_peek(x, &p)) > 0) {
		for (size_t i = 0; i < n; i++)
			got_sum += p[i];
		got_bytes += n;
		http_stream_consume(x, n);
	}
	if (!how)
		return;
	print_answer(how);
	http_stream_release(x);
	if (how == HTTP_CLOSE_CLEAN && --times)
		begin();
	else
		result = how == HTTP_CLOSE_CLEAN ? 0 : 1;
}

static void begin(void)
{
	struct fields f = FIELDS_NULL;
	int r;

	to_post = post_bytes;
	posted = 0;
	got_bytes = got_sum = 0;
	must(!fields_put(&f, ":method", posting ? "POST" : "GET"));
	must(!fields_put(&f, ":scheme", http_conn_is_tls(conn) ? "https" : "http"));
	must(!fields_printf(&f, ":authority", "%s:%u", host, (unsigned)port));
	must(!fields_put(&f, ":path", path));
	r = http_conn_request(conn, &f, !to_post, on_answer, NULL, &ask);
	fields_fini(&f);
	if (r == 0) {
		on_answer(ask, NULL);
		return;
	}
	printf("failed request %s\n", strerror(-r));
	result = 1;
}

static void on_changed(struct http_conn *c, void *user)
{
}

static void on_done(struct http_conn *c, const struct status *failure, void *user)
{
	conn = c;
	if (c) {
		begin();
		return;
	}
	printf("failed %s %s\n", status_reason_name(failure->reason), failure->text);
	result = 1;
}

static void on_closed(struct http_conn *c, const char *reason, void *user)
{
	conn = NULL;
	if (result < 0)
		result = 1;
}

static int get(void)
{
	struct tls_client_options to = { .ca_file = ca_file, .http1_only = http1 };
	struct http_dial_options o = {
		.loop = loop,
		.host = host,
		.port = (uint16_t)port,
		.plain_http2 = h2,
		.proxy = proxy,
		.deadline_ms = clock_boot_ms() + 20000,
		.done = on_done,
		.closed = on_closed,
		.changed = on_changed,
	};
	struct http_dial *d;
	struct status why;

	if (ca_file && tls_client_new(&to, &o.tls, &why) < 0) {
		fprintf(stderr, "%s\n", why.text);
		return 1;
	}
	must(!resolver_new(loop, &o.resolver));
	must(!http_dial(&o, &d));
	while (result < 0)
		must(!loop_once(loop, -1));
	if (conn)
		http_conn_close(conn, "done");
	while (conn)
		must(!loop_once(loop, -1));
	resolver_free(o.resolver);
	tls_client_unref(o.tls);
	return result;
}

static int usage(void)
{
	fprintf(stderr, "usage: see the head of tests/it/http_probe.c\n");
	return 2;
}

int main(int argc, char **argv)
{
	bool serving = argc > 1 && str_eq(argv[1], "serve");
	int i = serving ? 2 : 5, r;

	if (!serving && (argc < 5 || !str_eq(argv[1], "get") ||
			 str_u64(argv[3], strlen(argv[3]), 65535, &port) < 0))
		return usage();
	if (!serving) {
		host = argv[2];
		path = argv[4];
	}
	for (; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";

		if (str_eq(argv[i], "--http1") || str_eq(argv[i], "--h2")) {
			*(argv[i][2] == 'h' && argv[i][3] == '2' ? &h2 : &http1) = true;
			continue;
		}
		i++;
		if (str_eq(argv[i - 1], "--cert"))
			cert_file = v;
		else if (str_eq(argv[i - 1], "--key"))
			key_file = v;
		else if (str_eq(argv[i - 1], "--unix"))
			unix_path = v;
		else if (str_eq(argv[i - 1], "--ca"))
			ca_file = v;
		else if (str_eq(argv[i - 1], "--proxy"))
			proxy = v;
		else if (str_eq(argv[i - 1], "--times") && str_u64(v, strlen(v), 1000000, &times) == 0)
			continue;
		else if (str_eq(argv[i - 1], "--post") &&
			 str_u64(v, strlen(v), UINT64_MAX, &post_bytes) == 0)
			posting = true;
		else
			return usage();
	}
	for (size_t k = 0; k < sizeof(pattern); k++)
		pattern[k] = (char)(k * 7 + 3);
	tls_setup();
	must(!loop_new(&loop));
	r = serving ? serve() : get();
	(void)!loop_once(loop, 0);
	loop_free(loop);
	return r;
}
