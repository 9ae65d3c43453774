/* SPDX-License-Identifier: MIT */
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/local/state/teams.h"
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
	struct teams *a;

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/keys", dir);
	put(path, "# ours\n" KEY_A "\n\n" KEY_B " team-b # theirs\r\ne2b_aa\nab_Key-of_1 team-c\n");
	CHECK(!teams_load(path, &why, &a));
	CHECK_STR(teams_of_key(a, KEY_A), "default");
	CHECK(teams_of_key(a, KEY_A) == teams_of_key(a, "e2b_aa"));
	CHECK_STR(teams_of_key(a, "ab_Key-of_1"), "team-c");	/* E-7 */
	CHECK_STR(teams_of_key(a, KEY_B), "team-b");
	CHECK(!teams_of_key(a, NULL));
	CHECK(!teams_of_key(a, "e2b_"));
	CHECK(!teams_of_key(a, "e2b_fe"));
	CHECK(!teams_of_key(a, "E2B_ff"));
	teams_free(a);

	static const char *const bad[] = { "", "# none\n", "key\n", "e2b_XX\n", "e2b_ff Team\n",
					   "e2b_ff a b\n", "e2b_\n", "ab_\n", "ab_a.b\n" };
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put(path, bad[i]);
		CHECK(teams_load(path, &why, &a) < 0);
		CHECK(why && strstr(why, path));
		free(why);
	}
	CHECK(!unlink(path));
	CHECK(!rmdir(dir));
}

TEST(a_key_is_made_once)
{
	char dir[] = "/tmp/ab-account-XXXXXX", path[64], first[64] = "", again[64] = "", *why;
	struct teams *a;
	struct stat st;

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/api-key", dir);
	for (int i = 0; i < 2; i++) {
		FILE *f;

		CHECK(!teams_load_or_make(path, &why, &a));
		teams_free(a);
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
