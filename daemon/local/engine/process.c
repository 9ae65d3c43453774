/* SPDX-License-Identifier: MIT */
/* Commands in a sandbox: the engine's side of what its init starts (spawn.c), users, usage. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/local/engine/container_int.h"
#include "daemon/local/engine/nsmount.h"
#include "daemon/local/engine/passwd.h"
#include "daemon/local/engine/shown.h"
#include "daemon/local/engine/spawn.h"
#include "proto/base/buf.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define DESCRIPTORS_KEPT 64u
#define PROC_MAGIC 0x9c0c9c0cu
#define N_STREAMS  4

struct container_proc {
	unsigned magic;
	struct container *container;	/* NULL once its container has ended */
	uint32_t id, pid;
	bool started, ended;
	int fds[N_STREAMS];	/* ours, by enum container_stream */
	struct container_proc_events ev;
	void *user;
};

struct pending_socket {
	container_fd_fn *done;
	void *user;
};

/* --- users --- */

int container_user_lookup(struct container *b, const char *name, struct container_user *ret)
{
	char *text;
	int r;

	if (b->root_fd < 0)
		return -EPIPE;
	r = passwd_read(b->root_fd, "/etc/passwd", &text);
	if (r < 0)
		return r;
	r = passwd_find(text, name, ret) ? 0 : -ENOENT;
	free(text);
	return r;
}

static void fill_groups(const struct container *b, const struct container_user *u, struct spawn_head *h)
{
	char *text;

	h->n_groups = 1;
	h->groups[0] = u->gid;
	if (passwd_read(b->root_fd, "/etc/group", &text) < 0)
		return;
	h->n_groups = passwd_groups(text, u->name, u->gid, h->groups, SPAWN_GROUPS_MAX);
	free(text);
}

/* --- starting --- */

static int put_strings(struct buf *out, const struct container_proc_options *o)
{
	int r = buf_put(out, o->cwd, strlen(o->cwd) + 1);

	if (r == 0)
		r = buf_put(out, o->cmd, strlen(o->cmd) + 1);
	for (size_t i = 0; i < o->n_args && r == 0; i++)
		r = buf_put(out, o->args[i], strlen(o->args[i]) + 1);
	for (size_t i = 0; i < o->n_envs && r == 0; i++)
		r = buf_put(out, o->envs[i], strlen(o->envs[i]) + 1);
	return r == -ENOBUFS ? -E2BIG : r;
}

static int make_arguments(const struct container *b, const struct container_proc_options *o,
			  int *ret_fd)
{
	struct spawn_head h = { .uid = o->user->uid, .gid = o->user->gid,
				.n_args = (uint32_t)o->n_args + 1, .n_envs = (uint32_t)o->n_envs,
				.pty = o->pty, .cols = o->cols, .rows = o->rows,
				.stdin_null = !o->pty && !o->stdin_pipe };
	scoped(fd_closep) int fd = -1;
	struct buf strings;
	int r;

	buf_init(&strings, CONTAINER_ARGV_MAX_BYTES);
	r = put_strings(&strings, o);
	if (r == 0) {
		fd = memfd_create("agentbox-args", MFD_CLOEXEC);
		r = fd < 0 ? -errno : 0;
	}
	if (r == 0) {
		fill_groups(b, o->user, &h);
		h.bytes = (uint32_t)buf_len(&strings);
		r = fd_write_all(fd, &h, sizeof(h));
	}
	if (r == 0)
		r = fd_write_all(fd, buf_data(&strings), buf_len(&strings));
	buf_fini(&strings);
	if (r == 0)
		*ret_fd = pkt_take_fd(&fd);
	return r;
}

/* One pipe: our non-blocking end into p->fds, the program's end into *ret. */
static int make_pipe(struct container_proc *p, enum container_stream s, int *ret)
{
	int fds[2], ours = s == CONTAINER_STDIN ? 1 : 0, r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	r = fd_set_nonblock(fds[ours], true);
	if (r < 0) {
		fd_close(fds[0]);
		fd_close(fds[1]);
		return r;
	}
	p->fds[s] = fds[ours];
	*ret = fds[!ours];
	return 0;
}

/* The last descriptors are for connections and for what ends commands and sandboxes. New ones are the lowest that
 * are free, so the number of one tells. */
static int check_room(int fd)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == RLIM_INFINITY)
		return 0;
	return (rlim_t)fd + MIN(l.rlim_cur / 4, (rlim_t)DESCRIPTORS_KEPT) < l.rlim_cur ? 0 : -EMFILE;
}

