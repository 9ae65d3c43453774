/* SPDX-License-Identifier: MIT */
#include "proto/cloud/json.h"

#include <errno.h>

#include "proto/base/str.h"
#include "proto/cloud/error.h"
#include "proto/cloud/model.h"
#include "tests/lib/test.h"

static struct cloud_json_error why;

static const struct flavour *agentbox(void)
{
	return flavour_get(FLAVOUR_AGENTBOX);
}

static const struct flavour *e2b(void)
{
	return flavour_get(FLAVOUR_E2B);
}

static int parse(const char *s, struct cloud_sandbox **ret)
{
	struct cloud_sandbox *b = calloc(1, sizeof(*b));
	int r = cloud_json_read(CLOUD_DOC_SANDBOX, s, strlen(s), 0, b, &why);

	if (r == -EBADMSG)
		CHECK(why.text[0]);
	if (r < 0)
		free(b);
	else
		*ret = b;
	return r;
}

static int add_box(void *element, void *user)
{
	CHECK_INT(cloud_list_add(user, element), 0);
	return 0;
}

static int read_page(const char *s, struct cloud_list *l)
{
	return cloud_json_read_list(CLOUD_DOC_SANDBOX, s, strlen(s), 1000, add_box, l, &why);
}

/* The text of a struct; the caller frees it. */
static char *text_of(enum cloud_doc_id doc, const void *v, const struct flavour *f, unsigned part)
{
	int r;
	char *s = cloud_json_text(doc, v, f, part, &r);

	CHECK_INT(r, 0);
	return s;
}

#define CHECK_WRITES(doc, v, f, part, want)                                                                            \
	do {                                                                                                           \
		char *text_ = text_of(doc, v, f, part);                                                                \
		CHECK_STR(text_, want);                                                                                \
		free(text_);                                                                                           \
	} while (0)

#define MIN_BOX "\"sandboxID\":\"i0a1\",\"templateID\":\"base\",\"envdVersion\":\"0.6.13\""

TEST(create_answer)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;

	CHECK_INT(parse("{\"templateID\":\"rki5\",\"alias\":\"base\",\"sandboxID\":\"i0a1b2c3d4e5f6g7h8i9j\","
			"\"clientID\":\"6532622b\",\"envdVersion\":\"0.6.13\",\"envdAccessToken\":\"t0k\","
			"\"domain\":null,\"trafficAccessToken\":null,\"later\":[{\"x\":1}]}", &s), 0);
	CHECK_STR(s->id, "i0a1b2c3d4e5f6g7h8i9j");
	CHECK_STR(s->template_id, "rki5");
	CHECK_STR(s->envd_access_token, "t0k");
	CHECK(!s->domain && !s->traffic_access_token);
	CHECK_INT(s->state, CLOUD_STATE_UNKNOWN);
	CHECK_INT(s->allow_internet_access, TRI_UNSET);
}

TEST(detail)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;

	CHECK_INT(parse("{" MIN_BOX ",\"state\":\"paused\",\"startedAt\":\"2026-08-21T10:00:00.123456789Z\","
			"\"endAt\":\"2026-08-21T12:00:01+02:00\",\"cpuCount\":2,\"memoryMB\":512,\"diskSizeMB\":0,"
			"\"metadata\":{\"a\":\"b\",\"nul\":\"x\\u0000y\"},\"allowInternetAccess\":false,"
			"\"lifecycle\":{\"autoResume\":true,\"onTimeout\":\"pause\"},"
			"\"network\":{\"allowOut\":[\"1.1.1.1\"],\"allowPublicTraffic\":false,"
			"\"egressProxy\":{\"address\":\"h:1\",\"username\":\"u\"},"
			"\"rules\":{\"x.org\":[{\"transform\":{\"headers\":{\"A\":\"b\"}}}]}},"
			"\"volumeMounts\":[]}", &s), 0);
	CHECK_INT(s->state, CLOUD_STATE_PAUSED);
	CHECK_INT(s->started_at_ms, 1787306400123);
	CHECK_INT(s->end_at_ms, 1787306401000);
	CHECK_INT(s->cpu_count, 2);
	CHECK_STR(cloud_kvs_get(&s->metadata, "a"), "b");
	CHECK_INT(s->metadata.n, 1);		/* the one no C string can hold is left out */
	CHECK_INT(s->allow_internet_access, TRI_FALSE);
	CHECK(s->lifecycle.auto_resume == TRI_TRUE && s->lifecycle.pause == TRI_TRUE);
	CHECK_STR(s->network->allow_out.v[0], "1.1.1.1");
	CHECK_INT(s->network->allow_public_traffic, TRI_FALSE);
	CHECK_STR(s->network->egress_username, "u");
	CHECK_INT(s->network->n_rules, 1);
	CHECK_STR(cloud_kvs_get(&s->network->rules[0].headers, "A"), "b");
}

