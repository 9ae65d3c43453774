/* SPDX-License-Identifier: MIT */
/* AGENTBOX_TEST_UID=N: the test program, started by root, goes on as that user. */
#ifndef AB_TESTS_UNIT_LOCAL_DROP_USER_H
#define AB_TESTS_UNIT_LOCAL_DROP_USER_H

static unused_ bool is_root;

__attribute__((constructor(101))) static void choose_user(void)
{
	const char *s = getenv("AGENTBOX_TEST_UID");
	uint64_t uid = 0;

	if (s && geteuid() == 0) {
		CHECK_INT(str_u64(s, strlen(s), 65535, &uid), 0);
		if (setgid((gid_t)uid) < 0 || setuid((uid_t)uid) < 0)
			exit(77);
	}
	is_root = geteuid() == 0;
}

#endif
