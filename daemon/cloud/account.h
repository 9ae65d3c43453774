/* SPDX-License-Identifier: MIT */
/* Inside of daemon/cloud: what one account is made of, and where its two planes live. */
#ifndef AB_DAEMON_CLOUD_ACCOUNT_H
#define AB_DAEMON_CLOUD_ACCOUNT_H

#include "daemon/cloud/cloud.h"
#include "daemon/cloud/envd.h"
#include "daemon/cloud/fault.h"
#include "daemon/common/ev/loop.h"
#include "daemon/upstream/limiter.h"
#include "daemon/upstream/pool.h"
#include "proto/base/list.h"
#include "proto/base/quota.h"
#include "proto/base/rng.h"
#include "proto/cloud/flavour.h"
#include "proto/wire/fields.h"

#define CLOUD_USER_AGENT "agentboxd/" AB_VERSION

struct url {
	char *scheme, *host, *prefix;	/* prefix: path without a trailing slash, "" for none */
	uint16_t port;
	bool has_port;		/* the text named one */
};

/* "https://host[:port][/prefix]"; no user, query or fragment. -EINVAL, -ENOMEM. */
must_check int url_parse(const char *s, struct url *ret);
void url_fini(struct url *u);
/* Is it https or on this machine, so that nobody can read a request on its way? */
bool url_is_private(const struct url *u);

struct cloud {
	struct loop *loop;
	struct pool *pool;
	struct tls_client *tls;
	char *account, *api_url, *domain, *proxy, *no_proxy, *default_user;
	char *header_sandbox_id, *header_sandbox_port, *header_traffic_token;
	struct url api, sandbox;	/* sandbox.host NULL = by domain */
	enum cloud_gate gate;
	struct status gate_why;		/* not OPEN: what callers are told */
	const struct flavour *flavour;
	bool plain_http2, check_key_format, ports_by_domain, allow_plain_http;
	struct quota *quota;		/* memory for its answers, a part of the pool's */

	char *key;			/* wiped when replaced */
	unsigned key_generation;
	char *key_group;		/* pool group of the API: account and generation */
	bool key_rejected;
	enum cloud_trust trust;
	struct status trust_why;
	void (*on_key_changed)(void *user);
	void *key_user;
	void (*on_date)(void *user, int64_t date_ms);
	void *date_user;
	bool (*on_key_rejected)(struct cloud *c, void *user);
	bool (*on_key_use)(struct cloud *c, void *user);
	void *user;

	struct limiter limiter;
	struct list calls;
	struct defer pump;
	struct timer wake;
	struct rng rng;
	uint64_t last_ok_at_ms, last_failure_at_ms;
	struct status last_failure;
	uint64_t out_failed, out_since_ms;	/* calls in a row that got no answer, and when the first of them ended */
	struct cloud_totals totals;
};

/* The limiter's route of all that is passed on (pass.h), behind those of our own calls. */
#define CLOUD_LIMITER_PASSED ((unsigned)FAULT_OPS)

/* Where requests to u go: fills *ret with borrowed strings. */
void cloud_target(const struct cloud *c, const struct url *u, struct pool_target *ret);

/* The fixed address of the agents names the ports of sandboxes below itself. */
bool cloud_names_ports(const struct cloud *c);

/* key.c. True: the key is another flavour's, or not of the flavour's form. It is never sent, and *ret says why. */
bool cloud_key_is_bad(const struct cloud *c, struct status *ret);
void cloud_key_missing(struct status *ret);
/* True: nothing may be sent with its key now, *ret_why says why. */
bool cloud_key_is_unfit(struct cloud *c, struct status *ret_why);

/* rest.c: the part of the account that runs calls. */
void cloud_start(struct cloud *c);
void cloud_stop(struct cloud *c);	/* ends all calls without a call of on_ready */

/* --- the agent of a sandbox (agent.c) --- */

#define AGENT_ERROR_MAX (64u * 1024)	/* body of an error answer; the rest is not read */

struct agent_ask {
	const struct envd_target *t;
	const char *method, *path;	/* path below the agent's address, with its query */
	const char *content_type;	/* NULL = none */
	const struct cloud_kv *headers;	/* lower case names */
	size_t n_headers;
	bool takes_gzip;		/* the answer's body may be compressed */
	bool basic_user;		/* name the user by Authorization: Basic */
	enum pool_body body_mode;
	const void *body;
	size_t n_body;
	bool is_stream;			/* of Connect: its length is not announced, see agent.c */
	enum pool_class cls;
	bool idempotent;
	uint64_t head_by_ms, deadline_ms;
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
};

/* NULL only without memory. */
struct pool_req *agent_request(const struct agent_ask *a);
/* The user to name, or NULL: the caller's, or the default one before 0.4.0. */
const char *agent_user(const struct envd_target *t);
/* The agent's address for requests with routing headers, for an account without a fixed one: the domain's shared host, or the host
 * of the agent's port. -EINVAL, -ENOMEM. */
must_check int agent_url(const struct envd_target *t, struct url *ret);
/* The agent's address for requests without routing headers: the account's fixed one, or the host of the agent's port.
 * `plain`: always the latter, with http://. Heap. */
char *agent_direct_url(const struct envd_target *t, bool plain);
/* Is the agent of this version or a later one? */
bool agent_has(const struct envd_target *t, const char *version);
uint64_t agent_deadline_ms(const struct envd_target *t);
/* Is it "~name", the one form of a path that the agent refuses? */
bool agent_is_foreign_home(const char *path);

/* Does the answer say that names in it are as proto/base/name.h writes them? */
bool agent_names_are_text(const struct http_stream *x);
/* A request that failed without an answer: its class. */
enum envd_class agent_failure(const struct pool_req *r, struct status *ret);

/* Moves body bytes to `b` up to max. 0, -EMSGSIZE above it, -ENOBUFS above the account's quota, -ENOMEM. */
struct buf;
must_check int agent_collect(struct http_stream *x, struct buf *b, size_t max);
/* The text for agent_collect()'s -ENOBUFS or -ENOMEM. */
const char *agent_no_room(int r);
/* What an answer that is all in `b` says, as evidence. */
void agent_answer(const struct http_stream *x, const struct buf *b, const char *route,
		  struct fault_answer *ret);
/* Reads an error answer into `b`, to its end or AGENT_ERROR_MAX, and says what it means. False: call it again when more has come. */
must_check bool agent_refused(struct http_stream *x, struct buf *b, const char *route,
			      enum fault_subject what, enum envd_class *ret_cls,
			      struct status *ret);

#endif
