/* SPDX-License-Identifier: MIT */
/*
 * Questions about one sandbox: Get, IsRunning, GetHost, and the target of command and file calls.
 * A row that is fresh enough answers by itself; otherwise the control plane is asked, once for all calls
 * that want to know. If it does not answer, Get answers with the row and CACHE_CLOUD_UNREACHABLE.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

struct args {
	uint64_t max_staleness_ms;	/* Get */
	uint32_t port;			/* GetHost */
	struct sandbox *temp;		/* owned: a sandbox without a row, as the cloud described it */
	bool resumed;			/* resolve: this call has resumed it, and does not do so again */
};

static void op_get_fini_args(void *args)
{
	struct args *a = args;

	sandbox_free(a->temp);
}

/* A sandbox of the caller's account without a row. Those of other uids on this host have rows, or
 * get them by their tags, so this one need not be hidden from the caller. */
static struct sandbox *view_of_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	struct args *a = op->args;

	a->temp = sandbox_free(a->temp);
	if (sandbox_from_cloud(op->account, s, &a->temp) < 0)
		return NULL;
	a->temp->uid = op->who.uid;
	core_policy_default(op->core, op->who.uid, a->temp->template_id, &a->temp->policy);
	a->temp->token_known = true;
	return a->temp;
}

/* What a fetch brought, as the caller may see it. NULL: *ret_st says why not. */
static struct sandbox *sandbox_of_result(struct sandbox_op *op, const struct fetch_result *result,
					 struct status *ret_st)
{
	struct sandbox *b = result->sandbox;

	if (b && grant_row(&op->who, b->uid) == GRANT_OK)
		return b;
	switch (op_found(op, result)) {
	case OP_FOUND_NO_ANSWER:
		*ret_st = *result->st;
		return NULL;
	case OP_FOUND_NOTHING:
		ref_not_found(ret_st, op->ref);
		return NULL;
	case OP_FOUND_ROW:
	case OP_FOUND_STRANGER:
		break;
	}
	b = view_of_stranger(op, result->s);
	if (!b)
		status_errno(ret_st, -ENOMEM, op->kind->name);
	return b;
}

/* GETs the sandbox of this id, which becomes op->id; on_ready goes on. */
static void ask(struct sandbox_op *op, const char *id,
		void (*on_ready)(struct fetch_wait *w, const struct fetch_result *result))
{
	op->fetch.fn = on_ready;
	if (text_set(&op->id, id) < 0 ||
	    fetch_join(op->core, op->account, op->id, false, &op->fetch) < 0)
		op_fail_errno(op, -ENOMEM);
}

/* The row that op->ref means. NULL: the op has ended, or on_ready goes on with an id that has no row. */
static struct sandbox *row_or_ask(struct sandbox_op *op,
				  void (*on_ready)(struct fetch_wait *w,
						   const struct fetch_result *result))
{
	scratch_ struct status st;
	struct sandbox *b;

	switch (ref_find(op->core, &op->who, op->ref, &b, &op->account, &st)) {
	case REF_NONE:
		op_fail(op, &st);
		return NULL;
	case REF_ID:
		ask(op, op->ref, on_ready);
		return NULL;
	case REF_SANDBOX:
		break;
	}
	op->account = b->account;
	return b;
}

/* A row that says running after its own end is not fresh. */
static bool is_fresh(const struct sandbox *b, uint64_t max_staleness_ms)
{
	uint64_t now = clock_boot_ms();

	if (b->state == SANDBOX_GONE || b->state == SANDBOX_KILLING)
		return true;
	if (!b->fresh_at_ms || b->fresh_at_ms + max_staleness_ms <= now)
		return false;
	return b->state != SANDBOX_RUNNING || !b->end_at_ms ||
	       account_cloud_now(b->account) < b->end_at_ms;
}

/* --- Get --- */

static void on_got(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status st;
	struct sandbox *b = sandbox_of_result(op, result, &st);

	if (!b) {
		op_fail(op, &st);
		return;
	}
	sandbox_claim(op->core, b, op->who.uid);
	op_end_claimed(op, b,
		       result->end == FETCH_FAILED ? SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE
						 : SANDBOX_FROM_CLOUD);
}

static void get_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct sandbox *b = row_or_ask(op, on_got);

	if (!b)
		return;
	if (is_fresh(b, a->max_staleness_ms)) {
		sandbox_claim(op->core, b, op->who.uid);
		op_end_claimed(op, b, SANDBOX_FROM_CACHE);
		return;
	}
	ask(op, b->id, on_got);
}

static void get_expire(struct sandbox_op *op)
{
	struct sandbox *b = op->id ? core_find(op->core, op->account, op->id) : NULL;
	struct status st;

	if (b && grant_row(&op->who, b->uid) == GRANT_OK) {
		op_end_sandbox_of(op, b, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE);
		return;
	}
	op_expired_status(op, &st);
	op_fail(op, &st);
}

