/* SPDX-License-Identifier: MIT */
/*
 * The init of a sandbox. One loop over the engine's socket, SIGCHLD and the status pipes of commands
 * that have not reached execve yet. Invariant: each INIT_SPAWN is answered once, by STARTED or
 * NOT_STARTED, and each STARTED is followed by one ENDED. A command that has ended stays a zombie, as
 * under the real agent, until the engine lets go of it: who looks inside can see that it ended, and how.
 */
#include "daemon/local/engine/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/fs_worker.h"
#include "daemon/local/engine/ns.h"
#include "daemon/local/engine/nsnet.h"
#include "daemon/local/engine/packet.h"
#include "daemon/local/engine/spawn_int.h"
#include "daemon/local/engine/sudo.h"
#include "daemon/local/engine/watch_int.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define STOP_TRIES    2000
#define STOP_PAUSE_MS 2

struct child {
	uint32_t id;
	pid_t pid;
	int status_fd;	/* -1 once started */
	int pty_fd;	/* master, until it is passed on */
	bool ended;	/* told; not reaped yet */
	bool released;	/* nobody wants it any more: reaped at once */
};

struct init {
	int sock, sig_fd, sudo_fd;
	bool as_user;
	struct child *children;
	size_t n, cap;
};

static void tell(const struct init *in, const struct init_msg *m, int fd)
{
	if (pkt_send(in->sock, m, sizeof(*m), &fd, fd >= 0) < 0)
		_exit(0);	/* nobody is left who could want to know */
}

static void tell_failure(const struct init *in, uint32_t id, int error, int err)
{
	struct init_msg m = { .op = INIT_NOT_STARTED, .id = id, .a = error, .r = err };

	tell(in, &m, -1);
}

/* --- arguments --- */

void spawn_args_fini(struct spawn_args *a)
{
	if (a->map)
		munmap(a->map, a->size);
	free(a->argv);
	free(a->envp);
}

/* The wrapper makes a missing program, or none, an exit code (127) instead of a failure to start. */
static int args_split(struct spawn_args *a)
{
	static const char script[] = "[ \"$1\" ] || { echo 'no command is named' >&2; exit 127; }; exec \"$@\"";
	static const char *const wrapper[SPAWN_WRAPPER] = { "sh", "-c", script, "sh" };
	const struct spawn_head *h = a->head;
	const char *s = (const char *)(h + 1), *end = s + h->bytes;
	size_t n = ARRAY_SIZE(wrapper), total = 1u + h->n_args + h->n_envs;

	if (h->bytes == 0 || end[-1] != '\0' || h->n_args > h->bytes || h->n_envs > h->bytes)
		return -EBADMSG;
	a->argv = calloc(n + h->n_args + 1, sizeof(char *));
	a->envp = calloc(h->n_envs + 1u, sizeof(char *));
	if (!a->argv || !a->envp)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		a->argv[i] = (char *)wrapper[i];
	for (size_t i = 0; i < total; i++) {
		if (s >= end)
			return -EBADMSG;
		if (i == 0)
			a->cwd = s;
		else if (i <= h->n_args)
			a->argv[n + i - 1] = (char *)s;
		else
			a->envp[i - 1 - h->n_args] = (char *)s;
		s += strlen(s) + 1;
	}
	return 0;
}

int spawn_args_map(int fd, struct spawn_args *a)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct spawn_head))
		return -EBADMSG;
	a->size = (size_t)st.st_size;
	a->map = mmap(NULL, a->size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (a->map == MAP_FAILED) {
		a->map = NULL;
		return -errno;
	}
	a->head = a->map;
	if (a->head->n_groups > SPAWN_GROUPS_MAX || a->head->bytes != a->size - sizeof(*a->head))
		return -EBADMSG;
	return args_split(a);
}

/* --- in the child --- */