/* C-4: a moment that cannot be used says nothing. */
TEST(moments_before_1970)
{
	static const char *const t[] = { "0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "0000-01-01T00:00:00+23:59" };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;
		char text[200];

		snprintf(text, sizeof(text), "{" MIN_BOX ",\"startedAt\":\"%s\",\"endAt\":\"%s\"}", t[i], t[i]);
		CHECK_INT(parse(text, &s), 0);
		CHECK(!s->started_at_ms && !s->end_at_ms);
	}
}

static int parse_long(const char *key, size_t n)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;
	char text[CLOUD_TOKEN_MAX + 200];
	int at = snprintf(text, sizeof(text), "{" MIN_BOX ",\"%s\":\"", key);

	memset(text + at, 'x', n);
	memcpy(text + at + n, "\"}", 3);
	return parse(text, &s);
}

/* C-4: an id or a token is whole, or the answer is not believed. */
TEST(whole_or_not_at_all)
{
	struct cloud_snapshot snap = { 0 };
	char id[CLOUD_ID_MAX + 100];

	CHECK_INT(parse_long("envdAccessToken", CLOUD_TOKEN_MAX), 0);
	CHECK_INT(parse_long("envdAccessToken", CLOUD_TOKEN_MAX + 1), -EBADMSG);
	CHECK_INT(parse_long("trafficAccessToken", CLOUD_TOKEN_MAX + 1), -EBADMSG);
	CHECK_INT(parse_long("alias", CLOUD_TOKEN_MAX + 1), 0);
	snprintf(id, sizeof(id), "{\"snapshotID\":\"%*s\"}", (int)CLOUD_ID_MAX + 1, "x");
	CHECK_INT(cloud_json_read(CLOUD_DOC_SNAPSHOT, id, strlen(id), 0, &snap, &why), -EBADMSG);
	CHECK_STR(why.text, "snapshotID is too long");
}

TEST(refused)
{
	static const char *const bad[] = {
		"", "{", "[]", "null", "{}",
		"{\"sandboxID\":\"\",\"templateID\":\"b\"}",
		"{\"sandboxID\":7,\"templateID\":\"b\"}",
		"{\"sandboxID\":\"../x\",\"templateID\":\"b\"}",
		"{\"sandboxID\":\"-x\",\"templateID\":\"b\"}",
		"{\"sandboxID\":\"i1\"}",
		"{\"sandboxID\":\"i1\",\"sandboxID\":\"i2\",\"templateID\":\"b\"}",
		"{" MIN_BOX ",\"envdAccessToken\":5}",
		"{" MIN_BOX ",\"metadata\":[]}",
		"{" MIN_BOX ",\"metadata\":{\"a\":1}}",
		"{" MIN_BOX ",\"endAt\":\"tomorrow\"}",
		"{" MIN_BOX ",\"cpuCount\":-1}",
		"{" MIN_BOX ",\"cpuCount\":1.5}",
		"{" MIN_BOX ",\"network\":\"none\"}",
		"{" MIN_BOX ",\"network\":{\"rules\":{\"x\":{}}}}",
		"{" MIN_BOX "} trailing",
	};
	struct cloud_sandbox *s = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_INT(parse(bad[i], &s), -EBADMSG);
		CHECK(!s);
	}
}

