/* SPDX-License-Identifier: MIT */
/* Passed descriptors are found by name, in whatever order they come. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "daemon/common/sd/listen_fds.h"
#include "tests/lib/test.h"

#define SELF 700

TEST(variables)
{
	static const struct {
		struct listen_env env;
		int r;
		size_t n;
		const char *second;	/* name */
	} t[] = {
		{ { NULL, NULL, NULL }, 0, 0, NULL },
		{ { "700", NULL, NULL }, 0, 0, NULL },
		{ { NULL, "2", "a:b" }, 0, 0, NULL },
		{ { "701", "2", "a:b" }, 0, 0, NULL },
		{ { "700", "0", NULL }, 0, 0, NULL },
		{ { "700", "2", "a:b" }, 0, 2, "b" },
		{ { "700", "2", NULL }, 0, 2, "unknown" },
		{ { "700", "2", "a:" }, 0, 2, "unknown" },
		{ { "700", "3", "a:b:a" }, 0, 3, "b" },
		{ { "700", "1", "" }, 0, 1, NULL },
		{ { "700", "2", "a" }, -EINVAL, 0, NULL },
		{ { "700", "2", "a:b:c" }, -EINVAL, 0, NULL },
		{ { "700", "1", "a:" }, -EINVAL, 0, NULL },
		{ { "700", "two", "a:b" }, -EINVAL, 0, NULL },
		{ { "700", "-1", "a" }, -EINVAL, 0, NULL },
		{ { "700", "16385", NULL }, -EINVAL, 0, NULL },
		{ { "700", "99999999999999999999", NULL }, -EINVAL, 0, NULL },
		{ { "0x2bc", "1", "a" }, -EINVAL, 0, NULL },
		{ { "700 ", "1", "a" }, -EINVAL, 0, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct listen_fds l;

		CHECK_INT(listen_fds_parse(&t[i].env, SELF, &l), t[i].r);
		CHECK_INT(l.n, t[i].n);
		if (t[i].second)
			CHECK_STR(l.v[1].name, t[i].second);
		/* They are not ours to close here. */
		for (size_t k = 0; k < l.n; k++)
			l.v[k].fd = -1;
		listen_fds_fini(&l);
	}
}

/* Puts three descriptors where a manager does. */
static void pass_three(struct listen_fds *ret)
{
	const struct listen_env env = { "700", "3", "metrics:api:metrics" };

	for (int fd = 3; fd < 6; fd++)
		CHECK_INT(dup2(1, fd), fd);
	CHECK_INT(listen_fds_parse(&env, SELF, ret), 0);
}

TEST(taken_by_name_never_by_position)
{
	struct listen_fds l;

	pass_three(&l);
	CHECK_INT(fcntl(4, F_GETFD) & FD_CLOEXEC, 0);
	CHECK_INT(listen_fds_keep(&l), 0);
	for (int fd = 3; fd < 6; fd++)
		CHECK_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_INT(listen_fds_take(&l, "gateway"), -ENOENT);
	CHECK_INT(listen_fds_take(&l, "metrics"), -EEXIST);
	CHECK_INT(listen_fds_take(&l, "api"), 4);
	CHECK_INT(listen_fds_take(&l, "api"), -ENOENT);
	CHECK_INT(listen_fds_take_one(&l, "api"), -ENOENT);
	listen_fds_fini(&l);
	CHECK_INT(fcntl(3, F_GETFD), -1);
	CHECK_INT(fcntl(4, F_GETFD), FD_CLOEXEC);
	CHECK_INT(fcntl(5, F_GETFD), -1);
	close(4);
}

TEST(several_of_one_name)
{
	struct listen_fds l;

	pass_three(&l);
	CHECK_INT(listen_fds_take_one(&l, "metrics"), 3);
	CHECK_INT(listen_fds_take(&l, "metrics"), 5);
	CHECK_INT(listen_fds_take_one(&l, "metrics"), -ENOENT);
	listen_fds_fini(&l);
	CHECK_INT(fcntl(3, F_GETFD), 0);
	CHECK_INT(fcntl(4, F_GETFD), -1);
	close(3);
	close(5);
}

TEST(a_descriptor_that_is_not_open)
{
	const struct listen_env env = { "700", "1", "api" };
	struct listen_fds l;

	close(3);
	CHECK_INT(listen_fds_parse(&env, SELF, &l), 0);
	CHECK_INT(listen_fds_keep(&l), -EBADF);
	l.v[0].fd = -1;
	listen_fds_fini(&l);
}

TEST_MAIN()
