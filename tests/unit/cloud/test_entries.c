/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/entries.h"

#include <string.h>

#include "tests/lib/test.h"

/* Feeds it in pieces; what came out, separated by commas, and behind it how it ended. */
static const char *run(const void *bytes, size_t n, size_t piece)
{
	static char out[512];
	static const char *const ends[] = { "got", "more", "bad", "large", "memory" };
	enum entries_result r = ENTRIES_MORE;
	const uint8_t *p = bytes, *entry;
	size_t at = 0, used, n_entry, k = 0;
	struct entries e;

	entries_init(&e);
	while (r == ENTRIES_MORE && at < n) {
		size_t end = MIN(at + piece, n);

		while ((r = entries_feed(&e, p + at, end - at, &used, &entry, &n_entry)) == ENTRIES_GOT) {
			k += (size_t)snprintf(out + k, sizeof(out) - k, "%.*s,", (int)n_entry, (const char *)entry);
			at += used;
		}
		at += used;
	}
	snprintf(out + k, sizeof(out) - k, "%s%s", ends[r], r == ENTRIES_MORE && !entries_may_end(&e) ? " torn" : "");
	entries_fini(&e);
	return out;
}

TEST(table)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *want;
	} t[] = {
		{ "", 0, "more" },
		{ "\x0a\x03" "abc" "\x0a\x00" "\x0a\x01" "z", 10, "abc,,z,more" },
		{ "\x0a\x83\x00" "abc", 6, "abc,more" },			/* a longer way to say 3 */
		{ "\x12\x04" "\x0a\x01" "xy" "\x0a\x01" "z", 9, "z,more" },	/* what looks like an entry inside another field */
		{ "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x01" "z", 14, "z,more" },
		{ "\x19" "12345678" "\x1d" "1234" "\x0a\x01" "z", 17, "z,more" },
		{ "\x0a\x03" "ab", 4, "more torn" },
		{ "\x0a", 1, "more torn" },
		{ "\x8a", 1, "more torn" },
		{ "\x12\x05" "abc", 5, "more torn" },
		{ "\x08\x05", 2, "bad" },					/* an entry that is a number */
		{ "\x0d" "1234", 5, "bad" },
		{ "\x0b", 1, "bad" },						/* a group */
		{ "\x02\x00", 2, "bad" },					/* field 0 */
		{ "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "bad" },
		{ "\x0a\x01" "z" "\x0a\x81\x80\x10", 7, "z,large" },		/* 256 KiB and one byte */
		{ "\x0a\x80\x80\x10", 4, "more torn" },				/* 256 KiB */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		for (size_t piece = 1; piece < 20; piece++) {
			const char *got = run(t[i].bytes, t[i].n, piece);

			if (strcmp(got, t[i].want))
				fprintf(stderr, "row %zu in pieces of %zu\n", i, piece);
			CHECK_STR(got, t[i].want);
		}
}

TEST_MAIN()
