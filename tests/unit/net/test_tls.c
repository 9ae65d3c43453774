/* SPDX-License-Identifier: MIT */
/* TLS of our client and server: what is agreed, who is believed, what a refusal says. */
#include "daemon/common/net/tls.h"

#include <errno.h>

#include "daemon/common/net/http_impl.h"
#include "daemon/common/net/tls_impl.h"
#include "tests/unit/net/certs.h"
#include "tests/unit/net/rig.h"

static struct tls_server *server_of(const char *name, const char *client_ca)
{
	struct tls_server_options o = { .client_ca_file = client_ca };
	struct tls_server *t;
	struct status why;
	char pem[32], key[32];

	certs_setup();
	snprintf(pem, sizeof(pem), "%s.pem", name);
	snprintf(key, sizeof(key), "%s.key", name);
	o.cert_file = certs_path(pem);
	o.key_file = certs_path(key);
	CHECK_INT(tls_server_new(&o, &t, &why), 0);
	return t;
}

static struct tls_client *client_of(const char *ca, bool http1_only, const char *cert)
{
	struct tls_client_options o = { .http1_only = http1_only };
	char pem[32], key[32];
	struct tls_client *t;
	struct status why;

	certs_setup();
	if (ca)
		o.ca_file = certs_path(ca);
	if (cert) {
		snprintf(pem, sizeof(pem), "%s.pem", cert);
		snprintf(key, sizeof(key), "%s.key", cert);
		o.cert_file = certs_path(pem);
		o.key_file = certs_path(key);
	}
	CHECK_INT(tls_client_new(&o, &t, &why), 0);
	return t;
}

/* Dials by a name that need not be the address. */
static void dial_as(struct rig *r, struct rig_client *k, struct tls_client *tls, const char *host, bool http1_only)
{
	struct http_dial_options o = rig_dial_options(r, k);
	struct http_dial *d;

	*k = (struct rig_client){ 0 };
	o.host = host;
	o.connect_host = "127.0.0.1";
	o.tls = tls;
	o.http1_only = http1_only;
	CHECK(!http_dial(&o, &d));
	WAIT(r->loop, k->done);
}

static void dial(struct rig *r, struct rig_client *k, struct tls_client *tls, const char *host)
{
	dial_as(r, k, tls, host, false);
}

static void echo(struct rig *r, struct rig_client *k, size_t n)
{
	struct rig_ask a = { .x = NULL };
	static char bytes[1000];

	CHECK(!rig_ask_fields(k, &a, "POST", "/echo", false));
	for (size_t i = 0; i < n; i++)
		CHECK(!http_stream_write(a.x, bytes, sizeof(bytes)));
	CHECK(!http_stream_finish(a.x, NULL));
	WAIT(r->loop, a.how);
	CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
	CHECK_INT(a.total, n * sizeof(bytes));
	rig_ask_end(&a);
}

static void over(struct rig *r, struct rig_client *k)
{
	if (k->c) {
		http_conn_close(k->c, "");
		WAIT(r->loop, k->closed);
	}
	WAIT(r->loop, r->conns_gone == r->conns);
}

TEST(versions_and_resumption)
{
	for (int h2 = 0; h2 < 2; h2++) {
		struct tls_server *ts = server_of("ok", NULL);
		struct tls_client *tc = client_of("ca.pem", !h2, NULL);
		struct rig *r = rig_new((struct http_server_options){ .tls = ts });
		struct rig_client k;

		for (int i = 0; i < 3; i++) {
			dial(r, &k, tc, i < 2 ? "localhost" : "127.0.0.1");
			CHECK(k.c);
			CHECK_INT(http_conn_version(k.c), h2 ? HTTP_VERSION_2 : HTTP_VERSION_1_1);
			CHECK(http_conn_is_tls(k.c));
			/* the second to an origin resumes; the third is another origin */
			CHECK_INT(tls_conn_is_resumed(k.c->xp.tls), i == 1);
			echo(r, &k, 1);
			echo(r, &k, 3000);
			over(r, &k);
		}
		rig_free(r);
		tls_client_unref(tc);
		tls_server_unref(ts);
	}
}

/* One set of settings does for both: a dial that needs HTTP/1.1 offers nothing else. */
TEST(http1_by_the_dial)
{
	struct tls_server *ts = server_of("ok", NULL);
	struct tls_client *tc = client_of("ca.pem", false, NULL);
	struct rig *r = rig_new((struct http_server_options){ .tls = ts });
	struct rig_client k;

	for (int i = 0; i < 4; i++) {
		dial_as(r, &k, tc, "localhost", i & 1);
		CHECK(k.c);
		CHECK_INT(http_conn_version(k.c), i & 1 ? HTTP_VERSION_1_1 : HTTP_VERSION_2);
		echo(r, &k, 1);
		over(r, &k);
	}
	rig_free(r);
	tls_client_unref(tc);
	tls_server_unref(ts);
}

