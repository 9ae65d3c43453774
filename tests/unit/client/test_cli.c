/* SPDX-License-Identifier: MIT */
/* agentboxctl as a process, against the scripted daemon of fake.h: what goes where, and how it ends. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "proto/base/str.h"
#include "tests/lib/test.h"
#include "tests/unit/client/fake.h"

#define WORDS_MAX 16
#ifdef __SANITIZE_ADDRESS__
#define HWM_MAX_KIB UINT64_MAX	/* the sanitizer's own memory counts too */
#else
#define HWM_MAX_KIB 32768u
#endif

struct proc {
	pid_t pid;
	int out, err;		/* ends to read from */
};

struct output {
	char *text;
	size_t n;
};

/* in_fd -1: nothing to read. */
static void start(struct proc *p, const struct fake *f, int in_fd, const char *first, ...)
{
	const char *argv[WORDS_MAX] = { "agentboxctl", "-s", f->path, "--wait", "1s", first };
	int out[2], err[2], n = 6;
	va_list ap;

	va_start(ap, first);
	while ((argv[n] = va_arg(ap, const char *)))
		CHECK(++n < WORDS_MAX);
	va_end(ap);
	CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
	fflush(NULL);
	p->pid = fork();
	CHECK(p->pid >= 0);
	if (p->pid == 0) {
		(void)signal(SIGHUP, SIG_DFL);	/* whoever runs this under nohup handed its own on */
		if (in_fd < 0)
			in_fd = open("/dev/null", O_RDONLY);
		(void)dup2(in_fd, 0);
		(void)dup2(out[1], 1);
		(void)dup2(err[1], 2);
		(void)execv(getenv("AGENTBOXCTL"), (char **)argv);
		_exit(99);
	}
	close(out[1]);
	close(err[1]);
	p->out = out[0];
	p->err = err[0];
}

static void take(int fd, struct output *o)
{
	o->text = malloc(32u << 20);
	o->n = 0;
	CHECK(o->text);
	for (;;) {
		ssize_t n = read(fd, o->text + o->n, (32u << 20) - 1 - o->n);

		CHECK(n >= 0);
		if (!n)
			break;
		o->n += (size_t)n;
	}
	o->text[o->n] = '\0';
	close(fd);
}

/* Exit code, 256 + signal. The output is checked by the caller, who frees it. */
static int end(struct proc *p, struct output *out, struct output *err)
{
	int status;

	take(p->out, out);
	take(p->err, err);
	CHECK(waitpid(p->pid, &status, 0) == p->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void drop(struct output *a, struct output *b)
{
	free(a->text);
	free(b->text);
}

static bool is_flood(const struct output *o, size_t n)
{
	if (o->n != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if ((uint8_t)o->text[i] != fake_byte(i))
			return false;
	return true;
}

#define RUN(f, in, ...) (start(&p, f, in, __VA_ARGS__, NULL), end(&p, &out, &err))

TEST(usage)
{
	struct output out, err;
	struct proc p;
	struct fake f;

	fake_nowhere(&f);
	CHECK_INT(RUN(&f, -1, "frobnicate"), 2);
	CHECK(strstr(err.text, "unknown command 'frobnicate'"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "--frob", "x"), 2);
	CHECK(strstr(err.text, "unknown option --frob") && strchr(err.text, '\n') == err.text + err.n - 1);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "timeout", "x", "--", "-5"), 4);	/* words: no daemon to refuse them */
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "create", "--timeout", "90"), 2);
	CHECK(strstr(err.text, "'90'"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "create", "extra"), 2);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "create", "-m", "novalue"), 2);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "create", "--help"), 0);
	CHECK(strstr(out.text, "usage: agentboxctl create") && strstr(out.text, "--request-id R"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "help", "create"), 0);
	CHECK(strstr(out.text, "usage: agentboxctl create") && strstr(out.text, "--request-id R"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "help", "nonsense"), 2);
	CHECK(strstr(err.text, "unknown command 'nonsense'"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "x", "--wait", "0s"), 4);
	CHECK(strstr(err.text, "(UNREACHABLE)") && strstr(err.text, f.path));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "exec", "--wait=0s", "x", "--", "true"), 125);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "exec", "x", "-u", "root", "true"), 2);
	CHECK(strstr(err.text, "options stand before x"));
	drop(&out, &err);
	fake_stop(&f);
}

