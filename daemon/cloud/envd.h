/* SPDX-License-Identifier: MIT */
/*
 * The agent inside a sandbox: processes, file system, files. Unary calls answer once through `done`
 * (on the loop, never from inside the call, not after cancel). Streams and transfers give *on_ready*:
 * their function says only that something changed, and the owner looks; looking twice is harmless.
 *
 * Credit. What the owner does not take (envd_stream_next(), envd_read_consume()) stays in the HTTP
 * stream's window, so a slow owner slows the sandbox and nothing grows here.
 *
 * The API key is never sent to an agent; the access token is sent nowhere else.
 */
#ifndef AB_DAEMON_CLOUD_ENVD_H
#define AB_DAEMON_CLOUD_ENVD_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/cloud/model.h"
#include "daemon/cloud/address.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct cloud;
struct trace;

/* Whom to ask. All strings are copied by the call that gets it.
 *
 * Paths and names, here and in all answers, are bytes. The agent takes and gives UTF-8 only: a path that is not UTF-8
 * (proto/base/name.h) is handled by a script in the sandbox (rawfs.h), with `by_script` every path. */
struct envd_target {
	struct agent_address at;	/* borrowed */
	const char *user;		/* who runs it or owns it; NULL = the sandbox's default */
	bool by_script;			/* use the script: see envd_needs_script() */
	const struct trace *trace;	/* of the work that it is done for; borrowed; NULL = none */
	uint64_t deadline_ms;		/* BOOTTIME. Unary: of the whole call, 0 = 60 s. Streams and
					 * transfers: until the first answer, 0 = 60 s */
};

/* How far a request got: the sandbox module and commands decide by it. */
enum envd_class {
	ENVD_OK = 0,
	ENVD_ANSWERED,		/* the agent, or the cloud's proxy for it, refused: see status */
	ENVD_NOT_RUNNING,	/* 502 without a port: the cloud's proxy has no such sandbox. Evidence, not proof:
				 * the control plane decides (status is UNREACHABLE meanwhile) */
	ENVD_TOKEN,		/* 401: the access token is stale, fetch it again once */
	ENVD_UNSENT,		/* nothing reached the sandbox: safe to send again */
	ENVD_LOST,		/* maybe processed; for a stream: cut without an end */
};

/* --- unary --- */

struct envd_call;

struct envd_process {
	uint32_t pid;
	char *tag, *cmd, *cwd;		/* NULL if absent */
	struct cloud_strs args;
	struct cloud_kvs envs;
};

enum envd_file_type {		/* the cloud's numbers */
	ENVD_FILE_UNSPECIFIED = 0,
	ENVD_FILE_FILE = 1,
	ENVD_FILE_DIRECTORY = 2,
	ENVD_FILE_SYMLINK = 3,
};

struct envd_entry {
	char *name, *path;
	enum envd_file_type type;
	int64_t size;
	uint32_t mode;			/* permission bits */
	char *permissions, *owner, *group;
	int64_t modified_s;
	int32_t modified_ns;
	char *symlink_target;		/* NULL if none */
	struct cloud_kvs metadata;
};

void envd_entry_fini(struct envd_entry *e);

struct envd_result {
	enum envd_class cls;
	struct status status;		/* OK with ENVD_OK */
	unsigned http_status;		/* 0 = no answer */
	bool running;			/* health */
	bool names_are_text;		/* the agent's answer has names as proto/base/name.h writes them; here they are bytes */
	struct envd_process *processes;	/* process list; belong to the result */
	size_t n_processes;
	struct envd_entry *entries;	/* stat, mkdir, move: one; belongs to the result, unless it is taken out
					 * and zeroed */
	size_t n_entries;
};

/* Did the agent fail because its answer would hold a name that is not UTF-8? Then ask again with by_script. */
bool envd_needs_script(const struct status *st);

typedef void envd_done_fn(struct envd_result *r, void *user);

void envd_call_cancel(struct envd_call *c);	/* NULL is fine */

/* GET /health: OK with running true or false; other failures are not OK. */
struct envd_call *envd_health(const struct envd_target *t, envd_done_fn *done, void *user);
struct envd_call *envd_process_list(const struct envd_target *t, envd_done_fn *done, void *user);
/* Sent once, never repeated: on ENVD_LOST the bytes may or may not have arrived. n <= 1 MiB. */
struct envd_call *envd_send_input(const struct envd_target *t, uint32_t pid, bool pty, const void *p,
				  size_t n, envd_done_fn *done, void *user);
/* UNSUPPORTED before 0.5.2. */
struct envd_call *envd_close_stdin(const struct envd_target *t, uint32_t pid, envd_done_fn *done,
				   void *user);
/* signo 9 or 15. A process that is not there: status PROCESS_NOT_FOUND. */
struct envd_call *envd_send_signal(const struct envd_target *t, uint32_t pid, int signo,
				   envd_done_fn *done, void *user);
struct envd_call *envd_resize(const struct envd_target *t, uint32_t pid, uint32_t cols, uint32_t rows,
			      envd_done_fn *done, void *user);
