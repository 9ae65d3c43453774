/* SPDX-License-Identifier: MIT */
/*
 * Real sandboxes in a test: an engine on a state directory of its own, and calls that pump the loop
 * until they are done. All waits are bounded; a wait that ends without its event fails the test.
 */
#ifndef AB_TESTS_UNIT_LOCAL_CONTAINER_FIXTURE_H
#define AB_TESTS_UNIT_LOCAL_CONTAINER_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/local/engine/container.h"
#include "daemon/local/engine/fs.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define FIX_WAIT_MS 20000

struct fix {
	struct loop *loop;
	struct engine *bs;
	char dir[64], secret[96];
};

struct waited {
	bool done;
	int r;
	char why[512];
};

struct ran {
	struct buf out, err;
	struct container_exit x;
	uint32_t pid;
	enum container_spawn_error error;
	bool started, ended;
};

#define PUMP_UNTIL(f, cond)                                                                        \
	do {                                                                                       \
		uint64_t end_ = clock_boot_ms() + FIX_WAIT_MS;                                     \
		while (!(cond)) {                                                                  \
			CHECK(clock_boot_ms() < end_);                                             \
			CHECK(loop_once((f)->loop, 50) >= 0);                                      \
		}                                                                                  \
	} while (0)

static unused_ void on_done(void *user, int r, const char *why)
{
	struct waited *w = user;

	CHECK(!w->done);
	w->done = true;
	w->r = r;
	snprintf(w->why, sizeof(w->why), "%s", why);
}

static unused_ void fix_make_dir(struct fix *f)
{
	snprintf(f->dir, sizeof(f->dir), "/tmp/agentbox-test-XXXXXX");
	CHECK(mkdtemp(f->dir));
	snprintf(f->secret, sizeof(f->secret), "%s/key", f->dir);
	CHECK_INT(fd_write_file(AT_FDCWD, f->secret, "ab_secret_key\n", 14, 0600), 0);
}

/* Returns what `ready` said; the text is in f's waited. */
static unused_ struct waited fix_start(struct fix *f, const struct engine_options *with)
{
	struct engine_options o = with ? *with : (struct engine_options){ 0 };
	const char *secrets[] = { f->secret, NULL };
	struct waited w = { 0 };
	char *why;

	CHECK_INT(loop_new(&f->loop), 0);
	o.loop = f->loop;
	o.state_dir = f->dir;
	o.secret_paths = secrets;
	if (engine_new(&o, on_done, &w, &why, &f->bs) < 0) {
		fprintf(stderr, "engine_new: %s\n", why ? why : "?");
		exit(1);
	}
	PUMP_UNTIL(f, w.done);
	if (w.r < 0)
		fprintf(stderr, "engine: %s\n", w.why);
	return w;
}

static unused_ int run_shell(const char *command)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static unused_ void fix_stop(struct fix *f)
{
	char path[192];

	f->bs = engine_free(f->bs);
	f->loop = loop_free(f->loop);
	snprintf(path, sizeof(path), "%s/engine", f->dir);
	CHECK(access(path, F_OK) < 0 && errno == ENOENT);
	snprintf(path, sizeof(path), "rm -rf %s/templates %s/layers", f->dir, f->dir);	/* kept for the next start */
	CHECK_INT(run_shell(path), 0);
	CHECK_INT(unlink(f->secret), 0);
	CHECK_INT(rmdir(f->dir), 0);
}

static unused_ struct container *fix_container_with(struct fix *f, const struct container_options *o)
{
	struct waited w = { 0 };
	struct container *b;

	CHECK_INT(container_new(f->bs, o, on_done, &w, &b), 0);
	CHECK(!w.done);
	PUMP_UNTIL(f, w.done);
	if (w.r < 0)
		fprintf(stderr, "container_new: %s\n", w.why);
	CHECK_INT(w.r, 0);
	return b;
}

static unused_ struct container *fix_container(struct fix *f, const char *id)
{
	const struct container_options o = { .id = id, .template = "base" };

	return fix_container_with(f, &o);
}

