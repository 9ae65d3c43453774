/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/plane.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

struct row {
	const char *method, *authority, *path;
	const char *fields[8];		/* name, value, … */
	enum plane_kind kind;
	const char *sandbox;		/* or why */
	unsigned port;
	bool by_label;
};

static void find(const struct row *t, struct plane *ret)
{
	struct fields head = FIELDS_NULL;

	CHECK_INT(fields_put(&head, ":method", t->method), 0);
	if (t->authority)
		CHECK_INT(fields_put(&head, ":authority", t->authority), 0);
	CHECK_INT(fields_put(&head, ":path", t->path), 0);
	for (size_t i = 0; i < ARRAY_SIZE(t->fields) && t->fields[i]; i += 2)
		CHECK_INT(fields_put(&head, t->fields[i], t->fields[i + 1]), 0);
	plane_find(&head, ret);
	fields_fini(&head);
}

static void check_rows(const struct row *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct plane got;

		find(&t[i], &got);
		CHECK_INT(got.kind, t[i].kind);
		if (got.kind == PLANE_PORT) {
			CHECK_STR(got.port.sandbox, t[i].sandbox);
			CHECK_INT(got.port.port, t[i].port);
			CHECK_INT(got.port.by_label, t[i].by_label);
		} else if (got.kind == PLANE_BAD) {
			CHECK_STR(got.why, t[i].sandbox);
		}
	}
}

TEST(a_host_label_wins)
{
	static const struct row t[] = {
		{ "GET", "3000-iabc.localhost:4711", "/", { 0 }, PLANE_PORT, "iabc", 3000, true },
		{ "GET", "3000-IABC.LOCALHOST", "/", { 0 }, PLANE_PORT, "iabc", 3000, true },
		{ "GET", "3000-iabc-6532622b.e2b.app", "/", { 0 }, PLANE_PORT, "iabc", 3000, true },
		{ "POST", "49983-iabc.localhost", "/sandboxes", { 0 }, PLANE_PORT, "iabc", 49983, true },
		{ "GET", "3000-iabc.localhost", "/", { "e2b-sandbox-id", "iother", "e2b-sandbox-port", "1" },
		  PLANE_PORT, "iabc", 3000, true },
		{ "GET", "3000-i_bc.localhost", "/", { 0 }, PLANE_BAD, "Invalid sandbox ID", 0, false },
		{ "GET", "3000-.localhost", "/", { 0 }, PLANE_BAD, "Invalid sandbox ID", 0, false },
		{ "GET", "65536-iabc.localhost", "/", { 0 }, PLANE_BAD, "Invalid sandbox port", 0, false },
		{ "GET", "0-iabc.localhost", "/", { 0 }, PLANE_BAD, "Invalid sandbox port", 0, false },
		{ "GET", "localhost", "/sandboxes/iabc", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "127.0.0.1:4711", "/", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "api.localhost", "/", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "3000-iabc", "/", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "[::1", "/", { 0 }, PLANE_BAD, "Invalid host", 0, false },
		{ "GET", NULL, "/", { 0 }, PLANE_BAD, "Invalid host", 0, false },
		{ "GET", "u@localhost", "/", { 0 }, PLANE_BAD, "Invalid host", 0, false },
		{ "GET", "3000-iabc@localhost:1", "/", { 0 }, PLANE_BAD, "Invalid host", 0, false },
	};

	check_rows(t, ARRAY_SIZE(t));
}

