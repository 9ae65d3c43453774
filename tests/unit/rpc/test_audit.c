/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/internal.h"
#include "proto/gen/agentbox_command.pb-c.h"
#include "tests/lib/test.h"

static struct rpc_about noted(Agentbox__V1__CommandRef *ref)
{
	Agentbox__V1__KillCommandRequest m = AGENTBOX__V1__KILL_COMMAND_REQUEST__INIT;
	struct rpc_about about = { 0 };

	m.command = ref;
	rpc_audit_note(&about, &m.base);
	return about;
}

TEST(a_command_is_the_object_by_its_id)
{
	Agentbox__V1__CommandRef ref = AGENTBOX__V1__COMMAND_REF__INIT;
	struct rpc_about about;

	ref.sandbox = (char *)"sb_1";
	ref.ref_case = AGENTBOX__V1__COMMAND_REF__REF_COMMAND_ID;
	ref.command_id = (char *)"cmd_1";
	about = noted(&ref);
	CHECK_STR(about.sandbox, "sb_1");
	CHECK_STR(about.object, "cmd_1");
}

/* The number and the text share their bytes. */
TEST(a_pid_is_no_text)
{
	Agentbox__V1__CommandRef ref = AGENTBOX__V1__COMMAND_REF__INIT;
	struct rpc_about about;

	ref.sandbox = (char *)"sb_1";
	ref.ref_case = AGENTBOX__V1__COMMAND_REF__REF_PID;
	ref.pid = 17;
	about = noted(&ref);
	CHECK_STR(about.sandbox, "sb_1");
	CHECK_STR(about.object, "");
}

TEST_MAIN()
