/* SPDX-License-Identifier: MIT */
#include "daemon/main/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define CHILD_MAGIC   0x4368696cu
#define FIRST_OWN_FD  4		/* descriptors below this are the child's own */

struct children {
	struct loop *loop;
	struct list all;		/* struct child */
	bool by_signal;			/* SIGCHLD is handled, because a pidfd could not be opened */
	struct defer look;		/* looks once for dead children without a pidfd */
};

struct child {
	uint32_t magic;
	struct children *set;
	struct list node;
	const char *name;
	enum child_state state;
	pid_t pid;
	bool adopted, whole_group;
	bool timed_out, said_too_much;	/* why it was stopped */
	int pidfd, out;			/* -1 = none */
	struct watch exit_watch, output_watch;
	struct timer timer;		/* RUNNING: its time limit; STOPPING: SIGKILL */
	uint32_t kill_after_ms;
	uint64_t started_at_ms;
	child_output_fn *on_output;
	child_done_fn *done;		/* NULL: it was cancelled */
	void *user;
	size_t n, max;
	char text[];			/* max + 1 bytes and a NUL */
};

static const struct {
	const char *name;
	unsigned next;
} child_states[] = {
	[CHILD_RUNNING]	 = { "running", BIT(CHILD_STOPPING) | BIT(CHILD_KILLED) | BIT(CHILD_ENDED) },
	[CHILD_STOPPING] = { "stopping", BIT(CHILD_KILLED) | BIT(CHILD_ENDED) },
	[CHILD_KILLED]	 = { "killed", BIT(CHILD_ENDED) },
	[CHILD_ENDED]	 = { "ended", 0 },
};

static void child_set_state(struct child *c, enum child_state to)
{
	must(child_states[c->state].next & BIT(to));
	log_debug("child_state", "child=%s pid=%d from=%s to=%s", c->name, (int)c->pid, child_states[c->state].name,
		  child_states[to].name);
	c->state = to;
}

static struct child *child_from(void *p)
{
	struct child *c = p;

	must(c && c->magic == CHILD_MAGIC);
	return c;
}

/* --- its environment and descriptors --- */

static bool is_ours_alone(const char *variable)
{
	static const char *const names[] = { "NOTIFY_", "LISTEN_", "WATCHDOG_", "FDSTORE=" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_starts(variable, names[i]))
			return true;
	return false;
}

/* A new array of the strings of `environ`. NULL without memory. */
static char **clean_environment(void)
{
	size_t n = 0, kept = 0;
	char **ret;

	while (environ && environ[n])
		n++;
	ret = calloc(n + 1, sizeof(*ret));
	for (size_t i = 0; ret && i < n; i++)
		if (!is_ours_alone(environ[i]))
			ret[kept++] = environ[i];
	return ret;
}

