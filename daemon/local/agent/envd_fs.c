/* SPDX-License-Identifier: MIT */
/* The Filesystem service: paths by the agent's rules, work by fs, errors by the contract's table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/agent/envd.h"
#include "daemon/local/agent/envd_fs.h"
#include "daemon/local/engine/fs.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/local.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

/* One operation under way; ends with its call. */
struct fsop {
	struct call *c;
	struct fs_op *op;
	char *path, *to;	/* resolved */
};

static void fsop_free(struct fsop *o)
{
	free(o->path);
	free(o->to);
	free(o);
}

static void on_gone(struct call *c)
{
	struct fsop *o = give(c->priv);

	fs_cancel(o->op);
	fsop_free(o);
}

/* Ends the operation, not the call. */
static struct call *fsop_done(struct fsop *o)
{
	struct call *c = o->c;

	c->gone = NULL;
	c->priv = NULL;
	fsop_free(o);
	return c;
}

char *fs_resolve(struct call *c, const struct container_user *u, const char *path)
{
	char *out = envd_path_of_text(c->s, u, path);

	if (!out)
		call_fail(c, errno == EINVAL ? CODE_INVALID_ARGUMENT : CODE_RESOURCE_EXHAUSTED,
			  errno == EINVAL ? "error resolving path: cannot expand the user in \"%s\""
					  : "out of memory: \"%s\"",
			  path);
	return out;
}

/* NULL after the call failed. `to` may be NULL. */
static struct fsop *fsop_new(struct call *c, const struct container_user *u, const char *path,
			     const char *to)
{
	char *path_abs = fs_resolve(c, u, path);
	char *to_abs = path_abs && to ? fs_resolve(c, u, to) : NULL;
	struct fsop *o;

	if (!path_abs || (to && !to_abs)) {
		free(path_abs);
		return NULL;
	}
	o = calloc(1, sizeof(*o));
	if (!o) {
		free(path_abs);
		free(to_abs);
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
		return NULL;
	}
	*o = (struct fsop){ .c = c, .path = path_abs, .to = to_abs };
	c->priv = o;
	c->gone = on_gone;
	return o;
}

/* For those of an operation's errors that mean the same everywhere. */
static void envd_fs_fail(struct call *c, int r, const char *path)
{
	enum ab_code code = CODE_INTERNAL;

	if (r == -ENOENT)
		code = CODE_NOT_FOUND;
	else if (r == -EPIPE)
		code = CODE_UNAVAILABLE;
	else if (r == -E2BIG || r == -ENOSPC || r == -EDQUOT)
		code = CODE_RESOURCE_EXHAUSTED;
	call_fail(c, code, "%s: %s", path, r == -ENOENT ? "path not found" : strerror(-r));
}

static void fail_path(struct fsop *o, int r)
{
	char path[256];

	str_copy(path, sizeof(path), o->path);
	envd_fs_fail(fsop_done(o), r, path);
}

/* A call into fs returned: an error means that nothing was started. */
static void begun(struct fsop *o, int r)
{
	if (r < 0)
		fail_path(o, r);
}

static void note(const struct call *c, const char *op, const char *path, const char *to)
{
	journal_add(c->l->journal, op,
		    json_pack("{s:s, s:o, s:o}", "sandbox", c->s->id, "path", envd_name_json(path), "to",
			      to ? envd_name_json(to) : json_null()));
}

/* --- entries --- */

void fs_entry_fini(struct entry_message *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(e->held); i++)
		free(give(e->held[i]));
	free(e->meta);
	free(e->meta_ptr);
}

char *fs_name_text(const char *name, char **ret_held)
{
	*ret_held = name_is_text(name) ? NULL : name_to_text(name);
	return name_is_text(name) ? (char *)name : *ret_held;
}

