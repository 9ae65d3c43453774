/* SPDX-License-Identifier: MIT */
/* What a call was about, by the fields of its messages that name something. */
#include <stdio.h>

#include "daemon/auth/owner.h"
#include "daemon/rpc/internal.h"
#include "proto/base/str.h"
#include "proto/wire/trace.h"

static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	return !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
	       *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset) == f->id;
}

const char *rpc_text_field(const ProtobufCMessage *m, const char *name)
{
	const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);

	if (!f || f->type != PROTOBUF_C_TYPE_STRING || f->label == PROTOBUF_C_LABEL_REPEATED)
		return NULL;
	return is_set(m, f) ? *(char *const *)(const void *)((const char *)m + f->offset) : "";
}

static const ProtobufCMessage *inner(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	if (f->type != PROTOBUF_C_TYPE_MESSAGE || f->label == PROTOBUF_C_LABEL_REPEATED || !is_set(m, f))
		return NULL;
	return *(const ProtobufCMessage *const *)(const void *)((const char *)m + f->offset);
}

/* In the message, or in one that it has: the header of a transfer, the name of a command. */
static const char *find_text(const ProtobufCMessage *m, const char *name)
{
	const char *text = rpc_text_field(m, name);

	for (unsigned i = 0; str_is_empty(text) && i < m->descriptor->n_fields; i++) {
		const ProtobufCMessage *in = inner(m, &m->descriptor->fields[i]);

		if (in)
			text = rpc_text_field(in, name);
	}
	return text ? text : "";
}

void rpc_audit_note(struct rpc_about *about, const ProtobufCMessage *m)
{
	static const char *const objects[] = { "command_id", "lease_id", "snapshot", "id" };

	bool is_sandbox = str_eq(m->descriptor->name, "agentbox.v1.Sandbox");

	if (!about->sandbox[0])
		snprintf(about->sandbox, sizeof(about->sandbox), "%s", find_text(m, is_sandbox ? "id" : "sandbox"));
	for (size_t i = 0; !about->object[0] && i < ARRAY_SIZE(objects); i++)
		snprintf(about->object, sizeof(about->object), "%s", find_text(m, objects[i]));
}

void rpc_audit(struct rpc_conn *conn, const struct rpc_method *m, const struct rpc_about *about, const ProtobufCMessage *request,
	       const struct trace *trace, const char *result)
{
	char id[TRACE_ID_BYTES];
	const struct audit_line l = {
		.uid = owner_uid(conn->who.uid), .user = conn->who.user, .pid = conn->who.pid, .process = &conn->process, .call = m->path,
		.result = result, .sandbox = about->sandbox, .object = about->object,
		.request_id = request ? rpc_text_field(request, "request_id") : NULL, .is_change = rpc_method_is_change(m),
		.trace = trace_id(trace, id),
	};

	audit_process_read(&conn->process, &conn->who);
	audit_log(&l);
}