struct envd_call *envd_stat(const struct envd_target *t, const char *path, envd_done_fn *done,
			    void *user);
/* An existing directory: not OK with code ALREADY_EXISTS and no reason. */
struct envd_call *envd_make_dir(const struct envd_target *t, const char *path, envd_done_fn *done,
				void *user);
struct envd_call *envd_move(const struct envd_target *t, const char *from, const char *to,
			    envd_done_fn *done, void *user);
struct envd_call *envd_remove(const struct envd_target *t, const char *path, envd_done_fn *done,
			      void *user);

/* Makes a symbolic link to a directory whose path is not UTF-8, for calls of the agent; it exists for half a minute. The entry's
 * path is the link, its name the directory's absolute path. */
struct envd_call *envd_link(const struct envd_target *t, const char *path, envd_done_fn *done, void *user);
/* Can the path be sent to the agent as it is? */
bool envd_can_name(const char *path);

/* --- process streams --- */

struct envd_stream;
typedef void envd_stream_ready_fn(struct envd_stream *s, void *user);

struct envd_start {
	const char *cmd;
	const char *const *args;
	size_t n_args;
	const struct cloud_kv *envs;
	size_t n_envs;
	const char *cwd;		/* NULL = the user's home */
	const char *tag;		/* NULL = none */
	bool stdin_open;		/* false: /dev/null */
	bool pty;
	uint32_t cols, rows;		/* with pty */
	uint32_t timeout_ms;		/* of the process, enforced by the agent; 0 = none */
};

/* NULL only without memory. A start is sent again only when proven unprocessed. */
struct envd_stream *envd_start(const struct envd_target *t, const struct envd_start *what,
			       envd_stream_ready_fn *on_ready, void *user);
struct envd_stream *envd_attach(const struct envd_target *t, uint32_t pid,
				envd_stream_ready_fn *on_ready, void *user);

enum envd_event_type {
	ENVD_EVENT_NONE = 0,	/* nothing now; on_ready will be called */
	ENVD_EVENT_START,
	ENVD_EVENT_DATA,
	ENVD_EVENT_KEEPALIVE,
	ENVD_EVENT_END,
	ENVD_EVENT_CLOSED,	/* exactly once, last; without an END before it the exit is not known */
};

enum envd_data_stream {
	ENVD_STDOUT = 1,
	ENVD_STDERR = 2,
	ENVD_PTY = 3,
};

struct envd_event {
	enum envd_event_type type;
	uint32_t pid;			/* START */
	enum envd_data_stream stream;	/* DATA */
	const uint8_t *data;
	size_t n;
	int32_t exit_code;		/* END: 0..255, -1 by a signal */
	bool exited;
	const char *status;		/* END: "exit status 3", "signal: killed"; never NULL */
	const char *error;		/* END: NULL if none */
	enum envd_class cls;		/* CLOSED */
	struct status failure;		/* CLOSED: OK when the stream ended by its own record */
};

/* The next event; what *ret points to is valid until the next call on this stream. The bytes'
 * credit goes back to the peer with the call after it. */
enum envd_event_type envd_stream_next(struct envd_stream *s, struct envd_event *ret);
/* After CLOSED by a record of the agent with an error: its message as the agent wrote it, and its code; else NULL. */
const char *envd_stream_said(const struct envd_stream *s, enum ab_code *ret_code);
/* May bytes of the start have reached the sandbox? */
bool envd_stream_was_sent(const struct envd_stream *s);
/* Ends our side at once; the process goes on. Behind END the stream is read to its end. NULL is fine; returns NULL. */
struct envd_stream *envd_stream_free(struct envd_stream *s);

/* --- watching a directory --- */

struct envd_watch;
typedef void envd_watch_ready_fn(struct envd_watch *w, void *user);

struct envd_watch_options {
	const char *path;
	bool recursive;			/* UNSUPPORTED before 0.1.4 */
	bool entries;			/* UNSUPPORTED before 0.6.3 */
	bool network;			/* also on network mounts; UNSUPPORTED before 0.6.4 */
};

enum envd_watch_event_type {
	ENVD_WATCH_NONE = 0,	/* nothing now; on_ready will be called */
	ENVD_WATCH_START,	/* every change after this is reported */
	ENVD_WATCH_CHANGE,
	ENVD_WATCH_KEEPALIVE,
	ENVD_WATCH_CLOSED,	/* exactly once, last */
};

enum envd_change {		/* the cloud's numbers */
	ENVD_CHANGE_CREATE = 1,
	ENVD_CHANGE_WRITE = 2,
	ENVD_CHANGE_REMOVE = 3,
	ENVD_CHANGE_RENAME = 4,
	ENVD_CHANGE_CHMOD = 5,
};

struct envd_watch_event {
	enum envd_watch_event_type type;
	enum envd_change change;
	const char *name;		/* CHANGE: below the directory */
	const struct envd_entry *entry;	/* CHANGE: NULL if none */
	enum envd_class cls;		/* CLOSED */
	struct status failure;
};

/* NULL only without memory. */
struct envd_watch *envd_watch(const struct envd_target *t, const struct envd_watch_options *o,
			      envd_watch_ready_fn *on_ready, void *user);
