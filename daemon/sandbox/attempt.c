/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/attempt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define POSTS_MAX	 3u
#define ALONE_POSTS	 8u	/* of an attempt that goes on alone: about half a minute */
#define POST_BACKOFF_MS	 200u
#define POST_BACKOFF_MAX 5000u
#define RETRY_MS	 1000u	/* after a failed commit, or without memory for a list */

struct attempt *attempt_from(void *p)
{
	struct attempt *a = p;

	must(a && a->magic == ATTEMPT_MAGIC);
	return a;
}

/* --- its end --- */

static void free_all(void *p)
{
	struct attempt *a = attempt_from(p);

	a->magic = 0;
	free(a->source);
	free(a->req_tag);
	free(a->object);
	a->kind->free(a);
}

static void unlink_all(struct attempt *a)
{
	cloud_call_cancel(a->call);
	a->call = NULL;
	timer_clear(&a->timer);
	a->kind->unlink(a);
	if (a->request && a->request->attempt == a)
		a->request->attempt = NULL;
	list_del(&a->node);
}

void attempt_drop(struct attempt *a)
{
	unlink_all(a);
	free_all(a);
}

void attempt_give_up(struct attempt *a)
{
	struct request *q = a->request;
	struct sandbox_core *core = a->core;

	attempt_drop(a);
	if (q && !q->attempt)
		core_forget_request(core, q);
}

static struct tally *totals_of(const struct attempt *a)
{
	struct sandbox_totals *t = &a->core->totals;

	if (str_eq(a->what, "fork"))
		return &t->forks;
	return str_eq(a->what, "snapshot") ? &t->snapshots : &t->creates;
}

void attempt_finish(struct attempt *a, const struct status *st)
{
	tally_add(totals_of(a), st);
	unlink_all(a);
	loop_bury(a->core->loop, &a->grave, free_all, a);
	op_end_waits(&a->waiters, st, status_ok(st));
}

static void remember_refusal(struct request *q, const struct status *st)
{
	q->refusal = malloc(sizeof(*q->refusal));
	if (q->refusal)
		*q->refusal = *st;
	q->refused_until_ms = clock_boot_ms() + rules_refusal_ms(st);
}

static void forget_request(struct attempt *a, const struct status *st, bool refused)
{
	struct request *q = a->request;

	a->request = NULL;
	if (!q)
		return;
	q->attempt = NULL;
	if (!refused) {
		core_forget_request(a->core, q);
		return;
	}
	remember_refusal(q, st);
}

void attempt_end_without(struct attempt *a, const struct status *st, bool refused)
{
	struct status copy = *st;
	struct store_tx *t;

	if (a->seq && !store_tx_new(a->core->store, &t)) {
		a->kind->del_intent(t, a->seq);
		if (a->request)
			store_tx_del_request(t, a->uid, a->request->method, a->request->id);
		if (a->kind->failed)
			a->kind->failed(a, t, &copy);
		core_commit(a->core, t, a->alone);
	}
	log_info("attempt_ended", "what=%s seq=%llu sandbox=%s uid=%u refused=%d reason=%s text=%s",
		 a->what, (unsigned long long)a->seq, a->source, owner_uid(a->uid), refused,
		 status_reason_name(copy.reason), log_q(copy.text));
	forget_request(a, &copy, refused);
	attempt_finish(a, &copy);
}

bool attempt_nobody_waits(struct attempt *a)
{
	struct status gone;

	if (a->alone || !list_is_empty(&a->waiters))
		return false;
	status_set_code(&gone, CODE_CANCELLED, "nobody waits for it any more");
	attempt_end_without(a, &gone, false);
	return true;
}

void attempt_wait(struct attempt *a, uint64_t wait_ms, timer_fn *fn)
{
	struct status st;

	timer_clear(&a->timer);
	timer_init(&a->timer, a->core->loop, fn, a);
	if (timer_set(&a->timer, clock_boot_ms() + wait_ms) == 0)
		return;
	/* Without a timer nothing would go on: the intent stays for the next start to resolve. */
	status_errno(&st, -ENOMEM, a->what);
	attempt_finish(a, &st);
}

/* --- post --- */

static void on_post_timer(struct timer *t, void *user)
{
	attempt_post(attempt_from(user));
}