TEST(tolerated)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;

	/* A legacy id, no envd version, a state of tomorrow. */
	CHECK_INT(parse("{\"sandboxID\":\"i1-6532622b\",\"templateID\":\"b\",\"state\":\"dreaming\"}", &s), 0);
	CHECK_STR(s->id, "i1");
	CHECK_STR(s->envd_version, "v1.0.0");
	CHECK_INT(s->state, CLOUD_STATE_UNKNOWN);
}

/* G-6: it would go into addresses and to terminals. */
TEST(a_domain_is_a_host_name)
{
	static const struct {
		const char *said;
		bool ok;
	} t[] = { { "x.test", true }, { "localhost:3000", true }, { "127.0.0.1:1", true }, { "a\\r\\nb", false },
		  { "a\\u001b[31m", false }, { "a/b", false }, { "a@b", false }, { "a:0", false }, { "", true } };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;
		char text[200];

		snprintf(text, sizeof(text), "{" MIN_BOX ",\"domain\":\"%s\"}", t[i].said);
		CHECK_INT(parse(text, &s), 0);
		CHECK(t[i].ok ? s->domain && str_eq(s->domain, t[i].said) : !s->domain);
		CHECK_INT(s->has_odd_domain, !t[i].ok);
	}
}

TEST(depth)
{
	char deep[400];
	struct cloud_sandbox *s = NULL;
	size_t n = (size_t)snprintf(deep, sizeof(deep), "{" MIN_BOX ",\"x\":");

	memset(deep + n, '[', 100);
	memset(deep + n + 100, ']', 100);
	memcpy(deep + n + 200, "}", 2);
	CHECK_INT(parse(deep, &s), -EBADMSG);
	/* Brackets in strings do not count. */
	snprintf(deep, sizeof(deep), "{" MIN_BOX ",\"x\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[\"}");
	CHECK_INT(parse(deep, &s), 0);
	cloud_sandbox_free(s);
}

/* What is made of it stays within ten times its size, beside what any answer may take. */
TEST(many_small_values)
{
	static const char *const small[] = { "{}", "[]", "0", "\"\"", "{\"a\":{}}", "[0,0]" };
	static char text[1 << 20];
	struct cloud_list l = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(small); i++) {
		size_t n = 0, one = strlen(small[i]);

		while (n + one + 2 < sizeof(text)) {
			text[n] = n ? ',' : '[';
			n++;
			memcpy(text + n, small[i], one);
			n += one;
		}
		text[n++] = ']';
		CHECK_INT(cloud_json_read_list(CLOUD_DOC_SANDBOX, text, n, 1000, add_box, &l, &why), -EBADMSG);
		CHECK_STR(why.text, "the document is made of too many small values");
	}
	CHECK_INT(l.n, 0);
}

TEST(lists)
{
	static const char two[] = "[{" MIN_BOX "},{\"sandboxID\":\"i2\",\"templateID\":\"b\"}]";
	static const char broken[] = "[{" MIN_BOX "},{\"templateID\":\"b\"}]";
	struct cloud_list l = { 0 };

	CHECK_INT(read_page("[]", &l), 0);
	CHECK_INT(l.n, 0);
	CHECK_INT(read_page(two, &l), 0);
	CHECK_INT(read_page(two, &l), 0);
	CHECK_INT(l.n, 4);
	CHECK_STR(l.v[3]->id, "i2");
	CHECK_INT(read_page(broken, &l), -EBADMSG);
	CHECK_INT(read_page("{}", &l), -EBADMSG);
	for (size_t i = 0; i < l.n; i++)
		cloud_sandbox_free(l.v[i]);
	free(l.v);
}

