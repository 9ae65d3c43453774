/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

struct sandbox_op *op_from(void *p)
{
	struct sandbox_op *op = p;

	must(op && op->magic == OP_MAGIC);
	return op;
}

struct sandbox_op *op_from_wait(struct list *n)
{
	return op_from(list_entry(n, struct sandbox_op, wait));
}

struct sandbox_op *op_from_fetch(struct fetch_wait *w)
{
	return op_from(container_of(w, struct sandbox_op, fetch));
}

static void op_on_turn(struct turn *t)
{
	struct sandbox_op *op = op_from(container_of(t, struct sandbox_op, turn));

	op->pending_error = (struct status)STATUS_OK;
	op->on_turn(op);
}

struct op_commit {
	struct list node;	/* in core->commits */
	struct sandbox_op *op;	/* NULL: it ended before the commit */
	void (*fn)(struct sandbox_op *op, const struct status *st);	/* NULL: a row is read, nothing is committed */
};

/* Frees the commit. Returns its op, or NULL if that has ended. */
static struct sandbox_op *op_of_commit(struct op_commit *c)
{
	struct sandbox_op *op = c->op;

	list_del(&c->node);
	free(c);
	if (op)
		op->commit = NULL;
	return op;
}

static struct op_commit *commit_new(struct sandbox_op *op)
{
	struct op_commit *c = calloc(1, sizeof(*c));

	must(!op->commit);
	if (!c)
		return NULL;
	c->op = op;
	list_add_tail(&op->core->commits, &c->node);
	op->commit = c;
	return c;
}

/* --- the first step --- */

static void on_request_row(void *user, const struct status *st, const struct row_request *r)
{
	struct sandbox_op *op = op_of_commit(user);

	if (!op)
		return;
	op->request_read = true;
	if (!status_ok(st))
		op_fail(op, st);
	else if (r && !core_find_request(op->core, r->uid, r->method, r->request_id) && core_load_request(op->core, r) < 0)
		op_fail_errno(op, -ENOMEM);
	else
		op->kind->start(op);
}

/*
 * Request ids whose sandbox has ended are in the store alone: without reading that row a repeat would make another sandbox. One
 * that never had a row, like that of nearly all calls, asks for nothing.
 */
static bool reads_request(struct sandbox_op *op)
{
	const char *method, *id = op->kind->request && !op->request_read ? op->kind->request(op, &method) : NULL;
	struct op_commit *c;

	if (str_is_empty(id) || core_find_request(op->core, op->who.uid, method, id) ||
	    !core_may_have_stored(op->core, op->who.uid, method, id))
		return false;
	c = commit_new(op);
	if (c && store_get_request(op->core->store, op->who.uid, method, id, on_request_row, c) == 0)
		return true;
	if (c)
		(void)op_of_commit(c);
	op_fail_errno(op, -ENOMEM);
	return true;
}

static void on_kick(struct defer *d, void *user)
{
	struct sandbox_op *op = op_from(user);
	scratch_ struct status st;

	/* The caller has given up already. */
	if (op->deadline_ms && clock_boot_ms() >= op->deadline_ms) {
		status_set(&st, R_DEADLINE_REQUEST, "%s: the deadline had passed", op->kind->name);
		op_fail(op, &st);
		return;
	}
	if (!reads_request(op))
		op->kind->start(op);
}

static void on_deadline(struct timer *t, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct status st;

	if (op->kind->expire) {
		op->kind->expire(op);
		return;
	}
	op_expired_status(op, &st);
	op_fail(op, &st);
}

void op_expired_status(struct sandbox_op *op, struct status *ret)
{
	struct cloud_health h;

	*ret = op->pending_error;
	if (!status_ok(ret))
		return;
	if (op->account) {
		cloud_health(op->account->cloud, &h);
		if (h.last_failure_at_ms >= op->began_ms && h.last_failure_at_ms > h.last_ok_at_ms) {
			*ret = h.last_failure;
			ret->n_evidence = 0;	/* which call it was is nobody's but its caller's */
		}
		if (status_ok(ret) && h.limited_until_ms > clock_boot_ms()) {
			status_set(ret, R_RATE_LIMITED, "the cloud's rate limit ends after the deadline");
			ret->retry_after_ms = (uint32_t)MIN(h.limited_until_ms - clock_boot_ms(),
							    (uint64_t)UINT32_MAX);
		}
	}
	if (status_ok(ret))
		status_set(ret, R_DEADLINE_REQUEST, "%s: the deadline came first", op->kind->name);
}