void attempt_post_after(struct attempt *a, uint64_t wait_ms, const struct status *why)
{
	op_note_pending_error(&a->waiters, why);
	a->step = ATTEMPT_PAUSE;
	attempt_wait(a, wait_ms, on_post_timer);
}

static void on_unsent(struct attempt *a, const struct status *st)
{
	bool wanted = a->alone || !list_is_empty(&a->waiters);
	uint64_t wait;

	if (!wanted || a->posts >= (a->alone ? ALONE_POSTS : POSTS_MAX) || a->core->draining) {
		attempt_end_without(a, st, false);
		return;
	}
	wait = rules_backoff_ms(a->posts, POST_BACKOFF_MS, POST_BACKOFF_MAX, rng_u64(&a->core->rng));
	attempt_post_after(a, MAX(wait, (uint64_t)st->retry_after_ms), st);
}

static void lost(struct attempt *a, const struct cloud_result *r)
{
	a->lost = r->status;
	/* A 502 or 503 may be a proxy's that gave up while the cloud goes on: that is no answer of the cloud. */
	a->answered = r->http_status >= 500 && !r->retry_later && !r->repeated && a->posts == 1;
	log_warn("attempt_unknown", "what=%s seq=%llu sandbox=%s uid=%u req=%s text=%s", a->what, (unsigned long long)a->seq, a->source,
		 owner_uid(a->uid), a->req_tag, log_q(r->status.text));
	attempt_resolve(a);
}

static void attempt_record(struct attempt *a);

void attempt_posted(struct attempt *a, struct cloud_result *r)
{
	a->call = NULL;
	a->posts += r->posts > 1 ? r->posts - 1 : 0;	/* the pool repeated so many */
	switch (r->outcome) {
	case CLOUD_DONE:
		if (a->kind->names_another(a, r)) {
			status_set(&r->status, R_BAD_CLOUD_REPLY, "the cloud's answer to the %s names another one", a->what);
			lost(a, r);
			return;
		}
		a->kind->take(a, r);
		attempt_record(a);
		return;
	case CLOUD_UNSENT:
		on_unsent(a, &r->status);
		return;
	case CLOUD_REFUSED:
		a->kind->refused(a, r);
		return;
	case CLOUD_UNKNOWN:
		lost(a, r);
		return;
	}
}

void attempt_post(struct attempt *a)
{
	struct status st;

	if (attempt_nobody_waits(a))
		return;
	a->step = ATTEMPT_POST;
	a->posts++;
	a->call = a->kind->post(a);
	if (!a->call) {
		status_errno(&st, -ENOMEM, a->what);
		attempt_end_without(a, &st, false);
	}
}

int attempt_sending(void *attempt)
{
	struct attempt *a = attempt_from(attempt);

	return store_put_sent(a->core->store, a->seq);
}

/* --- record --- */

static void on_record_timer(struct timer *t, void *user)
{
	attempt_record(attempt_from(user));
}

bool attempt_recorded(struct attempt *a, const struct status *st)
{
	a->recorded = status_ok(st);
	if (a->recorded)
		return true;
	op_note_pending_error(&a->waiters, st);
	a->step = ATTEMPT_PAUSE;
	attempt_wait(a, RETRY_MS, on_record_timer);
	return false;
}

static int request_done(struct attempt *a, struct store_tx *t)
{
	int r = text_set(&a->request->object, a->object);

	if (r < 0)
		return r;
	a->request->step = ROW_REQUEST_DONE;
	a->request->used_at_ms = clock_wall_ms();
	core_put_request(t, a->request);
	return 0;
}

static void attempt_record(struct attempt *a)
{
	struct store_tx *t;
	int r = store_tx_new(a->core->store, &t);

	a->step = ATTEMPT_RECORD;
	if (!r) {
		r = a->kind->record(a, t);
		if (!r && a->request)
			r = request_done(a, t);
		if (r < 0)
			store_tx_drop(t);
	}
	if (r < 0) {
		attempt_wait(a, RETRY_MS, on_record_timer);
		return;
	}
	a->kind->del_intent(t, a->seq);
	store_tx_commit(t, true, a->kind->on_recorded, a);
}

/* --- resolve --- */

