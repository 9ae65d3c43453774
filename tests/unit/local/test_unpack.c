/* SPDX-License-Identifier: MIT */
/* The bounds of what is unpacked: they hold for what an archive says and for what it turns out to be. */
#include "daemon/local/engine/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define ENOUGH (8u << 20)	/* for any limit of these tests */

/* An archive that goes on with zeros. */
struct endless {
	struct tarball_source s;
	uint8_t head[8 * TAR_BLOCK];
	size_t n, at;
	uint64_t read;
};

static ssize_t read_endless(struct tarball_source *s, void *p, size_t n)
{
	struct endless *e = container_of(s, struct endless, s);
	size_t k = MIN(n, e->n - e->at);

	if (e->read > ENOUGH)
		return 0;
	memcpy(p, e->head + e->at, k);
	memset((char *)p + k, 0, n - k);
	e->at += k;
	e->read += n;
	return (ssize_t)n;
}

static void add_header(struct endless *e, const char *name, uint64_t size)
{
	uint8_t b[TAR_BLOCK] = { 0 };
	unsigned sum = 0;

	snprintf((char *)b, 100, "%s", name);
	snprintf((char *)b + 100, 8, "0000644");
	snprintf((char *)b + 124, 12, "%011llo", (unsigned long long)size);
	memset(b + 148, ' ', 8);
	b[156] = '0';
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += b[i];
	snprintf((char *)b + 148, 8, "%06o", sum);
	memcpy(e->head + e->n, b, sizeof(b));
	e->n += sizeof(b);
}

static int unpack_with(struct endless *e, struct unpack_limits limits, bool whiteouts, char why[UNPACK_WHY_MAX])
{
	char dir[] = "/tmp/agentbox-unpack-XXXXXX";
	struct unpack *u;
	int fd, r;

	CHECK(mkdtemp(dir) != NULL);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(unpack_new(fd, true, &limits, &u), 0);
	r = whiteouts ? unpack_whiteouts(u, &e->s) : unpack_files(u, &e->s, false);
	str_copy(why, UNPACK_WHY_MAX, unpack_why(u));
	unpack_free(u);
	fd_close(fd);
	CHECK_INT(rmtree(AT_FDCWD, dir), 0);
	return r;
}

TEST(what_it_says)
{
	struct endless e = { .s = { read_endless } };
	char why[UNPACK_WHY_MAX];

	add_header(&e, "big", 1 << 20);
	CHECK_INT(unpack_with(&e, (struct unpack_limits){ 65536, 10 }, false, why), -EFBIG);
	CHECK_STR(why, "\"big\": is more than may be unpacked");
	CHECK(e.read <= 65536);
}

TEST(what_it_turns_out_to_be)
{
	for (int whiteouts = 0; whiteouts < 2; whiteouts++) {
		struct endless e = { .s = { read_endless } };
		char why[UNPACK_WHY_MAX];

		add_header(&e, whiteouts ? ".wh.x" : "x", 0);
		CHECK_INT(unpack_with(&e, (struct unpack_limits){ 1 << 20, 10 }, whiteouts, why), -EFBIG);
		CHECK_STR(why, "\"all of it\": is more than may be unpacked");
		CHECK(e.read <= 2 << 20);
	}
}

TEST(many_entries)
{
	struct endless e = { .s = { read_endless } };
	char why[UNPACK_WHY_MAX];

	for (int i = 0; i < 3; i++)
		add_header(&e, "x", 0);
	CHECK_INT(unpack_with(&e, (struct unpack_limits){ 1 << 20, 2 }, false, why), -EFBIG);
	CHECK_STR(why, "\"x\": there are too many entries");
}

TEST(names)
{
	static const struct {
		const char *name, *clean;	/* NULL: refused */
	} cases[] = {
		{ "a/b", "a/b" },     { "/a//./b/", "a/b" }, { "./", "" },   { "/", "" },	{ "..", NULL },
		{ "a/../b", NULL },   { "a/..", NULL },	     { "..a/b..", "..a/b.." }, { "...", "..." }, { ".a/.", ".a" },
	};
	char clean[TAR_NAME_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool ok = unpack_clean_name(cases[i].name, clean);

		CHECK_INT(ok, cases[i].clean != NULL);
		if (ok)
			CHECK_STR(clean, cases[i].clean);
	}
}
TEST_MAIN()
