/* SPDX-License-Identifier: MIT */
/* What the files of the Filesystem service share (envd_fs.c, envd_watch.c). */
#ifndef AB_DAEMON_LOCAL_AGENT_ENVD_FS_H
#define AB_DAEMON_LOCAL_AGENT_ENVD_FS_H

#include "daemon/local/agent/connect.h"
#include "daemon/local/engine/fs.h"
#include "proto/gen/envd_filesystem.pb-c.h"

struct entry_message {
	Filesystem__EntryInfo info;
	Google__Protobuf__Timestamp modified;
	Filesystem__EntryInfo__MetadataEntry *meta;
	Filesystem__EntryInfo__MetadataEntry **meta_ptr;
	char *held[3];			/* texts of names that are not their own */
};

/* The text of a name, itself or *ret_held, which the caller frees; NULL without memory. */
char *fs_name_text(const char *name, char **ret_held);
/* The entry as a message; points into `from`, which must live as long. 0, -ENOMEM; then fini too. */
must_check int fs_entry_init(struct entry_message *e, const struct fs_entry *from);
void fs_entry_fini(struct entry_message *e);

/* The absolute path, heap; NULL after the call failed. */
char *fs_resolve(struct call *c, const struct container_user *u, const char *path);

/* envd_watch.c: the methods of watching, and their end with the sandbox. */
void watch_dir_start(struct call *c);
void create_watcher_start(struct call *c);
void watcher_events_start(struct call *c);
void remove_watcher_start(struct call *c);
void envd_watch_stop(struct sandbox *s);

#endif
