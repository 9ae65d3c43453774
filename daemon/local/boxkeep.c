/* SPDX-License-Identifier: MIT */
/*
 * The keeper. At its start it removes what an earlier life left, builds the base and makes one
 * sandbox as a trial; then it serves the engine. It waits for nothing but that: removing and
 * copying trees is done by children of its own.
 *
 * STATE/engine/    base/ boxes/ID.TOKEN/ trash/ cgroups (list of the groups we made)
 * STATE/templates/ NAME.root/ (an unpacked archive) NAME.stamp NAME.patch/
 * STATE/layers/    see boxlayer.h
 */
#include "daemon/local/boxkeep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/local/boxbase.h"
#include "daemon/local/boxlayer.h"
#include "daemon/local/boxrm.h"
#include "daemon/local/ns.h"
#include "daemon/local/spawn.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define TRIAL_WAIT_MS	  10000
#define REMOVE_TRIES	  100
#define REMOVE_PAUSE_MS	  5
#define LOCK_TRIES	  4000	/* times REMOVE_PAUSE_MS: 20 s */
#define SOCK_FD		  3	/* of the keeper and of each init */
#define NAME_SIZE	  (BOX_ID_MAX + 24u)

enum kid_kind {
	KID_INIT,
	KID_REMOVER,	/* of a box; token 0: of nobody's */
	KID_TASK,	/* saves or drops a layer */
	KID_FILLER,	/* copies a layer into the folder of a box that is made then */
};

struct kid {
	pid_t pid;
	enum kid_kind kind;
	uint64_t token;
	struct keep_req *q;	/* KID_FILLER: what is asked for; heap */
	int sock;
};

struct keeper {
	const struct keep_options *o;
	struct box_facts facts;
	char dir[PATH_MAX];	/* STATE/engine */
	int dir_fd, boxes_fd, trash_fd, layers_fd, sig_fd, lock_fd;
	struct kid *kids;
	size_t n, cap;
	bool base_in_memory;	/* a tmpfs in our own mount namespace */
};

static noreturn_ void quit(struct keeper *k);

static void say(struct keeper *k, const struct keep_rep *rep, int fd)
{
	if (pkt_send(SOCK_FD, rep, sizeof(*rep), &fd, fd >= 0) < 0)
		quit(k);
}

static int kid_add(struct keeper *k, struct kid kid)
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

/* --- making a sandbox --- */

struct making {
	char name[NAME_SIZE];
	char dir[PATH_MAX], base[PATH_MAX], root[PATH_MAX];
	char why[PKT_TEXT_MAX];
	struct ns_plan plan;
};

static int text(char *ret, size_t cap, const char *a, const char *b, const char *c)
{
	return (size_t)snprintf(ret, cap, "%s/%s%s", a, b, c) < cap ? 0 : -ENAMETOOLONG;
}

static void name_of(char ret[NAME_SIZE], const char *id, uint64_t token)
{
	snprintf(ret, NAME_SIZE, "%s.%llx", id, (unsigned long long)token);
}

static int make_folder(const char *dir, const char *name, uint32_t owner, bool mark)
{
	char path[PATH_MAX];

	if (text(path, sizeof(path), dir, name, "") < 0)
		return -ENAMETOOLONG;
	if (mkdir(path, 0755) < 0 || chmod(path, 0755) < 0)
		return -errno;
	if (owner && chown(path, owner, owner) < 0)
		return -errno;
	if (mark && setxattr(path, BOX_OWNER_XATTR, "0:0", 3, 0) < 0)
		return -errno;
	return 0;
}

static struct layer_ids ids_of(const struct keeper *k, uint32_t slot)
{
	return (struct layer_ids){
		.as_user = k->o->as_user,
		.first = k->o->as_user || k->facts.idmap ? 0 : KEEP_FIRST_ID + slot * NS_IDS,
	};
}

