/* SPDX-License-Identifier: MIT */
/*
 * Sandboxes as this process may make them: by root with a range of ids each, by an ordinary user with
 * one. `AGENTBOX_TEST_UID=N` (set by the meson test "container_user") drops to that uid first.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "container_fixture.h"
#include "drop_user.h"

static struct fix fix;
static struct fix *engine(void)
{
	if (!fix.bs) {
		struct waited w;

		fix_make_dir(&fix);
		w = fix_start(&fix, NULL);
		if (w.r < 0) {
			fprintf(stderr, "skip engine: %s\n", w.why);
			exit(77);
		}
	}
	return &fix;
}

TEST(runs_a_command)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "one");

	expect(f, b, "user", "echo out; echo err >&2; exit 7", "out\n", 7);
	expect(f, b, "root", "id -u; id -g", "0\n0\n", 0);
	expect(f, b, "user", "id -u; id -un; id -gn", "1000\nuser\nuser\n", 0);
	expect(f, b, "user", "echo $HOME-$PATH-$FOO; env | wc -l", NULL, 0);
	expect(f, b, "user", "cd ~user && touch x && stat -c %U:%G x", "user:user\n", 0);
	if (is_root)
		expect(f, b, "user", "touch /x 2>/dev/null", "", 1);
	expect(f, b, "user", "exec /no/such", NULL, 127);
	expect(f, b, "root", "hostname; cat /etc/hostname | wc -l", "sandbox\n1\n", 0);
	fix_destroy(f, b);
}

TEST(exit_by_signal)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "sig");
	struct ran r = fix_run(f, b, "user", "kill -9 $$");

	CHECK(!r.x.exited);
	CHECK_INT(r.x.sig, 9);
	ran_fini(&r);
	fix_destroy(f, b);
}

TEST(missing_program_folder_user)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "missing");
	struct container_user u;
	struct container_proc_options o = { .cmd = "no-such-program", .cwd = "/", .user = &u };
	struct ran r;

	CHECK_INT(container_user_lookup(b, "nosuch", &u), -ENOENT);
	CHECK_INT(container_user_lookup(b, "0", &u), -ENOENT);
	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	CHECK_STR(u.home, "/home/user");
	r = fix_run_with(f, b, &o);
	CHECK_INT(r.x.code, 127);
	ran_fini(&r);
	o.cwd = "/nope";
	r = fix_run_with(f, b, &o);
	CHECK_INT(r.error, CONTAINER_SPAWN_CWD);
	ran_fini(&r);
	fix_destroy(f, b);
}

TEST(input_and_its_end)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "input");
	struct ran r = { .out = BUF_NULL };
	struct container_user u;
	struct container_proc_options o = { .cmd = "cat", .cwd = "/", .user = &u, .stdin_pipe = true };
	struct container_proc *p;
	int in, out;

	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	p = fix_start_proc(f, b, &o, &r);
	in = container_proc_take_fd(p, CONTAINER_STDIN);
	out = container_proc_take_fd(p, CONTAINER_STDOUT);
	CHECK_INT(write(in, "ab\n", 3), 3);
	PUMP_UNTIL(f, (fix_read(out, &r.out), buf_len(&r.out) == 3));
	CHECK(!r.ended);
	fd_close(in);
	PUMP_UNTIL(f, r.ended);
	CHECK_INT(r.x.code, 0);
	CHECK_INT(container_proc_signal(p, SIGTERM), -ESRCH);
	fd_close(out);
	container_proc_free(p);
	ran_fini(&r);

	/* Without a pipe it reads an end at once. */
	o.stdin_pipe = false;
	r = fix_run_with(f, b, &o);
	CHECK_INT(r.x.code, 0);
	ran_fini(&r);
	fix_destroy(f, b);
}

TEST(signals_reach_the_main_process)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "kill");
	struct ran r = { .out = BUF_NULL };
	const char *args[] = { "1000" };
	struct container_user u;
	struct container_proc_options o = {
		.cmd = "sleep", .args = args, .n_args = 1, .cwd = "/", .user = &u};
	struct container_proc *p;

	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	p = fix_start_proc(f, b, &o, &r);
	CHECK_INT(container_proc_signal(p, SIGTERM), 0);
	PUMP_UNTIL(f, r.ended);
	CHECK_INT(r.x.sig, SIGTERM);
	container_proc_free(p);
	fix_destroy(f, b);
}

