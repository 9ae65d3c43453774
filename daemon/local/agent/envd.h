/* SPDX-License-Identifier: MIT */
/*
 * The agent of a sandbox, as its clients see it: tokens, plain HTTP calls, and the tables of its two
 * RPC services. There is no agent process: the engine does its work from outside.
 */
#ifndef AB_DAEMON_LOCAL_AGENT_ENVD_H
#define AB_DAEMON_LOCAL_AGENT_ENVD_H

#include "daemon/local/agent/connect.h"
#include "proto/gen/envd_process.pb-c.h"

struct query;

/* A request for the agent's port of a running sandbox; takes the exchange over. */
void envd_request(struct local *l, struct sandbox *s, struct http_stream *x);

/* The same by the rules of the edge, which hides its control routes (edge.c). */
void edge_to_envd(struct local *l, struct sandbox *s, struct http_stream *x);

/* Of calls that name none: the template's. */
const char *envd_default_user(const struct sandbox *s);
/* The path of a text that a client sent: "" is the template's workdir, or like "~" the home, "~/x" and relative ones go below that,
 * absolute ones stay as they are. Heap; NULL with errno EINVAL ("~name") or ENOMEM. The agent of the cloud fails at names that
 * are not UTF-8; here they are written as proto/base/name.h has it, in answers and in requests, and answers say so. */
char *envd_path_of_text(const struct sandbox *s, const struct container_user *u, const char *text);
/* The same of the path in a request for /files, which says if it is meant as it is. */
char *envd_path_of_request(const struct sandbox *s, const struct container_user *u, const struct http_stream *x,
			   const char *path);
/* A name in an answer; NULL without memory. */
json_t *envd_name_json(const char *name);

/* envd_process.c and envd_fs.c; tables end with an empty path. */
extern const struct rpc_method envd_process_methods[];
extern const struct rpc_method envd_fs_methods[];
/* The sandbox is being killed, or loses its memory: lets go of all its processes and watches. */
void envd_stop(struct sandbox *s);
/* It runs, again or for the first time: envd_inside.c listens in it. */
void envd_start(struct local *l, struct sandbox *s);
void envd_inside_stop(struct sandbox *s);
void envd_process_stop(struct sandbox *s);
/* The deadlines of its commands did not come closer while it stood still. */
void envd_process_thaw(struct sandbox *s, uint64_t stood_ms);
/* Global variables of every command, as an object, with those of the creation or without; new reference. */
json_t *envd_globals(const struct sandbox *s, bool with_creations);
/* The whole environment of a command, a NULL-terminated array on the heap: `given` is laid over `globals`. NULL without memory. */
char **envd_environment(const struct container_user *u, const json_t *globals, Process__ProcessConfig__EnvsEntry *const *given,
			size_t n_given, size_t *ret_n);
void envd_environment_free(char **v, size_t n);
/* envd_serve.c: the start and ready commands of a new sandbox's template; answers with sandbox_served(), unless it returns -errno. */
must_check int envd_serve(struct local *l, struct sandbox *s);
void envd_serve_stop(struct sandbox *s);

/* files.c: /files; authorised by the token or by a signature. Take the exchange over. */
void files_get(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q);
void files_post(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q);
/* files_compose.c: /files/compose; the token is checked already. */
void files_compose(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q);

#endif
