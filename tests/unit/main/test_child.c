/* SPDX-License-Identifier: MIT */
/* A program that the daemon started, with shells in its part: every way to start, to speak and to end. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/main/child.h"
#include "proto/base/clock.h"
#include "tests/lib/oom.h"
#include "tests/lib/test.h"

#define PATIENCE_MS 20000

/* What the owner of one child sees. */
struct seen {
	struct loop *loop;
	struct children *children;
	struct child *child;
	int done, outputs;
	enum child_end end;
	int number;
	char output[8192];
	size_t n_output;
	bool settle_on_output, stop_on_output, cancel_on_output;
};

static void seen_on_done(const struct child_result *r, void *user)
{
	struct seen *s = user;

	s->done++;
	s->child = NULL;
	s->end = r->end;
	s->number = r->number;
	s->n_output = r->n_output;
	CHECK(r->n_output < sizeof(s->output) && strlen(r->output) <= r->n_output);
	memcpy(s->output, r->output, r->n_output + 1);
}

static void seen_on_output(struct child *c, void *user)
{
	struct seen *s = user;

	s->outputs++;
	if (s->settle_on_output)
		child_settle(c);
	if (s->stop_on_output)
		child_stop(c);
	if (s->cancel_on_output)
		child_cancel(c);
}

static void set_up(struct seen *s)
{
	*s = (struct seen){ .done = 0 };
	CHECK_INT(loop_new(&s->loop), 0);
	CHECK_INT(children_new(s->loop, &s->children), 0);
}

static void tear_down(struct seen *s)
{
	children_free(s->children);
	loop_free(s->loop);
}

static char *shell_argv[4] = { (char *)"sh", (char *)"-c", NULL, NULL };

static struct child_options shell(struct seen *s, const char *script)
{
	shell_argv[2] = (char *)script;
	return (struct child_options){ .name = "fake", .program = "/bin/sh", .argv = shell_argv, .output_fd = STDOUT_FILENO,
				       .output_max = 4096, .kill_after_ms = PATIENCE_MS, .whole_group = true,
				       .on_output = seen_on_output, .done = seen_on_done, .user = s };
}

static void pass_until(struct seen *s, const int *what, int n)
{
	uint64_t end = clock_boot_ms() + PATIENCE_MS;

	while (*what < n) {
		CHECK(clock_boot_ms() < end);
		CHECK_INT(loop_once(s->loop, 100), 0);
	}
}

/* To its end. Some passes more: `done` does not come again. */
static void run_child(struct seen *s, const struct child_options *o)
{
	CHECK_INT(child_start(s->children, o, &s->child), 0);
	CHECK_INT(s->done, 0);
	pass_until(s, &s->done, 1);
	for (int i = 0; i < 3; i++)
		CHECK_INT(loop_once(s->loop, 1), 0);
	CHECK_INT(s->done, 1);
}

static void run_script(struct seen *s, const char *script)
{
	struct child_options o = shell(s, script);

	run_child(s, &o);
}

static bool is_alive(pid_t pid)
{
	return kill(pid, 0) == 0;
}

static void pass_until_gone(struct seen *s, pid_t pid)
{
	uint64_t end = clock_boot_ms() + PATIENCE_MS;

	while (is_alive(pid)) {
		CHECK(clock_boot_ms() < end);
		CHECK_INT(loop_once(s->loop, 20), 0);
	}
}

TEST(what_cannot_be_started_is_said_at_once)
{
	struct child_options o;
	struct child_info info;
	struct seen s;

	set_up(&s);
	o = shell(&s, "true");
	o.program = "/no/such/program";
	CHECK_INT(child_start(s.children, &o, &s.child), -ENOENT);
	o.program = "/etc/passwd";
	CHECK_INT(child_start(s.children, &o, &s.child), -EACCES);
	CHECK(!child_info(s.children, 0, &info));
	CHECK_INT(loop_once(s.loop, 10), 0);
	CHECK_INT(s.done, 0);
	tear_down(&s);
}

