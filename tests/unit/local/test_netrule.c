/* SPDX-License-Identifier: MIT */
/* The rules for network settings, and heads at the edge. */
#include "daemon/local/egress/netrule.h"

#include <stdlib.h>

#include "daemon/local/egress/egrule.h"
#include "daemon/local/http/relay_head.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

static unsigned egress(const char *text)
{
	struct netrule_fault f = { 0 };
	json_t *o = json_loads(text, 0, NULL);
	bool ok;

	CHECK(o);
	ok = netrule_egress_ok(o, &f);
	CHECK(ok == !f.status && ok == !f.text[0]);
	json_decref(o);
	return f.status;
}

TEST(lists)
{
	static const struct {
		const char *text;
		unsigned status;
	} t[] = {
		{ "{}", 0 },
		{ "{\"allowOut\":null,\"denyOut\":[],\"rules\":{},\"egressProxy\":null}", 0 },
		{ "{\"denyOut\":[\"10.0.0.0/8\",\"8.8.8.8\",\"::1\",\"fe80::/10\"]}", 0 },
		{ "{\"denyOut\":[\"0.0.0.0/0\"]}", 0 },
		{ "{\"denyOut\":[\"0.0.0.0\"]}", 400 },
		{ "{\"denyOut\":[\"::\"]}", 400 },
		{ "{\"denyOut\":[\"::/0\"]}", 400 },
		{ "{\"denyOut\":[\"example.com\"]}", 400 },
		{ "{\"denyOut\":[\"10.0.0.0/33\"]}", 400 },
		{ "{\"denyOut\":[\"10.0.0.0/\"]}", 400 },
		{ "{\"denyOut\":[7]}", 400 },
		{ "{\"denyOut\":\"10.0.0.1\"}", 400 },
		{ "{\"allowOut\":[\"1.1.1.1\",\"10.0.0.0/8\"]}", 0 },
		{ "{\"allowOut\":[\"example.com\"]}", 400 },
		{ "{\"allowOut\":[\"example.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", 0 },
		{ "{\"allowOut\":[\"*.example.com\",\"*\"],\"denyOut\":[\"0.0.0.0/0\"]}", 0 },
		{ "{\"allowOut\":[\"a b\"],\"denyOut\":[\"0.0.0.0/0\"]}", 400 },
		{ "{\"allowOut\":[\"0.0.0.0\"]}", 400 },
		{ "{\"allowOut\":[\"-x.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", 400 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(egress(t[i].text), t[i].status);
}

TEST(proxy)
{
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"127.0.0.1:1080\"}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"[::1]:1080\"}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"100.64.1.1:1080\"}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"192.168.0.1:1080\"}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"proxy.test\"}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"proxy.test:0\"}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"proxy.test:1\",\"password\":\"x\"}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":7}}"), 400);
	CHECK_INT(egress("{\"egressProxy\":\"x\"}"), 400);
	CHECK_INT(egress("{\"egressProxy\":{\"address\":\"proxy.test:1080\",\"username\":\"u\"}}"), 0);
}

static char *rules(unsigned n_domains, unsigned n_headers, const char *value)
{
	struct buf b = BUF_NULL;

	CHECK(!buf_printf(&b, "{\"rules\":{"));
	for (unsigned i = 0; i < n_domains; i++) {
		CHECK(!buf_printf(&b, "%s\"d%u.test\":[{\"transform\":{\"headers\":{", i ? "," : "", i));
		for (unsigned k = 0; k < n_headers; k++)
			CHECK(!buf_printf(&b, "%s\"h%u\":\"%s\"", k ? "," : "", k, value));
		CHECK(!buf_printf(&b, "}}}]"));
	}
	CHECK(!buf_printf(&b, "}}") && !buf_put(&b, "", 1));
	return (char *)buf_data(&b);	/* the test's end frees it */
}

static unsigned rule_status(unsigned n_domains, unsigned n_headers, const char *value)
{
	char *s = rules(n_domains, n_headers, value);
	unsigned status = egress(s);

	free(s);
	return status;
}

