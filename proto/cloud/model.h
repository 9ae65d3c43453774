/* SPDX-License-Identifier: MIT */
/*
 * The contract's requests and answers as plain structs. Strings are heap, NULL where there was none or null.
 * Moments are ms since 1970 by the cloud's clock, 0 where absent. What a field means is the business of who asks
 * and who answers; nothing is defaulted here. json.h reads and writes them.
 */
#ifndef AB_PROTO_CLOUD_MODEL_H
#define AB_PROTO_CLOUD_MODEL_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

enum tri {		/* zero is "not said" */
	TRI_UNSET = 0,
	TRI_FALSE,
	TRI_TRUE,
};

static inline enum tri tri_of(bool b)
{
	return b ? TRI_TRUE : TRI_FALSE;
}

/* Bytes; an answer with a longer one is BAD_CLOUD_REPLY. */
#define CLOUD_ID_MAX	1024u
#define CLOUD_TOKEN_MAX 4096u

#define CLOUD_VERSION_UNKNOWN "v1.0.0"	/* of the agent, as the cloud says it */

struct cloud_kv {
	char *key, *value;
};

struct cloud_kvs {
	struct cloud_kv *v;
	size_t n;
};

/* Appends copies. -ENOMEM leaves it as it was. */
must_check int cloud_kvs_add(struct cloud_kvs *l, const char *key, const char *value);
must_check int cloud_kvs_add_all(struct cloud_kvs *to, const struct cloud_kvs *from);
const char *cloud_kvs_get(const struct cloud_kvs *l, const char *key);	/* NULL if absent */
void cloud_kvs_fini(struct cloud_kvs *l);

struct cloud_strs {
	char **v;
	size_t n;
};

must_check int cloud_strs_add(struct cloud_strs *l, const char *s);
bool cloud_strs_has(const struct cloud_strs *l, const char *s);
bool cloud_strs_equal(const struct cloud_strs *a, const struct cloud_strs *b);	/* in order */
void cloud_strs_fini(struct cloud_strs *l);

struct cloud_rule {		/* one domain of network.rules */
	char *domain;
	struct cloud_kvs headers;	/* transform.headers */
	size_t surplus;			/* rules behind the first one, which the contract does not allow */
};

struct cloud_network {
	struct cloud_strs allow_out, deny_out;
	enum tri allow_public_traffic;
	char *mask_request_host;
	char *egress_address, *egress_username;
	char *egress_password;		/* requests only, the cloud never returns it */
	struct cloud_rule *rules;
	size_t n_rules;
	bool asks_https_ports;		/* something is in this field, which only some clouds have */
};

struct cloud_network *cloud_network_free(struct cloud_network *n);	/* NULL is fine; returns NULL */
void cloud_network_freep(struct cloud_network **n);
struct cloud_network *cloud_network_dup(const struct cloud_network *n);	/* NULL without memory */
bool cloud_network_equal(const struct cloud_network *a, const struct cloud_network *b);	/* NULL = none */
/* Appends a rule for `domain`. */
must_check int cloud_network_add_rule(struct cloud_network *n, const char *domain,
				      struct cloud_rule **ret);
/* One line of JSON, as the cloud writes it, without the password. Heap; NULL without memory. */
char *cloud_network_format(const struct cloud_network *n);
/* -EBADMSG: not such a text. */
must_check int cloud_network_parse(const char *text, struct cloud_network **ret);

struct cloud_iam_token {
	char *name, *audience, *token_type;
};

/* What becomes of a sandbox at its end. */
struct cloud_lifecycle {
	enum tri pause;			/* it is paused, not killed */
	enum tri keep_memory;		/* when it is paused; no answer says it */
	enum tri auto_resume;		/* traffic from outside resumes it */
};

/* As answers say it: nothing is left out, and what becomes of its memory is not in them. */
static inline struct cloud_lifecycle cloud_lifecycle_told(const struct cloud_lifecycle *l)
{
	return (struct cloud_lifecycle){ .pause = tri_of(l->pause == TRI_TRUE), .auto_resume = tri_of(l->auto_resume == TRI_TRUE) };
}

