/* SPDX-License-Identifier: MIT */
#include "daemon/command/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/quota.h"
#include "proto/base/rng.h"
#include "tests/lib/test.h"

/* Calls that change or read a file, counted; the test dies at one of them. */
enum dies { DIES_BEFORE, DIES_HALFWAY, DIES_AFTER, DIES_N };

static unsigned writes, reads, dies_at;
static enum dies dies;

ssize_t __real_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __real_pread64(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at);
int __real_ftruncate64(int fd, off_t size);
int __wrap_ftruncate64(int fd, off_t size);
int __real_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n);

static void die(enum dies now)
{
	if (writes == dies_at && now == dies)
		kill(getpid(), SIGKILL);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at)
{
	ssize_t r;

	writes++;
	die(DIES_BEFORE);
	if (writes == dies_at && dies == DIES_HALFWAY) { /* what is less than a page is written or not */
		size_t page = 4096 - (size_t)at % 4096;
		struct iovec part = { v[0].iov_base, page };

		if (v[0].iov_len > page)
			CHECK(__real_pwritev64(fd, &part, 1, at) == (ssize_t)page);
		die(DIES_HALFWAY);
	}
	r = __real_pwritev64(fd, v, n, at);
	die(DIES_AFTER);
	return r;
}

ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at)
{
	reads++;
	return __real_pread64(fd, p, n, at);
}

int __wrap_ftruncate64(int fd, off_t size)
{
	int r;

	writes++;
	die(DIES_BEFORE);
	r = __real_ftruncate64(fd, size);
	die(DIES_HALFWAY);
	die(DIES_AFTER);
	return r;
}

int __wrap_fallocate64(int fd, int mode, off_t at, off_t n)
{
	int r;

	writes++;
	die(DIES_BEFORE);
	r = __real_fallocate64(fd, mode, at, n);
	die(DIES_HALFWAY);
	die(DIES_AFTER);
	return r;
}

static struct spool_dir *tmp_dir(void)
{
	char path[] = "/tmp/spool-XXXXXX";
	struct spool_dir *d = malloc(sizeof(*d));

	CHECK(d && mkdtemp(path));
	spool_dir_init(d, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 4);
	CHECK(d->fd >= 0);
	return d;
}

static void drop_dir(struct spool_dir *d)
{
	char link[64], path[128];
	ssize_t n;

	CHECK(!d->n_open && list_is_empty(&d->open));
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->fd);
	n = readlink(link, path, sizeof(path) - 1);
	CHECK(n > 0);
	path[n] = 0;
	CHECK_INT(rmdir(path), 0);	/* fails if a spool left its file */
	close(d->fd);
	free(d);
}

/* A pass of the loop in which this came. */
static int add(struct spool *s, enum spool_stream stream, const void *p, size_t n, int64_t now_ms)
{
	int e = spool_append(s, stream, p, n, now_ms), f = spool_flush(s);

	return e ? e : f;
}

TEST(streams_keep_their_order_and_offsets)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	struct spool *s;
	struct spool_pos pos;
	struct spool_piece p;
	uint64_t from[SPOOL_STREAMS] = { 0 };
	char buf[100];
	struct spool_dir *dir = tmp_dir();

	CHECK_INT(spool_new(dir, "c1", 1000, &uid, &all, &s), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "out1", 4, 1), 0);
	CHECK_INT(add(s, SPOOL_STDERR, "err", 3, 1), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "out2", 4, 1), 0);
	spool_seek(s, from, &pos);
	CHECK_INT(spool_ahead(s, &pos), 11);
	CHECK_INT(spool_read(s, &pos, buf, 3, &p), 1);
	CHECK(p.stream == SPOOL_STDOUT && p.offset == 0 && p.size == 3 && !memcmp(p.data, "out", 3));
	CHECK_INT(spool_ahead(s, &pos), 8);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.offset == 3 && p.size == 1);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.stream == SPOOL_STDERR && p.offset == 0 && p.size == 3);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.stream == SPOOL_STDOUT && p.offset == 4 && p.size == 4);
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "!", 1, 1), 0);	/* joins the last record */
	CHECK_INT(spool_read(s, &pos, buf, 99, &p), 1);
	CHECK(p.offset == 8 && p.size == 1 && p.data[0] == '!');
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

static void check_since(struct spool *s, int64_t since_ms, const uint64_t from[SPOOL_STREAMS], const char *expected)
{
	struct spool_pos pos;
	struct spool_piece p;
	char buf[100], text[200] = "";

	spool_seek_since(s, since_ms, from, &pos);
	while (spool_read(s, &pos, buf, sizeof(buf), &p) == 1) {
		size_t n = strlen(text);

		if (p.gap)
			snprintf(text + n, sizeof(text) - n, "-%d", (int)p.size);
		else
			snprintf(text + n, sizeof(text) - n, "%d%.*s", (int)p.stream, (int)p.size, (const char *)p.data);
	}
	CHECK_STR(text, expected);
}

