/* SPDX-License-Identifier: MIT */
/*
 * Create, at most once. The cloud has no idempotency key, so this file is one (FAULTS §2.0). A
 * creation is the protocol; callers (op_create.c) only wait for it. In order:
 *
 *   intent   a row that says what will be sent, synced to the disk
 *   post     one POST, with our tags in its metadata; again only if proven unprocessed
 *   record   row of the sandbox instead of the intent, synced; then, and only then, the answer
 *   settle   the POST's answer was lost: list by tag until it shows up or no longer can
 *   close    it did not show up: the request id stays unknown; reconcile adopts what comes later
 *
 * Killed between any two of them, the next start finds the intent and settles it.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/life/creation.h"
#include "daemon/life/failpoint.h"
#include "daemon/life/holder.h"
#include "daemon/life/keep.h"
#include "daemon/life/lease.h"
#include "daemon/life/op.h"
#include "daemon/life/rules.h"
#include "daemon/life/settle.h"
#include "daemon/life/tags.h"
#include "daemon/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define POSTS_MAX	 3u
#define POST_BACKOFF_MS	 200u
#define POST_BACKOFF_MAX 5000u
#define RECORD_RETRY_MS	 1000u	/* the store refused: the sandbox exists and is written down yet */
#define DETAIL_WAIT_MS	 2000u	/* for times and sizes, which the POST's answer lacks */
#define AGENT_MIN	 "0.1.0"
#define SETTLE_LIST_MS	 30000u

static void post(struct creation *c);
static void record(struct creation *c);
static void settle(struct creation *c);

static struct creation *creation_from(void *p)
{
	struct creation *c = p;

	must(c && c->magic == CREATION_MAGIC);
	return c;
}

/* --- its end --- */

void creation_tokens_free(struct cloud_iam_token *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(v[i].name);
		free(v[i].audience);
		free(v[i].token_type);
	}
	free(v);
}

static void creation_free(void *p)
{
	struct creation *c = creation_from(p);

	c->magic = 0;
	free(c->req_tag);
	free(c->template_id);
	cloud_kvs_fini(&c->metadata);
	cloud_kvs_fini(&c->envs);
	cloud_network_free(c->network);
	creation_tokens_free(c->tokens, c->n_tokens);
	cloud_sandbox_free(c->found);
	holder_unref(c->holder);
	free(c);
}

static void unlink_creation(struct creation *c)
{
	cloud_call_cancel(c->call);
	c->call = NULL;
	timer_clear(&c->timer);
	fetch_leave(&c->detail);
	if (c->name && c->name->creation == c)
		c->name->creation = NULL;
	if (c->request && c->request->creation == c)
		c->request->creation = NULL;
	list_del(&c->node);
}

/* Tells every waiter; the creation is out of all tables before the first of them hears of it. */
static void finish(struct creation *c, const struct status *st, struct box *b)
{
	struct status copy = *st;
	struct list waiters;

	unlink_creation(c);
	list_take(&waiters, &c->waiters);
	list_for_each(n, &waiters)
		op_from_wait(n)->creation = NULL;
	loop_bury(c->life->loop, &c->grave, creation_free, c);
	while (!list_is_empty(&waiters)) {
		struct life_op *op = op_from_wait(waiters.next);

		list_del(&op->wait);
		op_create_ended(op, c, &copy, b);
	}
}

/* Nothing exists in the cloud because of it. `refused`: the request id answers so for a while. */
static void end_without(struct creation *c, const struct status *st, bool refused)
{
	struct request *q = c->request;
	struct store_tx *t;

	if (!store_tx_new(c->life->store, &t)) {
		store_tx_del_intent(t, c->seq);
		if (q)
			store_tx_del_request(t, q->uid, REQUEST_CREATE, q->id);
		life_commit(c->life, t, false);
	}
	if (q && refused) {
		q->refusal = malloc(sizeof(*q->refusal));
		if (q->refusal)
			*q->refusal = *st;
		q->refused_until_ms = clock_boot_ms() + rules_refusal_ms(st);
	}
	log_info("create_ended", "seq=%llu uid=%u sent=%d reason=%s text=%s", (unsigned long long)c->seq,
		 c->uid, refused, status_reason_name(st->reason), log_q(st->text));
	c->request = NULL;
	if (q)
		q->creation = NULL;
	if (q && !refused)
		life_forget_request(c->life, q);
	finish(c, st, NULL);
}

/* --- intent --- */

