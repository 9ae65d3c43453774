/* SPDX-License-Identifier: MIT */
/* Files of a sandbox: what the calls do, and that no path, link or race leads out. */
#include <signal.h>
#include <sys/wait.h>

#include "container_fixture.h"
#include "daemon/local/engine/watch.h"
#include "drop_user.h"

static struct fix fix;
static struct container *container;
static struct container_user user, root;

struct got {
	bool done;
	int r, fd;
	struct buf text;	/* entries, one a line */
	struct fs_entry last;
	char target[256], owner[64], path[256];
};

static void take(struct got *g, const struct fs_entry *e)
{
	g->last = *e;
	snprintf(g->target, sizeof(g->target), "%s", e->symlink_target ? e->symlink_target : "");
	snprintf(g->owner, sizeof(g->owner), "%s:%s", e->owner, e->group);
	snprintf(g->path, sizeof(g->path), "%s", e->path);
	CHECK_INT(buf_printf(&g->text, "%s\n", e->path), 0);
	for (size_t i = 0; i < e->n_meta; i++)
		CHECK_INT(buf_printf(&g->text, " %s=%s\n", e->meta[i].key, e->meta[i].value), 0);
}

static void finish(struct got *g, int r)
{
	CHECK(!g->done);
	g->done = true;
	g->r = r;
	CHECK_INT(buf_put(&g->text, "", 1), 0);
}

static void on_entry(void *u, int r, const struct fs_entry *e)
{
	if (r == 0)
		take(u, e);
	finish(u, r);
}

static void on_list(void *u, int r, const struct fs_entry *e, size_t n)
{
	for (size_t i = 0; i < n; i++)
		take(u, &e[i]);
	finish(u, r);
}

static void on_simple(void *u, int r)
{
	finish(u, r);
}

static void on_open(void *u, int r, int fd, const struct fs_entry *e)
{
	struct got *g = u;

	if (r == 0)
		take(g, e);
	g->fd = fd;
	finish(g, r);
}

static struct fix *engine(void)
{
	struct waited w;

	if (fix.bs)
		return &fix;
	fix_make_dir(&fix);
	w = fix_start(&fix, NULL);
	if (w.r < 0) {
		fprintf(stderr, "skip engine: %s\n", w.why);
		exit(77);
	}
	container = fix_container(&fix, "files");
	CHECK_INT(container_user_lookup(container, "user", &user), 0);
	CHECK_INT(container_user_lookup(container, "root", &root), 0);
	return &fix;
}

#define CALL(g, call)                                                                              \
	do {                                                                                       \
		buf_fini(&(g)->text);                                                              \
		*(g) = (struct got){ .fd = -1 };                                                   \
		CHECK_INT(call, 0);                                                                \
		CHECK(!(g)->done);                                                                 \
		PUMP_UNTIL(engine(), (g)->done);                                                   \
	} while (0)

static int stat_r(struct got *g, const char *path)
{
	CALL(g, fs_stat(container, path, on_entry, g, NULL));
	return g->r;
}

static int write_file(const char *path, const char *text)
{
	struct got g = { .fd = -1 };

	CALL(&g, fs_open_write(container, path, &user, NULL, 0, on_open, &g, NULL));
	if (g.fd >= 0)
		CHECK_INT(fd_write_all(g.fd, text, strlen(text)), 0);
	fd_close(g.fd);
	buf_fini(&g.text);
	return g.r;
}

static int read_file(const char *path, char *ret, size_t cap)
{
	struct got g = { .fd = -1 };
	ssize_t n;

	CALL(&g, fs_open_read(container, path, on_open, &g, NULL));
	if (g.r == 0) {
		n = read(g.fd, ret, cap - 1);
		CHECK(n >= 0);
		ret[n] = '\0';
	}
	fd_close(g.fd);
	buf_fini(&g.text);
	return g.r;
}

