/* SPDX-License-Identifier: MIT */
/*
 * Control groups of the sandboxes, on version 2, version 1 or both side by side (hybrid): memory and
 * process limits, processor time, freezing. What a machine or user does not offer is
 * left out, and the roots say so. Plain file work; any process. Groups of others are never touched.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_CG_H
#define AB_DAEMON_LOCAL_ENGINE_CG_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define CG_PATH_MAX 512u

enum cg_ctl {
	CG_UNIFIED,	/* the version 2 hierarchy */
	CG_MEMORY,	/* from here: version 1 hierarchies */
	CG_PIDS,
	CG_CPU,
	CG_CPUACCT,
	CG_FREEZER,
	CG_N,
};

struct cg_roots {
	char dir[CG_N][CG_PATH_MAX];	/* our parent group in each hierarchy; "" = none */
	bool v2_memory, v2_pids, v2_cpu, v2_freeze;	/* usable below dir[CG_UNIFIED] */
	char home[CG_PATH_MAX];		/* the group we moved ourselves out of, "" = none */
};

struct cg_limits {
	uint64_t memory_bytes;	/* 0 = none, for all three */
	uint32_t max_pids;
	uint32_t cpus;
};

struct cg_usage {
	uint64_t cpu_us, mem_bytes, mem_cache_bytes;
};

/* Makes the parent groups `name` below the caller's own groups. Never fails: fewer roots. It may move
 * the caller (and what it forks) one group down: cg_leave() takes the caller back at its end. */
void cg_setup(const char *name, struct cg_roots *ret);
/* Makes the parents again if somebody has removed them since. */
void cg_renew(const struct cg_roots *roots);
/* Removes the parents and everything in them; kills what still runs there. */
void cg_teardown(const struct cg_roots *roots);
/* The same for one parent, known by its path from an earlier life. */
void cg_destroy(const char *dir, bool only_children);
/* Takes the caller back to where cg_setup() found it. */
void cg_leave(const struct cg_roots *roots);

/* The group of one sandbox. Limits that cannot be set are -errno; the group exists then. */
must_check int cg_make(const struct cg_roots *roots, const char *container, const struct cg_limits *l);
/* A handle on its version 2 group for CLONE_INTO_CGROUP, -1 if there is none. */
int cg_open_unified(const struct cg_roots *roots, const char *container);
/* Moves the caller, a single thread, into it; `cloned_into`: it is in the version 2 group already. */
must_check int cg_join(const struct cg_roots *roots, const char *container, bool cloned_into);
/* 0 or -EBUSY while something lives in it. */
must_check int cg_remove(const struct cg_roots *roots, const char *container);
/* Asks for it; cg_is_frozen() when all of its processes have stopped. */
must_check int cg_freeze(const struct cg_roots *roots, const char *container, bool on);
bool cg_is_frozen(const struct cg_roots *roots, const char *container);
void cg_usage(const struct cg_roots *roots, const char *container, struct cg_usage *ret);

bool cg_has_memory(const struct cg_roots *roots);
bool cg_has_pids(const struct cg_roots *roots);
bool cg_has_cpu(const struct cg_roots *roots);
bool cg_has_usage(const struct cg_roots *roots);
bool cg_has_freezer(const struct cg_roots *roots);

/* Pure: finds the caller's own group in hierarchy `c` from the texts of /proc/self/mountinfo and
 * /proc/self/cgroup. False if that hierarchy is not there. */
bool cg_find(const char *mountinfo, const char *cgroup, enum cg_ctl c, char ret[CG_PATH_MAX]);

#endif