TEST(a_reader_begins_at_a_time)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	static const uint64_t none[SPOOL_STREAMS];
	struct spool_dir *dir = tmp_dir();
	struct spool *s;

	CHECK_INT(spool_new(dir, "c1", 1000, &uid, &all, &s), 0);
	check_since(s, 0, none, "");
	CHECK_INT(add(s, SPOOL_STDOUT, "a", 1, 10000), 0);
	CHECK_INT(add(s, SPOOL_STDERR, "b", 1, 10000), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "c", 1, 20000), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "d", 1, 20900), 0);	/* joins c, whose time is 20000 */
	check_since(s, 0, none, "1a2b1cd");
	check_since(s, 11000, none, "1a2b1cd");
	check_since(s, 11001, none, "1cd");
	check_since(s, 20900, none, "1cd");
	check_since(s, 21001, none, "");
	check_since(s, 11001, (uint64_t[SPOOL_STREAMS]){ [SPOOL_STDOUT] = 2 }, "1d");
	check_since(s, 0, (uint64_t[SPOOL_STREAMS]){ [SPOOL_STDERR] = 1 }, "1a1cd");
	CHECK_INT(spool_gap(s, SPOOL_STDOUT, SPOOL_REATTACHED, 30000), 0);
	check_since(s, 30000, none, "-0");
	for (int i = 0; i < 20; i++)	/* nothing older is left: what was dropped may belong to it */
		CHECK_INT(add(s, i % 2 ? SPOOL_STDOUT : SPOOL_STDERR, "xxxxxxxxxx", 10, 40000), 0);
	CHECK(spool_first(s, SPOOL_STDOUT) > 0);
	check_since(s, 40000, (uint64_t[SPOOL_STREAMS]){ [SPOOL_STDOUT] = 94, [SPOOL_STDERR] = 81 },
		    "2xxxxxxxxxx2xxxxxxxxxx1xxxxxxxxx");
#define X "xxxxxxxxxx"
	check_since(s, 40000, none, "-331" X "-412" X "1" X "2" X "1" X "2" X "1" X "2" X "1" X "2" X "1" X "2" X "1" X);
#undef X
	spool_free(s);
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
	struct spool_dir *dir = tmp_dir();

	CHECK_INT(spool_new(dir, "c2", 1000, &uid, &all, &s), 0);
	spool_seek(s, from, &pos);
	spool_seek_end(s, &live);
	for (int i = 0; i < 100; i++) {
		memset(buf, 'a' + i % 26, 90);
		CHECK_INT(add(s, i % 2 ? SPOOL_STDERR : SPOOL_STDOUT, buf, 90, 1), 0);
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
	struct spool_quota uid = { 0, 3 * SPOOL_RECORD_COST + 10 }, all = { 0, 1 << 20 };
	struct spool *s;
	struct spool_pos pos;
	struct spool_piece p;
	uint64_t from[SPOOL_STREAMS] = { 0 };
	char buf[64];
	struct spool_dir *dir = tmp_dir();

	CHECK_INT(spool_new(dir, "c3", 1000, &uid, &all, &s), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "ab", 2, 1), 0);
	CHECK_INT(spool_gap(s, SPOOL_STDOUT, SPOOL_REATTACHED, 1), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "cd", 2, 1), 0);
	CHECK(!spool_is_whole(s));
	spool_seek(s, from, &pos);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.size == 2);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && !p.size_known && p.offset == 2);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.offset == 2 && p.size == 2);
	uid.max = SPOOL_RECORD_COST + 10;
	CHECK_INT(add(s, SPOOL_STDOUT, "0123456789abcdef", 16, 1), -ENOSPC);
	CHECK_INT(add(s, SPOOL_STDOUT, "0123456789abcdef", 16, 1), 0);	/* said once */
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && p.size_known && p.offset == 4 && p.size == 32);
	CHECK_STR(p.reason, "no_space");
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "x", 1, 1), 0);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.offset == 36 && p.size == 1);
	spool_free(s);
	drop_dir(dir);
}