static noreturn_ void child_fail(int status_fd, int error, int err)
{
	struct spawn_failure f = { error, err };

	(void)!write(status_fd, &f, sizeof(f));
	_exit(127);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		(void)signal(s, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int take_ids(const struct spawn_head *h, bool as_user)
{
	if (as_user)
		return nssec_become(h->uid, h->gid);
	if (setgroups(h->n_groups, h->groups) < 0 || setresgid(h->gid, h->gid, h->gid) < 0 ||
	    setresuid(h->uid, h->uid, h->uid) < 0)
		return -errno;
	return 0;
}

/* Descriptors 0, 1, 2 from std[]; all others end at execve. */
static int take_stdio(const int std[3])
{
	int high[3];

	for (int i = 0; i < 3; i++) {
		high[i] = fcntl(std[i], F_DUPFD_CLOEXEC, 3);
		if (high[i] < 0)
			return -errno;
	}
	for (int i = 0; i < 3; i++)
		if (dup2(high[i], i) < 0)
			return -errno;
	return close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0 ? -errno : 0;
}

/* When memory runs out a program goes, not the init, with which the whole sandbox would go. */
static void prefer_for_oom(void)
{
	scoped(fd_closep) int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, "100", 3);
}

noreturn_ void spawn_child_run(const struct spawn_args *a, const int std[3], int status_fd, bool as_user)
{
	const struct spawn_head *h = a->head;
	int r;

	reset_signals();
	prefer_for_oom();
	if (h->pty && (setsid() < 0 || ioctl(std[0], TIOCSCTTY, 0) < 0))
		child_fail(status_fd, CONTAINER_SPAWN_RESOURCES, errno);
	r = take_stdio(std);
	if (r < 0)
		child_fail(status_fd, CONTAINER_SPAWN_RESOURCES, -r);
	(void)umask(022);
	r = take_ids(h, as_user);
	if (r < 0)
		child_fail(status_fd, CONTAINER_SPAWN_USER, -r);
	if (chdir(a->cwd) < 0)
		child_fail(status_fd, CONTAINER_SPAWN_CWD, errno);
	execve("/bin/sh", a->argv, a->envp);
	child_fail(status_fd, CONTAINER_SPAWN_EXEC, errno);
}

/* --- starting --- */

static int open_pty(const struct spawn_head *h, bool as_user, int *ret_master, int *ret_slave)
{
	struct winsize ws = { .ws_col = h->cols, .ws_row = h->rows };
	scoped(fd_closep) int master = -1;
	int slave, unlock = 0;

	master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (master < 0)
		return -errno;
	if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCSWINSZ, &ws) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	if (!as_user && fchown(slave, h->uid, CONTAINER_TTY_GID) < 0) {
		fd_close(slave);
		return -errno;
	}
	*ret_slave = slave;
	*ret_master = pkt_take_fd(&master);
	return 0;
}

static struct child *child_add(struct init *in)
{
	if (in->n == in->cap) {
		size_t cap = in->cap ? in->cap * 2 : 16;
		struct child *more = reallocarray(in->children, cap, sizeof(*more));

		if (!more)
			return NULL;
		in->children = more;
		in->cap = cap;
	}
	return &in->children[in->n++];
}

static void child_del(struct init *in, struct child *c)
{
	fd_close(c->status_fd);
	fd_close(c->pty_fd);
	*c = in->children[--in->n];
}

static int start(struct init *in, uint32_t id, const struct spawn_args *a, const int fds[PKT_FDS_MAX])
{
	scoped(fd_closep) int master = -1;
	scoped(fd_closep) int slave = -1;
	int std[3] = { fds[1], fds[2], fds[3] }, pipe_fds[2], r = 0;
	struct child *c;
	pid_t pid;

	if (a->head->pty) {
		r = open_pty(a->head, in->as_user, &master, &slave);
		std[0] = std[1] = std[2] = slave;
	} else if (a->head->stdin_null) {
		slave = open("/dev/null", O_RDONLY | O_CLOEXEC);
		r = slave < 0 ? -errno : 0;
		std[0] = slave;
		std[1] = fds[1];
		std[2] = fds[2];
	}
	if (r < 0)
		return r;
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	c = child_add(in);
	pid = c ? fork() : -1;
	if (pid == 0)
		spawn_child_run(a, std, pipe_fds[1], in->as_user);
	r = c ? -errno : -ENOMEM;
	fd_close(pipe_fds[1]);
	if (pid < 0) {
		fd_close(pipe_fds[0]);
		in->n -= c ? 1 : 0;
		return r;
	}
	*c = (struct child){ .id = id, .pid = pid, .status_fd = pipe_fds[0], .pty_fd = pkt_take_fd(&master) };
	return 0;
}

static void on_spawn(struct init *in, const struct init_msg *m, const int fds[PKT_FDS_MAX])
{
	struct spawn_args a = { 0 };
	int r = spawn_args_map(fds[0], &a);

	if (r == 0)
		r = start(in, m->id, &a, fds);
	spawn_args_fini(&a);
	if (r < 0)
		tell_failure(in, m->id, CONTAINER_SPAWN_RESOURCES, -r);
}

