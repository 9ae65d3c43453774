/* SPDX-License-Identifier: MIT */
/* Any bytes as a spool file: opened, read to the end, written on, opened again. What it holds may be
 * anything, but the counts never go back, nothing is charged twice, and a second look sees the same. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/command/spool_file.h"
#include "proto/base/must.h"

#define LIMIT 5000u

static int folder = -1;
static char folder_path[] = "/dev/shm/fuzz-spool-XXXXXX";	/* on a disk most of the time is its own */

static void remove_folder(void)
{
	(void)unlinkat(folder, "f", 0);
	(void)rmdir(folder_path);
}

static void write_file(const uint8_t *p, size_t n)
{
	int fd = openat(folder, "f", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	close(fd);
}

static void read_all(struct spool *s)
{
	uint64_t from[SPOOL_STREAMS] = { 0 };
	struct spool_piece p;
	struct spool_pos pos;
	static uint8_t buf[700];
	uint64_t at[SPOOL_STREAMS] = { 0 };
	int r;

	spool_seek(s, from, &pos);
	while ((r = spool_read(s, &pos, buf, sizeof(buf), &p)) == 1) {
		must(p.stream >= SPOOL_STDOUT && p.stream < SPOOL_STREAMS && p.offset == at[p.stream]);
		must(p.gap || p.size <= sizeof(buf));
		at[p.stream] += p.size;
	}
	must(r == 0);
	for (unsigned i = SPOOL_STDOUT; i < SPOOL_STREAMS; i++)
		must(at[i] == spool_end(s, (enum spool_stream)i));
}

/* Small inputs say only the values; the sums are put in, or nothing would get past them. */
static size_t build(const uint8_t *p, size_t n, uint8_t *out, size_t max)
{
	struct spool_head h = { .nonce = 9, .first_at = SPOOL_FIRST_AT };
	size_t at = SPOOL_FIRST_AT;

	spool_head_put(&h, out);
	memset(out + SPOOL_INPUT_AT, 0, SPOOL_HEAD_BYTES);
	while (n >= 8 && at + 400 < max) {
		struct spool_record r = { .offset = p[0] | (uint64_t)p[1] << 8 | (uint64_t)(p[2] & 128) << 40,
					  .size = p[3] | (uint64_t)(p[2] & 64) << 30, .time_ms = p[4],
					  .stream = p[5] & 3, .reason = p[6] & 7, .size_known = p[6] & 8 };
		size_t k = p[7];

		spool_record_put(&r, h.nonce, out + at);
		memset(out + at + SPOOL_HEAD_BYTES, p[3], k);
		at = (size_t)spool_align(at + SPOOL_HEAD_BYTES + k);
		p += 8;
		n -= 8;
	}
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct spool_quota uid = { 0, 1 << 20 }, all = { 0, 1 << 20 };
	static uint8_t built[1 << 16];
	struct spool_dir dir;
	uint64_t end;
	struct spool *s;

	if (folder < 0) {
		must(mkdtemp(folder_path));
		folder = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		(void)atexit(remove_folder);
	}
	if (n && p[0] % 4)
		write_file(built, build(p + 1, n - 1, built, sizeof(built)));
	else
		write_file(p, n);
	spool_dir_init(&dir, folder, 1);
	if (spool_open(&dir, "f", LIMIT, &uid, &all, &s) < 0) {
		must(!uid.used && !all.used);
		return 0;
	}
	must(spool_used(s) <= LIMIT && uid.used == spool_used(s));
	read_all(s);
	end = spool_end(s, SPOOL_STDERR);
	must(spool_append(s, SPOOL_STDERR, "more", 4, 1 << 20) == 0 && spool_end(s, SPOOL_STDERR) == end);
	must(spool_flush(s) == 0 && spool_end(s, SPOOL_STDERR) == end + 4);
	read_all(s);
	spool_close(s);
	must(!uid.used);
	must(spool_open(&dir, "f", LIMIT, &uid, &all, &s) == 0);
	must(spool_end(s, SPOOL_STDERR) == end + 4);
	read_all(s);
	spool_close(s);
	return 0;
}
