/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/fault.h"

#include <stdio.h>

#include "proto/base/str.h"
#include "proto/wire/connect_code.h"

const char *fault_op_name(enum fault_op op)
{
	static const char *const names[FAULT_OPS] = {
		[FAULT_CREATE] = "create", [FAULT_CONNECT] = "connect", [FAULT_GET] = "get", [FAULT_LIST] = "list",
		[FAULT_KILL] = "kill", [FAULT_TIMEOUT] = "timeout", [FAULT_REFRESH] = "extend",
		[FAULT_PAUSE] = "pause", [FAULT_NETWORK] = "network", [FAULT_FORK] = "fork",
		[FAULT_METRICS] = "metrics", [FAULT_SNAPSHOT] = "snapshot",
		[FAULT_SNAPSHOTS] = "snapshot list", [FAULT_SNAPSHOT_DELETE] = "snapshot delete",
		[FAULT_TEMPLATES] = "template list",
	};

	return names[op];
}

/* "Sun, 06 Nov 1994 08:49:37 GMT": every answer has one, so nothing scans or prints it. */
int64_t fault_http_date_ms(const char *value)
{
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	char iso[] = "YYYY-MM-DDThh:mm:ssZ";
	unsigned month = 0;
	int64_t ms;

	if (!value || strlen(value) != 29 || memcmp(value + 3, ", ", 2) || value[7] != ' ' || value[11] != ' ' ||
	    value[16] != ' ' || memcmp(value + 25, " GMT", 4))
		return 0;
	while (month < 12 && memcmp(value + 8, months + 3 * month, 3))
		month++;
	if (month == 12)
		return 0;
	memcpy(iso, value + 12, 4);
	iso[5] = (char)('0' + (month + 1) / 10);
	iso[6] = (char)('0' + (month + 1) % 10);
	memcpy(iso + 8, value + 5, 2);
	if (iso[8] == ' ')
		iso[8] = '0';
	memcpy(iso + 11, value + 17, 8);
	return str_rfc3339_ms(iso, &ms) < 0 ? 0 : MAX(ms, (int64_t)0);
}

uint32_t fault_retry_after_ms(const char *value, int64_t wall_ms)
{
	uint64_t s;
	int64_t at;

	if (str_is_empty(value))
		return 0;
	if (!value[strspn(value, "0123456789")]) {	/* however many digits */
		if (str_u64(value, strlen(value), FAULT_RETRY_AFTER_MAX_MS / 1000, &s) < 0)
			return FAULT_RETRY_AFTER_MAX_MS;
		return (uint32_t)MAX(s, 1u) * 1000;
	}
	at = fault_http_date_ms(value);
	if (!at)
		return 0;
	return at <= wall_ms ? 1000u :
			       (uint32_t)MIN(at - wall_ms, (int64_t)FAULT_RETRY_AFTER_MAX_MS);
}

static void add_evidence(struct status *s, const struct fault_answer *a)
{
	status_evidence(s, "upstream_status", "%u", a->http_status);
	if (!str_is_empty(a->request_id))
		status_evidence(s, "upstream_request_id", "%s", a->request_id);
	if (*a->body.error_code)
		status_evidence(s, "error_code", "%s", a->body.error_code);
	if (a->route)
		status_evidence(s, "route", "%s", a->route);
}

static const char *said(const struct fault_answer *a)
{
	return *a->body.message ? a->body.message : "no message";
}

/* --- the control plane --- */

/* A 404 means "no such object" only when the API itself says so: a gateway's page or an unknown
 * route must not make us forget a sandbox. */
static bool names_missing_object(const struct fault_answer *a)
{
	return a->body.is_json && (a->body.code == 404 || a->body.code == -1) &&
	       !str_starts(a->body.message, "validation error");
}

static void rest_404(enum fault_op op, const struct fault_answer *a, struct cloud_result *r)
{
	if (!names_missing_object(a)) {
		r->outcome = fault_makes_one(op) ? CLOUD_REFUSED : CLOUD_UNKNOWN;
		status_set(&r->status, R_BAD_CLOUD_REPLY,
			   "%s: 404 that is not the API's: is the address right? (%s)", a->route, said(a));
		return;
	}
	r->outcome = CLOUD_REFUSED;
	if (op == FAULT_CREATE) {
		status_set(&r->status, R_TEMPLATE_NOT_FOUND, "the cloud has no such template: %s",
			   said(a));
		return;
	}
	r->not_found = true;
	if (op == FAULT_KILL || op == FAULT_SNAPSHOT_DELETE) {
		r->outcome = CLOUD_DONE;
		r->status = (struct status)STATUS_OK;
	} else if (op == FAULT_LIST || op == FAULT_SNAPSHOTS || op == FAULT_TEMPLATES) {
		status_set(&r->status, R_CLOUD_REFUSED, "%s: 404: %s", a->route, said(a));
	} else {
		status_set(&r->status, R_SANDBOX_NOT_FOUND, "the cloud has no such sandbox: %s", said(a));
	}
}

