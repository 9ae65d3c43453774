/* SPDX-License-Identifier: MIT */
/* The vectors of the contract, in both codecs, and what protojson asks of a reader. */
#include "daemon/common/pbjson/pbjson.h"

#include <errno.h>

#include "proto/base/buf.h"
#include "proto/base/str.h"
#include "proto/gen/envd_filesystem.pb-c.h"
#include "proto/gen/envd_process.pb-c.h"
#include "tests/lib/test.h"

static size_t unhex(const char *hex, uint8_t *ret)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++) {
		unsigned v;

		CHECK(sscanf(hex + 2 * i, "%2x", &v) == 1);
		ret[i] = (uint8_t)v;
	}
	return n;
}

/* Both say the same, but of a field that the message has not. */
TEST(unknown_fields)
{
	static const struct {
		const char *json;
		int r, known;
	} t[] = {
		{ "{\"process\":{\"cmd\":\"a\",\"envs\":{\"B\":\"c\"}},\"tag\":null}", 0, 0 },
		{ "{\"process\":{\"cmd\":\"a\"},\"nice\":5}", 0, -EINVAL },
		{ "{\"process\":{\"cmd\":\"a\",\"nice\":null}}", 0, -EINVAL },
		{ "{\"process\":{\"cmd\":5}}", -EINVAL, -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		ProtobufCMessage *m = NULL;
		char why[PBJSON_WHY_MAX];

		CHECK_INT(pbjson_read(t[i].json, strlen(t[i].json), &process__start_request__descriptor, why, &m), t[i].r);
		if (!t[i].r)
			protobuf_c_message_free_unpacked(m, NULL);
		CHECK_INT(pbjson_read_known(t[i].json, strlen(t[i].json), &process__start_request__descriptor, why, &m), t[i].known);
		if (!t[i].known)
			protobuf_c_message_free_unpacked(m, NULL);
	}
}

TEST(vectors)
{
	static const struct {
		const ProtobufCMessageDescriptor *type;
		const char *hex, *json;
	} t[] = {
		{ &process__start_request__descriptor,
		  "0a1c0a092f62696e2f6261736812022d6c12022d6312076563686f2068692000",
		  "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo hi\"]},"
		  "\"stdin\":false}" },
		{ &process__start_response__descriptor, "0a050a0308d209",
		  "{\"event\":{\"start\":{\"pid\":1234}}}" },
		{ &process__start_response__descriptor, "0a0712050a0368690a",
		  "{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}" },
		{ &process__start_response__descriptor,
		  "0a131a1110011a0d65786974207374617475732030",
		  "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}" },
		{ &process__start_response__descriptor,
		  "0a241a22080410011a0d65786974207374617475732032220d65786974207374617475732032",
		  "{\"event\":{\"end\":{\"exitCode\":2,\"exited\":true,\"status\":\"exit status 2\","
		  "\"error\":\"exit status 2\"}}}" },
		{ &process__start_response__descriptor,
		  "0a241a2208011a0e7369676e616c3a206b696c6c6564220e7369676e616c3a206b696c6c6564",
		  "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: killed\","
		  "\"error\":\"signal: killed\"}}}" },
		{ &process__start_response__descriptor, "0a022200", "{\"event\":{\"keepalive\":{}}}" },
		{ &process__send_signal_request__descriptor, "0a0308d2091009",
		  "{\"process\":{\"pid\":1234},\"signal\":\"SIGNAL_SIGKILL\"}" },
		{ &filesystem__watch_dir_response__descriptor, "12090a05612e7478741001",
		  "{\"filesystem\":{\"name\":\"a.txt\",\"type\":\"EVENT_TYPE_CREATE\"}}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint8_t wire[128], packed[128];
		size_t n = unhex(t[i].hex, wire);
		ProtobufCMessage *m = protobuf_c_message_unpack(t[i].type, NULL, n, wire), *back = NULL;
		struct buf out = BUF_NULL;
		char why[PBJSON_WHY_MAX], *text;

		CHECK(m != NULL);
		CHECK(!pbjson_write(&out, m));
		text = buf_take_str(&out);
		CHECK_STR(text, t[i].json);
		CHECK(!pbjson_read(text, strlen(text), t[i].type, why, &back));
		CHECK_INT(protobuf_c_message_pack(back, packed), n);
		CHECK(!memcmp(packed, wire, n));
		protobuf_c_message_free_unpacked(m, NULL);
		protobuf_c_message_free_unpacked(back, NULL);
		free(text);
	}
}

TEST(readers_are_lenient)
{
	static const struct {
		const ProtobufCMessageDescriptor *type;
		const char *in, *out;
	} t[] = {
		/* snake case, unknown fields, null, enum by number, numbers as text */
		{ &filesystem__entry_info__descriptor,
		  "{\"symlink_target\":\"x\",\"nope\":[1],\"name\":null,\"type\":2,\"size\":\"7\"}",
		  "{\"type\":\"FILE_TYPE_DIRECTORY\",\"size\":\"7\",\"symlinkTarget\":\"x\"}" },
		{ &filesystem__entry_info__descriptor, "{\"size\":7,\"mode\":4.2e2}",
		  "{\"size\":\"7\",\"mode\":420}" },
		{ &filesystem__entry_info__descriptor,
		  "{\"modifiedTime\":\"2026-08-21T10:00:00.5Z\",\"metadata\":{\"a\":\"b\"}}",
		  "{\"modifiedTime\":\"2026-08-21T10:00:00.500000000Z\",\"metadata\":{\"a\":\"b\"}}" },
		/* base64 for URLs, without padding */
		{ &process__send_input_request__descriptor, "{\"input\":{\"stdin\":\"-_8\"}}",
		  "{\"input\":{\"stdin\":\"+/8=\"}}" },
		{ &process__start_request__descriptor, "{\"pty\":null,\"stdin\":true}",
		  "{\"stdin\":true}" },
		{ &process__list_request__descriptor, "{}", "{}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct buf out = BUF_NULL;
		char why[PBJSON_WHY_MAX], *text;
		ProtobufCMessage *m;

		CHECK(!pbjson_read(t[i].in, strlen(t[i].in), t[i].type, why, &m));
		CHECK(!pbjson_write(&out, m));
		text = buf_take_str(&out);
		CHECK_STR(text, t[i].out);
		free(text);
		protobuf_c_message_free_unpacked(m, NULL);
	}
}

TEST(readers_refuse)
{
	static const struct {
		const ProtobufCMessageDescriptor *type;
		const char *in;
	} t[] = {
		{ &filesystem__stat_request__descriptor, "" },
		{ &filesystem__stat_request__descriptor, "{" },
		{ &filesystem__stat_request__descriptor, "[]" },
		{ &filesystem__stat_request__descriptor, "{\"path\":7}" },
		{ &filesystem__stat_request__descriptor, "{\"path\":\"\\u0000\"}" },
		{ &filesystem__stat_request__descriptor, "{\"path\":\"\xff\"}" },
		{ &filesystem__stat_request__descriptor, "{\"path\":\"a\",\"path\":\"b\"}" },
		{ &filesystem__list_dir_request__descriptor, "{\"depth\":-1}" },
		{ &filesystem__list_dir_request__descriptor, "{\"depth\":4294967296}" },
		{ &filesystem__list_dir_request__descriptor, "{\"depth\":1.5}" },
		{ &filesystem__list_dir_request__descriptor, "{\"depth\":\"x\"}" },
		{ &process__send_input_request__descriptor, "{\"input\":{\"stdin\":\"!\"}}" },
		{ &process__send_input_request__descriptor,
		  "{\"input\":{\"stdin\":\"YQ==\",\"pty\":\"YQ==\"}}" },
		{ &process__send_signal_request__descriptor, "{\"signal\":\"SIGNAL_HUP\"}" },
		{ &process__start_request__descriptor, "{\"process\":{\"args\":\"x\"}}" },
		{ &process__start_request__descriptor, "{\"process\":{\"args\":[\"a\",1]}}" },
		{ &process__start_request__descriptor, "{\"process\":{\"envs\":{\"A\":1}}}" },
		{ &process__start_request__descriptor, "{\"stdin\":\"true\"}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char why[PBJSON_WHY_MAX];
		ProtobufCMessage *m;

		CHECK(pbjson_read(t[i].in, strlen(t[i].in), t[i].type, why, &m) == -EINVAL);
		CHECK(*why);
	}
}

TEST(strings)
{
	struct buf out = BUF_NULL;
	char *text;

	CHECK(!buf_put_json(&out, "a\"\\\n\x7f\xc3\xbc\xff\xc3"));
	text = buf_take_str(&out);
	CHECK_STR(text, "\"a\\\"\\\\\\u000a\\u007f\xc3\xbc\xef\xbf\xbd\xef\xbf\xbd\"");
	free(text);
}

TEST_MAIN()
