/* SPDX-License-Identifier: MIT */
/*
 * libagentbox: sandboxes, commands and files through the local daemon, agentboxd.
 *
 * This header is the manual. A first program:
 *
 *	struct ab_client *c;
 *	struct ab_sandbox *sb = NULL;
 *	struct ab_command_result *res = NULL;
 *	const char *const argv[] = { "uname", "-a", NULL };
 *
 *	if (ab_client_new(NULL, &c) < 0)
 *		return 1;
 *	if (ab_sandbox_create(c, NULL, NULL, &sb) == 0) {
 *		struct ab_command_options o = { .sandbox = sb->id, .argv = argv };
 *
 *		if (ab_command_run(c, &o, NULL, NULL, &res) == 0)
 *			printf("exit code %d\n", res->exit_code);
 *	}
 *	if (ab_client_error(c))
 *		fprintf(stderr, "%s\n", ab_client_error(c)->message);
 *	ab_free(res);
 *	ab_free(sb);
 *	ab_client_free(c);
 *
 * CALLS. Everything the daemon can do exists twice. ab_X_start() begins a call and returns at once;
 * the call then goes on inside ab_process(). ab_X() is the same call, waited for. Both take the same
 * parameters: the client, what to do, how (struct ab_call_options, NULL for the defaults), and where
 * to put the outcome.
 *
 * RESULTS of an ab_X() are 0 (AB_OK) or a positive enum ab_status; more about a failure is in
 * ab_client_error(). ab_X_start() returns 0, -EINVAL (a parameter that no daemon could
 * understand, such as an empty sandbox) or -ENOMEM; whatever goes wrong later is the outcome of the
 * call, also that no daemon answers. Outputs are written on success only. Where an answer is "it was
 * not there" (kill, remove, exists) that is a result, not a failure.
 *
 * OWNERSHIP. Objects handed out through a `ret` parameter or by ab_call_take() are the caller's:
 * end them with ab_free(), whatever their type. All they point to belongs to them. What is
 * passed in is copied before the function returns. Strings handed out are never NULL ("" instead)
 * unless said; they are UTF-8. Objects do not know their client: they may outlive it, be passed to
 * other threads, and be used with another client.
 *
 * UNITS. Spans are milliseconds (…_ms), moments are milliseconds since 1970-01-01T00:00Z (…_at_ms).
 * 0 is "unset" and takes the daemon's default; where a span of zero means something, AB_ZERO_MS
 * says it. A zeroed options struct is all defaults; members may be added at the end of structs, and
 * then the soversion changes.
 *
 * TIME LIMITS. Three clocks, never derived from each other: the deadline of a call (60 s unless
 * said; none for ab_command_wait and for streams, but ab_file_list has it), the command_timeout of a
 * command, the sandbox_timeout of a sandbox. When a deadline passes, the call ends, nothing else.
 *
 * THREADS. The library makes none and has no lock. One client belongs to one thread at a time; any
 * number of clients may be used by any number of threads. All calls of a client share a connection;
 * one that is not read holds up no other.
 *
 * EVENT LOOPS. Wait until ab_fd() has one of ab_events(), or ab_timeout() has passed, then call
 * ab_process(). Ask for the timeout again after every call of a function of this library. See
 * ab_process() for what callbacks may do. Calls that wait may be mixed with calls in flight; the
 * callbacks of those in flight then run inside the call that waits.
 *
 * FORK. In a child the library notices by itself that the process is another one: the connection of
 * the parent is dropped without a byte, calls in flight end as AB_CANCELLED without a callback
 * (the parent's go on), and the next call makes a connection of its own. ab_fd() is another one
 * then. Nothing has to be registered; execve() closes all.
 *
 * CONNECTION. It is made when it is first needed, and again whenever it was lost. A daemon that falls
 * silent while calls are open is asked by a PING; after 3 s the user is told (`notice`), after 10 s
 * calls with a deadline end as AB_UNAVAILABLE, after 60 s the connection counts as lost. A call whose
 * connection broke before the daemon can have seen it is sent again; so is one that may be repeated
 * (what only reads and is no stream, what doing twice does not change, and what carries the request id
 * of a create). Others end as AB_UNAVAILABLE, and what became of them is unknown.
 *
 * REQUEST IDS make a create happen at most once: a repeat with the same id joins the first, also
 * from another process, also after a crash of the daemon. The library makes one if none is given;
 * ab_call_request_id() tells it. Of commands it makes none: there one is sent only if it is given.
 *
 * The library never writes to a log or a terminal, never changes signals, never sends SIGPIPE, and
 * reads these environment variables: AGENTBOXD_SOCKET, XDG_RUNTIME_DIR.
 */
#ifndef AGENTBOX_H
#define AGENTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AB_API	   __attribute__((visibility("default")))
#define AB_ZERO_MS UINT64_MAX	/* a span of zero, where 0 would be "unset" */
#define AB_NEVER   UINT64_MAX	/* a deadline that never comes */

struct ab_client;	/* one user of the daemon, with its connection */
struct ab_call;		/* one call, from its start to ab_call_free() */

/* gRPC's numbers. */
enum ab_status {
	AB_OK = 0,
	AB_CANCELLED = 1,
	AB_UNKNOWN = 2,
	AB_INVALID_ARGUMENT = 3,
	AB_DEADLINE_EXCEEDED = 4,
	AB_NOT_FOUND = 5,
	AB_ALREADY_EXISTS = 6,
	AB_PERMISSION_DENIED = 7,
	AB_RESOURCE_EXHAUSTED = 8,
	AB_FAILED_PRECONDITION = 9,
	AB_ABORTED = 10,
	AB_OUT_OF_RANGE = 11,
	AB_UNIMPLEMENTED = 12,
	AB_INTERNAL = 13,
	AB_UNAVAILABLE = 14,
	AB_DATA_LOSS = 15,
	AB_UNAUTHENTICATED = 16,
};

/* A yes/no whose absence means the default. */
enum ab_choice { AB_DEFAULT = 0, AB_YES = 1, AB_NO = 2 };

struct ab_pair {
	const char *key, *value;
};

/* Why a call failed. */
struct ab_error {
	enum ab_status status;
	const char *status_name;	/* "NOT_FOUND" */
	const char *reason;		/* from the daemon's closed list, "SANDBOX_GONE"; "" if none */
	const char *message;		/* a sentence for a person */
	uint64_t retry_after_ms;	/* when asking again may help; 0 = no hint */
	const struct ab_pair *evidence;	/* who said so, when, which field, … */
	size_t n_evidence;
	bool local;			/* said by this library, not by the daemon */
};

/* ------------------------------------------------------------------ the client */

struct ab_client_options {
	/* Path of the daemon's socket. NULL: $AGENTBOXD_SOCKET; if that is not set, the first that answers of
	 * $XDG_RUNTIME_DIR/agentboxd/agentboxd.sock and /run/agentboxd/agentboxd.sock. A path that is named here or there is
	 * the only one that is tried. */
	const char *socket;
	/* How long to go on trying while the socket is missing or refuses, or the daemon ends the connection at once, which is
	 * normal while it starts. 0 = 3 s; AB_ZERO_MS = one attempt. Other failures count at once. A daemon that accepts and
	 * says nothing is waited for as long, but at least 3 s. */
	uint64_t wait_ms;
	/* Deadline of calls that give none of their own. 0 = 60 s, AB_NEVER = none. Not for calls that
	 * have none by themselves: see TIME LIMITS. */
	uint64_t deadline_ms;
	/* Added to the "user agent" that the daemon's log shows, "tool/1.0". May be NULL. */
	const char *user_agent;
	/* Called with a sentence for a person, while something is waited for: that the daemon has been silent for 3 s, and what
	 * to do. It may not use the client. May be NULL. */
	void (*notice)(const char *text, void *user);
	void *notice_user;
};

/* "0.1.0" */
AB_API const char *ab_version(void);

/* A client without a connection yet. o may be NULL. 0; -EINVAL: the socket's path is empty or longer
 * than a Unix socket's may be; -EMFILE, -ENFILE; -ENOMEM. */
