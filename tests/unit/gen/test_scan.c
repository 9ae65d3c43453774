/* SPDX-License-Identifier: MIT */
/* Rows M-01, M-02, M-03 and M-05 of the fault list, and the bounds around them. */
#include "tests/lib/test.h"

#include "proto/gen/agentbox_command.pb-c.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/grpc_reflection.pb-c.h"
#include "proto/gen/scan.h"

#define CREATE (&agentbox__v1__create_sandbox_request__descriptor)

static const struct scan_cap caps[] = { { "metadata", 64 }, { "envs", 256 }, { "args", 4096 } };
static const struct scan_limits limits = { .caps = caps, .n_caps = ARRAY_SIZE(caps) };

static enum scan_result scan(const ProtobufCMessageDescriptor *type, const void *p, size_t n,
			     struct scan_error *err)
{
	/* On the heap and exact, so that ASan sees a read past the end. */
	void *exact = malloc(n ? n : 1);
	enum scan_result r;

	memcpy(exact, p, n);
	r = scan_message(type, exact, n, &limits, err);
	free(exact);
	return r;
}

/* A type that contains itself; the tree has none. */
extern const ProtobufCMessageDescriptor recursive;
static const ProtobufCFieldDescriptor recursive_fields[] = {
	{ .name = "inner", .id = 1, .label = PROTOBUF_C_LABEL_NONE,
	  .type = PROTOBUF_C_TYPE_MESSAGE, .descriptor = &recursive },
};
static const ProtobufCIntRange recursive_numbers[] = { { 1, 0 }, { 0, 1 } };
const ProtobufCMessageDescriptor recursive = {
	.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC, .name = "t.Recursive",
	.short_name = "Recursive", .sizeof_message = 32, .n_fields = 1, .fields = recursive_fields,
	.n_field_ranges = 1, .field_ranges = recursive_numbers,
};

/* Puts `levels` messages into each other at the end of buf; returns where they begin. */
static uint8_t *nest(uint8_t *buf, size_t size, unsigned levels)
{
	uint8_t *p = buf + size;

	for (unsigned i = 1; i < levels; i++) {
		size_t n = (size_t)(buf + size - p);

		if (n >= 16384)
			*--p = (uint8_t)(n >> 14);
		if (n >= 128)
			*--p = (uint8_t)(n >> 7 & 0x7f) | (n >= 16384 ? 0x80 : 0);
		*--p = (uint8_t)(n & 0x7f) | (n >= 128 ? 0x80 : 0);
		*--p = 0x0a;
	}
	return p;
}

TEST(depth_is_bounded)
{
	enum { SIZE = 80000 };
	uint8_t *buf = malloc(SIZE), *p;
	struct scan_error err;

	p = nest(buf, SIZE, 32);
	CHECK_INT(scan(&recursive, p, (size_t)(buf + SIZE - p), &err), SCAN_OK);
	p = nest(buf, SIZE, 33);
	CHECK_INT(scan(&recursive, p, (size_t)(buf + SIZE - p), &err), SCAN_DEPTH);
	p = nest(buf, SIZE, 17000);
	CHECK(buf + SIZE - p > 58453);
	CHECK_INT(scan(&recursive, p, (size_t)(buf + SIZE - p), &err), SCAN_DEPTH);
	CHECK(strlen(err.path) < sizeof(err.path));
	free(buf);
}

TEST(elements_are_bounded)
{
	enum { SIZE = 4 * 1024 * 1024 };
	uint8_t *buf = malloc(SIZE);
	struct scan_error err;

	for (size_t i = 0; i < SIZE; i += 2)
		memcpy(buf + i, "\x22\x00", 2);		/* metadata = 4: an empty entry */
	CHECK_INT(scan(CREATE, buf, 2 * 64, &err), SCAN_OK);
	CHECK_INT(scan(CREATE, buf, 2 * 65, &err), SCAN_COUNT);
	CHECK_STR(err.path, "metadata");
	CHECK_INT(err.max, 64);
	CHECK_INT(scan(CREATE, buf, SIZE, &err), SCAN_COUNT);

	for (size_t i = 0; i < SIZE; i += 2)
		memcpy(buf + i, "\x2a\x00", 2);		/* envs = 5 */
	CHECK_INT(scan(CREATE, buf, 2 * 256, &err), SCAN_OK);
	CHECK_INT(scan(CREATE, buf, 2 * 257, &err), SCAN_COUNT);
	CHECK_STR(err.path, "envs");
	free(buf);
}

