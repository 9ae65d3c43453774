/* SPDX-License-Identifier: MIT */
/* agentbox-local as agentboxd --local keeps it, with a fake in its place: C-8. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/main/local_endpoint.h"
#include "daemon/main/local_process.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "tests/lib/test.h"

#define PATIENCE_MS 20000

struct rig {
	struct loop *loop;
	struct children *children;
	struct local_process *local;
	struct local_info at;
	char dir[64], program[4096];
	int changes, stops;
	bool was_running;
	struct status stop_status;
};

/* --- the fake's folder --- */

static const char *path_in(const struct rig *g, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/local/%s", g->dir, name);
	return path;
}

static void write_file(const struct rig *g, const char *name, const char *text)
{
	FILE *f = fopen(path_in(g, name), "w");

	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

struct start {
	int port, plain_port, pid;
};

static size_t read_starts(const struct rig *g, struct start ret[64])
{
	FILE *f = fopen(path_in(g, "starts"), "r");
	size_t n = 0;

	while (f && n < 64 && fscanf(f, "%d %d %d", &ret[n].port, &ret[n].plain_port, &ret[n].pid) == 3)
		n++;
	if (f)
		fclose(f);
	return n;
}

/* --- the rig --- */

static void on_change(void *user)
{
	struct rig *g = user;

	g->changes++;
	local_process_info(g->local, &g->at);
}

static void find_program(char *ret, size_t size)
{
	char self[4000];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	CHECK(n > 0);
	self[n] = 0;
	slash = strrchr(self, '/');
	*slash = 0;
	CHECK(snprintf(ret, size, "%s/main/fake_local", self) < (int)size);
	CHECK(access(ret, X_OK) == 0);
}

static void set_up(struct rig *g, const char *mode)
{
	*g = (struct rig){ .dir = "/tmp/ab-local-XXXXXX" };
	CHECK(mkdtemp(g->dir));
	CHECK_INT(mkdir(path_in(g, ""), 0700), 0);
	find_program(g->program, sizeof(g->program));
	write_file(g, "mode", mode);
	CHECK_INT(loop_new(&g->loop), 0);
	CHECK_INT(children_new(g->loop, &g->children), 0);
}

static struct local_process_options quick(struct rig *g)
{
	return (struct local_process_options){ .loop = g->loop, .children = g->children, .state_dir = g->dir,
					       .program = g->program, .pause_first_ms = 20, .pause_max_ms = 300,
					       .on_change = on_change, .user = g };
}

static int begin_with(struct rig *g, const struct local_process_options *o)
{
	struct status why = STATUS_OK;
	int r = local_process_new(o, &g->local, &why);

	if (r == 0)
		local_process_info(g->local, &g->at);
	else
		g->stop_status = why;
	return r;
}

static void begin(struct rig *g)
{
	struct local_process_options o = quick(g);

	CHECK_INT(begin_with(g, &o), 0);
}

static void pass_for(struct rig *g, uint64_t ms)
{
	uint64_t end = clock_boot_ms() + ms;

	while (clock_boot_ms() < end)
		CHECK_INT(loop_once(g->loop, 5), 0);
}

static void pass_until(struct rig *g, enum local_state want)
{
	uint64_t end = clock_boot_ms() + PATIENCE_MS;

	while (g->at.state != want) {
		CHECK(clock_boot_ms() < end);
		CHECK_INT(loop_once(g->loop, 100), 0);
	}
}

static void begin_and_run(struct rig *g)
{
	begin(g);
	pass_until(g, LOCAL_RUNNING);
}

static void end_process(pid_t pid)
{
	uint64_t end = clock_boot_ms() + PATIENCE_MS;

	kill(pid, SIGKILL);
	while (kill(pid, 0) == 0) {
		(void)waitpid(pid, NULL, WNOHANG);
		CHECK(clock_boot_ms() < end);
	}
}

static void tear_down(struct rig *g)
{
	static const char *const files[] = { "mode", "starts", "lock", "endpoint", "users" };
	struct start v[64];
	size_t n = read_starts(g, v);

	local_process_free(g->local);
	children_free(g->children);
	loop_free(g->loop);
	for (size_t i = 0; i < n; i++)
		end_process(v[i].pid);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		(void)unlink(path_in(g, files[i]));
	CHECK_INT(rmdir(path_in(g, "")), 0);
	CHECK_INT(rmdir(g->dir), 0);
}

/* --- starting --- */

TEST(its_start_is_not_waited_for)
{
	struct start v[64];
	struct rig g;
	char want[64];

	set_up(&g, "ready");
	begin(&g);
	CHECK_INT(g.at.state, LOCAL_STARTING);
	CHECK(g.at.soon && !g.at.was_up && !g.at.since_ms && !g.at.pid);
	CHECK_STR(g.at.why.text, "agentbox-local is starting");
	CHECK_INT(g.changes, 0);
	pass_until(&g, LOCAL_RUNNING);
	CHECK_INT(read_starts(&g, v), 1);
	CHECK_INT(g.at.pid, v[0].pid);
	CHECK(g.at.was_up && g.at.plain_ports && !g.at.since_ms);
	snprintf(want, sizeof(want), "127.0.0.1:%d", 20000 + v[0].pid % 20000);
	CHECK_STR(g.at.address, want);
	snprintf(want, sizeof(want), "https://localhost:%d", 20000 + v[0].pid % 20000);
	CHECK_STR(g.at.url, want);
	snprintf(want, sizeof(want), "localhost:%d", 20001 + v[0].pid % 20000);
	CHECK_STR(g.at.domain, want);
	CHECK_STR(g.at.ca_file, "/ca");
	CHECK_STR(g.at.key_file, "/key");
	tear_down(&g);
}

TEST(a_program_that_is_not_there_is_said_at_once)
{
	struct local_process_options o;
	struct rig g;

	set_up(&g, "ready");
	o = quick(&g);
	o.program = "/no/such/agentbox-local";
	CHECK_INT(begin_with(&g, &o), -ENOENT);
	CHECK(strstr(g.stop_status.text, "/no/such/agentbox-local: No such file"));
	tear_down(&g);
}

static void check_failure(const char *mode, uint32_t ready_ms, const char *why)
{
	struct local_process_options o;
	struct rig g;

	set_up(&g, mode);
	o = quick(&g);
	o.ready_ms = ready_ms;
	CHECK_INT(begin_with(&g, &o), 0);
	pass_until(&g, LOCAL_WAITING);
	CHECK(g.at.start_failed && !g.at.was_up && !g.at.soon && g.at.since_ms);
	CHECK_INT(g.at.why.reason, R_UNREACHABLE);
	if (!strstr(g.at.why.text, why))
		CHECK_STR(g.at.why.text, why);
	write_file(&g, "mode", "ready");	/* what it was is over: it comes up by itself */
	pass_until(&g, LOCAL_RUNNING);
	CHECK(!g.at.start_failed && !g.at.since_ms);
	tear_down(&g);
}

TEST(a_start_that_fails_is_told_and_tried_again)
{
	check_failure("exit", 0, "it ended with 7 before it was ready");
	check_failure("mute", 100, "was not ready after 0.1 s");
	check_failure("garbage", 0, "no address that can be used");
	check_failure("endless", 0, "no address that can be used");
}

/* The pauses of the first n times that it is down. */
static void check_pauses(const char *mode, uint32_t stable_ms, bool kill_it, const uint32_t *want, size_t n)
{
	struct local_process_options o;
	struct start v[64];
	struct rig g;

	set_up(&g, mode);
	o = quick(&g);
	o.stable_ms = stable_ms;
	CHECK_INT(begin_with(&g, &o), 0);
	for (size_t i = 0; i < n; i++) {
		if (kill_it) {
			pass_until(&g, LOCAL_RUNNING);
			pass_for(&g, stable_ms + 1);	/* then it has lasted */
			CHECK_INT(kill(g.at.pid, SIGKILL), 0);
		}
		pass_until(&g, LOCAL_WAITING);
		CHECK_INT(g.at.pause_ms, want[i]);
		CHECK_INT(read_starts(&g, v), i + 1);
		while (g.at.state == LOCAL_WAITING)
			CHECK_INT(loop_once(g.loop, 100), 0);
	}
	tear_down(&g);
}

TEST(failing_starts_come_slower_and_slower)
{
	static const uint32_t want[] = { 40, 80, 160, 300, 300 };

	check_pauses("exit", 0, false, want, ARRAY_SIZE(want));
}

TEST(what_does_not_last_comes_slower_and_slower_too)
{
	static const uint32_t want[] = { 20, 40, 80, 160, 300, 300 };

	check_pauses("brief", 0, false, want, ARRAY_SIZE(want));
}

TEST(what_lasted_is_started_again_after_the_first_pause)
{
	static const uint32_t want[] = { 20, 20, 20, 20 };

	check_pauses("ready", 5, true, want, ARRAY_SIZE(want));
}

/* --- its death --- */

TEST(after_its_death_it_comes_back_at_the_same_ports)
{
	struct start v[64];
	struct rig g;

	set_up(&g, "ready");
	begin_and_run(&g);
	CHECK_INT(kill(g.at.pid, SIGKILL), 0);
	pass_until(&g, LOCAL_WAITING);
	CHECK(g.at.soon && g.at.was_up && !g.at.start_failed && g.at.since_ms && !g.at.pid);
	CHECK(strstr(g.at.why.text, "it was ended by signal 9"));
	pass_until(&g, LOCAL_RUNNING);
	CHECK_INT(read_starts(&g, v), 2);
	CHECK_INT(v[1].port, 20000 + v[0].pid % 20000);
	CHECK_INT(v[1].plain_port, v[1].port + 1);
	CHECK_INT(g.at.pid, v[1].pid);
	tear_down(&g);
}

TEST(ports_that_are_taken_are_left_for_free_ones)
{
	struct start v[64];
	char old[64];
	struct rig g;

	set_up(&g, "taken");
	begin_and_run(&g);
	snprintf(old, sizeof(old), "%s", g.at.address);
	CHECK_INT(kill(g.at.pid, SIGKILL), 0);
	pass_until(&g, LOCAL_WAITING);
	pass_until(&g, LOCAL_RUNNING);
	CHECK_INT(read_starts(&g, v), 3);
	CHECK(v[1].port && v[1].plain_port);
	CHECK(!v[2].port && !v[2].plain_port);
	CHECK(strcmp(g.at.address, old) != 0);
	CHECK(!g.at.since_ms && !g.at.start_failed);
	tear_down(&g);
}

/* --- one that is there already --- */

static void leave(struct rig *g)
{
	local_process_free(g->local);
	g->local = NULL;
}

TEST(it_is_left_alone_and_attached_to)
{
	struct start v[64];
	struct rig g;
	pid_t pid;

	set_up(&g, "ready");
	begin_and_run(&g);
	pid = g.at.pid;
	leave(&g);
	begin(&g);
	CHECK_INT(g.at.state, LOCAL_RUNNING);	/* at once */
	CHECK_INT(g.at.pid, pid);
	CHECK_INT(read_starts(&g, v), 1);
	CHECK_INT(kill(pid, SIGKILL), 0);
	pass_until(&g, LOCAL_WAITING);
	pass_until(&g, LOCAL_RUNNING);
	CHECK(g.at.pid != pid);
	tear_down(&g);
}

/* Another daemon was killed while it started it. */
TEST(one_that_is_starting_is_waited_for)
{
	struct start v[64];
	struct rig g, other;
	char line[256];

	set_up(&g, "mute");
	other = g;
	begin(&other);
	while (read_starts(&g, v) < 1)
		CHECK_INT(loop_once(g.loop, 5), 0);
	pass_for(&other, 50);	/* it has its lock now */
	write_file(&g, "mode", "ready");
	begin(&g);
	pass_for(&g, 250);
	CHECK_INT(g.at.state, LOCAL_STARTING);
	snprintf(line, sizeof(line), "{\"tls_address\":\"127.0.0.1:9\",\"pid\":%d,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}\n",
		 v[0].pid);
	write_file(&g, "endpoint", line);
	pass_until(&g, LOCAL_RUNNING);
	CHECK_INT(g.at.pid, v[0].pid);
	CHECK(!g.at.plain_ports);
	CHECK_STR(g.at.domain, "localhost:9");
	CHECK_INT(read_starts(&g, v), 1);
	leave(&other);
	tear_down(&g);
}

TEST(one_that_is_ending_is_waited_for)
{
	struct start v[64];
	struct rig g, other;

	set_up(&g, "mute");
	other = g;
	begin(&other);
	while (read_starts(&g, v) < 1)
		CHECK_INT(loop_once(g.loop, 5), 0);
	pass_for(&other, 50);
	write_file(&g, "mode", "ready");
	/* An endpoint of one before it says nothing of it. */
	write_file(&g, "endpoint", "{\"tls_address\":\"127.0.0.1:9\",\"pid\":1,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}\n");
	begin(&g);
	pass_for(&g, 250);
	CHECK_INT(g.at.state, LOCAL_STARTING);
	CHECK_INT(kill(v[0].pid, SIGKILL), 0);
	pass_until(&g, LOCAL_RUNNING);
	CHECK_INT(read_starts(&g, v), 2);
	CHECK_INT(g.at.pid, v[1].pid);
	leave(&other);
	tear_down(&g);
}

TEST(a_lock_of_its_own_idle_check_is_waited_for)
{
	struct rig g;
	int fd;

	set_up(&g, "ready");
	fd = open(path_in(&g, "users"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_INT(flock(fd, LOCK_EX), 0);
	begin(&g);
	pass_for(&g, 250);
	CHECK_INT(g.at.state, LOCAL_STARTING);
	close(fd);
	pass_until(&g, LOCAL_RUNNING);
	tear_down(&g);
}

/* --- stopping --- */

static void on_stopped(void *user, const struct status *st, bool was_running)
{
	struct rig *g = user;

	g->stops++;
	g->stop_status = *st;
	g->was_running = was_running;
}

static void stop_and_wait(struct rig *g, uint64_t deadline_ms)
{
	struct local_process_stop *s;
	uint64_t end = clock_boot_ms() + PATIENCE_MS;
	int before = g->stops;

	CHECK_INT(local_process_stop(g->local, deadline_ms, on_stopped, g, &s), 0);
	CHECK_INT(g->stops, before);
	while (g->stops == before) {
		CHECK(clock_boot_ms() < end);
		CHECK_INT(loop_once(g->loop, 100), 0);
	}
}

static void check_stop(const char *mode, enum local_state at, bool was_running)
{
	struct local_process_options o;
	struct start v[64];
	struct rig g;
	size_t n;

	set_up(&g, mode);
	o = quick(&g);
	o.pause_first_ms = 100;
	CHECK_INT(begin_with(&g, &o), 0);
	pass_until(&g, at);
	stop_and_wait(&g, 0);
	CHECK(status_ok(&g.stop_status));
	CHECK_INT(g.was_running, was_running);
	pass_until(&g, LOCAL_STOPPED);
	CHECK(!g.at.soon && g.at.since_ms && !g.at.pid && strstr(g.at.why.text, "was stopped"));
	n = read_starts(&g, v);
	pass_for(&g, 300);
	CHECK_INT(read_starts(&g, v), n);	/* it stays down */
	stop_and_wait(&g, 0);
	CHECK(!g.was_running);
	CHECK_INT(g.stops, 2);
	tear_down(&g);
}

TEST(it_is_stopped_in_every_state_and_stays_down)
{
	check_stop("ready", LOCAL_RUNNING, true);
	check_stop("mute", LOCAL_STARTING, true);
	check_stop("exit", LOCAL_WAITING, false);
}

TEST(a_stop_that_takes_long_is_answered_at_its_deadline)
{
	struct rig g;

	set_up(&g, "deaf");
	begin_and_run(&g);
	stop_and_wait(&g, loop_now_ms(g.loop) + 50);
	CHECK_INT(g.stop_status.reason, R_DEADLINE_REQUEST);
	CHECK_INT(g.at.state, LOCAL_STOPPING);
	CHECK_INT(kill(g.at.pid, SIGKILL), 0);
	pass_until(&g, LOCAL_STOPPED);
	CHECK_INT(g.stops, 1);
	tear_down(&g);
}

/* --- the daemon's end --- */

TEST(what_is_being_started_ends_with_the_daemon)
{
	struct start v[64];
	struct rig g;
	uint64_t end = clock_boot_ms() + PATIENCE_MS;

	set_up(&g, "mute");
	begin(&g);
	while (read_starts(&g, v) < 1)
		CHECK_INT(loop_once(g.loop, 5), 0);
	leave(&g);
	while (kill(v[0].pid, 0) == 0) {
		CHECK(clock_boot_ms() < end);
		CHECK_INT(loop_once(g.loop, 5), 0);
	}
	tear_down(&g);
}

TEST(what_runs_outlives_the_daemon)
{
	struct rig g;

	set_up(&g, "ready");
	begin_and_run(&g);
	leave(&g);
	pass_for(&g, 50);
	CHECK_INT(kill(g.at.pid, 0), 0);
	tear_down(&g);
}

/* --- the endpoint, which others write --- */

#define NAME_OF_64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

TEST(what_is_no_endpoint_is_refused)
{
	static const char *const bad[] = {
		"", "{", "[]", "{}", "null",
		"{\"tls_address\":\"127.0.0.1:9\",\"pid\":0,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
		"{\"tls_address\":\"127.0.0.1:9\",\"pid\":4294967297,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
		"{\"tls_address\":\"127.0.0.1:9\",\"pid\":-1,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
		"{\"tls_address\":\"127.0.0.1:0\",\"pid\":2,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
		"{\"tls_address\":\"127.0.0.1:65536\",\"pid\":2,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
		"{\"tls_address\":\"127.0.0.1\",\"pid\":2,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
		"{\"tls_address\":9,\"pid\":2,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
		"{\"tls_address\":\"127.0.0.1:9\",\"pid\":2,\"api_key_file\":\"/k\"}",
		"{\"tls_address\":\"127.0.0.1:9\",\"pid\":2,\"ca_file\":\"/c\"}",
		"{\"tls_address\":\"" NAME_OF_64 ":9\",\"pid\":2,\"ca_file\":\"/c\",\"api_key_file\":\"/k\"}",
	};
	struct local_endpoint e = { .pid = 77 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_INT(local_endpoint_parse(bad[i], &e), -EPROTO);
		CHECK_INT(e.pid, 77);
	}
}

TEST_MAIN()
