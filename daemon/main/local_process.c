/* SPDX-License-Identifier: MIT */
#include "daemon/main/local_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define READY_MS	 10000u
#define IDLE_SECONDS	 "60"
#define RESTART_FIRST_MS 200u
#define RESTART_MAX_MS	 30000u
#define LINE_MAX_BYTES	 4096u

struct local_process {
	struct loop *loop;
	char *dir, *ca_file, *key_file;
	char url[64], address[64], domain[64];
	uint16_t port, plain_port;	/* plain_port 0: it has no plain listener */
	pid_t pid;
	int pidfd, users_fd;
	struct watch watch;
	struct timer restart;
	unsigned failures;
	bool stopped;		/* by StopLocal: it stays down */
	struct list waiters;	/* struct local_process_stop */
};

struct local_process_stop {
	struct list node;
	local_process_stopped_fn *done;
	void *user;
	bool was_running;
	struct status st;
	struct defer answer;
	struct timer deadline;
};

/* --- where it is --- */

static bool parse_endpoint(struct local_process *l, const char *text)
{
	json_error_t e;
	json_t *root = json_loads(text, 0, &e);
	const char *address = json_string_value(json_object_get(root, "tls_address"));
	const char *plain = json_string_value(json_object_get(root, "address"));
	json_int_t pid = json_integer_value(json_object_get(root, "pid"));
	const char *ca = json_string_value(json_object_get(root, "ca_file"));
	const char *key = json_string_value(json_object_get(root, "api_key_file"));
	const char *colon = address ? strrchr(address, ':') : NULL;
	uint64_t port = 0, plain_port = 0;
	bool ok = colon && ca && key && pid > 0 &&
		  str_u64(colon + 1, strlen(colon + 1), 65535, &port) == 0 && port;

	colon = plain ? strrchr(plain, ':') : NULL;
	if (colon && str_u64(colon + 1, strlen(colon + 1), 65535, &plain_port) < 0)
		plain_port = 0;
	if (ok) {
		free(l->ca_file);
		free(l->key_file);
		l->ca_file = strdup(ca);
		l->key_file = strdup(key);
		ok = l->ca_file && l->key_file;
	}
	if (ok) {
		l->port = (uint16_t)port;
		l->plain_port = (uint16_t)plain_port;
		l->pid = (pid_t)pid;
		snprintf(l->address, sizeof(l->address), "%s", address);
		snprintf(l->url, sizeof(l->url), "https://localhost:%u", l->port);
		/* Many clients take no wildcard certificate of *.localhost: ports are plain. */
		snprintf(l->domain, sizeof(l->domain), "localhost:%u",
			 l->plain_port ? l->plain_port : l->port);
	}
	json_decref(root);
	return ok;
}

/* True if a living agentbox-local holds this folder. Its lock, not its pid, is the proof. */
static bool is_held(const struct local_process *l)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[4096];
	scoped(fd_closep) int fd = -1;

	snprintf(path, sizeof(path), "%s/lock", l->dir);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool read_endpoint(struct local_process *l)
{
	char path[4096], *text;
	bool ok;

	snprintf(path, sizeof(path), "%s/endpoint", l->dir);
	if (fd_read_file(AT_FDCWD, path, LINE_MAX_BYTES, &text, NULL) < 0)
		return false;
	ok = parse_endpoint(l, text);
	free(text);
	return ok;
}

/* --- starting --- */

static void program_path(char ret[4096])
{
	ssize_t n = readlink("/proc/self/exe", ret, 4000);
	char *slash;

	ret[n > 0 ? n : 0] = 0;
	slash = strrchr(ret, '/');
	snprintf(slash ? slash + 1 : ret, 64, "agentbox-local");
	if (access(ret, X_OK) == 0 || !slash)
		return;
	/* In the build tree it lies in a folder of its own. */
	snprintf(slash + 1, 64, "local/agentbox-local");
	if (access(ret, X_OK) < 0)
		snprintf(ret, 4096, "agentbox-local");
}

static noreturn_ void exec_local(const char *program, char *const argv[], int ready_fd)
{
	sigset_t none;
	int null = open("/dev/null", O_RDWR);

	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
	}
	/* Everything but stderr (the log) and the ready pipe, which becomes 3. */
	if (dup2(ready_fd, 3) < 0)
		_exit(126);
	(void)syscall(SYS_close_range, 4u, ~0u, 0u);
	execvp(program, argv);
	_exit(127);
}