TEST(transforms)
{
	CHECK_INT(rule_status(10, 20, "x"), 0);
	CHECK_INT(rule_status(11, 1, "x"), 400);
	CHECK_INT(rule_status(1, 21, "x"), 400);
	CHECK_INT(rule_status(1, 1, "Bearer ${e2b.identity.tokens.aws}"), 0);
	CHECK_INT(rule_status(1, 1, "${e2b.identity.tokens.}"), 400);
	CHECK_INT(rule_status(1, 1, "${e2b.identity.tokens.x"), 400);
	CHECK_INT(rule_status(1, 1, "${e2b.secrets.a ${e2b.secrets.b}}"), 400);
	CHECK_INT(rule_status(1, 1, "${e2b.other.x} ${x"), 0);
	CHECK_INT(rule_status(1, 20, "${e2b.secrets.a}${e2b.secrets.b}"), 400);
	CHECK_INT(egress("{\"rules\":{\"bad domain\":[]}}"), 400);
	CHECK_INT(egress("{\"rules\":{\"a.test\":[{},{}]}}"), 400);
	CHECK_INT(egress("{\"rules\":{\"a.test\":{}}}"), 400);
	CHECK_INT(egress("{\"rules\":{\"a.test\":[{\"transform\":{\"headers\":{\"a b\":\"x\"}}}]}}"), 400);
	CHECK_INT(egress("{\"rules\":{\"a.test\":[{\"transform\":{\"headers\":{\"a\":\"x\\n\"}}}]}}"), 400);
	CHECK_INT(egress("{\"rules\":{\"a.test\":[{\"transform\":{\"headers\":{\"a\":1}}}]}}"), 400);
}

TEST(long_lists)
{
	json_t *list = json_array(), *o = json_pack("{s:o}", "denyOut", list);
	struct netrule_fault f;

	for (unsigned i = 0; i < EGRULE_LIST_MAX; i++)
		json_array_append_new(list, json_string("1.2.3.4"));
	CHECK(netrule_egress_ok(o, &f));
	json_array_append_new(list, json_string("1.2.3.4"));
	CHECK(!netrule_egress_ok(o, &f) && f.status == 400);
	json_decref(o);
}

TEST(what_is_not_here)
{
	static const char *const yes[] = { "{\"allowOut\":[\"1.1.1.1\"]}", "{\"rules\":{\"a.test\":[]}}",
					   "{\"httpsPorts\":[443]}" };
	static const char *const no[] = { "{}", "{\"allowOut\":[],\"rules\":{}}", "{\"denyOut\":[\"1.1.1.1\"]}" };
	json_t *o;

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		o = json_loads(yes[i], 0, NULL);
		CHECK(netrule_unsupported(o, false));
		json_decref(o);
	}
	for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
		o = json_loads(no[i], 0, NULL);
		CHECK(!netrule_unsupported(o, false));
		json_decref(o);
	}
	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {	/* lists and rules need nothing but a way out */
		o = json_loads(yes[i], 0, NULL);
		CHECK(!netrule_unsupported(o, true) == (i < 2));
		json_decref(o);
	}
}