static void rest_4xx(enum fault_op op, const struct fault_answer *a, struct cloud_result *r)
{
	uint32_t wait = fault_retry_after_ms(a->retry_after, a->wall_ms);

	r->outcome = CLOUD_REFUSED;
	switch (a->http_status) {
	case 401:
		status_set(&r->status, R_KEY_REJECTED, "the cloud rejected the daemon's key: %s", said(a));
		break;
	case 403:
		status_set(&r->status, R_CLOUD_FORBIDDEN, "the cloud forbids %s: %s", a->route, said(a));
		break;
	case 404:
		rest_404(op, a, r);
		break;
	case 408:
		r->outcome = CLOUD_UNKNOWN;
		r->retry_later = true;
		status_set(&r->status, R_UNREACHABLE, "the cloud gave up waiting (408): %s", said(a));
		break;
	case 409:
		r->conflict = true;
		status_set(&r->status, R_STATE_CHANGING, "the sandbox is changing its state: %s", said(a));
		break;
	case 421:
		r->outcome = CLOUD_UNSENT;
		status_set(&r->status, R_UNREACHABLE, "the request met the wrong server (421)");
		break;
	case 425:
		r->retry_later = true;	/* it did nothing; nothing of ours is ever sent as early data */
		status_set(&r->status, R_UNREACHABLE, "the cloud asks to send it again (425)");
		break;
	case 429:
		if (wait) {
			r->retry_later = true;
			status_set(&r->status, R_RATE_LIMITED, "the cloud's rate limit: %s", said(a));
		} else {
			status_set(&r->status, R_CONCURRENCY_LIMIT,
				   "the account's limit of running sandboxes: %s", said(a));
		}
		break;
	default:
		status_set(&r->status, R_CLOUD_REFUSED, "the cloud refused (%u): %s", a->http_status,
			   said(a));
	}
	r->status.retry_after_ms = wait;
}

static void rest_5xx(enum fault_op op, const struct fault_answer *a, struct cloud_result *r)
{
	const char *code = a->body.error_code;

	r->outcome = CLOUD_UNKNOWN;
	/* The API itself says that the node was busy and the sandbox is as it was. */
	if ((op == FAULT_FORK || op == FAULT_SNAPSHOT) && a->http_status == 503 && a->body.is_json &&
	    a->body.code == 503)
		r->outcome = CLOUD_UNSENT;
	if (str_eq(code, CLOUD_ERROR_NO_NODE)) {
		r->outcome = CLOUD_REFUSED;
		status_set(&r->status, R_CLOUD_REFUSED, "the cloud has no machine for this: %s", said(a));
		return;
	}
	r->retry_later = a->http_status >= 502 && a->http_status <= 504;
	if (str_eq(code, CLOUD_ERROR_CAPACITY)) {
		r->outcome = CLOUD_UNSENT;	/* nothing was placed: another POST makes no second one */
		status_set(&r->status, R_UNREACHABLE, "the cloud has no capacity now: %s", said(a));
	} else if (r->retry_later) {
		status_set(&r->status, R_UNREACHABLE, "the cloud is not available (%u): %s",
			   a->http_status, said(a));
	} else {
		status_set(&r->status, R_BAD_CLOUD_REPLY, "the cloud failed (%u): %s", a->http_status,
			   said(a));
	}
	r->status.retry_after_ms = fault_retry_after_ms(a->retry_after, a->wall_ms);
}

void fault_rest(enum fault_op op, const struct fault_answer *a, struct cloud_result *r)
{
	r->http_status = a->http_status;
	if (a->http_status >= 500 && a->http_status < 600) {
		rest_5xx(op, a, r);
	} else if (a->http_status >= 400 && a->http_status < 500) {
		rest_4xx(op, a, r);
	} else {
		r->outcome = CLOUD_UNKNOWN;
		status_set(&r->status, R_BAD_CLOUD_REPLY, "%s: unexpected answer %u%s", a->route,
			   a->http_status,
			   a->http_status / 100 == 3 ? ", redirects are not followed" : "");
	}
	if (!status_ok(&r->status))
		add_evidence(&r->status, a);
}

