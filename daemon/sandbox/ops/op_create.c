/* SPDX-License-Identifier: MIT */
/*
 * A caller of Create. Step 1: is it a repeat? 2: is there a sandbox of the name? 3: is there a warm one, or may one be
 * made? 4: it waits for a creation (create.c), its own or one that it joins. op_create_start() runs again after each
 * wait for something that may have changed the answers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/creation.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "proto/cloud/netrules.h"


struct args {
	struct sandbox_create c;	/* c.what goes to the creation that it begins */
	struct holder *holder;		/* process_lease: the caller's process; else NULL */
	bool bad;			/* the input is refused with `why` */
	struct status why;
	bool is_fresh;			/* the cloud was asked about the existing sandbox */
	bool has_waited;		/* it waited for a warm one, and it is its turn */
	bool own;			/* the creation that it waits for is its own request's, not another one of its name */
};

void sandbox_create_fini(struct sandbox_create *c)
{
	free(c->request_id);
	free(c->account);
	free(c->name);
	cloud_create_fini(&c->what);
	*c = (struct sandbox_create){ 0 };
}

static void op_create_fini_args(void *args)
{
	struct args *a = args;

	sandbox_create_fini(&a->c);
	holder_unref(a->holder);
}

/* c->network must be complete (netrules_complete()). */
static bool surface_is_valid(const struct cloud_create *c, bool cloud_rules, struct status *st)
{
	const struct netrules_with with = {
		.secure = c->secure == TRI_FALSE ? TRI_FALSE : TRI_TRUE,
		.knows_tokens = !cloud_rules,
		.tokens = c->iam_tokens,
		.n_tokens = c->n_iam_tokens,
	};
	struct netrules_fault f;

	if (!netrules_tokens_ok(c->iam_tokens, c->n_iam_tokens, &f) ||
	    (c->network && !netrules_network_ok(c->network, &with, &f))) {
		rules_network_fault(&f, st);
		return false;
	}
	return cloud_rules || rules_check_lifecycle(&c->lifecycle, st);
}

static bool asks_to_recreate(const struct policy_change *p)
{
	return (p->set & BIT(POLICY_F_ON_GONE)) && p->to.on_gone == POLICY_RECREATE;
}

static bool is_valid(const struct sandbox_create *c, struct status *st)
{
	if (!rules_check_create(c, st) || !policy_check(&c->policy, st) ||
	    !surface_is_valid(&c->what, c->cloud_rules, st))
		return false;
	if (c->name || !asks_to_recreate(&c->policy))
		return true;
	status_field(st, "policy.on_gone", "recreate needs a name: it is for the sandbox behind one");
	return false;
}

/* Sets the defaults of what the caller left open, then checks all of it: a->bad. */
static int complete(struct args *a)
{
	struct cloud_create *w = &a->c.what;

	if (!w->template_id && text_set(&w->template_id, "base") < 0)
		return -ENOMEM;
	if (w->network && netrules_complete(w->network, w->allow_internet_access) < 0)
		return -ENOMEM;
	a->bad = !is_valid(&a->c, &a->why);
	if (!a->bad && !rules_timeout_s(a->c.timeout_ms, &w->timeout_s))
		must(false);
	return 0;
}

/* --- the answer --- */

static void end_with(struct sandbox_op *op, struct sandbox *b, enum sandbox_source source)
{
	struct args *a = op->args;

	if (a->c.wait_ready && b->state == SANDBOX_RUNNING)
		op_wait_ready(op, b);
	else
		op_end_claimed(op, b, source);
}

static void lease_first(struct sandbox_op *op, struct sandbox *b);

