/* SPDX-License-Identifier: MIT */
/* Names, races, proxies, deadlines: how a connection comes to be, and what its failure says. */
#include <errno.h>

#include "daemon/common/net/http.h"
#include "daemon/common/net/proxy.h"
#include "daemon/common/net/resolve.h"
#include "tests/unit/net/certs.h"
#include "tests/unit/net/rig.h"

static void dial(struct rig *r, struct rig_client *k, struct http_dial_options o)
{
	struct http_dial *d;

	CHECK(!http_dial(&o, &d));
	CHECK(!k->done);
	WAIT(r->loop, k->done);
}

static void finish(struct rig *r, struct rig_client *k)
{
	if (k->c) {
		http_conn_close(k->c, "");
		WAIT(r->loop, k->closed);
	}
	WAIT(r->loop, r->conns_gone == r->conns);
	rig_free(r);
}

/* A port nobody listens on. */
static uint16_t closed_port(void)
{
	uint16_t port;
	int fd = rig_listen(&port);

	close(fd);
	return port;
}

TEST(refused)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	struct rig_client k = { 0 };
	struct http_dial_options o = rig_dial_options(r, &k);

	o.port = closed_port();
	dial(r, &k, o);
	CHECK_STR(status_reason_name(k.failure.reason), "UNREACHABLE");
	CHECK(strstr(k.failure.text, "127.0.0.1") && strstr(k.failure.text, "refused"));
	finish(r, &k);
}

TEST(localhost_needs_no_resolver)
{
	static const char *const names[] = { "localhost", "8080-abc.localhost", "LocalHost." };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_client k = { 0 };
		struct http_dial_options o = rig_dial_options(r, &k);

		o.host = names[i];
		dial(r, &k, o);
		CHECK(k.c);
		finish(r, &k);
	}
}

TEST(names)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	struct rig_client k = { 0 };
	struct http_dial_options o = rig_dial_options(r, &k);
	struct resolver *res;

	o.host = "name.invalid";
	dial(r, &k, o);
	CHECK(strstr(k.failure.text, "cannot resolve name.invalid"));
	CHECK(!resolver_new(r->loop, &res));
	k = (struct rig_client){ 0 };
	o.resolver = res;
	o.deadline_ms = clock_boot_ms() + 15000;
	dial(r, &k, o);
	CHECK(!k.c);
	CHECK_STR(status_reason_name(k.failure.reason), "UNREACHABLE");
	CHECK(strstr(k.failure.text, "cannot resolve name.invalid"));
	resolver_free(res);
	finish(r, &k);
}

TEST(cancelled_lookup)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	struct rig_client k = { 0 };
	struct http_dial_options o = rig_dial_options(r, &k);
	struct http_dial *d;
	struct resolver *res;

	CHECK(!resolver_new(r->loop, &res));
	o.resolver = res;
	o.host = "name.invalid";
	CHECK(!http_dial(&o, &d));
	CHECK(!loop_once(r->loop, 0));
	http_dial_cancel(d);
	CHECK(!loop_once(r->loop, 0));
	resolver_free(res);
	CHECK(!k.done);
	finish(r, &k);
}

TEST(order_of_addresses)
{
	struct resolve_answer a = { .n = 4 };
	static const int families[] = { AF_INET, AF_INET, AF_INET6, AF_INET };
	static const struct {
		int first;
		int want[4];
	} t[] = {
		{ AF_UNSPEC, { AF_INET, AF_INET6, AF_INET, AF_INET } },
		{ AF_INET6, { AF_INET6, AF_INET, AF_INET, AF_INET } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		for (unsigned n = 0; n < 4; n++)
			a.v[n].sa.sa_family = (sa_family_t)families[n];
		resolve_interleave(&a, t[i].first);
		for (unsigned n = 0; n < 4; n++)
			CHECK_INT(a.v[n].sa.sa_family, t[i].want[n]);
	}
}

/* Nothing listens at ::1, so that the second address of "localhost" is needed, and the first. */
TEST(second_address)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	socklen_t n = sizeof(a);
	struct rig_client k = { 0 };
	struct http_dial_options o = rig_dial_options(r, &k);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n)) { /* no IPv6 here */
		if (fd >= 0)
			close(fd);
		finish(r, &k);
		return;
	}
	CHECK(!listen(fd, 5) && !getsockname(fd, (struct sockaddr *)&a, &n));
	o.host = "localhost";
	o.port = ntohs(a.sin6_port);
	dial(r, &k, o);
	CHECK(k.c && str_starts(http_conn_peer(k.c), "[::1]:"));
	http_conn_close(k.c, "");
	WAIT(r->loop, k.closed);
	close(fd);
	finish(r, &k);
}