static void op_free(void *p)
{
	struct sandbox_op *op = op_from(p);

	if (op->kind->fini_args)
		op->kind->fini_args(op->args);
	op->magic = 0;
	free(op->ref);
	free(op->id);
	free(op);
}

/* Zeroed, but for texts of the error that nobody reads: they are more than half of it. NULL without memory. */
static struct sandbox_op *op_alloc(size_t args_size, const void *args)
{
	struct sandbox_op *op = malloc(sizeof(*op) + args_size);

	if (!op)
		return NULL;
	memset(op, 0, offsetof(struct sandbox_op, pending_error));
	status_clear(&op->pending_error);
	op->args = op + 1;
	if (args)
		memcpy(op->args, args, args_size);
	else
		memset(op->args, 0, args_size);
	return op;
}

int op_new(struct sandbox_core *core, const struct op_kind *kind, const struct sandbox_call *call,
	   const void *args, union op_done done, struct sandbox_op **ret)
{
	struct sandbox_op *op = op_alloc(kind->args_size, args);
	uint64_t now = clock_boot_ms();

	if (!op) {
		if (args && kind->fini_args)
			kind->fini_args((void *)args);
		return -ENOMEM;
	}
	op->magic = OP_MAGIC;
	op->kind = kind;
	op->core = core;
	op->who = *call->who;
	op->who.pidfd = -1;	/* it belongs to the connection, which may end before the op */
	op->deadline_ms = call->deadline_ms;
	op->began_ms = now;
	op->done = done;
	op->user = call->user;
	if (call->trace)
		op->trace = *call->trace;
	list_init(&op->wait);
	list_init(&op->fetch.node);
	op->fetch.uid = op->who.uid;
	list_init(&op->listing.node);
	turn_init(&op->turn, op_on_turn);
	defer_init(&op->kick, core->loop, on_kick, op);
	timer_init(&op->timer, core->loop, on_deadline, op);
	if (text_set(&op->ref, call->sandbox) < 0 ||
	    (op->deadline_ms &&
	     timer_set(&op->timer, rules_answer_by_ms(op->deadline_ms, now)) < 0)) {
		op_free(op);
		return -ENOMEM;
	}
	list_add_tail(&core->ops, &op->node);
	defer_post(&op->kick);
	*ret = op;
	return 0;
}

uint64_t op_ask_until(const struct sandbox_op *op)
{
	uint64_t now = clock_boot_ms(), by;

	if (!op->deadline_ms)
		return 0;
	by = op->timer.at_ms;
	/* A little before our own answer, so that the cloud's error can be in it. */
	return by > now + 20 ? by - MIN((by - now) / 20, 50u) : by;
}

struct trace op_trace_of(const struct list *waiters)
{
	if (list_is_empty(waiters))
		return (struct trace){ .parent = "" };
	return list_entry(waiters->next, const struct sandbox_op, wait)->trace;
}

struct cloud_ask op_ask(struct sandbox_op *op, cloud_done_fn *done)
{
	op->asked_at_ms = clock_boot_ms();
	return (struct cloud_ask){
		.deadline_ms = op_ask_until(op),
		.uid = op->who.uid,
		.trace = op->trace,
		.done = done,
		.user = op,
	};
}

static void on_committed(void *user, const struct status *st)
{
	struct op_commit *c = user;
	void (*fn)(struct sandbox_op *op, const struct status *st) = c->fn;
	struct sandbox_op *op = op_of_commit(c);

	if (op)
		fn(op, st);
}

void op_commit(struct sandbox_op *op, struct store_tx *t,
	       void (*fn)(struct sandbox_op *op, const struct status *st))
{
	struct op_commit *c = commit_new(op);

	if (!c) {
		store_tx_drop(t);
		op->core->resave = true;
		op_fail_errno(op, -ENOMEM);
		return;
	}
	c->fn = fn;
	store_tx_commit(t, true, on_committed, c);
}

/* Cancels all that may call the op; only op_free() follows. */
static void detach(struct sandbox_op *op)
{
	if (op->kind->leave)
		op->kind->leave(op);
	if (op->commit)
		op->commit->op = NULL;
	list_del(&op->wait);
	turn_end(&op->turn);
	fetch_leave(&op->fetch);
	listing_leave(&op->listing);
	cloud_call_cancel(op->call);
	op->call = NULL;
	if (op->probe)
		op->core->prober.cancel(op->probe, op->core->prober.user);
	op->probe = NULL;
	defer_cancel(&op->kick);
	timer_clear(&op->timer);
	timer_clear(&op->pause);
	list_del(&op->node);
	list_init(&op->node);
	loop_bury(op->core->loop, &op->grave, op_free, op);
}

