/* SPDX-License-Identifier: MIT */
/*
 * The supervisor: a helper process, forked before the engine knows secrets, that makes the inits of
 * sandboxes and removes what dead ones leave, so that the engine's loop never waits for a disk.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_SUPERVISOR_H
#define AB_DAEMON_LOCAL_ENGINE_SUPERVISOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/local/engine/packet.h"
#include "proto/base/cc.h"

/* Where the ranges of ids begin: above what systemd gives to containers, below 2^31. */
#define SUPERVISOR_FIRST_ID 0x78000000u
#define SUPERVISOR_ID_SLOTS 1024u

struct image;

struct supervisor_template {
	const char *name;
	const char *path;	/* NULL: the built-in base */
	bool is_unpacked;	/* a folder of ours: `path` is an archive, or where the image lies */
	struct image *image;	/* NULL: it is none */
	bool on_base;	/* has no programs of its own: lies over the base (the supervisor finds out) */
};

struct supervisor_options {
	int sock;
	const char *state_dir;	/* absolute, real */
	struct supervisor_template *templates;
	size_t n_templates;
	struct cg_roots cg;
	bool as_user, no_idmap, no_egress;
	const char *sudo;	/* the program that sandboxes get; NULL */
	uid_t uid;
	gid_t gid;
};

/* Never returns. Ends, with all sandboxes, at the end of file of its socket. */
noreturn_ void supervisor_run(const struct supervisor_options *o);

#endif