/* Each death of the daemon adds one: a reader that goes on from there is told of the place once, and not of each. */
TEST(gaps_at_one_place_are_one)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	uint64_t from[SPOOL_STREAMS] = { [SPOOL_STDOUT] = 2 };
	struct spool_dir *dir = tmp_dir();
	struct spool_pos pos;
	struct spool_piece p;
	struct spool *s;
	char buf[64];

	CHECK_INT(spool_new(dir, "c4", 1000, &uid, &all, &s), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "ab", 2, 1), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(spool_gap(s, SPOOL_STDOUT, SPOOL_REATTACHED, 1), 0);
		CHECK_INT(spool_gap(s, SPOOL_STDERR, SPOOL_REATTACHED, 1), 0);
		spool_close(s);
		CHECK_INT(spool_open(dir, "c4", 1000, &uid, &all, &s), 0);
	}
	CHECK_INT(add(s, SPOOL_STDERR, "e", 1, 1), 0);
	CHECK_INT(spool_gap(s, SPOOL_STDERR, SPOOL_REATTACHED, 1), 0);
	CHECK_INT(spool_gap(s, SPOOL_STDOUT, SPOOL_REATTACHED, 1), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "cd", 2, 1), 0);
	CHECK_INT(spool_gap(s, SPOOL_STDOUT, SPOOL_REATTACHED, 1), 0);
	spool_seek(s, from, &pos);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && p.stream == SPOOL_STDOUT && p.offset == 2);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && p.stream == SPOOL_STDERR && p.offset == 0);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.stream == SPOOL_STDERR);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && p.stream == SPOOL_STDERR && p.offset == 1);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(!p.gap && p.stream == SPOOL_STDOUT && p.size == 2);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 1);
	CHECK(p.gap && p.stream == SPOOL_STDOUT && p.offset == 4);
	CHECK_INT(spool_read(s, &pos, buf, 64, &p), 0);
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
	struct spool_dir *dir = tmp_dir();

	rng_seed(&rng, 42);
	CHECK_INT(spool_new(dir, "c4", 20000, &uid, &all, &s), 0);
	spool_seek(s, from, &pos);
	for (int i = 0; i < 2000; i++) {
		unsigned st = 1 + (unsigned)rng_below(&rng, 2);
		size_t n = 1 + (size_t)rng_below(&rng, 400);

		for (size_t k = 0; k < n; k++)
			out[st][n_out[st] + k] = (char)rng_below(&rng, 256);
		CHECK_INT(add(s, (enum spool_stream)st, out[st] + n_out[st], n, 1), 0);
		n_out[st] += n;
		while (rng_below(&rng, 3) &&
		       spool_read(s, &pos, buf, 1 + (size_t)rng_below(&rng, 999), &p) == 1)
			CHECK(p.gap || !memcmp(p.data, out[p.stream] + p.offset, p.size));
	}
	spool_free(s);
	drop_dir(dir);
}

/* --- the file --- */

/* Every byte is told by its stream and offset. */
static uint8_t byte_at(unsigned stream, uint64_t offset)
{
	return (uint8_t)((offset * 2654435761u >> 7) + offset / 251 + stream);
}

static void put(struct spool *s, struct rng *rng, uint64_t n[SPOOL_STREAMS], int64_t now)
{
	static uint8_t buf[3000];
	unsigned st = 1 + (unsigned)rng_below(rng, 3);
	size_t k = 1 + (size_t)rng_below(rng, sizeof(buf));

	if (!rng_below(rng, 12)) {
		CHECK_INT(spool_gap(s, (enum spool_stream)st, SPOOL_REATTACHED, now), 0);
		return;
	}
	for (size_t i = 0; i < k; i++)
		buf[i] = byte_at(st, n[st] + i);
	CHECK_INT(add(s, (enum spool_stream)st, buf, k, now), 0);
	n[st] += k;
}

/* Every piece in order, of the right bytes, holes said: where each stream ends then. */
static void read_all(struct spool *s, uint64_t ret[SPOOL_STREAMS])
{
	static uint8_t buf[5000];
	uint64_t from[SPOOL_STREAMS] = { 0 };
	struct spool_pos pos;
	struct spool_piece p;
	int r;

	memset(ret, 0, SPOOL_STREAMS * sizeof(*ret));
	spool_seek(s, from, &pos);
	while ((r = spool_read(s, &pos, buf, sizeof(buf), &p)) == 1) {
		CHECK_INT(p.offset, ret[p.stream]);
		for (uint64_t i = 0; !p.gap && i < p.size; i++)
			CHECK(p.data[i] == byte_at(p.stream, p.offset + i));
		ret[p.stream] += p.size;
	}
	CHECK_INT(r, 0);
	CHECK_INT(spool_ahead(s, &pos), 0);
	for (unsigned i = SPOOL_STDOUT; i < SPOOL_STREAMS; i++)
		CHECK_INT(ret[i], spool_end(s, (enum spool_stream)i));
}

TEST(a_closed_spool_opens_as_it_was)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	uint64_t n[SPOOL_STREAMS] = { 0 }, got[SPOOL_STREAMS];
	struct spool_dir *dir = tmp_dir();
	struct spool *s;
	struct rng rng;

	rng_seed(&rng, 7);
	CHECK_INT(spool_open(dir, "c5", 100000, &uid, &all, &s), 0); /* there is none yet */
	for (int i = 0; i < 1500; i++) {
		put(s, &rng, n, 1000 + i * 100);
		if (i % 50)
			continue;
		read_all(s, got);
		s = spool_close(s);
		CHECK_INT(uid.used, 0);
		CHECK_INT(spool_open(dir, "c5", 100000, &uid, &all, &s), 0);
		CHECK(spool_used(s) <= 100000 && spool_used(s) == uid.used);
		for (unsigned st = 1; st < SPOOL_STREAMS; st++)
			CHECK_INT(spool_end(s, (enum spool_stream)st), n[st]);
		read_all(s, got);
	}
	CHECK(!spool_is_whole(s));
	CHECK(spool_last_ms(s) > 1000 + 1400 * 100);
	spool_clear(s);
	CHECK_INT(spool_used(s), 0);
	read_all(s, got); /* a gap for each stream */
	CHECK_INT(got[1], n[1]);
	spool_close(s);
	CHECK_INT(spool_open(dir, "c5", 100000, &uid, &all, &s), 0);
	CHECK_INT(spool_end(s, SPOOL_PTY), n[3]);
	spool_free(s);
	drop_dir(dir);
}