/* Why the cloud makes none with it, in its words; NULL: it does. */
static inline const char *cloud_lifecycle_fault(const struct cloud_lifecycle *l)
{
	if (l->keep_memory != TRI_FALSE)
		return NULL;
	if (l->pause != TRI_TRUE)
		return "autoPauseMemory=false needs autoPause=true";
	return l->auto_resume == TRI_TRUE ? "autoPauseMemory=false cannot be combined with autoResume" : NULL;
}

/* What replaces the egress of one that runs: what is not there is cleared. */
struct cloud_egress {
	struct cloud_network network;	/* without ingress */
	enum tri allow_internet_access;
};

enum cloud_state {
	CLOUD_STATE_UNKNOWN = 0,	/* a state this version does not know, or an answer without one */
	CLOUD_STATE_RUNNING,
	CLOUD_STATE_PAUSED,
};

/* One sandbox: Sandbox, ListedSandbox and SandboxDetail are subsets of it. */
struct cloud_sandbox {
	char *id;			/* always set, [a-z0-9]+; a legacy "-client" suffix is cut off */
	char *template_id;		/* always set */
	char *alias;
	char *envd_version;		/* always set; CLOUD_VERSION_UNKNOWN at times */
	char *envd_access_token;	/* secret; create, connect and get */
	char *traffic_access_token;	/* secret; create and connect */
	char *domain;			/* a host name or an address, maybe with a port */
	bool has_odd_domain;		/* what was said is none, and counts as not said */
	enum cloud_state state;		/* list and get; create and connect: RUNNING */
	bool resumed;			/* connect: it was paused (201) */
	bool is_detail;			/* get: what is absent below is not set, rather than not said */
	int64_t started_at_ms, end_at_ms;	/* list and get; 0 in create and connect */
	uint32_t cpu_count, memory_mb, disk_size_mb;
	struct cloud_kvs metadata;	/* list and get */
	enum tri allow_internet_access;	/* get */
	struct cloud_network *network;	/* get; NULL if none */
	struct cloud_lifecycle lifecycle;	/* get */
};

struct cloud_sandbox *cloud_sandbox_free(struct cloud_sandbox *s);	/* wipes tokens; returns NULL */
void cloud_sandbox_freep(struct cloud_sandbox **s);

struct cloud_list {
	struct cloud_sandbox **v;
	size_t n;
	char *next_token;		/* of a single page: NULL = the last one */
	int64_t total_running;		/* -1 = not said */
};

struct cloud_list *cloud_list_free(struct cloud_list *l);	/* NULL is fine; returns NULL */
void cloud_list_freep(struct cloud_list **l);
void cloud_list_shorten(struct cloud_list *l, size_t n);	/* frees those behind the first n */
must_check int cloud_list_add(struct cloud_list *l, struct cloud_sandbox *s);	/* takes s, but on failure */

struct cloud_error {			/* of a call, or in the place of one sandbox of a fork */
	int64_t code;			/* of HTTP */
	char *code_word;		/* of Connect */
	char *message, *error_code;
	bool has_port;			/* of the edge: it is a port of the sandbox that is closed */
};

struct cloud_stream_end {		/* Connect's last record */
	struct cloud_error *error;	/* NULL = it ended well */
};

struct cloud_uploaded {			/* one file of the answer of POST /files */
	char *path, *name, *type;
};

struct cloud_fork_result {		/* one of the two */
	struct cloud_sandbox *sandbox;
	struct cloud_error *error;
};

struct cloud_metric {
	int64_t at_ms;
	uint32_t cpu_count;
	double cpu_used_pct;
	int64_t mem_used, mem_total, mem_cache, disk_used, disk_total;	/* bytes */
};

struct cloud_metrics {			/* oldest first */
	struct cloud_metric *v;
	size_t n;
};

struct cloud_metrics *cloud_metrics_free(struct cloud_metrics *m);	/* NULL is fine; returns NULL */

struct cloud_snapshot {
	char *id;			/* always set */
	struct cloud_strs names;
};