TEST(terminal)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "pty");
	struct ran r = { .out = BUF_NULL };
	const char *args[] = { "-c", "tty; stty size; read x; stty size; echo got $x" };
	struct container_user u;
	struct container_proc_options o = {.cmd = "/bin/bash",
					   .args = args,
					   .n_args = 2,
					   .cwd = "/",
					   .user = &u,
					   .pty = true,
					   .cols = 80,
					   .rows = 24};
	struct container_proc *p;
	int tty;

	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	p = fix_start_proc(f, b, &o, &r);
	tty = container_proc_take_fd(p, CONTAINER_PTY);
	CHECK(tty >= 0);
	CHECK_INT(container_proc_take_fd(p, CONTAINER_STDOUT), -1);
	PUMP_UNTIL(f, (fix_read(tty, &r.out), buf_len(&r.out) >= 19));
	CHECK_INT(container_pty_resize(tty, 120, 40), 0);
	CHECK_INT(write(tty, "hello\n", 6), 6);
	PUMP_UNTIL(f, (fix_read(tty, &r.out), r.ended));
	(void)fix_read(tty, &r.out);
	CHECK_INT(buf_put(&r.out, "", 1), 0);
	CHECK(strstr((const char *)buf_data(&r.out), "/dev/pts/0\r\n24 80\r\n"));
	CHECK(strstr((const char *)buf_data(&r.out), "40 120\r\ngot hello\r\n"));
	fd_close(tty);
	container_proc_free(p);
	ran_fini(&r);
	fix_destroy(f, b);
}

TEST(much_output_right_before_the_end)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "much");
	struct ran r = fix_run(f, b, "user",
			       "head -c 1048576 /dev/zero; head -c 1048576 /dev/zero >&2; exit 3");

	CHECK_INT(r.x.code, 3);
	CHECK_INT(buf_len(&r.out), 1048577);
	CHECK_INT(buf_len(&r.err), 1048577);
	ran_fini(&r);
	fix_destroy(f, b);
}

/* --- confinement --- */

TEST(the_host_is_not_there)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "jail");
	char script[512];

	snprintf(script, sizeof(script), "cat %s 2>/dev/null; ls -d %s 2>/dev/null; ls /work /mnt/* 2>/dev/null; true",
		 f->secret, f->dir);
	expect(f, b, "root", script, "", 0);
	expect(f, b, "root", "ls -A /root /tmp /srv /var/tmp | grep -v '^/\\|^$\\|^[.]'; true", "", 0);
	expect(f, b, "root", "ls /proc/1/root/ 2>/dev/null | grep -c work", "0\n", 1);
	expect(f, b, "root", "cat /proc/1/environ /proc/1/maps 2>/dev/null | wc -c", "0\n", 0);
	expect(f, b, "root", "tr '\\0' ' ' </proc/1/cmdline | grep -c test_", "0\n", 1);
	expect(f, b, "root", "cat /etc/shadow /etc/ssh/* 2>/dev/null | wc -c", "0\n", 0);
	expect(f, b, "root", "ls /sys | wc -l", "0\n", 0);
	fix_destroy(f, b);
}

TEST(no_way_out)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "out");
	char script[512];

	expect(f, b, "root", "mknod /tmp/disk b 254 0 2>/dev/null; mknod /tmp/disk2 b 8 0 2>/dev/null; "
			     "head -c 1 /tmp/disk /tmp/disk2 2>/dev/null | wc -c", "0\n", 0);
	expect(f, b, "root", "mount -t tmpfs none /mnt 2>/dev/null", NULL, 32);
	expect(f, b, "root", "umount /proc 2>/dev/null", NULL, 32);
	expect(f, b, "user", "unshare -Ur true 2>/dev/null", NULL, 1);
	expect(f, b, "root", "unshare -U true 2>/dev/null || unshare -m true 2>/dev/null", NULL, 1);
	expect(f, b, "root", "echo b >/proc/sysrq-trigger 2>/dev/null; "
			     "echo x 2>/dev/null >/proc/sys/kernel/core_pattern; cat /proc/sys/kernel/core_pattern | grep -c ^x$",
	       "0\n", 1);
	expect(f, b, "root", "head -c 1 /proc/kcore 2>/dev/null | wc -c; grep NoNewPrivs: /proc/self/status | cut -f2; "
			     "grep Seccomp: /proc/self/status | cut -f2", "0\n1\n2\n", 0);
	/* Only its own processes are there to be seen or signalled. */
	snprintf(script, sizeof(script), "kill -0 %d 2>/dev/null && echo alive; ls -d /proc/[0-9]* | wc -l | "
					 "awk '$1 < 10 { print \"few\" }'", (int)getpid());
	expect(f, b, "root", script, "few\n", 0);
	expect(f, b, "root", "kill -9 1; kill -9 -1; true", NULL, 0);
	expect(f, b, "root", "echo still here", "still here\n", 0);
	/* A network of its own, with loopback alone. */
	expect(f, b, "root", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo\n", 0);
	expect(f, b, "user", "exec 3<>/dev/tcp/127.0.0.1/1", NULL, 1);
	expect(f, b, "root", "python3 -c 'import socket\ntry:\n socket.socket(40, 1)\nexcept OSError as e: print(e.errno)'",
	       "97\n", 0);
	fix_destroy(f, b);
}