AB_API int ab_client_new(const struct ab_client_options *o, struct ab_client **ret);
/* Ends its calls (without callbacks, their objects too), closes the connection. NULL is fine.
 * Never from inside a callback. */
AB_API void ab_client_free(struct ab_client *c);

/* Makes the connection now, to learn early whether there is a daemon. Waits as `wait_ms` says. */
AB_API int ab_connect(struct ab_client *c);
/* The socket in use, or the last one tried. */
AB_API const char *ab_socket(const struct ab_client *c);
/* Why the last function on this client that waited failed; NULL if it went well. Valid until the
 * next one. */
AB_API const struct ab_error *ab_client_error(const struct ab_client *c);

/* For event loops. The descriptor stays the same for the life of the client in one process; do
 * nothing with it but wait. */
AB_API int ab_fd(struct ab_client *c);
/* What to wait for: POLLIN, POLLOUT of poll(2). */
AB_API int ab_events(struct ab_client *c);
/* Milliseconds until ab_process() is due even if the descriptor stays quiet. 0 = now, -1 = never. */
AB_API int ab_timeout(struct ab_client *c);
/* Sends, receives, expires; then runs the callbacks. Never waits. A callback may start, read, write,
 * cancel and free calls, its own included; it may not wait, call ab_process() or free the client.
 * 0; -EDEADLK from inside a callback; in a child that can make no descriptor of its own -EMFILE,
 * -ENFILE or -ENOMEM (call it again later). */
AB_API int ab_process(struct ab_client *c);

/* Ends any object that this library handed out as a result. NULL is fine. */
AB_API void ab_free(const void *object);

/* "90s", "1h30m", "250ms", "2d" → milliseconds. 0; -EINVAL, also for a number without a unit; -ERANGE: more than
 * ten years. */
AB_API int ab_parse_duration(const char *text, uint64_t *ret_ms);

/* ------------------------------------------------------------------ calls */

struct ab_call_options {
	uint64_t deadline_ms;	/* from now; 0 = the default, AB_NEVER = none */
	/* Called from ab_process() when the call is ready: it is done, or a stream has something to take,
	 * or room for more. Take all there is: it is not called again for what is left. May be NULL. */
	void (*ready)(struct ab_call *call, void *user);
	void *user;
};

/* Cancels it if it is open (the daemon is told), and ends the object. NULL is fine. */
AB_API void ab_call_free(struct ab_call *call);
/* Cancels it: it ends as AB_CANCELLED. Does nothing to one that is done. */
AB_API void ab_call_cancel(struct ab_call *call);
/* The outcome is known, and, of a stream, all was taken. */
AB_API bool ab_call_is_done(const struct ab_call *call);
/* AB_OK while it is open. */
AB_API enum ab_status ab_call_status(const struct ab_call *call);
/* NULL while it is open and if it went well. Lives as long as the call. */
AB_API const struct ab_error *ab_call_error(const struct ab_call *call);
/* Waits until it is done; of a stream, drops what was not taken. Returns its status;
 * AB_FAILED_PRECONDITION from inside a callback. */
AB_API int ab_call_wait(struct ab_call *call);
/* Waits until it is ready, as for the callback; timeout_ms < 0 = for ever. 1; 0: not in that time;
 * -EDEADLK from inside a callback. */
AB_API int ab_call_poll(struct ab_call *call, int timeout_ms);
/* The result of a call that is done and went well, of the type that the waiting form hands out;
 * NULL if there is none, it was taken, or the call has no such result. */
AB_API void *ab_call_take(struct ab_call *call);
/* The result of calls whose waiting form hands out a bool; else false. */
AB_API bool ab_call_answer(const struct ab_call *call);
/* The request id that was sent, "" if this kind of call has none. */
AB_API const char *ab_call_request_id(const struct ab_call *call);

/* ------------------------------------------------------------------ sandboxes */

/* Wherever a sandbox is named, `sandbox` is its id or its local name. */

enum ab_sandbox_state {
	AB_SANDBOX_UNKNOWN = 0,
	AB_SANDBOX_CREATING = 1,
	AB_SANDBOX_RUNNING = 2,
	AB_SANDBOX_PAUSING = 3,
	AB_SANDBOX_PAUSED = 4,
	AB_SANDBOX_RESUMING = 5,
	AB_SANDBOX_SNAPSHOTTING = 6,
	AB_SANDBOX_KILLING = 7,
	AB_SANDBOX_GONE = 8,
};

/* Where an answer comes from. */
enum ab_source {
	AB_SOURCE_UNKNOWN = 0,
	AB_SOURCE_CLOUD = 1,
	AB_SOURCE_CACHE = 2,
	AB_SOURCE_CACHE_UNREACHABLE = 3,	/* the cloud was asked and did not answer */
};

/* What the daemon does to a sandbox by itself. LEAVE only of on_release, WARN only of on_cap. */
enum ab_action {
	AB_ACTION_DEFAULT = 0,
	AB_ACTION_LEAVE = 1,
	AB_ACTION_PAUSE = 2,
	AB_ACTION_KILL = 3,
	AB_ACTION_WARN = 4,
};

/* In requests, what is 0 is unset: the configured default, or as it is. In a sandbox: what is in
 * force; spans of 0 = never. */
struct ab_policy {
	enum ab_choice keep_alive;	/* extend while leased or while a command runs */
	enum ab_action on_release;	/* when the last lease ended and … */
	uint64_t release_grace_ms;	/* … this has passed; AB_ZERO_MS in requests = at once */
	uint64_t idle_timeout_ms;	/* no call, no command, no lease for so long: … */
	enum ab_action on_idle;
	uint64_t max_age_ms;		/* leased or not */
	enum ab_action on_max_age;
	enum ab_action on_cap;		/* the cloud extends it no further */
	enum ab_choice recreate;	/* the sandbox behind a name vanished: make it again; set at its creation */
	enum ab_choice resume_on_use;	/* a command or file call resumes a paused one */
};

/* One host's rule: headers that its requests get on their way out. */
struct ab_network_rule {
	const char *host;
	const struct ab_pair *headers;	/* values may hold ${agentbox.identity.tokens.NAME} */
	size_t n_headers;
};

struct ab_network {
	const char *const *allow_out;	/* addresses, ranges, host names; n_allow_out of them */
	size_t n_allow_out;
	const char *const *deny_out;	/* addresses, ranges; "0.0.0.0/0" is all */
	size_t n_deny_out;
	const struct ab_network_rule *rules;
	size_t n_rules;
	const char *proxy_address;	/* SOCKS5, "host:port"; "" or NULL = none */
	const char *proxy_username;
	const char *proxy_password;	/* never handed out */
	/* only when a sandbox is created: */
	enum ab_choice allow_public_traffic;
	const char *mask_request_host;	/* the Host that services inside see */
};

/* What the cloud does when a sandbox's timeout ends. */
enum ab_on_timeout { AB_ON_TIMEOUT_DEFAULT = 0, AB_ON_TIMEOUT_KILL = 1, AB_ON_TIMEOUT_PAUSE = 2 };

struct ab_iam_token {
	const char *name, *audience;
};

struct ab_sandbox {
	const char *id;
	const char *name;		/* local name, "" if none */
	const char *template_id;
	const char *alias;
	enum ab_sandbox_state state;
	const struct ab_pair *metadata;
	size_t n_metadata;
	int64_t started_at_ms;
	int64_t end_at_ms;
	uint32_t cpu_count;
	uint32_t memory_mb;
	uint32_t disk_size_mb;
	const char *envd_version;
	const char *domain;
	enum ab_choice allow_internet_access;
	uint32_t owner_uid;
	uint32_t leases;
	uint32_t generation;		/* raised when the sandbox behind a name was made anew */
	enum ab_source source;
	int64_t as_of_ms;
	const char *warning;
	const char *account;
	bool adopted;			/* made elsewhere */
	bool warm;			/* it was made before it was asked for: the cloud's own lists do not know its metadata */
	bool end_pending;		/* end_at_ms was asked for, and the cloud has not said it yet */
	const char *gone_reason;	/* with AB_SANDBOX_GONE: "SANDBOX_EXPIRED", … */
	struct ab_policy policy;
	enum ab_on_timeout on_timeout;
	enum ab_choice keep_memory, auto_resume;
	const struct ab_network *network;	/* NULL: none, or not known (lists do not say) */
};