/* D-6 */
TEST(mute_daemon_is_told_and_ends_with_4)
{
	static const char *const calls[][3] = { { "ls" }, { "status" }, { "kill", "x" }, { "events" }, { "cat", "x:/f" }, { "ps", "x" },
						{ "hold", "x", "true" }, { "logs", "x" } };
	struct proc ps[ARRAY_SIZE(calls)], p;
	struct output out, err;
	struct fake f;

	fake_start(&f, 0);
	CHECK(kill(f.pid, SIGSTOP) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		start(&ps[i], &f, -1, calls[i][0], calls[i][1], calls[i][2], NULL);
	start(&p, &f, -1, "exec", "x", "true", NULL);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		CHECK_INT(end(&ps[i], &out, &err), 4);
		CHECK(strstr(err.text, f.path) && strstr(err.text, "does not answer") && strstr(err.text, "restart it"));
		drop(&out, &err);
	}
	CHECK_INT(end(&p, &out, &err), 125);	/* 4 might be the command's */
	CHECK(strstr(err.text, "does not answer"));
	drop(&out, &err);
	CHECK(kill(f.pid, SIGCONT) == 0);
	fake_stop(&f);
}

TEST(get)
{
	struct output out, err;
	struct proc p;
	struct fake f;

	fake_start(&f, 0);
	CHECK_INT(RUN(&f, -1, "get", "--json", "one"), 0);
	CHECK(strstr(out.text, "{\"id\":\"one\"") && strstr(out.text, "\"metadata\":{\"k\":\"v\"}"));
	CHECK(strstr(out.text, "\"end_at\":\"2023-11-14T22:13:20.250Z\"") && out.text[out.n - 1] == '\n');
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "a\"b\n\001\xff"), 0);
	CHECK(strstr(out.text, "a\"b??"));		/* nothing reaches a terminal */
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "a\xc2\x9b" "31m"), 0);
	CHECK(strstr(out.text, "a?31m"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "--json", "a\xc2\x9b" "31m"), 0);
	CHECK(strstr(out.text, "\"a\\u009b31m\""));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "--json", "a\"b\\\n\001\xff\xe2\x98\x95"), 0);
	CHECK(strstr(out.text, "\"a\\\"b\\\\\\n\\u0001\\ufffd\xe2\x98\x95\""));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "missing"), 3);
	CHECK(strstr(err.text, "no such sandbox: caf\xc3\xa9 100% (SANDBOX_NOT_FOUND)"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "get", "--json", "missing"), 3);
	CHECK(strstr(err.text, "\"reason\":\"SANDBOX_NOT_FOUND\""));
	drop(&out, &err);
	fake_stop(&f);
}

TEST(exec_output_and_code)
{
	struct output out, err;
	struct proc p;
	struct fake f;

	fake_start(&f, 0);
	CHECK_INT(RUN(&f, -1, "exec", "sb", "--", "flood:3000000"), 7);
	CHECK(is_flood(&out, 3000000));
	CHECK_INT(err.n, 0);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "exec", "sb", "flood:0", "word"), 7);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "exec", "sb"), 2);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "exec", "-it", "sb", "--", "tty"), 125);
	CHECK_STR(err.text, "agentboxctl: exec: terminals are not there yet (FAILED_PRECONDITION)\n");
	drop(&out, &err);
	fake_stop(&f);
}

TEST(closed_descriptors)
{
	const char *words[] = { "agentboxctl", "-s", NULL, "exec", "sb", "--", "flood:100000", NULL };
	struct fake f;
	pid_t pid;
	int status;

	fake_start(&f, 0);
	words[2] = f.path;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {		/* nothing of the output may end up in what is opened next */
		for (int fd = 0; fd < 3; fd++)
			(void)close(fd);
		(void)execv(getenv("AGENTBOXCTL"), (char **)words);
		_exit(99);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 125);
	fake_stop(&f);
}

TEST(exec_that_is_cut)
{
	struct output out, err;
	struct proc p;
	struct fake f;

	fake_start(&f, 0);
	CHECK_INT(RUN(&f, -1, "exec", "--wait", "0s", "sb", "--", "cut:100000"), 126);
	CHECK(is_flood(&out, 100000));
	CHECK(strstr(err.text, "not known"));
	drop(&out, &err);
	fake_stop(&f);
}

static uint64_t vm_hwm_kib(pid_t pid)
{
	char path[64], buf[4096], *at;
	uint64_t kib = 0;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, buf, sizeof(buf) - 1);
	CHECK(n > 0);
	close(fd);
	buf[n] = '\0';
	at = strstr(buf, "VmHWM:");
	CHECK(at);
	at += strcspn(at, "0123456789");
	CHECK(str_u64(at, strspn(at, "0123456789"), UINT64_MAX, &kib) == 0);
	return kib;
}

