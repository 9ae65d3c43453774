/* SPDX-License-Identifier: MIT */
/* What of a Start or Connect the daemon takes for its own, and the envelopes of the answer in both codecs. */
#include <errno.h>

#include "daemon/gateway/durable.h"
#include "proto/base/str.h"
#include "proto/gen/envd_process.pb-c.h"
#include "tests/lib/test.h"

#define JSON  "application/connect+json"
#define PROTO "application/connect+proto"
#define START "/process.Process/Start"
#define CONNECT "/process.Process/Connect"

struct extra {
	const char *name, *value;
};

static struct fields head_of(const char *path, const char *type, const struct extra *e)
{
	struct fields f = FIELDS_NULL;

	CHECK(!fields_put(&f, ":method", "POST"));
	CHECK(!fields_put(&f, ":path", path));
	CHECK(!fields_put(&f, "content-type", type));
	if (e && e->name)
		CHECK(!fields_put(&f, e->name, e->value));
	return f;
}

TEST(whose_it_is_by_the_head)
{
	static const struct {
		const char *path, *type;
		struct extra e;
		enum durable_kind want;
	} t[] = {
		{ START, JSON, { 0 }, DURABLE_START },
		{ START, PROTO, { 0 }, DURABLE_START },
		{ "/process.Process/Connect", JSON, { 0 }, DURABLE_CONNECT },
		{ "/process.Process/List", JSON, { 0 }, DURABLE_NONE },
		{ START "?x", JSON, { 0 }, DURABLE_NONE },
		{ START, "application/json", { 0 }, DURABLE_NONE },
		{ START, "application/grpc", { 0 }, DURABLE_NONE },
		{ START, JSON, { "connect-protocol-version", "1" }, DURABLE_START },
		{ START, JSON, { "connect-protocol-version", "2" }, DURABLE_NONE },
		{ START, JSON, { "connect-content-encoding", "identity" }, DURABLE_START },
		{ START, JSON, { "connect-content-encoding", "gzip" }, DURABLE_NONE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct fields f = head_of(t[i].path, t[i].type, &t[i].e);

		CHECK_INT(durable_kind_of(&f), t[i].want);
		fields_fini(&f);
	}
}

/* `body` is of `n` bytes, or with n 0 the message of an envelope. */
static int read_json(const struct extra *e, const char *path, const char *body, size_t n, struct durable_ask *ret)
{
	struct fields f = head_of(path, JSON, e);
	char whole[512] = "";
	int r;

	if (!n) {
		whole[4] = (char)strlen(body);
		memcpy(whole + 5, body, strlen(body));
		n = strlen(body) + 5;
	} else {
		memcpy(whole, body, n);
	}
	r = durable_ask_read(&f, whole, n, ret);
	fields_fini(&f);
	return r;
}

TEST(a_request)
{
	static const struct extra user = { "authorization", "Basic cm9vdDo=" }, timeout = { "connect-timeout-ms", "1500" };
	struct durable_ask a = { 0 };
	const Process__StartRequest *m;

	CHECK(!read_json(&user, START, "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"x\"]},\"tag\":\"t\"}", 0, &a));
	m = (const void *)a.msg;
	CHECK(a.kind == DURABLE_START && a.is_json && str_eq(a.user, "root") && a.timeout_ms == 0 && a.keepalive_ms == 90000);
	CHECK(m->process->n_args == 2 && str_eq(m->process->cmd, "/bin/sh") && str_eq(m->tag, "t"));
	durable_ask_fini(&a);
	CHECK(!read_json(&timeout, "/process.Process/Connect", "{\"process\":{\"pid\":7}}", 0, &a));
	CHECK(a.kind == DURABLE_CONNECT && a.timeout_ms == 1500 && !a.user[0]);
	durable_ask_fini(&a);
}

/* What the agent answers with an error of its own, or does and the daemon cannot. */
TEST(what_is_relayed)
{
	static const struct {
		struct extra e;
		const char *path, *body;
		size_t n;
	} t[] = {
		{ { 0 }, START, "{}", 0 },
		{ { 0 }, START, "{\"process\":{}}", 0 },
		{ { 0 }, START, "{\"process\":{\"cmd\":7}}", 0 },
		{ { 0 }, START, "", 0 },
		{ { 0 }, START, "\0\0\0\0", 4 },
		{ { 0 }, START, "\0\0\0\0\x1f{\"process\":{\"cmd\":\"a\"}}", 28 },
		{ { 0 }, START, "\1\0\0\0\x17{\"process\":{\"cmd\":\"a\"}}", 28 },
		{ { 0 }, START, "\0\0\0\0\x17{\"process\":{\"cmd\":\"a\"}}\0\0\0\0\0", 33 },
		{ { "connect-timeout-ms", "0" }, START, "{\"process\":{\"cmd\":\"a\"}}", 0 },
		{ { "connect-timeout-ms", "x" }, START, "{\"process\":{\"cmd\":\"a\"}}", 0 },
		{ { "connect-timeout-ms", "12345678901" }, START, "{\"process\":{\"cmd\":\"a\"}}", 0 },
		{ { "authorization", "Bearer x" }, START, "{\"process\":{\"cmd\":\"a\"}}", 0 },
		{ { "authorization", "Basic Og==" }, START, "{\"process\":{\"cmd\":\"a\"}}", 0 },
		{ { 0 }, START, "{\"process\":{\"cmd\":\"a\"},\"new\":1}", 0 },
		{ { 0 }, START, "{\"process\":{\"cmd\":\"a\",\"new\":null}}", 0 },
		{ { 0 }, START, "{\"process\":{\"cmd\":\"a\"},\"pty\":{\"size\":{\"cols\":1,\"dots\":1}}}", 0 },
		{ { 0 }, "/process.Process/Connect", "{\"process\":{\"pid\":7},\"from\":1}", 0 },
		{ { 0 }, "/process.Process/Connect", "{}", 0 },
		{ { 0 }, "/process.Process/Connect", "{\"process\":{\"pid\":0}}", 0 },
		{ { 0 }, "/process.Process/Connect", "{\"process\":{\"tag\":\"\"}}", 0 },
	};
	struct durable_ask a = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(read_json(&t[i].e, t[i].path, t[i].body, t[i].n, &a), -EINVAL);
}

/* A field that the agent may know, at each place where the messages have room for one. */
TEST(binary_with_a_new_field_is_relayed)
{
#define NEW "\xfa\x01\x00"
	static const struct {
		const char *path, *body;
		int want;
	} t[] = {
		{ START, "\x0a\x03\x0a\x01" "a", 0 },
		{ START, "\x0a\x03\x0a\x01" "a" NEW, -EINVAL },
		{ START, "\x0a\x06\x0a\x01" "a" NEW, -EINVAL },
		{ START, "\x0a\x03\x0a\x01" "a\x12\x04\x0a\x02\x08\x01", 0 },
		{ START, "\x0a\x03\x0a\x01" "a\x12\x03" NEW, -EINVAL },
		{ START, "\x0a\x03\x0a\x01" "a\x12\x05\x0a\x03" NEW, -EINVAL },
		{ CONNECT, "\x0a\x02\x08\x07", 0 },
		{ CONNECT, "\x0a\x02\x08\x07" NEW, -EINVAL },
		{ CONNECT, "\x0a\x05\x08\x07" NEW, -EINVAL },
	};
	struct durable_ask a = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		/* The last NUL of NEW is the literal's own. */
		size_t n = strlen(t[i].body) + (strstr(t[i].body, "\xfa\x01") != NULL);
		struct fields f = head_of(t[i].path, PROTO, NULL);
		char whole[64] = { [4] = (char)n };

		memcpy(whole + 5, t[i].body, n);
		CHECK_INT(durable_ask_read(&f, whole, n + 5, &a), t[i].want);
		durable_ask_fini(&a);
		fields_fini(&f);
	}
}