void sandbox_cancel(struct sandbox_op *op)
{
	if (op)
		detach(op_from(op));
}

void op_cancel_all(struct sandbox_core *core)
{
	while (!list_is_empty(&core->ops))
		detach(op_from(list_entry(core->ops.next, struct sandbox_op, node)));
	while (!list_is_empty(&core->commits)) {
		struct op_commit *c = list_entry(core->commits.next, struct op_commit, node);

		list_del(&c->node);
		free(c);
	}
}

void op_end_sandbox(struct sandbox_op *op, const struct status *st, const struct sandbox_view *sandbox)
{
	detach(op);
	op->done.sandbox(op->user, st, sandbox);
}

void op_end_sandbox_of(struct sandbox_op *op, const struct sandbox *b, enum sandbox_source source)
{
	static const struct status ok = STATUS_OK;
	struct sandbox_view v;

	sandbox_view(b, source, &v);
	v.resumed = op->resumed;
	op_end_sandbox(op, &ok, &v);
}

static void on_claim_saved(struct sandbox_op *op, const struct status *st)
{
	struct sandbox *b = core_find(op->core, op->account, op->id);
	struct status gone;

	if (!b) {
		ref_not_found(&gone, op->ref);
		op_fail(op, &gone);
		return;
	}
	/* Answered also if the store failed: it is claimed as long as this daemon runs. */
	b->claim_unsaved = b->claim_unsaved && !status_ok(st);
	op_end_sandbox_of(op, b, op->claim_source);
}

void op_end_claimed(struct sandbox_op *op, struct sandbox *b, enum sandbox_source source)
{
	struct store_tx *t;

	if (!b->claim_unsaved || text_set(&op->id, b->id) < 0 ||
	    store_tx_new(op->core->store, &t) < 0) {
		op_end_sandbox_of(op, b, source);
		return;
	}
	op->account = b->account;
	op->claim_source = source;
	sandbox_put(t, b);
	op_commit(op, t, on_claim_saved);
}

void op_end_yes(struct sandbox_op *op, const struct status *st, bool yes)
{
	detach(op);
	op->done.yes(op->user, st, yes);
}

void op_end_list(struct sandbox_op *op, const struct status *st, const struct sandbox_page *page)
{
	detach(op);
	op->done.list(op->user, st, page);
}

void op_end_host(struct sandbox_op *op, const struct status *st, const struct sandbox_host *host)
{
	detach(op);
	op->done.host(op->user, st, host);
}

void op_end_target(struct sandbox_op *op, const struct status *st, const struct sandbox_target *t)
{
	detach(op);
	op->done.target(op->user, st, t);
}

void op_end_lease(struct sandbox_op *op, const struct status *st, const struct sandbox_lease *lease)
{
	detach(op);
	op->done.lease(op->user, st, lease);
}

void op_end_leases(struct sandbox_op *op, const struct status *st,
		   const struct sandbox_lease_page *page)
{
	detach(op);
	op->done.leases(op->user, st, page);
}

void op_end_metrics(struct sandbox_op *op, const struct status *st, const struct sandbox_metrics *m)
{
	detach(op);
	op->done.metrics(op->user, st, m);
}

void op_end_fork(struct sandbox_op *op, const struct status *st, const struct sandbox_child *v,
		 size_t n)
{
	detach(op);
	op->done.fork(op->user, st, v, n);
}

void op_end_snapshot(struct sandbox_op *op, const struct status *st, const struct sandbox_snapshot *s)
{
	detach(op);
	op->done.snapshot(op->user, st, s);
}

void op_end_snapshots(struct sandbox_op *op, const struct status *st,
		      const struct sandbox_snapshot_page *p)
{
	detach(op);
	op->done.snapshots(op->user, st, p);
}

void op_end_templates(struct sandbox_op *op, const struct status *st, const struct sandbox_template_page *p)
{
	detach(op);
	op->done.templates(op->user, st, p);
}

void op_fail_sandbox(struct sandbox_op *op, const struct status *st)
{
	op_end_sandbox(op, st, NULL);
}

void op_fail_yes(struct sandbox_op *op, const struct status *st)
{
	op_end_yes(op, st, false);
}

void op_fail_target(struct sandbox_op *op, const struct status *st)
{
	op_end_target(op, st, NULL);
}

void op_fail_templates(struct sandbox_op *op, const struct status *st)
{
	op_end_templates(op, st, NULL);
}

