/* SPDX-License-Identifier: MIT */
/* Network settings that cannot be had here, and heads at the edge. */
#include "daemon/local/egress/netrule.h"

#include <stdlib.h>

#include "daemon/common/http/relay_head.h"
#include "daemon/local/egress/egrule.h"
#include "proto/base/str.h"
#include "proto/cloud/model.h"
#include "tests/lib/test.h"

static struct cloud_network *network(const char *text)
{
	struct cloud_network *n = NULL;

	CHECK_INT(cloud_network_parse(text, &n), 0);
	return n;
}

static bool is_unsupported(const char *text, bool egress)
{
	struct cloud_network *n = network(text);
	bool is = netrule_unsupported(n, egress) != NULL;

	cloud_network_free(n);
	return is;
}

TEST(long_lists)
{
	struct cloud_network n = { 0 };

	for (unsigned i = 0; i < EGRULE_LIST_MAX; i++)
		CHECK_INT(cloud_strs_add(&n.deny_out, "1.2.3.4"), 0);
	CHECK(!netrule_is_too_long(&n));
	CHECK_INT(cloud_strs_add(&n.deny_out, "1.2.3.4"), 0);
	CHECK(netrule_is_too_long(&n));
	cloud_strs_fini(&n.deny_out);
}

TEST(what_is_not_here)
{
	static const char *const yes[] = { "{\"allowOut\":[\"1.1.1.1\"]}", "{\"rules\":{\"a.test\":[]}}",
					   "{\"httpsPorts\":[443]}" };
	static const char *const no[] = { "{}", "{\"allowOut\":[],\"rules\":{}}", "{\"denyOut\":[\"1.1.1.1\"]}" };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		CHECK(is_unsupported(yes[i], false));
		/* lists and rules need nothing but a way out */
		CHECK(is_unsupported(yes[i], true) == (i == 2));
	}
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		CHECK(!is_unsupported(no[i], false));
}

TEST(headers_that_cannot_be_set)
{
	static const struct {
		const char *name, *value;
		bool ok;
	} t[] = {
		{ "Authorization", "Bearer x", true },		{ "X", "${e2b.other.x}", true },
		{ "X", "${e2b.secrets.a}", false },		{ "X", "a ${e2b.identity.tokens.a} b", false },
		{ "X", "${agentbox.identity.tokens.a}", false },
		{ "Content-Length", "1", false },		{ "TRANSFER-ENCODING", "chunked", false },
		{ "connection", "close", false },		{ "content-lengths", "1", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cloud_kv kv = { (char *)t[i].name, (char *)t[i].value };
		struct cloud_rule rule = { .domain = (char *)"a.test", .headers = { &kv, 1 } };
		struct cloud_network n = { .rules = &rule, .n_rules = 1 };

		CHECK(!netrule_unsupported(&n, true) == t[i].ok);
	}
}

TEST(masks)
{
	char *s = netrule_mask_host("${PORT}.x:${PORT}", 8080);

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
	put(&in, "host", "evil");	/* HTTP/2 may send it beside the other; HTTP/1.1 would have two */
	put(&in, "keep-alive", "3");
	put(&in, "transfer-encoding", "chunked");
	put(&in, "upgrade", "websocket");
	put(&in, "forwarded", "for=1");
	put(&in, "x-forwarded-for", "1");
	put(&in, "x-forwarded-host", "evil");
	put(&in, "x-forwarded-proto", "https");
	put(&in, "cookie", "a=1");
	put(&in, "cookie", "b=2");
	CHECK_INT(relay_request_head(&in, NULL, false, NULL, NULL, &out), 0);
	CHECK_STR(fields_get(&out, ":authority"), "8080-i1.test");
	CHECK_STR(fields_get(&out, "x-kept"), "2");
	CHECK_STR(fields_get(&out, "cookie"), "a=1; b=2");
	CHECK_INT(out.n, 6);
	fields_clear(&out);
	CHECK_INT(relay_request_head(&in, "localhost:8080", true, NULL, NULL, &out), 0);
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