TEST(no_descriptor_left_is_said_and_leaves_nothing)
{
	struct rlimit before, none;
	struct child_options o;
	struct child_info info;
	struct seen s;

	set_up(&s);
	o = shell(&s, "true");
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 3;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_INT(child_start(s.children, &o, &s.child), -EMFILE);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &before), 0);
	CHECK(!child_info(s.children, 0, &info));
	tear_down(&s);
}

TEST(memory_that_runs_out_leaves_no_process)
{
	struct seen s;
	unsigned n;
	int r = -ENOMEM;

	set_up(&s);
	for (n = 1; r < 0; n++) {
		struct child_options o = shell(&s, "exec sleep 1000");

		if (!oom_after(n))
			break;
		r = child_start(s.children, &o, &s.child);
		oom_after(0);
		CHECK(r == 0 || r == -ENOMEM);
		if (r == 0)
			child_cancel(s.child);
	}
	CHECK_INT(loop_once(s.loop, 10), 0);
	CHECK_INT(s.done, 0);
	tear_down(&s);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

TEST(it_exits_at_once)
{
	struct seen s;

	set_up(&s);
	run_script(&s, "exit 3");
	CHECK_INT(s.end, CHILD_EXITED);
	CHECK_INT(s.number, 3);
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);	/* it was reaped */
	tear_down(&s);
}

TEST(it_ends_by_a_signal)
{
	struct seen s;

	set_up(&s);
	run_script(&s, "kill -9 $$");
	CHECK_INT(s.end, CHILD_SIGNALLED);
	CHECK_INT(s.number, 9);
	tear_down(&s);
}

TEST(its_last_words_are_read)
{
	struct seen s;

	set_up(&s);
	run_script(&s, "printf hello; exit 0");
	CHECK_INT(s.end, CHILD_EXITED);
	CHECK_STR(s.output, "hello");
	CHECK_INT(s.n_output, 5);
	CHECK_INT(s.outputs, 1);	/* heard before its end, whichever was seen first */
	tear_down(&s);
}

/* It stops itself between its words, so that the second comes when it is let go. */
TEST(it_speaks_in_pieces)
{
	struct child_options o;
	struct seen s;
	pid_t pid;

	set_up(&s);
	o = shell(&s, "printf one; kill -STOP $$; printf two");
	CHECK_INT(child_start(s.children, &o, &s.child), 0);
	pid = child_pid(s.child);
	pass_until(&s, &s.outputs, 1);
	CHECK_STR(child_output(s.child, NULL), "one");
	while (!s.done) {
		(void)kill(pid, SIGCONT);	/* it may not have stopped yet */
		CHECK_INT(loop_once(s.loop, 10), 0);
	}
	CHECK_STR(s.output, "onetwo");
	CHECK_INT(s.end, CHILD_EXITED);
	tear_down(&s);
}

TEST(what_never_answers_is_stopped_at_its_limit)
{
	struct child_options o;
	struct seen s;

	set_up(&s);
	o = shell(&s, "exec sleep 1000");
	o.time_limit_ms = 50;
	run_child(&s, &o);
	CHECK_INT(s.end, CHILD_TIMED_OUT);
	tear_down(&s);
}

static void check_output_of(const char *script, enum child_end want_end, size_t want_n)
{
	struct seen s;

	set_up(&s);
	run_script(&s, script);
	CHECK_INT(s.end, want_end);
	CHECK_INT(s.n_output, want_n);
	tear_down(&s);
}

TEST(what_writes_too_much_is_stopped)
{
	check_output_of("exec cat /dev/zero", CHILD_SAID_TOO_MUCH, 4097);
	check_output_of("head -c 4097 /dev/zero; exit 0", CHILD_SAID_TOO_MUCH, 4097);
	check_output_of("head -c 4096 /dev/zero", CHILD_EXITED, 4096);
	check_output_of("true", CHILD_EXITED, 0);
}

