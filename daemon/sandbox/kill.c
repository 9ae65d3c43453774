/* SPDX-License-Identifier: MIT */
/*
 * Kill. A DELETE that failed may have worked, or half of it (FAULTS §0.3), so it is repeated until
 * the cloud says 204 or 404, beyond the caller's deadline and beyond the daemon's own life: the row
 * is KILLING from before the first DELETE, and the next start takes it up again.
 *
 *   decide   the row is KILLING, synced (a full disk does not stop it)
 *   delete   DELETE until 204 or 404
 *   write    the row is GONE, its name is free; then the answer
 *
 * Equal kills of one sandbox share it. A sandbox without a row is looked at first (its tag may say
 * that it is another uid's of this host), then deleted in the caller's account, as the SDK does.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/grant.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/failpoint.h"
#include "daemon/sandbox/keep.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"

#define KILLING_MAGIC	 0x4b696c6cu
#define KILL_ASK_MS	 30000u
#define KILL_BACKOFF_MS	 200u
#define KILL_BACKOFF_MAX 30000u

struct killing {
	uint32_t magic;
	struct list node;	/* in life->killings */
	struct life *life;
	struct box *box;
	struct cloud_call *call;
	struct timer timer;
	struct list waiters;	/* life_op.wait */
	unsigned tries;
	bool maybe_done;	/* by a DELETE whose answer is not known */
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
	timer_clear(&k->timer);
	k->box->killing = NULL;
	list_del(&k->node);
}

static void finish(struct killing *k, bool found)
{
	struct status ok = STATUS_OK;

	unlink_killing(k);
	loop_bury(k->life->loop, &k->grave, killing_free, k);
	op_tell_all(&k->waiters, &ok, found);
}

static void on_timer(struct timer *t, void *user)
{
	delete(killing_from(user));
}

static void on_deleted(struct cloud_result *r, void *user)
{
	struct killing *k = killing_from(user);
	uint64_t wait;
	bool found;

	k->call = NULL;
	FAILPOINT("kill.answered");
	account_saw_date(k->box->account, r->date_ms);
	if (r->outcome == CLOUD_DONE) {
		/* Missing at the first try: it was somebody else, or its end. */
		found = !r->not_found || r->repeated || k->maybe_done;
		life_box_gone(k->life, k->box, found,
			      r->not_found ? "DELETE /sandboxes/{id}: 404" : "DELETE /sandboxes/{id}: 204");
		FAILPOINT("kill.done");
		finish(k, found);
		return;
	}
	k->maybe_done |= r->outcome == CLOUD_UNKNOWN || r->repeated;
	op_obstruct_all(&k->waiters, &r->status);
	wait = rules_backoff_ms(k->tries++, KILL_BACKOFF_MS, KILL_BACKOFF_MAX, rng_u64(&k->life->rng));
	wait = MAX(wait, r->status.retry_after_ms);
	log_warn("kill_repeats", "box=%s tries=%u in_ms=%llu text=%s", k->box->id, k->tries,
		 (unsigned long long)wait, log_q(r->status.text));
	if (timer_set(&k->timer, clock_boot_ms() + wait) < 0)
		log_warn("kill_timer", "box=%s err=nomem at=next_start", k->box->id);
	/* A definite refusal is told at once; that we go on trying is not the caller's concern. */
	if (r->outcome == CLOUD_REFUSED && !r->retry_later && !r->conflict)
		op_tell_all(&k->waiters, &r->status, false);
}

static void delete(struct killing *k)
{
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + KILL_ASK_MS,
		.uid = k->box->uid,
		.done = on_deleted,
		.user = k,
	};

	k->call = cloud_kill(k->box->account->cloud, k->box->id, &ask);
	FAILPOINT("kill.sent");
	if (!k->call && timer_set(&k->timer, clock_boot_ms() + KILL_BACKOFF_MAX) < 0)
		log_warn("kill_timer", "box=%s err=nomem at=next_start", k->box->id);
}

static void on_decided(void *user, const struct status *st)
{
	struct killing *k = killing_from(user);

	FAILPOINT("kill.intent_committed");
	/* Not written down, it is still the owner's will. */
	if (!status_ok(st))
		k->life->resave = true;
	delete(k);
}

static int killing_new(struct life *l, struct box *b, struct killing **ret)
{
	struct killing *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->magic = KILLING_MAGIC;
	k->life = l;
	k->box = b;
	list_init(&k->waiters);
	timer_init(&k->timer, l->loop, on_timer, k);
	list_add_tail(&l->killings, &k->node);
	b->killing = k;
	*ret = k;
	return 0;
}