/* One that begins with a layer has its folder and the layer in it. */
static int make_folders(const struct keeper *k, const struct keep_req *q, struct making *m)
{
	static const struct {
		const char *name;
		bool in_layer, is_top;
	} folders[] = {
		{ "mnt", false, false },     { "lay", true, false },	 { "lay/up", true, true },
		{ "lay/wk", false, false },  { "lay/usrup", true, true }, { "lay/usrwk", false, false },
	};
	uint32_t owner = ids_of(k, q->id_slot).first;

	if (!q->layer[0] && mkdir(m->dir, 0700) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		bool top = folders[i].is_top;
		int r = q->layer[0] && folders[i].in_layer
				? 0
				: make_folder(m->dir, folders[i].name, top ? owner : 0, k->o->as_user && top);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Where a template's files are, or its patch. */
static int template_path(const struct keeper *k, const struct keep_template *t, const char *suffix,
			 char ret[PATH_MAX])
{
	if (!*suffix && !t->is_tar)
		return str_copy(ret, PATH_MAX, t->path) ? 0 : -ENAMETOOLONG;
	return snprintf(ret, PATH_MAX, "%s/templates/%s%s", k->o->state_dir, t->name,
			*suffix ? suffix : ".root") < PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

/*
 * The lower layers, the top one first: base; or template and base; or patch and template. Without
 * id-mapped mounts our own (base or patch) is copied and shifted, and a template's files show as
 * nobody's.
 */
static int choose_layers(const struct keeper *k, const struct keep_req *q, struct making *m)
{
	const struct keep_template *t = &k->o->templates[q->template];
	bool on_base = !t->path || t->on_base;
	char own[PATH_MAX];
	int r = on_base ? text(own, sizeof(own), k->dir, "base", "")
			: template_path(k, t, ".patch", own);

	if (r == 0 && t->path)
		r = template_path(k, t, "", m->root);
	if (r < 0)
		return r;
	m->plan.has_usr = on_base;
	m->plan.n_lowers = t->path ? 2 : 1;
	m->plan.lowers[0] = t->path && on_base ? m->root : m->base;
	m->plan.lowers[1] = t->path && on_base ? m->base : m->root;
	if (k->o->as_user || k->facts.idmap)
		return str_copy(m->base, sizeof(m->base), own) ? 0 : -ENAMETOOLONG;
	r = text(m->base, sizeof(m->base), m->dir, "base", "");
	return r < 0 ? r : boxbase_copy_shifted(own, m->base, m->plan.first_id);
}

static int prepare(const struct keeper *k, const struct keep_req *q, struct making *m)
{
	const struct cg_limits limits = { .memory_bytes = q->memory_bytes, .max_pids = q->max_pids,
					  .cpus = q->cpus };
	int r;

	*m = (struct making){ .why = "" };
	name_of(m->name, q->id, q->token);
	r = text(m->dir, sizeof(m->dir), k->dir, "boxes/", m->name);
	if (r < 0)
		return r;
	m->plan = (struct ns_plan){
		.as_user = k->o->as_user,
		.idmap = k->facts.idmap,
		.usr_writable = k->facts.usr_writable,
		.first_id = k->o->as_user ? k->o->uid : KEEP_FIRST_ID + q->id_slot * NS_IDS,
		.first_gid = k->o->as_user ? k->o->gid : KEEP_FIRST_ID + q->id_slot * NS_IDS,
		.max_pids = q->max_pids,
		.box_dir = m->dir,
		.cg = &k->o->cg,
		.cg_box = m->name,
		.hostname = q->hostname,
	};
	r = make_folders(k, q, m);
	if (r == 0)
		r = choose_layers(k, q, m);
	if (r == 0) {
		/* A limit that cannot be set is one of the things --capabilities speaks of. */
		r = cg_make(&k->o->cg, m->name, &limits);
		r = r == -EINVAL || r == -EACCES || r == -EPERM || r == -EOPNOTSUPP ? 0 : r;
	}
	if (r < 0)
		snprintf(m->why, sizeof(m->why), "cannot prepare its folder in the state directory: %s",
			 strerror(-r));
	return r;
}

/* In the child, until it has become an init. */
static noreturn_ void become_init(const struct making *m, int sock)
{
	struct ns_error e = { 0 };
	struct init_msg failed = { .op = INIT_FAILED };

	if (dup2(sock, SOCK_FD) < 0 || dup2(STDIN_FILENO, STDERR_FILENO) < 0 ||
	    close_range(SOCK_FD + 1, ~0u, 0) < 0)
		_exit(1);
	(void)fcntl(SOCK_FD, F_SETFD, FD_CLOEXEC);
	if (ns_setup(&m->plan, &e) < 0) {
		failed.r = -e.err;
		failed.a = (int32_t)e.stage;
		ns_explain(&e, &m->plan, failed.text, sizeof(failed.text));
		(void)!pkt_send(SOCK_FD, &failed, sizeof(failed), NULL, 0);
		_exit(1);
	}
	spawn_run(SOCK_FD, m->plan.as_user);
}

/* *ret_pidfd and the pid, or -errno with m->why. */
static pid_t make(struct keeper *k, const struct keep_req *q, int sock, struct making *m, int *ret_pidfd)
{
	struct ns_error e = { .stage = NS_CLONE };
	pid_t pid;
	int r = prepare(k, q, m);

	if (r < 0)
		return r;
	pid = ns_clone(&m->plan, ret_pidfd);
	if (pid == 0)
		become_init(m, sock);
	if (pid < 0) {
		e.err = -pid;
		ns_explain(&e, &m->plan, m->why, sizeof(m->why));
	}
	return pid;
}

/* --- removing --- */

/* Out of the way at once; the rest takes its time. */
static void to_trash(const struct keeper *k, const char *name)
{
	char from[NAME_SIZE + 8], to[NAME_SIZE + 8];

	snprintf(from, sizeof(from), "boxes/%s", name);
	snprintf(to, sizeof(to), "trash/%s", name);
	(void)renameat(k->dir_fd, from, k->dir_fd, to);
}

/* Groups say busy, and folders are filled again, for a moment after the last process has died. */
static int remove_all(const struct keeper *k, const char *name)
{
	int a = 0, b = 0;

	for (int i = 0; i < REMOVE_TRIES; i++) {
		a = box_rmtree(k->trash_fd, name);
		b = cg_remove(&k->o->cg, name);
		if (a == 0 && b == 0)
			return 0;
		(void)poll(NULL, 0, REMOVE_PAUSE_MS);
	}
	return a < 0 ? a : b;
}

/* What the child does, and its exit status: an errno. */
typedef int kid_fn(struct keeper *k, const struct keep_req *q);

static pid_t kid_start(struct keeper *k, struct kid kid, kid_fn *fn, const struct keep_req *q)
{
	kid.pid = fork();
	if (kid.pid == 0) {
		int r;

		/* The engine must see our end even while a copy goes on. */
		fd_close(SOCK_FD);
		if (kid.kind != KID_REMOVER)
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		r = fn(k, q);

		_exit(r < 0 && -r < 256 ? -r : r < 0 ? EIO : 0);
	}
	if (kid.pid < 0)
		return -errno;
	return kid_add(k, kid) < 0 ? -ENOMEM : kid.pid;
}

static int remover(struct keeper *k, const struct keep_req *q)
{
	char name[NAME_SIZE];

	name_of(name, q->id, q->token);
	return remove_all(k, name);
}

static void on_remove(struct keeper *k, const struct keep_req *q)
{
	struct keep_rep rep = { .op = KEEP_REMOVED, .token = q->token };
	const struct layer_ids ids = ids_of(k, q->id_slot);
	char name[NAME_SIZE];
	int kept = 0;

	name_of(name, q->id, q->token);
	if (q->layer[0])
		kept = boxlayer_stash(k->boxes_fd, name, k->layers_fd, q->layer, &ids);
	to_trash(k, name);
	if (kept == 0 && kid_start(k, (struct kid){ .kind = KID_REMOVER, .token = q->token }, remover, q) > 0)
		return;
	rep.r = remove_all(k, name);	/* no process to be had, or bad news: then here */
	if (kept < 0)
		rep.r = kept;
	say(k, &rep, -1);
}

/* --- layers --- */

static int saver(struct keeper *k, const struct keep_req *q)
{
	const struct layer_ids ids = ids_of(k, q->id_slot);
	char name[NAME_SIZE];

	name_of(name, q->id, q->box_token);
	return boxlayer_save(k->boxes_fd, name, k->layers_fd, q->layer, &ids);
}

static int dropper(struct keeper *k, const struct keep_req *q)
{
	return box_rmtree(k->trash_fd, q->layer);
}

static void on_task(struct keeper *k, const struct keep_req *q)
{
	struct keep_rep rep = { .op = KEEP_DONE, .token = q->token };
	pid_t pid;

	/* Out of the way at once, so that it is gone for a start that comes too early. */
	if (q->op == KEEP_DROP && renameat(k->layers_fd, q->layer, k->trash_fd, q->layer) < 0) {
		rep.r = errno == ENOENT ? 0 : -errno;
		say(k, &rep, -1);
		return;
	}
	pid = kid_start(k, (struct kid){ .kind = KID_TASK, .token = q->token },
			q->op == KEEP_SAVE ? saver : dropper, q);
	if (pid > 0)
		return;
	rep.r = (int)pid;
	say(k, &rep, -1);
}

static int empty_folder(const struct keeper *k, const char *name)
{
	int r = box_rmtree(k->dir_fd, name);

	if (r < 0)
		return r;
	return mkdirat(k->dir_fd, name, 0700) < 0 ? -errno : 0;
}

/* --- start --- */

static bool is_ours(const struct cg_roots *cg, const char *dir)
{
	for (enum cg_ctl c = 0; c < CG_N; c++)
		if (str_eq(cg->dir[c], dir))
			return true;
	return false;
}

/* The groups of an earlier life, one path a line; then ours are written there. */
static int exchange_groups(const struct keeper *k)
{
	const struct cg_roots *cg = &k->o->cg;
	char *old, list[CG_N * (CG_PATH_MAX + 1) + 1] = "";
	size_t n, used = 0;

	if (fd_read_file(k->dir_fd, "cgroups", sizeof(list), &old, &n) == 0) {
		for (char *s = old, *end; *s; s = end + 1) {
			end = strchr(s, '\n');
			if (!end)
				break;
			*end = '\0';
			cg_destroy(s, is_ours(cg, s));
		}
		free(old);
	}
	/* The keeper of a killed engine removes its groups, which have the names of ours. */
	cg_renew(cg);
	for (enum cg_ctl c = 0; c < CG_N; c++)
		if (cg->dir[c][0])
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s\n", cg->dir[c]);
	return fd_write_file(k->dir_fd, "cgroups", list, used, 0600);
}

static void clean_trash(struct keeper *k)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (int i = 0; i < REMOVE_TRIES && box_rmtree(k->dir_fd, "old") < 0; i++)
			(void)poll(NULL, 0, REMOVE_PAUSE_MS);
		_exit(0);
	}
	if (pid > 0)
		(void)kid_add(k, (struct kid){ .pid = pid, .kind = KID_REMOVER });
}

static int open_layers(struct keeper *k)
{
	char dir[PATH_MAX];
	int r = text(dir, sizeof(dir), k->o->state_dir, "layers", "");

	if (r == 0)
		r = fd_mkdirs(dir, 0700);
	if (r < 0)
		return r;
	k->layers_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->layers_fd < 0)
		return -errno;
	boxlayer_clean(k->layers_fd);
	return 0;
}