static void intent_row(const struct creation *c, enum row_intent_state step, struct row_intent *ret)
{
	*ret = (struct row_intent){
		.seq = c->seq,
		.kind = ROW_INTENT_CREATE,
		.state = step,
		.account = c->account->name,
		.uid = c->uid,
		.request_id = c->request ? c->request->id : "",
		.req_tag = c->req_tag,
		.name = c->name ? c->name->name : "",
		.generation = c->generation,
		.template_id = c->template_id,
		.policy = c->policy_text,
		.claimed = !list_is_empty(&c->waiters),
		.made_at_ms = c->made_at_ms,
	};
}

static void on_intent(void *user, const struct status *st)
{
	struct creation *c = creation_from(user);
	struct status gone;

	FAILPOINT("create.intent_committed");
	if (!status_ok(st)) {
		end_without(c, st, false);
	} else if (list_is_empty(&c->waiters)) {
		status_set_code(&gone, CODE_CANCELLED, "nobody waits for it any more");
		end_without(c, &gone, false);
	} else {
		post(c);
	}
}

static int write_intent(struct creation *c)
{
	struct row_intent row;
	struct store_tx *t;
	int r = store_tx_new(c->life->store, &t);

	if (r < 0)
		return r;
	c->step = CREATION_INTENT;
	intent_row(c, ROW_INTENT_OPEN, &row);
	store_tx_put_intent(t, &row);
	if (c->request)
		life_put_request(t, c->request);
	FAILPOINT("create.before_intent");
	store_tx_commit(t, true, on_intent, c);
	return 0;
}

/* --- post --- */

static void on_post_timer(struct timer *t, void *user)
{
	post(creation_from(user));
}

static void wait_then(struct creation *c, uint64_t wait_ms, timer_fn *fn)
{
	struct status st;

	timer_clear(&c->timer);
	timer_init(&c->timer, c->life->loop, fn, c);
	if (timer_set(&c->timer, clock_boot_ms() + wait_ms) == 0)
		return;
	/* Without a timer nothing would go on: the intent stays for the next start to settle. */
	status_errno(&st, -ENOMEM, "create");
	finish(c, &st, NULL);
}

static void on_unsent(struct creation *c, const struct status *st)
{
	uint64_t wait;

	if (list_is_empty(&c->waiters) || c->posts >= POSTS_MAX || c->life->draining) {
		end_without(c, st, false);
		return;
	}
	wait = rules_backoff_ms(c->posts, POST_BACKOFF_MS, POST_BACKOFF_MAX, rng_u64(&c->life->rng));
	wait = MAX(wait, st->retry_after_ms);
	op_obstruct_all(&c->waiters, st);
	c->step = CREATION_PAUSE;
	wait_then(c, wait, on_post_timer);
}

static void on_posted(struct cloud_result *r, void *user)
{
	struct creation *c = creation_from(user);

	c->call = NULL;
	FAILPOINT("create.answered");
	switch (r->outcome) {
	case CLOUD_DONE:
		must(r->sandbox);
		c->found = give(r->sandbox);
		record(c);
		return;
	case CLOUD_UNSENT:
		on_unsent(c, &r->status);
		return;
	case CLOUD_REFUSED:
		end_without(c, &r->status, true);
		return;
	case CLOUD_UNKNOWN:
		c->lost = r->status;
		log_warn("create_unknown", "seq=%llu uid=%u req=%s text=%s", (unsigned long long)c->seq,
			 c->uid, c->req_tag, log_q(r->status.text));
		settle(c);
		return;
	}
}

static void post(struct creation *c)
{
	struct cloud_create what = {
		.template_id = c->template_id,
		.timeout_s = c->timeout_s,
		.secure = c->secure,
		.allow_internet_access = c->allow_internet_access,
		.metadata = c->metadata.v,
		.n_metadata = c->metadata.n,
		.envs = c->envs.v,
		.n_envs = c->envs.n,
		.network = c->network,
		.iam_tokens = c->tokens,
		.n_iam_tokens = c->n_tokens,
		.auto_pause = c->end.on_timeout ? tri_of(c->end.on_timeout == LIFE_ON_TIMEOUT_PAUSE)
						: TRI_UNSET,
		.auto_pause_memory = c->end.keep_memory < 0 ? TRI_UNSET : tri_of(c->end.keep_memory),
		.auto_resume = c->end.auto_resume < 0 ? TRI_UNSET : tri_of(c->end.auto_resume),
	};
	/* The caller's deadline ends the caller's waiting, not this: once sent it is worth reading. */
	struct cloud_ask ask = { .uid = c->uid, .done = on_posted, .user = c };
	struct status st;

	if (list_is_empty(&c->waiters)) {
		status_set_code(&st, CODE_CANCELLED, "nobody waits for it any more");
		end_without(c, &st, false);
		return;
	}
	c->step = CREATION_POST;
	c->posts++;
	FAILPOINT("create.before_send");
	c->call = cloud_create(c->account->cloud, &what, &ask);
	FAILPOINT("create.after_send");
	if (!c->call) {
		status_errno(&st, -ENOMEM, "create");
		end_without(c, &st, false);
	}
}

