/* SPDX-License-Identifier: MIT */
/*
 * One call of the control plane: matched, authenticated, its body read and parsed; then one handler
 * answers it, at once or later. Private to rest*.c.
 */
#ifndef AB_DAEMON_LOCAL_API_REST_H
#define AB_DAEMON_LOCAL_API_REST_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/http/answer.h"
#include "daemon/common/http/query.h"
#include "daemon/local/state/local.h"
#include "daemon/local/state/state.h"
#include "proto/base/buf.h"
#include "proto/cloud/json.h"
#include "proto/cloud/netrules.h"
#include "proto/cloud/route.h"
#include "proto/wire/fields.h"

#define REST_DISK_MB	    10240u	/* shown; the space is the machine's */

struct rest;
typedef void rest_handler(struct rest *r);

struct rest {
	uint32_t magic;
	struct local *l;
	struct http_stream *x;		/* NULL: the client is gone */
	enum cloud_route to;		/* CLOUD_ROUTE_UNKNOWN until it is found */
	const struct flavour *flavour;	/* in whose words it is answered: that of the key */
	const char *team;
	char id[ROUTE_ID_MAX + 1];
	struct query query;
	struct buf body;
	json_t *in;			/* an object; NULL without a body */
	struct fields extra;		/* headers of the answer */
	struct sandbox_wait wait;
	unsigned rounds;		/* transitions waited for */
	bool began;			/* this call began the one that is waited for */
	struct grave grave;
};

/* Each of these ends the call: `r` is gone when they return. */
void rest_reply(struct rest *r, unsigned status, json_t *body);	/* steals body; NULL = none, with 204 */
void rest_reply_text(struct rest *r, unsigned status, char *json);	/* the same with its text, heap */
void rest_reply_doc(struct rest *r, unsigned status, enum cloud_doc_id doc, const void *v, unsigned part);
void rest_fail(struct rest *r, unsigned status, const char *fmt, ...) printf_like(3, 4);
void rest_fail_code(struct rest *r, unsigned status, const char *error_code, const char *fmt, ...)
	printf_like(4, 5);
/* 400 with the prefix of the schema's check. */
void rest_invalid(struct rest *r, const char *fmt, ...) printf_like(2, 3);
/* 400: exists in the cloud, not here. */
void rest_unsupported(struct rest *r, const char *what);

/* With a list; it is freed. Ends the call. */
void rest_list_reply(struct rest *r, unsigned status, struct doc_list *l);

/* The body, which the cloud knows as `doc`, into *ret: what it does not say stays. False after the call ended with
 * 400; *ret is zero then. */
bool rest_take(struct rest *r, enum cloud_doc_id doc, void *ret);

/* The caller's sandbox in a state that others may see; NULL after a 404. */
struct sandbox *rest_sandbox(struct rest *r);
/* The same in any state; NULL if there is none, and nothing was answered. */
struct sandbox *rest_find(struct rest *r);
/* For a change of a running one: 409 in a transition, 404 if it is paused. */
struct sandbox *rest_running(struct rest *r);
void rest_no_sandbox(struct rest *r);	/* 404 */
/* Runs the handler again when the transition is over; 409 after too many. */
void rest_wait(struct rest *r, struct sandbox *s);
/* Says in a header what the cloud would give and this machine cannot. */
void rest_limit(struct rest *r, const char *what);
/* Of a sandbox that is about to run, with these settings: no-internet on some machines, no-memory if that is
 * so, no-tls-rules if it has rules that set headers. */
void rest_limits(struct rest *r, const struct cloud_network *network, bool no_memory);
/* A timeout of the body, from 1 to the maximum; false after the call ended with 400. */
bool rest_timeout_ok(struct rest *r, uint32_t timeout_s);

/* What every sandbox has here, as it is shown. */
uint32_t rest_cpu_count(const struct state *st);
uint32_t rest_memory_mb(const struct state *st);
/* The answer that describes a sandbox: borrowed texts, valid until the sandbox changes. */
void rest_view(const struct rest *r, const struct sandbox *s, struct cloud_sandbox *ret);
/* … as a list and a detail show it: the parts that it has. */
unsigned rest_listed_part(const struct sandbox *s);
/* UNKNOWN for one that is in no list. */
enum cloud_state rest_state(const struct sandbox *s);

/* Network settings of a body, checked. False after the call ended. */
bool rest_network_ok(struct rest *r, const struct cloud_network *n, const struct netrules_with *with);

/* rest_create.c, rest_list.c, rest_sandbox.c, rest_pause.c, rest_snap.c, rest_template.c, rest_fork.c, rest_net.c, rest_log.c */
rest_handler rest_create_v1, rest_create_v2, rest_list_v1, rest_list_v2, rest_get, rest_delete,
	rest_timeout, rest_refreshes, rest_connect_v1, rest_connect_v2, rest_resume, rest_health,
	rest_pause, rest_snapshot, rest_snapshots, rest_delete_template, rest_fork, rest_set_network,
	rest_template_alias, rest_template_tags, rest_template, rest_templates_v1, rest_templates_v2,
	rest_tags_assign, rest_tags_delete,
	rest_metrics, rest_metrics_of, rest_logs_v1, rest_logs_v2;

#endif