TEST(dropped_bytes_leave_the_disk)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	uint64_t n[SPOOL_STREAMS] = { 0 }, got[SPOOL_STREAMS];
	struct spool_dir *dir = tmp_dir();
	struct spool *s;
	struct stat st;
	struct rng rng;

	rng_seed(&rng, 8);
	CHECK_INT(spool_new(dir, "c6", 300000, &uid, &all, &s), 0);
	while (n[1] + n[2] + n[3] < 5000000)
		put(s, &rng, n, 5000);
	CHECK_INT(fstatat(dir->fd, "c6", &st, 0), 0);
	CHECK(st.st_size > 5000000 && st.st_blocks * 512 < 1000000);
	read_all(s, got);
	spool_free(s);
	drop_dir(dir);
}

static void copy_prefix(struct spool_dir *dir, const uint8_t *p, size_t n, size_t junk)
{
	int fd = openat(dir->fd, "cut", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint8_t noise[200] = { (uint8_t)~p[n], 0x55, 1 };	/* never what stood there: a sum of moments may be any byte */

	CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n && write(fd, noise, junk) == (ssize_t)junk);
	close(fd);
}

TEST(cut_at_every_byte)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	uint64_t got[SPOOL_STREAMS], before = 0;
	struct spool_dir *dir = tmp_dir();
	int fd;
	static uint8_t file[8192];
	struct spool *s;
	ssize_t size;

	CHECK_INT(spool_new(dir, "c7", 100000, &uid, &all, &s), 0);
	for (unsigned i = 0; i < 12; i++) {
		uint8_t b[150];
		unsigned st = 1 + i % 2;

		for (size_t k = 0; k < sizeof(b); k++)
			b[k] = byte_at(st, spool_end(s, (enum spool_stream)st) + k);
		CHECK_INT(add(s, (enum spool_stream)st, b, sizeof(b) - i, 1), 0);
	}
	fd = openat(dir->fd, "c7", O_RDONLY | O_CLOEXEC);
	size = read(fd, file, sizeof(file));
	CHECK(size > 1000);
	close(fd);
	spool_free(s);
	for (size_t cut = 0; cut <= (size_t)size; cut++) {
		copy_prefix(dir, file, cut, cut % 3 ? 0 : cut % 200);
		if (!cut) { /* made and nothing more: there was nothing */
			CHECK_INT(spool_open(dir, "cut", 100000, &uid, &all, &s), 0);
			CHECK_INT(spool_end(s, SPOOL_STDOUT), 0);
			spool_free(s);
			continue;
		}
		if (cut < SPOOL_RECORD_COST) {
			CHECK_INT(spool_open(dir, "cut", 100000, &uid, &all, &s), -EBADMSG);
			continue;
		}
		CHECK_INT(spool_open(dir, "cut", 100000, &uid, &all, &s), 0);
		if (cut % 3 == 1) { /* without the junk: exactly what was there */
			read_all(s, got);
			CHECK(got[1] + got[2] >= before);
			before = got[1] + got[2];
		}
		for (unsigned i = 0; i < 2; i++) { /* it goes on where it was cut */
			uint8_t b = byte_at(1, spool_end(s, SPOOL_STDOUT));

			CHECK_INT(add(s, SPOOL_STDOUT, &b, 1, 1), 0);
		}
		s = spool_close(s);
		CHECK_INT(spool_open(dir, "cut", 100000, &uid, &all, &s), 0);
		if (cut % 3 == 1)
			read_all(s, got);
		s = spool_close(s);
	}
	CHECK(before > 1500);
	CHECK_INT(unlinkat(dir->fd, "cut", 0), 0);
	CHECK_INT(uid.used, 0);
	drop_dir(dir);
}