void attempt_resolve_timer(struct timer *t, void *user)
{
	attempt_resolve(attempt_from(user));
}

static void unknown(const struct attempt *a, bool has_request_id, struct status *ret)
{
	status_set(ret, R_OUTCOME_UNKNOWN,
		   has_request_id ? "the cloud's answer to the %s was lost; repeat with the same request_id to "
				    "learn what became of it"
				  : "the cloud's answer to the %s was lost; what was made shows up in the list",
		   a->what);
	/* Repeating is only safe with a request id: UNAVAILABLE invites to repeat. */
	if (!has_request_id)
		ret->code = CODE_UNKNOWN;
	if (a->lost.text[0])
		status_evidence(ret, "lost_by", "%s", a->lost.text);
	if (a->source[0])
		status_evidence(ret, "sandbox_id", "%s", a->source);
}

static bool is_relative(struct attempt *a, struct attempt *b)
{
	return a != b && a->kind == b->kind && a->kind->is_relative && a->kind->is_relative(a, b);
}

/* A relative's POST is not answered yet: what it makes could be taken for what this one made. */
static bool is_busy(struct attempt *a)
{
	list_for_each(n, &a->core->attempts) {
		struct attempt *o = list_entry(n, struct attempt, node);

		if (o->step >= ATTEMPT_POST && o->step != ATTEMPT_RESOLVE &&
		    o->step != ATTEMPT_DETAIL && is_relative(a, o))
			return true;
	}
	return false;
}

/* Are relatives being resolved as well? Then nobody can tell which of them made what, and they are closed together at
 * *ret_until_ms (BOOTTIME), when nothing of them can show up any more. */
static bool is_mixed(struct attempt *a, uint64_t *ret_until_ms)
{
	bool mixed = false;

	*ret_until_ms = a->resolve_until_ms;
	list_for_each(n, &a->core->attempts) {
		struct attempt *o = list_entry(n, struct attempt, node);

		if (o->step != ATTEMPT_RESOLVE || !is_relative(a, o))
			continue;
		mixed = true;
		*ret_until_ms = MAX(*ret_until_ms, o->resolve_until_ms);
	}
	return mixed;
}

static void close_in(struct attempt *a, struct store_tx *t)
{
	struct status st;

	a->closing = true;
	a->kind->del_intent(t, a->seq);
	unknown(a, a->request != NULL, &st);
	if (a->kind->failed)
		a->kind->failed(a, t, &st);
	if (!a->request)
		return;
	a->request->step = ROW_REQUEST_UNKNOWN;
	core_put_request(t, a->request);
}

static struct attempt *first_closing(struct sandbox_core *core)
{
	list_for_each(n, &core->attempts) {
		struct attempt *a = list_entry(n, struct attempt, node);

		if (a->closing)
			return a;
	}
	return NULL;
}

/* Closes all indistinguishable attempts in one transaction: a survivor would adopt their sandboxes. */
static void close_unknown(struct attempt *a)
{
	struct sandbox_core *core = a->core;
	struct status st;
	struct store_tx *t;

	if (store_tx_new(core->store, &t) < 0) {
		attempt_wait(a, RETRY_MS, attempt_resolve_timer);
		return;
	}
	close_in(a, t);
	list_for_each(n, &core->attempts) {
		struct attempt *o = list_entry(n, struct attempt, node);

		if (o->step == ATTEMPT_RESOLVE && is_relative(a, o))
			close_in(o, t);
	}
	core_commit(core, t, true);
	FAILPOINT("resolve.closed");
	while ((a = first_closing(core))) {
		log_warn("attempt_unsettled", "what=%s seq=%llu sandbox=%s uid=%u req=%s lists=%u",
			 a->what, (unsigned long long)a->seq, a->source, owner_uid(a->uid), a->req_tag,
			 a->lists);
		unknown(a, a->request != NULL, &st);
		attempt_finish(a, &st);
	}
}

static enum resolve_next resolve_next(struct attempt *a, struct cloud_result *r, uint64_t *ret_wait_ms)
{
	uint64_t now = clock_boot_ms(), until;