TEST(usr_can_be_changed_inside_only)
{
	struct fix *f = engine();
	struct container_capability c[CONTAINER_CAPABILITIES_MAX];
	struct container *b = fix_container(f, "usr");
	size_t n = engine_capabilities(f->bs, c);
	bool writable = false;

	for (size_t i = 0; i < n; i++)
		if (str_eq(c[i].name, "usr-writable"))
			writable = c[i].available;
	if (writable) {
		expect(f, b, "root", "echo x >/usr/bin/agentbox-test-marker && cat /usr/bin/agentbox-test-marker; "
				     "rm /usr/bin/yes && ls /usr/bin/yes 2>/dev/null", "x\n", 2);
		CHECK(access("/usr/bin/agentbox-test-marker", F_OK) < 0);
		CHECK(access("/usr/bin/yes", F_OK) == 0);
	}
	if (is_root)
		expect(f, b, "user", "echo x 2>/dev/null >/usr/bin/other", NULL, 1);
	fix_destroy(f, b);
	b = fix_container(f, "usr");
	expect(f, b, "root", "test -e /usr/bin/agentbox-test-marker", NULL, 1);
	fix_destroy(f, b);
}

TEST(a_fork_bomb_is_held)
{
	struct fix *f = engine();
	const struct container_options o = { .id = "bomb", .template = "base", .max_pids = 40,
				       .memory_bytes = 256u << 20 };
	struct container *b = fix_container_with(f, &o);

	/* dash gives up when it cannot fork; without a limit this would never end. */
	expect(f, b, "user", "exec dash -c 'while :; do sleep 100 >/dev/null 2>&1 & done' 2>/dev/null",
	       NULL, 2);
	fix_destroy(f, b);
}

/* --- limits, freezing, ports --- */

static bool can(const char *name)
{
	struct container_capability c[CONTAINER_CAPABILITIES_MAX];
	size_t n = engine_capabilities(engine()->bs, c);

	for (size_t i = 0; i < n; i++)
		if (str_eq(c[i].name, name))
			return c[i].available;
	return false;
}

TEST(memory_is_limited)
{
	struct fix *f = engine();
	const struct container_options o = {
		.id = "small", .template = "base", .memory_bytes = 96u << 20};
	struct container *b = fix_container_with(f, &o);
	struct container_usage u;
	struct ran r;

	if (can("memory-limit")) {
		r = fix_run(f, b, "user", "exec tail /dev/zero");
		CHECK(!r.x.exited && r.x.sig == SIGKILL);
		ran_fini(&r);
		expect(f, b, "user", "echo alive", "alive\n", 0);
		container_usage(b, &u);
		CHECK_INT(u.mem_limit_bytes, 96u << 20);
		CHECK(u.mem_bytes > 0);
	}
	if (can("usage")) {
		container_usage(b, &u);
		CHECK(u.cpu_us > 0);
		CHECK(u.n_cpus >= 1 && u.disk_total_bytes > u.disk_used_bytes);
	}
	fix_destroy(f, b);
}

static void freeze(struct fix *f, struct container *b, bool on)
{
	struct waited w = { 0 };

	CHECK_INT(container_freeze(b, on, on_done, &w), 0);
	CHECK(!w.done);
	PUMP_UNTIL(f, w.done);
	CHECK_INT(w.r, 0);
}

TEST(frozen_and_thawed)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "ice");
	struct ran r = { .out = BUF_NULL };
	struct container_user u;
	struct container_proc_options o = { .cmd = "true", .cwd = "/", .user = &u };
	struct container_proc *p;

	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	freeze(f, b, true);
	if (can("freeze")) {		/* else the init goes on */
		CHECK_INT(container_proc_start(b, &o, &fix_events, &r, &p), 0);
		for (int i = 0; i < 5; i++)
			CHECK(loop_once(f->loop, 20) >= 0);
		CHECK(!r.started);
	}
	freeze(f, b, false);
	if (can("freeze")) {
		PUMP_UNTIL(f, r.ended);
		container_proc_free(p);
	}
	freeze(f, b, true);
	fix_destroy(f, b);		/* also while frozen */
}

static uint64_t counted(const char *text)
{
	return strtoull(text, NULL, 10);
}