/* A kill anywhere: a child writes and tells what it wrote before it goes on, and is killed. */
TEST(killed_at_random_moments)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	struct spool_dir *dir = tmp_dir();

	for (unsigned round = 0; round < 12; round++) {
		uint64_t told[SPOOL_STREAMS] = { 0 }, got[SPOOL_STREAMS];
		int told_fds[2];
		struct spool *s;
		struct rng rng;
		pid_t pid;

		CHECK_INT(pipe(told_fds), 0);
		rng_seed(&rng, round);
		pid = fork();
		if (!pid) {
			uint64_t n[SPOOL_STREAMS] = { 0 };

			for (int i = 0; !spool_open(dir, "kill", 200000, &uid, &all, &s); i++) {
				for (unsigned k = 0; k < 300; k++) {
					put(s, &rng, n, i * 400);
					if (write(told_fds[1], n, sizeof(n)) != sizeof(n))
						_exit(1);
				}
				s = spool_close(s);
			}
			_exit(1);
		}
		close(told_fds[1]);
		for (unsigned k = 0; k < 1 + round * 37; k++)
			CHECK(read(told_fds[0], told, sizeof(told)) == sizeof(told));
		kill(pid, SIGKILL);
		CHECK(waitpid(pid, NULL, 0) == pid);
		while (read(told_fds[0], told, sizeof(told)) == sizeof(told))
			;
		close(told_fds[0]);
		CHECK_INT(spool_open(dir, "kill", 200000, &uid, &all, &s), 0);
		read_all(s, got);
		for (unsigned st = 1; st < SPOOL_STREAMS; st++)
			CHECK(got[st] >= told[st]);
		spool_free(s);
	}
	drop_dir(dir);
}

/* What a pass of the loop brings, then a reader at the end who says how far it has come. */
static void kill_child(struct spool_dir *dir, uint64_t limit, int told)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	uint64_t n[SPOOL_STREAMS] = { 0 }, from[SPOOL_STREAMS] = { 0 };
	static uint8_t buf[9000];
	struct spool_pos pos;
	struct spool_piece p;
	struct spool *s;
	struct rng rng;

	rng_seed(&rng, 5);
	CHECK_INT(spool_new(dir, "every", limit, &uid, &all, &s), 0);
	spool_seek(s, from, &pos);
	for (unsigned pass = 0; pass < 40; pass++) {
		for (unsigned k = 1 + (unsigned)rng_below(&rng, 5); k; k--) {
			unsigned st = 1 + (unsigned)rng_below(&rng, 2);
			size_t size = 1 + (size_t)rng_below(&rng, rng_below(&rng, 3) ? 60 : sizeof(buf));

			for (size_t i = 0; i < size; i++)
				buf[i] = byte_at(st, n[st] + i);
			CHECK_INT(spool_append(s, (enum spool_stream)st, buf, size, pass * 300), 0);
			n[st] += size;
		}
		CHECK_INT(spool_flush(s), 0);
		while (spool_read(s, &pos, buf, sizeof(buf), &p) == 1)
			CHECK(!p.gap);
		spool_settle(s);
		CHECK(write(told, pos.seen, sizeof(pos.seen)) == sizeof(pos.seen));
	}
	spool_close(s);
	_exit(0);
}

/* True: it was killed. `told`: how far its reader had come. */
static bool run_killed(struct spool_dir *dir, uint64_t limit, uint64_t told[SPOOL_STREAMS])
{
	uint64_t seen[SPOOL_STREAMS];
	int fds[2], wstatus;
	pid_t pid;

	CHECK_INT(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		writes = 0;
		kill_child(dir, limit, fds[1]);
	}
	close(fds[1]);
	while (read(fds[0], seen, sizeof(seen)) == sizeof(seen))
		memcpy(told, seen, sizeof(seen));
	close(fds[0]);
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	CHECK(WIFSIGNALED(wstatus) ? WTERMSIG(wstatus) == SIGKILL : !WEXITSTATUS(wstatus));
	return WIFSIGNALED(wstatus);
}

/* Every byte that a reader saw is there; with `whole`, none of them was dropped. */
static void check_seen(struct spool_dir *dir, uint64_t limit, const uint64_t told[SPOOL_STREAMS], bool whole)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	uint64_t from[SPOOL_STREAMS] = { 0 }, got[SPOOL_STREAMS];
	static uint8_t buf[5000];
	struct spool_piece p;
	struct spool_pos pos;
	struct spool *s;

	CHECK_INT(spool_open(dir, "every", limit, &uid, &all, &s), 0);
	read_all(s, got);
	for (unsigned st = 1; st < SPOOL_STREAMS; st++)
		CHECK(got[st] >= told[st]);
	spool_seek(s, from, &pos);
	while (whole && spool_read(s, &pos, buf, sizeof(buf), &p) == 1)
		CHECK(!p.gap || p.offset >= told[p.stream]);
	spool_free(s);
}

/* HOUSE 2.9: at each of its writes, before, in the middle and after it. */
TEST(killed_at_every_write)
{
	static const uint64_t limits[] = { 1 << 24, 40000 };
	struct spool_dir *dir = tmp_dir();

	for (unsigned i = 0; i < ARRAY_SIZE(limits); i++) {
		for (dies = DIES_BEFORE; dies < DIES_N; dies++) {
			uint64_t told[SPOOL_STREAMS] = { 0 };

			for (dies_at = 1; run_killed(dir, limits[i], told); dies_at++) {
				check_seen(dir, limits[i], told, !i);
				memset(told, 0, sizeof(told));
			}
			CHECK(dies_at > 40);
			check_seen(dir, limits[i], told, !i);
		}
	}
	dies_at = 0;
	drop_dir(dir);
}

