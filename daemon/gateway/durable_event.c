/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/pbjson/pbjson.h"
#include "daemon/gateway/durable.h"
#include "proto/base/str.h"
#include "proto/gen/envd_process.pb-c.h"
#include "proto/wire/connect_code.h"
#include "proto/wire/frame.h"

static int envelope(struct buf *out, uint8_t flags, const struct buf *body)
{
	uint8_t prefix[FRAME_PREFIX_BYTES];
	int r;

	frame_prefix(prefix, flags, (uint32_t)buf_len(body));
	r = buf_put(out, prefix, sizeof(prefix));
	return r ? r : buf_put(out, buf_data(body), buf_len(body));
}

static int pack(struct buf *out, const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *p = buf_space(out, n + 1);

	if (!p)
		return -ENOMEM;
	buf_added(out, protobuf_c_message_pack(m, p));
	return 0;
}

/* ConnectResponse is the same message. */
static int put_event(struct buf *out, bool is_json, Process__ProcessEvent *e)
{
	Process__StartResponse m = PROCESS__START_RESPONSE__INIT;
	struct buf body = BUF_NULL;
	int r;

	m.event = e;
	r = is_json ? pbjson_write(&body, &m.base) : pack(&body, &m.base);
	if (!r)
		r = envelope(out, 0, &body);
	buf_fini(&body);
	return r;
}

int durable_event_start(struct buf *out, bool is_json, uint32_t pid)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__StartEvent start = PROCESS__PROCESS_EVENT__START_EVENT__INIT;

	start.pid = pid;
	e.event_case = PROCESS__PROCESS_EVENT__EVENT_START;
	e.start = &start;
	return put_event(out, is_json, &e);
}

int durable_event_data(struct buf *out, bool is_json, const struct spool_piece *p)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__DataEvent data;

	process__process_event__data_event__init(&data);
	data.output_case = p->stream == SPOOL_STDOUT   ? PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT
			   : p->stream == SPOOL_STDERR ? PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR
						       : PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_PTY;
	data.pty = (ProtobufCBinaryData){ .len = p->size, .data = (uint8_t *)p->data }; /* the three are one union; writing only reads it */
	e.event_case = PROCESS__PROCESS_EVENT__EVENT_DATA;
	e.data = &data;
	return put_event(out, is_json, &e);
}

int durable_event_keepalive(struct buf *out, bool is_json)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__KeepAlive keepalive = PROCESS__PROCESS_EVENT__KEEP_ALIVE__INIT;

	e.event_case = PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE;
	e.keepalive = &keepalive;
	return put_event(out, is_json, &e);
}

/* As the agent said it; of what it did not say to this daemon, as it would have. */
static void end_text(const struct command_result *r, char ret[64])
{
	if (r->said[0])
		str_copy(ret, 64, r->said);
	else if (r->outcome == COMMAND_EXITED)
		snprintf(ret, 64, "exit status %d", r->exit_code);
	else
		snprintf(ret, 64, "signal: killed");
}

int durable_event_end(struct buf *out, bool is_json, const struct command_result *r)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__EndEvent end = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
	char text[64];

	end_text(r, text);
	end.exited = r->outcome == COMMAND_EXITED;
	end.exit_code = end.exited ? r->exit_code : -1;
	end.status = text;
	if (r->said_error[0] || (!r->said[0] && (!end.exited || r->exit_code))) {
		end._error_case = PROCESS__PROCESS_EVENT__END_EVENT___ERROR_ERROR;
		end.error = r->said_error[0] ? (char *)r->said_error : text;
	}
	e.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
	e.end = &end;
	return put_event(out, is_json, &e);
}

int durable_event_close(struct buf *out, enum ab_code code, const char *text)
{
	struct buf body = BUF_NULL;
	int r;

	if (code == CODE_OK) {
		r = buf_put_str(&body, "{}");
	} else {
		r = buf_printf(&body, "{\"error\":{\"code\":\"%s\",\"message\":", connect_code_name(code));
		if (!r)
			r = buf_put_json(&body, text);
		if (!r)
			r = buf_put_str(&body, "}}");
	}
	if (!r)
		r = envelope(out, FRAME_FLAG_END_STREAM, &body);
	buf_fini(&body);
	return r;
}
