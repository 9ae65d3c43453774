/* SPDX-License-Identifier: MIT */
/*
 * The protocol of a fork or a snapshot. In order:
 *
 *   turn     no other change of the source meanwhile
 *   known    what is there already, asked from the cloud
 *   intent   a row with that, synced to the disk
 *   post     one POST; again only if proven unprocessed
 *   record   rows of what was made instead of the intent, synced; then the answer
 *   settle   the answer was lost: list until it shows up or no longer can. The source is free again
 *
 * What cannot be told apart is OUTCOME_UNKNOWN, and nothing is killed or deleted. Killed between any
 * two steps, the next start finds the intent and settles it.
 */
#include "daemon/life/copying.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/life/failpoint.h"
#include "daemon/life/lines.h"
#include "daemon/life/op.h"
#include "daemon/life/rules.h"
#include "daemon/life/tags.h"
#include "daemon/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define POSTS_MAX	 3u
#define POST_BACKOFF_MS	 200u
#define POST_BACKOFF_MAX 5000u
#define CONFLICTS_MAX	 30u
#define CONFLICT_BACKOFF_MAX 2000u
#define RECORD_RETRY_MS	 1000u
#define LIST_MS		 30000u
#define DETAIL_MS	 2000u
#define BEHIND_MS	 500u	/* another one of this source is being settled */
#define AGENT_MIN	 "0.5.0"

static void begin(struct copying *c);
static void post(struct copying *c);
static void record(struct copying *c);
static void settle(struct copying *c);

static struct copying *copying_from(void *p)
{
	struct copying *c = p;

	must(c && c->magic == COPYING_MAGIC);
	return c;
}

static struct box *source_of(const struct copying *c)
{
	return life_find_box(c->life, c->account, c->source);
}

/* --- its end --- */

static void copying_free(void *p)
{
	struct copying *c = copying_from(p);

	c->magic = 0;
	free(c->source);
	free(c->req_tag);
	free(c->name);
	free(c->object);
	cloud_strs_fini(&c->known);
	cloud_children_free(c->children);
	cloud_snapshot_free(c->snapshot);
	free(c);
}

/* The source is free for other changes. */
static void let_go(struct copying *c)
{
	struct box *b = c->changing ? source_of(c) : NULL;

	c->changing = false;
	if (b) {
		b->changing = false;
		if (b->state == LIFE_SNAPSHOTTING)
			life_box_changed(c->life, b, LIFE_RUNNING, "");
	}
	turn_end(&c->turn);
}

static void unlink_copying(struct copying *c)
{
	cloud_call_cancel(c->call);
	c->call = NULL;
	timer_clear(&c->timer);
	fetch_leave(&c->look);
	let_go(c);
	if (c->request && c->request->copying == c)
		c->request->copying = NULL;
	list_del(&c->node);
}

static void finish(struct copying *c, const struct status *st)
{
	unlink_copying(c);
	loop_bury(c->life->loop, &c->grave, copying_free, c);
	op_tell_all(&c->waiters, st, status_ok(st));
}

static void forget_request(struct copying *c, const struct status *st, bool refused)
{
	struct request *q = c->request;

	c->request = NULL;
	if (!q)
		return;
	q->copying = NULL;
	if (!refused) {
		life_forget_request(c->life, q);
		return;
	}
	q->refusal = malloc(sizeof(*q->refusal));
	if (q->refusal)
		*q->refusal = *st;
	q->refused_until_ms = clock_boot_ms() + rules_refusal_ms(st);
}

/* Nothing exists in the cloud because of it. */
static void end_without(struct copying *c, const struct status *st, bool refused)
{
	struct status copy = *st;
	struct store_tx *t;

	if (c->seq && !store_tx_new(c->life->store, &t)) {
		store_tx_del_copy(t, c->seq);
		if (c->request)
			store_tx_del_request(t, c->uid, c->kind->method, c->request->id);
		life_commit(c->life, t, false);
	}
	log_info("copy_ended", "what=%s box=%s uid=%u refused=%d reason=%s text=%s", c->kind->what,
		 c->source, c->uid, refused, status_reason_name(copy.reason), log_q(copy.text));
	forget_request(c, &copy, refused);
	finish(c, &copy);
}

static bool nobody_waits(struct copying *c)
{
	struct status gone;

	if (!list_is_empty(&c->waiters))
		return false;
	status_set_code(&gone, CODE_CANCELLED, "nobody waits for it any more");
	end_without(c, &gone, false);
	return true;
}

