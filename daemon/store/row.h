/* SPDX-License-Identifier: MIT */
/*
 * What is stored, as plain structs. Strings are borrowed: the store copies what it is given and
 * hands out rows that live only during the visit. NULL and "" are stored as "". Moments are wall
 * clock in ms since 1970 (they must mean something after a reboot); 0 = unknown.
 */
#ifndef AB_DAEMON_STORE_ROW_H
#define AB_DAEMON_STORE_ROW_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

#define ROW_HASH_BYTES 32u

/* Key: (account, id). */
struct row_sandbox {
	const char *account, *id;
	const char *name;		/* "" = none; the owner's live name is in row_name */
	uid_t uid;			/* owner */
	uint32_t generation;
	int state;			/* enum sandbox_state */
	bool ours;			/* carries this host's tag */
	bool adopted;			/* made elsewhere: never changed in the background */
	bool claimed;			/* its uid has seen it; until then release rules may reap it */
	int64_t unclaimed_at_ms;	/* when the wait for a claim began; 0 = claimed */
	uint64_t seq;			/* of its intent; 0 = none */
	const char *req_tag;		/* hash in agentbox.req; "" = none */

	const char *template_id, *alias;
	const char *metadata;		/* packed pairs (sandbox/rules/pairs.h), without our own keys */
	size_t metadata_len;
	int64_t started_at_ms, end_at_ms;
	uint32_t cpu_count, memory_mb, disk_size_mb;
	const char *envd_version, *domain;
	const char *access_token, *traffic_token;	/* secrets: only in this 0600 file */
	bool token_known;		/* else the cloud has to be asked (a list has no tokens) */
	int allow_internet_access;	/* -1 = unset, 0, 1 */
	int on_timeout;			/* 0 = unknown, 1 kill, 2 pause */
	int keep_memory, auto_resume;	/* -1 = unset, 0, 1 */
	const char *policy;		/* sandbox/rules/policy.h's text form */
	const char *warning;

	int64_t as_of_ms;		/* last word of the cloud */
	int gone_reason;		/* enum ab_reason, with state GONE */
	int64_t gone_at_ms;
	const char *gone_evidence;	/* who said so */

	int64_t released_at_ms;		/* when its last lease ended; 0 = none ended, or acted upon */
	int64_t used_at_ms;		/* last use, within a minute */
	uint32_t timeout_s;		/* what its user last asked for; 0 = unknown */
	const char *network;		/* cloud/model.h's text form; "" = not known, or none */
	const char *recipe;		/* sandbox/recipe.h; secrets */
	size_t recipe_len;		/* 0 = none is kept */
	const char *replaces;		/* id of the one that vanished; "" = none */
};

enum row_lease_kind {
	ROW_LEASE_STREAM = 1,	/* as long as a stream is open */
	ROW_LEASE_PROCESS = 2,	/* as long as a process lives */
	ROW_LEASE_TTL = 3,	/* until expires_at_ms */
};

/* A claim on a sandbox. Key: id. */
struct row_lease {
	const char *id;
	const char *account, *sandbox;
	uid_t uid;
	enum row_lease_kind kind;
	int64_t pid;			/* 0 = unknown */
	const char *label;
	int64_t made_at_ms, expires_at_ms;	/* 0 = does not expire */
	/* How the process is known again: see sandbox/holder.h. */
	int identity;
	const char *boot_id;
	uint64_t identity_value;	/* inode of its pidfd, or its start time */
};

/* A change as watchers are told of it. Key: number, rising over all uids; seq rises within a uid. */
struct row_event {
	uint64_t number, seq;
	uid_t uid;
	int64_t at_ms;
	int type;			/* agentbox.v1.SandboxEvent.Type */
	const char *account, *sandbox;
	const char *name;
	int reason;			/* enum ab_reason */
	int state;			/* enum sandbox_state */
	int64_t started_at_ms, end_at_ms;
	uint32_t leases, generation;
	const char *evidence;		/* "key=value" lines */
};

enum row_intent_state {
	ROW_INTENT_OPEN = 1,		/* the POST may be on the wire */
	ROW_INTENT_SETTLING = 2,	/* its outcome is being looked for */
};

/* A decision written before it is sent, deleted when the answer is known. Key: seq. */
struct row_intent {
	uint64_t seq;
	int kind;			/* ROW_INTENT_CREATE */
	enum row_intent_state state;
	const char *account;
	uid_t uid;
	const char *request_id;		/* "" = none */
	const char *req_tag;
	const char *name;		/* "" = none */
	uint32_t generation;
	const char *template_id;
	const char *policy;
	bool claimed;			/* a caller waits, or did until the daemon stopped */
	int64_t made_at_ms;
	const char *recipe;		/* as in row_sandbox */
	size_t recipe_len;
	const char *replaces;
};