/* A process that counts stands still while it is frozen, and goes on after. */
static void check_freeze(struct fix *f, const char *id)
{
	struct container *b = fix_container(f, id);
	struct ran r = { .out = BUF_NULL };
	struct container_user u;
	const char *args[] = { "-c", "while :; do echo $((++n)); done >/tmp/n" };
	struct container_proc_options o = {
		.cmd = "/bin/bash", .args = args, .n_args = 2, .cwd = "/", .user = &u};
	struct container_proc *p;
	struct container_usage before, after;
	struct ran one, two;

	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	p = fix_start_proc(f, b, &o, &r);
	expect(f, b, "root", "until [ -s /tmp/n ]; do :; done", "", 0);
	for (int i = 0; i < 3; i++) {
		freeze(f, b, true);
		container_usage(b, &before);
		for (int k = 0; k < 5; k++)
			CHECK(loop_once(f->loop, 20) >= 0);
		container_usage(b, &after);
		CHECK(after.cpu_us - before.cpu_us < 2000);	/* over 100 ms */
		freeze(f, b, false);
	}
	one = fix_run(f, b, "root", "tail -n 2 /tmp/n | head -n 1");
	expect(f, b, "root", "n=$(stat -c %s /tmp/n); until [ $(stat -c %s /tmp/n) -gt $n ]; do :; done", "", 0);
	two = fix_run(f, b, "root", "tail -n 2 /tmp/n | head -n 1");
	CHECK(counted((const char *)buf_data(&two.out)) > counted((const char *)buf_data(&one.out)));
	CHECK(!r.ended);
	ran_fini(&one);
	ran_fini(&two);
	container_proc_free(p);
	fix_destroy(f, b);
	ran_fini(&r);
}

TEST(freezing_stops_the_clock)
{
	check_freeze(engine(), "count");
}

TEST(freezing_without_control_groups)
{
	struct fix f = { 0 };
	struct engine_options o = { .no_cgroup = true };

	engine();	/* or skipped */
	fix_make_dir(&f);
	CHECK_INT(fix_start(&f, &o).r, 0);
	check_freeze(&f, "stop");
	fix_stop(&f);
}

/* --- layers --- */

#define MAKE_FILES                                                                                 \
	"cd ~user && mkdir -p d/e && echo text >d/f && ln d/f d/g && ln -s f d/s && "              \
	"truncate -s 1M d/hole && echo end >>d/hole && mkfifo d/p && echo x >'d/\303\274 \n' && "   \
	"chmod 4711 d/f && touch -d @1000000000 d/e && chmod 0 d/hole && rm /etc/hostname && "     \
	"echo changed >>/etc/profile && rm -rf /srv && mkdir /srv"
#define CHECK_FILES                                                                                \
	"cd ~user && cat d/s d/g && stat -c '%a %h %U' d/f && stat -c %Y d/e && ls d | wc -l && "  \
	"[ d/f -ef d/g ] && [ -p d/p ] && tail -c 4 d/hole && stat -c %s d/hole && "               \
	"[ $(stat -c %b d/hole) -lt 100 ] && [ ! -e /etc/hostname ] && tail -n 1 /etc/profile && ls /srv"
#define FILES_ARE                                                                                  \
	"text\ntext\n4711 2 root\n1000000000\n8\nend\n1048580\nchanged\n"

static void check_files(struct fix *f, struct container *b)
{
	expect(f, b, "root", CHECK_FILES, FILES_ARE, 0);
}

static int save(struct fix *f, struct container *b, const char *layer)
{
	struct waited w = { 0 };

	CHECK_INT(container_save(b, layer, on_done, &w), 0);
	PUMP_UNTIL(f, w.done);
	return w.r;
}

static void drop(struct fix *f, const char *layer)
{
	struct waited w = { 0 };

	CHECK_INT(engine_drop_layer(f->bs, layer, on_done, &w), 0);
	PUMP_UNTIL(f, w.done);
	CHECK_INT(w.r, 0);
	CHECK(!engine_has_layer(f->bs, layer));
}

