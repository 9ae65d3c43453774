/* SPDX-License-Identifier: MIT */
/*
 * The calls of the cloud's control plane, for one account. Every call is asynchronous and
 * returns a struct cloud_call (NULL only without memory); its `done` comes exactly once, on the
 * loop, never from inside the call, and not after cloud_call_cancel().
 *
 * Repeats. A call that reads or is idempotent (get, lists, kill, set_timeout, refresh, connect, pause,
 * network, metrics, deleting a snapshot) is repeated inside its deadline after a connection failure
 * (daemon/upstream/retry.h) and after 408, 425, 429 and 502 to 504: as long as the cloud names a time by
 * Retry-After, otherwise five attempts. Create, fork and snapshot are sent again only when it is proven that the
 * cloud did not process them; otherwise their outcome is CLOUD_UNKNOWN and the sandbox module resolves it.
 */
#ifndef AB_DAEMON_CLOUD_CLOUD_H
#define AB_DAEMON_CLOUD_CLOUD_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/obs/histogram.h"
#include "daemon/common/obs/tally.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/cloud/model.h"
#include "proto/wire/trace.h"

struct cloud;
struct cloud_call;
struct flavour;
struct loop;
struct pool;
struct rng;
struct tls_client;

/* A field of every request to a cloud: a daemon's gateway that gets it ends the loop. */
#define CLOUD_HOP "agentboxd-hop"

struct cloud_options {
	struct loop *loop;
	struct pool *pool;
	struct tls_client *tls;		/* CA, client certificate; for every https address; not owned */
	const char *account;		/* name for logs; connections are never shared between accounts */
	const char *api_url;		/* NULL = "https://api." domain */
	const struct flavour *flavour;	/* NULL = AgentBox's; gives what is NULL below */
	const char *domain;
	const char *sandbox_url;	/* NULL = hosts below the domain */
	const char *api_key;		/* copied, locked, wiped at the end; NULL = KEY_MISSING until one is set */
	bool check_key_format;		/* the flavour's, before anything is sent */
	bool allow_plain_http;		/* http:// to other machines, where anybody reads the key on its way */
	bool ports_by_domain;		/* hosts of ports are below the domain, whatever sandbox_url is */
	const char *header_sandbox_id, *header_sandbox_port, *header_traffic_token;
	const char *default_user;	/* for agents before 0.4.0; NULL = "user" */
	const char *proxy;		/* "http://[user:pass@]host:port"; NULL = direct */
	const char *no_proxy;		/* comma list of host suffixes; NULL = none */
	bool plain_http2;		/* http:// addresses speak HTTP/2 with prior knowledge */
	uint32_t max_in_flight;		/* control-plane calls at once; 0 = 64 */
	/* The cloud answered 401. May call cloud_set_key() in here; then the call is sent once more. True: a key is
	 * on its way; the call waits until cloud_key_settled(). */
	bool (*on_key_rejected)(struct cloud *c, void *user);
	/* A call is about to begin. May call cloud_set_key(). True: a key is on its way; without one it waits, too.
	 * NULL = nothing. */
	bool (*on_key_use)(struct cloud *c, void *user);
	void *user;
};

/* 0, -ENOMEM, or -EINVAL: *ret_why (optional) says which option and why, for the configuration. */
must_check int cloud_new(const struct cloud_options *o, struct cloud **ret, struct status *ret_why);
/* Calls still open end without a call of on_ready. NULL is fine; returns NULL. */
struct cloud *cloud_free(struct cloud *c);
/* The pool's quota has another maximum: so has the part of it that is the account's. */
void cloud_size_memory(struct cloud *c);
void cloud_set_key(struct cloud *c, const char *api_key);
/* The key that a callback announced is set, or will not come: calls that waited for it go on, or fail. */
void cloud_key_settled(struct cloud *c);

enum cloud_trust {	/* is the key one of the account that the daemon's state belongs to? */
	CLOUD_KEY_TRUSTED,
	CLOUD_KEY_ASKED,	/* not known yet: calls without proves_key wait */
	CLOUD_KEY_STRANGE,	/* no: calls without proves_key fail, nothing is sent with it */
};
/* fn: another key is in force, and is CLOUD_KEY_ASKED until cloud_key_trust(), which fn may call. fn may come from
 * inside of calls, and begins and ends none. NULL: every key is trusted. */
void cloud_on_key_changed(struct cloud *c, void (*fn)(void *user), void *user);
/* why: what calls fail with; not for CLOUD_KEY_TRUSTED. */
void cloud_key_trust(struct cloud *c, enum cloud_trust trust, const struct status *why);
/* False: there is none. */
bool cloud_key_hash(const struct cloud *c, void (*sha256)(const void *p, size_t n, uint8_t ret[32]), uint8_t ret[32]);
/* fn: an answer to a call says what time it is (Date); before the call's done. It begins and ends no call. NULL: nobody is told. */
void cloud_on_date(struct cloud *c, void (*fn)(void *user, int64_t date_ms), void *user);
/* For the connections from now on; not owned, as in the options. */
void cloud_set_tls(struct cloud *c, struct tls_client *tls);
/* The same of the proxy: both are heap and taken over, NULL as in the options. What is secret in it was learnt before, so that this cannot
 * fail. */