TEST(exec_with_a_reader_that_stops)
{
	struct output out, err;
	struct proc p;
	struct fake f;
	char head[65536];
	ssize_t n = 0;

	fake_start(&f, 0);
	start(&p, &f, -1, "exec", "sb", "--", "flood:20000000", NULL);
	while (n < (ssize_t)sizeof(head))	/* all is under way, and then nobody reads */
		n += read(p.out, head + n, sizeof(head) - (size_t)n);
	CHECK(vm_hwm_kib(p.pid) > 0 && vm_hwm_kib(p.pid) < HWM_MAX_KIB);
	CHECK_INT(end(&p, &out, &err), 7);
	CHECK_INT(out.n + sizeof(head), 20000000);
	drop(&out, &err);

	start(&p, &f, -1, "exec", "sb", "--", "flood:20000000", NULL);
	CHECK(read(p.out, head, sizeof(head)) > 0);
	close(p.out);				/* as head(1) does */
	p.out = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK_INT(end(&p, &out, &err), 256 + SIGPIPE);
	CHECK_INT(err.n, 0);
	drop(&out, &err);
	fake_stop(&f);
}

TEST(exec_input)
{
	struct output out, err;
	struct proc p;
	struct fake f;
	int in[2], status;
	uint8_t piece[5000];
	pid_t writer;

	fake_start(&f, 0);
	CHECK(pipe2(in, O_CLOEXEC) == 0);
	writer = fork();
	if (writer == 0) {
		for (uint64_t at = 0; at < 2000000; at += sizeof(piece)) {
			for (size_t i = 0; i < sizeof(piece); i++)
				piece[i] = fake_byte(at + i);
			if (write(in[1], piece, sizeof(piece)) != sizeof(piece))
				_exit(1);
		}
		_exit(0);
	}
	close(in[1]);
	CHECK_INT(RUN(&f, in[0], "exec", "-i", "sb", "--", "cat"), 7);
	CHECK_STR(out.text, "2000000");
	CHECK_INT(err.n, 0);
	drop(&out, &err);
	CHECK(waitpid(writer, &status, 0) == writer);
	CHECK_INT(status, 0);

	/* an input that never ends keeps nobody */
	CHECK(pipe2(in, O_CLOEXEC) == 0);
	CHECK_INT(RUN(&f, in[0], "exec", "-i", "sb", "--", "flood:10"), 7);
	drop(&out, &err);
	close(in[0]);
	close(in[1]);
	fake_stop(&f);
}

TEST(exec_signals)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct output out, err;
	struct proc p;
	struct fake f;

	fake_start(&f, 0);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		int in[2];
		char c = 0;

		/* it takes input only once the command runs: then the byte is gone */
		CHECK(pipe2(in, O_CLOEXEC) == 0);
		CHECK(write(in[1], &c, 1) == 1);
		start(&p, &f, in[0], "exec", "-i", "sb", "--", "hang", NULL);
		for (int left = 1; left;)
			CHECK(ioctl(in[0], FIONREAD, &left) == 0);
		CHECK(kill(p.pid, signals[i]) == 0);
		CHECK_INT(end(&p, &out, &err), 128 + signals[i]);
		CHECK_STR(out.text, "bye\n");
		drop(&out, &err);
		close(in[0]);
		close(in[1]);
	}
	fake_stop(&f);
}

static int temp_file(char *path, size_t n)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	for (size_t i = 0; i < n; i++) {
		uint8_t b = fake_byte(i);

		CHECK(write(fd, &b, 1) == 1);
	}
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

static bool is_raw(int fd)
{
	struct termios t;

	CHECK(tcgetattr(fd, &t) == 0);
	return !(t.c_lflag & (ICANON | ECHO | ISIG));
}

TEST(exec_terminal)
{
	struct output out, err;
	struct proc p;
	struct fake f;
	int master, slave;

	fake_start(&f, 0);
	CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0);
	CHECK(!is_raw(slave));
	start(&p, &f, slave, "exec", "-it", "sb", "--", "hang", NULL);
	while (!is_raw(slave))
		CHECK(kill(p.pid, 0) == 0 && sched_yield() == 0);
	CHECK(kill(p.pid, SIGTERM) == 0);
	CHECK_INT(end(&p, &out, &err), 128 + SIGTERM);
	CHECK(!is_raw(slave));			/* as it was */
	drop(&out, &err);

	start(&p, &f, slave, "exec", "-it", "sb", "--", "cut:100", NULL);	/* the daemon dies */
	CHECK_INT(end(&p, &out, &err), 126);
	CHECK(!is_raw(slave));
	drop(&out, &err);
	close(master);
	close(slave);
	fake_stop(&f);
}