/* --- record --- */

/* Nothing of ours works with such an agent: it is not left behind, as the SDK does it. */
static void refuse_old(struct creation *c, struct box *b)
{
	struct status st;

	status_set(&st, R_TEMPLATE_TOO_OLD, "template %s has agent %s, at least " AGENT_MIN " is needed; build it "
					    "anew", b->template_id, b->envd_version);
	status_evidence(&st, "sandbox_id", "%s", b->id);
	log_warn("create_old", "box=%s agent=%s", b->id, b->envd_version);
	if (!b->killing && kill_by_policy(c->life, b, "template_too_old") < 0)
		log_warn("create_old", "box=%s err=nomem kill=no", b->id);
	finish(c, &st, NULL);
}

static void answer(struct creation *c)
{
	struct box *b = life_find_box(c->life, c->account, c->found->id);
	struct lease *x = c->holder && b ? lease_of_process(b, c->holder) : NULL;
	struct status ok = STATUS_OK;

	must(b);
	FAILPOINT("create.before_reply");
	/* Unless another call has found and used it meanwhile. */
	if (list_is_empty(&c->waiters) && b->claimed && b->used_at_ms == c->used_at_ms) {
		b->claimed = false;
		b->unclaimed_at_ms = clock_wall_ms();
		b->unclaimed_boot_ms = (int64_t)clock_boot_ms();
		life_save_box(c->life, b, false);
		if (x)
			lease_end(x, "its call ended before the answer");
		keep_poke(b);
	}
	if (cloud_version_cmp(b->envd_version, AGENT_MIN) < 0 && box_is_live(b)) {
		refuse_old(c, b);
		return;
	}
	log_info("create_done", "seq=%llu box=%s uid=%u posts=%u settled=%d claimed=%d",
		 (unsigned long long)c->seq, b->id, c->uid, c->posts, c->settled, b->claimed);
	finish(c, &ok, b);
}

static void answer_when_complete(struct creation *c)
{
	if (c->recorded && c->detailed)
		answer(c);
}

/* The cloud may give less time than it was asked for. */
static void warn_if_capped(struct creation *c, struct box *b)
{
	char *text;

	if (!c->timeout_s || !b->started_at_ms || !b->end_at_ms || b->warning[0] ||
	    b->end_at_ms + 5000 >= b->started_at_ms + c->timeout_s * 1000ll)
		return;
	text = str_printf("the cloud capped the timeout of %u s to %lld s", c->timeout_s,
			  (long long)(b->end_at_ms - b->started_at_ms) / 1000);
	if (!text)
		return;
	free(b->warning);
	b->warning = text;
	life_save_box(c->life, b, false);
}

static void on_detail(struct fetch_wait *w, const struct fetch_news *news)
{
	struct creation *c = creation_from(container_of(w, struct creation, detail));

	if (news->end == FETCH_ALIVE && news->box)
		warn_if_capped(c, news->box);
	c->detailed = true;
	answer_when_complete(c);
}

static void on_detail_late(struct timer *t, void *user)
{
	struct creation *c = creation_from(user);

	fetch_leave(&c->detail);
	c->detailed = true;
	answer_when_complete(c);
}

static void on_record_timer(struct timer *t, void *user)
{
	record(creation_from(user));
}

static void on_recorded(void *user, const struct status *st)
{
	struct creation *c = creation_from(user);
	struct lease *x;
	struct box *b;

	FAILPOINT("create.active_committed");
	if (!status_ok(st)) {
		op_obstruct_all(&c->waiters, st);
		c->step = CREATION_PAUSE;
		wait_then(c, RECORD_RETRY_MS, on_record_timer);
		return;
	}
	c->recorded = true;
	b = c->lease_put ? life_find_box(c->life, c->account, c->found->id) : NULL;
	x = b ? lease_of_process(b, c->holder) : NULL;
	if (x)
		x->written = true;
	if (!c->detailed)
		wait_then(c, DETAIL_WAIT_MS, on_detail_late);
	answer_when_complete(c);
}