static void wait_then(struct copying *c, uint64_t wait_ms, timer_fn *fn)
{
	struct status st;

	timer_clear(&c->timer);
	timer_init(&c->timer, c->life->loop, fn, c);
	if (timer_set(&c->timer, clock_boot_ms() + wait_ms) == 0)
		return;
	/* Without a timer nothing would go on: the intent stays for the next start to settle. */
	status_errno(&st, -ENOMEM, c->kind->what);
	finish(c, &st);
}

/* --- intent --- */

static void on_intent(void *user, const struct status *st)
{
	struct copying *c = copying_from(user);

	FAILPOINT("copy.intent_committed");
	if (!status_ok(st))
		end_without(c, st, false);
	else if (!nobody_waits(c))
		post(c);
}

static int write_intent(struct copying *c)
{
	char policy[POLICY_TEXT_MAX], *known = lines_join(&c->known);
	struct row_copy row = {
		.kind = c->kind->row,
		.account = c->account->name,
		.uid = c->uid,
		.request_id = c->request ? c->request->id : "",
		.source = c->source,
		.name = c->name,
		.count = c->count,
		.policy = policy,
		.known = known,
		.made_at_ms = c->made_at_ms,
	};
	struct store_tx *t;
	int r = known ? store_next_seq(c->life->store, &c->seq) : -ENOMEM;

	if (!r)
		r = store_tx_new(c->life->store, &t);
	if (r < 0) {
		free(known);
		return r;
	}
	policy_format(&c->policy, policy);
	row.seq = c->seq;
	c->step = COPYING_INTENT;
	store_tx_put_copy(t, &row);
	if (c->request)
		life_put_request(t, c->request);
	free(known);
	FAILPOINT("copy.before_intent");
	store_tx_commit(t, true, on_intent, c);
	return 0;
}

static void intend(struct copying *c)
{
	struct status st;
	int r;

	if (nobody_waits(c))
		return;
	r = write_intent(c);
	if (!r)
		return;
	if (r == -EAGAIN) {
		life_store_refusal(c->life, &st);
	} else {
		status_errno(&st, r, c->kind->what);
	}
	end_without(c, &st, false);
}

/* --- known --- */

static void on_known(struct cloud_result *r, void *user)
{
	struct copying *c = copying_from(user);
	struct status st;

	c->call = NULL;
	if (r->outcome != CLOUD_DONE) {
		end_without(c, &r->status, false);
		return;
	}
	if (r->date_ms)
		c->made_at_ms = r->date_ms;
	if (c->kind->take_known(c, r) < 0) {
		status_errno(&st, -ENOMEM, c->kind->what);
		end_without(c, &st, false);
		return;
	}
	intend(c);
}

static void ask_known(struct copying *c)
{
	struct cloud_ask ask = { .deadline_ms = clock_boot_ms() + LIST_MS, .uid = c->uid,
				 .done = on_known, .user = c };
	struct status st;

	c->step = COPYING_KNOWN;
	c->made_at_ms = clock_wall_ms();
	if (c->kind == &copying_fork && !c->req_tag[0]) {
		intend(c);	/* without a tag of ours nothing tells its children from others */
		return;
	}
	c->call = c->kind->ask_known(c, &ask);
	if (!c->call) {
		status_errno(&st, -ENOMEM, c->kind->what);
		end_without(c, &st, false);
	}
}

/* --- turn --- */

static void on_turn(struct turn *t)
{
	begin(copying_from(container_of(t, struct copying, turn)));
}

static void on_behind(struct timer *t, void *user)
{
	copying_start(copying_from(user));
}

/* One that is being settled must not meet new ones: they could not be told from its own. */
static bool is_behind(struct copying *c)
{
	struct status st;

	list_for_each(n, &c->life->copyings) {
		struct copying *o = list_entry(n, struct copying, node);

		if (o == c || o->kind != c->kind || o->step != COPYING_SETTLE || o->account != c->account ||
		    (!str_eq(o->source, c->source) &&
		     (!c->req_tag[0] || !str_eq(o->req_tag, c->req_tag))))
			continue;
		status_set(&st, R_STATE_CHANGING, "what became of an earlier %s of sandbox %s is being found "
						  "out; repeat", c->kind->what, c->source);
		op_obstruct_all(&c->waiters, &st);
		turn_end(&c->turn);
		wait_then(c, BEHIND_MS, on_behind);
		return true;
	}
	return false;
}