int fs_entry_init(struct entry_message *e, const struct fs_entry *from)
{
	*e = (struct entry_message){ .info = FILESYSTEM__ENTRY_INFO__INIT,
			     .modified = GOOGLE__PROTOBUF__TIMESTAMP__INIT };
	e->info.name = fs_name_text(from->name, &e->held[0]);
	e->info.type = (Filesystem__FileType)from->type;
	e->info.path = fs_name_text(from->path, &e->held[1]);
	e->info.size = from->size;
	e->info.mode = from->mode;
	e->info.permissions = (char *)from->permissions;
	e->info.owner = (char *)from->owner;
	e->info.group = (char *)from->group;
	e->modified.seconds = from->mtime_s;
	e->modified.nanos = from->mtime_ns;
	e->info.modified_time = &e->modified;
	if (from->symlink_target) {
		e->info._symlink_target_case = FILESYSTEM__ENTRY_INFO___SYMLINK_TARGET_SYMLINK_TARGET;
		e->info.symlink_target = fs_name_text(from->symlink_target, &e->held[2]);
	}
	if (!e->info.name || !e->info.path || (from->symlink_target && !e->info.symlink_target))
		return -ENOMEM;
	if (!from->n_meta)
		return 0;
	e->meta = calloc(from->n_meta, sizeof(*e->meta));
	e->meta_ptr = calloc(from->n_meta, sizeof(*e->meta_ptr));
	if (!e->meta || !e->meta_ptr)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_meta; i++) {
		filesystem__entry_info__metadata_entry__init(&e->meta[i]);
		e->meta[i].key = (char *)from->meta[i].key;
		e->meta[i].value = (char *)from->meta[i].value;
		e->meta_ptr[i] = &e->meta[i];
	}
	e->info.metadata = e->meta_ptr;
	e->info.n_metadata = from->n_meta;
	return 0;
}

/* StatResponse, MakeDirResponse and MoveResponse are the same message. */
static void reply_entry(struct call *c, const struct fs_entry *from)
{
	Filesystem__StatResponse out = FILESYSTEM__STAT_RESPONSE__INIT;
	struct entry_message e;

	if (fs_entry_init(&e, from) < 0) {
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		out.entry = &e.info;
		call_reply(c, &out.base);
	}
	fs_entry_fini(&e);
}

/* --- the methods --- */

static void on_stat(void *user, int r, const struct fs_entry *e)
{
	struct fsop *o = user;

	if (r < 0)
		fail_path(o, r);
	else
		reply_entry(fsop_done(o), e);
}

static void stat_start(struct call *c)
{
	const Filesystem__StatRequest *in = (const void *)c->req;
	const struct container_user *u = call_user(c);
	struct fsop *o = u ? fsop_new(c, u, in->path, NULL) : NULL;

	if (o)
		begun(o, fs_stat(c->s->container, o->path, on_stat, o, &o->op));
}

static void on_made(void *user, int r, const struct fs_entry *e)
{
	struct fsop *o = user;
	char path[256];

	str_copy(path, sizeof(path), o->path);
	if (r == -EEXIST) {
		call_fail(fsop_done(o), CODE_ALREADY_EXISTS, "directory already exists: %s", path);
	} else if (r == -ENOTDIR) {
		call_fail(fsop_done(o), CODE_INVALID_ARGUMENT,
			  "path already exists but it is not a directory: %s", path);
	} else if (r < 0) {
		fail_path(o, r);
	} else {
		note(o->c, "MakeDir", o->path, NULL);
		reply_entry(fsop_done(o), e);
	}
}

static void make_dir_start(struct call *c)
{
	const Filesystem__MakeDirRequest *in = (const void *)c->req;
	const struct container_user *u = call_user(c);
	struct fsop *o = u ? fsop_new(c, u, in->path, NULL) : NULL;

	if (o)
		begun(o, fs_mkdir(c->s->container, o->path, u, on_made, o, &o->op));
}

static void on_moved(void *user, int r, const struct fs_entry *e)
{
	struct fsop *o = user;

	if (r < 0) {
		fail_path(o, r);
		return;
	}
	note(o->c, "Move", o->path, o->to);
	reply_entry(fsop_done(o), e);
}

static void move_start(struct call *c)
{
	const Filesystem__MoveRequest *in = (const void *)c->req;
	const struct container_user *u = call_user(c);
	struct fsop *o = u ? fsop_new(c, u, in->source, in->destination) : NULL;

	if (o)
		begun(o, fs_move(c->s->container, o->path, o->to, u, on_moved, o, &o->op));
}