static int make_box(struct creation *c, struct box **ret)
{
	scoped(box_freep) struct box *b = NULL;
	int r = box_from_cloud(c->account, c->found, &b);

	if (!r && !c->settled)
		r = pairs_from_cloud(&b->metadata, &c->metadata);
	if (!r)
		r = text_set(&b->req_tag, c->req_tag);
	if (r < 0)
		return r;
	/* Found for an intent of an old database: whoever uses it by now is not known. */
	b->ours = !(c->settled && c->loaded && c->life->doubt == STORE_OLD);
	b->adopted = !b->ours;
	b->uid = c->uid;
	b->seq = c->seq;
	b->generation = c->generation;
	b->policy = c->policy;
	b->timeout_s = c->timeout_s;
	b->used_at_ms = (int64_t)clock_boot_ms();
	b->token_known = !c->settled;
	b->allow_internet_access = c->allow_internet_access == TRI_UNSET
					   ? -1
					   : c->allow_internet_access == TRI_TRUE;
	b->on_timeout = c->end.on_timeout;
	b->keep_memory = c->end.keep_memory;
	b->auto_resume = c->end.auto_resume;
	r = life_insert_box(c->life, b);
	if (!r)
		*ret = give(b);
	return r;
}

/* From the first moment: in the transaction that makes the row. A creator that died meanwhile has
 * released it. */
static int lease_of_creator(struct creation *c, struct box *b, struct store_tx *t)
{
	struct lease_make m = { .uid = c->uid, .pid = c->holder->pid, .label = "",
				.kind = ROW_LEASE_PROCESS, .holder = c->holder };
	struct lease *x = lease_of_process(b, c->holder);
	int r;

	if (c->holder->dead) {
		b->released_at_ms = (int64_t)clock_boot_ms();
		return 0;
	}
	r = x ? 0 : lease_take(c->life, b, &m, NULL, &x);
	if (!r)
		lease_put(t, x);
	c->lease_put = !r;
	return r;
}

/* The box with all that hangs on it; doing it twice (after a refused commit) is harmless. */
static int make_rows(struct creation *c, struct store_tx *t)
{
	struct box *b = life_find_box(c->life, c->account, c->found->id);
	int r = b ? 0 : make_box(c, &b);

	if (r < 0)
		return r;
	b->claimed = !list_is_empty(&c->waiters);
	c->lease_put = false;
	c->used_at_ms = b->used_at_ms;
	b->unclaimed_at_ms = b->claimed ? 0 : clock_wall_ms();
	b->unclaimed_boot_ms = b->claimed ? 0 : (int64_t)clock_boot_ms();
	/* Who was not told that it has one does not hold it: nobody would let it go. */
	if (c->holder && b->claimed && box_is_live(b)) {
		r = lease_of_creator(c, b, t);
		if (r < 0)
			return r;
	}
	if (c->name && !c->name->id[0] && box_is_live(b)) {
		c->name->generation = c->generation;
		life_box_give_name(c->life, b, c->name);
	}
	if (c->request) {
		r = text_set(&c->request->object, b->id);
		c->request->step = ROW_REQUEST_DONE;
		c->request->used_at_ms = clock_wall_ms();
		life_put_request(t, c->request);
	}
	if (c->name)
		life_put_name(t, c->name);
	life_put_box(t, b);
	event_put(c->life, t, b, EVENT_CREATED, "by=create\n");
	store_tx_del_intent(t, c->seq);
	keep_poke(b);
	return r;
}

static void record(struct creation *c)
{
	struct store_tx *t;
	int r = store_tx_new(c->life->store, &t);

	c->step = CREATION_RECORD;
	if (!r) {
		r = make_rows(c, t);
		if (r < 0)
			store_tx_drop(t);
	}
	if (r < 0) {
		wait_then(c, RECORD_RETRY_MS, on_record_timer);
		return;
	}
	FAILPOINT("create.before_active");
	store_tx_commit(t, true, on_recorded, c);
	if (c->detailed || !list_is_empty(&c->detail.node))
		return;
	c->detail.fn = on_detail;
	if (fetch_join(c->life, c->account, c->found->id, false, &c->detail) < 0)
		c->detailed = true;
}

/* --- settle --- */