TEST(write_read_stat)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 };
	char text[64];

	CHECK_INT(write_file("/home/user/a/b.txt", "hello"), 0);
	CHECK_INT(read_file("/home/user/a/b.txt", text, sizeof(text)), 0);
	CHECK_STR(text, "hello");
	CHECK_INT(stat_r(&g, "/home/user/a"), 0);
	CHECK_INT(g.last.type, FS_DIRECTORY);
	CHECK_INT(g.last.mode, 0755);
	CHECK_STR(g.last.permissions, "drwxr-xr-x");
	CHECK_STR(g.owner, "user:user");
	CHECK_INT(stat_r(&g, "/home/user/a/b.txt"), 0);
	CHECK_INT(g.last.mode, 0644);
	CHECK_INT(g.last.size, 5);
	CHECK_STR(g.last.permissions, "-rw-r--r--");
	CHECK_STR(g.owner, "user:user");
	CHECK(g.last.mtime_s > 1500000000);
	expect(f, container, "user", "cat ~user/a/b.txt && echo more >>~user/a/b.txt", "hello", 0);
	CHECK_INT(write_file("/home/user/a/b.txt", "x"), 0);	/* truncates */
	CHECK_INT(read_file("/home/user/a/b.txt", text, sizeof(text)), 0);
	CHECK_STR(text, "x");
	CHECK_INT(stat_r(&g, "/usr/bin"), 0);
	CHECK_STR(g.owner, "root:root");
	CHECK_INT(stat_r(&g, "/"), 0);
	CHECK_STR(g.owner, "root:root");
	CHECK_INT(stat_r(&g, "/tmp"), 0);
	CHECK_STR(g.last.permissions, "dtrwxrwxrwx");
	CHECK_INT(stat_r(&g, "/nope/x"), -ENOENT);
	CHECK_INT(read_file("/nope", text, sizeof(text)), -ENOENT);
	CHECK_INT(read_file("/tmp", text, sizeof(text)), -EISDIR);
	CHECK_INT(write_file("/tmp", "x"), -EISDIR);
	CHECK_INT(write_file("/home/user/a/b.txt/c", "x"), -ENOTDIR);
	buf_fini(&g.text);
}

TEST(only_regular_files)
{
	struct fix *f = engine();
	char text[64];

	expect(f, container, "root", "mkfifo /tmp/fifo; ln -s /dev/zero /tmp/zero", "", 0);
	CHECK_INT(read_file("/tmp/fifo", text, sizeof(text)), -EMEDIUMTYPE);
	CHECK_INT(write_file("/tmp/fifo", "x"), -EMEDIUMTYPE);
	/* as the cloud agent: a device has no size, and is read to it */
	CHECK_INT(read_file("/tmp/zero", text, sizeof(text)), 0);
	CHECK_STR(text, "");
	CHECK_INT(read_file("/dev/tty", text, sizeof(text)), 0);
	CHECK_INT(read_file("/proc/1/environ", text, sizeof(text)), -EACCES);
	CHECK_INT(write_file("/proc/sys/kernel/hostname", "b"), -EMEDIUMTYPE);
}

TEST(metadata)
{
	struct fs_meta m[] = { { "owner", "bob" }, { "x", "y z" } };
	struct got g = { .fd = -1 };
	char big[5000];

	(void)engine();
	CALL(&g, fs_open_write(container, "/tmp/meta", &user, m, 2, on_open, &g, NULL));
	CHECK_INT(g.r, 0);
	CHECK_INT(g.last.n_meta, 2);
	fd_close(g.fd);
	CHECK_INT(stat_r(&g, "/tmp/meta"), 0);
	CHECK(strstr((const char *)buf_data(&g.text), " owner=bob\n"));
	CHECK(strstr((const char *)buf_data(&g.text), " x=y z\n"));
	CHECK_INT(write_file("/tmp/meta", "again"), 0);
	CHECK_INT(stat_r(&g, "/tmp/meta"), 0);
	CHECK_INT(g.last.n_meta, 0);
	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	m[0].value = big;
	CHECK_INT(fs_open_write(container, "/tmp/meta", &user, m, 2, on_open, &g, NULL), -E2BIG);
	buf_fini(&g.text);
}