TEST(errors)
{
	struct cloud_error_body b;
	bool is_error;
	static const char html[] = "<html>\r\n502 Bad\x01 Gateway</html>\n";
	static const char edge[] = "{\"sandboxId\":\"i1\",\"message\":\"x\",\"port\":49983,\"code\":502}";
	static const char conn[] = "{\"code\":\"not_found\",\"message\":\"gone\"}";
	static const char eos[] = "{\"error\":{\"code\":\"not_found\",\"message\":\"gone\"},\"metadata\":{}}";

	cloud_error_read(html, strlen(html), &b);
	CHECK(!b.is_json);
	CHECK_STR(b.message, "<html>  502 Bad  Gateway</html>");
	CHECK_INT(b.code, -1);
	cloud_error_read(NULL, 0, &b);
	CHECK_STR(b.message, "");
	cloud_error_read(edge, strlen(edge), &b);
	CHECK(b.is_json && b.has_port);
	CHECK_INT(b.code, 502);
	CHECK_STR(b.code_name, "");
	cloud_error_read(conn, strlen(conn), &b);
	CHECK_STR(b.code_name, "not_found");
	CHECK_INT(b.code, -1);

	CHECK_INT(cloud_error_read_end("{}", 2, &is_error, &b), 0);
	CHECK(!is_error);
	CHECK_INT(cloud_error_read_end(eos, strlen(eos), &is_error, &b), 0);
	CHECK(is_error);
	CHECK_STR(b.code_name, "not_found");
	CHECK_STR(b.message, "gone");
	CHECK_INT(cloud_error_read_end("", 0, &is_error, &b), -EBADMSG);
	CHECK_INT(cloud_error_read_end("{\"error\":1}", 11, &is_error, &b), -EBADMSG);
}

static int keep_path(void *element, void *user)
{
	struct cloud_uploaded *u = element;

	free(*(char **)user);
	*(char **)user = give(u->path);
	cloud_doc_fini(CLOUD_DOC_UPLOADED, u);
	free(u);
	return 0;
}

TEST(upload)
{
	static const char ok[] = "[{\"path\":\"/home/user/a\",\"name\":\"a\",\"type\":7}]";
	char *path = NULL;

	CHECK_INT(cloud_json_read_list(CLOUD_DOC_UPLOADED, ok, strlen(ok), 9, keep_path, &path, &why), 0);
	CHECK_STR(path, "/home/user/a");
	free(path);
	path = NULL;
	CHECK_INT(cloud_json_read_list(CLOUD_DOC_UPLOADED, "[1]", 3, 9, keep_path, &path, &why), -EBADMSG);
	CHECK_INT(cloud_json_read_list(CLOUD_DOC_UPLOADED, "[{}]", 4, 9, keep_path, &path, &why), -EBADMSG);
	CHECK_INT(cloud_json_read_list(CLOUD_DOC_UPLOADED, ok, strlen(ok), 0, keep_path, &path, &why), -EBADMSG);
	CHECK(!path);
}

TEST(network_text)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;
	scoped(cloud_network_freep) struct cloud_network *again = NULL, *copy = NULL;
	char *text;
	struct cloud_egress egress;

	CHECK_INT(parse("{" MIN_BOX ",\"network\":{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"],"
			"\"allowPublicTraffic\":false,\"maskRequestHost\":\"h:${PORT}\","
			"\"egressProxy\":{\"address\":\"h:1\",\"username\":\"u\"},"
			"\"rules\":{\"x.org\":[{\"transform\":{\"headers\":{\"A\":\"b\"}}}],\"y.org\":[]}}}", &s), 0);
	s->network->egress_password = str_dup("secret");
	text = cloud_network_format(s->network);
	CHECK(text && !strstr(text, "secret"));
	CHECK_INT(cloud_network_parse(text, &again), 0);
	CHECK(cloud_network_equal(again, s->network));
	copy = cloud_network_dup(s->network);
	CHECK(cloud_network_equal(copy, again));
	CHECK_STR(copy->egress_password, "secret");
	free(copy->deny_out.v[0]);
	copy->deny_out.v[0] = str_dup("10.0.0.0/8");
	CHECK(!cloud_network_equal(copy, again));
	CHECK(!cloud_network_equal(NULL, again) && cloud_network_equal(NULL, NULL));
	free(text);
	CHECK_INT(cloud_network_parse("[]", &again), -EBADMSG);
	CHECK_INT(cloud_network_parse("{\"denyOut\":7}", &again), -EBADMSG);

	/* What replaces the egress settings says nothing of ingress. */
	egress = (struct cloud_egress){ .network = *s->network, .allow_internet_access = TRI_FALSE };
	CHECK_WRITES(CLOUD_DOC_EGRESS, &egress, agentbox(), 0,
		     "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"],\"egressProxy\":{"
		     "\"address\":\"h:1\",\"username\":\"u\",\"password\":\"secret\"},\"rules\":{\"x.org\":["
		     "{\"transform\":{\"headers\":{\"A\":\"b\"}}}],\"y.org\":[{\"transform\":{\"headers\":{}}}]},"
		     "\"allow_internet_access\":false}");
}