#define ROW_INTENT_CREATE 1

enum row_request_state {
	ROW_REQUEST_OPEN = 1,
	ROW_REQUEST_DONE = 2,		/* object names the sandbox */
	ROW_REQUEST_UNKNOWN = 3,	/* settlement ended without an answer */
};

/* Key: (uid, method, request_id). */
struct row_request {
	uid_t uid;
	const char *method;		/* "Create", "Fork", "Snapshot" */
	const char *request_id;
	uint8_t params_hash[ROW_HASH_BYTES];
	enum row_request_state state;
	const char *account;
	const char *object;		/* when DONE: id of what was made; of a fork one word a child */
	const char *req_tag;
	int64_t used_at_ms;
};

/* Key: (uid, name). id "" = free again; kept for its generation while the last holder is remembered. */
struct row_name {
	uid_t uid;
	const char *name;
	const char *account, *id;
	uint32_t generation;
};

enum row_command_state {
	ROW_COMMAND_INTENT = 1,		/* the start may be on the wire */
	ROW_COMMAND_RUNNING = 2,	/* the pid is known */
	ROW_COMMAND_ENDED = 3,		/* the result is known */
};

enum row_command_flag {
	ROW_COMMAND_DETACH = 1,
	ROW_COMMAND_STDIN = 2,
	ROW_COMMAND_PTY = 4,
	ROW_COMMAND_GROUP = 8,
	ROW_COMMAND_SHELL = 16,		/* `shell` is what runs, not `args` */
	ROW_COMMAND_TIMED_OUT = 32,
	ROW_COMMAND_KILLED = 64,
	ROW_COMMAND_INPUT_ENDED = 128,
	ROW_COMMAND_TRUNCATED = 256,	/* output was lost */
	ROW_COMMAND_PIPES_HELD = 512,	/* its output was still held when it ended */
	ROW_COMMAND_FLAGS = 1023,
};

/* Key: id. Its output, and the counts of its input, are the spool file of that name; its environment is not kept (secrets). */
struct row_command {
	const char *id;
	uid_t uid;
	const char *account, *sandbox;
	uint32_t generation;
	enum row_command_state state;
	uint32_t flags;			/* enum row_command_flag */
	uint32_t pid;			/* in the sandbox; 0 = not known */
	const char *shell;
	const char *args;		/* each with its NUL */
	size_t args_len;
	const char *user, *cwd;
	uint32_t cols, rows;
	uint64_t timeout_ms, kill_grace_ms, spool_limit;
	const char *boot;		/* boot id of the machine at the last change */
	int64_t made_at_ms, started_at_ms;
	int64_t deadline_at_ms;		/* of command_timeout; 0 = none */
	/* With ENDED: struct command_result. */
	int outcome, exit_code, reason;
	const char *signal, *message;
	const char *survivors;		/* uint32_t each, of this machine */
	size_t survivors_len;
	int64_t exited_at_ms;
};

/* Key: (uid, method, request_id). Outlives the command's own row. */
struct row_command_request {
	uid_t uid;
	const char *method;		/* "Start", "Run" */
	const char *request_id;
	uint8_t params_hash[ROW_HASH_BYTES];
	const char *command;		/* id */
	int64_t used_at_ms;
};

enum row_copy_kind {
	ROW_COPY_FORK = 1,
	ROW_COPY_SNAPSHOT = 2,
};

/* A fork or a snapshot that may have been sent, deleted when its answer is known. Key: seq. */
struct row_copy {
	uint64_t seq;
	enum row_copy_kind kind;
	const char *account;
	uid_t uid;
	const char *request_id;		/* "" = none */
	const char *source;		/* id of the sandbox */
	const char *name;		/* of the snapshot; "" = none */
	uint32_t count;			/* children asked for; 1 of a snapshot */
	const char *policy;		/* of the children */
	const char *known;		/* ids that were there before, one a line: they are not the answer */
	int64_t made_at_ms;		/* by the cloud's clock */
};

/* Key: (account, id). */
struct row_snapshot {
	const char *account, *id;
	uid_t uid;			/* who made it, with ours */
	bool ours;			/* made through this daemon: only its uid and admins see it */
	const char *names;		/* one a line */
	const char *source;		/* id of the sandbox; "" = the cloud did not say */
	int64_t created_at_ms;		/* 0 = unknown */
	int64_t as_of_ms;
};

#endif
