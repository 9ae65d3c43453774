/* SPDX-License-Identifier: MIT */
/* STATE/sent: what a later run may believe of it, and what it may not. */
#include "daemon/store/sent.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "proto/base/fd.h"
#include "tests/lib/test.h"

#define HOST "abcdefghijklmnop"
#define BOOT "6f1c4a0e-0000-4000-8000-000000000001"

static char dir[64];
static int dir_fd;

static void dir_make(void)
{
	snprintf(dir, sizeof(dir), "/tmp/ab-sent-XXXXXX");
	CHECK(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(dir_fd >= 0);
	log_setup(LOG_LEVEL_ERROR);
}

static void dir_drop(void)
{
	unlinkat(dir_fd, SENT_FILE, 0);
	dir_fd = fd_close(dir_fd);
	CHECK_INT(rmdir(dir), 0);
}

/* A run that writes these numbers (0 ends them), as its predecessor's heir; what it could find before is in *s. */
static void run(struct sent *s, uint64_t next, uint64_t a, uint64_t b)
{
	sent_open(s, dir_fd, HOST, BOOT, true, next);
	if (a)
		CHECK_INT(sent_put(s, a, 1000 + a, next), 0);
	if (b)
		CHECK_INT(sent_put(s, b, 1000 + b, next), 0);
}

static enum sent_known find(const struct sent *s, uint64_t seq)
{
	uint64_t at_ms = 0;
	enum sent_known k = sent_find(s, seq, &at_ms);

	if (k == SENT_MAYBE)
		CHECK_INT(at_ms, 1000 + seq);
	return k;
}

TEST(later_runs_know_what_was_sent)
{
	struct sent s;

	dir_make();
	run(&s, 100, 101, 103);
	sent_close(&s);
	run(&s, 200, 201, 0);
	CHECK_INT(find(&s, 101), SENT_MAYBE);
	CHECK_INT(find(&s, 102), SENT_NEVER);
	CHECK_INT(find(&s, 103), SENT_MAYBE);
	CHECK_INT(find(&s, 99), SENT_UNKNOWN);		/* of before the file */
	sent_forget(&s);
	CHECK_INT(find(&s, 102), SENT_UNKNOWN);
	sent_close(&s);
	run(&s, 300, 0, 0);
	CHECK_INT(find(&s, 101), SENT_MAYBE);
	CHECK_INT(find(&s, 201), SENT_MAYBE);
	CHECK_INT(find(&s, 202), SENT_NEVER);
	sent_close(&s);
	dir_drop();
}

TEST(of_another_boot_host_or_state_it_proves_nothing)
{
	static const struct {
		const char *host, *boot;
		bool trusted;
	} cases[] = {
		{ HOST, "6f1c4a0e-0000-4000-8000-000000000002", true },	/* after a power failure records may be missing */
		{ HOST, "", true },
		{ "another-host-000", BOOT, true },
		{ HOST, BOOT, false },					/* rows of an earlier state */
	};
	struct sent s;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		dir_make();
		run(&s, 100, 101, 0);
		sent_close(&s);
		sent_open(&s, dir_fd, cases[i].host, cases[i].boot, cases[i].trusted, 200);
		CHECK_INT(find(&s, 101), SENT_UNKNOWN);
		CHECK_INT(find(&s, 102), SENT_UNKNOWN);
		sent_close(&s);
		/* Nor do later runs find the old one again. */
		run(&s, 300, 0, 0);
		CHECK(find(&s, 102) == SENT_UNKNOWN);
		sent_close(&s);
		dir_drop();
	}
}

TEST(a_missing_or_broken_file_proves_nothing)
{
	struct sent s;
	int fd;

	for (int i = 0; i < 3; i++) {
		dir_make();
		run(&s, 100, 101, 0);
		sent_close(&s);
		fd = openat(dir_fd, SENT_FILE, O_WRONLY | O_CLOEXEC);
		if (i == 0)
			CHECK_INT(unlinkat(dir_fd, SENT_FILE, 0), 0);
		else if (i == 1)
			CHECK_INT(ftruncate(fd, 20), 0);
		else
			CHECK_INT(pwrite(fd, "x", 1, 0), 1);
		fd_close(fd);
		run(&s, 200, 0, 0);
		CHECK_INT(find(&s, 101), SENT_UNKNOWN);
		CHECK_INT(find(&s, 102), SENT_UNKNOWN);
		sent_close(&s);
		dir_drop();
	}
}

TEST(a_full_file_begins_anew)
{
	struct sent s;

	dir_make();
	run(&s, 1, 0, 0);
	for (uint64_t i = 1; i <= SENT_RECORDS_MAX; i++)
		CHECK_INT(sent_put(&s, i, 1000 + i, i + 1), 0);
	CHECK_INT(sent_put(&s, 70000, 71000, 70001), 0);
	sent_close(&s);
	run(&s, 80000, 0, 0);
	CHECK_INT(find(&s, 5), SENT_UNKNOWN);
	CHECK_INT(find(&s, 70000), SENT_MAYBE);		/* of before its base, and known all the same */
	CHECK_INT(find(&s, 70001), SENT_NEVER);
	sent_close(&s);
	dir_drop();
}

/* Where a record cannot be written the file may not go on to say "never". */
TEST(a_record_that_is_not_written_voids_the_file)
{
	struct rlimit old, full;
	struct sent s;

	dir_make();
	run(&s, 100, 101, 0);
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
	full = old;
	full.rlim_cur = sizeof(struct sent_head) + sizeof(struct sent_record);
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &full), 0);
	CHECK_INT(sent_put(&s, 102, 1102, 103), 0);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
	sent_close(&s);
	run(&s, 200, 0, 0);
	CHECK_INT(find(&s, 102), SENT_UNKNOWN);
	sent_close(&s);
	dir_drop();
}

/* Neither written nor voided: it is not sent. */
TEST(a_file_that_cannot_be_made_refuses)
{
	struct sent s;

	dir_make();
	CHECK_INT(mkdirat(dir_fd, SENT_FILE, 0700), 0);
	sent_open(&s, dir_fd, HOST, BOOT, true, 100);
	CHECK(sent_put(&s, 101, 1101, 102) < 0);
	sent_close(&s);
	CHECK_INT(unlinkat(dir_fd, SENT_FILE, AT_REMOVEDIR), 0);
	dir_drop();
}

TEST_MAIN()
