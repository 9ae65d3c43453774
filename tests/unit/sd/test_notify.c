/* SPDX-License-Identifier: MIT */
/* The messages to a service manager, as the manager gets them. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/common/sd/notify.h"
#include "proto/base/fd.h"
#include "tests/unit/sd/manager.h"

TEST(each_message_is_what_the_manual_says)
{
	for (int is_abstract = 0; is_abstract < 2; is_abstract++) {
		struct manager m;
		struct notify n;
		char text[4096];

		manager_open(&m, is_abstract);
		CHECK_INT(notify_open(&n, m.address), 0);
		CHECK(notify_is_open(&n));
		CHECK_INT(notify_send(&n, "READY=1"), 0);
		CHECK_STR(manager_next(&m, text), "READY=1");
		CHECK_INT(notify_status(&n, "%d sandboxes", 3), 0);
		CHECK_STR(manager_next(&m, text), "STATUS=3 sandboxes");
		CHECK_INT(notify_failed(&n, EBUSY, "another one\nREADY=1"), 0);
		CHECK_STR(manager_next(&m, text), "STATUS=another one READY=1\nERRNO=16");
		CHECK_INT(notify_extend(&n, 30000000), 0);
		CHECK_STR(manager_next(&m, text), "EXTEND_TIMEOUT_USEC=30000000");
		CHECK_INT(notify_reloading(&n), 0);
		CHECK(!strncmp(manager_next(&m, text), "RELOADING=1\nMONOTONIC_USEC=", 27) && strlen(text) > 30);
		notify_close(&n);
		manager_close(&m);
	}
}

TEST(no_text_ends_its_line)
{
	struct manager m;
	struct notify n;
	char text[4096], longer[2000];

	manager_open(&m, false);
	CHECK_INT(notify_open(&n, m.address), 0);
	CHECK_INT(notify_status(&n, "account %s: refused", "a\nWATCHDOG=trigger\x7f\t"), 0);
	CHECK_STR(manager_next(&m, text), "STATUS=account a WATCHDOG=trigger  : refused");
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	CHECK_INT(notify_status(&n, "%s", longer), 0);
	CHECK(strlen(manager_next(&m, text)) < NOTIFY_STATUS_MAX && !strncmp(text, "STATUS=xxxx", 11));
	notify_close(&n);
	manager_close(&m);
}

TEST(descriptors_go_with_their_name)
{
	struct manager m;
	struct notify n, nobody = NOTIFY_NOBODY;
	struct stat ours, theirs;
	char text[4096], name[300];
	int fds[NOTIFY_FDS_MAX + 1], got[253];
	size_t n_got;

	manager_open(&m, false);
	CHECK_INT(notify_open(&n, m.address), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		CHECK((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
	CHECK_INT(notify_store_fds(&n, fds, NOTIFY_FDS_MAX, "idle"), 0);
	CHECK_STR(manager_next_fds(&m, text, got, &n_got), "FDSTORE=1\nFDNAME=idle");
	CHECK_INT(n_got, NOTIFY_FDS_MAX);
	CHECK_INT(fstat(fds[0], &ours), 0);
	CHECK_INT(fstat(got[0], &theirs), 0);
	CHECK_INT(ours.st_ino, theirs.st_ino);
	for (size_t i = 0; i < n_got; i++)
		close(got[i]);
	CHECK_INT(notify_drop_fds(&n, "idle"), 0);
	CHECK_STR(manager_next_fds(&m, text, got, &n_got), "FDSTOREREMOVE=1\nFDNAME=idle");
	CHECK_INT(n_got, 0);
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	CHECK_INT(notify_store_fds(&n, fds, 1, name), -EINVAL);
	CHECK_INT(notify_store_fds(&n, fds, 1, "a:b"), -EINVAL);
	CHECK_INT(notify_store_fds(&n, fds, 1, "a\nb"), -EINVAL);
	CHECK_INT(notify_store_fds(&n, fds, 1, ""), -EINVAL);
	CHECK_INT(notify_store_fds(&n, fds, 0, "a"), -EINVAL);
	CHECK_INT(notify_store_fds(&n, fds, NOTIFY_FDS_MAX + 1, "a"), -EINVAL);
	CHECK_INT(notify_drop_fds(&n, "a:b"), -EINVAL);
	CHECK_INT(notify_store_fds(&nobody, fds, 1, "a"), -ENOTCONN);
	CHECK_INT(notify_drop_fds(&nobody, "a"), -ENOTCONN);
	name[255] = '\0';
	CHECK_INT(notify_store_fds(&n, fds, 1, name), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	notify_close(&n);
	manager_close(&m);
}

/* A manager that reads nothing holds the daemon up for a moment, not for ever. */
TEST(a_manager_that_is_busy)
{
	struct manager m;
	struct notify n;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), r = 0;

	manager_open(&m, false);
	CHECK_INT(notify_open(&n, m.address), 0);
	for (unsigned i = 0; i < 100000 && !r; i++)
		r = notify_send(&n, "WATCHDOG=1");
	CHECK_INT(r, -EAGAIN);
	CHECK_INT(notify_store_fds(&n, &fd, 1, "idle"), -EAGAIN);
	CHECK_INT(notify_drop_fds(&n, "idle"), -EAGAIN);
	close(fd);
	notify_close(&n);
	manager_close(&m);
}

TEST(addresses)
{
	static const struct {
		const char *address;
		int r;
	} t[] = {
		{ NULL, 0 }, { "", 0 }, { "run/notify", -EINVAL }, { "/", -EINVAL }, { "@", -EINVAL }, { "vsock:2:1", -EINVAL },
		{ "/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		  "0123456789", -E2BIG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct notify n;

		CHECK_INT(notify_open(&n, t[i].address), t[i].r);
		CHECK(!notify_is_open(&n));
		CHECK_INT(notify_send(&n, "READY=1"), 0);
		notify_close(&n);
	}
}

TEST(a_manager_that_is_gone_or_full_costs_nothing)
{
	struct manager m;
	struct notify n;
	int r = 0;

	manager_open(&m, false);
	CHECK_INT(notify_open(&n, m.address), 0);
	for (int i = 0; i < 100000 && !r; i++)
		r = notify_send(&n, "WATCHDOG=1");
	CHECK_INT(r, -EAGAIN);
	manager_close(&m);
	CHECK_INT(notify_send(&n, "READY=1"), -ENOENT);
	notify_close(&n);
}

TEST(watchdog)
{
	static const struct {
		const char *usec, *pid;
		int r;
		unsigned us;
	} t[] = {
		{ NULL, NULL, 0, 0 },		{ "", "7", 0, 0 },	       { "30000000", NULL, 0, 30000000 },
		{ "30000000", "7", 0, 30000000 }, { "30000000", "8", 0, 0 },     { "0", "7", -EINVAL, 0 },
		{ "x", "7", -EINVAL, 0 },	{ "1", "seven", -EINVAL, 0 },  { "-1", NULL, -EINVAL, 0 },
		{ "18446744073709551615", NULL, -EINVAL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t us = 99;

		CHECK_INT(notify_watchdog(t[i].usec, t[i].pid, 7, &us), t[i].r);
		CHECK_INT(us, t[i].us);
	}
}

TEST_MAIN()