static void on_source_looked(struct fetch_wait *w, const struct fetch_news *news)
{
	begin(copying_from(container_of(w, struct copying, look)));
}

/* The row says that it does not run: it may be old. True: it was said, or is being asked. */
static bool is_refused(struct copying *c, struct box *b)
{
	struct status st;

	if (box_is_live(b) && b->state != LIFE_RUNNING && !c->looked) {
		c->looked = true;
		c->look.fn = on_source_looked;
		if (fetch_join(c->life, c->account, c->source, false, &c->look) == 0)
			return true;
	}
	if (b->state != LIFE_RUNNING) {
		box_refusal(b, &st);
		end_without(c, &st, false);
		return true;
	}
	if (b->envd_version[0] && cloud_version_cmp(b->envd_version, AGENT_MIN) < 0 &&
	    !str_eq(b->envd_version, "v1.0.0")) {
		status_set(&st, R_TEMPLATE_TOO_OLD, "a %s needs agent " AGENT_MIN ", sandbox %s has %s",
			   c->kind->what, b->id, b->envd_version);
		end_without(c, &st, false);
		return true;
	}
	return false;
}

static void begin(struct copying *c)
{
	struct box *b = source_of(c);

	if (nobody_waits(c) || is_behind(c))
		return;
	if (b) {
		if (is_refused(c, b))
			return;
		b->changing = c->changing = true;
		box_set_state(b, LIFE_SNAPSHOTTING);
	}
	ask_known(c);
}

static void on_start(struct timer *t, void *user)
{
	begin(copying_from(user));
}

void copying_start(struct copying *c)
{
	struct box *b = source_of(c);

	c->step = COPYING_WAIT;
	if (b)
		turn_take(&c->turn, b);
	else
		wait_then(c, 0, on_start);
}

/* --- post --- */

static void on_post_timer(struct timer *t, void *user)
{
	post(copying_from(user));
}

static void on_unsent(struct copying *c, const struct status *st)
{
	uint64_t wait;

	if (list_is_empty(&c->waiters) || c->posts >= POSTS_MAX || c->life->draining) {
		end_without(c, st, false);
		return;
	}
	wait = rules_backoff_ms(c->posts, POST_BACKOFF_MS, POST_BACKOFF_MAX, rng_u64(&c->life->rng));
	op_obstruct_all(&c->waiters, st);
	c->step = COPYING_PAUSE;
	wait_then(c, MAX(wait, (uint64_t)st->retry_after_ms), on_post_timer);
}

/* A 409 is another's change of the source, below our row: it passes. */
static bool waits_for_change(struct copying *c, const struct cloud_result *r)
{
	uint64_t wait;

	if (!r->conflict || list_is_empty(&c->waiters) || c->life->draining ||
	    c->conflicts >= CONFLICTS_MAX)
		return false;
	wait = rules_backoff_ms(c->conflicts++, POST_BACKOFF_MS, CONFLICT_BACKOFF_MAX,
				rng_u64(&c->life->rng));
	c->posts--;	/* it was no attempt */
	op_obstruct_all(&c->waiters, &r->status);
	c->step = COPYING_PAUSE;
	wait_then(c, wait, on_post_timer);
	return true;
}

static void on_lost_looked(struct fetch_wait *w, const struct fetch_news *news)
{
}

static void on_refusal_looked(struct fetch_wait *w, const struct fetch_news *news)
{
	struct copying *c = copying_from(container_of(w, struct copying, look));
	struct status st = c->lost;

	if (news->box && news->box->state != LIFE_RUNNING && news->box->state != LIFE_SNAPSHOTTING)
		box_refusal(news->box, &st);
	else if (news->end == FETCH_ABSENT)
		ref_not_found(&st, c->source);
	else if (news->s && news->s->state == CLOUD_STATE_PAUSED)
		status_set(&st, R_SANDBOX_PAUSED, "sandbox %s is paused; Connect resumes it", c->source);
	/* What passes by itself is no answer to keep for the request id. */
	end_without(c, &st, st.reason != R_STATE_CHANGING);
}

