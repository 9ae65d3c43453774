/* SPDX-License-Identifier: MIT */
/*
 * One call of the control plane: its body gathered and read, its route's handler called once, which starts an operation of the
 * core and answers when that is done. Private to control*.c.
 *
 * A call that has answered is gone: what ends it says so. While it waits its exchange is watched; when the client leaves, the
 * operation is cancelled, which takes back nothing that was sent.
 */
#ifndef AB_DAEMON_GATEWAY_CONTROL_H
#define AB_DAEMON_GATEWAY_CONTROL_H

#include <jansson.h>

#include "daemon/common/http/answer.h"
#include "daemon/common/http/query.h"
#include "daemon/gateway/impl.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/cloud/json.h"
#include "proto/cloud/route.h"
#include "proto/wire/fields.h"
#include "proto/wire/trace.h"

#define CONTROL_PARSED	    4u		/* what is parsed takes up to so many times its text */
#define CONTROL_DEADLINE_MS 70000u	/* of a call: the cloud's own */

struct gateway_control {
	uint32_t magic;
	struct list node;		/* in g->controls */
	struct gateway *g;
	struct http_stream *x;		/* NULL: answered */
	enum cloud_route to;		/* CLOUD_ROUTE_UNKNOWN until it is found */
	const struct flavour *flavour;	/* in whose words it is answered */
	struct principal who;
	struct token *token;		/* a reference: its scope, its run, and the pidfd of `who` */
	uint64_t deadline_ms;		/* BOOTTIME */
	struct trace trace;		/* of the work that the request is a part of */
	char id[CLOUD_SANDBOX_ID_MAX + 1];	/* of the path; "" = none there */
	struct query query;
	struct buf body;
	json_t *in;			/* an object; NULL without a body */
	struct quota *quota;		/* of the token's uid; a reference; NULL = nobody counts */
	size_t parsed;			/* charged to it for what `in` takes */
	struct fields extra;		/* headers of the answer */
	struct sandbox_op *op;		/* what it waits for */
	char made[MADE_TOKEN_TEXT];	/* the token in the document that is written now */
	void *state;			/* of its handler, freed by … */
	void (*free_state)(void *state);
	struct grave grave;
};

typedef void control_handler(struct gateway_control *c);

/* Each of these ends the call. */
void control_reply(struct gateway_control *c, unsigned status, char *json);	/* takes json; NULL only with 204 */
void control_reply_doc(struct gateway_control *c, unsigned status, enum cloud_doc_id doc, const void *v, unsigned part);
void control_reply_list(struct gateway_control *c, unsigned status, struct doc_list *l);
void control_refuse(struct gateway_control *c, unsigned status, const char *fmt, ...) printf_like(3, 4);
void control_invalid(struct gateway_control *c, const char *fmt, ...) printf_like(2, 3);	/* 400 of the schema's check */
void control_fail(struct gateway_control *c, const struct status *st);
void control_no_memory(struct gateway_control *c);

/* The body, which the contract knows as `doc`: what it does not say stays. False after the call ended. */
bool control_take(struct gateway_control *c, enum cloud_doc_id doc, void *ret);
/* The head of a call of the core about that sandbox, or NULL. */
struct sandbox_call control_call(struct gateway_control *c, const char *sandbox);
/* What a call of the core returned. The call ends if it did not begin. */
void control_started(struct gateway_control *c, int r);
/* The request as it came, to the cloud of that account; its answer is the call's. Ends the call; the body was not looked at. */
void control_pass_on(struct gateway_control *c, const char *account);
/* In `done`, before anything else. */
struct gateway_control *control_done(void *user);
/* The token is of a run: what it makes is leased to the run's process. */
bool control_is_run(const struct gateway_control *c);
/* What the token has for creates that do not say it. False after the call ended. */
bool control_token_policy(struct gateway_control *c, struct policy_change *ret);
/* How old an answer is, and where from. 0 or -errno. */
must_check int control_put_age(struct gateway_control *c, enum sandbox_source source, int64_t as_of_ms);
/* A header of the request; NULL if it is not there. */
const char *control_header(const struct gateway_control *c, const char *name);

/* control_view.c: the document of a sandbox, with texts of `v` and of `c`, until the next one. Its metadata is heap. -ENOMEM. */
must_check int control_view(struct gateway_control *c, const struct sandbox_view *v, struct cloud_sandbox *ret);
/* What the API says of it and the contract does not: warm, end_pending. 0 or -errno. */
must_check int control_put_warm(struct gateway_control *c, const struct sandbox_view *v);
void control_view_fini(struct cloud_sandbox *s);
enum cloud_state control_state(enum sandbox_state s);	/* UNKNOWN for what is in no list */
/* With the tokens and the address of a sandbox that was made, connected or resumed. Ends the call. */
void control_reply_created(struct gateway_control *c, unsigned status, const struct sandbox_view *v);

/* control_list.c, control_sandbox.c, control_connect.c, control_create.c, control_fork.c, control_metrics.c, control_snap.c */
control_handler control_list_v1, control_list_v2, control_get, control_delete, control_timeout, control_refresh,
	control_pause, control_network, control_connect_v1, control_connect_v2, control_resume, control_create_v1,
	control_create_v2, control_fork, control_metrics, control_metrics_of, control_logs, control_health,
	control_snapshot, control_snapshots, control_template_delete;

#endif
