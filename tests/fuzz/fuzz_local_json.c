/* SPDX-License-Identifier: MIT */
/*
 * Envelopes of JSON messages: what can be read can be written, and reading that gives the same
 * message. The first byte chooses the type.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/pbjson/pbjson.h"
#include "proto/base/must.h"
#include "proto/gen/envd_filesystem.pb-c.h"
#include "proto/gen/envd_process.pb-c.h"
#include "proto/wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const ProtobufCMessageDescriptor *const types[] = {
	&process__start_request__descriptor,	   &process__start_response__descriptor,
	&process__stream_input_request__descriptor, &process__send_signal_request__descriptor,
	&process__list_response__descriptor,	   &filesystem__list_dir_response__descriptor,
	&filesystem__watch_dir_response__descriptor,
};

static void check(const ProtobufCMessageDescriptor *type, const char *text, size_t n)
{
	scoped(buf_fini) struct buf first = BUF_NULL;
	scoped(buf_fini) struct buf second = BUF_NULL;
	char why[PBJSON_WHY_MAX];
	ProtobufCMessage *m, *again;

	if (pbjson_read(text, n, type, why, &m) < 0)
		return;
	must(!pbjson_write(&first, m));
	must(!pbjson_read((const char *)buf_data(&first), buf_len(&first), type, why, &again));
	must(!pbjson_write(&second, again));
	must(buf_len(&first) == buf_len(&second));
	must(!memcmp(buf_data(&first), buf_data(&second), buf_len(&first)));
	protobuf_c_message_free_unpacked(m, NULL);
	protobuf_c_message_free_unpacked(again, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const ProtobufCMessageDescriptor *type;
	struct frame_reader r;
	size_t used;
	uint8_t flags;

	if (!n)
		return 0;
	type = types[*p++ % ARRAY_SIZE(types)];
	n--;
	check(type, (const char *)p, n);
	frame_reader_init(&r, 65536);
	while (n) {
		int e = frame_reader_feed(&r, p, n, &used, &flags);

		p += used;
		n -= used;
		if (e == FRAME_MESSAGE) {
			check(type, (const char *)buf_data(&r.body), buf_len(&r.body));
			frame_reader_next(&r);
		} else if (e != FRAME_MORE) {
			break;
		}
	}
	frame_reader_fini(&r);
	return 0;
}
