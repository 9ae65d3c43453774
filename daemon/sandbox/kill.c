/* SPDX-License-Identifier: MIT */
/*
 * Kill. A DELETE that failed may have worked, or half of it, so it is repeated until
 * the cloud says 204 or 404, beyond the caller's deadline and beyond this run of the daemon: the row
 * is KILLING from before the first DELETE, and the next start goes on.
 *
 *   decide   the row is KILLING, synced (a full disk does not stop it)
 *   delete   DELETE until 204 or 404
 *   write    the row is GONE, its name is free; then the answer
 *
 * All kills of one sandbox share these steps. A sandbox without a row is asked about first (its tag may say
 * that it is another uid's of this host), then deleted in the caller's account, as the SDK does.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"

#define KILLING_MAGIC	 0x4b696c6cu
#define KILL_ASK_MS	 30000u
#define KILL_BACKOFF_MS	 200u
#define KILL_BACKOFF_MAX 30000u

struct killing {
	uint32_t magic;
	struct list node;	/* in core->killings */
	struct sandbox_core *core;
	struct sandbox *sandbox;
	struct cloud_call *call;
	struct fetch_wait check;	/* before a rule's DELETE is repeated: was it resumed elsewhere? */
	struct timer timer;	/* until the next try */
	struct list waiters;	/* sandbox_op.wait */
	unsigned tries;
	bool maybe_done;	/* a DELETE without an answer may have ended it */
	struct grave grave;
};

static void delete(struct killing *k);

static struct killing *killing_from(void *p)
{
	struct killing *k = p;

	must(k && k->magic == KILLING_MAGIC);
	return k;
}

static void killing_free(void *p)
{
	struct killing *k = killing_from(p);

	k->magic = 0;
	free(k);
}

static void unlink_killing(struct killing *k)
{
	cloud_call_cancel(k->call);
	fetch_leave(&k->check);
	timer_clear(&k->timer);
	k->sandbox->killing = NULL;
	list_del(&k->node);
}

static void kill_finish(struct killing *k, bool found)
{
	struct status ok = STATUS_OK;

	unlink_killing(k);
	loop_bury(k->core->loop, &k->grave, killing_free, k);
	op_end_waits(&k->waiters, &ok, found);
}

static void repeat_after(struct killing *k, uint64_t wait_ms)
{
	if (timer_set(&k->timer, clock_boot_ms() + wait_ms) < 0)
		log_warn("kill_timer", "sandbox=%s error=nomem at=next_start", k->sandbox->id);
}

/* The sandbox has taken the answer over. If somebody had resumed it elsewhere, kill_let_go() would have cancelled this wait. */
static void kill_on_checked(struct fetch_wait *w, const struct fetch_result *result)
{
	struct killing *k = killing_from(container_of(w, struct killing, check));

	switch (result->end) {
	case FETCH_ALIVE:
	case FETCH_ABSENT:
		delete(k);	/* its answer is the one that ends a kill */
		return;
	case FETCH_FAILED:
		repeat_after(k, rules_backoff_ms(k->tries++, KILL_BACKOFF_MS, KILL_BACKOFF_MAX,
						 rng_u64(&k->core->rng)));
		return;
	}
}

/* A rule decided some time ago, and the sandbox may have been paused and resumed elsewhere since: the cloud is asked first. */
static void kill_on_timer(struct timer *t, void *user)
{
	struct killing *k = killing_from(user);

	if (!k->sandbox->ended_by[0])
		delete(k);
	else if (fetch_join(k->core, k->sandbox->account, k->sandbox->id, true, &k->check) < 0)
		repeat_after(k, KILL_BACKOFF_MAX);
}