/* HOUSE 2.9: a pass costs one write, one more where the record before it grows, and a reader at the end no read. */
TEST(a_pass_costs_one_write)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	struct spool_dir *dir = tmp_dir();
	uint64_t from[SPOOL_STREAMS] = { 0 };
	struct spool_pos pos;
	struct spool_piece p;
	struct spool *s;
	char buf[4000];

	CHECK_INT(spool_new(dir, "pass", 1 << 20, &uid, &all, &s), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "first", 5, 1), 0);
	spool_seek(s, from, &pos);
	CHECK_INT(spool_read(s, &pos, buf, sizeof(buf), &p), 1);
	writes = reads = 0;
	for (int i = 0; i < 200; i++) {
		CHECK_INT(spool_append(s, i % 3 ? SPOOL_STDOUT : SPOOL_STDERR, "0123456789", 10, 2), 0);
		CHECK_INT(spool_read(s, &pos, buf, sizeof(buf), &p), 0);	/* not before it is in the file */
		CHECK_INT(spool_end(s, SPOOL_STDOUT), 5);
	}
	CHECK_INT(writes, 0);
	CHECK_INT(spool_ahead(s, &pos), 2000);
	CHECK_INT(spool_flush(s), 0);
	CHECK_INT(writes, 1);	/* standard error came first: a new record */
	for (size_t n = 0; n < 2000; n += p.size) {
		CHECK_INT(spool_read(s, &pos, buf, sizeof(buf), &p), 1);
		CHECK(!p.gap && p.size % 10 == 0 && p.data != (uint8_t *)buf);
		for (size_t i = 0; i < p.size; i++)
			CHECK(p.data[i] == '0' + (uint8_t)(i % 10));
	}
	CHECK_INT(add(s, SPOOL_STDOUT, "more", 4, 3), 0);
	CHECK_INT(writes, 3);	/* it grows the last one: bytes, then its head */
	CHECK_INT(spool_read(s, &pos, buf, sizeof(buf), &p), 1);
	CHECK(p.size == 4 && !memcmp(p.data, "more", 4));
	CHECK_INT(reads, 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "late", 4, 4), 0);
	spool_settle(s);	/* from now on it is in the file alone */
	CHECK_INT(spool_read(s, &pos, buf, sizeof(buf), &p), 1);
	CHECK(p.size == 4 && !memcmp(p.data, "late", 4) && reads == 1);
	spool_free(s);
	CHECK_INT(uid.used, 0);
	drop_dir(dir);
}

TEST(what_was_not_written_yet)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	struct spool_dir *dir = tmp_dir();
	struct spool *s;

	CHECK_INT(spool_new(dir, "late", 1000, &uid, &all, &s), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "abc", 3, 1), 0);
	spool_free(s);				/* leaves no file */
	CHECK_INT(uid.used, 0);
	CHECK_INT(spool_new(dir, "late", 1000, &uid, &all, &s), 0);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "abc", 3, 1), 0);
	CHECK_INT(spool_gap(s, SPOOL_STDOUT, SPOOL_REATTACHED, 1), 0);	/* behind it */
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "de", 2, 1), 0);
	spool_close(s);				/* writes it */
	CHECK_INT(spool_open(dir, "late", 1000, &uid, &all, &s), 0);
	CHECK_INT(spool_end(s, SPOOL_STDOUT), 5);
	CHECK_INT(spool_append(s, SPOOL_STDOUT, "fg", 2, 1), 0);
	spool_clear(s);
	CHECK_INT(spool_end(s, SPOOL_STDOUT), 7);
	CHECK_INT(spool_used(s), 0);
	spool_free(s);
	drop_dir(dir);
}

static unsigned open_files(void)
{
	char path[32];
	unsigned n = 0;

	for (int fd = 0; fd < 200; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n += !access(path, F_OK);
	}
	return n;
}

/* C-10: many spools, few descriptors; and all of them taken by others. */
TEST(few_files_are_open_at_once)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	struct rlimit back, few;
	struct spool_dir *dir = tmp_dir();
	unsigned before = open_files();
	uint64_t got[SPOOL_STREAMS];
	struct spool *s[50];
	char name[8];

	for (unsigned i = 0; i < ARRAY_SIZE(s); i++) {
		snprintf(name, sizeof(name), "m%u", i);
		CHECK_INT(spool_new(dir, name, 1000, &uid, &all, &s[i]), 0);
	}
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(s); i++) {
			uint8_t b = byte_at(1, round);

			CHECK_INT(add(s[i], SPOOL_STDOUT, &b, 1, round), 0);
			spool_settle(s[i]);
			CHECK(dir->n_open <= 4 && open_files() <= before + 4);
		}
	}
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &back), 0);
	few = (struct rlimit){ before + 4, back.rlim_max };
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
	dir->max_open = 40;	/* more than there are: the oldest of ours gives way */
	for (unsigned i = 0; i < ARRAY_SIZE(s); i++) {
		read_all(s[i], got);
		CHECK_INT(got[1], 3);
		if (i % 2)
			spool_rest(s[i]);
	}
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &back), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(s); i++)
		spool_free(s[i]);
	CHECK_INT(open_files(), before);
	drop_dir(dir);
}