TEST(folders)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 };

	CALL(&g, fs_mkdir(container, "/srv/d/e", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, 0);
	CHECK_STR(g.path, "/srv/d/e");
	CHECK_STR(g.owner, "user:user");
	CALL(&g, fs_mkdir(container, "/srv/d/e", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, -EEXIST);
	CHECK_INT(write_file("/srv/d/b", "1"), 0);
	CHECK_INT(write_file("/srv/d/a", "1"), 0);
	CHECK_INT(write_file("/srv/d/e/c", "1"), 0);
	CALL(&g, fs_mkdir(container, "/srv/d/a", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, -ENOTDIR);
	CALL(&g, fs_mkdir(container, "/srv/d/a/x", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, -ENOTSUP);
	CALL(&g, fs_list(container, "/srv/d", 0, on_list, &g, NULL));
	CHECK_STR((const char *)buf_data(&g.text), "/srv/d/a\n/srv/d/b\n/srv/d/e\n");
	CALL(&g, fs_list(container, "/srv/d", 2, on_list, &g, NULL));
	CHECK_STR((const char *)buf_data(&g.text), "/srv/d/a\n/srv/d/b\n/srv/d/e\n/srv/d/e/c\n");
	CALL(&g, fs_list(container, "/srv/d/a", 1, on_list, &g, NULL));
	CHECK_INT(g.r, -ENOTDIR);
	CALL(&g, fs_list(container, "/srv/nope", 1, on_list, &g, NULL));
	CHECK_INT(g.r, -ENOENT);
	expect(f, container, "root", "ln -s /srv/d/e /srv/link; ln -s loop /srv/loop", "", 0);
	CALL(&g, fs_list(container, "/srv/link", 1, on_list, &g, NULL));
	CHECK_STR((const char *)buf_data(&g.text), "/srv/link/c\n");
	CALL(&g, fs_list(container, "/srv/loop", 1, on_list, &g, NULL));
	CHECK_INT(g.r, -ELOOP);
	buf_fini(&g.text);
}

TEST(a_large_listing)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 };

	expect(f, container, "user",
	       "mkdir /tmp/many && cd /tmp/many && touch $(seq -f file%05.0f 3000)", "", 0);
	CALL(&g, fs_list(container, "/tmp/many", 1, on_list, &g, NULL));
	CHECK_INT(g.r, 0);
	CHECK_STR(g.path, "/tmp/many/file03000");
	CHECK_INT(buf_len(&g.text), 3000 * 20 + 1);
	CALL(&g, fs_remove(container, "/tmp/many", on_simple, &g, NULL));
	CHECK_INT(g.r, 0);
	CHECK_INT(stat_r(&g, "/tmp/many"), -ENOENT);
	buf_fini(&g.text);
}

TEST(links)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 };
	char text[64];

	expect(f, container, "user",
	       "cd /tmp; echo t >t; ln -s t l1; ln -s /tmp/l1 l2; ln -s nowhere l3", "", 0);
	CHECK_INT(stat_r(&g, "/tmp/l2"), 0);
	CHECK_STR(g.target, "/tmp/t");
	CHECK_INT(g.last.type, FS_FILE);
	CHECK_INT(g.last.mode, 0644);
	CHECK_STR(g.last.permissions, "Lrwxrwxrwx");
	CHECK_INT(stat_r(&g, "/tmp/l3"), 0);
	CHECK_STR(g.target, "/tmp/l3");
	CHECK_INT(g.last.type, FS_UNSPECIFIED);
	CHECK_INT(g.last.mode, 0);
	CHECK_INT(read_file("/tmp/l2", text, sizeof(text)), 0);
	CHECK_STR(text, "t\n");
	buf_fini(&g.text);
}

TEST(move_and_remove)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 };

	CHECK_INT(write_file("/tmp/from", "1"), 0);
	CALL(&g, fs_move(container, "/tmp/from", "/home/user/new/dir/to", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, 0);
	CHECK_STR(g.path, "/home/user/new/dir/to");
	CHECK_INT(stat_r(&g, "/tmp/from"), -ENOENT);
	CHECK_INT(stat_r(&g, "/home/user/new"), 0);
	CHECK_STR(g.owner, "user:user");
	CALL(&g, fs_move(container, "/tmp/from", "/tmp/elsewhere/x", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, -ENOENT);
	CHECK_INT(stat_r(&g, "/tmp/elsewhere"), -ENOENT);
	expect(f, container, "user",
	       "cd /home/user/new && p=. && for i in $(seq 200); do p=$p/d; done && mkdir -p $p && "
	       "touch $p/f && ln -s /etc $p/etc && chmod 000 dir",
	       "", 0);
	CALL(&g, fs_remove(container, "/home/user/new", on_simple, &g, NULL));
	CHECK_INT(g.r, 0);
	CHECK_INT(stat_r(&g, "/home/user/new"), -ENOENT);
	CHECK_INT(stat_r(&g, "/etc/passwd"), 0);
	CALL(&g, fs_remove(container, "/home/user/new", on_simple, &g, NULL));
	CHECK_INT(g.r, 0);
	CALL(&g, fs_remove(container, "/proc", on_simple, &g, NULL));
	CHECK(g.r < 0);
	buf_fini(&g.text);
}

/* --- escapes --- */

/* As a magic link, or because process 1 is nobody's to look at. */
static bool is_refused(int r)
{
	return r == -ELOOP || r == -EACCES;
}

TEST(links_stay_inside)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 };
	char script[512], path[256], text[64];

	snprintf(script, sizeof(script),
		 "mkdir -p /esc; cd /esc; ln -s %s key; ln -s ../../../../../..%s up; ln -s / root; "
		 "ln -s /proc/1/root p1; ln -s /proc/self/root ps; ln -s /proc/self/cwd pc",
		 f->secret, f->secret);
	expect(f, container, "root", script, "", 0);
	CHECK_INT(read_file("/esc/key", text, sizeof(text)), -ENOENT);
	CHECK_INT(read_file("/esc/up", text, sizeof(text)), -ENOENT);
	snprintf(path, sizeof(path), "/../../../..%s", f->secret);
	CHECK_INT(read_file(path, text, sizeof(text)), -ENOENT);
	snprintf(path, sizeof(path), "/esc/root%s", f->secret);
	CHECK_INT(read_file(path, text, sizeof(text)), -ENOENT);
	CHECK_INT(stat_r(&g, "/esc/root/etc/passwd"), 0);
	CHECK(is_refused(stat_r(&g, "/esc/p1/etc")));
	CHECK_INT(stat_r(&g, "/esc/ps/etc"), -ELOOP);
	CHECK_INT(stat_r(&g, "/esc/pc/x"), -ELOOP);
	snprintf(path, sizeof(path), "/proc/1/root%s", f->secret);
	CHECK(is_refused(read_file(path, text, sizeof(text))));
	CHECK(is_refused(write_file("/proc/1/root/tmp/agentbox-escape", "x")));
	CHECK(access("/tmp/agentbox-escape", F_OK) < 0);

	/* Writing through them makes files inside. */
	expect(f, container, "root", "ln -s /tmp/agentbox-inside /esc/w; ln -s /tmp /esc/tmp", "", 0);
	CHECK_INT(write_file("/esc/w", "x"), 0);
	CHECK_INT(write_file("/esc/tmp/agentbox-inside2", "x"), 0);
	expect(f, container, "root", "cat /tmp/agentbox-inside /tmp/agentbox-inside2", "xx", 0);
	CHECK(access("/tmp/agentbox-inside", F_OK) < 0);
	CHECK(access("/tmp/agentbox-inside2", F_OK) < 0);
	buf_fini(&g.text);
}