/* The status pipe of a child: a failure, or its end at execve. */
static void on_status(struct init *in, struct child *c)
{
	struct init_msg m = { .op = INIT_STARTED, .id = c->id, .a = c->pid };
	struct spawn_failure f;
	ssize_t n;

	do
		n = read(c->status_fd, &f, sizeof(f));
	while (n < 0 && errno == EINTR);
	if (n == sizeof(f)) {
		tell_failure(in, c->id, f.error, f.err);
		child_del(in, c);	/* its end will be nobody's */
		return;
	}
	tell(in, &m, c->pty_fd);
	c->status_fd = fd_close(c->status_fd);
	c->pty_fd = fd_close(c->pty_fd);
}

/* --- ending --- */

static struct child *child_of(struct init *in, pid_t pid)
{
	for (size_t i = 0; i < in->n; i++)
		if (in->children[i].pid == pid)
			return &in->children[i];
	return NULL;
}

static void bury(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* What wait() would have said. */
static int status_of(const siginfo_t *si)
{
	if (si->si_code == CLD_EXITED)
		return (si->si_status & 0xff) << 8;
	return si->si_status | (si->si_code == CLD_DUMPED ? 0x80 : 0);
}

/* A zombie, seen and not reaped. */
static void on_ended(struct init *in, const siginfo_t *si)
{
	struct init_msg m = { .op = INIT_ENDED, .a = status_of(si) };
	struct child *c = child_of(in, si->si_pid);

	if (c && c->status_fd >= 0) {
		on_status(in, c);
		c = child_of(in, si->si_pid);
	}
	if (!c) {		/* an orphan, or it never started */
		bury(si->si_pid);
		return;
	}
	m.id = c->id;
	c->ended = true;
	if (c->released) {
		bury(c->pid);
		child_del(in, c);
		return;
	}
	tell(in, &m, -1);
}

static bool peek(idtype_t type, pid_t pid, siginfo_t *ret)
{
	ret->si_pid = 0;
	return waitid(type, (id_t)pid, ret, WEXITED | WNOHANG | WNOWAIT) == 0 && ret->si_pid > 0;
}

/* Zombies that are kept hide the others: all children are asked, one by one. */
static void reap_hidden(struct init *in)
{
	FILE *f = fopen("/proc/thread-self/children", "re");
	int pid;

	while (f && fscanf(f, "%d", &pid) == 1) {
		struct child *c = child_of(in, pid);
		siginfo_t si;

		if (!(c && c->ended) && peek(P_PID, pid, &si))
			on_ended(in, &si);
	}
	if (f)
		(void)fclose(f);
}

static void reap(struct init *in)
{
	struct signalfd_siginfo told;
	siginfo_t si;

	while (read(in->sig_fd, &told, sizeof(told)) > 0)
		;
	while (peek(P_ALL, 0, &si)) {
		struct child *c = child_of(in, si.si_pid);

		if (c && c->ended) {
			reap_hidden(in);
			return;
		}
		on_ended(in, &si);
	}
}

static void on_release(struct init *in, const struct init_msg *m)
{
	for (size_t i = 0; i < in->n; i++) {
		struct child *c = &in->children[i];

		if (c->id != m->id)
			continue;
		c->released = true;
		if (c->ended) {
			bury(c->pid);
			child_del(in, c);
			reap(in);
		}
		return;
	}
}

static void on_signal(struct init *in, const struct init_msg *m)
{
	for (size_t i = 0; i < in->n; i++)
		if (in->children[i].id == m->id && !in->children[i].ended)
			(void)kill(in->children[i].pid, m->a);
}

/* --- the rest of the engine's wishes --- */

static void on_worker(struct init *in, int fd, const char *name, void (*run)(int sock, bool as_user))
{
	pid_t pid = fork();

	if (pid != 0)
		return;		/* on failure the engine sees the end of its socket */
	reset_signals();
	(void)prctl(PR_SET_NAME, name);
	(void)setpgid(0, 0);
	if (dup2(fd, 3) < 0 || close_range(4, ~0u, 0) < 0)
		_exit(1);
	run(3, in->as_user);
	_exit(0);
}

static void on_socket(struct init *in, const struct init_msg *m)
{
	scoped(fd_closep) int fd = socket(m->a, m->b | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct init_msg reply = { .op = INIT_SOCKET, .id = m->id, .r = fd < 0 ? -errno : 0 };

	tell(in, &reply, fd);
}

/* --- stopping everything, where there is no freezer --- */

/* Is any process but ourselves still running? A stopped one cannot start another. */
static bool any_runs(void)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	bool runs = !d;

	while (d && !runs && (e = readdir(d))) {
		char path[40], text[512] = "", *s;
		scoped(fd_closep) int fd = -1;

		if (e->d_name[0] < '1' || e->d_name[0] > '9' || str_eq(e->d_name, "1"))
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/stat", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
			continue;
		s = strrchr(text, ')');
		runs = s && s[1] && !strchr("TtZXx", s[2]);
	}
	if (d)
		closedir(d);
	return runs;
}

static void on_stop(struct init *in, const struct init_msg *m)
{
	struct init_msg reply = { .op = INIT_STOP, .a = m->a };

	for (int i = 0; i < STOP_TRIES; i++) {
		if (kill(-1, m->a ? SIGSTOP : SIGCONT) < 0 && errno != ESRCH)
			reply.r = -errno;
		if (!m->a || !any_runs())
			break;
		if (i == STOP_TRIES - 1) {
			reply.r = -ETIMEDOUT;
			(void)kill(-1, SIGCONT);
			break;
		}
		(void)poll(NULL, 0, STOP_PAUSE_MS);
	}
	tell(in, &reply, -1);
}

static void on_message(struct init *in)
{
	struct init_msg m;
	int fds[PKT_FDS_MAX];
	ssize_t n = pkt_recv(in->sock, &m, sizeof(m), fds);

	if (n <= 0)
		_exit(0);
	if (m.op == INIT_SPAWN)
		on_spawn(in, &m, fds);
	else if (m.op == INIT_SIGNAL)
		on_signal(in, &m);
	else if (m.op == INIT_RELEASE)
		on_release(in, &m);
	else if (m.op == INIT_WORKER)
		on_worker(in, fds[0], "agentbox-files", fs_worker_run);
	else if (m.op == INIT_WATCHER)
		on_worker(in, fds[0], "agentbox-watch", container_watch_run);
	else if (m.op == INIT_SOCKET)
		on_socket(in, &m);
	else if (m.op == INIT_STOP)
		on_stop(in, &m);
	pkt_close_fds(fds);
}

static void on_sudo(struct init *in)
{
	int fd = -1;

	if (fd_accept(in->sudo_fd, &fd) == 0 && fd_set_nonblock(fd, false) == 0)
		on_worker(in, fd, "agentbox-sudo", sudo_serve);
	fd_close(fd);
}

#define POLLS_FIXED 3u

static size_t fill_polls(const struct init *in, struct pollfd *p)
{
	size_t n = POLLS_FIXED;

	p[0] = (struct pollfd){ .fd = in->sock, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = in->sig_fd, .events = POLLIN };
	p[2] = (struct pollfd){ .fd = in->sudo_fd, .events = POLLIN };
	for (size_t i = 0; i < in->n; i++)
		if (in->children[i].status_fd >= 0)
			p[n++] = (struct pollfd){ .fd = in->children[i].status_fd, .events = POLLIN };
	return n;
}

static void turn(struct init *in)
{
	struct pollfd *p = calloc(in->n + POLLS_FIXED, sizeof(*p));
	size_t n;

	if (!p)
		_exit(1);
	n = fill_polls(in, p);
	if (poll(p, n, -1) > 0) {
		/* Starts before ends: a status pipe is read before its process is reaped. */
		for (size_t k = POLLS_FIXED; k < n; k++)
			for (size_t i = 0; p[k].revents && i < in->n; i++)
				if (in->children[i].status_fd == p[k].fd) {
					on_status(in, &in->children[i]);
					break;
				}
		if (p[1].revents)
			reap(in);
		if (p[2].revents)
			on_sudo(in);
		if (p[0].revents)
			on_message(in);
	}
	free(p);
}

noreturn_ void spawn_run(int sock, bool as_user, int shown, const struct nsnet *net)
{
	struct init in = { .sock = sock, .as_user = as_user };
	struct init_msg ready = { .op = INIT_READY };
	int fds[PKT_FDS_MAX] = { open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), shown, net->tcp, net->udp };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	(void)prctl(PR_SET_NAME, "agentbox-init");
	in.sudo_fd = sudo_listen();
	in.sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (in.sig_fd < 0 || fds[0] < 0 ||
	    pkt_send(sock, &ready, sizeof(ready), fds, net->tcp >= 0 ? 4 : 2) < 0)
		_exit(1);
	pkt_close_fds(fds);	/* nobody inside has them */
	for (;;)
		turn(&in);
}