TEST(what_ignores_sigterm_is_killed)
{
	struct child_options o;
	struct seen s;

	set_up(&s);
	o = shell(&s, "trap '' TERM; printf x; while :; do sleep 0.05; done");
	o.kill_after_ms = 200;
	s.stop_on_output = true;
	run_child(&s, &o);
	CHECK_INT(s.end, CHILD_SIGNALLED);
	CHECK_INT(s.number, SIGKILL);
	tear_down(&s);
}

/* SIGTERM is answered in its own time: no SIGKILL cuts that short. */
TEST(what_takes_its_time_to_stop_ends_in_its_own_way)
{
	struct seen s;

	set_up(&s);
	s.stop_on_output = true;
	run_script(&s, "trap 'sleep 0.1; printf bye; exit 5' TERM; printf x; while :; do sleep 0.02; done");
	CHECK_INT(s.end, CHILD_EXITED);
	CHECK_INT(s.number, 5);
	CHECK_STR(s.output, "xbye");
	tear_down(&s);
}

TEST(what_dies_while_it_is_stopped_is_done_once)
{
	struct seen s;

	set_up(&s);
	s.stop_on_output = true;
	run_script(&s, "trap 'kill -9 $$' TERM; printf x; while :; do sleep 0.02; done");
	CHECK_INT(s.end, CHILD_SIGNALLED);
	CHECK_INT(s.number, SIGKILL);
	tear_down(&s);
}

TEST(stopping_twice_and_after_its_death_changes_nothing)
{
	struct child_options o;
	struct seen s;
	siginfo_t si;

	set_up(&s);
	o = shell(&s, "exit 0");
	CHECK_INT(child_start(s.children, &o, &s.child), 0);
	CHECK_INT(waitid(P_PID, (id_t)child_pid(s.child), &si, WEXITED | WNOWAIT), 0);	/* dead, and not reaped */
	child_stop(s.child);
	child_stop(s.child);
	pass_until(&s, &s.done, 1);
	CHECK_INT(s.end, CHILD_EXITED);
	tear_down(&s);
}

TEST(a_settled_one_has_no_limit_and_no_voice)
{
	struct child_options o;
	struct seen s;

	set_up(&s);
	o = shell(&s, "printf ready; trap '' PIPE; sleep 0.3; printf more; exit 4");
	o.time_limit_ms = 200;
	s.settle_on_output = true;
	run_child(&s, &o);
	CHECK_INT(s.end, CHILD_EXITED);
	CHECK_INT(s.number, 4);
	CHECK_STR(s.output, "ready");
	tear_down(&s);
}

TEST(a_cancelled_one_is_killed_and_says_nothing)
{
	struct child_options o;
	struct child_info info;
	struct seen s;
	pid_t pid;

	set_up(&s);
	o = shell(&s, "trap '' TERM; printf x; while :; do sleep 0.05; done");
	CHECK_INT(child_start(s.children, &o, &s.child), 0);
	pid = child_pid(s.child);
	child_cancel(s.child);	/* while it is starting */
	pass_until_gone(&s, pid);
	CHECK_INT(s.done, 0);
	CHECK_INT(s.outputs, 0);
	CHECK(!child_info(s.children, 0, &info));

	s.cancel_on_output = true;
	CHECK_INT(child_start(s.children, &o, &s.child), 0);
	pid = child_pid(s.child);
	pass_until_gone(&s, pid);
	CHECK_INT(s.done, 0);
	child_cancel(NULL);
	tear_down(&s);
}

/* The daemon ends at once: no pass of the loop comes any more. */
TEST(a_cancelled_one_may_outlive_us_by_a_moment)
{
	struct child_options o;
	struct seen s;
	pid_t pid;

	set_up(&s);
	o = shell(&s, "exec sleep 1000");
	CHECK_INT(child_start(s.children, &o, &s.child), 0);
	pid = child_pid(s.child);
	child_cancel(s.child);
	tear_down(&s);
	(void)waitpid(pid, NULL, 0);	/* SIGKILL was sent: this does not take 1000 s */
	CHECK(!is_alive(pid));
}