void op_fail(struct sandbox_op *op, const struct status *st)
{
	struct status copy = *st;	/* *st may belong to what the end of the op frees */

	must(!status_ok(&copy));
	op->kind->fail(op, &copy);
}

void op_fail_errno(struct sandbox_op *op, int err)
{
	scratch_ struct status st;

	status_errno(&st, err, op->kind->name);
	op_fail(op, &st);
}

/* --- ops that wait for the same work --- */

void op_end_waited(struct sandbox_op *op, const struct status *st, bool yes)
{
	if (status_ok(st))
		op_end_yes(op, st, yes);
	else
		op_fail(op, st);
}

void op_end_waits(struct list *waiters, const struct status *st, bool yes)
{
	struct status copy = *st;	/* *st may belong to what on_waited frees */
	struct list all;

	list_take(&all, waiters);
	while (!list_is_empty(&all)) {
		struct sandbox_op *op = op_from_wait(all.next);

		list_del(&op->wait);
		op->on_waited(op, &copy, yes);
	}
}

void op_note_pending_error(struct list *waiters, const struct status *st)
{
	list_for_each(n, waiters)
		op_from_wait(n)->pending_error = *st;
}

/* --- which sandbox --- */

static void find_known(struct sandbox_op *op, struct sandbox *b)
{
	op->account = b->account;
	if (text_set(&op->id, b->id) < 0)
		op_fail_errno(op, -ENOMEM);
	else
		op->known(op, b);
}

/* By its tags: one that is being made for another uid has no row yet. */
static bool is_anothers(const struct sandbox_op *op, const struct cloud_sandbox *s)
{
	struct tags t;

	tags_read(&s->metadata, &t);
	return !op->who.admin && tags_are_of(&t, store_host_id(op->core->store)) && t.has_uid && t.uid != op->who.uid;
}

/* Without an answer nothing is said, also of another uid's: of an id that nobody has nothing is known then. */
enum op_found op_found(const struct sandbox_op *op, const struct fetch_result *result)
{
	if (result->end == FETCH_FAILED)
		return OP_FOUND_NO_ANSWER;
	if (result->sandbox && grant_row(&op->who, result->sandbox->uid) == GRANT_OK)
		return OP_FOUND_ROW;
	if (result->end == FETCH_ABSENT || ref_hides(op->core, &op->who, op->id) || is_anothers(op, result->s))
		return OP_FOUND_NOTHING;
	return OP_FOUND_STRANGER;
}

static void on_found(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status st;

	switch (op_found(op, result)) {
	case OP_FOUND_NO_ANSWER:
		op_fail(op, result->st);
		return;
	case OP_FOUND_ROW:
		find_known(op, result->sandbox);
		return;
	case OP_FOUND_NOTHING:
		ref_not_found(&st, op->ref);
		op_fail(op, &st);
		return;
	case OP_FOUND_STRANGER:
		op->stranger(op, result->s);
		return;
	}
}

void op_find(struct sandbox_op *op, void (*known)(struct sandbox_op *op, struct sandbox *b),
	     void (*stranger)(struct sandbox_op *op, const struct cloud_sandbox *s))
{
	struct status st;
	struct sandbox *b;

	op->known = known;
	op->stranger = stranger;
	switch (ref_find(op->core, &op->who, op->ref, &b, &op->account, &st)) {
	case REF_NONE:
		op_fail(op, &st);
		return;
	case REF_SANDBOX:
		find_known(op, b);
		return;
	case REF_ID:
		op->fetch.fn = on_found;
		op->fetch.apart = ref_hides(op->core, &op->who, op->ref);
		if (text_set(&op->id, op->ref) < 0 ||
		    fetch_join(op->core, op->account, op->id, false, &op->fetch) < 0)
			op_fail_errno(op, -ENOMEM);
		return;
	}
}

/* --- turns and transitions --- */

#define AGAIN_BACKOFF_MS     100u
#define AGAIN_BACKOFF_MAX_MS 2000u
#define AGAIN_MAX_MS	     60000u	/* for callers without a deadline */

struct sandbox *op_sandbox(struct sandbox_op *op)
{
	return op->id ? core_find(op->core, op->account, op->id) : NULL;
}

void op_take_turn(struct sandbox_op *op, struct sandbox *b, void (*fn)(struct sandbox_op *op))
{
	if (!turn_is_free(b)) {
		status_set(&op->pending_error, R_STATE_CHANGING,
			   "sandbox %s is changing its state (%s); repeat", b->id,
			   sandbox_state_name(b->state));
		status_evidence(&op->pending_error, "sandbox_id", "%s", b->id);
	}
	op->on_turn = fn;
	turn_take(&op->turn, b);
}