static int set_files(posix_spawn_file_actions_t *fa, const struct child_options *o, int out)
{
	int r = posix_spawn_file_actions_addopen(fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (!r && o->output_fd != STDOUT_FILENO)
		r = posix_spawn_file_actions_addopen(fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (!r)
		r = posix_spawn_file_actions_adddup2(fa, out, o->output_fd);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(fa, o->output_fd == 3 ? FIRST_OWN_FD : 3);
	return r;
}

static int set_attributes(posix_spawnattr_t *at)
{
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	r = posix_spawnattr_setflags(at, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!r)
		r = posix_spawnattr_setsigmask(at, &none);
	if (!r)
		r = posix_spawnattr_setsigdefault(at, &all);
	return r;
}

/* `out` is FIRST_OWN_FD or above, so that no file action overwrites it. */
static int spawn(const struct child_options *o, int out, pid_t *ret)
{
	char **env = clean_environment();
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	int r = env ? posix_spawn_file_actions_init(&fa) : ENOMEM;

	if (r) {
		free(env);
		return -r;
	}
	r = posix_spawnattr_init(&at);
	if (!r) {
		r = set_files(&fa, o, out);
		if (!r)
			r = set_attributes(&at);
		if (!r)
			r = posix_spawnp(ret, o->program, &fa, &at, o->argv, env);
		posix_spawnattr_destroy(&at);
	}
	posix_spawn_file_actions_destroy(&fa);
	free(env);
	return -r;
}

/* The writing end of the pipe is closed on our side before this returns. */
static int spawn_with_pipe(struct child *c, const struct child_options *o)
{
	int fds[2], out, r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	c->out = fds[0];
	out = fcntl(fds[1], F_DUPFD_CLOEXEC, FIRST_OWN_FD);
	r = out < 0 ? -errno : fd_set_nonblock(c->out, true);
	if (!r)
		r = spawn(o, out, &c->pid);
	fd_close(out);
	fd_close(fds[1]);
	return r;
}

/* --- signals --- */

static void send_signal(struct child *c, int signo)
{
	if (c->whole_group)
		(void)kill(-c->pid, signo);	/* the number cannot be reused before we reap the child */
	else if (c->pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, c->pidfd, signo, NULL, 0);
	else
		(void)kill(c->pid, signo);
}

static void kill_now(struct child *c)
{
	timer_clear(&c->timer);
	if (c->state == CHILD_KILLED)
		return;
	child_set_state(c, CHILD_KILLED);
	send_signal(c, SIGKILL);
}

void child_stop(struct child *c)
{
	if (c->state != CHILD_RUNNING)
		return;
	if (timer_set(&c->timer, loop_now_ms(c->set->loop) + c->kill_after_ms) < 0) {
		kill_now(c);
		return;
	}
	child_set_state(c, CHILD_STOPPING);
	send_signal(c, SIGTERM);
}

static void on_timer(struct timer *t, void *user)
{
	struct child *c = child_from(user);

	if (c->state == CHILD_RUNNING) {
		c->timed_out = true;
		child_stop(c);
	} else if (c->state == CHILD_STOPPING) {
		log_warn("child_killed", "child=%s pid=%d reason=\"SIGTERM did not end it in %u ms\"", c->name, (int)c->pid,
			 c->kill_after_ms);
		kill_now(c);
	}
}

/* --- output --- */

static void close_output(struct child *c)
{
	watch_fini(&c->output_watch);
	c->out = fd_close(c->out);
}

/* Reads what is there now. */
static void take_output(struct child *c)
{
	ssize_t n = 1;

	while (c->out >= 0 && n > 0) {
		n = read(c->out, c->text + c->n, c->max + 1 - c->n);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			c->n += (size_t)n;
		else if (n == 0 || errno != EAGAIN)
			close_output(c);
		if (c->n > c->max) {
			c->said_too_much = true;
			close_output(c);
		}
	}
}

static void hear(struct child *c)
{
	size_t before = c->n;

	take_output(c);
	if (c->said_too_much)
		child_stop(c);
	else if (c->on_output && c->n > before)
		c->on_output(c, c->user);
}

static void on_output(struct watch *w, unsigned ready, void *user)
{
	hear(child_from(user));
}

const char *child_output(const struct child *c, size_t *ret_n)
{
	if (ret_n)
		*ret_n = c->n;
	return c->text;
}

void child_settle(struct child *c)
{
	close_output(c);
	if (c->state == CHILD_RUNNING)
		timer_clear(&c->timer);
}

/* --- the end --- */

static void child_free(struct child *c)
{
	list_del(&c->node);
	watch_fini(&c->exit_watch);
	close_output(c);
	timer_clear(&c->timer);
	fd_close(c->pidfd);
	explicit_bzero(c->text, c->max + 2);
	free(c);
}

/* True also if somebody else reaped it. It is not reaped here, so its number and its group's stay reserved. */
static bool is_dead(const struct child *c)
{
	siginfo_t si = { .si_pid = 0 };
	int r;

	while ((r = waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT)) < 0 && errno == EINTR)
		;
	return r < 0 || si.si_pid == c->pid;
}

static void reap(struct child *c, struct child_result *ret)
{
	int status, r;

	if (c->whole_group)
		(void)kill(-c->pid, SIGKILL);	/* the rest of its group */
	while ((r = waitpid(c->pid, &status, WNOHANG)) < 0 && errno == EINTR)
		;
	if (r == c->pid && WIFEXITED(status))
		*ret = (struct child_result){ .end = CHILD_EXITED, .number = WEXITSTATUS(status) };
	else if (r == c->pid && WIFSIGNALED(status))
		*ret = (struct child_result){ .end = CHILD_SIGNALLED, .number = WTERMSIG(status) };
}

static void finish(struct child *c)
{
	struct child_result r = { .end = CHILD_GONE };

	hear(c);	/* output that came with the end is told before the end */
	if (!c->adopted)
		reap(c, &r);
	if (c->said_too_much)
		r.end = CHILD_SAID_TOO_MUCH;
	else if (c->timed_out)
		r.end = CHILD_TIMED_OUT;
	r.output = c->text;
	r.n_output = c->n;
	child_set_state(c, CHILD_ENDED);
	if (c->done)
		c->done(&r, c->user);
	child_free(c);
}

static void on_exit_fd(struct watch *w, unsigned ready, void *user)
{
	struct child *c = child_from(user);

	if (c->adopted || is_dead(c))
		finish(c);
}

static struct child *first_dead(struct children *s)
{
	list_for_each(n, &s->all) {
		struct child *c = list_entry(n, struct child, node);

		if (c->pidfd < 0 && c->state != CHILD_ENDED && is_dead(c))
			return c;
	}
	return NULL;
}

/* `done` may start or cancel other children, so the list is searched from its head each time. */
static void look_for_dead(struct children *s)
{
	struct child *c;

	while ((c = first_dead(s)))
		finish(c);
}

static void on_sigchld(int signo, void *user)
{
	look_for_dead(user);
}

static void on_look(struct defer *d, void *user)
{
	look_for_dead(user);
}

void child_cancel(struct child *c)
{
	if (!c)
		return;
	c->done = NULL;
	c->on_output = NULL;
	c->user = NULL;
	close_output(c);
	if (c->state != CHILD_ENDED)
		kill_now(c);
}

void child_release(struct child *c)
{
	if (c)
		child_free(c);
}

/* --- the beginning --- */

static int watch_by_signal(struct child *c)
{
	struct children *s = c->set;
	int r = s->by_signal ? 0 : loop_signal(s->loop, SIGCHLD, on_sigchld, s);

	if (r < 0)
		return r;
	s->by_signal = true;
	defer_post(&s->look);	/* a child may have ended before the handler was there */
	return 0;
}

static int watch_exit(struct child *c)
{
	int r = fd_pidfd(c->pid, &c->pidfd);

	if (r < 0)
		return c->adopted ? r : watch_by_signal(c);
	r = watch_init(&c->exit_watch, c->set->loop, c->pidfd, on_exit_fd, c);
	return r < 0 ? r : watch_set(&c->exit_watch, WATCH_READ);
}

static int watch_output(struct child *c)
{
	int r = watch_init(&c->output_watch, c->set->loop, c->out, on_output, c);

	return r < 0 ? r : watch_set(&c->output_watch, WATCH_READ);
}

static struct child *child_new(struct children *s, const struct child_options *o)
{
	struct child *c = calloc(1, sizeof(*c) + o->output_max + 2);

	if (!c)
		return NULL;
	c->magic = CHILD_MAGIC;
	c->set = s;
	c->name = o->name;
	c->whole_group = o->whole_group;
	c->pidfd = c->out = -1;
	c->kill_after_ms = o->kill_after_ms;
	c->started_at_ms = loop_now_ms(s->loop);
	c->on_output = o->on_output;
	c->done = o->done;
	c->user = o->user;
	c->max = o->output_max;
	timer_init(&c->timer, s->loop, on_timer, c);
	list_init(&c->node);
	list_add_tail(&s->all, &c->node);
	return c;
}

int child_start(struct children *s, const struct child_options *o, struct child **ret)
{
	struct child *c = child_new(s, o);
	int r;

	must(o->output_fd == STDOUT_FILENO || o->output_fd == 3);
	if (!c)
		return -ENOMEM;
	r = spawn_with_pipe(c, o);
	if (r < 0) {
		child_free(c);
		return r;
	}
	r = watch_exit(c);
	if (!r)
		r = watch_output(c);
	if (!r && o->time_limit_ms)
		r = timer_set(&c->timer, loop_now_ms(s->loop) + o->time_limit_ms);
	if (r < 0) {
		child_cancel(c);	/* the program runs already */
		return r;
	}
	log_debug("child_started", "child=%s pid=%d", c->name, (int)c->pid);
	*ret = c;
	return 0;
}

int child_adopt(struct children *s, pid_t pid, const struct child_options *o, struct child **ret)
{
	const struct child_options bare = { .name = o->name, .kill_after_ms = o->kill_after_ms, .done = o->done,
					    .user = o->user };
	struct child *c = child_new(s, &bare);
	int r;

	if (!c)
		return -ENOMEM;
	c->adopted = true;
	c->pid = pid;
	r = watch_exit(c);
	if (r < 0)
		child_free(c);
	else
		*ret = c;
	return r;
}

/* --- all of them --- */

int children_new(struct loop *l, struct children **ret)
{
	struct children *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->loop = l;
	list_init(&s->all);
	defer_init(&s->look, l, on_look, s);
	(void)signal(SIGCHLD, SIG_DFL);
	*ret = s;
	return 0;
}

struct children *children_free(struct children *s)
{
	if (!s)
		return NULL;
	list_for_each_safe(n, &s->all) {
		struct child *c = list_entry(n, struct child, node);

		must(!c->done);
		(void)waitpid(c->pid, NULL, WNOHANG);
		child_free(c);
	}
	defer_cancel(&s->look);
	free(s);
	return NULL;
}

pid_t child_pid(const struct child *c)
{
	return c->pid;
}

const char *child_end_text(const struct child_result *r, char ret[64])
{
	switch (r->end) {
	case CHILD_EXITED:
		snprintf(ret, 64, "it ended with %d", r->number);
		break;
	case CHILD_SIGNALLED:
		snprintf(ret, 64, "it was ended by signal %d", r->number);
		break;
	case CHILD_TIMED_OUT:
		snprintf(ret, 64, "it took too long");
		break;
	case CHILD_SAID_TOO_MUCH:
		snprintf(ret, 64, "it printed too much");
		break;
	case CHILD_GONE:
		snprintf(ret, 64, "it ended");
		break;
	}
	return ret;
}

bool child_info(const struct children *s, size_t i, struct child_info *ret)
{
	list_for_each(n, &s->all) {
		const struct child *c = list_entry(n, struct child, node);

		if (i--)
			continue;
		*ret = (struct child_info){ .name = c->name, .state = child_states[c->state].name, .pid = c->pid,
					    .started_at_ms = c->started_at_ms };
		return true;
	}
	return false;
}
