/* SPDX-License-Identifier: MIT */
#include "daemon/command/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/rng.h"
#include "tests/lib/test.h"

static int tmp_dir(void)
{
	char path[] = "/tmp/spool-XXXXXX";
	int fd;

	CHECK(mkdtemp(path));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static void drop_dir(int fd)
{
	char link[64], path[128];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	CHECK(n > 0);
	path[n] = 0;
	CHECK_INT(rmdir(path), 0);	/* fails if a spool left its file */
	close(fd);
}

TEST(streams_keep_their_order_and_offsets)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	struct spool *s;
	struct spool_pos pos;
	struct spool_piece p;
	uint64_t from[SPOOL_STREAMS] = { 0 };
	char buf[100];
	int dir = tmp_dir();

	CHECK_INT(spool_new(dir, "c1", 1000, &uid, &all, &s), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "out1", 4), 0);
	CHECK_INT(spool_append(s, SPOOL_STDERR, "err", 3), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "out2", 4), 0);
	spool_seek(s, from, &pos);
	CHECK_INT(spool_ahead(s, &pos), 11);
	CHECK_INT(spool_read(s, &pos, buf, 3, &p), 1);
	CHECK(p.stream == SPOOL_STDOUT && p.offset == 0 && p.size == 3 && !memcmp(buf, "out", 3));
	CHECK_INT(spool_ahead(s, &pos), 8);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.offset == 3 && p.size == 1);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.stream == SPOOL_STDERR && p.offset == 0 && p.size == 3);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.stream == SPOOL_STDOUT && p.offset == 4 && p.size == 4);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "!", 1), 0);	/* joins the last record */
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.offset == 8 && p.size == 1 && buf[0] == '!');
	from[SPOOL_STDOUT] = 6;
	spool_seek(s, from, &pos);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.stream == SPOOL_STDERR);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.stream == SPOOL_STDOUT && p.offset == 6 && p.size == 3);
	CHECK(spool_is_whole(s));
	spool_free(s);
	CHECK_INT(uid.used, 0);
	CHECK_INT(all.used, 0);
	drop_dir(dir);
}

TEST(a_reader_behind_the_oldest_byte_gets_one_gap)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	struct spool *s;
	struct spool_pos pos, live;
	struct spool_piece p;
	uint64_t from[SPOOL_STREAMS] = { 0 }, got = 0;
	char buf[4096];
	int dir = tmp_dir();

	CHECK_INT(spool_new(dir, "c2", 1000, &uid, &all, &s), 0);
	spool_seek(s, from, &pos);
	spool_seek_end(s, &live);
	for (int i = 0; i < 100; i++) {
		memset(buf, 'a' + i % 26, 90);
		CHECK_INT(spool_append(s, i % 2 ? SPOOL_STDERR : SPOOL_STDOUT, buf, 90), 0);
		CHECK(spool_used(s) <= 1000);
		while (spool_read(s, &live, buf, sizeof(buf), &p) == 1) {
			CHECK(!p.gap);
			got += p.size;
		}
	}
	CHECK_INT(got, 9000);
	CHECK_INT(spool_end(s, SPOOL_STDOUT), 4500);
	got = 0;
	for (int gaps = 0; spool_read(s, &pos, buf, sizeof(buf), &p) == 1;) {
		if (p.gap) {
			CHECK(++gaps <= 2 && p.size_known && p.offset == 0);
			CHECK_STR(p.reason, "overflow");
		}
		got += p.size;
	}
	CHECK_INT(got, 9000);
	CHECK(spool_is_whole(s));	/* nothing was lost to a reader that kept up */
	spool_free(s);
	drop_dir(dir);
}

TEST(unknown_holes_and_full_quotas_are_said)
{
	struct spool_quota uid = { 0, 10 }, all = { 0, 1 << 20 };
	struct spool *s;
	struct spool_pos pos;
	struct spool_piece p;
	uint64_t from[SPOOL_STREAMS] = { 0 };
	char buf[64];
	int dir = tmp_dir();

	CHECK_INT(spool_new(dir, "c3", 1000, &uid, &all, &s), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "ab", 2), 0);
	CHECK_INT(spool_gap(s, SPOOL_STDOUT, "reattached"), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "cd", 2), 0);
	CHECK(!spool_is_whole(s));
	spool_seek(s, from, &pos);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.size == 2);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && !p.size_known && p.offset == 2);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.offset == 2 && p.size == 2);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "0123456789abcdef", 16), -ENOSPC);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "0123456789abcdef", 16), 0);	/* said once */
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && p.size_known && p.offset == 4 && p.size == 32);
	CHECK_STR(p.reason, "no_space");
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "x", 1), 0);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.offset == 36 && p.size == 1);
	spool_free(s);
	drop_dir(dir);
}

TEST(random_traffic_against_a_plain_copy)
{
	static char out[3][1 << 20];
	struct spool_quota uid = { 0, 1 << 22 }, all = { 0, 1 << 22 };
	size_t n_out[3] = { 0 };
	struct spool *s;
	struct spool_pos pos;
	struct spool_piece p;
	uint64_t from[SPOOL_STREAMS] = { 0 };
	struct rng rng;
	static char buf[5000];
	int dir = tmp_dir();

	rng_seed(&rng, 42);
	CHECK_INT(spool_new(dir, "c4", 20000, &uid, &all, &s), 0);
	spool_seek(s, from, &pos);
	for (int i = 0; i < 2000; i++) {
		unsigned st = 1 + (unsigned)rng_below(&rng, 2);
		size_t n = 1 + (size_t)rng_below(&rng, 400);

		for (size_t k = 0; k < n; k++)
			out[st][n_out[st] + k] = (char)rng_below(&rng, 256);
		CHECK_INT(spool_append(s, (enum spool_stream)st, out[st] + n_out[st], n), 0);
		n_out[st] += n;
		while (rng_below(&rng, 3) &&
		       spool_read(s, &pos, buf, 1 + (size_t)rng_below(&rng, 999), &p) == 1)
			CHECK(p.gap || !memcmp(buf, out[p.stream] + p.offset, p.size));
	}
	spool_free(s);
	drop_dir(dir);
}

TEST_MAIN()