static const struct op_kind get_kind = {
	.name = "Get",
	.start = get_start,
	.expire = get_expire,
	.fail = op_fail_sandbox,
	.args_size = sizeof(struct args),
	.fini_args = op_get_fini_args,
};

int sandbox_get(struct sandbox_core *core, const struct sandbox_call *call,
		uint64_t max_staleness_ms, sandbox_view_fn *done, struct sandbox_op **ret)
{
	struct args a = { .max_staleness_ms = max_staleness_ms };

	if (max_staleness_ms == SANDBOX_STALENESS_DEFAULT)
		a.max_staleness_ms = core->max_staleness_ms;
	return op_new(core, &get_kind, call, &a, (union op_done){ .sandbox = done }, ret);
}

/* --- the target of calls to the agent --- */

/* Answers with the target of a running sandbox; for any other the op fails with the reason. */
static void end_with_target(struct sandbox_op *op, struct sandbox *b)
{
	static const struct status ok = STATUS_OK;
	scratch_ struct status st;
	struct sandbox_target t;

	if (b->state != SANDBOX_RUNNING) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
		return;
	}
	sandbox_claim(op->core, b, op->who.uid);
	sandbox_target_of(b, &t);
	op_end_target(op, &ok, &t);
}

static void on_target(struct fetch_wait *w, const struct fetch_result *result);

static void on_resumed(struct sandbox_op *op, const struct status *st, bool yes)
{
	if (status_ok(st))
		ask(op, op->id, on_target);
	else
		op_fail(op, st);
}

/* policy.resume_on_use: this call resumes the paused sandbox, once. False: it does not. */
static bool resumes(struct sandbox_op *op, struct sandbox *b)
{
	struct args *a = op->args;
	uint32_t s = b->timeout_s ? b->timeout_s : RULES_TIMEOUT_DEFAULT_MS / 1000, asked_s;

	if (b->state != SANDBOX_PAUSED || !b->policy.resume_on_use || a->resumed || b == a->temp)
		return false;
	a->resumed = true;
	log_info("sandbox_resumed", "sandbox=%s uid=%u by=use", b->id, owner_uid(op->who.uid));
	op->on_waited = on_resumed;
	if (text_set(&op->id, b->id) < 0 || transition_join_resume(op->core, b, s, op, &asked_s) < 0)
		op_fail_errno(op, -ENOMEM);
	return true;
}

static void on_target(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status st;
	struct sandbox *b = sandbox_of_result(op, result, &st);

	if (b && result->end == FETCH_FAILED && !b->token_known) {
		st = *result->st;
		b = NULL;
	}
	if (!b)
		op_fail(op, &st);
	else if (!resumes(op, b))
		end_with_target(op, b);
}

/* A row that says running is used without asking, since the agent's answer shows if it is wrong. Before a refusal the
 * cloud is asked. */
static void resolve_start(struct sandbox_op *op)
{
	struct sandbox *b = row_or_ask(op, on_target);

	if (!b)
		return;
	if (!sandbox_is_live(b) ||
	    (b->state == SANDBOX_RUNNING && b->token_known &&
	     (!b->end_at_ms || account_cloud_now(b->account) < b->end_at_ms)))
		end_with_target(op, b);
	else
		ask(op, b->id, on_target);
}

static const struct op_kind resolve_kind = {
	.name = "resolve",
	.start = resolve_start,
	.fail = op_fail_target,
	.args_size = sizeof(struct args),
	.fini_args = op_get_fini_args,
};

int sandbox_resolve(struct sandbox_core *core, const struct sandbox_call *call,
		    sandbox_target_fn *done, struct sandbox_op **ret)
{
	return op_new(core, &resolve_kind, call, NULL, (union op_done){ .target = done }, ret);
}

/* --- evidence --- */

static void on_verdict(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status st;
	struct sandbox *b;

	if (result->end == FETCH_FAILED) {
		op_fail(op, result->st);
		return;
	}
	b = sandbox_of_result(op, result, &st);
	if (b)
		end_with_target(op, b);
	else
		op_fail(op, &st);
}

static void evidence_start(struct sandbox_op *op)
{
	struct sandbox *b = core_find(op->core, op->account, op->ref);

	if (b && !sandbox_is_live(b))
		end_with_target(op, b);
	else
		ask(op, op->ref, on_verdict);
}

static const struct op_kind evidence_kind = {
	.name = "inquiry",
	.start = evidence_start,
	.fail = op_fail_target,
	.args_size = sizeof(struct args),
	.fini_args = op_get_fini_args,
};

int sandbox_note_evidence(struct sandbox_core *core, const struct sandbox_call *call,
			  const char *account, enum sandbox_evidence what, sandbox_target_fn *done,
			  struct sandbox_op **ret)
{
	const struct principal self = { .pidfd = -1, .admin = true };
	struct account *a = core_account_by_name(core, account);
	struct sandbox_call own = *call;
	struct sandbox *b;
	int r;

	if (!a)
		return -EINVAL;
	b = core_find(core, a, call->sandbox);
	if (b && what == SANDBOX_SAW_REFUSED)
		b->token_known = false;
	own.who = &self;
	r = op_new(core, &evidence_kind, &own, NULL, (union op_done){ .target = done }, ret);
	if (!r)
		(*ret)->account = a;
	return r;
}