static int count_results(void *element, void *user)
{
	struct cloud_fork_result *f = element;
	char **told = user;
	char *next = str_printf("%s%s%lld;", *told, f->sandbox ? f->sandbox->id : "-", f->error ? (long long)f->error->code : 0);

	free(*told);
	*told = next;
	cloud_doc_fini(CLOUD_DOC_FORK_RESULT, f);
	free(f);
	return 0;
}

TEST(children)
{
	static const char good[] = "[{\"sandbox\":{" MIN_BOX "}},{\"error\":{\"code\":429,\"message\":\"full\"}},{},"
				   "{\"error\":{\"code\":\"x\",\"message\":[]}}]";
	static const char *const bad[] = { "{}", "[7]", "[{\"sandbox\":7}]", "[{\"sandbox\":{}}]" };
	char *told = str_dup("");

	CHECK_INT(cloud_json_read_list(CLOUD_DOC_FORK_RESULT, good, strlen(good), 9, count_results, &told, &why), 0);
	CHECK_STR(told, "i0a10;-429;-0;-0;");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK_INT(cloud_json_read_list(CLOUD_DOC_FORK_RESULT, bad[i], strlen(bad[i]), 9, count_results, &told,
					       &why), -EBADMSG);
	free(told);
}

TEST(metrics)
{
	static const char both[] = "{\"timestamp\":\"2026-08-21T10:00:00Z\",\"timestampUnix\":1787306405,"
				   "\"cpuCount\":2,\"cpuUsedPct\":12.5,\"memUsed\":5000000000,\"memTotal\":9,\"memCache\":1,"
				   "\"diskUsed\":3,\"diskTotal\":4}";
	static const char text[] = "{\"timestamp\":\"2026-08-21T10:00:00Z\",\"cpuUsedPct\":1}";
	static const char bad[] = "{\"cpuUsedPct\":\"many\"}";
	struct cloud_metric m = { 0 };

	CHECK_INT(cloud_json_read(CLOUD_DOC_METRIC, text, strlen(text), 0, &m, &why), 0);
	CHECK_INT(m.at_ms, 1787306400000);
	CHECK_INT(cloud_json_read(CLOUD_DOC_METRIC, both, strlen(both), 0, &m, &why), 0);
	CHECK_INT(m.at_ms, 1787306405000);	/* the number is the newer field */
	CHECK(m.cpu_used_pct == 12.5);
	CHECK_INT(m.mem_used, 5000000000);
	/* The moment as a text is E2B's alone. */
	CHECK_WRITES(CLOUD_DOC_METRIC, &m, agentbox(), 0,
		     "{\"timestampUnix\":1787306405,\"cpuCount\":2,\"cpuUsedPct\":12.5,\"memUsed\":5000000000,"
		     "\"memTotal\":9,\"memCache\":1,\"diskUsed\":3,\"diskTotal\":4}");
	CHECK_WRITES(CLOUD_DOC_METRIC, &m, e2b(), 0,
		     "{\"timestamp\":\"2026-08-21T10:00:05.000000Z\",\"timestampUnix\":1787306405,\"cpuCount\":2,"
		     "\"cpuUsedPct\":12.5,\"memUsed\":5000000000,\"memTotal\":9,\"memCache\":1,\"diskUsed\":3,"
		     "\"diskTotal\":4}");
	CHECK_INT(cloud_json_read(CLOUD_DOC_METRIC, bad, strlen(bad), 0, &m, &why), -EBADMSG);
	CHECK_STR(why.text, "cpuUsedPct must be a number");
}