static void op_on_again(struct timer *t, void *user)
{
	struct sandbox_op *op = op_from(user);

	op->again(op);
}

void op_again(struct sandbox_op *op, const struct status *why, void (*fn)(struct sandbox_op *op))
{
	uint64_t now = clock_boot_ms(), wait;

	op->pending_error = *why;
	if (!op->deadline_ms && now >= op->began_ms + AGAIN_MAX_MS) {
		op_fail(op, why);
		return;
	}
	wait = rules_backoff_ms(op->tries++, AGAIN_BACKOFF_MS, AGAIN_BACKOFF_MAX_MS,
				rng_u64(&op->core->rng));
	op->again = fn;
	timer_clear(&op->pause);
	timer_init(&op->pause, op->core->loop, op_on_again, op);
	if (timer_set(&op->pause, now + MAX(wait, (uint64_t)why->retry_after_ms)) < 0)
		op_fail_errno(op, -ENOMEM);
}

static void on_missing_explained(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	enum op_found found = op_found(op, result);
	struct status st;

	if (found == OP_FOUND_NO_ANSWER)
		st = *result->st;
	else if (found == OP_FOUND_ROW && result->sandbox->state != SANDBOX_RUNNING)
		sandbox_refusal(result->sandbox, &st);
	else if (found == OP_FOUND_NOTHING)
		ref_not_found(&st, op->ref);
	else if (result->s && result->s->state == CLOUD_STATE_PAUSED)
		status_set(&st, R_SANDBOX_PAUSED, "sandbox %s is paused; ConnectSandbox (agentboxctl resume) resumes it", op->id);
	else
		status_set(&st, R_STATE_CHANGING, "sandbox %s is changing its state; repeat", op->id);
	op_fail(op, &st);
}

void op_explain_missing(struct sandbox_op *op)
{
	op->fetch.fn = on_missing_explained;
	if (fetch_join(op->core, op->account, op->id, false, &op->fetch) < 0)
		op_fail_errno(op, -ENOMEM);
}

/* --- wait_ready --- */

#define READY_BACKOFF_MS     50u
#define READY_BACKOFF_MAX_MS 1000u

static void probe_again(struct sandbox_op *op);

static void on_probed(void *user, enum sandbox_probe_result result, const struct status *why)
{
	struct sandbox_op *op = op_from(user);
	struct sandbox *b = core_find(op->core, op->account, op->id);
	uint64_t wait;

	op->probe = NULL;
	if (b && result == SANDBOX_PROBE_HEALTHY) {
		op_end_sandbox_of(op, b, SANDBOX_FROM_CLOUD);
		return;
	}
	status_set(&op->pending_error, R_SANDBOX_NOT_READY,
		   "sandbox %s: its agent does not answer yet%s%s", op->id,
		   why && why->text[0] ? ": " : "", why ? why->text : "");
	status_evidence(&op->pending_error, "sandbox_id", "%s", op->id);
	if (!b || b->state == SANDBOX_GONE) {
		if (b)
			sandbox_refusal(b, &op->pending_error);
		op_fail(op, &op->pending_error);
		return;
	}
	wait = rules_backoff_ms(op->tries++, READY_BACKOFF_MS, READY_BACKOFF_MAX_MS,
				rng_u64(&op->core->rng));
	if (timer_set(&op->pause, clock_boot_ms() + wait) < 0)
		op_fail_errno(op, -ENOMEM);
}

static void on_probe_pause(struct timer *t, void *user)
{
	probe_again(op_from(user));
}

static void probe_again(struct sandbox_op *op)
{
	struct sandbox *b = core_find(op->core, op->account, op->id);
	struct sandbox_target target;

	if (!b) {
		on_probed(op, SANDBOX_PROBE_ABSENT, NULL);
		return;
	}
	sandbox_target_of(b, &target);
	op->probe = op->core->prober.start(&target, op_ask_until(op), on_probed, op,
					   op->core->prober.user);
	if (!op->probe)
		op_fail_errno(op, -ENOMEM);
}

void op_wait_ready(struct sandbox_op *op, struct sandbox *b)
{
	op->account = b->account;
	op->tries = 0;
	timer_clear(&op->pause);
	timer_init(&op->pause, op->core->loop, on_probe_pause, op);
	if (text_set(&op->id, b->id) < 0)
		op_fail_errno(op, -ENOMEM);
	else
		probe_again(op);
}
