/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/command_msg.h"

#include "tests/lib/test.h"

/* The same bytes as the generated code makes. */
TEST(output_is_encoded_by_hand)
{
	static const uint64_t offsets[] = { 0, 1, 127, 128, 16383, 16384, UINT32_MAX, 1ull << 40, UINT64_MAX / 4 };
	static const size_t sizes[] = { 1, 127, 128, 16383, 16384, 65536, 256 * 1024 };
	static uint8_t data[256 * 1024], packed[256 * 1024 + 100], head[COMMAND_MSG_HEAD_MAX];

	for (unsigned stream = SPOOL_STDOUT; stream < SPOOL_STREAMS; stream++)
		for (size_t o = 0; o < ARRAY_SIZE(offsets); o++)
			for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
				struct spool_piece p = { .stream = (enum spool_stream)stream, .offset = offsets[o],
							 .size = sizes[i], .data = data };
				Agentbox__V1__CommandEvent e = AGENTBOX__V1__COMMAND_EVENT__INIT;
				Agentbox__V1__Output out = AGENTBOX__V1__OUTPUT__INIT;
				size_t n = command_msg_output_head(&p, head);

				out.stream = (Agentbox__V1__Output__Stream)stream;
				out.offset = offsets[o];
				out.data.data = data;
				out.data.len = sizes[i];
				e.event_case = AGENTBOX__V1__COMMAND_EVENT__EVENT_OUTPUT;
				e.output = &out;
				CHECK_INT(agentbox__v1__command_event__pack(&e, packed), n + sizes[i]);
				CHECK(!memcmp(packed, head, n) && !memcmp(packed + n, data, sizes[i]));
			}
}

TEST_MAIN()