/* Somebody listens and says nothing: TLS does not come about. */
TEST(deadline_and_cancel)
{
	struct tls_client_options to = { .ca_file = NULL };
	struct tls_client *tls;
	struct status why;
	uint16_t port;
	int fd = rig_listen(&port);

	CHECK(!tls_client_new(&to, &tls, &why));
	for (int cancel = 0; cancel < 2; cancel++) {
		struct rig *r = rig_new((struct http_server_options){ 0 });
		struct rig_client k = { 0 };
		struct http_dial_options o = rig_dial_options(r, &k);
		struct http_dial *d;

		o.port = port;
		o.tls = tls;
		o.deadline_ms = clock_boot_ms() + (cancel ? 10000 : 60);
		if (cancel) {
			uint64_t end = clock_boot_ms() + 30;

			CHECK(!http_dial(&o, &d));
			WAIT(r->loop, clock_boot_ms() > end);
			http_dial_cancel(d);
			CHECK(!loop_once(r->loop, 0));
			CHECK(!k.done);
		} else {
			dial(r, &k, o);
			CHECK_STR(status_reason_name(k.failure.reason), "DEADLINE_REQUEST");
			CHECK(strstr(k.failure.text, "TLS"));
		}
		finish(r, &k);
	}
	tls_client_unref(tls);
	close(fd);
}

TEST(cancelled_before_it_began)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	struct rig_client k = { 0 };
	struct http_dial_options o = rig_dial_options(r, &k);
	struct http_dial *d;

	CHECK(!http_dial(&o, &d));
	http_dial_cancel(d);
	CHECK(!loop_once(r->loop, 0));
	CHECK(!k.done);
	finish(r, &k);
}

/* --- proxies --- */

