/* SPDX-License-Identifier: MIT */
/*
 * Makes the calling process the init of a sandbox: namespaces, root file system, ids, limits.
 *
 * As root the mounts are made with full rights in a mount namespace that belongs to the initial user
 * namespace, with the layers id-mapped, and only then the process enters the sandbox's own user
 * namespace: nobody inside has any right over the mounts. As an ordinary user everything is made
 * inside the user namespace. Either way the sandbox ends up without CAP_SYS_ADMIN, with
 * no_new_privs and a seccomp filter.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_NS_H
#define AB_DAEMON_LOCAL_ENGINE_NS_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct cg_roots;
struct nsnet;

#define NS_IDS	      65536u	/* mapped into each sandbox when we are root */
#define NS_LOWERS_MAX 2u

enum ns_stage {
	NS_CLONE,	/* the namespaces themselves */
	NS_CGROUP,
	NS_PRIVATE,
	NS_PROC,
	NS_IDS_MAP,
	NS_SCRATCH,
	NS_LAYERS,
	NS_IDMAP,	/* go on without plan.idmap */
	NS_ROOT,
	NS_USR,		/* go on without plan.usr_writable */
	NS_DEV,
	NS_MASK,
	NS_SHOWN,
	NS_PIVOT,
	NS_ENTER,
	NS_NET,
	NS_EGRESS,	/* go on without plan.egress */
	NS_CONFINE,
};

struct ns_plan {
	bool as_user;		/* one id is mapped */
	bool idmap;
	bool usr_writable;
	bool egress;		/* outgoing connections are led to the engine */
	bool probe;		/* … which is tried out */
	bool has_usr;		/* the root has no /usr of its own: the machine's is put there */
	uint32_t first_id;	/* what 0 inside is outside; as_user: our uid */
	uint32_t first_gid;
	uint32_t max_pids;
	uint64_t memory_bytes;	/* what it has, and is shown */
	uint32_t cpus, machine_cpus;	/* the same */
	const char *container_dir;	/* holds lay/{up,wk,usrup,usrwk} and mnt */
	const char *cg_container;
	const struct cg_roots *cg;
	bool in_cgroup;		/* set by ns_clone(): the child starts in its version 2 group */
	const char *lowers[NS_LOWERS_MAX];	/* of the root, the top one first */
	size_t n_lowers;
};

struct ns_error {
	enum ns_stage stage;
	int err;		/* positive errno */
};

/* Is the caller the initial namespace's root with what that needs? Else: an ordinary user. */
bool ns_is_root(void);
/* clone3 into the new namespaces: the child's pid with its pidfd, 0 in the child, or -errno. The
 * child shares no memory and may only go on with ns_setup(). */
must_check pid_t ns_clone(struct ns_plan *p, int *ret_pidfd);
/* In the child. 0 or -1 with *ret_error. After success "/" is the sandbox's, *ret_net has the
 * sockets of plan.egress, and *ret_shown is the folder with what it is shown in /proc. */
must_check int ns_setup(const struct ns_plan *p, struct nsnet *ret_net, int *ret_shown, struct ns_error *ret_error);
/* What went wrong and what would help, for a person. */
void ns_explain(const struct ns_error *e, char *ret, size_t cap);

/* --- nssec.c --- */

/* Resource limits, capabilities, no_new_privs, seccomp; for the init, at the end of its setup. */
must_check int nssec_confine(const struct ns_plan *p);
/* As an ordinary user, in the child that becomes a command of a user other than root: shows our
 * one id as uid:gid. */
must_check int nssec_become(uint32_t uid, uint32_t gid);

#endif