/* The line on the ready pipe, or why there is none. */
static int wait_ready(struct local_process *l, int fd, struct status *why)
{
	uint64_t until = clock_boot_ms() + READY_MS;
	char line[LINE_MAX_BYTES];
	size_t n = 0;

	for (;;) {
		uint64_t now = clock_boot_ms();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t r;

		if (now >= until || poll(&p, 1, (int)(until - now)) == 0) {
			status_set(why, R_UNREACHABLE, "agentbox-local was not ready after %u s", READY_MS / 1000);
			return -ETIMEDOUT;
		}
		r = read(fd, line + n, sizeof(line) - 1 - n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			status_set(why, R_UNREACHABLE,
				   "agentbox-local ended before it was ready; its messages stand above");
			return -EIO;
		}
		n += (size_t)r;
		line[n] = 0;
		if (strchr(line, '\n'))
			break;
		if (n == sizeof(line) - 1)
			return -EIO;
	}
	if (parse_endpoint(l, line))
		return 0;
	status_set(why, R_BAD_CLOUD_REPLY, "agentbox-local announced no address");
	return -EPROTO;
}

static int spawn_local(struct local_process *l, struct status *why)
{
	char program[4096], listen[32], plain[32];
	char *argv[] = { (char *)"agentbox-local", (char *)"--state-dir", l->dir, (char *)"--tls-listen",
			 listen, (char *)"--listen", plain, (char *)"--auto-tls",
			 (char *)"--exit-when-idle", (char *)IDLE_SECONDS, (char *)"--ready-fd",
			 (char *)"3", NULL };
	int fds[2], r;
	pid_t pid;

	snprintf(listen, sizeof(listen), "127.0.0.1:%u", l->port);
	snprintf(plain, sizeof(plain), "127.0.0.1:%u", l->plain_port);
	program_path(program);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	/* The first fork's child leaves at once: agentbox-local is nobody's child here, so that its end
	 * is seen by pidfd alone, in the same way whether we started it or found it. */
	pid = fork();
	if (pid == 0) {
		if (fork() == 0)
			exec_local(program, argv, fds[1]);
		_exit(0);
	}
	fd_close(fds[1]);
	if (pid < 0) {
		fd_close(fds[0]);
		return -errno;
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	r = wait_ready(l, fds[0], why);
	fd_close(fds[0]);
	return r;
}

static void on_end(struct watch *w, unsigned ready, void *user);

static int watch_process(struct local_process *l)
{
	int r = fd_pidfd(l->pid, &l->pidfd);

	if (!r)
		r = watch_init(&l->watch, l->loop, l->pidfd, on_end, l);
	if (!r)
		r = watch_set(&l->watch, WATCH_READ);
	return r;
}

/* Attaches or starts; a port that was taken meanwhile is given up for a free one. */
static int bring_up(struct local_process *l, struct status *why)
{
	bool known = read_endpoint(l);
	int r = 0;

	if (known && is_held(l)) {
		log_info("local_attached", "pid=%d address=%s", l->pid, l->address);
		return watch_process(l);
	}
	r = spawn_local(l, why);
	if (r < 0 && l->port) {
		l->port = l->plain_port = 0;
		r = spawn_local(l, why);
	}
	if (r < 0)
		return r;
	log_info("local_started", "pid=%d address=%s", l->pid, l->address);
	return watch_process(l);
}

/* --- its end --- */

static void answer_stop(struct defer *d, void *user)
{
	struct local_process_stop *s = user;
	struct local_process_stop copy = *s;

	local_process_stop_cancel(s);
	copy.done(copy.user, &copy.st, copy.was_running);
}

static void on_restart(struct timer *t, void *user)
{
	struct local_process *l = user;
	struct status why = STATUS_OK;
	uint16_t port = l->port, plain_port = l->plain_port;

	if (bring_up(l, &why) == 0 && (!port || (port == l->port && plain_port == l->plain_port)))
		return;
	log_error("local_restart", "error=%s", log_q(why.text));
	l->failures++;
	if (timer_set(t, loop_now_ms(l->loop) +
				 MIN(RESTART_FIRST_MS << MIN(l->failures, 8u), RESTART_MAX_MS)) < 0)
		log_error("local_restart", "error=\"out of memory, it stays down\"");
}

static void on_end(struct watch *w, unsigned ready, void *user)
{
	struct local_process *l = user;

	watch_fini(&l->watch);
	l->pidfd = fd_close(l->pidfd);
	log_info("local_ended", "pid=%d asked=%s", l->pid, l->stopped ? "yes" : "no");
	l->pid = 0;
	list_for_each(n, &l->waiters) {
		struct local_process_stop *s = list_entry(n, struct local_process_stop, node);

		timer_clear(&s->deadline);
		defer_post(&s->answer);
	}
	if (!l->stopped && timer_set(&l->restart, loop_now_ms(l->loop) + RESTART_FIRST_MS) < 0)
		log_error("local_restart", "error=\"out of memory, it stays down\"");
}

static void on_stop_deadline(struct timer *t, void *user)
{
	struct local_process_stop *s = user;

	status_set(&s->st, R_DEADLINE_REQUEST, "agentbox-local is still ending its sandboxes");
	defer_post(&s->answer);
}

int local_process_stop(struct local_process *l, uint64_t deadline_ms, local_process_stopped_fn *done, void *user,
		  struct local_process_stop **ret)
{
	struct local_process_stop *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->done = done;
	s->user = user;
	s->was_running = l->pid > 0;
	list_init(&s->node);
	list_add_tail(&l->waiters, &s->node);
	defer_init(&s->answer, l->loop, answer_stop, s);
	timer_init(&s->deadline, l->loop, on_stop_deadline, s);
	l->stopped = true;
	timer_clear(&l->restart);
	if (!s->was_running) {
		defer_post(&s->answer);
	} else if (syscall(SYS_pidfd_send_signal, l->pidfd, SIGTERM, NULL, 0) < 0 && errno != ESRCH) {
		status_errno(&s->st, errno, "ending agentbox-local");
		defer_post(&s->answer);
	} else if (deadline_ms && timer_set(&s->deadline, deadline_ms) < 0) {
		local_process_stop_cancel(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void local_process_stop_cancel(struct local_process_stop *s)
{
	if (!s)
		return;
	list_del(&s->node);
	defer_cancel(&s->answer);
	timer_clear(&s->deadline);
	free(s);
}

/* --- the object --- */

int local_process_start(struct loop *loop, const char *state_dir, struct local_process **ret, struct status *why)
{
	struct local_process *l = calloc(1, sizeof(*l));
	char *users = NULL;
	int r = -ENOMEM;

	if (!l)
		return -ENOMEM;
	l->loop = loop;
	l->pidfd = l->users_fd = -1;
	list_init(&l->waiters);
	timer_init(&l->restart, loop, on_restart, l);
	l->dir = str_printf("%s/local", state_dir);
	users = str_printf("%s/local/users", state_dir);
	if (l->dir && users) {
		r = fd_mkdirs(l->dir, 0700);
		if (!r) {
			l->users_fd = open(users, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
			if (l->users_fd < 0 || flock(l->users_fd, LOCK_SH | LOCK_NB) < 0)
				r = -errno;
		}
		if (r < 0)
			status_set(why, R_BUG, "%s: %s", l->dir, strerrordesc_np(-r));
		else
			r = bring_up(l, why);
	}
	free(users);
	if (r < 0) {
		local_process_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void local_process_look(const struct local_process *l, struct local_process_info *ret)
{
	*ret = (struct local_process_info){ .url = l->url, .address = l->address, .domain = l->domain,
				       .ca_file = l->ca_file, .key_file = l->key_file, .pid = l->pid,
				       .plain_ports = l->plain_port != 0 };
}

struct local_process *local_process_free(struct local_process *l)
{
	if (!l)
		return NULL;
	while (!list_is_empty(&l->waiters))
		local_process_stop_cancel(list_entry(l->waiters.next, struct local_process_stop, node));
	watch_fini(&l->watch);
	timer_clear(&l->restart);
	fd_close(l->pidfd);
	fd_close(l->users_fd);
	free(l->dir);
	free(l->ca_file);
	free(l->key_file);
	free(l);
	return NULL;
}