static void on_leased(struct sandbox_op *op, const struct status *st)
{
	struct sandbox *b = core_find(op->core, op->account, op->id);
	struct args *a = op->args;
	struct lease *x = b ? lease_of_process(b, a->holder) : NULL;

	if (!status_ok(st)) {
		if (x && !x->written)
			lease_end(x, "it could not be written down");
		op_fail(op, st);
	} else if (!b) {
		op_fail_errno(op, -EIO);
	} else if (!x && !a->holder->dead && sandbox_is_live(b)) {
		lease_first(op, b);	/* the call that took the lease could not write it and ended it: take another */
	} else {
		if (x)
			x->written = true;
		end_with(op, b, SANDBOX_FROM_CACHE);
	}
}

/* The sandbox existed before this call, whose process gets a lease before the answer. One whose transaction by another call of
 * the process is under way is written once more, since that transaction may fail. */
static void lease_first(struct sandbox_op *op, struct sandbox *b)
{
	struct args *a = op->args;
	struct lease_make m = { .uid = op->who.uid, .pid = a->holder->pid, .label = "",
				.kind = ROW_LEASE_PROCESS, .holder = a->holder };
	struct lease *x = lease_of_process(b, a->holder);
	struct store_tx *t;
	struct status st;

	op->account = b->account;
	if (!x && !extend_admits(b->account, b, &st)) {
		op_fail(op, &st);
		return;
	}
	if (text_set(&op->id, b->id) < 0 || store_tx_new(op->core->store, &t) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	if (!x && lease_take(op->core, b, &m, NULL, &x) < 0) {
		store_tx_drop(t);
		op_fail_errno(op, -ENOMEM);
		return;
	}
	lease_put(t, x);
	sandbox_put(t, b);
	event_put(op->core, t, b, EVENT_UPDATED, "lease=taken\nlease_id=%s\n", x->id);
	runner_poke(b);
	op_commit(op, t, on_leased);
}

static void answer_sandbox(struct sandbox_op *op, struct sandbox *b, enum sandbox_source source)
{
	struct args *a = op->args;
	const struct lease *x = a->holder ? lease_of_process(b, a->holder) : NULL;

	sandbox_claim(op->core, b, op->who.uid);
	if (a->holder && !a->holder->dead && sandbox_is_live(b) && (!x || !x->written))
		lease_first(op, b);
	else
		end_with(op, b, source);
}

static bool is_stale(const struct sandbox_op *op, const struct sandbox *b)
{
	const struct args *a = op->args;

	return !a->is_fresh && sandbox_is_live(b) &&
	       (!b->fresh_at_ms || b->fresh_at_ms + op->core->max_staleness_ms < clock_boot_ms());
}

/* Also without an answer of the cloud: the sandbox is then answered as it was last seen. */
static void on_fetched(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct args *a = op->args;

	a->is_fresh = true;
	defer_post(&op->kick);
}

static void ask_about(struct sandbox_op *op, struct sandbox *b)
{
	op->fetch.fn = on_fetched;
	if (fetch_join(op->core, b->account, b->id, false, &op->fetch) < 0)
		op_fail_errno(op, -ENOMEM);
}

static enum sandbox_source source_of(const struct sandbox_op *op, const struct sandbox *b)
{
	const struct args *a = op->args;

	if (b->unreachable)
		return SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE;
	return a->is_fresh ? SANDBOX_FROM_CLOUD : SANDBOX_FROM_CACHE;
}

/* The claim that it waited for is on record: begin again. */
static void on_other_claimed(struct sandbox_op *op, const struct status *st, bool yes)
{
	if (yes)
		defer_post(&op->kick);
	else
		op_fail(op, st);
}

static void record_request(struct sandbox_op *op, struct request *q);

/* Answers a repeat with the request id's sandbox, as it is now. Another call's write of that may still fail: this one writes it too. */
static void answer_request(struct sandbox_op *op, struct request *q)
{
	struct sandbox *b = core_find(op->core, q->account, q->object);
	struct status st;

	if (q->unwritten) {
		record_request(op, q);
	} else if (b && warm_joins(b, op, on_other_claimed)) {
		return;
	} else if (b && is_stale(op, b)) {
		ask_about(op, b);
	} else if (b) {
		answer_sandbox(op, b, source_of(op, b));
	} else {
		status_set(&st, R_SANDBOX_GONE, "sandbox %s of this request_id no longer exists",
			   q->object);
		status_evidence(&st, "sandbox_id", "%s", q->object);
		op_fail(op, &st);
	}
}

static void on_told(struct sandbox_op *op, const struct status *st, bool yes)
{
	struct creation *c = creation_from(give(op->attempt));
	struct sandbox *b = yes ? creation_sandbox(c) : NULL;
	struct args *a = op->args;

	if (b && a->own)
		answer_sandbox(op, b, SANDBOX_FROM_CLOUD);
	else if (!b && (a->own || !memcmp(a->c.params_hash, c->params_hash, sizeof(a->c.params_hash))))
		op_fail(op, st);
	else
		defer_post(&op->kick); /* another call's creation of the name: begin again */
}

enum verdict { GO_ON, ANSWERED };

/* --- step 2: is there a sandbox of the name? --- */

/* The request id's row, with the sandbox that has the name, is written before the answer. */
static void on_request_recorded(struct sandbox_op *op, const struct status *st)
{
	struct args *a = op->args;
	struct request *q = core_find_request(op->core, op->who.uid, REQUEST_CREATE, a->c.request_id);

	if (q && q->writes)
		q->writes--;
	if (q && status_ok(st))
		q->unwritten = false;
	/* A repeat must not be answered from a row that memory alone has. */
	if (q && q->unwritten && !q->writes && !q->attempt)
		core_forget_request(op->core, q);
	if (!status_ok(st))
		op_fail(op, st);
	else if (q)
		answer_request(op, q);
	else
		op_fail_errno(op, -EIO);
}

static void record_request(struct sandbox_op *op, struct request *q)
{
	struct store_tx *t;

	if (store_tx_new(op->core->store, &t) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	q->writes++;
	core_put_request(t, q);
	op_commit(op, t, on_request_recorded);
}

static void answer_named(struct sandbox_op *op, struct sandbox *b)
{
	struct args *a = op->args;
	struct request *q;

	if (!a->c.request_id) {
		answer_sandbox(op, b, source_of(op, b));
		return;
	}
	if (core_need_request(op->core, op->who.uid, REQUEST_CREATE, a->c.request_id, &q) < 0 ||
	    text_set(&q->object, b->id) < 0 || index_request_set_tag(op->core, q, b->id) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	memcpy(q->params_hash, a->c.params_hash, sizeof(q->params_hash));
	q->account = b->account;
	q->step = ROW_REQUEST_DONE;
	q->used_at_ms = clock_wall_ms();
	q->unwritten = true;
	record_request(op, q);
}

static enum verdict check_name(struct sandbox_op *op, struct name_slot *n)
{
	struct args *a = op->args;
	struct sandbox *b = n->id[0] ? core_find(op->core, n->account, n->id) : NULL;
	struct status st;

	if (n->creation) {
		a->own = false;
		attempt_join(&n->creation->att, op, on_told);
		return ANSWERED;
	}
	if (!b || !sandbox_is_live(b))
		return GO_ON;
	if (warm_joins(b, op, on_other_claimed))
		return ANSWERED;
	if (is_stale(op, b)) {
		ask_about(op, b);
		return ANSWERED;
	}
	if (a->c.must_create) {
		status_set(&st, R_NAME_EXISTS, "name %s is taken by sandbox %s", n->name, b->id);
		status_evidence(&st, "sandbox_id", "%s", b->id);
		op_fail(op, &st);
		return ANSWERED;
	}
	answer_named(op, b);
	return ANSWERED;
}

/* --- step 3: may one be made? --- */

static bool over_rate(struct uid_limit *u, uint32_t n, uint64_t now_ms, struct status *st)
{
	if (!u->creates_per_minute)
		return false;
	if (now_ms >= u->window_at_ms + CREATES_WINDOW_MS) {
		u->window_at_ms = now_ms;
		u->window_creates = 0;
	}
	if (u->window_creates + n <= u->creates_per_minute) {
		u->window_creates += n;
		return false;
	}
	status_set(st, R_QUOTA_UID, "uid %u may create %u sandboxes a minute", owner_uid(u->uid),
		   u->creates_per_minute);
	st->retry_after_ms = (uint32_t)(u->window_at_ms + CREATES_WINDOW_MS - now_ms);
	return true;
}

bool core_refused_by_uid(struct sandbox_core *core, uid_t uid, uint32_t n, struct status *st)
{
	struct uid_limit *u;

	if (core_uid_limit_of(core, uid, &u) < 0) {
		status_errno(st, -ENOMEM, "counting the sandboxes of the uid");
		return true;
	}
	if (u && u->max_sandboxes && u->n_alive + core_attempts_count(core, NULL, &u->uid) + n > u->max_sandboxes) {
		status_set(st, R_QUOTA_UID, "uid %u is limited to %u sandboxes", owner_uid(u->uid), u->max_sandboxes);
		return true;
	}
	return u && over_rate(u, n, clock_boot_ms(), st);
}

/* Counts unclaimed warm sandboxes as room, and ends as many of them as are needed. */
static bool is_account_full(struct sandbox_core *core, struct account *a, uint32_t n)
{
	uint32_t all = a->n_alive + core_attempts_count(core, a, NULL), warm = warm_count(core, a) + a->n_warm_ending;

	if (!a->max_sandboxes || all + n <= a->max_sandboxes)
		return false;
	if (all - MIN(all, warm) + n > a->max_sandboxes)
		return true;
	warm_make_room(core, a, all + n - a->max_sandboxes);
	return false;
}

bool core_is_retired(const struct account *a, struct status *st)
{
	if (a->retired)
		status_set(st, R_ACCOUNT_NOT_FOUND, "account %s was taken out of the configuration: nothing new is made in it", a->name);
	return a->retired;
}

bool core_refused_by_limits(struct sandbox_core *core, struct account *a, uid_t uid, uint32_t n,
			    struct status *st)
{
	if (core_is_retired(a, st))
		return true;
	if (is_account_full(core, a, n)) {
		status_set(st, R_QUOTA_UID, "account %s is limited to %u sandboxes", a->name, a->max_sandboxes);
		return true;
	}
	return core_refused_by_uid(core, uid, n, st);
}

/* --- step 4: make it --- */

/* The tag follows from uid and request id, so that it is found again after a loss of the store; without a request id it is random. */
static void req_tag(struct sandbox_core *core, uid_t uid, const char *request_id,
		    char ret[TAG_REQ_LEN + 1])
{
	uint8_t hash[32];
	char text[32 + RULES_REQUEST_ID_MAX];
	int n;

	if (!request_id) {
		rng_system(hash, TAG_REQ_LEN / 2);
	} else {
		n = snprintf(text, sizeof(text), "%u Create %s", uid, request_id);
		must(n > 0 && (size_t)n < sizeof(text));
		core->sha256(text, (size_t)n, hash);
	}
	str_hex(hash, TAG_REQ_LEN / 2, ret);
}

static void policy_of(const struct sandbox_op *op, struct policy *ret)
{
	const struct args *a = op->args;

	core_policy_default(op->core, op->who.uid, a->c.what.template_id, ret);
	policy_merge(ret, &a->c.policy);
	if (!a->c.name)
		ret->on_gone = POLICY_FAIL;	/* only a name can be made again */
}

/* If it is to be leased from the first moment, can extensions keep it alive from then on? */
static bool can_be_kept(struct sandbox_op *op, struct status *st)
{
	const struct args *a = op->args;
	struct policy p;

	policy_of(op, &p);
	return !a->holder || !p.keep_alive ||
	       extend_admits_new(op->account,
				 MAX(a->c.what.timeout_s, extend_span_with_new_s(op->account)), st);
}

static int fill_creation(struct sandbox_op *op, struct creation *c)
{
	struct args *a = op->args;
	int r = 0;

	policy_of(op, &c->att.policy);
	policy_format(&c->att.policy, c->policy_text);
	c->holder = a->holder;
	if (c->holder)
		c->holder->refs++;
	/* The op needs these no more: it ends with the creation, and a repeat compares hashes. */
	c->what = a->c.what;
	a->c.what = (struct cloud_create){ 0 };
	memcpy(c->params_hash, a->c.params_hash, sizeof(c->params_hash));
	if (!r && a->c.name)
		r = core_need_name(op->core, op->who.uid, a->c.name, &c->name);
	if (c->name)
		c->generation = c->name->generation + 1;
	if (!r && a->c.request_id)
		r = attempt_take_request(&c->att, REQUEST_CREATE, a->c.request_id, c->att.req_tag,
					 a->c.params_hash);
	return r;
}

/* As if the cloud had no such template. */
static void say_no_template(const struct sandbox_op *op, struct status *st)
{
	const struct args *a = op->args;

	status_set(st, R_TEMPLATE_NOT_FOUND, "the cloud has no such template: template '%s' not found",
		   a->c.what.template_id);
	status_evidence(st, "route", "POST /sandboxes");
	status_evidence(st, "upstream_status", "404");
}

/* Is the template another uid's snapshot? */
static bool hides_template(struct sandbox_op *op, struct status *st)
{
	const struct args *a = op->args;
	const struct snap *s = snap_named(op->core, op->account, a->c.what.template_id);

	if (!s || snap_may_see(&op->who, s))
		return false;
	say_no_template(op, st);
	return true;
}

/* A request id that asked for it is as used as one whose template nobody has. */
static void refuse_hidden(struct sandbox_op *op, const struct status *st)
{
	const struct args *a = op->args;

	if (a->c.request_id &&
	    attempt_refuse_request(op->account, op->who.uid, REQUEST_CREATE, a->c.request_id, a->c.params_hash, st) < 0)
		op_fail_errno(op, -ENOMEM);
	else
		op_fail(op, st);
}

static void on_hidden_asked(struct fetch_wait *w, const struct fetch_result *result)
{
	struct sandbox_op *op = op_from_fetch(w);
	struct status st = *result->st;

	if (result->end == FETCH_FAILED) {
		status_replace_evidence(&st, "route", "POST /sandboxes");
		op_fail(op, &st);
	} else {
		say_no_template(op, &st);
		refuse_hidden(op, &st);
	}
}

/* A cloud that is away says nothing of a template that nobody has, and so nothing is said of this one: it is asked, but about an id
 * that it has never given, since a Create would make a sandbox. */
static void ask_for_hidden(struct sandbox_op *op)
{
	char id[22] = "i";

	rng_id(id + 1, 20);
	op->fetch.fn = on_hidden_asked;
	if (fetch_join(op->core, op->account, id, false, &op->fetch) < 0)
		op_fail_errno(op, -ENOMEM);
}

static void make(struct sandbox_op *op)
{
	struct args *a = op->args;
	char tag[TAG_REQ_LEN + 1];
	struct creation *c = NULL;
	struct status st;
	int r;

	if (hides_template(op, &st)) {
		ask_for_hidden(op);
		return;
	}
	req_tag(op->core, op->who.uid, a->c.request_id, tag);
	r = creation_new(op->core, op->account, op->who.uid, tag, &c);
	if (!r) {
		c->att.trace = op->trace;
		r = fill_creation(op, c);
	}
	if (!r)
		r = creation_start(c);
	if (!r) {
		a->own = true;
		attempt_join(&c->att, op, on_told);
		return;
	}
	if (c)
		attempt_give_up(&c->att);
	if (r == -EAGAIN) {
		core_store_refusal(op->core, &st);
		op_fail(op, &st);
	} else {
		op_fail_errno(op, r);
	}
}

/* --- step 3: is there a warm one? --- */

static void on_warm_told(struct sandbox_op *op, const struct status *st, bool yes)
{
	struct sandbox *b = yes ? op_sandbox(op) : NULL;

	if (b)
		answer_sandbox(op, b, SANDBOX_FROM_CACHE);
	else if (yes)
		op_fail_errno(op, -EIO);
	else
		op_fail(op, st);
}

static void on_warm_turn(struct sandbox_op *op, const struct status *st, bool yes);

static void warm_refuse(struct sandbox_op *op, const char *differs)
{
	struct status st;

	if (!differs)
		status_field(&st, "warm", "there is no [warm] entry that uid %u may claim", owner_uid(op->who.uid));
	else
		status_field(&st, "warm", "no [warm] entry fits: the nearest differs in %s", differs);
	op_fail(op, &st);
}

static void claim(struct sandbox_op *op, const struct warm_want *w, struct sandbox *b)
{
	struct status st;

	if (hides_template(op, &st) || core_refused_by_uid(op->core, op->who.uid, 1, &st) ||
	    (w->holder && !extend_admits(b->account, b, &st)))
		op_fail(op, &st);
	else if (warm_take(w, b, on_warm_told) < 0)
		op_fail_errno(op, -ENOMEM);
}

static enum verdict none_ready(struct sandbox_op *op, struct warm_entry *e, bool must_be)
{
	struct status st;

	e->misses += !((struct args *)op->args)->has_waited;
	if (!must_be) {
		warm_poke(e);
		return GO_ON;
	}
	if (!e->failed) {
		warm_wait(e, op, on_warm_turn);
		return ANSWERED;
	}
	status_set(&st, R_SANDBOX_NOT_READY, "[warm %s] has failed: %s", e->conf.name, e->why);
	op_fail(op, &st);
	return ANSWERED;
}

static enum verdict try_warm(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct warm_want w = { .op = op, .account = op->account, .c = &a->c, .holder = a->holder };
	enum sandbox_warm_mode mode = warm_mode(op->core, op->who.uid, a->c.what.template_id, a->c.warm);
	struct warm_entry *e;
	const char *differs;
	struct sandbox *b;

	if (mode == SANDBOX_WARM_NEVER)
		return GO_ON;
	e = warm_match(&w, &differs);
	if (!e && mode == SANDBOX_WARM_PREFER)
		return GO_ON;
	if (!e) {
		warm_refuse(op, differs);
		return ANSWERED;
	}
	policy_of(op, &w.policy);
	b = list_is_empty(&e->waiters) || a->has_waited ? warm_pick(&w, e) : NULL;
	if (!b)
		return none_ready(op, e, mode == SANDBOX_WARM_REQUIRE);
	claim(op, &w, b);
	return ANSWERED;
}

/* --- all steps --- */

static void ask_cloud(struct sandbox_op *op);

/* The account was listed, since the rows may have forgotten what the cloud has: begin again. */
static void op_create_on_listed(struct listing_wait *w, const struct status *st,
				const struct cloud_list *list, int64_t as_of_ms)
{
	struct sandbox_op *op = op_from(container_of(w, struct sandbox_op, listing));

	if (list)
		defer_post(&op->kick);
	else
		op_again(op, st, ask_cloud);
}

static void ask_cloud(struct sandbox_op *op)
{
	op->listing.fn = op_create_on_listed;
	listing_join(op->account, &op->listing);
}

/* The sandbox with the tag of a request id that has lost its row: no second one is made. NULL = none. */
static struct sandbox *forgotten_request(struct sandbox_op *op)
{
	struct args *a = op->args;
	char tag[TAG_REQ_LEN + 1];

	if (!a->c.request_id)
		return NULL;
	req_tag(op->core, op->who.uid, a->c.request_id, tag);
	return doubt_sandbox_of_tag(op->core, op->account, op->who.uid, tag);
}

static bool pick_account(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct account *own = core_account_of(op->core, op->who.uid);
	struct status st;

	if (grant_account(&op->who, own->name, a->c.account ? a->c.account : "") != GRANT_OK) {
		grant_refuse(&st, "name another account");
		op_fail(op, &st);
		return false;
	}
	op->account = a->c.account ? core_account_by_name(op->core, a->c.account) : own;
	if (op->account)
		return true;
	status_set(&st, R_ACCOUNT_NOT_FOUND, "there is no account %s", a->c.account);
	op_fail(op, &st);
	return false;
}

static void op_create_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct name_slot *n;
	struct request *q;
	struct status st;
	struct sandbox *b;

	if (a->bad) {
		op_fail(op, &a->why);
		return;
	}
	if (!pick_account(op))
		return;
	q = a->c.request_id
		    ? core_find_request(op->core, op->who.uid, REQUEST_CREATE, a->c.request_id)
		    : NULL;
	a->own = true;
	if (q && attempt_repeat(op, q, a->c.params_hash, on_told, answer_request))
		return;
	if (!q && (a->c.request_id || a->c.name) && doubt_waits(op->core, op->account)) {
		ask_cloud(op);
		return;
	}
	b = q ? NULL : forgotten_request(op);
	if (b) {
		answer_named(op, b);
		return;
	}
	n = a->c.name ? core_find_name(op->core, op->who.uid, a->c.name) : NULL;
	if (n && check_name(op, n) == ANSWERED)
		return;
	if (op->core->draining) {
		status_set(&st, R_DRAINING, "the daemon is stopping and creates nothing any more");
		op_fail(op, &st);
	} else if (core_is_quiesced(op->core, &st) || core_is_retired(op->account, &st)) {
		op_fail(op, &st);
	} else if (try_warm(op) == ANSWERED) {
		return;
	} else if (core_refused_by_limits(op->core, op->account, op->who.uid, 1, &st) || !can_be_kept(op, &st))
		op_fail(op, &st);
	else
		make(op);
}

/* Its entry has one for it now, or will have none. Its request id, or its name, may have got another meanwhile. */
static void on_warm_turn(struct sandbox_op *op, const struct status *st, bool yes)
{
	struct args *a = op->args;

	op->pending_error = (struct status)STATUS_OK;
	a->has_waited = true;
	if (yes)
		op_create_start(op);
	else
		op_fail(op, st);
	a->has_waited = false;
}

static void op_create_expire(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct status st;

	if (a->c.sent_deadline_ms && attempt_was_sent(op)) {
		op->deadline_ms = a->c.sent_deadline_ms;
		a->c.sent_deadline_ms = 0;
		if (timer_set(&op->timer, rules_answer_by_ms(op->deadline_ms, clock_boot_ms())) == 0)
			return;
	}
	attempt_expired(op, a->c.request_id, &st);
	op_fail(op, &st);
}

static const char *op_create_request(const struct sandbox_op *op, const char **ret_method)
{
	const struct args *a = op->args;

	*ret_method = REQUEST_CREATE;
	return a->bad ? NULL : a->c.request_id;
}

static const struct op_kind op_create_kind = {
	.name = "Create",
	.start = op_create_start,
	.expire = op_create_expire,
	.fail = op_fail_sandbox,
	.leave = attempt_leave,
	.request = op_create_request,
	.args_size = sizeof(struct args),
	.fini_args = op_create_fini_args,
};

int sandbox_create(struct sandbox_core *core, const struct sandbox_call *call,
		   struct sandbox_create *c, sandbox_view_fn *done, struct sandbox_op **ret)
{
	struct args a = { .c = *c };
	int r;

	*c = (struct sandbox_create){ 0 };
	r = complete(&a);
	if (!r && a.c.process_lease)
		r = holder_of(core, call->who, &a.holder);
	if (r < 0) {
		op_create_fini_args(&a);
		return r;
	}
	return op_new(core, &op_create_kind, call, &a, (union op_done){ .sandbox = done }, ret);
}