TEST(proxy_addresses)
{
	static const struct {
		const char *url;
		int r;
		const char *host;
		unsigned port;
		const char *authorization;
	} t[] = {
		{ "http://p", 0, "p", 80, NULL },
		{ "http://p:3128/", 0, "p", 3128, NULL },
		{ "HTTP://[::1]:8", 0, "::1", 8, NULL },
		{ "http://Aladdin:open%20sesame@p:1", 0, "p", 1, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==" },
		{ "https://p", -EINVAL },
		{ "socks5://p", -EINVAL },
		{ "http://", -EINVAL },
		{ "http", -EINVAL },
		{ "http://p:0", -EINVAL },
		{ "http://p:65536", -EINVAL },
		{ "http://p:", -EINVAL },
		{ "http://user@p", -EINVAL },
		{ "http://p/path", -EINVAL },
		{ "http://a b", -EINVAL },
		{ "http://[::1", -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct proxy *p = NULL;

		CHECK_INT(proxy_parse(t[i].url, &p), t[i].r);
		if (t[i].r)
			continue;
		CHECK_STR(p->host, t[i].host);
		CHECK_INT(p->port, t[i].port);
		CHECK(!p->authorization == !t[i].authorization);
		if (p->authorization)
			CHECK_STR(p->authorization, t[i].authorization);
		proxy_free(p);
	}
}

/* Reads on until a head is complete. */
static bool have_head(int fd, char *got, size_t cap, size_t *n_got)
{
	ssize_t n = recv(fd, got + *n_got, cap - 1 - *n_got, MSG_DONTWAIT);

	*n_got += n > 0 ? (size_t)n : 0;
	got[*n_got] = 0;
	return strstr(got, "\r\n\r\n");
}

/* A proxy that answers as told; with `tunnel` it then carries bytes to the rig's server. */
static void through(const char *answer, bool tunnel, bool tls, const char *reason, const char *text)
{
	struct tls_server *ts = NULL;
	struct tls_client *tc = NULL;
	struct rig *r;
	struct rig_client k = { 0 };
	struct http_dial_options o;
	struct http_dial *d;
	struct status why;
	char url[64], got[4096];
	size_t n_got = 0;
	uint16_t port;
	int fd = rig_listen(&port), near = -1, far = -1;

	if (tls) {
		certs_setup();
		CHECK(!tls_server_new(&(struct tls_server_options){ .cert_file = certs_path("ok.pem"),
								    .key_file = certs_path("ok.key") },
				      &ts, &why));
		CHECK(!tls_client_new(&(struct tls_client_options){ .ca_file = certs_path("ca.pem") },
				      &tc, &why));
	}
	r = rig_new((struct http_server_options){ .tls = ts });
	o = rig_dial_options(r, &k);
	snprintf(url, sizeof(url), "http://u:p@127.0.0.1:%u", port);
	o.host = "localhost";
	o.proxy = url;
	o.tls = tc;
	CHECK(!http_dial(&o, &d));
	WAIT(r->loop, fd_accept(fd, &near) == 0);
	WAIT(r->loop, have_head(near, got, sizeof(got), &n_got));
	CHECK(str_starts(got, "CONNECT localhost:"));
	CHECK(strstr(got, "\r\nproxy-authorization: Basic dTpw\r\n"));
	if (answer)
		CHECK_INT(send(near, answer, strlen(answer), MSG_NOSIGNAL), strlen(answer));
	else
		close(near);
	if (tunnel)
		far = rig_connect(r->port);
	while (tunnel && !k.done) {
		static uint8_t b[65536];
		ssize_t n = recv(near, b, sizeof(b), MSG_DONTWAIT);

		if (n > 0)
			CHECK(send(far, b, (size_t)n, MSG_NOSIGNAL) == n);
		n = recv(far, b, sizeof(b), MSG_DONTWAIT);
		if (n > 0)
			CHECK(send(near, b, (size_t)n, MSG_NOSIGNAL) == n);
		CHECK(!loop_once(r->loop, 1));
	}
	WAIT(r->loop, k.done);
	CHECK(!k.c == !!reason);
	if (reason) {
		CHECK_STR(status_reason_name(k.failure.reason), reason);
		if (!strstr(k.failure.text, text))
			fprintf(stderr, "%s\n", k.failure.text);
		CHECK(strstr(k.failure.text, text));
		CHECK(!strstr(k.failure.text, "dTpw"));
	}
	if (k.c) {
		http_conn_close(k.c, "");
		WAIT(r->loop, k.closed);
	}
	if (far >= 0)
		close(far);
	if (answer)
		close(near);
	close(fd);
	WAIT(r->loop, r->conns_gone == r->conns);
	rig_free(r);
	tls_client_unref(tc);
	tls_server_unref(ts);
}

TEST(proxies)
{
	through("HTTP/1.1 200 Connection established\r\n\r\n", true, true, NULL, NULL);
	through("HTTP/1.0 200 OK\r\nVia: x\r\n\r\n", true, false, NULL, NULL);
	through("HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic\r\n\r\n", false, true, "PROXY_AUTH",
		"407");
	through("HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno", false, true, "PROXY_FAILED", "503");
	through("HTTP/1.1 200 OK\r\n\r\nx", false, true, "PROXY_FAILED", "far side");
	through("SSH-2.0-x\r\n", false, true, "PROXY_FAILED", "HTTP");
	through(NULL, false, true, "PROXY_FAILED", "closed");
}

TEST(proxy_unreachable)
{
	struct rig *r = rig_new((struct http_server_options){ 0 });
	struct rig_client k = { 0 };
	struct http_dial_options o = rig_dial_options(r, &k);
	char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%u", closed_port());
	o.proxy = url;
	dial(r, &k, o);
	CHECK_STR(status_reason_name(k.failure.reason), "PROXY_FAILED");
	CHECK(strstr(k.failure.text, "refused"));
	k = (struct rig_client){ 0 };
	o.proxy = "ftp://user:secret@x";
	dial(r, &k, o);
	CHECK_STR(status_reason_name(k.failure.reason), "PROXY_FAILED");
	CHECK(!strstr(k.failure.text, "secret"));
	finish(r, &k);
}

TEST_MAIN()
