/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/shown.h"

#include <string.h>

#include "tests/lib/test.h"

TEST(memory)
{
	char a[SHOWN_MEMINFO_MAX], b[SHOWN_MEMINFO_MAX];
	size_t n = shown_meminfo(512u << 20, 0, 0, a);

	CHECK_INT(n, strlen(a));
	CHECK(strstr(a, "MemTotal:             524288 kB\n") == a);
	CHECK(strstr(a, "\nMemFree:              524288 kB\n"));
	/* of one length, whatever the numbers are */
	CHECK_INT(shown_meminfo(1ull << 42, 1ull << 41, 1u << 20, b), n);
	/* caches are available; more cannot be used than there is */
	shown_meminfo(512u << 20, 100u << 20, 60u << 20, a);
	CHECK(strstr(a, "\nMemFree:              421888 kB\n"));
	CHECK(strstr(a, "\nMemAvailable:         483328 kB\n"));
	CHECK(strstr(a, "\nCached:                61440 kB\n"));
	shown_meminfo(1u << 20, 2u << 20, 3u << 20, a);
	CHECK(strstr(a, "\nMemFree:                   0 kB\n"));
	CHECK(strstr(a, "\nMemAvailable:           1024 kB\n"));
}

TEST(processors)
{
	static const char text[] = "processor\t: 0\nx: y\n\nprocessor\t: 1\n\nprocessor\t: 2\n\n";
	size_t n = sizeof(text) - 1;

	CHECK_INT(shown_cpuinfo(text, n, 0), 0);
	CHECK_INT(shown_cpuinfo(text, n, 1), strlen("processor\t: 0\nx: y\n\n"));
	CHECK_INT(shown_cpuinfo(text, n, 3), n);
	CHECK_INT(shown_cpuinfo(text, n, 9), n);
	CHECK_INT(shown_cpuinfo("processor : 0", 13, 1), 13);
	CHECK_INT(shown_cpuinfo("", 0, 1), 0);
}

TEST_MAIN()