/* --- IsRunning --- */

static void running_end(struct sandbox_op *op, bool yes)
{
	struct status ok = STATUS_OK;

	op_end_yes(op, &ok, yes);
}

/* The edge has no such sandbox. The GET brought the row up to date; the answer is "no" in any case, since the agent
 * did not answer. */
static void on_running_checked(struct fetch_wait *w, const struct fetch_result *result)
{
	running_end(op_from_fetch(w), false);
}

static void on_running_probed(void *user, enum sandbox_probe_result result, const struct status *why)
{
	struct sandbox_op *op = op_from(user);
	struct status st;

	op->probe = NULL;
	switch (result) {
	case SANDBOX_PROBE_HEALTHY:
		running_end(op, true);
		return;
	case SANDBOX_PROBE_ABSENT:
		ask(op, op->id, on_running_checked);
		return;
	case SANDBOX_PROBE_NO_ANSWER:
		break;
	}
	st = why ? *why : (struct status)STATUS_OK;
	if (status_ok(&st))
		status_set(&st, R_UNREACHABLE, "the agent of sandbox %s does not answer", op->id);
	op_fail(op, &st);
}

static void running_probe(struct sandbox_op *op, struct sandbox *b)
{
	struct sandbox_target t;

	if (b->state != SANDBOX_RUNNING) {
		running_end(op, false);
		return;
	}
	sandbox_claim(op->core, b, op->who.uid);
	sandbox_target_of(b, &t);
	if (text_set(&op->id, b->id) == 0)
		op->probe = op->core->prober.start(&t, op_ask_until(op), on_running_probed, op,
						   op->core->prober.user);
	if (!op->probe)
		op_fail_errno(op, -ENOMEM);
}

static void on_running_found(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status st;
	struct sandbox *b = sandbox_of_result(op, result, &st);

	if (b)
		running_probe(op, b);
	else
		op_fail(op, &st);
}

static void running_start(struct sandbox_op *op)
{
	struct sandbox *b = row_or_ask(op, on_running_found);

	if (!b)
		return;
	if (b->state == SANDBOX_RUNNING || is_fresh(b, op->core->max_staleness_ms))
		running_probe(op, b);
	else
		ask(op, b->id, on_running_found);
}

static const struct op_kind running_kind = {
	.name = "IsRunning",
	.start = running_start,
	.fail = op_fail_yes,
	.args_size = sizeof(struct args),
	.fini_args = op_get_fini_args,
};

int sandbox_is_running(struct sandbox_core *core, const struct sandbox_call *call,
		       sandbox_bool_fn *done, struct sandbox_op **ret)
{
	return op_new(core, &running_kind, call, NULL, (union op_done){ .yes = done }, ret);
}

/* --- GetHost --- */

static void end_with_host(struct sandbox_op *op, struct sandbox *b)
{
	struct args *a = op->args;
	struct cloud *cloud = b->account->cloud;
	struct status st = STATUS_OK;
	struct sandbox_host h;
	char *host, *url;

	if (b->state == SANDBOX_GONE || b->state == SANDBOX_KILLING) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
		return;
	}
	host = cloud_port_host(cloud, b->id, (uint16_t)a->port, b->domain[0] ? b->domain : NULL);
	url = host ? str_printf("%s://%s", b->account->plain_ports ? "http" : cloud_port_scheme(cloud), host) : NULL;
	if (!url) {
		free(host);
		op_fail_errno(op, -ENOMEM);
		return;
	}
	h = (struct sandbox_host){
		.host = host,
		.url = url,
		.traffic_token = b->traffic_token,
		.token_header = cloud_traffic_header(cloud),
	};
	sandbox_claim(op->core, b, op->who.uid);
	op_end_host(op, &st, &h);
	free(host);
	free(url);
}

static void on_host_found(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status st;
	struct sandbox *b = sandbox_of_result(op, result, &st);

	if (b)
		end_with_host(op, b);
	else
		op_fail(op, &st);
}

static void host_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct status st;
	struct sandbox *b;

	if (!a->port || a->port > 65535) {
		status_field(&st, "port", "must be 1 to 65535");
		op_fail(op, &st);
		return;
	}
	b = row_or_ask(op, on_host_found);
	if (b)
		end_with_host(op, b);
}

static void host_fail(struct sandbox_op *op, const struct status *st)
{
	op_end_host(op, st, NULL);
}

static const struct op_kind host_kind = {
	.name = "GetHost",
	.start = host_start,
	.fail = host_fail,
	.args_size = sizeof(struct args),
	.fini_args = op_get_fini_args,
};

int sandbox_get_host(struct sandbox_core *core, const struct sandbox_call *call, uint32_t port,
		     sandbox_host_fn *done, struct sandbox_op **ret)
{
	return op_new(core, &host_kind, call, &(struct args){.port = port},
		      (union op_done){.host = done}, ret);
}