static void on_deleted(struct cloud_result *r, void *user)
{
	struct killing *k = killing_from(user);
	uint64_t wait;
	bool found;

	k->call = NULL;
	FAILPOINT("kill.answered");
	if (r->outcome == CLOUD_DONE) {
		/* A 404 to the first DELETE: somebody else ended it, or its time was over. */
		found = !r->not_found || r->repeated || k->maybe_done;
		sandbox_gone(k->core, k->sandbox, found,
			     r->not_found ? "DELETE /sandboxes/{id}: 404"
					  : "DELETE /sandboxes/{id}: 204");
		FAILPOINT("kill.done");
		kill_finish(k, found);
		return;
	}
	k->maybe_done |= r->outcome == CLOUD_UNKNOWN || r->repeated;
	op_note_pending_error(&k->waiters, &r->status);
	wait = rules_backoff_ms(k->tries++, KILL_BACKOFF_MS, KILL_BACKOFF_MAX, rng_u64(&k->core->rng));
	wait = MAX(wait, r->status.retry_after_ms);
	log_warn("kill_repeats", "sandbox=%s tries=%u in_ms=%llu text=%s", k->sandbox->id, k->tries,
		 (unsigned long long)wait, log_q(r->status.text));
	repeat_after(k, wait);
	/* A definite refusal is answered at once, although the kill goes on. */
	if (r->outcome == CLOUD_REFUSED && !r->retry_later && !r->conflict)
		op_end_waits(&k->waiters, &r->status, false);
}

static void delete(struct killing *k)
{
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + KILL_ASK_MS,
		.trace = op_trace_of(&k->waiters),
		.uid = k->sandbox->uid,
		.done = on_deleted,
		.user = k,
	};

	k->call = cloud_kill(k->sandbox->account->cloud, k->sandbox->id, &ask);
	FAILPOINT("kill.sent");
	if (!k->call)
		repeat_after(k, KILL_BACKOFF_MAX);
}

static void on_decided(void *user, const struct status *st)
{
	struct killing *k = killing_from(user);

	FAILPOINT("kill.intent_committed");
	/* If the store failed, the kill goes on all the same. */
	if (!status_ok(st))
		k->core->resave = true;
	delete(k);
}

static int killing_new(struct sandbox_core *core, struct sandbox *b, struct killing **ret)
{
	struct killing *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->magic = KILLING_MAGIC;
	k->core = core;
	k->sandbox = b;
	list_init(&k->waiters);
	list_init(&k->check.node);
	k->check.fn = kill_on_checked;
	timer_init(&k->timer, core->loop, kill_on_timer, k);
	list_add_tail(&core->killings, &k->node);
	b->killing = k;
	*ret = k;
	return 0;
}

static int killing_start(struct sandbox_core *core, struct sandbox *b, const char *rule,
			 struct killing **ret)
{
	struct store_tx *t;
	int r = store_tx_new(core->store, &t);

	if (r < 0)
		return r;
	r = text_set(&b->ended_by, rule);
	if (!r)
		r = killing_new(core, b, ret);
	if (r < 0) {
		store_tx_drop(t);
		return r;
	}
	sandbox_set_state(b, SANDBOX_KILLING);
	sandbox_free_name(core, b, t);
	sandbox_put(t, b);
	event_put(core, t, b, EVENT_UPDATED, "by=%s\n", rule ? rule : "user");
	store_tx_commit(t, true, on_decided, *ret);
	return 0;
}

int kill_by_policy(struct sandbox_core *core, struct sandbox *b, const char *rule)
{
	struct killing *k;

	must(sandbox_is_live(b) && !b->killing);
	return killing_start(core, b, rule, &k);
}

void kill_take_up(struct sandbox_core *core, struct sandbox *b)
{
	struct killing *k;

	if (killing_new(core, b, &k) < 0) {
		log_warn("kill_take_up", "sandbox=%s error=nomem at=next_start", b->id);
		return;
	}
	k->maybe_done = true;
	log_info("kill_taken_up", "sandbox=%s uid=%u", b->id, owner_uid(b->uid));
	/* In the first pass of the loop. */
	repeat_after(k, 0);
}

/* The name that the kill had freed, if nobody has taken it since. */
static void take_name_back(struct sandbox_core *core, struct sandbox *b)
{
	struct name_slot *n = b->name[0] ? core_find_name(core, b->uid, b->name) : NULL;
	struct store_tx *t;

	if (!n || n->id[0] || n->creation || store_tx_new(core->store, &t) < 0)
		return;
	sandbox_give_name(core, b, n);
	core_put_name(t, n);
	core_commit(core, t, false);
}

void kill_let_go(struct sandbox_core *core, struct sandbox *b)
{
	struct killing *k = b->killing;

	if (!k || !b->ended_by[0] || !list_is_empty(&k->waiters))
		return;
	unlink_killing(k);
	loop_bury(core->loop, &k->grave, killing_free, k);
	b->ended_by[0] = 0;
	take_name_back(core, b);
	sandbox_changed(core, b, SANDBOX_RUNNING, "resumed_elsewhere");
}