TEST(routing_headers_of_any_spelling)
{
	static const struct row t[] = {
		{ "GET", "localhost", "/sandboxes", { "e2b-sandbox-id", "iabc", "e2b-sandbox-port", "8080" },
		  PLANE_PORT, "iabc", 8080, false },
		{ "GET", "127.0.0.1", "/x", { "agentbox-sandbox-id", "iabc", "agentbox-sandbox-port", "49983" },
		  PLANE_PORT, "iabc", 49983, false },
		{ "GET", "gw.example.org", "/x", { "agentbox-sandbox-id", "iabc", "e2b-sandbox-port", "1" },
		  PLANE_PORT, "iabc", 1, false },
		{ "GET", "localhost", "/x", { "agentbox-sandbox-id", "iabc", "e2b-sandbox-id", "iabc",
					      "e2b-sandbox-port", "1" }, PLANE_PORT, "iabc", 1, false },
		{ "GET", "localhost", "/x", { "agentbox-sandbox-id", "iabc", "e2b-sandbox-id", "iother",
					      "e2b-sandbox-port", "1" }, PLANE_BAD, "Invalid sandbox ID", 0, false },
		{ "GET", "localhost", "/x", { "e2b-sandbox-id", "iabc", "e2b-sandbox-port", "1",
					      "e2b-sandbox-port", "2" }, PLANE_BAD, "Invalid sandbox port", 0, false },
		{ "GET", "localhost", "/x", { "e2b-sandbox-id", "iabc" }, PLANE_BAD, "missing header", 0, false },
		{ "GET", "localhost", "/x", { "e2b-sandbox-port", "1" }, PLANE_BAD, "missing header", 0, false },
		{ "GET", "localhost", "/x", { "e2b-sandbox-id", "", "e2b-sandbox-port", "1" },
		  PLANE_BAD, "missing header", 0, false },
		{ "GET", "localhost", "/x", { "e2b-sandbox-id", "../x", "e2b-sandbox-port", "1" },
		  PLANE_BAD, "Invalid sandbox ID", 0, false },
		{ "GET", "localhost", "/x", { "e2b-sandbox-id", "iabc", "e2b-sandbox-port", "-1" },
		  PLANE_BAD, "Invalid sandbox port", 0, false },
	};

	check_rows(t, ARRAY_SIZE(t));
}

/* SDKs before 1.9 send the agent's routing headers with every call of the control plane. */
TEST(the_agents_headers_on_a_control_call)
{
#define OLD { "e2b-sandbox-id", "iabc", "e2b-sandbox-port", "49983" }
	static const struct row t[] = {
		{ "POST", "localhost", "/sandboxes", OLD, PLANE_CONTROL, NULL, 0, false },
		{ "DELETE", "localhost", "/sandboxes/iabc", OLD, PLANE_CONTROL, NULL, 0, false },
		{ "POST", "localhost", "/sandboxes/iabc/timeout?x=1", OLD, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "localhost", "/v2/sandboxes?state=running", OLD, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "localhost", "/health", OLD, PLANE_PORT, "iabc", 49983, false },
		{ "HEAD", "localhost", "/health", OLD, PLANE_PORT, "iabc", 49983, false },
		{ "GET", "localhost", "/files?path=/a&signature=v1_x", OLD, PLANE_PORT, "iabc", 49983, false },
		{ "POST", "localhost", "/process.Process/Start", OLD, PLANE_PORT, "iabc", 49983, false },
		{ "GET", "localhost", "/metrics", OLD, PLANE_PORT, "iabc", 49983, false },
		{ "GET", "localhost", "/%zz", OLD, PLANE_PORT, "iabc", 49983, false },
	};

	check_rows(t, ARRAY_SIZE(t));
}

TEST(links_and_what_is_left)
{
	static const struct row t[] = {
		{ "GET", "localhost", "/files?path=/a&signature=v1_x", { 0 }, PLANE_LINK, NULL, 0, false },
		{ "POST", "localhost", "/files?signature=", { 0 }, PLANE_LINK, NULL, 0, false },
		{ "GET", "localhost", "/files?path=/a", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "localhost", "/files/x?signature=v1_x", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "localhost", "/health", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "GET", "localhost", "/nothing", { 0 }, PLANE_CONTROL, NULL, 0, false },
		{ "OPTIONS", "localhost", "*", { 0 }, PLANE_CONTROL, NULL, 0, false },
	};

	check_rows(t, ARRAY_SIZE(t));
}

TEST_MAIN()