void cloud_set_proxy(struct cloud *c, char *proxy, char *no_proxy);
must_check int cloud_learn_proxy(const char *proxy);	/* no line of the log shows its password; NULL is fine; -ENOMEM */
const char *cloud_proxy(const struct cloud *c);		/* NULL = direct */
/* Where requests go from now on; each as in the options. -ENOMEM, -EINVAL: as it was. */
must_check int cloud_set_address(struct cloud *c, const char *api_url, const char *domain, const char *sandbox_url);

/* Whether calls go to the cloud at all. The daemon changes it for a cloud that it runs itself (--local). */
enum cloud_gate {
	CLOUD_OPEN,
	CLOUD_AWAITED,	/* the cloud is starting: calls wait until their deadline; requests to sandboxes are refused */
	CLOUD_SHUT,	/* the cloud is down: calls are refused, also those that wait */
};
/* `why` is the status of what is refused or waits in vain; copied; NULL with CLOUD_OPEN. */
void cloud_set_gate(struct cloud *c, enum cloud_gate to, const struct status *why);

enum cloud_outcome {
	CLOUD_DONE,	/* the cloud did it; status OK */
	CLOUD_UNSENT,	/* proven unprocessed: safe to send again */
	CLOUD_REFUSED,	/* a definite answer; nothing was made or changed */
	CLOUD_UNKNOWN,	/* maybe processed */
};

/* Evidence in `status` where known: upstream_status, upstream_request_id, error_code, route. */
struct cloud_result {
	enum cloud_outcome outcome;
	struct status status;
	unsigned http_status;		/* 0 = no answer */
	bool not_found;			/* 404 from the resource (not from the route); kill: DONE too */
	bool conflict;			/* 409: it is changing its state */
	unsigned posts;			/* how many of its attempts may have reached the cloud */
	bool repeated;			/* an attempt before this answer may have been processed: what the answer
					 * finds done already may be our own doing */
	bool retry_later;		/* a later attempt may succeed (408, 425, 429, 502 to 504, no turn in the rate limit);
					 * status.retry_after_ms: when, 0 = not told */
	int64_t date_ms;		/* the answer's Date header, 0 = none */
	uint64_t took_ms;		/* from the first byte sent to the answer's end; 0 = not sent */
	struct cloud_sandbox *sandbox;	/* create, connect, get; take it by give(r->sandbox) */
	struct cloud_list *list;	/* list; take it by give(r->list) */
	struct cloud_children *children;	/* fork, and so on */
	struct cloud_metrics *metrics;
	struct cloud_snapshot *snapshot;
	struct cloud_snapshots *snapshots;
	struct cloud_templates *templates;
};

typedef void cloud_done_fn(struct cloud_result *r, void *user);

/* What every call takes. */
struct cloud_ask {
	uint64_t deadline_ms;	/* BOOTTIME; 0 = 75 s from now */
	uid_t uid;		/* whose share of the rate limit */
	struct trace trace;	/* of the work that it is done for; goes with the request */
	bool background;	/* housekeeping: after every user's call */
	bool proves_key;	/* its answer shows whose the key is: it is sent although the key is not trusted */
	cloud_done_fn *done;
	/* Called before each attempt's first byte; -errno: it is not sent. NULL = none. Never ends the call. */
	int (*sending)(void *user);
	void *user;
};

/* Ends interest: `done` will not come, an open request is reset. Never for a create that may have
 * been sent, but at the daemon's own end. NULL is fine. */
void cloud_call_cancel(struct cloud_call *c);
/* The caller of a create went away. Not yet sent: it is withdrawn and `done` comes with CLOUD_UNSENT.
 * Sent: its answer is still read and comes by `done` as if nothing had happened. */
void cloud_call_abandon(struct cloud_call *c);
/* A create: may bytes of it have reached the cloud? (crash protocol, diagnostics) */
bool cloud_call_was_sent(const struct cloud_call *c);

struct cloud_call *cloud_create(struct cloud *c, const struct cloud_create *what,
				const struct cloud_ask *ask);
/* Extends to at least timeout_s from now, resumes a paused one. timeout_s > 0. */
struct cloud_call *cloud_connect(struct cloud *c, const char *id, uint32_t timeout_s,
				 const struct cloud_ask *ask);
struct cloud_call *cloud_get(struct cloud *c, const char *id, const struct cloud_ask *ask);
/* 204 and 404 are both CLOUD_DONE; not_found tells them apart. */
struct cloud_call *cloud_kill(struct cloud *c, const char *id, const struct cloud_ask *ask);
struct cloud_call *cloud_set_timeout(struct cloud *c, const char *id, uint32_t timeout_s,
				     const struct cloud_ask *ask);
