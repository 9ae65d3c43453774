/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/json.h"

#include <errno.h>
#include <stdio.h>

#include "proto/base/str.h"
#include "tests/lib/test.h"

static int parse(const char *s, struct cloud_sandbox **ret)
{
	const char *why = NULL;
	int r = json_sandbox(s, strlen(s), ret, &why);

	if (r == -EBADMSG)
		CHECK(why);
	return r;
}

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
	CHECK(s->has_lifecycle && s->auto_resume && s->on_timeout_pause);
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
	struct cloud_snapshot *snap = NULL;
	char id[CLOUD_ID_MAX + 100];
	const char *why = NULL;

	CHECK_INT(parse_long("envdAccessToken", CLOUD_TOKEN_MAX), 0);
	CHECK_INT(parse_long("envdAccessToken", CLOUD_TOKEN_MAX + 1), -EBADMSG);
	CHECK_INT(parse_long("trafficAccessToken", CLOUD_TOKEN_MAX + 1), -EBADMSG);
	CHECK_INT(parse_long("alias", CLOUD_TOKEN_MAX + 1), 0);
	snprintf(id, sizeof(id), "{\"snapshotID\":\"%*s\"}", (int)CLOUD_ID_MAX + 1, "x");
	CHECK_INT(json_snapshot(id, strlen(id), &snap, &why), -EBADMSG);
	CHECK(strstr(why, "snapshotID"));
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
	const char *why;

	for (size_t i = 0; i < ARRAY_SIZE(small); i++) {
		size_t n = 0, one = strlen(small[i]);

		while (n + one + 2 < sizeof(text)) {
			text[n] = n ? ',' : '[';
			n++;
			memcpy(text + n, small[i], one);
			n += one;
		}
		text[n++] = ']';
		CHECK_INT(json_list(text, n, &l, &why), -EBADMSG);
		CHECK_STR(why, "the answer is made of too many small values");
	}
	CHECK_INT(l.n, 0);
}

TEST(lists)
{
	static const char two[] = "[{" MIN_BOX "},{\"sandboxID\":\"i2\",\"templateID\":\"b\"}]";
	static const char broken[] = "[{" MIN_BOX "},{\"templateID\":\"b\"}]";
	struct cloud_list l = { 0 };
	const char *why;

	CHECK_INT(json_list("[]", 2, &l, &why), 0);
	CHECK_INT(l.n, 0);
	CHECK_INT(json_list(two, strlen(two), &l, &why), 0);
	CHECK_INT(json_list(two, strlen(two), &l, &why), 0);
	CHECK_INT(l.n, 4);
	CHECK_STR(l.v[3]->id, "i2");
	CHECK_INT(json_list(broken, strlen(broken), &l, &why), -EBADMSG);
	CHECK_INT(json_list("{}", 2, &l, &why), -EBADMSG);
	for (size_t i = 0; i < l.n; i++)
		cloud_sandbox_free(l.v[i]);
	free(l.v);
}

TEST(errors)
{
	struct fault_body b;
	bool is_error;
	static const char html[] = "<html>\r\n502 Bad\x01 Gateway</html>\n";
	static const char edge[] = "{\"sandboxId\":\"i1\",\"message\":\"x\",\"port\":49983,\"code\":502}";
	static const char conn[] = "{\"code\":\"not_found\",\"message\":\"gone\"}";
	static const char eos[] = "{\"error\":{\"code\":\"not_found\",\"message\":\"gone\"},\"metadata\":{}}";

	json_error(html, strlen(html), &b);
	CHECK(!b.is_json);
	CHECK_STR(b.message, "<html>  502 Bad  Gateway</html>");
	CHECK_INT(b.code, -1);
	json_error(NULL, 0, &b);
	CHECK_STR(b.message, "");
	json_error(edge, strlen(edge), &b);
	CHECK(b.is_json && b.has_port);
	CHECK_INT(b.code, 502);
	CHECK_STR(b.code_name, "");
	json_error(conn, strlen(conn), &b);
	CHECK_STR(b.code_name, "not_found");
	CHECK_INT(b.code, -1);

	CHECK_INT(json_end_of_stream("{}", 2, &is_error, &b), 0);
	CHECK(!is_error);
	CHECK_INT(json_end_of_stream(eos, strlen(eos), &is_error, &b), 0);
	CHECK(is_error);
	CHECK_STR(b.code_name, "not_found");
	CHECK_STR(b.message, "gone");
	CHECK_INT(json_end_of_stream("", 0, &is_error, &b), -EBADMSG);
	CHECK_INT(json_end_of_stream("{\"error\":1}", 11, &is_error, &b), -EBADMSG);
}

TEST(upload)
{
	static const char ok[] = "[{\"path\":\"/home/user/a\",\"name\":\"a\",\"type\":\"file\"}]";
	char *path = NULL;

	CHECK_INT(json_upload(ok, strlen(ok), &path), 0);
	CHECK_STR(path, "/home/user/a");
	free(path);
	path = NULL;
	CHECK_INT(json_upload("[]", 2, &path), -EBADMSG);
	CHECK_INT(json_upload("[1]", 3, &path), -EBADMSG);
}

TEST(network_text)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;
	scoped(cloud_network_freep) struct cloud_network *again = NULL, *copy = NULL;
	char *text, *body;
	size_t n;

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
	CHECK_INT(json_network(s->network, TRI_FALSE, &body, &n), 0);
	CHECK_STR(body, "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"],\"egressProxy\":{"
			"\"address\":\"h:1\",\"username\":\"u\",\"password\":\"secret\"},\"rules\":{\"x.org\":["
			"{\"transform\":{\"headers\":{\"A\":\"b\"}}}],\"y.org\":[{\"transform\":{\"headers\":{}}}]},"
			"\"allow_internet_access\":false}");
	free(body);
}