	*ret_wait_ms = RETRY_MS;
	if (is_busy(a))
		return RESOLVE_WAIT;
	if (!is_mixed(a, &until))
		return a->kind->resolve(a, r, ret_wait_ms);
	if (now >= until)
		return RESOLVE_AMBIGUOUS;
	*ret_wait_ms = MIN(resolve_wait_ms(a->lists), until - now);
	return RESOLVE_WAIT;
}

static uint64_t posted_ms(const struct attempt *a)
{
	return a->resolve_until_ms - a->core->resolve_horizon_ms;
}

/* Nothing was made: the cloud said that it failed, and complete lists from within the shortest life it could have do not show it. */
static bool is_refuted(const struct attempt *a)
{
	return a->answered && !a->seen && a->complete_lists >= resolve_lists_needed(a->core->resolve_horizon_ms) &&
	       clock_boot_ms() < posted_ms(a) + a->lives_ms;
}

void attempt_listed(struct attempt *a, struct cloud_result *r)
{
	uint64_t wait = 0;

	a->call = NULL;
	a->lists++;
	a->complete_lists += r->list && clock_boot_ms() >= posted_ms(a) + resolve_settled_ms(a->core->resolve_horizon_ms);
	switch (resolve_next(a, r, &wait)) {
	case RESOLVE_FOUND:
		log_info("attempt_resolved", "what=%s seq=%llu sandbox=%s lists=%u", a->what,
			 (unsigned long long)a->seq, a->source, a->lists);
		attempt_record(a);
		return;
	case RESOLVE_CLOSE:
		if (is_refuted(a)) {
			attempt_end_without(a, &a->lost, true);
			return;
		}
		fallthrough_;
	case RESOLVE_AMBIGUOUS:
		close_unknown(a);
		return;
	case RESOLVE_WAIT:
		attempt_wait(a, wait, attempt_resolve_timer);
		return;
	}
}

void attempt_resolve(struct attempt *a)
{
	if (a->step == ATTEMPT_RESOLVE) {
		a->call = a->kind->list(a);
		if (!a->call)
			attempt_wait(a, RETRY_MS, attempt_resolve_timer);
		return;
	}
	a->step = ATTEMPT_RESOLVE;
	a->resolve_until_ms = clock_boot_ms() + a->core->resolve_horizon_ms;
	list_for_each(n, &a->waiters)
		unknown(a, a->request != NULL, &op_from_wait(n)->pending_error);
	if (a->kind->resolve_begin(a))
		attempt_wait(a, MIN(resolve_wait_ms(0), a->core->resolve_horizon_ms),
			     attempt_resolve_timer);
	else
		close_unknown(a);
}

/* An attempt that goes on alone has no caller who would repeat it, so it is resolved also where it was never sent. */
void attempt_take_up(struct attempt *a)
{
	uint64_t sent_ms = 0, horizon_ms = a->core->resolve_horizon_ms;
	struct status st;

	switch (store_sent(a->core->store, a->seq, &sent_ms)) {
	case SENT_NEVER:
		if (a->alone)
			break;
		status_set_code(&st, CODE_UNAVAILABLE, "the daemon ended before the %s was sent", a->what);
		attempt_end_without(a, &st, false);
		return;
	case SENT_MAYBE:
		attempt_resolve(a);
		a->resolve_until_ms = MIN(a->resolve_until_ms, MAX(sent_ms + horizon_ms, clock_boot_ms()));
		return;
	case SENT_UNKNOWN:
		break;
	}
	attempt_resolve(a);
}

/* --- its callers --- */

void attempt_join(struct attempt *a, struct sandbox_op *op,
		  void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes))
{
	must(!op->attempt && list_is_empty(&op->wait));
	op->attempt = a;
	op->on_waited = on_waited;
	op->pending_error = (struct status)STATUS_OK;
	list_add_tail(&a->waiters, &op->wait);
}

void attempt_leave(struct sandbox_op *op)
{
	struct attempt *a = give(op->attempt);

	if (!a)
		return;
	list_del(&op->wait);
	if (a->alone || !list_is_empty(&a->waiters))
		return;
	/* Where nothing was sent yet the call is withdrawn and ends as UNSENT; else its answer is read. */
	if (a->step == ATTEMPT_POST && a->call)
		cloud_call_abandon(a->call);
	/* What was made waits for more to say of it: for nobody, and until then a lease is on it of which its process does not know. */
	else if (a->recorded && timer_is_set(&a->timer))
		attempt_wait(a, 0, a->timer.fn);
}