TEST(a_released_one_lives_on)
{
	struct child_options o;
	struct seen s;
	pid_t pid;

	set_up(&s);
	o = shell(&s, "exec sleep 1000");
	CHECK_INT(child_start(s.children, &o, &s.child), 0);
	pid = child_pid(s.child);
	child_release(s.child);
	tear_down(&s);
	CHECK(is_alive(pid));
	CHECK_INT(kill(pid, SIGKILL), 0);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

/* A background process of a shell that ended goes with it, although it holds the pipe and ignores SIGTERM. */
TEST(what_it_left_behind_is_killed)
{
	struct seen s;
	pid_t left;

	set_up(&s);
	run_script(&s, "(trap '' TERM; exec sleep 1000) & echo $!; exit 0");
	CHECK_INT(s.end, CHILD_EXITED);
	left = (pid_t)strtol(s.output, NULL, 10);
	CHECK(left > 1);
	pass_until_gone(&s, left);
	tear_down(&s);
}

/* … and stays where only the program itself is meant. */
TEST(the_rest_of_a_group_may_be_left_alone)
{
	struct child_options o;
	struct seen s;
	pid_t left;

	set_up(&s);
	o = shell(&s, "sleep 1000 >/dev/null & echo $!; exec sleep 1000");
	o.whole_group = false;
	s.stop_on_output = true;
	run_child(&s, &o);
	left = (pid_t)strtol(s.output, NULL, 10);
	CHECK(left > 1 && is_alive(left));
	CHECK_INT(kill(left, SIGKILL), 0);
	tear_down(&s);
}

TEST(its_environment_is_clean)
{
	static const char *const gone[] = { "NOTIFY_SOCKET=", "LISTEN_FDS=", "LISTEN_PID=", "LISTEN_FDNAMES=", "WATCHDOG_USEC=",
					    "WATCHDOG_PID=", "FDSTORE=" };
	static const char *const kept[] = { "CREDENTIALS_DIRECTORY=/x\n", "NOTIFYNOT=1\n", "MY_LISTEN_FDS=1\n", "PATH=" };
	struct seen s;

	for (size_t i = 0; i < ARRAY_SIZE(gone); i++) {
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(gone[i], "="), gone[i]);
		setenv(name, "3", 1);
	}
	setenv("CREDENTIALS_DIRECTORY", "/x", 1);
	setenv("NOTIFYNOT", "1", 1);
	setenv("MY_LISTEN_FDS", "1", 1);
	set_up(&s);
	run_script(&s, "exec env");
	for (size_t i = 0; i < ARRAY_SIZE(gone); i++) {
		char line[40];

		snprintf(line, sizeof(line), "\n%s", gone[i]);
		CHECK(!strstr(s.output, line) && strncmp(s.output, gone[i], strlen(gone[i])) != 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		CHECK(strstr(s.output, kept[i]));
	CHECK(getenv("NOTIFY_SOCKET"));		/* ours is as it was */
	tear_down(&s);
}

/* Nothing of ours, also what is not marked close-on-exec; the pipe stands where it was asked for. */
static void check_descriptors(int output_fd, const char *want)
{
	int open_one = open("/dev/null", O_RDONLY), high = fcntl(open_one, F_DUPFD, 200);
	struct child_options o;
	struct seen s;
	char script[128];

	CHECK(open_one >= 0 && high >= 200);
	set_up(&s);
	/* ls itself has one open, of the folder; a shell without redirections has no other. */
	snprintf(script, sizeof(script), "exec ls /proc/self/fd >&%d", output_fd);
	o = shell(&s, script);
	o.output_fd = output_fd;
	run_child(&s, &o);
	CHECK_STR(s.output, want);
	close(open_one);
	close(high);
	tear_down(&s);
}

TEST(it_has_no_descriptor_of_ours)
{
	check_descriptors(1, "0\n1\n2\n3\n");
	check_descriptors(3, "0\n1\n2\n3\n4\n");
}

TEST(standard_input_and_output_are_nothing)
{
	struct child_options o;
	struct seen s;

	set_up(&s);
	o = shell(&s, "in=$(readlink /proc/$$/fd/0) out=$(readlink /proc/$$/fd/1); echo $in $out >&3");
	o.output_fd = 3;
	run_child(&s, &o);
	CHECK_STR(s.output, "/dev/null /dev/null\n");
	tear_down(&s);
}

/* A service may have been started without standard descriptors: the pipe would lie where the child's own are put. */
TEST(closed_standard_descriptors_do_no_harm)
{
	struct seen s;
	int in = fcntl(0, F_DUPFD_CLOEXEC, 10), out = fcntl(1, F_DUPFD_CLOEXEC, 10);

	set_up(&s);
	close(0);
	close(1);
	run_script(&s, "printf hello");
	CHECK_INT(dup2(in, 0), 0);
	CHECK_INT(dup2(out, 1), 1);
	CHECK_STR(s.output, "hello");
	close(in);
	close(out);
	tear_down(&s);
}

/* Blocked and ignored signals are inherited by programs; ours must not be. */
TEST(its_signals_are_the_usual_ones)
{
	unsigned long long blocked, ignored;
	sigset_t all, before;
	struct seen s;

	sigfillset(&all);
	CHECK_INT(sigprocmask(SIG_BLOCK, &all, &before), 0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	set_up(&s);
	run_script(&s, "exec grep -E '^Sig(Blk|Ign):' /proc/self/status");
	/* From bit 31 on they are the C library's own. */
	CHECK_INT(sscanf(s.output, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
	CHECK_INT(blocked, 0);
	CHECK_INT(ignored & 0x7fffffff, 0);
	signal(SIGHUP, SIG_DFL);
	CHECK_INT(sigprocmask(SIG_SETMASK, &before, NULL), 0);
	tear_down(&s);
}

TEST(it_has_a_session_of_its_own)
{
	char want[64];
	struct seen s;
	pid_t pid;
	struct child_options o;

	set_up(&s);
	o = shell(&s, "exec cut -d ' ' -f 1,5,6 /proc/self/stat");
	CHECK_INT(child_start(s.children, &o, &s.child), 0);
	pid = child_pid(s.child);
	pass_until(&s, &s.done, 1);
	snprintf(want, sizeof(want), "%d %d %d\n", (int)pid, (int)pid, (int)pid);
	CHECK_STR(s.output, want);
	tear_down(&s);
}

/* Whoever started us ignored SIGCHLD: the kernel would reap our children, and their status would be lost. */
TEST(sigchld_is_not_ignored)
{
	struct seen s;

	signal(SIGCHLD, SIG_IGN);
	set_up(&s);
	run_script(&s, "exit 3");
	CHECK_INT(s.end, CHILD_EXITED);
	CHECK_INT(s.number, 3);
	tear_down(&s);
}

TEST(several_at_once)
{
	struct seen s[8];
	struct child_options o;
	struct child_info info;
	size_t n = 0;

	set_up(&s[0]);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		char script[32];

		if (i) {
			s[i] = s[0];
			s[i].done = 0;
		}
		snprintf(script, sizeof(script), "printf %zu; exit %zu", i, i);
		o = shell(&s[i], script);
		CHECK_INT(child_start(s[0].children, &o, &s[i].child), 0);
	}
	while (child_info(s[0].children, n, &info)) {
		CHECK_STR(info.name, "fake");
		CHECK_STR(info.state, "running");
		CHECK_INT(info.pid, child_pid(s[n].child));
		n++;
	}
	CHECK_INT(n, ARRAY_SIZE(s));
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		pass_until(&s[0], &s[i].done, 1);
		CHECK_INT(s[i].number, i);
		CHECK_INT(s[i].output[0], '0' + (int)i);
	}
	tear_down(&s[0]);
}

/* --- one that somebody else started --- */

static void pipe_end_after(int fd, const char *script)
{
	dup2(fd, STDOUT_FILENO);
	execl("/bin/sh", "sh", "-c", script, (char *)NULL);
	_exit(127);
}

/* A grandchild, which is not ours to wait for. */
static pid_t stranger(const char *script)
{
	int fds[2];
	pid_t pid, ret = 0;

	CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		pid_t inner = fork();

		if (inner == 0)
			pipe_end_after(STDERR_FILENO, script);
		(void)!write(fds[1], &inner, sizeof(inner));
		_exit(0);
	}
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	CHECK_INT(read(fds[0], &ret, sizeof(ret)), sizeof(ret));
	close(fds[0]);
	close(fds[1]);
	return ret;
}

static pid_t fork_that_exits(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(0);
	return pid;
}

TEST(an_adopted_one_is_watched_and_stopped)
{
	struct child_options o;
	struct seen s;
	pid_t pid = stranger("exec sleep 1000");

	set_up(&s);
	o = shell(&s, "");
	CHECK_INT(child_adopt(s.children, pid, &o, &s.child), 0);
	CHECK_INT(child_pid(s.child), pid);
	CHECK_INT(loop_once(s.loop, 10), 0);
	CHECK_INT(s.done, 0);
	child_stop(s.child);
	pass_until(&s, &s.done, 1);
	CHECK_INT(s.end, CHILD_GONE);
	CHECK_INT(waitpid(pid = fork_that_exits(), NULL, 0), pid);
	CHECK_INT(child_adopt(s.children, pid, &o, &s.child), -ESRCH);
	tear_down(&s);
}

/* --- a kernel without pidfds --- */

static void forbid_pidfds(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = ARRAY_SIZE(code), .filter = code };

	CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
	CHECK_INT(syscall(SYS_pidfd_open, getpid(), 0), -1);
}

static void without_pidfds(void)
{
	struct child_options o;
	struct seen s[4];

	forbid_pidfds();
	set_up(&s[0]);
	for (size_t i = 1; i < ARRAY_SIZE(s); i++) {
		s[i] = s[0];
		o = shell(&s[i], i == 1 ? "exit 3" : i == 2 ? "printf x; kill -9 $$" : "exec sleep 1000");
		o.time_limit_ms = i == 3 ? 100 : 0;
		CHECK_INT(child_start(s[0].children, &o, &s[i].child), 0);
	}
	for (size_t i = 1; i < ARRAY_SIZE(s); i++)
		pass_until(&s[0], &s[i].done, 1);
	CHECK(s[1].end == CHILD_EXITED && s[1].number == 3);
	CHECK(s[2].end == CHILD_SIGNALLED && s[2].number == 9);
	CHECK_STR(s[2].output, "x");
	CHECK_INT(s[3].end, CHILD_TIMED_OUT);
	CHECK_INT(child_adopt(s[0].children, getpid(), &o, &s[0].child), -ENOSYS);
	tear_down(&s[0]);
}

TEST(without_pidfds_sigchld_tells_of_the_end)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		without_pidfds();
		_exit(0);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
}

TEST(the_end_in_words)
{
	char text[64];

	CHECK_STR(child_end_text(&(struct child_result){ .end = CHILD_EXITED, .number = 3 }, text), "it ended with 3");
	CHECK_STR(child_end_text(&(struct child_result){ .end = CHILD_SIGNALLED, .number = 9 }, text),
		  "it was ended by signal 9");
	CHECK_STR(child_end_text(&(struct child_result){ .end = CHILD_TIMED_OUT }, text), "it took too long");
}

TEST_MAIN()
