/* SPDX-License-Identifier: MIT */
/* The coder of tar: what it writes is read back, in pieces of any size; what is broken is refused. And the
 * names that may be made. */
#include <stdlib.h>
#include <string.h>

#include "proto/wire/tar.h"
#include "client/cli/tree/tree.h"
#include "tests/lib/test.h"

#define N_FILES 2000

static uint32_t seed = 1;

static uint32_t chance(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* Names of all lengths and bytes, without NUL. */
static char *odd_name(unsigned i)
{
	static const char *const odd[] = { "a b", "two\nlines", "\xff\xfe", "\xc3\xbc", "%41", "-rf", "...", "'\"", "\\" };
	size_t n = i % 3 == 0 ? 1 + chance(4000) : i % 3 == 1 ? 90 + chance(200) : 1 + chance(40);
	char *name = malloc(n + 40);
	size_t at = (size_t)sprintf(name, "%u%s", i, odd[i % 9]);

	while (at < n) {
		name[at] = at % (20 + i % 90) == 0 ? '/' : (char)(1 + chance(255));
		if (name[at] == '/' && name[at - 1] == '/')
			name[at] = 'x';
		at++;
	}
	name[at] = '\0';
	if (name[at - 1] == '/')
		name[at - 1] = 'y';
	return name;
}

static struct tar_entry odd_entry(unsigned i)
{
	static const int64_t times[] = { 0, 1, -1, 1600000000, 8589934591, 8589934592, -62135596800, 253402300799 };
	struct tar_entry e = { .type = i % 7 == 3   ? TAR_SYMLINK
				       : i % 7 == 4 ? TAR_DIRECTORY
				       : i % 7 == 5 ? TAR_HARD_LINK
				       : i % 7 == 6 ? TAR_FIFO
						    : TAR_FILE,
			       .name = odd_name(i), .link = "", .mode = chance(010000), .mtime_s = times[i % 8],
			       .mtime_ns = i % 2 ? chance(1000000000) : 0 };

	if (e.type == TAR_SYMLINK || e.type == TAR_HARD_LINK)
		e.link = odd_name(i + 5000);
	if (e.type == TAR_FILE)
		e.size = i % 4 ? chance(2000) : 512 * chance(3);
	return e;
}

static void entry_free(struct tar_entry *e)
{
	free((char *)e->name);
	if (*e->link)
		free((char *)e->link);
}

struct stream {
	uint8_t *p;
	size_t n, cap;
};

static void put(struct stream *s, const void *p, size_t n)
{
	if (s->n + n > s->cap) {
		s->cap = 2 * (s->n + n);
		s->p = realloc(s->p, s->cap);
		CHECK(s->p);
	}
	if (p)
		memcpy(s->p + s->n, p, n);
	else
		memset(s->p + s->n, 0, n);
	s->n += n;
}

static uint8_t byte_at(unsigned i, uint64_t at)
{
	return (uint8_t)(i * 31 + at * 7);
}

static void write_all(struct stream *s)
{
	static uint8_t head[TAR_HEADER_MAX];

	for (unsigned i = 0; i < N_FILES; i++) {
		struct tar_entry e = odd_entry(i);
		size_t n = tar_header(&e, head);

		CHECK(n && n % TAR_BLOCK == 0 && n <= TAR_HEADER_MAX);
		put(s, head, n);
		for (uint64_t k = 0; k < e.size; k++) {
			uint8_t b = byte_at(i, k);

			put(s, &b, 1);
		}
		put(s, NULL, tar_padding(e.size));
		entry_free(&e);
	}
	put(s, NULL, TAR_END_BYTES);
}

static void check_entry(const struct tar_entry *got, unsigned i)
{
	struct tar_entry e = odd_entry(i);

	CHECK_INT(got->type, e.type);
	CHECK_STR(got->name, e.name);
	CHECK_STR(got->link, e.link);
	CHECK_INT(got->mode, e.mode);
	CHECK_INT(got->size, e.size);
	CHECK_INT(got->mtime_s, e.mtime_s);
	CHECK_INT(got->mtime_ns, e.mtime_ns);
	entry_free(&e);
}

static void read_all(const struct stream *s, size_t piece)
{
	struct tar_reader *r = calloc(1, sizeof(*r));
	size_t at = 0, n_data = 0;
	bool ended = false, open = false;
	unsigned i = 0;

	seed = 1;
	while (at < s->n) {
		size_t k = piece ? piece : 1 + (at * 7919) % 1700, used, n;
		const uint8_t *data;
		enum tar_event e;

		k = k < s->n - at ? k : s->n - at;
		do {
			e = tar_read(r, s->p + at, k, &used, &data, &n);
			at += used;
			k -= used;
			CHECK(e != TAR_BAD);
			if (e == TAR_ENTRY) {
				CHECK(!open);
				open = true;
				n_data = 0;
				check_entry(&r->entry, i);
			} else if (e == TAR_DATA) {
				CHECK(open && n);
				for (size_t b = 0; b < n; b++)
					CHECK_INT(data[b], byte_at(i, n_data + b));
				n_data += n;
			} else if (e == TAR_ENTRY_END) {
				CHECK(open && n_data == r->entry.size);
				open = false;
				i++;
			}
			ended |= e == TAR_END;
		} while (e != TAR_MORE);
		CHECK_INT(k, 0);
	}
	CHECK(ended);
	CHECK_INT(i, N_FILES);
	tar_reader_fini(r);
	free(r);
}

TEST(two_thousand_odd_files_come_back)
{
	struct stream s = { 0 };

	seed = 1;
	write_all(&s);
	read_all(&s, 65536);
	read_all(&s, 512);
	read_all(&s, 0);
	free(s.p);
}

/* Feeds one block with a changed byte; the answer. */
static enum tar_event feed(const uint8_t *p, size_t n, struct tar_reader *r)
{
	const uint8_t *data;
	size_t used, k;

	return tar_read(r, p, n, &used, &data, &k);
}

TEST(broken_headers_are_refused)
{
	struct tar_entry e = { .type = TAR_FILE, .name = "name", .link = "", .mode = 0644, .size = 3 };
	uint8_t good[TAR_HEADER_MAX], bad[TAR_BLOCK];
	struct tar_reader *r = calloc(1, sizeof(*r));

	CHECK_INT(tar_header(&e, good), TAR_BLOCK);
	for (size_t at = 0; at < TAR_BLOCK; at++) {
		memcpy(bad, good, sizeof(bad));
		bad[at] ^= 1;
		memset(r, 0, sizeof(*r));
		/* but for the blanks around the checksum, every bit counts */
		if (at != 155 && at != 154)
			CHECK_INT(feed(bad, sizeof(bad), r), TAR_BAD);
	}
	memset(r, 0, sizeof(*r));
	CHECK_INT(feed((const uint8_t *)"\x1f\x8b\x08", 3, r), TAR_MORE);
	free(r);
}

/* A header of tar's seventh edition has neither magic nor version: its checksum alone says what it is. */
TEST(a_header_without_magic)
{
	struct tar_entry e = { .type = TAR_DIRECTORY, .name = "name/", .link = "", .mode = 0755 };
	uint8_t head[TAR_HEADER_MAX];
	struct tar_reader *r = calloc(1, sizeof(*r));
	unsigned sum = 0;

	CHECK_INT(tar_header(&e, head), TAR_BLOCK);
	memset(head + 257, 0, 8);
	head[156] = '0';
	memcpy(head + 108, "0001750\0" "0001751\0", 16);
	memset(head + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += head[i];
	sprintf((char *)head + 148, "%06o", sum);
	CHECK_INT(feed(head, TAR_BLOCK, r), TAR_ENTRY);
	CHECK_INT(r->entry.type, TAR_DIRECTORY);
	CHECK_INT(r->entry.uid, 01750);
	CHECK_INT(r->entry.gid, 01751);
	CHECK(!tar_may_end(r));
	tar_reader_fini(r);
	free(r);
}

TEST(names_too_long_are_not_written)
{
	char name[TAR_NAME_MAX + 2];
	struct tar_entry e = { .type = TAR_FILE, .name = name, .link = "" };
	uint8_t head[TAR_HEADER_MAX];

	memset(name, 'a', sizeof(name));
	name[TAR_NAME_MAX + 1] = '\0';
	CHECK_INT(tar_header(&e, head), 0);
	name[TAR_NAME_MAX] = '\0';
	CHECK(tar_header(&e, head) > 0);
}

TEST(names_that_lead_out)
{
	static const struct { const char *name, *clean; } t[] = {
		{ "a", "a" }, { "./a//b/", "a/b" }, { "./", "" }, { ".", "" }, { "a/./b", "a/b" }, { "...", "..." },
		{ "a/..b", "a/..b" }, { "..", NULL }, { "../x", NULL }, { "a/../b", NULL }, { "a/..", NULL },
		{ "/etc/passwd", NULL }, { "./../x", NULL }, { "//x", NULL }, { "a/../../x", NULL },
	};
	char buf[64];

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		strcpy(buf, t[i].name);
		CHECK_INT(put_clean_name(buf), t[i].clean != NULL);
		if (t[i].clean)
			CHECK_STR(buf, t[i].clean);
	}
}

TEST(links_that_lead_out)
{
	static const struct { const char *rel, *target; bool leaves; } t[] = {
		{ "l", "a", false }, { "l", "..", true }, { "a/l", "..", false }, { "a/l", "../..", true },
		{ "a/b/l", "../../c", false }, { "a/b/l", "../../../c", true }, { "l", "/etc", true },
		{ "l", "a/../..", true }, { "a/l", "./../b/../c", false }, { "l", "", false }, { "l", "...", false },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		CHECK_INT(put_link_leaves(t[i].rel, t[i].target), t[i].leaves);
}

TEST_MAIN()
