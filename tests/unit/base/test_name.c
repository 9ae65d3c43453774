/* SPDX-License-Identifier: MIT */
#include "proto/base/name.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

/* B-6: a name and its text. */
TEST(table)
{
	static const struct {
		const char *name, *text;
	} t[] = {
		{ "", "" },
		{ "/home/user/plain", "/home/user/plain" },
		{ "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80", "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80" },
		{ "back\\slash\\", "back\\slash\\" },
		{ "a\\xyz\\x7f\\x5d\\xFF\\xf\\x", "a\\xyz\\x7f\\x5d\\xFF\\xf\\x" },	/* none of these is an escape */
		{ "\xff", "\\xff" },
		{ "latin-\xe9/x", "latin-\\xe9/x" },
		{ "\xc3", "\\xc3" },					/* cut off */
		{ "\xed\xa0\x80", "\\xed\\xa0\\x80" },			/* a surrogate */
		{ "\xc0\xaf", "\\xc0\\xaf" },				/* too long for a slash */
		{ "\\xff", "\\x5cxff" },
		{ "\\x5c", "\\x5cx5c" },
		{ "\\\xff", "\\\\xff" },
		{ "\\x8\xff", "\\x8\\xff" },
		{ "\\x\xff", "\\x\\xff" },
		{ "\\\\x80", "\\\\x5cx80" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *text = name_to_text(t[i].name), *name = name_from_text(t[i].text);

		CHECK_STR(text, t[i].text);
		CHECK_STR(name, t[i].name);
		CHECK(name_is_text(t[i].name) == !strcmp(t[i].name, t[i].text));
		CHECK(str_is_utf8(text, strlen(text)));
		free(text);
		free(name);
	}
	CHECK(!name_to_text(NULL) && !name_from_text(NULL));
}

/* B-6: whatever the bytes are, the text is UTF-8 and gives them back, and no other name has it. */
TEST(random_names)
{
	static const char some[] = "\\x5c8f0\xff\xc3\xa9/a";
	char name[12], again[12];
	struct rng rng;

	rng_seed(&rng, 7);
	for (unsigned round = 0; round < 200000; round++) {
		size_t n = rng_u64(&rng) % (sizeof(name) - 1);
		char *text, *back;

		for (size_t i = 0; i < n; i++)
			name[i] = round % 3 ? some[rng_u64(&rng) % (sizeof(some) - 1)] : (char)(rng_u64(&rng) % 255 + 1);
		name[n] = 0;
		text = name_to_text(name);
		back = name_from_text(text);
		CHECK(text && back && !strcmp(back, name) && str_is_utf8(text, strlen(text)));
		CHECK(name_is_text(name) == !strcmp(name, text));
		/* A text that is another one's name is escaped differently. */
		if (strlen(text) < sizeof(again) && strcmp(text, name)) {
			char *other = str_copy(again, sizeof(again), text) ? name_to_text(again) : NULL;

			CHECK(other && strcmp(other, text));
			free(other);
		}
		free(text);
		free(back);
	}
}

TEST_MAIN()