/* 404 and 409 do not say whether it is paused or gone: what it is goes into the refusal. */
static void refused(struct copying *c, const struct cloud_result *r)
{
	struct box *b = source_of(c);

	c->lost = r->status;
	if (r->not_found || r->conflict) {
		if (b)
			b->changing = false;
		c->look.fn = on_refusal_looked;
		if (list_is_empty(&c->look.node) &&
		    fetch_join(c->life, c->account, c->source, false, &c->look) == 0)
			return;
	}
	end_without(c, &r->status, !r->conflict);
}

static void on_posted(struct cloud_result *r, void *user)
{
	struct copying *c = copying_from(user);

	c->call = NULL;
	FAILPOINT("copy.answered");
	switch (r->outcome) {
	case CLOUD_DONE:
		c->kind->take(c, r);
		record(c);
		return;
	case CLOUD_UNSENT:
		on_unsent(c, &r->status);
		return;
	case CLOUD_REFUSED:
		if (!waits_for_change(c, r))
			refused(c, r);
		return;
	case CLOUD_UNKNOWN:
		c->lost = r->status;
		log_warn("copy_unknown", "what=%s seq=%llu box=%s uid=%u text=%s", c->kind->what,
			 (unsigned long long)c->seq, c->source, c->uid, log_q(r->status.text));
		settle(c);
		return;
	}
}

static void post(struct copying *c)
{
	/* The caller's deadline ends the caller's waiting, not this: once sent it is worth reading. */
	struct cloud_ask ask = { .uid = c->uid, .done = on_posted, .user = c };
	struct status st;

	if (nobody_waits(c))
		return;
	c->step = COPYING_POST;
	c->posts++;
	FAILPOINT("copy.before_send");
	c->call = c->kind->post(c, &ask);
	FAILPOINT("copy.after_send");
	if (!c->call) {
		status_errno(&st, -ENOMEM, c->kind->what);
		end_without(c, &st, false);
	}
}

/* --- record --- */

static void on_record_timer(struct timer *t, void *user)
{
	record(copying_from(user));
}

static void end_well(struct copying *c)
{
	struct status ok = STATUS_OK;

	log_info("copy_done", "what=%s seq=%llu box=%s uid=%u made=%s posts=%u", c->kind->what,
		 (unsigned long long)c->seq, c->source, c->uid, log_q(c->object), c->posts);
	finish(c, &ok);
}

static void on_detail(struct cloud_result *r, void *user)
{
	struct copying *c = copying_from(user);

	c->call = NULL;
	for (size_t i = 0; r->list && i < r->list->n; i++) {
		struct box *b = life_find_box(c->life, c->account, r->list->v[i]->id);

		if (b && !str_eq(b->id, c->source))
			life_box_seen(c->life, b, r->list->v[i]);
	}
	end_well(c);
}

/* Times and sizes, which the answer of a fork lacks. */
static bool wants_detail(const struct copying *c)
{
	bool any = false;

	for (size_t i = 0; c->children && i < c->children->n; i++)
		any |= c->children->v[i].sandbox && !c->children->v[i].sandbox->started_at_ms;
	return any;
}

static void on_recorded(void *user, const struct status *st)
{
	struct copying *c = copying_from(user);
	struct cloud_kv want[] = {
		{ (char *)TAG_HOST, (char *)store_host_id(c->life->store) },
		{ (char *)TAG_REQ, c->req_tag },
	};
	struct cloud_filter f = { .metadata = want, .n_metadata = c->req_tag[0] ? ARRAY_SIZE(want) : 0 };
	struct cloud_ask ask = { .deadline_ms = clock_boot_ms() + DETAIL_MS, .uid = c->uid,
				 .done = on_detail, .user = c };

	FAILPOINT("copy.recorded");
	if (!status_ok(st)) {
		op_obstruct_all(&c->waiters, st);
		c->step = COPYING_PAUSE;
		wait_then(c, RECORD_RETRY_MS, on_record_timer);
		return;
	}
	c->step = COPYING_DETAIL;
	let_go(c);
	c->call = wants_detail(c) ? cloud_list_all(c->account->cloud, &f, &ask) : NULL;
	if (!c->call)
		end_well(c);
}

