/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/query.h"
#include "daemon/common/http/route.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

TEST(hosts)
{
	static const struct {
		const char *authority, *id, *port;
		enum route_kind kind;
		const char *want_id;
		uint64_t want_port;
		const char *why;
	} t[] = {
		{ "127.0.0.1:7000", NULL, NULL, ROUTE_CONTROL, "", 0, NULL },
		{ "localhost", NULL, NULL, ROUTE_CONTROL, "", 0, NULL },
		{ "LOCALHOST:1", NULL, NULL, ROUTE_CONTROL, "", 0, NULL },
		{ "[::1]:80", NULL, NULL, ROUTE_CONTROL, "", 0, NULL },
		{ "api.example.org", NULL, NULL, ROUTE_CONTROL, "", 0, NULL },
		{ "127.0.0.1:7000", "iabc", "49983", ROUTE_SANDBOX, "iabc", 49983, NULL },
		{ "[::1]", "iabc", "1", ROUTE_SANDBOX, "iabc", 1, NULL },
		{ "sandbox.example.org", "iabc", "8080", ROUTE_SANDBOX, "iabc", 8080, NULL },
		{ "localhost", "iabc", NULL, ROUTE_BAD, "", 0, "missing header" },
		{ "localhost", NULL, "1", ROUTE_BAD, "", 0, "missing header" },
		{ "localhost", "", "1", ROUTE_BAD, "", 0, "missing header" },
		{ "localhost", "../x", "1", ROUTE_BAD, "", 0, "Invalid sandbox ID" },
		{ "localhost", "iABC", "1", ROUTE_BAD, "", 0, "Invalid sandbox ID" },
		{ "localhost", "iabc", "x", ROUTE_BAD, "", 0, "Invalid sandbox port" },
		{ "localhost", "iabc", "-1", ROUTE_BAD, "", 0, "Invalid sandbox port" },
		/* A port host: the headers mean nothing there. */
		{ "49983-iabc.example.org", "iother", "1", ROUTE_SANDBOX, "iabc", 49983, NULL },
		{ "49983-iabc-6532622b.example.org:443", NULL, NULL, ROUTE_SANDBOX, "iabc", 49983,
		  NULL },
		{ "3000-iabc.localhost:8080", NULL, NULL, ROUTE_SANDBOX, "iabc", 3000, NULL },
		{ "sandbox.example.org", NULL, NULL, ROUTE_BAD, "", 0, "Invalid host" },
		{ "example", NULL, NULL, ROUTE_BAD, "", 0, "Invalid host" },
		{ "example.org", NULL, NULL, ROUTE_BAD, "", 0, "Invalid host" },
		{ "x-iabc.example.org", NULL, NULL, ROUTE_BAD, "", 0, "Invalid sandbox port" },
		{ "80-.example.org", NULL, NULL, ROUTE_BAD, "", 0, "Invalid sandbox ID" },
		{ "", NULL, NULL, ROUTE_BAD, "", 0, "Invalid host" },
		{ "[::1", NULL, NULL, ROUTE_BAD, "", 0, "Invalid host" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct route r;

		route_parse(t[i].authority, t[i].id, t[i].port, &r);
		CHECK_INT(r.kind, t[i].kind);
		if (r.kind == ROUTE_SANDBOX) {
			CHECK_STR(r.id, t[i].want_id);
			CHECK_INT(r.port, t[i].want_port);
		} else if (r.kind == ROUTE_BAD) {
			CHECK_STR(r.why, t[i].why);
		}
	}
}

TEST(no_authority_is_bad)
{
	struct route r;

	route_parse(NULL, NULL, NULL, &r);
	CHECK_INT(r.kind, ROUTE_BAD);
}

TEST(ids_of_paths)
{
	static const struct {
		const char *in, *want;
	} t[] = { { "iabc", "iabc" },	    { "iabc-6532622b", "iabc" }, { "a-b-c", NULL },
		  { "", NULL },		    { "-x", NULL },		 { "iabc-", NULL },
		  { "IABC", NULL },	    { "i/abc", NULL } };
	char id[ROUTE_ID_MAX + 1], longest[80];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		int r = cloud_id_parse(t[i].in, id);

		CHECK_INT(!r, t[i].want != NULL);
		if (!r)
			CHECK_STR(id, t[i].want);
	}
	memset(longest, 'a', sizeof(longest));
	longest[ROUTE_ID_MAX] = 0;
	CHECK(!cloud_id_parse(longest, id));
	longest[ROUTE_ID_MAX] = 'a';
	longest[ROUTE_ID_MAX + 1] = 0;
	CHECK(cloud_id_parse(longest, id) < 0);
}