void kill_cancel_all(struct sandbox_core *core)
{
	while (!list_is_empty(&core->killings)) {
		struct killing *k = list_entry(core->killings.next, struct killing, node);

		must(list_is_empty(&k->waiters));
		unlink_killing(k);
		killing_free(k);
	}
}

/* --- the caller's side --- */

static void on_stranger_deleted(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct sandbox *b = core_find(op->core, op->account, op->ref);
	struct status ok = STATUS_OK;

	op->call = NULL;
	/* Another call may have given it a row meanwhile. */
	if (r->outcome == CLOUD_DONE && b && sandbox_is_live(b))
		sandbox_gone(op->core, b, !r->not_found || r->repeated, "DELETE /sandboxes/{id}");
	if (r->outcome == CLOUD_DONE)
		op_end_yes(op, &ok, !r->not_found || r->repeated);
	else
		op_fail(op, &r->status);
}

static void kill_stranger(struct sandbox_op *op)
{
	struct cloud_ask ask = op_ask(op, on_stranger_deleted);

	op->call = cloud_kill(op->account->cloud, op->ref, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

/* A rule's kill under way becomes the owner's: it is not given up any more. */
static void its_owners_will(struct sandbox_core *core, struct sandbox *b)
{
	if (!b->ended_by[0])
		return;
	b->ended_by[0] = 0;
	sandbox_save(core, b, true);
}

static void kill_known(struct sandbox_op *op, struct sandbox *b)
{
	struct status ok = STATUS_OK, strange;
	struct killing *k = b->killing;

	op->account = b->account;
	op->on_waited = op_end_waited;
	if (b->state == SANDBOX_GONE)
		op_end_yes(op, &ok, false);
	else if (!k && proof_is_strange(b->account, &strange))
		op_fail(op, &strange);
	else if (!k && killing_start(op->core, b, NULL, &k) < 0)
		op_fail_errno(op, -ENOMEM);
	else {
		its_owners_will(op->core, b);
		list_add_tail(&k->waiters, &op->wait);
	}
}

/* May the caller end a sandbox of the account that has no row? Admins may, and the uid that its tag names. */
static bool may_kill_stranger(const struct sandbox_op *op, const struct cloud_sandbox *s)
{
	struct tags t;

	if (op->who.admin)
		return true;
	tags_read(&s->metadata, &t);
	return t.host && t.has_uid && t.uid == op->who.uid;
}

static void on_looked_at(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status ok = STATUS_OK;
	enum op_found found = op_found(op, result);

	if (found == OP_FOUND_NO_ANSWER)
		op_fail(op, result->st);
	else if (found == OP_FOUND_ROW)
		kill_known(op, result->sandbox);
	else if (found == OP_FOUND_STRANGER && may_kill_stranger(op, result->s))
		kill_stranger(op);
	else
		op_end_yes(op, &ok, false);
}

static void kill_start(struct sandbox_op *op)
{
	struct status st, ok = STATUS_OK;
	struct sandbox *b;

	switch (ref_find(op->core, &op->who, op->ref, &b, &op->account, &st)) {
	case REF_NONE:
		/* Not found: that is an answer and not a failure. */
		if (st.reason == R_SANDBOX_NOT_FOUND)
			op_end_yes(op, &ok, false);
		else
			op_fail(op, &st);
		return;
	case REF_ID:
		op->fetch.fn = on_looked_at;
		op->fetch.apart = ref_hides(op->core, &op->who, op->ref);
		if (text_set(&op->id, op->ref) < 0 ||
		    fetch_join(op->core, op->account, op->id, false, &op->fetch) < 0)
			op_fail_errno(op, -ENOMEM);
		return;
	case REF_SANDBOX:
		kill_known(op, b);
		return;
	}
}

static const struct op_kind kill_kind = {
	.name = "Kill",
	.start = kill_start,
	.fail = op_fail_yes,
};

int sandbox_kill(struct sandbox_core *core, const struct sandbox_call *call, sandbox_bool_fn *done,
		 struct sandbox_op **ret)
{
	return op_new(core, &kill_kind, call, NULL, (union op_done){ .yes = done }, ret);
}