static void on_settle_timer(struct timer *t, void *user)
{
	settle(creation_from(user));
}

static void close_unknown(struct creation *c)
{
	struct status st;
	struct store_tx *t;

	if (store_tx_new(c->life->store, &t) < 0) {
		wait_then(c, RECORD_RETRY_MS, on_settle_timer);
		return;
	}
	store_tx_del_intent(t, c->seq);
	if (c->request) {
		c->request->step = ROW_REQUEST_UNKNOWN;
		life_put_request(t, c->request);
	}
	life_commit(c->life, t, true);
	FAILPOINT("settle.closed");
	log_warn("create_unsettled", "seq=%llu uid=%u req=%s lists=%u", (unsigned long long)c->seq, c->uid,
		 c->req_tag, c->lists);
	creation_unknown(c, c->request != NULL, &st);
	finish(c, &st, NULL);
}

static void adopt(struct creation *c, struct cloud_sandbox *s)
{
	FAILPOINT("settle.found");
	c->found = s;
	c->settled = true;
	record(c);
}

static void on_settle_list(struct cloud_result *r, void *user)
{
	struct creation *c = creation_from(user);
	struct cloud_list *list = r->outcome == CLOUD_DONE ? r->list : NULL;
	uint64_t wait = 0;
	size_t i = 0;

	c->call = NULL;
	switch (settle_plan(list, store_host_id(c->life->store), c->req_tag, ++c->lists, clock_boot_ms(),
			    c->settle_until_ms, &i, &wait)) {
	case SETTLE_FOUND:
		adopt(c, give(list->v[i]));
		return;
	case SETTLE_DOUBT:
	case SETTLE_CLOSE:
		close_unknown(c);
		return;
	case SETTLE_WAIT:
		wait_then(c, wait, on_settle_timer);
		return;
	}
}

static void settle_list(struct creation *c)
{
	struct cloud_kv want[] = {
		{ (char *)TAG_HOST, (char *)store_host_id(c->life->store) },
		{ (char *)TAG_REQ, c->req_tag },
	};
	struct cloud_filter f = { .metadata = want, .n_metadata = ARRAY_SIZE(want) };
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + SETTLE_LIST_MS,
		.uid = c->uid,
		.done = on_settle_list,
		.user = c,
	};

	c->call = cloud_list_all(c->account->cloud, &f, &ask);
	FAILPOINT("settle.list_sent");
	if (!c->call)
		wait_then(c, RECORD_RETRY_MS, on_settle_timer);
}

static void settle(struct creation *c)
{
	struct row_intent row;
	struct store_tx *t;

	if (c->step == CREATION_SETTLE) {
		settle_list(c);
		return;
	}
	c->step = CREATION_SETTLE;
	c->settle_until_ms = clock_boot_ms() + c->life->settle_horizon_ms;
	list_for_each(n, &c->waiters)
		creation_unknown(c, c->request != NULL, &op_from_wait(n)->obstacle);
	/* Not needed to be right (an open intent is settled too): it is for who reads the file. */
	intent_row(c, ROW_INTENT_SETTLING, &row);
	if (!store_tx_new(c->life->store, &t)) {
		store_tx_put_intent(t, &row);
		life_commit(c->life, t, false);
	}
	wait_then(c, MIN(settle_wait_ms(0), c->life->settle_horizon_ms), on_settle_timer);
}

/* --- what others see --- */

void creation_unknown(const struct creation *c, bool has_request_id, struct status *ret)
{
	status_set(ret, R_OUTCOME_UNKNOWN,
		   has_request_id ? "the cloud's answer was lost; repeat with the same request_id to learn "
				    "what became of it"
				  : "the cloud's answer was lost; if a sandbox was made it shows up in the list");
	/* Repeating is only safe with a request id: UNAVAILABLE invites to repeat. */
	if (!has_request_id)
		ret->code = CODE_UNKNOWN;
	if (c->lost.text[0])
		status_evidence(ret, "lost_by", "%s", c->lost.text);
}

bool creation_maybe_sent(const struct creation *c)
{
	return (c->step == CREATION_POST && c->call && cloud_call_was_sent(c->call)) ||
	       c->step == CREATION_SETTLE;
}