static void check_layers(struct fix *f)
{
	struct container *a = fix_container(f, "first"), *b, *c;
	struct container_options from = { .id = "copy", .template = "base", .layer = "snap" };
	struct container_options took = {
		.id = "took", .template = "base", .layer = "stash", .take_layer = true};
	struct waited w = { 0 };

	expect(f, a, "root", MAKE_FILES, "", 0);
	freeze(f, a, true);
	CHECK_INT(save(f, a, "snap"), 0);
	freeze(f, a, false);
	CHECK_INT(save(f, a, "snap"), -ENOTEMPTY);
	check_files(f, a);
	expect(f, a, "root", "rm -rf ~user/d", "", 0);

	b = fix_container_with(f, &from);
	check_files(f, b);
	expect(f, b, "root", "echo own >/root/own", "", 0);
	container_stash(b, "stash", on_done, &w);
	PUMP_UNTIL(f, w.done);
	CHECK_INT(w.r, 0);
	CHECK(engine_has_layer(f->bs, "stash") && engine_has_layer(f->bs, "snap"));

	c = fix_container_with(f, &took);
	CHECK(!engine_has_layer(f->bs, "stash"));
	check_files(f, c);
	expect(f, c, "root", "cat /root/own", "own\n", 0);
	fix_destroy(f, c);
	fix_destroy(f, a);
	drop(f, "snap");
	drop(f, "snap");
}

TEST(layers)
{
	check_layers(engine());
}

TEST(layers_without_idmapped_mounts)
{
	struct fix f = { 0 };
	struct engine_options o = { .no_idmap = true };

	engine();
	fix_make_dir(&f);
	CHECK_INT(fix_start(&f, &o).r, 0);
	check_layers(&f);
	fix_stop(&f);
}

TEST(a_missing_layer)
{
	struct fix *f = engine();
	struct container_options o = { .id = "none", .template = "base", .layer = "nosuch" };
	struct waited w = { 0 };
	struct container *b;

	CHECK_INT(container_new(f->bs, &o, on_done, &w, &b), 0);
	PUMP_UNTIL(f, w.done);
	CHECK_INT(w.r, -ENOENT);
	fix_destroy(f, b);
	o.layer = "../x";
	CHECK_INT(container_new(f->bs, &o, on_done, &w, &b), -EINVAL);
}

/* What was stashed is there after a restart, what was half saved is not. */
TEST(layers_outlive_the_engine)
{
	struct fix f = { 0 };
	struct container_options took = {
		.id = "again", .template = "base", .layer = "kept", .take_layer = true};
	struct waited w = { 0 };
	struct container *b;
	char path[128];

	engine();
	fix_make_dir(&f);
	CHECK_INT(fix_start(&f, NULL).r, 0);
	b = fix_container(&f, "one");
	expect(&f, b, "user", "echo kept >~/file", "", 0);
	container_stash(b, "kept", on_done, &w);
	PUMP_UNTIL(&f, w.done);
	f.bs = engine_free(f.bs);
	f.loop = loop_free(f.loop);
	snprintf(path, sizeof(path), "mkdir -p %s/layers/.half/up", f.dir);
	CHECK_INT(run_shell(path), 0);
	CHECK_INT(fix_start(&f, NULL).r, 0);
	snprintf(path, sizeof(path), "%s/layers/.half", f.dir);
	CHECK(access(path, F_OK) < 0);
	b = fix_container_with(&f, &took);
	expect(&f, b, "user", "cat ~/file", "kept\n", 0);
	fix_destroy(&f, b);
	fix_stop(&f);
}

static void on_socket(void *user, int r, int fd)
{
	int *ret = user;

	CHECK_INT(r, 0);
	*ret = fd;
}