TEST(counts_of_the_input_are_kept)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	struct spool_input i = { 7, 12 };
	struct spool_dir *dir = tmp_dir();
	struct spool *s;

	CHECK_INT(spool_new(dir, "c8", 1000, &uid, &all, &s), 0);
	CHECK_INT(spool_set_input(s, &i), 0);	/* before any output */
	spool_close(s);
	CHECK_INT(spool_open(dir, "c8", 1000, &uid, &all, &s), 0);
	spool_get_input(s, &i);
	CHECK(i.accepted == 7 && i.sent == 12 && spool_end(s, SPOOL_STDOUT) == 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "abc", 3, 1), 0);
	i = (struct spool_input){ 12, 12 };
	CHECK_INT(spool_set_input(s, &i), 0);
	spool_close(s);
	CHECK_INT(spool_open(dir, "c8", 1000, &uid, &all, &s), 0);
	spool_get_input(s, &i);
	CHECK(i.accepted == 12 && spool_end(s, SPOOL_STDOUT) == 3);
	spool_free(s);
	drop_dir(dir);
}

TEST(foreign_files_are_refused)
{
	struct spool_quota uid = { 0, 1 << 30 }, all = { 0, 1 << 30 };
	struct spool_dir *dir = tmp_dir();
	struct spool *s;

	CHECK_INT(symlinkat("/etc/passwd", dir->fd, "link"), 0);
	CHECK_INT(spool_open(dir, "link", 1000, &uid, &all, &s), -EBADMSG);
	CHECK_INT(mkfifoat(dir->fd, "fifo", 0600), 0);
	CHECK_INT(spool_open(dir, "fifo", 1000, &uid, &all, &s), -EBADMSG);
	CHECK_INT(unlinkat(dir->fd, "link", 0), 0);
	CHECK_INT(unlinkat(dir->fd, "fifo", 0), 0);
	drop_dir(dir);
}

TEST(a_reader_that_keeps_up_loses_nothing_to_a_full_disk)
{
	struct rlimit small = { 8192, RLIM_INFINITY }, back;
	struct spool_quota uid = { 0, 1 << 22 }, all = { 0, 1 << 22 };
	struct spool *s;
	struct spool_pos pos, late;
	struct spool_piece p;
	uint64_t from[SPOOL_STREAMS] = { 0 }, got = 0, lost = 0;
	static char in[30000], buf[65536];
	struct spool_dir *dir = tmp_dir();

	CHECK_INT(getrlimit(RLIMIT_FSIZE, &back), 0);
	signal(SIGXFSZ, SIG_IGN);
	memset(in, 'x', sizeof(in));
	CHECK_INT(spool_new(dir, "full", 1 << 20, &uid, &all, &s), 0);
	spool_seek(s, from, &pos);
	late = pos;
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 40; i++) {
		CHECK(spool_room_behind(s, &pos) >= sizeof(in));
		CHECK_INT(add(s, SPOOL_STDOUT, in, sizeof(in), 1), 0);
		while (spool_read(s, &pos, buf, sizeof(buf), &p) == 1) {
			CHECK(!p.gap);
			CHECK(!memcmp(p.data, in, MIN(p.size, sizeof(in))));
			got += p.size;
		}
		CHECK(spool_used(s) <= 140 * 1024);
	}
	CHECK(spool_is_held(s));
	CHECK_INT(got, 40 * sizeof(in));
	CHECK(spool_is_whole(s));
	/* One that comes late has the end, and a gap for the rest. */
	for (got = 0; spool_read(s, &late, buf, sizeof(buf), &p) == 1;) {
		if (p.gap)
			lost += p.size;
		else
			got += p.size;
	}
	CHECK_INT(got + lost, 40 * sizeof(in));
	CHECK(got >= sizeof(in) && got <= 128 * 1024);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &back), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, in, 10, 2), 0);
	CHECK(!spool_is_held(s));
	spool_free(s);
	CHECK_INT(uid.used, 0);
	drop_dir(dir);
}