bool fault_makes_one(enum fault_op op)
{
	return op == FAULT_CREATE || op == FAULT_FORK || op == FAULT_SNAPSHOT;
}

void fault_child(const struct cloud_error_body *b, struct status *ret)
{
	struct fault_answer a = {
		.http_status = b->code >= 400 && b->code < 600 ? (unsigned)b->code : 500,
		.route = "POST /sandboxes/{id}/fork",
		.body = *b,
	};
	struct cloud_result r = { 0 };

	if (a.http_status == 404) {
		status_set(ret, R_SNAPSHOT_NOT_FOUND, "the state to start it from has vanished: %s",
			   said(&a));
		add_evidence(ret, &a);
		return;
	}
	fault_rest(FAULT_FORK, &a, &r);
	*ret = r.status;
}

/* --- the agent --- */

static bool mentions(const char *message, const char *what)
{
	return strcasestr(message, what) != NULL;
}

static void path_refused(const char *message, struct status *ret)
{
	if (mentions(message, "not a directory"))
		status_set(ret, R_NOT_A_DIRECTORY, "%s", message);
	else if (mentions(message, "directory"))
		status_set(ret, R_IS_A_DIRECTORY, "%s", message);
	else
		status_set(ret, R_FIELD_INVALID, "%s", *message ? message : "the agent refused the path");
}

static void agent_internal(enum fault_subject what, const char *message, struct status *ret)
{
	if (mentions(message, "no space left") || mentions(message, "quota exceeded"))
		status_set(ret, R_NO_SPACE, "%s", message);
	else if (what == FAULT_INPUT)
		status_set(ret, R_PROCESS_STDIN_CLOSED, "the process takes no input: %s", message);
	else if (what >= FAULT_PATH && mentions(message, "not a directory"))
		status_set(ret, R_NOT_A_DIRECTORY, "%s", message);
	else if (what >= FAULT_PATH && mentions(message, "is a directory"))
		status_set(ret, R_IS_A_DIRECTORY, "%s", message);
	else
		status_set(ret, R_CLOUD_REFUSED, "the agent failed: %s", *message ? message : "no message");
}

static void not_found(enum fault_subject what, const char *message, struct status *ret)
{
	switch (what) {
	case FAULT_PROCESS:
	case FAULT_INPUT:
		status_set(ret, R_PROCESS_NOT_FOUND, "no such process: %s", message);
		break;
	case FAULT_PATH:
	case FAULT_DIR:
		status_set(ret, R_FILE_NOT_FOUND, "%s", *message ? message : "no such file");
		break;
	case FAULT_AGENT:
		status_set(ret, R_UNSUPPORTED, "the agent does not know this call: %s", message);
		break;
	}
}

static enum envd_class connect_fault(enum fault_subject what, enum ab_code code, const char *message,
				     struct status *ret)
{
	const char *m = message ? message : "";

	switch (code) {
	case CODE_CANCELLED:
		status_set(ret, R_UNREACHABLE, "the request was cut by the cloud: %s", m);
		return ENVD_LOST;
	case CODE_INVALID_ARGUMENT:
	case CODE_OUT_OF_RANGE:
		if (what == FAULT_DIR)
			status_set(ret, R_NOT_A_DIRECTORY, "%s", *m ? m : "not a directory");
		else if (what == FAULT_PATH)
			path_refused(m, ret);
		else
			status_set(ret, R_FIELD_INVALID, "%s", *m ? m : "the agent refused the request");
		return ENVD_ANSWERED;
	case CODE_DEADLINE_EXCEEDED:
		status_set(ret, R_DEADLINE_REQUEST, "the deadline passed in the sandbox: %s", m);
		return ENVD_LOST;
	case CODE_NOT_FOUND:
		not_found(what, m, ret);
		return ENVD_ANSWERED;
	case CODE_ALREADY_EXISTS:
		status_set_code(ret, CODE_ALREADY_EXISTS, "%s", *m ? m : "it exists already");
		return ENVD_ANSWERED;
	case CODE_PERMISSION_DENIED:
		status_set(ret, R_CLOUD_FORBIDDEN, "%s", *m ? m : "permission denied in the sandbox");
		return ENVD_ANSWERED;
	case CODE_RESOURCE_EXHAUSTED:
		status_set(ret, R_RATE_LIMITED, "%s", *m ? m : "too many requests to the sandbox");
		return ENVD_ANSWERED;
	case CODE_ABORTED:
		status_set(ret, R_STATE_CHANGING, "%s", *m ? m : "the sandbox is changing its state");
		return ENVD_ANSWERED;
	case CODE_UNIMPLEMENTED:
		status_set(ret, R_UNSUPPORTED, "the agent does not support this: %s", m);
		return ENVD_ANSWERED;
	case CODE_UNAVAILABLE:
		status_set(ret, R_UNREACHABLE, "the sandbox's agent is not available: %s", m);
		return ENVD_LOST;
	case CODE_DATA_LOSS:
		status_set(ret, R_TRUNCATED, "%s", *m ? m : "data was lost in the sandbox");
		return ENVD_ANSWERED;
	case CODE_UNAUTHENTICATED:
		/* The token is checked before Connect is: this one is about the user's name. */
		status_field(ret, "user", "no such user in the sandbox: %s", m);
		return ENVD_ANSWERED;
	case CODE_FAILED_PRECONDITION:
		status_set(ret, R_CLOUD_REFUSED, "%s", *m ? m : "not possible in this state");
		return ENVD_ANSWERED;
	default:	/* unknown, internal, and what is not invented yet */
		break;
	}
	agent_internal(what, m, ret);
	return ENVD_ANSWERED;
}