bool attempt_was_sent(const struct sandbox_op *op)
{
	const struct attempt *a = op->attempt;

	return a && (a->step == ATTEMPT_RESOLVE ||
		     (a->step == ATTEMPT_POST && a->call && cloud_call_was_sent(a->call)));
}

/* It was made, and the store does not take its row yet. The store's error alone would read as if nothing had been made. */
static void unwritten(const struct sandbox_op *op, bool has_request_id, struct status *ret)
{
	const struct attempt *a = op->attempt;
	const struct status *why = &op->pending_error;

	status_set(ret, R_OUTCOME_UNKNOWN, "the cloud has done the %s, but the daemon cannot store the result yet (%s); %s", a->what,
		   status_ok(why) ? "the store is slow" : why->text,
		   has_request_id ? "repeat with the same request_id" : "what was made shows up in the list when it is");
	if (!has_request_id)
		ret->code = CODE_UNKNOWN;
	status_evidence(ret, "made", "%s", a->object);
	if (!status_ok(why))
		status_evidence(ret, "store", "%s", status_reason_name(why->reason));
}

void attempt_expired(struct sandbox_op *op, bool has_request_id, struct status *ret)
{
	if (op->attempt && op->attempt->object[0] && !op->attempt->recorded)
		unwritten(op, has_request_id, ret);
	else if (attempt_was_sent(op))
		unknown(op->attempt, has_request_id, ret);
	else
		op_expired_status(op, ret);
}

bool attempt_repeat(struct sandbox_op *op, struct request *q,
		    const uint8_t params_hash[ROW_HASH_BYTES],
		    void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes),
		    void (*answer)(struct sandbox_op *op, struct request *q))
{
	struct status st;

	if (memcmp(q->params_hash, params_hash, ROW_HASH_BYTES)) {
		status_set(&st, R_REQUEST_ID_REUSED, "request_id was used with other parameters; use a new one");
		status_evidence(&st, "request_id", "%s", q->id);
		op_fail(op, &st);
		return true;
	}
	if (q->attempt) {
		attempt_join(q->attempt, op, on_waited);
		return true;
	}
	switch (q->step) {
	case ROW_REQUEST_DONE:
		sandbox_request_used(op->core, q);
		answer(op, q);
		return true;
	case ROW_REQUEST_UNKNOWN:
		status_set(&st, R_OUTCOME_UNKNOWN,
			   "the cloud's answer was lost and what came of this request_id could not be told");
		op_fail(op, &st);
		return true;
	case ROW_REQUEST_OPEN:
		break;
	}
	if (!q->refusal || clock_boot_ms() >= q->refused_until_ms)
		return false;
	op_fail(op, q->refusal);
	return true;
}

/* --- all of them --- */

struct resolve_when attempt_when(const struct attempt *a)
{
	return (struct resolve_when){
		.tries = a->lists, .now_ms = clock_boot_ms(), .until_ms = a->resolve_until_ms};
}

int attempt_init(struct attempt *a, const struct attempt_kind *kind, struct account *account,
		 uid_t uid, const char *source, const char *req_tag)
{
	struct sandbox_core *core = account->core;

	a->magic = ATTEMPT_MAGIC;
	a->kind = kind;
	a->core = core;
	a->account = account;
	a->uid = uid;
	a->policy = core->policy;	/* a default; the caller sets the one that applies */
	a->made_at_ms = clock_wall_ms();
	list_init(&a->waiters);
	list_add_tail(&core->attempts, &a->node);
	if (text_set(&a->source, source) == 0 && text_set(&a->req_tag, req_tag) == 0 && text_set(&a->object, "") == 0)
		return 0;
	attempt_drop(a);
	return -ENOMEM;
}

static int open_request(struct account *account, uid_t uid, const char *method, const char *id,
			const uint8_t params_hash[ROW_HASH_BYTES], struct request **ret)
{
	struct request *q;
	int r = core_need_request(account->core, uid, method, id, &q);

	if (r < 0)
		return r;
	free(give(q->refusal));
	q->step = ROW_REQUEST_OPEN;
	q->account = account;
	q->used_at_ms = clock_wall_ms();
	memcpy(q->params_hash, params_hash, sizeof(q->params_hash));
	*ret = q;
	return 0;
}

