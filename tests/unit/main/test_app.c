/* SPDX-License-Identifier: MIT */
/* The daemon's start and end as a whole: every step that fails takes down what the steps before it built, and a signal of
 * any moment is answered (C-7). Each case is a process of its own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app.h"
#include "proto/base/clock.h"
#include "tests/lib/oom.h"
#include "tests/lib/test.h"

#define LIMIT_S 50	/* a case that hangs ends the test by SIGALRM, and with it itself */

struct place {
	char dir[64], conf[1024];
};

static void make_place(struct place *p, const char *more)
{
	*p = (struct place){ .dir = "/tmp/ab-app-XXXXXX" };
	CHECK(mkdtemp(p->dir));
	snprintf(p->conf, sizeof(p->conf), "[daemon]\nstate_dir = %s/state\nsocket = %s/run/s\n%s\n", p->dir, p->dir, more);
}

/* What the daemon's library makes of this configuration: its exit code. `meanwhile` is called between start and run. */
static int start_and_run(const struct place *p, bool local, void (*meanwhile)(void))
{
	struct app_options o = { .conf_file = "", .local = local, .user_mode = true };
	struct app *app = NULL;
	int r;

	CHECK_INT(conf_new(&o.conf), 0);
	CHECK_INT(conf_read_text(o.conf, "test", (struct conf_text){ p->conf, strlen(p->conf) }), 0);
	CHECK(!app_check_conf(o.conf, local));
	CHECK_STR(conf_errors(o.conf), "");
	r = app_new(&o, &app);
	if (r)
		return r;
	if (meanwhile)
		meanwhile();
	r = app_run(app);
	app_free(app);
	return r;
}

static unsigned open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int one_case(const struct place *p, bool local, void (*meanwhile)(void))
{
	unsigned before;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	log_setup(LOG_LEVEL_INFO);
	before = open_files();
	r = start_and_run(p, local, meanwhile);
	CHECK_INT(open_files(), before);
	return r;
}

/* In a process of its own; what it leaves must be removable by rm -r. */
static void check_case(const struct place *p, bool local, void (*meanwhile)(void), int want)
{
	char command[128];
	int status;
	pid_t pid;

	fflush(stdout);
	alarm(LIMIT_S);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		exit(one_case(p, local, meanwhile));
	CHECK_INT(waitpid(pid, &status, 0), pid);
	alarm(0);
	CHECK_INT(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), want);
	snprintf(command, sizeof(command), "/bin/rm -r %s", p->dir);
	CHECK_INT(system(command), 0);
}

/* --- signals --- */

static void term(void)
{
	raise(SIGTERM);
}

static void interrupt(void)
{
	raise(SIGINT);
}

static void quit(void)
{
	raise(SIGQUIT);
}

static void twice(void)
{
	raise(SIGTERM);
	raise(SIGINT);
}

TEST(a_signal_of_the_start_is_answered_when_it_runs)
{
	void (*const v[])(void) = { term, interrupt, quit, twice };
	struct place p;

	for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
		make_place(&p, "");
		check_case(&p, false, v[i], 0);
	}
}

static void every_other_signal_and_then_term(void)
{
	static const int v[] = { SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPIPE, SIGPWR, SIGSTKFLT,
				 SIGXCPU, SIGXFSZ, SIGURG, SIGWINCH, SIGCHLD, SIGCONT };

	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		raise(v[i]);
	for (int s = SIGRTMIN; s <= SIGRTMAX; s++)
		raise(s);
	raise(SIGTERM);
}

TEST(no_other_signal_ends_it)
{
	struct place p;

	make_place(&p, "");
	check_case(&p, false, every_other_signal_and_then_term, 0);
}

/* C-7: neither does the start wait for the key, nor is the signal lost. */
TEST(a_key_command_that_runs_holds_up_neither_start_nor_end)
{
	struct place p;
	uint64_t before = clock_boot_ms();

	make_place(&p, "[account main]\napi_key_command = exec sleep 1000");
	check_case(&p, false, term, 0);
	CHECK(clock_boot_ms() - before < 9000);		/* KEY_COMMAND_LIMIT_MS is 10 s */
}

/* --- steps that fail --- */

TEST(a_state_folder_that_is_a_file)
{
	struct place p;
	char path[96];
	int fd;

	make_place(&p, "");
	snprintf(path, sizeof(path), "%s/state", p.dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	close(fd);
	check_case(&p, false, NULL, 74);
}

TEST(a_socket_folder_that_others_can_write)
{
	struct place p;
	char path[96];

	make_place(&p, "");
	snprintf(path, sizeof(path), "%s/run", p.dir);
	CHECK_INT(mkdir(path, 0700), 0);
	CHECK_INT(chmod(path, 0777), 0);
	check_case(&p, false, NULL, APP_EXIT_CONFIG);
}

/* The last step: everything is there to be taken down. */
TEST(a_metrics_socket_that_cannot_be)
{
	struct place p;

	make_place(&p, "metrics_socket = /proc/self/no/such/place");
	check_case(&p, false, NULL, APP_EXIT_CONFIG);
}

TEST(a_local_cloud_that_is_not_installed)
{
	struct place p;

	make_place(&p, "");
	setenv("PATH", "/no/such/folder", 1);
	check_case(&p, true, NULL, APP_EXIT_UNAVAILABLE);
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
}

/* --- memory that runs out --- */

#define NOT_REACHED 99

/* The n-th allocation of the start fails. */
static int start_without_memory(const struct place *p, unsigned n)
{
	struct app_options o = { .conf_file = "", .user_mode = true };
	struct app *app = NULL;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	log_setup(LOG_LEVEL_ERROR);
	CHECK_INT(conf_new(&o.conf), 0);
	CHECK_INT(conf_read_text(o.conf, "test", (struct conf_text){ p->conf, strlen(p->conf) }), 0);
	(void)oom_after(n);
	r = app_new(&o, &app);
	if (oom_is_due())
		r = NOT_REACHED;
	(void)oom_after(0);
	app_free(app);
	return r;
}

/* There are a quarter of a million, most of them of libraries: a sample, denser where our own come first. */
TEST(memory_that_runs_out_at_any_time_of_the_start)
{
	int status = 0, code = 0;
	struct place p;

	for (unsigned n = 1; oom_after(0) && code != NOT_REACHED; n += n / 2 + 1) {
		char command[128];
		pid_t pid;

		make_place(&p, "");
		fflush(stdout);
		pid = fork();
		if (pid == 0)
			exit(start_without_memory(&p, n));
		CHECK_INT(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status));
		code = WEXITSTATUS(status);
		CHECK(!code || code == NOT_REACHED || (code >= APP_EXIT_USAGE && code <= APP_EXIT_CONFIG));
		snprintf(command, sizeof(command), "/bin/rm -r %s", p.dir);
		CHECK_INT(system(command), 0);
	}
}

/* --- twice --- */

TEST(a_second_start_finds_what_the_first_left)
{
	struct place p;
	int status;
	pid_t pid;

	make_place(&p, "");
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		exit(one_case(&p, false, term));
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
	check_case(&p, false, term, 0);
}

TEST_MAIN()
