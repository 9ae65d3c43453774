/* SPDX-License-Identifier: MIT */
/* Makes the init of a sandbox: its folders, its layers, its namespaces. */
#include "daemon/local/engine/supervisor_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/copytree.h"
#include "daemon/local/engine/nsnet.h"
#include "daemon/local/engine/spawn.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

int supervisor_path(char *ret, size_t cap, const char *a, const char *b, const char *c)
{
	return (size_t)snprintf(ret, cap, "%s/%s%s", a, b, c) < cap ? 0 : -ENAMETOOLONG;
}

void supervisor_name(char ret[SUPERVISOR_NAME_SIZE], const char *id, uint64_t token)
{
	snprintf(ret, SUPERVISOR_NAME_SIZE, "%s.%llx", id, (unsigned long long)token);
}

static int make_folder(const char *dir, const char *name, uint32_t owner, bool mark)
{
	char path[PATH_MAX];

	if (supervisor_path(path, sizeof(path), dir, name, "") < 0)
		return -ENAMETOOLONG;
	if (mkdir(path, 0755) < 0 || chmod(path, 0755) < 0)
		return -errno;
	if (owner && chown(path, owner, owner) < 0)
		return -errno;
	if (mark && setxattr(path, CONTAINER_OWNER_XATTR, "0:0", 3, 0) < 0)
		return -errno;
	return 0;
}

struct layer_ids supervisor_ids(const struct supervisor *k, uint32_t slot)
{
	return (struct layer_ids){
		.as_user = k->o->as_user,
		.first = k->o->as_user || k->facts.idmap ? 0 : SUPERVISOR_FIRST_ID + slot * NS_IDS,
	};
}

/* One that begins with a layer has its folder and the layer in it. */
static int make_folders(const struct supervisor *k, const struct supervisor_req *q, struct making *m)
{
	static const struct {
		const char *name;
		bool in_layer, is_top;
	} folders[] = {
		{ "mnt", false, false },     { "lay", true, false },	 { "lay/up", true, true },
		{ "lay/wk", false, false },  { "lay/usrup", true, true }, { "lay/usrwk", false, false },
	};
	uint32_t owner = supervisor_ids(k, q->id_slot).first;

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
int supervisor_template_path(const struct supervisor *k, const struct supervisor_template *t,
			     const char *suffix, char ret[PATH_MAX])
{
	if (!*suffix && !t->is_unpacked)
		return str_copy(ret, PATH_MAX, t->path) ? 0 : -ENAMETOOLONG;
	return snprintf(ret, PATH_MAX, "%s/templates/%s%s", k->o->state_dir, t->name,
			*suffix ? suffix : ".root") < PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

/* The folder `own` to CONTAINER/base, with the owners of the sandbox. */
static int copy_shifted(const struct supervisor *k, const char *own, struct making *m)
{
	const struct container_copy how = { .supervisor_owners = true, .shift = m->plan.first_id };
	scoped(fd_closep) int container =
		openat(k->engine_fd, m->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scoped(fd_closep) int from = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = supervisor_path(m->base, sizeof(m->base), m->dir, "base", "");

	if (r == 0 && (container < 0 || from < 0))
		r = -errno;
	return r < 0 ? r : copytree(from, ".", container, "base", &how);
}

/*
 * The lower layers, the top one first: base; or template and base; or patch and template. Without
 * id-mapped mounts our own (base or patch) is copied and shifted, and a template's files show as
 * nobody's.
 */
static int choose_layers(const struct supervisor *k, const struct supervisor_req *q, struct making *m)
{
	const struct supervisor_template *t = &k->o->templates[q->template];
	bool on_base = !t->path || t->on_base;
	char own[PATH_MAX];
	int r = on_base ? supervisor_path(own, sizeof(own), k->dir, "base", "")
			: supervisor_template_path(k, t, ".patch", own);

	if (r == 0 && t->path)
		r = supervisor_template_path(k, t, "", m->root);
	if (r < 0)
		return r;
	m->plan.has_usr = on_base;
	m->plan.n_lowers = t->path ? 2 : 1;
	m->plan.lowers[0] = t->path && on_base ? m->root : m->base;
	m->plan.lowers[1] = t->path && on_base ? m->base : m->root;
	if (k->o->as_user || k->facts.idmap)
		return str_copy(m->base, sizeof(m->base), own) ? 0 : -ENAMETOOLONG;
	return copy_shifted(k, own, m);
}

static int prepare(const struct supervisor *k, const struct supervisor_req *q, struct making *m)
{
	const struct cg_limits limits = { .memory_bytes = q->memory_bytes, .max_pids = q->max_pids,
					  .cpus = q->cpus };
	int r;

	*m = (struct making){ .why = "" };
	supervisor_name(m->name, q->id, q->token);
	r = supervisor_path(m->dir, sizeof(m->dir), k->dir, "containers/", m->name);
	if (r < 0)
		return r;
	m->plan = (struct ns_plan){
		.as_user = k->o->as_user,
		.idmap = k->facts.idmap,
		.usr_writable = k->facts.usr_writable,
		.egress = k->facts.egress,
		.probe = q->probe,
		.first_id = k->o->as_user ? k->o->uid : SUPERVISOR_FIRST_ID + q->id_slot * NS_IDS,
		.first_gid = k->o->as_user ? k->o->gid : SUPERVISOR_FIRST_ID + q->id_slot * NS_IDS,
		.max_pids = q->max_pids,
		.memory_bytes = container_memory_bytes(q->memory_bytes),
		.cpus = container_cpus(q->cpus),
		.machine_cpus = container_cpus(0),
		.container_dir = m->dir,
		.cg = &k->o->cg,
		.cg_container = m->name,
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
	struct nsnet net = { -1, -1 };
	int shown = -1;
	struct init_msg failed = { .op = INIT_FAILED };

	if (dup2(sock, SUPERVISOR_SOCK_FD) < 0 || dup2(STDIN_FILENO, STDERR_FILENO) < 0 ||
	    close_range(SUPERVISOR_SOCK_FD + 1, ~0u, 0) < 0)
		_exit(1);
	(void)fcntl(SUPERVISOR_SOCK_FD, F_SETFD, FD_CLOEXEC);
	if (ns_setup(&m->plan, &net, &shown, &e) < 0) {
		failed.r = -e.err;
		failed.a = (int32_t)e.stage;
		ns_explain(&e, failed.text, sizeof(failed.text));
		(void)!pkt_send(SUPERVISOR_SOCK_FD, &failed, sizeof(failed), NULL, 0);
		_exit(1);
	}
	spawn_run(SUPERVISOR_SOCK_FD, m->plan.as_user, shown, &net);
}

/* *ret_pidfd and the pid, or -errno with m->why. */
pid_t supervisor_make(struct supervisor *k, const struct supervisor_req *q, int sock,
		      struct making *m, int *ret_pidfd)
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
		ns_explain(&e, m->why, sizeof(m->why));
	}
	return pid;
}