/* A program inside swaps a folder for links to the host's state directory as fast as it can. */
TEST(a_folder_swapped_during_uploads)
{
	struct fix *f = engine();
	struct ran r = { .out = BUF_NULL };
	char script[1024], path[128];
	const char *args[] = { "-c", script };
	struct container_proc_options o = {
		.cmd = "/bin/bash", .args = args, .n_args = 2, .cwd = "/", .user = &root};
	struct container_proc *p;
	int wrote = 0;

	snprintf(script, sizeof(script),
		 "export PATH=/usr/bin:/bin; mkdir -p /swap/real; cd /swap; ln -s %s host; ln -s ../../../..%s up; "
		 "ln -s /proc/1/root magic; while :; do mv -T real d 2>/dev/null; mv -T d real; "
		 "for l in host up magic; do mv -T $l d 2>/dev/null && mv -T d $l; done; done 2>/dev/null",
		 f->dir, f->dir);
	p = fix_start_proc(f, container, &o, &r);
	CHECK(p);
	for (int i = 0; i < 300; i++) {
		int w = write_file("/swap/d/planted", "x");

		/* It lands inside, or the path is, at that moment, nothing or no way. */
		CHECK(w == 0 || w == -ENOENT || is_refused(w) || w == -ENOTDIR || w == -ENOTSUP || w == -EEXIST);
		wrote += w == 0;
	}
	CHECK(wrote > 0);
	CHECK_INT(container_proc_signal(p, SIGKILL), 0);
	PUMP_UNTIL(f, r.ended);
	container_proc_free(p);
	snprintf(path, sizeof(path), "%s/planted", f->dir);
	CHECK(access(path, F_OK) < 0);
	CHECK(access("/planted", F_OK) < 0);
}

TEST(a_killed_worker_is_replaced)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 };

	CHECK_INT(stat_r(&g, "/"), 0);
	expect(f, container, "root", "pkill -9 agentbox-files", "", 0);
	(void)stat_r(&g, "/");		/* may be the one that notices */
	CHECK_INT(stat_r(&g, "/"), 0);
	buf_fini(&g.text);
}

TEST(many_calls_wait_in_order)
{
	enum { N = 200 };
	struct fix *f = engine();
	struct got g[N];
	bool all = false;

	memset(g, 0, sizeof(g));
	for (int i = 0; i < N; i++)
		CHECK_INT(fs_stat(container, "/etc/passwd", on_entry, &g[i], NULL), 0);
	while (!all) {
		CHECK(loop_once(f->loop, 1000) >= 0);
		all = true;
		for (int i = 0; i < N; i++)
			all = all && g[i].done;
	}
	for (int i = 0; i < N; i++) {
		CHECK_INT(g[i].r, 0);
		buf_fini(&g[i].text);
	}
}