TEST(ports_inside)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "ports");
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(5555),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct pollfd p = { .events = POLLIN };
	struct ran r = { .out = BUF_NULL };
	int server = -1, client = -1;

	CHECK_INT(container_socket(b, AF_INET, SOCK_STREAM, on_socket, &server), 0);
	CHECK_INT(container_socket(b, AF_INET, SOCK_STREAM, on_socket, &client), 0);
	PUMP_UNTIL(f, server >= 0 && client >= 0);
	CHECK_INT(bind(server, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_INT(listen(server, 5), 0);
	expect(f, b, "user", "exec 3<>/dev/tcp/127.0.0.1/5555", "", 0);
	CHECK(connect(client, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EINPROGRESS);
	p.fd = server;
	CHECK_INT(poll(&p, 1, FIX_WAIT_MS), 1);
	fd_close(server);
	fd_close(client);
	ran_fini(&r);
	fix_destroy(f, b);
}

/* --- what stays --- */

static bool tree_mentions(const char *file, const char *word)
{
	char *text;
	size_t n;
	bool found;

	CHECK_INT(fd_read_file(AT_FDCWD, file, 16u << 20, &text, &n), 0);
	found = strstr(text, word) != NULL;
	free(text);
	return found;
}

TEST(nothing_stays)
{
	struct fix *f = engine();
	struct container *b = fix_container(f, "gone");
	struct ran r = { .out = BUF_NULL };
	const char *args[] = { "-c", "sleep 1000 & setsid sleep 1001 & mkdir -p /tmp/a/b; chmod 000 /tmp/a; wait" };
	struct container_user u;
	struct container_proc_options o = {
		.cmd = "bash", .args = args, .n_args = 2, .cwd = "/", .user = &u};
	struct container_proc *p;
	char path[256];
	int killed = 0;

	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	p = fix_start_proc(f, b, &o, &r);
	expect(f, b, "user", "until pgrep -f 'sleep 1001' >/dev/null; do :; done", NULL, 0);
	fix_destroy(f, b);
	CHECK(r.ended && !r.x.exited && r.x.sig == 9);
	container_proc_free(p);
	CHECK(!tree_mentions("/proc/self/mountinfo", f->dir));
	snprintf(path, sizeof(path), "%s/engine/containers", f->dir);
	CHECK_INT(rmdir(path), 0);		/* empty */
	CHECK_INT(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/engine/trash", f->dir);
	killed = rmdir(path);
	CHECK_INT(killed, 0);
	CHECK_INT(mkdir(path, 0700), 0);
	fix_stop(f);
	*f = (struct fix){ 0 };
}

TEST(destroyed_while_being_made)
{
	struct fix *f = engine();
	const struct container_options o = { .id = "early", .template = "base" };
	struct waited made = { 0 }, gone = { 0 };
	struct container *b;

	CHECK_INT(container_new(f->bs, &o, on_done, &made, &b), 0);
	container_destroy(b, on_done, &gone);
	CHECK(!made.done && !gone.done);
	PUMP_UNTIL(f, gone.done);
	CHECK(made.done);
	CHECK_INT(made.r, -ECANCELED);
	CHECK_INT(gone.r, 0);

	made = gone = (struct waited){ 0 };
	CHECK_INT(container_new(f->bs, &o, on_done, &made, &b), 0);
	CHECK(loop_once(f->loop, 0) >= 0);
	container_destroy(b, on_done, &gone);
	PUMP_UNTIL(f, gone.done);
	CHECK(made.done);
	CHECK_INT(gone.r, 0);
}

TEST(refusals)
{
	struct fix *f = engine();
	struct container_options o = { .id = "Bad_Id", .template = "base" };
	struct waited w = { 0 };
	struct container *b, *other;

	CHECK_INT(container_new(f->bs, &o, on_done, &w, &b), -EINVAL);
	o.id = "fine";
	o.template = "nosuch";
	CHECK_INT(container_new(f->bs, &o, on_done, &w, &b), -ENOENT);
	b = fix_container(f, "fine");
	o.template = "base";
	CHECK_INT(container_new(f->bs, &o, on_done, &w, &other), -EEXIST);
	fix_destroy(f, b);
}

TEST(many_at_once)
{
	enum { N = 40 };
	struct fix *f = engine();
	struct waited made[N], gone[N];
	struct container *b[N];
	uint64_t t0 = clock_boot_ms(), t1, t2;
	char id[16];

	memset(made, 0, sizeof(made));
	memset(gone, 0, sizeof(gone));
	for (int i = 0; i < N; i++) {
		struct container_options o = { .id = id, .template = "base" };

		snprintf(id, sizeof(id), "many%d", i);
		CHECK_INT(container_new(f->bs, &o, on_done, &made[i], &b[i]), 0);
	}
	for (int i = 0; i < N; i++) {
		PUMP_UNTIL(f, made[i].done);
		CHECK_INT(made[i].r, 0);
	}
	t1 = clock_boot_ms();
	expect(f, b[N - 1], "user", "echo hi", "hi\n", 0);
	for (int i = 0; i < N; i++)
		container_destroy(b[i], on_done, &gone[i]);
	for (int i = 0; i < N; i++) {
		PUMP_UNTIL(f, gone[i].done);
		CHECK_INT(gone[i].r, 0);
	}
	t2 = clock_boot_ms();
	printf("%d containers: made in %llu ms, removed in %llu ms\n", N,
	       (unsigned long long)(t1 - t0), (unsigned long long)(t2 - t1));
}

TEST(one_by_one)
{
	struct fix *f = engine();
	uint64_t made = 0, gone = 0;

	for (int i = 0; i < 10; i++) {
		uint64_t t0 = clock_boot_us();
		struct container *b = fix_container(f, "timed");

		made += clock_boot_us() - t0;
		t0 = clock_boot_us();
		fix_destroy(f, b);
		gone += clock_boot_us() - t0;
	}
	printf("a container: made in %llu us, removed in %llu us\n", (unsigned long long)made / 10,
	       (unsigned long long)gone / 10);
}

/* --- other machines, other bases --- */

static void with_options(const struct engine_options *o, void (*check)(struct fix *))
{
	struct fix f = { 0 };
	struct waited w;

	(void)engine();		/* is anything possible here? */
	fix_make_dir(&f);
	w = fix_start(&f, o);
	if (w.r < 0)
		fprintf(stderr, "%s\n", w.why);
	CHECK_INT(w.r, 0);
	check(&f);
	fix_stop(&f);
}

static void check_basics(struct fix *f)
{
	struct container *b = fix_container(f, "basic");

	expect(f, b, "user", "cd ~user && touch x && stat -c %U x . .. /etc/passwd /bin",
	       is_root ? "user\nuser\nroot\nroot\nroot\n" : "user\nuser\nuser\nuser\nuser\n", 0);
	expect(f, b, "root", "touch /etc/x /opt/y && rm -r /etc/ssl && ls / >/dev/null", "", 0);
	fix_destroy(f, b);
}

TEST(without_idmapped_mounts)
{
	const struct engine_options o = { .no_idmap = true };

	if (is_root)
		with_options(&o, check_basics);
}

TEST(without_cgroups)
{
	const struct engine_options o = { .no_cgroup = true };

	with_options(&o, check_basics);
}

static void check_templates(struct fix *f)
{
	const struct container_options a = {.id = "a", .template = "folder"},
				       b = {.id = "b", .template = "tar.v1"};
	struct container *x = fix_container_with(f, &a), *y = fix_container_with(f, &b);

	CHECK(engine_has_template(f->bs, "folder"));
	expect(f, x, "user", "cat /app/hello; echo changed >/app/hello 2>/dev/null; id -un", "hello\nuser\n", 0);
	expect(f, y, "user", "cat /app/hello; id -un", "hello\nuser\n", 0);
	fix_destroy(f, x);
	fix_destroy(f, y);
}

TEST(templates)
{
	char dir[] = "/tmp/agentbox-template-XXXXXX", path[128], tar[128], command[512];
	struct container_template t[] = { { "folder", dir }, { "tar.v1", tar } };
	const struct engine_options o = { .templates = t, .n_templates = 2 };

	CHECK(mkdtemp(dir));
	CHECK_INT(chmod(dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/app", dir);
	snprintf(tar, sizeof(tar), "%s.tar", dir);
	CHECK_INT(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/app/hello", dir);
	CHECK_INT(fd_write_file(AT_FDCWD, path, "hello\n", 6, 0644), 0);
	snprintf(command, sizeof(command), "cd %s && tar cf %s .", dir, tar);
	CHECK_INT(run_shell(command), 0);
	with_options(&o, check_templates);
	CHECK_INT(access(path, F_OK), 0);
	snprintf(command, sizeof(command), "rm -r %s %s", dir, tar);
	CHECK_INT(run_shell(command), 0);
}

TEST(refused_bases)
{
	struct fix f = { 0 };
	const char *secrets[] = { f.secret, NULL };
	struct container_template t = { "bad", "/" };
	struct engine_options o = { .templates = &t, .n_templates = 1, .secret_paths = secrets };
	char sub[128], *why;

	fix_make_dir(&f);
	CHECK_INT(loop_new(&f.loop), 0);
	o.loop = f.loop;
	o.state_dir = f.dir;
	CHECK_INT(engine_new(&o, on_done, NULL, &why, &f.bs), -EINVAL);
	CHECK(strstr(why, "contains the state directory"));
	free(why);
	t.path = f.dir;
	CHECK_INT(engine_new(&o, on_done, NULL, &why, &f.bs), -EINVAL);
	free(why);
	/* The secret in the template, the state elsewhere. */
	snprintf(sub, sizeof(sub), "%s-state", f.dir);
	CHECK_INT(mkdir(sub, 0700), 0);
	o.state_dir = sub;
	CHECK_INT(engine_new(&o, on_done, NULL, &why, &f.bs), -EINVAL);
	CHECK(strstr(why, "contains the secret file"));
	free(why);
	t = (struct container_template){ "base", "/usr/share" };
	CHECK_INT(engine_new(&o, on_done, NULL, &why, &f.bs), -EINVAL);
	free(why);
	t = (struct container_template){ "fine", "/no/such/folder" };
	CHECK_INT(engine_new(&o, on_done, NULL, &why, &f.bs), -ENOENT);
	free(why);
	loop_free(f.loop);
	CHECK_INT(rmdir(sub), 0);
	CHECK_INT(unlink(f.secret), 0);
	CHECK_INT(rmdir(f.dir), 0);
}

/* --- the engine is killed --- */

/* A child process with an engine and a running command, which is then killed. */
static noreturn_ void doomed(struct fix *f, const char *script, int report)
{
	struct ran r = { .out = BUF_NULL };
	const char *args[] = { "-c", script };
	struct container_user u;
	struct container_proc_options o = {
		.cmd = "bash", .args = args, .n_args = 2, .cwd = "/", .user = &u};
	struct waited w = fix_start(f, NULL);
	struct container *b;

	CHECK_INT(w.r, 0);
	b = fix_container(f, "doomed");
	CHECK_INT(container_user_lookup(b, "user", &u), 0);
	CHECK(fix_start_proc(f, b, &o, &r));
	CHECK_INT(write(report, "x", 1), 1);
	for (;;)
		pause();
}

/* Until there is, or is no, such process on this machine. */
static void wait_for_sleeper(const char *command, bool there)
{
	uint64_t end = clock_boot_ms() + FIX_WAIT_MS;
	char script[128];

	snprintf(script, sizeof(script), "pgrep -f '^%s' >/dev/null", command);
	while ((run_shell(script) == 0) != there)
		CHECK(clock_boot_ms() < end);
}

/* The supervisor is the doomed process's only child. */
static pid_t only_child(pid_t pid)
{
	char path[64], *text;
	uint64_t v = 0;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	CHECK_INT(fd_read_file(AT_FDCWD, path, 4096, &text, &n), 0);
	CHECK_INT(str_u64(text, strcspn(text, " "), 1u << 30, &v), 0);
	free(text);
	return (pid_t)v;
}

/* Of this process: the last engine's. */
static pid_t youngest_supervisor(void)
{
	char path[64], *text, *last;
	uint64_t v = 0;
	size_t n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	CHECK_INT(fd_read_file(AT_FDCWD, path, 4096, &text, &n), 0);
	CHECK(n > 1);
	text[n - 1] = '\0';	/* a blank */
	last = strrchr(text, ' ');
	last = last ? last + 1 : text;
	CHECK_INT(str_u64(last, strlen(last), 1u << 30, &v), 0);
	free(text);
	return (pid_t)v;
}

static void kill_engine(bool supervisor_too)
{
	struct fix f = { 0 };
	char byte, script[64], sleeper[32];
	struct waited w;
	int fds[2];
	pid_t pid;

	(void)engine();
	fix_make_dir(&f);
	CHECK_INT(pipe(fds), 0);
	snprintf(sleeper, sizeof(sleeper), "sleep 9%d", (int)getpid());
	snprintf(script, sizeof(script), "exec %s", sleeper);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		doomed(&f, script, fds[1]);
	CHECK_INT(read(fds[0], &byte, 1), 1);
	wait_for_sleeper(sleeper, true);
	if (supervisor_too)
		CHECK_INT(kill(only_child(pid), SIGKILL), 0);
	CHECK_INT(kill(pid, SIGKILL), 0);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	w = fix_start(&f, NULL);
	CHECK_INT(w.r, 0);
	wait_for_sleeper(sleeper, false);
	check_basics(&f);
	fix_stop(&f);		/* checks that nothing is left in the folder */
	close(fds[0]);
	close(fds[1]);
}

TEST(a_killed_engine_leaves_nothing)
{
	kill_engine(false);
}

TEST(a_killed_engine_and_supervisor_leave_nothing)
{
	kill_engine(true);
}

TEST(a_dead_supervisor_is_said)
{
	struct fix f = { 0 };
	const struct container_options o = { .id = "late", .template = "base" };
	struct waited w, made = { 0 }, gone = { 0 };
	struct container *b;

	(void)engine();
	fix_make_dir(&f);
	w = fix_start(&f, NULL);
	CHECK_INT(w.r, 0);
	CHECK_INT(kill(youngest_supervisor(), SIGKILL), 0);
	CHECK_INT(container_new(f.bs, &o, on_done, &made, &b), 0);
	PUMP_UNTIL(&f, made.done);
	CHECK(made.r < 0);
	container_destroy(b, on_done, &gone);
	PUMP_UNTIL(&f, gone.done);
	f.bs = engine_free(f.bs);
	f.loop = loop_free(f.loop);
	w = fix_start(&f, NULL);	/* cleans up */
	CHECK_INT(w.r, 0);
	fix_stop(&f);
}

TEST(the_end)
{
	struct fix *f = engine();
	struct container_capability c[CONTAINER_CAPABILITIES_MAX];
	size_t n = engine_capabilities(f->bs, c);

	for (size_t i = 0; i < n; i++)
		printf("%-16s %-3s %s\n", c[i].name, c[i].available ? "yes" : "no", c[i].text);
	(void)fix_container(f, "left");	/* removed by the end of the engine */
	fix_stop(f);
}

TEST_MAIN()