TEST(headers_that_cannot_be_set)
{
	static const struct {
		const char *name, *value;
		bool ok;
	} t[] = {
		{ "Authorization", "Bearer x", true },		{ "X", "${e2b.other.x}", true },
		{ "X", "${e2b.secrets.a}", false },		{ "X", "a ${e2b.identity.tokens.a} b", false },
		{ "Content-Length", "1", false },		{ "TRANSFER-ENCODING", "chunked", false },
		{ "connection", "close", false },		{ "content-lengths", "1", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		json_t *o = json_pack("{s:{s:[{s:{s:{s:s}}}]}}", "rules", "a.test", "transform", "headers", t[i].name,
				      t[i].value);

		CHECK(!netrule_unsupported(o, true) == t[i].ok);
		CHECK(netrule_has_headers(o));
		json_decref(o);
	}
	CHECK(!netrule_has_headers(NULL));
}

static unsigned ingress(const char *text, bool secure)
{
	struct netrule_fault f = { 0 };
	json_t *o = json_loads(text, 0, NULL);

	CHECK(netrule_ingress_ok(o, secure, &f) == !f.status);
	json_decref(o);
	return f.status;
}

TEST(what_comes_in)
{
	char *s;

	CHECK_INT(ingress("{\"allowPublicTraffic\":false}", false), 400);
	CHECK_INT(ingress("{\"allowPublicTraffic\":false}", true), 0);
	CHECK_INT(ingress("{\"allowPublicTraffic\":1}", true), 400);
	CHECK_INT(ingress("{\"maskRequestHost\":\"localhost:${PORT}\"}", true), 0);
	CHECK_INT(ingress("{\"maskRequestHost\":\"${PORT}-x.test\"}", true), 0);
	CHECK_INT(ingress("{\"maskRequestHost\":\"b\\u00fccher.test\"}", true), 400);
	CHECK_INT(ingress("{\"maskRequestHost\":\"a b\"}", true), 400);
	CHECK_INT(ingress("{\"maskRequestHost\":\"a\\r\\nx\"}", true), 400);
	CHECK_INT(ingress("{\"maskRequestHost\":\"\"}", true), 400);
	CHECK_INT(ingress("{\"maskRequestHost\":7}", true), 400);
	s = netrule_mask_host("${PORT}.x:${PORT}", 8080);
	CHECK_STR(s, "8080.x:8080");
	free(s);
}

static void put(struct fields *f, const char *name, const char *value)
{
	CHECK_INT(fields_put(f, name, value), 0);
}

TEST(heads_of_requests)
{
	struct fields in = FIELDS_NULL, out = FIELDS_NULL;

	put(&in, ":method", "GET");
	put(&in, ":scheme", "https");
	put(&in, ":authority", "8080-i1.test");
	put(&in, ":path", "/x?y");
	put(&in, "connection", "keep-alive, X-Mine");
	put(&in, "x-mine", "1");
	put(&in, "x-kept", "2");
	put(&in, "keep-alive", "3");
	put(&in, "transfer-encoding", "chunked");
	put(&in, "upgrade", "websocket");
	put(&in, "forwarded", "for=1");
	put(&in, "x-forwarded-for", "1");
	put(&in, "x-forwarded-host", "evil");
	put(&in, "x-forwarded-proto", "https");
	put(&in, "cookie", "a=1");
	put(&in, "cookie", "b=2");
	CHECK_INT(relay_request_head(&in, NULL, false, &out), 0);
	CHECK_STR(fields_get(&out, ":authority"), "8080-i1.test");
	CHECK_STR(fields_get(&out, "x-kept"), "2");
	CHECK_STR(fields_get(&out, "cookie"), "a=1; b=2");
	CHECK_INT(out.n, 6);
	fields_clear(&out);
	CHECK_INT(relay_request_head(&in, "localhost:8080", true, &out), 0);
	CHECK_STR(fields_get(&out, ":authority"), "localhost:8080");
	CHECK_STR(fields_get(&out, "x-forwarded-host"), "8080-i1.test");
	CHECK_STR(fields_get(&out, "upgrade"), "websocket");
	fields_fini(&in);
	fields_fini(&out);
}

TEST(heads_of_answers)
{
	struct fields in = FIELDS_NULL, out = FIELDS_NULL;

	put(&in, ":status", "200");
	put(&in, "connection", "close, x-hop");
	put(&in, "x-hop", "1");
	put(&in, "content-length", "5");
	put(&in, "set-cookie", "a");
	put(&in, "set-cookie", "b");
	CHECK_INT(relay_response_head(&in, false, &out), 0);
	CHECK_INT(out.n, 4);
	fields_fini(&in);
	fields_fini(&out);
}

TEST_MAIN()
