/* SPDX-License-Identifier: MIT */
/* D-3: the log never waits, and never changes the flags of a stderr that other programs share. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "tests/lib/test.h"

#define LINES	 2	/* at most LOG_LINES_PER_S of all tests together */
#define LIMIT_S	 20	/* a write that waits ends the test by SIGALRM */

static int real_stderr = -1;

static void stderr_is(int fd)
{
	if (real_stderr < 0)
		real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	CHECK(real_stderr >= 0);
	CHECK_INT(dup2(fd, STDERR_FILENO), STDERR_FILENO);
}

static void stderr_is_back(void)
{
	CHECK_INT(dup2(real_stderr, STDERR_FILENO), STDERR_FILENO);
}

static void log_lines(void)
{
	for (int i = 0; i < LINES; i++)
		log_info("event_of_test", "i=%d", i);
}

static ssize_t put_block(int own, int fd, size_t n)
{
	static const char block[4096];

	return own >= 0 ? write(own, block, n) : send(fd, block, n, MSG_DONTWAIT);
}

/* Fills what is behind fd to the last byte, by a description of our own or by calls that do not wait. */
static void fill(int fd)
{
	char path[64];
	int own;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	for (size_t n = 4096; n; n /= 4096)
		while (put_block(own, fd, n) > 0)
			;
	if (own >= 0)
		close(own);
}

static size_t drain(int fd, char *ret, size_t size)
{
	ssize_t n;
	size_t all = 0;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (all < size - 1 && (n = read(fd, ret + all, size - 1 - all)) > 0)
		all += (size_t)n;
	ret[all] = 0;
	return all;
}

/* Lines arrive; a full one loses them, and says so with the next that arrives; flags stay as they were. */
static void check_sink(int to, int from)
{
	static char text[1 << 20];
	int flags = fcntl(to, F_GETFL), flags_after, flags_full;
	size_t n, n_full;

	alarm(LIMIT_S);
	stderr_is(to);
	log_setup(LOG_LEVEL_INFO);
	log_lines();
	flags_after = fcntl(to, F_GETFL);
	n = drain(from, text, sizeof(text));
	fill(to);
	log_lines();
	flags_full = fcntl(to, F_GETFL);
	n_full = drain(from, text + n + 1, sizeof(text) - n - 1);
	log_lines();
	drain(from, text + n + n_full + 2, sizeof(text) - n - n_full - 2);
	stderr_is_back();
	alarm(0);
	CHECK(!(flags & O_NONBLOCK));
	CHECK_INT(flags_after, flags);
	CHECK_INT(flags_full, flags);
	CHECK(strstr(text, "event_of_test i=0\n") && strstr(text, "event_of_test i=1\n"));
	CHECK(!memmem(text + n + 1, n_full, "event_of_test", strlen("event_of_test")));
	CHECK(strstr(text + n + n_full + 2, "log_lost lines=2\n"));
	CHECK(strstr(text + n + n_full + 2, "event_of_test i=1\n"));
}

TEST(a_pipe_keeps_its_flags)
{
	int fds[2];

	CHECK_INT(pipe(fds), 0);
	check_sink(fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
}

TEST(a_socket_keeps_its_flags)
{
	int fds[2];

	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	check_sink(fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
}

/* As where stderr's file cannot be opened once more. */
TEST(a_full_pipe_is_asked_first)
{
	char text[256];
	int fds[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	CHECK_INT(pipe(fds), 0);
	stderr_is(null);
	log_setup(LOG_LEVEL_INFO);	/* no pipe: what comes next is not opened again */
	stderr_is(fds[1]);
	fill(fds[1]);
	alarm(LIMIT_S);
	log_lines();
	alarm(0);
	stderr_is_back();
	CHECK(!(fcntl(fds[1], F_GETFL) & O_NONBLOCK));
	CHECK(drain(fds[0], text, sizeof(text)) > 0);
	close(null);
	close(fds[0]);
	close(fds[1]);
}

static void on_slave(int to, int from)
{
	char text[4096];
	int flags = fcntl(to, F_GETFL), after;

	stderr_is(to);
	log_setup(LOG_LEVEL_INFO);
	log_lines();
	after = fcntl(to, F_GETFL);
	stderr_is_back();
	CHECK_INT(after, flags);
	drain(from, text, sizeof(text));
	CHECK(strstr(text, "event_of_test i=1"));
}

TEST(a_terminal_keeps_its_flags)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave;

	CHECK(master >= 0);
	CHECK_INT(grantpt(master), 0);
	CHECK_INT(unlockpt(master), 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	CHECK(slave >= 0);
	on_slave(slave, master);
	close(slave);
	close(master);
}

TEST_MAIN()
