/* SPDX-License-Identifier: MIT */
/*
 * What sandboxes can be made from: the templates of the command line ("base" is always there), which
 * belong to everybody, and snapshots, which are templates of a team. A snapshot has an entry for each tag;
 * entries with the same layer are one build, and the layer is there as long as one of them is.
 * Pure: knows nothing of files, which a build names by its layer.
 */
#ifndef AB_DAEMON_LOCAL_STATE_TEMPLATE_H
#define AB_DAEMON_LOCAL_STATE_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/common/http/route.h"
#include "daemon/local/engine/container.h"
#include "proto/base/list.h"
#include "proto/cloud/list.h"

#define TEMPLATES_MAX	     32u
#define TEMPLATE_BUILDS_MAX  4096u	/* of all snapshots together */
#define TEMPLATE_DEFAULT_TAG "default"
#define TEMPLATE_UUID_MAX    36u

struct template {
	struct list node;
	char id[24];
	char name[TEMPLATE_NAME_MAX + 1];	/* "" = a snapshot without a name */
	const char *team;			/* NULL = everybody's, and not a snapshot */
	struct list builds;			/* of a snapshot, the oldest first */
	uint32_t users;				/* sandboxes made from it */
	uint64_t n_spawned;			/* … in the life of this process */
	int64_t spawned_us;			/* the last one; 0 = none */
	int64_t made_us;			/* one of the command line: when this process took it up */
	bool deleted;				/* goes with the last of them */
};

struct template_build {
	struct list node;
	char tag[TEMPLATE_NAME_MAX + 1];		/* "" = its last one was taken away */
	char layer[CONTAINER_ID_MAX + 1];
	char root[CONTAINER_ID_MAX + 1];		/* the engine's template below it */
	char source[ROUTE_ID_MAX + 1];		/* the sandbox it was made of */
	int64_t at_us;
	int64_t tagged_us;
};

/* What a template of the command line says beside its files. NULL: nothing; strings are the caller's. */
struct template_run {
	const char *start;	/* runs in each sandbox from its creation on */
	const char *ready;	/* a creation is answered once this ended with 0 */
	const char *user, *workdir;	/* of commands and paths that name none */
	const char *const *env;		/* "NAME=value" of start and ready, NULL-terminated */
};

struct templates;

/* `now_us`: the wall clock. */
must_check int templates_new(const struct container_template *v, size_t n, int64_t now_us, struct templates **ret);
struct templates *templates_free(struct templates *ts);

enum template_found {
	TEMPLATE_FOUND,
	TEMPLATE_UNKNOWN,	/* or another team's */
	TEMPLATE_NO_TAG,
	TEMPLATE_FOREIGN,	/* a namespace that is not the team's */
};

/* By id, by name, by namespace/name; for `team`. *ret_build is NULL for one that is no snapshot;
 * without a tag in `ref` it is the one tagged "default", else the newest. */
enum template_found templates_find(const struct templates *ts, const char *team,
				   const struct template_ref *ref, struct template **ret,
				   struct template_build **ret_build);
/* Walks those of the command line, in its order; NULL to begin, NULL at the end. */
struct template *templates_next_fixed(const struct templates *ts, const struct template *after);
/* Walks the snapshots of a team in no order; NULL to begin, NULL at the end. */
struct template *templates_next(const struct templates *ts, const struct template *after);
/* The newest build, of that tag unless it is NULL; NULL for none. */
struct template_build *template_newest(const struct template *t, const char *tag);

/* Notes a build: of the team's template of that name (ref->name "" = a new one without a name).
 * *ret_replaced: the layer of the build that had this tag before, heap, or NULL. -EEXIST: a template
 * of the command line has the name; -ENOSPC: too many. */
must_check int templates_add(struct templates *ts, const char *team, const struct template_ref *ref,
			     const struct template_build *b, struct template **ret, char **ret_replaced);
/* Gives one more tag to the build of this snapshot, which is in its list. *ret_replaced as above. A tag that the
 * build has already is as if newly given. -ENOSPC. */
must_check int templates_tag(struct templates *ts, struct template *t, struct template_build *b, const char *tag,
			     int64_t now_us, char **ret_replaced);
/* Takes a tag away. The build stays, also without its last tag: found by the snapshot's name alone. */
void templates_untag(struct templates *ts, struct template *t, const char *tag);
/* The first entry of a build, for who walks builds. */
bool template_is_first_of_build(const struct template *t, const struct template_build *b);
/* A UUID that is the build's as long as it is there; NULL: of a template that is no snapshot. */
void template_build_id(const struct template *t, const struct template_build *b, char ret[TEMPLATE_UUID_MAX + 1]);
/* Nobody finds the snapshot any more; it is freed, with its builds, when it has no user. */
void templates_delete(struct templates *ts, struct template *t);

void template_use(struct template *t);
/* A sandbox is made from it. */
void template_spawned(struct template *t, int64_t now_us);
void template_unuse(struct templates *ts, struct template *t);

/* "team/name:tag", or "id:default"; without a tag where the build has none. */
void template_snapshot_id(const struct template *t, const struct template_build *b, char *ret, size_t cap);

/* What outlives the process; new reference, NULL without memory. */
json_t *templates_save(const struct templates *ts);
/* One snapshot of what templates_save() wrote; the team is the caller's to find. 0, -EINVAL. */
must_check int templates_load(struct templates *ts, const json_t *o, const char *team);

#endif