/* The next event; what *ret points to is valid until the next call. What is not taken stays with the
 * agent, whose own queue may overflow: then it closes the stream. */
enum envd_watch_event_type envd_watch_next(struct envd_watch *w, struct envd_watch_event *ret);
struct envd_watch *envd_watch_free(struct envd_watch *w);	/* NULL is fine; returns NULL */

/* --- files --- */

enum envd_xfer {
	ENVD_XFER_OPENING = 0,	/* no answer yet */
	ENVD_XFER_OPEN,		/* read: bytes flow; write: wants bytes */
	ENVD_XFER_DONE,		/* read: every byte was consumed; write: the cloud has the file */
	ENVD_XFER_FAILED,	/* see the status */
};

struct envd_read;
typedef void envd_read_ready_fn(struct envd_read *r, void *user);

struct envd_read_options {
	const char *path;
	uint64_t offset;		/* at the end = an empty read, beyond it = OUT_OF_RANGE */
	uint64_t length;		/* UINT64_MAX = to the end */
	bool streamed;			/* the file has no reliable size: the agent reads it from its beginning to its end, compressed,
					 * the only form in which it does that */
};

/* Must the file be read with `streamed`? By its Stat: files of /proc and /sys, devices, pipes; and empty ones. */
bool envd_is_streamed(const struct envd_entry *e);
struct envd_read *envd_read(const struct envd_target *t, const struct envd_read_options *o, envd_read_ready_fn *on_ready,
			    void *user);
enum envd_xfer envd_read_state(const struct envd_read *r);
/* Bytes this read will give, once OPEN; -1 = not announced. */
int64_t envd_read_size(const struct envd_read *r);
int64_t envd_read_file_size(const struct envd_read *r);		/* of the whole file; -1 = unknown */
size_t envd_read_peek(struct envd_read *r, const uint8_t **ret);
void envd_read_consume(struct envd_read *r, size_t n);
/* FAILED before a byte came: with `streamed` it may succeed. */
bool envd_read_wants_stream(const struct envd_read *r);
/* FAILED: why, else NULL. A body shorter than announced is DATA_LOSS TRUNCATED. */
const struct status *envd_read_failure(const struct envd_read *r, enum envd_class *ret_cls);
struct envd_read *envd_read_free(struct envd_read *r);		/* cancels; NULL is fine; returns NULL */

struct envd_write;
typedef void envd_write_ready_fn(struct envd_write *w, void *user);

struct envd_write_options {
	const char *path;
	int64_t size;			/* -1 = not known: sent without a length */
	const struct cloud_kv *metadata;	/* X-Metadata-*; UNSUPPORTED before 0.6.2 */
	size_t n_metadata;
};

/* Not atomic: a write that fails or is freed early may leave a partial file. Never repeated. */
struct envd_write *envd_write(const struct envd_target *t, const struct envd_write_options *o,
			      envd_write_ready_fn *on_ready, void *user);
enum envd_xfer envd_write_state(const struct envd_write *w);
size_t envd_write_room(const struct envd_write *w);		/* 0 unless OPEN */
/* 0, -EPIPE (see the state), -ENOMEM, -EMSGSIZE beyond the announced size. */
must_check int envd_write_put(struct envd_write *w, const void *p, size_t n);
/* No more bytes. -EMSGSIZE: fewer than announced; the transfer failed. */
must_check int envd_write_finish(struct envd_write *w);
const struct status *envd_write_failure(const struct envd_write *w, enum envd_class *ret_cls);
const char *envd_write_path(const struct envd_write *w);	/* DONE: absolute path, "" if not said */
struct envd_write *envd_write_free(struct envd_write *w);

/* --- listing a directory --- */

struct envd_list;
typedef void envd_list_ready_fn(struct envd_list *l, void *user);

/* The entries below a directory, down to `depth`. NULL only without memory. */
struct envd_list *envd_list(const struct envd_target *t, const char *path, uint32_t depth, envd_list_ready_fn *on_ready,
			    void *user);
/* The next one, which is the caller's to fini. False: none now; the state says whether more may come. What is not taken stays in
 * the HTTP stream's window. */
bool envd_list_next(struct envd_list *l, struct envd_entry *ret);
enum envd_xfer envd_list_state(const struct envd_list *l);	/* DONE: every entry was taken */
const struct status *envd_list_failure(const struct envd_list *l, enum envd_class *ret_cls);
struct envd_list *envd_list_free(struct envd_list *l);		/* cancels; NULL is fine; returns NULL */

/* --- links --- */

struct envd_link {
	const char *path, *user;	/* as they will be asked for; user NULL = the default one */
	bool write;
	int64_t expires_s;		/* wall clock; 0 = never by itself */
	bool plain;			/* http://, where ports are served so */
};

/* A link to a file that needs no other credential, at the account's fixed address or the host of the agent's port. Heap; NULL
 * without memory. Without an access token it has no signature. */
char *envd_sign_link(const struct envd_target *t, const struct envd_link *l);

#endif