/* A start of `n` times this text, between a head and a tail. */
static int read_many(const char *head, const char *text, size_t n, const char *tail)
{
	struct fields f = head_of(START, JSON, NULL);
	struct buf b = BUF_NULL, whole = BUF_NULL;
	struct durable_ask a = { 0 };
	int r;

	CHECK(!buf_put_str(&b, head));
	for (size_t i = 0; i < n; i++)
		CHECK(!buf_put_str(&b, text));
	CHECK(!buf_put_str(&b, tail));
	CHECK(!buf_put(&whole, (uint8_t[]){ 0, (uint8_t)(buf_len(&b) >> 24), (uint8_t)(buf_len(&b) >> 16), (uint8_t)(buf_len(&b) >> 8),
					    (uint8_t)buf_len(&b) }, 5));
	CHECK(!buf_put(&whole, buf_data(&b), buf_len(&b)));
	r = durable_ask_read(&f, buf_data(&whole), buf_len(&whole), &a);
	durable_ask_fini(&a);
	buf_fini(&b);
	buf_fini(&whole);
	fields_fini(&f);
	return r;
}

/* What the next daemon could not find its process by, and what would take many times its size in memory. */
TEST(starts_that_are_too_large_are_relayed)
{
	const char *script = "{\"process\":{\"cmd\":\"a\",\"args\":[\"", *args = "{\"process\":{\"cmd\":\"a\",\"args\":[\"\"";

	/* cmd and args, each with its NUL */
	CHECK_INT(read_many(script, "x", COMMAND_ARGS_MAX - 3, "\"]}}"), 0);
	CHECK_INT(read_many(script, "x", COMMAND_ARGS_MAX - 2, "\"]}}"), -EINVAL);
	CHECK_INT(read_many(args, ",\"\"", 131068, "]}}"), 0);
	CHECK_INT(read_many(args, ",\"\"", 131069, "]}}"), -EINVAL);
}