static int send_spawn(struct container *b, struct container_proc *p,
		      const struct container_proc_options *o)
{
	struct init_msg m = { .op = INIT_SPAWN, .id = p->id };
	int fds[PKT_FDS_MAX] = { -1, -1, -1, -1 };
	size_t n = 1;
	int r = make_arguments(b, o, &fds[0]);

	if (r == 0)
		r = check_room(fds[0]);
	if (r == 0 && !o->pty && o->stdin_pipe)
		r = make_pipe(p, CONTAINER_STDIN, &fds[n++]);
	if (r == 0 && !o->pty)
		r = make_pipe(p, CONTAINER_STDOUT, &fds[n++]);
	if (r == 0 && !o->pty)
		r = make_pipe(p, CONTAINER_STDERR, &fds[n++]);
	if (r == 0)
		r = pkt_send(b->sock, &m, sizeof(m), fds, n);
	pkt_close_fds(fds);
	return r;
}

static void proc_free(struct container_proc *p)
{
	for (int i = 0; i < N_STREAMS; i++)
		fd_close(p->fds[i]);
	p->magic = 0;
	free(p);
}

int container_proc_start(struct container *b, const struct container_proc_options *o,
			 const struct container_proc_events *ev, void *user,
			 struct container_proc **ret)
{
	struct container_proc *p;
	int r;

	if (b->state != CONTAINER_RUNNING || b->sock < 0 || b->destroying)
		return -EPIPE;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct container_proc){ .magic = PROC_MAGIC, .container = b, .id = b->next_id++,
				.fds = { -1, -1, -1, -1 }, .ev = *ev, .user = user };
	r = map_put_u64(&b->procs, p->id, p);
	if (r == 0)
		r = send_spawn(b, p, o);
	if (r < 0) {
		(void)map_del_u64(&b->procs, p->id);
		proc_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

/* Without room on the socket it stays a zombie: nothing but a number is lost. */
static void release(struct container_proc *p)
{
	struct init_msg m = { .op = INIT_RELEASE, .id = p->id };

	(void)map_del_u64(&p->container->procs, p->id);
	if (p->container->sock >= 0)
		(void)!pkt_send(p->container->sock, &m, sizeof(m), NULL, 0);
}

void container_proc_free(struct container_proc *p)
{
	if (!p)
		return;
	must(p->magic == PROC_MAGIC);
	if (p->container)
		release(p);
	proc_free(p);
}

/* --- what the init says --- */

static void not_started(struct container_proc *p, enum container_spawn_error e, int err)
{
	p->container = NULL;
	p->ev.started(p->user, p, e, err);
	proc_free(p);
}

static void ended(struct container_proc *p, int status)
{
	struct container_exit x = { 0 };

	p->ended = true;
	if (WIFEXITED(status)) {
		x.exited = true;
		x.code = (uint8_t)WEXITSTATUS(status);
	} else {
		x.sig = (uint8_t)WTERMSIG(status);
		x.core = WCOREDUMP(status);
	}
	p->ev.ended(p->user, p, &x);
}

static void on_socket(struct container *b, const struct init_msg *m, int fds[PKT_FDS_MAX])
{
	struct pending_socket *s = map_del_u64(&b->sockets, m->id);
	int fd = pkt_take_fd(&fds[0]);

	if (!s) {
		fd_close(fd);
		return;
	}
	if (fd < 0)
		s->done(s->user, m->r < 0 ? m->r : -EIO, -1);
	else
		s->done(s->user, 0, fd);
	free(s);
}

void process_on_message(struct container *b, const struct init_msg *m, int fds[PKT_FDS_MAX])
{
	struct container_proc *p;

	if (m->op == INIT_SOCKET) {
		on_socket(b, m, fds);
		return;
	}
	p = map_get_u64(&b->procs, m->id);
	if (!p)
		return;		/* freed meanwhile */
	if (m->op == INIT_STARTED && !p->started) {
		p->started = true;
		p->pid = (uint32_t)m->a;
		p->fds[CONTAINER_PTY] = pkt_take_fd(&fds[0]);
		p->ev.started(p->user, p, CONTAINER_SPAWN_OK, 0);
	} else if (m->op == INIT_NOT_STARTED && !p->started) {
		(void)map_del_u64(&b->procs, m->id);
		not_started(p,
			    m->a > CONTAINER_SPAWN_OK && m->a < CONTAINER_SPAWN_DEAD
				    ? (enum container_spawn_error)m->a
				    : CONTAINER_SPAWN_RESOURCES,
			    m->r);
	} else if (m->op == INIT_ENDED && p->started && !p->ended) {
		ended(p, m->a);
	}
}

/* Any one entry: callbacks may remove others, so no walk is kept over them. */
static void *take_any(struct map *m, uint64_t (*id_of)(const void *))
{
	size_t pos = 0;
	void *v = map_next(m, &pos);

	return v ? map_del_u64(m, id_of(v)) : NULL;
}

static uint64_t proc_id(const void *p)
{
	return ((const struct container_proc *)p)->id;
}

void process_end_all(struct container *b, bool quiet)
{
	struct pending_socket *s;
	struct container_proc *p;
	size_t pos = 0;

	while ((p = take_any(&b->procs, proc_id))) {
		p->container = NULL;
		if (quiet)
			p->ended = true;
		else if (p->ended)
			continue;
		else if (p->started)
			ended(p, SIGKILL);
		else
			not_started(p, CONTAINER_SPAWN_DEAD, 0);
	}
	while ((s = map_next(&b->sockets, &pos))) {
		if (!quiet)
			s->done(s->user, -EPIPE, -1);
		free(s);
	}
	map_fini(&b->sockets);
	b->sockets = (struct map)MAP_NULL;
}

/* --- a command's handle --- */

uint32_t container_proc_pid(const struct container_proc *p)
{
	return p->pid;
}

int container_proc_take_fd(struct container_proc *p, enum container_stream s)
{
	must(s <= CONTAINER_PTY);
	return p->started ? pkt_take_fd(&p->fds[s]) : -1;
}

int container_proc_signal(struct container_proc *p, int sig)
{
	struct init_msg m = { .op = INIT_SIGNAL, .id = p->id, .a = sig };

	if (p->ended || !p->container || p->container->sock < 0)
		return -ESRCH;
	return pkt_send(p->container->sock, &m, sizeof(m), NULL, 0);
}

int container_pty_resize(int pty_fd, uint16_t cols, uint16_t rows)
{
	struct winsize ws = { .ws_col = cols, .ws_row = rows };

	return ioctl(pty_fd, TIOCSWINSZ, &ws) < 0 ? -errno : 0;
}

/* --- sockets, usage --- */

int container_socket(struct container *b, int family, int type, container_fd_fn *done, void *user)
{
	struct init_msg m = { .op = INIT_SOCKET, .a = family, .b = type };
	struct pending_socket *s;
	int r;

	if (b->state != CONTAINER_RUNNING || b->sock < 0 || b->destroying)
		return -EPIPE;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct pending_socket){ done, user };
	m.id = b->next_id++;
	r = map_put_u64(&b->sockets, m.id, s);
	if (r == 0)
		r = pkt_send(b->sock, &m, sizeof(m), NULL, 0);
	if (r < 0) {
		(void)map_del_u64(&b->sockets, m.id);
		free(s);
	}
	return r;
}