TEST(cp_up)
{
	char path[160], to[64] = "sb:ok";
	struct output out, err;
	struct proc p;
	struct fake f;
	int fd;

	fake_start(&f, 0);
	(void)snprintf(path, sizeof(path), "%s/src", f.dir);
	fd = temp_file(path, 300000);
	CHECK_INT(RUN(&f, -1, "cp", "--json", path, to), 0);
	CHECK_STR(out.text, "{\"sandbox\":\"sb\",\"path\":\"ok\",\"bytes\":300000}\n");
	drop(&out, &err);
	CHECK_INT(RUN(&f, fd, "cp", "--json", "-", to), 0);
	CHECK(strstr(out.text, "300000"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", path, "sb:refuse"), 3);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", path, "sb:broken"), 1);
	CHECK(strstr(err.text, "the disk is full"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "/nonexistent", to), 1);
	CHECK(strstr(err.text, "cannot open /nonexistent"));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", f.dir, to), 1);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "a:b", "c:d"), 2);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "./a:b", "/c"), 2);
	drop(&out, &err);
	close(fd);
	(void)unlink(path);
	fake_stop(&f);
}

static void check_file(const char *path, size_t n, mode_t mode)
{
	struct output o;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	CHECK_INT(st.st_mode & 07777, mode);
	take(fd, &o);
	CHECK(is_flood(&o, n));
	free(o.text);
}

TEST(cp_down)
{
	char dir[100], path[160], link[160];
	struct output out, err;
	struct proc p;
	struct fake f;

	fake_start(&f, 0);
	(void)snprintf(dir, sizeof(dir), "%s/d", f.dir);
	(void)snprintf(path, sizeof(path), "%s/x", dir);
	(void)snprintf(link, sizeof(link), "%s/l", dir);
	CHECK(mkdir(dir, 0700) == 0);
	CHECK_INT(RUN(&f, -1, "cp", "sb:size:1000000", path), 0);
	check_file(path, 1000000, 0640 & ~022);
	drop(&out, &err);
	CHECK(chmod(path, 0604) == 0 && symlink(path, link) == 0);
	CHECK_INT(RUN(&f, -1, "cp", "sb:cut:500", link), 1);		/* the old one stays */
	CHECK(strstr(err.text, "TRUNCATED"));
	check_file(path, 1000000, 0604);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "sb:size:5", link), 0);		/* through the link */
	check_file(path, 5, 0604);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "sb:missing", path), 3);
	check_file(path, 5, 0604);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "sb:size:7", "-"), 0);
	CHECK(is_flood(&out, 7));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "sb:size:7", "/dev/null"), 0);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cat", "sb:size:300000"), 0);
	CHECK(is_flood(&out, 300000));
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cat", "sb:missing"), 3);
	CHECK_INT(out.n, 0);
	drop(&out, &err);
	CHECK_INT(RUN(&f, -1, "cp", "sb:size:9", dir), 0);		/* into a directory */
	CHECK(unlink(path) == 0 && unlink(link) == 0);
	(void)snprintf(path, sizeof(path), "%s/size:9", dir);
	check_file(path, 9, 0640 & ~022);
	drop(&out, &err);
	CHECK(unlink(path) == 0 && rmdir(dir) == 0);			/* and nothing else is there */
	fake_stop(&f);
}

/* Reads what the terminal shows until `want` is in it. */
static void shows(int master, const char *want)
{
	char seen[65536];
	size_t n = 0;

	do {
		ssize_t k = read(master, seen + n, sizeof(seen) - 1 - n);

		CHECK(k > 0);
		n += (size_t)k;
		seen[n] = '\0';
	} while (!strstr(seen, want));
}

TEST(cp_progress)
{
	const char *words[] = { "agentboxctl", "-s", NULL, "cp", "sb:size:5000000", NULL, NULL };
	char fifo[160], piece[65536];
	struct fake f;
	int master, slave, fd, status;
	size_t total = 0;
	ssize_t n;
	pid_t pid;

	fake_start(&f, 0);
	(void)snprintf(fifo, sizeof(fifo), "%s/fifo", f.dir);
	CHECK(mkfifo(fifo, 0600) == 0);
	CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0);
	words[2] = f.path;
	words[5] = fifo;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		(void)dup2(slave, 2);
		(void)execv(getenv("AGENTBOXCTL"), (char **)words);
		_exit(99);
	}
	fd = open(fifo, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	shows(master, "%");			/* while nobody reads the file */
	while ((n = read(fd, piece, sizeof(piece))) > 0) {
		for (ssize_t i = 0; i < n; i++)
			CHECK((uint8_t)piece[i] == fake_byte(total + (size_t)i));
		total += (size_t)n;
	}
	CHECK_INT(total, 5000000);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	shows(master, "\r\033[K");		/* and it is wiped */
	close(fd);
	close(master);
	close(slave);
	(void)unlink(fifo);
	fake_stop(&f);
}

TEST_MAIN()
