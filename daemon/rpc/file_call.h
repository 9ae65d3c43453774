/* SPDX-License-Identifier: MIT */
/* Inside of FileService, for the svc_file*.c only. */
#ifndef AB_DAEMON_RPC_FILE_CALL_H
#define AB_DAEMON_RPC_FILE_CALL_H

#include "daemon/cloud/envd.h"
#include "daemon/common/ev/loop.h"
#include "daemon/rpc/call.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/gen/agentbox_file.pb-c.h"

#define FILE_PATH_MAX 4096u	/* longer: FIELD_INVALID */
#define FILE_NAME_MAX 255u	/* the same for each name of a path; Linux has no longer ones */
#define FILES_PER_WRITE 1000u	/* headers of one Write stream; more: TOO_LARGE */

struct file_info_message {
	Agentbox__V1__FileInfo m;
	Google__Protobuf__Timestamp modified;
	Agentbox__V1__FileInfo__MetadataEntry *entries;
	char *held[3];			/* texts of names that are not their own */
};

/* The text of a name as proto/base/name.h writes it: itself, or *ret_held, which the caller frees. NULL without memory. */
char *file_name_text(char *name, char **ret_held);

/* Borrows from the entry. -ENOMEM leaves nothing to free. */
must_check int file_info_fill(struct file_info_message *f, const struct envd_entry *e);
void file_info_fini(struct file_info_message *f);

struct file_result {
	char *asked_path;		/* Write */
	bool has_entry;
	struct envd_entry entry;
	struct file_info_message info;
	struct status st;
};

/* Takes what e holds and zeroes it, also without memory. */
must_check int file_result_take(struct file_result *k, struct envd_entry *e);
struct file_call;
/* One more, empty. NULL without memory. */
struct file_result *file_result_add(struct file_call *x);

struct file_call {
	struct rpc_call *call;
	struct sandbox_core *core;
	struct sandbox_op *op;
	struct envd_call *agent;
	struct envd_list *list;
	struct envd_read *read;
	struct envd_write *write;
	struct envd_watch *watch;
	/* the request; paths are bytes */
	char *sandbox, *path, *other, *user;
	uint32_t depth;
	uint64_t offset, length;
	struct agent_address at;
	struct sandbox_tie tie;		/* the call ends with its sandbox */
	struct status own;		/* the failure that is answered if the sandbox is not the reason */
	bool asked_life;
	bool by_script;			/* once for a name that the agent cannot tell */
	void (*go)(struct file_call *x);	/* once that is known */
	size_t sent;			/* List: entries */
	/* Write: one per file */
	struct file_result **results;
	size_t n_results;
	bool streamed;			/* Read: as a stream of the agent's, not a body of known length */
	/* Read: sent; Write: of the current file, given to the agent */
	uint64_t bytes;
	bool head_sent;
	/* Write */
	size_t answer_bytes;		/* of the results so far */
	struct file_header *current, *next;	/* next: waits until the current file is finished */
	bool want_next;			/* ask the client once there is room */
	bool asked_next, ended;
	bool finish_due;		/* the current file ended before the agent took its beginning */
	/* Watch */
	char *link;			/* to x->path, where the agent needs one */
	struct envd_watch_options watching;	/* path: above */
	bool ready;			/* said so */
	bool missed;			/* Overflowed is owed once changes are reported again */
	unsigned failures;		/* to watch, in a row */
	uint64_t lost_at_ms;		/* when the first of them was */
	struct timer retry;
	/* SignUrl */
	bool for_write;
	uint64_t expires_for_ms;	/* 0 = unset */
};

struct file_header {
	char *path, *user;
	char *asked_path;		/* the path's text; goes to its result */
	int64_t size;			/* -1 = not announced */
	struct cloud_kvs metadata;
};
struct file_header *file_header_free(struct file_header *h);	/* NULL is fine; returns NULL */

struct file_call *file_call_new(struct rpc_call *call);
void file_call_free(struct file_call *x);
void file_call_fail(struct file_call *x, const struct status *st);
void file_call_fail_errno(struct file_call *x, int err);
void file_call_on_gone(struct rpc_call *call, enum rpc_gone why);
/* Takes what every call names; `field` is what its path is called. False: that is not fit, and it has failed. */
bool file_call_take(struct file_call *x, const char *sandbox, const char *path, const char *field, const char *user);
void file_call_resolve(struct file_call *x);	/* x->sandbox → x->go */
struct envd_target file_call_target(const struct file_call *x);
/* The edge or the agent refused: asks daemon/sandbox, which answers the call or lets x->go try again.
 * False: nothing more to ask. */
bool file_call_ask_life(struct file_call *x, enum envd_class cls);
/* The call failed so; but if its sandbox is the reason (it is gone, or paused), that is what is said. */
void file_call_fail_because(struct file_call *x, enum envd_class cls, const struct status *own);
/* The agent failed at a name that it cannot tell: from now on it is done by a script; once. */
bool file_call_by_script(struct file_call *x, const struct status *st);
bool file_check_path(const char *path, const char *field, struct status *st);

extern const struct rpc_handler file_read_handler, file_write_handler, file_watch_handler,
	file_sign_handler;

#endif
