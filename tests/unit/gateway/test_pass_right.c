/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/query.h"
#include "daemon/gateway/pass_right.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

static const struct {
	const char *method, *path;
	enum pass_level needs;
} rows[] = {
	{ "GET", "/templates", PASS_READ },
	{ "HEAD", "/v2/templates?limit=3", PASS_READ },
	{ "GET", "/templates/aliases/team%2Fname", PASS_READ },
	{ "GET", "/templates/x/builds/y/logs", PASS_READ },
	{ "GET", "/volumes", PASS_READ },
	{ "GET", "/secrets", PASS_READ },
	{ "GET", "/what/comes/later", PASS_READ },
	{ "GET", "/templates/x/files/0123", PASS_TEMPLATES },	/* an address to write to */
	{ "POST", "/v3/templates", PASS_TEMPLATES },
	{ "POST", "/v2/templates/x/builds/y", PASS_TEMPLATES },
	{ "PATCH", "/templates/x", PASS_TEMPLATES },
	{ "POST", "/templates/tags", PASS_TEMPLATES },
	{ "DELETE", "/templates/x", PASS_ALL },
	{ "DELETE", "/templates/tags", PASS_ALL },
	{ "POST", "/volumes", PASS_ALL },
	{ "PUT", "/volumecontent/v/file?path=/a", PASS_ALL },
	{ "GET", "/events/sandboxes", PASS_ALL },		/* of everybody's */
	{ "POST", "/events/webhooks", PASS_ALL },
	/* Never, however it is written. */
	{ "GET", "/sandboxes", PASS_NEVER },
	{ "GET", "/sandboxes/x/later", PASS_NEVER },
	{ "GET", "/v2/sandboxes/x", PASS_NEVER },
	{ "GET", "/v17/sandboxes", PASS_NEVER },
	{ "GET", "/V2/SANDBOXES", PASS_NEVER },
	{ "GET", "/v2/v3/sandboxes", PASS_NEVER },
	{ "GET", "/snapshots/x", PASS_NEVER },
	{ "POST", "/api-keys", PASS_NEVER },
	{ "POST", "/v2/api-keys/x", PASS_NEVER },
	{ "POST", "/access-tokens", PASS_NEVER },
	{ "GET", "/teams", PASS_NEVER },
	{ "GET", "/teams/x/metrics", PASS_NEVER },
	{ "GET", "/%73andboxes", PASS_NEVER },
	{ "GET", "/%2573andboxes", PASS_NEVER },
	{ "GET", "//sandboxes", PASS_NEVER },
	{ "GET", "/./sandboxes", PASS_NEVER },
	{ "GET", "/templates/../sandboxes", PASS_NEVER },
	{ "GET", "/templates/%2e%2e/sandboxes", PASS_NEVER },
	{ "GET", "/templates/..%2fsandboxes", PASS_NEVER },
	{ "GET", "/templates%2f..%2fsandboxes", PASS_NEVER },
	{ "GET", "/sandboxes%2fx", PASS_NEVER },
	{ "GET", "/templates/", PASS_NEVER },
	{ "GET", "/templates/a%5c..", PASS_NEVER },
	{ "GET", "/templates;x=1/a", PASS_NEVER },
	{ "GET", "/", PASS_NEVER },
	{ "GET", "/v2", PASS_NEVER },
	{ "TRACE", "/templates", PASS_NEVER },
};

TEST(what_each_route_needs)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct query q;

		CHECK_INT(query_parse(rows[i].path, &q), 0);
		if (pass_needs(rows[i].method, &q) != rows[i].needs)
			fprintf(stderr, "%s %s\n", rows[i].method, rows[i].path);
		CHECK_INT(pass_needs(rows[i].method, &q), rows[i].needs);
		query_fini(&q);
	}
}

TEST(levels_by_name)
{
	static const char *const wrong[] = { "", "Read", "read ", "everything", "never" };

	for (unsigned l = 0; l < PASS_LEVELS; l++)
		CHECK_INT(pass_level_find(pass_level_name((enum pass_level)l)), l);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		CHECK_INT(pass_level_find(wrong[i]), PASS_LEVELS);
}

TEST_MAIN()