TEST(fields_that_add_up_to_memory_are_bounded)
{
	enum { SIZE = 1024 * 1024 };
	uint8_t *buf = malloc(SIZE);
	struct scan_error err;

	for (size_t i = 0; i < SIZE; i += 2)
		memcpy(buf + i, "\x68\x01", 2);		/* wait_ready, over and over: no count, but noted */
	CHECK_INT(scan(CREATE, buf, 2000, &err), SCAN_OK);
	CHECK_INT(scan(CREATE, buf, SIZE, &err), SCAN_MEMORY);
	for (size_t i = 0; i + 3 <= SIZE; i += 3)
		memcpy(buf + i, "\xf8\x07\x01", 3);	/* unknown field 127 */
	CHECK_INT(scan(CREATE, buf, SIZE - SIZE % 3, &err), SCAN_MEMORY);
	free(buf);
}

/* What a generous honest caller sends must pass. */
TEST(full_lists_of_short_strings_pass)
{
	Agentbox__V1__StartCommandRequest r = AGENTBOX__V1__START_COMMAND_REQUEST__INIT;
	Agentbox__V1__StartCommandRequest__EnvsEntry e =
		AGENTBOX__V1__START_COMMAND_REQUEST__ENVS_ENTRY__INIT;
	Agentbox__V1__StartCommandRequest__EnvsEntry *envs[256];
	Agentbox__V1__Argv argv = AGENTBOX__V1__ARGV__INIT;
	char *args[4096];
	uint8_t *buf;
	size_t n;

	e.key = (char *)"A";
	e.value = (char *)"1";
	for (size_t i = 0; i < ARRAY_SIZE(envs); i++)
		envs[i] = &e;
	for (size_t i = 0; i < ARRAY_SIZE(args); i++)
		args[i] = (char *)"x";
	r.envs = envs;
	r.n_envs = ARRAY_SIZE(envs);
	argv.args = args;
	argv.n_args = ARRAY_SIZE(args);
	r.what_case = AGENTBOX__V1__START_COMMAND_REQUEST__WHAT_ARGV;
	r.argv = &argv;
	n = agentbox__v1__start_command_request__get_packed_size(&r);
	buf = malloc(n);
	agentbox__v1__start_command_request__pack(&r, buf);
	CHECK_INT(scan(r.base.descriptor, buf, n, NULL), SCAN_OK);
	free(buf);
}

#define ROW(text, bytes, want, path) { text, bytes, sizeof(bytes) - 1, want, path }

