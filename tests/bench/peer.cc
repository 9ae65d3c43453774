// SPDX-License-Identifier: MIT
//
// The peer of the benchmark of Get: gRPC's own C++ callback server with the same message, held in memory.
#include <csignal>
#include <cstdio>

#include <grpcpp/grpcpp.h>

#include "agentbox/v1/sandbox.grpc.pb.h"

namespace api = agentbox::v1;

class Service final : public api::SandboxService::CallbackService {
	api::Sandbox box_;

      public:
	Service()
	{
		box_.set_id("i0a1b2c3d4e5f6g7h8i9j");
		box_.set_template_id("rki5dems9wqfm4r03t7g");
		box_.set_alias("base");
		box_.set_state(api::SANDBOX_STATE_RUNNING);
		(*box_.mutable_metadata())["job"] = "42";
		box_.mutable_started_at()->set_seconds(1790000000);
		box_.mutable_end_at()->set_seconds(1790000300);
		box_.set_cpu_count(2);
		box_.set_memory_mb(512);
		box_.set_disk_size_mb(1024);
		box_.set_envd_version("0.6.13");
		box_.set_domain("localhost:1234");
		box_.mutable_policy()->set_keep_alive(true);
		box_.mutable_freshness()->mutable_as_of()->set_seconds(1790000000);
		box_.set_account("default");
	}

	grpc::ServerUnaryReactor *Get(grpc::CallbackServerContext *context, const api::GetSandboxRequest *,
				      api::Sandbox *reply) override
	{
		auto *reactor = context->DefaultReactor();

		*reply = box_;
		reactor->Finish(grpc::Status::OK);
		return reactor;
	}
};

int main(int argc, char **argv)
{
	Service service;
	grpc::ServerBuilder builder;

	if (argc != 2)
		return 2;
	builder.AddListeningPort(std::string("unix:") + argv[1], grpc::InsecureServerCredentials());
	builder.RegisterService(&service);
	auto server = builder.BuildAndStart();
	if (!server)
		return 1;
	puts("ready");
	fflush(stdout);
	server->Wait();
}
