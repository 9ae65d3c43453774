/* SPDX-License-Identifier: MIT */
#include "proto/cloud/route.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

static enum cloud_route find(const char *method, const char *path)
{
	char text[200], *save = NULL;
	const char *v[16];
	size_t n = 0;

	snprintf(text, sizeof(text), "%s", path);
	for (char *s = strtok_r(text, "/", &save); s; s = strtok_r(NULL, "/", &save))
		v[n++] = s;
	return cloud_route_find(method, v, n);
}

TEST(a_slash_in_a_segment_is_none_of_the_path)
{
	const char *const one[] = { "sandboxes/metrics" }, *const half[] = { "sandbox" }, *const more[] = { "sandboxess" };

	CHECK_INT(cloud_route_find("GET", one, 1), CLOUD_ROUTE_UNKNOWN);
	CHECK_INT(cloud_route_find("GET", half, 1), CLOUD_ROUTE_UNKNOWN);
	CHECK_INT(cloud_route_find("GET", more, 1), CLOUD_ROUTE_UNKNOWN);
}

TEST(whose_request_it_is)
{
	static const struct {
		const char *method, *path;
		enum cloud_route want;
	} t[] = {
		{ "GET", "/health", CLOUD_ROUTE_HEALTH },
		{ "POST", "/sandboxes", CLOUD_ROUTE_CREATE },
		{ "POST", "/v2/sandboxes", CLOUD_ROUTE_CREATE_V2 },
		{ "GET", "/sandboxes", CLOUD_ROUTE_LIST_V1 },
		{ "GET", "/sandboxes/metrics", CLOUD_ROUTE_METRICS_OF },
		{ "GET", "/sandboxes/i1", CLOUD_ROUTE_GET },
		{ "DELETE", "/sandboxes/i1", CLOUD_ROUTE_DELETE },
		{ "PATCH", "/sandboxes/i1", CLOUD_ROUTE_METHOD },
		{ "DELETE", "/sandboxes/metrics", CLOUD_ROUTE_METHOD },
		{ "POST", "/v2/sandboxes/i1/connect", CLOUD_ROUTE_CONNECT_V2 },
		{ "POST", "/v3/sandboxes/i1/connect", CLOUD_ROUTE_UNKNOWN },
		{ "POST", "/sandboxes/i1/connect/x", CLOUD_ROUTE_UNKNOWN },
		{ "DELETE", "/templates/t1", CLOUD_ROUTE_TEMPLATE_DELETE },
		{ "DELETE", "/templates/team/t1", CLOUD_ROUTE_TEMPLATE_DELETE_RAW },
		/* E-3: these words are no ids of templates */
		{ "DELETE", "/templates/tags", CLOUD_ROUTE_TEMPLATE_TAGS_DELETE },
		{ "POST", "/templates/tags", CLOUD_ROUTE_TEMPLATE_TAGS_ADD },
		{ "GET", "/templates/tags", CLOUD_ROUTE_METHOD },
		{ "GET", "/templates/aliases/x", CLOUD_ROUTE_TEMPLATE_ALIAS },
		{ "DELETE", "/templates/aliases/x", CLOUD_ROUTE_METHOD },
		{ "DELETE", "/templates/t1/tags", CLOUD_ROUTE_METHOD },
		{ "GET", "/templates/t1/tags", CLOUD_ROUTE_TEMPLATE_TAGS },
		{ "GET", "/secrets/x", CLOUD_ROUTE_SECRET },
		{ "GET", "/volumes", CLOUD_ROUTE_VOLUMES },
		{ "GET", "/", CLOUD_ROUTE_UNKNOWN },
		{ "GET", "/nothing", CLOUD_ROUTE_UNKNOWN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		enum cloud_route r = find(t[i].method, t[i].path);

		if (r != t[i].want)
			fprintf(stderr, "%s %s: %d\n", t[i].method, t[i].path, (int)r);
		CHECK_INT(r, t[i].want);
	}
}

/* A path that a client makes is found again as the same route. */
TEST(both_directions)
{
	for (unsigned i = 0; i < CLOUD_ROUTES; i++) {
		const struct cloud_route_info *info = cloud_route_info((enum cloud_route)i);
		char *path = cloud_route_path((enum cloud_route)i, "i1");

		if (!strchr(path, '{'))
			CHECK_INT(find(info->method, path), i);
		free(path);
	}
}

TEST(paths)
{
	char *path = cloud_route_path(CLOUD_ROUTE_TEMPLATE_DELETE, "team/my-snap:v1");

	CHECK_STR(path, "/templates/team%2Fmy-snap%3Av1");
	free(path);
	path = cloud_route_path(CLOUD_ROUTE_CONNECT_V2, "i1");
	CHECK_STR(path, "/v2/sandboxes/i1/connect");
	free(path);
	path = cloud_route_path(CLOUD_ROUTE_LIST, NULL);
	CHECK_STR(path, "/v2/sandboxes");
	free(path);
	CHECK_INT(cloud_route_parameter(CLOUD_ROUTE_CONNECT_V2, "{id}"), 2);
	CHECK_INT(cloud_route_parameter(CLOUD_ROUTE_LIST, "{id}"), 2);
}

TEST(successes)
{
	CHECK(cloud_route_is_success(CLOUD_ROUTE_CREATE, 201) && !cloud_route_is_success(CLOUD_ROUTE_CREATE, 204));
	CHECK(cloud_route_is_success(CLOUD_ROUTE_DELETE, 204) && cloud_route_is_success(CLOUD_ROUTE_DELETE, 200));
	CHECK(cloud_route_is_success(CLOUD_ROUTE_GET, 200) && !cloud_route_is_success(CLOUD_ROUTE_GET, 203));
	CHECK(!cloud_route_is_success(CLOUD_ROUTE_DELETE, 302));
}

TEST_MAIN()