static void record(struct copying *c)
{
	struct store_tx *t;
	int r = store_tx_new(c->life->store, &t);

	c->step = COPYING_RECORD;
	if (!r) {
		r = c->kind->record(c, t);
		if (!r && c->request)
			r = text_set(&c->request->object, c->object);
		if (r < 0)
			store_tx_drop(t);
	}
	if (r < 0) {
		wait_then(c, RECORD_RETRY_MS, on_record_timer);
		return;
	}
	if (c->request) {
		c->request->step = ROW_REQUEST_DONE;
		c->request->used_at_ms = clock_wall_ms();
		life_put_request(t, c->request);
	}
	store_tx_del_copy(t, c->seq);
	FAILPOINT("copy.before_record");
	store_tx_commit(t, true, on_recorded, c);
}

/* --- settle --- */

static void on_settle_timer(struct timer *t, void *user)
{
	settle(copying_from(user));
}

static void close_unknown(struct copying *c)
{
	struct status st;
	struct store_tx *t;

	if (store_tx_new(c->life->store, &t) < 0) {
		wait_then(c, RECORD_RETRY_MS, on_settle_timer);
		return;
	}
	store_tx_del_copy(t, c->seq);
	if (c->request) {
		c->request->step = ROW_REQUEST_UNKNOWN;
		life_put_request(t, c->request);
	}
	life_commit(c->life, t, true);
	copying_unknown(c, c->request != NULL, &st);
	log_warn("copy_closed", "what=%s seq=%llu box=%s uid=%u outcome=unknown", c->kind->what,
		 (unsigned long long)c->seq, c->source, c->uid);
	finish(c, &st);
}

static void on_settle_list(struct cloud_result *r, void *user)
{
	struct copying *c = copying_from(user);
	uint64_t wait = 0;

	c->call = NULL;
	FAILPOINT("copy.settle_listed");
	switch (c->kind->settle(c, r, &wait)) {
	case SETTLE_FOUND:
		log_info("copy_settled", "what=%s seq=%llu box=%s", c->kind->what,
			 (unsigned long long)c->seq, c->source);
		record(c);
		return;
	case SETTLE_DOUBT:
	case SETTLE_CLOSE:
		close_unknown(c);
		return;
	case SETTLE_WAIT:
		c->lists++;
		wait_then(c, wait, on_settle_timer);
		return;
	}
}

static void settle(struct copying *c)
{
	struct cloud_ask ask = { .deadline_ms = clock_boot_ms() + LIST_MS, .uid = c->uid,
				 .done = on_settle_list, .user = c };

	if (c->step == COPYING_SETTLE) {
		c->call = c->kind->ask_known(c, &ask);
		if (!c->call)
			wait_then(c, RECORD_RETRY_MS, on_settle_timer);
		return;
	}
	c->step = COPYING_SETTLE;
	c->settle_until_ms = clock_boot_ms() + c->life->settle_horizon_ms;
	let_go(c);
	list_for_each(n, &c->waiters)
		copying_unknown(c, c->request != NULL, &op_from_wait(n)->obstacle);
	/* A checkpoint that failed may have ended the source. */
	c->look.fn = on_lost_looked;
	if (list_is_empty(&c->look.node) &&
	    fetch_join(c->life, c->account, c->source, true, &c->look) < 0)
		log_debug("copy_look", "box=%s err=nomem", c->source);
	if (c->kind == &copying_fork && !c->req_tag[0])
		close_unknown(c);
	else
		wait_then(c, MIN(settle_wait_ms(0), c->life->settle_horizon_ms), on_settle_timer);
}

/* --- what others see --- */

void copying_unknown(const struct copying *c, bool has_request_id, struct status *ret)
{
	status_set(ret, R_OUTCOME_UNKNOWN,
		   has_request_id ? "the cloud's answer to the %s was lost; repeat with the same request_id to "
				    "learn what became of it"
				  : "the cloud's answer to the %s was lost; what was made shows up in the list",
		   c->kind->what);
	/* Repeating is only safe with a request id: UNAVAILABLE invites to repeat. */
	if (!has_request_id)
		ret->code = CODE_UNKNOWN;
	if (c->lost.text[0])
		status_evidence(ret, "lost_by", "%s", c->lost.text);
	status_evidence(ret, "sandbox_id", "%s", c->source);
}

bool copying_maybe_sent(const struct copying *c)
{
	return (c->step == COPYING_POST && c->call && cloud_call_was_sent(c->call)) ||
	       c->step == COPYING_SETTLE;
}