TEST(big_and_slow)
{
	struct tls_server *ts = server_of("ok", NULL);
	struct tls_client *tc = client_of("ca.pem", false, NULL);
	struct rig *r = rig_new((struct http_server_options){ .tls = ts });
	struct rig_ask a = { .dont_read = true };
	struct rig_client k;

	dial(r, &k, tc, "localhost");
	CHECK(!rig_ask_fields(&k, &a, "GET", "/big", true));
	WAIT(r->loop, http_stream_buffered(a.x) >= 200000);
	for (int i = 0; i < 50; i++)
		CHECK(!loop_once(r->loop, 0));
	CHECK(http_stream_buffered(a.x) < 1u << 20);
	a.dont_read = false;
	rig_answer(a.x, &a);
	WAIT(r->loop, a.how);
	CHECK_INT(a.how, HTTP_CLOSE_CLEAN);
	CHECK_INT(a.total, 64u << 20);
	rig_ask_end(&a);
	over(r, &k);
	rig_free(r);
	tls_client_unref(tc);
	tls_server_unref(ts);
}

TEST(untrusted)
{
	static const struct {
		const char *cert, *ca, *host, *text;
	} t[] = {
		{ "ok", NULL, "localhost", "issuer CN=Test CA" },
		{ "ok", "other.pem", "localhost", "issuer CN=Test CA" },
		{ "old", "ca.pem", "localhost", "expired" },
		{ "ok", "ca.pem", "example.org", "ostname mismatch" },
		{ "ok", "ca.pem", "127.0.0.2", "IP address mismatch" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct tls_server *ts = server_of(t[i].cert, NULL);
		struct tls_client *tc = client_of(t[i].ca, false, NULL);
		struct rig *r = rig_new((struct http_server_options){ .tls = ts });
		struct rig_client k;

		dial(r, &k, tc, t[i].host);
		CHECK(!k.c);
		CHECK_STR(status_reason_name(k.failure.reason), "TLS_UNTRUSTED");
		if (!strstr(k.failure.text, t[i].text))
			fprintf(stderr, "%s\n", k.failure.text);
		CHECK(strstr(k.failure.text, t[i].text));
		CHECK(strstr(k.failure.text, "subject CN=localhost"));
		CHECK_STR(status_evidence_get(&k.failure, "issuer"), "CN=Test CA");
		if (t[i].ca)
			CHECK(strstr(k.failure.text, t[i].ca));
		CHECK_INT(r->requests, 0);
		over(r, &k);
		rig_free(r);
		tls_client_unref(tc);
		tls_server_unref(ts);
	}
}

TEST(client_certificate)
{
	struct tls_server *ts = server_of("ok", certs_path("ca.pem"));
	struct tls_client *with = client_of("ca.pem", false, "ok"), *without;
	struct rig *r = rig_new((struct http_server_options){ .tls = ts });
	struct rig_client k;

	dial(r, &k, with, "localhost");
	CHECK(k.c);
	echo(r, &k, 1);
	over(r, &k);
	/* TLS 1.3 tells a client of its refusal only after the client's own handshake is done */
	without = client_of("ca.pem", false, NULL);
	dial(r, &k, without, "localhost");
	if (k.c)
		WAIT(r->loop, k.closed);
	over(r, &k);
	CHECK_INT(r->requests, 1);
	rig_free(r);
	tls_client_unref(with);
	tls_client_unref(without);
	tls_server_unref(ts);
}

TEST(no_common_protocol)
{
	struct tls_server *ts = server_of("ok", NULL);
	struct tls_client *tc = client_of("ca.pem", true, NULL);
	struct rig *r = rig_new((struct http_server_options){ .tls = ts, .http2 = true });
	struct rig_client k;

	dial(r, &k, tc, "localhost");
	CHECK(!k.c);
	CHECK_STR(status_reason_name(k.failure.reason), "UNREACHABLE");
	CHECK(strstr(k.failure.text, "no application protocol"));
	over(r, &k);
	rig_free(r);
	tls_client_unref(tc);
	tls_server_unref(ts);
}

TEST(not_tls_at_all)
{
	struct tls_server *ts = server_of("ok", NULL);
	struct tls_client *tc = client_of("ca.pem", false, NULL);
	struct rig *plain = rig_new((struct http_server_options){ 0 });
	struct rig *r = rig_new((struct http_server_options){ .tls = ts });
	struct rig_client k;
	uint8_t b[64];
	ssize_t n = 0;
	int fd;

	dial(plain, &k, tc, "localhost");
	CHECK(!k.c);
	CHECK_STR(status_reason_name(k.failure.reason), "UNREACHABLE");
	over(plain, &k);
	rig_free(plain);
	fd = rig_connect(r->port);
	CHECK_INT(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
	WAIT(r->loop, r->conns_gone == 1);
	while ((n = recv(fd, b, sizeof(b), 0)) > 0)
		;
	CHECK(n == 0 || errno == ECONNRESET);
	close(fd);
	rig_free(r);
	tls_client_unref(tc);
	tls_server_unref(ts);
}

/* An answer that TLS did not end in an orderly way is not complete, whatever HTTP/1.1 thinks. */
TEST(truncation_shows)
{
	struct tls_server *ts = server_of("ok", NULL);
	struct tls_client *tc = client_of("ca.pem", true, NULL);
	struct rig *r = rig_new((struct http_server_options){ .tls = ts });
	struct rig_ask a = { .x = NULL };
	struct rig_client k;

	dial(r, &k, tc, "localhost");
	CHECK(!rig_ask_fields(&k, &a, "POST", "/hold", false));
	WAIT(r->loop, r->n_held == 1);
	CHECK(!http_stream_respond(r->held[0]->x, rig_head("200"), false));
	CHECK(!http_stream_write(r->held[0]->x, "part", 4));
	WAIT(r->loop, a.total == 4);
	CHECK(!shutdown(http_conn_fd(http_stream_conn(r->held[0]->x)), SHUT_RDWR));
	WAIT(r->loop, a.how);
	CHECK_INT(a.how, HTTP_CLOSE_LOST);
	rig_ask_end(&a);
	over(r, &k);
	rig_free(r);
	tls_client_unref(tc);
	tls_server_unref(ts);
}

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

#define PEM(text) "-----BEGIN CERTIFICATE-----\n" text "\n-----END CERTIFICATE-----\n"

/* What OpenSSL would not find by its hash has to come from the bundle: a company's own CA that stands in it alone. */
TEST(a_folder_of_roots_has_what_the_bundle_has)
{
	static const struct { const char *name, *has, *bundle; bool all; } cases[] = {
		{ "002c0b4f.0", PEM("one") PEM("two"), PEM("one"), true },
		{ "002c0b4f.12", PEM("one"), "# One\n" PEM("one"), true },
		{ "002c0b4f.0", PEM("one"), "", true },
		{ "002c0b4f.0", PEM("one"), PEM("one") PEM("mine"), false },
		{ "002c0b4f.0", PEM("one"), PEM("on"), false },
		{ "002c0b4f.0", "", PEM("one"), false },
		{ "002c0b4f.r0", PEM("one"), PEM("one"), false },
		{ "002c0b4F.0", PEM("one"), PEM("one"), false },
		{ "002c0b4f.", PEM("one"), PEM("one"), false },
		{ "one.pem", PEM("one"), PEM("one"), false },
	};
	char dir[] = "/tmp/test_tls.XXXXXX", bundle[64], path[64];

	CHECK(mkdtemp(dir));
	snprintf(bundle, sizeof(bundle), "%s/bundle.crt", dir);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put_file(dir, cases[i].name, cases[i].has);
		put_file(dir, "bundle.crt", cases[i].bundle);
		snprintf(path, sizeof(path), "%s/%s", dir, cases[i].name);
		CHECK_INT(tls_dir_has_all(dir, bundle), cases[i].all);
		CHECK(!unlink(path));
	}
	CHECK(!symlink("/nonexistent", path));
	CHECK(tls_dir_has_all(dir, bundle) == false);
	CHECK(!unlink(path) && !unlink(bundle));
	CHECK(!rmdir(dir));
}

TEST(bad_files)
{
	struct tls_client *tc;
	struct tls_server *ts;
	struct status why;

	certs_setup();
	CHECK_INT(tls_client_new(&(struct tls_client_options){ .ca_file = "/nonexistent/ca.pem" }, &tc,
				 &why), -EINVAL);
	CHECK(strstr(why.text, "ca_file") && strstr(why.text, "/nonexistent/ca.pem"));
	CHECK(strstr(why.text, "No such file"));
	CHECK_INT(tls_client_new(&(struct tls_client_options){ .ca_file = certs_path("junk.pem") }, &tc,
				 &why), -EINVAL);
	CHECK(strstr(why.text, "junk.pem"));
	CHECK_INT(tls_server_new(&(struct tls_server_options){ .cert_file = certs_path("ok.pem"),
							       .key_file = certs_path("ca.key") },
				 &ts, &why), -EINVAL);
	CHECK(strstr(why.text, "key_file") && strstr(why.text, "mismatch"));
}

TEST_MAIN()
