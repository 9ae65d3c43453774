/* SPDX-License-Identifier: MIT */
#include "daemon/main/key_command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"

#define KEY_COMMAND_MAGIC 0x4b657952u

struct key_command {
	uint32_t magic;
	struct loop *loop;
	key_command_done_fn *done;
	void *user;
	pid_t pid;
	int pidfd, out;
	struct watch ended, output;
	struct timer limit;
	char text[SECRET_MAX_BYTES + 1];
	size_t n;
};

static struct key_command *key_command_from(void *p)
{
	struct key_command *k = p;

	must(k && k->magic == KEY_COMMAND_MAGIC);
	return k;
}

/* With all that it started. */
static void end_it(struct key_command *k)
{
	if (k->pid <= 0)
		return;
	(void)kill(-k->pid, SIGKILL);
	while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
		;
	k->pid = 0;
}

static void key_command_free(struct key_command *k)
{
	end_it(k);
	watch_fini(&k->ended);
	watch_fini(&k->output);
	timer_clear(&k->limit);
	fd_close(k->pidfd);
	fd_close(k->out);
	explicit_bzero(k, sizeof(*k));
	free(k);
}

void key_command_cancel(struct key_command *k)
{
	if (k)
		key_command_free(key_command_from(k));
}

static void key_command_finish(struct key_command *k, struct secret *key, const char *why)
{
	key_command_done_fn *done = k->done;
	void *user = k->user;

	key_command_free(k);
	done(user, key, why);
}

/* What there is to read now. False: it has said too much. */
static bool take_output(struct key_command *k)
{
	for (;;) {
		ssize_t n = read(k->out, k->text + k->n, sizeof(k->text) - k->n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n <= 0) {	/* its end: the process says how it went */
			(void)!watch_set(&k->output, 0);
			return true;
		}
		k->n += (size_t)n;
		if (k->n == sizeof(k->text))
			return false;
	}
}

static void on_output(struct watch *w, unsigned ready, void *user)
{
	struct key_command *k = key_command_from(user);

	if (!take_output(k))
		key_command_finish(k, NULL, "it prints more than 4,096 bytes");
}

static void on_ended(struct watch *w, unsigned ready, void *user)
{
	struct key_command *k = key_command_from(user);
	bool fits = take_output(k);
	struct secret *key = NULL;
	char why[64];
	int status, r;

	while ((r = waitpid(k->pid, &status, 0)) < 0 && errno == EINTR)
		;
	(void)kill(-k->pid, SIGKILL);	/* what it left behind */
	k->pid = 0;
	if (r < 0) {
		key_command_finish(k, NULL, strerror(errno));
	} else if (WIFSIGNALED(status)) {
		snprintf(why, sizeof(why), "it was ended by signal %d", WTERMSIG(status));
		key_command_finish(k, NULL, why);
	} else if (WEXITSTATUS(status)) {
		snprintf(why, sizeof(why), "it ended with %d", WEXITSTATUS(status));
		key_command_finish(k, NULL, why);
	} else if (!fits || strlen(k->text) != k->n) {
		key_command_finish(k, NULL,
			      fits ? "what it prints is no key"
				   : "it prints more than 4,096 bytes");
	} else {
		r = secret_take(k->text, &key);
		key_command_finish(k, key, r < 0 ? secret_error(r) : NULL);
	}
}

static void on_limit(struct timer *t, void *user)
{
	key_command_finish(key_command_from(user), NULL, "it did not end within 10 s");
}

static int spawn(const char *command, int out, pid_t *ret)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&fa))
		return -ENOMEM;
	if (posix_spawnattr_init(&at)) {
		posix_spawn_file_actions_destroy(&fa);
		return -ENOMEM;
	}
	r = posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!r)
		r = posix_spawn_file_actions_adddup2(&fa, out, STDOUT_FILENO);
	if (!r)
		r = posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!r)
		r = posix_spawnattr_setsigmask(&at, &none);
	if (!r)
		r = posix_spawnattr_setsigdefault(&at, &all);
	if (!r)
		r = posix_spawn(ret, "/bin/sh", &fa, &at, argv, environ);
	posix_spawnattr_destroy(&at);
	posix_spawn_file_actions_destroy(&fa);
	return -r;
}

int key_command_start(struct loop *l, const char *command, key_command_done_fn *done, void *user, struct key_command **ret)
{
	struct key_command *k = calloc(1, sizeof(*k));
	int fds[2], r;

	if (!k)
		return -ENOMEM;
	k->magic = KEY_COMMAND_MAGIC;
	k->loop = l;
	k->done = done;
	k->user = user;
	k->pidfd = k->out = -1;
	timer_init(&k->limit, l, on_limit, k);
	r = pipe2(fds, O_CLOEXEC) < 0 ? -errno : 0;
	if (!r) {
		k->out = fds[0];
		r = fcntl(k->out, F_SETFL, O_NONBLOCK) < 0 ? -errno : spawn(command, fds[1], &k->pid);
		fd_close(fds[1]);
	}
	if (!r)
		r = fd_pidfd(k->pid, &k->pidfd);
	if (!r)
		r = watch_init(&k->ended, l, k->pidfd, on_ended, k);
	if (!r)
		r = watch_set(&k->ended, WATCH_READ);
	if (!r)
		r = watch_init(&k->output, l, k->out, on_output, k);
	if (!r)
		r = watch_set(&k->output, WATCH_READ);
	if (!r)
		r = timer_set(&k->limit, loop_now_ms(l) + KEY_COMMAND_LIMIT_MS);
	if (r < 0)
		key_command_free(k);
	else
		*ret = k;
	return r;
}
