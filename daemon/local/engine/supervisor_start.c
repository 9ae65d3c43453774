/* SPDX-License-Identifier: MIT */
/*
 * The supervisor's start: takes the place over from an earlier life, builds the base and the templates, and
 * finds out by one sandbox what this machine allows.
 */
#include "daemon/local/engine/supervisor_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/image.h"
#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define TRIAL_WAIT_MS 10000
#define STAMP_SIZE    200
#define UNPACK_VERSION "2"	/* counts whenever the same archive would give other files */
#define LOCK_TRIES    4000	/* times SUPERVISOR_PAUSE_MS: 20 s */

static int empty_folder(const struct supervisor *k, const char *name)
{
	int r = rmtree(k->dir_fd, name);

	if (r < 0)
		return r;
	return mkdirat(k->dir_fd, name, 0700) < 0 ? -errno : 0;
}

static bool is_ours(const struct cg_roots *cg, const char *dir)
{
	for (enum cg_ctl c = 0; c < CG_N; c++)
		if (str_eq(cg->dir[c], dir))
			return true;
	return false;
}

/* The groups of an earlier life, one path a line; then ours are written there. */
static int exchange_groups(const struct supervisor *k)
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
	/* The supervisor of a killed engine removes its groups, which have the names of ours. */
	cg_renew(cg);
	for (enum cg_ctl c = 0; c < CG_N; c++)
		if (cg->dir[c][0])
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s\n", cg->dir[c]);
	return fd_write_file(k->dir_fd, "cgroups", list, used, 0600);
}

static void clean_trash(struct supervisor *k)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (int i = 0; i < SUPERVISOR_TRIES && rmtree(k->dir_fd, "old") < 0; i++)
			(void)poll(NULL, 0, SUPERVISOR_PAUSE_MS);
		_exit(0);
	}
	if (pid > 0)
		(void)!supervisor_kid_add(k, (struct kid){ .pid = pid, .kind = KID_REMOVER });
}

static int open_layers(struct supervisor *k)
{
	char dir[PATH_MAX];
	int r = supervisor_path(dir, sizeof(dir), k->o->state_dir, "layers", "");

	if (r == 0)
		r = fd_mkdirs(dir, 0700);
	if (r < 0)
		return r;
	k->layers_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->layers_fd < 0)
		return -errno;
	layer_clean(k->layers_fd);
	return 0;
}

