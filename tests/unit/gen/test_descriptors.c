/* SPDX-License-Identifier: MIT */
#include "tests/lib/test.h"

#include "proto/base/status.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/descriptors.h"
#include "proto/gen/envd_process.pb-c.h"
#include "proto/gen/grpc_health.pb-c.h"

TEST(finds_files_and_symbols)
{
	const struct descriptor_file *f = descriptor_by_name("agentbox/v1/command.proto");

	CHECK(f);
	CHECK(descriptor_by_symbol("agentbox.v1.CommandService") == f);
	CHECK(descriptor_by_symbol("agentbox.v1.CommandService.Run") == f);
	CHECK(descriptor_by_symbol("agentbox.v1.CommandEvent") == f);
	CHECK(descriptor_by_symbol("agentbox.v1.CommandResult.Outcome") == f);
	CHECK_STR(descriptor_by_symbol("grpc.health.v1.Health")->name, "grpc/health/v1/health.proto");
	CHECK(!descriptor_by_symbol("agentbox.v1.CommandService.Ru"));
	CHECK(!descriptor_by_symbol(""));
	CHECK(!descriptor_by_name("command.proto"));
}

TEST(a_closure_is_complete_and_in_order)
{
	const struct descriptor_file *files[64], *f = descriptor_by_name("agentbox/v1/file.proto");
	size_t n = descriptor_closure(f, files);

	CHECK(n_descriptor_files <= ARRAY_SIZE(files));
	/* any, duration, timestamp, status, sandbox, file */
	CHECK_INT(n, 6);
	CHECK(files[n - 1] == f);
	for (size_t i = 0; i < n; i++)
		for (size_t d = 0; d < files[i]->n_deps; d++)
			CHECK(&descriptor_files[files[i]->deps[d]] < files[i]);
	CHECK_INT(descriptor_closure(descriptor_by_name("google/protobuf/any.proto"), files), 1);
}

TEST(services_are_listed)
{
	static const char *const wanted[] = { "agentbox.v1.SandboxService", "agentbox.v1.FileService",
					      "grpc.health.v1.Health",
					      "grpc.reflection.v1alpha.ServerReflection" };

	for (size_t w = 0; w < ARRAY_SIZE(wanted); w++) {
		bool found = false;

		for (size_t i = 0; i < n_descriptor_services; i++)
			found |= !strcmp(descriptor_services[i], wanted[w]);
		CHECK(found);
	}
}

TEST(reasons_have_the_numbers_of_the_proto)
{
	const ProtobufCEnumDescriptor *d = &agentbox__v1__reason__descriptor;

	for (unsigned i = 0; i < d->n_values; i++)
		if (d->values[i].value)
			CHECK_STR(status_reason_name((enum ab_reason)d->values[i].value),
				  d->values[i].name);
}

/* A field that is `optional` in the .proto keeps its presence in C, on the same wire. */
TEST(optional_keeps_presence)
{
	static const uint8_t wire[] = { 0x30, 0x00 };	/* secure = false */
	Agentbox__V1__CreateSandboxRequest *r, out = AGENTBOX__V1__CREATE_SANDBOX_REQUEST__INIT;
	uint8_t packed[8];

	r = agentbox__v1__create_sandbox_request__unpack(NULL, sizeof(wire), wire);
	CHECK(r);
	CHECK_INT(r->_secure_case, AGENTBOX__V1__CREATE_SANDBOX_REQUEST___SECURE_SECURE);
	CHECK(!r->secure);
	CHECK_INT(r->_allow_internet_access_case, 0);
	agentbox__v1__create_sandbox_request__free_unpacked(r, NULL);

	out._secure_case = AGENTBOX__V1__CREATE_SANDBOX_REQUEST___SECURE_SECURE;
	CHECK_INT(agentbox__v1__create_sandbox_request__pack(&out, packed), sizeof(wire));
	CHECK(!memcmp(packed, wire, sizeof(wire)));
}

TEST_MAIN()
