/* SPDX-License-Identifier: MIT */
/* What the audit says of a process. */
#include "daemon/auth/audit.h"

#include <unistd.h>

#include "proto/base/fd.h"
#include "tests/lib/test.h"

TEST(units_of_control_groups)
{
	static const struct {
		const char *cgroup, *unit;
	} rows[] = {
		{ "0::/system.slice/agent.service\n", "agent.service" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u7.service\n", "run-u7.service" },
		{ "0::/user.slice/user-1000.slice/session-3.scope", "session-3.scope" },
		{ "5:cpu:/docker/x.service\n1:name=systemd:/system.slice/docker.service\n", "docker.service" },
		{ "5:cpu,memory:/a.service\n", "" }, { "0::/\n", "" }, { "", "" }, { "0::/a.slice/.service\n", "" },
		{ "0::/x.service/inner/deep\n", "x.service" }, { "nonsense\n0::/y.scope\n", "y.scope" }, { "0::", "" },
	};
	char unit[AUDIT_UNIT_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		audit_unit_of(rows[i].cgroup, unit);
		CHECK_STR(unit, rows[i].unit);
	}
}

TEST(a_name_that_is_too_long_is_none)
{
	char text[400], unit[AUDIT_UNIT_BYTES];

	snprintf(text, sizeof(text), "0::/%0200d.service\n", 0);
	audit_unit_of(text, unit);
	CHECK_STR(unit, "");
}

TEST(a_process_is_read_while_it_lives)
{
	struct principal who = { .pid = getpid(), .pidfd = -1 };
	struct audit_process p = { 0 };

	audit_process_read(&p, &who);
	CHECK(p.is_read && !p.comm[0]);	/* nobody can say that this number is still its own */
	p = (struct audit_process){ 0 };
	CHECK_INT(fd_pidfd(getpid(), &who.pidfd), 0);
	audit_process_read(&p, &who);
	CHECK(!strncmp("test_auth_audit", p.comm, 15));
	fd_close(who.pidfd);
}

TEST_MAIN()