struct ab_sandbox_list {
	const struct ab_sandbox *const *items;	/* belong to the list */
	size_t n;
	const char *next_page_token;	/* "": the last page. A page may be empty and not the last. */
	enum ab_source source;
	int64_t as_of_ms;
};

/* Does a create take a sandbox that an entry [warm NAME] has made before? Numbers of agentbox.v1.WarmMode. */
enum ab_warm_mode {
	AB_WARM_DEFAULT = 0,		/* as configured for the user and the template; shipped: never */
	AB_WARM_NEVER = 1,
	AB_WARM_PREFER = 2,		/* if one is ready; else it is made */
	AB_WARM_REQUIRE = 3,		/* waits for one; FIELD_INVALID if no entry fits */
};

struct ab_sandbox_create_options {
	const char *request_id;
	const char *template_name;	/* name, id, or id of a snapshot; NULL = "base" */
	uint64_t sandbox_timeout_ms;	/* 0 = 300 s */
	const struct ab_pair *metadata;
	size_t n_metadata;
	const struct ab_pair *envs;
	size_t n_envs;
	enum ab_choice secure;
	enum ab_choice allow_internet_access;
	const char *name;		/* get or create under this name */
	bool must_create;		/* with name: fail where it exists */
	enum ab_warm_mode warm;		/* may it be one that was made before? */
	bool wait_ready;		/* answer only when the agent inside answers */
	const char *account;		/* admins */
	const struct ab_policy *policy;	/* NULL = the configured one */
	const struct ab_network *network;	/* NULL = none */
	const struct ab_iam_token *iam_tokens;
	size_t n_iam_tokens;
	enum ab_on_timeout on_timeout;
	enum ab_choice keep_memory;	/* with AB_ON_TIMEOUT_PAUSE */
	enum ab_choice auto_resume;	/* … traffic from outside resumes it */
	bool process_lease;		/* this process holds a lease from the first moment, until it dies */
};

struct ab_sandbox_connect_options {
	uint64_t sandbox_timeout_ms;	/* at least so long from now; 0 = 300 s; never shortens */
	bool adopt;			/* also one that belongs to another host */
	bool wait_ready;
	bool process_lease;		/* as in create */
};

struct ab_sandbox_list_options {
	const struct ab_pair *metadata;	/* all of these */
	size_t n_metadata;
	uint32_t states;		/* bits 1u << enum ab_sandbox_state; 0 = all but gone */
	uint32_t page_size;		/* 0 = 100, at most 1000 */
	const char *page_token;		/* next_page_token of the page before */
	bool cached;			/* from the daemon's store, without the cloud */
	bool all_owners;		/* admins */
	bool all_hosts;			/* also what this daemon did not make */
	const char *account;		/* admins */
	const char *template_name;
};

/* The public address of a port inside a sandbox. */
struct ab_host {
	const char *host;
	const char *url;
	const char *token_header;	/* send this header … */
	const char *traffic_access_token; /* … with this value; "" if none is needed */
};