TEST(snapshots)
{
	static const char one[] = "{\"snapshotID\":\"team/a:v1\",\"names\":[\"team/a\"]}";
	struct cloud_snapshot s = { 0 };

	CHECK_INT(cloud_json_read(CLOUD_DOC_SNAPSHOT, one, strlen(one), 0, &s, &why), 0);
	CHECK_STR(s.id, "team/a:v1");
	CHECK_STR(s.names.v[0], "team/a");
	CHECK_WRITES(CLOUD_DOC_SNAPSHOT, &s, agentbox(), 0, one);
	cloud_doc_fini(CLOUD_DOC_SNAPSHOT, &s);
	CHECK_INT(cloud_json_read(CLOUD_DOC_SNAPSHOT, "{\"names\":[]}", 12, 0, &s, &why), -EBADMSG);
	CHECK_STR(why.text, "snapshotID is missing");
}

/* The least and the most that the documents of either cloud have. */
TEST(templates)
{
	static const char full[] =
		"{\"templateID\":\"rki5\",\"buildID\":\"b1\",\"cpuCount\":2,\"memoryMB\":512,\"diskSizeMB\":1024,"
		"\"public\":true,\"aliases\":[\"a\"],\"names\":[\"team/a\"],\"createdAt\":\"2026-08-21T10:00:00Z\","
		"\"updatedAt\":\"2026-08-21T10:00:05Z\",\"createdBy\":{\"id\":\"u\",\"email\":\"e\"},"
		"\"lastSpawnedAt\":null,\"spawnCount\":7,\"buildCount\":1,\"envdVersion\":\"0.6.13\","
		"\"buildStatus\":\"building\",\"later\":{}}";
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "{\"buildID\":\"b1\"}", "templateID is missing" },
		{ "{\"templateID\":\"a\",\"names\":\"b\"}", "names must be a list of strings" },
		{ "{\"templateID\":\"a\",\"spawnCount\":\"1\"}", "spawnCount must be a whole number from 0 to 9223372036854775807" },
		{ "{\"templateID\":\"a\",\"createdAt\":\"noon\"}", "createdAt must be a date and time" },
		{ "{\"templateID\":\"a\",\"buildStatus\":7}", "buildStatus must be a string" },
	};
	struct cloud_template t = { 0 };

	CHECK_INT(cloud_json_read(CLOUD_DOC_TEMPLATE, full, strlen(full), 0, &t, &why), 0);
	CHECK_STR(t.id, "rki5");
	CHECK_STR(t.names.v[0], "team/a");
	CHECK_STR(t.aliases.v[0], "a");
	CHECK_STR(t.build_status, "building");
	CHECK(t.is_public && t.spawn_count == 7 && !t.spawned_at_ms);
	CHECK_INT(t.updated_at_ms - t.created_at_ms, 5000);
	cloud_doc_fini(CLOUD_DOC_TEMPLATE, &t);
	CHECK_INT(cloud_json_read(CLOUD_DOC_TEMPLATE, "{\"templateID\":\"a\"}", 18, 0, &t, &why), 0);
	CHECK(!t.names.n && !t.build_status && !t.envd_version);
	cloud_doc_fini(CLOUD_DOC_TEMPLATE, &t);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_INT(cloud_json_read(CLOUD_DOC_TEMPLATE, bad[i].text, strlen(bad[i].text), 0, &t, &why), -EBADMSG);
		CHECK_STR(why.text, bad[i].why);
	}
}

TEST(small_requests)
{
	struct cloud_pause pause = { .memory = TRI_FALSE };
	struct cloud_fork fork = { .timeout_s = 300, .count = 3 };
	struct cloud_connect connect = { .timeout_s = 5 };
	struct cloud_refresh refresh = { .duration_s = 7 };
	struct cloud_snapshot_name name = { 0 };
	int r;

	CHECK_WRITES(CLOUD_DOC_PAUSE, &pause, agentbox(), 0, "{\"memory\":false}");
	CHECK_WRITES(CLOUD_DOC_FORK, &fork, agentbox(), 0, "{\"timeout\":300,\"count\":3}");
	CHECK_WRITES(CLOUD_DOC_CONNECT, &connect, agentbox(), 0, "{\"timeout\":5}");
	CHECK_WRITES(CLOUD_DOC_REFRESH, &refresh, agentbox(), 0, "{\"duration\":7}");
	CHECK_WRITES(CLOUD_DOC_SNAPSHOT_NAME, &name, agentbox(), 0, "{}");
	name.name = (char *)"a:v1";
	CHECK_WRITES(CLOUD_DOC_SNAPSHOT_NAME, &name, agentbox(), 0, "{\"name\":\"a:v1\"}");
	name.name = (char *)"\xff";
	CHECK(!cloud_json_text(CLOUD_DOC_SNAPSHOT_NAME, &name, agentbox(), 0, &r));
	CHECK_INT(r, -EINVAL);
}