int attempt_refuse_request(struct account *account, uid_t uid, const char *method, const char *id,
			   const uint8_t params_hash[ROW_HASH_BYTES], const struct status *st)
{
	struct request *q;
	int r = open_request(account, uid, method, id, params_hash, &q);

	if (r == 0)
		remember_refusal(q, st);
	return r;
}

int attempt_take_request(struct attempt *a, const char *method, const char *id, const char *tag,
			 const uint8_t params_hash[ROW_HASH_BYTES])
{
	struct request *q;
	int r = open_request(a->account, a->uid, method, id, params_hash, &q);

	if (r < 0)
		return r;
	q->attempt = a;
	a->request = q;
	return index_request_set_tag(a->core, q, tag);
}

struct account *attempt_account(struct sandbox_core *core, const char *name, uint64_t seq)
{
	struct account *a = core_account_by_name(core, name);

	if (!a)
		log_warn("intent_account", "seq=%llu account=%s ignoring=1", (unsigned long long)seq, log_q(name));
	return a;
}

/* A request id with an outcome, or of an attempt that was taken up already, is not that of this one: the disk did not take the
 * commit that ended this one, and a repeat made another. */
void attempt_find_request(struct attempt *a, const char *method, const char *id)
{
	struct request *q = id[0] ? core_find_request(a->core, a->uid, method, id) : NULL;

	if (!q || q->attempt || q->step != ROW_REQUEST_OPEN)
		return;
	a->request = q;
	q->attempt = a;
}

bool sandbox_attempt_makes(struct sandbox_core *core, const struct cloud_sandbox *s)
{
	struct tags t;

	tags_read(&s->metadata, &t);
	list_for_each(n, &core->attempts) {
		struct attempt *a = list_entry(n, struct attempt, node);

		if (a->req_tag[0] && str_eq(a->req_tag, t.req) && a->kind->makes(a, s->id))
			return a->seen = true;
	}
	return false;
}

uint32_t core_attempts_count(const struct sandbox_core *core, const struct account *account,
			     const uid_t *uid)
{
	uint32_t n = 0;

	list_for_each(i, &core->attempts) {
		struct attempt *a = list_entry(i, struct attempt, node);

		/* What is recorded has rows, which are counted elsewhere. */
		if (a->step != ATTEMPT_RECORD && a->step != ATTEMPT_DETAIL &&
		    (account ? a->account == account : a->uid == *uid))
			n += a->sandboxes;
	}
	return n;
}

void core_attempts_cancel(struct sandbox_core *core)
{
	while (!list_is_empty(&core->attempts)) {
		struct attempt *a = list_entry(core->attempts.next, struct attempt, node);
		struct store_tx *t;

		/* Never sent: without the intent the next start need not resolve it. */
		if (a->step == ATTEMPT_POST && a->call && !cloud_call_was_sent(a->call) && a->posts == 1 &&
		    !store_tx_new(core->store, &t)) {
			a->kind->del_intent(t, a->seq);
			if (a->request)
				store_tx_del_request(t, a->uid, a->request->method, a->request->id);
			store_tx_commit(t, false, NULL, NULL);
		}
		must(list_is_empty(&a->waiters));
		attempt_drop(a);
	}
}

/* --- a stop --- */

void sandbox_core_settle(struct sandbox_core *core)
{
	core->settling = true;
	list_for_each(n, &core->attempts)
		list_entry(n, struct attempt, node)->is_awaited = true;
}

/* Of those, the ones whose request may have left, or leaves in a moment: not what waits for its turn, for a cloud that is away, or is
 * looked for already. */
static bool is_unsettled(const struct attempt *a)
{
	return a->is_awaited && (a->step == ATTEMPT_KNOWN || a->step == ATTEMPT_INTENT || a->step == ATTEMPT_POST ||
				 a->step == ATTEMPT_RECORD);
}

uint32_t sandbox_core_unsettled(const struct sandbox_core *core)
{
	uint32_t n = 0;

	list_for_each(i, &core->attempts)
		n += is_unsettled(list_entry(i, struct attempt, node));
	return n;
}