static unused_ void fix_destroy(struct fix *f, struct container *b)
{
	struct waited w = { 0 };

	container_destroy(b, on_done, &w);
	CHECK(!w.done);
	PUMP_UNTIL(f, w.done);
	CHECK_INT(w.r, 0);
}

/* --- commands --- */

static unused_ void on_started(void *user, struct container_proc *p, enum container_spawn_error e,
			       int err)
{
	struct ran *r = user;

	(void)err;
	CHECK(!r->started);
	r->started = true;
	r->error = e;
	if (e == CONTAINER_SPAWN_OK) {
		r->pid = container_proc_pid(p);
		CHECK(r->pid > 1);
	}
}

static unused_ void on_ended(void *user, struct container_proc *p, const struct container_exit *x)
{
	struct ran *r = user;

	(void)p;
	CHECK(r->started && !r->ended);
	r->ended = true;
	r->x = *x;
}

static const struct container_proc_events fix_events = { on_started, on_ended };

/* False at its end. */
static unused_ bool fix_read(int fd, struct buf *b)
{
	for (;;) {
		uint8_t *at = buf_space(b, 65536);
		ssize_t n;

		CHECK(at);
		n = read(fd, at, 65536);
		if (n > 0)
			buf_added(b, (size_t)n);
		else
			return n < 0 && errno == EAGAIN;
	}
}

static unused_ struct container_proc *fix_start_proc(struct fix *f, struct container *b,
						     const struct container_proc_options *o,
						     struct ran *r)
{
	struct container_proc *p;

	CHECK_INT(container_proc_start(b, o, &fix_events, r, &p), 0);
	CHECK(!r->started);
	PUMP_UNTIL(f, r->started);
	return r->error == CONTAINER_SPAWN_OK ? p : NULL;
}

/* Runs to the end, with all output. */
static unused_ struct ran fix_run_with(struct fix *f, struct container *b,
				       const struct container_proc_options *o)
{
	struct ran r = { .out = BUF_NULL, .err = BUF_NULL };
	struct container_proc *p = fix_start_proc(f, b, o, &r);
	bool out = true, err = true;
	int out_fd, err_fd;

	if (!p)
		return r;
	out_fd = container_proc_take_fd(p, CONTAINER_STDOUT);
	err_fd = container_proc_take_fd(p, CONTAINER_STDERR);
	CHECK(out_fd >= 0 && err_fd >= 0);
	PUMP_UNTIL(f, (out = out && fix_read(out_fd, &r.out), err = err && fix_read(err_fd, &r.err),
		       r.ended && !out && !err));
	fd_close(out_fd);
	fd_close(err_fd);
	container_proc_free(p);
	CHECK_INT(buf_put(&r.out, "", 1), 0);
	CHECK_INT(buf_put(&r.err, "", 1), 0);
	return r;
}

static unused_ struct ran fix_run(struct fix *f, struct container *b, const char *user,
				  const char *script)
{
	static const char *const envs[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
	};
	const char *args[] = { "-c", script };
	struct container_proc_options o = { .cmd = "/bin/bash", .args = args, .n_args = 2, .envs = envs,
				      .n_envs = 2, .cwd = "/" };
	struct container_user u;

	CHECK_INT(container_user_lookup(b, user, &u), 0);
	o.user = &u;
	return fix_run_with(f, b, &o);
}

static unused_ void ran_fini(struct ran *r)
{
	buf_fini(&r->out);
	buf_fini(&r->err);
}

/* Runs and compares: the usual test. */
static unused_ void expect(struct fix *f, struct container *b, const char *user, const char *script,
			   const char *out, int code)
{
	struct ran r = fix_run(f, b, user, script);
	bool ok = r.error == CONTAINER_SPAWN_OK && r.x.exited && r.x.code == code &&
		  (!out || str_eq((const char *)buf_data(&r.out), out));

	if (!ok)
		fprintf(stderr, "as %s: %s\n  spawn %d exited %d code %d sig %d\n  out: %s\n  err: %s\n", user,
			script, r.error, r.x.exited, r.x.code, r.x.sig,
			buf_len(&r.out) ? (const char *)buf_data(&r.out) : "",
			buf_len(&r.err) ? (const char *)buf_data(&r.err) : "");
	CHECK(ok);
	ran_fini(&r);
}

#endif
