/* SPDX-License-Identifier: MIT */
#include "proto/cloud/link.h"

#include "tests/lib/test.h"

TEST(signatures)
{
	static const char token[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	static const struct {
		const char *path;
		bool write;
		const char *user;
		int64_t until_s;
		const char *want;
	} t[] = {
		{ "/home/user/a b.txt", false, "", CLOUD_LINK_FOREVER,
		  "v1_DRqJ3yYc6dTc06Bsf7gqbK1IADObRix9Ioug/oxIy3k" },
		{ "notes.txt", true, "root", CLOUD_LINK_FOREVER,
		  "v1_KyoiNgXebEC9uSRvuiZJJVJvZkoolr+9XTm0TCCPXJE" },
		{ "/tmp/x", false, "user", 1893456000,
		  "v1_/LCNhK0M0M2PGvFmt4RPajG5sLPNPTdR7uw3RG3Dhws" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *s = cloud_link_sign(t[i].path, t[i].write, t[i].user, token, t[i].until_s);

		CHECK_STR(s, t[i].want);
		free(s);
	}
}

TEST_MAIN()