TEST(internal_routes)
{
	static const struct {
		const char *target, *clean;
		bool internal;
	} t[] = { { "/init", "/init", true },
		  { "//init", "/init", true },
		  { "/%69nit", "/init", true },
		  { "/files/../init?x=1", "/init", true },
		  { "/./init/", "/init", true },
		  { "/../../init", "/init", true },
		  { "/upgrade", "/upgrade", true },
		  { "/initx", "/initx", false },
		  { "/a/init", "/a/init", false },
		  { "/", "/", false },
		  { "", "/", false },
		  { "/a%2Fb", "/a/b", false } };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *clean = query_clean_path(t[i].target);

		CHECK_STR(clean, t[i].clean);
		CHECK_INT(route_is_internal(clean), t[i].internal);
		free(clean);
	}
	CHECK(!query_clean_path("/%00"));
	CHECK(!query_clean_path("/%zz"));
}

TEST(pages_for_browsers)
{
	static const char ua[] = "Mozilla/5.0";

	CHECK(route_wants_html(ua, NULL, NULL, NULL));
	CHECK(route_wants_html(ua, "text/html,application/json", NULL, NULL));
	CHECK(!route_wants_html(ua, "application/json", NULL, NULL));
	CHECK(!route_wants_html("curl/8", NULL, NULL, NULL));
	CHECK(!route_wants_html(NULL, NULL, NULL, NULL));
	CHECK(!route_wants_html(ua, NULL, "cors", NULL));
	CHECK(route_wants_html(ua, NULL, "navigate", "XMLHttpRequest"));
	CHECK(!route_wants_html(ua, NULL, NULL, "XMLHttpRequest"));
}

TEST(queries)
{
	struct query q;

	CHECK(!query_parse("/a/b%2Fc//?x=1&y=a+b%20c&x=2&flag&empty=&=v", &q));
	CHECK_STR(q.path, "/a/b%2Fc//");
	CHECK_INT(q.n_segments, 4);
	CHECK_STR(q.segments[1], "b/c");
	CHECK_STR(q.segments[3], "");
	CHECK_STR(query_get(&q, "x"), "1");
	CHECK_STR(query_get(&q, "y"), "a b c");
	CHECK_STR(query_get(&q, "flag"), "");
	CHECK_STR(query_get(&q, "empty"), "");
	CHECK(!query_get(&q, "none"));
	query_fini(&q);

	CHECK(!query_parse("/", &q));
	CHECK_INT(q.n_segments, 1);
	CHECK_INT(q.n, 0);
	query_fini(&q);

	CHECK(query_parse("*", &q) < 0);
	CHECK(query_parse("", &q) < 0);
	CHECK(query_parse("/%", &q) < 0);
	CHECK(query_parse("/?a=%4", &q) < 0);
	CHECK(query_parse("/?a=%00", &q) < 0);
	CHECK(query_parse("/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/h", &q) < 0);
}

TEST(clean_paths)
{
	static const struct {
		const char *in, *want;
	} t[] = { { "/a/b", "/a/b" },	      { "//a//b/", "/a/b" }, { "/a/./b/..", "/a" },
		  { "/a/../../b", "/b" },     { "/", "/" },	     { "/..", "/" },
		  { "/a/...", "/a/..." },     { "/.a", "/.a" } };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s", t[i].in);
		str_clean_path(path);
		CHECK_STR(path, t[i].want);
	}
}

TEST_MAIN()