TEST(compose)
{
	const char *sources[] = { "/tmp/part1", "/tmp/part2" }, *missing[] = { "/tmp/part1", "/tmp/none" };
	struct got g = { .fd = -1 };
	char text[64];

	CHECK_INT(write_file("/tmp/part1", "one "), 0);
	CHECK_INT(write_file("/tmp/part2", "two"), 0);
	CALL(&g, fs_compose(container, missing, 2, "/tmp/whole", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, -ENOENT);
	CALL(&g, fs_compose(container, sources, 2, "/tmp/new/whole", &user, on_entry, &g, NULL));
	CHECK_INT(g.r, 0);
	CHECK_INT(g.last.size, 7);
	CHECK_INT(read_file("/tmp/new/whole", text, sizeof(text)), 0);
	CHECK_STR(text, "one two");
	CHECK_INT(stat_r(&g, "/tmp/part1"), -ENOENT);
	expect(&fix, container, "root", "ls -A /tmp/new", "whole\n", 0);
	buf_fini(&g.text);
}

struct seen {
	struct buf text;	/* "create name" lines */
	bool ready, over;
	int r;
};

static void on_watch(void *u, const struct container_watch_event *e)
{
	static const char *const ops[] = { "?", "create", "write", "remove", "rename", "chmod" };
	struct seen *s = u;

	s->ready |= e->kind == CONTAINER_WATCH_READY;
	s->over |= e->kind == CONTAINER_WATCH_FAILED || e->kind == CONTAINER_WATCH_OVERFLOW;
	s->r = e->kind == CONTAINER_WATCH_FAILED ? e->r : 0;
	if (e->kind == CONTAINER_WATCH_CHANGE)
		CHECK_INT(buf_printf(&s->text, "%s %s %s\n", ops[e->op], e->name,
				     e->entry ? e->entry->path : "-"), 0);
	CHECK(buf_space(&s->text, 1));
	*buf_space(&s->text, 1) = 0;
}

static bool saw(const struct seen *s, const char *line)
{
	return buf_len(&s->text) && strstr((const char *)buf_data(&s->text), line);
}

TEST(watch)
{
	struct fix *f = engine();
	struct container_watch_options o = { .path = "/tmp/w", .recursive = true, .entries = true };
	struct seen s = { .text = BUF_NULL }, none = { .text = BUF_NULL };
	struct container_watch *w;

	CHECK_INT(container_watch_new(container, &o, on_watch, &none, &w), 0);
	PUMP_UNTIL(f, none.over);
	CHECK_INT(none.r, -ENOENT);
	container_watch_free(w);
	expect(f, container, "user", "mkdir -p /tmp/w/sub", "", 0);
	CHECK_INT(container_watch_new(container, &o, on_watch, &s, &w), 0);
	PUMP_UNTIL(f, s.ready);
	expect(f, container, "user",
	       "cd /tmp/w; echo 1 > sub/f; mkdir a; echo 2 > a/g; mv sub/f h; rm h", "", 0);
	PUMP_UNTIL(f, saw(&s, "remove h -\n"));
	CHECK(saw(&s, "create sub/f "));
	CHECK(saw(&s, "create a /tmp/w/a\n"));
	CHECK(saw(&s, "create a/g /tmp/w/a/g\n"));
	CHECK(saw(&s, "rename sub/f -\n"));
	CHECK(!s.over);
	container_watch_free(w);
	buf_fini(&s.text);
	buf_fini(&none.text);
}

TEST(a_watch_ends_with_its_process)
{
	struct fix *f = engine();
	struct container_watch_options o = { .path = "/tmp" };
	struct seen s = { .text = BUF_NULL };
	struct container_watch *w;

	CHECK_INT(container_watch_new(container, &o, on_watch, &s, &w), 0);
	PUMP_UNTIL(f, s.ready);
	expect(f, container, "root", "pkill -9 agentbox-watch", "", 0);
	PUMP_UNTIL(f, s.over);
	CHECK_INT(s.r, -EPIPE);
	container_watch_free(w);
	buf_fini(&s.text);
}

TEST(cancelled_and_destroyed)
{
	struct fix *f = engine();
	struct got g = { .fd = -1 }, h = { .fd = -1 };
	struct fs_op *op;

	CHECK_INT(fs_stat(container, "/", on_entry, &g, &op), 0);
	fs_cancel(op);
	CHECK_INT(fs_list(container, "/usr", 9, on_list, &h, NULL), 0);
	fix_destroy(f, container);
	CHECK(!g.done);
	CHECK(h.done);
	buf_fini(&h.text);
	fix_stop(f);
}

TEST_MAIN()