static int start_folders(struct keeper *k)
{
	int r = text(k->dir, sizeof(k->dir), k->o->state_dir, "engine", "");

	if (r == 0)
		r = fd_mkdirs(k->dir, 0700);
	if (r < 0)
		return r;
	k->dir_fd = open(k->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->dir_fd < 0)
		return -errno;
	r = exchange_groups(k);
	if (r < 0)
		return r;
	/* One rename each, removed beside us: old trees must not delay the start. */
	(void)!box_rmtree(k->dir_fd, "old");
	(void)mkdirat(k->dir_fd, "old", 0700);
	(void)renameat(k->dir_fd, "boxes", k->dir_fd, "old/boxes");
	(void)renameat(k->dir_fd, "trash", k->dir_fd, "old/trash");
	(void)renameat(k->dir_fd, "base", k->dir_fd, "old/base");
	clean_trash(k);
	r = empty_folder(k, "boxes");
	if (r == 0)
		r = empty_folder(k, "trash");
	if (r == 0)
		r = empty_folder(k, "base");
	if (r < 0)
		return r;
	k->trash_fd = openat(k->dir_fd, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	k->boxes_fd = openat(k->dir_fd, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return k->trash_fd < 0 || k->boxes_fd < 0 ? -errno : open_layers(k);
}

/*
 * One keeper at a time: that of a killed engine is still removing what its sandboxes left, by the
 * same names as ours. The lock is on a folder that is never removed; it is held until we end.
 */
static int take_over(struct keeper *k)
{
	char dir[PATH_MAX];
	int r = text(dir, sizeof(dir), k->o->state_dir, "templates", "");

	if (r == 0)
		r = fd_mkdirs(dir, 0700);
	if (r < 0)
		return r;
	k->lock_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->lock_fd < 0)
		return -errno;
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(k->lock_fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		(void)poll(NULL, 0, REMOVE_PAUSE_MS);
	}
	return -EBUSY;
}

/* Unpacks an archive again only when it has changed. */
static int unpack(int dir_fd, const char *dir, const struct keep_template *t)
{
	char root[NAME_MAX + 1], stamp[NAME_MAX + 1], now[64], path[PATH_MAX], *old = NULL;
	struct stat st;
	bool same;
	size_t n;
	int r;

	snprintf(root, sizeof(root), "%s.root", t->name);
	snprintf(stamp, sizeof(stamp), "%s.stamp", t->name);
	if (stat(t->path, &st) < 0)
		return -errno;
	snprintf(now, sizeof(now), "%lld %lld.%09ld", (long long)st.st_size,
		 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	r = fd_read_file(dir_fd, stamp, sizeof(now), &old, &n);
	same = r == 0 && str_eq(old, now);
	free(old);
	if (same)
		return 0;
	r = box_rmtree(dir_fd, root);
	if (r == 0 && mkdirat(dir_fd, root, 0755) < 0)
		r = -errno;
	if (r == 0)
		r = text(path, sizeof(path), dir, root, "");
	if (r == 0)
		r = boxbase_unpack(path, t->path);
	return r < 0 ? r : fd_write_file(dir_fd, stamp, now, strlen(now), 0600);
}

static bool has_programs(const char *root)
{
	static const char *const folders[] = { "usr/bin", "bin" };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (text(path, sizeof(path), root, folders[i], "") == 0 && access(path, F_OK) == 0)
			return true;
	return false;
}

static int prepare_template(const struct keeper *k, const char *dir, int dir_fd, struct keep_template *t)
{
	char name[NAME_MAX + 1], patch[PATH_MAX], root[PATH_MAX];
	int r = t->is_tar ? unpack(dir_fd, dir, t) : 0;

	if (r == 0)
		r = template_path(k, t, "", root);
	if (r < 0)
		return r;
	t->on_base = !has_programs(root);
	if (t->on_base)
		return 0;
	snprintf(name, sizeof(name), "%s.patch", t->name);
	r = box_rmtree(dir_fd, name);
	if (r == 0 && mkdirat(dir_fd, name, 0755) < 0)
		r = -errno;
	if (r == 0)
		r = template_path(k, t, ".patch", patch);
	return r < 0 ? r : boxbase_build_patch(patch, root, k->o->as_user);
}

static int prepare_templates(const struct keeper *k, char why[PKT_TEXT_MAX])
{
	char dir[PATH_MAX];
	int r = text(dir, sizeof(dir), k->o->state_dir, "templates", "");

	if (r < 0)
		return r;
	for (size_t i = 0; i < k->o->n_templates; i++) {
		struct keep_template *t = &k->o->templates[i];

		r = t->path ? prepare_template(k, dir, k->lock_fd, t) : 0;
		if (r < 0) {
			snprintf(why, PKT_TEXT_MAX, "template %s: cannot prepare %s: %s", t->name, t->path,
				 strerror(-r));
			return r;
		}
	}
	return 0;
}

/* One sandbox, made and thrown away. *ret_stage says where it failed. */
static int try_once(struct keeper *k, uint64_t token, char why[PKT_TEXT_MAX], enum ns_stage *ret_stage)
{
	struct keep_req q = { .token = token, .max_pids = 64, .id = "trial", .hostname = "trial" };
	int sock[2], pidfd = -1, fds[PKT_FDS_MAX], r = pkt_pair(sock);
	struct init_msg m = { 0 };
	struct making making;
	struct pollfd p;
	pid_t pid;

	*ret_stage = NS_CLONE;
	if (r < 0)
		return r;
	pid = make(k, &q, sock[1], &making, &pidfd);
	fd_close(sock[1]);
	r = pid < 0 ? pid : -ETIMEDOUT;
	str_copy(why, PKT_TEXT_MAX, pid < 0 ? making.why : "the trial sandbox did not come up");
	p = (struct pollfd){ .fd = sock[0], .events = POLLIN };
	if (pid > 0 && poll(&p, 1, TRIAL_WAIT_MS) > 0 && pkt_recv(sock[0], &m, sizeof(m), fds) > 0) {
		pkt_close_fds(fds);
		r = m.op == INIT_READY ? 0 : m.r;
		*ret_stage = (enum ns_stage)m.a;
		m.text[sizeof(m.text) - 1] = '\0';
		str_copy(why, PKT_TEXT_MAX, m.text);
	}
	fd_close(sock[0]);
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	fd_close(pidfd);
	to_trash(k, making.name);
	(void)remove_all(k, making.name);
	return r;
}

/*
 * A thousand small files: in memory they cost nothing, on a disk they can cost a second (ext4 looks
 * long for inodes where many were deleted lately). The mount is the keeper's own; it goes with it.
 */
static bool base_in_memory(struct keeper *k)
{
	char base[PATH_MAX];

	if (k->o->as_user || text(base, sizeof(base), k->dir, "base", "") < 0)
		return false;
	return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
	       mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m") == 0;
}

static int build_base(struct keeper *k)
{
	char base[PATH_MAX];
	int r = text(base, sizeof(base), k->dir, "base", "");

	return r < 0 ? r : boxbase_build(base, k->o->as_user);
}

static int base_unmount(struct keeper *k)
{
	char base[PATH_MAX];
	int r = text(base, sizeof(base), k->dir, "base", "");

	k->base_in_memory = false;
	return r < 0 ? r : umount2(base, MNT_DETACH) < 0 ? -errno : 0;
}

/* Its files cannot be id-mapped there before Linux 6.3. */
static int base_to_disk(struct keeper *k)
{
	int r = base_unmount(k);

	return r < 0 ? r : build_base(k);
}

/* Leaves out what this kernel lacks, one thing at a time. */
static int trial(struct keeper *k, char why[PKT_TEXT_MAX])
{
	enum ns_stage stage;
	int r;

	k->facts.as_user = k->o->as_user;
	k->facts.idmap = !k->o->as_user && !k->o->no_idmap;
	/* Only there do the files of /usr belong to somebody who exists inside. */
	k->facts.usr_writable = k->facts.idmap;
	k->facts.cg = k->o->cg;
	for (uint64_t i = 0;; i++) {
		r = try_once(k, UINT64_MAX - i, why, &stage);
		if (r < 0 && k->base_in_memory && (stage == NS_IDMAP || stage == NS_ROOT)) {
			r = base_to_disk(k);
			if (r < 0)
				return r;
		} else if (r < 0 && k->facts.idmap && (stage == NS_IDMAP || stage == NS_ROOT))
			/* An overlay over such mounts needs Linux 5.19. */
			k->facts.idmap = k->facts.usr_writable = false;
		else if (r < 0 && k->facts.usr_writable && (stage == NS_USR || stage == NS_LAYERS))
			k->facts.usr_writable = false;
		else
			return r;
	}
}

static void start(struct keeper *k)
{
	struct keep_rep rep = { .op = KEEP_READY };
	int r = take_over(k);

	if (r == 0)
		r = start_folders(k);
	if (r < 0) {
		snprintf(rep.text, sizeof(rep.text), "cannot use the state directory %.200s: %s",
			 k->o->state_dir, strerror(-r));
	} else {
		k->base_in_memory = base_in_memory(k);
		r = build_base(k);
		if (r < 0)
			snprintf(rep.text, sizeof(rep.text), "cannot build the base: %s%s", strerror(-r),
				 r == -ENOTSUP ? " (/bin and /lib must be links into /usr)" : "");
		r = r < 0 ? r : prepare_templates(k, rep.text);
		r = r < 0 ? r : trial(k, rep.text);
	}
	rep.r = r;
	rep.facts = k->facts;
	say(k, &rep, -1);
}

/* --- serving --- */

static void create_failed(struct keeper *k, uint64_t token, int r, const char *why)
{
	struct keep_rep rep = { .op = KEEP_FAILED, .token = token, .r = r };

	str_copy(rep.text, sizeof(rep.text), why);
	say(k, &rep, -1);
}

static void create_now(struct keeper *k, const struct keep_req *q, int sock)
{
	struct keep_rep rep = { .op = KEEP_CREATED, .token = q->token };
	struct making m;
	int pidfd = -1;
	pid_t pid = make(k, q, sock, &m, &pidfd);

	if (pid > 0 && kid_add(k, (struct kid){ .pid = pid, .kind = KID_INIT, .token = q->token }) < 0)
		(void)kill(pid, SIGKILL);
	if (pid < 0)
		create_failed(k, q->token, pid, m.why);
	else
		say(k, &rep, pidfd);
	fd_close(pidfd);
}

static int filler(struct keeper *k, const struct keep_req *q)
{
	const struct layer_ids ids = ids_of(k, q->id_slot);
	char name[NAME_SIZE];
	int r;

	name_of(name, q->id, q->token);
	r = boxlayer_copy(k->layers_fd, q->layer, k->boxes_fd, name, &ids);
	if (r == 0 && q->take_layer)
		r = box_rmtree(k->layers_fd, q->layer);
	return r;
}

static void layer_failed(struct keeper *k, uint64_t token, int r)
{
	char why[PKT_TEXT_MAX];

	snprintf(why, sizeof(why), "cannot put its files in place: %s", strerror(-r));
	create_failed(k, token, r, why);
}

/* Moves the layer at once, or has it copied first. */
static void create_from_layer(struct keeper *k, const struct keep_req *q, int *sock)
{
	const struct layer_ids ids = ids_of(k, q->id_slot);
	struct kid kid = { .kind = KID_FILLER, .token = q->token };
	char name[NAME_SIZE];
	int r;

	name_of(name, q->id, q->token);
	r = mkdirat(k->boxes_fd, name, 0700) < 0 ? -errno : -EXDEV;
	if (r == -EXDEV && q->take_layer)
		r = boxlayer_move(k->layers_fd, q->layer, k->boxes_fd, name, &ids);
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

static void on_create(struct keeper *k, const struct keep_req *q, int *sock)
{
	if (q->layer[0])
		create_from_layer(k, q, sock);
	else
		create_now(k, q, *sock);
}

static void on_filled(struct keeper *k, struct kid *kid, int r)
{
	if (r == 0)
		create_now(k, kid->q, kid->sock);
	else
		layer_failed(k, kid->token, r);
	fd_close(kid->sock);
	free(kid->q);
}

static void on_kid_dead(struct keeper *k, struct kid kid, int status)
{
	struct keep_rep rep = { .op = kid.kind == KID_TASK ? KEEP_DONE : KEEP_REMOVED,
				.token = kid.token };

	rep.r = WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
	if (kid.kind == KID_FILLER)
		on_filled(k, &kid, rep.r);
	else if (kid.kind != KID_INIT && kid.token)
		say(k, &rep, -1);
}

static void reap(struct keeper *k)
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
static noreturn_ void quit(struct keeper *k)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->kids[i].kind != KID_REMOVER)
			(void)kill(k->kids[i].pid, SIGKILL);
	cg_teardown(&k->o->cg);	/* thaws what is frozen, else it could not die */
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	if (k->base_in_memory)
		(void)!base_unmount(k);
	for (int i = 0; i < REMOVE_TRIES; i++) {
		scoped(fd_closep) int state = open(k->o->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		cg_teardown(&k->o->cg);
		if (state < 0 || box_rmtree(state, "engine") == 0)
			break;
		(void)poll(NULL, 0, REMOVE_PAUSE_MS);
	}
	_exit(0);
}

static void on_request(struct keeper *k)
{
	struct keep_req q;
	int fds[PKT_FDS_MAX];

	if (pkt_recv(SOCK_FD, &q, sizeof(q), fds) <= 0)
		quit(k);
	must(q.template < k->o->n_templates);
	if (q.op == KEEP_CREATE)
		on_create(k, &q, &fds[0]);
	else if (q.op == KEEP_REMOVE)
		on_remove(k, &q);
	else if (q.op == KEEP_SAVE || q.op == KEEP_DROP)
		on_task(k, &q);
	else if (q.op == KEEP_QUIT)
		quit(k);
	pkt_close_fds(fds);
}

/* Nothing of the engine's is kept open but the socket, and its stderr for our own failures. */
static void let_go(int sock)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int high = fcntl(sock, F_DUPFD_CLOEXEC, SOCK_FD + 1);

	if (null < 0 || high < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(high, SOCK_FD) < 0 || close_range(SOCK_FD + 1, ~0u, 0) < 0)
		_exit(1);
	(void)fcntl(SOCK_FD, F_SETFD, FD_CLOEXEC);
	if (chdir("/") < 0)
		_exit(1);
}

noreturn_ void boxkeep_run(const struct keep_options *o)
{
	struct keeper k = { .o = o, .dir_fd = -1, .boxes_fd = -1, .trash_fd = -1, .layers_fd = -1,
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
	wipe_start("agentbox-keeper");
	start(&k);
	p[0] = (struct pollfd){ .fd = SOCK_FD, .events = POLLIN };
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