uint32_t container_cpus(uint32_t asked)
{
	uint32_t machine = (uint32_t)MAX(1, sysconf(_SC_NPROCESSORS_ONLN));

	return asked ? MIN(asked, machine) : machine;
}

uint64_t container_memory_bytes(uint64_t asked)
{
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return asked ? MIN(asked, machine) : machine;
}

void container_usage(struct container *b, struct container_usage *ret)
{
	struct cg_usage u;
	struct statvfs fs;

	*ret = (struct container_usage){ 0 };
	cg_usage(&b->engine->facts.cg, b->cg_name, &u);
	ret->cpu_us = u.cpu_us;
	ret->mem_bytes = u.mem_bytes;
	ret->mem_cache_bytes = u.mem_cache_bytes;
	ret->mem_limit_bytes = container_memory_bytes(b->req.memory_bytes);
	ret->n_cpus = container_cpus(b->req.cpus);
	if (b->root_fd >= 0 && fstatvfs(b->root_fd, &fs) == 0) {
		ret->disk_total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
		ret->disk_used_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
	}
}

void container_show_usage(struct container *b, const struct container_usage *u)
{
	scoped(fd_closep) int fd =
		b->shown_fd < 0 ? -1 : openat(b->shown_fd, NSMOUNT_MEMINFO, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[SHOWN_MEMINFO_MAX];
	size_t n = shown_meminfo(u->mem_limit_bytes, u->mem_bytes, u->mem_cache_bytes, text);

	/* What cannot be written stays as it was. */
	if (fd >= 0)
		(void)!pwrite(fd, text, n, 0);
}