static int start_folders(struct supervisor *k)
{
	int r = supervisor_path(k->dir, sizeof(k->dir), k->o->state_dir, "engine", "");

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
	(void)!rmtree(k->dir_fd, "old");
	(void)mkdirat(k->dir_fd, "old", 0700);
	(void)renameat(k->dir_fd, "containers", k->dir_fd, "old/containers");
	(void)renameat(k->dir_fd, "trash", k->dir_fd, "old/trash");
	(void)renameat(k->dir_fd, "base", k->dir_fd, "old/base");
	clean_trash(k);
	r = empty_folder(k, "containers");
	if (r == 0)
		r = empty_folder(k, "trash");
	if (r == 0)
		r = empty_folder(k, "base");
	if (r < 0)
		return r;
	k->trash_fd = openat(k->dir_fd, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	k->engine_fd = openat(k->dir_fd, "containers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return k->trash_fd < 0 || k->engine_fd < 0 ? -errno : open_layers(k);
}

/*
 * One supervisor at a time: that of a killed engine is still removing what its sandboxes left, by the
 * same names as ours. The lock is on a folder that is never removed; it is held until we end.
 */
static int take_over(struct supervisor *k)
{
	char dir[PATH_MAX];
	int r = supervisor_path(dir, sizeof(dir), k->o->state_dir, "templates", "");

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
		(void)poll(NULL, 0, SUPERVISOR_PAUSE_MS);
	}
	return -EBUSY;
}

/* What the files of a template come from, so that they are unpacked again only when that has changed. */
static int describe(const struct supervisor_template *t, char ret[STAMP_SIZE])
{
	struct stat st;

	if (t->image) {
		snprintf(ret, STAMP_SIZE, UNPACK_VERSION " %s", image_digest(t->image));
		return 0;
	}
	if (stat(t->path, &st) < 0)
		return -errno;
	snprintf(ret, STAMP_SIZE, UNPACK_VERSION " %lld %lld.%09ld", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
		 st.st_mtim.tv_nsec);
	return 0;
}

static int unpack_into(const struct supervisor *k, int dir_fd, const char *root, const struct supervisor_template *t,
		       char why[PKT_TEXT_MAX])
{
	scoped(fd_closep) int fd = openat(dir_fd, root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char words[IMAGE_WHY_MAX];
	int r;

	if (fd < 0)
		return -errno;
	r = t->image ? image_unpack(t->image, fd, k->o->as_user, &unpack_usual_limits, words) :
		       image_unpack_tar(t->path, fd, k->o->as_user, &unpack_usual_limits, words);
	if (r < 0)
		snprintf(why, PKT_TEXT_MAX, "template %.40s: %.60s: %.200s", t->name, t->path, words);
	return r;
}

static int unpack(const struct supervisor *k, int dir_fd, const struct supervisor_template *t, char why[PKT_TEXT_MAX])
{
	char root[NAME_MAX + 1], stamp[NAME_MAX + 1], now[STAMP_SIZE], *old = NULL;
	bool same;
	size_t n;
	int r = describe(t, now);

	if (r < 0)
		return r;
	snprintf(root, sizeof(root), "%s.root", t->name);
	snprintf(stamp, sizeof(stamp), "%s.stamp", t->name);
	r = fd_read_file(dir_fd, stamp, sizeof(now), &old, &n);
	same = r == 0 && str_eq(old, now);
	free(old);
	if (same)
		return 0;
	/* One that is not whole has none. */
	(void)unlinkat(dir_fd, stamp, 0);
	r = rmtree(dir_fd, root);
	if (r == 0 && mkdirat(dir_fd, root, 0755) < 0)
		r = -errno;
	if (r == 0)
		r = unpack_into(k, dir_fd, root, t, why);
	return r < 0 ? r : fd_write_file(dir_fd, stamp, now, strlen(now), 0600);
}

/* A template's links lead nowhere but into itself. */
static bool has_programs(const char *root)
{
	static const char *const folders[] = { "usr/bin", "bin" };
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	scoped(fd_closep) int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		int fd = (int)syscall(SYS_openat2, dir, folders[i], &how, sizeof(how));

		if (fd >= 0) {
			fd_close(fd);
			return true;
		}
	}
	return false;
}

static int prepare_template(const struct supervisor *k, int dir_fd, struct supervisor_template *t, char why[PKT_TEXT_MAX])
{
	char name[NAME_MAX + 1], patch[PATH_MAX], root[PATH_MAX];
	int r = t->is_unpacked ? unpack(k, dir_fd, t, why) : 0;

	if (r == 0)
		r = supervisor_template_path(k, t, "", root);
	if (r < 0)
		return r;
	t->on_base = !has_programs(root);
	if (t->on_base)
		return 0;
	snprintf(name, sizeof(name), "%s.patch", t->name);
	r = rmtree(dir_fd, name);
	if (r == 0 && mkdirat(dir_fd, name, 0755) < 0)
		r = -errno;
	if (r == 0)
		r = supervisor_template_path(k, t, ".patch", patch);
	return r < 0 ? r : base_build_patch(patch, root, k->o->as_user, k->o->sudo);
}

static int prepare_templates(const struct supervisor *k, char why[PKT_TEXT_MAX])
{
	int r = 0;

	why[0] = '\0';
	for (size_t i = 0; i < k->o->n_templates && r == 0; i++) {
		struct supervisor_template *t = &k->o->templates[i];

		r = t->path ? prepare_template(k, k->lock_fd, t, why) : 0;
		if (r < 0 && !why[0])
			snprintf(why, PKT_TEXT_MAX, "template %s: cannot prepare %s: %s", t->name, t->path,
				 strerror(-r));
	}
	return r;
}

/* One sandbox, made and thrown away. *ret_stage says where it failed. */
static int try_once(struct supervisor *k, uint64_t token, char why[PKT_TEXT_MAX],
		    enum ns_stage *ret_stage)
{
	struct supervisor_req q = { .token = token, .max_pids = 64, .id = "trial", .probe = true };
	int sock[2], pidfd = -1, fds[PKT_FDS_MAX], r = pkt_pair(sock);
	struct init_msg m = { 0 };
	struct making making;
	struct pollfd p;
	pid_t pid;

	*ret_stage = NS_CLONE;
	if (r < 0)
		return r;
	pid = supervisor_make(k, &q, sock[1], &making, &pidfd);
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
	supervisor_to_trash(k, making.name);
	(void)!supervisor_remove_all(k, making.name);
	return r;
}

/*
 * A thousand small files: in memory they cost nothing, on a disk they can cost a second (ext4 looks
 * long for inodes where many were deleted lately). The mount is the supervisor's own; it goes with it.
 */
static bool base_in_memory(struct supervisor *k)
{
	char base[PATH_MAX];

	if (k->o->as_user || supervisor_path(base, sizeof(base), k->dir, "base", "") < 0)
		return false;
	return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
	       mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m") == 0;
}

static int build_base(struct supervisor *k)
{
	char base[PATH_MAX];
	int r = supervisor_path(base, sizeof(base), k->dir, "base", "");

	return r < 0 ? r : base_build(base, k->o->as_user, k->o->sudo);
}

int supervisor_base_unmount(struct supervisor *k)
{
	char base[PATH_MAX];
	int r = supervisor_path(base, sizeof(base), k->dir, "base", "");

	k->base_in_memory = false;
	return r < 0 ? r : umount2(base, MNT_DETACH) < 0 ? -errno : 0;
}

/* Its files cannot be id-mapped there before Linux 6.3. */
static int base_to_disk(struct supervisor *k)
{
	int r = supervisor_base_unmount(k);

	return r < 0 ? r : build_base(k);
}

/* Leaves out what this kernel lacks, one thing at a time. */
static int trial(struct supervisor *k, char why[PKT_TEXT_MAX])
{
	enum ns_stage stage;
	int r;

	k->facts.as_user = k->o->as_user;
	k->facts.idmap = !k->o->as_user && !k->o->no_idmap;
	/* Only there do the files of /usr belong to somebody who exists inside. */
	k->facts.usr_writable = k->facts.idmap;
	k->facts.cg = k->o->cg;
	k->facts.egress = !k->o->no_egress;
	if (k->o->no_egress)
		str_copy(k->facts.egress_why, PKT_TEXT_MAX, "switched off by --no-egress");
	for (uint64_t i = 0;; i++) {
		r = try_once(k, UINT64_MAX - i, why, &stage);
		if (r < 0 && stage == NS_EGRESS) {
			k->facts.egress = false;
			str_copy(k->facts.egress_why, PKT_TEXT_MAX, why);
		} else if (r < 0 && k->base_in_memory && (stage == NS_IDMAP || stage == NS_ROOT)) {
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

void supervisor_start(struct supervisor *k)
{
	struct supervisor_rep rep = { .op = SUPERVISOR_READY };
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
	supervisor_say(k, &rep, -1);
}
