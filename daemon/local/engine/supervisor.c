/* SPDX-License-Identifier: MIT */
/*
 * The supervisor. At its start it removes what an earlier life left, builds the base and makes one
 * sandbox as a trial; then it serves the engine. It waits for nothing but that: removing and
 * copying trees is done by children of its own.
 *
 * STATE/engine/    base/ containers/ID.TOKEN/ trash/ cgroups (list of the groups we made)
 * STATE/templates/ NAME.root/ (an unpacked archive) NAME.stamp NAME.patch/
 * STATE/layers/    see layer.h
 */
#include "daemon/local/engine/supervisor_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

static noreturn_ void quit(struct supervisor *k);

void supervisor_say(struct supervisor *k, const struct supervisor_rep *rep, int fd)
{
	if (pkt_send(SUPERVISOR_SOCK_FD, rep, sizeof(*rep), &fd, fd >= 0) < 0)
		quit(k);
}

int supervisor_kid_add(struct supervisor *k, struct kid kid)
{
	if (k->n == k->cap) {
		size_t cap = k->cap ? k->cap * 2 : 16;
		struct kid *more = reallocarray(k->kids, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->kids = more;
		k->cap = cap;
	}
	k->kids[k->n++] = kid;
	return 0;
}

/* --- hiding --- */

/* The arguments and environment this process was started with may hold keys, and every sandbox's
 * process 1 is a copy of us: overwrite them. */
static void wipe_start(const char *title)
{
	scoped(fd_closep) int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	static char *empty[] = { NULL };
	unsigned long v[4] = { 0 };
	char text[2048] = "", *s;
	int field = 2;

	environ = empty;
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return;
	s = strrchr(text, ')');
	for (; s && *s && field < 48; s++)
		field += *s == ' ';
	if (!s || sscanf(s, "%lu %lu %lu %lu", &v[0], &v[1], &v[2], &v[3]) != 4)
		return;
	for (size_t i = 0; i < 4; i += 2)
		if (v[i] && v[i + 1] > v[i] && v[i + 1] - v[i] < (1u << 22))
			memset((void *)(uintptr_t)v[i], 0, v[i + 1] - v[i]);
	if (v[1] > v[0])
		(void)str_copy((char *)(uintptr_t)v[0], v[1] - v[0], title);
	(void)prctl(PR_SET_NAME, title);
}

/* --- removing --- */

/* Out of the way at once; the rest takes its time. */
void supervisor_to_trash(const struct supervisor *k, const char *name)
{
	char from[SUPERVISOR_NAME_SIZE + sizeof("containers/")], to[SUPERVISOR_NAME_SIZE + sizeof("trash/")];

	snprintf(from, sizeof(from), "containers/%s", name);
	snprintf(to, sizeof(to), "trash/%s", name);
	(void)renameat(k->dir_fd, from, k->dir_fd, to);
}

/* Groups say busy, and folders are filled again, for a moment after the last process has died. */
int supervisor_remove_all(const struct supervisor *k, const char *name)
{
	int a = 0, b = 0;

	for (int i = 0; i < SUPERVISOR_TRIES; i++) {
		a = rmtree(k->trash_fd, name);
		b = cg_remove(&k->o->cg, name);
		if (a == 0 && b == 0)
			return 0;
		(void)poll(NULL, 0, SUPERVISOR_PAUSE_MS);
	}
	return a < 0 ? a : b;
}

/* What the child does, and its exit status: an errno. */
typedef int kid_fn(struct supervisor *k, const struct supervisor_req *q);

static pid_t kid_start(struct supervisor *k, struct kid kid, kid_fn *fn, const struct supervisor_req *q)
{
	kid.pid = fork();
	if (kid.pid == 0) {
		int r;

		/* The engine must see our end even while a copy goes on. */
		fd_close(SUPERVISOR_SOCK_FD);
		if (kid.kind != KID_REMOVER)
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		r = fn(k, q);

		_exit(r < 0 && -r < 256 ? -r : r < 0 ? EIO : 0);
	}
	if (kid.pid < 0)
		return -errno;
	return supervisor_kid_add(k, kid) < 0 ? -ENOMEM : kid.pid;
}

static int remover(struct supervisor *k, const struct supervisor_req *q)
{
	char name[SUPERVISOR_NAME_SIZE];

	supervisor_name(name, q->id, q->token);
	return supervisor_remove_all(k, name);
}

static void on_remove(struct supervisor *k, const struct supervisor_req *q)
{
	struct supervisor_rep rep = { .op = SUPERVISOR_REMOVED, .token = q->token };
	const struct layer_ids ids = supervisor_ids(k, q->id_slot);
	char name[SUPERVISOR_NAME_SIZE];
	int kept = 0;

	supervisor_name(name, q->id, q->token);
	if (q->layer[0])
		kept = layer_stash(k->engine_fd, name, k->layers_fd, q->layer, &ids);
	supervisor_to_trash(k, name);
	if (kept == 0 && kid_start(k, (struct kid){ .kind = KID_REMOVER, .token = q->token }, remover, q) > 0)
		return;
	rep.r = supervisor_remove_all(k, name);	/* no process to be had, or bad news: then here */
	if (kept < 0)
		rep.r = kept;
	supervisor_say(k, &rep, -1);
}

/* --- layers --- */

static int saver(struct supervisor *k, const struct supervisor_req *q)
{
	const struct layer_ids ids = supervisor_ids(k, q->id_slot);
	char name[SUPERVISOR_NAME_SIZE];

	supervisor_name(name, q->id, q->container_token);
	return layer_save(k->engine_fd, name, k->layers_fd, q->layer, &ids);
}

static int dropper(struct supervisor *k, const struct supervisor_req *q)
{
	return rmtree(k->trash_fd, q->layer);
}

static void on_task(struct supervisor *k, const struct supervisor_req *q)
{
	struct supervisor_rep rep = { .op = SUPERVISOR_DONE, .token = q->token };
	pid_t pid;

	/* Out of the way at once, so that it is gone for a start that comes too early. */
	if (q->op == SUPERVISOR_DROP && renameat(k->layers_fd, q->layer, k->trash_fd, q->layer) < 0) {
		rep.r = errno == ENOENT ? 0 : -errno;
		supervisor_say(k, &rep, -1);
		return;
	}
	pid = kid_start(k, (struct kid){ .kind = KID_TASK, .token = q->token },
			q->op == SUPERVISOR_SAVE ? saver : dropper, q);
	if (pid > 0)
		return;
	rep.r = (int)pid;
	supervisor_say(k, &rep, -1);
}

/* --- serving --- */

static void create_failed(struct supervisor *k, uint64_t token, int r, const char *why)
{
	struct supervisor_rep rep = { .op = SUPERVISOR_FAILED, .token = token, .r = r };

	str_copy(rep.text, sizeof(rep.text), why);
	supervisor_say(k, &rep, -1);
}

static void create_now(struct supervisor *k, const struct supervisor_req *q, int sock)
{
	struct supervisor_rep rep = { .op = SUPERVISOR_CREATED, .token = q->token };
	struct making m;
	int pidfd = -1;
	pid_t pid = supervisor_make(k, q, sock, &m, &pidfd);

	if (pid > 0 &&
	    supervisor_kid_add(k, (struct kid){.pid = pid, .kind = KID_INIT, .token = q->token}) <
		    0)
		(void)kill(pid, SIGKILL);
	if (pid < 0)
		create_failed(k, q->token, pid, m.why);
	else
		supervisor_say(k, &rep, pidfd);
	fd_close(pidfd);
}

static int filler(struct supervisor *k, const struct supervisor_req *q)
{
	const struct layer_ids ids = supervisor_ids(k, q->id_slot);
	char name[SUPERVISOR_NAME_SIZE];
	int r;

	supervisor_name(name, q->id, q->token);
	r = layer_copy(k->layers_fd, q->layer, k->engine_fd, name, &ids);
	if (r == 0 && q->take_layer)
		r = rmtree(k->layers_fd, q->layer);
	return r;
}

static void layer_failed(struct supervisor *k, uint64_t token, int r)
{
	char why[PKT_TEXT_MAX];

	snprintf(why, sizeof(why), "cannot put its files in place: %s", strerror(-r));
	create_failed(k, token, r, why);
}

/* Moves the layer at once, or has it copied first. */
static void create_from_layer(struct supervisor *k, const struct supervisor_req *q, int *sock)
{
	const struct layer_ids ids = supervisor_ids(k, q->id_slot);
	struct kid kid = { .kind = KID_FILLER, .token = q->token };
	char name[SUPERVISOR_NAME_SIZE];
	int r;

	supervisor_name(name, q->id, q->token);
	r = mkdirat(k->engine_fd, name, 0700) < 0 ? -errno : -EXDEV;
	if (r == -EXDEV && q->take_layer)
		r = layer_move(k->layers_fd, q->layer, k->engine_fd, name, &ids);
	if (r == 0) {
		create_now(k, q, *sock);
		return;
	}
	if (r == -EXDEV) {
		kid.q = malloc(sizeof(*kid.q));
		r = kid.q ? 0 : -ENOMEM;
	}
	if (r == 0) {
		*kid.q = *q;
		kid.sock = *sock;
		r = kid_start(k, kid, filler, q);
	}
	if (r > 0) {
		*sock = -1;
		return;
	}
	free(kid.q);
	layer_failed(k, q->token, r);
}

static void on_create(struct supervisor *k, const struct supervisor_req *q, int *sock)
{
	if (q->layer[0])
		create_from_layer(k, q, sock);
	else
		create_now(k, q, *sock);
}

static void on_filled(struct supervisor *k, struct kid *kid, int r)
{
	if (r == 0)
		create_now(k, kid->q, kid->sock);
	else
		layer_failed(k, kid->token, r);
	fd_close(kid->sock);
	free(kid->q);
}

static void on_kid_dead(struct supervisor *k, struct kid kid, int status)
{
	struct supervisor_rep rep = { .op = kid.kind == KID_TASK ? SUPERVISOR_DONE : SUPERVISOR_REMOVED,
				.token = kid.token };

	rep.r = WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
	if (kid.kind == KID_FILLER)
		on_filled(k, &kid, rep.r);
	else if (kid.kind != KID_INIT && kid.token)
		supervisor_say(k, &rep, -1);
}

static void reap(struct supervisor *k)
{
	struct signalfd_siginfo si;
	struct kid kid;
	int status;
	pid_t pid;

	while (read(k->sig_fd, &si, sizeof(si)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < k->n; i++) {
			if (k->kids[i].pid != pid)
				continue;
			kid = k->kids[i];
			k->kids[i] = k->kids[--k->n];
			on_kid_dead(k, kid, status);
			break;
		}
}

/* Asked to, or because the engine died: nothing stays. */
static noreturn_ void quit(struct supervisor *k)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->kids[i].kind != KID_REMOVER)
			(void)kill(k->kids[i].pid, SIGKILL);
	cg_teardown(&k->o->cg);	/* thaws what is frozen, else it could not die */
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	if (k->base_in_memory)
		(void)!supervisor_base_unmount(k);
	for (int i = 0; i < SUPERVISOR_TRIES; i++) {
		scoped(fd_closep) int state = open(k->o->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		cg_teardown(&k->o->cg);
		if (state < 0 || rmtree(state, "engine") == 0)
			break;
		(void)poll(NULL, 0, SUPERVISOR_PAUSE_MS);
	}
	_exit(0);
}

static void on_request(struct supervisor *k)
{
	struct supervisor_req q;
	int fds[PKT_FDS_MAX];

	if (pkt_recv(SUPERVISOR_SOCK_FD, &q, sizeof(q), fds) <= 0)
		quit(k);
	must(q.template < k->o->n_templates);
	if (q.op == SUPERVISOR_CREATE)
		on_create(k, &q, &fds[0]);
	else if (q.op == SUPERVISOR_REMOVE)
		on_remove(k, &q);
	else if (q.op == SUPERVISOR_SAVE || q.op == SUPERVISOR_DROP)
		on_task(k, &q);
	else if (q.op == SUPERVISOR_QUIT)
		quit(k);
	pkt_close_fds(fds);
}

/* Nothing of the engine's is kept open but the socket, and its stderr for our own failures. */
static void let_go(int sock)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int high = fcntl(sock, F_DUPFD_CLOEXEC, SUPERVISOR_SOCK_FD + 1);

	if (null < 0 || high < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(high, SUPERVISOR_SOCK_FD) < 0 || close_range(SUPERVISOR_SOCK_FD + 1, ~0u, 0) < 0)
		_exit(1);
	(void)fcntl(SUPERVISOR_SOCK_FD, F_SETFD, FD_CLOEXEC);
	if (chdir("/") < 0)
		_exit(1);
}

noreturn_ void supervisor_run(const struct supervisor_options *o)
{
	struct supervisor k = { .o = o, .dir_fd = -1, .engine_fd = -1, .trash_fd = -1, .layers_fd = -1,
			    .sig_fd = -1, .lock_fd = -1 };
	struct pollfd p[2];
	sigset_t set;

	let_go(o->sock);
	for (int s = 1; s < NSIG; s++)
		(void)signal(s, s == SIGINT || s == SIGTERM || s == SIGPIPE ? SIG_IGN : SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	(void)umask(022);
	k.sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (k.sig_fd < 0)
		_exit(1);
	wipe_start("agentbox-supervisor");
	supervisor_start(&k);
	p[0] = (struct pollfd){ .fd = SUPERVISOR_SOCK_FD, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = k.sig_fd, .events = POLLIN };
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			_exit(1);
		if (p[1].revents)
			reap(&k);
		if (p[0].revents)
			on_request(&k);
	}
}
