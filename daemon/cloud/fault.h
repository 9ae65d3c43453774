/* SPDX-License-Identifier: MIT */
/*
 * Translates an HTTP or Connect failure of the cloud to a struct status with its evidence, and says how far
 * the request got [pure].
 */
#ifndef AB_DAEMON_CLOUD_FAULT_H
#define AB_DAEMON_CLOUD_FAULT_H

#include <stdbool.h>

#include "daemon/cloud/cloud.h"
#include "daemon/cloud/envd.h"
#include "proto/cloud/error.h"

#define FAULT_RETRY_AFTER_MAX_MS (300u * 1000)	/* nobody waits longer, whatever is asked for */

struct fault_answer {
	unsigned http_status;
	const char *retry_after;	/* header or NULL */
	const char *request_id;		/* header or NULL */
	const char *route;		/* "POST /sandboxes" */
	int64_t wall_ms;		/* for a Retry-After that is a date */
	struct cloud_error_body body;
};

enum fault_op {		/* of the control plane; also the limiter's routes */
	FAULT_CREATE,
	FAULT_CONNECT,
	FAULT_GET,
	FAULT_LIST,
	FAULT_KILL,
	FAULT_TIMEOUT,
	FAULT_REFRESH,
	FAULT_PAUSE,
	FAULT_NETWORK,
	FAULT_FORK,
	FAULT_METRICS,
	FAULT_SNAPSHOT,
	FAULT_SNAPSHOTS,
	FAULT_SNAPSHOT_DELETE,
	FAULT_TEMPLATES,
	FAULT_OPS,
};

const char *fault_op_name(enum fault_op op);	/* "create", … */
/* An answer that is not the success of `op`: fills outcome, status and the flags of `r`. */
void fault_rest(enum fault_op op, const struct fault_answer *a, struct cloud_result *r);

/* The `error` of one child in a fork's 2xx answer. */
void fault_child(const struct cloud_error_body *b, struct status *ret);
/* Would a repeat make a second sandbox or snapshot? Then it is sent again only if proven unprocessed. */
bool fault_makes_one(enum fault_op op);

enum fault_subject {	/* what "not found" is about */
	FAULT_PROCESS,
	FAULT_INPUT,	/* of a process */
	FAULT_PATH,
	FAULT_DIR,	/* a path that must be a directory: any other refusal of it was ruled out before */
	FAULT_AGENT,
};

/* A Connect error by its name (unary body or end-of-stream record). */
enum envd_class fault_connect(enum fault_subject what, const char *code_name, const char *message,
			      struct status *ret);
/* Any failed HTTP answer of an agent's address: Connect's, the agent's own, the edge's. */
enum envd_class fault_envd(enum fault_subject what, const struct fault_answer *a, struct status *ret);

/* "120" or an HTTP date → ms, capped; 0 if absent or malformed. */
uint32_t fault_retry_after_ms(const char *value, int64_t wall_ms);
/* "Sun, 06 Nov 1994 08:49:37 GMT" → ms since 1970; 0 if malformed. */
int64_t fault_http_date_ms(const char *value);

#endif