static void on_removed(void *user, int r)
{
	Filesystem__RemoveResponse out = FILESYSTEM__REMOVE_RESPONSE__INIT;
	struct fsop *o = user;

	if (r < 0) {
		fail_path(o, r);
		return;
	}
	note(o->c, "Remove", o->path, NULL);
	call_reply(fsop_done(o), &out.base);
}

static void remove_start(struct call *c)
{
	const Filesystem__RemoveRequest *in = (const void *)c->req;
	const struct container_user *u = call_user(c);
	struct fsop *o = u ? fsop_new(c, u, in->path, NULL) : NULL;

	if (o)
		begun(o, fs_remove(c->s->container, o->path, on_removed, o, &o->op));
}

static void reply_list(struct call *c, const struct fs_entry *v, size_t n)
{
	Filesystem__ListDirResponse out = FILESYSTEM__LIST_DIR_RESPONSE__INIT;
	struct entry_message *entries = calloc(n + 1, sizeof(*entries));
	Filesystem__EntryInfo **ptr = calloc(n + 1, sizeof(Filesystem__EntryInfo *));
	size_t done = 0;
	int r = entries && ptr ? 0 : -ENOMEM;

	for (; done < n && !r; done++) {
		r = fs_entry_init(&entries[done], &v[done]);
		ptr[done] = &entries[done].info;
	}
	if (r < 0) {
		call_fail(c, CODE_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		out.entries = ptr;
		out.n_entries = n;
		call_reply(c, &out.base);
	}
	for (size_t i = 0; i < done; i++)
		fs_entry_fini(&entries[i]);
	free(entries);
	free(ptr);
}

static void on_listed(void *user, int r, const struct fs_entry *v, size_t n)
{
	struct fsop *o = user;
	char path[256];

	str_copy(path, sizeof(path), o->path);
	if (r == -ENOTDIR)
		call_fail(fsop_done(o), CODE_INVALID_ARGUMENT, "path is not a directory: %s", path);
	else if (r == -ELOOP)
		call_fail(fsop_done(o), CODE_FAILED_PRECONDITION, "symlink loop: %s", path);
	else if (r < 0)
		fail_path(o, r);
	else
		reply_list(fsop_done(o), v, n);
}

static void list_dir_start(struct call *c)
{
	const Filesystem__ListDirRequest *in = (const void *)c->req;
	const struct container_user *u = call_user(c);
	struct fsop *o = u ? fsop_new(c, u, in->path, NULL) : NULL;

	if (o)
		begun(o, fs_list(c->s->container, o->path, in->depth, on_listed, o, &o->op));
}

const struct rpc_method envd_fs_methods[] = {
	{ "/filesystem.Filesystem/Stat", &filesystem__stat_request__descriptor,
	  .start = stat_start },
	{ "/filesystem.Filesystem/MakeDir", &filesystem__make_dir_request__descriptor,
	  .start = make_dir_start },
	{ "/filesystem.Filesystem/Move", &filesystem__move_request__descriptor,
	  .start = move_start },
	{ "/filesystem.Filesystem/ListDir", &filesystem__list_dir_request__descriptor,
	  .start = list_dir_start },
	{ "/filesystem.Filesystem/Remove", &filesystem__remove_request__descriptor,
	  .start = remove_start },
	{ "/filesystem.Filesystem/WatchDir", &filesystem__watch_dir_request__descriptor,
	  .stream_out = true, .start = watch_dir_start },
	{ "/filesystem.Filesystem/CreateWatcher", &filesystem__create_watcher_request__descriptor,
	  .start = create_watcher_start },
	{ "/filesystem.Filesystem/GetWatcherEvents",
	  &filesystem__get_watcher_events_request__descriptor, .start = watcher_events_start },
	{ "/filesystem.Filesystem/RemoveWatcher", &filesystem__remove_watcher_request__descriptor,
	  .start = remove_watcher_start },
	{ 0 },
};
