/* SPDX-License-Identifier: MIT */
/* A long start asks the service manager for time, and stops asking when it is over. */
#include "daemon/common/sd/notify.h"
#include "daemon/main/start_extension.h"
#include "tests/unit/sd/manager.h"

TEST(asks_until_it_is_over)
{
	struct start_extension *x;
	struct manager m;
	struct notify n;
	char text[4096];

	manager_open(&m, false);
	CHECK_INT(notify_open(&n, m.address), 0);
	CHECK_INT(start_extension_begin(&n, 20, &x), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_STR(manager_next(&m, text), "STATUS=starting: the database is being opened");
		CHECK_STR(manager_next(&m, text), "EXTEND_TIMEOUT_USEC=60000");
	}
	CHECK(!start_extension_end(x));
	while (recv(m.fd, text, sizeof(text), MSG_DONTWAIT) > 0)
		;
	CHECK_INT(notify_send(&n, "READY=1"), 0);
	CHECK_STR(manager_next(&m, text), "READY=1");
	notify_close(&n);
	manager_close(&m);
}

TEST(a_short_start_asks_nothing)
{
	struct start_extension *x;
	struct manager m;
	struct notify n;
	char text[4096];

	manager_open(&m, false);
	CHECK_INT(notify_open(&n, m.address), 0);
	CHECK_INT(start_extension_begin(&n, 60000, &x), 0);
	CHECK(x && !start_extension_end(x));
	CHECK_INT(recv(m.fd, text, sizeof(text), MSG_DONTWAIT), -1);
	notify_close(&n);
	manager_close(&m);
}

TEST(without_a_manager_there_is_no_thread)
{
	static const struct notify nobody = NOTIFY_NOBODY;
	struct start_extension *x;

	CHECK_INT(start_extension_begin(&nobody, 1, &x), 0);
	CHECK(!x && !start_extension_end(x));
}

TEST_MAIN()