static enum envd_class bad_gateway(const struct fault_answer *a, struct status *ret)
{
	if (a->body.has_port) {		/* the node could not even connect: nothing was delivered */
		status_set(ret, R_SANDBOX_NOT_READY, "the agent in the sandbox does not listen: %s",
			   said(a));
		return ENVD_UNSENT;
	}
	status_set(ret, R_UNREACHABLE, "the sandbox does not run, says the edge: %s", said(a));
	return ENVD_NOT_RUNNING;
}

/* What is not Connect's own error: by number, as the Python SDK reads it. */
static enum ab_code code_of_http(int64_t status)
{
	switch (status) {
	case 400:
		return CODE_INVALID_ARGUMENT;
	case 403:
		return CODE_PERMISSION_DENIED;
	case 404:
		return CODE_NOT_FOUND;
	case 409:
		return CODE_ABORTED;	/* of the edge: the sandbox is between two states */
	case 413:
	case 429:
		return CODE_RESOURCE_EXHAUSTED;
	case 499:
		return CODE_CANCELLED;
	case 500:
		return CODE_INTERNAL;
	case 501:
	case 505:
		return CODE_UNIMPLEMENTED;
	case 503:
		return CODE_UNAVAILABLE;
	case 504:
		return CODE_DEADLINE_EXCEEDED;
	default:
		return CODE_UNKNOWN;
	}
}

enum envd_class fault_connect(enum fault_subject what, const char *code_name, const char *message,
			      struct status *ret)
{
	return connect_fault(what, connect_code_by_name(code_name), message, ret);
}

enum envd_class fault_envd(enum fault_subject what, const struct fault_answer *a, struct status *ret)
{
	enum envd_class cls;
	int64_t number = a->http_status;

	if (a->body.code >= 400 && a->body.code < 600)
		number = a->body.code;
	if (a->http_status < 400) {
		status_set(ret, R_BAD_CLOUD_REPLY, "%s: unexpected answer %u", a->route, a->http_status);
		cls = ENVD_LOST;
	} else if (*a->body.code_name) {
		cls = fault_connect(what, a->body.code_name, a->body.message, ret);
	} else if (number == 401 && mentions(a->body.message, "user") &&
		   !mentions(a->body.message, "token") && !mentions(a->body.message, "signature")) {
		status_field(ret, "user", "no such user in the sandbox: %s", said(a));
		cls = ENVD_ANSWERED;
	} else if (number == 401) {
		status_set(ret, R_CLOUD_REFUSED, "the sandbox refused its access token: %s", said(a));
		cls = ENVD_TOKEN;
	} else if (number == 502) {
		cls = bad_gateway(a, ret);
	} else if (number == 507) {
		status_set(ret, R_NO_SPACE, "no space in the sandbox: %s", said(a));
		cls = ENVD_ANSWERED;
	} else if (number == 421) {
		status_set(ret, R_UNREACHABLE, "the request met the wrong server (421)");
		cls = ENVD_UNSENT;
	} else {
		cls = connect_fault(what, code_of_http(number), a->body.message, ret);
	}
	ret->retry_after_ms = fault_retry_after_ms(a->retry_after, a->wall_ms);
	add_evidence(ret, a);
	return cls;
}