TEST(rows)
{
	static const struct {
		const char *text, *p;
		size_t n;
		enum scan_result want;
		const char *path;
	} rows[] = {
		ROW("empty", "", SCAN_OK, ""),
		ROW("plain", "\x12\x04" "base", SCAN_OK, ""),
		ROW("NUL in a string", "\x12\x07" "abc\0def", SCAN_TEXT, "template"),
		ROW("NUL in a map key", "\x22\x04\x0a\x02" "a\0", SCAN_TEXT, "metadata"),
		ROW("NUL in a map value", "\x22\x06\x0a\x01k\x12\x01\0", SCAN_TEXT, "metadata"),
		ROW("NUL below a map", "\x4a\x08\x0a\x01k\x12\x03\x0a\x01\0", SCAN_TEXT,
		    "iam_tokens.audience"),
		ROW("bad UTF-8", "\x12\x02\xc3\x28", SCAN_TEXT, "template"),
		ROW("surrogate", "\x12\x03\xed\xa0\x80", SCAN_TEXT, "template"),
		ROW("overlong UTF-8", "\x12\x02\xc0\xaf", SCAN_TEXT, "template"),
		ROW("nested", "\x5a\x04\x1a\x02\x08\x80", SCAN_MALFORMED, "policy.release_grace"),
		ROW("cut length", "\x12", SCAN_MALFORMED, ""),
		ROW("cut string", "\x12\x05" "base", SCAN_MALFORMED, ""),
		ROW("length of 4 GiB", "\x12\xff\xff\xff\xff\x0f", SCAN_MALFORMED, ""),
		ROW("length of 2^63", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", SCAN_MALFORMED, ""),
		ROW("length in 6 bytes", "\x12\x80\x80\x80\x80\x80\x00", SCAN_MALFORMED, ""),
		ROW("cut varint", "\x68\x80", SCAN_MALFORMED, ""),
		ROW("bool of 10 bytes", "\x68\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", SCAN_OK, ""),
		ROW("varint over 64 bits", "\x68\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		    SCAN_MALFORMED, ""),
		ROW("varint of 11 bytes", "\x68\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
		    SCAN_MALFORMED, ""),
		ROW("bool 2", "\x68\x02", SCAN_OK, ""),
		ROW("unknown enum value", "\x5a\x02\x10\x63", SCAN_OK, ""),
		ROW("field 0", "\x02\x00", SCAN_MALFORMED, ""),
		ROW("tag over 32 bits", "\xf8\xff\xff\xff\x1f\x00", SCAN_MALFORMED, ""),
		ROW("highest field", "\xf8\xff\xff\xff\x0f\x00", SCAN_OK, ""),
		ROW("group", "\x13\x14", SCAN_MALFORMED, ""),
		ROW("unknown group", "\xfb\x07\xfc\x07", SCAN_MALFORMED, ""),
		ROW("wire type 6", "\x16", SCAN_MALFORMED, ""),
		ROW("number for a string", "\x10\x01", SCAN_MALFORMED, "template"),
		ROW("string for a bool", "\x6a\x01x", SCAN_MALFORMED, "wait_ready"),
		ROW("unknown field", "\xfa\x07\x02\0\xff", SCAN_OK, ""),
		ROW("a message twice", "\x5a\x00\x5a\x00", SCAN_MALFORMED, "policy"),
		ROW("a scalar twice", "\x12\x01" "a\x12\x01" "b", SCAN_OK, ""),
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct scan_error err = { .path = "" };
		enum scan_result r = scan(CREATE, rows[i].p, rows[i].n, &err);

		if (r != rows[i].want || strcmp(err.path, rows[i].path))
			fprintf(stderr, "%s: %d at \"%s\"\n", rows[i].text, r, err.path);
		CHECK_INT(r, rows[i].want);
		CHECK_STR(err.path, rows[i].path);
	}
}

TEST(packed_and_single_elements_count_alike)
{
	const ProtobufCMessageDescriptor *t = &agentbox__v1__kill_command_response__descriptor;
	uint8_t buf[4096] = { 0x12, 0x80, 0x08 };	/* survivors = 2, packed, 1024 of them */
	struct scan_error err;

	CHECK_INT(scan(t, buf, 3 + 1024, &err), SCAN_OK);
	memcpy(buf + 3 + 1024, "\x10\x01", 2);		/* one more, by itself */
	CHECK_INT(scan(t, buf, 3 + 1024 + 2, &err), SCAN_COUNT);
	CHECK_STR(err.path, "survivors");
	CHECK_INT(err.max, 1024);
	CHECK_INT(scan(t, "\x12\x02\x01\x80", 4, &err), SCAN_MALFORMED);
}

/* Map entries are known by their form; nothing else in the tree may look like one. */
TEST(a_path_names_each_step)
{
	struct scan_error err;

	/* network.rules[k].rules[0].transform_headers[\0] */
	CHECK_INT(scan(CREATE, "\x42\x0d\x2a\x0b\x12\x09\x0a\x07\x0a\x05\x0a\x03" "a\0b", 15, &err),
		  SCAN_TEXT);
	CHECK_STR(err.path, "network.rules.rules.transform_headers");
}

TEST_MAIN()
