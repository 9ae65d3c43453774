/* SPDX-License-Identifier: MIT */
/*
 * grpc.reflection v1 and v1alpha, from the descriptors embedded at build. The two versions have the
 * same messages on the wire, so one set of generated code serves both.
 */
#include <string.h>

#include "daemon/rpc/call.h"
#include "daemon/rpc/internal.h"
#include "daemon/rpc/server.h"
#include "proto/base/must.h"
#include "proto/gen/descriptors.h"
#include "proto/gen/grpc_reflection.pb-c.h"

#define FILES_MAX 64u

typedef Grpc__Reflection__V1__ServerReflectionRequest request;
typedef Grpc__Reflection__V1__ServerReflectionResponse response;

#define ASKED(x)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##x
#define ANSWER(x) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##x

static void send_error(struct rpc_call *c, response *r, enum ab_code code, const char *text)
{
	Grpc__Reflection__V1__ErrorResponse e = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

	e.error_code = (int32_t)code;
	e.error_message = (char *)text;
	r->message_response_case = ANSWER(ERROR_RESPONSE);
	r->error_response = &e;
	rpc_call_send(c, &r->base);
}

static void send_file(struct rpc_call *c, response *r, const struct descriptor_file *f)
{
	Grpc__Reflection__V1__FileDescriptorResponse d =
		GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
	const struct descriptor_file *files[FILES_MAX];
	ProtobufCBinaryData bytes[FILES_MAX];

	if (!f) {
		send_error(c, r, CODE_NOT_FOUND, "no such file or symbol");
		return;
	}
	must(n_descriptor_files <= FILES_MAX);
	d.n_file_descriptor_proto = descriptor_closure(f, files);
	d.file_descriptor_proto = bytes;
	/* The file asked for comes first, as clients expect it; then what it imports. */
	for (size_t i = 0, n = d.n_file_descriptor_proto; i < n; i++) {
		bytes[i].data = (uint8_t *)files[n - 1 - i]->bytes;
		bytes[i].len = files[n - 1 - i]->n_bytes;
	}
	r->message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
	r->file_descriptor_response = &d;
	rpc_call_send(c, &r->base);
}

/* The descriptors also hold services of the agent in a sandbox, which this server calls and does not serve. */
static bool is_served(const char *service)
{
	return !strncmp(service, "agentbox.v1.", 12) || !strncmp(service, "grpc.", 5);
}

static void send_services(struct rpc_call *c, response *r)
{
	Grpc__Reflection__V1__ListServiceResponse l = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
	Grpc__Reflection__V1__ServiceResponse items[FILES_MAX], *list[FILES_MAX];

	must(n_descriptor_services <= FILES_MAX);
	for (size_t i = 0; i < n_descriptor_services; i++) {
		if (!is_served(descriptor_services[i]))
			continue;
		grpc__reflection__v1__service_response__init(&items[l.n_service]);
		items[l.n_service].name = (char *)descriptor_services[i];
		list[l.n_service] = &items[l.n_service];
		l.n_service++;
	}
	l.service = list;
	r->message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
	r->list_services_response = &l;
	rpc_call_send(c, &r->base);
}

static void on_message(struct rpc_call *c, const ProtobufCMessage *message)
{
	request *q = (request *)message;
	response r = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

	r.valid_host = q->host;
	r.original_request = q;
	switch (q->message_request_case) {
	case ASKED(FILE_BY_FILENAME):
		send_file(c, &r, descriptor_by_name(q->file_by_filename));
		break;
	case ASKED(FILE_CONTAINING_SYMBOL):
		send_file(c, &r, descriptor_by_symbol(q->file_containing_symbol));
		break;
	case ASKED(LIST_SERVICES):
		send_services(c, &r);
		break;
	case ASKED(FILE_CONTAINING_EXTENSION):
	case ASKED(ALL_EXTENSION_NUMBERS_OF_TYPE):
		send_error(c, &r, CODE_NOT_FOUND, "there are no extensions here");
		break;
	default:
		send_error(c, &r, CODE_INVALID_ARGUMENT, "nothing was asked for");
	}
	if (rpc_call_room(c))
		rpc_call_next(c);	/* else on_room does */
}

int rpc_reflection_add(struct rpc_server *s)
{
	static const struct rpc_handler handler = {
		.on_message = on_message,
		.on_end = rpc_call_finish,
		.on_room = rpc_call_next,
	};
	static const struct rpc_method methods[] = {
		{ .path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", .kind = RPC_BIDI,
		  .request = &grpc__reflection__v1__server_reflection_request__descriptor,
		  .handler = &handler, .effect = RPC_OBSERVES },
		{ .path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
		  .kind = RPC_BIDI,
		  .request = &grpc__reflection__v1__server_reflection_request__descriptor,
		  .handler = &handler, .effect = RPC_OBSERVES },
	};

	return rpc_server_add(s, methods, ARRAY_SIZE(methods), s);
}