AB_API int ab_sandbox_create_start(struct ab_client *c, const struct ab_sandbox_create_options *o,
				   const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_create(struct ab_client *c, const struct ab_sandbox_create_options *o,
			     const struct ab_call_options *how, struct ab_sandbox **ret);

/* Makes it usable: resumes a paused one, waits for a transition, adopts one made elsewhere. */
AB_API int ab_sandbox_connect_start(struct ab_client *c, const char *sandbox,
				    const struct ab_sandbox_connect_options *o,
				    const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_connect(struct ab_client *c, const char *sandbox,
			      const struct ab_sandbox_connect_options *o,
			      const struct ab_call_options *how, struct ab_sandbox **ret);

/* max_staleness_ms: how old the answer may be. 0 = as the daemon is set, AB_ZERO_MS = ask the cloud. */
AB_API int ab_sandbox_get_start(struct ab_client *c, const char *sandbox, uint64_t max_staleness_ms,
				const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_get(struct ab_client *c, const char *sandbox, uint64_t max_staleness_ms,
			  const struct ab_call_options *how, struct ab_sandbox **ret);

AB_API int ab_sandbox_list_start(struct ab_client *c, const struct ab_sandbox_list_options *o,
				 const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_list(struct ab_client *c, const struct ab_sandbox_list_options *o,
			   const struct ab_call_options *how, struct ab_sandbox_list **ret);

/* Asks the agent inside, not the record. */
AB_API int ab_sandbox_is_running_start(struct ab_client *c, const char *sandbox,
				       const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_is_running(struct ab_client *c, const char *sandbox,
				 const struct ab_call_options *how, bool *ret_running);

/* false: there was none. ret_found may be NULL. */
AB_API int ab_sandbox_kill_start(struct ab_client *c, const char *sandbox,
				 const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_kill(struct ab_client *c, const char *sandbox,
			   const struct ab_call_options *how, bool *ret_found);

/* false: it was paused already. keep_memory AB_NO: only the files are kept, commands are lost. */
AB_API int ab_sandbox_pause_start(struct ab_client *c, const char *sandbox, enum ab_choice keep_memory,
				  const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_pause(struct ab_client *c, const char *sandbox, enum ab_choice keep_memory,
			    const struct ab_call_options *how, bool *ret_paused);

/* Replaces what may go out as a whole; NULL = no rules at all. */
AB_API int ab_sandbox_update_network_start(struct ab_client *c, const char *sandbox,
					   const struct ab_network *network,
					   enum ab_choice allow_internet_access,
					   const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_update_network(struct ab_client *c, const char *sandbox,
				     const struct ab_network *network,
				     enum ab_choice allow_internet_access,
				     const struct ab_call_options *how);

struct ab_fork_options {
	const char *request_id;
	uint32_t count;			/* 0 = 1 */
	uint64_t sandbox_timeout_ms;	/* of the children; 0 = 300 s */
	const struct ab_policy *policy;	/* of the children; NULL = the configured one */
};

/* One child, or why there is none. */
struct ab_fork_result {
	const struct ab_sandbox *sandbox;	/* NULL: there is none */
	enum ab_status status;
	const char *reason, *message;		/* "" with a sandbox */
};

struct ab_fork_list {
	const struct ab_fork_result *items;
	size_t n;
};

/* Copies a running sandbox, with its memory, files and processes. It goes on as it was. AB_OK also where
 * some children failed: look at each. o may be NULL. */
AB_API int ab_sandbox_fork_start(struct ab_client *c, const char *sandbox, const struct ab_fork_options *o,
				 const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_fork(struct ab_client *c, const char *sandbox, const struct ab_fork_options *o,
			   const struct ab_call_options *how, struct ab_fork_list **ret);

struct ab_metric {
	int64_t at_ms;
	uint32_t cpu_count;
	double cpu_used_pct;		/* 100 = one core */
	int64_t mem_used, mem_total, mem_cache, disk_used, disk_total;	/* bytes */
};

struct ab_metric_list {
	const struct ab_metric *items;	/* oldest first; may be none */
	size_t n;
	enum ab_source source;
	int64_t as_of_ms;
};

/* Of this span; 0 = the sandbox's start, now. */
AB_API int ab_sandbox_get_metrics_start(struct ab_client *c, const char *sandbox, int64_t start_at_ms,
					int64_t end_at_ms, const struct ab_call_options *how,
					struct ab_call **ret);
AB_API int ab_sandbox_get_metrics(struct ab_client *c, const char *sandbox, int64_t start_at_ms,
				  int64_t end_at_ms, const struct ab_call_options *how,
				  struct ab_metric_list **ret);

/* From now; the only call that may shorten a sandbox's life. */
AB_API int ab_sandbox_set_timeout_start(struct ab_client *c, const char *sandbox,
					uint64_t sandbox_timeout_ms,
					const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_set_timeout(struct ab_client *c, const char *sandbox,
				  uint64_t sandbox_timeout_ms, const struct ab_call_options *how,
				  struct ab_sandbox **ret);

AB_API int ab_sandbox_get_host_start(struct ab_client *c, const char *sandbox, uint32_t port,
				     const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_sandbox_get_host(struct ab_client *c, const char *sandbox, uint32_t port,
			       const struct ab_call_options *how, struct ab_host **ret);

/* Changes what is set in `policy`; `reset` names fields ("idle_timeout") that go back to the configured
 * default, NULL-terminated, or NULL. */
AB_API int ab_sandbox_set_policy_start(struct ab_client *c, const char *sandbox, const struct ab_policy *policy,
				       const char *const *reset, const struct ab_call_options *how,
				       struct ab_call **ret);
AB_API int ab_sandbox_set_policy(struct ab_client *c, const char *sandbox, const struct ab_policy *policy,
				 const char *const *reset, const struct ab_call_options *how,
				 struct ab_sandbox **ret);

/* "on_release=kill,release_grace=2s": fields by their names in the API, yes or no, words in lower case,
 * spans with units. Adds to *policy. 0; -EINVAL: *ret_bad (may be NULL) is where the bad one begins. */
AB_API int ab_parse_policy(const char *text, struct ab_policy *policy, const char **ret_bad);

/* ------------------------------------------------------------------ leases */

/* "I use this sandbox": while one is held, the daemon extends it, and neither pauses nor kills it but for its
 * age or the cloud's cap. What happens after the last one is policy.on_release. */
struct ab_lease {
	const char *id;
	const char *sandbox;		/* id */
	uint32_t uid;
	int64_t pid;			/* 0 = not known */
	const char *label;
	int64_t expires_at_ms;		/* 0: held by a stream or a process */
	int64_t sandbox_end_at_ms;
	bool heartbeat;			/* nothing changed */
};

struct ab_lease_list {
	const struct ab_lease *const *items;
	size_t n;
	const char *next_page_token;
};

struct ab_lease_options {
	const char *label;		/* for listings; at most 128 bytes */
	const char *lease_id;		/* that one again, within restart_grace of its end or the daemon's restart */
	uint64_t ttl_ms;		/* of acquire; 0 = until this process dies */
};

AB_API int ab_lease_acquire_start(struct ab_client *c, const char *sandbox, const struct ab_lease_options *o,
				  const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_lease_acquire(struct ab_client *c, const char *sandbox, const struct ab_lease_options *o,
			    const struct ab_call_options *how, struct ab_lease **ret);
AB_API int ab_lease_renew_start(struct ab_client *c, const char *lease_id, uint64_t ttl_ms,
				const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_lease_renew(struct ab_client *c, const char *lease_id, uint64_t ttl_ms,
			  const struct ab_call_options *how, struct ab_lease **ret);
/* Of one that has ended already: fine. */
AB_API int ab_lease_release_start(struct ab_client *c, const char *lease_id, const struct ab_call_options *how,
				  struct ab_call **ret);
AB_API int ab_lease_release(struct ab_client *c, const char *lease_id, const struct ab_call_options *how);
/* sandbox NULL: of all that are the caller's. page_size 0 = 100. */
AB_API int ab_lease_list_start(struct ab_client *c, const char *sandbox, uint32_t page_size,
			       const char *page_token, const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_lease_list(struct ab_client *c, const char *sandbox, uint32_t page_size, const char *page_token,
			 const struct ab_call_options *how, struct ab_lease_list **ret);
/* The lease lives as long as the call. It is held when the first message came; then one comes at each change of
 * the sandbox's end. If the call ends, the lease is lost. */
AB_API int ab_lease_hold_start(struct ab_client *c, const char *sandbox, const struct ab_lease_options *o,
			       const struct ab_call_options *how, struct ab_call **ret);
/* 1: *ret, valid until the next; 0: none now. */
AB_API int ab_lease_hold_next(struct ab_call *call, const struct ab_lease **ret);

/* ------------------------------------------------------------------ tokens */

/* What programs with an unmodified SDK show the daemon's gateway instead of the account's key. */
struct ab_token {
	const char *id;			/* for lists; not the secret */
	const char *label;
	int64_t created_at_ms, expires_at_ms;	/* 0 = never */
	const char *const *sandboxes;	/* ids; none = all that the user may use */
	size_t n_sandboxes;
	int64_t run_pid;		/* the process that it ends with; 0 = none */
	enum ab_action on_release;	/* of a run */
	const char *secret;		/* of create: "ab_…", told this once; "e2b_" in place of "ab_" names the same token. NULL in lists */
	enum ab_warm_mode warm;		/* of creates with it that do not say it */
	const char *policy;		/* the same: "on_idle=kill,idle_timeout=600000ms"; "" = nothing */
};

struct ab_token_list {
	const struct ab_token *const *items;
	size_t n;
};

struct ab_token_options {
	const char *label;		/* at most 128 bytes */
	int64_t expires_at_ms;		/* 0 = never */
	const char *const *sandboxes;	/* ids; none = all */
	size_t n_sandboxes;
	bool run;			/* void when this process ends; what is made with it is leased to this process */
	enum ab_action on_release;	/* of a run: LEAVE, PAUSE, or KILL, the default */
	enum ab_warm_mode warm;		/* of creates with it that do not say it; default: as configured */
	const struct ab_policy *policy;	/* the same of their policies, without `recreate`; NULL = as configured */
};

struct ab_gateway {
	const char *url;		/* "http://localhost:24711"; "" = it listens at no address */
	const char *socket;		/* path; "" = none */
};

AB_API int ab_token_create_start(struct ab_client *c, const struct ab_token_options *o, const struct ab_call_options *how,
				 struct ab_call **ret);
AB_API int ab_token_create(struct ab_client *c, const struct ab_token_options *o, const struct ab_call_options *how,
			   struct ab_token **ret);
/* The caller's own, oldest first. */
AB_API int ab_token_list_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_token_list(struct ab_client *c, const struct ab_call_options *how, struct ab_token_list **ret);
/* It is good for nothing from the answer on. */
AB_API int ab_token_revoke_start(struct ab_client *c, const char *id, const struct ab_call_options *how,
				 struct ab_call **ret);
AB_API int ab_token_revoke(struct ab_client *c, const char *id, const struct ab_call_options *how, bool *ret_found);
/* Where programs find the gateway. */
AB_API int ab_gateway_find_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_gateway_find(struct ab_client *c, const struct ab_call_options *how, struct ab_gateway **ret);

struct ab_page {
	const char *url;		/* opens the status page, once, in a browser of this uid on this machine */
	int64_t expires_at_ms;		/* of the link; the session that it begins lasts 12 hours */
};
/* UNSUPPORTED: the gateway listens at no address. */
AB_API int ab_page_open_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_page_open(struct ab_client *c, const struct ab_call_options *how, struct ab_page **ret);

/* ------------------------------------------------------------------ warm */

/* An entry [warm NAME] of the configuration: sandboxes that are made, and prepared, before anybody asks for one. */
struct ab_warm {
	const char *name;
	const char *account;
	const char *template_id;
	uint32_t size;			/* so many are kept ready */
	uint32_t configured_size;	/* without ab_warm_set() */
	uint32_t ready, coming;		/* may be claimed; are being made or prepared */
	uint32_t waiting;		/* calls with AB_WARM_REQUIRE that wait for one */
	uint32_t failures;		/* in a row */
	bool failed;			/* after three of them nothing is tried any more */
	const char *why;		/* of the last failure */
	const char *output;		/* of the last prepare: the end of what it wrote */
	uint32_t made_in_hour, per_hour;	/* at most; 0 = no bound */
	uint64_t hits, misses;		/* creates since the start of the daemon: that got one; that found none ready */
	uint64_t made, failures_in_all;
	uint64_t prepare_ms;		/* of the last one: from its creation until it was ready */
	uint64_t oldest_ready_ms;	/* for how long the oldest has been ready */
};

struct ab_warm_list {
	const struct ab_warm *items;	/* in the order of the configuration */
	size_t n;
	uint32_t quarantined;		/* of which it was forgotten whether somebody has claimed them */
};

/* All three are for admins. */
AB_API int ab_warm_list_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_warm_list(struct ab_client *c, const struct ab_call_options *how, struct ab_warm_list **ret);
/* size: 0 to 64; less than 0 = as configured. It holds over restarts. What is too many is ended. */
AB_API int ab_warm_set_start(struct ab_client *c, const char *name, int size, const struct ab_call_options *how,
			     struct ab_call **ret);
AB_API int ab_warm_set(struct ab_client *c, const char *name, int size, const struct ab_call_options *how,
		       struct ab_warm **ret);
/* An entry that has failed is tried again. */
AB_API int ab_warm_retry_start(struct ab_client *c, const char *name, const struct ab_call_options *how,
			       struct ab_call **ret);
AB_API int ab_warm_retry(struct ab_client *c, const char *name, const struct ab_call_options *how, struct ab_warm **ret);

/* ------------------------------------------------------------------ events */

enum ab_sandbox_event_type {
	AB_SANDBOX_EVENT_NONE = 0,
	AB_SANDBOX_CREATED = 1,
	AB_SANDBOX_UPDATED = 2,
	AB_SANDBOX_EXTENDED = 3,
	AB_SANDBOX_WAS_PAUSED = 4,
	AB_SANDBOX_RESUMED = 5,
	AB_SANDBOX_EXPIRING = 6,	/* 60 s and 10 s before an end that will come */
	AB_SANDBOX_WENT = 7,		/* gone: reason, evidence */
	AB_SANDBOX_ADOPTED = 8,
	AB_SANDBOX_RENEWAL_DEGRADED = 9,
	AB_SANDBOX_RENEWAL_OK = 10,
	AB_SANDBOX_RESYNC = 11,		/* what was known before is void; an UPDATED for each sandbox follows … */
	AB_SANDBOX_RESYNC_DONE = 12,	/* … up to here */
	AB_SANDBOX_HEARTBEAT = 13,
	AB_SANDBOX_WARM_READY = 14,	/* of an entry [warm NAME]: for admins */
	AB_SANDBOX_WARM_CLAIMED = 15,
	AB_SANDBOX_WARM_FAILED = 16,
};

/* What it points to is valid until the next event is asked for. */
struct ab_sandbox_event {
	enum ab_sandbox_event_type type;
	const char *type_name;		/* "EXTENDED" */
	const char *cursor;		/* go on after this one; "": not from here */
	int64_t at_ms;
	const struct ab_sandbox *sandbox;	/* as it was then; NULL: it is about none */
	const char *reason;
	const struct ab_pair *evidence;
	size_t n_evidence;
};

struct ab_sandbox_watch_options {
	const char *cursor;		/* of the last event seen; NULL = from now */
	const char *sandbox;		/* NULL = all */
	bool initial;			/* begin with a resync */
	bool all_owners;		/* admins */
	uint32_t types;			/* bits 1u << enum ab_sandbox_event_type; 0 = all */
};

/* Every change once, in order. Who does not read is resynced; nothing piles up. */
AB_API int ab_sandbox_watch_start(struct ab_client *c, const struct ab_sandbox_watch_options *o,
				  const struct ab_call_options *how, struct ab_call **ret);
/* 1: *ret; 0: none now. */
AB_API int ab_sandbox_watch_next(struct ab_call *call, struct ab_sandbox_event *ret);

/* ------------------------------------------------------------------ snapshots */

/* The state of a sandbox, kept at the cloud; its id is a template_name for ab_sandbox_create(). */
struct ab_snapshot {
	const char *id;
	const char *const *names;	/* NULL-terminated */
	size_t n_names;
	const char *source_sandbox;	/* "" = not known */
	int64_t created_at_ms;		/* 0 = not known */
	enum ab_source source;
	int64_t as_of_ms;
};

struct ab_snapshot_list {
	const struct ab_snapshot *items;	/* newest first */
	size_t n;
	const char *next_page_token;
};

struct ab_snapshot_list_options {
	const char *sandbox;		/* only of this one */
	const char *name;
	uint32_t page_size;
	const char *page_token;
	bool cached;			/* from the daemon's store, without the cloud */
};

/* name, request_id: may be NULL. The sandbox goes on. */
AB_API int ab_snapshot_create_start(struct ab_client *c, const char *sandbox, const char *name,
				    const char *request_id, const struct ab_call_options *how,
				    struct ab_call **ret);
AB_API int ab_snapshot_create(struct ab_client *c, const char *sandbox, const char *name,
			      const char *request_id, const struct ab_call_options *how,
			      struct ab_snapshot **ret);
AB_API int ab_snapshot_list_start(struct ab_client *c, const struct ab_snapshot_list_options *o,
				  const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_snapshot_list(struct ab_client *c, const struct ab_snapshot_list_options *o,
			    const struct ab_call_options *how, struct ab_snapshot_list **ret);
/* By id or name. false: there was none. */
AB_API int ab_snapshot_delete_start(struct ab_client *c, const char *snapshot,
				    const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_snapshot_delete(struct ab_client *c, const char *snapshot, const struct ab_call_options *how,
			      bool *ret_found);

/* ------------------------------------------------------------------ templates */

/* What sandboxes are created from. */
struct ab_template {
	const char *id;
	const char *const *names;	/* NULL-terminated; each one is a template_name for ab_sandbox_create(), as is the id */
	size_t n_names;
	bool is_public;			/* other accounts may create from it */
	const char *build_id;		/* of the build that sandboxes are created from */
	const char *build_status;	/* of that build, in the cloud's words: "ready", "building", "error"; "" = not known */
	uint32_t cpu_count, memory_mb, disk_size_mb;
	const char *envd_version;
	int64_t created_at_ms, updated_at_ms;
	int64_t last_spawned_at_ms;	/* when the last sandbox was created from it; 0 = never */
	uint64_t spawn_count;		/* how many were */
};

struct ab_template_list {
	const struct ab_template *items;	/* in the cloud's order */
	size_t n;
	const char *next_page_token;
};

struct ab_template_list_options {
	uint32_t page_size;
	const char *page_token;
};

/* Those of the account, as the cloud says at this moment. */
AB_API int ab_template_list_start(struct ab_client *c, const struct ab_template_list_options *o,
				  const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_template_list(struct ab_client *c, const struct ab_template_list_options *o,
			    const struct ab_call_options *how, struct ab_template_list **ret);

/* ------------------------------------------------------------------ commands */

enum ab_stream { AB_STDOUT = 1, AB_STDERR = 2, AB_PTY = 3 };

enum ab_overflow { AB_OVERFLOW_DEFAULT = 0, AB_OVERFLOW_BLOCK = 1, AB_OVERFLOW_DROP_OLDEST = 2 };

/* How a command ended. An exit code is only ever one that the sandbox stated. */
enum ab_outcome {
	AB_OUTCOME_NONE = 0,
	AB_EXITED = 1,		/* exit_code */
	AB_SIGNALED = 2,	/* signal */
	AB_NOT_STARTED = 3,	/* reason and message say why */
	AB_LOST = 4,		/* its sandbox ended or lost it */
	AB_OUTCOME_UNKNOWN = 5,
};

struct ab_command_result {
	enum ab_outcome outcome;
	int exit_code;			/* only with AB_EXITED, else -1 */
	const char *signal;		/* "KILL"; only with AB_SIGNALED, "" if the sandbox did not say */
	bool timed_out;			/* command_timeout passed */
	bool killed;			/* on request */
	uint64_t stdout_bytes, stderr_bytes;
	bool output_complete;		/* false: there are gaps */
	const uint32_t *survivors;	/* processes that a kill did not end */
	size_t n_survivors;
	int64_t exited_at_ms;
	const char *reason;		/* name, "" if none */
	const char *message;
	bool pipes_held;		/* processes that it left hold its output; what they say is not read */
};

/* Bytes of one output that the daemon still has, as offsets since the start. */
struct ab_range {
	uint64_t first, end;		/* of the oldest; one past the newest */
};

struct ab_command {
	const char *command_id;		/* "" of a foreign one */
	const char *sandbox;
	uint32_t pid;
	uint32_t generation;
	const char *shell;		/* one of shell and args */
	const char *const *args;	/* NULL-terminated */
	size_t n_args;
	const struct ab_pair *envs;
	size_t n_envs;
	const char *user;
	const char *cwd;
	const char *tag;
	bool pty;
	int64_t started_at_ms;
	bool running;
	const struct ab_command_result *result;	/* NULL while it runs */
	int64_t last_output_at_ms;
	struct ab_range stdout_kept, stderr_kept, pty_kept;
	int64_t expires_at_ms;
	bool group;			/* a session of its own: kill reaches all of it */
	bool foreign;			/* not started through the daemon */
};

struct ab_command_list {
	const struct ab_command *const *items;
	size_t n;
	const char *next_page_token;
};

/* Which command: command_id (unique for ever, sandbox may then be NULL), or sandbox and pid. */
struct ab_command_ref {
	const char *sandbox;
	const char *command_id;
	uint32_t pid;
};

struct ab_command_options {
	const char *request_id;
	const char *sandbox;
	const char *shell;		/* bash -l -c; or … */
	const char *const *argv;	/* … these words, NULL-terminated */
	const struct ab_pair *envs;
	size_t n_envs;
	const char *cwd;
	const char *user;		/* NULL = the sandbox's default user */
	uint64_t command_timeout_ms;	/* 0 = none */
	uint64_t kill_grace_ms;		/* between TERM and KILL; AB_ZERO_MS = KILL at once */
	bool stdin_open;		/* false: it reads end of file */
	uint32_t pty_cols, pty_rows;	/* set: it gets a terminal */
	bool detach;			/* of a run: it goes on when the stream ends */
	uint64_t spool_limit;		/* bytes of output that the daemon keeps; 0, and at most: as it is set */
	enum ab_overflow overflow;
};

enum ab_event_type {
	AB_EVENT_STARTED = 1,		/* command */
	AB_EVENT_OUTPUT = 2,		/* stream, offset, data, size */
	AB_EVENT_GAP = 3,		/* stream, offset, size if size_known, reason: output that is lost */
	AB_EVENT_EXITED = 4,		/* result; the last event */
};

/* One event. What it points to is valid until the next event is asked for. */
struct ab_command_event {
	enum ab_event_type type;
	enum ab_stream stream;
	uint64_t offset;
	const void *data;
	uint64_t size;
	bool size_known;
	const char *reason;
	const struct ab_command *command;
	const struct ab_command_result *result;
};

struct ab_attach_options {
	uint64_t stdout_offset, stderr_offset, pty_offset;
	bool from_end;			/* only what comes from now on */
	int64_t since_ms;		/* only what came then (ms since 1970), later, or in the second before; 0 = all. With offsets
					 * both hold; not with from_end */
	bool no_follow;			/* what is there, then stop */
};

/* Starts it and answers with its id; its output goes to the daemon's spool. */
AB_API int ab_command_spawn_start(struct ab_client *c, const struct ab_command_options *o,
				  const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_command_spawn(struct ab_client *c, const struct ab_command_options *o,
			    const struct ab_call_options *how, struct ab_command **ret);

/* Starts it and streams what it does: a stream for ab_command_next(). Cancelling or freeing the call
 * kills the command, unless `detach`. A program that is not read fast enough waits (AB_OVERFLOW_BLOCK
 * is the default here), it loses nothing. */
AB_API int ab_command_run_start(struct ab_client *c, const struct ab_command_options *o,
				const struct ab_call_options *how, struct ab_call **ret);
/* The stream of one that runs or ran, from the given offsets. o may be NULL: from the beginning. */
AB_API int ab_command_attach_start(struct ab_client *c, const struct ab_command_ref *ref,
				   const struct ab_attach_options *o,
				   const struct ab_call_options *how, struct ab_call **ret);
/* The next event of a run or attach: 1, or 0 if there is none now (see ab_call_is_done()). */
AB_API int ab_command_next(struct ab_call *call, struct ab_command_event *ret);

/* What a run that is waited for does with input and output. */
struct ab_command_io {
	/* Called with each piece of output. Other than 0 cancels the run. NULL: output is dropped. */
	int (*output)(void *user, enum ab_stream stream, const void *data, size_t n);
	void *user;
	const void *input;		/* given to its standard input, then end of file; NULL = none */
	size_t n_input;
};

/* Runs a command to its end. The result is that of the command, whatever it was: AB_OK says only
 * that it is known what became of it. io may be NULL. Over a restart of the daemon, which is waited for as the client's `wait_ms` says,
 * output and input go on where they were; the result's output_complete is false where some was lost, and input of which it is not
 * known whether the command has it ends the command, and the call with OUTCOME_UNKNOWN. */
AB_API int ab_command_run(struct ab_client *c, const struct ab_command_options *o,
			  const struct ab_call_options *how, const struct ab_command_io *io,
			  struct ab_command_result **ret);

AB_API int ab_command_wait_start(struct ab_client *c, const struct ab_command_ref *ref,
				 const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_command_wait(struct ab_client *c, const struct ab_command_ref *ref,
			   const struct ab_call_options *how, struct ab_command_result **ret);

struct ab_command_list_options {
	bool ended;			/* also those that ended */
	uint32_t page_size;
	const char *page_token;
};

AB_API int ab_command_list_start(struct ab_client *c, const char *sandbox,
				 const struct ab_command_list_options *o,
				 const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_command_list(struct ab_client *c, const char *sandbox,
			   const struct ab_command_list_options *o,
			   const struct ab_call_options *how, struct ab_command_list **ret);

/* A stream into the standard input of a command, beginning at `offset` (0 for the first writer).
 * Write with ab_input_put(), end it with ab_input_finish(); then wait until the call is done.
 * One writer at a time. */
AB_API int ab_command_input_start(struct ab_client *c, const struct ab_command_ref *ref,
				  uint64_t offset, const struct ab_call_options *how,
				  struct ab_call **ret);
/* How many bytes were taken, 0 if there is no room now (`ready` tells when there is). -EPIPE: the call
 * ended, or the input was finished. */
AB_API ptrdiff_t ab_input_put(struct ab_call *call, const void *data, size_t n);
/* No more from us. `close`: the command then reads end of file. 0, -EPIPE, -ENOMEM. */
AB_API int ab_input_finish(struct ab_call *call, bool close);
/* How far the command's side has taken it, counted from its beginning. */
AB_API uint64_t ab_input_accepted(const struct ab_call *call);
/* All of it, waited for, also over a restart of the daemon. ret_accepted: the offset for the next one; may be NULL. */
AB_API int ab_command_send_input(struct ab_client *c, const struct ab_command_ref *ref,
				 uint64_t offset, const void *data, size_t n, bool close,
				 const struct ab_call_options *how, uint64_t *ret_accepted);

AB_API int ab_command_close_input_start(struct ab_client *c, const struct ab_command_ref *ref,
					const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_command_close_input(struct ab_client *c, const struct ab_command_ref *ref,
				  const struct ab_call_options *how);

/* signal: SIGTERM or SIGKILL, to the process itself. false: it was not there. */
AB_API int ab_command_signal_start(struct ab_client *c, const struct ab_command_ref *ref, int signal,
				   const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_command_signal(struct ab_client *c, const struct ab_command_ref *ref, int signal,
			     const struct ab_call_options *how, bool *ret_found);

struct ab_kill_result {
	bool found;
	const uint32_t *survivors;
	size_t n_survivors;
};

/* TERM, grace, KILL, to all that the command started. */
AB_API int ab_command_kill_start(struct ab_client *c, const struct ab_command_ref *ref,
				 const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_command_kill(struct ab_client *c, const struct ab_command_ref *ref,
			   const struct ab_call_options *how, struct ab_kill_result **ret);

/* The new size of a command's terminal. */
AB_API int ab_command_resize_start(struct ab_client *c, const struct ab_command_ref *ref, uint32_t cols,
				   uint32_t rows, const struct ab_call_options *how,
				   struct ab_call **ret);
AB_API int ab_command_resize(struct ab_client *c, const struct ab_command_ref *ref, uint32_t cols,
			     uint32_t rows, const struct ab_call_options *how);

/* ------------------------------------------------------------------ files */

enum ab_file_type { AB_FILE_OTHER = 0, AB_FILE = 1, AB_DIRECTORY = 2, AB_SYMLINK = 3 };

struct ab_file {
	const char *name;
	const char *path;
	enum ab_file_type type;
	int64_t size;
	uint32_t mode;
	const char *permissions;	/* "-rw-r--r--" */
	const char *owner, *group;
	int64_t modified_at_ms;
	const char *symlink_target;	/* NULL if it is none */
	const struct ab_pair *metadata;
	size_t n_metadata;
};

struct ab_file_list {
	const struct ab_file *const *items;
	size_t n;
};

/*
 * Names of files are bytes; paths and names here are texts, which are UTF-8. In a text a byte that belongs to no character is
 * written \xHH (H = 0-9a-f: \x80 to \xff), a backslash before what would read as such a byte is \x5c, everything else is itself:
 * every name has exactly one text, and nearly all are their own. These two turn one into the other; end the result with free(3).
 * NULL without memory.
 */
AB_API char *ab_path_text(const char *bytes);
AB_API char *ab_path_bytes(const char *text);

/* A path inside a sandbox, seen by `user` (NULL = its default user; relative paths are its home's). */
struct ab_path {
	const char *sandbox;
	const char *path;
	const char *user;
};

struct ab_read_options {
	uint64_t offset;
	uint64_t length;		/* 0 = to the end */
};

struct ab_write_options {
	uint64_t size;			/* known length … */
	bool size_known;		/* … helps the daemon to check; it fails if another one comes */
	const struct ab_pair *metadata;
	size_t n_metadata;
};

/* A stream for ab_file_read_next(). It never ends well before its end: a file that was cut is
 * AB_DATA_LOSS (TRUNCATED). o may be NULL. */
AB_API int ab_file_read_start(struct ab_client *c, const struct ab_path *path,
			      const struct ab_read_options *o, const struct ab_call_options *how,
			      struct ab_call **ret);
/* 1 and a piece, valid until the next is asked for; 0: none now (see ab_call_is_done()). */
AB_API int ab_file_read_next(struct ab_call *call, const void **ret_data, size_t *ret_n);
/* What is being read; NULL until it is known, which is before the first piece. */
AB_API const struct ab_file *ab_file_read_info(const struct ab_call *call);
/* Reads into a descriptor, at its speed, in constant memory; may block in write(2). */
AB_API int ab_file_read_to_fd(struct ab_client *c, const struct ab_path *path,
			      const struct ab_read_options *o, const struct ab_call_options *how,
			      int fd, uint64_t *ret_bytes);
/* Reads into a function; other than 0 cancels. */
AB_API int ab_file_read_to(struct ab_client *c, const struct ab_path *path,
			   const struct ab_read_options *o, const struct ab_call_options *how,
			   int (*sink)(void *user, const void *data, size_t n), void *user);

/* A stream that takes a file: put, then finish, then wait until the call is done. Nothing is
 * promised about the file before that. o may be NULL. */
AB_API int ab_file_write_start(struct ab_client *c, const struct ab_path *path,
			       const struct ab_write_options *o, const struct ab_call_options *how,
			       struct ab_call **ret);
/* As ab_input_put(). */
AB_API ptrdiff_t ab_file_write_put(struct ab_call *call, const void *data, size_t n);
/* No more: it is written when the call is done. 0, -EPIPE, -ENOMEM. */
AB_API int ab_file_write_finish(struct ab_call *call);
/* From a descriptor's position to its end, in constant memory; may block in read(2). Over a restart of the daemon a file is sent again from
 * that position. ret may be NULL. */
AB_API int ab_file_write_from_fd(struct ab_client *c, const struct ab_path *path,
				 const struct ab_write_options *o,
				 const struct ab_call_options *how, int fd, struct ab_file **ret);
/* From a function that fills at most n bytes and returns how many, 0 at the end, < 0 to cancel. */
AB_API int ab_file_write_from(struct ab_client *c, const struct ab_path *path,
			      const struct ab_write_options *o, const struct ab_call_options *how,
			      ptrdiff_t (*source)(void *user, void *data, size_t n), void *user,
			      struct ab_file **ret);

/* Of a symbolic link: the link. */
AB_API int ab_file_stat_start(struct ab_client *c, const struct ab_path *path,
			      const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_file_stat(struct ab_client *c, const struct ab_path *path,
			const struct ab_call_options *how, struct ab_file **ret);

AB_API int ab_file_exists_start(struct ab_client *c, const struct ab_path *path,
				const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_file_exists(struct ab_client *c, const struct ab_path *path,
			  const struct ab_call_options *how, bool *ret_exists);

/* A directory's entries, down to `depth` (0 = 1). The first form is a stream for ab_file_list_next(). */
AB_API int ab_file_list_start(struct ab_client *c, const struct ab_path *path, uint32_t depth,
			      const struct ab_call_options *how, struct ab_call **ret);
/* 1 and an entry, valid until the next is asked for; 0: none now. */
AB_API int ab_file_list_next(struct ab_call *call, const struct ab_file **ret);
AB_API int ab_file_list(struct ab_client *c, const struct ab_path *path, uint32_t depth,
			const struct ab_call_options *how, struct ab_file_list **ret);

/* With its parents. false: it existed. */
AB_API int ab_file_make_dir_start(struct ab_client *c, const struct ab_path *path,
				  const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_file_make_dir(struct ab_client *c, const struct ab_path *path,
			    const struct ab_call_options *how, bool *ret_created);

/* Renames; answers with the entry at its new place. */
AB_API int ab_file_move_start(struct ab_client *c, const struct ab_path *path,
			      const char *destination, const struct ab_call_options *how,
			      struct ab_call **ret);
AB_API int ab_file_move(struct ab_client *c, const struct ab_path *path, const char *destination,
			const struct ab_call_options *how, struct ab_file **ret);

/* A file, or a directory with all in it. What is not there is no failure. */
AB_API int ab_file_remove_start(struct ab_client *c, const struct ab_path *path,
				const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_file_remove(struct ab_client *c, const struct ab_path *path,
			  const struct ab_call_options *how);

struct ab_watch_options {
	bool recursive;			/* also what is below, and what comes to be below */
	bool entries;			/* `entry` of events is filled in */
	bool network_mounts;		/* also where changes made by other machines are not seen */
};

enum ab_file_event_type {
	AB_FILE_EVENT_READY = 1,	/* the first one: every change after it is reported … */
	AB_FILE_EVENT_CHANGE = 2,	/* change, name, entry */
	AB_FILE_EVENT_OVERFLOWED = 3,	/* … but some were not: look at the directory again */
};

enum ab_file_change {
	AB_CHANGE_CREATE = 1,		/* also the new name of what was renamed */
	AB_CHANGE_WRITE = 2,
	AB_CHANGE_REMOVE = 3,
	AB_CHANGE_RENAME = 4,		/* of the old name */
	AB_CHANGE_CHMOD = 5,
};

/* One event. What it points to is valid until the next event is asked for. */
struct ab_file_event {
	enum ab_file_event_type type;
	enum ab_file_change change;
	const char *name;		/* below the watched directory */
	const struct ab_file *entry;	/* NULL if not asked for, or no longer there */
};

/* A stream of what changes in a directory. It goes on over broken connections of the cloud (then it
 * says OVERFLOWED); it ends with the sandbox, or when the directory cannot be watched any more. o may
 * be NULL. */
AB_API int ab_file_watch_start(struct ab_client *c, const struct ab_path *path,
			       const struct ab_watch_options *o, const struct ab_call_options *how,
			       struct ab_call **ret);
/* 1 and an event; 0: none now (see ab_call_is_done()). */
AB_API int ab_file_watch_next(struct ab_call *call, struct ab_file_event *ret);

struct ab_link {
	const char *url;
	int64_t expires_at_ms;		/* 0 = does not by itself */
};

/* A link that reads the file, or writes it (POST), without any other credential: whoever has it may.
 * expires_in_ms 0 = as long as the sandbox lives; UNSUPPORTED for one that is not secure. */
AB_API int ab_file_sign_start(struct ab_client *c, const struct ab_path *path, bool write,
			      uint64_t expires_in_ms, const struct ab_call_options *how,
			      struct ab_call **ret);
AB_API int ab_file_sign(struct ab_client *c, const struct ab_path *path, bool write,
			uint64_t expires_in_ms, const struct ab_call_options *how,
			struct ab_link **ret);

/* ------------------------------------------------------------------ the daemon */

/* Something does not work as it should. */
struct ab_degradation {
	const char *what, *reason, *message, *account;
	int64_t since_at_ms;
};

/* A kind of call that the cloud limits. */
struct ab_limited_route {
	const char *route;		/* "create", "extend", … */
	int64_t next_at_ms;		/* the next call waits until then; 0 = at once */
	uint32_t in_flight, window;	/* now; at most at once */
	uint32_t burst;			/* the cloud's budget; 0 = it does not tell */
	double per_second;		/* how fast that fills again, at least */
};

struct ab_cloud_status {
	const char *account, *api_url, *domain, *proxy;
	const char *key;		/* "present", "missing", "rejected", "" */
	bool reachable;
	int64_t last_answer_at_ms, last_failure_at_ms;
	const char *last_failure, *last_failure_message;
	uint32_t in_flight, max_in_flight, queued;	/* calls of all users together */
	int64_t limited_until_ms;
	const struct ab_limited_route *limits;
	size_t n_limits;
};

/* A connection to the cloud. */
struct ab_connection_status {
	const char *state;		/* "ready", "probing", "leaving" */
	const char *peer, *protocol;
	uint32_t streams, max_streams;
	uint32_t rtt_us;		/* 0 = not known */
	uint64_t age_ms, silent_ms;
};

struct ab_origin_status {
	const char *origin, *account, *protocol;
	uint32_t connections, connecting, streams, queued;
	uint64_t calls, failures;
	uint64_t dials, goaways, complaints, replays, pings_lost;
	uint32_t stream_target;		/* our own cap on a connection's streams; 0 = none */
	int64_t held_down_until_ms;	/* no new connection before then; 0 = at once */
	const char *last_error;		/* "" = none */
	int64_t last_error_at_ms;
	const struct ab_connection_status *conns;
	size_t n_conns;
};

struct ab_daemon_status {
	const char *version;
	const char *const *features;	/* NULL-terminated */
	size_t n_features;
	int64_t started_at_ms;
	uint64_t uptime_ms;
	int64_t pid;
	bool system;			/* serves many users */
	const char *socket, *state_dir, *host_id;
	bool draining;
	const struct ab_degradation *degraded;
	size_t n_degraded;
	const struct ab_cloud_status *clouds;
	size_t n_clouds;
	const struct ab_origin_status *pool;
	size_t n_pool;
	const char *process_identity;	/* "pidfd_inode", "start_time", "connection", "" */
	const char *store_path;
	uint64_t store_bytes;
	bool store_writable;
	uint32_t open_intents;
	uint32_t sandboxes_running, sandboxes_paused, sandboxes_changing;
	uint32_t leases, commands_running;
	uint64_t spool_bytes;
	uint32_t connections, calls, streams, max_streams;
	const char *local_address;	/* of agentbox-local, "" until it was up; NULL without --local */
	int64_t local_pid;		/* 0 while it does not run */
	const char *local_ca_file;
	/* Memory held, and how much it may be: for the caller's uid, for all local clients, for the cloud's answers. */
	uint64_t uid_bytes, max_uid_bytes, client_bytes, max_client_bytes, cloud_bytes, max_cloud_bytes;
	uint64_t refused_calls, closed_connections;	/* since the start, for lack of it */
	/* The gateway; NULL from a daemon that has none. */
	const char *gateway_url, *gateway_socket;	/* "" = none */
	uint32_t gateway_connections, gateway_calls, gateway_relays;
	uint64_t gateway_requests, gateway_refused;	/* since the start */
	/* Who the caller is to the daemon; access_right and the texts beside it are NULL from one that does not tell. */
	uint32_t uid;
	const char *user;		/* "" = it has no name */
	const char *access_right;	/* "admin", "user", "observer" */
	const char *access_rule;	/* which rule says so, and where it stands */
	const char *account;		/* that creates go to */
	uint32_t uid_sandboxes, max_sandboxes, creates_per_minute, creates_left;	/* of the uid; 0 = no limit of the daemon's */
};

AB_API int ab_daemon_status_start(struct ab_client *c, const struct ab_call_options *how,
				  struct ab_call **ret);
AB_API int ab_daemon_status(struct ab_client *c, const struct ab_call_options *how,
			    struct ab_daemon_status **ret);

struct ab_config_value {
	const char *section, *key;
	const char *const *values;	/* NULL-terminated; none of a secret */
	size_t n_values;
	const char *origin;		/* "default", "environment", "file", "command_line" */
	const char *default_value;
	bool reloadable;
	bool secret;
	const char *file;		/* the configuration file, or one of conf.d; "" = from none */
	uint32_t line;			/* in it */
};

struct ab_config {
	const struct ab_config_value *values;
	size_t n;
	const char *file;		/* "": none was read */
	bool file_changed;		/* it differs from what runs */
	int64_t loaded_at_ms;
};

/* section: only this one ("daemon", "account main"); NULL = all. */
AB_API int ab_daemon_config_start(struct ab_client *c, const char *section,
				  const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_daemon_config(struct ab_client *c, const char *section,
			    const struct ab_call_options *how, struct ab_config **ret);

struct ab_changed_key {
	const char *section, *key;	/* "daemon", "account main" */
	const char *file;		/* the configuration file, or one of conf.d; "" = it stands in none any more */
	uint32_t line;			/* in it */
};

struct ab_reloaded {
	const char *file;
	/* NULL-terminated sentences: file and line, section and key, what is wrong, what may stand there. If there is any, nothing was
	 * changed. */
	const char *const *problems;
	size_t n_problems;
	const struct ab_changed_key *taken;		/* in force now */
	const struct ab_changed_key *need_restart;	/* differ from what runs, until the daemon is started again */
	size_t n_taken, n_need_restart;
};

/* The daemon reads its configuration file again, and answers when it has taken up what it can. Admins only. A file with problems is an
 * answer, not an error. */
AB_API int ab_daemon_reload_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret);
AB_API int ab_daemon_reload(struct ab_client *c, const struct ab_call_options *how, struct ab_reloaded **ret);

struct ab_backup {
	uint64_t bytes;			/* of all of it */
	uint32_t schema;		/* an older agentboxd refuses it */
	const char *host_id, *version;	/* of the daemon that it is of */
	int64_t at_ms;
};

/* A copy of the daemon's database, for agentboxctl restore. Admins only. A stream for ab_daemon_backup_next(); it never ends well before
 * its end: one that was cut is AB_DATA_LOSS. Its result is a struct ab_backup. It holds access tokens: keep it as a secret. */
AB_API int ab_daemon_backup_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret);
/* 1 and some of it, valid until the next; 0 none now. */
AB_API int ab_daemon_backup_next(struct ab_call *call, const void **ret_data, size_t *ret_n);
/* All of it, to a descriptor that blocks. */
AB_API int ab_daemon_backup_to_fd(struct ab_client *c, const struct ab_call_options *how, int fd, struct ab_backup **ret);

struct ab_quiesce_options {
	bool off;			/* make them again */
	const char *reason;		/* for those who are refused; NULL = none */
};

struct ab_quiesced {
	bool quiesced;
	int64_t since_at_ms;
	uint32_t changing;		/* sandboxes in a transition, those that are still being made among them */
};

/* New sandboxes are refused with QUIESCED until it is called with `off` or the daemon ends; what runs goes on. Admins only. */
AB_API int ab_daemon_quiesce_start(struct ab_client *c, const struct ab_quiesce_options *o, const struct ab_call_options *how,
				   struct ab_call **ret);
AB_API int ab_daemon_quiesce(struct ab_client *c, const struct ab_quiesce_options *o, const struct ab_call_options *how,
			     struct ab_quiesced **ret);

struct ab_local_stopped {
	bool was_running;
	uint32_t killed;		/* sandboxes */
};

/* Ends agentbox-local and its sandboxes; answers when they are gone. */
AB_API int ab_daemon_stop_local_start(struct ab_client *c, const struct ab_call_options *how,
				      struct ab_call **ret);
AB_API int ab_daemon_stop_local(struct ab_client *c, const struct ab_call_options *how,
				struct ab_local_stopped **ret);

#ifdef __cplusplus
}
#endif

#endif