TEST(create_request)
{
	struct cloud_kv meta[] = { { (char *)"agentbox.req", (char *)"h\"é" } };
	struct cloud_create c = { .template_id = (char *)"base", .timeout_s = 300, .metadata = { meta, 1 }, .secure = TRI_TRUE,
				  .lifecycle = { .pause = TRI_FALSE, .auto_resume = TRI_TRUE } };

	CHECK_WRITES(CLOUD_DOC_CREATE, &c, agentbox(), 0,
		     "{\"templateID\":\"base\",\"timeout\":300,\"secure\":true,\"autoPause\":false,"
		     "\"autoResume\":{\"enabled\":true},\"metadata\":{\"agentbox.req\":\"h\\\"é\"},\"envVars\":{}}");
}

/* Each document is described once: what one side writes the other reads, with nothing lost. */
TEST(a_request_comes_through)
{
	static const char text[] =
		"{\"templateID\":\"base\",\"timeout\":60,\"secure\":true,\"allow_internet_access\":false,\"autoPause\":true,"
		"\"autoPauseMemory\":false,\"autoResume\":{\"enabled\":false},\"metadata\":{\"a\":\"b\"},"
		"\"envVars\":{\"X\":\"\"},\"network\":{\"allowOut\":[\"x.org\"],\"denyOut\":[\"0.0.0.0/0\"],"
		"\"allowPublicTraffic\":true,\"maskRequestHost\":\"h\",\"egressProxy\":{\"address\":\"h:1\","
		"\"username\":\"u\",\"password\":\"p\"},\"rules\":{\"x.org\":[{\"transform\":{\"headers\":{\"A\":\"b\"}}}]}},"
		"\"iam\":{\"tokens\":{\"aws\":{\"audience\":\"a\",\"tokenType\":\"JWT-SVID\"}}}}";
	struct cloud_create c = { 0 };

	CHECK_INT(cloud_json_read(CLOUD_DOC_CREATE, text, strlen(text), CLOUD_JSON_REQUEST, &c, &why), 0);
	CHECK_INT(c.n_iam_tokens, 1);
	CHECK_STR(c.iam_tokens[0].name, "aws");
	CHECK_STR(c.network->egress_password, "p");
	CHECK(!c.asks_volumes);
	CHECK_WRITES(CLOUD_DOC_CREATE, &c, e2b(), 0, text);
	cloud_create_fini(&c);
}

TEST(a_request_s_errors_name_the_field)
{
	static const struct {
		const char *text, *why;
	} t[] = {
		{ "{}", "templateID is missing" },
		{ "{\"templateID\":\"b\",\"timeout\":-1}", "timeout must be a whole number from 0 to 2147483647" },
		{ "{\"templateID\":\"b\",\"timeout\":\"5\"}", "timeout must be a whole number from 0 to 2147483647" },
		{ "{\"templateID\":\"b\",\"secure\":1}", "secure must be true or false" },
		{ "{\"templateID\":\"b\",\"autoResume\":{}}", "autoResume.enabled is missing" },
		{ "{\"templateID\":\"b\",\"autoResume\":true}", "autoResume must be an object" },
		{ "{\"templateID\":\"b\",\"metadata\":{\"a\":1}}", "metadata must be an object of strings" },
		{ "{\"templateID\":\"b\",\"network\":{\"allowOut\":\"x\"}}", "network.allowOut must be a list of strings" },
		{ "{\"templateID\":\"b\",\"network\":{\"rules\":{\"x.org\":[{\"transform\":{\"headers\":[]}}]}}}",
		  "network.rules.x.org.transform.headers must be an object of strings" },
		{ "{\"templateID\":\"b\",\"iam\":{\"tokens\":{\"a\":{}}}}", "iam.tokens.a.audience is missing" },
		{ "[]", "the document must be an object" },
		{ "{\"templateID\":\"a\\u0000b\"}", "the document is not JSON" },
	};
	struct cloud_create c = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(cloud_json_read(CLOUD_DOC_CREATE, t[i].text, strlen(t[i].text), CLOUD_JSON_REQUEST, &c, &why),
			  -EBADMSG);
		CHECK_STR(why.text, t[i].why);
		CHECK(!c.template_id && !c.network);
	}
}