TEST(children)
{
	static const char good[] = "[{\"sandbox\":{" MIN_BOX "}},{\"error\":{\"code\":429,\"message\":\"full\"}},{}]";
	static const char *const bad[] = { "{}", "[7]", "[{\"sandbox\":7}]", "[{\"sandbox\":{}}]" };
	struct cloud_children *c = NULL;
	const char *why = NULL;

	CHECK_INT(json_children(good, strlen(good), &c, &why), 0);
	CHECK_INT(c->n, 3);
	CHECK_STR(c->v[0].sandbox->id, "i0a1");
	CHECK(!c->v[1].sandbox && c->v[1].error.reason == R_CONCURRENCY_LIMIT);
	CHECK(!c->v[2].sandbox && c->v[2].error.reason == R_BAD_CLOUD_REPLY);
	c = cloud_children_free(c);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK_INT(json_children(bad[i], strlen(bad[i]), &c, &why), -EBADMSG);
}

TEST(metrics)
{
	static const char good[] = "[{\"timestamp\":\"2026-08-21T10:00:05Z\",\"timestampUnix\":1787306405,"
				   "\"cpuCount\":2,\"cpuUsedPct\":12.5,\"memUsed\":5000000000,\"memTotal\":9,\"memCache\":1,"
				   "\"diskUsed\":3,\"diskTotal\":4},{\"timestamp\":\"2026-08-21T10:00:00Z\",\"cpuUsedPct\":1}]";
	static const char bad[] = "[{\"cpuUsedPct\":\"many\"}]";
	struct cloud_metrics *m = NULL;
	const char *why = NULL;

	CHECK_INT(json_metrics(good, strlen(good), &m, &why), 0);
	CHECK_INT(m->n, 2);
	CHECK_INT(m->v[0].at_ms, 1787306400000);	/* oldest first, whatever the order was */
	CHECK_INT(m->v[1].at_ms, 1787306405000);
	CHECK(m->v[1].cpu_used_pct == 12.5);
	CHECK_INT(m->v[1].mem_used, 5000000000);
	m = cloud_metrics_free(m);
	CHECK_INT(json_metrics("[]", 2, &m, &why), 0);
	CHECK_INT(m->n, 0);
	m = cloud_metrics_free(m);
	CHECK_INT(json_metrics(bad, strlen(bad), &m, &why), -EBADMSG);
}

TEST(snapshots)
{
	static const char one[] = "{\"snapshotID\":\"team/a:v1\",\"names\":[\"team/a\"]}";
	static const char two[] = "[{\"snapshotID\":\"x:default\",\"names\":[]},{\"snapshotID\":\"y\"}]";
	static const char bad[] = "[{\"names\":[]}]";
	struct cloud_snapshot *s = NULL;
	struct cloud_snapshots *l = calloc(1, sizeof(*l));
	const char *why = NULL;

	CHECK_INT(json_snapshot(one, strlen(one), &s, &why), 0);
	CHECK_STR(s->id, "team/a:v1");
	CHECK_STR(s->names.v[0], "team/a");
	cloud_snapshot_free(s);
	CHECK_INT(json_snapshots(two, strlen(two), l, &why), 0);
	CHECK_INT(json_snapshots(two, strlen(two), l, &why), 0);
	CHECK_INT(l->n, 4);
	CHECK_STR(l->v[3]->id, "y");
	CHECK_INT(json_snapshots(bad, strlen(bad), l, &why), -EBADMSG);
	cloud_snapshots_free(l);
}

TEST(small_requests)
{
	char *s;
	size_t n;

	CHECK_INT(json_pause(false, &s, &n), 0);
	CHECK_STR(s, "{\"memory\":false}");
	free(s);
	CHECK_INT(json_fork(3, 300, &s, &n), 0);
	CHECK_STR(s, "{\"timeout\":300,\"count\":3}");
	free(s);
	CHECK_INT(json_snapshot_name("", &s, &n), 0);
	CHECK_STR(s, "{}");
	free(s);
	CHECK_INT(json_snapshot_name("a:v1", &s, &n), 0);
	CHECK_STR(s, "{\"name\":\"a:v1\"}");
	free(s);
	CHECK_INT(json_snapshot_name("\xff", &s, &n), -EINVAL);
}

TEST(create_request)
{
	struct cloud_kv meta[] = { { (char *)"agentbox.req", (char *)"h\"é" } };
	struct cloud_kv bad[] = { { (char *)"k", (char *)"\xff" } };
	struct cloud_create c = { .template_id = "base", .timeout_s = 300, .metadata = meta, .n_metadata = 1,
				  .auto_pause = TRI_FALSE, .auto_resume = TRI_TRUE };
	char *s = NULL;
	size_t n = 0;

	CHECK_INT(json_create(&c, &s, &n), 0);
	CHECK_STR(s, "{\"templateID\":\"base\",\"timeout\":300,\"secure\":true,\"allow_internet_access\":true,"
		     "\"autoPause\":false,\"autoResume\":{\"enabled\":true},\"metadata\":{\"agentbox.req\":\"h\\\"é\"},\"envVars\":{}}");
	CHECK_INT(n, strlen(s));
	free(s);
	c.metadata = bad;
	CHECK_INT(json_create(&c, &s, &n), -EINVAL);
	CHECK_INT(json_number("timeout", 5, &s, &n), 0);
	CHECK_STR(s, "{\"timeout\":5}");
	free(s);
}

TEST_MAIN()