/* What came in one pass finds its place piece by piece. */
TEST(a_pass_that_the_disk_does_not_take)
{
	struct rlimit small = { 3000, RLIM_INFINITY }, back;
	struct spool_quota uid = { 0, 1 << 22 }, all = { 0, 1 << 22 };
	uint64_t n[SPOOL_STREAMS] = { 0 }, got[SPOOL_STREAMS];
	struct spool_dir *dir = tmp_dir();
	struct spool *s;
	uint8_t b[400];

	CHECK_INT(getrlimit(RLIMIT_FSIZE, &back), 0);
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(spool_new(dir, "part", 1 << 20, &uid, &all, &s), 0);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (unsigned pass = 0; pass < 3; pass++) {
		for (unsigned i = 0; i < 9; i++) {
			unsigned st = 1 + i / 3 % 2;

			for (size_t k = 0; k < sizeof(b); k++)
				b[k] = byte_at(st, n[st] + k);
			CHECK_INT(spool_append(s, (enum spool_stream)st, b, sizeof(b), 1 + pass), 0);
			n[st] += sizeof(b);
		}
		CHECK_INT(spool_flush(s), 0);
		read_all(s, got);
		CHECK(got[1] == n[1] && got[2] == n[2]);
		CHECK_INT(spool_used(s), uid.used);
	}
	CHECK(spool_is_held(s) && spool_is_whole(s));
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &back), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, &(uint8_t){ byte_at(1, n[1]) }, 1, 5), 0);
	CHECK(!spool_is_held(s));
	read_all(s, got);
	CHECK_INT(got[1], n[1] + 1);
	spool_close(s);
	CHECK_INT(spool_open(dir, "part", 1 << 20, &uid, &all, &s), 0);
	CHECK(!spool_is_whole(s) && spool_end(s, SPOOL_STDOUT) == n[1] + 1);	/* the hole is told */
	spool_free(s);
	CHECK_INT(uid.used, 0);
	drop_dir(dir);
}

/* --- memory (JUDGED G-3: what a program prints costs the daemon's memory no more than its uid may have) --- */

static struct quota *memory_of(uint64_t max)
{
	struct quota *q = quota_new(&(struct quota_options){ .name = "outputs", .max = max });

	CHECK(q);
	return q;
}

static uint64_t count_pieces(struct spool *s, uint64_t *ret_gaps)
{
	uint64_t from[SPOOL_STREAMS] = { 0 }, n = 0;
	struct spool_piece p;
	struct spool_pos pos;
	char buf[100];

	*ret_gaps = 0;
	spool_seek(s, from, &pos);
	while (spool_read(s, &pos, buf, sizeof(buf), &p) == 1)
		*(p.gap ? ret_gaps : &n) += p.size;
	return n;
}

/* Each byte is a record, since the streams take turns. The oldest go, as at the limit. */
TEST(an_index_takes_what_its_uid_may_have)
{
	struct quota *q = memory_of(64 * 1024);
	struct spool_quota uid = { 0, 1 << 30, q }, all = { 0, 1 << 30, NULL };
	struct spool_dir *dir = tmp_dir();
	struct spool *s, *other;
	uint64_t n, gaps;

	CHECK_INT(spool_new(dir, "index", 1 << 30, &uid, &all, &s), 0);
	for (int i = 0; i < 5000; i++) {
		CHECK_INT(add(s, i % 2 ? SPOOL_STDOUT : SPOOL_STDERR, "x", 1, i), 0);
		CHECK(quota_used(q) <= quota_max(q));
	}
	n = count_pieces(s, &gaps);
	CHECK(n > 500 && n < 5000);
	CHECK_INT(n + gaps, 5000);
	CHECK_INT(spool_new(dir, "other", 1 << 30, &uid, &all, &other), 0);
	for (int i = 0; i < 100; i++)	/* one that comes late has the least */
		CHECK_INT(add(other, i % 2 ? SPOOL_STDOUT : SPOOL_STDERR, "x", 1, i), 0);
	CHECK(count_pieces(other, &gaps) >= 16);
	spool_free(other);
	spool_close(s);
	CHECK_INT(quota_used(q), 0);
	quota_add(q, 50 * 1024);
	CHECK_INT(spool_open(dir, "index", 1 << 30, &uid, &all, &s), 0);
	CHECK(quota_used(q) <= quota_max(q));
	CHECK(count_pieces(s, &gaps) < n);
	quota_give(q, 50 * 1024);
	spool_clear(s);
	CHECK_INT(quota_used(q), 0);
	CHECK_INT(add(s, SPOOL_STDOUT, "y", 1, 5000), 0);
	CHECK_INT(count_pieces(s, &gaps), 1);
	spool_free(s);
	CHECK(!uid.used && quota_is_idle(q));
	quota_unref(q);
	drop_dir(dir);
}

TEST(what_a_full_disk_does_not_take_is_charged)
{
	struct rlimit small = { 4096, RLIM_INFINITY }, back;
	struct quota *q = memory_of(40 * 1024);
	struct spool_quota uid = { 0, 1 << 30, q }, all = { 0, 1 << 30, NULL };
	struct spool_dir *dir = tmp_dir();
	static char in[10000];
	struct spool *s;
	uint64_t n, gaps;

	CHECK_INT(getrlimit(RLIMIT_FSIZE, &back), 0);
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(spool_new(dir, "held", 1 << 30, &uid, &all, &s), 0);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 20; i++) {
		int r = add(s, SPOOL_STDOUT, in, sizeof(in), i);

		CHECK(r == 0 || r == -ENOSPC);
		CHECK(quota_used(q) <= quota_max(q));
	}
	n = count_pieces(s, &gaps);
	CHECK(n >= 30000 && n + gaps == 200000);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &back), 0);
	spool_free(s);
	CHECK(quota_is_idle(q));
	quota_unref(q);
	drop_dir(dir);
}

TEST_MAIN()