struct cloud_snapshot *cloud_snapshot_free(struct cloud_snapshot *s);	/* NULL is fine; returns NULL */

struct cloud_snapshots {		/* newest first */
	struct cloud_snapshot **v;
	size_t n;
	char *next_token;		/* of the last page read */
};

struct cloud_snapshots *cloud_snapshots_free(struct cloud_snapshots *l);	/* NULL is fine; returns NULL */
must_check int cloud_snapshots_add(struct cloud_snapshots *l, struct cloud_snapshot *s);	/* the same */

/* What a template's name leads to. */
struct cloud_template_alias {
	char *id;
	bool is_public;
};

/* The name of one build among those of a template. */
struct cloud_template_tag {
	char *tag, *build_id;
	int64_t created_at_ms;		/* when the build got it */
};

struct cloud_template_build {
	char *id, *envd_version;
	int64_t created_at_ms;
	uint32_t cpu_count, memory_mb, disk_size_mb;
};

struct cloud_template {
	char *id, *build_id, *build_status, *envd_version;
	uint32_t cpu_count, memory_mb, disk_size_mb;
	bool is_public;
	struct cloud_strs aliases, names;
	int64_t created_at_ms, updated_at_ms;
	int64_t spawned_at_ms;		/* the last sandbox made from it; 0 = none yet */
	int64_t spawn_count, build_count;
	struct cloud_template_build *builds;	/* newest first; of a detail */
	size_t n_builds;
};

struct cloud_template *cloud_template_free(struct cloud_template *t);	/* NULL is fine; returns NULL */

struct cloud_templates {		/* in the cloud's order */
	struct cloud_template **v;
	size_t n;
	char *next_token;		/* of the last page read */
};

struct cloud_templates *cloud_templates_free(struct cloud_templates *l);	/* NULL is fine; returns NULL */
must_check int cloud_templates_add(struct cloud_templates *l, struct cloud_template *t);	/* the same */

/* The answer to a request that gives tags. */
struct cloud_tags_assigned {
	struct cloud_strs tags;
	char *build_id;
};

/* What the side that asked makes of those results. */
struct cloud_child {
	struct cloud_sandbox *sandbox;
	struct status error;		/* with sandbox NULL */
};

struct cloud_children {
	struct cloud_child *v;
	size_t n;
};

struct cloud_children *cloud_children_free(struct cloud_children *c);	/* NULL is fine; returns NULL */

/* --- requests --- */

struct cloud_create {
	char *template_id;
	uint32_t timeout_s;
	enum tri secure, allow_internet_access;
	struct cloud_lifecycle lifecycle;
	struct cloud_kvs metadata, envs;
	struct cloud_network *network;	/* NULL = none */
	struct cloud_iam_token *iam_tokens;
	size_t n_iam_tokens;
	bool asks_volumes;		/* something is in that field, which only some clouds have */
};

void cloud_create_fini(struct cloud_create *c);

struct cloud_connect {			/* connect, resume, timeout */
	uint32_t timeout_s;
	enum tri memory, auto_pause;
};

struct cloud_refresh {
	uint32_t duration_s;
};

struct cloud_pause {
	enum tri memory;
};

struct cloud_fork {
	uint32_t timeout_s, count;
};

struct cloud_snapshot_name {
	char *name;			/* NULL = none */
};

/* Tags to give to what `name` ("name:tag") means, or to take from the template `name`. */
struct cloud_tags {
	char *name;
	struct cloud_strs tags;
};

/* "0.5.7" against "v0.6.13": < 0, 0, > 0. What is no version counts as 0.0.0. */
int cloud_version_cmp(const char *a, const char *b);
#define CLOUD_SANDBOX_ID_MAX 64u
/* ^[a-z0-9]+$, at most CLOUD_SANDBOX_ID_MAX bytes. */
bool cloud_is_sandbox_id(const char *s);
/* The same, or with a legacy "-client" behind it, which is cut off. -EINVAL. */
must_check int cloud_id_parse(const char *s, char ret[CLOUD_SANDBOX_ID_MAX + 1]);

#endif