uint32_t copying_count(const struct life *l, const struct account *a, const uid_t *uid)
{
	uint32_t n = 0;

	list_for_each(i, &l->copyings) {
		struct copying *c = list_entry(i, struct copying, node);

		if (c->kind == &copying_fork && c->step < COPYING_RECORD &&
		    (a ? c->account == a : c->uid == *uid))
			n += c->count;
	}
	return n;
}

int copying_new(struct life *l, const struct copying_kind *kind, struct account *a, uid_t uid,
		const char *source, struct copying **ret)
{
	struct copying *c = calloc(1, sizeof(*c));
	struct box *b = life_find_box(l, a, source);

	if (!c)
		return -ENOMEM;
	c->magic = COPYING_MAGIC;
	c->life = l;
	c->kind = kind;
	c->account = a;
	c->uid = uid;
	c->count = 1;
	c->policy = l->policy;
	list_init(&c->waiters);
	list_init(&c->look.node);
	turn_init(&c->turn, on_turn);
	list_add_tail(&l->copyings, &c->node);
	if (text_set(&c->source, source) < 0 || text_set(&c->req_tag, b && b->ours ? b->req_tag : "") < 0 ||
	    text_set(&c->name, "") < 0 || text_set(&c->object, "") < 0) {
		copying_drop(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void copying_drop(struct copying *c)
{
	unlink_copying(c);
	copying_free(c);
}

void copying_join(struct copying *c, struct life_op *op)
{
	must(!op->copying && list_is_empty(&op->wait));
	op->copying = c;
	op->obstacle = (struct status)STATUS_OK;
	list_add_tail(&c->waiters, &op->wait);
}

void copying_leave(struct copying *c, struct life_op *op)
{
	list_del(&op->wait);
	op->copying = NULL;
	/* Not yet sent: withdrawn, and its end comes as UNSENT. Sent: read to the end. */
	if (list_is_empty(&c->waiters) && c->step == COPYING_POST && c->call)
		cloud_call_abandon(c->call);
}

bool copying_found(struct life *l, struct account *a, const struct cloud_sandbox *s)
{
	struct tags t;

	tags_read(&s->metadata, &t);
	list_for_each(n, &l->copyings) {
		struct copying *c = list_entry(n, struct copying, node);

		if (c->account == a && c->kind == &copying_fork && c->req_tag[0] && c->step >= COPYING_POST &&
		    str_eq(c->req_tag, t.req) && !cloud_strs_has(&c->known, s->id))
			return true;
	}
	return false;
}

int copying_take_up(struct life *l, const struct row_copy *r)
{
	const struct copying_kind *kind = r->kind == ROW_COPY_FORK ? &copying_fork : &copying_snapshot;
	struct account *a = life_account_by_name(l, r->account);
	struct copying *c;
	int e;

	if (!a) {
		log_warn("intent_account", "seq=%llu account=%s ignoring=1", (unsigned long long)r->seq,
			 log_q(r->account));
		return 0;
	}
	e = copying_new(l, kind, a, r->uid, r->source, &c);
	if (e < 0)
		return e;
	c->seq = r->seq;
	c->count = r->count;
	c->made_at_ms = r->made_at_ms;
	if (policy_parse(r->policy, &c->policy) < 0)
		c->policy = l->policy;
	if (r->request_id[0])
		c->request = life_find_request(l, r->uid, kind->method, r->request_id);
	if (c->request && !c->request->copying)
		c->request->copying = c;
	if (text_set(&c->name, r->name) < 0 || lines_split(&c->known, r->known) < 0) {
		copying_drop(c);
		return -ENOMEM;
	}
	log_info("copy_taken_up", "what=%s seq=%llu box=%s uid=%u", kind->what, (unsigned long long)c->seq,
		 c->source, c->uid);
	settle(c);
	return 0;
}

void copying_cancel_all(struct life *l)
{
	while (!list_is_empty(&l->copyings)) {
		struct copying *c = list_entry(l->copyings.next, struct copying, node);
		struct store_tx *t;

		/* Never sent: the next start need not look for it. */
		if (c->seq && c->step == COPYING_POST && c->call && !cloud_call_was_sent(c->call) &&
		    c->posts == 1 && !store_tx_new(l->store, &t)) {
			store_tx_del_copy(t, c->seq);
			if (c->request)
				store_tx_del_request(t, c->uid, c->kind->method, c->request->id);
			store_tx_commit(t, false, NULL, NULL);
		}
		must(list_is_empty(&c->waiters));
		copying_drop(c);
	}
}
