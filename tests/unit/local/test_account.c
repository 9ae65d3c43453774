/* SPDX-License-Identifier: MIT */
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/local/state/account.h"
#include "tests/lib/test.h"

#define KEY_A "e2b_00112233445566778899aabbccddeeff00112233"
#define KEY_B "e2b_ff"

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

TEST(keys_and_teams)
{
	char dir[] = "/tmp/ab-account-XXXXXX", path[64], *why;
	struct accounts *a;

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/keys", dir);
	put(path, "# ours\n" KEY_A "\n\n" KEY_B " team-b # theirs\r\ne2b_aa\n");
	CHECK(!accounts_load(path, &why, &a));
	CHECK_STR(accounts_team(a, KEY_A), "default");
	CHECK(accounts_team(a, KEY_A) == accounts_team(a, "e2b_aa"));
	CHECK_STR(accounts_team(a, KEY_B), "team-b");
	CHECK(!accounts_team(a, NULL));
	CHECK(!accounts_team(a, "e2b_"));
	CHECK(!accounts_team(a, "e2b_fe"));
	CHECK(!accounts_team(a, "E2B_ff"));
	accounts_free(a);

	static const char *const bad[] = { "", "# none\n", "key\n", "e2b_XX\n", "e2b_ff Team\n",
					   "e2b_ff a b\n", "e2b_\n" };
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put(path, bad[i]);
		CHECK(accounts_load(path, &why, &a) < 0);
		CHECK(why && strstr(why, path));
		free(why);
	}
	CHECK(!unlink(path));
	CHECK(!rmdir(dir));
}

TEST(a_key_is_made_once)
{
	char dir[] = "/tmp/ab-account-XXXXXX", path[64], first[64] = "", again[64] = "", *why;
	struct accounts *a;
	struct stat st;

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/api-key", dir);
	for (int i = 0; i < 2; i++) {
		FILE *f;

		CHECK(!accounts_load_or_make(path, &why, &a));
		accounts_free(a);
		f = fopen(path, "r");
		CHECK(f && fgets(i ? again : first, 64, f) && !fclose(f));
	}
	CHECK_STR(again, first);
	CHECK_INT(strlen(first), 45);
	CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600);
	CHECK(!unlink(path));
	CHECK(!rmdir(dir));
}

TEST_MAIN()