int creation_start(struct creation *c)
{
	int r = store_next_seq(c->life->store, &c->seq);
	struct tags t = {
		.host = store_host_id(c->life->store),
		.req = c->req_tag,
		.name = c->name ? c->name->name : "",
		.uid = c->uid,
		.has_uid = true,
		.policy = c->policy_text,
	};

	if (r < 0)
		return r;
	t.seq = c->seq;
	r = tags_add(&c->metadata, &t);
	if (!r)
		r = write_intent(c);
	if (r < 0)
		return r;
	if (c->name)
		c->name->creation = c;
	if (c->request)
		c->request->creation = c;
	return 0;
}

int creation_new(struct life *l, struct account *a, uid_t uid, struct creation **ret)
{
	struct creation *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->magic = CREATION_MAGIC;
	c->life = l;
	c->account = a;
	c->uid = uid;
	c->policy = l->policy;	/* until its maker says which */
	c->end = (struct creation_end){ .keep_memory = -1, .auto_resume = -1 };
	c->generation = 1;
	c->made_at_ms = clock_wall_ms();
	policy_format(&c->policy, c->policy_text);
	list_init(&c->waiters);
	list_init(&c->detail.node);
	list_add_tail(&l->creations, &c->node);
	if (text_set(&c->req_tag, "") < 0 || text_set(&c->template_id, "") < 0) {
		creation_drop(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void creation_drop(struct creation *c)
{
	unlink_creation(c);
	creation_free(c);
}

void creation_join(struct creation *c, struct life_op *op)
{
	must(!op->creation && list_is_empty(&op->wait));
	op->creation = c;
	op->obstacle = (struct status)STATUS_OK;
	list_add_tail(&c->waiters, &op->wait);
}

void creation_leave(struct creation *c, struct life_op *op)
{
	list_del(&op->wait);
	op->creation = NULL;
	/* Not yet sent: withdrawn, and its end comes as UNSENT. Sent: read to the end. */
	if (list_is_empty(&c->waiters) && c->step == CREATION_POST && c->call)
		cloud_call_abandon(c->call);
}

bool creation_found(struct life *l, struct account *a, const struct cloud_sandbox *s)
{
	struct tags t;

	tags_read(&s->metadata, &t);
	list_for_each(n, &l->creations) {
		struct creation *c = list_entry(n, struct creation, node);

		if (c->account != a || !str_eq(c->req_tag, t.req))
			continue;
		/* Adopting needs the sandbox for itself: the settlement's own list brings it, now. */
		if (c->step == CREATION_SETTLE && !c->call)
			wait_then(c, 0, on_settle_timer);
		return true;
	}
	return false;
}

int creation_take_up(struct life *l, const struct row_intent *r)
{
	struct account *a = life_account_by_name(l, r->account);
	struct creation *c;
	int e;

	if (!a) {
		log_warn("intent_account", "seq=%llu account=%s ignoring=1", (unsigned long long)r->seq,
			 log_q(r->account));
		return 0;
	}
	e = creation_new(l, a, r->uid, &c);
	if (e < 0)
		return e;
	c->seq = r->seq;
	c->loaded = true;
	c->generation = r->generation;
	c->made_at_ms = r->made_at_ms;
	if (policy_parse(r->policy, &c->policy) < 0)
		c->policy = l->policy;
	policy_format(&c->policy, c->policy_text);
	if (r->name[0] && !life_need_name(l, r->uid, r->name, &c->name) && !c->name->creation)
		c->name->creation = c;
	if (r->request_id[0])
		c->request = life_find_request(l, r->uid, REQUEST_CREATE, r->request_id);
	if (c->request && !c->request->creation)
		c->request->creation = c;
	if (text_set(&c->req_tag, r->req_tag) < 0 || text_set(&c->template_id, r->template_id) < 0) {
		creation_drop(c);
		return -ENOMEM;
	}
	log_info("intent_taken_up", "seq=%llu uid=%u req=%s", (unsigned long long)c->seq, c->uid,
		 c->req_tag);
	settle(c);
	return 0;
}

void creation_cancel_all(struct life *l)
{
	while (!list_is_empty(&l->creations)) {
		struct creation *c = list_entry(l->creations.next, struct creation, node);
		struct store_tx *t;

		/* Never sent: the next start need not look for it. */
		if ((c->step == CREATION_POST && c->call && !cloud_call_was_sent(c->call) &&
		     c->posts == 1) &&
		    !store_tx_new(l->store, &t)) {
			store_tx_del_intent(t, c->seq);
			if (c->request)
				store_tx_del_request(t, c->uid, REQUEST_CREATE, c->request->id);
			store_tx_commit(t, false, NULL, NULL);
		}
		must(list_is_empty(&c->waiters));
		creation_drop(c);
	}
}