/* Extends only. The cloud takes at most 3600 s a call: more is cut to that. */
struct cloud_call *cloud_refresh(struct cloud *c, const char *id, uint32_t for_s,
				 const struct cloud_ask *ask);

/* 409 is CLOUD_REFUSED with `conflict`: paused already, or between two states. */
struct cloud_call *cloud_pause(struct cloud *c, const char *id, bool keep_memory,
			       const struct cloud_ask *ask);
/* Replaces the egress settings as a whole; ingress is not sent. */
struct cloud_call *cloud_put_network(struct cloud *c, const char *id, const struct cloud_network *network,
				     enum tri allow_internet_access, const struct cloud_ask *ask);
/* count > 0, timeout_s > 0. DONE also if every child failed. */
struct cloud_call *cloud_fork(struct cloud *c, const char *id, uint32_t count, uint32_t timeout_s,
			      const struct cloud_ask *ask);
/* Moments in s since 1970; 0 = the cloud's default. */
struct cloud_call *cloud_metrics(struct cloud *c, const char *id, int64_t start_s, int64_t end_s,
				 const struct cloud_ask *ask);
/* name NULL or "" = none. */
struct cloud_call *cloud_snapshot(struct cloud *c, const char *id, const char *name,
				  const struct cloud_ask *ask);
/* Every page. sandbox, name: NULL or "" = any. */
struct cloud_call *cloud_snapshots(struct cloud *c, const char *sandbox, const char *name,
				   const struct cloud_ask *ask);
/* As cloud_kill(). */
struct cloud_call *cloud_snapshot_delete(struct cloud *c, const char *snapshot, const struct cloud_ask *ask);
/* The templates that the account may use. In pages, of which every one is read; `whole`: by the route that answers with all at once,
 * which older clouds have alone (they answer 404 to the other). */
struct cloud_call *cloud_templates(struct cloud *c, bool whole, const struct cloud_ask *ask);

struct cloud_filter {
	const struct cloud_kv *metadata;	/* all must match */
	size_t n_metadata;
	bool running, paused;			/* neither = both */
	uint32_t limit;				/* of a page, 1..100; 0 = 100 */
	const char *token;			/* of cloud_list_page */
};

struct cloud_call *cloud_list_page(struct cloud *c, const struct cloud_filter *f,
				   const struct cloud_ask *ask);
/* Every page. CLOUD_DONE = complete: the last page was seen (an id that moved meanwhile comes once).
 * Anything less is a failure without a list. */
struct cloud_call *cloud_list_all(struct cloud *c, const struct cloud_filter *f,
				  const struct cloud_ask *ask);

/* The public host of a port, e.g. "3000-i0a….agentbox-runtime.ru". `domain` NULL = the account's. Heap. */
char *cloud_port_host(const struct cloud *c, const char *sandbox_id, uint16_t port,
		      const char *domain);
const char *cloud_port_scheme(const struct cloud *c);	/* of its address: "https" or "http" */
const char *cloud_traffic_header(const struct cloud *c);	/* name of the traffic token's header */
const char *cloud_api_url(const struct cloud *c);

/* For Status. */
struct cloud_health {
	bool key_present, key_rejected;
	uint64_t last_ok_at_ms, last_failure_at_ms;	/* BOOTTIME; 0 = never */
	struct status last_failure;			/* of the transport or the key */
	uint32_t in_flight, max_in_flight, queued;
	uint64_t limited_until_ms;			/* 429; 0 = not */
};
void cloud_health(const struct cloud *c, struct cloud_health *ret);

struct cloud_totals {			/* since the start, of calls of the control plane */
	struct tally ends;
	struct histogram took;		/* from the first attempt on the wire to the end, in whole milliseconds */
	struct histogram waited;	/* for the account's turn, each attempt */
	uint64_t limited;		/* answers of 429 */
	uint64_t repeats;		/* attempts after the first of a call */
};
const struct cloud_totals *cloud_totals(const struct cloud *c);

struct cloud_limit {			/* a kind of call that has to wait, or did lately */
	const char *route;		/* "create", … */
	uint32_t in_flight, window;	/* at once; window: the most, while it is being tried out again */
	uint32_t burst, per_s_milli;	/* the cloud's budget for it; 0 = not told */
	uint64_t at_ms;			/* BOOTTIME: the next may begin then; 0 = at once */
};
/* Number i of those that the cloud limits, or false. */
bool cloud_limits(const struct cloud *c, size_t i, struct cloud_limit *ret);

struct cloud_rate {
	uint32_t per_s_milli;		/* calls a second, in thousandths */
	uint32_t tokens;		/* that may begin at once */
};
/* What the cloud gives to extensions: refreshes, and the look at each after it. False: it told nothing, and
 * refused nothing. */
bool cloud_extend_rate(const struct cloud *c, struct cloud_rate *ret);

#endif