static void is(struct buf *b, uint8_t flags, const char *body)
{
	const uint8_t *p = buf_data(b);
	size_t n = strlen(body);

	CHECK(buf_len(b) == n + 5 && p[0] == flags && p[4] == n && !memcmp(p + 5, body, n));
	buf_drop(b, buf_len(b));
}

TEST(envelopes)
{
	static const uint8_t hi[] = "hi\n";
	struct spool_piece piece = { .stream = SPOOL_STDOUT, .data = hi, .size = 3 };
	struct command_result r = { .outcome = COMMAND_EXITED };
	struct buf b = BUF_NULL;

	CHECK(!durable_event_start(&b, true, 7));
	is(&b, 0, "{\"event\":{\"start\":{\"pid\":7}}}");
	CHECK(!durable_event_data(&b, false, &piece));
	is(&b, 0, "\x0a\x07\x12\x05\x0a\x03hi\n");
	piece.stream = SPOOL_PTY;
	CHECK(!durable_event_data(&b, true, &piece));
	is(&b, 0, "{\"event\":{\"data\":{\"pty\":\"aGkK\"}}}");
	CHECK(!durable_event_end(&b, false, &r));
	is(&b, 0, "\x0a\x13\x1a\x11\x10\x01\x1a\x0d" "exit status 0");
	r.outcome = COMMAND_SIGNALED;
	CHECK(!durable_event_end(&b, true, &r));
	is(&b, 0, "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: killed\",\"error\":\"signal: killed\"}}}");
	CHECK(!durable_event_close(&b, CODE_OK, NULL));
	is(&b, 2, "{}");
	CHECK(!durable_event_close(&b, CODE_NOT_FOUND, "no \"x\""));
	is(&b, 2, "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}}");
	buf_fini(&b);
}

TEST_MAIN()
