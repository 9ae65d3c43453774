/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/record.h"

#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"

static const char *w[RECORD_WORDS];

/* Words separated by '|', in place of the NULs that find prints. */
static int make(const char *base, const char *words, struct envd_entry *ret)
{
	static char bytes[512];
	size_t n = strlen(words), used;

	memcpy(bytes, words, n);
	for (size_t i = 0; i < n; i++)
		if (bytes[i] == '|')
			bytes[i] = 0;
	CHECK(record_split((const uint8_t *)bytes, n, RECORD_WORDS, w, &used));
	CHECK_INT(used, n);
	return record_entry(base, w, ret);
}

TEST(split)
{
	static const char bytes[] = "a\0\0c\0rest";
	const char *three[3];
	size_t used;

	CHECK(record_split((const uint8_t *)bytes, sizeof(bytes) - 1, 3, three, &used));
	CHECK_INT(used, 5);
	CHECK_STR(three[0], "a");
	CHECK_STR(three[1], "");
	CHECK_STR(three[2], "c");
	CHECK(!record_split((const uint8_t *)bytes, 4, 3, three, &used));
	CHECK(!record_split((const uint8_t *)bytes, 0, 1, three, &used));
}

TEST(kinds)
{
	static const struct {
		const char *base, *words, *path, *name, *permissions, *target;
		enum envd_file_type type;
		uint32_t mode;
	} t[] = {
		{ "/d", "f|f|7|4751|me|us|1.5||\xff|", "/d/\xff", "\xff", "urwxr-x--x", NULL, ENVD_FILE_FILE, 0751 },
		{ "/d\xff", "d|d|7|1777|me|us|1.5|||", "/d\xff", "d\xff", "dtrwxrwxrwx", NULL, ENVD_FILE_DIRECTORY, 0777 },
		{ "/", "d|d|7|755|me|us|1.5||a/b|", "/a/b", "b", "drwxr-xr-x", NULL, ENVD_FILE_DIRECTORY, 0755 },
		{ "/", "d|d|7|755|me|us|1.5|||", "/", "/", "drwxr-xr-x", NULL, ENVD_FILE_DIRECTORY, 0755 },
		{ "/d", "l|f|7|777|me|us|1.5|to\xff|x|", "/d/x", "x", "Lrwxrwxrwx", "/d/to\xff", ENVD_FILE_FILE, 0777 },
		{ "/", "l|d|7|777|me|us|1.5|to|x|", "/x", "x", "Lrwxrwxrwx", "/to", ENVD_FILE_DIRECTORY, 0777 },
		{ "/d", "l|d|7|777|me|us|1.5|/etc|x|", "/d/x", "x", "Lrwxrwxrwx", "/etc", ENVD_FILE_DIRECTORY, 0777 },
		{ "/d", "l|N|7|777|me|us|1.5|none|x|", "/d/x", "x", "Lrwxrwxrwx", "/d/x", ENVD_FILE_UNSPECIFIED, 0777 },
		{ "/d", "p|p|0|2600|me|us|1.5||x|", "/d/x", "x", "pgrw-------", NULL, ENVD_FILE_UNSPECIFIED, 0600 },
		{ "/d", "||0|0|me|us|1.5||x|", "/d/x", "x", "----------", NULL, ENVD_FILE_UNSPECIFIED, 0 },
	};
	struct envd_entry e;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(make(t[i].base, t[i].words, &e), 0);
		CHECK_STR(e.path, t[i].path);
		CHECK_STR(e.name, t[i].name);
		CHECK_STR(e.permissions, t[i].permissions);
		CHECK_INT(e.type, t[i].type);
		CHECK_INT(e.mode, t[i].mode);
		CHECK(!e.symlink_target == !t[i].target);
		if (t[i].target)
			CHECK_STR(e.symlink_target, t[i].target);
		envd_entry_fini(&e);
	}
}

TEST(times)
{
	static const struct {
		const char *time;
		int64_t s;
		int32_t ns;
	} t[] = {
		{ "1796000984.8650000000", 1796000984, 865000000 },
		{ "1.0000000019", 1, 1 },
		{ "0", 0, 0 },
		{ "-2.5000000000", -2, 500000000 },
		{ "", 0, 0 },
		{ "x.5", 0, 0 },
		{ "1.2x9", 1, 200000000 },
		{ "99999999999999999999.5", 0, 0 },
	};
	char words[128];
	struct envd_entry e;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		snprintf(words, sizeof(words), "f|f|7|644|me|us|%s||x|", t[i].time);
		CHECK_INT(make("/d", words, &e), 0);
		CHECK_INT(e.modified_s, t[i].s);
		CHECK_INT(e.modified_ns, t[i].ns);
		envd_entry_fini(&e);
	}
}

/* A sandbox's root prints what it likes: numbers that are none, owners that are not UTF-8. */
TEST(nonsense)
{
	static const char *const bad[] = { "f|f||644|me|us|1||x|",	  "f|f|-1|644|me|us|1||x|", "f|f|9223372036854775808|644|me|us|1||x|",
					   "f|f|1|888|me|us|1||x|",	  "f|f|1|10000|me|us|1||x|",
					   "f|f|1|77777777777777|me|us|1||x|" };
	struct envd_entry e;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK_INT(make("/d", bad[i], &e), -EBADMSG);
	CHECK_INT(make("/d", "f|f|7|644|m\xff|\xc3|1||x|", &e), 0);
	CHECK_STR(e.owner, "m\\xff");
	CHECK_STR(e.group, "\\xc3");
	envd_entry_fini(&e);
}

TEST_MAIN()
