/* SPDX-License-Identifier: MIT */
#include "tests/lib/test.h"

#include "daemon/rpc/canon.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"

#define CREATE (&agentbox__v1__create_sandbox_request__descriptor)

/* Unpacks, makes canonical, packs; the length goes to *ret_n. */
static uint8_t *canon(const char *p, size_t n, size_t *ret_n)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(CREATE, NULL, n, (const uint8_t *)p);
	uint8_t *out;

	CHECK(m);
	CHECK(canon_message(m) == 0);
	*ret_n = protobuf_c_message_get_packed_size(m);
	out = malloc(*ret_n + 1);
	protobuf_c_message_pack(m, out);
	protobuf_c_message_free_unpacked(m, NULL);
	return out;
}

#define ROW(given, same) { given, sizeof(given) - 1, same, sizeof(same) - 1 }
#define ENTRY(k, v)	 "\x22\x06\x0a\x01" k "\x12\x01" v	/* metadata */

TEST(equal_meaning_gives_equal_bytes)
{
	static const struct {
		const char *given;
		size_t n_given;
		const char *same;
		size_t n_same;
	} rows[] = {
		ROW(ENTRY("b", "2") ENTRY("a", "1"), ENTRY("a", "1") ENTRY("b", "2")),
		ROW(ENTRY("a", "1") ENTRY("b", "2") ENTRY("a", "3"), ENTRY("a", "3") ENTRY("b", "2")),
		ROW(ENTRY("a", "1") ENTRY("a", "1") ENTRY("a", "2"), ENTRY("a", "2")),
		ROW("\x12\x01x\xf8\x07\x01", "\x12\x01x"),		/* unknown field */
		ROW("\x68\x01\x12\x01x", "\x12\x01x\x68\x01"),		/* order of fields */
		ROW("\x68\x00\x12\x01x", "\x12\x01x"),			/* a default */
		/* network.rules, a map below a message */
		ROW("\x42\x0a\x2a\x03\x0a\x01" "b" "\x2a\x03\x0a\x01" "a",
		    "\x42\x0a\x2a\x03\x0a\x01" "a" "\x2a\x03\x0a\x01" "b"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n, m;
		uint8_t *a = canon(rows[i].given, rows[i].n_given, &n);
		uint8_t *b = canon(rows[i].same, rows[i].n_same, &m);

		CHECK_INT(n, m);
		CHECK(!memcmp(a, b, n));
		free(a);
		free(b);
	}
}

TEST(other_meaning_gives_other_bytes)
{
	size_t n, m;
	uint8_t *a = canon("\x30\x00", 2, &n), *b = canon("", 0, &m);

	CHECK(n != m);	/* secure = false is not "unset" */
	free(a);
	free(b);
}

TEST_MAIN()