/* What an answer holds in which flavour. */
TEST(a_sandbox_is_told)
{
	struct cloud_sandbox s = {.id = (char *)"i1",
				  .template_id = (char *)"t",
				  .alias = (char *)"base",
				  .envd_version = (char *)"0.6.13",
				  .envd_access_token = (char *)"tok",
				  .state = CLOUD_STATE_PAUSED,
				  .started_at_ms = 1787306400123,
				  .end_at_ms = 1787306401000,
				  .cpu_count = 2,
				  .memory_mb = 512,
				  .disk_size_mb = 10,
				  .lifecycle = {.pause = TRI_TRUE, .auto_resume = TRI_FALSE}};

	CHECK_WRITES(CLOUD_DOC_SANDBOX, &s, agentbox(), CLOUD_CREATED,
		     "{\"templateID\":\"t\",\"alias\":\"base\",\"sandboxID\":\"i1\",\"envdVersion\":\"0.6.13\","
		     "\"trafficAccessToken\":null,\"domain\":null,\"envdAccessToken\":\"tok\"}");
	CHECK_WRITES(CLOUD_DOC_SANDBOX, &s, e2b(), CLOUD_CREATED,
		     "{\"templateID\":\"t\",\"alias\":\"base\",\"sandboxID\":\"i1\",\"clientID\":\"6532622b\","
		     "\"envdVersion\":\"0.6.13\",\"trafficAccessToken\":null,\"domain\":null,\"envdAccessToken\":\"tok\"}");
	CHECK_WRITES(CLOUD_DOC_SANDBOX, &s, agentbox(), CLOUD_LISTED | CLOUD_LIVE,
		     "{\"templateID\":\"t\",\"alias\":\"base\",\"sandboxID\":\"i1\",\"envdVersion\":\"0.6.13\","
		     "\"startedAt\":\"2026-08-21T10:00:00.123000Z\",\"endAt\":\"2026-08-21T10:00:01.000000Z\","
		     "\"cpuCount\":2,\"memoryMB\":512,\"diskSizeMB\":10,\"state\":\"paused\",\"metadata\":{}}");
	CHECK_WRITES(CLOUD_DOC_SANDBOX, &s, e2b(), CLOUD_LISTED | CLOUD_DETAIL | CLOUD_LIVE,
		     "{\"templateID\":\"t\",\"alias\":\"base\",\"sandboxID\":\"i1\",\"clientID\":\"6532622b\","
		     "\"envdVersion\":\"0.6.13\",\"startedAt\":\"2026-08-21T10:00:00.123000Z\","
		     "\"endAt\":\"2026-08-21T10:00:01.000000Z\",\"cpuCount\":2,\"memoryMB\":512,\"diskSizeMB\":10,"
		     "\"state\":\"paused\",\"metadata\":{},\"volumeMounts\":[],\"domain\":null,\"envdAccessToken\":\"tok\","
		     "\"lifecycle\":{\"autoResume\":false,\"onTimeout\":\"pause\"},\"allowInternetAccess\":null}");
}

TEST(an_error_is_told)
{
	struct buf out;
	char *text;

	buf_init(&out, 0);
	CHECK_INT(cloud_error_write(503, CLOUD_ERROR_CAPACITY, "no \"room\"", e2b(), &out), 0);
	text = buf_take_str(&out);
	CHECK_STR(text, "{\"code\":503,\"message\":\"no \\\"room\\\"\",\"error_code\":\"sandbox_capacity_unavailable\"}");
	free(text);
	CHECK_INT(cloud_error_write(503, CLOUD_ERROR_CAPACITY, "x", agentbox(), &out), 0);
	text = buf_take_str(&out);
	CHECK_STR(text, "{\"code\":503,\"message\":\"x\"}");
	free(text);
	buf_fini(&out);
}

TEST_MAIN()