static int killing_start(struct life *l, struct box *b, const char *rule, struct killing **ret)
{
	struct store_tx *t;
	int r = store_tx_new(l->store, &t);

	if (r < 0)
		return r;
	r = killing_new(l, b, ret);
	if (r < 0) {
		store_tx_drop(t);
		return r;
	}
	b->ended_by = rule;
	box_set_state(b, LIFE_KILLING);
	life_box_free_name(l, b, t);
	life_put_box(t, b);
	event_put(l, t, b, EVENT_UPDATED, "by=%s\n", rule ? rule : "user");
	store_tx_commit(t, true, on_decided, *ret);
	return 0;
}

int kill_by_policy(struct life *l, struct box *b, const char *rule)
{
	struct killing *k;

	must(box_is_live(b) && !b->killing);
	return killing_start(l, b, rule, &k);
}

void kill_take_up(struct life *l, struct box *b)
{
	struct killing *k;

	if (killing_new(l, b, &k) < 0) {
		log_warn("kill_take_up", "box=%s err=nomem at=next_start", b->id);
		return;
	}
	k->maybe_done = true;
	log_info("kill_taken_up", "box=%s uid=%u", b->id, b->uid);
	/* Soon, but not inside of the start. */
	if (timer_set(&k->timer, clock_boot_ms()) < 0)
		log_warn("kill_timer", "box=%s err=nomem at=next_start", b->id);
}

void kill_cancel_all(struct life *l)
{
	while (!list_is_empty(&l->killings)) {
		struct killing *k = list_entry(l->killings.next, struct killing, node);

		must(list_is_empty(&k->waiters));
		unlink_killing(k);
		killing_free(k);
	}
}

/* --- the caller's side --- */

static void on_stranger_deleted(struct cloud_result *r, void *user)
{
	struct life_op *op = op_from(user);
	struct box *b = life_find_box(op->life, op->account, op->ref);
	struct status ok = STATUS_OK;

	op->call = NULL;
	/* Another call may have made it somebody's meanwhile. */
	if (r->outcome == CLOUD_DONE && b && box_is_live(b))
		life_box_gone(op->life, b, !r->not_found || r->repeated, "DELETE /sandboxes/{id}");
	if (r->outcome == CLOUD_DONE)
		op_end_yes(op, &ok, !r->not_found || r->repeated);
	else
		op_fail(op, &r->status);
}

static void kill_stranger(struct life_op *op)
{
	struct cloud_ask ask = op_ask(op, on_stranger_deleted);

	op->call = cloud_kill(op->account->cloud, op->ref, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static void kill_known(struct life_op *op, struct box *b)
{
	struct status ok = STATUS_OK;
	struct killing *k = b->killing;

	op->account = b->account;
	op->told = op_end_told;
	if (b->state == LIFE_GONE)
		op_end_yes(op, &ok, false);
	else if (!k && killing_start(op->life, b, NULL, &k) < 0)
		op_fail_errno(op, -ENOMEM);
	else
		list_add_tail(&k->waiters, &op->wait);
}

static void on_looked_at(struct fetch_wait *w, const struct fetch_news *news)
{
	struct life_op *op = op_from_fetch(w);
	struct status ok = STATUS_OK;

	if (news->end == FETCH_FAILED)
		op_fail(op, news->st);
	else if (news->box && grant_row(&op->who, news->box->uid) == GRANT_OK)
		kill_known(op, news->box);
	else if (news->box || news->end == FETCH_ABSENT)
		op_end_yes(op, &ok, false);
	else
		kill_stranger(op);
}

static void start(struct life_op *op)
{
	struct status st, ok = STATUS_OK;
	struct box *b;

	switch (ref_find(op->life, &op->who, op->ref, &b, &op->account, &st)) {
	case REF_NONE:
		/* Another uid's looks like none: not found, which is an answer and not a failure. */
		if (st.reason == R_SANDBOX_NOT_FOUND)
			op_end_yes(op, &ok, false);
		else
			op_fail(op, &st);
		return;
	case REF_ID:
		op->fetch.fn = on_looked_at;
		if (fetch_join(op->life, op->account, op->ref, false, &op->fetch) < 0)
			op_fail_errno(op, -ENOMEM);
		return;
	case REF_BOX:
		kill_known(op, b);
		return;
	}
}

static const struct op_kind kind = {
	.name = "Kill",
	.start = start,
	.fail = op_fail_yes,
};

int life_kill(struct life *l, const struct principal *who, const char *sandbox, uint64_t deadline_ms,
	      life_bool_fn *done, void *user, struct life_op **ret)
{
	struct op_args o = { .kind = &kind, .who = who, .deadline_ms = deadline_ms,
			     .ref = sandbox ? sandbox : "", .user = user };
	int r = op_new(l, &o, ret);

	if (!r)
		(*ret)->done.yes = done;
	return r;
}
